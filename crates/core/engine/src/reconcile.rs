//! Plan against reality: stops first, then launches on GPUs that are really free.

use crate::engine::{Engine, Timer};
use crate::occupancy::Occupancy;
use smallvec::SmallVec;
use trainyard_framework::Way;
use trainyard_types::{Action, Allocation, Attempt, End, JobId, NodeId, Phase, Time, Why};

impl Engine {
    /// Turns the difference between plan and reality into actions. What cannot be done yet stays for later.
    pub(crate) fn reconcile(&mut self, at: Time) {
        if self.dirty.is_empty() {
            return;
        }
        let mut dirty: SmallVec<[JobId; 8]> = self.dirty.iter().collect();
        if dirty.len() > 1 && self.state.aside.rule.is_some() {
            // Those that cannot save come first: the memory is theirs before others take it.
            dirty.sort_by_key(|job| self.state.live(*job).is_none_or(|live| live.spec.saves));
        }
        // Shares and memory that are given up come first: another job on the same GPU may be waiting for them.
        if dirty.len() > 1 && dirty.iter().any(|job| self.gives_up_something(*job)) {
            dirty.sort_by_key(|job| !self.gives_up_something(*job));
        }
        dirty.retain(|job| !self.settle(at, *job));
        for job in dirty {
            self.launch(at, job);
        }
    }

    /// Stops or adjusts a job that holds GPUs. False if it holds none and is to be launched.
    fn settle(&mut self, at: Time, job: JobId) -> bool {
        let Some(live) = self.state.live(job) else {
            self.dirty.remove(job);
            return true;
        };
        let state = &live.state;
        let Some(held) = &state.held else {
            if state.planned.is_none() {
                self.dirty.remove(job);
                return true;
            }
            return false;
        };
        let attempt = state.attempt;
        // A job that is sent back to the queue stops, also where a decision gave it the same place again meanwhile.
        if self.requeued.contains(&job) && state.phase != Phase::Saving {
            self.stop(at, job, attempt);
            return true;
        }
        if self.is_resizing(job) && state.planned.is_some() {
            // It was told of other GPUs, and one thing is asked of it at a time.
            return true;
        }
        match &state.planned {
            Some(planned) if planned == held && state.phase != Phase::Saving => {
                self.dirty.remove(job);
            }
            Some(planned) if self.adjustable(job) => {
                let change = (held.clone(), planned.clone());
                self.adjust(at, job, change);
            }
            // It stays where it is, and another job has not given up its share yet.
            Some(planned) if planned.same_place(held) => {}
            None if state.phase != Phase::Saving && self.is_preempted(job) => {
                match self.way_to_stop(at, job) {
                    Way::Suspend(memory) => self.suspend(at, job, attempt, memory),
                    // There was room when it was decided, and there is none any more.
                    _ if self.would_lose_all(job) && self.keeps_its_gpus(at, job) => {
                        self.dirty.remove(job);
                    }
                    way => self.stop_by(at, (job, attempt), way),
                }
            }
            _ if state.phase != Phase::Saving => self.stop(at, job, attempt),
            _ => {}
        }
        true
    }

    /// Whether a job is to go on where it is with less of its GPUs' time or memory.
    fn gives_up_something(&self, job: JobId) -> bool {
        let Some(live) = self.state.live(job) else { return false };
        let (Some(held), Some(planned)) = (&live.state.held, &live.state.planned) else {
            return false;
        };
        let less_memory = planned.gpu_memory_mib < held.gpu_memory_mib;
        planned.same_place(held) && (less_memory || !held.is_kept_in(planned))
    }

    /// Lets a job go on with its new allocation: at once, or as soon as it says so where the host must ask it.
    fn adjust(&mut self, at: Time, job: JobId, (held, planned): (Allocation, Allocation)) {
        let attempt = self.state.live(job).expect("caller checked").state.attempt;
        let moves = !planned.same_place(&held);
        let action = Action::Adjust { job, attempt, allocation: planned.clone() };
        match self.setup.resize_wait.filter(|_| moves) {
            Some(wait) => self.begin_resize(at, job, (held, planned), wait),
            None => {
                if moves {
                    self.hold_instead(at, job, planned);
                } else {
                    self.real.give(&held);
                    self.real.take(&planned);
                    if planned.shares != held.shares {
                        let phase = self.state.live(job).expect("live").state.phase;
                        self.enter(at, job, phase);
                    }
                    self.state_mut().live_mut(job).expect("live").state.held = Some(planned);
                }
                self.dirty.remove(job);
            }
        }
        self.touched.insert(job);
        self.outbox.push(action);
    }

