//! Time of groups, dealt out to their jobs.
//!
//! All jobs of a group get the same time in each choice. Who meets whom is free, so each job gets few partners: two
//! groups are dealt like two decks laid side by side, a group among itself two by two, or in a ring if its number is
//! odd.

use super::price::Menu;
use super::{Amount, Group, PairFractions, PairJob};
use crate::Status;
use std::collections::BTreeMap;

/// Fractions of single jobs, scaled to the time and the GPUs there are.
pub(super) fn out(
    menu: &Menu,
    groups: &[Group],
    amounts: &[Amount],
    jobs: &[PairJob],
) -> PairFractions {
    let fit = fit(menu, groups, amounts);
    let mut alone: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    let mut together: BTreeMap<((usize, usize), usize), f64> = BTreeMap::new();
    let mut rates = vec![0.0; jobs.len()];
    for (choice, amount) in amounts {
        let amount = amount * fit;
        let dish = menu.dish(choice);
        let first = &groups[choice.first].jobs;
        let each = amount / first.len() as f64;
        first.iter().for_each(|job| rates[*job] += each * dish.first.1);
        let (Some(other), Some((_, rate))) = (choice.second, dish.second) else {
            first.iter().for_each(|job| *alone.entry((*job, dish.kind)).or_default() += each);
            continue;
        };
        let second = &groups[other].jobs;
        let each = amount / second.len() as f64;
        second.iter().for_each(|job| rates[*job] += each * rate);
        let met = if choice.first == other { ring(first) } else { decks(first, second) };
        for ((a, b), part) in met {
            *together.entry(((a.min(b), a.max(b)), dish.kind)).or_default() += amount * part;
        }
    }
    let ratios =
        groups.iter().flat_map(|group| &group.jobs).map(|job| rates[*job] / jobs[*job].part);
    let level = ratios.fold(f64::INFINITY, f64::min);
    PairFractions {
        status: Status::Proven,
        level: if level.is_finite() { level } else { 0.0 },
        alone: alone.into_iter().map(|((job, kind), part)| (job, kind, part)).collect(),
        together: together.into_iter().map(|((pair, kind), part)| (pair, kind, part)).collect(),
        rates,
        left_out: Vec::new(),
        steps: 0,
    }
}

/// The factor that brings amounts within the time of each group and the GPUs of each type.
fn fit(menu: &Menu, groups: &[Group], amounts: &[Amount]) -> f64 {
    let mut used = vec![0.0; 2 * groups.len() + menu.kinds()];
    for (choice, amount) in amounts {
        for (row, factor) in menu.entries(groups, choice) {
            used[row] += amount * factor;
        }
    }
    1.0 / used[groups.len()..].iter().copied().fold(1.0, f64::max)
}

/// Who meets whom, and for what part of the whole, in a group that shares among itself. A job of one whose choice is
/// this nevertheless meets nobody; pricing never makes such a choice.
fn ring(jobs: &[usize]) -> Vec<((usize, usize), f64)> {
    let count = jobs.len();
    if count.is_multiple_of(2) {
        return jobs.chunks_exact(2).map(|two| ((two[0], two[1]), 2.0 / count as f64)).collect();
    }
    let next = |at: usize| ((jobs[at], jobs[(at + 1) % count]), 1.0 / count as f64);
    (0..count).map(next).filter(|((a, b), _)| a != b).collect()
}

/// Who meets whom, and for what part of the whole, when every job of each side has the same time.
fn decks(first: &[usize], second: &[usize]) -> Vec<((usize, usize), f64)> {
    // In units of one over the product of both lengths, so that the cards end together exactly.
    let (mut a, mut b) = (0, 0);
    let (mut left_a, mut left_b) = (second.len(), first.len());
    let whole = (first.len() * second.len()) as f64;
    let mut met = Vec::with_capacity(first.len() + second.len());
    while a < first.len() && b < second.len() {
        let units = left_a.min(left_b);
        met.push(((first[a], second[b]), units as f64 / whole));
        (left_a, left_b) = (left_a - units, left_b - units);
        if left_a == 0 {
            (a, left_a) = (a + 1, second.len());
        }
        if left_b == 0 {
            (b, left_b) = (b + 1, first.len());
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
    fn every_job_of_a_group_gets_the_same_time() {
        for (left, right) in [(1, 1), (1, 5), (3, 2), (4, 6), (7, 7)] {
            let (first, second): (Vec<usize>, Vec<usize>) =
                ((0..left).collect(), (left..left + right).collect());
            let met = decks(&first, &second);
            assert!(met.len() < left + right, "few partners: {met:?}");
            first
                .iter()
                .for_each(|job| assert!((times(&met, *job) - 1.0 / left as f64).abs() < 1e-12));
            second
                .iter()
                .for_each(|job| assert!((times(&met, *job) - 1.0 / right as f64).abs() < 1e-12));
        }
        for count in 2..8 {
            let jobs: Vec<usize> = (0..count).collect();
            let met = ring(&jobs);
            jobs.iter()
                .for_each(|job| assert!((times(&met, *job) - 2.0 / count as f64).abs() < 1e-12));
        }
    }
}
