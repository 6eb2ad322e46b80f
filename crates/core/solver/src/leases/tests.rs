//! Plans beside all plans there are.

use super::{Demand, Now, Piece, Program, Step, pack, packs, suffices};
use proptest::prelude::*;

fn demand(gpus: u32, leases: u32, steps: &[(u32, f64)]) -> Demand {
    let steps = steps.iter().map(|&(before, value)| Step { before, value }).collect();
    Demand { gpus, leases, steps, prefers: false }
}

/// The best merit, and for it the least and the most GPUs in use now, by trying everything.
fn brute_force(program: &Program) -> (f64, u32, u32) {
    let mut best = (0.0, u32::MAX, 0);
    let mut left = program.capacity.clone();
    try_from(program, 0, &mut left, (0.0, 0), &mut best);
    best
}

fn try_from(
    program: &Program,
    at: usize,
    left: &mut Vec<u32>,
    (value, now): (f64, u32),
    best: &mut (f64, u32, u32),
) {
    let Some(demand) = program.demands.get(at) else {
        if value > best.0 + 1e-9 {
            *best = (value, now, now);
        } else if value > best.0 - 1e-9 {
            *best = (best.0, best.1.min(now), best.2.max(now));
        }
        return;
    };
    try_from(program, at + 1, left, (value, now), best);
    for step in &demand.steps {
        for mask in 0..1u32 << step.before.min(left.len() as u32) {
            let fits = |lease: usize| mask >> lease & 1 == 0 || left[lease] >= demand.gpus;
            if mask.count_ones() != demand.leases || !(0..left.len()).all(fits) {
                continue;
            }
            for (lease, left) in left.iter_mut().enumerate() {
                *left -= demand.gpus * (mask >> lease & 1);
            }
            let merit = value + step.value + program.promise();
            let next = (merit, now + demand.gpus * (mask & 1));
            try_from(program, at + 1, left, next, best);
            for (lease, left) in left.iter_mut().enumerate() {
                *left += demand.gpus * (mask >> lease & 1);
            }
        }
    }
}

/// Whether pieces can be packed at all, by trying everything.
fn can_be_packed(pieces: &[Piece], left: &mut [u32]) -> bool {
    let Some((piece, others)) = pieces.split_first() else { return true };
    (0..1u32 << piece.before.min(left.len() as u32)).any(|mask| {
        let takes = |lease: usize| mask >> lease & 1 == 1;
        let fits = (0..left.len()).all(|lease| !takes(lease) || left[lease] >= piece.gpus);
        if mask.count_ones() != piece.leases || !fits {
            return false;
        }
        let mut left = left.to_vec();
        (0..left.len()).filter(|lease| takes(*lease)).for_each(|lease| left[lease] -= piece.gpus);
        can_be_packed(others, &mut left)
    })
}

/// That a plan keeps what it promises.
fn assert_kept(program: &Program, plan: &super::Plan) {
    let mut used = vec![0; program.capacity.len()];
    let mut value = 0.0;
    for (index, demand) in program.demands.iter().enumerate() {
        let leases = &plan.leases[index];
        let Some(step) = plan.steps[index] else {
            assert!(leases.is_empty());
            continue;
        };
        value += demand.steps[step].value;
        assert_eq!(leases.len() as u32, demand.leases);
        assert!(leases.is_sorted_by(|a, b| a < b), "{leases:?}");
        assert!(leases.iter().all(|lease| *lease < demand.steps[step].before), "{leases:?}");
        for lease in leases {
            used[*lease as usize] += demand.gpus;
        }
    }
    assert!(used.iter().zip(&program.capacity).all(|(used, most)| used <= most), "{used:?}");
    assert!((value - plan.value).abs() < 1e-9);
    assert!(plan.bound >= plan.value - 1e-9);
}

fn programs(widths: &'static [u32]) -> impl Strategy<Value = Program> {
    let step = (0u32..4, prop::sample::select(&[10.0f64, 8.0, 5.0, 2.0][..]));
    let one = (prop::sample::select(widths), 1u32..4, prop::collection::vec(step, 1..3));
    let capacity = prop::sample::select(&[2u32, 4][..]);
    (prop::collection::vec(one, 1..5), capacity, prop::bool::ANY).prop_map(|(all, gpus, most)| {
        let mut demands = Vec::new();
        for (width, leases, mut steps) in all {
            // Ascending deadlines of falling value, at most five leases away.
            steps.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
            steps.dedup_by_key(|step| step.0);
            let mut value = 11.0;
            steps.retain(|step| {
                let falls = step.1 < value;
                value = if falls { step.1 } else { value };
                falls
            });
            let steps: Vec<(u32, f64)> = steps.iter().map(|&(at, value)| (at + 2, value)).collect();
            demands.push(demand(width, leases, &steps));
        }
        let now = if most { Now::Most } else { Now::Least };
        Program { demands, capacity: vec![gpus; 5], now }
    })
}

fn now_of(program: &Program, least: u32, most: u32) -> u32 {
    match program.now {
        Now::Least => least,
        Now::Most => most,
    }
}

#[test]
fn a_lease_is_full_by_the_gpus_that_jobs_request_and_not_by_time() {
    let served = |demands: Vec<Demand>| {
        let plan = Program { demands, capacity: vec![8], now: Now::Most }.solve(1_000);
        plan.steps.iter().flatten().count()
    };
    // Eight leases in sum, but eight GPUs; then two leases in sum, but ten GPUs.
    assert_eq!(served(vec![demand(1, 1, &[(1, 1.0)]); 8]), 8);
    assert_eq!(served(vec![demand(5, 1, &[(1, 1.0)]); 2]), 1);
}

