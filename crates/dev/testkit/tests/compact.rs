//! A run whose jobs are made when they come and go when they are over tells the same as one that lists them.

use std::sync::Arc;
use trainyard_policies::compose::Selection;
use trainyard_profile::Catalog;
use trainyard_report::{Run, Tally};
use trainyard_sim::{
    DecisionCost, FailureModel, Options, Outcome, Quiet, Semantics, simulate, simulate_compact,
};
use trainyard_types::{Cluster, Span};
use trainyard_workload::embedded::embedded_spec;
use trainyard_workload::import::{Format, ImportContext, import_compact};
use trainyard_workload::{CompactWorkload, Spec, cluster, generate, trace};

/// Jobs of many sorts: models, sizes, tenants, deadlines, priorities, failures.
fn many_sorts(seed: u64) -> (String, Cluster) {
    let cluster = cluster::parse_line("2x8 a100, 3x8 v100").expect("a cluster");
    let spec = Spec { jobs: 160, seed, failure_share: 0.1, ..embedded_spec() };
    let workload = generate(&spec, &Catalog::builtin(), &cluster).expect("a sound spec");
    let mut text = Vec::new();
    trace::write_csv(&workload, &cluster, &mut text).expect("memory takes everything");
    (String::from_utf8(text).expect("text"), cluster)
}

/// The same rows from the last to the first.
fn backwards(text: &str) -> String {
    let (header, rows) = text.split_once('\n').expect("a header");
    let rows: Vec<&str> = rows.lines().rev().collect();
    format!("{header}\n{}\n", rows.join("\n"))
}

fn read(text: &str, cluster: &Cluster) -> CompactWorkload {
    let format = Format::named("csv").expect("a format of ours");
    let context = ImportContext::new("test", Some(cluster));
    import_compact(format, text.as_bytes(), context).expect("a sound trace").workload
}

/// All that is told of a run but for its jobs, to the last bit.
fn told(run: &Run, outcome: &Outcome) -> String {
    let lists = Outcome { jobs: Vec::new(), ..outcome.clone() };
    format!("{:?}\n{:?}\n{lists:?}", run.summary, run.curves)
}

fn compare(policy: &str, options: &Options, (text, cluster): &(String, Cluster)) {
    let compact = read(text, cluster);
    let whole = compact.clone().into_whole();
    let cluster = Arc::new(cluster.clone());
    assert_eq!(compact.offered_load(&cluster).to_bits(), whole.offered_load(&cluster).to_bits());
    let pipeline = || Selection::policy(policy).build().expect("a policy of the registry");
    let outcome = simulate(&whole, &cluster, pipeline(), options, &mut Quiet);
    assert_eq!(outcome.stats.policy_panics, 0, "{policy}: {:?}", outcome.stats);
    let listed = told(&Run::new(policy, &whole, &cluster, &outcome), &outcome);
    let mut tally = Tally::new(&compact, &cluster);
    let how = (pipeline(), options);
    let outcome = simulate_compact(&compact, &cluster, how, &mut Quiet, &mut tally);
    assert!(outcome.jobs.is_empty(), "nothing is listed");
    let streamed = told(&Run::of(policy, tally.finish(&cluster, &outcome)), &outcome);
    assert_eq!(streamed, listed, "{policy}");
}

#[test]
fn every_measure_is_the_same_under_many_policies() {
    let given = many_sorts(1);
    for policy in
        ["fifo", "srtf", "las", "easy", "conservative", "tiresias", "themis", "fair-share", "afs-l"]
    {
        compare(policy, &Options::default(), &given);
    }
}

#[test]
fn every_measure_is_the_same_with_failures_slow_decisions_and_published_semantics() {
    let given = many_sorts(2);
    let model = FailureModel {
        between: Span::secs(40_000),
        repair: Span::secs(4000),
        gpus: Some(Span::secs(200_000)),
    };
    let decision_cost = DecisionCost { fixed: Span::secs(20), per_job: Span::secs(1) };
    let native = Options { failures: Some(model), decision_cost, ..Options::default() };
    compare("srtf", &native, &given);
    let presets = [
        Semantics::Muri,
        Semantics::Pollux,
        Semantics::Gavel,
        Semantics::Elasticflow,
        Semantics::Chronus,
    ];
    for preset in presets {
        compare("las", &preset.options(), &given);
    }
}

#[test]
fn a_trace_out_of_order_is_put_in_order_and_keeps_its_names() {
    let (text, cluster) = many_sorts(3);
    let given = (backwards(&text), cluster);
    compare("sjf", &Options::default(), &given);
    let (compact, whole) = (read(&given.0, &given.1), read(&given.0, &given.1).into_whole());
    assert_eq!(whole.labels.len(), 160, "the last row is called 0");
    for (one, label) in whole.jobs.iter().zip(&whole.labels) {
        assert_eq!(compact.label(one.job.id), *label);
        assert_eq!(*one, compact.jobs.get(one.job.id.index()));
    }
    let in_order = read(&text, &given.1).into_whole();
    assert_eq!(in_order.jobs.len(), whole.jobs.len());
    assert!(in_order.labels.is_empty(), "each is called by its number");
}

#[test]
fn jobs_that_are_never_over_are_told_of() {
    let text = "id,submit_s,gpus,steps,after\na,0,2,100,\nb,5,2,50,a\nc,9,1,10,\n";
    let cluster = cluster::parse_line("1x2 v100").expect("a cluster");
    let given = (text.to_owned(), cluster);
    compare("fifo", &Options::default(), &given);
    let mut options = Options::default();
    // The only node is lost for good.
    let lost = trainyard_types::Event::NodeLost(trainyard_types::NodeId(0));
    options.injected = vec![(trainyard_types::Time::from_secs_f64(20.0), lost)];
    compare("fifo", &options, &given);
    let compact = read(&given.0, &given.1);
    let mut tally = Tally::new(&compact, &given.1);
    let pipeline = Selection::policy("fifo").build().expect("a policy of the registry");
    let cluster = Arc::new(given.1.clone());
    let outcome =
        simulate_compact(&compact, &cluster, (pipeline, &options), &mut Quiet, &mut tally);
    let names: Vec<String> = outcome.unfinished.iter().map(|job| compact.label(*job)).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(tally.finish(&cluster, &outcome).0.unfinished, 3);
}
