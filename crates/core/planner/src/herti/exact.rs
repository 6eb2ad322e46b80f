//! The exact mapping of a chain, and a greedy one.

use super::{Chip, Mapping};
use crate::PlanError;

/// A mapping of the first segments.
#[derive(Clone)]
struct Label {
    seconds: f64,
    joules: f64,
    way: usize,
    /// The label before, by segment and index.
    before: usize,
}

/// The mapping with the least energy that keeps the deadline; nothing where none does.
///
/// Labels of a segment that end on the same device and are better in neither time nor energy go, so what is left is
/// exact. O(segments x labels x ways).
pub fn exact(chip: &Chip, deadline: f64) -> Result<Option<Mapping>, PlanError> {
    chip.check()?;
    let mut stages: Vec<Vec<Label>> = Vec::with_capacity(chip.segments.len());
    for segment in 0..chip.segments.len() {
        let mut labels: Vec<Label> = Vec::new();
        for way in 0..chip.ways.len() {
            let mut add = |before: usize, own: (f64, f64), old: (f64, f64)| {
                let (seconds, joules) = (old.0 + own.0, old.1 + own.1);
                if seconds <= deadline {
                    labels.push(Label { seconds, joules, way, before });
                }
            };
            match segment {
                0 => add(0, chip.step(0, None, way), (0.0, 0.0)),
                _ => stages[segment - 1].iter().enumerate().for_each(|(at, label)| {
                    let own = chip.step(segment, Some(label.way), way);
                    add(at, own, (label.seconds, label.joules));
                }),
            }
        }
        stages.push(undominated(chip, labels));
    }
    let last = stages.last().expect("there is a segment");
    let best = last.iter().min_by(|a, b| {
        a.joules.total_cmp(&b.joules).then(a.seconds.total_cmp(&b.seconds)).then(a.way.cmp(&b.way))
    });
    let Some(best) = best else { return Ok(None) };
    let mut ways = vec![best.way; stages.len()];
    let mut before = best.before;
    for segment in (0..stages.len() - 1).rev() {
        let label = &stages[segment][before];
        ways[segment] = label.way;
        before = label.before;
    }
    Ok(Some(chip.cost(ways)))
}

/// Of labels that end on one device, those that no other beats in both.
fn undominated(chip: &Chip, mut labels: Vec<Label>) -> Vec<Label> {
    let device = |label: &Label| chip.ways[label.way].device;
    labels.sort_by(|a, b| {
        (device(a).cmp(&device(b)))
            .then(a.seconds.total_cmp(&b.seconds))
            .then(a.joules.total_cmp(&b.joules))
            .then(a.way.cmp(&b.way))
    });
    let mut kept: Vec<Label> = Vec::new();
    for label in labels {
        let is_beaten = kept
            .last()
            .is_some_and(|last| device(last) == device(&label) && last.joules <= label.joules);
        if !is_beaten {
            kept.push(label);
        }
    }
    kept
}

/// The one device and clock rate for all with the least energy before the deadline; nothing where none keeps it.
pub fn greedy(chip: &Chip, deadline: f64) -> Option<Mapping> {
    let all = (0..chip.ways.len()).map(|way| chip.cost(vec![way; chip.segments.len()]));
    let kept = all.filter(|one| one.seconds <= deadline);
    kept.min_by(|a, b| a.joules.total_cmp(&b.joules))
}
