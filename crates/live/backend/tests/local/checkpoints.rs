//! Directories of checkpoints among users who do not trust each other. These tests need root and say so where they have
//! not; the attacks are carried out, as another user.

use crate::users::{Helped, NOBODY, alone, as_nobody, nobody, part};
use crate::yard::{PROGRAM, Yard, script};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use trainyard_backend::checkpoints::{Owner, Refusal, claim};
use trainyard_backend::order::Identity;
use trainyard_backend::{Backend, LaunchOrder, LocalOptions};
use trainyard_types::Attempt;

/// The attacker: a number that no user of the system has.
const MALLORY: u32 = 61_007;

const SAVES: &str = "echo $TRAINYARD_CHECKPOINT_DIR; cat $TRAINYARD_CHECKPOINT_DIR/state; \
                     echo mine >$TRAINYARD_CHECKPOINT_DIR/state";

/// Runs a shell as the attacker; whether it succeeded.
fn mallory(text: &str) -> bool {
    let who = [format!("--reuid={MALLORY}"), format!("--regid={MALLORY}")];
    let mut command = Command::new("setpriv");
    command.args(who).arg("--clear-groups").args(["sh", "-c", text]);
    command.output().unwrap().status.success()
}

/// A job as the daemon orders it; where its checkpoints go is the backend's to say.
fn job(yard: &Yard, identity: &Identity, number: u32, text: &str) -> LaunchOrder {
    let mut order = as_nobody(identity, number, text);
    order.checkpoint_dir = yard.run_dir.join(format!("checkpoints/{number}")).display().to_string();
    order
}

fn again(order: LaunchOrder) -> LaunchOrder {
    LaunchOrder { attempt: Attempt(2), resumes_from: 5.0, ..order }
}

/// What an attempt said first: where its checkpoints are.
fn said(yard: &Yard, (number, attempt): (u32, u32)) -> Vec<String> {
    let key = (trainyard_types::JobId(number), Attempt(attempt));
    let part = trainyard_backend::read_log(&yard.run_dir, key, 0, 0, 1 << 20).unwrap();
    String::from_utf8(part.bytes).unwrap().lines().map(str::to_owned).collect()
}

/// A directory with a file in it, of one owner.
fn put(dir: &Path, text: &str, uid: u32, mode: u32) {
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join("state"), text).unwrap();
    for path in [&dir.join("state"), dir] {
        chown(path, Some(uid), Some(uid)).unwrap();
    }
    std::fs::set_permissions(dir, PermissionsExt::from_mode(mode)).unwrap();
}

fn who_and_mode(path: &Path) -> (u32, u32) {
    let data = std::fs::symlink_metadata(path).unwrap();
    (data.uid(), data.mode() & 0o7777)
}

#[test]
fn another_user_can_neither_list_nor_read_nor_plant_nor_replace_a_jobs_checkpoints() {
    let Some(identity) = nobody() else { return };
    let _alone = alone();
    let mut yard = Yard::new("private");
    let order = job(&yard, &identity, 1, SAVES);
    assert_eq!(yard.run(order).code, Some(0));
    let dir = PathBuf::from(&said(&yard, (1, 1))[0]);
    assert_eq!(std::fs::read_to_string(dir.join("state")).unwrap(), "mine\n");
    let (at, parent) = (dir.display(), dir.parent().unwrap().display());
    let root = yard.run_dir.join("checkpoints");
    for attack in [
        format!("ls {parent}"),
        format!("ls {at}"),
        format!("cat {at}/state"),
        format!("echo theirs >{at}/state"),
        format!("touch {at}/other"),
        format!("mv {at} {at}.away"),
        format!("mkdir {parent}/2"),
        format!("ln -s /etc {parent}/2"),
        format!("ls {}", root.display()),
        format!("mkdir {}/2", root.display()),
        format!("mkdir {}/u{NOBODY}", root.display()),
        format!("mv {parent} {parent}.away"),
    ] {
        assert!(!mallory(&attack), "{attack}");
    }
    assert_eq!(who_and_mode(&root), (0, 0o711));
    assert_eq!(who_and_mode(dir.parent().unwrap()), (NOBODY, 0o700));
    assert_eq!(who_and_mode(&dir), (NOBODY, 0o700));
}

