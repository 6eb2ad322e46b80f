//! From submission to the end: what events do to a job.

use crate::engine::{Block, Engine, Timer};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use trainyard_framework::{Live, State, used_permille};
use trainyard_types::{
    Action, Allocation, Attempt, Cause, Cluster, Config, End, Job, JobId, JobState, Measured,
    Phase, Progress, Rate, Reason, Sample, Span, Time, Work,
};

/// Phases in which an attempt may end.
const PLACED_OR_ASIDE: [Phase; 4] =
    [Phase::Starting, Phase::Running, Phase::Saving, Phase::Suspended];

impl Engine {
    /// A new job. A second submission under the same id is the same submission.
    pub(crate) fn submitted(&mut self, at: Time, job: Arc<Job>) {
        let id = job.id;
        if id.index() >= self.ends.len() {
            self.ends.resize(id.index() + 1, None);
        }
        if self.state.live(id).is_some() || self.ends[id.index()].is_some() {
            self.stats.stale_events += 1;
            return;
        }
        let most = self.most_gpus(&job);
        let fits =
            (1..=most).contains(&job.want.gpus_min) && job.want.gpus_min <= job.want.gpus_max;
        let block = Block {
            by_user: false,
            throttled: false,
            after: job.after.iter().copied().filter(|id| self.end(*id).is_none()).collect(),
            not_before: job.not_before.filter(|time| *time > at),
            retry_at: None,
        };
        let orphaned =
            job.after.iter().any(|id| self.end(*id).is_some_and(|end| end != End::Finished));
        let need = job.want.gpus_min;
        let job = if fits { within(job, most) } else { job };
        let job = if fits { even(job, &self.state.cluster) } else { job };
        let job = self.with_grace(job);
        let mut state = JobState::submitted(at);
        state.queued_at = at;
        self.state_mut().jobs.insert(id, Arc::new(Live { spec: job, state }));
        if !fits {
            self.notes.insert(id, Reason::NeverFits { need, most });
            self.over(at, id, End::Rejected);
        } else if orphaned {
            self.over(at, id, End::Orphaned);
        } else if block.is_over() {
            self.eligible(at, id);
        } else {
            for first in &block.after {
                self.dependents.entry(*first).or_default().push(id);
            }
            if let Some(time) = block.not_before {
                self.timers.insert((time, Timer::Unblock(id)));
            }
            self.blocked.insert(id, block);
        }
    }

    /// A job that does not say how long it may take to save gets what is believed.
    fn with_grace(&self, mut job: Arc<Job>) -> Arc<Job> {
        if job.grace > Span::ZERO {
            return job;
        }
        let shapes = self.state.shapes.iter().filter(|(kind, _)| job.want.accepts(*kind));
        let configs = shapes.map(|&(kind, per_node)| Config::packed(kind, job.want.gpus, per_node));
        let saves = configs.map(|on| self.beliefs.change(&job, Some(&on), None).save);
        let grace = saves.max().unwrap_or(Span::ZERO);
        if grace > Span::ZERO {
            Arc::make_mut(&mut job).grace = grace;
        }
        job
    }

    /// The launch worked.
    pub(crate) fn started(&mut self, at: Time, job: JobId, attempt: Attempt) {
        if self.is_current(job, attempt, &[Phase::Starting]) {
            self.came_back(at, job);
            self.enter(at, job, Phase::Running);
            self.state_mut().changed.push(job);
        }
    }

    /// The stop is complete; `done` is what a later launch resumes from.
    pub(crate) fn stopped(&mut self, at: Time, job: JobId, attempt: Attempt, done: Work) {
        if !self.is_current(job, attempt, &PLACED_OR_ASIDE) {
            return;
        }
        self.vacate(at, job, done);
        if let Some(end) = self.ending.remove(&job) {
            self.over(at, job, end);
        } else {
            self.rejoin(at, job);
        }
    }

    /// All work is done.
    pub(crate) fn finished(&mut self, at: Time, job: JobId, attempt: Attempt) {
        if !self.is_current(job, attempt, &PLACED_OR_ASIDE) {
            return;
        }
        let done = self.state.live(job).expect("current").state.progress.done_at(at);
        self.vacate(at, job, done);
        self.ending.remove(&job);
        self.over(at, job, End::Finished);
    }

