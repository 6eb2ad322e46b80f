//! How far past estimates were off, and the interval that follows for a new one.
//!
//! An estimate is a length of time from the moment it was made: until a job starts, or until it ends. What matters is
//! the factor by which it was off, so that its logarithm is kept. The interval of a new estimate is between two
//! quantiles of the factors of past estimates that are like it, as in split conformal prediction: if the next one is
//! as likely to be off by any of the past factors, it lies within as often as is asked for, whatever their law is.
//!
//! Two things stand in the way of that, and are met so:
//! - Estimates that have not come true yet are the longer ones. They are off by at least what has gone by, and count
//!   as such (Kaplan and Meier, 1958).
//! - A queue changes, and the past is not quite like the present. Each side of the intervals is stretched a little
//!   whenever something falls out of it, and shrunk when it does not, so that in the long run as many fall out as
//!   should (after Gibbs and Candes, "Adaptive Conformal Inference Under Distribution Shift", 2021).

use crate::sizes::Grounds;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use trainyard_types::Time;

/// Factors that are kept for each class and horizon.
const KEPT_MAX: usize = 800;
/// Fewer past estimates than so many do not make an interval.
const FEWEST: usize = 20;
/// Beside them stand so many that were off by the law below, so that a few do not say too much.
const BESIDE: usize = 8;
/// Until then estimates are taken to be off by this, as the standard deviation of the logarithm.
const PRIOR: f64 = 1.2;
/// The same for the end of a job that runs and reports its steps: only its pace may change.
const PRIOR_REPORTED: f64 = 0.25;
/// As many of a job's own estimates as that stand against.
const PRIOR_COUNTS: f64 = 4.0;
/// Seconds that are added to both lengths, so that those near nothing do not count as far off.
const GRACE: f64 = 1.0;
/// By how much a side is stretched or shrunk, as a logarithm, and how far at most.
const STRETCH_STEP: f64 = 0.06;
const STRETCH_RANGE: (f64, f64) = (0.5, 6.0);
/// The spread that a stretched side has at least for each unit of stretch, where past factors had none.
const STRETCH_LEAST: f64 = 0.15;
/// The confidence at which it is watched how many fall out.
pub const WATCHED: f64 = 0.8;
/// Horizons end at these seconds.
const HORIZONS: [f64; 8] =
    [60.0, 600.0, 3600.0, 6.0 * HOUR, 24.0 * HOUR, 72.0 * HOUR, 240.0 * HOUR, f64::INFINITY];
const HOUR: f64 = 3600.0;

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

impl Class {
    /// How far such estimates are taken to be off while there is no past.
    fn prior(self) -> f64 {
        if self.is_reported() { PRIOR_REPORTED } else { PRIOR }
    }

    /// Whether it is the end of a job that runs and reports its steps.
    fn is_reported(self) -> bool {
        (self.what, self.grounds) == (What::EndOfRunning, Grounds::Reported)
    }
}

/// The factors of past estimates, the newest ones of each class and horizon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Spread {
    /// When an estimate was made, and the logarithm of the factor by which it was off.
    logs: BTreeMap<(Class, u8), VecDeque<(Time, f32)>>,
    stretch: BTreeMap<Class, Stretch>,
}

/// By how much the two sides of an interval are stretched.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Stretch {
    low: f64,
    high: f64,
}

/// As it is written down, for JSON has no keys but texts.
#[derive(Serialize, Deserialize)]
struct Written {
    logs: Vec<Row>,
    stretch: Vec<(Class, Stretch)>,
}

/// A class, a horizon and the factors there.
type Row = (Class, u8, Vec<(Time, f32)>);

impl From<Written> for Spread {
    fn from(written: Written) -> Spread {
        let logs = written.logs.into_iter();
        let logs = logs.map(|(class, horizon, logs)| ((class, horizon), logs.into()));
        Spread { logs: logs.collect(), stretch: written.stretch.into_iter().collect() }
    }
}

impl From<Spread> for Written {
    fn from(spread: Spread) -> Written {
        let logs = spread.logs.into_iter();
        let logs = logs.map(|((class, horizon), logs)| (class, horizon, logs.into()));
        Written { logs: logs.collect(), stretch: spread.stretch.into_iter().collect() }
    }
}

