//! What the board tells, as text that all clients that ask with the same cursor share.
//!
//! Of an answer only the part about the caller differs, and it comes last: the text before it is made once, compressed
//! once, and sent to all clients without a copy. Frames that a client still reads are counted, so that slow clients
//! cannot keep more than a stated number of bytes.

use crate::board::Board;
use axum::body::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use trainyard_api::answer::Status;
use trainyard_api::{Code, Problem};

/// The head of a file of gzip: deflated, no name, no time, any system (RFC 1952, section 2.3).
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// What a row takes, about.
const ROW_BYTES: usize = 360;

/// Bytes of all frames that are kept here or that a client still reads.
#[derive(Clone, Debug, Default)]
pub struct Alive(Arc<AtomicUsize>);

impl Alive {
    /// How many there are.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts bytes until the last who shares them is done.
    pub(crate) fn count(&self, bytes: Vec<u8>) -> Bytes {
        self.0.fetch_add(bytes.len(), Ordering::Relaxed);
        Bytes::from_owner(Counted { bytes, alive: self.clone() })
    }
}

struct Counted {
    bytes: Vec<u8>,
    alive: Alive,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.0.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

/// An answer of the board without the caller: an object of JSON that is not closed yet.
#[derive(Debug)]
pub struct Frame {
    cursor: u64,
    open: Bytes,
    packed: OnceLock<Packed>,
    alive: Alive,
}

/// The same, deflated, up to the end of a byte.
#[derive(Debug)]
struct Packed {
    bytes: Bytes,
    sum: Crc,
}

/// A frame and what differs: the caller.
#[derive(Clone, Debug)]
pub struct BoardView {
    /// What all clients are told.
    pub frame: Arc<Frame>,
    /// The daemon, and the caller.
    pub status: Status,
}

impl Frame {
    /// What a board tells a client that has seen it at `since`.
    pub fn new(board: &Board, since: Option<u64>, alive: &Alive) -> Result<Frame, Problem> {
        let part = board.part(since);
        let mut text = Vec::with_capacity(part.rows() * ROW_BYTES + 1024);
        serde_json::to_writer(&mut text, &part).map_err(unwritten)?;
        // It is closed behind the part that differs.
        text.pop();
        text.shrink_to_fit();
        let (cursor, open, alive) = (board.cursor(), alive.count(text), alive.clone());
        Ok(Frame { cursor, open, packed: OnceLock::new(), alive })
    }

    /// What to ask with the next time.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Bytes of its text.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether it has no text, which is never so.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn packed(&self) -> &Packed {
        self.packed.get_or_init(|| {
            let bytes = self.alive.count(deflated(&self.open, FlushCompress::Full));
            let mut sum = Crc::new();
            sum.update(&self.open);
            Packed { bytes, sum }
        })
    }
}

impl BoardView {
    /// The whole answer as JSON, in parts of which the large one is shared.
    pub fn text(&self) -> Result<Vec<Bytes>, Problem> {
        Ok(vec![self.frame.open.clone(), Bytes::from(self.rest()?)])
    }

    /// The same, packed. Takes a while the first time.
    pub fn gzip(&self) -> Result<Vec<Bytes>, Problem> {
        let (rest, packed) = (self.rest()?, self.frame.packed());
        let mut sum = Crc::new();
        sum.update(&rest);
        let mut whole = Crc::new();
        whole.combine(&packed.sum);
        whole.combine(&sum);
        let mut end = deflated(&rest, FlushCompress::Finish);
        end.extend(whole.sum().to_le_bytes());
        end.extend(whole.amount().to_le_bytes());
        Ok(vec![Bytes::from_static(&GZIP_HEAD), packed.bytes.clone(), Bytes::from(end)])
    }

    /// The end of the object: the caller.
    fn rest(&self) -> Result<Vec<u8>, Problem> {
        let mut rest = b",\"status\":".to_vec();
        serde_json::to_writer(&mut rest, &self.status).map_err(unwritten)?;
        rest.push(b'}');
        Ok(rest)
    }
}

fn unwritten(fault: serde_json::Error) -> Problem {
    Problem::new(Code::Internal, format!("the board cannot be written: {fault}"))
}

