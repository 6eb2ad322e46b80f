//! Whether this program understands the attempts that keepers of another version look after.
//!
//! Daemon and keeper have no number for how they talk: what they tell each other are the files of
//! [`crate::attempt_dir`], so these are read as a daemon reads them. Nothing is locked or written.

use crate::attempt_dir::{self, KeeperMark, Launch, Told, parse_name};
use crate::{Exit, processes};
use std::io;
use std::path::Path;

/// An attempt whose directory is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptSeen {
    /// Job and attempt, as its directory is called.
    pub name: String,
    /// Its keeper runs.
    pub runs: bool,
    /// What cannot be read of it.
    pub faults: Vec<String>,
}

/// All attempts of a run directory that were not put in the archive; none where there is no such directory.
pub fn attempts(run_dir: &Path) -> io::Result<Vec<AttemptSeen>> {
    let entries = match std::fs::read_dir(run_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut seen = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if parse_name(&name).is_some() {
            seen.push(attempt(&run_dir.join(&name), name));
        }
    }
    seen.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(seen)
}

fn attempt(dir: &Path, name: String) -> AttemptSeen {
    let mut faults = Vec::new();
    let mark: Option<KeeperMark> = read(dir, "keeper.json", &mut faults);
    let exit: Option<Exit> = read(dir, "exit.json", &mut faults);
    let _: Option<Told> = read(dir, "told.json", &mut faults);
    let _: Option<Launch> = read(dir, "orders/launch.json", &mut faults);
    let runs = exit.is_none() && mark.is_some_and(|mark| is_alive(&mark));
    AttemptSeen { name, runs, faults }
}

fn read<T: serde::de::DeserializeOwned>(
    dir: &Path,
    file: &str,
    faults: &mut Vec<String>,
) -> Option<T> {
    attempt_dir::read(&dir.join(file)).unwrap_or_else(|error| {
        faults.push(error.to_string());
        None
    })
}

fn is_alive(mark: &KeeperMark) -> bool {
    let same =
        |process: processes::Process| process.began_ticks == mark.began_ticks && !process.is_zombie;
    mark.boot == processes::boot() && processes::one(mark.pid).is_some_and(same)
}
