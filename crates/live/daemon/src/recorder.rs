//! The flight record on disk: lines of JSON, appended by a thread of its own.
//!
//! Nothing waits for it and nothing is synced: the record is for looking back, and the store is the truth. At its
//! limit the record is full; the host then makes a new base, which begins the next file.

use crate::flight::Line;
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use tokio::sync::oneshot;

/// Files that are kept, the present one among them.
const FILES_KEPT: usize = 4;
/// Bytes of one file unless another limit is set.
pub const RECORD_BYTES_MAX: u64 = 64 << 20;

enum Entry {
    Lines(Vec<Line>),
    Read(oneshot::Sender<Result<Vec<u8>, String>>),
    End,
}

/// The flight record.
pub struct Recorder {
    entries: Sender<Entry>,
    full: Arc<AtomicBool>,
    trouble: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
}

/// Asks for what is recorded, from any thread.
#[derive(Clone)]
pub struct RecordReader(Sender<Entry>);

impl RecordReader {
    /// The record since its last base.
    pub async fn read(&self) -> Result<Vec<u8>, String> {
        let (answer, record) = oneshot::channel();
        let gone = || "the recorder has ended".to_owned();
        self.0.send(Entry::Read(answer)).map_err(|_| gone())?;
        record.await.map_err(|_| gone())?
    }
}

impl Recorder {
    /// Records into a folder, which is made if it is missing. `epoch` names the files of this start.
    pub fn start(folder: &Path, epoch: u64, bytes_max: u64) -> io::Result<Recorder> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let (entries, queue) = mpsc::channel();
        let (full, trouble) =
            (Arc::<AtomicBool>::default(), Arc::<Mutex<Option<String>>>::default());
        let mut tape = Tape {
            folder: folder.to_owned(),
            epoch,
            part: 0,
            bytes_max,
            base_bytes: 0,
            bytes: 0,
            file: None,
            full: Arc::clone(&full),
            trouble: Arc::clone(&trouble),
        };
        let thread = thread::Builder::new()
            .name("flight-record".to_owned())
            .spawn(move || tape.run(&queue))?;
        Ok(Recorder { entries, full, trouble, thread: Some(thread) })
    }

    /// Appends lines; a base begins a new file.
    pub fn record(&self, lines: Vec<Line>) {
        if !lines.is_empty() {
            // The thread ends only with this value.
            let _ = self.entries.send(Entry::Lines(lines));
        }
    }

    /// Whether a new base is wanted.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Why nothing is recorded, if nothing is.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// To ask for what is recorded.
    pub fn reader(&self) -> RecordReader {
        RecordReader(self.entries.clone())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.entries.send(Entry::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread holds.
struct Tape {
    folder: PathBuf,
    epoch: u64,
    part: u64,
    bytes_max: u64,
    /// Bytes of the base, and of what follows it.
    base_bytes: u64,
    bytes: u64,
    file: Option<(BufWriter<File>, PathBuf)>,
    full: Arc<AtomicBool>,
    trouble: Arc<Mutex<Option<String>>>,
}

impl Tape {
    fn run(&mut self, queue: &Receiver<Entry>) {
        while let Ok(entry) = queue.recv() {
            match entry {
                Entry::Lines(lines) => self.append_all(&lines),
                Entry::Read(answer) => {
                    // The receiver may be gone.
                    let _ = answer.send(self.read());
                }
                Entry::End => return,
            }
        }
    }

    fn append_all(&mut self, lines: &[Line]) {
        for line in lines {
            if let Err(error) = self.append(line) {
                // A record with a gap cannot be replayed, so the rest is left out until the next base.
                let file = self.file.take().map(|(_, path)| path).unwrap_or_default();
                self.say(Some(format!(
                    "the flight record {} cannot be written: {error}",
                    file.display()
                )));
                return;
            }
        }
        let flushed = self.file.as_mut().map_or(Ok(()), |(file, _)| file.flush());
        if let Err(error) = flushed {
            self.file = None;
            self.say(Some(format!("the flight record cannot be written: {error}")));
        }
        // A base is as long as the queue, and making one costs as much: there is another when as much follows it.
        if self.bytes > self.bytes_max.max(self.base_bytes) {
            self.full.store(true, Ordering::Relaxed);
        }
    }

    fn append(&mut self, line: &Line) -> io::Result<()> {
        if matches!(line, Line::Base(_)) {
            self.next_file()?;
        }
        let Some((file, _)) = &mut self.file else { return Ok(()) };
        // A base may be large, so it never lies in memory as a whole.
        let mut counted = Counted { file, bytes: 0 };
        let written = serde_json::to_writer(&mut counted, line).map_err(io::Error::other);
        let written = written.and_then(|()| counted.write_all(b"\n"));
        let bytes = counted.bytes;
        match line {
            Line::Base(_) => self.base_bytes = bytes,
            _ => self.bytes += bytes,
        }
        written
    }

    fn next_file(&mut self) -> io::Result<()> {
        self.file = None;
        self.bytes = 0;
        let path = self.folder.join(format!("{:08}-{:04}.jsonl", self.epoch, self.part));
        self.part += 1;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        self.file = Some((BufWriter::new(options.open(&path)?), path));
        self.full.store(false, Ordering::Relaxed);
        self.say(None);
        drop_oldest(&self.folder)
    }

    fn read(&mut self) -> Result<Vec<u8>, String> {
        let Some((file, path)) = &mut self.file else {
            let trouble = self.trouble.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            return Err(trouble.clone().unwrap_or_else(|| "nothing is recorded yet".to_owned()));
        };
        let read = file.flush().and_then(|()| fs::read(&*path));
        read.map_err(|error| format!("{}: {error}", path.display()))
    }

    fn say(&self, trouble: Option<String>) {
        if let Some(trouble) = &trouble {
            tracing::warn!(target: "trainyard::flight", "{trouble}");
        }
        *self.trouble.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = trouble;
    }
}

/// A file that knows how much went into it.
struct Counted<'a> {
    file: &'a mut BufWriter<File>,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn drop_oldest(folder: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            files.push(path);
        }
    }
    files.sort();
    let mut files = VecDeque::from(files);
    while files.len() > FILES_KEPT {
        if let Some(oldest) = files.pop_front() {
            fs::remove_file(oldest)?;
        }
    }
    Ok(())
}
