//! The loop: the next moment, what happens then, what the engine wants, what the world makes of it.

use crate::arrivals::{Arrivals, Held, Ledger};
use crate::entitlement::Entitlement;
use crate::estimates::Estimates;
use crate::failures::Failures;
use crate::lending::Owner;
use crate::options::{Charge, DecisionCost, Distance, Options, Rounding};
use crate::outcome::{JobOutcome, Outcome};
use crate::queue::Future;
use crate::series::{Point, Series};
use crate::truth::{Known, Truth, Written};
use crate::world::World;
use std::sync::Arc;
use trainyard_engine::{DecisionRequest, Engine, PolicyOutcome};
use trainyard_framework::{Knowledge, Live, Pipeline, State};
use trainyard_profile::complete::told;
use trainyard_profile::{Catalog, Speeds};
use trainyard_types::{
    Action, Cluster, End, Event, GpuAt, GpuType, IdSet, Job, JobId, Node, NodeId, Span, Tenants,
    Time, Work,
};
use trainyard_workload::{CompactWorkload, TraceJob, Workload};

/// Told what goes on in a run. Cannot influence it, but may end it.
pub trait Observer {
    /// Whether the run goes on to the next moment at which something happens.
    fn goes_on(&mut self, _to: Time) -> bool {
        true
    }

    /// All that happens at a moment has happened.
    fn passed(&mut self, _engine: &Engine) {}

    /// An action is about to be obeyed.
    fn action(&mut self, _at: Time, _action: &Action) {}

    /// A job gave its GPUs back: it finished, failed, or was stopped and has saved.
    fn released(&mut self, _at: Time, _job: JobId) {}

    /// Called now and then with the number of jobs that ended.
    fn progress(&mut self, _over: usize) {}
}

/// Looks away.
pub struct Quiet;

impl Observer for Quiet {}

/// How many steps pass between two reports of progress.
const PROGRESS_EVERY: u64 = 1024;
/// After so many steps in a row in which no job holds a GPU and none is to come, jobs that wait are left out: a policy
/// that is asked by the clock would be asked for ever about a job that fits nowhere.
const EMPTY_MAX: u32 = 10_000;
/// How often events and actions may answer each other within one moment.
const ROUNDS_MAX: u32 = 10_000;

/// Runs a workload on a cluster under a pipeline. The same arguments give the same outcome, bit for bit.
pub fn simulate(
    workload: &Workload,
    cluster: &Arc<Cluster>,
    pipeline: Pipeline,
    options: &Options,
    observer: &mut dyn Observer,
) -> Outcome {
    let speeds = Arc::new(bound(&workload.catalog, cluster, options));
    let known = workload.jobs.iter().map(|one| one.job.declared.unwrap_or(one.work));
    let exact = pipeline.needs.work_left == Knowledge::Exact;
    let beliefs = estimates((&workload.catalog, known), cluster, (&speeds, exact), options);
    let truth = Written { jobs: &workload.jobs, speeds };
    let engine = engine(cluster, &workload.tenants, beliefs, options);
    let beginning = Beginning { engine, truth: &truth, arrivals: &workload.jobs };
    resume_from(beginning, pipeline, options, observer)
}

/// The same on jobs in little room: each is made when it is submitted and let go when it is over, and the ledger is
/// told of both. The outcome lists no jobs but those that were never over; all else in it is the same, bit for bit.
///
/// # Panics
/// If only some of the jobs are to be measured.
pub fn simulate_compact(
    workload: &CompactWorkload,
    cluster: &Arc<Cluster>,
    (pipeline, options): (Pipeline, &Options),
    observer: &mut dyn Observer,
    ledger: &mut dyn Ledger,
) -> Outcome {
    assert!(options.measured.is_none(), "a ledger does not know which jobs count");
    let speeds = Arc::new(bound(&workload.catalog, cluster, options));
    let exact = pipeline.needs.work_left == Knowledge::Exact;
    let known = workload.jobs.known_work();
    let beliefs = estimates((&workload.catalog, known), cluster, (&speeds, exact), options);
    let truth = Written { jobs: &[], speeds };
    let engine = engine(cluster, &workload.tenants, beliefs, options);
    let arrivals = Arrivals::Compact(&workload.jobs, ledger);
    let start = Start { engine, truth: Known::told(&truth), arrivals };
    Simulation::new(start, pipeline, options).run(observer)
}

