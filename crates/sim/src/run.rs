//! The loop: the next moment, what happens then, what the engine wants, what the world makes of it.

use crate::estimates::Estimates;
use crate::failures::Failures;
use crate::lending::Owner;
use crate::options::{DecisionCost, Distance, Options};
use crate::outcome::{JobOutcome, Outcome};
use crate::queue::Future;
use crate::series::{Point, Series};
use crate::truth::{Truth, Written};
use crate::world::World;
use std::sync::Arc;
use trainyard_engine::{DecisionRequest, Engine, PolicyOutcome};
use trainyard_framework::{Knowledge, Live, Pipeline};
use trainyard_profile::complete::told;
use trainyard_profile::{Catalog, Speeds};
use trainyard_types::{
    Action, Cluster, End, Event, GpuAt, GpuType, JobId, Node, NodeId, Span, Time,
};
use trainyard_workload::{TraceJob, Workload};

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

    /// Called now and then with the number of jobs that are over.
    fn progress(&mut self, _over: usize) {}
}

/// Looks away.
pub struct Quiet;

impl Observer for Quiet {}

/// How many steps pass between two reports of progress.
const PROGRESS_EVERY: u64 = 1024;
/// After so many steps in a row in which nobody holds a GPU and nobody is to come, whoever waits is left out: a policy
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
    let exact = pipeline.needs.work_left == Knowledge::Exact;
    let beliefs = estimates(workload, cluster, (&speeds, exact), options);
    let truth = Written { workload, speeds };
    let mut setup = options.setup;
    setup.trigger = options.trigger;
    setup.seed = options.seed;
    let tenants = workload.tenants.clone();
    let engine = Engine::new(Arc::clone(cluster), tenants, Arc::new(beliefs), setup);
    let beginning = Beginning { engine, truth: &truth, arrivals: &workload.jobs };
    Simulation::new(beginning, pipeline, options).run(observer)
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
    Simulation::new(beginning, pipeline, options).run(observer)
}

/// What policies are told in a run from the first submission.
fn estimates(
    workload: &Workload,
    cluster: &Cluster,
    (speeds, exact): (&Arc<Speeds>, bool),
    options: &Options,
) -> Estimates {
    let believed = match options.pairs_known {
        1.0.. => Arc::clone(speeds),
        part => {
            let told = told(&workload.catalog, part, options.seed);
            Arc::new(bound(&told, cluster, options))
        }
    };
    let error = if exact { 0.0 } else { options.estimate_error };
    Estimates::new(workload, believed, error, options.seed)
}

struct Simulation<'a> {
    arrivals: &'a [TraceJob],
    options: &'a Options,
    engine: Engine,
    pipeline: Pipeline,
    world: World<'a>,
    failures: Option<Failures>,
    owner: Option<Owner>,
    next_submission: usize,
    /// A request that the policy thinks about, and what it will have come to.
    thinking: Option<(DecisionRequest, PolicyOutcome)>,
    /// All jobs of the run, ascending.
    ids: Vec<JobId>,
    jobs: Vec<JobOutcome>,
    /// Jobs that count and are not over.
    left: usize,
    series: Series,
    by_kind: Vec<f64>,
    /// The bucket of the series at which the mean waiting gang was last taken, and that mean.
    gang: (u64, f64),
    gpus: u32,
    ended: Time,
    steps: u64,
}

/// A catalog on a cluster, as the options say.
fn bound(catalog: &Catalog, cluster: &Cluster, options: &Options) -> Speeds {
    let speeds = Speeds::new(catalog, cluster).with_costs(options.costs);
    match options.distance {
        Distance::Counts => speeds,
        Distance::Ignored => speeds.without_distance(),
    }
}

