//! Attempts that share a GPU: their environment, their arbiter, and what is said where shares cannot be held.

use crate::fake_nvml::FakeNvml;
use crate::yard::{PROGRAM, WAIT, Yard, script, within};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trainyard_backend::{
    Backend, HealthOptions, LaunchOrder, LocalOptions, Order, Report, SharingOrder,
};
use trainyard_sharing::control;
use trainyard_token::{FRAME, FromProgram, ToProgram};
use trainyard_types::{Attempt, JobId};

/// A yard whose library is a file that the loader passes over.
fn yard(name: &str) -> Yard {
    let options = Yard::options(name);
    let library = options.run_dir.with_extension("so");
    std::fs::write(&library, "").unwrap();
    std::fs::set_permissions(&library, PermissionsExt::from_mode(0o644)).unwrap();
    Yard::with(LocalOptions { library: Some(library), ..options })
}

fn share(job: u32, text: &str, (request, limit): (u16, u16)) -> LaunchOrder {
    let sharing = SharingOrder { request, limit, memory_mib: Some(100), place: None };
    LaunchOrder {
        gpus: vec![0],
        devices: vec!["0".to_owned()],
        sharing: Some(sharing),
        ..script(job, text)
    }
}

const WAITS: &str = "echo \"$LD_PRELOAD $TRAINYARD_SHARING_SOCKET\"; while :; do sleep 0.05; done";

/// The socket that a job was told, and what was loaded into it.
fn told(yard: &Yard, job: u32) -> (String, PathBuf) {
    within(WAIT, "it says where it shares", || yard.log(job, 0).contains("/share/0/"));
    let log = yard.log(job, 0);
    let line =
        log.lines().find(|line| line.contains("/share/0/") && !line.contains("ld.so")).unwrap();
    let (preload, socket) = line.rsplit_once(' ').unwrap();
    (preload.to_owned(), PathBuf::from(socket))
}

/// What a program that says hello and wants so much memory is answered.
fn reserve(socket: &Path, mib: u64) -> ToProgram {
    let mut stream = UnixStream::connect(socket).unwrap();
    let words = [FromProgram::Hello, FromProgram::Reserve { bytes: mib << 20 }];
    stream.write_all(&words.map(FromProgram::encode).concat()).unwrap();
    let mut bytes = [0; 2 * FRAME];
    stream.read_exact(&mut bytes).unwrap();
    ToProgram::decode(bytes[FRAME..].try_into().unwrap()).unwrap()
}

/// Ends jobs that run.
fn end(yard: &mut Yard, jobs: &[u32]) {
    for job in jobs {
        yard.stop(*job, 0.0);
        let dir = yard.dir(*job);
        within(WAIT, "it ends", || dir.join("exit.json").exists());
    }
}

fn until(yard: &Yard, what: &str, is_it: impl Fn(&Report) -> bool) -> Report {
    let begun = Instant::now();
    loop {
        let report = yard.next();
        if is_it(&report) {
            return report;
        }
        assert!(begun.elapsed() < WAIT, "{what}: {report:?}");
    }
}

#[test]
fn an_attempt_with_a_share_finds_its_arbiter_and_the_library_before_its_own() {
    let mut yard = yard("share-env");
    let mut order = share(1, WAITS, (300, 1000));
    order.env.insert("LD_PRELOAD".to_owned(), "/own.so".to_owned());
    yard.launch(order);
    yard.until_started();
    let (preload, socket) = told(&yard, 1);
    let library = preload.strip_suffix(":/own.so").unwrap_or_else(|| panic!("{preload}"));
    assert!(library.ends_with(".so"), "{library}");
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(reserve(&socket, 100), ToProgram::Reserved { .. }));
    assert!(matches!(reserve(&socket, 101), ToProgram::Refused { .. }));
    // Another cap and another share, while it runs.
    let sharing = SharingOrder { request: 500, limit: 500, memory_mib: Some(200), place: None };
    yard.backend().obey(Order::Share(JobId(1), Attempt(1), sharing));
    within(WAIT, "the cap is another", || {
        matches!(reserve(&socket, 101), ToProgram::Reserved { .. })
    });
    let seen = until(&yard, "what the arbiter tells", |report| match report {
        Report::Sharing { gpu: 0, seen } => seen.iter().any(|one| one.request == 500),
        _ => false,
    });
    let Report::Sharing { seen, .. } = seen else { unreachable!() };
    assert_eq!((seen[0].job, seen[0].limit, seen[0].memory_cap), (JobId(1), 500, Some(200 << 20)));
    yard.stop(1, 0.0);
    yard.until_ended();
    assert!(!socket.exists(), "it is gone with the attempt");
}

#[test]
fn a_daemon_that_starts_again_finds_shares_as_they_were() {
    let mut yard = yard("share-again");
    yard.launch(share(1, WAITS, (300, 300)));
    yard.until_started();
    let (_, socket) = told(&yard, 1);
    let library = Some(yard.run_dir.with_extension("so"));
    let options = LocalOptions { library, ..LocalOptions::new(&yard.run_dir, PROGRAM) };
    yard.leave();
    let mut yard = Yard::with(options);
    assert_eq!(yard.backend().list_attempts().len(), 1);
    assert!(matches!(reserve(&socket, 100), ToProgram::Reserved { .. }));
    yard.launch(share(2, WAITS, (700, 700)));
    let (_, second) = told(&yard, 2);
    assert_eq!(second.parent(), socket.parent(), "the same arbiter");
    // More than all of it is not to be had.
    yard.launch(share(3, "exit 0", (100, 100)));
    let notice = until(&yard, "it is said", |report| matches!(report, Report::Notice { .. }));
    let Report::Notice { job, what } = notice else { unreachable!() };
    assert_eq!(job, Some(JobId(3)));
    assert!(what.contains("not enforced") && what.contains("does not fit"), "{what}");
    end(&mut yard, &[1, 2]);
}

