//! Chronus' own simulator, met in its aggregates: 307 jobs on 16 GPUs, with strict and soft deadlines and best effort.
//!
//! The reference runs solve their programs with a limit in seconds, so that no two of them are alike to the job. The
//! goldens lie beside the repository; where they are absent the tests say so and pass.

use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use trainyard_framework::RawSettings;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_sim::{Options, Outcome, Quiet, Semantics, simulate};
use trainyard_testkit::host::Host;
use trainyard_testkit::places::shared;
use trainyard_testkit::say;
use trainyard_types::{Cluster, End, Job, JobId, Reason, Span, Tenants, Time, Work};
use trainyard_workload::import::{ImportContext, import_any};
use trainyard_workload::{TraceJob, Workload};

fn trace(name: &str, cluster: &Cluster) -> Option<Workload> {
    let path = shared(&format!("golden/chronus/input_s100_{name}.csv.gz"))?;
    let reader = GzDecoder::new(File::open(path).expect("a file that exists opens"));
    let imported = import_any(reader, ImportContext::new(name, Some(cluster)));
    Some(imported.expect("a trace of Chronus").workload)
}

fn run(workload: &Workload, cluster: &Cluster, settings: &[&str], preset: Semantics) -> Outcome {
    let settings = RawSettings::parse(settings.iter().copied()).expect("valid settings");
    let choice = Choice { name: "chronus".to_owned(), settings };
    let mut selection = Selection { policy: choice, ..Selection::default() };
    selection.wish(preset.wishes().iter().copied());
    let pipeline = selection.build().expect("valid settings");
    let cluster = Arc::new(cluster.clone());
    // Sizes are exact in both, so that rules are compared and not luck.
    let options = Options { estimate_error: 0.0, ..preset.options() };
    let outcome = simulate(workload, &cluster, pipeline, &options, &mut Quiet);
    assert_eq!(outcome.stats.faults, 0, "{:?}", outcome.stats.fault_samples);
    assert_eq!(outcome.stats.policy_errors + outcome.stats.policy_panics, 0);
    assert!(outcome.unfinished.is_empty());
    outcome
}

/// What the authors' tables say of a run, in minutes.
#[derive(Debug)]
struct Figures {
    jct: f64,
    pending: f64,
    miss: f64,
    soft_miss: f64,
    preemptions: f64,
    makespan: f64,
}

impl Figures {
    fn ours(workload: &Workload, outcome: &Outcome) -> Figures {
        let count = workload.jobs.len() as f64;
        let mut sum = Figures {
            jct: 0.0,
            pending: 0.0,
            miss: 0.0,
            soft_miss: 0.0,
            preemptions: 0.0,
            makespan: 0.0,
        };
        let mut deadlines = 0.0;
        for one in &outcome.jobs {
            let job = &workload.jobs[one.job.index()].job;
            let jct = one.ended.since(job.submitted).as_secs_f64() / 60.0;
            sum.jct += jct / count;
            sum.pending += (jct - one.ran.as_secs_f64() / 60.0) / count;
            sum.preemptions += f64::from(one.preemptions);
            sum.makespan = sum.makespan.max(one.ended.as_secs_f64() / 60.0);
            let Some((first, most)) = job.value.first() else { continue };
            deadlines += 1.0;
            sum.miss += f64::from(u8::from(one.ended > *first));
            let met = job.value.iter().find(|(by, _)| one.ended <= *by);
            sum.soft_miss += 1.0 - met.map_or(0.0, |(_, value)| value / most);
        }
        sum.miss /= deadlines;
        sum.soft_miss /= deadlines;
        sum
    }

    fn golden(run: &str) -> Option<Figures> {
        let file = File::open(shared("golden/chronus/summary.csv")?).expect("it opens");
        let mut reader = csv::Reader::from_reader(file);
        let rows = reader.deserialize::<BTreeMap<String, String>>();
        let row = rows.map(|row| row.expect("a row")).find(|row| row["run"] == run)?;
        let number = |key: &str| row[key].parse().expect("a number");
        Some(Figures {
            jct: number("avg_jct_min"),
            pending: number("avg_pending_min"),
            miss: number("first_deadline_miss_rate"),
            soft_miss: number("soft_weighted_miss"),
            preemptions: number("preemptions"),
            makespan: number("makespan_min"),
        })
    }
}

/// Jobs that end in the same moment as in the reference run.
fn equal_ends(run: &str, workload: &Workload, outcome: &Outcome) -> Option<usize> {
    let path = shared(&format!("golden/chronus/{run}_jobs.csv.gz"))?;
    let reader = GzDecoder::new(File::open(path).expect("it opens"));
    let mut reader = csv::Reader::from_reader(reader);
    let mut ends = BTreeMap::new();
    for row in reader.deserialize::<BTreeMap<String, String>>() {
        let row = row.expect("a row");
        let end: f64 = row["end_time"].parse().expect("minutes");
        ends.insert(row["job_id"].clone(), end);
    }
    let is_equal = |one: &&trainyard_sim::JobOutcome| {
        let end = one.ended.as_secs_f64() / 60.0;
        (ends[&workload.label(one.job)] - end).abs() < 0.01
    };
    Some(outcome.jobs.iter().filter(is_equal).count())
}

