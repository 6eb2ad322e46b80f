//! Distributions and series, thinned out for drawing.

use trainyard_sim::Outcome;
use trainyard_types::Span;

/// The most points of a drawn distribution.
pub const POINTS_MAX: usize = 400;
/// The most points of a drawn series.
pub const SERIES_MAX: usize = 240;

/// What is drawn of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    /// Completion times in seconds against the part of jobs that took no longer.
    pub jct: Vec<(f64, f64)>,
    /// Times without GPUs in seconds against the part of jobs that waited no longer.
    pub queueing: Vec<(f64, f64)>,
    /// Width of a step of the two series, in seconds.
    pub every_s: f64,
    /// GPUs held, as a part of all.
    pub used: Vec<f64>,
    /// Jobs that waited.
    pub waiting: Vec<f64>,
}

impl Curves {
    /// The curves of a run whose jobs that finished took so long, with and without GPUs.
    pub(crate) fn of((jct, queueing): (Vec<Span>, Vec<Span>), outcome: &Outcome) -> Curves {
        let points = &outcome.series.points;
        let step = points.len().div_ceil(SERIES_MAX).max(1);
        let gpus = f64::from(outcome.gpus.max(1));
        let mean = |of: &dyn Fn(&trainyard_sim::Point) -> f64| -> Vec<f64> {
            let chunks = points.chunks(step);
            chunks.map(|chunk| chunk.iter().map(of).sum::<f64>() / chunk.len() as f64).collect()
        };
        Curves {
            jct: distribution(jct),
            queueing: distribution(queueing),
            every_s: outcome.series.every.as_secs_f64() * step as f64,
            used: mean(&|point| point.used / gpus),
            waiting: mean(&|point| point.waiting),
        }
    }
}

/// The empirical distribution at evenly spaced ranks, with the first and the last.
fn distribution(mut spans: Vec<Span>) -> Vec<(f64, f64)> {
    spans.sort_unstable();
    let count = spans.len();
    let points = count.min(POINTS_MAX);
    let at = |index: usize| match points {
        1 => 0,
        _ => index * (count - 1) / (points - 1),
    };
    let ranks = (0..points).map(at);
    ranks.map(|rank| (spans[rank].as_secs_f64(), (rank + 1) as f64 / count as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_distribution_keeps_its_ends_and_few_points() {
        let drawn = distribution((1..=10_000).map(Span::secs).collect());
        assert_eq!(drawn.len(), POINTS_MAX);
        assert_eq!((drawn[0].0, drawn[POINTS_MAX - 1]), (1.0, (10_000.0, 1.0)));
        assert!(distribution(Vec::new()).is_empty());
        assert_eq!(distribution(vec![Span::secs(2)]), [(2.0, 1.0)]);
    }
}
