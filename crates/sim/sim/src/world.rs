//! The simulated world: it obeys actions, and knows the truth about work and speed.

use crate::occupants::Occupants;
use crate::on_links::OnLinks;
use crate::options::{Charge, Distance, Options, Rounding};
use crate::placed::PlacedJobs;
use crate::queue::{Future, Queue};
use crate::regroup::Regroup;
use crate::tasks::{Rounds, Task};
use crate::truth::{Known, Truth};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use trainyard_engine::Trigger;
use trainyard_profile::{ColocationModel, Pace};
use trainyard_types::{
    Action, Allocation, Attempt, Cause, Cluster, Config, Event, JobId, ModelId, Rate, Sample, Span,
    Time, Why, Work,
};
use trainyard_workload::TraceJob;
use trainyard_workload::tells::TrainingSignals;

/// A job that holds GPUs.
pub(crate) struct Placed {
    pub(crate) attempt: Attempt,
    pub(crate) allocation: Allocation,
    pub(crate) config: Config,
    pub(crate) model: ModelId,
    pub(crate) stage: Stage,
    /// Work done at `at`; grows by `rate`.
    pub(crate) done: Work,
    pub(crate) at: Time,
    pub(crate) rate: Rate,
    /// The work done at which the rate changes by itself.
    pub(crate) until: Option<Work>,
    /// Work safe from failures at `saved_at`, the last time the job stood on firm ground.
    pub(crate) saved: Work,
    pub(crate) saved_at: Time,
    pub(crate) promise: u32,
    /// Whether it has only a share of its GPUs.
    pub(crate) shares: bool,
    /// Its part of the round, where rounds are kept.
    pub(crate) task: Option<Task>,
    /// Whether it only waits for a decision to be paid for, and has been running before.
    paused: bool,
    /// Whether it comes back from host memory, so that a stop has to wait until it can save.
    pub(crate) resumes: bool,
    /// Host memory that it takes while it is put aside.
    pub(crate) memory_mib: u64,
    /// What each event costs it under [`Charge::EveryStep`].
    pub(crate) step_cost: Span,
    /// Under [`Charge::EveryStep`]: `at`, and the promised finish, in seconds that are not rounded to the clock's
    /// microseconds. Published simulators count so, and whom they serve next may hang on less than a microsecond.
    pub(crate) exact_at: f64,
    exact_end: f64,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Starting,
    Running,
    Saving,
}

/// The world.
pub(crate) struct World<'a> {
    pub(crate) truth: Known<'a>,
    cluster: Arc<Cluster>,
    pub(crate) charge: Charge,
    rounding: Rounding,
    trigger: Trigger,
    pub(crate) rounds: Option<Rounds>,
    /// A moment, and the seconds that it stands for where they are not rounded.
    exact: (Time, f64),
    /// Whether jobs on the same GPUs wait for each other's stages, and so for each other's starts.
    pub(crate) interleaved: bool,
    pub(crate) checkpoint_every: Span,
    /// On what jobs of divided models ran last: their saved state is cut for that.
    cuts: FxHashMap<JobId, Config>,
    pub(crate) placed: PlacedJobs,
    /// Jobs that are put aside in host memory, as they were.
    pub(crate) aside: FxHashMap<JobId, Box<Placed>>,
    /// Work done by jobs that were stopped and are not over.
    pub(crate) done: FxHashMap<JobId, Work>,
    pub(crate) promises: u32,
    pub(crate) last_step: Time,
    pub(crate) queue: Queue,
    pub(crate) occupants: Occupants,
    /// Who shares links with whom, where links are declared.
    pub(crate) on_links: Option<Box<OnLinks>>,
    /// What jobs on several nodes lose beside each other.
    pub(crate) interference: f64,
    pub(crate) overhead: f64,
    pub(crate) restarting: f64,
    pub(crate) lost: f64,
    /// Jobs that are faster for the one that was just removed.
    freed: Vec<JobId>,
    /// Under [`Charge::EveryDecision`]: which GPUs have worked together.
    regroup: Regroup,
}

