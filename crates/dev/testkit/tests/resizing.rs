//! Jobs that change their GPUs while they run, and must say so before others get what they gave up.

use std::collections::BTreeSet;
use std::sync::Arc;
use trainyard_engine::{Engine, Setup};
use trainyard_framework::{
    Beliefs, ChangeCost, Cx, Needs, Offer, Pipeline, Policy, PolicyError, View,
};
use trainyard_policies::place::FewestNodes;
use trainyard_testkit::host::Host;
use trainyard_types::{
    Action, Attempt, Cluster, Config, Event, Grant, Job, JobId, NodeId, Placement, Rate, Shape,
    Span, Tenants, Time, Want, Why, Work,
};

/// Every job resizes in place until it failed to.
#[derive(Clone, Default)]
struct Nimble {
    stays: BTreeSet<JobId>,
}

impl Beliefs for Nimble {
    fn copied(&self) -> Arc<dyn Beliefs> {
        Arc::new(self.clone())
    }

    fn rate(&self, _job: &Job, on: &Config) -> Option<Rate> {
        Some(Rate(f64::from(on.gpus)))
    }

    fn change(&self, job: &Job, from: Option<&Config>, to: Option<&Config>) -> ChangeCost {
        let in_place = from.is_some() && to.is_some() && !self.stays.contains(&job.id);
        ChangeCost { in_place, ..ChangeCost::default() }
    }

    fn work(&self, _job: &Job) -> Option<Work> {
        Some(Work(3600.0))
    }

    fn cannot_resize(&mut self, job: &Job) {
        self.stays.insert(job.id);
    }
}

/// Four GPUs for job 0 while it is alone, two for each of two jobs.
struct Halves;

impl Policy for Halves {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let mut jobs: Vec<JobId> =
            view.granted().chain(view.waiting()).map(|job| job.id()).collect();
        jobs.sort_unstable();
        let masks: &[u64] = if jobs.len() > 1 { &[0b0011, 0b1100] } else { &[0b1111] };
        for (job, mask) in jobs.iter().zip(masks) {
            let place = Shape::Exact(Placement::on(NodeId(0), *mask));
            offer.grant(&Grant { shape: place, ..Grant::gpus(*job, mask.count_ones()) });
        }
        Ok(())
    }
}

fn engine() -> Engine {
    let setup = Setup { check_every: 1, resize_wait: Some(Span::secs(60)), ..Setup::default() };
    let cluster = Arc::new(Cluster::uniform(1, 4, "v100"));
    Engine::new(cluster, Tenants::default(), Arc::new(Nimble::default()), setup)
}

fn job(id: u32) -> Job {
    let want = Want { gpus_min: 1, gpus_max: 4, ..Want::gpus(2) };
    Job { want, ..Job::simple(JobId(id), Time::ZERO, 2) }
}

/// Job 0 on four GPUs was just told to keep two of them, for job 1.
fn told() -> (Host, Vec<Action>) {
    let pipeline = Pipeline::new(Halves, FewestNodes, Needs::NOTHING);
    let mut host = Host::new(Cluster::uniform(1, 4, "v100"), Tenants::default(), pipeline);
    host.engine = engine();
    host.submit(0, job(0));
    let actions = host.submit(10, job(1));
    (host, actions)
}

fn said(actions: &[Action]) -> Vec<(u32, &'static str, u32)> {
    let short = |action: &Action| match action {
        Action::Launch { job, allocation, .. } => (job.0, "launch", allocation.placement.gpus()),
        Action::Adjust { job, allocation, .. } => (job.0, "adjust", allocation.placement.gpus()),
        Action::Stop { job, why, .. } => {
            (job.0, if *why == Why::Moved { "move" } else { "stop" }, 0)
        }
        Action::Suspend { job, .. } => (job.0, "suspend", 0),
        Action::Resume { job, .. } => (job.0, "resume", 0),
        Action::Ended { job, .. } => (job.0, "end", 0),
    };
    actions.iter().map(short).collect()
}

fn resized(job: u32) -> Event {
    Event::Resized { job: JobId(job), attempt: Attempt(1) }
}

#[test]
fn what_a_job_gives_up_is_free_when_it_says_so_and_not_before() {
    let (mut host, actions) = told();
    assert_eq!(said(&actions), [(0, "adjust", 2)]);
    assert!(!host.runs(1));
    assert_eq!(said(&host.at(12, resized(0))), [(1, "launch", 2)]);
    assert_eq!(host.attempt(0), Attempt(1), "it went on without a restart");
    assert_eq!(said(&host.finish(20, 1)), [(1, "end", 0), (0, "adjust", 4)]);
    host.at(25, resized(0));
    assert_eq!(said(&host.until(500)), [], "all is as planned");
    assert_eq!(host.engine.stats().moves, 0);
}

#[test]
fn a_job_that_says_nothing_is_stopped_and_started_and_not_asked_again() {
    let (mut host, _) = told();
    assert_eq!(said(&host.until(69)), []);
    assert_eq!(said(&host.until(71)), [(0, "move", 0), (0, "launch", 2), (1, "launch", 2)]);
    assert_eq!(said(&host.at(80, resized(0))), [], "too late");
    assert_eq!(said(&host.finish(90, 1)), [(1, "end", 0), (0, "move", 0), (0, "launch", 4)]);
}

#[test]
fn a_job_that_is_cancelled_meanwhile_stops_and_frees_all_it_has() {
    let (mut host, _) = told();
    let actions = host.at(15, Event::Cancelled(JobId(0)));
    assert_eq!(said(&actions), [(0, "stop", 0), (0, "end", 0), (1, "launch", 4)]);
}

#[test]
fn what_was_asked_survives_a_restart_with_what_is_still_held() {
    let (host, _) = told();
    let kept = |id: u32| {
        let saved = host.engine.kept(JobId(id)).expect("open");
        let text = serde_json::to_string(&saved).expect("text");
        (Arc::new(job(id)), serde_json::from_str(&text).expect("the same again"))
    };
    let mut again = engine();
    again.restore(Time(20_000_000), vec![kept(0), kept(1)], &[], &[]);
    assert_eq!(again.resizing(JobId(0)).map(|to| to.placement.gpus()), Some(2));
    let pipeline = Pipeline::new(Halves, FewestNodes, Needs::NOTHING);
    let mut host = Host::new(Cluster::uniform(1, 4, "v100"), Tenants::default(), pipeline);
    host.engine = again;
    assert_eq!(said(&host.until(30)), [], "two GPUs are still in use");
    assert_eq!(said(&host.at(31, resized(0))), [(1, "launch", 2)]);
}

#[test]
fn a_forecast_takes_it_for_done() {
    let (host, _) = told();
    let mut fork = host.engine.fork(Time(15_000_000));
    let mut pipeline = Pipeline::new(Halves, FewestNodes, Needs::NOTHING);
    let actions = fork.step(Time(15_000_000), &mut pipeline);
    assert_eq!(said(&actions), [(1, "launch", 2)]);
    fork.assert_invariants();
    assert_eq!(host.engine.resizing(JobId(0)).map(|to| to.placement.gpus()), Some(2));
}
