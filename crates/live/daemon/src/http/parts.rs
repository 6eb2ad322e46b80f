//! The body of an answer whose parts are shared: sent piece by piece without a copy, within a stated time.

use axum::body::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The connection is handed so many bytes at once.
const PIECE: usize = 64 << 10;

/// Parts that are sent one after the other.
#[derive(Debug)]
pub struct Parts {
    parts: VecDeque<Bytes>,
    left: u64,
    until: Instant,
}

impl Parts {
    /// Parts that must be read within a time; a client that takes longer is let go.
    pub fn new(parts: Vec<Bytes>, within: Duration) -> Parts {
        let left = parts.iter().map(|part| part.len() as u64).sum();
        Parts { parts: parts.into(), left, until: Instant::now() + within }
    }

    fn next(&mut self) -> Option<Bytes> {
        loop {
            let part = self.parts.front_mut()?;
            if part.is_empty() {
                self.parts.pop_front();
                continue;
            }
            let piece = part.split_to(part.len().min(PIECE));
            self.left -= piece.len() as u64;
            return Some(piece);
        }
    }
}

impl Body for Parts {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.left > 0 && Instant::now() > self.until {
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        }
        Poll::Ready(self.next().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn parts_come_whole_and_in_order_and_are_not_copied() {
        let large = Bytes::from(vec![7u8; 3 * PIECE + 5]);
        let parts =
            vec![Bytes::from_static(b"ab"), Bytes::new(), large.clone(), Bytes::from_static(b"z")];
        let all = parts.concat();
        let mut body = Parts::new(parts, Duration::from_secs(60));
        assert_eq!(body.size_hint().exact(), Some(all.len() as u64));
        let mut got = Vec::new();
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() <= PIECE);
            let shared = large.as_ptr_range();
            assert!(piece.len() <= 2 || shared.contains(&piece.as_ptr()), "a copy");
            got.extend_from_slice(&piece);
        }
        assert!(got == all && body.is_end_stream());
    }

    #[tokio::test]
    async fn a_client_that_reads_too_slowly_is_let_go() {
        let mut body = Parts::new(vec![Bytes::from_static(b"ab")], Duration::ZERO);
        std::thread::sleep(Duration::from_millis(2));
        assert!(body.frame().await.unwrap().is_err());
    }
}
