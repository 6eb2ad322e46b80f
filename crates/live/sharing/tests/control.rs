//! The arbiter as a process that is told what to do.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use trainyard_sharing::control::{ArbiterAnswer, ArbiterOrder, SharingTerms, ask, socket};
use trainyard_token::{FRAME, FromProgram, ToProgram};

const PROGRAM: &str = env!("CARGO_BIN_EXE_trainyard-share");

struct Arbiter(PathBuf, Child);

impl Arbiter {
    fn start(name: &str, idle: &str) -> Arbiter {
        let folder =
            std::env::temp_dir().join(format!("trainyard-control-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let child = start(&folder, idle);
        let begun = Instant::now();
        while UnixStream::connect(socket(&folder)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "it does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        Arbiter(folder, child)
    }

    fn ask(&self, order: &ArbiterOrder) -> ArbiterAnswer {
        ask(&self.0, order).unwrap()
    }

    fn terms(&self, name: &str, request: u32, mib: u64) -> SharingTerms {
        use std::os::unix::fs::MetadataExt;
        let user = std::fs::metadata("/proc/self").unwrap().uid();
        let socket = self.0.join(name);
        SharingTerms {
            socket,
            user,
            request,
            limit: 1000,
            memory_cap: Some(mib << 20),
            turns: true,
        }
    }
}

impl Drop for Arbiter {
    fn drop(&mut self) {
        let _ = self.1.kill();
        let _ = self.1.wait();
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(folder: &Path, idle: &str) -> Child {
    let words = [std::ffi::OsStr::new("--control"), folder.as_os_str()];
    let mut command = Command::new(PROGRAM);
    command.args(words).args(["--idle", idle]).stdin(Stdio::null()).spawn().unwrap()
}

/// What a program is told when it says hello, asks for memory, and once more.
fn reserved(socket: &Path, mib: [u64; 2]) -> Vec<ToProgram> {
    let mut stream = UnixStream::connect(socket).unwrap();
    let asked = mib.map(|mib| FromProgram::Reserve { bytes: mib << 20 }.encode());
    stream.write_all(&[FromProgram::Hello.encode(), asked[0], asked[1]].concat()).unwrap();
    let mut bytes = [0; 3 * FRAME];
    stream.read_exact(&mut bytes).unwrap();
    let frames = bytes.chunks_exact(FRAME);
    frames.map(|frame| ToProgram::decode(frame.try_into().unwrap()).unwrap()).collect()
}

#[test]
fn terms_are_set_changed_and_taken_away_by_name() {
    let arbiter = Arbiter::start("terms", "60s");
    let first = arbiter.terms("a", 600, 5);
    assert_eq!(arbiter.ask(&ArbiterOrder::Set(first.clone())), ArbiterAnswer::Done);
    let said = reserved(&first.socket, [5, 1]);
    assert!(matches!(said[1], ToProgram::Reserved { .. }), "{said:?}");
    assert!(matches!(said[2], ToProgram::Refused { .. }), "{said:?}");
    // The same name again is a change, and the programs of the job stay connected.
    let wider = SharingTerms { request: 300, memory_cap: Some(9 << 20), ..first.clone() };
    assert_eq!(arbiter.ask(&ArbiterOrder::Set(wider)), ArbiterAnswer::Done);
    let said = reserved(&first.socket, [5, 4]);
    assert!(matches!(said[2], ToProgram::Reserved { .. }), "{said:?}");
    let second = arbiter.terms("b", 800, 5);
    let ArbiterAnswer::Refused(why) = arbiter.ask(&ArbiterOrder::Set(second)) else {
        panic!("300 + 800")
    };
    assert!(why.contains("does not fit beside the 300 permille"), "{why}");
    let ArbiterAnswer::Told(told) = arbiter.ask(&ArbiterOrder::Tell) else {
        panic!("nothing is told")
    };
    assert_eq!(told.clients.len(), 1);
    assert_eq!((told.clients[0].request, told.clients[0].hellos), (300, 2));
    assert_eq!(arbiter.ask(&ArbiterOrder::Remove(first.socket.clone())), ArbiterAnswer::Done);
    assert!(!first.socket.exists());
}

#[test]
fn there_is_one_for_each_folder_and_the_next_takes_over_from_one_that_was_killed() {
    let mut arbiter = Arbiter::start("one", "60s");
    let terms = arbiter.terms("a", 500, 5);
    assert_eq!(arbiter.ask(&ArbiterOrder::Set(terms.clone())), ArbiterAnswer::Done);
    // Another process in the same folder goes at once.
    assert!(start(&arbiter.0, "60s").wait().unwrap().success());
    arbiter.1.kill().unwrap();
    arbiter.1.wait().unwrap();
    assert!(ask(&arbiter.0, &ArbiterOrder::Tell).is_err());
    assert!(terms.socket.exists(), "it left its socket");
    let arbiter = Arbiter::start("one", "60s");
    assert_eq!(arbiter.ask(&ArbiterOrder::Set(terms.clone())), ArbiterAnswer::Done);
    assert!(matches!(reserved(&terms.socket, [1, 1])[2], ToProgram::Reserved { .. }));
}

#[test]
fn it_ends_when_it_has_had_no_client_for_a_while() {
    let mut arbiter = Arbiter::start("idle", "100ms");
    let terms = arbiter.terms("a", 500, 5);
    if ask(&arbiter.0, &ArbiterOrder::Set(terms.clone())).is_ok() {
        assert_eq!(arbiter.ask(&ArbiterOrder::Remove(terms.socket)), ArbiterAnswer::Done);
    }
    assert!(arbiter.1.wait().unwrap().success());
    assert!(!socket(&arbiter.0).exists());
}

#[test]
fn what_makes_no_sense_is_refused_and_nothing_else_happens() {
    let arbiter = Arbiter::start("sense", "60s");
    for line in ["\n", "{}\n", "{\"set\":{}}\n", "\u{0}\n"] {
        let mut stream = UnixStream::connect(socket(&arbiter.0)).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("{\"refused\":"), "{line:?}: {answer}");
    }
    let nonsense = SharingTerms { limit: 100, ..arbiter.terms("a", 500, 5) };
    assert!(matches!(arbiter.ask(&ArbiterOrder::Set(nonsense)), ArbiterAnswer::Refused(_)));
    let nowhere = SharingTerms { socket: "/nowhere/a".into(), ..arbiter.terms("a", 500, 5) };
    assert!(matches!(arbiter.ask(&ArbiterOrder::Set(nowhere)), ArbiterAnswer::Refused(_)));
    assert!(matches!(arbiter.ask(&ArbiterOrder::Tell), ArbiterAnswer::Told(_)));
}
