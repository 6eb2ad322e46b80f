//! The bed of network namespaces works where they are permitted.

use std::process::Command;
use trainyard_testkit::places::root;
use trainyard_testkit::skip;

/// The script's exit code where namespaces, links or shapes of traffic are refused.
const NOT_PERMITTED: i32 = 77;

#[test]
fn two_nodes_reduce_over_a_shaped_link_and_leave_nothing_behind() {
    let script = root().join("scripts/net-bed");
    let Ok(done) = Command::new("python3").arg(script).arg("--smoke").output() else {
        skip!("netns", "python3 is absent");
        return;
    };
    let told = String::from_utf8_lossy(&done.stdout).trim().to_owned();
    if done.status.code() == Some(NOT_PERMITTED) {
        skip!("netns", "{told}");
        return;
    }
    assert!(done.status.success(), "{told}{}", String::from_utf8_lossy(&done.stderr));
    assert!(told.contains("500 KB between two nodes"), "{told}");
    let left =
        Command::new("ip").args(["netns", "list"]).output().expect("the bed was made with ip");
    let left = String::from_utf8_lossy(&left.stdout).into_owned();
    let made = told.rsplit(' ').next().filter(|name| name.starts_with("tybed"));
    let made = made.expect("the script says how its switch was called").trim_end_matches('s');
    assert!(!left.contains(made), "left behind: {left}");
}
