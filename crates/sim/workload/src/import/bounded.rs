//! A reader that refuses lines without end, so that a bad file cannot fill the memory.

use std::io::{self, BufRead, Read};
use trainyard_diagnostic::InputError;

/// The most bytes of one line, or of one element of a JSON list.
pub const PIECE_MAX: usize = 16 << 20;

/// Counts the bytes since the last line feed and fails when they are too many.
///
/// JSON documents are often one line, so their readers bound elements instead.
pub(crate) struct Bounded<R> {
    inner: R,
    line: u64,
    length: usize,
    /// A carriage return was read, and what follows is not known yet.
    holds_return: bool,
}

impl<R: BufRead> Bounded<R> {
    pub fn new(inner: R) -> Bounded<R> {
        Bounded { inner, line: 1, length: 0, holds_return: false }
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
    /// Without the carriage return before a line feed, so that lines are counted right under all line ends.
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            let held_back = std::mem::take(&mut self.holds_return);
            let buffer = self.fill_buf()?;
            if held_back && buffer.first() != Some(&b'\n') {
                out[0] = b'\r';
                return Ok(1);
            }
            let room = buffer.len().min(out.len());
            let count = buffer[..room].iter().position(|byte| *byte == b'\r').unwrap_or(room);
            if count > 0 || room == 0 {
                out[..count].copy_from_slice(&buffer[..count]);
                self.consume(count);
                return Ok(count);
            }
            self.consume(1);
            self.holds_return = true;
        }
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