/// An estimate that has not come true yet.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Waiting {
    /// Of which kind.
    pub class: Class,
    /// When it was made.
    pub made: Time,
    /// What was expected, in seconds from then.
    pub expected: f64,
    /// What has gone by.
    pub gone: f64,
}

/// How steadily a job has come nearer to the end that was expected of it: how many of its estimates wait, and the sum of
/// the squares of the logarithms by which they are off if the present one is right.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Steadiness {
    estimates: f64,
    squares: f64,
}

impl Steadiness {
    /// Takes in an estimate: seconds as they were expected, and as they would be now.
    pub fn note(&mut self, expected: f64, by_now: f64) {
        let log = log_factor(expected, by_now);
        self.estimates += 1.0;
        self.squares += log * log;
    }

    /// The part that is left of a standard deviation, which counts as much as so many estimates; never more than all.
    fn part_of(self, prior: f64) -> f64 {
        let known = PRIOR_COUNTS * prior * prior;
        libm::sqrt((known + self.squares) / ((PRIOR_COUNTS + self.estimates) * prior * prior))
            .min(1.0)
    }
}

/// Where something fell, of an interval that was given for it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fell {
    /// Before it.
    Before,
    /// Within.
    Within,
    /// After it.
    After,
}

impl Spread {
    /// Learns how far an estimate was off: when it was made, seconds as expected and as they were.
    pub fn learn(&mut self, class: Class, made: Time, expected: f64, real: f64) {
        let logs = self.logs.entry((class, horizon(expected))).or_default();
        logs.push_back((made, log_factor(expected, real) as f32));
        if logs.len() > KEPT_MAX {
            logs.pop_front();
        }
    }

    /// Learns where something fell, of the interval that was given for it at the watched confidence.
    pub fn watch(&mut self, class: Class, fell: Fell) {
        let stretch = self.stretch.entry(class).or_insert(Stretch { low: 1.0, high: 1.0 });
        let tail = (1.0 - WATCHED) / 2.0;
        let turn = |side: f64, out: bool| {
            let step = STRETCH_STEP * (f64::from(u8::from(out)) - tail);
            (side * libm::exp(step)).clamp(STRETCH_RANGE.0, STRETCH_RANGE.1)
        };
        stretch.low = turn(stretch.low, fell == Fell::Before);
        stretch.high = turn(stretch.high, fell == Fell::After);
    }

    /// How many past estimates are kept.
    pub fn len(&self) -> usize {
        self.logs.values().map(VecDeque::len).sum()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Intervals that are right so much of the time.
    pub fn intervals(&self, confidence: f64, waiting: &[Waiting]) -> Intervals {
        let mut logs: BTreeMap<(Class, u8), Vec<(f32, bool)>> = BTreeMap::new();
        let mut wide: BTreeMap<Class, Vec<(f32, bool)>> = BTreeMap::new();
        let oldest = |key: &(Class, u8)| self.logs.get(key)?.iter().map(|(made, _)| *made).min();
        let known =
            self.logs.iter().flat_map(|(key, logs)| logs.iter().map(|log| (*key, (log.1, true))));
        let waiting = waiting.iter().filter_map(|one| {
            let key = (one.class, horizon(one.expected));
            // What is older than all that is remembered would count too much.
            let counts = oldest(&key).is_none_or(|oldest| one.made >= oldest);
            counts.then(|| (key, (log_factor(one.expected, one.gone) as f32, false)))
        });
        for ((class, horizon), log) in known.chain(waiting) {
            logs.entry((class, horizon)).or_default().push(log);
            wide.entry(class).or_default().push(log);
        }
        let quantile = normal_quantile(0.5 + confidence.clamp(0.0, 0.999_999) / 2.0);
        let of = |class: Class, logs| {
            let stretch = self.stretch.get(&class).copied();
            stretched(bounds(logs, confidence, (class.prior(), quantile)), stretch)
        };
        let narrow = logs.into_iter().map(|(key, logs)| (key, of(key.0, logs)));
        let narrow = narrow.collect();
        let wide = wide.into_iter().map(|(class, logs)| (class, of(class, logs)));
        Intervals { narrow, wide: wide.collect(), quantile }
    }
}

/// Intervals for one confidence, to be asked often.
#[derive(Clone, Debug)]
pub struct Intervals {
    narrow: BTreeMap<(Class, u8), Bounds>,
    wide: BTreeMap<Class, Bounds>,
    /// The quantile of the normal law for the confidence.
    quantile: f64,
}

/// Quantiles of logarithms, and of how many that are settled.
#[derive(Copy, Clone, Debug, PartialEq)]
struct Bounds {
    low: f64,
    middle: f64,
    high: f64,
    count: usize,
}

impl Intervals {
    /// The interval around an estimate in seconds, and how many past estimates it rests on; 0 if on none.
    pub fn around(&self, class: Class, seconds: f64) -> (f64, f64, usize) {
        let (interval, _, count) = self.with_middle(class, seconds);
        (interval.0, interval.1, count)
    }