#[test]
fn a_folder_planted_before_the_first_launch_is_not_used() {
    let Some(identity) = nobody() else { return };
    let _alone = alone();
    let mut yard = Yard::new("planted");
    let root = yard.run_dir.join("checkpoints");
    // As if it had been there since a version that let every user write here.
    put(&root.join("1"), "evil", MALLORY, 0o777);
    put(&root.join(format!("u{MALLORY}/1")), "evil", MALLORY, 0o777);
    let order = job(&yard, &identity, 1, SAVES);
    assert_eq!(yard.run(order).code, Some(0));
    assert!(!said(&yard, (1, 1)).contains(&"evil".to_owned()), "{:?}", said(&yard, (1, 1)));
}

#[test]
fn what_another_user_planted_as_the_parent_or_the_directory_is_refused_by_name() {
    let Some(identity) = nobody() else { return };
    let _alone = alone();
    let mut yard = Yard::new("planted-parent");
    let root = yard.run_dir.join("checkpoints");
    let parent = root.join(format!("u{NOBODY}"));
    let trap = yard.run_dir.join("trap");
    put(&trap.join("1"), "evil", NOBODY, 0o777);
    let mut refused = |number: u32| {
        let order = job(&yard, &identity, number, SAVES);
        yard.run(order).launch_error.expect("it is refused")
    };
    symlink(&trap, &parent).unwrap();
    let why = refused(1);
    assert!(why.contains(&format!("{} is a link", parent.display())), "{why}");
    std::fs::remove_file(&parent).unwrap();
    put(&parent, "", MALLORY, 0o777);
    let why = refused(2);
    assert!(why.contains(&format!("{} belongs to user {MALLORY}", parent.display())), "{why}");
    assert!(why.contains("nobody (65534)") && why.contains("move it away"), "{why}");
    std::fs::remove_dir_all(&parent).unwrap();
    put(&parent, "", NOBODY, 0o700);
    symlink(trap.join("1"), parent.join("3")).unwrap();
    let order = again(job(&yard, &identity, 3, SAVES));
    let why = yard.run(order).launch_error.expect("a link is not followed");
    assert!(why.contains("is a link"), "{why}");
    assert_eq!(std::fs::read_to_string(trap.join("1/state")).unwrap(), "evil");
}

#[test]
fn folders_of_the_older_open_layout_are_moved_to_their_owners_and_found_again() {
    let Some(identity) = nobody() else { return };
    let _alone = alone();
    let mut yard = Yard::new("older");
    yard.local = None;
    let root = yard.run_dir.join("checkpoints");
    std::fs::set_permissions(&root, PermissionsExt::from_mode(0o1777)).unwrap();
    put(&root.join("3"), "from 3", NOBODY, 0o755);
    // Another user was there before job 4, and let it write.
    put(&root.join("4"), "evil", MALLORY, 0o777);
    symlink("/etc", root.join("5")).unwrap();
    // Job 6 runs while the daemon is replaced.
    put(&root.join("6"), "from 6", NOBODY, 0o755);
    std::fs::create_dir(yard.run_dir.join("6.1")).unwrap();
    // It is not looked at again, or the attempt of job 6 would be found dead.
    let run_dir = std::mem::take(&mut yard.run_dir);
    let rescan = std::time::Duration::from_secs(3600);
    let mut yard = Yard::with(LocalOptions { rescan, ..LocalOptions::new(run_dir, PROGRAM) });
    assert_eq!(who_and_mode(&root), (0, 0o711));
    assert!(!root.join("3").exists() && root.join("6").exists());
    assert!(!mallory(&format!("cat {}/6/state", root.display())));
    let warnings = yard.backend().warnings().join("\n");
    assert!(warnings.contains(&format!("{} is a link", root.join("5").display())), "{warnings}");
    std::fs::remove_dir(yard.run_dir.join("6.1")).unwrap();
    for number in [3, 6] {
        let order = again(job(&yard, &identity, number, SAVES));
        assert_eq!(yard.run(order).code, Some(0));
        assert_eq!(said(&yard, (number, 2))[1], format!("from {number}"));
    }
    let order = again(job(&yard, &identity, 4, SAVES));
    let why = yard.run(order).launch_error.expect("what another user owns is not used");
    assert!(why.contains(&format!("user {MALLORY}")), "{why}");
    let order = again(job(&yard, &identity, 5, SAVES));
    let why = yard.run(order).launch_error.expect("a link is not followed");
    assert!(why.contains("is a link"), "{why}");
}