    /// The attempt ended badly.
    pub(crate) fn failed(&mut self, at: Time, job: JobId, attempt: Attempt, how: (Cause, Work)) {
        let (cause, done) = how;
        if !self.is_current(job, attempt, &PLACED_OR_ASIDE) {
            return;
        }
        let held = self.state.live(job).and_then(|live| live.state.held.clone());
        self.unplan(at, job);
        self.vacate(at, job, done);
        if let Some(end) = self.ending.remove(&job) {
            self.over(at, job, end);
            return;
        }
        match cause {
            Cause::Machine => {}
            Cause::Launch => {
                for (node, _) in held.iter().flat_map(|held| held.placement.masks()) {
                    self.count_failure(at, *node);
                }
            }
            Cause::Job => {
                let live = self.state_mut().live_mut(job).expect("current");
                live.state.failures += 1;
                let failures = live.state.failures;
                if failures > live.spec.retries_max {
                    self.over(at, job, End::Failed);
                    return;
                }
                let wait = self.setup.retry_after.times(1 << (failures - 1).min(16));
                self.block(at, job, |block| block.retry_at = Some(at + wait));
                self.timers.insert((at + wait, Timer::Unblock(job)));
            }
        }
        self.rejoin(at, job);
        self.wants_decision = true;
    }

    /// What a running job says about itself.
    pub(crate) fn report(&mut self, at: Time, job: JobId, attempt: Attempt, sample: &Sample) {
        if !self.is_current(job, attempt, &[Phase::Starting, Phase::Running, Phase::Saving]) {
            return;
        }
        let (concerns, learns) = (Measured::concerns(sample), self.beliefs.learns());
        let held = self.state.live(job).and_then(|live| live.state.held.as_ref());
        let held = held.filter(|_| concerns || learns);
        let on = held.map(|held| held.config(&self.state.cluster));
        let state = self.state_mut();
        let live = state.live_mut(job).expect("current");
        let progress = &mut live.state.progress;
        if let Some(done) = sample.done {
            *progress = Progress { done, at, rate: progress.rate };
        }
        if let Some(rate) = sample.rate {
            *progress = Progress { done: progress.done_at(at), at, rate };
        }
        if sample.batch.is_some() {
            live.state.batch = sample.batch;
        }
        if concerns {
            let measured = live.state.measured.get_or_insert_default();
            let measured = Arc::make_mut(measured);
            measured.note(on.as_ref(), sample);
            if let Some(finished) = sample.epoch {
                measured.note_epochs(finished, live.state.progress.done_at(at));
            }
        }
        let spec = learns.then(|| Arc::clone(&live.spec));
        state.changed.push(job);
        if let Some(spec) = spec {
            self.beliefs_mut().observe(&spec, on.as_ref(), sample);
        }
    }

    /// A user sets a job aside.
    pub(crate) fn hold(&mut self, at: Time, job: JobId) {
        if self.state.live(job).is_none() || self.ending.contains_key(&job) {
            return;
        }
        self.unplan(at, job);
        self.block(at, job, |block| block.by_user = true);
        self.wants_decision = true;
    }

    /// A user sends a job back to the queue; it stops whatever the policy thinks of it.
    pub(crate) fn requeue(&mut self, at: Time, job: JobId) {
        let placed = self.state.live(job).is_some_and(|live| live.state.is_placed());
        if placed && !self.ending.contains_key(&job) {
            self.touched.insert(job);
            self.requeued.insert(job);
            self.unplan(at, job);
            self.wants_decision = true;
        }
    }

    /// Too many jobs of an array run already, or no longer.
    pub(crate) fn throttle(&mut self, at: Time, job: JobId, on: bool) {
        if on && self.state.live(job).is_some_and(|live| !live.state.is_placed()) {
            self.unplan(at, job);
            self.block(at, job, |block| block.throttled = true);
        } else if let Some(block) = self.blocked.get_mut(&job) {
            self.touched.insert(job);
            block.throttled = on;
            self.unblock(at, job);
        }
    }

    /// There is one more tenant.
    pub(crate) fn add_tenant(&mut self, tenant: trainyard_types::Tenant) {
        let state = self.state_mut();
        state.has_ceilings |= tenant.ceiling.is_some();
        state.tenants.insert(tenant);
        state.used_permille.push(0);
        state.usage.push(trainyard_framework::Usage::default());
    }

