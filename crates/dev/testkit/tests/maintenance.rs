//! Maintenance windows and reservations: which jobs may start where, which leave when, and what is said about it.

use std::sync::Arc;
use trainyard_framework::RawSettings;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_policies::registry::POLICIES;
use trainyard_profile::Catalog;
use trainyard_sim::{FailureModel, Observer, Options, simulate};
use trainyard_testkit::dice::Dice;
use trainyard_testkit::host::Host;
use trainyard_types::{
    Action, Allowed, Cluster, Event, Job, JobId, NodeId, Reason, Span, Tenant, TenantId, Tenants,
    Time, Why, Window, WindowId,
};
use trainyard_workload::{Arrival, Spec, Workload, cluster, generate};

fn at(second: u64) -> Time {
    Time(second * 1_000_000)
}

/// Two nodes with four GPUs each, and maintenance of the first from 1000 s to 2000 s. A job that fits passes the head.
fn host() -> Host {
    let settings = RawSettings::parse(["fill=backfill"]).expect("settings");
    let policy = Choice { name: "fifo".to_owned(), settings };
    let pipeline = Selection { policy, ..Selection::default() }.build().expect("it builds");
    let tenants = Tenants::new(vec![Tenant::named("default"), Tenant::named("vision")]);
    let mut host = Host::new(Cluster::uniform(2, 4, "v100"), tenants, pipeline);
    host.at(0, Event::WindowSet(window(None)));
    host
}

fn window(reserved: Option<Allowed>) -> Window {
    Window { id: WindowId(1), nodes: vec![NodeId(0)], from: at(1000), until: at(2000), reserved }
}

fn job(id: u32, gpus: u32) -> Job {
    Job { grace: Span::secs(30), ..Job::simple(JobId(id), Time::ZERO, gpus) }
}

fn fixed(id: u32, gpus: u32) -> Job {
    Job { preemptible: false, ..job(id, gpus) }
}

fn nodes(host: &Host, job: u32) -> Vec<u32> {
    let live = host.engine.state().live(JobId(job));
    let held = live.and_then(|live| live.state.held.clone());
    held.map_or_else(Vec::new, |held| held.placement.masks().iter().map(|(n, _)| n.0).collect())
}

#[test]
fn a_job_that_can_neither_end_nor_save_before_a_window_does_not_start_there() {
    let mut host = host();
    host.submit(1, fixed(0, 4));
    host.submit(1, fixed(1, 4));
    assert_eq!((nodes(&host, 0), nodes(&host, 1)), (vec![1], vec![]));
    let reasons = host.engine.explain(JobId(1)).expect("known").reasons;
    let (window, node) = (WindowId(1), NodeId(0));
    assert_eq!(reasons, [Reason::Window { window, node, from: at(1000), until: at(2000) }]);
    host.until(1999);
    assert!(!host.runs(1), "it is under maintenance");
    host.until(2000);
    assert_eq!(nodes(&host, 1), [0], "and starts when that is over");
}

#[test]
fn a_time_limit_before_the_window_lets_a_job_start_there() {
    let limited = |id: u32, limit: u64| Job { run_max: Some(Span::secs(limit)), ..fixed(id, 4) };
    let mut host = host();
    host.submit(1, fixed(0, 4));
    host.submit(1, limited(1, 960));
    assert!(!host.runs(1), "40 s before the window are for its end");
    host.submit(1, limited(2, 950));
    assert_eq!(nodes(&host, 2), [0]);
    host.until(1000);
    assert!(!host.runs(2), "its limit ended it");
}

#[test]
fn a_job_that_can_save_is_stopped_in_time_and_goes_on_afterwards() {
    let mut host = host();
    host.submit(1, job(0, 8));
    assert_eq!(nodes(&host, 0), [0, 1]);
    assert!(host.until(959).is_empty());
    let stopped = host.until(960);
    let why = stopped.iter().find_map(|action| match action {
        Action::Stop { job: JobId(0), why, .. } => Some(*why),
        _ => None,
    });
    assert_eq!(why, Some(Why::Window), "its grace of 30 s and 10 s before");
    assert!(!host.runs(0));
    host.submit(961, job(1, 2));
    assert_eq!(nodes(&host, 1), [1], "too late for the first node");
    host.finish(1500, 1);
    host.until(2000);
    assert_eq!(nodes(&host, 0), [0, 1]);
}