fn engine(
    cluster: &Arc<Cluster>,
    tenants: &Tenants,
    beliefs: Estimates,
    options: &Options,
) -> Engine {
    let mut setup = options.setup;
    setup.trigger = options.trigger;
    setup.seed = options.seed;
    Engine::new(Arc::clone(cluster), tenants.clone(), Arc::new(beliefs), setup)
}

/// A moment to begin at.
pub struct Beginning<'a> {
    /// All that is known then. Jobs that hold GPUs go on where they are, the others wait as they do.
    pub engine: Engine,
    /// What is true of all jobs, those of the engine and those to come.
    pub truth: &'a dyn Truth,
    /// Jobs to come, sorted by submission, with ids above those of the engine.
    pub arrivals: &'a [TraceJob],
}

/// Goes on from a moment under a pipeline that remembers nothing of what came before. Decisions happen as the engine
/// is set up. The same arguments give the same outcome, bit for bit.
///
/// What jobs used before that moment counts in what came of each, and in the GPU time they held; the series, what was
/// lost and what the engine counted begin with the moment.
pub fn resume_from(
    beginning: Beginning<'_>,
    pipeline: Pipeline,
    options: &Options,
    observer: &mut dyn Observer,
) -> Outcome {
    let Beginning { engine, truth, arrivals } = beginning;
    let arrivals = Arrivals::Listed(arrivals);
    let start = Start { engine, truth: Known::listed(truth), arrivals };
    Simulation::new(start, pipeline, options).run(observer)
}

/// What policies are told in a run from the first submission.
fn estimates(
    (catalog, known): (&Catalog, impl Iterator<Item = Work>),
    cluster: &Cluster,
    (speeds, exact): (&Arc<Speeds>, bool),
    options: &Options,
) -> Estimates {
    let believed = match (options.pairs_known, options.tells_plans) {
        (1.0.., true) => Arc::clone(speeds),
        (part, tells_plans) => {
            let known =
                if part < 1.0 { told(catalog, part, options.seed) } else { catalog.clone() };
            let known = if tells_plans { known } else { known.without_plans(cluster) };
            Arc::new(bound(&known, cluster, options))
        }
    };
    let error = if exact { 0.0 } else { options.estimate_error };
    Estimates::new(known, believed, (error, options.speed_error), options.seed)
}

/// What a simulation starts from.
struct Start<'a> {
    engine: Engine,
    truth: Known<'a>,
    arrivals: Arrivals<'a>,
}

struct Simulation<'a> {
    arrivals: Arrivals<'a>,
    options: &'a Options,
    engine: Engine,
    pipeline: Pipeline,
    world: World<'a>,
    failures: Option<Failures>,
    owner: Option<Owner>,
    next_submission: usize,
    /// A request that the policy thinks about, and what it will have come to.
    thinking: Option<(DecisionRequest, PolicyOutcome)>,
    /// All jobs of the run, ascending, and what came of those that are over; empty where a ledger is told.
    ids: Vec<JobId>,
    jobs: Vec<JobOutcome>,
    /// Where a ledger is told: what jobs that are over held.
    held: Held,
    over: usize,
    /// Jobs that count and are not over.
    left: usize,
    series: Series,
    by_kind: Vec<f64>,
    /// The bucket of the series at which the mean waiting gang was last taken, and that mean.
    gang: (u64, f64),
    /// What tenants received and were entitled to.
    entitlement: Entitlement,
    gpus: u32,
    ended: Time,
    steps: u64,
    /// Lists whose room is used again at every moment.
    events: Vec<Event>,
    actions: Vec<Action>,
    just_over: Vec<(Arc<Live>, End)>,
}

