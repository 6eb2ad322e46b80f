//! Whole runs of Gavel's own simulator (OSDI 2020), met by the same policies under its semantics.
//!
//! The traces and results are not part of the program; without them every test here says that it was skipped.

use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use trainyard_framework::RawSettings;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_profile::Catalog;
use trainyard_profile::import::gavel;
use trainyard_sim::{Quiet, Semantics, simulate};
use trainyard_types::Tenants;
use trainyard_workload::import::{Format, ImportContext, import};
use trainyard_workload::{Workload, cluster};

macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

fn shared(path: &str) -> Option<PathBuf> {
    let full = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(path);
    if full.exists() {
        return Some(full);
    }
    say!("skipped: {} is absent", full.display());
    None
}

fn json(path: PathBuf) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("a readable file")).expect("JSON")
}

fn workload(trace: &str, on: &trainyard_types::Cluster) -> Option<Workload> {
    let speeds = shared("data/gavel/simulation_throughputs.json")?;
    let mut catalog = Catalog::default();
    let text = std::fs::read_to_string(speeds).expect("a readable file");
    for model in gavel::read(&text).expect("a table of speeds") {
        catalog.add(model);
    }
    let path = shared(&format!("data/gavel/{trace}"))?;
    let context = ImportContext {
        name: trace.to_owned(),
        cluster: Some(on),
        catalog,
        tenants: Tenants::default(),
    };
    let file = std::fs::File::open(path).expect("a file that exists opens");
    let format = Format::named("gavel").expect("a known format");
    let imported = import(format, std::io::BufReader::new(file), context).expect("a trace");
    assert_eq!(imported.report.dropped_rows(), 0, "every line is a job");
    Some(imported.workload)
}

/// Mean completion time in seconds and makespan of a recorded run, and ours under the same policy.
fn meet(name: &str, (policy, settings): (&str, &[&str]), allowed: f64) {
    let Some(path) = shared(&format!("golden/gavel/{name}.json")) else { return };
    let meta = json(path);
    let gpus = |kind: &str| {
        let (all, each) = (&meta["cluster"][kind], &meta["num_gpus_per_server"][kind]);
        let (all, each) = (all.as_u64().expect("GPUs"), each.as_u64().expect("GPUs"));
        format!("{}x{each} {kind}", all / each)
    };
    let text = format!("{}, {}, {}", gpus("k80"), gpus("p100"), gpus("v100"));
    let (cluster, _) = cluster::parse(&text).expect("a cluster");
    let Some(workload) = workload(meta["trace"].as_str().expect("a trace"), &cluster) else {
        return;
    };
    let settings = RawSettings::parse(settings.iter().copied()).expect("settings");
    let mut selection =
        Selection { policy: Choice { name: policy.to_owned(), settings }, ..Selection::default() };
    selection.wish(Semantics::Gavel.wishes().iter().copied());
    let options = Semantics::Gavel.options();
    let pipeline = selection.build().expect("a policy");
    let outcome = simulate(&workload, &Arc::new(cluster), pipeline, &options, &mut Quiet);
    let stats = &outcome.stats;
    assert_eq!(stats.faults + stats.policy_errors + stats.policy_panics, 0, "{name}: {stats:?}");
    assert!(outcome.unfinished.is_empty(), "{name} left {:?}", outcome.unfinished);
    let submitted = |job: usize| workload.jobs[job].job.submitted;
    let times = outcome.finished().map(|one| one.ended.since(submitted(one.job.index())));
    let mean = times.map(|time| time.as_secs_f64()).sum::<f64>() / workload.jobs.len() as f64;
    let end = outcome.finished().map(|one| one.ended.as_secs_f64()).fold(0.0, f64::max);
    let theirs = meta["avg_jct_s"].as_f64().expect("a mean");
    let their_end = meta["makespan_s"].as_f64().expect("a makespan");
    let gap = mean / theirs - 1.0;
    say!(
        "{name:<52} mean {theirs:>9.1} s, ours {mean:>9.1} s ({:+.2} %); makespan {their_end:>9.1} s, ours {end:>9.1} s ({:+.2} %)",
        gap * 100.0,
        (end / their_end - 1.0) * 100.0
    );
    assert!(gap.abs() <= allowed, "{name}: {:.2} % is more than allowed", gap * 100.0);
}

#[test]
fn max_min_takes_as_long_as_recorded() {
    meet("maxmin96_8-16-24_max_min_fairness_perf", ("gavel", &[]), 0.01);
    meet("maxmin96_8-16-24_max_min_fairness", ("gavel", &["aware=false"]), 0.01);
    meet("medium20_2-2-2_max_min_fairness_perf", ("gavel", &[]), 0.02);
    meet("medium20_2-2-2_max_min_fairness", ("gavel", &["aware=false"]), 0.02);
}

#[test]
fn max_min_with_pairs_takes_as_long_as_recorded() {
    meet("medium20_2-2-2_max_min_fairness_packed", ("gavel", &["pairs=true"]), 0.02);
}

#[test]
fn finish_time_fairness_takes_as_long_as_recorded() {
    meet("maxmin96_8-16-24_finish_time_fairness_perf", ("gavel-ftf", &[]), 0.01);
    meet("medium20_2-2-2_finish_time_fairness_perf", ("gavel-ftf", &[]), 0.02);
    meet("medium20_2-2-2_finish_time_fairness", ("gavel-ftf", &["aware=false"]), 0.02);
}

#[test]
fn max_sum_takes_as_long_as_recorded() {
    meet("maxmin96_8-16-24_max_sum_throughput_perf", ("gavel-throughput", &[]), 0.01);
    meet("medium20_2-2-2_max_sum_throughput_perf", ("gavel-throughput", &[]), 0.02);
}

#[test]
fn makespan_takes_as_long_as_recorded() {
    meet("makespan100_8-16-24_min_total_duration_perf", ("gavel-makespan", &[]), 0.01);
    meet("makespan100_8-16-24_min_total_duration", ("gavel-makespan", &["aware=false"]), 0.01);
    meet("medium20_2-2-2_min_total_duration_perf", ("gavel-makespan", &[]), 0.02);
    meet("medium20_2-2-2_min_total_duration", ("gavel-makespan", &["aware=false"]), 0.02);
}

#[test]
fn water_filling_takes_as_long_as_recorded() {
    let each = "tenants=false";
    let name = "medium20_2-2-2_max_min_fairness_water_filling";
    meet(&format!("{name}_perf"), ("gavel-hierarchy", &[each]), 0.02);
    meet(name, ("gavel-hierarchy", &[each, "aware=false"]), 0.02);
}

#[test]
fn isolated_takes_as_long_as_recorded() {
    meet("maxmin96_8-16-24_isolated", ("isolated", &[]), 0.01);
    meet("medium20_2-2-2_isolated", ("isolated", &[]), 0.02);
}
