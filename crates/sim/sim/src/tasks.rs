//! Rounds that end with the slowest: each job does the whole steps that fit into a round and then waits.
//!
//! Gavel's simulator counts time in real seconds. The moments here are those seconds to the nearest microsecond: what
//! is exact is kept beside the clock from round to round, so that a thousand rounds are no further off than one.

use crate::options::{Options, Rounding};
use crate::queue::Future;
use crate::truth::Truth;
use crate::world::{Stage, World};
use std::collections::HashMap;
use trainyard_engine::Trigger;
use trainyard_types::{Event, JobId, Placement, Sample, Span, Time, Work};

/// The rounds of a world.
pub(crate) struct Rounds {
    /// How long a round is meant to take, in seconds.
    length: f64,
    whole_steps: bool,
    /// The newest round; 0 before the first.
    pub(crate) number: u32,
    /// When it began and when its slowest will be done, in seconds.
    began: f64,
    ends: f64,
}

impl Rounds {
    /// Rounds as the options say; nothing if decisions do not wait for a barrier.
    pub(crate) fn new(options: &Options) -> Option<Rounds> {
        let Trigger::Barrier(length) = options.trigger else { return None };
        let whole_steps = options.rounding == Rounding::WholeSteps;
        let length = length.max(Span(1)).as_secs_f64();
        Some(Rounds { length, whole_steps, number: 0, began: 0.0, ends: 0.0 })
    }

    /// What is left of the round at a moment; a whole one for a job that begins when it should have ended.
    fn left(&self, now: f64) -> f64 {
        let left = self.began + self.length - now;
        if left > 0.0 { left } else { self.length }
    }
}

/// A job's part of a round.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Task {
    /// When it began and when it will be done, in seconds.
    began: f64,
    ends: f64,
    /// Work done at both moments.
    before: Work,
    after: Work,
    /// Whether the job ends with it, well or badly.
    is_last: bool,
}

impl Task {
    /// The work done at a moment: whole steps, as far as there were any.
    pub(crate) fn done_at(&self, at: Time) -> Work {
        let (now, whole) = (at.as_secs_f64(), self.after - self.before);
        if at >= Time::from_secs_f64(self.ends) {
            return self.after;
        }
        let part = (now - self.began) / (self.ends - self.began);
        self.before + Work((whole.0 * part).floor().max(0.0))
    }
}