    /// A user lets a job go on.
    pub(crate) fn release(&mut self, at: Time, job: JobId) {
        if let Some(block) = self.blocked.get_mut(&job) {
            self.touched.insert(job);
            block.by_user = false;
            let set_aside = self
                .state
                .live(job)
                .is_some_and(|live| live.state.is_placed() && live.state.planned.is_none());
            if set_aside {
                // Its grant is gone already: it stops because its user wanted so, not for another job.
                self.requeued.insert(job);
            }
            self.unblock(at, job);
        }
    }

    /// Ends a job as soon as it has stopped.
    pub(crate) fn stop_for_good(&mut self, at: Time, job: JobId, end: End) {
        let Some(live) = self.state.live(job) else { return };
        if live.state.phase == Phase::Suspended {
            return self.end_aside(at, job, end);
        }
        if !live.state.is_placed() {
            self.over(at, job, end);
            return;
        }
        self.unplan(at, job);
        self.leave_queue(job);
        self.touched.insert(job);
        self.ending.insert(job, end);
        self.dirty.insert(job);
        self.wants_decision = true;
    }

    /// Drops the reasons that are over by the clock; lets the job in when none is left.
    pub(crate) fn unblock(&mut self, at: Time, job: JobId) {
        let Some(block) = self.blocked.get_mut(&job) else { return };
        block.not_before = block.not_before.filter(|time| *time > at);
        block.retry_at = block.retry_at.filter(|time| *time > at);
        if block.is_over() {
            self.touched.insert(job);
            self.blocked.remove(&job);
            if !self.state.live(job).is_some_and(|live| live.state.is_placed()) {
                self.eligible(at, job);
            }
        }
    }

    /// The job has ended: nothing of it stays but how it ended.
    pub(crate) fn over(&mut self, at: Time, job: JobId, end: End) {
        let mut queue: SmallVec<[(JobId, End); 2]> = smallvec![(job, end)];
        while let Some((job, end)) = queue.pop() {
            let Some(live) = self.take_out(at, job) else { continue };
            assert!(live.state.held.is_none(), "{job} has ended but still holds GPUs");
            self.state_mut().ended.push((job, at));
            if !self.blocked.is_empty() {
                self.blocked.remove(&job);
            }
            self.clear_orders(job);
            self.dirty.remove(job);
            self.touched.insert(job);
            self.ends[job.index()] = Some(end);
            self.outbox.push(Action::Ended { job, at, end });
            if self.beliefs.learns() {
                self.beliefs_mut().over(&live.spec);
            }
            self.over.push((live, end));
            self.wants_decision = true;
            for next in self.dependents.remove(&job).unwrap_or_default() {
                if end != End::Finished {
                    queue.push((next, End::Orphaned));
                } else if let Some(block) = self.blocked.get_mut(&next) {
                    block.after.retain(|first| *first != job);
                    self.unblock(at, next);
                }
            }
        }
    }

    /// Takes a job out of all that is known, with its grant and its place in every queue.
    fn take_out(&mut self, at: Time, job: JobId) -> Option<Arc<Live>> {
        let Some(mut live) = self.state_mut().jobs.remove(&job) else {
            self.leave_queue(job);
            return None;
        };
        let own = &mut Arc::make_mut(&mut live).state;
        let (planned, admitted) = (own.planned.take(), std::mem::take(&mut own.admitted));
        if let Some(planned) = planned {
            self.free.give(&planned);
            self.state_mut().sharing -= u32::from(planned.is_shared());
            self.count_granted(at, live.spec.tenant, -(used_permille(&planned) as i64));
        }
        let state = self.state_mut();
        state.granted.remove(job);
        state.waiting.remove(job);
        state.unadmitted.remove(job);
        state.changed.push(job);
        if admitted {
            state.demand -= u64::from(live.spec.want.gpus);
        }
        Some(live)
    }

    /// What a job was told to do is done or void.
    pub(crate) fn clear_orders(&mut self, job: JobId) {
        for orders in [&mut self.evicted, &mut self.leaving, &mut self.requeued] {
            if !orders.is_empty() {
                orders.remove(&job);
            }
        }
        if !self.resizing.is_empty() {
            self.resizing.remove(&job);
        }
    }

