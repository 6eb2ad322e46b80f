//! What papers say of disciplines of whole inferences, on our tables. `--nocapture` prints the figures.

use crate::runs::{fleet, run, trace};
use trainyard_serving::{Fleet, Tally, Trace};
use trainyard_types::Time;

const EIGHT: &[&str] = &[
    "mobilenet_v3",
    "resnet50",
    "resnet152",
    "vgg16",
    "inception_v3",
    "efficientnet_b4",
    "vit_b16",
    "bert_base",
];

/// Requests a second with the largest batches, each model alike.
fn capacity(fleet: &Fleet) -> f64 {
    let each =
        |model: &trainyard_serving::latency::Model| 1.0 / model.throughput(model.batch_max());
    let mean: f64 = fleet.models.iter().map(each).sum::<f64>() / fleet.models.len() as f64;
    f64::from(fleet.servers) / mean
}

fn shown(name: &str, tally: &Tally) {
    println!(
        "{name:<28} p50 {:>9.3} p99 {:>9.3} p99.9 {:>9.3} mean {:>9.3} ms  in time {:.6}  goodput {:>8.0}/s  use {:.3}  batch {:.1}",
        tally.percentile(0.5).as_secs_f64() * 1e3,
        tally.percentile(0.99).as_secs_f64() * 1e3,
        tally.percentile(0.999).as_secs_f64() * 1e3,
        tally.mean().as_secs_f64() * 1e3,
        tally.attainment(),
        tally.goodput(),
        tally.use_of_servers(),
        tally.batch_mean()
    );
}

#[test]
fn clockwork_answers_9999_of_10000_within_100_ms_at_four_fifths_of_the_capacity() {
    let fleet = fleet(EIGHT, 8);
    for part in [0.8, 1.0] {
        let rate = capacity(&fleet) * part;
        let trace = trace(&fleet, &format!("requests=200000 rate={rate} slo=100ms"));
        for name in ["clockwork", "triton", "nexus", "shepherd"] {
            let tally = run(&fleet, &trace, name);
            shown(&format!("{name} at {part}"), &tally);
            if name == "clockwork" && part == 0.8 {
                assert!(tally.attainment() >= 0.9999, "{}", tally.attainment());
            }
        }
    }
}

/// Ten clients with a hundred requests each, all there at the start.
fn ten_clients(fleet: &Fleet, in_order: bool) -> Trace {
    let mut trace = trace(fleet, "requests=1000 rate=1000 slo=1000s");
    for (at, request) in trace.requests.iter_mut().enumerate() {
        request.arrived = Time::ZERO;
        request.client = if in_order { at / 100 } else { at % 10 } as u32;
    }
    trace
}

fn spread(tally: &Tally) -> f64 {
    let ends: Vec<f64> = tally.client_last.values().map(|end| end.as_secs_f64()).collect();
    let mean = ends.iter().sum::<f64>() / ends.len() as f64;
    let (low, high) = ends.iter().fold((f64::MAX, 0.0f64), |(l, h), e| (l.min(*e), h.max(*e)));
    (high - low) / mean
}

#[test]
fn ten_equal_clients_of_olympian_end_together() {
    let fleet = fleet(&["inception_v3"], 1);
    let trace = ten_clients(&fleet, true);
    let (fair, fifo) = (run(&fleet, &trace, "olympian"), run(&fleet, &trace, "fifo"));
    let slower = fair.until.as_secs_f64() / fifo.until.as_secs_f64() - 1.0;
    println!(
        "spread: olympian {:.4}, fifo {:.4}; olympian takes {:.2} % longer",
        spread(&fair),
        spread(&fifo),
        100.0 * slower
    );
    assert!(spread(&fair) < 0.01, "{}", spread(&fair));
    assert!(spread(&fifo) > 1.0, "{}", spread(&fifo));
    assert!(slower < 0.02, "{slower}");
}

#[test]
fn weights_of_olympian_are_shares_of_time_and_its_priorities_come_first() {
    let fleet = fleet(&["inception_v3"], 1);
    let mut trace = ten_clients(&fleet, false);
    for request in &mut trace.requests {
        (request.client, request.priority) = (request.client % 2, (request.client % 2) as u8);
    }
    let end = |tally: &Tally, client: u32| tally.client_last[&client].as_secs_f64();
    let weighted = run(&fleet, &trace, "olympian:share=weighted,weights=3/1");
    // The heavy one has three quarters of the time, so it ends after two thirds.
    let ratio = end(&weighted, 0) / end(&weighted, 1);
    assert!((ratio - 2.0 / 3.0).abs() < 0.02, "{ratio}");
    let first = run(&fleet, &trace, "olympian:share=priority");
    let ratio = end(&first, 0) / end(&first, 1);
    assert!((ratio - 0.5).abs() < 0.01, "{ratio}");
}

/// Requests a second that a GPU serves one by one.
fn one_by_one(fleet: &Fleet) -> f64 {
    let alone: f64 = fleet.models.iter().map(|model| model.micros(1)).sum();
    1e6 * fleet.models.len() as f64 / alone
}

