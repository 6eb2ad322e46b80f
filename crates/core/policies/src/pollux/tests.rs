use super::evolve::{Effort, evolve};
use super::problem::{Problem, Score, SearchJob, SearchSpace, Worth};
use super::separate::separate;
use super::vary::{Dice, Scratch, cross, fill, mutate, repair};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;

fn dice(seed: u64) -> Dice {
    Dice(ChaCha12Rng::seed_from_u64(seed))
}

/// Speed-ups that grow by less and less, and by a third less across nodes.
fn concave(most: u32, per_node: u32) -> Worth {
    let speed = |gpus: u32| 0.25 * f64::from(gpus).powf(0.7);
    Worth {
        node: (1..=most.min(per_node)).map(speed).collect(),
        network: (1..=most).map(|gpus| speed(gpus) * 0.67).collect(),
    }
}

fn row(least: u32, most: u32, nodes: usize, per_node: u8) -> SearchJob {
    SearchJob {
        least,
        most,
        nodes_most: 16,
        room: vec![per_node; nodes].into(),
        base: vec![0; nodes],
        worth: vec![concave(most, u32::from(per_node))],
        factor: 0.9,
    }
}

fn problem(rows: Vec<SearchJob>, nodes: usize, per_node: u8) -> Problem {
    let capacity = vec![per_node; nodes];
    Problem::new(rows, SearchSpace { capacity, kinds: vec![0; nodes], avoid: true, power: -1.0 })
}

fn score(problem: &Problem, state: &[u8]) -> Score {
    problem.score(state, &mut vec![0; problem.nodes])
}

const EFFORT: Effort = Effort { population: 40, generations: 60, patience: 0 };

fn assert_possible(problem: &Problem, state: &[u8]) {
    let mut left = problem.space.capacity.clone();
    let mut spanning = vec![0; problem.nodes];
    for (cells, row) in state.chunks_exact(problem.nodes).zip(&problem.rows) {
        let gpus: u32 = cells.iter().map(|cell| u32::from(*cell)).sum();
        let spread = cells.iter().filter(|cell| **cell > 0).count();
        assert!(gpus == 0 || (row.least..=row.most).contains(&gpus), "{gpus} GPUs");
        assert!(spread as u32 <= row.nodes_most);
        for (node, cell) in cells.iter().enumerate() {
            assert!(*cell <= row.room[node]);
            left[node] = left[node].checked_sub(*cell).expect("within capacity");
            spanning[node] += u32::from(*cell > 0 && spread > 1);
        }
        let mut kinds: Vec<u8> = Vec::new();
        kinds.extend((0..problem.nodes).filter(|n| cells[*n] > 0).map(|n| problem.space.kinds[n]));
        kinds.dedup();
        assert!(kinds.len() <= 1, "a job mixes types");
    }
    assert!(!problem.space.avoid || spanning.iter().all(|jobs| *jobs <= 1));
}

#[test]
fn whatever_mutation_does_repair_makes_possible() {
    let mut rows: Vec<SearchJob> = (0..9).map(|index| row(1, 1 << (index % 5), 5, 4)).collect();
    rows.push(row(6, 6, 5, 4));
    rows.push(SearchJob { nodes_most: 2, ..row(2, 12, 5, 4) });
    rows[3].room = [0, 0, 4, 4, 0].into();
    let mut problem = problem(rows, 5, 4);
    problem.space.capacity[1] = 3;
    for mixed in [false, true] {
        if mixed {
            problem.space.kinds = vec![0, 0, 1, 1, 0];
            problem.rows.iter_mut().for_each(|row| row.worth.push(concave(row.most, 4)));
            problem = Problem::new(problem.rows, problem.space);
        }
        let (mut dice, mut scratch) = (dice(7), Scratch::new(&problem));
        let mut state = problem.base();
        let mut used = 0;
        for _ in 0..3000 {
            mutate(&problem, &mut state, &mut dice, &mut scratch);
            repair(&problem, &mut state, &mut dice, &mut scratch);
            assert_possible(&problem, &state);
            used = used.max(state.iter().map(|cell| u32::from(*cell)).sum());
        }
        assert!(used >= 16, "mutation reaches only {used} GPUs");
        fill(&problem, &mut state, &mut dice, &mut scratch);
        assert_possible(&problem, &state);
    }
}

