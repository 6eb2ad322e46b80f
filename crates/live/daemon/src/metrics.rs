//! What is counted and measured, under names that do not change.
//!
//! What happens often (a decision, a commit, a request) is an atomic addition; what is a level (jobs that wait, GPUs in
//! use) is told as a whole by [`Metrics::set_levels`] when a client asks for the text.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

/// Queues beyond this many are told as one, `(other)`: each costs the monitoring system a series.
pub const QUEUES_MAX: usize = 500;

type Level = Gauge<f64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Waiting {
    queue: String,
    status: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Queue {
    queue: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GpuState {
    state: &'static str,
    gpu_type: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct IllGpu {
    node: String,
    gpu: u8,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Address {
    method: &'static str,
    route: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    method: &'static str,
    route: &'static str,
    status: u16,
}

/// Why a job lost its GPUs before it was done.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// For another job.
    Preempted,
    /// Its node or a GPU went away.
    NodeLost,
    /// Its user set it aside, or had it put back.
    Asked,
    /// It failed and is tried again.
    Failed,
    /// It had used up its time.
    TimeLimit,
}

impl Eviction {
    /// All, by the value of the label.
    pub const ALL: [(Eviction, &'static str); 5] = [
        (Eviction::Preempted, "preempted"),
        (Eviction::NodeLost, "node-lost"),
        (Eviction::Asked, "asked"),
        (Eviction::Failed, "failed"),
        (Eviction::TimeLimit, "time-limit"),
    ];
}

/// What a GPU does.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GpuUse {
    /// Held by a job.
    Used,
    /// Free.
    Free,
    /// On a node that takes no new work.
    Drained,
    /// Out of service.
    Lost,
    /// Ill, and held by no job.
    Quarantined,
}

impl GpuUse {
    fn name(self) -> &'static str {
        match self {
            GpuUse::Used => "used",
            GpuUse::Free => "free",
            GpuUse::Drained => "drained",
            GpuUse::Lost => "lost",
            GpuUse::Quarantined => "quarantined",
        }
    }
}

/// All levels at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Levels {
    /// Jobs that wait, by queue and where they stand.
    pub pending: BTreeMap<(String, String), u64>,
    /// Jobs that are not admitted, by reason.
    pub unadmitted: BTreeMap<String, u64>,
    /// GPUs by what they do and their type.
    pub gpus: BTreeMap<(GpuUse, String), f64>,
    /// GPUs in quarantine: node, index, and what was found.
    pub ill_gpus: Vec<(String, u8, String)>,
    /// Jobs that hang.
    pub hung: u64,
    /// The share of free GPUs that the next waiting job cannot use.
    pub fragmentation: f64,
    /// Use by entitlement, by queue: above 1 is more than its share.
    pub fair_share: BTreeMap<String, f64>,
    /// How long the first job of a queue is still expected to wait.
    pub estimated_wait_seconds: BTreeMap<String, f64>,
}

#[derive(Clone)]
struct Buckets(fn() -> Histogram);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        self.0()
    }
}

fn ratio() -> Unit {
    Unit::Other("ratio".to_owned())
}