#[test]
fn a_reservation_is_open_to_its_tenant_and_to_nobody_else() {
    let mut host = host();
    let vision = Allowed { tenants: [TenantId(1)].into(), jobs: [JobId(7)].into() };
    host.at(0, Event::WindowSet(window(Some(vision))));
    host.submit(1, fixed(0, 4));
    host.submit(1200, job(1, 1));
    assert!(!host.runs(1), "reserved for others");
    host.submit(1201, Job { tenant: TenantId(1), ..fixed(2, 2) });
    host.submit(1202, fixed(7, 1));
    assert_eq!((nodes(&host, 2), nodes(&host, 7)), (vec![0], vec![0]));
    host.until(2000);
    assert_eq!(nodes(&host, 1), [0]);
}

#[test]
fn a_window_that_comes_over_a_job_stops_it_and_one_that_goes_lets_it_start() {
    let mut host = host();
    host.at(1, Event::WindowRemoved(WindowId(1)));
    host.submit(1, fixed(0, 8));
    assert!(host.runs(0));
    host.at(900, Event::WindowSet(window(None)));
    assert!(host.runs(0), "it has until then");
    host.until(960);
    assert!(!host.runs(0), "the node goes down, whatever the job allows");
    host.at(970, Event::WindowRemoved(WindowId(1)));
    assert!(host.runs(0));
}

/// Every launch, against the windows of the run.
struct Watch<'a> {
    windows: &'a [Window],
    jobs: &'a Workload,
    launches: u32,
}

impl Observer for Watch<'_> {
    fn action(&mut self, now: Time, action: &Action) {
        let Action::Launch { job, allocation, .. } = action else { return };
        self.launches += 1;
        let spec = &self.jobs.jobs[job.index()].job;
        for (node, _) in allocation.placement.masks() {
            for window in self.windows.iter().filter(|window| window.nodes.contains(node)) {
                let within = window.is_on(now) && !window.allows(spec);
                assert!(!within, "{job} starts on {node} in {window:?}");
                let ahead = window.from > now && !window.allows(spec);
                let ends = spec.run_max.is_some_and(|limit| now + limit <= window.from);
                assert!(!ahead || spec.preemptible || ends, "{job} cannot leave {node} in time");
            }
        }
    }
}

#[test]
fn under_every_policy_nobody_starts_in_a_window_or_without_a_way_out_and_all_are_served() {
    let shape = cluster::parse_line("3x4 v100, 1x4 a100").expect("a cluster");
    let spec = Spec { jobs: 60, arrival: Arrival::Load(0.8), seed: 5, ..Spec::default() };
    let mut workload = generate(&spec, &Catalog::builtin(), &shape).expect("a workload");
    for one in workload.jobs.iter_mut().step_by(4) {
        Arc::make_mut(&mut one.job).preemptible = false;
    }
    for (index, policy) in POLICIES.iter().enumerate() {
        let mut dice = Dice::new(index as u64, 9);
        let mut cluster = shape.clone();
        for id in 0..6 {
            let from = at(dice.between(0, 200_000));
            let reserved = dice.chance(300).then(|| Allowed {
                jobs: (0..60).step_by(7).map(JobId).collect(),
                ..Allowed::default()
            });
            let nodes = vec![NodeId(dice.below(4) as u32), NodeId(dice.below(4) as u32)];
            let until = from + Span::secs(dice.between(60, 40_000));
            cluster.windows.push(Window { id: WindowId(id), nodes, from, until, reserved });
        }
        let mut options = Options::default();
        options.setup.check_every = 1;
        options.failures = None::<FailureModel>;
        let windows = cluster.windows.clone();
        let mut watch = Watch { windows: &windows, jobs: &workload, launches: 0 };
        let pipeline = Selection::policy(policy.name).build().expect("defaults build");
        let outcome = simulate(&workload, &Arc::new(cluster), pipeline, &options, &mut watch);
        assert!(watch.launches >= 60, "{}: {} launches", policy.name, watch.launches);
        assert!(outcome.unfinished.is_empty(), "{}: {:?}", policy.name, outcome.unfinished);
        assert_eq!(outcome.stats.faults, 0, "{}: {:?}", policy.name, outcome.stats.fault_samples);
    }
}
