//! Other users: as root, and by the privileged helper. These tests need root and say so where they have not.

use crate::yard::{PROGRAM, WAIT, Yard, keeper_of, lives, script, within};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use trainyard_backend::order::{Identity, Limits};
use trainyard_backend::{Backend, Exit, LaunchOrder, LocalOptions, helper};
use trainyard_testkit::orders::Orders;

pub const NOBODY: u32 = 65_534;

/// One at a time: limits count all processes of a user.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn nobody() -> Option<Identity> {
    let root = nix::unistd::geteuid().is_root();
    let user = nix::unistd::User::from_name("nobody").ok().flatten();
    let user = user.filter(|user| root && user.uid.as_raw() == NOBODY);
    if user.is_none() {
        trainyard_testkit::skip!("root", "needs root and a user nobody with number {NOBODY}");
    }
    user.map(|user| Identity {
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
        name: user.name,
        home: "/nonexistent".to_owned(),
    })
}

pub fn as_nobody(identity: &Identity, job: u32, text: &str) -> LaunchOrder {
    LaunchOrder { identity: Some(identity.clone()), ..script(job, text) }
}

#[test]
fn ranks_run_as_the_user_who_submitted_them_and_can_use_their_socket() {
    let Some(identity) = nobody() else { return };
    let _alone = alone();
    let mut yard = Yard::new("user");
    let text = "id -u; id -g; echo $HOME $USER; test -w $TRAINYARD_SOCKET && echo socket; \
                touch $TRAINYARD_ACK_FILE && echo file; cat $(dirname $TRAINYARD_ACK_FILE)/../orders/launch.json; \
                ls $(dirname $TRAINYARD_ACK_FILE)/..; exit 0";
    let exit = yard.run(as_nobody(&identity, 1, text));
    assert_eq!(exit.code, Some(0), "{exit:?}");
    let log = yard.log(1, 0);
    let expected = format!("{NOBODY}\n{}\n/nonexistent nobody\nsocket\nfile\n", identity.gid);
    assert!(log.starts_with(&expected), "{log}");
    assert_eq!(
        log.matches("Permission denied").count(),
        2,
        "orders are not the job's to read: {log}"
    );
}

#[test]
fn a_directory_that_the_user_may_not_enter_is_named() {
    let Some(identity) = nobody() else { return };
    let _alone = alone();
    let mut yard = Yard::new("closed");
    let closed = yard.run_dir.join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
    let mut order = as_nobody(&identity, 1, "true");
    order.cwd = closed.display().to_string();
    let why = yard.run(order).launch_error.unwrap();
    assert!(why.ends_with("cannot be entered for user nobody: Permission denied"), "{why}");
}

#[test]
fn only_root_itself_runs_as_root_and_only_without_a_helper() {
    let Some(mut identity) = nobody() else { return };
    let _alone = alone();
    (identity.uid, identity.gid) = (0, 0);
    let mut yard = Yard::new("root");
    assert_eq!(yard.run(as_nobody(&identity, 1, "id -u")).code, Some(0));
    assert_eq!(yard.log(1, 0), "0\n");
}

#[test]
fn a_preloaded_library_of_a_user_is_not_loaded_before_the_user_is() {
    let Some(identity) = nobody() else { return };
    let _alone = alone();
    let mut yard = Yard::new("preload");
    let mut order = as_nobody(&identity, 1, "echo $LD_PRELOAD");
    order.env.insert("LD_PRELOAD".to_owned(), "/no/such/library.so".to_owned());
    assert_eq!(yard.run(order).code, Some(0));
    // The loader complains once for each program that it starts with it: bash alone, not the stage before it.
    assert_eq!(yard.log(1, 0).matches("cannot be preloaded").count(), 1, "{}", yard.log(1, 0));
}

#[test]
fn a_fork_loop_of_another_user_stands_against_its_limit_and_is_killed() {
    stops_a_fork_loop("forks", Yard::new);
}

#[test]
fn a_fork_loop_is_killed_without_cgroups_too() {
    stops_a_fork_loop("forks-plain", Yard::without_cgroups);
}