#[test]
fn a_possible_state_is_not_repaired() {
    let problem = problem(vec![row(1, 4, 2, 4), row(1, 8, 2, 4), row(1, 1, 2, 4)], 2, 4);
    let mut state = vec![2, 0, 1, 3, 1, 0];
    let before = state.clone();
    repair(&problem, &mut state, &mut dice(1), &mut Scratch::new(&problem));
    assert_eq!(state, before);
}

#[test]
fn of_two_that_span_a_node_the_later_gives_way() {
    let problem = problem(vec![row(1, 8, 3, 4), row(1, 8, 3, 4)], 3, 4);
    let mut state = vec![2, 2, 0, 0, 2, 2];
    repair(&problem, &mut state, &mut dice(1), &mut Scratch::new(&problem));
    assert_eq!(state, [2, 2, 0, 0, 0, 2]);
}

#[test]
fn children_are_two_halves_each() {
    let problem = problem(vec![row(1, 4, 1, 4), row(1, 4, 1, 4), row(1, 4, 1, 4)], 1, 4);
    let (mut a, mut b) = ([0; 3], [0; 3]);
    cross(&problem, (&[1, 2, 3], &[4, 5, 6]), (&mut a, &mut b), 1);
    assert_eq!((a, b), ([1, 5, 6], [4, 2, 3]));
}

#[test]
fn a_restart_costs_and_staying_does_not() {
    let mut rows = vec![row(1, 4, 2, 4)];
    rows[0].base = vec![2, 0];
    let problem = problem(rows, 2, 4);
    assert!(score(&problem, &[2, 0]).cost < score(&problem, &[0, 2]).cost);
    assert!(score(&problem, &[0, 4]).cost < score(&problem, &[2, 0]).cost);
    // Two GPUs of one node are worth more than two of two nodes.
    assert!(score(&problem, &[0, 2]).cost < score(&problem, &[1, 1]).cost);
    assert_eq!(score(&problem, &[0, 0]).cost, 1000.0);
}

#[test]
fn a_search_is_never_worse_than_its_seeds() {
    let rows: Vec<SearchJob> = (0..8).map(|index| row(1, 4 + index % 3 * 4, 4, 4)).collect();
    let problem = problem(rows, 4, 4);
    let (mut dice, mut scratch) = (dice(3), Scratch::new(&problem));
    let mut seeds = vec![problem.base(); 6];
    for seed in &mut seeds {
        for _ in 0..20 {
            mutate(&problem, seed, &mut dice, &mut scratch);
        }
        repair(&problem, seed, &mut dice, &mut scratch);
    }
    let best = seeds.iter().map(|seed| score(&problem, seed).cost).fold(f64::INFINITY, f64::min);
    for generations in [0, 1, 5, 50] {
        let found = evolve(&problem, &seeds, Effort { generations, ..EFFORT }, &mut dice);
        assert!(found.score.cost <= best, "{generations}: {} {best}", found.score.cost);
        assert_eq!(score(&problem, &found.best), found.score);
        found.states.iter().for_each(|state| assert_possible(&problem, state));
    }
}

/// The best state of a small problem, by trying all.
fn brute_force(problem: &Problem) -> f64 {
    let cells = problem.cells();
    let most = *problem.space.capacity.iter().max().unwrap();
    let mut state = vec![0u8; cells];
    let mut best = f64::INFINITY;
    let (mut dice, mut scratch) = (dice(0), Scratch::new(problem));
    loop {
        let mut fixed = state.clone();
        repair(problem, &mut fixed, &mut dice, &mut scratch);
        if fixed == state {
            best = best.min(score(problem, &state).cost);
        }
        let Some(next) = (0..cells).find(|cell| state[*cell] < most) else { return best };
        state[..next].fill(0);
        state[next] += 1;
    }
}

