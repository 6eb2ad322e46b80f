//! Closed forms, plans and their simulation say the same.

use trainyard_network::{
    Algorithm, CollectiveError, FiveTerm, Plan, PlanFault, ServerCosts, Terms, Tree, simulate,
};

/// Powers of two, so that sums of products are exact.
const COSTS: FiveTerm = FiveTerm {
    alpha: 1.0 / 1024.0,
    beta: 1.0 / 1048576.0,
    gamma: 1.0 / 8388608.0,
    delta: 1.0 / 16777216.0,
    epsilon: 1.0 / 33554432.0,
    fan_in_max: 3,
};

fn star(ranks: usize) -> Tree {
    let FiveTerm { gamma, delta, epsilon, fan_in_max, .. } = COSTS;
    let costs = ServerCosts { gamma, delta, epsilon, fan_in_max };
    Tree::star(ranks, 1.0 / COSTS.beta, COSTS.alpha, costs)
}

fn all(workers: usize) -> Vec<Algorithm> {
    let mut all = Algorithm::all(workers);
    all.push(Algorithm::ParameterServer { servers: 2 });
    all
}

/// Bytes that every number up to 13 divides.
const BYTES: u64 = 360_360 * 4;

#[test]
fn every_plan_leaves_the_sum_with_every_worker() {
    for workers in 2..=13 {
        for algorithm in all(workers) {
            let plan = algorithm.plan(workers, BYTES).unwrap();
            assert_eq!(plan.check(), Ok(()), "{} of {workers}", algorithm.name());
            // Fewer bytes than parts are no fault either.
            assert_eq!(algorithm.plan(workers, 5).unwrap().check(), Ok(()), "{}", algorithm.name());
        }
    }
}

#[test]
fn a_plan_with_a_transfer_left_out_or_doubled_is_found_out() {
    let plan = Algorithm::Ring.plan(4, BYTES).unwrap();
    let mut less = plan.clone();
    less.steps[1].pop();
    assert!(matches!(less.check(), Err(PlanFault::Lost { .. } | PlanFault::Incomplete { .. })));
    let mut more = plan.clone();
    more.steps.insert(1, plan.steps[0].clone());
    assert!(matches!(more.check(), Err(PlanFault::CountedTwice { .. })));
    let mut beyond = plan;
    beyond.steps[0][0].to = 9;
    assert_eq!(beyond.check(), Err(PlanFault::OutOfRange { step: 0 }));
}

#[test]
fn closed_forms_are_what_counting_the_plan_gives() {
    for workers in 2..=13 {
        for algorithm in all(workers) {
            let plan = algorithm.plan(workers, BYTES).unwrap();
            let (closed, counted) =
                (algorithm.terms(workers, BYTES as f64).unwrap(), Terms::of(&plan));
            let name = format!("{} of {workers}", algorithm.name());
            assert_eq!(closed.rounds, counted.rounds, "{name}");
            near(closed.bytes, counted.bytes, &name);
            near(closed.reduced, counted.reduced, &name);
            near(closed.accessed, counted.accessed, &name);
            assert_eq!(closed.gathered.len(), counted.gathered.len(), "{name}");
            for (closed, counted) in closed.gathered.iter().zip(&counted.gathered) {
                assert_eq!(closed.0, counted.0, "{name}");
                near(closed.1, counted.1, &name);
            }
        }
    }
}

#[test]
fn the_event_simulation_of_a_plan_takes_as_long_as_its_closed_form() {
    for workers in 2..=13usize {
        // Beyond a power of two, ranks of halving and doubling go on at different times.
        let even = workers.is_power_of_two();
        let same = |one: &Algorithm| even || *one != Algorithm::HalvingDoubling;
        for algorithm in all(workers).into_iter().filter(same) {
            let plan = algorithm.plan(workers, BYTES).unwrap();
            let closed = algorithm.terms(workers, BYTES as f64).unwrap().seconds(&COSTS);
            let simulated = simulate(&plan, &star(plan.ranks)).seconds;
            near(closed, simulated, &format!("{} of {workers}", algorithm.name()));
        }
    }
}

