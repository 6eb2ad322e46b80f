//! A reader that refuses lines without end, so that a bad file cannot fill the memory.

use std::io::{self, BufRead, Read};
use trainyard_profile::InputError;

/// The most bytes of one line, or of one element of a JSON list.
pub const PIECE_MAX: usize = 16 << 20;

/// Counts the bytes since the last line feed and fails when they are too many.
///
/// JSON documents are often one line, so their readers bound elements instead.
pub(crate) struct Bounded<R> {
    inner: R,
    line: u64,
    length: usize,
}

impl<R: BufRead> Bounded<R> {
    pub fn new(inner: R) -> Bounded<R> {
        Bounded { inner, line: 1, length: 0 }
    }

    fn count(&mut self, used: usize) -> io::Result<()> {
        // What was handed out is still in the buffer.
        let buffer = self.inner.fill_buf()?;
        let used = &buffer[..used.min(buffer.len())];
        match used.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => {
                self.line += used.iter().filter(|byte| **byte == b'\n').count() as u64;
                self.length = used.len() - last - 1;
            }
            None => self.length += used.len(),
        }
        Ok(())
    }

    fn refuse_endless(&self) -> io::Result<()> {
        if self.length <= PIECE_MAX {
            return Ok(());
        }
        Err(io::Error::other(too_long(self.line, "a line")))
    }
}

/// The fault of a piece that is too long to be held.
pub(crate) fn too_long(line: u64, what: &str) -> InputError {
    let expected = format!("at most {} MiB; split it, or cut it out", PIECE_MAX >> 20);
    InputError::wrong(line, "", &format!("{what} longer than that"), expected)
}

impl<R: BufRead> Read for Bounded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let buffer = self.fill_buf()?;
        let count = buffer.len().min(out.len());
        out[..count].copy_from_slice(&buffer[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Bounded<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.refuse_endless()?;
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        // The buffer is filled already, so that counting cannot fail.
        let _ = self.count(count);
        self.inner.consume(count);
    }
}
