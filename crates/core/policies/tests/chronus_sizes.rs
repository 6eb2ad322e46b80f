//! What Chronus' page says in numbers of gangs that are rounded up and of leases whose length is chosen.
//!
//! The jobs are drawn here. Each row that a test makes stands on `docs/policies/chronus.md`, letter by letter.

use std::sync::Arc;
use trainyard_framework::RawSettings;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_sim::{Options, Outcome, Quiet, Semantics, simulate};
use trainyard_types::{Cluster, Job, JobId, Span, Time, Work};
use trainyard_workload::{TraceJob, Workload};

/// Numbers of a fixed sequence.
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Jobs of the sizes in turn that come every `gap` minutes on average and take 20 minutes to 6 hours; of ten jobs
/// `deadlines` have one, 1.5 to 4 times as far away as they take.
fn jobs(sizes: &[u32], gap: u64, deadlines: u64) -> Workload {
    let mut draw = Draw(1);
    let mut workload = Workload::empty("drawn");
    let mut now = 0;
    for index in 0..300 {
        now += draw.below(2 * gap + 1);
        let minutes = 20 * (1 << draw.below(5)) + draw.below(60);
        let mut job = Job::simple(
            JobId(index),
            Time(Span::secs(now * 60).0),
            sizes[index as usize % sizes.len()],
        );
        let times = 15 + draw.below(26);
        if draw.below(10) < deadlines {
            job.value = vec![(job.submitted + Span::secs(minutes * 6 * times), 10.0)];
        }
        workload.jobs.push(TraceJob::new(job, Work(minutes as f64 * 60.0)));
    }
    workload
}

fn run(workload: &Workload, cluster: &Cluster, settings: &[&str]) -> Outcome {
    let settings = RawSettings::parse(settings.iter().copied()).expect("valid settings");
    let policy = Choice { name: "chronus".to_owned(), settings };
    let pipeline = Selection { policy, ..Selection::default() }.build().expect("valid settings");
    let options = Options { estimate_error: 0.0, ..Semantics::Native.options() };
    let outcome = simulate(workload, &Arc::new(cluster.clone()), pipeline, &options, &mut Quiet);
    assert_eq!(outcome.stats.faults, 0, "{:?}", outcome.stats.fault_samples);
    assert!(outcome.unfinished.is_empty());
    outcome
}

/// Deadlines missed of those there are, mean completion of jobs with and without one in minutes, and preemptions.
fn figures(workload: &Workload, outcome: &Outcome) -> String {
    let (mut missed, mut with, mut without) = (0, Vec::new(), Vec::new());
    let mut preemptions = 0;
    for one in &outcome.jobs {
        let job = &workload.jobs[one.job.index()].job;
        let minutes = one.ended.since(job.submitted).as_secs_f64() / 60.0;
        preemptions += one.preemptions;
        match job.value.first() {
            Some((by, _)) => {
                missed += usize::from(one.ended > *by);
                with.push(minutes);
            }
            None => without.push(minutes),
        }
    }
    let mean = |all: &[f64]| match all.len() {
        0 => "-".to_owned(),
        count => format!("{:.0}", all.iter().sum::<f64>() / count as f64),
    };
    format!("{missed} of {} | {} | {} | {preemptions} |", with.len(), mean(&with), mean(&without))
}

fn assert_on_page(rows: &[String]) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/policies/chronus.md");
    let page = std::fs::read_to_string(path).expect("the page of chronus");
    let absent: Vec<&String> = rows.iter().filter(|row| !page.contains(row.as_str())).collect();
    assert!(absent.is_empty(), "the page has not: {absent:#?}");
}

#[test]
fn the_page_has_the_table_of_rounded_gangs() {
    let cluster = Cluster::uniform(8, 8, "v100");
    let row = |name: &str, sizes: &[u32]| {
        let workload = jobs(sizes, 18, 6);
        let figures = figures(&workload, &run(&workload, &cluster, &[]));
        format!("| {name} | {figures}")
    };
    // What is rounded up holds GPUs that it does not use: to the others that is a job that asks for so many.
    assert_on_page(&[row("as requested, 8+2", &[3, 6, 10]), row("rounded up", &[4, 8, 16])]);
}

#[test]
fn the_page_has_the_table_of_lease_lengths() {
    let cluster = Cluster::uniform(4, 8, "v100");
    let workload = jobs(&[1, 2, 4, 8], 17, 5);
    let row = |lease: &str| {
        let setting = format!("lease={lease}");
        let figures = figures(&workload, &run(&workload, &cluster, &[&setting]));
        format!("| `lease={lease}` | {figures}")
    };
    assert_on_page(&["5m", "20m", "1h", "auto"].map(row));
}