/// Everything that is counted and measured.
pub struct Metrics {
    registry: Registry,
    /// Levels are cleared and set anew; no thread reads in between.
    telling: Mutex<()>,
    pending: Family<Waiting, Level>,
    unadmitted: Family<Reason, Level>,
    gpus: Family<GpuState, Level>,
    ill_gpus: Family<IllGpu, Level>,
    quarantined: Counter,
    hung: Level,
    hangs: Counter,
    fragmentation: Level,
    fair_share: Family<Queue, Level>,
    estimated_wait: Family<Queue, Level>,
    admitted: Counter,
    admission_wait: Histogram,
    evicted: [Counter; Eviction::ALL.len()],
    preempted: Counter,
    cycle: Histogram,
    placements: Counter,
    fsync: Histogram,
    policy_failures: Counter,
    policy_fallbacks: Counter,
    requests: Family<Request, Counter>,
    request_time: Family<Address, Histogram, Buckets>,
    connections_refused: Counter,
    store_failing: Level,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Metrics {
        let evictions = Family::<Reason, Counter>::default();
        let evicted = Eviction::ALL
            .map(|(_, name)| evictions.get_or_create_owned(&Reason { reason: name.to_owned() }));
        let mut metrics = Metrics {
            registry: Registry::with_prefix("trainyard"),
            telling: Mutex::default(),
            pending: Family::default(),
            unadmitted: Family::default(),
            gpus: Family::default(),
            ill_gpus: Family::default(),
            quarantined: Counter::default(),
            hung: Level::default(),
            hangs: Counter::default(),
            fragmentation: Level::default(),
            fair_share: Family::default(),
            estimated_wait: Family::default(),
            admitted: Counter::default(),
            admission_wait: Histogram::new(exponential_buckets(1.0, 4.0, 11)),
            evicted,
            preempted: Counter::default(),
            cycle: Histogram::new(exponential_buckets(1e-5, 4.0, 11)),
            placements: Counter::default(),
            fsync: Histogram::new(exponential_buckets(1e-5, 4.0, 10)),
            policy_failures: Counter::default(),
            policy_fallbacks: Counter::default(),
            requests: Family::default(),
            request_time: Family::new_with_constructor(Buckets(|| {
                Histogram::new(exponential_buckets(1e-4, 4.0, 9))
            })),
            connections_refused: Counter::default(),
            store_failing: Level::default(),
        };
        metrics.register(evictions);
        metrics
    }

    fn register(&mut self, evictions: Family<Reason, Counter>) {
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        self.add("build", "The daemon that runs", build);
        self.add("pending_jobs", "Jobs that wait, by queue and state", self.pending.clone());
        self.add(
            "unadmitted_jobs",
            "Jobs that are not admitted, by reason",
            self.unadmitted.clone(),
        );
        self.add("gpus", "GPUs, by what they do and their type", self.gpus.clone());
        let help = "GPUs in quarantine, each 1, by what was found";
        self.add("gpu_quarantined", help, self.ill_gpus.clone());
        self.add("gpu_quarantines", "GPUs put into quarantine", self.quarantined.clone());
        let help = "Jobs that told of steps and tell of none any more";
        self.add("hung_jobs", help, self.hung.clone());
        self.add("job_hangs", "Times a job was said to hang", self.hangs.clone());
        let help = "Share of the free GPUs that the next waiting job cannot use";
        self.add_with("fragmentation", help, ratio(), self.fragmentation.clone());
        let help = "Use by entitlement; above 1 is more than the share";
        self.add_with("fair_share", help, ratio(), self.fair_share.clone());
        let help = "How long the first job of a queue is still expected to wait";
        self.add_with("estimated_wait", help, Unit::Seconds, self.estimated_wait.clone());
        self.add("admitted_jobs", "Jobs admitted", self.admitted.clone());
        let help = "From the submission of a job to its first launch";
        self.add_with("admission_wait_time", help, Unit::Seconds, self.admission_wait.clone());
        self.add("evicted_jobs", "Jobs that lost their GPUs before they were done", evictions);
        self.add("preempted_jobs", "Jobs stopped for another", self.preempted.clone());
        let help = "One decision of the policy, from the view to the actions";
        self.add_with("scheduling_cycle_duration", help, Unit::Seconds, self.cycle.clone());
        self.add("placements", "Launches decided", self.placements.clone());
        self.add_with(
            "journal_fsync",
            "One commit of the store",
            Unit::Seconds,
            self.fsync.clone(),
        );
        let help = "Decisions in which the policy erred, panicked or took too long";
        self.add("policy_failures", help, self.policy_failures.clone());
        let help = "Decisions made by the fallback order in its stead";
        self.add("policy_fallbacks", help, self.policy_fallbacks.clone());
        self.add("http_requests", "Requests answered", self.requests.clone());
        let help = "From the head of a request to its answer";
        self.add_with("http_request_duration", help, Unit::Seconds, self.request_time.clone());
        let help = "Connections closed before a request: too many of one peer, or no TLS";
        self.add("http_connections_refused", help, self.connections_refused.clone());
        let help = "1 while the store cannot be written and what is shown may be old";
        self.add("store_failing", help, self.store_failing.clone());
    }

    fn add(&mut self, name: &str, help: &str, metric: impl Metric) {
        self.registry.register(name, help, metric);
    }