/// A catalog on a cluster, as the options say.
fn bound(catalog: &Catalog, cluster: &Cluster, options: &Options) -> Speeds {
    let colocation = options.colocation.bind(catalog, cluster);
    let mut speeds = Speeds::new(catalog, cluster).with_costs(options.costs);
    speeds = speeds.with_colocation(colocation);
    if options.splits_by_speed {
        speeds = speeds.splitting_by_speed();
    }
    match options.distance {
        Distance::Counts => speeds,
        Distance::Ignored => speeds.without_distance(),
    }
}

impl<'a> Simulation<'a> {
    fn new(start: Start<'a>, pipeline: Pipeline, options: &'a Options) -> Simulation<'a> {
        let Start { mut engine, truth, arrivals } = start;
        let state = engine.state();
        let cluster = Arc::clone(&state.cluster);
        let open: Vec<JobId> = state.jobs.values().map(|live| live.spec.id).collect();
        let begun = !open.is_empty();
        let ids: Vec<JobId> = open.into_iter().chain(arrivals.ids()).collect();
        let start = match arrivals.submitted(0) {
            Some(first) if !begun => first,
            _ => state.now,
        };
        let mut world = World::new(truth, Arc::clone(&cluster), options);
        for event in world.take_over(&engine) {
            engine.apply(start, event);
        }
        let (now, nodes) = (engine.state().now, cluster.nodes.len());
        let mut failures =
            options.failures.map(|model| Failures::new(model, &cluster, options.seed));
        if let Some(failures) = &mut failures {
            for node in (0..nodes).map(|node| NodeId(node as u32)) {
                world.queue.push(now + failures.until_break(node), Future::Break { node });
            }
            for gpu in cluster.nodes.iter().flat_map(each_gpu) {
                if let Some(span) = failures.until_ill(gpu) {
                    world.queue.push(now + span, Future::Sicken { gpu });
                }
            }
        }
        let law = options.lending.as_ref();
        let owner = law.and_then(|law| Owner::new(law, &cluster, options.seed));
        if owner.is_some() {
            world.queue.push(start, Future::Lend);
        }
        for (index, (time, _)) in options.injected.iter().enumerate() {
            world.queue.push(*time, Future::Injected { index: index as u32 });
        }
        let entitlement = Entitlement::new(&engine.state().tenants, cluster.gpus(), start);
        let counts = |job: &&JobId| options.measured.is_none_or(|window| window.contains(**job));
        Simulation {
            engine,
            options,
            pipeline,
            world,
            failures,
            owner,
            next_submission: 0,
            thinking: None,
            jobs: Vec::with_capacity(ids.len()),
            left: match arrivals {
                Arrivals::Listed(_) => ids.iter().filter(counts).count(),
                Arrivals::Compact(jobs, _) => jobs.len(),
            },
            held: Held::default(),
            over: 0,
            ids,
            arrivals,
            series: Series::new(start),
            by_kind: vec![0.0; cluster.kinds.len()],
            gang: (u64::MAX, 0.0),
            entitlement,
            gpus: cluster.gpus(),
            ended: start,
            steps: 0,
            events: Vec::new(),
            actions: Vec::new(),
            just_over: Vec::new(),
        }
    }

    fn run(mut self, observer: &mut dyn Observer) -> Outcome {
        let now = self.engine.state().now;
        if self.engine.wants_step() {
            self.moment(now, observer);
        }
        if self.series.start == now {
            let level = self.level(now);
            self.series.record(now, level);
        }
        let mut empty = 0;
        while self.left > 0 && empty < EMPTY_MAX {
            match self.next_moment() {
                Some(at) if observer.goes_on(at) => self.moment(at, observer),
                Some(_) => break,
                None if self.idle_round(observer) => {}
                None => break,
            }
            let is_empty = self.next_submission == self.arrivals.len()
                && self.engine.state().granted.is_empty();
            empty = if is_empty { empty + 1 } else { 0 };
            self.steps += 1;
            if self.steps.is_multiple_of(PROGRESS_EVERY) {
                observer.progress(self.over);
            }
        }
        observer.progress(self.over);
        self.outcome()
    }

    fn next_moment(&mut self) -> Option<Time> {
        let submission = self.arrivals.submitted(self.next_submission);
        let now = self.engine.state().now;
        // While the policy thinks it is not asked again, however much that is due.
        let due = self.engine.due().filter(|due| self.thinking.is_none() || *due > now);
        let next = earlier(earlier(submission, self.world.next_time()), due);
        // What was due before the run began is due when it does.
        next.map(|at| at.max(now))
    }

    /// Nothing is to come though jobs wait: where rounds are kept, an empty one is over and the policy is asked
    /// again. False if that changed nothing.
    fn idle_round(&mut self, observer: &mut dyn Observer) -> bool {
        if !self.world.keeps_rounds() {
            return false;
        }
        let at = self.engine.state().now;
        self.engine.apply(at, Event::RoundOver);
        self.moment(at, observer);
        self.next_moment().is_some()
    }

    /// All that happens at one moment.
    fn moment(&mut self, at: Time, observer: &mut dyn Observer) {
        let before = self.engine.state().decisions;
        while let Some(future) = self.world.queue.pop_at(at) {
            self.come(at, future, observer);
        }
        if self.options.charge == Charge::EveryStep {
            for event in self.world.charge_step(at) {
                self.engine.apply(at, event);
            }
        }
        while self.arrivals.submitted(self.next_submission).is_some_and(|next| next <= at) {
            let job = self.next_job();
            self.engine.apply(at, Event::Submitted(job));
        }
        if self.options.rounding == Rounding::WholeSlots && self.engine.decides(at) {
            for event in self.world.end_done(at) {
                self.pass_on(at, event, observer);
            }
        }
        let mut actions = std::mem::take(&mut self.actions);
        for _ in 0..ROUNDS_MAX {
            self.step(at, &mut actions);
            self.collect();
            if actions.is_empty() {
                break;
            }
            self.obey(at, &mut actions, observer);
        }
        self.actions = actions;
        if self.engine.state().decisions > before {
            self.world.begin_round(at);
            if self.options.charge == Charge::EveryDecision {
                for event in self.world.charge_decision(at) {
                    self.engine.apply(at, event);
                }
            }
        }
        let level = self.level(at);
        self.series.record(at, level);
        if self.entitlement.counts() {
            let bucket = self.series.bucket_of(at);
            self.entitlement.look(at, bucket, self.engine.state());
        }
        observer.passed(&self.engine);
    }

    /// The job that comes next; there must be one.
    fn next_job(&mut self) -> Arc<Job> {
        let place = self.next_submission;
        self.next_submission += 1;
        match &mut self.arrivals {
            Arrivals::Listed(jobs) => Arc::clone(&jobs[place].job),
            Arrivals::Compact(jobs, ledger) => {
                let one = jobs.get(place);
                ledger.submitted(&one);
                let job = Arc::clone(&one.job);
                self.world.truth.come(one);
                job
            }
        }
    }

    /// GPU allocation, queue and what is free but fits no waiting job, at a moment.
    fn level(&mut self, at: Time) -> Point {
        let state = self.engine.state();
        let free = self.engine.free();
        let (waiting, idle) = (state.waiting.len(), free.total());
        let mut level = Point {
            used: f64::from(self.world.occupants.gpus()),
            waiting: waiting as f64,
            running: state.granted.len() as f64,
            ..Point::default()
        };
        if waiting == 0 || idle == 0 {
            return level;
        }
        // The queue is walked once for each bucket of the series, or a long one would cost at every event.
        let bucket = self.series.bucket_of(at);
        if self.gang.0 != bucket {
            self.gang = (bucket, gpus_waited_for(state) as f64 / waiting as f64);
        }
        let gang = self.gang.1.ceil() as u32;
        let stranded: u32 = (state.shapes.iter())
            .flat_map(|(kind, largest)| (1..gang.min(*largest)).map(move |count| (*kind, count)))
            .map(|(kind, count)| free.nodes_with(kind, count).len() as u32 * count)
            .sum();
        level.idle = f64::from(idle);
        level.stranded = f64::from(stranded);
        level
    }

    fn come(&mut self, at: Time, future: Future, observer: &mut dyn Observer) {
        match future {
            Future::Conclude => {
                let (request, outcome) = self.thinking.take().expect("asked before");
                self.engine.conclude(at, &request, outcome);
            }
            Future::Injected { index } => {
                let event = self.options.injected[index as usize].1.clone();
                self.engine.apply(at, event);
            }
            Future::Lend => {
                if let Some(owner) = &mut self.owner {
                    if let Some(nodes) = owner.needed(at) {
                        self.engine.apply(at, Event::Needed(owner.pool, nodes));
                    }
                    self.world.queue.push(owner.next(at), Future::Lend);
                }
            }
            Future::Break { node } => {
                self.engine.apply(at, Event::NodeLost(node));
                if let Some(failures) = &mut self.failures {
                    let repaired = at + failures.until_repair(node);
                    self.world.queue.push(repaired, Future::Repair { node });
                }
            }
            Future::Repair { node } => {
                self.engine.apply(at, Event::NodeUp(node));
                if let Some(failures) = &mut self.failures {
                    let broken = at + failures.until_break(node);
                    self.world.queue.push(broken, Future::Break { node });
                }
            }
            Future::Sicken { gpu } => {
                self.engine.apply(at, Event::GpuQuarantined { gpu, evict: true });
                let span = self.failures.as_mut().and_then(|failures| failures.until_return(gpu));
                if let Some(span) = span {
                    self.world.queue.push(at + span, Future::Return { gpu });
                }
            }
            Future::Return { gpu } => {
                self.engine.apply(at, Event::GpuReturned(gpu));
                let span = self.failures.as_mut().and_then(|failures| failures.until_ill(gpu));
                if let Some(span) = span {
                    self.world.queue.push(at + span, Future::Sicken { gpu });
                }
            }
            Future::Finish { .. }
            | Future::Fail { .. }
            | Future::Turn { .. }
            | Future::Barrier { .. }
            | Future::Stopped { .. }
            | Future::Suspended { .. }
            | Future::Started { .. } => {
                let mut events = std::mem::take(&mut self.events);
                self.world.come(at, future, &mut events);
                self.pass_all_on(at, events, observer);
            }
        }
    }

    fn obey(&mut self, at: Time, actions: &mut Vec<Action>, observer: &mut dyn Observer) {
        for action in actions.drain(..) {
            observer.action(at, &action);
            let mut events = std::mem::take(&mut self.events);
            self.world.obey(at, action, &mut events);
            self.pass_all_on(at, events, observer);
        }
    }

    /// Passes events of the world on to the engine, and keeps the room of their list.
    fn pass_all_on(&mut self, at: Time, mut events: Vec<Event>, observer: &mut dyn Observer) {
        for event in events.drain(..) {
            self.pass_on(at, event, observer);
        }
        self.events = events;
    }

    /// Passes an event of the world on to the engine.
    fn pass_on(&mut self, at: Time, event: Event, observer: &mut dyn Observer) {
        if let Event::Stopped { job, .. }
        | Event::Suspended { job, .. }
        | Event::Finished { job, .. }
        | Event::Failed { job, .. } = event
        {
            observer.released(at, job);
        }
        self.engine.apply(at, event);
    }

    /// A step of the engine. A policy that takes its time is asked now and concludes later, as a live one does.
    fn step(&mut self, at: Time, actions: &mut Vec<Action>) {
        let delay = self.thinking_time();
        if delay == Span::ZERO {
            return self.engine.step_into(at, &mut self.pipeline, actions);
        }
        if let Some(request) = self.engine.request(at, self.pipeline.usage_half_life) {
            let outcome = request.think(&mut self.pipeline);
            self.thinking = Some((request, outcome));
            self.world.queue.push(at + delay, Future::Conclude);
        }
        *actions = self.engine.tick(at);
    }

    fn thinking_time(&self) -> Span {
        let DecisionCost { fixed, per_job } = self.options.decision_cost;
        let state = self.engine.state();
        fixed + per_job.times((state.waiting.len() + state.granted.len()) as u64)
    }

    /// Takes down what came of jobs that ended.
    fn collect(&mut self) {
        let mut just_over = std::mem::take(&mut self.just_over);
        self.engine.take_over_into(&mut just_over);
        for (live, end) in just_over.drain(..) {
            let Live { spec, state } = live.as_ref();
            self.ended = self.ended.max(self.engine.state().now);
            for (kind, span) in &state.time_on {
                let part = span.as_secs_f64() / state.ran.as_secs_f64().max(1e-6);
                self.by_kind[kind.index()] += state.gpu_time.as_secs_f64() * part;
            }
            if self.options.measured.is_none_or(|window| window.contains(spec.id)) {
                self.left -= 1;
            }
            let one = JobOutcome {
                job: spec.id,
                first_start: state.first_start,
                ended: self.engine.state().now,
                end,
                gpu_time: state.gpu_time,
                ran: state.ran,
                restarts: state.restarts,
                preemptions: state.preemptions,
                kind: longest_on(&state.time_on),
            };
            self.take_down(one);
        }
        self.just_over = just_over;
    }

    fn take_down(&mut self, one: JobOutcome) {
        self.over += 1;
        match &mut self.arrivals {
            Arrivals::Listed(_) => self.jobs.push(one),
            Arrivals::Compact(_, ledger) => {
                ledger.over(self.world.truth.job(one.job), &one);
                self.held.add(one.job, one.gpu_time);
                self.world.truth.gone(one.job);
                self.world.done.remove(&one.job);
            }
        }
    }

    fn outcome(mut self) -> Outcome {
        sort_by_id(&mut self.jobs);
        let measured = self.options.measured;
        let counts = |job: JobId| measured.is_none_or(|window| window.contains(job));
        let unfinished = self.unfinished();
        let mut held = match &self.arrivals {
            Arrivals::Listed(_) => self.jobs.iter().map(|one| one.gpu_time.as_secs_f64()).sum(),
            Arrivals::Compact(..) => std::mem::take(&mut self.held).finish(),
        };
        if measured.is_some() {
            held += self.held_by_others();
        }
        let series = self.series.finish(self.ended);
        let used = series.mean(|point| point.used) * self.ended.since(series.start).as_secs_f64();
        // Where GPUs were shared, what jobs held counts some of them more than once.
        let doubled = if self.world.occupants.was_shared { (held - used).max(0.0) } else { 0.0 };
        let (jobs, beside) = match measured {
            None => (self.jobs, Vec::new()),
            Some(_) => self.jobs.into_iter().partition(|one| counts(one.job)),
        };
        Outcome {
            jobs,
            beside,
            measured,
            unfinished,
            started: series.start,
            ended: self.ended,
            gpu_seconds_held: held,
            gpu_seconds_doubled: doubled,
            tenants: self.entitlement.finish(self.ended),
            gpu_seconds_by_kind: self.by_kind,
            gpu_seconds_overhead: self.world.overhead,
            gpu_seconds_restarting: self.world.restarting,
            gpu_seconds_lost: self.world.lost,
            gpus: self.gpus,
            series,
            stats: self.engine.stats().clone(),
            steps: self.steps,
        }
    }

    /// Jobs that count and were never over; what is over must be sorted.
    fn unfinished(&self) -> Vec<JobId> {
        if let Arrivals::Compact(jobs, _) = &self.arrivals {
            let here = self.engine.state().jobs.keys();
            let to_come = (self.next_submission..jobs.len()).map(|place| JobId(place as u32));
            return here.chain(to_come).collect();
        }
        let counts = |job: JobId| self.options.measured.is_none_or(|window| window.contains(job));
        let over = |job: &JobId| self.jobs.binary_search_by_key(job, |one| one.job).is_ok();
        self.ids.iter().copied().filter(|job| counts(*job) && !over(job)).collect()
    }

    /// GPU-seconds of jobs that were still under way when the last measured one was over.
    fn held_by_others(&mut self) -> f64 {
        let state = self.engine.state();
        let mut sum = 0.0;
        for job in state.waiting.iter().chain(state.granted.iter()) {
            let Some(Live { state: one, .. }) = state.live(job) else { continue };
            sum += one.attained(state.now).as_secs_f64();
            let mut times = one.time_on.clone();
            let node = one.held.as_ref().and_then(|held| held.placement.masks().first());
            if let Some((node, _)) = node {
                times.push((state.cluster.node(*node).kind, state.now.since(one.since)));
            }
            let ran: f64 = times.iter().map(|(_, span)| span.as_secs_f64()).sum();
            for (kind, span) in times {
                let part = span.as_secs_f64() / ran.max(1e-6);
                self.by_kind[kind.index()] += one.attained(state.now).as_secs_f64() * part;
            }
        }
        sum
    }
}

