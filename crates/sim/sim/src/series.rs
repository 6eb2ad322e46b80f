//! Use and queue over time, in buckets that widen so that any run fits in a few thousand points.

use serde::Serialize;
use trainyard_types::{Span, Time};

/// Beyond this many points neighbours are joined.
const POINTS_MAX: usize = 2048;

/// Averages over one stretch of time.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// GPUs held by jobs.
    pub used: f64,
    /// Jobs that wait.
    pub waiting: f64,
    /// Jobs that hold GPUs.
    pub running: f64,
    /// Wholly free GPUs by the plan, while jobs wait; 0 while none does.
    pub idle: f64,
    /// Those of them on nodes with too few free GPUs for the mean waiting gang.
    pub stranded: f64,
}

/// Use and queue over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// When the first bucket begins.
    pub start: Time,
    /// The width of a bucket.
    pub every: Span,
    /// The averages.
    pub points: Vec<Point>,
    #[serde(skip)]
    now: Time,
    #[serde(skip)]
    level: Point,
    #[serde(skip)]
    sum: Point,
}

impl Series {
    /// Nothing recorded yet.
    pub fn new(start: Time) -> Series {
        Series {
            start,
            every: Span::secs(60),
            points: Vec::new(),
            now: start,
            level: Point::default(),
            sum: Point::default(),
        }
    }

    /// From `at` on, the levels are these.
    pub fn record(&mut self, at: Time, level: Point) {
        self.advance(at);
        self.level = level;
    }

    /// Ends the series.
    pub fn finish(mut self, at: Time) -> Series {
        self.advance(at);
        let part = self.now.since(self.bucket_start());
        if part.0 > 0 {
            let share = part.as_secs_f64();
            self.points.push(scaled(self.sum, 1.0 / share));
        }
        self
    }

    /// The mean of a level over the whole series.
    pub fn mean(&self, of: impl Fn(&Point) -> f64) -> f64 {
        let Some((last, whole)) = self.points.split_last() else { return 0.0 };
        let every = self.every.as_secs_f64();
        let before = self.start + self.every.times(whole.len() as u64);
        // The last bucket is as wide as what was left of the run.
        let rest = match self.now.since(before).as_secs_f64() {
            0.0 => every,
            rest => rest.min(every),
        };
        let sum = whole.iter().map(&of).sum::<f64>() * every + of(last) * rest;
        sum / (every * whole.len() as f64 + rest)
    }

    /// The number of the bucket a moment falls into.
    pub(crate) fn bucket_of(&self, at: Time) -> u64 {
        at.since(self.start).0 / self.every.0
    }

    fn bucket_start(&self) -> Time {
        self.start + self.every.times(self.points.len() as u64)
    }

    fn advance(&mut self, at: Time) {
        while self.now < at {
            let end = self.bucket_start() + self.every;
            let until = end.min(at);
            let seconds = until.since(self.now).as_secs_f64();
            self.sum = added(self.sum, scaled(self.level, seconds));
            self.now = until;
            if until == end {
                self.points.push(scaled(self.sum, 1.0 / self.every.as_secs_f64()));
                self.sum = Point::default();
                if self.points.len() == POINTS_MAX {
                    self.widen();
                }
            }
        }
    }

    fn widen(&mut self) {
        let joined = self.points.chunks(2).map(|pair| scaled(added(pair[0], pair[1]), 0.5));
        self.points = joined.collect();
        self.every = self.every.times(2);
    }
}

fn added(a: Point, b: Point) -> Point {
    Point {
        used: a.used + b.used,
        waiting: a.waiting + b.waiting,
        running: a.running + b.running,
        idle: a.idle + b.idle,
        stranded: a.stranded + b.stranded,
    }
}

fn scaled(a: Point, factor: f64) -> Point {
    Point {
        used: a.used * factor,
        waiting: a.waiting * factor,
        running: a.running * factor,
        idle: a.idle * factor,
        stranded: a.stranded * factor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_keeps_the_integral_however_often_it_widens() {
        let mut series = Series::new(Time::ZERO);
        for hour in 0..2_000u64 {
            let level = Point { used: (hour % 7) as f64, waiting: 1.0, ..Point::default() };
            series.record(Time(hour * 3_600_000_000), level);
        }
        let end = Time(2_000 * 3_600_000_000);
        let series = series.finish(end);
        assert!(series.points.len() <= POINTS_MAX);
        let whole = series.points.len() as u64 - 1;
        let last = end.since(series.start + series.every.times(whole)).as_secs_f64();
        let sum: f64 = series.points[..whole as usize].iter().map(|point| point.used).sum();
        let total = sum * series.every.as_secs_f64() + series.points[whole as usize].used * last;
        let expected: f64 = (0..2_000).map(|hour| f64::from(hour % 7) * 3600.0).sum();
        assert!((total / expected - 1.0).abs() < 1e-9, "{total} {expected}");
        let mean = series.mean(|point| point.used) * end.as_secs_f64();
        assert!((mean / expected - 1.0).abs() < 1e-9, "{mean} {expected}");
    }
}
