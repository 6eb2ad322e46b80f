//! What every discipline of the table keeps, whatever comes.

use crate::runs::{fleet, run, run_tokens, token_trace, trace};
use proptest::prelude::*;
use trainyard_serving::LlmFleet;
use trainyard_serving::registry::{DISCIPLINES, Serves};

fn whole() -> impl Iterator<Item = &'static str> {
    let all = DISCIPLINES.iter().filter(|entry| matches!(entry.serves, Serves::Whole(_)));
    all.map(|entry| entry.name)
}

fn tokens() -> impl Iterator<Item = &'static str> {
    let all = DISCIPLINES.iter().filter(|entry| matches!(entry.serves, Serves::Tokens(_)));
    all.map(|entry| entry.name)
}

const MODELS: &[&str] = &["resnet50", "bert_base", "efficientnet_b4"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn no_request_is_lost_or_answered_twice_and_none_waits_for_ever(
        seed in 1u64..1_000_000,
        rate in 50u32..40_000,
        law in 0usize..4,
        slo in 5u32..500,
        servers in 1u32..5,
        room in prop::sample::select(vec![500u64, 141_000]),
    ) {
        let law = ["poisson", "gamma", "on-off", "diurnal day=1"][law];
        let mut fleet = fleet(MODELS, servers);
        fleet.memory_mib = room;
        let words = format!("requests=1500 rate={rate} like={law} slo={slo}ms clients=7 priorities=1,2 seed={seed}");
        let trace = trace(&fleet, &words);
        for name in whole() {
            let tally = run(&fleet, &trace, name);
            // With memory for all models nothing is left; what a GPU cannot hold may be without a way to be served.
            prop_assert!(tally.waiting == 0 || room < 1000, "{name}: {} wait", tally.waiting);
        }
    }

    #[test]
    fn no_answer_of_a_language_model_is_lost_and_the_cache_is_never_overfull(
        seed in 1u64..1_000_000,
        rate in 1u32..60,
        servers in 2u32..5,
        blocks in prop::sample::select(vec![300u32, 1200, 50_000]),
        prefixes in 0u32..5,
    ) {
        let mut fleet = LlmFleet::measured(servers);
        fleet.blocks = blocks;
        let words = format!(
            "requests=250 rate={rate} prompt=400 output=120 output-max=700 prefixes={prefixes} prefix-tokens=200 priorities=1,2,1 seed={seed}"
        );
        let trace = token_trace(&words);
        for name in tokens() {
            let tally = run_tokens(&fleet, &trace, name);
            prop_assert_eq!(tally.whole.waiting, 0, "{}", name);
            let made: u64 = trace.outputs.iter().map(|one| u64::from(*one)).sum();
            prop_assert!(tally.tokens <= made, "{}: {} tokens of {}", name, tally.tokens, made);
            if tally.whole.refused_all() == 0 {
                prop_assert_eq!(tally.tokens, made, "{}", name);
            }
        }
    }
}

#[test]
fn the_same_input_gives_the_same_outcome() {
    let fleet = fleet(MODELS, 3);
    let trace = trace(&fleet, "requests=3000 rate=9000 like=on-off slo=40ms clients=5");
    for name in whole() {
        assert_eq!(run(&fleet, &trace, name), run(&fleet, &trace, name), "{name}");
    }
    let (fleet, trace) = (LlmFleet::measured(2), token_trace("requests=300 rate=20 prefixes=3"));
    for name in tokens() {
        assert_eq!(run_tokens(&fleet, &trace, name), run_tokens(&fleet, &trace, name), "{name}");
    }
}

#[test]
fn a_burst_of_ten_times_the_capacity_never_waits_beyond_the_bound() {
    let mut fleet = fleet(MODELS, 2);
    fleet.waiting_max = 500;
    let trace = trace(&fleet, "requests=60000 rate=150000 slo=10s");
    for name in whole() {
        let tally = run(&fleet, &trace, name);
        assert!(tally.waiting_peak <= 500, "{name}: {}", tally.waiting_peak);
        assert!(tally.refused_full > 0 && tally.answered > 0, "{name}");
    }
    let mut fleet = LlmFleet::measured(2);
    fleet.waiting_max = 100;
    let trace = token_trace("requests=2000 rate=400");
    for name in tokens() {
        let tally = run_tokens(&fleet, &trace, name).whole;
        assert!(tally.waiting_peak <= 100, "{name}: {}", tally.waiting_peak);
        assert!(tally.refused_full > 0 && tally.answered > 0, "{name}");
    }
}

#[test]
fn every_route_serves_every_request() {
    let fleet = fleet(MODELS, 4);
    let trace = trace(&fleet, "requests=4000 rate=3000 slo=1s");
    for route in trainyard_serving::routing::ROUTES {
        assert_eq!(run(&fleet, &trace, &format!("triton:route={route}")).answered, 4000, "{route}");
    }
}
