//! Which job of Slurm is ours.
//!
//! A slurmctld that is killed forgets its last seconds and hands out the same numbers again, so a number alone does not
//! identify a job. A job of Slurm is ours if three things agree with what was written down before it was submitted or
//! taken over: the mark in its comment, which only we can make; its user; and the time at which it was submitted.
//! Every call that acts on a job checks this just before; where anything is in doubt, nothing is done.

use crate::seen::SlurmJob;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use trainyard_types::JobId;

/// What every mark begins with.
pub const PREFIX: &str = "trainyard:";
/// So many submit times are remembered: each time Slurm requeues a job it gets another, and a slurmctld that forgets
/// its last seconds goes back to an older one.
const SIGHTINGS_MAX: usize = 8;
/// Hexadecimal digits of a digest in a mark: 128 bits.
const DIGEST_DIGITS: usize = 32;

/// The secret with which marks are made. It is in a file that only the daemon's user can read.
pub struct Key {
    secret: hmac::Key,
    random: SystemRandom,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

/// What a mark says, once its digest was found to be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// The job.
    pub job: JobId,
    /// Which of its submissions; 0 for a job that was taken over.
    pub submission: u32,
}

impl Key {
    /// The key in a file, made at the first use.
    pub fn open(path: &Path) -> io::Result<Key> {
        let random = SystemRandom::new();
        let bytes = match std::fs::read(path) {
            Ok(bytes) if bytes.len() == 32 => bytes,
            Ok(bytes) => {
                let what = format!(
                    "{} holds {} bytes and no key of 32; restore it, or remove it, and another is made: jobs are known by \
                     the ledger all the same, and only held ones that the ledger does not have stay in Slurm until an \
                     operator cancels them",
                    path.display(),
                    bytes.len()
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => made(path, &random)?,
            Err(error) => return Err(error),
        };
        Ok(Key { secret: hmac::Key::new(hmac::HMAC_SHA256, &bytes), random })
    }

    /// A mark for one submission of a job that will run as a user. No two are alike.
    pub fn mark(
        &self,
        instance: &str,
        job: JobId,
        submission: u32,
        uid: u32,
    ) -> io::Result<String> {
        let nonce = hex(&drawn::<8>(&self.random)?);
        let digest =
            self.digest(&[instance, &job.0.to_string(), &submission.to_string(), &nonce], uid);
        Ok(format!("{PREFIX}{instance}:{}:{submission}:{nonce}:{digest}", job.0))
    }

    /// What a comment says if it is a mark of this daemon for a job of this user, and nothing otherwise.
    pub fn read(&self, instance: &str, comment: &str, uid: u32) -> Option<Marked> {
        let mark = comment.split(' ').next()?;
        let parts: Vec<&str> = mark.strip_prefix(PREFIX)?.split(':').collect();
        let [of, job, submission, nonce, digest] = parts[..] else { return None };
        if of != instance || self.digest(&[of, job, submission, nonce], uid) != digest {
            return None;
        }
        Some(Marked { job: JobId(job.parse().ok()?), submission: submission.parse().ok()? })
    }

    fn digest(&self, parts: &[&str], uid: u32) -> String {
        // No part can hold a colon, so that no two lists of parts give the same text.
        let text = format!("{}:{uid}", parts.join(":"));
        let mut digest = hex(hmac::sign(&self.secret, text.as_bytes()).as_ref());
        digest.truncate(DIGEST_DIGITS);
        digest
    }
}

/// What is known of a job of Slurm by which it is recognised. Written down before the job is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// The mark in its comment.
    pub mark: String,
    /// The number of its user.
    pub uid: Option<u32>,
    /// Its name in Slurm.
    pub name: String,
    /// When it was submitted, by Slurm's clock, and how often it was requeued by then; the newest last.
    pub sightings: Vec<(i64, u32)>,
}

/// Why a job of Slurm is not the one that a claim speaks of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Its comment is not our mark.
    #[error("its comment is {0:?} and not our mark")]
    Mark(String),
    /// It is another user's.
    #[error("it belongs to user {0} and not to {1}")]
    User(u32, u32),
    /// It was submitted at another time.
    #[error("it was submitted at {0} and not at {1}, in seconds of Unix time")]
    Time(i64, i64),
    /// It may be the one: nothing is done to it, and it is not forgotten either.
    #[error("it cannot be told whose it is: Slurm does not tell {0}")]
    Unknown(&'static str),
}

impl Claim {
    /// Whether a job is the one. It may have been requeued since: what was not seen before of it is told.
    pub fn check(&self, job: &SlurmJob) -> Result<Option<(i64, u32)>, Mismatch> {
        if !self.is_marked(&job.comment) {
            return Err(Mismatch::Mark(crate::call::shown(&job.comment)));
        }
        self.check_who_and_when(job)
    }

    /// The same for a job whose comment does not matter.
    pub fn check_who_and_when(&self, job: &SlurmJob) -> Result<Option<(i64, u32)>, Mismatch> {
        let uid = job.uid.ok_or(Mismatch::Unknown("its user"))?;
        let own = self.uid.ok_or(Mismatch::Unknown("the user who submitted it"))?;
        if uid != own {
            return Err(Mismatch::User(uid, own));
        }
        let at = job.submitted.ok_or(Mismatch::Unknown("when it was submitted"))?;
        let Some((last, _)) = self.sightings.last().copied() else {
            return Ok(Some((at, job.restarts)));
        };
        let now = (at, job.restarts);
        if self.sightings.contains(&now) {
            return Ok(None);
        }
        // A requeued job counts as submitted when it was requeued.
        if job.restarts > 0 && at >= last {
            return Ok(Some(now));
        }
        Err(Mismatch::Time(at, last))
    }

