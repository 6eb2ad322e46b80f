//! Why a job waits, as data.

use crate::engine::{Block, Engine};
use crate::room::Room;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use trainyard_framework::{Live, State};
use trainyard_types::{GpuAt, JobId, Phase, Reason, Time, Want};

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
    room: Room,
    /// The first two jobs that wait and were looked at, found when first needed.
    looked_at: OnceLock<[Option<JobId>; 2]>,
}

impl Outlook {
    /// As [`Engine::explain`], at the moment of the copy.
    pub fn explain(&self, job: JobId) -> Option<Explanation> {
        let (state, blocked, notes) = (&*self.state, &self.blocked, &self.notes);
        let looked_at = || *self.looked_at.get_or_init(|| looked_at(state, notes));
        Grounds { state, blocked, notes, room: &self.room, looked_at: &looked_at }.explain(job)
    }

    /// What a policy's reason comes to for a job where GPUs are out of service.
    pub fn corrected(&self, reason: Reason, want: &Want) -> Reason {
        self.room.corrected(reason, want, &self.state.cluster)
    }
}

impl Engine {
    /// Why a job does not run; nothing for a job that is not known or over.
    pub fn explain(&self, job: JobId) -> Option<Explanation> {
        let (state, blocked, notes) = (&*self.state, &self.blocked, &self.notes);
        let looked_at = || looked_at(state, notes);
        let room = Room::of(&self.free);
        Grounds { state, blocked, notes, room: &room, looked_at: &looked_at }.explain(job)
    }

    /// A frozen copy of all that explanations rest on.
    pub fn outlook(&self) -> Outlook {
        let (blocked, notes) = (self.blocked.clone(), self.notes.clone());
        let (state, room) = (self.state.freeze(), Room::of(&self.free));
        Outlook { state, blocked, notes, room, looked_at: OnceLock::new() }
    }
}

/// What an explanation rests on.
struct Grounds<'a> {
    state: &'a State,
    blocked: &'a BTreeMap<JobId, Block>,
    notes: &'a BTreeMap<JobId, Reason>,
    room: &'a Room,
    looked_at: &'a dyn Fn() -> [Option<JobId>; 2],
}

/// The first two jobs that wait and of which the last decision left a reason.
fn looked_at(state: &State, notes: &BTreeMap<JobId, Reason>) -> [Option<JobId>; 2] {
    let mut waiting = notes.keys().copied().filter(|job| state.waiting.contains(*job));
    [waiting.next(), waiting.next()]
}

/// Whether a reason says no more than that there are no GPUs for a job now.
fn is_about_gpus(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::NoRoom { .. }
            | Reason::Fragmented { .. }
            | Reason::Uneven { .. }
            | Reason::Outranked { .. }
            | Reason::Undecided
    )
}

impl Grounds<'_> {
    fn explain(&self, job: JobId) -> Option<Explanation> {
        let live = self.state.live(job)?;
        let state = &live.state;
        let reasons = match state.phase {
            Phase::Blocked => self.why_blocked(job),
            Phase::Starting | Phase::Running => Vec::new(),
            Phase::Saving if self.blocked.contains_key(&job) => self.why_blocked(job),
            Phase::Saving => {
                // One that is over when it has stopped waits for nothing.
                let waits = |reason: &Reason| *reason != Reason::Undecided;
                self.why_waiting(live).into_iter().filter(waits).collect()
            }
            Phase::Suspended if self.blocked.contains_key(&job) => self.why_blocked(job),
            Phase::Suspended => {
                let own = self.own_gpu(live);
                // That it fits nowhere else is no news then.
                let more = |reason: &Reason| own.is_none() || !is_about_gpus(reason);
                let more: Vec<Reason> = self.why_waiting(live).into_iter().filter(more).collect();
                own.into_iter().chain(more).collect()
            }
            Phase::Unadmitted | Phase::Waiting => self.why_waiting(live),
        };
        Some(Explanation { job, phase: state.phase, since: state.since, reasons })
    }

    /// The GPU that a job waits for that is put aside, unless it is to have it next or may go elsewhere. Linear in jobs,
    /// for such a job alone.
    fn own_gpu(&self, live: &Live) -> Option<Reason> {
        let own = live.state.suspended.as_ref().filter(|_| live.state.planned.is_none())?;
        let until = self.state.aside.tied_until(own.since);
        let placement = &own.home.placement;
        let (node, mask) = *placement.masks().first()?;
        let holds = |other: &&Arc<Live>| {
            let held = other.state.held.as_ref();
            held.is_some_and(|held| held.placement.overlaps(placement))
        };
        let by = self.state.jobs.values().find(holds).map(|other| other.spec.id);
        let gpu = GpuAt { node, gpu: mask.trailing_zeros() as u8 };
        (self.state.now < until).then_some(Reason::OwnGpu { gpu, by, until })
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
            let holder = self.state.jobs.values().find(|other| {
                let held = other.state.held.as_ref();
                other.spec.id != job
                    && held.is_some_and(|held| held.placement.overlaps(&planned.placement))
            });
            return vec![Reason::Freeing { by: holder.map_or(job, |other| other.spec.id) }];
        }
        let (want, cluster) = (&live.spec.want, &self.state.cluster);
        if let Some(reason) = self.notes.get(&job) {
            return vec![self.room.corrected(reason.clone(), want, cluster)];
        }
        // Not looked at in the last decision: it stands behind one that was and did not fit.
        if let Some(by) = (self.looked_at)().into_iter().flatten().find(|other| *other != job) {
            return vec![Reason::Outranked { by }];
        }
        // A policy need not say of each job that there are no GPUs for it.
        let waits = matches!(live.state.phase, Phase::Waiting | Phase::Suspended);
        let waited = waits && !self.state.changed.contains(&job);
        let lack = self.room.lack(want, cluster).filter(|_| waited);
        vec![lack.unwrap_or_else(|| self.room.corrected(Reason::Undecided, want, cluster))]
    }
}
