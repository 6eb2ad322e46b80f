//! No policy leaves GPUs idle that a waiting job could use, unless it says so here and why.

use std::collections::BTreeSet;
use std::sync::Arc;
use trainyard_policies::compose::Selection;
use trainyard_policies::registry::POLICIES;
use trainyard_profile::model::{ModelProfile, Point};
use trainyard_profile::{Catalog, CostModel};
use trainyard_sim::{Options, Quiet, simulate};
use trainyard_testkit::places::root;
use trainyard_testkit::waste::Waste;
use trainyard_types::{Cluster, GroupId, Job, JobId, Span, Time, Work};
use trainyard_workload::{TraceJob, Workload, cluster};

/// Equal jobs of one hour at once, each on so many GPUs.
fn jobs(count: u32, gpus: u32) -> Workload {
    let mut workload = Workload::empty("at once");
    for id in 0..count {
        let mut job = Job::simple(JobId(id), Time::ZERO, gpus);
        job.declared = Some(Work(3600.0));
        workload.jobs.push(TraceJob::new(Arc::new(job), Work(3600.0)));
    }
    workload
}

/// How much longer than one hour a policy takes where all jobs fit at once.
fn beyond_an_hour(policy: &str, workload: &Workload, cluster: &Arc<Cluster>) -> f64 {
    let pipeline = Selection::policy(policy).build().expect("defaults build");
    let options = Options { costs: CostModel::Free, estimate_error: 0.0, ..Options::default() };
    let outcome = simulate(workload, cluster, pipeline, &options, &mut Quiet);
    assert!(outcome.unfinished.is_empty(), "{policy} leaves {:?}", outcome.unfinished);
    outcome.ended.as_secs_f64() / 3600.0 - 1.0
}