    /// Whether a job is surely the one, as it was seen last or just after its submission. No is no answer: [`check`] has
    /// the reason, and knows requeued jobs too.
    ///
    /// [`check`]: Claim::check
    pub fn is_surely(&self, job: &SlurmJob) -> bool {
        let is_last = self.sightings.last().is_some_and(|(at, _)| job.submitted == Some(*at));
        self.is_marked(&job.comment) && self.uid.is_some() && job.uid == self.uid && is_last
    }

    /// Whether a comment carries the mark; what its user wrote may stand behind it.
    pub fn is_marked(&self, comment: &str) -> bool {
        let rest = comment.strip_prefix(self.mark.as_str());
        !self.mark.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }

    /// Remembers when the job was submitted or requeued.
    pub fn note(&mut self, sighting: (i64, u32)) {
        self.sightings.push(sighting);
        if self.sightings.len() > SIGHTINGS_MAX {
            self.sightings.remove(0);
        }
    }
}

fn made(path: &Path, random: &SystemRandom) -> io::Result<Vec<u8>> {
    let bytes = drawn::<32>(random)?;
    let partial = path.with_extension("partial");
    let _ = std::fs::remove_file(&partial);
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    std::fs::rename(&partial, path)?;
    Ok(bytes.to_vec())
}

fn drawn<const N: usize>(random: &SystemRandom) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    random.fill(&mut bytes).map_err(|_| io::Error::other("the system gives no random bytes"))?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        let path = std::env::temp_dir().join(format!("ty-key-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let key = Key::open(&path).unwrap();
        let mark = key.mark("ab12", JobId(7), 1, 1000).unwrap();
        assert!(Key::open(&path).unwrap().read("ab12", &mark, 1000).is_some(), "it stays the same");
        std::fs::remove_file(&path).unwrap();
        key
    }

    fn job(mark: &str, uid: u32, at: i64, restarts: u32) -> SlurmJob {
        SlurmJob {
            comment: mark.to_owned(),
            uid: Some(uid),
            submitted: Some(at),
            restarts,
            ..SlurmJob::default()
        }
    }

    #[test]
    fn a_mark_is_read_by_its_maker_alone_and_for_its_user_alone() {
        let (ours, other) = (key("ours"), key("other"));
        let mark = ours.mark("ab12", JobId(7), 3, 1000).unwrap();
        assert_ne!(mark, ours.mark("ab12", JobId(7), 3, 1000).unwrap(), "no two are alike");
        let says = Some(Marked { job: JobId(7), submission: 3 });
        assert_eq!(ours.read("ab12", &mark, 1000), says);
        assert_eq!(ours.read("ab12", &format!("{mark} see ticket 5"), 1000), says);
        assert_eq!(ours.read("ab12", &mark, 1001), None, "copied by another user");
        assert_eq!(ours.read("cd34", &mark, 1000), None);
        assert_eq!(other.read("ab12", &mark, 1000), None);
        assert_eq!(ours.read("ab12", &mark.replace(":7:", ":8:"), 1000), None);
        for text in ["", "trainyard:", "trainyard:ab12:7:3", "see trainyard:ab12", &mark[1..]] {
            assert_eq!(ours.read("ab12", text, 1000), None, "{text}");
        }
    }

    #[test]
    fn a_number_that_was_handed_out_again_is_not_ours() {
        let mut claim =
            Claim { mark: "trainyard:x".to_owned(), uid: Some(1000), ..Claim::default() };
        assert_eq!(claim.check(&job("trainyard:x", 1000, 50, 0)), Ok(Some((50, 0))));
        claim.note((50, 0));
        assert_eq!(claim.check(&job("trainyard:x", 1000, 50, 0)), Ok(None));
        assert!(claim.is_surely(&job("trainyard:x", 1000, 50, 0)));
        for (other, what) in [
            (job("", 1000, 50, 0), "another comment"),
            (job("trainyard:xy", 1000, 50, 0), "a longer mark"),
            (job("trainyard:x", 1001, 50, 0), "another user"),
            (job("trainyard:x", 1000, 51, 0), "another time"),
        ] {
            assert!(!claim.is_surely(&other), "{what}");
            let error = claim.check(&other).unwrap_err();
            assert!(!matches!(error, Mismatch::Unknown(_)), "{what}: {error}");
        }
        let ours = job("trainyard:x", 1000, 50, 0);
        for doubt in
            [SlurmJob { uid: None, ..ours.clone() }, SlurmJob { submitted: None, ..ours.clone() }]
        {
            assert!(matches!(claim.check(&doubt), Err(Mismatch::Unknown(_))), "{doubt:?}");
        }
        let nothing = Claim::default();
        assert!(
            nothing.check(&job("", 0, 50, 0)).is_err(),
            "a claim without a mark claims nothing"
        );
    }

    #[test]
    fn a_requeued_job_stays_ours_also_when_slurm_forgets_that_it_was() {
        let mut claim = Claim { mark: "m".to_owned(), uid: Some(1), ..Claim::default() };
        claim.note((50, 0));
        assert_eq!(claim.check(&job("m", 1, 60, 1)), Ok(Some((60, 1))));
        claim.note((60, 1));
        assert_eq!(claim.check(&job("m", 1, 50, 0)), Ok(None), "an older state came back");
        assert_eq!(claim.check(&job("m", 1, 70, 1)), Ok(Some((70, 1))), "and was requeued again");
        assert!(claim.check(&job("m", 1, 55, 1)).is_err(), "from before the last requeue");
        for restarts in 2..40 {
            claim.note((i64::from(restarts) * 100, restarts));
        }
        assert_eq!(claim.sightings.len(), SIGHTINGS_MAX);
    }
}
