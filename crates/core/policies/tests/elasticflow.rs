//! ElasticFlow's Figure 10 beside the logs of its authors' simulator: a hundred jobs on 16 nodes of 8 A100s.
//!
//! Tables and logs lie beside the repository; where they are absent the test says so and passes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use trainyard_engine::Engine;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_profile::import::elasticflow;
use trainyard_profile::{Catalog, ModelProfile, Point};
use trainyard_sim::{Observer, Options, Outcome, Quiet, Semantics, simulate};
use trainyard_testkit::places::shared;
use trainyard_testkit::say;
use trainyard_types::{Cluster, End, Job, JobId, ModelId, Reason, Span, Time, Work};
use trainyard_workload::{Arrival, Like, Spec, TraceJob, Workload, generate};

/// What a run came to, in the words of the figure.
#[derive(Clone, Copy, Debug)]
struct Figures {
    met: usize,
    jct_mean: f64,
    makespan: f64,
}

impl Figures {
    /// From submission, end and deadline of each job, in seconds.
    fn of(jobs: &[(f64, f64, f64)]) -> Figures {
        let count = jobs.len() as f64;
        Figures {
            met: jobs.iter().filter(|(_, end, due)| end <= due).count(),
            jct_mean: jobs.iter().map(|(submitted, end, _)| end - submitted).sum::<f64>() / count,
            makespan: jobs.iter().map(|(_, end, _)| *end).fold(0.0, f64::max),
        }
    }
}

fn figure_10(tables: &Path) -> (Workload, Arc<Cluster>) {
    let mut catalog = Catalog::builtin();
    let mut files: Vec<_> =
        std::fs::read_dir(tables).unwrap().map(|one| one.unwrap().path()).collect();
    files.sort();
    for path in files {
        let model = path.file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        for profile in elasticflow::read(&text, &model, "a100").unwrap() {
            catalog.add(profile);
        }
    }
    let arrival = Arrival::PerHour(2.4);
    let spec = Spec { like: Like::Elasticflow, seed: 1, jobs: 100, arrival, ..Spec::default() };
    let cluster = Cluster::uniform(16, 8, "a100");
    (generate(&spec, &catalog, &cluster).unwrap(), Arc::new(cluster))
}

fn run(policy: &str, (workload, cluster): (&Workload, &Arc<Cluster>)) -> Outcome {
    let (name, settings) = policy.split_once(':').unwrap_or((policy, ""));
    let mut choice = Choice::named(name);
    for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
        choice.settings.add(setting).unwrap();
    }
    let mut selection = Selection { policy: choice, ..Selection::policy(name) };
    selection.wish(Semantics::Elasticflow.wishes().iter().copied());
    let options = Semantics::Elasticflow.options();
    let pipeline = selection.build().unwrap();
    simulate(workload, cluster, pipeline, &options, &mut Quiet)
}

fn ours(workload: &Workload, outcome: &Outcome) -> BTreeMap<JobId, (f64, f64, f64)> {
    let row = |one: &trainyard_sim::JobOutcome| {
        let job = &workload.jobs[one.job.index()].job;
        let due = job.deadline().unwrap().as_secs_f64();
        (one.job, (job.submitted.as_secs_f64(), one.ended.as_secs_f64(), due))
    };
    outcome.finished().map(row).collect()
}

fn theirs(path: &Path) -> BTreeMap<JobId, (f64, f64, f64)> {
    let mut reader = csv::Reader::from_path(path).unwrap();
    let heading = reader.headers().unwrap().clone();
    let column = |name: &str| heading.iter().position(|one| one == name).unwrap();
    let (id, submit, end, due) =
        (column("job_id"), column("submit_time"), column("end_time"), column("ddl"));
    let rows = reader.records().map(|row| {
        let row = row.unwrap();
        let number = |index: usize| row[index].parse::<f64>().unwrap();
        (JobId(number(id) as u32), (number(submit), number(end), number(due)))
    });
    rows.collect()
}

/// Runs a policy beside its log: how many deadlines and what part of the two times ours may be off.
fn beside(policy: &str, log: &str, (deadlines, part): (usize, f64)) {
    let (Some(tables), Some(logs)) =
        (shared("data/elasticflow/throughputs_a100"), shared("data/elasticflow/fig10_logs"))
    else {
        return;
    };
    let (workload, cluster) = figure_10(&tables);
    let outcome = run(policy, (&workload, &cluster));
    assert!(outcome.stats.faults == 0, "{:?}", outcome.stats);
    assert_eq!((outcome.stats.policy_panics, outcome.stats.policy_errors), (0, 0));
    let (own, published) =
        (ours(&workload, &outcome), theirs(&logs.join(format!("{log}_job.csv"))));
    if std::env::var_os("SHOW_JOBS").is_some() {
        for (job, (submitted, end, due)) in &published {
            let mine = own.get(job).map_or(f64::NAN, |row| row.1);
            say!("{job:?} from {submitted} due {due}: theirs {end}, ours {mine}, {:+}", mine - end);
        }
    }
    let values =
        |rows: &BTreeMap<JobId, (f64, f64, f64)>| rows.values().copied().collect::<Vec<_>>();
    let (paper, mine) = (Figures::of(&values(&published)), Figures::of(&values(&own)));
    say!("{policy}: theirs {paper:?}, ours {mine:?}, {} decisions", outcome.stats.decisions);
    assert_eq!(own.len(), published.len());
    assert!(paper.met.abs_diff(mine.met) <= deadlines, "{policy}: {paper:?} {mine:?}");
    for (theirs, ours) in [(paper.jct_mean, mine.jct_mean), (paper.makespan, mine.makespan)] {
        assert!((ours / theirs - 1.0).abs() <= part, "{policy}: {theirs} and {ours}");
    }
}

