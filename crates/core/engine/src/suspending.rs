//! Jobs that are put aside in host memory without their help, and brought back on the same GPUs.
//!
//! There are three ways to stop a job for another one: put it aside, let it save and exit, or kill it. The cheapest is
//! taken, by what was measured of the job before or else by what is believed. A job that is put aside keeps its attempt,
//! waits in the queue like any other, and is tied to its own GPUs for a while; its time limit stands still. When it must
//! leave for good (it is to go on elsewhere, or no policy lets it go on) it gets its GPUs once more to save, where they are
//! free; where they are not it is killed, and what it had not saved is lost and counted.
//!
//! Each of these looks at what one job holds, and at the jobs put aside, of which the memory of a node bounds the number.

use crate::engine::{Engine, Timer};
use trainyard_framework::{JobRef, Live, Way};
use trainyard_types::{
    Action, Allocation, Attempt, End, JobId, NodeId, Phase, Span, Suspended, Time, Why,
};

impl Engine {
    /// The cheapest way to stop a job for another one.
    pub(crate) fn way_to_stop(&self, at: Time, job: JobId) -> Way {
        if self.state.aside.rule.is_none() {
            return Way::Save;
        }
        let live = self.state.live(job).filter(|live| live.state.phase == Phase::Running);
        let Some((live, held)) = live.and_then(|live| Some((live, live.state.held.as_ref()?)))
        else {
            return Way::Save;
        };
        let ran = live.state.last_start.map_or(Span::ZERO, |start| at.since(start));
        let job = JobRef { spec: &live.spec, state: &live.state };
        let knows = (&*self.state.cluster, &*self.beliefs);
        self.state.aside.cheapest(job, held, knows, Some(ran)).0
    }

    /// Has a running job put aside; its GPUs are its own until that is done.
    pub(crate) fn suspend(&mut self, at: Time, job: JobId, attempt: Attempt, memory_mib: u64) {
        self.assert_stoppable(at, job);
        self.resizing.remove(&job);
        self.rest(at, job);
        let live = self.state_mut().live_mut(job).expect("caller checked");
        live.state.preemptions += 1;
        live.state.suspends += 1;
        let node = live.state.held.as_ref().and_then(|held| held.placement.masks().first());
        let node = node.expect("a running job holds GPUs").0;
        self.stats.preemptions += 1;
        self.state_mut().aside.taken.insert(job, (node, memory_mib));
        self.suspending.insert(job);
        self.outbox.push(Action::Suspend { job, attempt, memory_mib });
    }

    /// The job is put aside and its GPUs are free.
    pub(crate) fn suspended(&mut self, at: Time, job: JobId, attempt: Attempt, memory_mib: u64) {
        if !self.is_current(job, attempt, &[Phase::Saving]) {
            return;
        }
        if !self.suspending.remove(&job) {
            self.stats.stale_events += 1;
            return;
        }
        let lost = self.evicted.contains(&job);
        let leaves = lost || self.ending.contains_key(&job);
        let sent_back = self.requeued.contains(&job);
        self.clear_orders(job);
        // What was not measured takes what was set aside for it.
        let reserved = self.state.aside.taken.get(&job).map_or(0, |(_, memory)| *memory);
        let memory_mib = if memory_mib == 0 { reserved } else { memory_mib };
        let began = self.state.live(job).expect("current").state.since;
        let own = &mut self.enter(at, job, Phase::Suspended).state;
        let held = own.held.take().expect("a job that is put aside held GPUs");
        own.aside.get_or_insert_default().out = at.since(began);
        own.queued_at = at;
        own.suspended = Some(Box::new(Suspended { home: held.clone(), since: at, memory_mib }));
        let planned = own.planned.is_some();
        self.let_go(at, &held);
        self.stats.suspends += 1;
        let state = self.state_mut();
        state.changed.push(job);
        if let Some((_, memory)) = state.aside.taken.get_mut(&job) {
            *memory = memory_mib;
        }
        self.timers.insert((self.state.aside.tied_until(at), Timer::Away(job, attempt)));
        if leaves {
            self.discard(job, attempt, if lost { Why::Machine } else { Why::Dropped });
        } else if sent_back {
            // Its user wants this attempt to end: its GPUs are free at this moment, so that it can save.
            self.leave_memory(at, job, Why::Asked);
        } else if planned {
            self.dirty.insert(job);
            self.leave_what_is_out(at, job);
        }
        self.wants_decision = true;
    }

    /// Whether a job would lose all that it did if it were stopped now: it cannot save, and could be put aside at most.
    pub(crate) fn would_lose_all(&self, job: JobId) -> bool {
        let live = self.state.live(job).filter(|live| !live.spec.saves);
        let has_done =
            |live: &Live| live.state.phase == Phase::Running || live.state.suspended.is_some();
        self.state.aside.rule.is_some() && live.is_some_and(has_done)
    }

