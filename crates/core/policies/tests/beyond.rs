//! What the settings beyond Gavel gain, each on its own scenario under `scenarios/gavel`.

use std::sync::Arc;
use trainyard_framework::RawSettings;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_sim::{Options, Outcome, Quiet, simulate};
use trainyard_types::Event;
use trainyard_workload::laws::Draw;
use trainyard_workload::scenario::{self, Broken, Scenario};

/// What came of a scenario under one of its policies.
struct Result {
    /// The mean time from submission to end, in minutes; infinite if any job never ends.
    mean: f64,
    /// The end of each job, in minutes.
    ends: Vec<f64>,
    makespan: f64,
    restarts: u32,
}

/// The results of the policies of a scenario, in its order.
fn results<const N: usize>(name: &str) -> [Result; N] {
    let path = format!("{}/../../../scenarios/gavel/{name}.scn", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    of_text(name, &text)
}

fn of_text<const N: usize>(name: &str, text: &str) -> [Result; N] {
    let scenario = scenario::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let results: Vec<Result> = (0..N).map(|number| result(&scenario, number)).collect();
    for (policy, result) in scenario.policies.iter().zip(&results) {
        println!(
            "{name}: {} {}: mean {:.1} min, makespan {:.1} min, {} restarts, ends {:.1?}",
            policy.name,
            policy.settings,
            result.mean,
            result.makespan,
            result.restarts,
            result.ends
        );
    }
    results.try_into().unwrap_or_else(|_| panic!("{N} policies"))
}

fn result(scenario: &Scenario, number: usize) -> Result {
    told_pairs(scenario, number, 1.0)
}

/// The same where only a part of the measured pairs is known to the policy.
fn told_pairs(scenario: &Scenario, number: usize, pairs_known: f64) -> Result {
    let policy = &scenario.policies[number];
    let settings = RawSettings::parse(policy.settings.split_whitespace()).expect("settings");
    let choice = Choice { name: policy.name.clone(), settings };
    let pipeline = Selection { policy: choice, ..Selection::default() }.build().expect("a policy");
    let mut options = Options {
        costs: scenario.costs,
        estimate_error: 0.0,
        pairs_known,
        seed: scenario.seed,
        ..Options::default()
    };
    options.setup.check_every = 1;
    for failure in &scenario.failures {
        let Broken::Node(node) = failure.what else { panic!("only nodes are lost here") };
        options.injected.push((failure.at, Event::NodeLost(node)));
        options.injected.push((failure.at + failure.length, Event::NodeUp(node)));
    }
    let cluster = Arc::new(scenario.cluster.clone());
    let outcome: Outcome = simulate(&scenario.workload, &cluster, pipeline, &options, &mut Quiet);
    assert_eq!(outcome.stats.faults, 0, "{:?}", outcome.stats.fault_samples);
    assert_eq!(outcome.stats.policy_errors + outcome.stats.policy_panics, 0);
    let minutes = |job: usize| {
        let done = outcome.jobs.iter().find(|done| done.job.index() == job);
        done.map_or(f64::INFINITY, |done| done.ended.as_secs_f64() / 60.0)
    };
    let ends: Vec<f64> = (0..scenario.workload.jobs.len()).map(minutes).collect();
    let submitted = |job: usize| scenario.workload.jobs[job].job.submitted.as_secs_f64() / 60.0;
    let sum: f64 = ends.iter().enumerate().map(|(job, end)| end - submitted(job)).sum();
    Result {
        mean: sum / ends.len() as f64,
        makespan: ends.iter().copied().fold(0.0, f64::max),
        restarts: outcome.jobs.iter().map(|job| job.restarts).sum(),
        ends,
    }
}

#[test]
fn a_chosen_length_of_rounds_pays_for_fewer_restarts() {
    let [fixed, auto] = results("rounds_as_long_as_restarts_ask_for");
    assert!(auto.restarts * 2 < fixed.restarts);
    assert!(auto.mean < 0.95 * fixed.mean && auto.makespan < 0.95 * fixed.makespan);
}

#[test]
fn a_chosen_length_of_rounds_lets_short_jobs_in_sooner() {
    let [fixed, auto] = results("rounds_as_short_as_short_jobs_ask_for");
    // The four short ones are the last four; the long ones pay for more turns.
    let waits = |result: &Result| -> f64 {
        [20.0, 50.0, 80.0, 110.0].iter().zip(&result.ends[5..]).map(|(at, end)| end - at).sum()
    };
    assert!(waits(&auto) < 0.6 * waits(&fixed), "{} and {}", waits(&auto), waits(&fixed));
    assert!(auto.makespan < 1.02 * fixed.makespan);
}

#[test]
fn a_gang_across_two_types_uses_what_none_alone_can_hold() {
    let [alone, mixed] = results("a_gang_across_two_types");
    assert!(mixed.mean < 0.9 * alone.mean && mixed.makespan < 0.9 * alone.makespan);
    let [evenly] = results("a_gang_cuts_its_batch_evenly_over_types");
    let [by_speed] = results("a_gang_cuts_its_batch_by_speed_over_types");
    assert!(by_speed.mean < 0.95 * evenly.mean && by_speed.makespan < 0.95 * evenly.makespan);
}

#[test]
fn cpus_take_jobs_off_the_gpu() {
    let [without, with] = results("cpus_are_a_type_too");
    assert!(with.makespan < without.makespan && with.mean < 0.95 * without.mean);
}

#[test]
fn a_chosen_number_of_gpus_loses_less_to_size() {
    let [wanted, chosen] = results("the_number_of_gpus_is_chosen");
    assert!(chosen.mean < 0.9 * wanted.mean && chosen.makespan < 0.9 * wanted.makespan);
}

#[test]
fn time_is_not_promised_on_a_type_that_cannot_hold_the_gang() {
    let [counted, left_out] = results("a_type_that_cannot_hold_the_gang");
    assert!(left_out.ends[0] < 0.95 * counted.ends[0]);
}

#[test]
fn room_is_made_for_jobs_that_past_arrivals_foretell() {
    let [greedy, ahead] = results("room_for_jobs_that_are_expected");
    assert!(ahead.mean < 0.7 * greedy.mean);
    // The one that makes room loses no more than it was asked to: a quarter of its speed.
    let ran = |result: &Result| result.ends[2] - 105.0;
    assert!(ran(&ahead) <= ran(&greedy) / 0.75 + 0.1);
}

#[test]
fn four_light_jobs_together_beat_two_and_two() {
    let [pairs, groups] = results("three_and_four_on_one_gpu");
    assert!(groups.mean < 0.85 * pairs.mean && groups.makespan < 0.85 * pairs.makespan);
}

/// Times between arrivals, in minutes: exponential with this mean.
fn arrivals(seed: u64, mean: f64) -> impl FnMut() -> f64 {
    let (mut draw, mut at) = (Draw::new(seed, 0), 0.0);
    move || {
        at += mean * draw.exponential();
        at
    }
}

/// Jobs that need a V100 come at random among jobs that may run on both types and may not be stopped.
fn mixed_arrivals(seed: u64, flexible: &str, costs: &str) -> String {
    let mut at = arrivals(seed, 13.0);
    let mut size = Draw::new(seed, 1);
    let mut text = String::from("cluster 1x4 v100, 1x4 p100\n");
    for job in 0..48 {
        let (minutes, length) = (at(), 0.5 + size.exponential());
        text += &match job % 2 {
            0 => format!(
                "job n{job} at {minutes:.2}m wants 1 kinds v100 model gavel-a3c work {:.0}\n",
                12_000.0 * length
            ),
            _ => format!(
                "job f{job} at {minutes:.2}m wants 1 {flexible} model gavel-a3c work {:.0}\n",
                30_000.0 * length
            ),
        };
    }
    text + "policy gavel round=6m\npolicy gavel ahead=0.25 round=6m\ncosts " + costs + "\n"
}

#[test]
fn over_random_arrivals_the_greedy_shares_are_regretted() {
    for (flexible, costs, most) in
        [("fixed", "free", 0.98), ("", "flat save=20s start=100s", 1.005)]
    {
        let (mut greedy, mut ahead) = (0.0, 0.0);
        for seed in 1..=4 {
            let [one, other] =
                of_text(&format!("seed {seed} {flexible}"), &mixed_arrivals(seed, flexible, costs));
            greedy += one.mean;
            ahead += other.mean;
        }
        println!("{flexible} {costs}: ahead has {:.3} of the greedy mean", ahead / greedy);
        assert!(ahead < most * greedy, "{flexible}: {ahead} and {greedy}");
    }
}

#[test]
fn over_random_arrivals_a_chosen_length_of_rounds_never_costs_much_and_may_gain_a_lot() {
    for (costs, most) in [
        ("flat save=0s start=1s", 1.01),
        ("flat save=5s start=25s", 1.0),
        ("flat save=30s start=150s", 0.9),
    ] {
        let (mut fixed, mut auto) = (0.0, 0.0);
        for seed in 1..=4 {
            let mut at = arrivals(seed, 12.0);
            let mut size = Draw::new(seed, 1);
            let mut text = String::from("cluster 1x4 v100\n");
            for job in 0..40 {
                let (minutes, length) = (at(), 60.0 * size.exponential() + 1.0);
                text += &format!("job j{job} at {minutes:.2}m wants 1 work {length:.1}m\n");
            }
            text += &format!("policy gavel round=6m\npolicy gavel\ncosts {costs}\n");
            let [one, other] = of_text(&format!("seed {seed} {costs}"), &text);
            fixed += one.mean;
            auto += other.mean;
        }
        println!("{costs}: a chosen length has {:.3} of the mean at six minutes", auto / fixed);
        assert!(auto < most * fixed, "{costs}: {auto} and {fixed}");
    }
}

#[test]
fn every_setting_alone_and_all_together_bear_lost_nodes_and_serve_everyone() {
    let mut text = String::from("cluster 2x4 v100, 2x4 p100, 1x8 cpu\n");
    let (mut at, mut draw) = (arrivals(5, 6.0), Draw::new(5, 1));
    for job in 0..40 {
        let model = ["gavel-resnet18-b128", "gavel-a3c", "gavel-transformer-b64"][job % 3];
        let gpus = [1, 2, 1, 4, 1, 8][job % 6];
        let steps = 20_000.0 * draw.exponential() + 100.0;
        let minutes = at();
        text += &format!(
            "job j{job} at {minutes:.2}m wants {gpus} min 1 max 8 model {model} work {steps:.0}\n"
        );
    }
    for settings in [
        "round=auto",
        "sizes=true",
        "mixed=true",
        "holds=false",
        "ahead=0.2",
        "parts=3",
        "pairs=true group_max=4",
        "types=[v100,p100]",
        "round=auto sizes=true mixed=true pairs=true group_max=3 ahead=0.1 parts=2 split=0.3",
    ] {
        for policy in ["gavel", "gavel-ftf", "gavel-makespan", "gavel-hierarchy"] {
            text += &format!("policy {policy} {settings}\n");
        }
    }
    text += "fail node 0 at 40m for 50m\nfail node 2 at 60m for 30m\ncosts profile\n";
    let results: [Result; 36] = of_text("lost nodes", &text);
    for (number, result) in results.iter().enumerate() {
        assert!(result.mean.is_finite(), "policy {number} left a job behind");
    }
}

#[test]
fn estimated_pairs_serve_as_well_as_measured_ones() {
    let models = [
        "h200-resnet18-b128-tf32",
        "h200-resnet50-b64-bf16",
        "h200-vgg16-b64-bf16",
        "h200-bert-base-b32-bf16",
        "h200-gpt2-small-b8-bf16",
        "h200-lstm-lm-b80-tf32",
        "h200-ncf-b32768-tf32",
        "h200-dcgan-b256-tf32",
    ];
    let parts = [1.0, 0.5, 0.3, 0.0];
    let mut means = [0.0; 4];
    for seed in 1..=6 {
        let mut draw = Draw::new(seed, 1);
        let mut text = format!("cluster 1x4 h200\nseed {seed}\n");
        for job in 0..24 {
            let (model, length) = (models[job % 8], 60.0 * draw.exponential() + 10.0);
            text += &format!("job j{job} at 0s wants 1 model {model} work {length:.1}m\n");
        }
        text += "policy gavel pairs=true\npolicy gavel\ncosts free\n";
        let scenario = scenario::parse(&text).expect("a scenario");
        for (mean, part) in means.iter_mut().zip(parts) {
            *mean += told_pairs(&scenario, 0, part).mean;
        }
    }
    let beside = means.map(|mean| mean / means[0]);
    println!("mean time with 50, 30 and 0 % of pairs known beside all: {:.3?}", &beside[1..]);
    // The mean hardly depends on which pairs are known: two jobs on a GPU, each at part of its speed, end about when
    // they would in turns.
    assert!(beside.iter().all(|beside| (beside - 1.0).abs() < 0.03), "{beside:?}");
}