fn stops_a_fork_loop(name: &str, make: fn(&str) -> Yard) {
    let Some(identity) = nobody() else { return };
    let _alone = alone();
    let mut yard = make(name);
    let mut order = as_nobody(
        &identity,
        1,
        "trap '' TERM; echo ready; f() { f & f & sleep 0.01; f; }; f 2>/dev/null; while :; do sleep 0.1; done",
    );
    order.limits = Limits { processes_max: 60, ..order.limits };
    yard.launch(order);
    yard.until_log(1, "ready");
    let of_nobody = || trainyard_backend::processes::tasks_of(NOBODY);
    within(WAIT, "the loop fills its limit", || of_nobody() >= 40);
    assert!(of_nobody() <= 200, "{}", of_nobody());
    yard.stop(1, 0.3);
    let exit = yard.until_ended();
    assert!(exit.killed, "{exit:?}");
    within(WAIT, "nothing of it is left", || of_nobody() == 0);
}

/// A helper as root, and a backend of an unprivileged user in a process of its own.
pub struct Helped {
    pub run_dir: PathBuf,
    socket: PathBuf,
    helper: Child,
    _alone: MutexGuard<'static, ()>,
}

impl Helped {
    pub fn new(name: &str) -> Option<Helped> {
        Helped::by(Command::new("env"), name)
    }

    /// The same with the rights of its unit in `deploy`, and no more.
    pub fn confined(name: &str) -> Option<Helped> {
        let mut command = Command::new("setpriv");
        command.arg("--bounding-set=-all,+setuid,+setgid,+kill,+chown,+dac_override,+sys_resource");
        Helped::by(command, name)
    }

    fn by(mut command: Command, name: &str) -> Option<Helped> {
        nobody()?;
        let daemon = nix::unistd::User::from_name("daemon").ok().flatten();
        let exe = std::env::current_exe().unwrap();
        let reachable = as_daemon(&exe).arg("--list").stdout(Stdio::null()).status();
        if daemon.is_none() || !reachable.is_ok_and(|status| status.success()) {
            trainyard_testkit::skip!(
                "root",
                "needs setpriv, a user daemon, and test programs that it may execute"
            );
            return None;
        }
        let run_dir = std::env::temp_dir().join(format!("ty-local-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&run_dir);
        std::fs::create_dir(&run_dir).unwrap();
        let daemon = daemon.unwrap();
        std::os::unix::fs::chown(&run_dir, Some(daemon.uid.as_raw()), Some(daemon.gid.as_raw()))
            .unwrap();
        let socket = run_dir.with_extension("helper");
        let helper = command
            .args([PROGRAM, "helper", "--user", "daemon", "--run-dir"])
            .arg(&run_dir)
            .arg("--socket")
            .arg(&socket)
            .spawn()
            .unwrap();
        let helped = Helped { run_dir, socket, helper, _alone: alone() };
        within(WAIT, "the helper listens", || {
            helped.socket.metadata().is_ok_and(|data| data.uid() == daemon.uid.as_raw())
        });
        Some(helped)
    }

    /// Runs one of the tests below as the daemon's user.
    pub fn play(&self, part: &str) {
        let output = as_daemon(&std::env::current_exe().unwrap())
            .args(["--exact", part, "--nocapture"])
            .env("TRAINYARD_TEST_RUN_DIR", &self.run_dir)
            .env("TRAINYARD_TEST_HELPER", &self.socket)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("played"), "{text}");
    }
}

impl Drop for Helped {
    fn drop(&mut self) {
        let _ = self.helper.kill();
        let _ = self.helper.wait();
        let _ = std::fs::remove_file(&self.socket);
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.run_dir);
        }
    }
}

fn as_daemon(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=daemon", "--regid=daemon", "--clear-groups"]).arg(program);
    command
}

/// The part's yard, where this process plays one.
pub fn part() -> Option<(Yard, PathBuf)> {
    let socket = PathBuf::from(std::env::var_os("TRAINYARD_TEST_HELPER")?);
    let run_dir = PathBuf::from(std::env::var_os("TRAINYARD_TEST_RUN_DIR")?);
    let options =
        LocalOptions { helper: Some(socket.clone()), ..LocalOptions::new(run_dir, PROGRAM) };
    Some((Yard::with(options), socket))
}

fn identity(uid: u32, gid: u32) -> Identity {
    Identity { uid, gid, name: "root".to_owned(), home: "/root".to_owned() }
}