impl World<'_> {
    /// Whether decisions wait for a barrier.
    pub(crate) fn keeps_rounds(&self) -> bool {
        self.rounds.is_some()
    }

    /// A decision was taken and obeyed: every job that runs is given its part of a new round.
    pub(crate) fn begin_round(&mut self, at: Time) {
        let Some(rounds) = &mut self.rounds else { return };
        let now = at.as_secs_f64();
        // The moment of a barrier is what the clock makes of it.
        rounds.began = if Time::from_secs_f64(rounds.ends) == at { rounds.ends } else { now };
        rounds.ends = rounds.began;
        rounds.number += 1;
        let jobs: Vec<JobId> = self.running().collect();
        for job in &jobs {
            let rounds = self.rounds.as_ref().expect("checked above");
            let (began, length) = (rounds.began, rounds.length);
            self.set_task(at, *job, (began, length));
        }
        self.wait_for_partners(&jobs);
        for job in jobs {
            self.promise_end(job);
        }
        if !self.placed.is_empty() {
            self.set_barrier(at);
        }
    }

    /// A job whose start took until now does what is left of the round.
    pub(crate) fn join_round(&mut self, at: Time, job: JobId) {
        let Some(rounds) = &self.rounds else { return };
        let now = at.as_secs_f64();
        let left = rounds.left(now);
        self.set_task(at, job, (now, left));
        self.promise_end(job);
    }

    /// The slowest has done its part; unless a job began meanwhile, the round ends.
    pub(crate) fn barrier(&mut self, at: Time, number: u32, events: &mut Vec<Event>) {
        let Some(rounds) = self.rounds.as_ref().filter(|rounds| rounds.number == number) else {
            return;
        };
        if Time::from_secs_f64(rounds.ends) > at {
            return self.set_barrier(at);
        }
        for job in self.running().collect::<Vec<JobId>>() {
            self.catch_up(at, job);
            let placed = &self.placed[job];
            let (done, rate) = (Some(placed.done), Some(placed.rate));
            let sample = Sample { done, rate, ..Sample::default() };
            events.push(Event::Report { job, attempt: placed.attempt, sample });
        }
        events.push(Event::RoundOver);
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = JobId> {
        let placed = self.placed.iter();
        placed.filter(|(_, placed)| placed.stage == Stage::Running).map(|(job, _)| job)
    }

    /// Measures out a job's part: the whole steps it can do in so many seconds, and one at least.
    fn set_task(&mut self, at: Time, job: JobId, (began, seconds): (f64, f64)) {
        self.catch_up(at, job);
        let whole_steps = self.rounds.as_ref().is_some_and(|rounds| rounds.whole_steps);
        let truth = self.truth.job(job);
        let goal = truth.fails_at.filter(|fails| fails.0 < truth.work.0).unwrap_or(truth.work);
        let placed = self.placed.get_mut(job).expect("only placed jobs have a part");
        let (rate, left) = (placed.rate.0, (goal - placed.done).0.max(0.0));
        let fit = if whole_steps { (rate * seconds).floor().max(1.0) } else { rate * seconds };
        let steps = fit.min(left);
        let ends = if rate > 0.0 { began + steps / rate } else { began + seconds };
        let is_last = rate > 0.0 && steps >= left;
        // Not by adding up, or a job could end a hair before its goal.
        let after = match (is_last, rate > 0.0) {
            (true, _) => goal,
            (false, true) => placed.done + Work(steps),
            (false, false) => placed.done,
        };
        placed.task = Some(Task { began, ends, before: placed.done, after, is_last });
    }

    /// Jobs that share GPUs are done when the slowest of them is.
    fn wait_for_partners(&mut self, jobs: &[JobId]) {
        if !jobs.iter().any(|job| self.placed[*job].shares) {
            return;
        }
        let mut slowest: HashMap<Placement, f64> = HashMap::new();
        for job in jobs {
            let placed = &self.placed[*job];
            let ends = placed.task.map_or(0.0, |task| task.ends);
            let known = slowest.entry(placed.allocation.placement.clone()).or_insert(ends);
            *known = known.max(ends);
        }
        for job in jobs {
            let placed = self.placed.get_mut(*job).expect("just listed");
            if let Some(task) = &mut placed.task {
                task.ends = slowest[&placed.allocation.placement];
            }
        }
    }

    /// Promises the end of a job that ends with its part of the round.
    fn promise_end(&mut self, job: JobId) {
        self.promises += 1;
        let promise = self.promises;
        let truth = self.truth.job(job);
        let placed = self.placed.get_mut(job).expect("only placed jobs promise");
        placed.promise = promise;
        let Some(task) = placed.task else { return };
        if let Some(rounds) = &mut self.rounds {
            rounds.ends = rounds.ends.max(task.ends);
        }
        if task.is_last {
            let fails = truth.fails_at.is_some_and(|fails| fails.0 < truth.work.0);
            let future =
                if fails { Future::Fail { job, promise } } else { Future::Finish { job, promise } };
            self.queue.push(Time::from_secs_f64(task.ends), future);
        }
    }

    /// Looks again when the slowest should be done; those still starting are given the round to begin.
    fn set_barrier(&mut self, at: Time) {
        let starting = self.placed.values().any(|placed| placed.stage != Stage::Running);
        let Some(rounds) = &mut self.rounds else { return };
        let meant = rounds.began + rounds.length;
        if starting && Time::from_secs_f64(meant) > at {
            rounds.ends = rounds.ends.max(meant);
        }
        self.queue.push(
            Time::from_secs_f64(rounds.ends).max(at),
            Future::Barrier { number: rounds.number },
        );
    }
}
