//! A copy of the code that a job runs, made at its submission.
//!
//! A job that waits for hours should run what was submitted, not what the folder holds by then. The copy is made by the
//! client, with the rights of its user, under a name that is made from what is in it: the same code is kept once.

use crate::failure::Failure;
use crate::output::reason;
use ring::digest::{Context, SHA256};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use trainyard_api::JobSpec;

/// Code is small: what is larger holds data, which belongs elsewhere.
const BYTES_MAX: u64 = 256 << 20;
const FILES_MAX: usize = 20_000;
/// What is never code.
const LEFT_OUT: [&str; 2] = [".git", "__pycache__"];

/// The job with its working directory copied, if it asks for that.
pub fn taken(job: JobSpec) -> Result<JobSpec, Failure> {
    if !job.snapshot {
        return Ok(job);
    }
    let cwd = PathBuf::from(job.cwd.as_deref().unwrap_or("."));
    let copy = take(&cwd, &store()?)?;
    Ok(JobSpec { snapshot: false, cwd: Some(copy.to_string_lossy().into_owned()), ..job })
}

/// Where copies are kept.
fn store() -> Result<PathBuf, Failure> {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = folder("XDG_DATA_HOME").or_else(|| Some(folder("HOME")?.join(".local/share")));
    let data = data.ok_or_else(|| {
        Failure::Operation(
            "a snapshot has no place: neither XDG_DATA_HOME nor HOME is set".to_owned(),
        )
    })?;
    Ok(data.join("trainyard/snapshots"))
}

/// Copies a folder into the store, unless the same is there; the copy.
fn take(folder: &Path, store: &Path) -> Result<PathBuf, Failure> {
    let failed = |path: &Path, error: &io::Error| {
        Failure::Operation(format!("snapshot: {}: {}", path.display(), reason(error)))
    };
    let files = listed(folder).map_err(|error| failed(folder, &error))?;
    if files.len() > FILES_MAX {
        return Err(too_large(folder, &format!("more than {FILES_MAX} files")));
    }
    let mut digest = Context::new(&SHA256);
    let mut bytes = 0;
    let mut contents = Vec::with_capacity(files.len());
    for file in &files {
        let path = folder.join(file);
        let content = Content::read(&path).map_err(|error| failed(&path, &error))?;
        bytes += content.bytes.len() as u64;
        if bytes > BYTES_MAX {
            return Err(too_large(folder, &format!("more than {} MiB", BYTES_MAX >> 20)));
        }
        content.feed(file, &mut digest);
        contents.push(content);
    }
    let name: String = digest.finish().as_ref()[..16].iter().map(|b| format!("{b:02x}")).collect();
    let place = store.join(&name);
    if place.is_dir() {
        return Ok(place);
    }
    let partial = store.join(format!("{name}.{}", std::process::id()));
    let written = write(&partial, files.iter().zip(&contents)).and_then(|()| {
        // Another client may have made the same copy meanwhile.
        fs::rename(&partial, &place)
            .or_else(|error| if place.is_dir() { Ok(()) } else { Err(error) })
    });
    let _ = fs::remove_dir_all(&partial);
    written.map_err(|error| failed(&place, &error))?;
    Ok(place)
}

fn too_large(folder: &Path, what: &str) -> Failure {
    let advice =
        "name data with `mounts` or by an absolute path, or leave it out with a .gitignore";
    Failure::Operation(format!("snapshot: {} holds {what}: {advice}", folder.display()))
}

/// One file or link.
struct Content {
    /// The link's target, or what is in the file.
    bytes: Vec<u8>,
    is_link: bool,
    mode: u32,
}

impl Content {
    fn read(path: &Path) -> io::Result<Content> {
        let data = fs::symlink_metadata(path)?;
        if data.is_symlink() {
            let target = fs::read_link(path)?.as_os_str().as_bytes().to_vec();
            return Ok(Content { bytes: target, is_link: true, mode: 0 });
        }
        if data.len() > BYTES_MAX {
            return Err(io::Error::other("it is too large for a copy of code"));
        }
        let executable = data.permissions().mode() & 0o100 != 0;
        let mode = if executable { 0o755 } else { 0o644 };
        Ok(Content { bytes: fs::read(path)?, is_link: false, mode })
    }