fn eager() -> Vec<&'static str> {
    vec![
        "mobilenet_v3-eager",
        "resnet50-eager",
        "resnet152-eager",
        "vgg16-eager",
        "inception_v3-eager",
        "efficientnet_b4-eager",
        "vit_b16-eager",
        "bert_base-eager",
    ]
}

/// Published: 1.3 to 2.5 times TensorFlow Serving. Ours depends on what is called plain batching, see the page.
#[test]
fn irina_has_a_lower_mean_than_every_plain_batching() {
    let plain = ["triton:delay=2ms,alone=true", "triton:delay=0s,alone=true", "triton:delay=0s"];
    let mut ratios = vec![Vec::new(); plain.len()];
    for (kind, models) in [("graph", EIGHT.to_vec()), ("eager", eager())] {
        let mut fleet = fleet(&models, 1);
        fleet.jitter = false;
        for part in [0.5, 0.8, 1.2, 2.0] {
            let rate = part * one_by_one(&fleet);
            let trace = trace(&fleet, &format!("requests=20000 rate={rate} slo=1000s"));
            let mean = |name: &str| run(&fleet, &trace, name).mean().as_secs_f64();
            let irina = mean("irina");
            for (name, ratios) in plain.iter().zip(&mut ratios) {
                let ratio = mean(name) / irina;
                println!(
                    "{kind} at {part} of the rate without batches: {name} takes {ratio:.2} times as long"
                );
                assert!(ratio > 1.03, "{kind} {part} {name}: {ratio}");
                ratios.push(ratio);
            }
        }
    }
    let most = ratios.iter().flatten().fold(0.0, |a: f64, b| a.max(*b));
    assert!(most > 2.0, "{most}");
}

#[test]
fn abacus_violates_fewer_targets_than_one_after_the_other_where_there_are_many() {
    for (kind, models) in [("graph", EIGHT.to_vec()), ("eager", eager())] {
        let fleet = fleet(&models, 1);
        for part in [0.6, 0.9, 1.1] {
            let rate = part * one_by_one(&fleet);
            let slo = (8e6 / one_by_one(&fleet)) as u64;
            let trace = trace(&fleet, &format!("requests=20000 rate={rate} slo={slo}us"));
            let violated = |name: &str| {
                let tally = run(&fleet, &trace, name);
                shown(&format!("{kind} {name} at {part}"), &tally);
                1.0 - tally.attainment()
            };
            let (together, alone) = (violated("abacus"), violated("abacus:together=1"));
            let dropped = violated("fifo:late=drop");
            println!(
                "{kind} at {part}: violations {:.1} % of sequential",
                100.0 * together / alone
            );
            assert!(part < 0.8 || together < alone && alone < dropped, "{kind} {part}");
        }
    }
}

#[test]
fn pipelines_of_alpaserve_serve_bursts_that_replicas_cannot_where_memory_is_short() {
    let attainment = |memory: u64, name: &str| {
        let mut fleet = fleet(EIGHT, 8);
        fleet.memory_mib = memory;
        let trace = trace(&fleet, "requests=50000 rate=2000 slo=20ms like=gamma cv=4");
        let tally = run(&fleet, &trace, name);
        shown(&format!("{memory} MiB {name}"), &tally);
        tally.attainment()
    };
    // The largest model does not fit on a GPU of 300 MiB: only a pipeline has it.
    assert!(attainment(300, "alpaserve") > 0.99);
    assert!(attainment(300, "alpaserve:stages=1") < 0.9);
    for memory in [420, 800] {
        let ours = attainment(memory, "alpaserve");
        assert!(ours >= attainment(memory, "alpaserve:stages=1"));
        assert!(ours > attainment(memory, "fifo"));
    }
}

#[test]
fn clockwork_brings_models_where_they_are_asked_for() {
    let mut fleet = fleet(EIGHT, 4);
    fleet.memory_mib = 500;
    let trace = trace(&fleet, "requests=20000 rate=1000 slo=100ms");
    let tally = run(&fleet, &trace, "clockwork");
    shown("clockwork with 500 MiB", &tally);
    assert!(
        tally.loads > 0 && tally.attainment() > 0.95,
        "{} loads, {}",
        tally.loads,
        tally.attainment()
    );
    assert!(run(&fleet, &trace, "fifo").attainment() < 0.8);
}

/// Shepherd's own case: streams with targets so different that a batch in progress should give way.
#[test]
fn shepherd_keeps_more_targets_than_clockwork_under_bursts() {
    let fleet = fleet(EIGHT, 4);
    let rate = 0.6 * capacity(&fleet);
    let trace = trace(
        &fleet,
        &format!("requests=200000 rate={rate} slo=25ms like=on-off burst=3 on=0.05 off=0.2"),
    );
    let mut found = Vec::new();
    for name in ["shepherd", "clockwork", "nexus"] {
        let tally = run(&fleet, &trace, name);
        shown(name, &tally);
        found.push(tally.goodput());
    }
    assert!(found[0] > found[1], "{found:?}");
}
