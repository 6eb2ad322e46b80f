//! Jobs that change their GPUs while they run, where they must be asked: told, gone over, or stopped for saying nothing.
//!
//! Until a job says that it has gone over it holds what it has and what it gets, so that no other job is sent there. It
//! only grows or only shrinks at a time: what it holds meanwhile is then never more than it may have.

use crate::engine::{Engine, Timer};
use serde::{Deserialize, Serialize};
use trainyard_framework::Live;
use trainyard_types::{Allocation, Attempt, JobId, Phase, Span, Time};

/// A job that was told of other GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resizing {
    /// What it was told of.
    pub to: Allocation,
    /// When it is stopped and started instead.
    pub until: Time,
}

impl Engine {
    /// What a job was told to go over to and has not yet said that it has.
    pub fn resizing(&self, job: JobId) -> Option<&Allocation> {
        self.resizing.get(&job).map(|resizing| &resizing.to)
    }

    /// The job has gone over.
    pub(crate) fn resized(&mut self, at: Time, job: JobId, attempt: Attempt) {
        if !self.is_current(job, attempt, &[Phase::Running]) {
            return;
        }
        let Some(Resizing { to, .. }) = self.resizing.remove(&job) else {
            self.stats.stale_events += 1;
            return;
        };
        self.hold_instead(at, job, to);
        self.state_mut().changed.push(job);
        // What was planned meanwhile comes next.
        self.dirty.insert(job);
    }

    /// A job that did not go over in time is stopped and started, and is not asked again.
    pub(crate) fn resize_is_late(&mut self, at: Time, job: JobId, attempt: Attempt) {
        let late = self.resizing.get(&job).is_some_and(|resizing| resizing.until <= at);
        let Some(live) = self.state.live(job).filter(|live| late && live.state.attempt == attempt)
        else {
            return;
        };
        let (spec, planned) = (std::sync::Arc::clone(&live.spec), live.state.planned.is_some());
        self.resizing.remove(&job);
        self.beliefs_mut().cannot_resize(&spec);
        self.dirty.insert(job);
        if planned && !self.requeued.contains(&job) {
            // Whatever lease its new GPUs came with, it could leave the old ones when that was decided.
            let live = self.state_mut().live_mut(job).expect("just seen");
            if let Some(held) = &mut live.state.held {
                held.lease_until = None;
            }
            self.stop(at, job, attempt);
        }
    }

    /// Whether a job that is still there was told of other GPUs, and nothing but its word or time changes that.
    pub(crate) fn is_resizing(&self, job: JobId) -> bool {
        self.resizing.contains_key(&job) && !self.must_go(job)
    }

    /// Whether a job stops whatever is planned for it.
    pub(crate) fn must_go(&self, job: JobId) -> bool {
        self.evicted.contains(&job) || self.leaving.contains(&job)
    }

    /// Whether a running job can be told of what is planned for it: only more GPUs, or only fewer.
    pub(crate) fn can_be_asked(&self, live: &Live) -> bool {
        let (Some(held), Some(planned)) = (&live.state.held, &live.state.planned) else {
            return false;
        };
        let (from, to) = (&held.placement, &planned.placement);
        live.state.phase == Phase::Running && (from.is_within(to) || to.is_within(from))
    }

    /// Takes what a job gets, and waits for its word before what it gives up is free.
    pub(crate) fn begin_resize(
        &mut self,
        at: Time,
        job: JobId,
        (held, planned): (Allocation, Allocation),
        wait: Span,
    ) {
        if held.placement.is_within(&planned.placement) {
            self.hold_instead(at, job, planned.clone());
        }
        let attempt = self.state.live(job).expect("caller checked").state.attempt;
        self.put_back_resize(job, attempt, Resizing { to: planned, until: at + wait });
    }

    /// Waits for a job to go over. It stays among those to be reconciled until it has.
    pub(crate) fn put_back_resize(&mut self, job: JobId, attempt: Attempt, resizing: Resizing) {
        self.timers.insert((resizing.until, Timer::Resize(job, attempt)));
        self.resizing.insert(job, resizing);
        self.dirty.insert(job);
    }

    /// A running job holds other GPUs from now on.
    pub(crate) fn hold_instead(&mut self, at: Time, job: JobId, to: Allocation) {
        let live = self.state.live(job).expect("caller checked");
        let (phase, held) = (live.state.phase, live.state.held.clone());
        self.enter(at, job, phase);
        if let Some(held) = &held {
            self.real.give(held);
        }
        self.real.take(&to);
        self.state_mut().live_mut(job).expect("just seen").state.held = Some(to);
        for (node, _) in held.iter().flat_map(|held| held.placement.masks()) {
            if self.has_open_claims(*node) {
                self.settle_claims(at, *node);
            }
        }
    }

    /// Takes all resizes for done, and those to come as well.
    pub(crate) fn end_resizes(&mut self) {
        self.setup.resize_wait = None;
        let at = self.state.now;
        for (job, resizing) in std::mem::take(&mut self.resizing) {
            self.hold_instead(at, job, resizing.to);
            self.dirty.insert(job);
        }
    }
}