    /// The same with the best guess: the estimate times the median of the factors by which past ones were off.
    pub fn with_middle(&self, class: Class, seconds: f64) -> ((f64, f64), f64, usize) {
        self.of_steady(class, seconds, Steadiness::default())
    }

    /// The same of a job with estimates before: where there are none of others to go by, its own make the interval
    /// narrower the longer they agree.
    pub fn of_steady(
        &self,
        class: Class,
        seconds: f64,
        steady: Steadiness,
    ) -> ((f64, f64), f64, usize) {
        let enough = |bounds: &&Bounds| bounds.count >= FEWEST;
        let narrow = self.narrow.get(&(class, horizon(seconds))).filter(enough);
        let bounds = narrow.or_else(|| self.wide.get(&class).filter(enough));
        let part = if class.is_reported() { steady.part_of(class.prior()) } else { 1.0 };
        let prior = class.prior() * part * self.quantile;
        let wide = Bounds { low: -prior, middle: 0.0, high: prior, count: 0 };
        let Bounds { low, middle, high, count } = bounds.copied().unwrap_or(wide);
        let at = |log: f64| ((seconds + GRACE) * libm::exp(log) - GRACE).max(0.0);
        ((at(low), at(high)), at(middle), count)
    }
}

/// Quantiles after Kaplan and Meier of logarithms that are settled, or that are that much at least.
fn bounds(mut logs: Vec<(f32, bool)>, confidence: f64, (prior, quantile): (f64, f64)) -> Bounds {
    logs.extend((0..BESIDE).map(|index| {
        let part = (index as f64 + 0.5) / BESIDE as f64;
        let log = prior * (normal_quantile(part.max(1.0 - part)) * (part - 0.5).signum());
        (log as f32, true)
    }));
    // At the same value those that are settled come first.
    logs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    let count = logs.len();
    let tail = (1.0 - confidence.clamp(0.0, 1.0)) / 2.0;
    let spare = (count + 1) as f64 / count as f64;
    let (mut low, mut middle, mut high) = (None, None, None);
    let (mut later, mut settled) = (1.0, 0);
    for (index, (log, _)) in logs.iter().enumerate().filter(|(_, one)| one.1) {
        let log = f64::from(*log);
        later *= 1.0 - 1.0 / (count - index) as f64;
        settled += 1;
        if low.is_none() || 1.0 - later <= tail * spare {
            low = Some(log);
        }
        if middle.is_none() && later <= 0.5 {
            middle = Some(log);
        }
        if high.is_none() && 1.0 - later >= ((1.0 - tail) * spare).min(1.0) - 1e-9 {
            high = Some(log);
        }
    }
    let prior = prior * quantile;
    // So many wait that it cannot be told how late the latest are.
    let largest = logs.last().map_or(0.0, |one| f64::from(one.0));
    let high = high.unwrap_or_else(|| largest.max(prior));
    let low = low.unwrap_or(-prior).min(high);
    let middle = middle.unwrap_or((low + high) / 2.0).clamp(low, high);
    Bounds { low, middle, high, count: settled - BESIDE }
}

fn stretched(bounds: Bounds, stretch: Option<Stretch>) -> Bounds {
    let Some(Stretch { low, high }) = stretch else { return bounds };
    let side = |width: f64, by: f64| width * by + STRETCH_LEAST * (by - 1.0).max(0.0);
    Bounds {
        low: bounds.middle - side(bounds.middle - bounds.low, low),
        high: bounds.middle + side(bounds.high - bounds.middle, high),
        ..bounds
    }
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
            spread.learn(ENDS, Time::ZERO, 1e6, 1e4 * f64::from(percent));
        }
        let intervals = spread.intervals(0.8, &[]);
        let (low, high, count) = intervals.around(ENDS, 1e6);
        assert_eq!(count, 100);
        let inside =
            (1..=100).filter(|percent| (low..=high).contains(&(1e4 * f64::from(*percent))));
        // A little more than it says, for what is not known of the past counts too.
        let inside = inside.count();
        assert!((80..=90).contains(&inside), "{inside} of 100 are within {low} and {high}");
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
    fn the_end_of_a_job_that_reports_its_steps_is_known_better_from_the_beginning() {
        let class = Class { what: What::EndOfRunning, grounds: Grounds::Reported };
        let (low, high, count) = Spread::default().intervals(0.8, &[]).around(class, 540.0);
        assert_eq!(count, 0);
        assert!(low > 360.0 && high < 780.0, "{low} {high}");
    }