#[test]
fn the_search_finds_the_best_of_small_problems() {
    let mut rows = vec![row(1, 4, 2, 2), row(1, 2, 2, 2), row(2, 2, 2, 2)];
    rows[1].base = vec![2, 0];
    let mut problem = problem(rows, 2, 2);
    for power in [-1.0, 0.0, 1.0, -2.0] {
        problem.space.power = power;
        let fresh = Problem::new(problem.rows.clone(), problem.space.clone());
        let found = evolve(&fresh, &[], EFFORT, &mut dice(11));
        let best = brute_force(&fresh);
        assert!((found.score.cost - best).abs() < 1e-9, "{power}: {} {best}", found.score.cost);
    }
}

#[test]
fn the_same_dice_give_the_same_states() {
    let problem = problem((0..12).map(|_| row(1, 8, 6, 4)).collect(), 6, 4);
    let one = evolve(&problem, &[], EFFORT, &mut dice(5));
    let other = evolve(&problem, &[], EFFORT, &mut dice(5));
    assert_eq!(one.states, other.states);
}

#[test]
fn nobody_goes_without_while_there_is_room() {
    let problem = problem((0..10).map(|_| row(1, 1, 3, 4)).collect(), 3, 4);
    let found = evolve(&problem, &[], EFFORT, &mut dice(2));
    assert!(found.best.chunks_exact(3).all(|cells| cells.iter().any(|cell| *cell > 0)));
}

/// Jobs of many sorts, some of which hold what a first search gave them.
fn mixed(seed: u64, jobs: usize, nodes: usize) -> Problem {
    let mut dice = dice(seed);
    let mut rows: Vec<SearchJob> = Vec::new();
    for _ in 0..jobs {
        let most = 1 << dice.below(5);
        let least = if dice.below(4) == 0 { most.min(3) } else { 1 };
        let power = 0.4 + f64::from(dice.below(50)) / 100.0;
        let speed = |gpus: u32| 0.25 * f64::from(gpus).powf(power);
        let node = (1..=most.min(4)).map(speed).collect();
        let network = (1..=most).map(|gpus| speed(gpus) * 0.8).collect();
        let worth = vec![Worth { node, network }];
        let factor = 0.5 + f64::from(dice.below(50)) / 100.0;
        rows.push(SearchJob { worth, factor, ..row(least, most, nodes, 4) });
    }
    let first = problem(rows, nodes, 4);
    let held = separate(&first);
    let mut rows = first.rows;
    for (row, cells) in rows.iter_mut().zip(held.chunks_exact(nodes)) {
        if dice.below(3) > 0 {
            row.base = cells.to_vec();
        }
    }
    problem(rows, nodes, 4)
}

#[test]
fn sizes_and_places_apart_are_possible_and_no_worse_than_what_is_held() {
    for seed in 0..60 {
        let problem = mixed(seed, 3 + seed as usize % 30, 2 + seed as usize % 9);
        let state = separate(&problem);
        assert_possible(&problem, &state);
        let (found, held) = (score(&problem, &state).cost, score(&problem, &problem.base()).cost);
        assert!(found <= held + 1e-9, "seed {seed}: {found} is above {held}");
    }
}

#[test]
fn sizes_and_places_apart_are_within_two_percent_of_the_joint_search_together() {
    let (mut apart, mut joint) = (0.0, 0.0);
    for seed in 0..8 {
        let problem = mixed(seed, 12 + 3 * seed as usize, 16);
        apart += score(&problem, &separate(&problem)).cost;
        joint += evolve(&problem, &[], EFFORT, &mut dice(seed)).score.cost;
    }
    assert!(apart <= 1.02 * joint, "apart {apart}, joint {joint}");
}

#[test]
fn types_are_not_mixed_by_sizes_and_places_apart() {
    let mut rows: Vec<SearchJob> = (0..6).map(|index| row(1, 2 + index, 4, 4)).collect();
    rows.iter_mut().for_each(|row| row.worth.push(concave(row.most, 4)));
    let kinds = vec![0, 1, 0, 1];
    let space = SearchSpace { capacity: vec![4; 4], kinds, avoid: true, power: -1.0 };
    let problem = Problem::new(rows, space);
    let state = separate(&problem);
    assert_possible(&problem, &state);
    assert_eq!(state.iter().map(|cell| u32::from(*cell)).sum::<u32>(), 16, "all are used");
}
