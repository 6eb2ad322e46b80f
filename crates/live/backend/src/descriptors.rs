//! Descriptors that a program was started with and knows nothing of.
//!
//! Everything that this program opens is closed when it becomes another one. What it inherits is not: a shell, a
//! service manager or a wrapper may leave files and sockets open, and each of them would be handed on, from the daemon
//! to keepers, ranks and commands of Slurm, to the jobs of users.

use nix::sys::resource::{Resource, getrlimit};
use std::os::fd::RawFd;

/// The first descriptor that is not a standard one.
const FIRST: RawFd = 3;
/// Where the kernel does not list descriptors, so many are tried at most.
const TRIED_MAX: u64 = 1 << 16;

/// Closes everything but the standard descriptors. Must come before anything is opened: a later call would take away
/// what another part of the program uses.
pub fn close_inherited() {
    for descriptor in inherited() {
        // One of them was the list itself, which is closed by now.
        let _ = nix::unistd::close(descriptor);
    }
}

fn inherited() -> Vec<RawFd> {
    let listed = std::fs::read_dir("/proc/self/fd").or_else(|_| std::fs::read_dir("/dev/fd"));
    match listed {
        Ok(entries) => {
            let names = entries.flatten().map(|entry| entry.file_name());
            let numbers = names.filter_map(|name| name.to_str()?.parse().ok());
            numbers.filter(|number| *number >= FIRST).collect()
        }
        Err(_) => {
            let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
            (FIRST..soft.min(TRIED_MAX) as RawFd).collect()
        }
    }
}