#[test]
fn a_new_job_does_not_find_the_checkpoints_of_an_older_one_of_its_number() {
    let Some(identity) = nobody() else { return };
    let _alone = alone();
    let mut yard = Yard::new("numbers");
    let order = job(&yard, &identity, 1, SAVES);
    assert_eq!(yard.run(order.clone()).code, Some(0));
    let dir = PathBuf::from(&said(&yard, (1, 1))[0]);
    // The store is gone, and all that is known of attempts: numbers begin anew.
    yard.local = None;
    for gone in ["1.1", "logs"] {
        std::fs::remove_dir_all(yard.run_dir.join(gone)).unwrap();
    }
    let mut yard = yard.restart();
    assert_eq!(yard.run(order).code, Some(0));
    let lines = said(&yard, (1, 1));
    assert!(lines[0] == dir.display().to_string() && !lines.contains(&"mine".to_owned()));
    let kept = dir.with_file_name("1.before-1");
    assert_eq!(std::fs::read_to_string(kept.join("state")).unwrap(), "mine\n");
}

#[test]
fn a_file_of_another_user_among_the_checkpoints_is_refused() {
    let Some(identity) = nobody() else { return };
    let _alone = alone();
    let mut yard = Yard::new("among");
    let order = job(&yard, &identity, 1, SAVES);
    assert_eq!(yard.run(order.clone()).code, Some(0));
    let dir = PathBuf::from(&said(&yard, (1, 1))[0]);
    put(&dir.join("newer"), "evil", MALLORY, 0o755);
    let why = yard.run(again(order)).launch_error.expect("it is refused");
    let what = format!("{} belongs to user {MALLORY}", dir.join("newer").display());
    assert!(why.contains(&what), "{why}");
}

#[test]
fn a_job_that_comes_back_as_another_user_is_told_whose_its_checkpoints_are() {
    let Some(identity) = nobody() else { return };
    let _alone = alone();
    let mut yard = Yard::new("other-user");
    let order = job(&yard, &identity, 1, SAVES);
    assert_eq!(yard.run(order.clone()).code, Some(0));
    let other =
        Identity { uid: MALLORY, gid: MALLORY, name: "mallory".to_owned(), ..identity.clone() };
    let order = LaunchOrder { identity: Some(other), ..again(order) };
    let why = yard.run(order).launch_error.expect("it is refused");
    assert!(why.contains("belongs to user nobody (65534)"), "{why}");
}

#[test]
fn a_directory_that_the_user_named_is_the_users_the_groups_or_refused() {
    let Some(identity) = nobody() else { return };
    let _alone = alone();
    let mut yard = Yard::new("named");
    let places = yard.run_dir.join("places");
    std::fs::create_dir(&places).unwrap();
    std::fs::set_permissions(&places, PermissionsExt::from_mode(0o1777)).unwrap();
    let mut number = 0;
    let mut run = |name: &str| {
        number += 1;
        let mut order = as_nobody(&identity, number, SAVES);
        order.checkpoint_dir = places.join(name).display().to_string();
        order.checkpoint.dir = Some(order.checkpoint_dir.clone());
        yard.run(order)
    };
    assert_eq!(run("made/below").code, Some(0));
    assert_eq!(who_and_mode(&places.join("made/below")).0, NOBODY);
    put(&places.join("closed"), "evil", MALLORY, 0o755);
    put(&places.join("open"), "evil", MALLORY, 0o777);
    put(&places.join("strange"), "evil", MALLORY, 0o770);
    symlink(places.join("open"), places.join("link")).unwrap();
    put(&places.join("roots"), "evil", 0, 0o1777);
    for name in ["closed", "open", "link", "roots", "strange"] {
        let why = run(name).launch_error.unwrap_or_else(|| panic!("{name} is refused"));
        assert!(why.starts_with("checkpoint directory"), "{name}: {why}");
    }
    // A group's directory is what its group made it for.
    put(&places.join("group"), "ours", MALLORY, 0o770);
    for path in ["group", "group/state"] {
        chown(places.join(path), None, Some(identity.gid)).unwrap();
    }
    std::fs::set_permissions(places.join("group/state"), PermissionsExt::from_mode(0o660)).unwrap();
    assert_eq!(run("group").code, Some(0));
}

