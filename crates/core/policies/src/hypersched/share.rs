//! How GPUs that are left are divided among the trials of a search, and when a larger share pays.

use serde::{Deserialize, Serialize};

/// Which trials get what is left.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reallocate {
    /// One after another, best first, and again.
    Uniform,
    /// The best one, then the next.
    TopJob,
    /// In proportion to e^(accuracy / temperature).
    Softmax,
    /// One by one to any that can use one more, each as likely as the others.
    Random,
    /// None: every trial keeps its least.
    None,
}

/// How speed is taken to grow with GPUs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scaling {
    /// As the believed speeds say.
    Measured,
    /// With the number.
    Linear,
    /// With its square root.
    Sqrt,
    /// By half of each GPU beyond the first.
    Half,
}

impl Scaling {
    /// The speed on so many GPUs over that on one; nothing where it must be measured.
    pub fn factor(self, gpus: u32) -> Option<f64> {
        let gpus = f64::from(gpus);
        match self {
            Scaling::Measured => None,
            Scaling::Linear => Some(gpus),
            Scaling::Sqrt => Some(libm::sqrt(gpus)),
            Scaling::Half => Some(1.0 + (gpus - 1.0) / 2.0),
        }
    }
}

/// GPUs for each trial, best first: its least, and its part of what is left up to its most.
pub fn divide(
    how: Reallocate,
    trials: &[(f64, u32, u32)],
    mut left: u32,
    (temperature, draw): (f64, &mut dyn FnMut() -> u64),
) -> Vec<u32> {
    let mut given: Vec<u32> = trials.iter().map(|(_, least, _)| *least).collect();
    let room = |given: &[u32], trial: usize| trials[trial].2.saturating_sub(given[trial]);
    match how {
        Reallocate::None => {}
        Reallocate::TopJob => {
            for trial in 0..trials.len() {
                let more = room(&given, trial).min(left);
                given[trial] += more;
                left -= more;
            }
        }
        Reallocate::Uniform => loop {
            let before = left;
            for trial in 0..trials.len() {
                let more = room(&given, trial).min(left).min(1);
                given[trial] += more;
                left -= more;
            }
            if left == before {
                break;
            }
        },
        Reallocate::Random => {
            let mut open: Vec<usize> =
                (0..trials.len()).filter(|trial| room(&given, *trial) > 0).collect();
            while left > 0 && !open.is_empty() {
                let at = (draw() % open.len() as u64) as usize;
                given[open[at]] += 1;
                left -= 1;
                if room(&given, open[at]) == 0 {
                    open.remove(at);
                }
            }
        }
        Reallocate::Softmax => {
            let best = trials.first().map_or(0.0, |(accuracy, _, _)| *accuracy);
            let weight = |accuracy: f64| libm::exp((accuracy - best) / temperature);
            let sum: f64 = trials.iter().map(|(accuracy, _, _)| weight(*accuracy)).sum();
            let whole = f64::from(left);
            for (trial, (accuracy, _, _)) in trials.iter().enumerate() {
                let part = (whole * weight(*accuracy) / sum) as u32;
                let more = part.min(room(&given, trial)).min(left);
                given[trial] += more;
                left -= more;
            }
            // What rounding leaves goes to the best.
            for trial in 0..trials.len() {
                let more = room(&given, trial).min(left);
                given[trial] += more;
                left -= more;
            }
        }
    }
    given
}

/// Whether a larger share pays: what is done in the time left, less a restart, must be `margin` times what would be done.
pub fn pays((now, then): (f64, f64), time_left: f64, startup: f64, margin: f64) -> bool {
    then * (time_left - startup) > margin * now * time_left
}

/// The value below which a part of a list lies, by the nearest one; nothing for an empty list.
pub fn percentile(mut values: Vec<f64>, part: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some(values[libm::round(last as f64 * part) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIALS: [(f64, u32, u32); 3] = [(0.9, 1, 4), (0.8, 1, 8), (0.5, 1, 8)];

    /// The division with numbers that follow each other in place of random ones.
    fn divided(how: Reallocate, left: u32, temperature: f64) -> Vec<u32> {
        let mut number = 0;
        let mut draw = || {
            number += 1;
            number
        };
        divide(how, &TRIALS, left, (temperature, &mut draw))
    }

    #[test]
    fn what_is_left_goes_round_or_to_the_best_or_by_weight() {
        assert_eq!(divided(Reallocate::Uniform, 7, 1.0), [4, 3, 3]);
        assert_eq!(divided(Reallocate::Uniform, 11, 1.0), [4, 5, 5]);
        assert_eq!(divided(Reallocate::TopJob, 5, 1.0), [4, 3, 1]);
        assert_eq!(divided(Reallocate::None, 5, 1.0), [1, 1, 1]);
        // e^0, e^-1 and e^-4 at a tenth: 0.72, 0.27 and 0.01 of 10.
        assert_eq!(divided(Reallocate::Softmax, 10, 0.1), [4, 8, 1]);
        // Draws of 1, 2, 3 and so on over three trials; the first is full after three.
        assert_eq!(divided(Reallocate::Random, 5, 1.0), [2, 3, 3]);
    }

    #[test]
    fn no_way_gives_more_than_there_is_or_than_a_trial_can_use() {
        let ways =
            [Reallocate::Uniform, Reallocate::TopJob, Reallocate::Softmax, Reallocate::Random];
        for how in ways {
            for left in 0..40 {
                let given = divided(how, left, 0.3);
                let more = given.iter().sum::<u32>() - 3;
                assert_eq!(more, left.min(17), "{how:?} {left}: {given:?}");
                assert!(given.iter().zip(&TRIALS).all(|(given, trial)| *given <= trial.2));
            }
        }
    }

    #[test]
    fn a_share_pays_only_if_the_restart_is_made_up_for() {
        // Twice as fast: worth it with 100 s left and a start of 40 s, not of 46 s.
        assert!(pays((1.0, 2.0), 100.0, 44.0, 1.1));
        assert!(!pays((1.0, 2.0), 100.0, 46.0, 1.1));
    }

    #[test]
    fn a_percentile_is_the_nearest_value() {
        assert_eq!(percentile(vec![3.0, 1.0, 2.0], 0.9), Some(3.0));
        assert_eq!(percentile(vec![3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(percentile(Vec::new(), 0.5), None);
    }
}
