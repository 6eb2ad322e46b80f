//! How far past estimates were off, and the interval that follows for a new one.
//!
//! An estimate is a length of time from the moment it was made: until a job starts, or until it ends. What matters is
//! the factor by which it was off, so that its logarithm is kept. The interval of a new estimate is between two
//! quantiles of the factors of past estimates that are like it, after the rule of split conformal prediction: of n
//! past ones the k-th smallest with k = ceil((n + 1) q). If the next one is as likely to be off by any of the past
//! factors, it lies within as often as is asked for, whatever the law of the factors is.

use crate::sizes::Grounds;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Factors that are kept for each class and horizon.
const KEPT_MAX: usize = 400;
/// Fewer past estimates than so many do not make an interval.
const FEWEST: usize = 40;
/// Until then estimates are taken to be off by this, as the standard deviation of the logarithm.
const PRIOR: f64 = 0.9;
/// Seconds that are added to both lengths, so that those near nothing do not count as far off.
const GRACE: f64 = 1.0;
/// Horizons end at these seconds.
const HORIZONS: [f64; 6] = [60.0, 600.0, 3600.0, 6.0 * 3600.0, 86_400.0, f64::INFINITY];

/// What is estimated.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The first start of a job that waits.
    Start,
    /// The end of a job that waits.
    EndOfWaiting,
    /// The end of a job that runs.
    EndOfRunning,
}

/// Estimates that are alike.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Class {
    /// What is estimated.
    pub what: What,
    /// Why the job is taken to be as long as it is.
    pub grounds: Grounds,
}

/// The factors of past estimates, the newest ones of each class and horizon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<Row>", into = "Vec<Row>")]
pub struct Spread {
    logs: BTreeMap<(Class, u8), VecDeque<f32>>,
}

/// As it is written down, for JSON has no keys but texts.
type Row = (Class, u8, Vec<f32>);

impl From<Vec<Row>> for Spread {
    fn from(rows: Vec<Row>) -> Spread {
        let logs = rows.into_iter().map(|(class, horizon, logs)| ((class, horizon), logs.into()));
        Spread { logs: logs.collect() }
    }
}

impl From<Spread> for Vec<Row> {
    fn from(spread: Spread) -> Vec<Row> {
        let rows = spread.logs.into_iter();
        rows.map(|((class, horizon), logs)| (class, horizon, logs.into())).collect()
    }
}

impl Spread {
    /// Learns how far an estimate was off: seconds as expected and as they were.
    pub fn learn(&mut self, class: Class, expected: f64, real: f64) {
        let logs = self.logs.entry((class, horizon(expected))).or_default();
        logs.push_back(log_factor(expected, real) as f32);
        if logs.len() > KEPT_MAX {
            logs.pop_front();
        }
    }

