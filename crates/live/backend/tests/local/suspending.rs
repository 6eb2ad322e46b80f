//! Attempts that are put aside in host memory by the driver, without their help, and brought back.

use crate::fake_driver::FakeDriver;
use crate::yard::{PROGRAM, WAIT, Yard, kill_9, lives, script, within};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use trainyard_backend::{
    AsideOrder, AsideSeen, Backend, LaunchOrder, LocalOptions, Order, Report, StopOrder, suspender,
};
use trainyard_types::{Attempt, JobId};

fn yard(name: &str) -> Option<(Yard, FakeDriver)> {
    let options = Yard::options(name);
    let fake = FakeDriver::new(&options.run_dir.with_extension("driver"))?;
    let driver = Some(fake.library());
    Some((Yard::with(LocalOptions { driver, ..options }), fake))
}

/// What goes wrong with the driver from now on; nothing does with an empty text.
fn behaves(fake: &FakeDriver, how: &str) {
    std::fs::write(fake.library().with_file_name("behaviour"), how).unwrap();
}

/// A script that uses the GPU, counts into its output and saves when it is asked to.
fn counts(fake: &FakeDriver) -> String {
    let library = fake.library();
    let folder = library.parent().unwrap().display();
    format!(
        "echo 0 > {folder}/$$; trap 'echo 41 > \"$TRAINYARD_ACK_FILE\"; exit 85' TERM; \
         echo pid $$; n=0; while :; do n=$((n+1)); echo step $n; sleep 0.05; done"
    )
}

fn job(text: &str) -> LaunchOrder {
    LaunchOrder { gpus: vec![0], devices: vec!["0".to_owned()], ..script(1, text) }
}

fn order(yard: &mut Yard, number: u32, aside: bool) {
    let order = AsideOrder { number, aside, memory_mib: 1, library: None };
    yard.backend().obey(Order::Aside(JobId(1), Attempt(1), order));
}

/// What is told of its being put aside next.
fn seen(yard: &Yard) -> AsideSeen {
    let begun = Instant::now();
    loop {
        match yard.next() {
            Report::Aside { seen, .. } => return seen,
            other => assert!(begun.elapsed() < WAIT, "{other:?}"),
        }
    }
}

/// Lines that it has written so far.
fn steps(yard: &Yard) -> usize {
    yard.log(1, 0).lines().filter(|line| line.starts_with("step ")).count()
}

fn pid(yard: &Yard) -> i32 {
    yard.until_log(1, "step 3");
    let log = yard.log(1, 0);
    let line = log.lines().find_map(|line| line.strip_prefix("pid "));
    line.and_then(|pid| pid.parse().ok()).expect("it says who it is")
}

fn stands_still(yard: &Yard) {
    let before = steps(yard);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(steps(yard), before, "it goes on though it is put aside");
}

#[test]
fn a_process_that_knows_nothing_of_it_is_put_aside_and_goes_on_where_it_was() {
    let Some((mut yard, fake)) = yard("aside") else { return };
    assert_eq!(yard.backend().cannot_suspend(), None);
    yard.launch(job(&counts(&fake)));
    let own = pid(&yard);
    order(&mut yard, 1, true);
    let put = seen(&yard);
    assert_eq!((put.number, put.aside, put.refused), (1, true, None));
    stands_still(&yard);
    // The same order again, and one that is older than the newest, change nothing.
    order(&mut yard, 1, true);
    order(&mut yard, 1, false);
    assert!(!seen(&yard).aside);
    order(&mut yard, 1, true);
    let before = steps(&yard);
    within(WAIT, "it goes on", || steps(&yard) > before + 3);
    assert_eq!(pid(&yard), own, "the same process");
    // A second time, over a restart of the daemon.
    order(&mut yard, 2, true);
    assert!(seen(&yard).aside);
    let run_dir = yard.run_dir.clone();
    yard.leave();
    let driver = Some(fake.library());
    let mut yard = Yard::with(LocalOptions { driver, ..LocalOptions::new(run_dir, PROGRAM) });
    assert_eq!(yard.backend().list_attempts().len(), 1);
    let again = seen(&yard);
    assert_eq!((again.number, again.aside), (2, true), "a new daemon is told as well");
    stands_still(&yard);
    order(&mut yard, 2, false);
    assert!(!seen(&yard).aside);
    let before = steps(&yard);
    within(WAIT, "it goes on again", || steps(&yard) > before + 3);
    assert!(lives(own));
    yard.stop(1, 10.0);
    let exit = yard.until_ended();
    assert_eq!((exit.code, exit.saved), (Some(85), Some(41.0)));
}