/// Where every division is by a power of two, not one bit differs.
#[test]
fn with_powers_of_two_the_simulation_and_the_closed_form_are_the_same_bits() {
    let bytes = 1u64 << 20;
    for workers in [2, 4, 8, 16] {
        for algorithm in [Algorithm::Ring, Algorithm::HalvingDoubling] {
            let plan = algorithm.plan(workers, bytes).unwrap();
            let closed = algorithm.terms(workers, bytes as f64).unwrap().seconds(&COSTS);
            assert_eq!(simulate(&plan, &star(workers)).seconds, closed, "{}", algorithm.name());
            assert_eq!(star(workers).parts(&plan).seconds(), closed, "{}", algorithm.name());
        }
    }
}

/// Plans in which ranks go on at different times are faster than their closed form, never slower.
#[test]
fn ranks_that_need_not_wait_make_a_plan_no_slower() {
    for workers in 2..=13 {
        for algorithm in all(workers) {
            let plan = algorithm.plan(workers, BYTES).unwrap();
            let closed = algorithm.terms(workers, BYTES as f64).unwrap().seconds(&COSTS);
            let simulated = simulate(&plan, &star(plan.ranks)).seconds;
            assert!(simulated <= closed * (1.0 + 1e-12), "{} of {workers}", algorithm.name());
        }
    }
}

#[test]
fn layers_beat_one_layer_once_the_fan_in_passes_the_threshold() {
    let costs = FiveTerm::hosts_at_10_gbps();
    let seconds = |algorithm: &Algorithm, workers| {
        algorithm.terms(workers, 4e7).unwrap().seconds(&FiveTerm { alpha: 0.0, ..costs })
    };
    for workers in [4, 8] {
        let layered = Algorithm::Hierarchical(vec![workers / 2, 2]);
        assert!(seconds(&Algorithm::ColocatedServers, workers) < seconds(&layered, workers));
    }
    for workers in [12, 15, 16, 24] {
        let factors = if workers == 15 { vec![5, 3] } else { vec![workers / 2, 2] };
        let layered = Algorithm::Hierarchical(factors);
        let one = seconds(&Algorithm::ColocatedServers, workers);
        assert!(seconds(&layered, workers) < one, "{workers} workers");
        // The control: without incast one layer is the cheapest of all.
        let free = FiveTerm { epsilon: 0.0, alpha: 0.0, ..costs };
        let without = |algorithm: &Algorithm| algorithm.terms(workers, 4e7).unwrap().seconds(&free);
        assert!(without(&Algorithm::ColocatedServers) < without(&layered), "{workers} workers");
    }
}

#[test]
fn one_pass_over_memory_is_what_sets_co_located_servers_apart_from_a_ring() {
    let costs = FiveTerm { alpha: 0.0, epsilon: 0.0, ..FiveTerm::hosts_at_10_gbps() };
    let seconds =
        |algorithm: Algorithm, costs: &FiveTerm| algorithm.terms(8, 4e7).unwrap().seconds(costs);
    assert!(seconds(Algorithm::ColocatedServers, &costs) < seconds(Algorithm::Ring, &costs));
    let three = FiveTerm { delta: 0.0, ..costs };
    let gap = seconds(Algorithm::ColocatedServers, &three) - seconds(Algorithm::Ring, &three);
    assert!(gap.abs() < 1e-12, "alpha-beta-gamma sees no difference");
}

#[test]
fn what_makes_no_sense_is_refused() {
    assert_eq!(Algorithm::Ring.plan(1, 8), Err(CollectiveError::TooFew(1)));
    let servers = Algorithm::ParameterServer { servers: 0 };
    assert_eq!(servers.plan(3, 8), Err(CollectiveError::NoServer));
    let error = Algorithm::Hierarchical(vec![2, 3]).plan(8, 8).unwrap_err();
    assert_eq!(error.to_string(), "layers [2, 3] make 6 workers, not 8");
}

fn near(a: f64, b: f64, name: &str) {
    assert!((a - b).abs() <= 1e-12 * a.abs().max(b.abs()), "{a} and {b} for {name}");
}

/// A plan of nothing takes no time.
#[test]
fn an_empty_plan_takes_no_time() {
    let plan = Plan { workers: 2, ranks: 2, bytes: 0, steps: Vec::new() };
    assert_eq!(simulate(&plan, &star(2)).seconds, 0.0);
}
