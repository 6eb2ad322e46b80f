//! What is kept of attempts that the daemon has forgotten: their output and their end, for a while.
//!
//! As long as an attempt is in the archive, an order to launch it is answered with its end.

use super::LocalOptions;
use super::worker::Key;
use crate::Exit;
use crate::attempt_dir::{self, AttemptDir, name, parse_name};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

fn place(run_dir: &Path, (job, attempt): Key) -> PathBuf {
    run_dir.join("logs").join(name(job, attempt))
}

/// Puts an attempt that is over in the archive; one that is not stays where it is.
pub fn put(run_dir: &Path, key: Key) -> io::Result<()> {
    let dir = AttemptDir::new(run_dir, key.0, key.1);
    if dir.exit()?.is_none() {
        return Err(io::Error::other("it is not over"));
    }
    // Orders hold the user's environment, which is not needed any more.
    let _ = std::fs::remove_dir_all(dir.file("orders"));
    let _ = std::fs::remove_dir_all(dir.file("job"));
    for file in ["keeper.json", "started.json", "told.json", "keeper.log", "control.sock"] {
        let _ = std::fs::remove_file(dir.file(file));
    }
    std::fs::rename(dir.path(), place(run_dir, key))
}

/// The end of an attempt in the archive.
pub fn exit(run_dir: &Path, key: Key) -> Option<Exit> {
    let path = place(run_dir, key);
    if !path.exists() {
        return None;
    }
    let exit = attempt_dir::read(&path.join("exit.json")).ok().flatten();
    Some(exit.unwrap_or(Exit { lost: true, ..Exit::default() }))
}

/// Removes what is too old or too much, the oldest first.
pub fn tidy(options: &LocalOptions) {
    let archive = options.run_dir.join("logs");
    let entries = std::fs::read_dir(&archive).into_iter().flatten().flatten();
    let mut kept: Vec<(SystemTime, String, u64)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().to_str()?.to_owned();
            parse_name(&name)?;
            let ended = entry.path().join("exit.json").metadata().and_then(|data| data.modified());
            Some((ended.unwrap_or(SystemTime::UNIX_EPOCH), name, size(&entry.path())))
        })
        .collect();
    kept.sort();
    let mut sum: u64 = kept.iter().map(|(_, _, bytes)| bytes).sum();
    for (ended, name, bytes) in kept {
        let is_old = ended.elapsed().is_ok_and(|age| age > options.logs_keep);
        if (is_old || sum > options.logs_bytes_max)
            && std::fs::remove_dir_all(archive.join(&name)).is_ok()
        {
            sum -= bytes;
        }
    }
}

fn size(folder: &Path) -> u64 {
    let mut sum = 0;
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(data) if data.is_dir() => open.push(entry.path()),
                Ok(data) => sum += data.len(),
                Err(_) => {}
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use trainyard_types::{Attempt, JobId};

    #[test]
    fn the_oldest_output_goes_first_when_there_is_too_much_or_it_is_too_old() {
        let run_dir = std::env::temp_dir().join(format!("ty-archive-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&run_dir);
        for (job, age_seconds) in [(1, 100), (2, 300), (3, 200), (4, 5000)] {
            let folder = run_dir.join(format!("logs/{job}.1"));
            std::fs::create_dir_all(folder.join("logs/0")).unwrap();
            std::fs::write(folder.join("logs/0/0"), [0; 1000]).unwrap();
            std::fs::write(folder.join("exit.json"), "").unwrap();
            let file = std::fs::File::options().write(true).open(folder.join("exit.json")).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age_seconds)).unwrap();
        }
        std::fs::write(run_dir.join("logs/not-ours"), [0; 9000]).unwrap();
        let mut options = LocalOptions::new(&run_dir, "");
        let kept = |options: &LocalOptions| -> Vec<u32> {
            tidy(options);
            let key = |job: &u32| (JobId(*job), Attempt(1));
            (1..=4).filter(|job| exit(&run_dir, key(job)).is_some()).collect()
        };
        options.logs_keep = Duration::from_secs(1000);
        assert_eq!(kept(&options), [1, 2, 3]);
        options.logs_bytes_max = 2000;
        assert_eq!(kept(&options), [1, 3]);
        assert!(run_dir.join("logs/not-ours").exists());
        std::fs::remove_dir_all(&run_dir).unwrap();
    }
}