#[test]
fn where_shares_cannot_be_held_it_is_said_and_the_job_runs() {
    let options = Yard::options("share-none");
    let mut yard = Yard::with(LocalOptions { library: None, ..options });
    let mut cases = vec![share(1, "echo \"<$LD_PRELOAD>\"", (300, 300))];
    cases.push(LaunchOrder { gpus: vec![0, 1], ..share(2, "echo \"<$LD_PRELOAD>\"", (300, 300)) });
    let expected = ["is neither beside", "it has 2 GPUs"];
    for (order, expected) in cases.into_iter().zip(expected) {
        let job = order.job;
        yard.launch(order);
        let notice = until(&yard, "it is said", |report| matches!(report, Report::Notice { .. }));
        let Report::Notice { job: about, what } = notice else { unreachable!() };
        assert_eq!(about, Some(job));
        assert!(what.contains("runs by time slicing") && what.contains(expected), "{what}");
        assert_eq!(yard.until_ended().code, Some(0));
        assert!(yard.log(job.0, 0).contains("<>"));
    }
    // Told of a share while it runs, it has nothing that could hold it to one.
    yard.launch(LaunchOrder { sharing: None, ..share(4, WAITS, (1, 1)) });
    yard.until_started();
    let sharing = SharingOrder { request: 500, limit: 500, memory_mib: None, place: None };
    yard.backend().obey(Order::Share(JobId(4), Attempt(1), sharing));
    let notice = until(&yard, "it is said", |report| matches!(report, Report::Notice { .. }));
    let Report::Notice { what, .. } = notice else { unreachable!() };
    assert!(what.contains("started without one"), "{what}");
    end(&mut yard, &[4]);
}

#[test]
fn a_library_that_others_can_change_is_not_loaded() {
    let options = Yard::options("share-open");
    let library = options.run_dir.with_extension("so");
    std::fs::write(&library, "").unwrap();
    std::fs::set_permissions(&library, PermissionsExt::from_mode(0o666)).unwrap();
    let mut yard = Yard::with(LocalOptions { library: Some(library), ..options });
    yard.launch(share(1, "exit 0", (300, 300)));
    let notice = until(&yard, "it is said", |report| matches!(report, Report::Notice { .. }));
    let Report::Notice { what, .. } = notice else { unreachable!() };
    assert!(what.contains("can be changed by another user"), "{what}");
    assert_eq!(yard.until_ended().code, Some(0));
}

#[test]
fn an_arbiter_that_was_killed_is_started_again_and_its_jobs_are_told_of() {
    let mut yard = yard("share-killed");
    yard.launch(share(1, WAITS, (300, 300)));
    yard.until_started();
    let (_, socket) = told(&yard, 1);
    let folder = socket.parent().unwrap().to_path_buf();
    crate::yard::kill_9(arbiter_of(&folder));
    let notice = until(&yard, "it is said", |report| matches!(report, Report::Notice { .. }));
    let Report::Notice { job, what } = notice else { unreachable!() };
    assert_eq!(job, Some(JobId(1)));
    assert!(what.contains("the arbiter of GPU 0 was gone"), "{what}");
    assert!(control::ask(&folder, &control::ArbiterOrder::Tell).is_ok());
    assert!(matches!(reserve(&socket, 100), ToProgram::Reserved { .. }), "on the same terms");
    end(&mut yard, &[1]);
}

#[test]
fn an_attempt_that_takes_more_than_its_cap_is_stopped_and_told_of() {
    let options = Yard::options("share-beyond");
    let Some(fake) = FakeNvml::new(&options.run_dir.with_extension("lib"), 1) else { return };
    let library = options.run_dir.with_extension("so");
    std::fs::write(&library, "").unwrap();
    std::fs::set_permissions(&library, PermissionsExt::from_mode(0o644)).unwrap();
    let health = Some(HealthOptions { library: Some(fake.library()), ..HealthOptions::default() });
    let mut yard = Yard::with(LocalOptions { library: Some(library), health, ..options });
    yard.launch(share(1, &format!("echo pid $$; {WAITS}"), (300, 300)));
    yard.until_log(1, "pid ");
    let log = yard.log(1, 0);
    let pid = log.lines().find_map(|line| line.strip_prefix("pid ")).unwrap().to_owned();
    // Its cap is 100 MiB, and a context is beside it.
    fake.tell(&format!("0 process {pid} 1000"));
    std::thread::sleep(Duration::from_secs(5));
    assert!(!yard.dir(1).join("exit.json").exists());
    fake.tell(&format!("0 process {pid} 2000"));
    let notice =
        until(&yard, "it is said", |report| matches!(report, Report::Notice { job: Some(_), .. }));
    let Report::Notice { what, .. } = notice else { unreachable!() };
    assert!(what.contains("more than its cap of 100 MiB"), "{what}");
    assert_eq!(yard.until_ended().signal, Some(9));
}

/// The process that serves in a folder.
fn arbiter_of(folder: &Path) -> i32 {
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        if words.get(1) == Some(&&b"arbiter"[..])
            && words.get(2) == Some(&folder.as_os_str().as_encoded_bytes())
        {
            return pid;
        }
    }
    panic!("no arbiter serves in {}", folder.display());
}
