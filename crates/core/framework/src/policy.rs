//! The stages a policy is made of, and what they may use besides the view.

use crate::{Admission, AdmissionControl, Ask, Free, Offer, View};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;
use trainyard_profile::{PairSource, UsageSource};
use trainyard_types::{Change, JobId, Knobs, Placement, Quality, Span};

/// Which job gets how much. The contract is written in the crate's documentation.
pub trait Policy: Send {
    /// Answers about jobs that are not admitted yet. By default every job may take part.
    fn admit(&mut self, queue: &mut Admission<'_>, _view: &View<'_>, _cx: &mut Cx) {
        while queue.next().is_some() {
            queue.accept();
        }
    }

    /// Offers grants in order of precedence.
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError>;

    /// Forgets all memory, as after a restart of the daemon. May cost quality, never legality.
    fn forget(&mut self) {}
}

/// Which GPUs.
pub trait Placer: Send {
    /// GPUs for one grant, out of what is free; nothing if it cannot be.
    fn try_place(&mut self, ask: &Ask<'_>, free: &Free, view: &View<'_>) -> Option<Placement>;

    /// Whether a job that already holds fitting GPUs stays there without asking.
    fn keeps(&self) -> bool {
        true
    }
}

/// Knobs only: by its type it cannot move a job.
pub trait Tune: Send {
    /// New knobs for jobs whose allocation changes, or for any that hold a grant.
    fn tune(&mut self, changes: &[Change], view: &View<'_>, cx: &mut Cx) -> Vec<(JobId, Knobs)>;
}

/// What a policy may use besides the view: seeded randomness and a limit on its work.
#[derive(Clone, Debug)]
pub struct Cx {
    seed: u64,
    decision: u64,
    /// Units of work the policy may spend on this decision; what a unit is, the policy's page says.
    pub work_max: u64,
    /// How good the policy says its answer is.
    pub quality: Quality,
}

impl Cx {
    /// For one decision of a run with this seed.
    pub fn new(seed: u64, decision: u64, work_max: u64) -> Cx {
        Cx { seed, decision, work_max, quality: Quality::Proven }
    }

    /// Randomness that depends on the seed and the number of the decision alone, so that a replay draws the same.
    pub fn rng(&self) -> ChaCha12Rng {
        let mut rng = ChaCha12Rng::seed_from_u64(self.seed);
        rng.set_stream(self.decision);
        rng
    }
}

/// Why a policy could not answer. The plan is kept and the policy is asked again later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Its problem has no solution.
    #[error("no feasible allocation exists")]
    Infeasible,
    /// It needs a speed that is not known.
    #[error("no speed is known for {job}")]
    NoRate {
        /// Of which job.
        job: JobId,
    },
    /// It needs an estimate that is not known.
    #[error("no estimate of the work of {job} is known")]
    NoEstimate {
        /// Of which job.
        job: JobId,
    },
    /// It made a number of shares of time that is not the number of choices.
    #[error("{found} shares of time came back for {expected} choices")]
    WrongShares {
        /// How many choices there are.
        expected: usize,
        /// How many shares came.
        found: usize,
    },
    /// It ran out of its limit.
    #[error("the limit of {work_max} units of work was used up")]
    OutOfWork {
        /// The limit.
        work_max: u64,
    },
}

/// How well a quantity must be known.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Knowledge {
    /// Not at all.
    #[default]
    Nothing,
    /// As an estimate with an error.
    Estimate,
    /// Exactly: declared in the entry, printed with every result.
    Exact,
}

/// What a policy must know to do its work, printed with every result. A view withholds sizes and speeds from a policy
/// that does not declare them; the other two are declarations.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Needs {
    /// The work left of each job.
    pub work_left: Knowledge,
    /// Speeds by type, count and spread.
    pub rates: bool,
    /// Speeds beside other jobs on the same GPU.
    pub shared_rates: bool,
    /// Racks and links.
    pub topology: bool,
    /// Times of single passes, measured before a job runs for good.
    pub trials: Trials,
    /// Where what it is told of jobs beside each other comes from: predictors that belong to a paper are beliefs that
    /// its pipeline is given.
    #[serde(skip_serializing_if = "is_measured")]
    pub pairs: PairSource,
    /// How busy jobs keep a GPU, and what else is known of them alone.
    #[serde(skip_serializing_if = "is_untold")]
    pub usage: UsageSource,
    /// What monitoring has shown of the jobs that run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub monitoring: bool,
}

fn is_measured(source: &PairSource) -> bool {
    *source == PairSource::Measured
}

fn is_untold(source: &UsageSource) -> bool {
    *source == UsageSource::Nothing
}

/// Where passes of a job were timed before it runs for good.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trials {
    /// Nowhere.
    #[default]
    Nowhere,
    /// On one GPU of each type, at a few batches: some 20 s for each type (Sia, SOSP 2023, section 3.2).
    OneGpu,
    /// On any number of GPUs: no real cluster has these, but a comparison may want them.
    Everywhere,
}

impl Needs {
    /// Nothing but the queue and the clock.
    pub const NOTHING: Needs = Needs {
        work_left: Knowledge::Nothing,
        rates: false,
        shared_rates: false,
        topology: false,
        trials: Trials::Nowhere,
        pairs: PairSource::Measured,
        usage: UsageSource::Nothing,
        monitoring: false,
    };
    /// An estimate of the work left.
    pub const ESTIMATE: Needs = Needs { work_left: Knowledge::Estimate, ..Needs::NOTHING };

    /// What two stages must know together.
    pub fn and(self, other: Needs) -> Needs {
        Needs {
            work_left: self.work_left.max(other.work_left),
            rates: self.rates || other.rates,
            shared_rates: self.shared_rates || other.shared_rates,
            topology: self.topology || other.topology,
            trials: self.trials.max(other.trials),
            pairs: self.pairs.max(other.pairs),
            usage: self.usage.max(other.usage),
            monitoring: self.monitoring || other.monitoring,
        }
    }
}

/// The stages of one policy, put together.
pub struct Pipeline {
    /// What a job must pass before the policy is asked whether it is admitted.
    pub admit: Vec<Box<dyn AdmissionControl>>,
    /// Which job gets how much.
    pub policy: Box<dyn Policy>,
    /// Which GPUs.
    pub place: Box<dyn Placer>,
    /// Knobs, in order.
    pub tune: Vec<Box<dyn Tune>>,
    /// What all stages together must know.
    pub needs: Needs,
    /// After how long use counts half, for policies that share by past use.
    pub usage_half_life: Span,
    /// The decision for which the policy's memory is good.
    valid_for: Option<u64>,
}

impl Pipeline {
    /// A policy and a placer, nothing tuned.
    pub fn new(
        policy: impl Policy + 'static,
        place: impl Placer + 'static,
        needs: Needs,
    ) -> Pipeline {
        Pipeline {
            admit: Vec::new(),
            policy: Box::new(policy),
            place: Box::new(place),
            tune: Vec::new(),
            needs,
            usage_half_life: Span::secs(7 * 86_400),
            valid_for: None,
        }
    }

    /// Begins a decision. A policy that was not asked at the one before forgets: what it remembers of an answer that was
    /// cut off, or of a time when others decided, must not lead to other grants than a replay that knows nothing of it.
    pub fn begin(&mut self, decision: u64) {
        let known = self.valid_for.replace(decision + 1);
        if known.is_some_and(|known| known != decision) {
            self.policy.forget();
        }
    }
}
