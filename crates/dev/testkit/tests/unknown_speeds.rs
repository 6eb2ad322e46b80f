//! A plan over jobs whose speed or length is not known, or is nonsense.

use std::collections::BTreeSet;
use std::sync::Arc;
use trainyard_engine::{Engine, Setup};
use trainyard_framework::{Beliefs, ChangeCost};
use trainyard_policies::compose::Selection;
use trainyard_testkit::host::Host;
use trainyard_types::{
    Action, Cluster, Config, End, Job, JobId, Rate, Reason, Tenants, Time, Work,
};

/// Beliefs that go by the number of the job.
struct Odd;

impl Beliefs for Odd {
    fn copied(&self) -> Arc<dyn Beliefs> {
        Arc::new(Odd)
    }

    fn rate(&self, job: &Job, _on: &Config) -> Option<Rate> {
        match job.id.0 {
            0 => None,
            1 => Some(Rate(0.0)),
            2 => Some(Rate(f64::NAN)),
            3 => Some(Rate(-1.0)),
            4 => Some(Rate(f64::INFINITY)),
            _ => Some(Rate(1.0)),
        }
    }

    fn change(&self, _job: &Job, _from: Option<&Config>, _to: Option<&Config>) -> ChangeCost {
        ChangeCost::default()
    }

    fn work(&self, job: &Job) -> Option<Work> {
        match job.id.0 {
            5 => None,
            6 => Some(Work(0.0)),
            7 => Some(Work(f64::NAN)),
            8 => Some(Work(1e300)),
            _ => Some(Work(600.0)),
        }
    }
}

#[test]
fn jobs_of_unknown_speed_or_length_take_their_turns_under_a_planned_window() {
    let pipeline = Selection::policy("shockwave").build().expect("defaults build");
    let cluster = Cluster::uniform(1, 2, "v100");
    let mut host = Host::new(cluster.clone(), Tenants::default(), pipeline);
    let setup = Setup { check_every: 1, ..Setup::default() };
    host.engine = Engine::new(Arc::new(cluster), Tenants::default(), Arc::new(Odd), setup);
    for id in 0..10 {
        host.submit(0, Job::simple(JobId(id), Time::ZERO, 1));
    }
    // Larger than the cluster: it waits, and no job waits for it.
    host.submit(0, Job::simple(JobId(10), Time::ZERO, 4));
    host.until(6 * 3600);
    let stats = host.engine.stats();
    assert_eq!((stats.faults, stats.policy_errors, stats.policy_panics), (0, 0, 0));
    let launched: BTreeSet<u32> = host
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Launch { job, .. } => Some(job.0),
            _ => None,
        })
        .collect();
    assert_eq!(launched, (0..10).collect(), "every job that fits has run");
}

#[test]
fn policies_that_choose_sizes_say_which_jobs_have_no_speed_and_go_on_with_the_rest() {
    for (policy, without) in [("lyra", 0..5), ("heet", 1..5), ("kungfu", 0..5)] {
        let pipeline = Selection::policy(policy).build().expect("defaults build");
        let cluster = Cluster::uniform(1, 2, "v100");
        let mut host = Host::new(cluster.clone(), Tenants::default(), pipeline);
        let setup = Setup { check_every: 1, ..Setup::default() };
        host.engine = Engine::new(Arc::new(cluster), Tenants::default(), Arc::new(Odd), setup);
        for id in 0..10 {
            let mut job = Job::simple(JobId(id), Time::ZERO, 1);
            job.want.gpus_max = 2;
            host.submit(0, job);
        }
        let mut never = Job::simple(JobId(10), Time::ZERO, 1);
        (never.want.gpus_min, never.want.gpus_max) = (2, 1);
        host.submit(0, never);
        host.until(60);
        let stats = host.engine.stats();
        assert_eq!((stats.faults, stats.policy_errors, stats.policy_panics), (0, 0, 0), "{policy}");
        for id in without {
            let why = host.engine.explain(JobId(id)).expect("it waits").reasons;
            assert!(why.contains(&Reason::NoSpeed), "{policy}, job {id}: {why:?}");
        }
        assert_eq!(host.engine.end(JobId(10)), Some(End::Rejected), "least above most");
        let launched = host.actions.iter().filter(|it| matches!(it, Action::Launch { .. })).count();
        assert!(launched >= 1, "{policy} lets no job run");
    }
}

#[test]
fn no_policy_lets_a_job_with_a_speed_wait_for_jobs_without_one_where_there_is_room_for_all() {
    let mut wrong = Vec::new();
    for entry in trainyard_policies::registry::POLICIES {
        let pipeline = Selection::policy(entry.name).build().expect("defaults build");
        let cluster = Cluster::uniform(2, 8, "v100");
        let mut host = Host::new(cluster.clone(), Tenants::default(), pipeline);
        let setup = Setup { check_every: 1, ..Setup::default() };
        host.engine = Engine::new(Arc::new(cluster), Tenants::default(), Arc::new(Odd), setup);
        for id in 0..10 {
            host.submit(0, Job::simple(JobId(id), Time::ZERO, 1));
        }
        host.until(2 * 3600);
        let stats = host.engine.stats();
        let failed = (stats.faults, stats.policy_errors, stats.policy_panics) != (0, 0, 0);
        let waits: Vec<u32> = (5..10).filter(|id| !host.runs(*id)).collect();
        if failed || !waits.is_empty() {
            let (errors, panics) = (stats.policy_errors, stats.policy_panics);
            let faults = &stats.fault_samples;
            wrong.push(format!("{}: {waits:?} wait, {faults:?}, {errors}, {panics}", entry.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