impl<'a> Simulation<'a> {
    fn new(beginning: Beginning<'a>, pipeline: Pipeline, options: &'a Options) -> Simulation<'a> {
        let Beginning { mut engine, truth, arrivals } = beginning;
        let state = engine.state();
        let cluster = Arc::clone(&state.cluster);
        let open: Vec<JobId> = state.jobs.values().map(|live| live.spec.id).collect();
        let begun = !open.is_empty();
        let ids: Vec<JobId> =
            open.into_iter().chain(arrivals.iter().map(|one| one.job.id)).collect();
        let start = match arrivals.first() {
            Some(first) if !begun => first.job.submitted,
            _ => state.now,
        };
        let last = ids.last().map_or(0, |job| job.index() + 1);
        let mut world = World::new(truth, last, Arc::clone(&cluster), options);
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
        let counts = |job: &&JobId| options.measured.is_none_or(|window| window.contains(**job));
        Simulation {
            engine,
            arrivals,
            options,
            pipeline,
            world,
            failures,
            owner,
            next_submission: 0,
            thinking: None,
            jobs: Vec::with_capacity(ids.len()),
            left: ids.iter().filter(counts).count(),
            ids,
            series: Series::new(start),
            by_kind: vec![0.0; cluster.kinds.len()],
            gang: (u64::MAX, 0.0),
            gpus: cluster.gpus(),
            ended: start,
            steps: 0,
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
                observer.progress(self.jobs.len());
            }
        }
        observer.progress(self.jobs.len());
        self.outcome()
    }

    fn next_moment(&mut self) -> Option<Time> {
        let submission = self.arrivals.get(self.next_submission).map(|one| one.job.submitted);
        let now = self.engine.state().now;
        // While the policy thinks it is not asked again, however much that is due.
        let due = self.engine.due().filter(|due| self.thinking.is_none() || *due > now);
        let known = [submission, self.world.next_time(), due];
        // What was due before the run began is due when it does.
        known.into_iter().flatten().min().map(|at| at.max(now))
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
        for event in self.world.charge_step(at) {
            self.engine.apply(at, event);
        }
        while let Some(one) = self.arrivals.get(self.next_submission)
            && one.job.submitted <= at
        {
            self.engine.apply(at, Event::Submitted(Arc::clone(&one.job)));
            self.next_submission += 1;
        }
        if self.engine.decides(at) {
            for event in self.world.end_done(at) {
                self.pass_on(at, event, observer);
            }
        }
        for _ in 0..ROUNDS_MAX {
            let actions = self.step(at);
            self.collect();
            if actions.is_empty() {
                break;
            }
            self.obey(at, actions, observer);
        }
        if self.engine.state().decisions > before {
            self.world.begin_round(at);
            for event in self.world.charge_decision(at) {
                self.engine.apply(at, event);
            }
        }
        let level = self.level(at);
        self.series.record(at, level);
        observer.passed(&self.engine);
    }

    /// Use, queue and what is free for nobody, at a moment.
    fn level(&mut self, at: Time) -> Point {
        let state = self.engine.state();
        let free = self.engine.free();
        let (waiting, idle) = (state.waiting.len(), free.total());
        let mut level = Point {
            used: f64::from(self.world.gpus_used),
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
            let waiting_jobs = state.waiting.iter().filter_map(|job| state.live(job));
            let sum: u64 = waiting_jobs.map(|live| u64::from(live.spec.want.gpus)).sum();
            self.gang = (bucket, sum as f64 / waiting as f64);
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
            | Future::Started { .. } => {
                for event in self.world.come(at, future) {
                    self.pass_on(at, event, observer);
                }
            }
        }
    }

    fn obey(&mut self, at: Time, actions: Vec<Action>, observer: &mut dyn Observer) {
        for action in actions {
            observer.action(at, &action);
            for event in self.world.obey(at, action) {
                self.pass_on(at, event, observer);
            }
        }
    }

    /// Passes an event of the world on to the engine.
    fn pass_on(&mut self, at: Time, event: Event, observer: &mut dyn Observer) {
        if let Event::Stopped { job, .. }
        | Event::Finished { job, .. }
        | Event::Failed { job, .. } = event
        {
            observer.released(at, job);
        }
        self.engine.apply(at, event);
    }

    /// A step of the engine. A policy that takes its time is asked now and concludes later, as a live one does.
    fn step(&mut self, at: Time) -> Vec<Action> {
        let delay = self.thinking_time();
        if delay == Span::ZERO {
            return self.engine.step(at, &mut self.pipeline);
        }
        if let Some(request) = self.engine.request(at, self.pipeline.usage_half_life) {
            let outcome = request.think(&mut self.pipeline);
            self.thinking = Some((request, outcome));
            self.world.queue.push(at + delay, Future::Conclude);
        }
        self.engine.tick(at)
    }

    fn thinking_time(&self) -> Span {
        let DecisionCost { fixed, per_job } = self.options.decision_cost;
        let state = self.engine.state();
        fixed + per_job.times((state.waiting.len() + state.granted.len()) as u64)
    }

    /// Takes down what came of jobs that are over.
    fn collect(&mut self) {
        for (Live { spec, state }, end) in self.engine.take_over() {
            self.ended = self.ended.max(self.engine.state().now);
            for (kind, span) in &state.time_on {
                let part = span.as_secs_f64() / state.ran.as_secs_f64().max(1e-6);
                self.by_kind[kind.index()] += state.gpu_time.as_secs_f64() * part;
            }
            if self.options.measured.is_none_or(|window| window.contains(spec.id)) {
                self.left -= 1;
            }
            self.jobs.push(JobOutcome {
                job: spec.id,
                first_start: state.first_start,
                ended: self.engine.state().now,
                end,
                gpu_time: state.gpu_time,
                ran: state.ran,
                restarts: state.restarts,
                preemptions: state.preemptions,
                kind: longest_on(&state.time_on),
            });
        }
    }

    fn outcome(mut self) -> Outcome {
        self.jobs.sort_unstable_by_key(|one| one.job);
        let measured = self.options.measured;
        let counts = |job: JobId| measured.is_none_or(|window| window.contains(job));
        let over = |job: &JobId| self.jobs.binary_search_by_key(job, |one| one.job).is_ok();
        let all = self.ids.iter().copied();
        let unfinished: Vec<JobId> = all.filter(|job| counts(*job) && !over(job)).collect();
        let mut held = self.jobs.iter().map(|one| one.gpu_time.as_secs_f64()).sum();
        if measured.is_some() {
            held += self.held_by_others();
        }
        let (jobs, beside) = self.jobs.into_iter().partition(|one| counts(one.job));
        Outcome {
            jobs,
            beside,
            measured,
            unfinished,
            started: self.series.start,
            ended: self.ended,
            gpu_seconds_held: held,
            gpu_seconds_by_kind: self.by_kind,
            gpu_seconds_overhead: self.world.overhead,
            gpu_seconds_restarting: self.world.restarting,
            gpu_seconds_lost: self.world.lost,
            gpus: self.gpus,
            series: self.series.finish(self.ended),
            stats: self.engine.stats().clone(),
            steps: self.steps,
        }
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
