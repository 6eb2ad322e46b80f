//! A forecast with exact knowledge is the rest of the run, whatever the policy; and what it says where less is known.

use proptest::prelude::*;
use std::sync::Arc;
use trainyard_engine::{Engine, Setup};
use trainyard_forecast::sizes::ideal_spans;
use trainyard_forecast::{Cut, ForecastRow, Foreseen, Grounds, Lengths, Limits, Sizes, foresee};
use trainyard_framework::{
    Admission, Beliefs, ChangeCost, Cx, Offer, Pipeline, Policy, PolicyError, View,
};
use trainyard_policies::compose::Selection;
use trainyard_profile::Catalog;
use trainyard_sim::{Observer, Options, Outcome, simulate};
use trainyard_types::{
    Action, Cluster, Config, End, Event, Job, JobId, Rate, Span, Tenants, Time, Work,
};
use trainyard_workload::{Arrival, Spec, TraceJob, Workload, generate};

/// Remembers nothing of what came before one decision, as a forecast that begins there.
struct Lapse {
    inner: Box<dyn Policy>,
    at: u64,
}

impl Policy for Lapse {
    fn admit(&mut self, queue: &mut Admission<'_>, view: &View<'_>, cx: &mut Cx) {
        self.inner.admit(queue, view, cx);
    }

    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        if view.decision() == self.at {
            self.inner.forget();
        }
        self.inner.allocate(view, offer, cx)
    }
}

/// Takes a fork before a decision.
struct Taker {
    before: u64,
    fork: Option<Engine>,
}

impl Observer for Taker {
    fn passed(&mut self, engine: &Engine) {
        if self.fork.is_none() && engine.state().decisions == self.before {
            self.fork = Some(engine.fork(engine.state().now));
        }
    }
}

fn exact() -> Options {
    Options { estimate_error: 0.0, ..Options::default() }
}

/// Jobs that all come within the first minutes, so that a later forecast misses none.
fn crowd(seed: u64, jobs: u32) -> (Workload, Arc<Cluster>) {
    let (cluster, _) = trainyard_workload::cluster::parse("3x4 v100, 2x4 p100").expect("a cluster");
    let spec = Spec {
        jobs,
        seed,
        arrival: Arrival::PerHour(f64::from(jobs) * 30.0),
        models: vec!["gavel-*".to_owned()],
        tenants: 3,
        ..Spec::default()
    };
    let workload = generate(&spec, &Catalog::builtin(), &cluster).expect("a valid spec");
    (workload, Arc::new(cluster))
}

/// A run, and what was foreseen of it before one of its decisions.
fn run_and_foresee(policy: &str, seed: u64, before: u64) -> Option<(Outcome, Foreseen)> {
    let (workload, cluster) = crowd(seed, 24);
    let build = || Selection::policy(policy).build().expect("defaults build");
    let mut pipeline = build();
    pipeline.policy = Box::new(Lapse { inner: pipeline.policy, at: before });
    let mut taker = Taker { before, fork: None };
    let outcome = simulate(&workload, &cluster, pipeline, &exact(), &mut taker);
    let fork = taker.fork?;
    let last = workload.jobs.last().expect("some jobs").job.submitted;
    if fork.state().now < last {
        return None;
    }
    let sizes = Sizes::new(&fork, &Lengths::default().sorted());
    Some((outcome, foresee(fork, sizes, build(), Limits::WIDE)))
}

fn assert_same(policy: &str, seed: u64, before: u64) -> bool {
    let Some((outcome, foreseen)) = run_and_foresee(policy, seed, before) else { return false };
    assert_eq!(foreseen.cut, None, "{policy}");
    let rest = outcome.jobs.iter().filter(|one| foreseen.job(one.job).is_some());
    assert_eq!(rest.clone().count(), foreseen.jobs.len());
    for one in rest {
        let expected = foreseen.job(one.job).expect("filtered above");
        let what = format!("{policy}, seed {seed}, before decision {before}: {}", one.job);
        assert_eq!(expected.ends, Some((one.ended, one.end)), "{what}");
        assert_eq!(expected.starts, one.first_start, "{what}");
    }
    true
}