#[test]
fn the_helper_makes_a_private_directory_and_moves_what_an_older_version_left() {
    let Some(helped) = Helped::confined("helped-checkpoints") else { return };
    let root = helped.run_dir.join("checkpoints");
    std::fs::create_dir(&root).unwrap();
    let daemon = helped.run_dir.metadata().unwrap().uid();
    chown(&root, Some(daemon), None).unwrap();
    std::fs::set_permissions(&root, PermissionsExt::from_mode(0o1777)).unwrap();
    put(&root.join("2"), "from 2", NOBODY, 0o755);
    // Users of the system get nothing by the helper.
    put(&root.join("3"), "", 2, 0o755);
    helped.play("checkpoints::part_of_a_daemon_whose_helper_keeps_checkpoints");
    let parent = root.join(format!("u{NOBODY}"));
    assert_eq!(who_and_mode(&root), (daemon, 0o711));
    for path in [parent.clone(), parent.join("1"), parent.join("2")] {
        assert_eq!(who_and_mode(&path).0, NOBODY, "{}", path.display());
    }
    assert_eq!(who_and_mode(&parent).1, 0o700);
    assert!(root.join("3").exists() && !root.join("u2").exists());
}

#[test]
fn part_of_a_daemon_whose_helper_keeps_checkpoints() {
    let Some((mut yard, _)) = part() else { return };
    let identity = Identity { uid: NOBODY, gid: NOBODY, name: String::new(), home: String::new() };
    assert!(!yard.run_dir.join("checkpoints/2").exists(), "it was moved at the start");
    let order = job(&yard, &identity, 1, SAVES);
    assert_eq!(yard.run(order).code, Some(0));
    let order = again(job(&yard, &identity, 2, SAVES));
    assert_eq!(yard.run(order).code, Some(0));
    assert_eq!(said(&yard, (2, 2))[1], "from 2");
    eprintln!("played");
    yard.leave();
}

#[test]
fn without_root_and_without_a_helper_all_checkpoints_are_the_daemons() {
    if nobody().is_none() {
        return;
    }
    let Some(helped) = Helped::new("alone-checkpoints") else { return };
    helped.play("checkpoints::part_of_a_daemon_without_a_helper");
    let daemon = helped.run_dir.metadata().unwrap().uid();
    let dir = helped.run_dir.join(format!("checkpoints/u{daemon}/1"));
    assert_eq!(who_and_mode(&dir), (daemon, 0o700));
}

#[test]
fn part_of_a_daemon_without_a_helper() {
    let Some(run_dir) = std::env::var_os("TRAINYARD_TEST_RUN_DIR") else { return };
    let mut yard = Yard::with(LocalOptions::new(run_dir, PROGRAM));
    assert_eq!(yard.run(script(1, SAVES)).code, Some(0));
    // As root on a server that squashes it: what cannot be given away is not left half made.
    let other = Owner { uid: NOBODY, gid: NOBODY };
    let refusal = claim(&yard.run_dir, trainyard_types::JobId(2), other, true).unwrap_err();
    assert!(matches!(refusal, Refusal::NotGiven { .. }), "{refusal}");
    assert_eq!(std::fs::read_dir(yard.run_dir.join("checkpoints")).unwrap().count(), 1);
    eprintln!("played");
    yard.leave();
}
