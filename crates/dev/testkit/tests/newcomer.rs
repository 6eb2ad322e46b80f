//! An elastic job has all GPUs and another comes: what the live side knows of both is little, and the newcomer is
//! served all the same.

use std::sync::Arc;
use trainyard_engine::{Engine, Setup};
use trainyard_framework::{Beliefs, ChangeCost, RawSettings};
use trainyard_policies::compose::{Choice, Selection};
use trainyard_testkit::host::Host;
use trainyard_types::{Cluster, Config, Job, JobId, Rate, Span, Tenants, Time, Want, Work};

/// What a daemon believes of jobs without a profile: speed grows with GPUs, a change takes half a minute, and the
/// work is what each job declared, if it did.
struct Live;

impl Beliefs for Live {
    fn copied(&self) -> Arc<dyn Beliefs> {
        Arc::new(Live)
    }

    fn rate(&self, _job: &Job, on: &Config) -> Option<Rate> {
        Some(Rate(f64::from(on.gpus)))
    }

    fn change(&self, _job: &Job, _from: Option<&Config>, _to: Option<&Config>) -> ChangeCost {
        ChangeCost { save: Span::secs(10), start: Span::secs(20), in_place: false }
    }

    fn work(&self, job: &Job) -> Option<Work> {
        job.declared
    }
}

fn elastic(id: u32, second: u64, work: Option<f64>) -> Job {
    let want = Want { gpus_min: 1, gpus_max: 8, ..Want::gpus(8) };
    let declared = work.map(Work);
    Job { want, declared, ..Job::simple(JobId(id), Time(second * 1_000_000), 8) }
}

/// Eight GPUs, a job that has them all for a minute, and then another: how many each holds at once.
fn after_newcomer(policy: &str, works: [Option<f64>; 2]) -> [u32; 2] {
    let policy = Choice { name: policy.to_owned(), settings: RawSettings::default() };
    let pipeline = Selection { policy, ..Selection::default() }.build().expect("it builds");
    let cluster = Cluster::uniform(1, 8, "v100");
    let mut host = Host::new(cluster.clone(), Tenants::default(), pipeline);
    let setup = Setup { check_every: 1, ..Setup::default() };
    host.engine = Engine::new(Arc::new(cluster), Tenants::default(), Arc::new(Live), setup);
    host.submit(0, elastic(0, 0, works[0]));
    assert_eq!(held(&host, 0), 8);
    host.submit(60, elastic(1, 60, works[1]));
    [held(&host, 0), held(&host, 1)]
}

fn held(host: &Host, job: u32) -> u32 {
    host.engine.state().live(JobId(job)).map_or(0, |live| live.state.gpus())
}

#[test]
fn a_newcomer_gets_its_least_share_at_once_whatever_is_known_of_lengths() {
    const LENGTHS: [Option<f64>; 4] = [None, Some(1_000.0), Some(20_000.0), Some(1_000_000.0)];
    for policy in ["afs-l", "afs-p"] {
        for first in LENGTHS {
            for second in LENGTHS {
                let [one, other] = after_newcomer(policy, [first, second]);
                let case = format!("{policy}: {first:?} and {second:?} hold {one} and {other}");
                assert!(one >= 1 && other >= 1, "{case}");
                assert_eq!(one + other, 8, "{case}");
            }
        }
    }
}

#[test]
fn a_job_that_ends_before_its_change_would_be_over_is_left_alone() {
    // 200 of work on 8 GPUs are 25 seconds, and a change takes thirty.
    assert_eq!(after_newcomer("afs-l", [Some(200.0), Some(20_000.0)]), [8, 0]);
}
