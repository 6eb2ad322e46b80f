//! Policies that choose sizes, and jobs about which they are told nonsense: a verdict on those, and the rest goes on.

use std::collections::BTreeMap;
use std::sync::Arc;
use trainyard_engine::{Engine, Setup};
use trainyard_framework::{Beliefs, ChangeCost, RawSettings};
use trainyard_policies::compose::{Choice, Selection};
use trainyard_profile::Catalog;
use trainyard_sim::{FailureModel, Options, Outcome, Quiet, simulate};
use trainyard_testkit::host::Host;
use trainyard_types::{
    Action, Cluster, Config, Job, JobId, Rate, Reason, Span, Tenants, Time, Want, Work,
};
use trainyard_workload::{Arrival, Spec, cluster, generate};

/// Beliefs that go by the number of the job.
struct Odd;

impl Beliefs for Odd {
    fn copied(&self) -> Arc<dyn Beliefs> {
        Arc::new(Odd)
    }

    fn rate(&self, job: &Job, on: &Config) -> Option<Rate> {
        // Slower on two GPUs than on one, and slower on four than on three.
        const DIPS: [f64; 5] = [0.0, 1.0, 0.5, 2.5, 1.9];
        match job.id.0 {
            0 => None,
            1 => Some(Rate(0.0)),
            2 => Some(Rate(f64::NAN)),
            3 => Some(Rate(DIPS[on.gpus.min(4) as usize])),
            _ => Some(Rate(f64::from(on.gpus))),
        }
    }

    fn change(&self, _job: &Job, _from: Option<&Config>, _to: Option<&Config>) -> ChangeCost {
        ChangeCost::default()
    }

    fn work(&self, job: &Job) -> Option<Work> {
        match job.id.0 {
            5 => None,
            6 => Some(Work(f64::NAN)),
            _ => Some(Work(6000.0)),
        }
    }
}

fn elastic(id: u32, least: u32, most: u32) -> Job {
    let want = Want { gpus_min: least, gpus_max: most, ..Want::gpus(least) };
    Job { want, ..Job::simple(JobId(id), Time::ZERO, 1) }
}

/// A host with eight GPUs and these jobs, for ten minutes.
fn host(policy: &str, settings: &[&str], jobs: Vec<Job>) -> Host {
    let settings = RawSettings::parse(settings.iter().copied()).expect("settings");
    let policy = Choice { name: policy.to_owned(), settings };
    let pipeline = Selection { policy, ..Selection::default() }.build().expect("it builds");
    let cluster = Cluster::uniform(1, 8, "v100");
    let mut host = Host::new(cluster.clone(), Tenants::default(), pipeline);
    let setup = Setup { check_every: 1, ..Setup::default() };
    host.engine = Engine::new(Arc::new(cluster), Tenants::default(), Arc::new(Odd), setup);
    for job in jobs {
        host.submit(0, job);
    }
    host.until(600);
    let stats = host.engine.stats();
    assert_eq!((stats.faults, stats.policy_errors, stats.policy_panics), (0, 0, 0));
    host
}

/// The sizes with which jobs were launched.
fn sizes(host: &Host) -> BTreeMap<u32, Vec<u32>> {
    let mut sizes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for action in &host.actions {
        if let Action::Launch { job, allocation, .. } = action {
            sizes.entry(job.0).or_default().push(allocation.placement.gpus());
        }
    }
    sizes
}

fn reasons(host: &Host, job: u32) -> Vec<Reason> {
    host.engine.explain(JobId(job)).expect("a job that is not over").reasons
}

#[test]
fn jobs_without_a_speed_are_told_so_and_the_others_run() {
    for policy in ["afs-l", "afs-p", "optimus"] {
        let mut jobs: Vec<Job> = (0..7).map(|id| elastic(id, 1, 4)).collect();
        // The cluster never has so many: the engine turns it away.
        jobs.push(elastic(7, 9, 12));
        let host = host(policy, &[], jobs);
        for id in 0..3 {
            assert_eq!(reasons(&host, id), [Reason::NoSpeed], "{policy} {id}");
        }
        let sizes = sizes(&host);
        let ran: Vec<u32> = sizes.keys().copied().collect();
        assert_eq!(ran, [3, 4, 5, 6], "{policy}");
        assert!(host.engine.end(JobId(7)).is_some(), "{policy}");
        for size in &sizes[&3] {
            assert!([1, 3].contains(size), "{policy} gave {size} GPUs to a job slower on them");
        }
    }
}

#[test]
fn whoever_is_told_nothing_goes_by_what_it_sees() {
    let jobs = (0..6).map(|id| elastic(id, 1, 8)).collect();
    let host = host("optimus", &["knowledge=observed", "interval=1m"], jobs);
    let sizes = sizes(&host);
    assert_eq!(sizes.len(), 6, "no job's speed is told, so that all are alike");
    assert!(sizes.values().all(|sizes| sizes[0] == 1), "nothing was seen yet: {sizes:?}");
}

/// Elastic, rigid and shared jobs of several tenants on two types, with nodes that are lost and estimates that err.
fn mishaps(policy: &str, settings: &[&str]) -> Outcome {
    let (cluster, _) = cluster::parse("3x8 v100, 2x4 a100").expect("a valid cluster");
    let spec = Spec {
        jobs: 100,
        seed: 11,
        arrival: Arrival::Load(1.4),
        models: vec!["gavel-*".to_owned(), "elasticflow-*".to_owned()],
        tenants: 3,
        elastic_share: 0.7,
        ..Spec::default()
    };
    let workload = generate(&spec, &Catalog::builtin(), &cluster).expect("a valid spec");
    let mut options = Options {
        failures: Some(FailureModel {
            between: Span::secs(40_000),
            repair: Span::secs(3_000),
            gpus: None,
        }),
        estimate_error: 1.0,
        ..Options::default()
    };
    options.setup.check_every = 1;
    options.decision_cost.fixed = Span::secs(1);
    let settings = RawSettings::parse(settings.iter().copied()).expect("settings");
    let policy = Choice { name: policy.to_owned(), settings };
    let pipeline = Selection { policy, ..Selection::default() }.build().expect("it builds");
    simulate(&workload, &Arc::new(cluster), pipeline, &options, &mut Quiet)
}

#[test]
fn elastic_jobs_are_served_whatever_happens() {
    let cases: [(&str, &[&str]); 7] = [
        ("afs-l", &[]),
        ("afs-l", &["resize_cost=false"]),
        ("afs-p", &[]),
        ("afs-p", &["turn=0s", "resize_cost=false"]),
        ("optimus", &[]),
        ("optimus", &["knowledge=observed"]),
        ("optimus", &["rules=authors"]),
    ];
    for (policy, settings) in cases {
        let outcome = mishaps(policy, settings);
        let stats = &outcome.stats;
        let wrong = (stats.faults, stats.policy_errors, stats.policy_panics);
        assert_eq!(wrong, (0, 0, 0), "{policy} {settings:?} {:?}", stats.fault_samples);
        assert!(outcome.unfinished.is_empty(), "{policy} {settings:?} left some");
        assert_eq!(outcome.jobs, mishaps(policy, settings).jobs, "{policy} {settings:?}");
    }
}
