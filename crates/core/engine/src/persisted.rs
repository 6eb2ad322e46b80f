//! What must survive a restart, and an engine made from it.

use crate::engine::{Block, Engine, Timer};
use crate::lifecycle::even;
use crate::resizing::Resizing;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use trainyard_framework::{Live, Usage, used_permille};
use trainyard_types::{Allocation, Attempt, End, Job, JobId, JobState, Phase, Time};

/// What must survive a restart, of one job that is not over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedState {
    /// What has happened to it; what it should hold by the plan is left out, for a plan is made anew.
    pub state: JobState,
    /// Set aside by its user.
    #[serde(default)]
    pub by_user: bool,
    /// Too many jobs of its array run.
    #[serde(default)]
    pub throttled: bool,
    /// It failed and is tried again then.
    #[serde(default)]
    pub retry_at: Option<Time>,
    /// How it ends once it has stopped.
    #[serde(default)]
    pub ending: Option<End>,
    /// A user sends it back to the queue once it has stopped.
    #[serde(default)]
    pub requeued: bool,
    /// It was told of other GPUs and has not gone over to them yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resizing: Option<Resizing>,
    /// It is being put aside, and not stopped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspending: bool,
    /// Its present attempt could not be put aside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsuspendable: bool,
    /// It was put aside and is being killed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub discarding: bool,
}

impl SavedState {
    /// What it should hold if it goes on: what it was told to go over to, else what it holds.
    fn plan(&self) -> Option<Allocation> {
        let told = self.resizing.as_ref().map(|resizing| &resizing.to);
        told.or(self.state.held.as_ref()).cloned()
    }
}

impl Engine {
    /// What must survive a restart, of one job.
    pub fn kept(&self, job: JobId) -> Option<SavedState> {
        let live = self.state.live(job)?;
        let block = self.blocked.get(&job);
        Some(SavedState {
            state: JobState { planned: None, ..live.state.clone() },
            by_user: block.is_some_and(|block| block.by_user),
            throttled: block.is_some_and(|block| block.throttled),
            retry_at: block.and_then(|block| block.retry_at),
            ending: self.ending.get(&job).copied(),
            requeued: self.requeued.contains(&job),
            resizing: self.resizing.get(&job).cloned(),
            suspending: self.suspending.contains(&job),
            unsuspendable: self.state.aside.refused.contains(&job),
            discarding: self.discarding.contains(&job),
        })
    }

    /// The use of each tenant, to be kept.
    pub fn usage(&self) -> &[Usage] {
        &self.state.usage
    }

    /// Puts back what was kept into an engine without jobs. `ends` says how jobs ended that others wait for.
    ///
    /// A job that held GPUs holds them again: the host must find out what became of it and say so.
    ///
    /// # Panics
    /// When two jobs hold the same GPU or one holds a GPU that is not there: the host checks that before, see
    /// [`Engine::can_hold`].
    pub fn restore(
        &mut self,
        at: Time,
        jobs: Vec<(Arc<Job>, SavedState)>,
        ends: &[(JobId, End)],
        usage: &[Usage],
    ) {
        let at = self.advance(at);
        for (job, end) in ends {
            self.make_room(*job);
            self.ends[job.index()] = Some(*end);
        }
        let state = self.state_mut();
        let half_life = state.usage_half_life;
        for (own, kept) in state.usage.iter_mut().zip(usage) {
            // What ran went on running meanwhile.
            *own = kept.idle_from(at, half_life);
        }
        let ids: Vec<JobId> = jobs.iter().map(|(job, _)| job.id).collect();
        for (job, kept) in jobs {
            self.put_back(at, job, kept);
        }
        for job in ids {
            self.requeue_dependents(at, job);
        }
        self.take_touched();
        self.wants_decision = true;
        self.assert_invariants();
    }

    /// Whether an allocation lies within the cluster and beside what is held already.
    pub fn can_hold(&self, allocation: &Allocation) -> bool {
        let nodes = &self.state.cluster.nodes;
        let there = allocation.placement.masks().iter().all(|(node, mask)| {
            nodes.get(node.index()).is_some_and(|node| mask & !node.mask() == 0)
        });
        there && self.real.fits(allocation)
    }

    /// The next attempt of a job never has a number that was used before.
    pub fn attempt(&self, job: JobId) -> Option<Attempt> {
        self.state.live(job).map(|live| live.state.attempt)
    }

