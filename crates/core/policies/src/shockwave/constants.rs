//! The two constants of the program: what the longest time left costs, and how much lateness weighs.
//!
//! The authors set both by hand for each cluster. Here the first is free of scale: the time in which the cluster could
//! at best do all that is left is worth the same number of logarithms in every plan, whatever the jobs, the GPUs and
//! the window. The second is tried: of some powers, the one whose plan leaves the least lateness, among those whose
//! plan does not make the whole take noticeably longer.

use serde::{Deserialize, Serialize};

/// A number, or the wish that it be chosen.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Constant {
    /// As given.
    Given(f64),
    /// Chosen.
    Chosen(Word),
}

/// The word that stands for a choice.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// Chosen for each plan.
    Auto,
}

impl Constant {
    /// Chosen for each plan.
    pub const AUTO: Constant = Constant::Chosen(Word::Auto);

    /// The number, if it was given.
    pub fn given(self) -> Option<f64> {
        match self {
            Constant::Given(value) => Some(value),
            Constant::Chosen(Word::Auto) => None,
        }
    }
}

/// What the time to do all that is left is worth, in logarithms of the progress of every job: less than the step from
/// nothing to a fifth of a job (12), more than all the rest of the way (1.6).
const DRAIN_WORTH: f64 = 3.0;
/// Powers of lateness that are tried, the mildest first.
const POWERS: [f64; 3] = [4.0, 8.0, 16.0];
/// A plan may make the whole take longer than the fastest of those tried by this part. Small, for every plan may.
const SLOWER_MAX: f64 = 0.005;

/// What the authors set by hand, by GPUs of the cluster (`configurations` of their repository).
const AUTHORS: [(u32, f64, f64); 4] =
    [(32, 1e-3, 12.0), (64, 10.0, 5.0), (128, 1e-3, 15.0), (256, 1e5, 5.0)];

/// The authors' constants k and lambda for the cluster nearest in size.
pub fn of_authors(gpus: u32) -> (f64, f64) {
    let nearest = AUTHORS.iter().min_by_key(|(size, _, _)| size.abs_diff(gpus));
    nearest.map_or((1e-3, 12.0), |(_, k, lambda)| (*k, *lambda))
}

/// What a second of the longest time left costs, where all that is left takes so many seconds at best.
pub fn cost_of_second(drain: f64, window: u32) -> f64 {
    DRAIN_WORTH / (drain.max(1.0) * f64::from(window.max(1)))
}

/// The powers of lateness to try.
pub fn powers(given: Option<f64>) -> Vec<f64> {
    given.map_or(POWERS.to_vec(), |power| vec![power])
}

/// What a plan is believed to lead to.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Prospect {
    /// Seconds in which the cluster could at best do what the window leaves.
    pub drain: f64,
    /// Lateness of all jobs together at the end of the window.
    pub late: f64,
}

/// The best of several prospects, by index: the least late of those that are not noticeably slower than the fastest.
pub fn best(prospects: &[Prospect], elapsed: f64) -> Option<usize> {
    let fastest = prospects.iter().map(|one| one.drain).fold(f64::INFINITY, f64::min);
    let allowed = (fastest + elapsed) * (1.0 + SLOWER_MAX);
    let fast = (0..prospects.len()).filter(|at| prospects[*at].drain + elapsed <= allowed);
    fast.min_by(|a, b| prospects[*a].late.total_cmp(&prospects[*b].late).then(a.cmp(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_late_of_the_fast_plans_is_chosen() {
        let prospects = [(1000.0, 3.0), (1004.0, 2.0), (1100.0, 0.0), (1000.0, 2.0)]
            .map(|(drain, late)| Prospect { drain, late });
        assert_eq!(best(&prospects, 0.0), Some(1));
        // Behind a long window the same seconds are a smaller part.
        assert_eq!(best(&prospects, 20_000.0), Some(2));
        assert_eq!(best(&[], 0.0), None);
    }

    #[test]
    fn the_constants_of_the_authors_go_by_the_size_of_the_cluster() {
        assert_eq!(of_authors(32), (1e-3, 12.0));
        assert_eq!(of_authors(60), (10.0, 5.0));
        assert_eq!(of_authors(4000), (1e5, 5.0));
    }
}