    #[test]
    fn a_job_that_comes_steadily_nearer_to_its_end_is_known_better_and_better() {
        let class = Class { what: What::EndOfRunning, grounds: Grounds::Reported };
        let intervals = Spread::default().intervals(0.8, &[]);
        let width = |class, steady| {
            let ((low, high), _, _) = intervals.of_steady(class, 600.0, steady);
            high - low
        };
        let (mut steady, mut restless) = (Steadiness::default(), Steadiness::default());
        let mut before = width(class, steady);
        for minute in 1..20 {
            steady.note(1800.0, 1800.0);
            restless.note(1800.0, if minute % 2 == 0 { 1800.0 } else { 3600.0 });
            let now = width(class, steady);
            assert!(now < before, "{now} after {minute} estimates, {before} before");
            before = now;
        }
        assert!(before < 0.5 * width(class, Steadiness::default()), "{before}");
        assert_eq!(width(class, restless), width(class, Steadiness::default()));
        // What was only told may be wrong however steadily the job comes nearer to it.
        assert_eq!(width(ENDS, steady), width(ENDS, Steadiness::default()));
    }

    #[test]
    fn estimates_that_were_always_right_leave_no_spread() {
        let mut spread = Spread::default();
        for _ in 0..50 {
            spread.learn(ENDS, Time::ZERO, 500.0, 500.0);
        }
        let (low, high, _) = spread.intervals(0.8, &[]).around(ENDS, 500.0);
        assert!((low - 500.0).abs() < 1e-3 && (high - 500.0).abs() < 1e-3, "{low} {high}");
    }

    #[test]
    fn what_is_late_widens_the_interval() {
        let mut spread = Spread::default();
        for _ in 0..50 {
            spread.learn(ENDS, Time::ZERO, 500.0, 500.0);
        }
        let late = Waiting { class: ENDS, made: Time::ZERO, expected: 500.0, gone: 5000.0 };
        let (_, high, count) = spread.intervals(0.8, &[late; 20]).around(ENDS, 500.0);
        assert_eq!(count, 50);
        assert!(high > 4000.0, "{high}");
        let early = Waiting { gone: 1.0, ..late };
        let (_, high, _) = spread.intervals(0.8, &[early; 20]).around(ENDS, 500.0);
        assert!((high - 500.0).abs() < 1e-3, "what was only just made says nothing: {high}");
    }

    #[test]
    fn a_side_is_stretched_until_as_many_fall_out_as_should() {
        let mut spread = Spread::default();
        for percent in 1..=100 {
            spread.learn(ENDS, Time::ZERO, 1e6, 1e4 * f64::from(percent));
        }
        // The world has changed: everything takes as long as the longest did.
        let mut late = 0;
        for _ in 0..400 {
            let (low, high, _) = spread.intervals(WATCHED, &[]).around(ENDS, 1e6);
            let fell = match 1e6 {
                real if real < low => Fell::Before,
                real if real > high => Fell::After,
                _ => Fell::Within,
            };
            late += u32::from(fell == Fell::After);
            spread.watch(ENDS, fell);
        }
        assert!(late < 80, "{late} of 400 fell out");
        let text = serde_json::to_string(&spread).expect("it has a text");
        assert_eq!(serde_json::from_str::<Spread>(&text).expect("and is read back"), spread);
    }
}
