//! Why a job waits, as data.

use crate::engine::{Block, Engine};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use trainyard_framework::{Live, State};
use trainyard_types::{JobId, Phase, Reason, Time};

/// Where a job stands and what keeps it there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The job.
    pub job: JobId,
    /// Where it stands.
    pub phase: Phase,
    /// Since when.
    pub since: Time,
    /// What keeps it there; empty for a job that runs.
    pub reasons: Vec<Reason>,
}

/// A frozen copy of all that explanations rest on, to be asked while the engine goes on.
#[derive(Clone)]
pub struct Outlook {
    state: Arc<State>,
    blocked: BTreeMap<JobId, Block>,
    notes: BTreeMap<JobId, Reason>,
}

impl Outlook {
    /// As [`Engine::explain`], at the moment of the copy.
    pub fn explain(&self, job: JobId) -> Option<Explanation> {
        Grounds { state: &self.state, blocked: &self.blocked, notes: &self.notes }.explain(job)
    }
}

impl Engine {
    /// Why a job does not run; nothing for a job that is not known or over.
    pub fn explain(&self, job: JobId) -> Option<Explanation> {
        Grounds { state: &self.state, blocked: &self.blocked, notes: &self.notes }.explain(job)
    }

    /// A frozen copy of all that explanations rest on.
    pub fn outlook(&self) -> Outlook {
        let (blocked, notes) = (self.blocked.clone(), self.notes.clone());
        Outlook { state: Arc::clone(&self.state), blocked, notes }
    }
}

/// What an explanation rests on.
struct Grounds<'a> {
    state: &'a State,
    blocked: &'a BTreeMap<JobId, Block>,
    notes: &'a BTreeMap<JobId, Reason>,
}

impl Grounds<'_> {
    fn explain(&self, job: JobId) -> Option<Explanation> {
        let live = self.state.live(job)?;
        let state = &live.state;
        let reasons = match state.phase {
            Phase::Blocked => self.why_blocked(job),
            Phase::Starting | Phase::Running => Vec::new(),
            Phase::Unadmitted | Phase::Waiting | Phase::Saving => self.why_waiting(live),
        };
        Some(Explanation { job, phase: state.phase, since: state.since, reasons })
    }

    fn why_blocked(&self, job: JobId) -> Vec<Reason> {
        let Some(block) = self.blocked.get(&job) else { return vec![Reason::Undecided] };
        let mut reasons = Vec::new();
        if block.by_user {
            reasons.push(Reason::HeldByUser);
        }
        if block.throttled {
            reasons.push(Reason::ArrayFull);
        }
        reasons.extend(block.after.iter().map(|job| Reason::After { job: *job }));
        reasons.extend(block.not_before.map(|time| Reason::NotBefore { time }));
        reasons.extend(block.retry_at.map(|until| Reason::BackOff { until }));
        reasons
    }

    fn why_waiting(&self, live: &Live) -> Vec<Reason> {
        let job = live.spec.id;
        if let Some(planned) = &live.state.planned {
            let holder = self.state.jobs.iter().flatten().find(|other| {
                let held = other.state.held.as_ref();
                other.spec.id != job
                    && held.is_some_and(|held| held.placement.overlaps(&planned.placement))
            });
            return vec![Reason::Freeing { by: holder.map_or(job, |other| other.spec.id) }];
        }
        if let Some(reason) = self.notes.get(&job) {
            return vec![reason.clone()];
        }
        // Not looked at in the last decision: it stands behind one that was and did not fit.
        match self.notes.keys().find(|other| **other != job && self.state.waiting.contains(**other))
        {
            Some(by) => vec![Reason::Outranked { by: *by }],
            None => vec![Reason::Undecided],
        }
    }
}