    /// Whether a job can go on with its new allocation without a restart.
    fn adjustable(&self, job: JobId) -> bool {
        let live = self.state.live(job).expect("caller checked");
        let state = &live.state;
        let (Some(held), Some(planned)) = (&state.held, &state.planned) else { return false };
        if state.phase == Phase::Saving {
            return false;
        }
        if planned.same_place(held) {
            return held.shares == planned.shares || self.real.fits_instead(held, planned);
        }
        // The model is on the GPUs that it holds: one of them must stay to hand it over.
        if !planned.placement.overlaps(&held.placement) || self.must_go(job) {
            return false;
        }
        if self.setup.resize_wait.is_some() && !self.can_be_asked(live) {
            return false;
        }
        let cluster = &self.state.cluster;
        let (from, to) = (held.config(cluster), planned.config(cluster));
        if !self.beliefs.change(&live.spec, Some(&from), Some(&to)).in_place {
            return false;
        }
        let mut real = self.real.clone();
        real.give(held);
        self.has_really_room(&real, planned)
    }

    /// Whether no other job is in the way any more, by what is in use and not by what is planned.
    pub(crate) fn has_really_room(&self, real: &Occupancy, planned: &Allocation) -> bool {
        let cluster = &self.state.cluster;
        let mut nodes = planned.placement.masks().iter();
        let alone = |node: NodeId| real.used(node, cluster.node(node).mask()) == 0;
        real.fits(planned)
            && real.has_host_for(planned)
            && (!cluster.rules.exclusive_nodes || nodes.all(|(node, _)| alone(*node)))
    }

    /// Whether a job that runs without a grant goes for another one, and for no other reason.
    pub(crate) fn is_preempted(&self, job: JobId) -> bool {
        !self.ending.contains_key(&job)
            && !self.must_go(job)
            && !self.blocked.contains_key(&job)
            && !self.requeued.contains(&job)
    }

    pub(crate) fn stop(&mut self, at: Time, job: JobId, attempt: Attempt) {
        self.stop_by(at, (job, attempt), Way::Save);
    }

    /// A job holds what it has and makes no more progress.
    pub(crate) fn rest(&mut self, at: Time, job: JobId) {
        let progress = &mut self.enter(at, job, Phase::Saving).state.progress;
        progress.done = progress.done_at(at);
        progress.at = at;
        progress.rate = trainyard_types::Rate(0.0);
    }

    fn stop_by(&mut self, at: Time, (job, attempt): (JobId, Attempt), way: Way) {
        let planned = self.state.live(job).is_some_and(|live| live.state.planned.is_some());
        let why = match self.ending.get(&job) {
            Some(End::TimeLimit) => Why::TimeLimit,
            Some(End::Pruned) => Why::Pruned,
            Some(_) => Why::Asked,
            None if self.evicted.contains(&job) => Why::Machine,
            None if self.leaving.contains(&job) => Why::Window,
            None if self.blocked.contains_key(&job) || self.requeued.contains(&job) => Why::Asked,
            None if planned => Why::Moved,
            None => Why::Preempted,
        };
        if matches!(why, Why::Preempted | Why::Moved) {
            self.assert_stoppable(at, job);
        }
        self.resizing.remove(&job);
        self.rest(at, job);
        let live = self.state_mut().live_mut(job).expect("caller checked");
        match why {
            Why::Preempted => {
                live.state.preemptions += 1;
                self.stats.preemptions += 1;
            }
            Why::Moved => self.stats.moves += 1,
            Why::Asked
            | Why::TimeLimit
            | Why::Pruned
            | Why::Machine
            | Why::Window
            | Why::Dropped => {}
        }
        let drops = why == Why::Preempted && way == Way::Drop;
        self.stats.dropped += u64::from(drops);
        let why = if drops { Why::Dropped } else { why };
        self.outbox.push(Action::Stop { job, attempt, why });
    }

    fn launch(&mut self, at: Time, job: JobId) {
        let planned = self.state.live(job).and_then(|live| live.state.planned.clone());
        let Some(planned) = planned else { return };
        if !self.has_really_room(&self.real, &planned) {
            // Its GPUs are still being given up; it is tried again when they are free.
            return;
        }
        if self.shut_at(job, &planned).is_some() {
            // It was planned in time, and its GPUs came free too late for it to be gone before a window.
            self.unplan(at, job);
            self.dirty.remove(job);
            self.wants_decision = true;
            self.wake_at = Some(at);
            return;
        }
        if self.state.live(job).is_some_and(|live| live.state.suspended.is_some()) {
            return self.resume(at, job, planned);
        }
        self.real.take(&planned);
        let live = self.enter(at, job, Phase::Starting);
        let run_max = live.spec.run_max;
        let own = &mut live.state;
        own.attempt = Attempt(own.attempt.0 + 1);
        own.restarts = own.attempt.0 - 1;
        own.first_start.get_or_insert(at);
        own.last_start = Some(at);
        own.held = Some(planned.clone());
        let (attempt, ran) = (own.attempt, own.ran);
        self.state_mut().changed.push(job);
        if let Some(limit) = run_max {
            self.timers.insert((at + limit.minus(ran), Timer::Limit(job, attempt)));
        }
        self.stats.launches += 1;
        self.dirty.remove(job);
        self.outbox.push(Action::Launch { job, attempt, allocation: planned });
    }
}
