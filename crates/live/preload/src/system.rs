//! The few calls of the C library that Rust has no safe form of.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsString};
use std::io::{Error, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;

/// A variable of the environment. Without the lock that the standard library takes: a child that was forked while
/// another thread held it would wait for ever.
pub fn variable(name: &CStr) -> Option<OsString> {
    // SAFETY: the name ends with zero, and the value is copied at once.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        let value = (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes().to_vec());
        value.map(OsString::from_vec)
    }
}

/// Calls `function` in every child that is forked from now on, before anything else there.
pub fn at_fork_in_child(function: extern "C" fn()) {
    // SAFETY: the function touches atomics and closes descriptors, which a child may do. Without memory for the
    // registration a child goes on with its parent's connection, and the arbiter takes them for one process.
    unsafe {
        libc::pthread_atfork(None, None, Some(function));
    }
}

/// Calls `function` when the process exits, before what was registered earlier: before the driver goes.
pub fn at_exit(function: extern "C" fn()) {
    // SAFETY: the function stays loaded, for a preloaded library is never unloaded.
    unsafe {
        libc::atexit(function);
    }
}

/// Runs `function` with all signals blocked for the calling thread, so that a thread that it starts gets none of the
/// program's.
pub fn without_signals<T>(function: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are written by the C library before they are read.
    unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        let mut before = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = function();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

/// Sends all of it; a closed connection is an error and no signal.
pub fn send(stream: &UnixStream, mut bytes: &[u8]) -> Result<(), Error> {
    while !bytes.is_empty() {
        let pointer = bytes.as_ptr().cast();
        // SAFETY: the pointer and the length are those of one slice.
        let count =
            unsafe { libc::send(stream.as_raw_fd(), pointer, bytes.len(), libc::MSG_NOSIGNAL) };
        match usize::try_from(count) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(_) => {
                let error = Error::last_os_error();
                if error.kind() != ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// Which open file a descriptor stands for.
pub fn identity(descriptor: RawFd) -> Option<(u64, u64)> {
    // SAFETY: the C library writes the record before it is read.
    unsafe {
        let mut record = std::mem::zeroed::<libc::stat>();
        (libc::fstat(descriptor, &mut record) == 0).then_some((record.st_dev, record.st_ino))
    }
}

/// Closes a descriptor that nothing owns any more, as in a forked child.
pub fn close(descriptor: RawFd) {
    // SAFETY: the caller's word; in a child of a fork only this thread is there.
    unsafe {
        libc::close(descriptor);
    }
}