    /// Takes a job's grant away in the plan and tells what it was; reconciling stops the job if it runs.
    pub(crate) fn unplan(&mut self, at: Time, job: JobId) -> Option<Allocation> {
        // Most jobs that are asked about have none, and a look costs less than a write.
        self.state.live(job)?.state.planned.as_ref()?;
        let live = self.state_mut().live_mut(job)?;
        let planned = live.state.planned.take()?;
        let tenant = live.spec.tenant;
        self.free.give(&planned);
        self.count_granted(at, tenant, -(used_permille(&planned) as i64));
        let state = self.state_mut();
        state.sharing -= u32::from(planned.is_shared());
        state.granted.remove(job);
        state.waiting.insert(job);
        state.changed.push(job);
        self.dirty.insert(job);
        Some(planned)
    }

    /// Counts thousandths of GPUs granted to a tenant and all above it.
    pub(crate) fn count_granted(&mut self, at: Time, tenant: trainyard_types::TenantId, more: i64) {
        let state = self.state_mut();
        let half_life = state.usage_half_life;
        let path: smallvec::SmallVec<[_; 4]> = state.tenants.path(tenant).collect();
        for id in path {
            let used = &mut state.used_permille[id.index()];
            *used = used.checked_add_signed(more).expect("grants given back were counted");
            state.usage[id.index()].change(at, half_life, more);
        }
    }

    /// Moves a job to another phase, counting the time it spent in the last one. The job, to be written further: each
    /// time it is looked up for that costs.
    pub(crate) fn enter(&mut self, at: Time, job: JobId, phase: Phase) -> &mut Live {
        self.touched.insert(job);
        let State { jobs, cluster, .. } = self.state_mut();
        let live = jobs.get_mut(&job).map(Arc::make_mut).expect("only live jobs change phase");
        let state = &mut live.state;
        let held = state.held.as_ref().filter(|_| state.is_placed());
        if let Some(held) = held {
            let kind = cluster.node(held.placement.masks()[0].0).kind;
            let span = at.since(state.since);
            state.gpu_time = state.attained(at);
            state.ran += span;
            match state.time_on.iter_mut().find(|(other, _)| *other == kind) {
                Some((_, total)) => *total += span,
                None => state.time_on.push((kind, span)),
            }
        }
        state.since = at;
        state.phase = phase;
        live
    }

    /// The GPUs of a job are free again.
    fn vacate(&mut self, at: Time, job: JobId, done: Work) {
        let next = if self.blocked.contains_key(&job) { Phase::Blocked } else { Phase::Waiting };
        let live = self.enter(at, job, next);
        live.state.progress = Progress { done, at, rate: Rate(0.0) };
        live.state.queued_at = at;
        let held = live.state.held.take();
        let planned = live.state.planned.is_some();
        self.state_mut().changed.push(job);
        self.clear_orders(job);
        self.forget_aside(job);
        if let Some(held) = held {
            self.let_go(at, &held);
        }
        if planned {
            self.dirty.insert(job);
            self.leave_what_is_out(at, job);
        }
    }

    /// GPUs are free again.
    pub(crate) fn let_go(&mut self, at: Time, held: &Allocation) {
        self.real.give(held);
        for &(node, _) in held.placement.masks() {
            if self.has_open_claims(node) {
                self.settle_claims(at, node);
            }
        }
    }

    /// A job that has let go does not begin again where nothing new may begin: on a drained node, or on a GPU that
    /// retires.
    pub(crate) fn leave_what_is_out(&mut self, at: Time, job: JobId) {
        let planned = self.state.live(job).and_then(|live| live.state.planned.as_ref());
        let mut masks = planned.into_iter().flat_map(|planned| planned.placement.masks());
        if masks.any(|(node, mask)| mask & !self.machines.usable(*node) != 0) {
            self.unplan(at, job);
            self.wants_decision = true;
        }
    }

    /// Lets a job that was released while it still stopped back into its queue.
    fn rejoin(&mut self, at: Time, job: JobId) {
        let state = &self.state;
        let queued = state.waiting.contains(job)
            || state.granted.contains(job)
            || state.unadmitted.contains(job)
            || self.blocked.contains_key(&job);
        if !queued {
            self.eligible(at, job);
        }
    }

