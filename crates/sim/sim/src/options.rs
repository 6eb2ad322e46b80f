//! How time, costs, estimates and failures behave in a run.

use crate::lending::Lending;
use serde::Serialize;
use trainyard_engine::{Setup, Trigger};
use trainyard_profile::{ColocationModel, CostModel};
use trainyard_types::{Event, JobId, Span, Time};

/// When the cost of starting a job is paid.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Charge {
    /// At each start, while the job holds its GPUs.
    #[default]
    PerStart,
    /// By every running job at every event, and never by the last stretch before a finish: Muri's own simulator. Jobs
    /// whose stages are interleaved pay for each other's starts too.
    EveryStep,
    /// By every running job at every decision, little where its GPUs worked together before: ElasticFlow's own
    /// simulator, see [`crate::regroup`].
    EveryDecision,
    /// At starts at multiples of a slot. A job that starts in between pays nothing, and its work counts from the last
    /// multiple on; that of a job that waited and starts with a lease counts from the slot before. Chronus' own
    /// simulator, which forgets to set its clocks there.
    AtSlots {
        /// How long a slot is.
        slot: Span,
        /// How long a lease is.
        lease: Span,
    },
}

/// To what the ends of epochs and of jobs are rounded.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rounding {
    /// Not at all, but for the microsecond of the clock.
    #[default]
    Exact,
    /// To the nearest second after the epoch began: Pollux' and Sia's own simulators.
    ///
    /// An end, of a job or of an epoch, that is rounded back onto the moment of a decision is seen by the next one
    /// only, a microsecond late: those simulators find it when they step on from that decision.
    WholeSeconds,
    /// Each round to whole steps: Gavel's own simulator. A job does as many as fit into the round and then waits for
    /// the slowest. Only where rounds end at a barrier ([`Trigger::Barrier`]); elsewhere nothing is rounded.
    WholeSteps,
    /// Up to whole slots after the job last went on: ElasticFlow's own simulator. A job whose work is done ends with its
    /// slot, or at the next decision. Only where slots are kept ([`Trigger::Slots`]); elsewhere nothing is rounded.
    WholeSlots,
}

/// Whether it matters how far apart the GPUs of a job are.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distance {
    /// It does, as the profile says.
    #[default]
    Counts,
    /// A job runs as if its GPUs were as close as they were when it was measured: Gavel's own simulator.
    Ignored,
}

/// How long a decision takes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DecisionCost {
    /// For each decision.
    pub fixed: Span,
    /// For each job that waits or runs.
    pub per_job: Span,
}

/// Nodes fail and are repaired, and single GPUs fall ill and are returned, with exponential times.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailureModel {
    /// Mean time from repair to failure of one node.
    pub between: Span,
    /// Mean time of a repair.
    pub repair: Span,
    /// Mean time from return to illness of one GPU; nothing if they fall ill with their nodes alone.
    pub gpus: Option<Span>,
}

/// Jobs that count, by their place in the order of arrival; the run ends when they have ended.
///
/// What comes before fills the cluster, what comes after keeps it filled.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// So many jobs come before.
    pub from: u32,
    /// So many jobs have come when the last of the window has.
    pub to: u32,
}

impl Window {
    /// Whether a job counts.
    pub fn contains(self, job: JobId) -> bool {
        (self.from..self.to).contains(&job.0)
    }
}

/// The settings of a run. Everything that two published simulators do differently is one of them.
#[derive(Clone, Debug, Serialize)]
pub struct Options {
    /// The seed of all randomness of the run.
    pub seed: u64,
    /// When decisions happen.
    pub trigger: Trigger,
    /// What stopping and starting costs.
    #[serde(skip)]
    pub costs: CostModel,
    /// When starting is paid for.
    pub charge: Charge,
    /// To what the ends of epochs and of jobs are rounded.
    pub rounding: Rounding,
    /// Whether it matters how far apart GPUs are.
    pub distance: Distance,
    /// Whether every job cuts its batch by the speed of each GPU where its GPUs are of several types; else those whose
    /// profile says so.
    pub splits_by_speed: bool,
    /// The error of what policies are told about sizes: the standard deviation of its logarithm; 0 is exact.
    pub estimate_error: f64,
    /// The same of what they are told about speeds, drawn for each model, GPU type and number of GPUs.
    pub speed_error: f64,
    /// The part of measured speeds beside others that policies are told; the rest they are told as estimated from it.
    pub pairs_known: f64,
    /// Whether policies are told how fast described models are on any GPUs, or of each one run alone.
    pub tells_plans: bool,
    /// The part of its speed that a job on several nodes loses while another such job is on one of them: both exchange
    /// gradients over the same link.
    pub interference: f64,
    /// Whether jobs on shared links slow each other only while they send at the same time; else all that run count as
    /// sending at once, which is the worst case.
    pub in_phases: bool,
    /// What jobs on the same GPU leave each other of their speed.
    #[serde(skip)]
    pub colocation: ColocationModel,
    /// How long a decision takes.
    pub decision_cost: DecisionCost,
    /// Random failures of nodes.
    pub failures: Option<FailureModel>,
    /// A pool of which only what its owner does not need may be used.
    pub lending: Option<Lending>,
    /// How often a running job saves, so that a failure loses only what came after.
    pub checkpoint_every: Span,
    /// The jobs that count; all if not given.
    pub measured: Option<Window>,
    /// Things that happen at set times: losses, repairs, cancellations.
    #[serde(skip)]
    pub injected: Vec<(Time, Event)>,
    /// The rest of the engine's settings.
    pub setup: Setup,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seed: 1,
            trigger: Trigger::Events,
            costs: CostModel::Profile,
            charge: Charge::PerStart,
            rounding: Rounding::Exact,
            distance: Distance::Counts,
            estimate_error: 0.3,
            speed_error: 0.0,
            splits_by_speed: false,
            pairs_known: 1.0,
            tells_plans: true,
            interference: 0.0,
            in_phases: false,
            colocation: ColocationModel::default(),
            decision_cost: DecisionCost::default(),
            failures: None,
            lending: None,
            checkpoint_every: Span::secs(1800),
            measured: None,
            injected: Vec::new(),
            setup: Setup::default(),
        }
    }
}