    fn make_room(&mut self, job: JobId) {
        if job.index() >= self.ends.len() {
            self.ends.resize(job.index() + 1, None);
        }
    }

    fn put_back(&mut self, at: Time, job: Arc<Job>, kept: SavedState) {
        let id = job.id;
        self.make_room(id);
        // As at its submission; one that runs has the sizes that it was launched with.
        let runs = kept.state.held.is_some();
        let job = if runs { job } else { even(job, &self.state.cluster) };
        let block = Block {
            by_user: kept.by_user,
            throttled: kept.throttled,
            after: job.after.iter().copied().filter(|id| self.end(*id).is_none()).collect(),
            not_before: job.not_before.filter(|time| *time > at),
            retry_at: kept.retry_at.filter(|time| *time > at),
        };
        let placed = kept.state.is_placed();
        let goes_on = placed
            && kept.state.phase != Phase::Saving
            && kept.ending.is_none()
            && block.is_over()
            && !kept.requeued;
        let held = kept.state.held.clone();
        let (tenant, gpus) = (job.tenant, u64::from(job.want.gpus));
        let plan = kept.plan().filter(|_| goes_on);
        let state = JobState { planned: plan.clone(), ..kept.state };
        let (attempt, admitted, ran) = (state.attempt, state.admitted, state.ran(at));
        let limit = job.run_max;
        self.state_mut().jobs.insert(id, Arc::new(Live { spec: job, state }));
        if let Some(held) = &held {
            self.real.take(held);
        }
        if let Some(plan) = &plan {
            self.state_mut().sharing += u32::from(plan.is_shared());
            self.free.take(plan);
            self.count_granted(at, tenant, used_permille(plan) as i64);
        }
        if let (true, Some(resizing)) = (goes_on, kept.resizing) {
            self.put_back_resize(id, attempt, resizing);
        }
        if let (true, Some(limit)) = (placed, limit) {
            self.timers.insert((at + limit.minus(ran), Timer::Limit(id, attempt)));
        }
        if let Some(end) = kept.ending {
            self.ending.insert(id, end);
        }
        if kept.requeued {
            self.requeued.insert(id);
        }
        if placed && !goes_on {
            self.dirty.insert(id);
        }
        for time in [block.not_before, block.retry_at].into_iter().flatten() {
            self.timers.insert((time, Timer::Unblock(id)));
        }
        let blocked = !block.is_over();
        if blocked {
            self.blocked.insert(id, block);
        }
        self.state_mut().changed.push(id);
        if admitted {
            self.state_mut().demand += gpus;
        }
        self.restore_aside(id, [kept.suspending, kept.discarding, kept.unsuspendable]);
        let queued = !blocked && kept.ending.is_none();
        self.put_in_queue(id, goes_on, queued, admitted);
        if !placed {
            self.stand_without_gpus(id, blocked, admitted);
        }
    }

    /// The phase of a job from before that holds no GPUs; one that is put aside stays so.
    fn stand_without_gpus(&mut self, id: JobId, blocked: bool, admitted: bool) {
        let phase = match (blocked, admitted) {
            (true, _) => Phase::Blocked,
            (false, true) => Phase::Waiting,
            (false, false) => Phase::Unadmitted,
        };
        let own = &mut self.state_mut().live_mut(id).expect("just put there").state;
        if own.suspended.is_none() {
            own.phase = phase;
        }
    }

    /// The list that a job from before is in: a placed one that must stop waits to be placed again.
    fn put_in_queue(&mut self, id: JobId, goes_on: bool, queued: bool, admitted: bool) {
        let state = self.state_mut();
        let placed = state.live(id).is_some_and(|live| live.state.is_placed());
        let queue = match (goes_on, queued, placed || admitted) {
            (true, _, _) => &mut state.granted,
            (false, false, _) => return,
            (false, true, true) => &mut state.waiting,
            (false, true, false) => &mut state.unadmitted,
        };
        queue.insert(id);
    }

    /// Notes which jobs wait for which, once all are there.
    fn requeue_dependents(&mut self, at: Time, job: JobId) {
        let Some(block) = self.blocked.get(&job) else { return };
        for first in block.after.clone() {
            if self.state.live(first).is_some() {
                self.dependents.entry(first).or_default().push(job);
            } else {
                // Whatever became of the job before it is not known any more: that is no reason to start.
                self.stop_for_good(at, job, End::Orphaned);
                return;
            }
        }
    }
}
