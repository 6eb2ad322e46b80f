//! What the daemon has open is closed to jobs.

use super::daemon::{Daemon, PATIENCE};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What a process has open: the number of each descriptor and what is behind it.
fn open_of(process: &Path) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(process.join("fd")).expect("it runs").flatten();
    let mut all: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((number, fs::read_link(entry.path()).ok()?))
        })
        .collect();
    all.sort();
    all
}

#[test]
fn a_job_has_its_three_streams_and_nothing_that_the_daemon_has_open() {
    let daemon = Daemon::start_below("descriptors", "exec 7</etc/passwd 9<>left; ");
    let job = daemon.submit("job", "echo $$ > pid; exec sleep 60", 1);
    daemon.wait_until(&job, "running");
    let begun = Instant::now();
    let pid = loop {
        let text = fs::read_to_string(daemon.folder.join("pid")).unwrap_or_default();
        if let Ok(pid) = text.trim().parse::<u32>() {
            break pid;
        }
        assert!(begun.elapsed() < PATIENCE, "the job does not say its number");
        sleep(Duration::from_millis(20));
    };
    let open = open_of(&PathBuf::from(format!("/proc/{pid}")));
    let numbers: Vec<u32> = open.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [0, 1, 2], "{open:?}");

    // What the daemon has open itself is closed in whatever it starts.
    let process = PathBuf::from(format!("/proc/{}", daemon.pid()));
    let open = open_of(&process);
    assert!(open.iter().any(|(_, target)| target.ends_with("s/store.db")), "{open:?}");
    for (number, target) in open.iter().filter(|(number, _)| *number > 2) {
        let Ok(info) = fs::read_to_string(process.join(format!("fdinfo/{number}"))) else {
            continue;
        };
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags");
        let flags = u32::from_str_radix(flags.trim(), 8).expect("octal digits");
        assert_ne!(flags & 0o2_000_000, 0, "{number} ({}) stays open", target.display());
    }
    assert!(open.iter().all(|(_, target)| !target.ends_with("passwd")), "{open:?}");
}