    fn add_with(&mut self, name: &str, help: &str, unit: Unit, metric: impl Metric) {
        self.registry.register_with_unit(name, help, unit, metric);
    }

    /// A job was admitted.
    pub fn admitted(&self) {
        self.admitted.inc();
    }

    /// A job was launched for the first time, so long after its submission.
    pub fn waited(&self, seconds: f64) {
        self.admission_wait.observe(seconds);
    }

    /// A job lost its GPUs before it was done.
    pub fn evicted(&self, why: Eviction) {
        if why == Eviction::Preempted {
            self.preempted.inc();
        }
        self.evicted[why as usize].inc();
    }

    /// So many GPUs were put into quarantine.
    pub fn quarantined(&self, gpus: u64) {
        self.quarantined.inc_by(gpus);
    }

    /// So many jobs were said to hang.
    pub fn hung(&self, jobs: u64) {
        self.hangs.inc_by(jobs);
    }

    /// A decision was made, with so many launches in it.
    pub fn decided(&self, seconds: f64, launches: u64) {
        self.cycle.observe(seconds);
        self.placements.inc_by(launches);
    }

    /// The store committed.
    pub fn committed(&self, seconds: f64) {
        self.fsync.observe(seconds);
    }

    /// The policy erred, panicked or took too long, so often since the last call.
    pub fn policy_failed(&self, times: u64) {
        self.policy_failures.inc_by(times);
    }

    /// The fallback order decided in its stead, so often since the last call.
    pub fn fell_back(&self, times: u64) {
        self.policy_fallbacks.inc_by(times);
    }

    /// A request was answered.
    pub fn http(&self, method: &'static str, route: &'static str, status: u16, seconds: f64) {
        self.requests.get_or_create(&Request { method, route, status }).inc();
        self.request_time.get_or_create(&Address { method, route }).observe(seconds);
    }

    /// Whether nothing can be written.
    pub fn store_fails(&self, fails: bool) {
        self.store_failing.set(if fails { 1.0 } else { 0.0 });
    }

    /// A connection was closed before a request.
    pub fn connection_refused(&self) {
        self.connections_refused.inc();
    }

    /// All levels as they are now; what is not told is gone.
    pub fn set_levels(&self, levels: &Levels) {
        let _telling = self.telling.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.pending.clear();
        self.unadmitted.clear();
        self.gpus.clear();
        self.ill_gpus.clear();
        self.fair_share.clear();
        self.estimated_wait.clear();
        // Each queue stands in several rows, so the limit is on names.
        let mut names: Vec<&str> = levels.pending.keys().map(|(queue, _)| queue.as_str()).collect();
        names.dedup();
        let last = names.get(QUEUES_MAX);
        for ((queue, status), count) in &levels.pending {
            let beyond = last.is_some_and(|last| queue.as_str() >= *last);
            let queue = if beyond { "(other)".to_owned() } else { queue.clone() };
            let row = Waiting { queue, status: status.clone() };
            self.pending.get_or_create(&row).inc_by(*count as f64);
        }
        for (reason, count) in &levels.unadmitted {
            let row = Reason { reason: reason.clone() };
            self.unadmitted.get_or_create(&row).set(*count as f64);
        }
        for ((state, gpu_type), count) in &levels.gpus {
            let row = GpuState { state: state.name(), gpu_type: gpu_type.clone() };
            self.gpus.get_or_create(&row).set(*count);
        }
        for (node, gpu, code) in &levels.ill_gpus {
            let row = IllGpu { node: node.clone(), gpu: *gpu, code: code.clone() };
            self.ill_gpus.get_or_create(&row).set(1.0);
        }
        self.hung.set(levels.hung as f64);
        self.fragmentation.set(levels.fragmentation);
        let by_queue = [
            (&self.fair_share, &levels.fair_share),
            (&self.estimated_wait, &levels.estimated_wait_seconds),
        ];
        for (family, values) in by_queue {
            for (queue, value) in values.iter().take(QUEUES_MAX) {
                family.get_or_create(&Queue { queue: queue.clone() }).set(*value);
            }
        }
    }

    /// The text of all, in OpenMetrics form.
    pub fn encode(&self) -> String {
        let _telling = self.telling.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut text = String::with_capacity(16 << 10);
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }
}
