//! Attempts that share a GPU as clients of MPS, by a control program of our own.

use crate::fake_mps::{CONNECTS, FakeMps};
use crate::yard::{PROGRAM, WAIT, Yard, script, within};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use trainyard_backend::{
    Backend, Exit, LaunchOrder, LocalOptions, Order, Report, SharingOrder, StopOrder,
};
use trainyard_token::{FOREVER, FRAME, FromProgram, ToProgram};
use trainyard_types::{Attempt, JobId};

/// A yard on a run directory of its own, and the control program that it is told of.
fn yard(name: &str) -> (Yard, FakeMps) {
    let options = Yard::options(&format!("mps-{name}"));
    let fake = FakeMps::new(&options.run_dir.with_extension("mps"));
    let library = options.run_dir.with_extension("so");
    std::fs::write(&library, "").unwrap();
    std::fs::set_permissions(&library, PermissionsExt::from_mode(0o644)).unwrap();
    let mps = Some(fake.program());
    (Yard::with(LocalOptions { library: Some(library), mps, ..options }), fake)
}

fn share(job: u32, permille: u16, text: &str) -> LaunchOrder {
    let (request, limit) = (permille, permille);
    let sharing = SharingOrder { request, limit, memory_mib: Some(100), place: None };
    LaunchOrder {
        gpus: vec![0],
        devices: vec!["0".to_owned()],
        sharing: Some(sharing),
        ..script(job, text)
    }
}

/// Is a client, says what it was told, and waits for a file.
fn client(end: &str) -> String {
    format!(
        "{CONNECTS}; echo \"$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE% $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT \
         $CUDA_VISIBLE_DEVICES $TRAINYARD_SHARING_SOCKET\"; {end}"
    )
}

const WAITS: &str = "while :; do sleep 0.05; done";

fn line(yard: &Yard, job: u32, word: &str) -> String {
    within(WAIT, word, || yard.log(job, 0).contains(word));
    let log = yard.log(job, 0);
    let line = log.lines().find(|line| line.contains(word) && !line.contains("ld.so"));
    line.unwrap().to_owned()
}

fn notice(yard: &Yard, job: u32) -> String {
    let begun = Instant::now();
    loop {
        match yard.next() {
            Report::Notice { job: Some(about), what } if about == JobId(job) => return what,
            report => assert!(begun.elapsed() < WAIT, "{report:?}"),
        }
    }
}

fn ended(yard: &Yard, jobs: &[u32]) -> Vec<Exit> {
    let mut exits = vec![None; jobs.len()];
    while exits.iter().any(Option::is_none) {
        if let Report::Ended { job, exit, .. } = yard.next() {
            exits[jobs.iter().position(|one| *one == job.0).unwrap()] = Some(exit);
        }
    }
    exits.into_iter().flatten().collect()
}

fn end(yard: &mut Yard, jobs: &[u32]) {
    for job in jobs {
        let order = StopOrder { grace_seconds: 0.0, why: "a test".to_owned() };
        yard.backend().obey(Order::Stop(JobId(*job), Attempt(1), order));
        let dir = yard.dir(*job);
        within(WAIT, "it ends", || dir.join("exit.json").exists());
    }
}

/// What a program that asks for a turn gets.
fn turn(socket: &str) -> ToProgram {
    let mut stream = UnixStream::connect(socket).unwrap();
    let words = [FromProgram::Hello, FromProgram::Want];
    stream.write_all(&words.map(FromProgram::encode).concat()).unwrap();
    let mut bytes = [0; 2 * FRAME];
    stream.read_exact(&mut bytes).unwrap();
    ToProgram::decode(bytes[FRAME..].try_into().unwrap()).unwrap()
}

