//! How fast a job went, at moments of its life: few points, evenly thinned, and none of them on disk.

use trainyard_api::answer::PacePoint;

/// Points that are kept at most.
const POINTS_MAX: usize = 128;
/// Between two points at least, in seconds, as long as there are few.
const EVERY_FIRST: f64 = 1.0;

/// How fast a job went.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    points: Vec<PacePoint>,
    every: f64,
    last: Option<(f64, f64)>,
}

impl Pace {
    /// Takes note of what a job said about itself. One that tells its steps but not its rate has the rate of the
    /// steps since it last told them.
    pub fn take(&mut self, at: f64, done: Option<f64>, rate: Option<f64>, loss: Option<f64>) {
        let since = self.last.zip(done).filter(|((then, _), _)| at > *then);
        let steps = since.map(|((then, before), now)| ((now - before) / (at - then)).max(0.0));
        if let Some(done) = done {
            self.last = Some((at, done));
        }
        let Some(rate) = rate.or(steps).filter(|rate| rate.is_finite()) else { return };
        let every = self.every.max(EVERY_FIRST);
        if self.points.last().is_some_and(|last| at - last.at < every) {
            return;
        }
        let loss = loss.filter(|loss| loss.is_finite());
        self.points.push(PacePoint { at, rate, loss });
        if self.points.len() > POINTS_MAX {
            // Every other one stays, and the next come half as often: the whole life of a job stays in sight.
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.every = every * 2.0;
        }
    }

    /// The points, the earlier first.
    pub fn points(&self) -> &[PacePoint] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_life_is_thinned_and_stays_in_order() {
        let mut pace = Pace::default();
        for second in 0..10_000 {
            pace.take(f64::from(second), None, Some(f64::from(second % 7)), None);
        }
        let points = pace.points();
        assert!((POINTS_MAX / 2..=POINTS_MAX).contains(&points.len()), "{}", points.len());
        assert!(points.windows(2).all(|pair| pair[0].at < pair[1].at));
        assert!(points[0].at < 200.0 && points[points.len() - 1].at > 9_000.0);
    }

    #[test]
    fn steps_without_a_rate_give_one() {
        let mut pace = Pace::default();
        pace.take(10.0, Some(100.0), None, None);
        pace.take(14.0, Some(120.0), None, None);
        assert_eq!(pace.points(), [PacePoint { at: 14.0, rate: 5.0, loss: None }]);
        pace.take(20.0, None, Some(7.0), None);
        assert_eq!(pace.points()[1].rate, 7.0);
    }

    #[test]
    fn a_loss_is_kept_beside_the_rate_unless_it_is_no_number() {
        let mut pace = Pace::default();
        for (at, loss) in [(1.0, Some(4.5)), (3.0, Some(f64::NAN)), (5.0, None)] {
            pace.take(at, None, Some(1.0), loss);
        }
        let losses: Vec<Option<f64>> = pace.points().iter().map(|point| point.loss).collect();
        assert_eq!(losses, [Some(4.5), None, None]);
    }
}
