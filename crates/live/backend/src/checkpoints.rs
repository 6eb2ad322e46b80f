//! Where jobs keep their checkpoints, unless their users say otherwise.
//!
//! ```text
//! RUN_DIR/checkpoints/      the daemon's, 0711: no other user puts anything here
//!   u1000/                  of the user with that number, 0700
//!     7/                    of job 7
//!     7.before-1/           what stood there when a job 7 ran for the first time
//! ```
//!
//! A job that reads a checkpoint runs what is in it, so that a directory of another user is never used.
//! [`settle`], [`move_old`] and [`claim`] may run as root: they follow no link, name nothing by a path of more than one
//! step, and give a directory away where only its maker can reach it. [`look_over`] and [`take_named`] run as the job's
//! own user, with that user's rights.

mod open;

use crate::attempt_dir::parse_name;
use crate::order::Identity;
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, Uid, User, getegid, geteuid, getgroups};
use open::Open;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use trainyard_types::JobId;

/// The name of the directory for the checkpoints of all users.
const ROOT: &str = "checkpoints";
/// So many things in a directory are looked at: a checkpoint is not made of more at its top.
const ENTRIES_MAX: usize = 1_000;
/// So many users have checkpoints at most, as far as a search for a job's goes.
const USERS_MAX: usize = 100_000;
/// So often a number is used anew before an operator must clear up.
const BEFORE_MAX: u32 = 1_000;
/// So often a claim begins anew because another one replaced the user's empty directory under it. Each of those that come
/// at once does so once at most.
const CLAIMS_MAX: usize = 100;

/// The user and group a directory is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Number of the user.
    pub uid: u32,
    /// Number of the main group.
    pub gid: u32,
}

/// Why a directory is not used.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// It is another user's.
    #[error(
        "checkpoint directory {} belongs to user {owner} and not to {wanted}, who would run what is in it: it is not \
         used; find out who put it there and move it away, or give it to {wanted} if its content is known", path.display()
    )]
    Foreign {
        /// What it is about.
        path: PathBuf,
        /// Whose it is.
        owner: String,
        /// Whose it ought to be.
        wanted: String,
    },
    /// The job's checkpoints are another user's.
    #[error(
        "checkpoint directory {} is not there, and {} belongs to user {owner}: the job has run before, and what is there \
         is not used by {wanted}; move it if its content is known, or make an empty directory to begin anew",
        path.display(), other.display()
    )]
    Elsewhere {
        /// What is missing.
        path: PathBuf,
        /// What is there.
        other: PathBuf,
        /// Whose that is.
        owner: String,
        /// Whose it ought to be.
        wanted: String,
    },
    /// It is something else.
    #[error("checkpoint directory {} is {what}, which is not followed: find out who put it there ({owner}) and remove it; \
         another disk is mounted there, not linked", path.display())]
    NoDirectory {
        /// What it is about.
        path: PathBuf,
        /// What stands there.
        what: &'static str,
        /// Whose that is.
        owner: String,
    },
    /// Others may write into it.
    #[error("checkpoint directory {} is open to others (mode {mode:o}): {advice}", path.display())]
    OpenToOthers {
        /// What it is about.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// What to do about it.
        advice: &'static str,
    },
    /// It cannot be given away.
    #[error(
        "checkpoint directory {} cannot be given to user {owner}: {source}; on a network's file system that squashes root, \
         export it to this host without (no_root_squash), or make it by hand with that owner and mode 700", path.display()
    )]
    NotGiven {
        /// What it is about.
        path: PathBuf,
        /// Whose it ought to be.
        owner: String,
        /// Why.
        source: io::Error,
    },
    /// The system says no.
    #[error("checkpoint directory {} cannot be {what}: {}", path.display(), plain(source))]
    Failed {
        /// What it is about.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl Owner {
    /// The user this process runs as.
    pub fn own() -> Owner {
        Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() }
    }

    /// The user whom ranks of this process become: only root can become another.
    pub fn of(identity: Option<&Identity>) -> Owner {
        let who = identity.filter(|_| geteuid().is_root());
        who.map_or_else(Owner::own, |who| Owner { uid: who.uid, gid: who.gid })
    }
}

