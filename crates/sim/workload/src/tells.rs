//! What a simulated job tells of its training as it goes on, besides how fast it is.

use trainyard_types::Work;

/// How many times a job speaks from its start to its end.
const REPORTS: u32 = 40;

/// What a job tells; nothing of what it does not know.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct TrainingSignals {
    /// The gradient noise scale at the start and at the end; it grows by the same factor in equal parts of the work.
    pub noise: Option<(f64, f64)>,
    /// Its accuracy.
    pub learning: Option<Learning>,
}

/// A learning curve: `best - gap * (reports so far)^-bend`, with noise.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Learning {
    /// The accuracy it comes near to.
    pub best: f64,
    /// How far below it is at the first report.
    pub gap: f64,
    /// How fast the gap closes.
    pub bend: f64,
}

impl TrainingSignals {
    /// The number of the last report when so much is done.
    pub fn report(done: Work, work: Work) -> u32 {
        // A hair below a report is that report: work is added up.
        let part = done.0 / work.0.max(f64::MIN_POSITIVE);
        ((part * f64::from(REPORTS) + 1e-6) as u32).min(REPORTS)
    }

    /// The work done at the next report.
    pub fn next(done: Work, work: Work) -> Option<Work> {
        let next = TrainingSignals::report(done, work) + 1;
        (next < REPORTS).then(|| Work(work.0 * f64::from(next) / f64::from(REPORTS)))
    }

    /// The gradient noise scale when so much is done.
    pub fn noise_at(&self, done: Work, work: Work) -> Option<f64> {
        let (first, last) = self.noise?;
        let part = (done.0 / work.0.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        Some(first * libm::pow(last / first, part))
    }
}

impl Learning {
    /// The accuracy at a report, from the first on.
    pub fn accuracy(&self, report: u32) -> f64 {
        self.best - self.gap * libm::pow(f64::from(report.max(1)), -self.bend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_grows_by_the_same_factor_in_equal_parts() {
        let tells = TrainingSignals { noise: Some((100.0, 1600.0)), learning: None };
        let at = |done: f64| tells.noise_at(Work(done), Work(8.0)).expect("it tells");
        assert!((at(0.0) - 100.0).abs() < 1e-9 && (at(4.0) - 400.0).abs() < 1e-9);
        assert!((at(8.0) - 1600.0).abs() < 1e-6 && (at(9.0) - 1600.0).abs() < 1e-6);
    }

    #[test]
    fn reports_come_at_equal_parts_and_each_one_once() {
        let work = Work(1000.0);
        let mut done = Work(0.0);
        let mut seen = Vec::new();
        while let Some(next) = TrainingSignals::next(done, work) {
            assert!(next.0 > done.0);
            done = next;
            seen.push(TrainingSignals::report(done, work));
        }
        assert_eq!(seen, (1..REPORTS).collect::<Vec<u32>>());
    }

    #[test]
    fn a_curve_rises_to_its_best() {
        let learning = Learning { best: 0.9, gap: 0.6, bend: 0.5 };
        assert!((learning.accuracy(1) - 0.3).abs() < 1e-12);
        assert!((learning.accuracy(4) - 0.6).abs() < 1e-12);
        assert!(learning.accuracy(1000) < 0.9);
    }
}