#[test]
fn with_exact_knowledge_the_rest_of_a_run_is_foreseen_to_the_microsecond() {
    let policies =
        ["fifo", "sjf", "srtf", "las", "tiresias", "easy", "fair-share", "gavel", "shockwave"];
    for policy in policies {
        let met = (20..90).step_by(10).filter(|before| assert_same(policy, 5, *before)).count();
        assert!(met > 0, "{policy}: no moment to begin at");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_jobs_and_the_moment(
        policy in prop::sample::select(vec!["fifo", "sjf", "srtf", "las", "tiresias", "easy", "gavel"]),
        seed in 1u64..1000,
        before in 10u64..80,
    ) {
        assert_same(policy, seed, before);
    }
}

/// Beliefs of a small world: a second of work a second, half of it beside another job, no costs, and sizes as their
/// users declared them.
#[derive(Clone)]
struct Plain;

impl Beliefs for Plain {
    fn rate(&self, _job: &Job, on: &Config) -> Option<Rate> {
        Some(Rate(if on.beside.is_empty() { 1.0 } else { 0.5 }))
    }

    fn change(&self, _job: &Job, _: Option<&Config>, _: Option<&Config>) -> ChangeCost {
        ChangeCost { save: Span::ZERO, start: Span::ZERO, in_place: false }
    }

    fn work(&self, job: &Job) -> Option<Work> {
        job.declared
    }

    fn copied(&self) -> Arc<dyn Beliefs> {
        Arc::new(self.clone())
    }
}

/// One GPU, and jobs of so many seconds that came at once; nothing is said of those without a number.
fn queue(lengths: &[Option<f64>], limit: Option<Span>) -> Engine {
    let cluster = Arc::new(Cluster::uniform(1, 1, "v100"));
    let mut engine = Engine::new(cluster, Tenants::default(), Arc::new(Plain), Setup::default());
    for (id, seconds) in lengths.iter().enumerate() {
        let mut job = Job::simple(JobId(id as u32), Time::ZERO, 1);
        job.declared = seconds.map(Work);
        job.run_max = limit;
        engine.apply(Time::ZERO, Event::Submitted(Arc::new(job)));
    }
    engine
}

fn fifo() -> Pipeline {
    Selection::policy("fifo").build().expect("fifo builds")
}

fn ends(engine: &Engine, limits: Limits<'_>) -> Foreseen {
    let fork = engine.fork(engine.state().now);
    let sizes = Sizes::new(&fork, &Lengths::default().sorted());
    foresee(fork, sizes, fifo(), limits)
}

#[test]
fn the_end_of_a_queue_is_the_sum_of_what_is_before_it() {
    let foreseen = ends(&queue(&[Some(100.0), Some(50.0), Some(7.0)], None), Limits::WIDE);
    let seconds: Vec<Option<f64>> =
        foreseen.jobs.iter().map(|one| Some(one.ends?.0.as_secs_f64())).collect();
    assert_eq!(seconds, [Some(100.0), Some(150.0), Some(157.0)]);
    assert_eq!(foreseen.jobs[2].starts, Some(Time(150_000_000)));
}

#[test]
fn a_job_of_unknown_length_cannot_be_told_nor_can_those_behind_it() {
    let foreseen = ends(&queue(&[Some(10.0), None, Some(5.0)], None), Limits::WIDE);
    assert!(foreseen.jobs[0].ends.is_some());
    assert_eq!((foreseen.jobs[1].ends, foreseen.jobs[1].grounds), (None, Grounds::Nothing));
    assert_eq!(foreseen.jobs[1].starts, Some(Time(10_000_000)), "its start can be told");
    assert_eq!(foreseen.jobs[2].ends, None);
    let limited = ends(&queue(&[None, Some(5.0)], Some(Span::secs(30))), Limits::WIDE);
    assert_eq!(limited.jobs[0].ends, Some((Time(30_000_000), End::TimeLimit)));
    assert_eq!(limited.jobs[1].ends, Some((Time(35_000_000), End::Finished)));
}

#[test]
fn a_run_ends_where_it_is_told_to() {
    let engine = queue(&[Some(100.0), Some(50.0)], None);
    let foreseen = ends(&engine, Limits { until: Time(120_000_000), ..Limits::WIDE });
    assert_eq!(foreseen.cut, Some((Time(100_000_000), Cut::Horizon)));
    assert!(foreseen.jobs[0].ends.is_some() && foreseen.jobs[1].ends.is_none());
    let steps = ends(&engine, Limits { steps_max: 1, ..Limits::WIDE });
    assert_eq!(steps.cut.map(|(_, cut)| cut), Some(Cut::Steps));
}

#[test]
fn a_fork_changes_nothing_for_the_engine_it_was_taken_from() {
    let mut engine = queue(&[Some(100.0), Some(50.0)], None);
    let before = format!("{:?}", engine.state());
    let first = ends(&engine, Limits::WIDE);
    assert_eq!(format!("{:?}", engine.state()), before);
    assert_eq!(ends(&engine, Limits::WIDE).jobs, first.jobs, "the same once more");
    let launches = engine.step(Time::ZERO, &mut fifo());
    assert!(matches!(launches[..], [Action::Launch { job: JobId(0), .. }]), "{launches:?}");
}

#[test]
fn a_row_measures_from_submission_and_from_now() {
    let engine = queue(&[Some(100.0), Some(50.0)], None);
    let fork = engine.fork(Time(10_000_000));
    let sizes = Sizes::new(&fork, &Lengths::default().sorted());
    let ideal = ideal_spans(&fork, &sizes);
    let row = ForecastRow::new(&foresee(fork, sizes, fifo(), Limits::WIDE), |job| {
        ideal.get(&job).copied()
    });
    assert_eq!(
        (row.finished, row.completion_s.mean),
        (2, 135.0),
        "110 s and 160 s from submission"
    );
    assert_eq!((row.makespan, row.utilisation), (Span::secs(150), 1.0));
    assert_eq!(row.wait_s.mean, 60.0);
    assert_eq!(row.trouble, None);
}

/// Sixteen jobs of four GPUs and ten minutes on eight GPUs: 80 minutes of work, whatever the policy.
fn sixteen(limit: Option<Span>) -> Engine {
    let cluster = Arc::new(Cluster::uniform(1, 8, "v100"));
    let mut engine = Engine::new(cluster, Tenants::default(), Arc::new(Plain), Setup::default());
    for id in 0..16 {
        let mut job = Job::simple(JobId(id), Time::ZERO, 4);
        job.declared = Some(Work(600.0));
        job.run_max = limit;
        engine.apply(Time::ZERO, Event::Submitted(Arc::new(job)));
    }
    engine
}

#[test]
fn no_policy_is_foreseen_to_do_its_work_sooner_than_the_gpus_can() {
    for limit in [None, Some(Span::secs(660)), Some(Span::secs(600))] {
        for entry in trainyard_policies::registry::POLICIES {
            let fork = sixteen(limit).fork(Time::ZERO);
            let sizes = Sizes::new(&fork, &Lengths::default().sorted());
            let pipeline = Selection::policy(entry.name).build().expect("defaults build");
            let limits = Limits { until: Time(0) + Span::secs(7 * 86_400), ..Limits::WIDE };
            let foreseen = foresee(fork, sizes, pipeline, limits);
            let what = format!("{} with the limit {limit:?}", entry.name);
            let done = foreseen.outcome.jobs.iter().filter(|one| one.end == End::Finished);
            let work: f64 = done.clone().map(|_| 4.0 * 600.0).sum();
            let ended = foreseen.outcome.ended.as_secs_f64();
            assert!(ended >= work / 8.0 - 1e-3, "{what}: {work} GPU-seconds in {ended} s");
            for one in &foreseen.outcome.jobs {
                let own = limit.map_or(600.0, |limit| limit.as_secs_f64().min(600.0));
                let ran = one.ran.as_secs_f64();
                // An elastic policy may give fewer GPUs for longer or more for less; these jobs are rigid.
                assert!(ran >= own - 1e-3, "{what}: {} ran {ran} s", one.job);
                assert!(
                    limit.is_none_or(|limit| one.ran <= limit + Span::secs(1)),
                    "{what}: {ran} s"
                );
            }
            assert!(!foreseen.outcome.jobs.is_empty(), "{what}: nothing ended");
        }
    }
}

/// Rigid jobs, each with its GPUs, its seconds of work and how long after the first it comes, on two nodes of four GPUs.
fn crowd_of(jobs: &[(u32, u32, u32)], limit: Option<Span>) -> Workload {
    let mut workload = Workload::empty("a crowd");
    let mut at = Time::ZERO;
    for (id, (gpus, seconds, apart)) in jobs.iter().enumerate() {
        at = at + Span::secs(u64::from(*apart));
        let mut job = Job::simple(JobId(id as u32), at, *gpus);
        let work = Work(f64::from(*seconds));
        (job.declared, job.run_max) = (Some(work), limit);
        workload.jobs.push(TraceJob::new(Arc::new(job), work));
    }
    workload
}

/// What a forecast promises by each of its ends, against what the GPUs can do from its moment to then.
fn assert_conserved(what: &str, foreseen: &Foreseen, held: &dyn Fn(JobId) -> (u32, f64)) {
    let over = foreseen.jobs.iter().filter_map(|one| {
        let (ends, end) = one.ends?;
        (end == End::Finished).then_some((ends, held(one.job)))
    });
    let mut over: Vec<(Time, (u32, f64))> = over.collect();
    over.sort_by_key(|(ends, _)| *ends);
    let mut sum = 0.0;
    for (ends, (gpus, left)) in over {
        sum += f64::from(gpus) * left;
        let can = 8.0 * ends.since(foreseen.now).as_secs_f64();
        assert!(sum <= can + 1e-2, "{what}: {sum} GPU-seconds by {ends:?}, which has {can}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, ..ProptestConfig::default() })]

    /// From any moment of any run: what ends by a time fits into the GPU time until then, nothing ends sooner than it
    /// could alone, and nothing holds GPUs beyond its time limit.
    #[test]
    fn no_forecast_beats_the_bound_by_work(
        at in 0..trainyard_policies::registry::POLICIES.len(),
        jobs in prop::collection::vec((1u32..=8, 30u32..2000, 0u32..300), 2..16),
        limit in prop::option::of(60u64..3000),
        before in 1u64..25,
    ) {
        let name = trainyard_policies::registry::POLICIES[at].name;
        let limit = limit.map(Span::secs);
        let workload = crowd_of(&jobs, limit);
        let cluster = Arc::new(Cluster::uniform(2, 4, "v100"));
        let build = || Selection::policy(name).build().expect("defaults build");
        let mut taker = Taker { before, fork: None };
        simulate(&workload, &cluster, build(), &exact(), &mut taker);
        let Some(mut fork) = taker.fork else { return Ok(()) };
        fork.believe(Arc::new(Plain));
        let now = fork.state().now;
        let held: std::collections::BTreeMap<JobId, (u32, f64, Span)> = fork.state().jobs.iter()
            .map(|(id, live)| {
                let left = live.spec.declared.expect("declared").0 - live.state.progress.done_at(now).0;
                (id, (live.spec.want.gpus, left.max(0.0), live.state.ran(now)))
            })
            .collect();
        let sizes = Sizes::new(&fork, &Lengths::default().sorted());
        let until = now + Span::secs(30 * 86_400);
        let foreseen = foresee(fork, sizes, build(), Limits { until, ..Limits::WIDE });
        let what = format!("{name} before decision {before}");
        assert_conserved(&what, &foreseen, &|job| (held[&job].0, held[&job].1));
        for one in &foreseen.jobs {
            let Some((ends, end)) = one.ends else { continue };
            let (_, left, ran) = held[&one.job];
            let alone = match limit {
                Some(limit) if end == End::TimeLimit => limit.minus(ran).as_secs_f64(),
                _ => left,
            };
            let took = ends.since(now).as_secs_f64();
            prop_assert!(took >= alone - 1e-3, "{what}: {} in {took} s of {alone} s", one.job);
        }
        for one in &foreseen.outcome.jobs {
            let over = limit.is_some_and(|limit| one.ran > limit + Span::secs(1));
            prop_assert!(!over, "{what}: {} ran {:?}", one.job, one.ran);
        }
    }
}

#[test]
fn an_end_is_not_expected_beyond_the_time_limit() {
    let foreseen = ends(&queue(&[Some(50.0), Some(20.0)], Some(Span::secs(60))), Limits::WIDE);
    let [first, second] = &foreseen.jobs[..] else { panic!("two jobs") };
    assert_eq!(first.latest_end(Time::ZERO), Some(Time(60_000_000)));
    assert_eq!(second.latest_end(Time(50_000_000)), Some(Time(110_000_000)));
    assert_eq!(second.latest_end(Time(60_000_000)), Some(Time(120_000_000)), "it may start later");
    assert_eq!(
        ends(&queue(&[Some(50.0)], None), Limits::WIDE).jobs[0].latest_end(Time::ZERO),
        None
    );
}

/// Never decides anything.
struct Broken;

impl Policy for Broken {
    fn allocate(
        &mut self,
        _view: &View<'_>,
        _offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        panic!("a policy that panics on purpose")
    }
}

#[test]
fn a_policy_that_panics_has_trouble_in_its_row() {
    let engine = queue(&[Some(100.0), Some(50.0)], None);
    let mut pipeline = fifo();
    pipeline.policy = Box::new(Broken);
    let fork = engine.fork(Time::ZERO);
    let sizes = Sizes::new(&fork, &Lengths::default().sorted());
    let row = ForecastRow::new(&foresee(fork, sizes, pipeline, Limits::WIDE), |_| None);
    assert_eq!(row.finished, 2, "the fallback order serves them");
    assert!(row.trouble.is_some_and(|trouble| trouble.contains("panics")));
}

#[test]
fn a_workload_without_jobs_is_over_at_once() {
    let foreseen = ends(&queue(&[], None), Limits::WIDE);
    assert!(foreseen.jobs.is_empty() && foreseen.cut.is_none());
}