/// Makes the directory for the checkpoints of all users, and closes one that an older version left open to all.
pub fn settle(run_dir: &Path) -> Result<(), Refusal> {
    let run = Open::run_dir(run_dir)?;
    if run.below(ROOT)?.is_none() {
        run.make_plain(ROOT, Mode::from_bits_truncate(0o711))?;
    }
    let root = run.must_have(ROOT)?;
    trusted(&run, &root)?;
    if root.mode()? & 0o1022 != 0 {
        root.set_mode(0o711).map_err(|source| root.failed("closed to others", source))?;
    }
    Ok(())
}

/// Moves what an older version left as `checkpoints/JOB` to where it belongs by its owner, and says what stays where it
/// is. What a job still uses stays until its next launch. Nothing is done for users below `least_uid`.
pub fn move_old(run_dir: &Path, least_uid: u32) -> Result<Vec<String>, Refusal> {
    let root = root(run_dir)?;
    let names = root.names(usize::MAX).map_err(|source| root.failed("read", source))?;
    let in_use = in_use(run_dir).map_err(|source| root.failed("read", source))?;
    let mut left = Vec::new();
    for name in names {
        // Only `7` is a job's: not `07`, and nothing else that stands here.
        let job = name.to_str().and_then(|name| name.parse().ok().map(JobId));
        let Some(job) = job.filter(|job| name == *job.0.to_string()) else { continue };
        if let Err(refusal) = move_one(&root, job, in_use.contains(&job), least_uid) {
            left.push(refusal.to_string());
        }
    }
    Ok(left)
}