    /// How many past estimates are kept.
    pub fn len(&self) -> usize {
        self.logs.values().map(VecDeque::len).sum()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Intervals that are right so much of the time. `late` are estimates that have not come true yet and are over
    /// already, with the seconds expected and gone by: they are off by that much at least.
    pub fn intervals(&self, confidence: f64, late: &[(Class, f64, f64)]) -> Intervals {
        let mut logs: BTreeMap<(Class, u8), Vec<f32>> = BTreeMap::new();
        let mut wide: BTreeMap<Class, Vec<f32>> = BTreeMap::new();
        let known =
            self.logs.iter().flat_map(|(key, logs)| logs.iter().map(move |log| (*key, *log)));
        let late = late.iter().map(|(class, expected, gone)| {
            ((*class, horizon(*expected)), log_factor(*expected, *gone) as f32)
        });
        for ((class, horizon), log) in known.chain(late) {
            logs.entry((class, horizon)).or_default().push(log);
            wide.entry(class).or_default().push(log);
        }
        let narrow = logs.into_iter().map(|(key, logs)| (key, bounds(logs, confidence)));
        let wide = wide.into_iter().map(|(class, logs)| (class, bounds(logs, confidence)));
        let prior = PRIOR * normal_quantile(0.5 + confidence.clamp(0.0, 0.999_999) / 2.0);
        Intervals { narrow: narrow.collect(), wide: wide.collect(), prior }
    }
}

/// Intervals for one confidence, to be asked often.
#[derive(Clone, Debug)]
pub struct Intervals {
    narrow: BTreeMap<(Class, u8), Bounds>,
    wide: BTreeMap<Class, Bounds>,
    prior: f64,
}

/// Two quantiles of logarithms, and of how many.
#[derive(Copy, Clone, Debug, PartialEq)]
struct Bounds {
    low: f64,
    high: f64,
    count: usize,
}

impl Intervals {
    /// The interval around an estimate in seconds, and how many past estimates it rests on; 0 if on none.
    pub fn around(&self, class: Class, seconds: f64) -> (f64, f64, usize) {
        let enough = |bounds: &&Bounds| bounds.count >= FEWEST;
        let narrow = self.narrow.get(&(class, horizon(seconds))).filter(enough);
        let bounds = narrow.or_else(|| self.wide.get(&class).filter(enough));
        let Bounds { low, high, count } =
            bounds.copied().unwrap_or(Bounds { low: -self.prior, high: self.prior, count: 0 });
        let at = |log: f64| ((seconds + GRACE) * libm::exp(log) - GRACE).max(0.0);
        (at(low), at(high), count)
    }
}

fn bounds(mut logs: Vec<f32>, confidence: f64) -> Bounds {
    logs.sort_unstable_by(f32::total_cmp);
    let count = logs.len();
    let tail = (1.0 - confidence.clamp(0.0, 1.0)) / 2.0;
    let rank = |part: f64| (part * (count + 1) as f64) as usize;
    // Both ends by the rule of the module, counted from the outside.
    let outside = rank(tail);
    let low = logs[outside.saturating_sub(1).min(count - 1)];
    let high = logs[(count - outside.max(1)).min(count - 1)];
    Bounds { low: f64::from(low), high: f64::from(high), count }
}

/// The horizon that a length of time belongs to.
pub fn horizon(seconds: f64) -> u8 {
    HORIZONS.partition_point(|end| *end <= seconds).min(HORIZONS.len() - 1) as u8
}

fn log_factor(expected: f64, real: f64) -> f64 {
    libm::log((real.max(0.0) + GRACE) / (expected.max(0.0) + GRACE))
}

/// The quantile of the standard normal law, after the rational approximation 26.2.23 of Abramowitz and Stegun, whose
/// error is below 4.5e-4.
fn normal_quantile(part: f64) -> f64 {
    let tail = (1.0 - part).max(1e-9);
    let t = libm::sqrt(-2.0 * libm::log(tail));
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - above / below
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: Class = Class { what: What::EndOfRunning, grounds: Grounds::Told };

    #[test]
    fn an_interval_holds_as_many_as_it_says() {
        let mut spread = Spread::default();
        // Off by every factor from 0.01 to 1 alike.
        for percent in 1..=100 {
            spread.learn(ENDS, 1e6, 1e4 * f64::from(percent));
        }
        let intervals = spread.intervals(0.8, &[]);
        let (low, high, count) = intervals.around(ENDS, 1e6);
        assert_eq!(count, 100);
        assert!(
            (low / 1e5 - 1.0).abs() < 0.02 && (high / 9.1e5 - 1.0).abs() < 0.02,
            "{low} {high}"
        );
    }

    #[test]
    fn without_a_past_the_interval_is_wide_and_around_the_estimate() {
        let (low, high, count) = Spread::default().intervals(0.8, &[]).around(ENDS, 1000.0);
        assert_eq!(count, 0);
        assert!(low < 400.0 && high > 2500.0, "{low} {high}");
        let exact = Spread::default().intervals(0.0, &[]).around(ENDS, 1000.0);
        assert!((exact.0 - 1000.0).abs() < 1.0 && (exact.1 - 1000.0).abs() < 1.0, "{exact:?}");
    }

    #[test]
    fn estimates_that_were_always_right_leave_no_spread() {
        let mut spread = Spread::default();
        for _ in 0..50 {
            spread.learn(ENDS, 500.0, 500.0);
        }
        let (low, high, _) = spread.intervals(0.8, &[]).around(ENDS, 500.0);
        assert!((low - 500.0).abs() < 1e-3 && (high - 500.0).abs() < 1e-3, "{low} {high}");
    }

    #[test]
    fn what_is_late_widens_the_interval() {
        let mut spread = Spread::default();
        for _ in 0..50 {
            spread.learn(ENDS, 500.0, 500.0);
        }
        let late = vec![(ENDS, 500.0, 5000.0); 20];
        let (_, high, count) = spread.intervals(0.8, &late).around(ENDS, 500.0);
        assert_eq!(count, 70);
        assert!(high > 4000.0, "{high}");
    }
}
