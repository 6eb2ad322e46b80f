//! Files, folders and how fast the disk keeps what it is given.

use crate::error::StoreError;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Only the owner reads and writes.
pub(crate) const PRIVATE: u32 = 0o600;

const RATE_BLOCKS: u32 = 256;
const RATE_ROUNDS_MAX: u32 = 2_000;
const RATE_TIME_MAX: Duration = Duration::from_millis(500);

/// How often a second a block of 4 KiB can be overwritten and synced in a folder; takes at most about half a second.
///
/// A commit overwrites at least a block of the log and syncs it once, so there cannot be more commits a second.
pub fn fsync_rate(folder: &Path) -> Result<f64, StoreError> {
    let path = folder.join(format!(".fsync-rate-{}", std::process::id()));
    let measured = measure(&path);
    let removed = fs::remove_file(&path);
    let rate = measured.map_err(|error| StoreError::io(&path, &error))?;
    removed.map_err(|error| StoreError::io(&path, &error))?;
    Ok(rate)
}

fn measure(path: &Path) -> std::io::Result<f64> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(path)?;
    let block = [0x5a; 4096];
    for _ in 0..RATE_BLOCKS {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    let begin = Instant::now();
    let mut rounds = 0;
    while rounds < RATE_ROUNDS_MAX && begin.elapsed() < RATE_TIME_MAX {
        file.write_all_at(&block, u64::from(rounds % RATE_BLOCKS) * block.len() as u64)?;
        file.sync_data()?;
        rounds += 1;
    }
    Ok(f64::from(rounds) / begin.elapsed().as_secs_f64())
}

/// The same path with something behind its name.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// The first path of this kind that is not taken.
pub(crate) fn free_name(path: &Path, suffix: &str) -> PathBuf {
    let first = beside(path, suffix);
    if !first.exists() {
        return first;
    }
    (2..u32::MAX)
        .map(|number| beside(path, &format!("{suffix}-{number}")))
        .find(|candidate| !candidate.exists())
        .expect("there are fewer files than numbers")
}

/// The folder that a file is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the folder of a file, for its owner alone, where it is missing.
pub(crate) fn make_folder(path: &Path) -> Result<(), StoreError> {
    let folder = folder_of(path);
    if folder.is_dir() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .and_then(|()| sync_folder(folder_of(folder)))
        .map_err(|error| StoreError::io(folder, &error))
}

/// Makes an empty file for its owner alone; SQLite gives its side files the same rights.
pub(crate) fn make_file(path: &Path) -> Result<(), StoreError> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(PRIVATE)
        .open(path)
        .map(drop)
        .map_err(|error| StoreError::io(path, &error))
}

/// Takes away the rights of others, where they have any.
pub(crate) fn make_private(path: &Path) -> Result<(), StoreError> {
    let rights = fs::metadata(path).map_err(|error| StoreError::io(path, &error))?.permissions();
    if rights.mode() & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(PRIVATE))
        .map_err(|error| StoreError::io(path, &error))
}

/// Gives a file its name, so that the name is still there after a power cut.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), StoreError> {
    fs::rename(from, to)
        .and_then(|()| sync_folder(folder_of(to)))
        .map_err(|error| StoreError::io(to, &error))
}

/// Removes a file if it is there.
pub(crate) fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(StoreError::io(path, &error))
        }
        _ => Ok(()),
    }
}

/// Removes a SQLite file with its side files.
pub(crate) fn remove_all(path: &Path) -> Result<(), StoreError> {
    for suffix in ["-wal", "-shm", "-journal", ""] {
        remove(&beside(path, suffix))?;
    }
    Ok(())
}

fn sync_folder(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}