impl<'a> World<'a> {
    pub(crate) fn new(truth: Known<'a>, cluster: Arc<Cluster>, options: &Options) -> World<'a> {
        World {
            aside: FxHashMap::default(),
            done: FxHashMap::default(),
            truth,
            occupants: Occupants::new(&cluster),
            on_links: match options.distance {
                Distance::Counts => OnLinks::new(&cluster, options.in_phases),
                Distance::Ignored => None,
            },
            cluster,
            charge: options.charge,
            rounding: options.rounding,
            trigger: options.trigger,
            rounds: Rounds::new(options),
            exact: (Time::ZERO, 0.0),
            interleaved: options.colocation == ColocationModel::Stages,
            checkpoint_every: options.checkpoint_every,
            cuts: FxHashMap::default(),
            placed: PlacedJobs::default(),
            promises: 0,
            last_step: Time::ZERO,
            queue: Queue::default(),
            interference: options.interference,
            overhead: 0.0,
            restarting: 0.0,
            lost: 0.0,
            freed: Vec::new(),
            regroup: Regroup::default(),
        }
    }

    /// When the next thing happens that was not revoked since.
    pub(crate) fn next_time(&mut self) -> Option<Time> {
        let placed = &self.placed;
        self.queue.drop_while(|future| match future {
            Future::Finish { job, promise }
            | Future::Fail { job, promise }
            | Future::Turn { job, promise } => {
                placed.get(*job).is_none_or(|placed| placed.promise != *promise)
            }
            Future::Barrier { number } => {
                self.rounds.as_ref().is_none_or(|rounds| rounds.number != *number)
            }
            Future::Started { job, attempt } => {
                !placed.get(*job).is_some_and(|placed| is_stage(placed, *attempt, Stage::Starting))
            }
            _ => false,
        });
        self.queue.next_time()
    }

    /// Obeys an action; what follows at once is told as events.
    pub(crate) fn obey(&mut self, at: Time, action: Action, events: &mut Vec<Event>) {
        match action {
            Action::Launch { job, attempt, allocation } => {
                self.launch(at, (job, attempt), allocation, events);
            }
            Action::Stop { job, attempt, why } => self.stop(at, (job, attempt), why, events),
            Action::Suspend { job, attempt, memory_mib } => {
                self.suspend(at, (job, attempt), memory_mib, events);
            }
            Action::Resume { job, attempt, allocation } => {
                self.resume(at, (job, attempt), allocation, events);
            }
            Action::Adjust { job, allocation, .. } => self.adjust(at, job, allocation, events),
            Action::Ended { .. } => {}
        }
    }

    /// What a future amounts to once its moment has come; nothing if it is void.
    pub(crate) fn come(&mut self, at: Time, future: Future, events: &mut Vec<Event>) {
        match future {
            Future::Finish { job, promise } if self.is_promised(job, promise) => {
                if self.charge == Charge::EveryStep {
                    self.exact = (at, self.placed[job].exact_end);
                }
                let placed = self.remove(at, job);
                self.done.remove(&job);
                let attempt = placed.attempt;
                self.depart(at, &placed, Event::Finished { job, attempt }, events);
            }
            Future::Fail { job, promise } if self.is_promised(job, promise) => {
                let placed = self.remove(at, job);
                let done = self.safe(at, &placed);
                self.keep(job, done, at, &placed);
                let (attempt, cause) = (placed.attempt, Cause::Job);
                self.depart(at, &placed, Event::Failed { job, attempt, cause, done }, events);
            }
            Future::Turn { job, promise } if self.is_promised(job, promise) => {
                self.turn(at, job, events);
            }
            Future::Barrier { number } => self.barrier(at, number, events),
            Future::Started { job, attempt } if self.is_attempt(job, attempt, Stage::Starting) => {
                self.begin(at, job, events);
                self.join_round(at, job);
            }
            Future::Stopped { job, attempt } if self.is_attempt(job, attempt, Stage::Saving) => {
                let placed = self.remove(at, job);
                self.done.insert(job, placed.done);
                let idle = at.since(placed.saved_at).as_secs_f64();
                self.overhead += idle * f64::from(placed.config.gpus);
                self.restarting += idle * f64::from(placed.config.gpus);
                let done = placed.done;
                self.depart(at, &placed, Event::Stopped { job, attempt, done }, events);
            }
            Future::Stopped { job, attempt }
                if self.aside.get(&job).is_some_and(|placed| placed.attempt == attempt) =>
            {
                self.stop_aside(at, (job, attempt), Why::Dropped, events);
            }
            Future::Suspended { job, attempt } if self.is_attempt(job, attempt, Stage::Saving) => {
                self.put_aside(at, job, events);
            }
            _ => {}
        }
    }

    /// Under [`Charge::EveryStep`]: every running job pays its overhead and its finish is promised anew.
    pub(crate) fn charge_step(&mut self, at: Time) -> Vec<Event> {
        let mut events = Vec::new();
        if self.charge != Charge::EveryStep {
            return events;
        }
        self.last_step = at;
        let due: Vec<JobId> = self.placed.keys().collect();
        for job in due {
            self.catch_up(at, job);
            let placed = &self.placed[job];
            let sample =
                Sample { done: Some(placed.done), rate: Some(placed.rate), ..Sample::default() };
            events.push(Event::Report { job, attempt: placed.attempt, sample });
            self.promise(at, job);
        }
        events
    }

    /// Under [`Charge::EveryDecision`]: every running job pays for the decision before it goes on.
    pub(crate) fn charge_decision(&mut self, at: Time) -> Vec<Event> {
        let mut events = Vec::new();
        if self.charge != Charge::EveryDecision {
            return events;
        }
        let renews = self.regroup.decided();
        let all = self.cluster.gpus();
        let running = self.placed.iter().filter(|(_, placed)| placed.stage == Stage::Running);
        let due: Vec<JobId> = running.map(|(job, _)| job).collect();
        for job in due {
            self.catch_up(at, job);
            let placed = self.placed.get_mut(job).expect("just listed");
            let cost = self.regroup.cost(&placed.allocation.placement, all, renews);
            placed.stage = Stage::Starting;
            placed.paused = true;
            placed.rate = Rate(0.0);
            placed.promise = 0;
            placed.saved_at = at;
            let (attempt, done) = (placed.attempt, placed.done);
            let sample = Sample { done: Some(done), rate: Some(Rate(0.0)), ..Sample::default() };
            events.push(Event::Report { job, attempt, sample });
            self.queue.push(at + cost, Future::Started { job, attempt });
        }
        if renews {
            self.regroup.forget();
        }
        events
    }

    fn launch(
        &mut self,
        at: Time,
        (job, attempt): (JobId, Attempt),
        allocation: Allocation,
        events: &mut Vec<Event>,
    ) {
        let mut placed = self.placed_anew((at, job), attempt, allocation);
        let truth = self.truth.job(job);
        let mut start = self.truth.change(truth, None, Some(&placed.config)).start;
        if let Some(before) = self.cuts.get(&job) {
            start += self.truth.recut(truth, before, &placed.config);
        }
        let start = match self.charge {
            Charge::PerStart => start,
            Charge::EveryStep | Charge::EveryDecision => Span::ZERO,
            Charge::AtSlots { slot, lease } => {
                let since = Span(at.0 % slot.0);
                let begins_lease = at.0.is_multiple_of(lease.0) && at > Time::ZERO;
                // What stops at a slot starts again a microsecond later; its clock was set at the slot.
                let is_late = since > Span(1);
                if is_late || begins_lease {
                    let unset = if begins_lease { slot } else { since };
                    let pace = self.truth.pace(truth, &placed.config, placed.done);
                    let given = pace.map_or(Work::ZERO, |pace| pace.rate.over(unset));
                    placed.done = Work((placed.done + given).0.min(truth.work.0));
                }
                if is_late { Span::ZERO } else { start.minus(since) }
            }
        };
        self.put_down(job, placed);
        if start == Span::ZERO {
            self.begin(at, job, events);
        } else {
            self.queue.push(at + start, Future::Started { job, attempt });
        }
    }

    /// A job that was just given GPUs.
    pub(crate) fn placed_anew(
        &self,
        (at, job): (Time, JobId),
        attempt: Attempt,
        allocation: Allocation,
    ) -> Placed {
        let done = self.done.get(&job).copied().unwrap_or(Work::ZERO);
        Placed {
            attempt,
            config: self.config(job, &allocation),
            model: self.truth.job(job).job.model,
            stage: Stage::Starting,
            done,
            at,
            rate: Rate(0.0),
            until: None,
            saved: done,
            saved_at: at,
            promise: 0,
            shares: is_shared(&allocation),
            task: None,
            paused: false,
            resumes: false,
            memory_mib: 0,
            step_cost: Span::ZERO,
            exact_at: self.exact(at),
            exact_end: f64::INFINITY,
            allocation,
        }
    }

    /// A job holds its GPUs from now on.
    pub(crate) fn put_down(&mut self, job: JobId, placed: Placed) {
        self.occupants.add(job, &placed.allocation.placement, placed.shares);
        self.placed.insert(job, placed);
    }

    /// What a job's speed depends on: its batch is the one that was tuned, or else the one that its user fixed.
    pub(crate) fn config(&self, job: JobId, allocation: &Allocation) -> Config {
        let mut config = allocation.config(&self.cluster);
        let want = &self.truth.job(job).job.want;
        config.batch = config.batch.or(want.batch);
        config.memory_mib = want.gpu_memory_mib;
        config
    }

    /// A job begins to make progress.
    pub(crate) fn begin(&mut self, at: Time, job: JobId, events: &mut Vec<Event>) {
        let exact = self.exact(at);
        let placed = self.placed.get_mut(job).expect("only placed jobs begin");
        let idle = at.since(placed.saved_at).as_secs_f64() * f64::from(placed.config.gpus);
        self.overhead += idle;
        if placed.attempt > Attempt(1) || placed.resumes {
            self.restarting += idle;
        }
        placed.stage = Stage::Running;
        placed.resumes = false;
        placed.at = at;
        placed.exact_at = exact;
        placed.saved_at = at;
        if !std::mem::take(&mut placed.paused) {
            events.push(Event::Started { job, attempt: placed.attempt });
        }
        // It may only have waited for a decision to be paid for.
        let mut slower = self.leave_links(at, job);
        slower.extend(self.join_links(at, job));
        // A job that has its GPUs whole may find others there that run on what it leaves.
        let mut met = self.neighbours(job);
        met.extend(slower);
        met.sort_unstable();
        met.dedup();
        met.retain(|other| *other != job);
        self.retime_with(at, Some(job), &met, events);
    }

    /// A job comes to the end of an epoch or passes to another batch size, and goes on at another pace.
    fn turn(&mut self, at: Time, job: JobId, events: &mut Vec<Event>) {
        self.catch_up(at, job);
        let placed = self.placed.get_mut(job).expect("only placed jobs turn");
        // Moments are whole microseconds or seconds and lie a hair beside the turn, but the job is there.
        placed.done = placed.until.unwrap_or(placed.done);
        placed.promise = 0;
        self.retime(at, job, events);
    }

    fn stop(
        &mut self,
        at: Time,
        (job, attempt): (JobId, Attempt),
        why: Why,
        events: &mut Vec<Event>,
    ) {
        // What a job that cannot save did since its last checkpoint is lost, however it is stopped.
        let saves = why == Why::Machine || self.truth.job(job).job.saves;
        let why = if saves { why } else { Why::Dropped };
        if self.stop_aside(at, (job, attempt), why, events)
            || self.placed.get(job).is_none_or(|placed| placed.attempt != attempt)
        {
            return;
        }
        self.catch_up(at, job);
        let placed = self.placed.get_mut(job).expect("just found");
        let starts = placed.stage == Stage::Starting && !placed.resumes;
        let save = match (why, starts, self.charge) {
            (Why::Machine, _, _)
            | (_, true, _)
            | (_, _, Charge::EveryStep | Charge::EveryDecision) => Span::ZERO,
            _ => self.truth.change(self.truth.job(job), Some(&placed.config), None).save,
        };
        if matches!(why, Why::Machine | Why::Dropped) {
            let placed = self.remove(at, job);
            let done = match why {
                Why::Dropped => self.checkpointed(at, &placed),
                _ => self.safe(at, &placed),
            };
            self.keep(job, done, at, &placed);
            return self.depart(at, &placed, Event::Stopped { job, attempt, done }, events);
        }
        if placed.stage == Stage::Starting {
            let idle = at.since(placed.saved_at).as_secs_f64() * f64::from(placed.config.gpus);
            self.overhead += idle;
            // A start that was broken off served no job, whether it was the first or not.
            self.restarting += idle;
        }
        placed.stage = Stage::Saving;
        placed.task = None;
        placed.rate = Rate(0.0);
        placed.promise = 0;
        placed.saved_at = at;
        let faster = self.leave_links(at, job);
        self.retime_on_links(at, &faster, events);
        if save == Span::ZERO {
            self.come(at, Future::Stopped { job, attempt }, events);
        } else {
            self.queue.push(at + save, Future::Stopped { job, attempt });
        }
    }

    fn adjust(&mut self, at: Time, job: JobId, allocation: Allocation, events: &mut Vec<Event>) {
        self.catch_up(at, job);
        let config = self.config(job, &allocation);
        let mut met = self.neighbours(job);
        let Some(placed) = self.placed.get_mut(job) else { return };
        self.occupants.remove(job, &placed.allocation.placement);
        placed.shares = is_shared(&allocation);
        self.occupants.add(job, &allocation.placement, placed.shares);
        placed.config = config;
        placed.allocation = allocation;
        if placed.stage == Stage::Running {
            met.extend(self.neighbours(job));
            met.extend(self.leave_links(at, job));
            met.extend(self.join_links(at, job));
            met.retain(|other| *other != job);
            met.sort_unstable();
            met.dedup();
            self.retime_with(at, Some(job), &met, events);
        }
    }

    /// A job gives its GPUs back.
    pub(crate) fn remove(&mut self, at: Time, job: JobId) -> Box<Placed> {
        self.catch_up(at, job);
        let placed = self.placed.remove(job).expect("only placed jobs are removed");
        if self.truth.is_planned(self.truth.job(job)) {
            self.cuts.insert(job, placed.config.clone());
        }
        self.occupants.remove(job, &placed.allocation.placement);
        self.freed = self.leave_links(at, job);
        placed
    }

    /// What follows when a job has left: the jobs that shared GPUs with it run faster.
    pub(crate) fn depart(
        &mut self,
        at: Time,
        placed: &Placed,
        event: Event,
        events: &mut Vec<Event>,
    ) {
        events.push(event);
        let mut met = self.occupants_of(&placed.allocation.placement);
        if !self.freed.is_empty() {
            met.extend(std::mem::take(&mut self.freed));
            met.sort_unstable();
            met.dedup();
        }
        self.retime_with(at, None, &met, events);
    }

    /// After a loss only what was saved is left.
    pub(crate) fn keep(&mut self, job: JobId, done: Work, at: Time, placed: &Placed) {
        self.done.insert(job, done);
        let gone = placed.done - done;
        if placed.rate.0 > 0.0 {
            self.lost += gone.0 / placed.rate.0 * f64::from(placed.config.gpus);
        }
        debug_assert!(placed.at <= at, "progress runs ahead of the clock");
    }

    /// Work safe from a failure: what the last regular save holds.
    pub(crate) fn safe(&self, at: Time, placed: &Placed) -> Work {
        if placed.stage != Stage::Running || self.checkpoint_every.0 == 0 {
            return placed.done;
        }
        let since = at.since(placed.saved_at);
        let saves = since.0 / self.checkpoint_every.0;
        let share =
            (self.checkpoint_every.times(saves)).as_secs_f64() / since.as_secs_f64().max(1e-9);
        placed.saved + Work((placed.done - placed.saved).0 * share)
    }

    /// The seconds that a moment stands for: those of the finish that made it, or else its own.
    pub(crate) fn exact(&self, at: Time) -> f64 {
        if self.exact.0 == at { self.exact.1 } else { at.as_secs_f64() }
    }

    /// Brings a job's progress up to now.
    pub(crate) fn catch_up(&mut self, at: Time, job: JobId) {
        let exact = self.exact(at);
        if let Some(placed) = self.placed.get_mut(job)
            && placed.at < at
        {
            if let Some(task) = &placed.task {
                placed.done = task.done_at(at);
            } else if placed.stage == Stage::Running {
                let done = match self.charge {
                    Charge::EveryStep => {
                        let worked = exact - placed.exact_at - placed.step_cost.as_secs_f64();
                        placed.done + Work(placed.rate.0 * worked.max(0.0))
                    }
                    Charge::PerStart | Charge::EveryDecision | Charge::AtSlots { .. } => {
                        placed.done + placed.rate.over(at.since(placed.at))
                    }
                };
                placed.done = Work(placed.until.map_or(done.0, |until| done.0.min(until.0)));
            }
            placed.at = at;
            placed.exact_at = exact;
        }
    }

    /// Works out a job's speed and promises its finish.
    pub(crate) fn retime(&mut self, at: Time, job: JobId, events: &mut Vec<Event>) {
        self.catch_up(at, job);
        let in_round = self.rounds.is_some();
        let beside = self.kept_beside_others(job);
        let truth = self.truth.job(job);
        let placed = self.placed.get_mut(job).expect("only placed jobs are timed");
        // A batch that the policy chose stands above the job's own.
        if placed.allocation.knobs.batch.is_none()
            && let Some(phase) = truth.phase(placed.done)
        {
            placed.config.batch = Some(truth.batches[phase].batch);
        }
        // A model that was not measured on such GPUs still makes some progress, or the run would never end.
        let crawl = Pace { rate: Rate(1e-3), until: None };
        let pace = self.truth.pace(truth, &placed.config, placed.done);
        let Pace { rate, until } = pace.unwrap_or(crawl);
        let rate = Rate(rate.0 * beside * self.kept_on_links(job, rate));
        let placed = self.placed.get_mut(job).expect("only placed jobs are timed");
        if rate == placed.rate && placed.promise != 0 {
            return;
        }
        placed.until = turns_at(truth, placed.done, until);
        placed.rate = rate;
        let told = self.truth.sample(truth, &placed.config, placed.done);
        let batch = placed.config.batch.or(told.batch);
        let sample = Sample { done: Some(placed.done), rate: Some(rate), batch, ..told };
        events.push(Event::Report { job, attempt: placed.attempt, sample });
        // Where rounds are kept, a part is measured out when the round begins and then stands.
        if !in_round {
            self.promise(at, job);
        }
    }

    pub(crate) fn promise(&mut self, at: Time, job: JobId) {
        let exact = self.exact(at);
        let truth = self.truth.job(job);
        let placed = self.placed.get_mut(job).expect("only placed jobs promise");
        self.promises += 1;
        placed.promise = self.promises;
        let promise = self.promises;
        let (goal, future) = match truth.fails_at {
            Some(failure) if failure.0 < truth.work.0 => (failure, Future::Fail { job, promise }),
            _ => (truth.work, Future::Finish { job, promise }),
        };
        let (goal, future) = match placed.until {
            Some(until) if until.0 < goal.0 => (until, Future::Turn { job, promise }),
            _ => (goal, future),
        };
        let (rate, left) = (placed.rate, goal - placed.done);
        let mut time = at + rate.time_for(left);
        if self.charge == Charge::EveryStep && rate.0 > 0.0 {
            placed.exact_end = exact + left.0 / rate.0;
            time = Time::from_secs_f64(placed.exact_end).max(at);
        }
        if self.rounding == Rounding::WholeSeconds && rate.0 > 0.0 {
            let exact = time;
            // An epoch that begins a microsecond late counts from its whole second.
            let from = Time(at.0 - u64::from(at.0 % Span::secs(1).0 == 1));
            // Not from `exact`, whose microseconds are rounded up already; halves go to the even second.
            time = from + Span::secs(libm::rint(left.0 / rate.0) as u64);
            if time < exact && self.is_decision(time) {
                time = time + Span(1);
            }
            time = time.max(at);
        }
        if let (Rounding::WholeSlots, Trigger::Slots(slot)) = (self.rounding, self.trigger)
            && rate.0 > 0.0
        {
            let slots = time.since(at).0.div_ceil(slot.0.max(1));
            time = at + slot.times(slots);
        }
        self.queue.push(time, future);
    }

    /// Under [`Rounding::WholeSlots`]: a decision is about to be taken, and a job that has done its work ends.
    pub(crate) fn end_done(&mut self, at: Time) -> Vec<Event> {
        let mut events = Vec::new();
        if self.rounding != Rounding::WholeSlots {
            return events;
        }
        let running = self.placed.iter().filter(|(_, placed)| placed.stage == Stage::Running);
        let running: Vec<JobId> = running.map(|(job, _)| job).collect();
        for job in running {
            self.catch_up(at, job);
            let (placed, truth) = (&self.placed[job], self.truth.job(job));
            if truth.fails_at.is_none() && placed.done.0 >= truth.work.0 {
                let promise = placed.promise;
                self.come(at, Future::Finish { job, promise }, &mut events);
            }
        }
        events
    }

    /// Whether a decision falls on a moment.
    fn is_decision(&self, time: Time) -> bool {
        match self.trigger {
            Trigger::Events | Trigger::Barrier(_) | Trigger::Slots(_) => false,
            Trigger::Clock(every) => time.0.is_multiple_of(every.0.max(1)),
        }
    }

    fn is_promised(&self, job: JobId, promise: u32) -> bool {
        self.placed.get(job).is_some_and(|placed| placed.promise == promise)
    }

    fn is_attempt(&self, job: JobId, attempt: Attempt, stage: Stage) -> bool {
        self.placed.get(job).is_some_and(|placed| is_stage(placed, attempt, stage))
    }
}

/// The work done at which a job's rate changes by itself: where its pace ends, or where another batch size begins.
pub(crate) fn turns_at(truth: &TraceJob, done: Work, until: Option<Work>) -> Option<Work> {
    let next = truth.phase(done).map_or(0, |phase| phase + 1);
    let other_batch = truth.batches.get(next).map(|phase| phase.begins(truth.work));
    let speaks = truth.tells.as_ref().and_then(|_| TrainingSignals::next(done, truth.work));
    let turns = [until, other_batch, speaks].into_iter().flatten();
    turns.min_by(|a, b| a.0.total_cmp(&b.0))
}

pub(crate) fn is_shared(allocation: &Allocation) -> bool {
    allocation.shares.iter().any(|share| share.permille() < 1000)
}

fn is_stage(placed: &Placed, attempt: Attempt, stage: Stage) -> bool {
    placed.attempt == attempt && placed.stage == stage
}
