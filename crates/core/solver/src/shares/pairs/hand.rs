//! What each job of a group gets of the group's choices.
//!
//! By rule every job gets the same mix, as much of it as its part asks for. Jobs that would need more time than there
//! is for that, those with the largest parts, first get one whole unit of time in the slowest choices that are just
//! fast enough, taken side by side from the choices in order of speed (as Gonzalez and Sahni, 1978, schedule jobs on
//! machines of different speed). That fails only if the fastest unit of time is too slow for the job, and then it was
//! wrong to count it together with the others.

use super::price::Menu;
use super::{Amount, Group, PairJob};

/// A job may be dealt this much more time than there is; it is scaled down by that much.
const OVER: f64 = 1e-9;

/// A choice of a group: its number, the group's rate in it, and the time of all its jobs in it.
#[derive(Copy, Clone)]
struct Mode {
    choice: usize,
    rate: f64,
    time: f64,
}

/// For each choice of a group, which part of its time each job gets, in the order of the group.
pub(super) struct Hand {
    parts: Vec<(usize, Vec<f64>)>,
}

impl Hand {
    /// The parts of a choice.
    pub fn of(&self, choice: usize) -> &[f64] {
        let found = self.parts.binary_search_by_key(&choice, |(number, _)| *number);
        found.map_or(&[], |at| &self.parts[at].1)
    }
}

/// Deals to one group, or says after how many of its jobs it must be split.
pub(super) fn dealt(
    number: usize,
    (menu, groups): (&Menu, &[Group]),
    amounts: &[Amount],
    (jobs, level): (&[PairJob], f64),
) -> Result<Hand, usize> {
    let group = &groups[number];
    let mut pool = modes(number, menu, amounts);
    let mut parts: Vec<(usize, Vec<f64>)> =
        pool.iter().map(|mode| (mode.choice, vec![0.0; group.jobs.len()])).collect();
    parts.sort_by_key(|(choice, _)| *choice);
    let whole: Vec<Mode> = pool.clone();
    let mut give = |job: usize, mode: usize, time: f64| {
        let place = parts.binary_search_by_key(&whole[mode].choice, |(choice, _)| *choice);
        if let Ok(place) = place {
            parts[place].1[job] += time / whole[mode].time;
        }
    };
    let mut sum = group.sum;
    for (place, &job) in group.jobs.iter().enumerate() {
        let part = jobs[job].part;
        let time: f64 = pool.iter().map(|mode| mode.time).sum();
        if part / sum * time <= 1.0 + OVER {
            for (later, &job) in group.jobs.iter().enumerate().skip(place) {
                let share = jobs[job].part / sum;
                pool.iter().enumerate().for_each(|(at, mode)| give(later, at, mode.time * share));
            }
            break;
        }
        let Some(start) = window(&pool, part * level) else { return Err(place + 1) };
        let mut at = 0.0;
        for (number, mode) in pool.iter_mut().enumerate() {
            let taken = ((at + mode.time).min(start + 1.0) - at.max(start)).max(0.0);
            at += mode.time;
            mode.time -= taken;
            give(place, number, taken);
        }
        sum -= part;
    }
    let opposite = |(choice, parts): &(usize, Vec<f64>)| {
        // In a circle no job may be opposite to itself.
        let among = amounts[*choice].0.second == Some(amounts[*choice].0.first);
        among.then(|| parts.iter().position(|part| *part > 0.5 + OVER)).flatten()
    };
    match parts.iter().filter_map(opposite).next() {
        Some(place) => Err(if place + 1 < group.jobs.len() { place + 1 } else { place }),
        None => Ok(Hand { parts }),
    }
}

/// Every job gets the same mix, whatever time that takes.
pub(super) fn plain(number: usize, menu: &Menu, groups: &[Group], amounts: &[Amount]) -> Hand {
    let mut parts: Vec<(usize, Vec<f64>)> = modes(number, menu, amounts)
        .iter()
        .map(|mode| (mode.choice, groups[number].shares.clone()))
        .collect();
    parts.sort_by_key(|(choice, _)| *choice);
    Hand { parts }
}

/// The choices of a group, slow to fast.
fn modes(number: usize, menu: &Menu, amounts: &[Amount]) -> Vec<Mode> {
    let mut modes = Vec::new();
    for (choice, (of, amount)) in amounts.iter().enumerate() {
        let dish = menu.dish(of);
        match of.second {
            Some(second) if second == of.first && second == number => {
                modes.push(Mode { choice, rate: dish.first.1, time: 2.0 * amount });
            }
            _ if of.first == number => {
                modes.push(Mode { choice, rate: dish.first.1, time: *amount });
            }
            Some(second) if second == number => {
                let rate = dish.second.map_or(0.0, |(_, rate)| rate);
                modes.push(Mode { choice, rate, time: *amount });
            }
            _ => {}
        }
    }
    modes.sort_by(|a, b| a.rate.total_cmp(&b.rate).then(a.choice.cmp(&b.choice)));
    modes
}

/// Where a unit of time begins that gives a rate, with the slowest first; `None` if even the fastest gives less.
fn window(pool: &[Mode], rate: f64) -> Option<f64> {
    let gained = |start: f64| -> f64 {
        let mut at = 0.0_f64;
        let mut sum = 0.0;
        for mode in pool {
            sum += mode.rate * ((at + mode.time).min(start + 1.0) - at.max(start)).max(0.0);
            at += mode.time;
        }
        sum
    };
    let time: f64 = pool.iter().map(|mode| mode.time).sum();
    let (mut low, mut high) = (0.0, (time - 1.0).max(0.0));
    if gained(high) < rate * (1.0 - OVER) {
        return None;
    }
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if gained(middle) < rate { low = middle } else { high = middle }
    }
    Some(high)
}
