//! One daemon for one store.

use crate::disk::{PRIVATE, beside};
use crate::error::StoreError;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The right to write to a store. The system takes it back when the process ends, however it ends.
///
/// The lock is on a file of its own, because the main file is replaced by a repair. It holds the holder's process id,
/// which is there for messages alone.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
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
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let holder =
                    file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(StoreError::Locked { path: store.to_owned(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(StoreError::io(&path, &error)),
        }
        // A full disk must not keep a daemon from starting: the id is a comfort, the lock is not.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Lock { _file: file })
    }
}
