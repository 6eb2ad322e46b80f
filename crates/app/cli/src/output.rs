//! What comes out: text on the terminal, and files that are whole or not there.

use crate::failure::{Failure, INTERRUPTED};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
pub use trainyard_diagnostic::reason;
use trainyard_report::table::Ink;
use trainyard_types::{printable, printable_json, printable_lines};

/// The terminal and the files of one run of the program.
pub struct Output {
    /// Whether the terminal takes colours.
    pub ink: Ink,
    /// The width of the terminal; `None` when there is none.
    pub width: Option<u16>,
    /// Files that are being written, and folders for a while.
    unfinished: Arc<Mutex<BTreeSet<PathBuf>>>,
    /// What a user should know who interrupts.
    farewell: Arc<Mutex<Option<String>>>,
}

impl Output {
    /// Colours only on a terminal, and never against `NO_COLOR`.
    pub fn new() -> Output {
        let is_terminal = io::stdout().is_terminal();
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let width = terminal_size::terminal_size().map(|(width, _)| width.0);
        Output {
            ink: if is_terminal && !refused && !dumb { Ink::Colour } else { Ink::Plain },
            width: width.filter(|_| is_terminal),
            unfinished: Arc::default(),
            farewell: Arc::default(),
        }
    }

    /// On an interrupt, removes what is half written and ends with its own code.
    pub fn watch_interrupts(&self) {
        let unfinished = Arc::clone(&self.unfinished);
        let farewell = Arc::clone(&self.farewell);
        // Without a handler an interrupt still ends the program, only less tidily.
        let _ = ctrlc::set_handler(move || {
            remove_all(&unfinished);
            let farewell = farewell.lock().unwrap_or_else(PoisonError::into_inner).take();
            let farewell = farewell.map(|text| format!("; {text}")).unwrap_or_default();
            let _ = writeln!(io::stderr(), "\nerror: interrupted{}", printable(&farewell));
            std::process::exit(INTERRUPTED);
        });
    }

    /// Says what an interrupt from now on adds to its message.
    pub fn on_interrupt(&self, text: String) {
        *self.farewell.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    /// Prints lines of text. What a terminal would obey is written out, except for our own colours.
    ///
    /// Whatever a command shows goes through here, so no name or message of a user can do anything to a terminal.
    pub fn print(&self, text: &str) -> Result<(), Failure> {
        match self.ink {
            Ink::Plain => self.print_raw(&printable_lines(text)),
            Ink::Colour => self.print_raw(&coloured(text)),
        }
    }

    /// Prints text as it is: what a job wrote is its user's own.
    pub fn print_raw(&self, text: &str) -> Result<(), Failure> {
        io::stdout().lock().write_all(text.as_bytes()).map_err(stdout_failed)
    }

    /// Lets `write` write to standard output.
    pub fn print_with(
        &self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let mut out = BufWriter::new(io::stdout().lock());
        write(&mut out).and_then(|()| out.flush()).map_err(stdout_failed)
    }

    /// Prints JSON, one value, readable.
    pub fn print_json(&self, value: &serde_json::Value) -> Result<(), Failure> {
        self.print_raw(&printable_json(&format!("{value:#}\n")))
    }

    /// Prints JSON, one value in one line.
    #[cfg(feature = "live")]
    pub fn print_json_line(&self, value: &serde_json::Value) -> Result<(), Failure> {
        self.print_raw(&format!("{}\n", printable_json(&value.to_string())))
    }

    /// Sees to it that all text is out.
    pub fn flush(&self) -> Result<(), Failure> {
        io::stdout().flush().map_err(stdout_failed)
    }

    /// Writes a file beside its final place and moves it there when it is whole.
    pub fn write_file(
        &self,
        path: &Path,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let failed = |error: io::Error| {
            Failure::Operation(format!("{}: cannot be written: {}", path.display(), reason(&error)))
        };
        if path.is_dir() {
            return Err(failed(io::Error::from(ErrorKind::IsADirectory)));
        }
        if path.exists() && !path.is_file() {
            // A device or a pipe: there is nothing to move.
            let mut out =
                BufWriter::new(OpenOptions::new().write(true).open(path).map_err(failed)?);
            return write(&mut out).and_then(|()| out.flush()).map_err(failed);
        }
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let draft = draft_of(&target);
        self.lock().insert(draft.clone());
        let written = File::create_new(&draft).and_then(|file| {
            let mut out = BufWriter::new(file);
            write(&mut out)?;
            out.flush()?;
            drop(out);
            fs::rename(&draft, &target)
        });
        if written.is_err() {
            let _ = fs::remove_file(&draft);
        }
        self.lock().remove(&draft);
        written.map_err(failed)
    }

    /// An empty folder for this user alone, which goes when it is dropped or the program is interrupted.
    #[cfg(feature = "live")]
    pub fn scratch_folder(&self, purpose: &str) -> Result<Scratch<'_>, Failure> {
        use std::os::unix::fs::DirBuilderExt;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.unwrap_or_default().as_nanos();
        let name = format!("trainyard-{purpose}-{}-{now}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(|error| {
            let why = reason(&error);
            Failure::Operation(format!("{}: cannot be made: {why}", path.display()))
        })?;
        self.lock().insert(path.clone());
        Ok(Scratch { path, output: self })
    }

    /// Removes every file that is half written, and every folder for a while.
    pub fn remove_unfinished(&self) {
        remove_all(&self.unfinished);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<PathBuf>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A folder for a while.
#[cfg(feature = "live")]
pub struct Scratch<'a> {
    /// Where it is.
    pub path: PathBuf,
    output: &'a Output,
}

