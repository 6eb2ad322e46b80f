//! A round that cannot change anything is not asked for, and what is decided is the same.

use std::sync::Arc;
use trainyard_policies::compose::Selection;
use trainyard_profile::Catalog;
use trainyard_sim::{JobOutcome, Options, Outcome, Quiet, simulate};
use trainyard_types::{Cluster, JobId, Span, Time};
use trainyard_workload::{Arrival, DurationLaw, SizeLaw, Spec, Workload, generate};

const MINUTE: u64 = Span::secs(60).0;
const SAVING_MAX: u64 = Span::secs(10).0;

fn run(policy: &str, elastic_share: f64) -> (Workload, Outcome) {
    let cluster = Cluster::uniform(4, 8, "v100");
    let spec = Spec {
        jobs: 60,
        arrival: Arrival::Load(1.2),
        duration: DurationLaw::Gavel,
        size: SizeLaw::Gavel,
        elastic_share,
        ..Spec::default()
    };
    let workload = generate(&spec, &Catalog::builtin(), &cluster).expect("a workload");
    let pipeline = Selection::policy(policy).build().expect("a policy");
    let outcome =
        simulate(&workload, &Arc::new(cluster), pipeline, &Options::default(), &mut Quiet);
    assert!(outcome.unfinished.is_empty() && outcome.stats.faults == 0);
    (workload, outcome)
}

#[test]
fn sia_asks_for_no_round_while_rigid_jobs_stay_where_they_are() {
    let (_, outcome) = run("sia", 0.0);
    let last = outcome.jobs.iter().map(|job| job.ended).max().unwrap_or(Time::ZERO);
    let (decisions, minutes) = (outcome.stats.decisions, last.0 / MINUTE);
    assert!(minutes > 5_000, "the run is long: {minutes} minutes");
    assert!(decisions < 1_000, "{decisions} decisions in {minutes} minutes about 60 jobs");
}

#[test]
fn jobs_under_sia_start_at_the_beginning_of_a_round_though_rounds_are_left_out() {
    for elastic_share in [0.0, 1.0] {
        let (workload, outcome) = run("sia", elastic_share);
        let submitted = |job: JobId| workload.jobs[job.index()].job.submitted;
        for job in &outcome.jobs {
            // Where there was no job at all the round begins with it.
            let at = submitted(job.job);
            let is_alone = |other: &JobOutcome| submitted(other.job) >= at || other.ended <= at;
            let start = job.first_start.expect("it ran");
            // A job whose GPUs another one has to leave starts when that has saved.
            let begins = start.0 % MINUTE <= SAVING_MAX || outcome.jobs.iter().all(is_alone);
            assert!(begins, "{} starts at {start:?}", job.job);
        }
    }
}