#[test]
fn an_attempt_that_is_put_aside_comes_back_to_save_when_it_is_stopped_and_is_killed_at_once_without_grace()
 {
    for (name, grace, code) in [("aside-save", 20.0, Some(85)), ("aside-kill", 0.0, None)] {
        let Some((mut yard, fake)) = yard(name) else { return };
        yard.launch(job(&counts(&fake)));
        pid(&yard);
        order(&mut yard, 1, true);
        assert!(seen(&yard).aside);
        let stop = StopOrder { grace_seconds: grace, why: "a test".to_owned() };
        yard.backend().obey(Order::Stop(JobId(1), Attempt(1), stop));
        let exit = yard.until_ended();
        assert_eq!(exit.code, code, "{name}: {exit:?}");
        assert_eq!(exit.saved.is_some(), code.is_some(), "{name}");
        assert!(!exit.lost, "{name}");
    }
}

#[test]
fn what_cannot_be_put_aside_is_said_with_its_reason_and_runs_on() {
    let two = "sleep 60 & echo 0 > $F/$!; ";
    let cases = [
        ("aside-none", "", "", "no process of it uses the GPU, 15 s after it was asked"),
        ("aside-two", two, "", "2 processes of it use the GPU"),
        ("aside-refused", "echo 0 > $F/$$; ", "no-checkpoint", "CUDA_ERROR_NOT_SUPPORTED (801)"),
    ];
    for (name, begins, behaviour, expected) in cases {
        let Some((mut yard, fake)) = yard(name) else { return };
        behaves(&fake, behaviour);
        let folder = fake.library().parent().unwrap().to_path_buf();
        let begins = if name == "aside-two" {
            format!("echo 0 > $F/$$; {begins}")
        } else {
            begins.to_owned()
        };
        let text = format!(
            "F={}; {begins} echo pid $$; n=0; while :; do n=$((n+1)); echo step $n; sleep 0.05; done",
            folder.display()
        );
        yard.launch(job(&text));
        pid(&yard);
        order(&mut yard, 1, true);
        let told = seen(&yard);
        let why = told.refused.unwrap_or_default();
        assert!(!told.aside && why.contains(expected), "{name}: {why}");
        let before = steps(&yard);
        within(WAIT, "it runs on", || steps(&yard) > before + 3);
        yard.stop(1, 0.0);
        yard.until_ended();
    }
}

#[test]
fn a_program_that_has_not_used_the_gpu_yet_is_waited_for() {
    let Some((mut yard, fake)) = yard("aside-soon") else { return };
    let folder = fake.library().parent().unwrap().display().to_string();
    let text = format!(
        "echo pid $$; n=0; while :; do n=$((n+1)); echo step $n; sleep 0.05; \
         if [ $n = 40 ]; then echo 0 > {folder}/$$; echo uses; fi; done"
    );
    yard.launch(job(&text));
    pid(&yard);
    assert!(!yard.log(1, 0).contains("uses"), "it is asked before it uses the GPU");
    order(&mut yard, 1, true);
    let put = seen(&yard);
    assert_eq!((put.number, put.aside, put.refused), (1, true, None));
    assert!(yard.log(1, 0).contains("uses"));
    stands_still(&yard);
    yard.stop(1, 0.0);
    yard.until_ended();
}

