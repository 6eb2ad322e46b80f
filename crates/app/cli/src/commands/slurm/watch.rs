//! Looks at Slurm, one after the other, and the file they are kept in.

use super::{calls, refused};
use crate::args::slurm::ShadowArgs;
use crate::failure::Failure;
use crate::output::reason;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trainyard_diagnostic::InputError;
use trainyard_experiment::{files, options};
use trainyard_slurm::{History, Look, Lookout, Record};

/// How often a sleeping watch looks for an interrupt.
const NAP: Duration = Duration::from_millis(100);

/// What was seen: from a file, or from now on.
pub fn watch(args: &ShadowArgs) -> Result<History, Failure> {
    let mut history = History::default();
    if let Some(path) = &args.from {
        read_record(path, &mut history)?;
        return Ok(history);
    }
    let mut file = match &args.record {
        Some(path) => Some(Kept::open(path, &mut history)?),
        None => None,
    };
    let every = Duration::from_micros(options::span("--every", &args.every)?.0);
    let ends = match &args.span {
        Some(text) => Some(Instant::now() + Duration::from_micros(options::span("--for", text)?.0)),
        None => None,
    };
    let interrupted = interrupts();
    let calls = calls(&args.client)?;
    let lookout = Lookout::new(&calls);
    let mut answered = false;
    loop {
        let begin = Instant::now();
        match lookout.look() {
            Ok(seen) => {
                if !answered && seen.skipped.count > 0 {
                    note(&format!(
                        "{} rows were left out: {}",
                        seen.skipped.count,
                        seen.skipped.first.join("; ")
                    ));
                }
                answered = true;
                let at = seen.at.unwrap_or_else(now).max(history.to);
                if let Some(file) = &mut file {
                    let line = file.record.add(at, &seen);
                    file.write(&line)?;
                }
                history.add(at, &seen);
            }
            // Before the first answer it is more likely a wrong setting than a controller that restarts.
            Err(error) if !answered || !error.may_pass() => return Err(refused(&error)),
            Err(error) => {
                note(&format!("{error}; the watch goes on"));
                if let Some(file) = &mut file {
                    let line = file.record.add_away(now(), &error.to_string());
                    file.write(&line)?;
                }
                history.add_away();
            }
        }
        let next = begin + every;
        if args.once || ends.is_some_and(|end| next > end) || !slept_until(next, &interrupted) {
            return Ok(history);
        }
    }
}

/// A record that grows.
struct Kept {
    record: Record,
    file: File,
    path: String,
}

impl Kept {
    /// Opens a record, new or old; what it holds goes into the history.
    fn open(path: &Path, history: &mut History) -> Result<Kept, Failure> {
        let failed = |error: std::io::Error| {
            let why = reason(&error);
            Failure::Operation(format!("{}: cannot be written: {why}", path.display()))
        };
        let old = path.exists() && path.metadata().map_err(failed)?.len() > 0;
        let (record, whole) = match old {
            true => read_record(path, history)?,
            false => (Record::default(), 0),
        };
        let mut file =
            OpenOptions::new().create(true).read(true).write(true).truncate(false).open(path);
        let file = file.as_mut().map_err(|error| failed(std::io::Error::from(error.kind())))?;
        // What a killed watch left half written is cut off.
        file.set_len(whole).and_then(|()| file.seek(SeekFrom::End(0))).map_err(failed)?;
        let file = file.try_clone().map_err(failed)?;
        let mut kept = Kept { record, file, path: path.display().to_string() };
        if !old {
            kept.write(&Record::header())?;
        }
        Ok(kept)
    }

    fn write(&mut self, line: &str) -> Result<(), Failure> {
        let written = self.file.write_all(format!("{line}\n").as_bytes());
        written.map_err(|error| {
            Failure::Operation(format!("{}: cannot be written: {}", self.path, reason(&error)))
        })
    }
}

/// Reads a record into a history; gives its state and how many bytes of it are whole lines.
fn read_record(path: &Path, history: &mut History) -> Result<(Record, u64), Failure> {
    let mut reader = files::open(path)?;
    let mut record = Record::default();
    let (mut whole, mut number) = (0, 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line);
        let length = length.map_err(|error| files::unreadable(path, &error))? as u64;
        number += 1;
        if length == 0 {
            break;
        }
        let is_whole = line.last() == Some(&b'\n');
        let text = String::from_utf8_lossy(&line);
        match record.read(number, text.trim_end()) {
            Ok(Some(Look::Seen(seen))) => history.add(seen.at.unwrap_or_default(), &seen),
            Ok(Some(Look::Away(_))) => history.add_away(),
            Ok(None) => {}
            Err(_) if !is_whole && number > 1 => {
                note(&format!("{}: line {number} is cut off and left out", path.display()));
                break;
            }
            Err(error) => {
                let fault = InputError::wrong(error.line, "", &cut(&text), "a line of a record");
                let sentence = format!("{error}");
                return Err(Failure::file(path, sentence, fault));
            }
        }
        whole += length;
    }
    if history.looks == 0 && number <= 1 {
        let fault = InputError::wrong(0, "", "an empty file", "a record");
        return Err(Failure::file(path, "is empty: expected a record".to_owned(), fault));
    }
    Ok((record, whole))
}

/// The longest line that is read: a look at a hundred thousand jobs is shorter.
const LINE_MAX: u64 = 1 << 28;

fn cut(text: &str) -> String {
    text.chars().take(60).collect()
}

/// Whether it slept until then; an interrupt ends the sleep.
fn slept_until(then: Instant, interrupted: &AtomicBool) -> bool {
    while Instant::now() < then {
        if interrupted.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(NAP.min(then.saturating_duration_since(Instant::now())));
    }
    !interrupted.load(Ordering::Relaxed)
}

/// The first interrupt ends the watch, the second the program.
fn interrupts() -> Arc<AtomicBool> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    // Without a handler an interrupt ends the program; the record is whole all the same.
    let _ = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(crate::failure::INTERRUPTED);
        }
    });
    interrupted
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |past| past.as_secs() as i64)
}

fn note(text: &str) {
    // A reader that closed the pipe is no failure.
    crate::output::note(&format!("note: {text}"));
}