#[test]
fn jobs_are_those_of_the_logs() {
    let (Some(tables), Some(logs)) =
        (shared("data/elasticflow/throughputs_a100"), shared("data/elasticflow/fig10_logs"))
    else {
        return;
    };
    let (workload, _) = figure_10(&tables);
    for (job, (submitted, _, due)) in theirs(&logs.join("edf_job.csv")) {
        let own = &workload.jobs[job.index()].job;
        let pair = (own.submitted.as_secs_f64(), own.deadline().unwrap().as_secs_f64());
        assert_eq!(pair, (submitted, due), "{job:?}");
    }
}

#[test]
fn elasticflow_meets_the_authors_run() {
    beside(
        "elasticflow:leftover=artifact,filling=events,envelope=false,admission=reject",
        "ef-accessctrl",
        (0, 0.02),
    );
}

#[test]
fn tiresias_meets_the_authors_run() {
    beside("tiresias", "dlas-gpu", (0, 0.02));
}

#[test]
fn edf_meets_the_authors_run() {
    beside("edf:size=largest,hopeless=in-order", "edf", (3, 0.05));
}

#[test]
fn themis_meets_the_authors_run() {
    beside("themis:form=lp", "themis", (3, 0.05));
}

/// Why each job waits at a moment of a run, as the engine says it.
struct Reasons {
    at: Time,
    seen: BTreeMap<JobId, Vec<Reason>>,
}

impl Observer for Reasons {
    fn passed(&mut self, engine: &Engine) {
        let state = engine.state();
        if state.now > self.at {
            return;
        }
        for job in state.waiting.iter().chain(state.unadmitted.iter()) {
            let found = engine.explain(job).map(|explained| explained.reasons);
            self.seen.insert(job, found.unwrap_or_default());
        }
    }
}

/// Jobs that no deadline policy can serve as asked, beside one that it can; all come at once.
fn odd_jobs() -> (Workload, Arc<Cluster>) {
    let mut workload = Workload::empty("odd");
    let point = |gpus: u32, rate: f64| Point { kind: "v100".to_owned(), gpus, nodes: 1, rate };
    let mut erratic = ModelProfile::named("erratic", "a test");
    erratic.points = vec![point(1, 4.0), point(2, 3.0), point(4, 5.0)];
    let erratic = workload.catalog.add(erratic);
    let mut job = |gpus: (u32, u32), model: Option<ModelId>, due: Option<u64>, work: f64| {
        let mut job = Job::simple(JobId(workload.jobs.len() as u32), Time::ZERO, gpus.1);
        job.submitted = Time::ZERO + Span::secs(100);
        (job.want.gpus_min, job.want.gpus_max) = gpus;
        job.model = model.unwrap_or(job.model);
        job.value = due.map(|due| (Time::ZERO + Span::secs(due), 1.0)).into_iter().collect();
        workload.jobs.push(TraceJob::new(job, Work(work)));
    };
    job((1, 4), Some(erratic), Some(4000), 10_000.0);
    job((4, 4), None, Some(50), 5_000.0);
    job((3, 2), None, Some(9000), 1_000.0);
    job((4, 4), None, Some(5200), 5_000.0);
    job((8, 8), None, Some(9000), 1_000.0);
    (workload, Arc::new(Cluster::uniform(1, 4, "v100")))
}

#[test]
fn jobs_that_cannot_be_served_get_a_verdict_and_the_rest_goes_on() {
    for policy in ["elasticflow", "edf", "least-laxity", "genie"] {
        let (workload, cluster) = odd_jobs();
        let mut reasons = Reasons { at: Time::ZERO + Span::secs(200), seen: BTreeMap::new() };
        let pipeline = Selection::policy(policy).build().unwrap();
        let options = Options { estimate_error: 0.0, ..Options::default() };
        let outcome = simulate(&workload, &cluster, pipeline, &options, &mut reasons);
        assert_eq!((outcome.stats.faults, outcome.stats.policy_panics), (0, 0), "{policy}");
        let end = |job: u32| outcome.jobs.iter().find(|one| one.job == JobId(job)).unwrap().end;
        assert_eq!((end(0), end(1), end(3)), (End::Finished, End::Finished, End::Finished));
        assert_eq!(end(2), End::Rejected, "{policy}: its least is above its most");
        assert_eq!(end(4), End::Rejected, "{policy}: there are four GPUs");
        let lost = &reasons.seen[&JobId(1)][0];
        assert!(matches!(lost, Reason::DeadlineLost { .. }), "{policy}: {lost:?}");
    }
}