#[cfg(feature = "live")]
impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        self.output.lock().remove(&self.path);
    }
}

/// Says what went wrong, on standard error.
pub fn report_failure(failure: &Failure, as_json: bool) {
    let message = failure.message();
    if message.is_empty() {
        return;
    }
    match (as_json, failure) {
        (true, _) => note(&printable_json(&failure.json().to_string())),
        // A fault of the command line comes with its usage, in lines.
        (false, Failure::Usage(_)) => message.lines().enumerate().for_each(|(index, line)| {
            note(&format!("{}{line}", if index == 0 { "error: " } else { "" }));
        }),
        (false, _) => note(&format!("error: {message}")),
    }
}

/// Says one thing beside the output, on standard error.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{}", printable(text));
}

/// Text with everything written out that a terminal obeys, except for ends of lines and colours.
///
/// Colours are put around cells that are printable already, see `trainyard_report::table`.
fn coloured(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\u{1b}[") {
        let (before, sequence) = rest.split_at(at);
        safe.push_str(&printable_lines(before));
        let numbers =
            sequence[2..].find(|letter: char| !(letter.is_ascii_digit() || letter == ';'));
        let end = numbers.map(|end| end + 2).filter(|end| sequence[*end..].starts_with('m'));
        match end {
            Some(end) => {
                safe.push_str(&sequence[..=end]);
                rest = &sequence[end + 1..];
            }
            None => {
                safe.push_str(&printable(&sequence[..1]));
                rest = &sequence[1..];
            }
        }
    }
    safe.push_str(&printable_lines(rest));
    safe
}

fn draft_of(target: &Path) -> PathBuf {
    let name = target.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = format!(".{}.{}.tmp", name.unwrap_or_default(), std::process::id());
    target.with_file_name(name)
}

fn remove_all(paths: &Mutex<BTreeSet<PathBuf>>) {
    let mut paths = paths.lock().unwrap_or_else(PoisonError::into_inner);
    for path in std::mem::take(&mut *paths) {
        let _ = match path.is_dir() {
            true => fs::remove_dir_all(path),
            false => fs::remove_file(path),
        };
    }
}

fn stdout_failed(error: io::Error) -> Failure {
    // The CSV writer wraps what happened.
    let wrapped = error.get_ref().and_then(|inner| inner.downcast_ref::<csv::Error>());
    let kind = match wrapped.map(csv::Error::kind) {
        Some(csv::ErrorKind::Io(inner)) => inner.kind(),
        _ => error.kind(),
    };
    match kind {
        ErrorKind::BrokenPipe => Failure::ClosedPipe,
        _ => Failure::Operation(format!("cannot write to standard output: {}", reason(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_stay_and_other_sequences_are_written_out() {
        let text = "\u{1b}[1mname\u{1b}[0m\n\u{1b}[2J\u{1b}]0;x\u{7}\u{1b}[1;32mé\u{1b}[";
        let shown = "\u{1b}[1mname\u{1b}[0m\n\\x1b[2J\\x1b]0;x\\x07\u{1b}[1;32mé\\x1b[";
        assert_eq!(coloured(text), shown);
    }
}
