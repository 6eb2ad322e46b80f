//! What the daemon keeps of a job beside what the engine keeps.

use crate::hang::{self, Watch};
use crate::notify::is_named;
use crate::pace::Pace;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use std::sync::Arc;
use trainyard_api::answer::{Holding, Measured};
use trainyard_api::{JobSpec, Notify, OnHang};
use trainyard_backend::{Exit, Identity};
use trainyard_engine::SavedState;
use trainyard_types::{Attempt, Job, JobId, Time};

/// What was submitted and what follows from it. Never changes; written once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Submission {
    /// The job as the engine knows it.
    pub job: Arc<Job>,
    /// As its user described it.
    pub spec: JobSpec,
    /// Who submitted it.
    pub user: String,
    /// Who pays.
    pub tenant: String,
    /// The user it runs as; nothing for the user of the daemon.
    #[serde(default)]
    pub identity: Option<Identity>,
    /// When, in microseconds of Unix time.
    pub wall: i64,
    /// Its place in an array.
    #[serde(default)]
    pub array: Option<Element>,
    /// In what its work is counted.
    #[serde(default)]
    pub unit: Unit,
}

/// What of a submission is at hand. The rest lies packed: a queue is long, and only a launch or a look needs it.
#[derive(Clone, Debug)]
pub struct Brief {
    /// The job as the engine knows it.
    pub job: Arc<Job>,
    /// What people call it.
    pub name: String,
    /// Who submitted it.
    pub user: String,
    /// Who pays.
    pub tenant: String,
    /// When, in microseconds of Unix time.
    pub wall: i64,
    /// Its place in an array.
    pub array: Option<Element>,
    /// In what its work is counted.
    pub unit: Unit,
    /// How long its user expects it to run.
    pub expected_seconds: Option<f64>,
    /// How long it has to save its state.
    pub grace_seconds: f64,
    /// The exit code that means "saved, start me again".
    pub exit_code: i32,
    /// What follows when it hangs.
    pub on_hang: OnHang,
    /// From when on it hangs, where its user says so: times what is usual, and seconds at least.
    pub hang: (Option<f64>, Option<f64>),
    /// Who is told when it has ended; most jobs name no recipient.
    pub notify: Option<Box<Notify>>,
    packed: Box<str>,
}

/// Packs submissions: what has its default is left out, and takes it again when unpacked.
#[derive(Debug)]
pub struct Packer(JobSpec);

impl Packer {
    /// Knows the defaults.
    pub fn new() -> Packer {
        Packer(JobSpec::default())
    }

    /// What is kept of a submission while its job is not over.
    pub fn brief(&self, submission: Submission) -> Brief {
        let Submission { job, spec, user, tenant, identity, wall, array, unit } = submission;
        let lean = Lean { spec: &spec, defaults: &self.0 };
        let packed = serde_json::to_string(&(lean, identity)).expect("our own types become JSON");
        Brief {
            job,
            name: spec.name,
            user,
            tenant,
            wall,
            array,
            unit,
            expected_seconds: spec.expected_seconds,
            grace_seconds: spec.checkpoint.grace_seconds,
            exit_code: spec.checkpoint.exit_code,
            on_hang: spec.on_hang,
            hang: (spec.hang_times, spec.hang_min_seconds),
            notify: is_named(&spec.notify).then(|| Box::new(spec.notify.clone())),
            packed: packed.into_boxed_str(),
        }
    }
}

impl Default for Packer {
    fn default() -> Packer {
        Packer::new()
    }
}

impl Brief {
    /// As its user described it, and who it runs as.
    pub fn unpack(&self) -> (JobSpec, Option<Identity>) {
        serde_json::from_str(&self.packed).expect("what was packed here can be unpacked")
    }
}

/// A description without what has its default.
struct Lean<'a> {
    spec: &'a JobSpec,
    defaults: &'a JobSpec,
}

