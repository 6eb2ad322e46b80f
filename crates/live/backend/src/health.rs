//! Whether the GPUs of this machine are well, as the driver's own library tells it (NVML).
//!
//! - [`xid`]: the table of what the driver's error numbers mean.
//! - `judge`: from two readings to findings, without a clock or a library.
//! - `nvml`: readings and error numbers by NVML, whose library is loaded when it is there and never linked.
//! - `watch`: the thread that reads.

mod judge;
pub(crate) mod nvml;
pub(crate) mod watch;
pub mod xid;

pub use judge::{FINDINGS, Judge, Rules};
pub use nvml::look;

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What follows from a finding.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HealthVerdict {
    /// The program on the GPU is to blame: it is told, and what becomes of the job is the job's own.
    Application,
    /// It is told, and nothing else.
    Tell,
    /// The GPU takes no new work; what runs there goes on.
    Retire,
    /// The GPU takes no new work, and what runs there goes back to the queue.
    Quarantine,
}

impl HealthVerdict {
    /// All, by name.
    pub const ALL: [(HealthVerdict, &'static str); 4] = [
        (HealthVerdict::Application, "application"),
        (HealthVerdict::Tell, "tell"),
        (HealthVerdict::Retire, "retire"),
        (HealthVerdict::Quarantine, "quarantine"),
    ];

    /// The verdict of that name.
    pub fn named(name: &str) -> Option<HealthVerdict> {
        HealthVerdict::ALL.into_iter().find(|(_, other)| *other == name).map(|(verdict, _)| verdict)
    }
}

/// Something that is wrong with a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Its name, such as `xid-79`; see [`FINDINGS`] and [`xid::XIDS`].
    pub code: String,
    /// What follows.
    pub verdict: HealthVerdict,
    /// What is seen, for people.
    pub what: String,
}

/// What is seen of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuSeen {
    /// Its number in the driver's order.
    pub index: u8,
    /// Its name for ever.
    pub uuid: String,
    /// What is wrong and stays so until it is seen otherwise.
    pub stands: Vec<Finding>,
    /// What went wrong since the report before.
    pub happened: Vec<Finding>,
}

/// What NVML says of one GPU at one moment. What it does not tell is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Its number in the driver's order.
    pub index: u8,
    /// Its name for ever.
    pub uuid: String,
    /// The driver has lost it.
    pub lost: bool,
    /// Uncorrected ECC errors since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
    /// A memory row is remapped at the next reset.
    pub remap_pending: Option<bool>,
    /// A memory row could not be remapped, ever.
    pub remap_failure: Option<bool>,
    /// Its temperature in degrees Celsius.
    pub temperature: Option<u32>,
    /// From this temperature on it slows down.
    pub slowdown_at: Option<u32>,
    /// From this temperature on it shuts down.
    pub shutdown_at: Option<u32>,
    /// The hardware slows it down for its temperature.
    pub slowed: bool,
    /// The percent of the last moments in which something ran on it.
    pub busy_percent: Option<u32>,
    /// Memory in use.
    pub memory_used_mib: Option<u64>,
    /// Memory that it has.
    pub memory_mib: Option<u64>,
    /// Its NVLinks: which work, and how many errors they had.
    pub links: Vec<Link>,
}

/// What NVML says of one NVLink.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its number.
    pub link: u8,
    /// Whether it works.
    pub active: bool,
    /// Errors of all sorts that it had since they were reset.
    pub errors: u64,
}

/// What was last read of each GPU: the thread that reads writes it, other threads look, and nothing waits for it.
pub type Readings = Arc<Mutex<Vec<Reading>>>;

/// How the health of GPUs is watched.
#[derive(Clone, Debug)]
pub struct HealthOptions {
    /// Another library than the driver's usual one.
    pub library: Option<PathBuf>,
    /// How often counters are read; error numbers are heard at once.
    pub every: Duration,
    /// What follows from what.
    pub rules: Rules,
    /// Where readings are left.
    pub readings: Readings,
}

impl Default for HealthOptions {
    fn default() -> HealthOptions {
        let (every, rules) = (Duration::from_secs(5), Rules::default());
        HealthOptions { library: None, every, rules, readings: Readings::default() }
    }
}
