//! How much work is left of each job of a moment, and on what grounds.

use crate::lengths::Sorted;
use std::collections::BTreeMap;
use trainyard_engine::Engine;
use trainyard_framework::{Beliefs, JobRef, Knowledge, Live, Needs, View};
use trainyard_types::{JobId, Phase, Rate, Span, Work};
use trainyard_workload::TraceJob;

/// Why a job is taken to be as long as it is.
#[derive(
    Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Grounds {
    /// It was told, and the job runs and reports how far it is.
    Reported,
    /// It was told: declared by its user, or reported by the job itself.
    Told,
    /// Past jobs took so long.
    Past,
    /// It has a time limit, and nothing else is known.
    Limit,
    /// Nothing is known: it goes on for ever.
    Nothing,
}

/// The jobs of a moment with their sizes.
pub struct Sizes {
    /// By id, where in `jobs`; nothing for a job that is not of the moment.
    slots: Vec<u32>,
    jobs: Vec<TraceJob>,
    grounds: Vec<Grounds>,
}

const NO_SLOT: u32 = u32::MAX;

impl Sizes {
    /// The jobs of an engine. Sizes that were told are corrected by what told sizes turned out to be; those of which
    /// nothing was told are taken from the past.
    pub fn new(engine: &Engine, past: &Sorted) -> Sizes {
        let state = engine.state();
        let beliefs = engine.beliefs();
        let needs = Needs { work_left: Knowledge::Estimate, rates: true, ..Needs::NOTHING };
        let view = View::new(state.now, state, beliefs, &needs);
        let mut sizes = Sizes {
            slots: vec![NO_SLOT; state.jobs.bound()],
            jobs: Vec::new(),
            grounds: Vec::new(),
        };
        for live in state.jobs.values() {
            let (work, grounds) = size(live, &view, beliefs, past);
            sizes.slots[live.spec.id.index()] = sizes.jobs.len() as u32;
            sizes.jobs.push(TraceJob::new(std::sync::Arc::clone(&live.spec), work));
            sizes.grounds.push(grounds);
        }
        sizes
    }

    /// A job of the moment.
    pub fn job(&self, job: JobId) -> &TraceJob {
        &self.jobs[self.slots[job.index()] as usize]
    }

    /// All of them, by id.
    pub fn jobs(&self) -> impl Iterator<Item = (&TraceJob, Grounds)> {
        self.jobs.iter().zip(self.grounds.iter().copied())
    }

    /// Why a job is taken to be as long as it is; nothing for one that is not of the moment.
    pub fn grounds(&self, job: JobId) -> Option<Grounds> {
        let slot = self.slots.get(job.index()).filter(|slot| **slot != NO_SLOT)?;
        Some(self.grounds[*slot as usize])
    }
}

/// A job's work in all, such that what is left of it by its own count is what is believed to be left.
fn size(live: &Live, view: &View<'_>, beliefs: &dyn Beliefs, past: &Sorted) -> (Work, Grounds) {
    let (spec, state, now) = (&live.spec, &live.state, view.now);
    let counted = state.progress.done_at(now);
    let rate = rate(live, view, beliefs);
    if let Some(told) = beliefs.work(spec).filter(|told| told.0 > 0.0) {
        // A job that never says how far it is goes on at its believed pace.
        let silent = state.phase == Phase::Running && state.progress.rate.0 <= 0.0;
        let unsaid = if silent { rate.over(now.since(state.since)) } else { Work::ZERO };
        let done = counted + unsaid;
        let whole = Work(told.0 * past.over_told(done.0 / told.0));
        let reports = state.phase == Phase::Running && !silent && counted.0 > 0.0;
        return (whole - unsaid, if reports { Grounds::Reported } else { Grounds::Told });
    }
    let ran = state.ran(now);
    if let Some(left) = past.left(spec, ran) {
        return (counted + rate.over(left), Grounds::Past);
    }
    let grounds = if spec.run_max.is_some() { Grounds::Limit } else { Grounds::Nothing };
    (Work(f64::INFINITY), grounds)
}

/// How fast a job runs where it is, or would run as its user asked for it.
fn rate(live: &Live, view: &View<'_>, beliefs: &dyn Beliefs) -> Rate {
    let (spec, state) = (&live.spec, &live.state);
    if state.phase == Phase::Running && state.progress.rate.0 > 0.0 {
        return state.progress.rate;
    }
    let held = state.held.as_ref().map(|held| held.config(view.cluster()));
    let here = held.and_then(|config| beliefs.rate(spec, &config));
    let wished = || view.reference_rate(JobRef { spec, state });
    here.or_else(wished).filter(|rate| rate.0 > 0.0).unwrap_or(Rate(1.0))
}

/// How long jobs take undisturbed, as their users asked for them, by the sizes they are given; those of which that is
/// not known are left out.
pub fn ideal_spans(engine: &Engine, sizes: &Sizes) -> BTreeMap<JobId, Span> {
    let state = engine.state();
    let needs = Needs { work_left: Knowledge::Estimate, rates: true, ..Needs::NOTHING };
    let view = View::new(state.now, state, engine.beliefs(), &needs);
    let ideal = |live: &Live| {
        let one = sizes.job(live.spec.id);
        let rate = view.reference_rate(JobRef { spec: &live.spec, state: &live.state })?;
        one.work.0.is_finite().then(|| (live.spec.id, rate.time_for(one.work)))
    };
    state.jobs.values().filter_map(|live| ideal(live)).collect()
}