    fn feed(&self, name: &Path, digest: &mut Context) {
        let name = name.as_os_str().as_bytes();
        for number in [name.len() as u64, self.bytes.len() as u64, u64::from(self.mode)] {
            digest.update(&number.to_be_bytes());
        }
        digest.update(name);
        digest.update(&self.bytes);
    }
}

fn write<'a>(
    folder: &Path,
    files: impl Iterator<Item = (&'a PathBuf, &'a Content)>,
) -> io::Result<()> {
    // Code may hold secrets: no other user reads it.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    for (name, content) in files {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        if content.is_link {
            symlink(OsStr::from_bytes(&content.bytes), &path)?;
        } else {
            fs::write(&path, &content.bytes)?;
            fs::set_permissions(&path, PermissionsExt::from_mode(content.mode))?;
        }
    }
    Ok(())
}

/// The files of a folder, in order: those that Git would keep, where it is a Git work tree, else all.
fn listed(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let git = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output();
    let mut files: Vec<PathBuf> = match git {
        Ok(output) if output.status.success() => {
            let names = output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
            names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect()
        }
        _ => {
            let mut files = Vec::new();
            walk(folder, Path::new(""), &mut files)?;
            files
        }
    };
    // Git also lists what was deleted and not committed, and folders of other repositories.
    files.retain(|file| {
        fs::symlink_metadata(folder.join(file))
            .is_ok_and(|data| data.is_file() || data.is_symlink())
    });
    files.sort();
    files.dedup();
    Ok(files)
}

fn walk(folder: &Path, below: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder.join(below))? {
        let entry = entry?;
        if LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            // A virtual environment knows its own place and is of no use in a copy.
            if !entry.path().join("pyvenv.cfg").exists() {
                walk(folder, &path, files)?;
            }
        } else {
            files.push(path);
        }
        if files.len() > FILES_MAX {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("snapshot-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("code/pack/__pycache__")).unwrap();
        fs::write(folder.join("code/train.py"), "print(1)\n").unwrap();
        fs::write(folder.join("code/pack/a.py"), "a = 1\n").unwrap();
        fs::write(folder.join("code/pack/__pycache__/a.pyc"), "x").unwrap();
        symlink("train.py", folder.join("code/main.py")).unwrap();
        fs::create_dir(folder.join("code/env")).unwrap();
        fs::write(folder.join("code/env/pyvenv.cfg"), "").unwrap();
        folder
    }

    #[test]
    fn a_copy_stays_as_it_was_and_the_same_code_is_kept_once() {
        let folder = folder("once");
        let (code, store) = (folder.join("code"), folder.join("store"));
        let first = take(&code, &store).unwrap();
        assert_eq!(take(&code, &store).unwrap(), first);
        fs::write(code.join("train.py"), "print(2)\n").unwrap();
        let second = take(&code, &store).unwrap();
        assert_ne!(second, first);
        assert_eq!(fs::read_to_string(first.join("main.py")).unwrap(), "print(1)\n");
        assert_eq!(fs::read_to_string(second.join("train.py")).unwrap(), "print(2)\n");
        assert!(first.join("pack/a.py").exists() && !first.join("pack/__pycache__").exists());
        assert!(!first.join("env").exists(), "a virtual environment is no code");
        assert_eq!(fs::read_dir(&store).unwrap().count(), 2, "nothing half made is left");
        assert_eq!(fs::metadata(&first).unwrap().permissions().mode() & 0o777, 0o700);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_with_too_many_files_is_refused_with_what_to_do() {
        let folder = folder("many");
        for number in 0..=FILES_MAX {
            fs::write(folder.join("code").join(number.to_string()), "").unwrap();
        }
        let failure = take(&folder.join("code"), &folder.join("store")).unwrap_err();
        let Failure::Operation(text) = failure else { panic!("{failure:?}") };
        assert!(text.contains("20000 files") && text.contains(".gitignore"), "{text}");
        fs::remove_dir_all(folder).unwrap();
    }
}