proptest! {
    #[test]
    fn what_is_packed_suffices_and_gpus_of_one_take_all_that_suffices(
        drawn in prop::collection::vec((1u32..5, 0u32..6, 0u32..8), 0..12),
        capacity in prop::collection::vec(1u32..9, 1..6),
    ) {
        let piece = |&(gpus, leases, before): &(u32, u32, u32)| Some(Piece { gpus, leases, before });
        let pieces: Vec<Option<Piece>> = drawn.iter().map(piece).collect();
        prop_assert!(suffices(&pieces, &capacity) || pack(&pieces, &capacity).is_err());
        // One lease each of one GPU: what suffices up to each deadline can be packed.
        let single = |&(_, _, before): &(u32, u32, u32)| Some(Piece { gpus: 1, leases: 1, before });
        let pieces: Vec<Option<Piece>> = drawn.iter().map(single).collect();
        prop_assert_eq!(suffices(&pieces, &capacity), pack(&pieces, &capacity).is_ok());
    }

    #[test]
    fn pieces_are_said_to_pack_where_they_are_packed_and_only_where_they_can_be(
        drawn in prop::collection::vec((1u32..4, 1u32..4, 1u32..5), 0..6),
        gpus in 1u32..7,
    ) {
        let pieces: Vec<Piece> = drawn
            .iter()
            .map(|&(gpus, leases, before)| Piece { gpus, leases, before })
            .collect();
        let given: Vec<Option<Piece>> = pieces.iter().copied().map(Some).collect();
        let capacity = [gpus; 4];
        let said = packs(&given, &capacity);
        prop_assert_eq!(said, pack(&given, &capacity).is_ok());
        prop_assert!(!said || can_be_packed(&pieces, &mut capacity.clone()));
        // Gangs of one size are packed wherever they can be: no shortcut ends too soon.
        let even = |one: &Piece| Piece { gpus: 2, ..*one };
        let pieces: Vec<Piece> = pieces.iter().map(even).collect();
        let given: Vec<Option<Piece>> = pieces.iter().copied().map(Some).collect();
        let can_be = can_be_packed(&pieces, &mut capacity.clone());
        prop_assert_eq!(packs(&given, &capacity), can_be);
    }

    #[test]
    fn a_plan_for_equal_gangs_is_worth_as_much_as_the_best_there_is(program in programs(&[1])) {
        let plan = program.solve(1_000_000);
        assert_kept(&program, &plan);
        let (merit, least, most) = brute_force(&program);
        let ours = program.merit(&plan.steps);
        prop_assert!((ours - merit).abs() < 1e-9, "{ours} of {merit}");
        // The choice of steps may differ where values tie, and with it what is used now.
        let all_first = plan.steps.iter().enumerate().all(|(at, step)| *step == program.first(at));
        if all_first {
            let used = plan.used_now(&program.demands);
            prop_assert_eq!(used, now_of(&program, least, most));
        }
    }

    #[test]
    fn a_plan_for_unequal_gangs_keeps_what_it_promises(program in programs(&[1, 2])) {
        let plan = program.solve(1_000_000);
        assert_kept(&program, &plan);
        let (merit, _, _) = brute_force(&program);
        let ours = program.merit(&plan.steps);
        let bound = plan.bound + ours - plan.value;
        prop_assert!(ours <= merit + 1e-9 && bound >= merit - 1e-9, "{ours} {merit} {bound}");
        prop_assert!(ours >= 0.8 * merit - 1e-9, "{ours} of {merit}");
    }

    #[test]
    fn a_limit_costs_quality_and_not_legality(program in programs(&[1, 2])) {
        assert_kept(&program, &program.solve(0));
    }
}

#[test]
fn a_demand_that_fits_nowhere_is_left_out() {
    let late = demand(1, 3, &[(2, 10.0)]);
    let wide = demand(9, 1, &[(3, 10.0)]);
    let fits = demand(4, 1, &[(1, 10.0)]);
    let program =
        Program { demands: vec![late, wide, fits], capacity: vec![4; 3], now: Now::Least };
    let plan = program.solve(1000);
    assert_eq!(plan.steps, [None, None, Some(0)]);
    assert_eq!(plan.value, 10.0);
}

#[test]
fn a_promise_is_not_broken_for_value() {
    let strict = demand(1, 2, &[(2, 1.0)]);
    let soft = demand(1, 2, &[(2, 10.0), (4, 8.0)]);
    let program = Program { demands: vec![soft, strict], capacity: vec![1], now: Now::Most };
    let plan = program.solve(1000);
    assert_eq!(plan.steps, [Some(1), Some(0)]);
    assert_eq!((plan.value, plan.leases[1].as_slice()), (9.0, &[0, 1][..]));
}

#[test]
fn the_lease_that_begins_now_is_left_free_or_filled() {
    let jobs = vec![demand(2, 2, &[(4, 10.0)]), demand(2, 3, &[(3, 10.0)])];
    let mut program = Program { demands: jobs, capacity: vec![4; 4], now: Now::Least };
    let plan = program.solve(1000);
    assert_eq!((plan.runs_now(0), plan.runs_now(1)), (false, true));
    program.now = Now::Most;
    let plan = program.solve(1000);
    assert_eq!((plan.runs_now(0), plan.runs_now(1)), (true, true));
    assert_eq!(plan.gap(), 0.0);
}