#[test]
fn clients_get_their_part_of_the_threads_and_no_turns_and_the_last_ends_mps() {
    let (mut yard, fake) = yard("clients");
    yard.launch(share(1, 300, &client(WAITS)));
    yard.launch(share(2, 700, &client(WAITS)));
    let (first, second) = (line(&yard, 1, "share/0"), line(&yard, 2, "share/0"));
    // Beside the cap there is room for a context, which MPS counts.
    assert!(first.starts_with("30% 0=1124M 0 "), "{first}");
    assert!(second.starts_with("70% 0=1124M 0 "), "{second}");
    for told in [&first, &second] {
        let socket = told.rsplit_once(' ').unwrap().1;
        assert_eq!(turn(socket), ToProgram::Granted { token: 0, quota_us: FOREVER });
    }
    assert_eq!(fake.calls(), ["start 0"], "one for both");
    let pipes = yard.run_dir.join("mps/0");
    assert_eq!(pipes.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    within(WAIT, "it is told of", || {
        yard.reports.try_iter().any(|report| match report {
            Report::Sharing { seen, .. } => seen.iter().any(|one| one.threads == Some(30)),
            Report::Notice { what, .. } => panic!("{what}"),
            _ => false,
        })
    });
    // Another share is for the next start, which is said once; another cap is for now.
    for permille in [400, 350] {
        let (request, limit) = (permille, permille);
        let sharing = SharingOrder { request, limit, memory_mib: Some(50), place: None };
        yard.backend().obey(Order::Share(JobId(2), Attempt(1), sharing));
    }
    assert!(notice(&yard, 2).contains("takes effect at its next start"));
    end(&mut yard, &[1]);
    assert_eq!(fake.calls(), ["start 0"], "the other one is still there");
    end(&mut yard, &[2]);
    within(WAIT, "it ends", || fake.calls() == ["start 0", "quit"]);
    within(WAIT, "nothing is left of it", || !pipes.exists());
    let more: Vec<Report> = yard.reports.try_iter().collect();
    assert!(!more.iter().any(|one| matches!(one, Report::Notice { .. })), "{more:?}");
}

#[test]
fn a_daemon_that_starts_again_finds_mps_and_ends_it_after_the_last_client() {
    let (mut yard, fake) = yard("again");
    yard.launch(share(1, 300, &client(WAITS)));
    line(&yard, 1, "share/0");
    let library = Some(yard.run_dir.with_extension("so"));
    let mps = Some(fake.program());
    let options = LocalOptions { library, mps, ..LocalOptions::new(&yard.run_dir, PROGRAM) };
    yard.leave();
    let mut yard = Yard::with(options);
    assert_eq!(yard.backend().list_attempts().len(), 1);
    yard.launch(share(2, 300, &client(WAITS)));
    line(&yard, 2, "share/0");
    assert_eq!(fake.calls(), ["start 0"], "the same");
    end(&mut yard, &[1, 2]);
    within(WAIT, "it ends", || fake.calls() == ["start 0", "quit"]);
}

#[test]
fn where_mps_cannot_be_had_the_job_takes_turns_and_it_is_said() {
    let (mut yard, fake) = yard("none");
    fake.tell("refuse", "");
    let text = "echo \"<$CUDA_MPS_PIPE_DIRECTORY> $TRAINYARD_SHARING_SOCKET\"";
    yard.launch(share(1, 300, &format!("{text}; {WAITS}")));
    let what = notice(&yard, 1);
    assert!(what.contains("takes turns instead") && what.contains("-d ended with"), "{what}");
    let told = line(&yard, 1, "share/0");
    let socket = told.strip_prefix("<> ").unwrap_or_else(|| panic!("{told}"));
    let ToProgram::Granted { quota_us, .. } = turn(socket) else { panic!("no turn") };
    assert!(quota_us < 1_000_000, "a turn as everywhere: {quota_us}");
    end(&mut yard, &[1]);
    // And where there is no such program.
    let options = Yard::options("mps-missing");
    let library = Some(yard.run_dir.with_extension("so"));
    let mps = Some(PathBuf::from("/nowhere/nvidia-cuda-mps-control"));
    let mut yard = Yard::with(LocalOptions { library, mps, ..options });
    yard.launch(share(1, 300, "exit 0"));
    let what = notice(&yard, 1);
    assert!(what.contains("takes turns instead") && what.contains("No such file"), "{what}");
}

#[test]
fn a_process_that_uses_the_gpu_and_is_no_client_is_told_of() {
    let (mut yard, _fake) = yard("stray");
    yard.launch(share(1, 300, &client(WAITS)));
    let told = line(&yard, 1, "share/0");
    // This process says hello as one of the job's, and MPS does not know it.
    let mut stream = UnixStream::connect(told.rsplit_once(' ').unwrap().1).unwrap();
    stream.write_all(&FromProgram::Hello.encode()).unwrap();
    let what = notice(&yard, 1);
    let own = format!("its process {} uses GPU 0 and is no client of MPS", std::process::id());
    assert!(what.contains(&own), "{what}");
    end(&mut yard, &[1]);
}

#[test]
fn a_fault_of_one_client_is_laid_to_none_and_keeps_their_jobs_apart() {
    let (mut yard, fake) = yard("fault");
    let flag = yard.run_dir.with_extension("flag");
    let _ = std::fs::remove_file(&flag);
    let fails = format!("while ! [ -e {} ]; do sleep 0.05; done; exit 1", flag.display());
    yard.launch(share(1, 300, &client(&fails)));
    yard.launch(share(2, 300, &client(&fails)));
    line(&yard, 1, "share/0");
    line(&yard, 2, "share/0");
    fake.tell("status", "FAULT");
    std::fs::write(&flag, "").unwrap();
    for exit in ended(&yard, &[1, 2]) {
        let why = exit.excused.unwrap();
        assert!(why.contains("one of its 2 clients brought down"), "{why}");
        assert!(why.contains("says FAULT"), "{why}");
    }
    std::fs::remove_file(fake.program().with_file_name("status")).unwrap();
    let again = LaunchOrder { attempt: Attempt(2), ..share(1, 300, "exit 0") };
    yard.launch(again);
    let what = notice(&yard, 1);
    assert!(what.contains("may be to blame"), "{what}");
    // It is another's turn to be a client.
    yard.launch(share(3, 300, &client("exit 0")));
    line(&yard, 3, "30%");
    let _ = std::fs::remove_file(flag);
}

#[test]
fn a_server_that_is_gone_while_its_clients_are_not_is_told_of_and_takes_no_more() {
    let (mut yard, fake) = yard("gone");
    yard.launch(share(1, 300, &client(WAITS)));
    line(&yard, 1, "share/0");
    // It was seen before.
    std::thread::sleep(Duration::from_secs(4));
    fake.tell("server", "434343");
    let what = notice(&yard, 1);
    assert!(what.contains("MPS on GPU 0 has failed: its server is gone"), "{what}");
    yard.launch(share(2, 300, "exit 0"));
    let what = notice(&yard, 2);
    assert!(what.contains("its clients are not gone yet"), "{what}");
    end(&mut yard, &[1]);
}

#[test]
fn clients_that_fail_within_moments_are_excused_also_where_mps_says_nothing() {
    let (mut yard, _fake) = yard("moments");
    yard.launch(share(1, 300, &client("sleep 1; exit 1")));
    yard.launch(share(2, 300, &client("sleep 1.3; exit 1")));
    for exit in ended(&yard, &[1, 2]) {
        assert!(
            exit.excused.as_ref().is_some_and(|why| why.contains("within moments")),
            "{exit:?}"
        );
    }
}

#[test]
fn a_client_that_fails_by_itself_has_no_excuse_and_its_neighbour_goes_on() {
    let (mut yard, _fake) = yard("itself");
    yard.launch(share(1, 300, &client("exit 1")));
    yard.launch(share(2, 300, &client(WAITS)));
    line(&yard, 2, "share/0");
    assert_eq!(ended(&yard, &[1])[0].excused, None);
    std::thread::sleep(Duration::from_millis(100));
    assert!(!yard.dir(2).join("exit.json").exists());
    end(&mut yard, &[2]);
}
