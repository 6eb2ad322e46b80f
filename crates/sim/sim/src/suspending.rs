//! Jobs that are put aside in host memory, as the world has it: what it takes, and what is lost when they never return.

use crate::queue::Future;
use crate::truth::Truth;
use crate::world::{Placed, Stage, World, is_shared};
use trainyard_types::{Allocation, Attempt, Event, JobId, Rate, Span, Time, Why, Work};

impl World<'_> {
    /// A running job is put aside; it holds its GPU until that is done.
    pub(crate) fn suspend(
        &mut self,
        at: Time,
        (job, attempt): (JobId, Attempt),
        memory_mib: u64,
        events: &mut Vec<Event>,
    ) {
        if self.placed.get(job).is_none_or(|placed| placed.attempt != attempt) {
            return;
        }
        self.catch_up(at, job);
        let faster = self.leave_links(at, job);
        let saved = self.checkpointed(at, &self.placed[job]);
        let placed = self.placed.get_mut(job).expect("just found");
        let cost = self.truth.suspend(self.truth.job(job), &placed.config, memory_mib);
        // What it does after it came back is at risk together with what it had not saved before.
        placed.saved = saved;
        placed.saved_at = at;
        placed.stage = Stage::Saving;
        placed.task = None;
        placed.rate = Rate(0.0);
        placed.promise = 0;
        placed.memory_mib = memory_mib;
        self.retime_on_links(at, &faster, events);
        self.queue.push(at + cost.out, Future::Suspended { job, attempt });
    }

    /// It is in host memory, and its GPU is free. What it saved last is what it was before.
    pub(crate) fn put_aside(&mut self, at: Time, job: JobId, events: &mut Vec<Event>) {
        let placed = self.remove(at, job);
        let (attempt, memory_mib) = (placed.attempt, placed.memory_mib);
        let idle = at.since(placed.saved_at).as_secs_f64() * f64::from(placed.config.gpus);
        self.overhead += idle;
        self.restarting += idle;
        self.done.insert(job, placed.done);
        self.depart(at, &placed, Event::Suspended { job, attempt, memory_mib }, events);
        self.aside.insert(job, placed);
    }

    /// It comes back on the same GPU.
    pub(crate) fn resume(
        &mut self,
        at: Time,
        (job, attempt): (JobId, Attempt),
        allocation: Allocation,
        events: &mut Vec<Event>,
    ) {
        let Some(mut placed) = self.aside.remove(&job) else { return };
        debug_assert_eq!(placed.attempt, attempt, "the same attempt goes on");
        placed.config = self.config(job, &allocation);
        placed.shares = is_shared(&allocation);
        placed.allocation = allocation;
        let cost = self.come_home(at, job, placed);
        if cost == Span::ZERO {
            self.begin(at, job, events);
        } else {
            self.queue.push(at + cost, Future::Started { job, attempt });
        }
    }

    /// Puts a job that was put aside on its GPU again. Says how long it takes to be there.
    fn come_home(&mut self, at: Time, job: JobId, mut placed: Box<Placed>) -> Span {
        placed.stage = Stage::Starting;
        placed.resumes = true;
        placed.at = at;
        placed.exact_at = self.exact(at);
        let cost = self.truth.suspend(self.truth.job(job), &placed.config, placed.memory_mib);
        placed.saved_at = at;
        self.put_down(job, *placed);
        cost.back
    }

    /// A job that is put aside leaves for good: it comes back to save, or is killed. False if it is not put aside.
    pub(crate) fn stop_aside(
        &mut self,
        at: Time,
        (job, attempt): (JobId, Attempt),
        why: Why,
        events: &mut Vec<Event>,
    ) -> bool {
        let Some(placed) = self.aside.remove(&job) else { return false };
        if matches!(why, Why::Machine | Why::Dropped) {
            let done = placed.saved;
            self.lost += self.worth(job, &placed, done);
            self.done.insert(job, done);
            events.push(Event::Stopped { job, attempt, done });
            return true;
        }
        let save = self.truth.change(self.truth.job(job), Some(&placed.config), None).save;
        let back = self.come_home(at, job, placed);
        let placed = self.placed.get_mut(job).expect("just put there");
        placed.stage = Stage::Saving;
        self.queue.push(at + back + save, Future::Stopped { job, attempt });
        true
    }

    /// Work that a job has on disk: what it began with, and what it saved since on its own.
    pub(crate) fn checkpointed(&self, at: Time, placed: &Placed) -> Work {
        if self.checkpoint_every.0 == 0 {
            return placed.saved;
        }
        self.safe(at, placed)
    }

    /// GPU-seconds that it takes to do again what a job loses, at the pace it would have now.
    fn worth(&self, job: JobId, placed: &Placed, kept: Work) -> f64 {
        let pace = self.truth.pace(self.truth.job(job), &placed.config, kept);
        let rate = pace.map_or(0.0, |pace| pace.rate.0);
        if rate > 0.0 { (placed.done - kept).0 / rate * f64::from(placed.config.gpus) } else { 0.0 }
    }
}
