//! Q-learning of a mapping in the estimator.

use super::{Chip, Mapping};
use crate::PlanError;
use crate::draws::Draws;

/// What may be set.
#[derive(Clone, Debug, PartialEq)]
pub struct Learning {
    /// Where chance starts.
    pub seed: u64,
    /// Mappings that are tried.
    pub episodes: u32,
    /// Parts of the deadline between which the table distinguishes.
    pub slots: usize,
    /// How far a value moves to what was found.
    pub rate: f64,
    /// The chance of a draw instead of the best at first; it falls to none.
    pub explore: f64,
}

impl Default for Learning {
    fn default() -> Learning {
        Learning { seed: 1, episodes: 4000, slots: 24, rate: 0.3, explore: 0.5 }
    }
}

/// The best mapping that was tried and keeps the deadline in the estimate, and how many were tried until it was found.
///
/// A state is the segment, the device before and the part of the deadline that is gone. The reward is less energy, and a
/// mapping that is late has twice the most energy that any has. Ways that another on the same device beats in time and
/// energy are not tried: that is the reduction of the search.
pub fn learn(
    chip: &Chip,
    deadline: f64,
    settings: &Learning,
) -> Result<Option<(Mapping, u32)>, PlanError> {
    chip.check()?;
    let count = chip.segments.len();
    let open: Vec<Vec<usize>> = (0..count).map(|segment| worthwhile(chip, segment)).collect();
    let devices = 2 + chip.ways.iter().map(|way| way.device).max().unwrap_or(0);
    let most: f64 = (0..count)
        .map(|at| open[at].iter().map(|way| chip.ways[*way].joules[at]).fold(0.0, f64::max))
        .sum();
    let (slots, ways) = (settings.slots.max(1), chip.ways.len());
    // Energies are at least 0, so values that were never tried look best: each is tried once.
    let mut values = vec![0.0f64; count * devices * (slots + 1) * ways];
    let mut draws = Draws::new(settings.seed);
    let mut best: Option<(Mapping, u32)> = None;
    for episode in 0..settings.episodes {
        let explore = settings.explore * (1.0 - f64::from(episode) / f64::from(settings.episodes));
        let (mut taken, mut visited) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut seconds = 0.0;
        for (segment, choices) in open.iter().enumerate() {
            let before = taken.last().copied();
            let device = before.map_or(0, |way: usize| chip.ways[way].device + 1);
            let slot = ((seconds / deadline * slots as f64) as usize).min(slots);
            let state = ((segment * devices + device) * (slots + 1) + slot) * ways;
            let way = match draws.unit() < explore {
                true => choices[draws.below(choices.len() as u32) as usize],
                false => *(choices.iter())
                    .max_by(|a, b| {
                        values[state + **a].total_cmp(&values[state + **b]).then(b.cmp(a))
                    })
                    .expect("a segment runs somewhere"),
            };
            let (own, joules) = chip.step(segment, before, way);
            seconds += own;
            taken.push(way);
            visited.push((state, way, joules));
        }
        let mapping = chip.cost(taken);
        let is_late = mapping.seconds > deadline;
        if !is_late && best.as_ref().is_none_or(|(other, _)| mapping.joules < other.joules) {
            best = Some((mapping, episode + 1));
        }
        let mut ahead = if is_late { -2.0 * most } else { 0.0 };
        for at in (0..count).rev() {
            let (state, way, joules) = visited[at];
            let value = &mut values[state + way];
            *value += settings.rate * (ahead - joules - *value);
            // What the next state is worth now, for the step before it.
            let choices = open[at].iter().map(|one| values[state + one]);
            ahead = choices.fold(f64::NEG_INFINITY, f64::max).min(0.0);
        }
    }
    Ok(best)
}

/// Ways of a segment that no other on the same device beats in both.
fn worthwhile(chip: &Chip, segment: usize) -> Vec<usize> {
    let figures = |way: usize| (chip.ways[way].seconds[segment], chip.ways[way].joules[segment]);
    let beats = |a: usize, b: usize| {
        let ((x, y), (u, v)) = (figures(a), figures(b));
        chip.ways[a].device == chip.ways[b].device && x <= u && y <= v && (x < u || y < v || a < b)
    };
    (0..chip.ways.len())
        .filter(|way| figures(*way).0.is_finite())
        .filter(|way| !(0..chip.ways.len()).any(|other| other != *way && beats(other, *way)))
        .collect()
}