#[test]
fn an_unprivileged_daemon_runs_jobs_of_others_by_the_helper() {
    if let Some(helped) = Helped::new("helped") {
        helped.play("users::part_of_a_daemon_with_a_helper");
        assert!(!helped.run_dir.join("1.1").exists(), "the daemon could put it away");
    }
}

#[test]
fn part_of_a_daemon_with_a_helper() {
    let Some((mut yard, _)) = part() else { return };
    assert!(yard.backend().changes_users());
    // Name and group of root are not obeyed: the system's own are used.
    let order = as_nobody(
        &identity(NOBODY, 0),
        1,
        "id -un; id -G; echo $HOME; trap 'exit 85' TERM; echo ready; while :; do sleep 0.02; done",
    );
    yard.launch(order);
    yard.until_started();
    yard.until_log(1, "ready");
    let log = yard.log(1, 0);
    assert!(log.starts_with(&format!("nobody\n{NOBODY}\n")) && !log.contains("/root"), "{log}");
    yard.stop(1, 60.0);
    let exit: Exit = yard.until_ended();
    assert_eq!((exit.code, exit.asked_to_stop), (Some(85), true), "{exit:?}");
    let (job, attempt) = (trainyard_types::JobId(1), trainyard_types::Attempt(1));
    yard.backend().forget(job, attempt);
    assert!(yard.backend().list_attempts().is_empty());
    assert!(yard.log(1, 0).contains("ready"), "output is kept");
    eprintln!("played");
    yard.leave();
}

#[test]
fn a_keeper_of_the_helper_that_is_killed_leaves_nothing() {
    let Some(helped) = Helped::new("helped-lost") else { return };
    let dir = helped.run_dir.join("1.1");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let started = dir.join("started.json");
            within(WAIT, "the attempt starts", || started.exists());
            crate::yard::kill_9(keeper_of(&dir));
        });
        helped.play("users::part_of_a_daemon_that_loses_a_keeper");
    });
}

#[test]
fn part_of_a_daemon_that_loses_a_keeper() {
    let Some((mut yard, _)) = part() else { return };
    yard.launch(as_nobody(
        &identity(NOBODY, NOBODY),
        1,
        "setsid sleep 300 & echo $!; sleep 301 & echo $!; wait",
    ));
    let exit = yard.until_ended();
    assert!(exit.lost, "{exit:?}");
    for pid in yard.log(1, 0).lines() {
        assert!(!lives(pid.parse().unwrap()), "{pid} lives");
    }
    eprintln!("played");
    yard.leave();
}

#[test]
fn the_helper_refuses_root_strangers_and_what_is_not_the_daemons() {
    let Some(helped) = Helped::new("refusing") else { return };
    let stranger = helper::ping(&helped.socket).unwrap_err();
    assert!(stranger.to_string().contains("user 0 is not the daemon's"), "{stranger}");
    let other = helped.run_dir.join("9.1");
    std::fs::create_dir(&other).unwrap();
    helped.play("users::part_of_a_daemon_that_asks_too_much");
}

#[test]
fn part_of_a_daemon_that_asks_too_much() {
    let Some((yard, socket)) = part() else { return };
    helper::ping(&socket).unwrap();
    let start = |name: &str, uid| {
        helper::start_keeper(&socket, &yard.run_dir.join(name), uid).unwrap_err().to_string()
    };
    std::fs::create_dir(yard.run_dir.join("5.1")).unwrap();
    assert!(start("5.1", 0).contains("user 0 is below 1000"));
    assert!(start("5.1", 2).contains("user 2 is below 1000"));
    assert!(start("5.1", 4_000_000).contains("no user has number"));
    assert!(start("9.1", NOBODY).contains("is not the daemon's"));
    assert!(start("6.1", NOBODY).contains("No such file"));
    std::os::unix::fs::symlink("/etc", yard.run_dir.join("7.1")).unwrap();
    assert!(start("7.1", NOBODY).contains("Not a directory"), "{}", start("7.1", NOBODY));
    assert!(start("..", NOBODY).contains("no attempt's"));
    std::fs::create_dir(yard.run_dir.join("8.1")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", yard.run_dir.join("8.1/keeper.json")).unwrap();
    assert!(start("8.1", NOBODY).contains("does not belong there"));
    eprintln!("played");
    yard.leave();
}
