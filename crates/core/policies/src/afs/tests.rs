//! The rule beside what follows from both choices, and the knockout beside a scan.

use super::*;
use crate::ladder::{Charge, Ladder};
use proptest::prelude::*;
use trainyard_types::GpuType;

/// Both jobs to their ends: the survivor has the extra GPU from then on. `(now, with it)` are the two speeds of each.
fn sum_of_ends(left: [f64; 2], rates: [(f64, f64); 2], extra: usize) -> f64 {
    let rate = |job: usize| if job == extra { rates[job].1 } else { rates[job].0 };
    let ends = [left[0] / rate(0), left[1] / rate(1)];
    let (first, last) = if ends[0] <= ends[1] { (0, 1) } else { (1, 0) };
    let rest = left[last] - rate(last) * ends[first];
    ends[first] + ends[first] + rest / rates[last].1
}

fn standing(left: f64, (rate, next_rate): (f64, f64)) -> NextStep {
    NextStep::new((rate, next_rate), 1, left)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// What the paper proves: of two jobs the rule finds the one with which the next GPU makes both end sooner. The
    /// job that ends first must be the same whichever job gets it.
    #[test]
    fn of_two_jobs_the_next_gpu_goes_where_both_end_soonest(
        left in [1.0..100.0f64, 1.0..100.0f64],
        rate in [0.1..10.0f64, 0.1..10.0f64],
        growth in [1.0..2.5f64, 1.0..2.5f64],
    ) {
        let rates = [(rate[0], rate[0] * growth[0]), (rate[1], rate[1] * growth[1])];
        let first_ends = |extra: usize| {
            let end = |job: usize| left[job] / if job == extra { rates[job].1 } else { rates[job].0 };
            end(0) <= end(1)
        };
        prop_assume!(first_ends(0) == first_ends(1));
        let sums = [sum_of_ends(left, rates, 0), sum_of_ends(left, rates, 1)];
        let second = second_wins(&standing(left[0], rates[0]), &standing(left[1], rates[1]));
        let (chosen, other) = if second { (sums[1], sums[0]) } else { (sums[0], sums[1]) };
        prop_assert!(chosen <= other * (1.0 + 1e-9), "{chosen} {other}");
    }

    /// However the winner changes, the tree holds what it would hold if all matches were played anew.
    #[test]
    fn a_change_leaves_the_tree_as_if_played_anew(
        jobs in prop::collection::vec((1.0..50.0f64, 0.0..5.0f64, 1.01..2.0f64), 1..20),
        changes in prop::collection::vec((0.1..5.0f64, prop::bool::ANY), 1..20),
    ) {
        let stand = |&(left, rate, growth): &(f64, f64, f64)| {
            Some(standing(left, (rate, rate * growth + 0.1)))
        };
        let mut all: Vec<Option<NextStep>> = jobs.iter().map(stand).collect();
        let mut tree = Knockout::new(all.clone(), second_wins);
        for (rate, leaves) in changes {
            let Some(at) = tree.winner() else { break };
            all[at] = (!leaves).then(|| standing(9.0, (rate, rate * 1.5)));
            tree.set_winner(all[at], second_wins);
            prop_assert_eq!(tree.winner(), Knockout::new(all.clone(), second_wins).winner());
        }
    }

    /// Where the order is total, the winner is the first of it.
    #[test]
    fn of_a_total_order_the_best_wins(keys in prop::collection::vec(0u32..30, 1..40)) {
        let tree = Knockout::new(keys.iter().copied().map(Some).collect(), |a, b| b < a);
        let best = (0..keys.len()).min_by_key(|at| (keys[*at], *at));
        prop_assert_eq!(tree.winner(), best);
    }

    /// Sums of ends of two jobs beside the best of all divisions, where the survivor takes all GPUs. The rule looks one
    /// GPU ahead and is not the best there; this says how far it is off.
    #[test]
    fn divisions_for_two_jobs_are_near_the_best_of_all(
        left in [1.0..10.0f64, 1.0..10.0f64],
        falls in prop::collection::vec(0.3..1.0f64, 16),
        gpus in 2u32..9,
    ) {
        let curve = |from: usize| -> Vec<f64> {
            let mut sizes = vec![0.0];
            let mut gain = 1.0;
            for step in 0..gpus as usize {
                sizes.push(sizes[step] + gain);
                gain *= falls[from + step];
            }
            sizes
        };
        let curves = [curve(0), curve(8)];
        let total = |first: u32| {
            let sizes = [first as usize, (gpus - first) as usize];
            let end = |job: usize| left[job] / curves[job][sizes[job]];
            let (a, b) = if end(0) <= end(1) { (0, 1) } else { (1, 0) };
            let rest = left[b] - curves[b][sizes[b]] * end(a);
            2.0 * end(a) + rest / curves[b][gpus as usize]
        };
        let sizes = divided(&curves, left, gpus);
        let best = (0..=gpus).map(total).fold(f64::INFINITY, f64::min);
        prop_assert!(total(sizes[0]) <= best * 1.35, "{sizes:?} {} {best}", total(sizes[0]));
    }
}

/// GPUs of two jobs, one after another by the rule.
fn divided(curves: &[Vec<f64>; 2], left: [f64; 2], gpus: u32) -> [u32; 2] {
    let mut sizes = [0u32; 2];
    for _ in 0..gpus {
        let at = |job: usize| {
            let curve = &curves[job];
            standing(left[job], (curve[sizes[job] as usize], curve[sizes[job] as usize + 1]))
        };
        let winner = usize::from(second_wins(&at(0), &at(1)));
        sizes[winner] += 1;
    }
    sizes
}

