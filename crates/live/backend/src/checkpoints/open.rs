//! A directory that is open: what is done in it is done by its descriptor and one name, so that a user who changes the
//! path to it does not change what is meant.

use super::{Owner, Refusal, say};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, geteuid, gettid, unlinkat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An open directory, with its name for messages.
#[derive(Debug)]
pub struct Open {
    pub fd: OwnedFd,
    pub path: PathBuf,
}

fn flags() -> OFlag {
    OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC
}

impl Open {
    /// The run directory: the operator named it, and the way to it is the operator's.
    pub fn run_dir(path: &Path) -> Result<Open, Refusal> {
        Open::followed(path)
    }

    /// What a path leads to, links and all.
    pub fn followed(path: &Path) -> Result<Open, Refusal> {
        let fd = open(path, flags(), Mode::empty());
        let failed = |error: Errno| failed(path, "opened", error.into());
        Ok(Open { fd: fd.map_err(failed)?, path: path.to_path_buf() })
    }

    /// What stands at a path itself.
    pub fn at(path: &Path) -> Result<Open, Refusal> {
        let parent = Open::followed(path.parent().unwrap_or(Path::new("/")))?;
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| failed(path, "opened", Errno::EINVAL.into()))?;
        parent.must_have(name)
    }

    /// A directory in it; nothing if there is none, and a refusal if something else stands there.
    pub fn below(&self, name: &str) -> Result<Option<Open>, Refusal> {
        let path = self.path.join(name);
        match openat(&self.fd, name, flags() | OFlag::O_NOFOLLOW, Mode::empty()) {
            Ok(fd) => Ok(Some(Open { fd, path })),
            Err(Errno::ENOENT) => Ok(None),
            Err(Errno::ENOTDIR | Errno::ELOOP) => Err(self.no_directory(name)),
            Err(error) => Err(failed(&path, "opened", error.into())),
        }
    }

    /// The same where it must be there.
    pub fn must_have(&self, name: &str) -> Result<Open, Refusal> {
        let missing = || failed(&self.path.join(name), "opened", Errno::ENOENT.into());
        self.below(name)?.ok_or_else(missing)
    }

    fn no_directory(&self, name: &str) -> Refusal {
        let stat = fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        let kind = stat.map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
        let what = if kind == Ok(SFlag::S_IFLNK) { "a link" } else { "no directory" };
        let owner = stat.map_or_else(|error| error.to_string(), |stat| say(stat.st_uid));
        Refusal::NoDirectory { path: self.path.join(name), what, owner }
    }

    /// What the system knows of it.
    pub fn stat(&self) -> io::Result<FileStat> {
        Ok(fstat(&self.fd)?)
    }

    /// Its owner.
    pub fn uid(&self) -> Result<u32, Refusal> {
        self.stat().map(|stat| stat.st_uid).map_err(|source| self.failed("read", source))
    }

    /// Its mode.
    pub fn mode(&self) -> Result<u32, Refusal> {
        let stat = self.stat().map_err(|source| self.failed("read", source))?;
        Ok(stat.st_mode & 0o7777)
    }

    /// Gives it another mode.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(fchmod(&self.fd, Mode::from_bits_truncate(mode))?)
    }

    /// Whose something in it is; a link is looked at and not followed.
    pub fn owner_of(&self, name: impl AsRef<OsStr>) -> io::Result<u32> {
        Ok(fstatat(&self.fd, name.as_ref(), AtFlags::AT_SYMLINK_NOFOLLOW)?.st_uid)
    }

    /// Names of what is in it, as many as are asked for.
    pub fn names(&self, most: usize) -> io::Result<Vec<OsString>> {
        let mut dir = Dir::openat(&self.fd, ".", flags(), Mode::empty())?;
        let mut names = Vec::new();
        for entry in dir.iter() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
            if names.len() >= most {
                break;
            }
        }
        Ok(names)
    }

    /// Puts something in it elsewhere. A directory replaces nothing but an empty one.
    pub fn rename(&self, name: &str, to: &Open, new: &str) -> io::Result<()> {
        Ok(renameat(&self.fd, name, &to.fd, new)?)
    }

    /// Makes a directory of this process's own; one that is there already is left.
    pub fn make_plain(&self, name: &str, mode: Mode) -> Result<(), Refusal> {
        match mkdirat(&self.fd, name, mode) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(failed(&self.path.join(name), "made", error.into())),
        }
        let made = self.must_have(name)?;
        // The mask of the process may have taken bits away.
        made.set_mode(mode.bits()).map_err(|source| made.failed("made", source))
    }

    /// Makes a directory in another for its owner. It is made and given away in this one, where no other user can put
    /// anything in its place, and moved when it is whole.
    pub fn make_for(&self, to: &Open, name: &str, owner: Owner) -> Result<Open, Refusal> {
        let path = to.path.join(name);
        // Threads of one process make directories at once.
        let fresh = format!(".new-{}-{name}", gettid());
        // One that died half way may have had the same number.
        let _ = unlinkat(&self.fd, fresh.as_str(), UnlinkatFlags::RemoveDir);
        mkdirat(&self.fd, fresh.as_str(), Mode::S_IRWXU)
            .map_err(|error| failed(&path, "made", error.into()))?;
        let given = self.give(&fresh, &path, owner);
        let moved = given.and_then(|()| match renameat(&self.fd, fresh.as_str(), &to.fd, name) {
            // Another process was faster; whose directory that is, the caller checks.
            Ok(()) | Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOTDIR) => Ok(()),
            Err(error) => Err(failed(&path, "made", error.into())),
        });
        let _ = unlinkat(&self.fd, fresh.as_str(), UnlinkatFlags::RemoveDir);
        moved?;
        to.must_have(name)
    }

    fn give(&self, fresh: &str, path: &Path, owner: Owner) -> Result<(), Refusal> {
        let made = self.must_have(fresh)?;
        let (own, maker) = (geteuid().as_raw(), made.uid()?);
        let not_given = |source| {
            let owner = say(owner.uid);
            Refusal::NotGiven { path: path.to_path_buf(), owner, source }
        };
        // A file server made it as another user, or another user who can write here put something in its place.
        if maker != own || !made.names(1).is_ok_and(|names| names.is_empty()) {
            let what = format!("what was made for it belongs to user {}", say(maker));
            return Err(not_given(io::Error::other(what)));
        }
        made.set_mode(0o700).map_err(not_given)?;
        if owner.uid != own {
            let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
            fchown(&made.fd, Some(uid), Some(gid)).map_err(|error| not_given(error.into()))?;
        }
        Ok(())
    }

    /// What could not be done with it.
    pub fn failed(&self, what: &'static str, source: io::Error) -> Refusal {
        failed(&self.path, what, source)
    }
}

fn failed(path: &Path, what: &'static str, source: io::Error) -> Refusal {
    Refusal::Failed { path: path.to_path_buf(), what, source }
}
