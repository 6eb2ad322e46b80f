//! Output of jobs: files of bounded size, read by absolute offset.
//!
//! A rank's output is one endless row of bytes. It is kept in files named after the offset of their first byte; the
//! oldest goes when there is too much. An offset means the same byte for ever, whether it is still kept or not.

use crate::attempt_dir::{make_dir, name};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use trainyard_types::{Attempt, JobId};

/// Into so many files the bytes that may be kept are divided.
const SEGMENTS: u64 = 8;
const SEGMENT_BYTES_MIN: u64 = 1 << 10;
const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// A piece of a rank's output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPart {
    /// The offset of its first byte; larger than asked for where older bytes are gone.
    pub from: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The offset after the newest byte there is.
    pub end: u64,
}

/// Reads at most `max` bytes of a rank's output from offset `from` on, of an attempt that runs, is over or is
/// forgotten. Nothing was written yet where the part is empty and its end is 0.
pub fn read_log(
    run_dir: &Path,
    (job, attempt): (JobId, Attempt),
    rank: u32,
    from: u64,
    max: u64,
) -> io::Result<LogPart> {
    let attempt = name(job, attempt);
    let kept = [run_dir.join(&attempt), run_dir.join("logs").join(&attempt)];
    let Some(dir) = kept.iter().find(|dir| dir.is_dir()) else {
        let what = format!("no output of attempt {attempt} is kept in {}", run_dir.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, what));
    };
    // A file may go between the look into the directory and its opening; what is left is found by a second look.
    for _ in 0..3 {
        match read_segments(&dir.join("logs").join(rank.to_string()), from, max) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result,
        }
    }
    Ok(LogPart::default())
}

fn read_segments(dir: &Path, from: u64, max: u64) -> io::Result<LogPart> {
    let starts = segments(dir)?;
    let (Some(first), Some(last)) = (starts.first(), starts.last()) else {
        return Ok(LogPart::default());
    };
    let end = last + std::fs::metadata(segment(dir, *last))?.len();
    let from = from.clamp(*first, end);
    let mut part = LogPart { from, bytes: Vec::new(), end };
    let begin = starts.partition_point(|start| *start <= from) - 1;
    for start in &starts[begin..] {
        let at = from + part.bytes.len() as u64;
        let left = max.saturating_sub(part.bytes.len() as u64);
        if left == 0 || at < *start {
            break;
        }
        let mut file = File::open(segment(dir, *start))?;
        file.seek(SeekFrom::Start(at - start))?;
        file.take(left).read_to_end(&mut part.bytes)?;
    }
    part.end = part.end.max(from + part.bytes.len() as u64);
    Ok(part)
}

fn segment(dir: &Path, start: u64) -> PathBuf {
    dir.join(format!("{start:020}"))
}

fn segments(dir: &Path) -> io::Result<Vec<u64>> {
    let mut starts = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        starts.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u64>().ok()));
    }
    starts.sort_unstable();
    Ok(starts)
}

/// Writes a rank's output.
#[derive(Debug)]
pub struct LogWriter {
    dir: PathBuf,
    file: Option<File>,
    starts: Vec<u64>,
    end: u64,
    segment_bytes: u64,
    bytes_max: u64,
}

impl LogWriter {
    /// Begins in a directory that does not exist yet. `bytes_max` is the most that is kept; 0 keeps everything.
    pub fn create(dir: &Path, bytes_max: u64) -> io::Result<LogWriter> {
        make_dir(dir, 0o750)?;
        let whole = if bytes_max == 0 { u64::MAX } else { bytes_max };
        let segment_bytes = (whole / SEGMENTS).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let dir = dir.to_path_buf();
        Ok(LogWriter { dir, file: None, starts: vec![], end: 0, segment_bytes, bytes_max: whole })
    }

    /// Adds bytes. A disk that takes none loses them and nothing else: the job that wrote them goes on.
    pub fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.room();
            let (now, later) = bytes.split_at(bytes.len().min(room as usize));
            if self.append(now).is_err() {
                return;
            }
            bytes = later;
        }
    }

    fn room(&mut self) -> u64 {
        let used = self.end - self.starts.last().copied().unwrap_or(self.end);
        if used >= self.segment_bytes {
            self.file = None;
            return self.segment_bytes;
        }
        self.segment_bytes - used
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            let mut options = OpenOptions::new();
            options.create_new(true).append(true).mode(0o640);
            self.file = Some(options.open(segment(&self.dir, self.end))?);
            self.starts.push(self.end);
            self.drop_oldest();
        }
        let file = self.file.as_mut().expect("opened above");
        let written = file.write(bytes)?;
        self.end += written as u64;
        if written < bytes.len() {
            return self.append(&bytes[written..]);
        }
        Ok(())
    }

    fn drop_oldest(&mut self) {
        // The newest file is counted as full, so that the sum never passes the limit.
        while self.starts.len() > 1
            && self.end + self.segment_bytes - self.starts[0] > self.bytes_max
        {
            let _ = std::fs::remove_file(segment(&self.dir, self.starts.remove(0)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("trainyard-log-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("3.1/logs")).unwrap();
        dir
    }

    #[test]
    fn offsets_survive_rotation_and_the_sum_stays_below_its_limit() {
        let run_dir = scratch("rotation");
        let limit = 16 << 10;
        let mut log = LogWriter::create(&run_dir.join("3.1/logs/0"), limit).unwrap();
        let mut whole = Vec::new();
        for line in 0..5000 {
            let text = format!("line {line}\n");
            whole.extend_from_slice(text.as_bytes());
            log.write(text.as_bytes());
        }
        let read = |from, max| read_log(&run_dir, (JobId(3), Attempt(1)), 0, from, max).unwrap();
        let kept = read(0, u64::MAX);
        assert_eq!(kept.end, whole.len() as u64);
        assert!(kept.from > 0 && kept.bytes.len() as u64 <= limit, "{}", kept.bytes.len());
        assert!(kept.bytes.len() as u64 > limit / 2, "half of what may be kept is kept");
        assert_eq!(kept.bytes, whole[kept.from as usize..]);
        for (from, max) in [(kept.from + 5, 3000), (kept.end - 10, 100), (kept.end, 10)] {
            let part = read(from, max);
            let until = (from + max).min(kept.end);
            assert_eq!(part.from, from);
            assert_eq!(part.bytes, whole[from as usize..until as usize]);
        }
        assert_eq!(read(u64::MAX, 10).from, kept.end, "beyond the end is the end");
        std::fs::remove_dir_all(run_dir).unwrap();
    }

    #[test]
    fn without_a_limit_everything_is_kept_and_an_unknown_attempt_is_named() {
        let run_dir = scratch("whole");
        let mut log = LogWriter::create(&run_dir.join("3.1/logs/0"), 0).unwrap();
        log.write(&[7; 100_000]);
        let part = read_log(&run_dir, (JobId(3), Attempt(1)), 0, 99_990, 100).unwrap();
        assert_eq!((part.bytes.len(), part.end), (10, 100_000));
        let other = read_log(&run_dir, (JobId(3), Attempt(1)), 1, 0, 100).unwrap();
        assert_eq!(other, LogPart::default(), "a rank that wrote nothing");
        let unknown = read_log(&run_dir, (JobId(4), Attempt(1)), 0, 0, 100).unwrap_err();
        assert!(unknown.to_string().contains("4.1"), "{unknown}");
        std::fs::remove_dir_all(run_dir).unwrap();
    }
}
