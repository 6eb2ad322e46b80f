//! Time of groups, dealt out to their jobs.
//!
//! What each job gets of a choice is in its group's [`Hand`]. Which job meets which is free, so each job gets few
//! partners: two groups are dealt like two decks laid side by side, a group among itself is laid in a circle where each
//! job meets the one that is opposite.

use super::hand::{self, Hand};
use super::price::Menu;
use super::{Amount, Group, PairFractions, PairJob};
use crate::Status;
use std::collections::BTreeMap;

/// The groups, those split that cannot be dealt out at a level.
pub(super) fn split(
    (menu, groups): (&Menu, &[Group]),
    amounts: &[Amount],
    (jobs, level): (&[PairJob], f64),
) -> Vec<Group> {
    let mut finer = Vec::with_capacity(groups.len());
    for (number, group) in groups.iter().enumerate() {
        let whole = group.jobs.len();
        match hand::dealt(number, (menu, groups), amounts, (jobs, level)) {
            Err(at) if at > 0 && at < whole => {
                finer.push(Group::new(&group.jobs[..at], jobs));
                finer.push(Group::new(&group.jobs[at..], jobs));
            }
            Ok(_) | Err(_) => finer.push(Group::new(&group.jobs, jobs)),
        }
    }
    finer
}

/// Fractions of single jobs, scaled to the time and the GPUs there are.
pub(super) fn out(
    (menu, groups): (&Menu, &[Group]),
    amounts: &[Amount],
    (jobs, level): (&[PairJob], f64),
) -> PairFractions {
    let hand = |number: usize| {
        let dealt = hand::dealt(number, (menu, groups), amounts, (jobs, level));
        dealt.unwrap_or_else(|_| hand::plain(number, menu, groups, amounts))
    };
    let hands: Vec<Hand> = (0..groups.len()).map(hand).collect();
    let mut alone: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    let mut together: BTreeMap<((usize, usize), usize), f64> = BTreeMap::new();
    let mut rates = vec![0.0; jobs.len()];
    let mut time = vec![0.0; jobs.len()];
    for (number, (choice, amount)) in amounts.iter().enumerate() {
        let dish = menu.dish(choice);
        let cards = |group: usize| -> Vec<(usize, f64)> {
            let parts = hands[group].of(number).iter().copied();
            groups[group].jobs.iter().copied().zip(parts).filter(|(_, part)| *part > 0.0).collect()
        };
        let first = cards(choice.first);
        let (Some(other), Some((_, rate))) = (choice.second, dish.second) else {
            for (job, part) in first {
                *alone.entry((job, dish.kind)).or_default() += amount * part;
                rates[job] += amount * part * dish.first.1;
                time[job] += amount * part;
            }
            continue;
        };
        let met = match choice.first == other {
            true => circle(&first),
            false => side_by_side(&first, &cards(other)),
        };
        for ((a, b), part) in met {
            *together.entry(((a.min(b), a.max(b)), dish.kind)).or_default() += amount * part;
            rates[a] += amount * part * dish.first.1;
            rates[b] += amount * part * rate;
            time[a] += amount * part;
            time[b] += amount * part;
        }
    }
    let fullest = fullest(menu, groups, amounts);
    let fit = 1.0 / time.iter().copied().fold(fullest.max(1.0), f64::max);
    rates.iter_mut().for_each(|rate| *rate *= fit);
    let ratio = |job: &usize| rates[*job] / jobs[*job].part;
    let level =
        groups.iter().flat_map(|group| &group.jobs).map(ratio).fold(f64::INFINITY, f64::min);
    PairFractions {
        status: Status::Proven,
        level: if level.is_finite() { level } else { 0.0 },
        alone: alone.into_iter().map(|((job, kind), part)| (job, kind, part * fit)).collect(),
        together: together.into_iter().map(|((two, kind), part)| (two, kind, part * fit)).collect(),
        rates,
        left_out: Vec::new(),
        steps: 0,
    }
}

/// How full the fullest type is.
fn fullest(menu: &Menu, groups: &[Group], amounts: &[Amount]) -> f64 {
    let mut used = vec![0.0; 2 * groups.len() + menu.kinds()];
    for (choice, amount) in amounts {
        for (row, factor) in menu.entries(groups, choice) {
            used[row] += amount * factor;
        }
    }
    used[2 * groups.len()..].iter().copied().fold(0.0, f64::max)
}

/// Which job meets which, and for what part of the whole, in a group that shares among itself.
///
/// The jobs lie in a circle, each as long as its part; half the circle meets the half opposite. No job meets itself as
/// long as no part is above a half, which `hand` ensures.
fn circle(cards: &[(usize, f64)]) -> Vec<((usize, usize), f64)> {
    let half = |from: f64| -> Vec<(usize, f64)> {
        let mut at = 0.0_f64;
        let mut found = Vec::new();
        for (job, part) in cards {
            let (start, end) = (at.max(from), (at + part).min(from + 0.5));
            if end > start {
                found.push((*job, 2.0 * (end - start)));
            }
            at += part;
        }
        found
    };
    let met = side_by_side(&half(0.0), &half(0.5));
    // Rounding may leave a sliver of one beside itself.
    met.into_iter().filter(|((a, b), _)| a != b).collect()
}

/// Lays two rows of the same length side by side and gives what touches.
fn side_by_side(first: &[(usize, f64)], second: &[(usize, f64)]) -> Vec<((usize, usize), f64)> {
    /// What is left of a card that is shorter is rounding.
    const SLIVER: f64 = 1e-12;
    let mut met = Vec::with_capacity(first.len() + second.len());
    let (mut a, mut b) = (0, 0);
    let length = |row: &[(usize, f64)], at: usize| row.get(at).map_or(0.0, |card| card.1);
    let (mut left_a, mut left_b) = (length(first, 0), length(second, 0));
    while a < first.len() && b < second.len() {
        let part = left_a.min(left_b);
        if part > 0.0 {
            met.push(((first[a].0, second[b].0), part));
        }
        (left_a, left_b) = (left_a - part, left_b - part);
        if left_a <= SLIVER {
            a += 1;
            left_a = length(first, a);
        }
        if left_b <= SLIVER {
            b += 1;
            left_b = length(second, b);
        }
    }
    met
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(met: &[((usize, usize), f64)], job: usize) -> f64 {
        met.iter().filter(|((a, b), _)| *a == job || *b == job).map(|(_, part)| part).sum()
    }

    #[test]
    fn every_job_gets_its_part_and_few_partners() {
        let even = |count: usize, from: usize| -> Vec<(usize, f64)> {
            (from..from + count).map(|job| (job, 1.0 / count as f64)).collect()
        };
        for (left, right) in [(1, 1), (1, 5), (3, 2), (4, 6), (7, 7)] {
            let (first, second) = (even(left, 0), even(right, left));
            let met = side_by_side(&first, &second);
            assert!(met.len() < left + right, "few partners: {met:?}");
            for (job, part) in first.iter().chain(&second) {
                assert!((times(&met, *job) - part).abs() < 1e-12);
            }
        }
        let uneven = vec![(0, 0.5), (1, 0.3), (2, 0.2)];
        for cards in [even(2, 0), even(3, 0), even(6, 0), even(7, 0), uneven] {
            let met = circle(&cards);
            assert!(met.len() <= cards.len() && met.iter().all(|((a, b), _)| a != b), "{met:?}");
            for (job, part) in &cards {
                assert!((times(&met, *job) - 2.0 * part).abs() < 1e-12, "{met:?}");
            }
        }
    }
}
