//! Checkpoints of users who do not trust each other, on the directory that all nodes share.

use crate::cluster::Cluster;
use crate::yard::{Yard, placed, waiting};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use trainyard_backend::LaunchOrder;
use trainyard_backend::order::Identity;
use trainyard_testkit::orders::Orders;
use trainyard_types::Attempt;

const NOBODY: u32 = 65_534;
/// The attacker: a number that no user of the system has.
const MALLORY: u32 = 61_007;

const SAVES: &str =
    "cat $TRAINYARD_CHECKPOINT_DIR/state; echo mine >$TRAINYARD_CHECKPOINT_DIR/state; echo done";

fn job(yard: &Yard, number: u32) -> LaunchOrder {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(NOBODY)).unwrap().unwrap();
    let identity = Identity {
        uid: NOBODY,
        gid: user.gid.as_raw(),
        name: user.name,
        home: "/nonexistent".to_owned(),
    };
    LaunchOrder { identity: Some(identity), ..waiting(yard, number, 1, SAVES) }
}

fn put(dir: &Path, text: &str, uid: u32) {
    std::fs::create_dir_all(dir.join("at-1")).unwrap();
    std::fs::write(dir.join("at-1/state"), text).unwrap();
    for path in [&dir.join("at-1/state"), &dir.join("at-1"), dir] {
        chown(path, Some(uid), Some(uid)).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    }
}

#[test]
fn checkpoints_are_their_users_alone_and_those_of_an_older_version_are_found_again() {
    let Some(cluster) = Cluster::up("checkpoints of users") else { return };
    let run_dir = cluster.dir.join("run");
    let root = run_dir.join("checkpoints");
    std::fs::create_dir_all(&root).unwrap();
    std::fs::set_permissions(&root, PermissionsExt::from_mode(0o1777)).unwrap();
    put(&root.join("1"), "evil\n", MALLORY);
    put(&root.join("2"), "from 2\n", NOBODY);
    put(&root.join("3"), "evil\n", MALLORY);
    let mut yard = Yard::new(&cluster);
    let mut run = |number: u32, attempt: u32| {
        let order = placed(&job(&yard, number), attempt, &[("n1", 1)]);
        yard.backend().launch(order);
        let exit = yard.until_ended((number, attempt));
        let log = yard.log((number, attempt), 0);
        yard.backend().forget(trainyard_types::JobId(number), Attempt(attempt));
        (exit, log)
    };
    // A first attempt finds nothing that others planted, and the next one its own.
    let (exit, log) = run(1, 1);
    assert!(exit.code == Some(0) && !log.contains("evil"), "{exit:?} {log}");
    assert!(run(1, 2).1.starts_with("mine\n"));
    let who_and_mode = |path: &Path| {
        let data = std::fs::symlink_metadata(path).unwrap();
        (data.uid(), data.mode() & 0o7777)
    };
    let parent = root.join(format!("u{NOBODY}"));
    assert_eq!(who_and_mode(&root), (0, 0o711));
    assert_eq!(who_and_mode(&parent), (NOBODY, 0o700));
    assert_eq!(who_and_mode(&parent.join("1")), (NOBODY, 0o700));
    // One that waited goes on from its own, and one whose folder was another's is told so.
    assert!(run(2, 2).1.starts_with("from 2\n"));
    let (exit, log) = run(3, 2);
    let why = exit.launch_error.expect("it is refused");
    assert!(why.contains(&format!("user {MALLORY}")) && log.is_empty(), "{why}");
}
