//! Traces and runs that several tests have in common.

use trainyard_serving::latency::Model;
use trainyard_serving::load::Load;
use trainyard_serving::registry::{Serves, Told, choose};
use trainyard_serving::{
    Fleet, LlmFleet, Tally, TokenTally, Trace, simulate, simulate_tokens, zoo,
};
use trainyard_types::Span;

/// GPUs with these models of the zoo.
pub fn fleet(models: &[&str], servers: u32) -> Fleet {
    let models: Vec<Model> = models.iter().map(|name| zoo::models()[*name].clone()).collect();
    let slowdowns = zoo::slowdowns(&models);
    Fleet::new(models, slowdowns, servers)
}

/// A generated trace for a fleet.
pub fn trace(fleet: &Fleet, words: &str) -> Trace {
    let names: Vec<String> = fleet.models.iter().map(|model| model.name.clone()).collect();
    let load = Load { models: names, ..Load::parse(words).expect("a load") };
    let alone = |name: &str| {
        let model = fleet.models.iter().find(|model| model.name == name);
        model.map_or(Span::ZERO, |model| model.span(1))
    };
    load.trace(&alone, false)
}

/// A generated trace for a language model.
pub fn token_trace(words: &str) -> Trace {
    let load = Load { models: vec!["llama-8b".to_owned()], ..Load::parse(words).expect("a load") };
    load.trace(&|_| Span::ZERO, true)
}

/// What came of a trace under a discipline of whole inferences.
pub fn run(fleet: &Fleet, trace: &Trace, discipline: &str) -> Tally {
    let choice = choose(discipline).expect("a discipline");
    let rates = trace.rates();
    let slo = trace.requests.iter().map(|one| one.deadline.since(one.arrived)).min();
    let told = Told { fleet, rates: &rates, slo: slo.unwrap_or(Span::secs(1)) };
    let Serves::Whole(make) = choice.entry.serves else { panic!("{discipline} is for tokens") };
    let mut made = make(&told, &choice.settings).expect("sound settings");
    let tally = simulate(fleet, trace, made.as_mut(), &mut |_| {});
    let tally = tally.unwrap_or_else(|fault| panic!("{discipline}: {fault}"));
    assert!(tally.is_conserved(), "{discipline}: {tally:?}");
    tally
}

/// The same for tokens.
pub fn run_tokens(fleet: &LlmFleet, trace: &Trace, discipline: &str) -> TokenTally {
    let choice = choose(discipline).expect("a discipline");
    let Serves::Tokens(make) = choice.entry.serves else {
        panic!("{discipline} is for inferences")
    };
    let mut made = make(fleet, &choice.settings).expect("sound settings");
    let tally = simulate_tokens(fleet, trace, made.as_mut(), &mut |_| {});
    let tally = tally.unwrap_or_else(|fault| panic!("{discipline}: {fault}"));
    assert!(tally.whole.is_conserved(), "{discipline}");
    tally
}