#[test]
fn a_gang_of_several_gpus_counts_for_each_of_them() {
    let grows = NextStep::new((4.0, 5.0), 1, 100.0);
    let gang = NextStep::new((0.0, 8.0), 8, 100.0);
    assert!(!second_wins(&grows, &gang), "a quarter for one GPU is more than all for eight");
    let slow = NextStep::new((4.0, 4.4), 1, 100.0);
    assert!(second_wins(&slow, &gang));
    assert!(!second_wins(&gang, &slow), "whichever is named first");
}

proptest! {
    /// Steps that were worked out for all sizes at once are those that a scan of larger sizes finds.
    #[test]
    fn the_best_step_is_that_of_a_scan(
        gains in prop::collection::vec(0.0..3.0f64, 1..40), from in 0usize..40, room in 0u32..45,
    ) {
        let mut sum = 1.0;
        let worth: Vec<f64> = gains.iter().map(|gain| { sum += gain; sum }).collect();
        let ladder = Ladder::new(GpuType(0), 1, worth.iter().copied().map(Some)).expect("speeds");
        let from = from % worth.len();
        let slope = |to: usize| (worth[to] - worth[from]) / (to - from) as f64;
        let within = (from + 1..worth.len()).take(room as usize).filter(|to| slope(*to) > 0.0);
        let best = within.fold(None, |best: Option<usize>, to| match best {
            Some(other) if slope(other) >= slope(to) => best,
            _ => Some(to),
        });
        prop_assert_eq!(ladder.next(from as u32 + 1, room), best.map(|to| to as u32 + 1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// A price that is worked out where it is asked for is that of a ladder made anew with it, and so are the steps.
    #[test]
    fn a_charged_ladder_is_one_whose_sizes_are_all_worth_less_but_one(
        falls in prop::collection::vec(0.5..0.99f64, 1..30),
        held in 0u32..32,
        (left, seconds) in (1.0..1e4f64, 0.1..100.0f64),
        from in 0u32..32,
        room in 0u32..40,
    ) {
        let (mut sum, mut gain) = (1.0, 1.0);
        let worth: Vec<f64> = falls.iter().map(|fall| { gain *= fall; sum += gain; sum }).collect();
        let sizes = worth.iter().copied().map(Some);
        let ladder = Ladder::new(GpuType(0), 2, sizes).expect("speeds");
        let charged = ladder.charged(Charge { held, left, seconds });
        let price = |(gpus, rate): (u32, &f64)| match gpus == held {
            true => Some(*rate),
            false => Some(left / (left / rate + seconds)),
        };
        let anew = Ladder::new(GpuType(0), 2, (2..).zip(&worth).map(price)).expect("speeds");
        for gpus in 0..34 {
            prop_assert_eq!(charged.at(gpus), anew.at(gpus), "{} GPUs", gpus);
        }
        let from = from.min(worth.len() as u32 + 1);
        prop_assert_eq!(charged.next(from, room), anew.next(from, room));
    }
}

proptest! {
    /// Where all begin with one GPU and none is twice as fast on two, a job that has nothing comes before all that have
    /// something: what `Contest::serve_all` rests on.
    #[test]
    fn a_job_that_has_nothing_comes_first_where_none_doubles(
        jobs in prop::collection::vec((1.0..100.0f64, 0.1..5.0f64, 0.1..0.999f64), 1..20),
    ) {
        let rate = |job: usize, size: u32| {
            let (_, first, fall) = jobs[job];
            (0..size).map(|step| first * fall.powi(step as i32)).sum::<f64>()
        };
        let stand = |job: usize, size: u32| {
            Some(NextStep::new((rate(job, size), rate(job, size + 1)), 1, jobs[job].0))
        };
        let mut sizes = vec![0; jobs.len()];
        let mut tree =
            Knockout::new((0..jobs.len()).map(|job| stand(job, 0)).collect(), second_wins);
        for _ in 0..3 * jobs.len() {
            let winner = tree.winner().expect("no player leaves");
            prop_assert!(sizes[winner] == 0 || !sizes.contains(&0), "{winner} of {sizes:?}");
            sizes[winner] += 1;
            tree.set_winner(stand(winner, sizes[winner]), second_wins);
        }
    }
}

#[test]
fn a_dip_is_passed_where_what_lies_behind_pays() {
    let sizes = [Some(1.0), Some(0.9), Some(3.4), None, Some(3.0)];
    let ladder = Ladder::new(GpuType(0), 1, sizes.into_iter()).expect("speeds");
    assert_eq!((ladder.next(0, 9), ladder.next(1, 9), ladder.next(3, 9)), (Some(1), Some(3), None));
    assert_eq!((ladder.next(1, 1), ladder.next_one(1, 9)), (None, None));
    assert_eq!(ladder.at(5), 3.4);
    let late = [None, Some(f64::NAN), Some(2.0)];
    let late = Ladder::new(GpuType(0), 1, late.into_iter()).expect("a speed");
    assert_eq!((late.least(), late.next(0, 2), late.next(0, 3)), (3, None, Some(3)));
    assert_eq!(Ladder::new(GpuType(0), 1, [None, None].into_iter()), None);
}
