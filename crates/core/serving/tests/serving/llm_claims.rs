//! What papers say of disciplines of language models, on our tables. `--nocapture` prints the figures.

use crate::runs::{run_tokens, token_trace};
use trainyard_serving::{LlmFleet, TokenTally};
use trainyard_types::Span;

fn ms(span: Span) -> f64 {
    span.as_secs_f64() * 1e3
}

fn shown(name: &str, tally: &TokenTally) {
    println!(
        "{name:<34} tokens/s {:>7.0}  ttft p50 {:>9.1} p99 {:>9.1}  tpot p50 {:>6.1} p99 {:>6.1}  gap p99 {:>7.1} p99.9 {:>7.1} ms  in time {:.4}  evicted {}  reused {}",
        tally.tokens_per_second(),
        ms(tally.first_within(0.5)),
        ms(tally.first_within(0.99)),
        ms(tally.pace_within(0.5)),
        ms(tally.pace_within(0.99)),
        ms(tally.gap_within(0.99)),
        ms(tally.gap_within(0.999)),
        tally.whole.attainment(),
        tally.evictions,
        tally.reused
    );
}

/// The trade-offs of prompts beside answers, on four GPUs at a rate that all but whole batches carry.
#[test]
fn chunks_and_split_phases_trade_first_tokens_for_even_answers() {
    let fleet = LlmFleet::measured(4);
    for rate in [20, 60, 80] {
        let trace = token_trace(&format!("requests=4000 rate={rate}"));
        let of = |name: &str| {
            let tally = run_tokens(&fleet, &trace, name);
            shown(&format!("{name} at {rate}"), &tally);
            tally
        };
        let (whole, joined) = (of("static-batch"), of("continuous"));
        let (paged, chunked, split) = (of("paged"), of("chunked"), of("split:prefill=0.75"));
        of("chunked:budget=2048");
        of("split");
        if rate == 60 {
            // Orca: joining between iterations carries what whole batches do not.
            assert!(joined.tokens_per_second() > 2.0 * whole.tokens_per_second());
            // Sarathi-Serve: no answer pauses for a prompt, and first tokens come later for it.
            assert!(ms(paged.gap_within(0.99)) > 5.0 * ms(chunked.gap_within(0.99)));
            assert!(chunked.first_within(0.5) > paged.first_within(0.5));
            // Splitwise, DistServe: answers never meet prompts.
            assert!(split.gap_within(0.999) < chunked.gap_within(0.99));
        }
        if rate == 80 {
            assert!(chunked.whole.attainment() > paged.whole.attainment() + 0.1);
        }
    }
}

#[test]
fn blocks_carry_more_than_reservations_where_the_cache_is_small() {
    let mut fleet = LlmFleet::measured(1);
    fleet.blocks = 4000;
    let trace = token_trace("requests=3000 rate=8 output-max=2048 output=300");
    let of = |name: &str| {
        let tally = run_tokens(&fleet, &trace, name);
        shown(name, &tally);
        tally
    };
    let (reserved, paged, swap) = (of("continuous"), of("paged"), of("paged:preempt=swap"));
    of("chunked");
    assert!(paged.tokens_per_second() > 1.2 * reserved.tokens_per_second());
    assert!(paged.evictions > 0 && swap.evictions > 0 && reserved.evictions == 0);
    assert!(paged.computed > swap.computed, "what is swapped is not computed again");
}

#[test]
fn requests_that_go_where_their_beginning_is_reuse_most() {
    let mut fleet = LlmFleet::measured(4);
    fleet.blocks = 12_000;
    let trace = token_trace("requests=6000 rate=60 prefixes=200 prefix-tokens=2000 prompt=200");
    let of = |name: &str| {
        let tally = run_tokens(&fleet, &trace, name);
        shown(name, &tally);
        tally
    };
    let (none, aware) = (of("paged"), of("prefix"));
    let (turns, least) = (of("prefix:route=round-robin"), of("prefix:route=least-loaded"));
    assert_eq!(none.reused, 0);
    assert!(aware.reused > 4 * turns.reused.max(least.reused));
    assert!(aware.first_within(0.99) < turns.first_within(0.99));
    assert!(aware.tokens_per_second() > none.tokens_per_second());
}

#[test]
fn the_urgent_keep_their_pace_where_all_cannot() {
    let fleet = LlmFleet::measured(1);
    let trace = token_trace("requests=3000 rate=28 priorities=0.1,0.9");
    let of = |name: &str| {
        let tally = run_tokens(&fleet, &trace, name);
        shown(name, &tally);
        tally
    };
    let (paged, urgent) = (of("paged"), of("llm-priority:aging=0s"));
    of("llm-priority");
    for priority in [0, 1] {
        let first = |tally: &TokenTally| ms(tally.first_within_of(priority, 0.99));
        println!(
            "priority {priority}: first token p99 paged {:.0} ms, llm-priority {:.0} ms",
            first(&paged),
            first(&urgent)
        );
    }
    assert!(urgent.first_within_of(0, 0.99) < Span::secs(2));
    assert!(urgent.first_within_of(0, 0.99).0 * 5 < paged.first_within_of(0, 0.99).0);
    assert!(urgent.evictions > 0);
}
