//! Files that are read, with messages that name them.

use crate::failure::Failure;
use crate::packing::{Packing, unpacked};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;
use trainyard_diagnostic::reason;
use trainyard_diagnostic::{InputError, nearest};

/// A text file larger than this is no cluster and no profile.
const TEXT_MAX: u64 = 64 << 20;

/// A whole small text.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let mut reader = open(path)?.take(TEXT_MAX + 1);
    reader.read_to_string(&mut text).map_err(|error| unreadable(path, &error))?;
    if text.len() as u64 > TEXT_MAX {
        let expected = format!("at most {} MiB", TEXT_MAX >> 20);
        return Err(Failure::input(path.display(), InputError::wrong(0, "", "its size", expected)));
    }
    Ok(text)
}

/// A file, unpacked if it is packed with gzip, zstd or xz, whatever its name.
pub fn open(path: &Path) -> Result<BufReader<Box<dyn Read>>, Failure> {
    if path.is_dir() {
        let fault = InputError::wrong(0, "", "a directory", "a file");
        return Err(Failure::file(path, "is a directory: expected a file".to_owned(), fault));
    }
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let mut file = BufReader::with_capacity(1 << 16, file);
    let begin = file.fill_buf().map_err(|error| unreadable(path, &error))?;
    let reader = unpacked(Packing::of(begin), file).map_err(|error| unreadable(path, &error))?;
    Ok(BufReader::with_capacity(1 << 16, reader))
}

/// A file that cannot be read, with the name that was perhaps meant.
pub fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    if let Some(fault) = error.get_ref().and_then(|inner| inner.downcast_ref::<InputError>()) {
        return Failure::input(path.display(), fault.clone());
    }
    let (problem, expected) = match error.kind() {
        ErrorKind::NotFound => ("does not exist", "an existing file".to_owned()),
        ErrorKind::InvalidData => ("is not text", "text in UTF-8".to_owned()),
        _ => ("cannot be read", format!("a readable file ({})", reason(error))),
    };
    let nearest = neighbour(path);
    let hint = nearest.as_ref().map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
    let sentence = format!("{problem}: expected {expected}{hint}");
    let fault = InputError { nearest, ..InputError::wrong(0, "", problem, expected) };
    Failure::file(path, sentence, fault)
}

/// The file in the same directory whose name is most like this one.
fn neighbour(path: &Path) -> Option<String> {
    if path.exists() {
        return None;
    }
    let name = path.file_name()?.to_str()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?;
    let mut names: Vec<String> = entries
        .take(10_000)
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    let meant = nearest(name, names.iter().map(String::as_str))?;
    Some(path.with_file_name(meant).display().to_string())
}