    /// A job that was to go for others keeps its GPUs after all, and those that were to have them wait again. False if it
    /// may not have them any more. Linear in granted jobs.
    pub(crate) fn keeps_its_gpus(&mut self, at: Time, job: JobId) -> bool {
        let held = self.state.live(job).and_then(|live| live.state.held.clone());
        let Some(held) = held else { return false };
        let waits_for = |other: &JobId| {
            let state = self.state.live(*other).map(|live| &live.state);
            let planned = state.filter(|state| state.held.is_none())?.planned.as_ref()?;
            planned.placement.overlaps(&held.placement).then_some(*other)
        };
        let heirs: Vec<JobId> =
            self.state.granted.iter().filter_map(|one| waits_for(&one)).collect();
        for heir in heirs {
            self.unplan(at, heir);
        }
        self.wants_decision = true;
        self.plan(at, job, held, true).is_ok()
    }

    /// The job could not be put aside and runs on: it saves and exits instead, and is not asked again. One that cannot
    /// save stays where it is.
    pub(crate) fn not_suspended(&mut self, at: Time, job: JobId, attempt: Attempt) {
        if !self.is_current(job, attempt, &[Phase::Saving]) {
            return;
        }
        if !self.suspending.remove(&job) {
            self.stats.stale_events += 1;
            return;
        }
        let state = self.state_mut();
        state.aside.refused.insert(job);
        state.aside.taken.remove(&job);
        if let Some(live) = state.live_mut(job) {
            live.state.suspends -= 1;
        }
        self.touched.insert(job);
        let saves = self.state.live(job).is_none_or(|live| live.spec.saves);
        if !saves && self.is_preempted(job) && self.keeps_its_gpus(at, job) {
            let live = self.enter(at, job, Phase::Running);
            live.state.preemptions -= 1;
            self.stats.preemptions -= 1;
            self.state_mut().changed.push(job);
            return;
        }
        self.outbox.push(Action::Stop { job, attempt, why: Why::Preempted });
    }

    /// Brings a job back on its own GPUs, or lets it leave for good where it is to go on elsewhere.
    pub(crate) fn resume(&mut self, at: Time, job: JobId, planned: Allocation) {
        if self.discarding.contains(&job) {
            return;
        }
        let live = self.state.live(job).expect("caller checked");
        let (attempt, run_max) = (live.state.attempt, live.spec.run_max);
        let own = live.state.suspended.as_ref().expect("caller checked");
        if !own.home.same_place(&planned) {
            self.leave_memory(at, job, Why::Moved);
            return;
        }
        self.real.take(&planned);
        let own = &mut self.enter(at, job, Phase::Starting).state;
        own.last_start = Some(at);
        own.held = Some(planned.clone());
        let ran = own.ran;
        self.state_mut().changed.push(job);
        if let Some(limit) = run_max {
            self.timers.insert((at + limit.minus(ran), Timer::Limit(job, attempt)));
        }
        self.stats.resumes += 1;
        self.dirty.remove(job);
        self.outbox.push(Action::Resume { job, attempt, allocation: planned });
    }

    /// A job that was brought back runs: it takes no host memory any more.
    pub(crate) fn came_back(&mut self, at: Time, job: JobId) {
        let live = self.state_mut().live_mut(job).expect("current");
        let Some(own) = live.state.suspended.take() else { return };
        let since = live.state.last_start.unwrap_or(own.since);
        let spans = live.state.aside.get_or_insert_default();
        // A resume that took no time is one that was measured all the same.
        spans.back = at.since(since).max(Span(1));
        spans.away = since.since(own.since);
        self.state_mut().aside.taken.remove(&job);
    }

    /// A job that is put aside has to go for good: it gets its GPUs once more to save, if they are free, and is killed
    /// otherwise.
    fn leave_memory(&mut self, at: Time, job: JobId, why: Why) {
        let live = self.state.live(job).expect("caller checked");
        let (attempt, saves) = (live.state.attempt, live.spec.saves);
        let own = live.state.suspended.as_ref().expect("caller checked");
        let (home, away) = (own.home.clone(), at.since(own.since));
        let live = self.state_mut().live_mut(job).expect("caller checked");
        // It took memory for nothing, which counts when it is to go the next time.
        live.state.aside.get_or_insert_default().away = away;
        if !saves || !self.can_save_at(&home) {
            self.discard(job, attempt, Why::Dropped);
            return;
        }
        self.real.take(&home);
        self.enter(at, job, Phase::Saving).state.held = Some(home);
        self.state_mut().changed.push(job);
        self.outbox.push(Action::Stop { job, attempt, why });
    }

    /// Whether a job could have its GPUs once more: no other job uses them, and they work.
    fn can_save_at(&self, home: &Allocation) -> bool {
        let well = |(node, mask): &(NodeId, u64)| mask & !self.machines.sound(*node) == 0;
        self.has_really_room(&self.real, home) && home.placement.masks().iter().all(well)
    }

