//! One daemon for one store.

use crate::disk::{PRIVATE, beside};
use crate::error::StoreError;
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
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Drop for Lock {
    /// Closing the file is not enough: a child that is being started shares it until it becomes another program, and
    /// the lock with it. Giving it back by name frees it at once for all who share it.
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
        // A full disk must not keep a daemon from starting: the id is a comfort, the lock is not.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Lock { file })
    }
}

/// Who has the lock, by its own word.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).ok()?;
    text.trim().parse().ok()
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