/// The earlier of two optional moments.
fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}

/// GPUs that waiting jobs ask for: all that is asked for but what jobs with a grant do, where that is less to count.
fn gpus_waited_for(state: &State) -> u64 {
    let asked = |jobs: &IdSet<JobId>| -> u64 {
        let jobs = jobs.iter().filter_map(|job| state.live(job));
        jobs.map(|live| u64::from(live.spec.want.gpus)).sum()
    };
    let queued = state.waiting.len() + state.granted.len() + state.unadmitted.len();
    // A job that is admitted and in neither queue, as one set aside, is asked for too.
    if state.jobs.len() != queued || state.granted.len() >= state.waiting.len() {
        return asked(&state.waiting);
    }
    let rest = state.demand - asked(&state.granted);
    debug_assert_eq!(rest, asked(&state.waiting), "demand is that of both queues");
    rest
}

/// Puts what came of jobs in the order of their ids. Where none is missing, each goes straight to its place.
fn sort_by_id(jobs: &mut [JobOutcome]) {
    let Some(first) = jobs.iter().map(|one| one.job.index()).min() else { return };
    let last = jobs.iter().map(|one| one.job.index()).max().unwrap_or(first);
    if last - first + 1 != jobs.len() {
        return jobs.sort_unstable_by_key(|one| one.job);
    }
    for at in 0..jobs.len() {
        // Every exchange brings one to its place for good.
        while jobs[at].job.index() - first != at {
            jobs.swap(at, jobs[at].job.index() - first);
        }
    }
}

fn each_gpu(node: &Node) -> impl Iterator<Item = GpuAt> + use<> {
    let id = node.id;
    (0..node.gpus).map(move |gpu| GpuAt { node: id, gpu })
}

/// The type with the longest time, the lower one of equals.
fn longest_on(times: &[(GpuType, Span)]) -> Option<GpuType> {
    times.iter().max_by_key(|(kind, span)| (*span, std::cmp::Reverse(*kind))).map(|(kind, _)| *kind)
}

impl Outcome {
    /// Jobs that did all their work.
    pub fn finished(&self) -> impl Iterator<Item = &JobOutcome> {
        self.jobs.iter().filter(|one| one.end == End::Finished)
    }
}
