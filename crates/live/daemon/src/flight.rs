//! The flight record: all that was told to the engine since it was made, so that every decision can be taken again.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use trainyard_engine::{Engine, PolicyOutcome, SavedState, Setup};
use trainyard_framework::{Beliefs, Usage};
use trainyard_types::{Cluster, Decision, End, Event, GpuAt, Job, JobId, Span, Tenants, Time};

/// The version of the record's form.
pub const FLIGHT_VERSION: u32 = 1;

/// The engine as it was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Base {
    /// The version of the record's form.
    pub version: u32,
    /// The version of the program that wrote it.
    pub program: String,
    /// When.
    pub at: Time,
    /// When, in microseconds of Unix time.
    pub wall: i64,
    /// The machine.
    pub cluster: Cluster,
    /// Tenants.
    pub tenants: Tenants,
    /// The engine's settings.
    pub setup: Setup,
    /// The policy, as it is chosen by name.
    pub policy: String,
    /// The half-life it names.
    pub half_life: Span,
    /// Jobs that were not over.
    pub jobs: Vec<(Arc<Job>, SavedState)>,
    /// How jobs ended that others wait for.
    pub ends: Vec<(JobId, End)>,
    /// Use of tenants.
    pub usage: Vec<Usage>,
    /// What was learnt by then.
    pub learnt: Option<String>,
    /// Nodes out of service.
    pub drained: Vec<trainyard_types::NodeId>,
    /// GPUs in quarantine, and whether what runs there must go.
    #[serde(default)]
    pub quarantined: Vec<(GpuAt, bool)>,
    /// Maintenance and reservations.
    #[serde(default)]
    pub windows: Vec<trainyard_types::Window>,
    /// How many nodes the owners of pools need.
    #[serde(default)]
    pub loans: Vec<(trainyard_types::PoolId, u32)>,
    /// The nodes that they have.
    #[serde(default)]
    pub reclaimed: Vec<trainyard_types::NodeId>,
}

/// One thing that was told to the engine, or asked of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// The engine as it was made; the first line.
    Base(Box<Base>),
    /// Something happened.
    Event {
        /// When.
        at: Time,
        /// What.
        event: Event,
    },
    /// What was due was fired and reality compared with the plan.
    Tick {
        /// When.
        at: Time,
    },
    /// It was looked whether the policy must be asked.
    #[serde(alias = "question")]
    Request {
        /// When.
        at: Time,
    },
    /// The policy's answer was taken.
    Concluded {
        /// When.
        at: Time,
        /// The answer; nothing where there was none.
        decision: Option<Decision>,
        /// Why there was none: `failed`, `panicked` or `stuck`.
        trouble: Option<String>,
    },
    /// Another policy decides from now on.
    Policy {
        /// When.
        at: Time,
        /// Which.
        policy: String,
        /// The half-life it names.
        half_life: Span,
    },
}

impl Line {
    /// An answer as it is recorded.
    pub fn concluded(at: Time, outcome: &PolicyOutcome) -> Line {
        let (decision, trouble) = match outcome {
            PolicyOutcome::Decided(decision) => (Some(decision.clone()), None),
            PolicyOutcome::Failed(_) => (None, Some("failed")),
            PolicyOutcome::Panicked => (None, Some("panicked")),
            PolicyOutcome::Stuck => (None, Some("stuck")),
        };
        Line::Concluded { at, decision, trouble: trouble.map(str::to_owned) }
    }
}

/// What came of taking all decisions again.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Replayed {
    /// Decisions that were taken again.
    pub decisions: u64,
    /// Of these, the ones that came out otherwise.
    pub different: u64,
    /// Times the policy had no answer; taken over as recorded.
    pub without_answer: u64,
    /// Events.
    pub events: u64,
    /// Actions that the engine wanted.
    pub actions: u64,
    /// The first difference: number of the line, recorded and again.
    pub first: Option<(u64, String, String)>,
}

/// Why a record cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It does not begin with the engine as it was made.
    #[error("line 1: expected the base of a flight record, as `trainyard capture` writes it")]
    NoBase,
    /// It was written in another form.
    #[error(
        "line 1: the record has version {0}, and this program reads {FLIGHT_VERSION}: use the program that wrote it"
    )]
    Version(u32),
    /// A line cannot be read.
    #[error("line {line}: {problem}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong.
        problem: String,
    },
    /// The policy cannot be built.
    #[error("the policy `{policy}` cannot be built: {problem}")]
    Policy {
        /// Which.
        policy: String,
        /// Why.
        problem: String,
    },
}

/// Makes a pipeline from the text that names it.
pub type PolicyFactory<'a> = dyn Fn(&str) -> Result<trainyard_framework::Pipeline, String> + 'a;
/// Makes beliefs for a cluster from what was learnt.
pub type Believer<'a> = dyn Fn(&Cluster, Option<&str>) -> Arc<dyn Beliefs> + 'a;

