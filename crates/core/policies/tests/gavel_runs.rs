//! Whole runs of Gavel's own simulator (OSDI 2020), met by the same policies under its semantics.
//!
//! The traces and results are not part of the program; without them every test here says that it was skipped.

use std::sync::Arc;
use trainyard_framework::RawSettings;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_sim::{Quiet, Semantics, simulate};
use trainyard_testkit::gavel::{Recording, shared};
use trainyard_testkit::say;

/// Mean completion time in seconds and makespan of a recorded run, and ours under the same policy.
fn meet(name: &str, (policy, settings): (&str, &[&str]), allowed: f64) {
    let Some(shared) = shared() else { return };
    let run = Recording::read(&shared, name).expect("a recording");
    let (workload, cluster) = (run.workload().expect("a trace"), run.cluster());
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
    let (theirs, their_end) = (run.about.avg_jct_s, run.about.makespan_s);
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