    /// Kills a job that is put aside; it goes back to what it saved last.
    pub(crate) fn discard(&mut self, job: JobId, attempt: Attempt, why: Why) {
        if self.discarding.insert(job) {
            self.touched.insert(job);
            self.stats.dropped += 1;
            self.outbox.push(Action::Stop { job, attempt, why });
        }
    }

    /// A job that is put aside ends: what it had not saved is lost.
    pub(crate) fn end_aside(&mut self, at: Time, job: JobId, end: End) {
        self.unplan(at, job);
        self.leave_queue(job);
        self.ending.insert(job, end);
        let attempt = self.state.live(job).expect("caller checked").state.attempt;
        self.discard(job, attempt, Why::Dropped);
        self.wants_decision = true;
    }

    /// Jobs put aside on GPUs that are gone are gone with them.
    pub(crate) fn evict_aside(&mut self, at: Time, node: NodeId, mask: u64) {
        let of_node = self.state.aside.taken.iter().filter(|(_, (other, _))| *other == node);
        let jobs: Vec<JobId> = of_node.map(|(job, _)| *job).collect();
        for job in jobs {
            let Some(live) = self.state.live(job) else { continue };
            let attempt = live.state.attempt;
            let own =
                live.state.suspended.as_ref().filter(|_| live.state.phase == Phase::Suspended);
            if own.is_some_and(|own| own.home.placement.mask(node) & mask != 0) {
                self.unplan(at, job);
                self.discard(job, attempt, Why::Machine);
            }
        }
    }

    /// A job has waited for its own GPUs for as long as it does: it may go elsewhere. One that is held leaves
    /// as soon as it can save.
    pub(crate) fn away_for_long(&mut self, at: Time, job: JobId, attempt: Attempt) {
        let Some(live) = self.state.live(job) else { return };
        let Some(own) = live.state.suspended.as_ref() else { return };
        let (since, home) = (own.since, own.home.clone());
        let current = live.state.attempt == attempt && live.state.phase == Phase::Suspended;
        if !current || self.state.aside.tied_until(since) > at {
            return;
        }
        if self.blocked.contains_key(&job) && !self.discarding.contains(&job) {
            if self.can_save_at(&home) {
                self.leave_memory(at, job, Why::Asked);
            } else {
                // Its GPUs are in use: it is looked at again after as long, and nothing is lost meanwhile.
                let again = self.state.aside.tied_until(at).max(at + Span::secs(1));
                self.timers.insert((again, Timer::Away(job, attempt)));
            }
        }
        self.state_mut().changed.push(job);
        self.wants_decision = true;
    }

    /// Whether a job is being put aside, and not stopped.
    pub fn is_suspending(&self, job: JobId) -> bool {
        self.suspending.contains(&job)
    }

    /// Whether a job that is put aside is being killed.
    pub fn is_discarding(&self, job: JobId) -> bool {
        self.discarding.contains(&job)
    }

    /// Nothing of a job is put aside any more.
    pub(crate) fn forget_aside(&mut self, job: JobId) {
        if self.state.aside.taken.is_empty() && self.state.aside.refused.is_empty() {
            return;
        }
        self.suspending.remove(&job);
        self.discarding.remove(&job);
        let state = self.state_mut();
        state.aside.refused.remove(&job);
        state.aside.taken.remove(&job);
        if let Some(live) = state.live_mut(job) {
            live.state.suspended = None;
        }
    }

    /// Puts back what was kept of a job that was put aside, or is about to be.
    pub(crate) fn restore_aside(&mut self, job: JobId, kept: [bool; 3]) {
        let [suspending, discarding, refused] = kept;
        let live = self.state.live(job).expect("just put there");
        let attempt = live.state.attempt;
        let node = |held: &Allocation| held.placement.masks().first().map(|(node, _)| *node);
        if let Some(own) = &live.state.suspended
            && let Some(node) = node(&own.home)
        {
            let (memory, until) = (own.memory_mib, self.state.aside.tied_until(own.since));
            self.state_mut().aside.taken.insert(job, (node, memory));
            self.timers.insert((until, Timer::Away(job, attempt)));
        } else if let (true, Some(held)) = (suspending, &live.state.held)
            && let Some((node, memory)) =
                self.state.aside.need(&live.spec, held, &self.state.cluster)
        {
            self.state_mut().aside.taken.insert(job, (node, memory));
            self.suspending.insert(job);
        }
        if discarding {
            self.discarding.insert(job);
        }
        if refused {
            self.state_mut().aside.refused.insert(job);
        }
    }

    /// What is put aside is counted, and holds no GPUs.
    pub(crate) fn assert_aside(&self, live: &Live) {
        let (id, state) = (live.spec.id, &live.state);
        let kept = state.suspended.is_some() || self.suspending.contains(&id);
        assert_eq!(
            kept,
            self.state.aside.taken.contains_key(&id),
            "the memory of {id}, which is put aside, is counted"
        );
        assert!(
            state.phase != Phase::Suspended || state.suspended.is_some() && state.held.is_none(),
            "{id} is put aside and holds GPUs, or has no place to go back to"
        );
    }
}
