//! The hidden commands: what the backend starts of its own program.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// How they are called.
pub const USAGE: &str = "\
usage: keeper DIR [UID]
       rank
       driver
       arbiter FOLDER
       helper --socket FILE --run-dir DIR --user NAME [--least-uid NUMBER]
The first four are started by the daemon, not by hand.";

/// Runs a hidden command; nothing if the arguments are none.
pub fn main(arguments: &[OsString]) -> Option<ExitCode> {
    let (name, rest) = arguments.split_first()?;
    if matches!(name.to_str(), Some("keeper" | "helper" | "rank" | "arbiter" | "driver")) {
        // Each of these starts what a user wrote, or is one step away from it.
        crate::descriptors::close_inherited();
    }
    match (name.to_str()?, rest) {
        ("keeper", [dir]) => Some(crate::keeper::main(Path::new(dir), None)),
        ("keeper", [dir, uid]) => {
            Some(crate::keeper::main(Path::new(dir), Some(uid.to_str()?.parse().ok()?)))
        }
        ("helper", flags) => Some(crate::helper::main(flags)),
        ("arbiter", [folder]) => Some(crate::shared_gpu::main(Path::new(folder))),
        ("driver", []) => Some(crate::suspender::main()),
        ("rank", []) => Some(crate::rank::main()),
        _ => None,
    }
}
