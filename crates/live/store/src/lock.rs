//! One daemon for one store.

use crate::disk::{PRIVATE, beside};
use crate::error::StoreError;
use crate::rehearsal::InUse;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a lock is waited for whose holder is dead. A process that is killed while it starts another one leaves its
/// lock to that child, until the child becomes another program.
const LEFT_BEHIND_MAX: Duration = Duration::from_secs(5);

/// The right to write to a store. The system takes it back when the process ends, however it ends.
///
/// The lock is on a file of its own, because the main file is replaced by a repair. It holds the holder's process id,
/// which is there for messages alone.
///
/// It also holds a word about the store, so that one that is gone is missed: this file stays when the store or its log
/// is deleted.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    /// What the one before left behind.
    pub(crate) left: Left,
}

/// What is known of a store by the file of its lock.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing was ever kept in it, or an older program did.
    Nothing,
    /// It has something in it, and was closed well: all is in the main file.
    Closed,
    /// It has something in it, and was not closed: its log belongs to it.
    Open,
}

impl Left {
    fn word(self) -> &'static str {
        match self {
            Left::Nothing => "",
            Left::Closed => "closed",
            Left::Open => "open",
        }
    }
}

/// The word about an open store. It must be dropped before the connection is: a store that is called closed may have a
/// log, but one that is called open is missed without it, and closing the connection removes it.
#[derive(Debug)]
pub(crate) struct Mark {
    file: File,
    now: Left,
}

impl Mark {
    /// Something is in the store and its log from now on: both are missed if they are gone.
    pub(crate) fn open(&mut self) {
        if self.now != Left::Open {
            self.now = Left::Open;
            write(&mut self.file, Left::Open);
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if self.now == Left::Open {
            write(&mut self.file, Left::Closed);
            // On disk before the log goes.
            let _ = self.file.sync_data();
        }
    }
}

impl Drop for Lock {
    /// Closing the file is not enough: a child that is being started shares it until it becomes another program, and
    /// the lock with it. An explicit unlock frees it at once for all processes that share it.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl Lock {
    pub(crate) fn take(store: &Path) -> Result<Lock, StoreError> {
        let path = beside(store, ".lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(PRIVATE)
            .open(&path)
            .map_err(|error| StoreError::io(&path, &error))?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(StoreError::io(&path, &error)),
            }
            let holder = holder(&mut file);
            let left_behind = holder.is_some_and(|holder| !is_alive(holder));
            if !left_behind || begun.elapsed() >= LEFT_BEHIND_MAX {
                return Err(StoreError::Locked { path: store.to_owned(), holder });
            }
            sleep(Duration::from_millis(5));
        }
        let left = left(&mut file);
        write(&mut file, left);
        Ok(Lock { file, left })
    }

    /// The word about the store, for as long as it is open.
    pub(crate) fn mark(&self) -> std::io::Result<Mark> {
        Ok(Mark { file: self.file.try_clone()?, now: self.left })
    }

    /// The store is whole in its main file: a repair or a restore put it there.
    pub(crate) fn mark_closed(&mut self) {
        self.left = Left::Closed;
        write(&mut self.file, Left::Closed);
    }
}

/// Which process has the lock of a store, and what is known of the store. Changes nothing.
pub(crate) fn look(store: &Path) -> Result<(Option<InUse>, Left), StoreError> {
    let path = beside(store, ".lock");
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok((None, Left::Nothing));
        }
        Err(error) => return Err(StoreError::io(&path, &error)),
    };
    let in_use = match file.try_lock_shared() {
        Ok(()) => {
            // At once, for a daemon that starts now must not find it taken.
            file.unlock().map_err(|error| StoreError::io(&path, &error))?;
            None
        }
        Err(TryLockError::WouldBlock) => Some(InUse { process: holder(&mut file) }),
        Err(TryLockError::Error(error)) => return Err(StoreError::io(&path, &error)),
    };
    Ok((in_use, left(&mut file)))
}

/// A full disk must not keep a daemon from starting: what is written is a comfort, the lock is not. The text has always
/// the same length, so that there is room for it once it is there.
fn write(file: &mut File, left: Left) {
    let text = format!("{:<10}\n{:<6}\n", std::process::id(), left.word());
    let _ = file
        .rewind()
        .and_then(|()| file.write_all(text.as_bytes()))
        .and_then(|()| file.set_len(text.len() as u64));
}

/// The process that has the lock, as it wrote itself.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).ok()?;
    text.lines().next()?.trim().parse().ok()
}

/// What the one before left behind, by its own word.
fn left(file: &mut File) -> Left {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
    match text.lines().nth(1).map(str::trim) {
        Some("open") if read.is_ok() => Left::Open,
        Some("closed") if read.is_ok() => Left::Closed,
        _ => Left::Nothing,
    }
}

fn is_alive(process: u32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_given_back_is_free_even_while_a_child_shares_the_file() {
        let store =
            std::env::temp_dir().join(format!("trainyard-shared-{}.db", std::process::id()));
        let lock = Lock::take(&store).unwrap();
        // What a child has between its birth and its first instruction: the same open file.
        let _shared = lock.file.try_clone().unwrap();
        drop(lock);
        Lock::take(&store).unwrap();
        std::fs::remove_file(beside(&store, ".lock")).unwrap();
    }

    #[test]
    fn a_lock_that_a_dead_daemon_left_to_a_child_is_waited_for_and_another_is_not() {
        let store = std::env::temp_dir().join(format!("trainyard-lock-{}.db", std::process::id()));
        let path = beside(&store, ".lock");
        let held = |process: u32| {
            let mut file = File::create(&path).unwrap();
            file.try_lock().unwrap();
            writeln!(file, "{process}").unwrap();
            file
        };
        let alive = held(std::process::id());
        let refused = Lock::take(&store).unwrap_err();
        assert!(
            matches!(refused, StoreError::Locked { holder: Some(holder), .. } if holder == std::process::id())
        );
        drop(alive);
        // No process has this number: the kernel gives out far smaller ones.
        let left = held(u32::MAX);
        let begun = Instant::now();
        let child = std::thread::spawn(move || {
            sleep(Duration::from_millis(100));
            drop(left);
        });
        Lock::take(&store).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(90), "it was waited for");
        child.join().unwrap();
        std::fs::remove_file(path).unwrap();
    }
}