#[test]
fn jobs_that_make_no_sense_leave_the_rest_alone() {
    let cluster = Cluster::uniform(1, 4, "v100");
    let minutes = |minutes: u64| Time(Span::secs(minutes * 60).0);
    let mut workload = Workload::empty("odd");
    let mut add = |gpus: u32, seconds: f64, deadline: u64| {
        let id = JobId(workload.jobs.len() as u32);
        let mut job = Job::simple(id, minutes(30), gpus);
        job.value = vec![(minutes(deadline), 1.0)];
        workload.jobs.push(TraceJob::new(job, Work(seconds)));
    };
    // Over before it came, nothing to do, wider than the cluster, and one that is sound.
    add(4, 600.0, 10);
    add(1, 0.0, 60);
    add(64, 600.0, 90);
    add(4, 600.0, 60);
    for (settings, preset) in [
        (&[][..], Semantics::Native),
        (&["profile=true"], Semantics::Native),
        (&[], Semantics::Chronus),
    ] {
        let settings = RawSettings::parse(settings.iter().copied()).expect("valid settings");
        let choice = Choice { name: "chronus".to_owned(), settings };
        let mut selection = Selection { policy: choice, ..Selection::default() };
        selection.wish(preset.wishes().iter().copied());
        let pipeline = selection.build().expect("valid settings");
        let cluster = Arc::new(cluster.clone());
        let options = Options { estimate_error: 0.0, ..preset.options() };
        let outcome = simulate(&workload, &cluster, pipeline, &options, &mut Quiet);
        let ends: Vec<End> = outcome.jobs.iter().map(|one| one.end).collect();
        assert_eq!(ends, [End::Finished, End::Finished, End::Rejected, End::Finished]);
        assert!(outcome.jobs[3].ended <= minutes(60), "{preset:?}: the sound one is in time");
        assert_eq!(outcome.stats.faults + outcome.stats.policy_panics, 0, "{preset:?}");
    }
}

#[test]
fn a_deadline_that_cannot_be_promised_says_by_how_much() {
    let pipeline = Selection::policy("chronus").build().expect("it exists");
    let mut host = Host::new(Cluster::uniform(1, 1, "v100"), Tenants::default(), pipeline);
    let job = |id: u32, seconds: f64, deadline: u64| Job {
        declared: Some(Work(seconds)),
        value: vec![(Time(Span::secs(deadline).0), 1.0)],
        ..Job::simple(JobId(id), Time::ZERO, 1)
    };
    // The first takes three leases of 20 minutes, so that the second could be over at 4800 s at the soonest.
    host.submit(0, job(0, 3000.0, 3600));
    host.submit(0, job(1, 1000.0, 3600));
    host.submit(0, job(2, 1000.0, 60));
    assert!(host.runs(0) && !host.runs(1) && !host.runs(2));
    let reasons = |id| host.engine.explain(JobId(id)).expect("known").reasons;
    assert_eq!(reasons(1), [Reason::DeadlineLost { late: Span::secs(1200) }]);
    assert!(matches!(reasons(2)[..], [Reason::DeadlineLost { late }] if late > Span::secs(900)));
}

#[test]
fn our_rules_meet_as_many_deadlines_with_a_tenth_of_the_stops() {
    let cluster = Cluster::uniform(2, 8, "v100");
    for name in ["SLO", "MIX1", "MIX2"] {
        let Some(workload) = trace(name, &cluster) else {
            return trainyard_testkit::skip!("data", "no goldens of Chronus beside the repository");
        };
        let authors = run(&workload, &cluster, &[], Semantics::Chronus);
        let authors = Figures::ours(&workload, &authors);
        let ours = Figures::ours(&workload, &run(&workload, &cluster, &[], Semantics::Native));
        say!("{name}\n  authors {authors:?}\n  ours    {ours:?}");
        assert!(ours.miss <= authors.miss + 0.015, "{name}: {ours:?}");
        assert!(ours.preemptions * 10.0 < authors.preemptions, "{name}: {ours:?}");
    }
}

#[test]
fn reference_runs_are_met_in_their_aggregates() {
    let cluster = Cluster::uniform(2, 8, "v100");
    let runs = [
        ("SLO", "local_search", &[][..]),
        ("MIX1", "local_search", &[]),
        ("MIX2", "local_search", &[]),
        ("SLO", "consolidate", &["allocator=consolidate"]),
    ];
    for (name, placement, settings) in runs {
        let run_name = format!("s100_{name}_{placement}");
        let (Some(golden), Some(workload)) = (Figures::golden(&run_name), trace(name, &cluster))
        else {
            return trainyard_testkit::skip!("data", "no goldens of Chronus beside the repository");
        };
        let outcome = run(&workload, &cluster, settings, Semantics::Chronus);
        let ours = Figures::ours(&workload, &outcome);
        let equal = equal_ends(&run_name, &workload, &outcome).expect("a golden of jobs");
        say!("{run_name}: {equal} jobs end alike\n  theirs {golden:?}\n  ours   {ours:?}");
        assert!(equal >= 270, "{run_name}: {equal} of {}", outcome.jobs.len());
        let near = |found: f64, expected: f64, part: f64| {
            assert!((found - expected).abs() <= part * expected, "{run_name}: {found} {expected}");
        };
        near(ours.jct, golden.jct, 0.05);
        // Minutes that the authors' clocks count as run are waited for here.
        near(ours.pending, golden.pending, 0.06);
        near(ours.makespan, golden.makespan, 0.01);
        near(ours.preemptions, golden.preemptions, 0.1);
        assert!((ours.miss - golden.miss).abs() <= 0.015, "{run_name}: {ours:?}");
        assert!((ours.soft_miss - golden.soft_miss).abs() <= 0.015, "{run_name}: {ours:?}");
    }
}
