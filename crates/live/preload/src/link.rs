//! One connection to the arbiter.

use crate::system;
use std::io::{Error, ErrorKind, Read};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;
use trainyard_token::{FRAME, FromProgram, ToProgram};

/// How long the arbiter may take for a welcome, or for an answer about memory.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A connection over which hello was said and answered.
///
/// A program may close descriptors that it does not know, as daemons do, and open files of its own under their numbers.
/// So it is looked at whether the descriptor is still ours before it is written to or closed.
#[derive(Debug)]
pub struct Link {
    stream: ManuallyDrop<UnixStream>,
    identity: Option<(u64, u64)>,
    note: &'static AtomicI32,
    /// What the programs of the job may allocate together.
    pub memory_cap: u64,
}

impl Link {
    /// Connects. The descriptor is noted in `note`, so that a forked child can close it.
    pub fn open(path: &Path, note: &'static AtomicI32) -> Result<Link, Error> {
        let stream = ManuallyDrop::new(UnixStream::connect(path)?);
        let identity = system::identity(stream.as_raw_fd());
        note.store(stream.as_raw_fd(), Ordering::Release);
        let mut link = Link { stream, identity, note, memory_cap: 0 };
        link.stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        link.say(FromProgram::Hello)?;
        match link.hear()? {
            ToProgram::Welcome { memory_cap } => link.memory_cap = memory_cap,
            _ => return Err(unexpected()),
        }
        Ok(link)
    }

    /// Waits for answers for as long as it takes: a turn may be far away, and only the arbiter knows.
    pub fn patient(self) -> Result<Link, Error> {
        self.stream.set_read_timeout(None)?;
        Ok(self)
    }

    /// Says something.
    pub fn say(&self, message: FromProgram) -> Result<(), Error> {
        if !self.is_ours() {
            return Err(Error::new(ErrorKind::NotConnected, "the program closed the connection"));
        }
        system::send(&self.stream, &message.encode())
    }

    /// Waits for an answer.
    pub fn hear(&mut self) -> Result<ToProgram, Error> {
        let mut frame = [0; FRAME];
        self.stream.read_exact(&mut frame)?;
        ToProgram::decode(&frame).map_err(|_| unexpected())
    }

    fn is_ours(&self) -> bool {
        self.identity.is_some() && system::identity(self.stream.as_raw_fd()) == self.identity
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.note.store(-1, Ordering::Release);
        if self.is_ours() {
            system::close(self.stream.as_raw_fd());
        }
    }
}

/// An answer that makes no sense.
pub fn unexpected() -> Error {
    Error::new(ErrorKind::InvalidData, "the arbiter's answer makes no sense")
}
