//! Where real jobs run.
//!
//! - [`order`]: what the daemon wants: launch, stop, adjust, forget.
//! - [`report`]: what comes back: started, said something, ended.
//! - [`Backend`]: whoever obeys.
//! - [`local`]: the backend of one machine, with [`attempt_dir`], [`keeper`], [`rank`], [`log`] and [`helper`].
//! - [`checkpoints`]: where jobs keep their checkpoints, out of the reach of others.
//! - [`environment`]: what a rank finds in its environment.
//! - [`mod@discover`]: what this machine has.
//! - [`health`]: whether its GPUs are well.
//! - [`cgroup`], [`processes`]: the two ways to know and to end all processes of an attempt.
//! - [`descriptors`]: what a program inherits and must not hand on.
//! - [`program`]: the hidden commands.
//!
//! The rules that make "nothing lost, nothing run twice" hold:
//! 1. The daemon gives a launch order only after that attempt is on disk in its store.
//! 2. A backend runs an attempt (job, attempt) at most once, whatever it is told and however often it is restarted;
//!    a repeated order for an attempt it knows is answered with what is known of it.
//! 3. An end is kept by the backend until the daemon says [`Backend::forget`], which it does after the end is on disk.
//! 4. Running jobs do not depend on the daemon: it may be killed at any moment, and finds them again by
//!    [`Backend::list_attempts`].

pub mod attempt_dir;
pub mod cgroup;
pub mod checkpoints;
pub mod descriptors;
pub mod discover;
pub mod environment;
pub mod health;
pub mod helper;
pub mod keeper;
pub mod local;
pub mod log;
pub mod order;
pub mod processes;
pub mod program;
pub mod rank;
pub mod report;

pub use discover::{Discovered, GpuFound, discover};
pub use health::{Finding, GpuSeen, HealthOptions, Verdict};
pub use local::{Local, LocalOptions, sample};
pub use log::{LogPart, read_log};
pub use order::{Identity, LaunchOrder, NodeShare, StopOrder};
pub use report::{Exit, Found, NodeSeen, Report};

use trainyard_types::{Attempt, JobId};

/// Whoever obeys. Calls return at once; what comes of them arrives as [`Report`]s on the channel that the backend was
/// made with, in any order, possibly late, possibly twice.
pub trait Backend: Send {
    /// Starts an attempt, at most once.
    fn launch(&mut self, order: LaunchOrder);

    /// Asks an attempt to save and exit, then kills it. A second order for the same attempt may shorten the grace.
    fn stop(&mut self, job: JobId, attempt: Attempt, order: StopOrder);

    /// Tells a running attempt to use another batch size.
    fn set_batch(&mut self, job: JobId, attempt: Attempt, size: u32);

    /// Drops what is kept about an attempt that is over.
    fn forget(&mut self, job: JobId, attempt: Attempt);

    /// Everything it knows, after a start of the daemon.
    fn list_attempts(&mut self) -> Vec<Found>;

    /// A job was taken on and waits: a backend with a queue of its own keeps a place for it there, held. Told again
    /// after a start of the daemon; only backends that [`Backend::wants_announcements`] are told.
    fn announce(&mut self, _order: LaunchOrder) {}

    /// A job is over, whether it ever ran or not: nothing of it may be left.
    fn withdraw(&mut self, _job: JobId) {}

    /// Whether [`Backend::announce`] does anything.
    fn wants_announcements(&self) -> bool {
        false
    }

    /// A node takes no new work, or does again where no reason is given.
    fn drain(&mut self, _node: &str, _reason: Option<&str>) {}

    /// Things an operator should know: no cgroup, no right to change users.
    fn warnings(&self) -> Vec<String>;
}