/// Deflated bytes without a head; with a full flush others may follow, of which none refers to these.
fn deflated(bytes: &[u8], flush: FlushCompress) -> Vec<u8> {
    let mut packer = Compress::new(Compression::fast(), false);
    let mut packed = Vec::with_capacity(bytes.len() / 8 + 256);
    loop {
        let at = packer.total_in() as usize;
        let before = packed.len();
        let room = packed.capacity();
        packer.compress_vec(&bytes[at..], &mut packed, flush).expect("plain bytes can be deflated");
        // It is done when room was left over.
        if packer.total_in() as usize == bytes.len() && packed.len() < room {
            packed.shrink_to_fit();
            return packed;
        }
        debug_assert!(packed.len() > before || packed.capacity() == before);
        packed.reserve(packed.len().max(256));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Shown;
    use std::io::Read;
    use trainyard_api::answer::{JobRow, QueueState};
    use trainyard_api::board::BoardAnswer;

    fn status(user: &str) -> Status {
        let text = format!(
            r#"{{"version":"","schema_version":1,"policy":"","policy_trouble":null,"jobs":{{}},"gpus":0,"gpus_used":0,
            "gpus_lost":0,"epoch":1,"since":0.0,"role":"viewer","user":"{user}","runs_as_users":false,"warnings":[],
            "stats":null}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn board(count: u32) -> Board {
        let row = |id: u32| JobRow {
            id,
            name: format!("job-{}", id.wrapping_mul(2_654_435_761)),
            user: "ann".to_owned(),
            tenant: "lab".to_owned(),
            state: QueueState::Waiting,
            since: 5.0,
            gpus: 1,
            holds: Vec::new(),
            attempt: 0,
            submitted: 1.0,
            started: None,
            ended: None,
            ran_seconds: 0.0,
            progress: None,
            restarts: 0,
            preemptions: 0,
            priority: 0,
            hung: None,
            why: String::new(),
        };
        let mut board = Board::new(100);
        board.take(Shown { open: (1..=count).map(row).collect(), ..Shown::default() });
        board
    }

    #[test]
    fn text_and_gzip_are_one_answer_that_ends_with_who_asks() {
        for count in [0, 1, 3, 700, 20_000] {
            let (board, alive) = (board(count), Alive::default());
            let frame = Arc::new(Frame::new(&board, None, &alive).unwrap());
            for user in ["ann", "a-user-with-a-longer-name"] {
                let view = BoardView { frame: Arc::clone(&frame), status: status(user) };
                let text = view.text().unwrap().concat();
                let answer: BoardAnswer = serde_json::from_slice(&text).unwrap();
                assert_eq!((answer.jobs.len(), answer.whole), (count as usize, true));
                assert_eq!((answer.status.user.as_str(), answer.cursor), (user, board.cursor()));
                let mut unpacked = Vec::new();
                let packed = view.gzip().unwrap().concat();
                flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
                assert!(unpacked == text, "{count} rows, {user}");
                // One member and nothing behind it, as browsers want it.
                let mut rest = Vec::new();
                flate2::bufread::GzDecoder::new(&packed[..]).read_to_end(&mut rest).unwrap();
                assert_eq!(rest.len(), text.len());
            }
        }
    }

    #[test]
    fn two_hundred_views_of_a_board_hold_its_text_once() {
        let (board, alive) = (board(1_000), Alive::default());
        let frame = Arc::new(Frame::new(&board, None, &alive).unwrap());
        let one = alive.bytes();
        let view = |number: u32| BoardView {
            frame: Arc::clone(&frame),
            status: status(&number.to_string()),
        };
        let sent: Vec<Vec<Bytes>> = (0..220).map(|number| view(number).text().unwrap()).collect();
        assert_eq!(alive.bytes(), one);
        assert!(sent.iter().all(|parts| parts[0].as_ptr() == sent[0][0].as_ptr()));
        let own: usize = sent.iter().map(|parts| parts[1].len()).sum();
        assert!(own < 220 * 1024, "{own} bytes differ");
        drop(frame);
        assert_eq!(alive.bytes(), one, "a client still reads it");
        drop(sent);
        assert_eq!(alive.bytes(), 0);
    }
}