#[test]
fn host_memory_that_is_not_there_is_not_promised() {
    let Some((mut yard, fake)) = yard("aside-memory") else { return };
    yard.launch(job(&counts(&fake)));
    pid(&yard);
    let order = AsideOrder { number: 1, aside: true, memory_mib: 1 << 40, library: None };
    yard.backend().obey(Order::Aside(JobId(1), Attempt(1), order));
    let why = seen(&yard).refused.unwrap_or_default();
    assert!(why.contains("MiB of host memory, and") && why.contains("are available"), "{why}");
    yard.stop(1, 0.0);
    yard.until_ended();
}

#[test]
fn a_driver_that_crashes_takes_its_child_along_and_the_attempt_runs_on() {
    let Some((mut yard, fake)) = yard("aside-crash") else { return };
    yard.launch(job(&counts(&fake)));
    pid(&yard);
    behaves(&fake, "crash");
    order(&mut yard, 1, true);
    let why = seen(&yard).refused.unwrap_or_default();
    assert!(why.contains("ended without an answer"), "{why}");
    let before = steps(&yard);
    within(WAIT, "it is let go on", || steps(&yard) > before + 3);
    yard.stop(1, 0.0);
    yard.until_ended();
}

#[test]
fn what_cannot_be_brought_back_is_lost_by_no_fault_of_its_own() {
    let Some((mut yard, fake)) = yard("aside-lost") else { return };
    yard.launch(job(&counts(&fake)));
    let own = pid(&yard);
    order(&mut yard, 1, true);
    assert!(seen(&yard).aside);
    behaves(&fake, "no-restore");
    order(&mut yard, 1, false);
    let exit = yard.until_ended();
    assert!(exit.lost, "{exit:?}");
    assert!(yard.log(1, 0).contains("cannot be brought back"), "its log says why");
    within(WAIT, "nothing is left", || !lives(own));
}

#[test]
fn a_process_that_is_not_of_the_attempt_is_never_touched() {
    let options = Yard::options("aside-stranger");
    let Some(fake) = FakeDriver::new(&options.run_dir.with_extension("driver")) else { return };
    let mut stranger = std::process::Command::new("/bin/sleep").arg("60").spawn().unwrap();
    let pid = stranger.id() as i32;
    std::fs::write(fake.library().with_file_name(pid.to_string()), "0\n").unwrap();
    let began = trainyard_backend::processes::one(pid).unwrap().began_ticks;
    let ask = |keeper: i32, began: u64| {
        let request = suspender::Request {
            what: suspender::What::Suspend { memory_mib: 1 },
            processes: vec![(pid, began)],
            keeper,
            cgroup: None,
            identity: None,
            library: Some(fake.library()),
        };
        let mut child = std::process::Command::new(PROGRAM)
            .arg("driver")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let line = format!("{}\n", serde_json::to_string(&request).unwrap());
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), line.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let answer: suspender::DriverAnswer = serde_json::from_slice(&output.stdout).unwrap();
        answer.refused.unwrap_or_default()
    };
    // The keeper that is named has other descendants, or none.
    assert!(ask(pid, began).contains("does not belong to the attempt"));
    assert!(ask(std::process::id() as i32, began + 1).contains("its number is used again"));
    assert!(lives(pid), "and is not even held still");
    assert_eq!(ask(std::process::id() as i32, began), "", "its own keeper may");
    kill_9(pid);
    stranger.wait().unwrap();
}

#[test]
fn a_machine_without_such_a_driver_says_so() {
    let options = Yard::options("aside-absent");
    let driver = Some(PathBuf::from("/nowhere/libcuda.so.1"));
    let yard = Yard::with(LocalOptions { driver, ..options });
    let why = yard.local.as_ref().unwrap().cannot_suspend().unwrap_or_default();
    assert!(why.contains("/nowhere/libcuda.so.1"), "{why}");
}