#[test]
fn where_all_jobs_fit_at_once_all_run_at_once() {
    let mut wrong = Vec::new();
    for (line, count, gpus) in [("32x8 v100", 240, 1), ("32x8 v100", 30, 8), ("16x8 v100", 120, 1)]
    {
        let (cluster, _) = cluster::parse(line).expect("a cluster");
        let (cluster, workload) = (Arc::new(cluster), jobs(count, gpus));
        for entry in POLICIES {
            let late = beyond_an_hour(entry.name, &workload, &cluster);
            if late > 0.15 {
                wrong.push(format!(
                    "{}: {count} jobs of {gpus} on {line}: {:.0} % late",
                    entry.name,
                    late * 100.0
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn where_all_jobs_fit_over_several_types_of_gpu_all_run_at_once() {
    let (cluster, _) = cluster::parse("4x8 a100, 8x8 v100").expect("a cluster");
    let cluster = Arc::new(cluster);
    let mut workload = jobs(90, 1);
    workload.catalog = Catalog::builtin();
    let model = workload.catalog.find("gavel-resnet18-b128").expect("a model of the zoo");
    let slowest = {
        let pipeline = Selection::policy("fifo").build().expect("defaults build");
        workload.jobs.iter_mut().for_each(|job| Arc::make_mut(&mut job.job).model = model);
        let options = Options { costs: CostModel::Free, estimate_error: 0.0, ..Options::default() };
        simulate(&workload, &cluster, pipeline, &options, &mut Quiet).ended.as_secs_f64()
    };
    // The trials of a search are the same jobs with a group.
    let mut search = workload.clone();
    search.jobs.iter_mut().for_each(|job| Arc::make_mut(&mut job.job).group = Some(GroupId(1)));
    let mut wrong = Vec::new();
    for (what, workload) in [("jobs", &workload), ("trials", &search)] {
        for entry in POLICIES {
            let took = (beyond_an_hour(entry.name, workload, &cluster) + 1.0) * 3600.0;
            let late = took / slowest - 1.0;
            if late > 0.15 {
                wrong.push(format!("{}: {what}: {:.0} % late", entry.name, late * 100.0));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// How much of the time of GPUs may be idle while a job waits: policies with rounds give out at the end of a round what
/// came free within it.
const IDLE_MAX: f64 = 0.05;

/// Jobs of some sizes in turn on two types that are nearly as fast, of which there are very different numbers.
fn steady_load(sizes: &[u32], load: f64, gpus: f64) -> Workload {
    let mut workload = Workload::empty("one after another");
    let points = sizes.iter().flat_map(|gpus| {
        let point = |kind: &str, rate| Point { kind: kind.to_owned(), gpus: *gpus, nodes: 1, rate };
        [point("v100", 1.0), point("p100", 0.97)]
    });
    let points = points.collect();
    let model = ModelProfile { points, ..ModelProfile::named("even", "a test") };
    let model = workload.catalog.add(model);
    let mut at = Time::ZERO;
    for id in 0..260 {
        let size = sizes[id as usize % sizes.len()];
        // Between 10 and 60 minutes, in no order.
        let work = Work(600.0 + f64::from((id * 7919) % 3001));
        let mut job = Job { model, ..Job::simple(JobId(id), at, size) };
        job.declared = Some(work);
        workload.jobs.push(TraceJob::new(Arc::new(job), work));
        at = at + Span::from_secs_f64(2100.0 * f64::from(size) / gpus / load);
    }
    workload
}

/// The wasted part of GPU time under each policy, at loads below, at and above what a cluster can take.
fn wasted(line: &str, sizes: &[u32]) -> Vec<(&'static str, f64, f64)> {
    let (cluster, _) = cluster::parse(line).expect("a cluster");
    let cluster = Arc::new(cluster);
    let mut found = Vec::new();
    for load in [0.3, 1.0, 2.2] {
        let workload = steady_load(sizes, load, f64::from(cluster.gpus()));
        for entry in POLICIES {
            let pipeline = Selection::policy(entry.name).build().expect("defaults build");
            let mut waste = Waste::default();
            let options = Options { estimate_error: 0.0, ..Options::default() };
            let outcome = simulate(&workload, &cluster, pipeline, &options, &mut waste);
            let name = entry.name;
            assert!(outcome.unfinished.is_empty(), "{name} leaves {:?}", outcome.unfinished);
            found.push((name, load, waste.share()));
        }
    }
    found
}

#[test]
fn no_policy_leaves_gpus_idle_that_a_waiting_job_could_use() {
    let found = wasted("16x8 v100, 1x4 p100", &[1]);
    let wrong = found.into_iter().filter(|(_, _, share)| *share > IDLE_MAX);
    let wrong: Vec<String> = wrong
        .map(|(name, load, share)| format!("{name} at load {load}: {:.1} % idle", share * 100.0))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Policies that keep GPUs idle beside a gang that would fit, each with the sentence of its page that says why.
const HOLD_BACK: [(&str, &str); 4] = [
    ("allox", "those behind it on that type wait until it fits"),
    ("kueue", "it keeps its quota and waits for room"),
    ("muri-antman", "GPUs that a gang gathers are idle until it has all"),
    ("volcano", "Jobs beyond that are not looked at, though some would fit"),
];

#[test]
fn no_policy_leaves_gpus_idle_that_a_waiting_gang_could_use_unless_its_page_says_why() {
    let mut wrong = Vec::new();
    let mut holding: BTreeSet<&str> = BTreeSet::new();
    for line in ["16x8 v100, 1x8 p100", "10x8 v100, 9x8 p100"] {
        for (name, load, share) in wasted(line, &[1, 2, 4, 1, 8, 2]) {
            if share <= IDLE_MAX {
                continue;
            }
            match HOLD_BACK.iter().any(|(policy, _)| *policy == name) {
                true => _ = holding.insert(name),
                false => wrong
                    .push(format!("{name} on {line} at load {load}: {:.1} % idle", share * 100.0)),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (policy, sentence) in HOLD_BACK {
        assert!(holding.contains(policy), "{policy} keeps no GPUs idle any more");
        let page = root().join("docs/policies").join(policy).with_extension("md");
        let page = std::fs::read_to_string(page).expect("every policy has a page");
        assert!(page.contains(sentence), "the page of {policy} does not say `{sentence}`");
    }
}