impl Serialize for Lean<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        // All fields are named, so that a new one cannot be forgotten.
        macro_rules! keep {
            ($($field:ident)*) => {
                let JobSpec { $($field),* } = self.spec;
                $(if *$field != self.defaults.$field {
                    map.serialize_entry(stringify!($field), $field)?;
                })*
            };
        }
        keep!(
            name argv script cwd env image mounts venv snapshot tenant gpus gpus_min gpus_max resizes_in_place batch batch_max
            batch_per_gpu_min batch_per_gpu_max gpu_types gpu_permille gpu_permille_max
            gpu_memory_mib affinity anti_affinity exclusion cpus_per_gpu memory_mib_per_gpu
            nodes_max processes priority weight
            model steps expected_seconds deadline_seconds tolerance_seconds class batch_mode search after begin time_limit_seconds
            min_run_seconds preemptible saves retries on_hang hang_times hang_min_seconds idle_seconds notify
            checkpoint hold array external owner
        );
        map.end()
    }
}

/// An element of an array.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Element {
    /// The first job of the array.
    pub first: JobId,
    /// The index of this one.
    pub index: u32,
    /// How many may run at once; 0 means all.
    pub at_once: u32,
}

/// In what the work of a job is counted.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Steps, as the job itself counts them.
    #[default]
    Steps,
    /// Seconds on what was asked for, as its user expects them.
    Seconds,
}

/// What changes over a job's life; written whenever it does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PersistedRun {
    /// The engine's part.
    pub kept: SavedState,
    /// Work its newest checkpoint holds, as it was told.
    #[serde(default)]
    pub saved: f64,
    /// It told of a checkpoint, with or without the work in it. Older daemons kept the work alone.
    #[serde(default)]
    pub has_checkpoint: bool,
    /// Measured costs.
    #[serde(default)]
    pub measured: Measured,
    /// Its newest launch.
    #[serde(default)]
    pub launch: Option<Box<Launch>>,
    /// Why its user or an operator ended it.
    #[serde(default)]
    pub said: Option<String>,
    /// What it last said about itself, once it is over: its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<serde_json::Value>,
    /// How fast its newest attempt told of steps, and whether it hung.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<hang::SavedState>,
}

/// A launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// Its number.
    pub attempt: Attempt,
    /// Where.
    pub holds: Vec<Holding>,
    /// When it was ordered, in microseconds of Unix time.
    pub wall: i64,
    /// The start of the machine it was ordered in: after another start no process of it can be left.
    pub boot: String,
    /// When its processes ran, in microseconds of Unix time.
    #[serde(default)]
    pub started: Option<i64>,
    /// When it was over, in microseconds of Unix time.
    #[serde(default)]
    pub ended: Option<i64>,
    /// How it ended.
    #[serde(default)]
    pub exit: Option<Exit>,
    /// What became of it, in one sentence.
    #[serde(default)]
    pub outcome: String,
    /// What it held before it went over to other GPUs, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<Held>,
    /// Thousandths of its GPUs in all, where they are not wholly its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permille: Option<u64>,
    /// It was told of other GPUs and has not gone over to them yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resizing: bool,
}

/// What a launch held for a while.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Until when, in microseconds of Unix time.
    pub until: i64,
    /// How many GPUs.
    pub gpus: u32,
    /// What they cost in an hour.
    pub price_per_hour: f64,
    /// Thousandths of them in all, where they were not wholly its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permille: Option<u64>,
}

/// A job that is not over.
#[derive(Clone, Debug)]
pub struct Record {
    /// What was submitted.
    pub submission: Arc<Brief>,
    /// Work its newest checkpoint holds, as it was told.
    pub saved: f64,
    /// It told of a checkpoint, with or without the work in it; once there is one, there is one for all attempts.
    pub has_checkpoint: bool,
    /// Measured costs.
    pub measured: Measured,
    /// Its newest launch; most jobs of a long queue have none.
    pub launch: Option<Box<Launch>>,
    /// Why its user or an operator ended it.
    pub said: Option<String>,
    /// What it last said about itself. Kept with its end alone: before that the next report brings it again.
    pub report: Option<serde_json::Value>,
    /// Steps it is in all, as it said. Not kept.
    pub total: Option<f64>,
    /// How fast it went. Not kept.
    pub pace: Pace,
    /// Whether it hangs; nothing for one that told of nothing.
    pub watch: Option<Box<Watch>>,
}