/// Takes all decisions of a record again and compares them with those that were taken.
pub fn replay(
    lines: impl Iterator<Item = Result<Line, ReplayError>>,
    factory: &PolicyFactory<'_>,
    believer: &Believer<'_>,
) -> Result<Replayed, ReplayError> {
    let build = |policy: &str| {
        factory(policy)
            .map_err(|problem| ReplayError::Policy { policy: policy.to_owned(), problem })
    };
    let mut lines = lines.zip(1u64..);
    let Some((Ok(Line::Base(base)), _)) = lines.next() else { return Err(ReplayError::NoBase) };
    if base.version != FLIGHT_VERSION {
        return Err(ReplayError::Version(base.version));
    }
    let mut pipeline = build(&base.policy)?;
    let mut half_life = base.half_life;
    let mut engine = engine_of(*base, believer);
    let mut request = None;
    // The policy that was asked answers, also when another policy is in force by then.
    let mut replaced = None;
    let mut seen = Replayed::default();
    for (line, number) in lines {
        match line? {
            Line::Base(_) => return Err(ReplayError::NoBase),
            Line::Event { at, event } => {
                engine.apply(at, event);
                seen.events += 1;
            }
            Line::Tick { at } => seen.actions += engine.tick(at).len() as u64,
            Line::Request { at } => request = engine.request(at, half_life).or(request),
            Line::Concluded { at, decision, trouble } => {
                let Some(asked) = request.take() else {
                    if seen.different > 0 {
                        // A changed decision leads elsewhere, where nothing need be asked: the first one is told.
                        return Ok(seen);
                    }
                    let problem = "an answer without a request".to_owned();
                    return Err(ReplayError::Line { line: number, problem });
                };
                let outcome = match (&decision, trouble.as_deref()) {
                    (Some(recorded), _) => {
                        let own = replaced.as_mut().unwrap_or(&mut pipeline);
                        again(&asked, own, (number, recorded), &mut seen)
                    }
                    (None, trouble) => {
                        seen.without_answer += 1;
                        without_answer(trouble)
                    }
                };
                replaced = None;
                engine.conclude(at, &asked, outcome);
            }
            Line::Policy { at: _, policy, half_life: other } => {
                let before = std::mem::replace(&mut pipeline, build(&policy)?);
                if request.is_some() {
                    replaced.get_or_insert(before);
                }
                half_life = other;
                engine.reset_failures();
            }
        }
    }
    Ok(seen)
}

/// The engine as it was made.
pub fn engine_of(base: Base, believer: &Believer<'_>) -> Engine {
    let beliefs = believer(&base.cluster, base.learnt.as_deref());
    let mut engine = Engine::new(Arc::new(base.cluster), base.tenants, beliefs, base.setup);
    let jobs = base.jobs;
    engine.restore(base.at, jobs, &base.ends, &base.usage);
    for node in base.drained {
        engine.apply(base.at, Event::NodeDrained(node));
    }
    for (gpu, evict) in base.quarantined {
        engine.apply(base.at, Event::GpuQuarantined { gpu, evict });
    }
    for window in base.windows {
        engine.apply(base.at, Event::WindowSet(window));
    }
    engine.restore_reclaimed(&base.reclaimed);
    for (pool, needed) in base.loans {
        engine.apply(base.at, Event::Needed(pool, needed));
    }
    engine
}

fn again(
    asked: &trainyard_engine::DecisionRequest,
    pipeline: &mut trainyard_framework::Pipeline,
    (line, recorded): (u64, &Decision),
    seen: &mut Replayed,
) -> PolicyOutcome {
    seen.decisions += 1;
    let outcome = asked.think(pipeline);
    let same = matches!(&outcome, PolicyOutcome::Decided(decision) if decision == recorded);
    if !same {
        seen.different += 1;
        let shown = match &outcome {
            PolicyOutcome::Decided(decision) => serde_json::to_string(decision).unwrap_or_default(),
            PolicyOutcome::Failed(error) => format!("failed: {error}"),
            PolicyOutcome::Panicked => "panicked".to_owned(),
            PolicyOutcome::Stuck => "stuck".to_owned(),
        };
        let was = serde_json::to_string(recorded).unwrap_or_default();
        seen.first.get_or_insert((line, was, shown));
    }
    // What really happened goes on from what was really decided.
    PolicyOutcome::Decided(recorded.clone())
}

fn without_answer(trouble: Option<&str>) -> PolicyOutcome {
    match trouble {
        Some("stuck") => PolicyOutcome::Stuck,
        _ => PolicyOutcome::Panicked,
    }
}
