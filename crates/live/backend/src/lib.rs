//! Where real jobs run.
//!
//! - [`order`]: what the daemon wants: launch, stop, adjust, forget.
//! - [`report`]: what comes back: started, said something, ended.
//! - [`Backend`]: what obeys.
//! - [`local`]: the backend of one machine, with [`attempt_dir`], [`keeper`], [`rank`], [`log`] and [`helper`].
//! - [`checkpoints`]: where jobs keep their checkpoints, out of the reach of others.
//! - [`readable`]: attempts of another version, read without touching them.
//! - [`environment`]: what a rank finds in its environment; [`container`]: how it runs in an image.
//! - [`mod@discover`]: what this machine has.
//! - [`health`]: whether its GPUs are well.
//! - [`shared_gpu`]: GPUs that several attempts share.
//! - [`suspender`]: the child that puts an attempt aside in host memory.
//! - [`cgroup`], [`processes`]: the two ways to know and to end all processes of an attempt.
//! - [`descriptors`]: what a program inherits and must not hand on.
//! - [`program`]: the hidden commands.
//!
//! The rules that make "nothing lost, nothing run twice" hold:
//! 1. The daemon gives a launch order only after that attempt is on disk in its store.
//! 2. A backend runs an attempt (job, attempt) at most once, whatever it is told and however often it is restarted;
//!    a repeated order for an attempt it knows is answered with what is known of it.
//! 3. An end is kept by the backend until the daemon says [`Order::Forget`], which it does after the end is on disk.
//! 4. Running jobs do not depend on the daemon: it may be killed at any moment, and finds them again by
//!    [`Backend::list_attempts`].

pub mod attempt_dir;
pub mod cgroup;
pub mod checkpoints;
pub mod container;
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
pub mod readable;
pub mod report;
pub mod shared_gpu;
pub mod suspender;

pub use discover::{Discovered, GpuFound, discover, discover_by};
pub use health::{Finding, GpuSeen, HealthOptions, HealthVerdict};
pub use local::{Local, LocalOptions, sample};
pub use log::{LogPart, read_log};
pub use order::{
    AsideOrder, Identity, LaunchOrder, MpsPlace, NodeShare, Order, ResizeOrder, SharingOrder,
    SharingPlace, StopOrder, TimeShift,
};
pub use report::{AsideSeen, Exit, Found, NodeSeen, Report, SharingSeen};

/// What obeys. Calls return at once; what comes of them arrives as [`Report`]s on the channel that the backend was
/// made with, in any order, possibly late, possibly twice.
pub trait Backend: Send {
    /// Does what it is told.
    fn obey(&mut self, order: Order);

    /// Everything it knows, after a start of the daemon.
    fn list_attempts(&mut self) -> Vec<Found>;

    /// Whether [`Order::Announce`] means anything to it.
    fn wants_announcements(&self) -> bool {
        false
    }

    /// Why it cannot put attempts aside in host memory; nothing where it can.
    fn cannot_suspend(&self) -> Option<String> {
        Some("this backend never puts jobs aside".to_owned())
    }

    /// Things an operator should know: no cgroup, no right to change users.
    fn warnings(&self) -> Vec<String>;
}