/// Presets that bundle the options of published simulators, so that their numbers can be met.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Semantics {
    /// Ours: costs from profiles, estimates with an error, what runs keeps its place.
    #[default]
    Native,
    /// The simulator of Tiresias (NSDI'19): free preemption, exact sizes, refilled at every event.
    Tiresias,
    /// The simulator of Muri (SIGCOMM'22): as above, with a start overhead charged at every event.
    Muri,
    /// The simulator of Pollux (OSDI'21): decisions every minute, 30 s for each start, whole seconds.
    Pollux,
    /// The simulator of Gavel (OSDI'20): rounds of six minutes that end with the slowest, free preemption, whole
    /// steps, exact sizes, no loss by distance.
    Gavel,
    /// The simulator of Shockwave (NSDI'23): rounds of two minutes, 20 s lost by a job that did not run in the one
    /// before.
    Shockwave,
    /// The simulator of ElasticFlow (ASPLOS'23): decisions at events, 240 s apart at least, each of which costs every
    /// running job a few seconds; exact sizes, no loss by distance.
    Elasticflow,
    /// The simulator of Chronus (SoCC'21): half a minute times 1 + log2 of the GPUs for each resume, exact sizes, no
    /// loss by distance.
    Chronus,
    /// The simulator of Sia (SOSP'23): decisions every minute, restarts that cost what each model's take, whole seconds.
    Sia,
}

impl Semantics {
    /// All presets.
    pub const ALL: &[Semantics] = &[
        Semantics::Native,
        Semantics::Tiresias,
        Semantics::Muri,
        Semantics::Pollux,
        Semantics::Gavel,
        Semantics::Shockwave,
        Semantics::Elasticflow,
        Semantics::Chronus,
        Semantics::Sia,
    ];