    fn eligible(&mut self, at: Time, job: JobId) {
        let admitted = self.state.live(job).is_some_and(|live| live.state.admitted);
        let aside = self.state.live(job).is_some_and(|live| live.state.phase == Phase::Suspended);
        let phase = match (aside, admitted) {
            (true, _) => Phase::Suspended,
            (false, true) => Phase::Waiting,
            (false, false) => Phase::Unadmitted,
        };
        self.enter(at, job, phase).state.queued_at = at;
        let state = self.state_mut();
        if admitted {
            state.waiting.insert(job);
            state.changed.push(job);
        } else {
            state.unadmitted.insert(job);
        }
        self.wants_decision = true;
    }

    /// Lets an eligible job take part.
    pub(crate) fn admit(&mut self, at: Time, job: JobId) {
        let live = self.enter(at, job, Phase::Waiting);
        live.state.admitted = true;
        let gpus = u64::from(live.spec.want.gpus);
        let state = self.state_mut();
        state.unadmitted.remove(job);
        state.waiting.insert(job);
        state.demand += gpus;
    }

    fn block(&mut self, at: Time, job: JobId, why: impl FnOnce(&mut Block)) {
        self.touched.insert(job);
        why(self.blocked.entry(job).or_default());
        let state = self.state_mut();
        state.waiting.remove(job);
        state.unadmitted.remove(job);
        state.changed.push(job);
        let stays = |live: &Live| live.state.is_placed() || live.state.phase == Phase::Suspended;
        if !state.live(job).is_some_and(stays) {
            self.enter(at, job, Phase::Blocked);
        }
    }

    /// Takes a job out of every queue; it takes part no more.
    pub(crate) fn leave_queue(&mut self, job: JobId) {
        let state = self.state_mut();
        state.waiting.remove(job);
        state.unadmitted.remove(job);
        state.changed.push(job);
        if let Some(live) = state.live_mut(job)
            && std::mem::take(&mut live.state.admitted)
        {
            let gpus = u64::from(live.spec.want.gpus);
            state.demand -= gpus;
        }
    }

    pub(crate) fn is_current(&mut self, job: JobId, attempt: Attempt, phases: &[Phase]) -> bool {
        let current = self.state.live(job).is_some_and(|live| {
            live.state.attempt == attempt && phases.contains(&live.state.phase)
        });
        if !current {
            self.stats.stale_events += 1;
        }
        current
    }

    /// The most GPUs the cluster as declared could ever give to a job.
    fn most_gpus(&self, job: &Job) -> u32 {
        let want = &job.want;
        let plain = want.pool.is_none()
            && (want.nodes_max, want.cpus_per_gpu, want.memory_mib_per_gpu) == (0, 0, 0)
            && want.gpu_memory_mib == 0
            && self.state.cluster.rules.is_none();
        if plain {
            let totals = self.machines.totals.iter().enumerate();
            let usable =
                totals.filter(|(kind, _)| want.accepts(trainyard_types::GpuType(*kind as u8)));
            return usable.map(|(_, total)| *total).max().unwrap_or(0);
        }
        self.state.cluster.largest_size(want, want.gpus_max)
    }
}

/// Where not every size can be launched, the sizes that a job names become the nearest that can.
pub(crate) fn even(mut job: Arc<Job>, cluster: &Cluster) -> Arc<Job> {
    if !cluster.rules.equal_per_node {
        return job;
    }
    let want = &job.want;
    let least = cluster.smallest_size(want, want.gpus_min).unwrap_or(want.gpus_min);
    let wanted = cluster.largest_size(want, want.gpus).max(least);
    if (least, wanted) != (want.gpus_min, want.gpus) {
        let want = &mut Arc::make_mut(&mut job).want;
        (want.gpus_min, want.gpus) = (least, wanted);
    }
    job
}

/// An elastic job that asks for more than there could ever be gets the most there could be.
fn within(mut job: Arc<Job>, most: u32) -> Arc<Job> {
    if job.want.gpus > most || job.want.gpus_max > most {
        let want = &mut Arc::make_mut(&mut job).want;
        want.gpus = want.gpus.min(most);
        want.gpus_max = want.gpus_max.min(most);
    }
    job
}