/// The directory of a job for an attempt of it: made if it is missing, its owner's alone. The `first` attempt of a job
/// finds it empty, whatever an older job of that number left.
pub fn claim(run_dir: &Path, job: JobId, owner: Owner, first: bool) -> Result<PathBuf, Refusal> {
    let root = root(run_dir)?;
    for _ in 1..CLAIMS_MAX {
        match claim_once(&root, job, owner, first) {
            Err(Refusal::Failed { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            outcome => return outcome,
        }
    }
    claim_once(&root, job, owner, first)
}

/// Fails with "not found" when a claim of the same user's first job elsewhere put its own directory in place of the empty
/// one that this claim had opened.
fn claim_once(root: &Open, job: JobId, owner: Owner, first: bool) -> Result<PathBuf, Refusal> {
    let parent = parent(root, owner)?;
    let name = job.0.to_string();
    if first {
        set_aside(&parent, &name)?;
    } else if parent.below(&name)?.is_none()
        && let Some(old) = root.below(&name)?
    {
        must_be_of(&old, owner.uid)?;
        root.rename(&name, &parent, &name).map_err(|source| old.failed("moved", source))?;
    }
    let dir = match parent.below(&name)? {
        Some(dir) => dir,
        None => {
            if !first {
                must_be_nowhere_else(root, &parent, &name)?;
            }
            root.make_for(&parent, &name, owner)?
        }
    };
    must_be_of(&dir, owner.uid)?;
    Ok(dir.path)
}

/// Looks at a directory that was claimed, as its owner: it and what is at its top must be this process's own user's.
pub fn look_over(path: &Path) -> Result<(), Refusal> {
    let dir = Open::at(path)?;
    let own = geteuid().as_raw();
    must_be_of(&dir, own)?;
    for name in dir.names(ENTRIES_MAX).map_err(|source| dir.failed("read", source))? {
        match dir.owner_of(&name) {
            Ok(uid) if uid != own => return Err(foreign(&dir.path.join(name), uid, own)),
            Ok(_) => {}
            // What its owner took away meanwhile is not there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(dir.failed("read", source)),
        }
    }
    Ok(())
}

/// Makes a directory that the job's user named, with the rights of this process, and refuses one that is not that user's
/// to trust: another's, unless it is a group's of that user, and any but the user's own into which all users may write.
pub fn take_named(path: &Path) -> Result<(), Refusal> {
    let failed = |what, source| Refusal::Failed { path: path.to_path_buf(), what, source };
    std::fs::create_dir_all(path).map_err(|source| failed("made", source))?;
    // The way to it is the user's own choice, links and all; what counts is where it ends.
    let dir = Open::followed(path)?;
    let stat = dir.stat().map_err(|source| failed("read", source))?;
    let (own, mode) = (geteuid().as_raw(), stat.st_mode);
    if stat.st_uid == own {
        return Ok(());
    }
    if mode & 0o002 != 0 {
        let advice = "others can put anything into it; name a directory of your own";
        return Err(Refusal::OpenToOthers { path: dir.path, mode: mode & 0o7777, advice });
    }
    let groups = getgroups().unwrap_or_default();
    let gid = Gid::from_raw(stat.st_gid);
    let is_groups = mode & 0o020 != 0 && (gid == getegid() || groups.contains(&gid));
    if stat.st_uid == 0 || is_groups {
        return Ok(());
    }
    Err(foreign(&dir.path, stat.st_uid, own))
}

/// The directory for the checkpoints of all users.
fn root(run_dir: &Path) -> Result<Open, Refusal> {
    let run = Open::run_dir(run_dir)?;
    let root = run.must_have(ROOT)?;
    trusted(&run, &root)?;
    let mode = root.mode()?;
    if mode & 0o022 != 0 {
        let advice = "restart the daemon, which closes it";
        return Err(Refusal::OpenToOthers { path: root.path, mode, advice });
    }
    Ok(root)
}

/// It belongs to root, to this process's user, or to the user who has the run directory and could replace it.
fn trusted(run: &Open, root: &Open) -> Result<(), Refusal> {
    let (daemon, own) = (run.uid()?, geteuid().as_raw());
    let uid = root.uid()?;
    if uid == 0 || uid == own || uid == daemon {
        return Ok(());
    }
    Err(foreign(&root.path, uid, daemon))
}

/// The directory of one user.
fn parent(root: &Open, owner: Owner) -> Result<Open, Refusal> {
    let name = format!("u{}", owner.uid);
    let parent = match root.below(&name)? {
        Some(parent) => parent,
        None => root.make_for(root, &name, owner)?,
    };
    must_be_of(&parent, owner.uid)?;
    let mode = parent.mode()?;
    // Its owner may have opened it: that is taken back where it can be, and refused where not.
    if mode & 0o077 != 0 && fchmod(&parent.fd, Mode::S_IRWXU).is_err() {
        let advice = "its owner closes it with chmod 700";
        return Err(Refusal::OpenToOthers { path: parent.path, mode, advice });
    }
    Ok(parent)
}

fn move_one(root: &Open, job: JobId, in_use: bool, least_uid: u32) -> Result<(), Refusal> {
    let name = &job.0.to_string();
    let Some(old) = root.below(name)? else { return Ok(()) };
    let stat = old.stat().map_err(|source| old.failed("read", source))?;
    let owner = Owner { uid: stat.st_uid, gid: stat.st_gid };
    let own = geteuid();
    if owner.uid < least_uid || !(own.is_root() || owner.uid == own.as_raw()) {
        return Err(foreign(&old.path, owner.uid, own.as_raw()));
    }
    // Others could read it where it was; whether that can be taken back does not matter once it is moved.
    let closed = old.set_mode(0o700);
    if in_use {
        return closed.map_err(|source| old.failed("closed to others", source));
    }
    let parent = parent(root, owner)?;
    root.rename(name, &parent, name).map_err(|source| old.failed("moved", source))
}

/// Jobs of which an attempt is not known to be over.
fn in_use(run_dir: &Path) -> io::Result<BTreeSet<JobId>> {
    let mut jobs = BTreeSet::new();
    for entry in std::fs::read_dir(run_dir)? {
        let entry = entry?;
        let key = entry.file_name().to_str().and_then(parse_name);
        let is_over = entry.path().join("exit.json").exists();
        jobs.extend(key.filter(|_| !is_over).map(|(job, _)| job));
    }
    Ok(jobs)
}

/// Puts away what an older job of the same number left; nothing of it is deleted.
fn set_aside(parent: &Open, name: &str) -> Result<(), Refusal> {
    match parent.below(name) {
        Ok(None) => return Ok(()),
        Ok(Some(dir)) if dir.names(1).is_ok_and(|names| names.is_empty()) => return Ok(()),
        // A link or a file of the user's own making is put away as well.
        Ok(Some(_)) | Err(Refusal::NoDirectory { .. }) => {}
        Err(refusal) => return Err(refusal),
    }
    let mut names = (1..=BEFORE_MAX).map(|number| format!("{name}.before-{number}"));
    let free = names.find(|name| {
        parent.owner_of(name).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    });
    let failed =
        |source| Refusal::Failed { path: parent.path.join(name), what: "set aside", source };
    let free = free.ok_or_else(|| failed(io::Error::other("too many are; remove some")))?;
    parent.rename(name, parent, &free).map_err(failed)
}

/// A job that ran before and whose directory is missing must not begin anew because another user has it.
fn must_be_nowhere_else(root: &Open, parent: &Open, name: &str) -> Result<(), Refusal> {
    let users = root.names(USERS_MAX).map_err(|source| root.failed("read", source))?;
    for user in users.iter().filter(|user| user.as_encoded_bytes().starts_with(b"u")) {
        let below = Path::new(user).join(name);
        if let Ok(uid) = root.owner_of(&below) {
            let wanted = parent.uid()?;
            return Err(Refusal::Elsewhere {
                path: parent.path.join(name),
                other: root.path.join(below),
                owner: say(uid),
                wanted: say(wanted),
            });
        }
    }
    Ok(())
}

fn must_be_of(dir: &Open, wanted: u32) -> Result<(), Refusal> {
    let uid = dir.uid()?;
    if uid == wanted { Ok(()) } else { Err(foreign(&dir.path, uid, wanted)) }
}

fn foreign(path: &Path, owner: u32, wanted: u32) -> Refusal {
    Refusal::Foreign { path: path.to_path_buf(), owner: say(owner), wanted: say(wanted) }
}

/// A user for people: by name where there is one.
fn say(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| uid.to_string(), |user| format!("{} ({uid})", user.name))
}

/// The sentence of an error without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run directory of this test's own user, gone with the test.
    struct Run(PathBuf);

    impl Run {
        fn new(name: &str) -> Run {
            let path = std::env::temp_dir().join(format!("ty-ckpt-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir(&path).unwrap();
            settle(&path).unwrap();
            Run(path)
        }

        fn claim(&self, first: bool) -> Result<PathBuf, Refusal> {
            claim(&self.0, JobId(7), Owner::own(), first)
        }
    }

    impl Drop for Run {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_the_first_launch_of_a_job_begins_empty() {
        let run = Run::new("first");
        let dir = run.claim(true).unwrap();
        std::fs::write(dir.join("state"), "1").unwrap();
        assert_eq!(run.claim(false).unwrap(), dir);
        assert!(dir.join("state").exists());
        for number in 1..=3 {
            assert_eq!(run.claim(true).unwrap(), dir);
            assert!(!dir.join("state").exists());
            let before = dir.with_file_name(format!("7.before-{number}"));
            assert!(before.join("state").exists());
            std::fs::write(dir.join("state"), "1").unwrap();
        }
        let left: Vec<_> = std::fs::read_dir(run.0.join(ROOT)).unwrap().collect();
        assert_eq!(left.len(), 1, "nothing half made is left: {left:?}");
    }

    #[test]
    fn claims_at_once_for_a_user_who_has_no_directory_yet_all_succeed() {
        for round in 0..50 {
            let run = Run::new("at-once");
            let claims: Vec<Result<PathBuf, Refusal>> = std::thread::scope(|scope| {
                let claim = |job| claim(&run.0, JobId(job), Owner::own(), true);
                let threads: Vec<_> = (1..=4).map(|job| scope.spawn(move || claim(job))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            for (job, outcome) in (1..).zip(claims) {
                let path = outcome.unwrap_or_else(|refusal| panic!("round {round}: {refusal}"));
                assert!(path.ends_with(job.to_string()) && path.is_dir(), "{round}: {path:?}");
            }
            let left: Vec<_> = std::fs::read_dir(run.0.join(ROOT)).unwrap().collect();
            assert_eq!(left.len(), 1, "nothing half made is left: {left:?}");
        }
    }

    #[test]
    fn a_link_is_not_followed_wherever_it_stands() {
        let run = Run::new("links");
        let dir = run.claim(true).unwrap();
        let (parent, root) = (dir.parent().unwrap(), run.0.join(ROOT));
        for path in [dir.as_path(), parent, root.as_path()] {
            std::fs::remove_dir(path).unwrap();
            std::os::unix::fs::symlink("/", path).unwrap();
            let refusal = run.claim(false).unwrap_err();
            assert!(matches!(refusal, Refusal::NoDirectory { what: "a link", .. }), "{refusal}");
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn a_directory_for_all_that_others_can_write_into_is_closed_by_a_start_and_not_used_before() {
        let run = Run::new("open");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(run.0.join(ROOT), open).unwrap();
        let refusal = run.claim(true).unwrap_err();
        assert!(matches!(refusal, Refusal::OpenToOthers { mode: 0o1777, .. }), "{refusal}");
        settle(&run.0).unwrap();
        run.claim(true).unwrap();
    }
}
