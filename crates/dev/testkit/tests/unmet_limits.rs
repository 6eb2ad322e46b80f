//! Jobs that a goodput policy cannot run: each is told why, and the rest goes on.

use std::sync::Arc;
use trainyard_engine::{Engine, Setup};
use trainyard_framework::{Beliefs, ChangeCost, RawSettings};
use trainyard_policies::compose::{Choice, Selection};
use trainyard_profile::BatchLimits;
use trainyard_profile::training::StepTime;
use trainyard_testkit::host::Host;
use trainyard_types::{
    Action, Cluster, Config, GpuType, Job, JobId, Rate, Reason, Tenants, Time, Want, Work,
};

/// Three jobs: sound, with limits of the batch that nothing can meet, and of unknown speed.
#[derive(Clone)]
struct Odd;

impl Beliefs for Odd {
    fn copied(&self) -> Arc<dyn Beliefs> {
        Arc::new(Odd)
    }

    fn rate(&self, _job: &Job, _on: &Config) -> Option<Rate> {
        None
    }

    fn change(&self, _job: &Job, _from: Option<&Config>, _to: Option<&Config>) -> ChangeCost {
        ChangeCost::default()
    }

    fn work(&self, _job: &Job) -> Option<Work> {
        None
    }

    fn batch_limits(&self, job: &Job, _kind: GpuType) -> Option<BatchLimits> {
        let sound = BatchLimits { first: 128, most: 4096, local_least: 32, local_most: 1024 };
        match job.id.0 {
            0 => Some(sound),
            1 => Some(BatchLimits { most: 128, local_least: 256, ..sound }),
            _ => None,
        }
    }

    fn trial(&self, _job: &Job, _on: &Config, local: u32) -> Option<StepTime> {
        Some(StepTime { step: 0.05 + 0.001 * f64::from(local), sync: 0.0 })
    }
}

#[test]
fn a_job_that_cannot_run_is_told_why_and_the_rest_goes_on() {
    for bootstrap in ["none", "bootstrap", "oracle"] {
        let settings = RawSettings::parse([format!("bootstrap={bootstrap}").as_str()]).unwrap();
        let policy = Choice { name: "sia".to_owned(), settings };
        let pipeline = Selection { policy, ..Selection::default() }.build().expect("a pipeline");
        let cluster = Cluster::uniform(1, 4, "v100");
        let mut host = Host::new(cluster.clone(), Tenants::default(), pipeline);
        let setup = Setup { check_every: 1, ..Setup::default() };
        host.engine = Engine::new(Arc::new(cluster), Tenants::default(), Arc::new(Odd), setup);
        for id in 0..3 {
            let want = Want { gpus_min: 1, gpus_max: 4, ..Want::gpus(1) };
            host.submit(0, Job { want, ..Job::simple(JobId(id), Time::ZERO, 1) });
        }
        host.until(600);
        let stats = host.engine.stats();
        assert_eq!((stats.faults, stats.policy_errors, stats.policy_panics), (0, 0, 0));
        let launched: Vec<u32> = host
            .actions
            .iter()
            .filter_map(|action| match action {
                Action::Launch { job, .. } => Some(job.0),
                _ => None,
            })
            .collect();
        assert_eq!(launched, [0], "{bootstrap}");
        let why = |id: u32| host.engine.explain(JobId(id)).expect("it waits").reasons;
        let no_batch = Reason::NoBatch { least: 256, most: 128 };
        assert_eq!(why(1), [no_batch], "{bootstrap}");
        assert_eq!(why(2), [Reason::NoSpeed], "{bootstrap}");
    }
}
