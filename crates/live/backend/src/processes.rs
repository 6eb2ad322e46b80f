//! Processes as `/proc` shows them: who descends from whom, and how all of them are ended.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// More passes than this are not made before those that were found are killed.
const PASSES_MAX: usize = 64;

/// One process.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Its parent.
    pub parent: i32,
    /// Its session.
    pub session: i32,
    /// When it began, in ticks since the machine did.
    pub began_ticks: u64,
    /// Whether it is over and only waits to be noticed.
    pub is_zombie: bool,
}

/// All processes of the machine that can be seen.
pub fn all() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| one(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// One process, if it exists.
pub fn one(pid: i32) -> Option<Process> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The fields of `/proc/PID/stat` (proc(5)). The name may hold spaces and brackets, so what counts begins after the
/// last closing one.
fn parse_stat(text: &str) -> Option<Process> {
    let pid = text.split(' ').next()?.parse().ok()?;
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
    Some(Process {
        pid,
        is_zombie: matches!(*fields.first()?, "Z" | "X"),
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        began_ticks: fields.get(19)?.parse().ok()?,
    })
}

/// The processes below another, not counting zombies.
pub fn descendants(root: i32) -> Vec<i32> {
    let all = all();
    let mut children: BTreeMap<i32, Vec<&Process>> = BTreeMap::new();
    for process in &all {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut seen = BTreeSet::from([root]);
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if seen.insert(child.pid) {
                open.push(child.pid);
                if !child.is_zombie {
                    found.push(child.pid);
                }
            }
        }
    }
    found
}

/// Processes that belong to an attempt whose keeper is gone: those of its session, and those whose environment names
/// its directory. The first catches programs that clear their environment, the second those that leave the session.
pub fn remains(session: Option<(i32, u64)>, ack_file: &Path) -> Vec<i32> {
    let mark = format!("TRAINYARD_ACK_FILE={}", ack_file.display());
    let own = std::process::id() as i32;
    let all = all();
    let session = session.filter(|(leader, began)| {
        // A leader that began at another time got a number that was used before: its session is not ours.
        all.iter().all(|process| process.pid != *leader || process.began_ticks == *began)
    });
    let belongs = |process: &Process| {
        let of_session = session.is_some_and(|(leader, began)| {
            process.session == leader && process.began_ticks >= began
        });
        of_session || has_variable(process.pid, mark.as_bytes())
    };
    let found = all.iter().filter(|process| process.pid != own && !process.is_zombie);
    found.filter(|process| belongs(process)).map(|process| process.pid).collect()
}

fn has_variable(pid: i32, mark: &[u8]) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == mark)
}

/// Kills what `find` finds. All are held still before any is killed: a loop that forks faster than it is read stands
/// against its limit, and killing one of it at a time would only make room for the next.
pub fn kill_all(find: impl Fn() -> Vec<i32>) {
    let mut held = BTreeSet::new();
    for _ in 0..PASSES_MAX {
        let fresh: Vec<i32> = find().into_iter().filter(|pid| !held.contains(pid)).collect();
        if fresh.is_empty() {
            break;
        }
        for pid in fresh {
            send(pid, Signal::SIGSTOP);
            held.insert(pid);
        }
    }
    for pid in held {
        send(pid, Signal::SIGKILL);
    }
}

/// Sends a signal to one process; one that is gone already is as good as signalled.
pub fn send(pid: i32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid), signal);
}

/// Sends a signal to a process group.
pub fn send_group(group: i32, signal: Signal) {
    let _ = nix::sys::signal::killpg(Pid::from_raw(group), signal);
}

/// The processes and threads that a user has.
pub fn tasks_of(uid: u32) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = entries.filter(|entry| {
        let is_process = entry.file_name().to_str().is_some_and(|name| name.parse::<i32>().is_ok());
        is_process && entry.metadata().is_ok_and(|data| data.uid() == uid)
    });
    own.map(|entry| {
        std::fs::read_dir(entry.path().join("task")).map_or(0, |tasks| tasks.count() as u64)
    })
    .sum()
}

/// A name for the time since the machine started; empty where the system has none.
pub fn boot() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_brackets_moves_no_field() {
        let mut fields = vec!["S", "7", "8", "9"];
        fields.extend(["0"; 15]);
        fields.push("4711");
        let text = format!("12 (a) b (c) {}", fields.join(" "));
        let process = parse_stat(&text).unwrap();
        let expected =
            Process { pid: 12, parent: 7, session: 9, began_ticks: 4711, is_zombie: false };
        assert_eq!(process, expected);
    }

    #[test]
    fn this_process_is_found_below_its_parent() {
        let own = one(std::process::id() as i32).unwrap();
        assert!(descendants(own.parent).contains(&own.pid));
        assert!(tasks_of(nix::unistd::getuid().as_raw()) >= 1);
    }
}