    /// The name used on the command line and in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Semantics::Native => "native",
            Semantics::Tiresias => "tiresias",
            Semantics::Muri => "muri",
            Semantics::Pollux => "pollux",
            Semantics::Gavel => "gavel",
            Semantics::Shockwave => "shockwave",
            Semantics::Elasticflow => "elasticflow",
            Semantics::Chronus => "chronus",
            Semantics::Sia => "sia",
        }
    }

    /// What it is like, in a line.
    pub fn about(self) -> &'static str {
        match self {
            Semantics::Native => {
                "Ours: costs from profiles, estimates with an error, what runs keeps its place"
            }
            Semantics::Tiresias => {
                "Tiresias (NSDI'19): free preemption, exact sizes, refilled at every event"
            }
            Semantics::Muri => {
                "Muri (SIGCOMM'22): the same, with a start overhead charged at every event"
            }
            Semantics::Pollux => {
                "Pollux (OSDI'21): decisions every minute, 30 s for each start, whole seconds, exact sizes"
            }
            Semantics::Gavel => {
                "Gavel (OSDI'20): rounds that end with the slowest, free preemption, whole steps, exact sizes"
            }
            Semantics::Shockwave => {
                "Shockwave (NSDI'23): rounds of two minutes, 20 s for each start, exact sizes"
            }
            Semantics::Elasticflow => {
                "ElasticFlow (ASPLOS'23): decisions 240 s apart at least, each costs what runs a few seconds, exact sizes"
            }
            Semantics::Chronus => {
                "Chronus (SoCC'21): half a minute times 1 + log2 of the GPUs for each resume, exact sizes, placement \
                 not felt"
            }
            Semantics::Sia => {
                "Sia (SOSP'23): decisions every minute, restarts that cost what each model's take, whole seconds"
            }
        }
    }

    /// The preset of that name.
    pub fn find(name: &str) -> Option<Semantics> {
        Semantics::ALL.iter().copied().find(|preset| preset.name() == name)
    }

    /// The options of the preset.
    pub fn options(self) -> Options {
        let ours = Options::default();
        match self {
            Semantics::Native => ours,
            Semantics::Tiresias => Options { costs: CostModel::Free, estimate_error: 0.0, ..ours },
            Semantics::Muri => Options {
                charge: Charge::EveryStep,
                colocation: ColocationModel::Stages,
                estimate_error: 0.0,
                ..ours
            },
            Semantics::Pollux => Options {
                trigger: Trigger::Clock(Span::secs(60)),
                costs: CostModel::Flat { save: Span::ZERO, start: Span::secs(30) },
                rounding: Rounding::WholeSeconds,
                estimate_error: 0.0,
                ..ours
            },
            Semantics::Gavel => Options {
                trigger: Trigger::Barrier(Span::secs(360)),
                costs: CostModel::Free,
                rounding: Rounding::WholeSteps,
                distance: Distance::Ignored,
                estimate_error: 0.0,
                ..ours
            },
            Semantics::Shockwave => Options {
                trigger: Trigger::Clock(Span::secs(120)),
                costs: CostModel::Flat { save: Span::ZERO, start: Span::secs(20) },
                distance: Distance::Ignored,
                estimate_error: 0.0,
                ..ours
            },
            Semantics::Elasticflow => Options {
                trigger: Trigger::Slots(Span::secs(240)),
                costs: CostModel::Free,
                charge: Charge::EveryDecision,
                rounding: Rounding::WholeSlots,
                distance: Distance::Ignored,
                estimate_error: 0.0,
                ..ours
            },
            Semantics::Chronus => Options {
                // 0.1 minutes for the checkpoint and 0.4 for the resume; both are paid at the resume.
                costs: CostModel::ByGpus { save: Span::ZERO, start: Span::secs(30) },
                charge: Charge::AtSlots { slot: Span::secs(300), lease: Span::secs(1200) },
                distance: Distance::Ignored,
                estimate_error: 0.0,
                ..ours
            },
            Semantics::Sia => Options {
                trigger: Trigger::Clock(Span::secs(60)),
                rounding: Rounding::WholeSeconds,
                estimate_error: 0.0,
                ..ours
            },
        }
    }

    /// Settings that every policy with such a key is given: key, value, and another key it must have too.
    pub fn wishes(self) -> &'static [(&'static str, &'static str, Option<&'static str>)] {
        const REFILL: (&str, &str, Option<&str>) = ("mode", "refill", None);
        // The clock of the preset says when, and some of its tables set another one.
        const EACH_DECISION: (&str, &str, Option<&str>) = ("round", "0s", Some("generations"));
        // Sizes and places at once, as published.
        const JOINT: (&str, &str, Option<&str>) = ("search", "joint", Some("generations"));
        const REQUEUE: (&str, &str, Option<&str>) = ("mode", "refill-requeue", Some("jump"));
        // The authors let a batch grow as far as their model says.
        const NO_GROWTH_LIMIT: (&str, &str, Option<&str>) = ("growth_max", "0", None);
        match self {
            Semantics::Native => &[],
            Semantics::Sia => &[EACH_DECISION, JOINT, NO_GROWTH_LIMIT],
            Semantics::Tiresias => &[REFILL, REQUEUE, ("jump", "tiresias-code", None)],
            Semantics::Muri => &[
                REFILL,
                REQUEUE,
                ("jump", "muri-code", None),
                ("form", "muri-code", Some("hidden")),
                // The published figures come from code that keeps every group, and that goes by the lengths in its
                // traces, without its slowdown of 1.015, until a job has run.
                ("dissolve", "false", Some("group")),
                ("fresh", "1.015", Some("group")),
                // The authors' simulator asks an interior point too.
                ("solver", "interior", Some("hidden")),
            ],
            Semantics::Pollux => &[
                EACH_DECISION,
                JOINT,
                NO_GROWTH_LIMIT,
                ("mode", "recount", None),
                ("rules", "authors", Some("knowledge")),
            ],
            Semantics::Gavel => &[
                ("rounds", "gavel", None),
                ("solver", "interior", Some("rounds")),
                ("reference", "v100", Some("rounds")),
                ("count", "steps", Some("rounds")),
            ],
            Semantics::Shockwave => {
                &[("rules", "authors", Some("window")), ("round", "2m", Some("rounds"))]
            }
            Semantics::Elasticflow => {
                &[REFILL, REQUEUE, ("jump", "tiresias-code", None), ("lease", "4m", None)]
            }
            Semantics::Chronus => &[
                ("rules", "authors", Some("lease")),
                ("objective", "minimise", Some("lease")),
                ("allocator", "best-of-four", Some("lease")),
            ],
        }
    }
}