impl Record {
    /// A job that was just submitted.
    pub fn new(submission: Arc<Brief>) -> Record {
        Record {
            submission,
            saved: 0.0,
            has_checkpoint: false,
            measured: Measured::default(),
            launch: None,
            said: None,
            report: None,
            total: None,
            pace: Pace::default(),
            watch: None,
        }
    }

    /// A job as it was kept.
    pub fn from_course(submission: Arc<Brief>, course: PersistedRun) -> Record {
        let last = course.launch.as_ref().and_then(|launch| launch.exit.as_ref());
        let told = last.is_some_and(|exit| exit.has_checkpoint(submission.exit_code));
        Record {
            saved: course.saved,
            has_checkpoint: course.has_checkpoint || course.saved > 0.0 || told,
            measured: course.measured,
            launch: course.launch,
            said: course.said,
            watch: course.watch.map(|kept| Box::new(Watch::from_kept(&kept, Time::ZERO))),
            ..Record::new(submission)
        }
    }

    /// What is to be kept of it.
    pub fn course(&self, kept: SavedState) -> PersistedRun {
        PersistedRun {
            kept,
            saved: self.saved,
            has_checkpoint: self.has_checkpoint,
            measured: self.measured,
            launch: self.launch.clone(),
            said: self.said.clone(),
            report: None,
            watch: self.watch.as_ref().and_then(|watch| watch.keep()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_to_the_last_field() {
        let mut spec = JobSpec {
            name: "train".to_owned(),
            argv: vec!["python".to_owned(), "a \"b\"".to_owned()],
            cwd: Some("/data".to_owned()),
            expected_seconds: Some(0.1 + 0.2),
            retries: 0,
            ..JobSpec::default()
        };
        spec.env.insert("SEED".to_owned(), String::new());
        spec.checkpoint.exit_code = 3;
        let identity = Identity { uid: 7, gid: 8, name: "ann".to_owned(), home: "/h".to_owned() };
        for (spec, identity) in [(spec, Some(identity)), (JobSpec::default(), None)] {
            let submission = Submission {
                job: Arc::new(Job::simple(JobId(0), Time(0), 1)),
                spec: spec.clone(),
                user: "ann".to_owned(),
                tenant: "lab".to_owned(),
                identity: identity.clone(),
                wall: 5,
                array: None,
                unit: Unit::Steps,
            };
            let brief = Packer::new().brief(submission);
            assert_eq!(brief.exit_code, spec.checkpoint.exit_code);
            assert!(brief.packed.len() < 250, "defaults are left out: {}", brief.packed);
            assert_eq!(brief.unpack(), (spec, identity));
        }
    }

    /// As a daemon kept it that knew of the work in a checkpoint alone.
    const OLD: &str = include_str!("../tests/fixtures/course-before-checkpoints.json");

    fn brief() -> Arc<Brief> {
        Arc::new(Packer::new().brief(Submission {
            job: Arc::new(Job::simple(JobId(0), Time(0), 1)),
            spec: JobSpec::default(),
            user: "ann".to_owned(),
            tenant: "lab".to_owned(),
            identity: None,
            wall: 5,
            array: None,
            unit: Unit::Steps,
        }))
    }

    #[test]
    fn a_job_that_an_older_daemon_kept_has_a_checkpoint_where_it_told_of_one() {
        let cases = [
            ("work", 120.0, 1, true),
            ("the code that means so", 0.0, 85, true),
            ("nothing", 0.0, 1, false),
        ];
        for (told, work, code, has_checkpoint) in cases {
            let mut old: serde_json::Value = serde_json::from_str(OLD).unwrap();
            old["saved"] = work.into();
            old["launch"]["exit"]["code"] = code.into();
            old["launch"]["exit"]["saved"] = serde_json::Value::Null;
            let course: PersistedRun = serde_json::from_value(old).unwrap();
            let kept = course.kept.clone();
            let record = Record::from_course(brief(), course);
            assert_eq!(record.has_checkpoint, has_checkpoint, "it told of {told}");
            // And it is written so that it stays so.
            let course = record.course(kept);
            assert_eq!(course.has_checkpoint, has_checkpoint, "it told of {told}");
            let again: PersistedRun =
                serde_json::from_str(&serde_json::to_string(&course).unwrap()).unwrap();
            assert_eq!(again, course);
        }
    }
}
