//! What the rules come to in the long run.

use crate::share::{Share, WHOLE};

/// The part of a GPU's time, from 0 to 1, that each of several clients gets which always have work for it.
///
/// The rules of [`crate::Arbiter`] serve those first that lack most of their request, and then the one that used least of
/// all below their limits. So each gets its request, and what is left goes to the lowest until all that may have more
/// are level: each has the same level, but no less than its request and no more than its limit. Nothing is left
/// over unless all are at their limits.
///
/// ```
/// use trainyard_arbiter::{Share, long_run};
///
/// let shares = [Share { request: 500, limit: 1000 }, Share { request: 100, limit: 1000 }];
/// assert_eq!(long_run(&shares), [0.5, 0.5]);
/// let shares = [Share { request: 500, limit: 600 }, Share { request: 100, limit: 200 }];
/// assert_eq!(long_run(&shares), [0.6, 0.2]);
/// ```
pub fn long_run(shares: &[Share]) -> Vec<f64> {
    let level = level(shares);
    let at = |share: &Share| level.clamp(f64::from(share.request), f64::from(share.limit));
    shares.iter().map(|share| at(share) / f64::from(WHOLE)).collect()
}

/// The level up to which all are served, in permille.
fn level(shares: &[Share]) -> f64 {
    let at = |level: u32| -> u32 {
        shares.iter().map(|share| level.clamp(share.request, share.limit)).sum()
    };
    let mut steps: Vec<u32> = shares.iter().flat_map(|one| [one.request, one.limit]).collect();
    steps.push(0);
    steps.sort_unstable();
    let over = steps.partition_point(|step| at(*step) < WHOLE);
    let Some(next) = steps.get(over) else { return f64::from(WHOLE) };
    let Some(before) = over.checked_sub(1).map(|step| steps[step]) else { return 0.0 };
    let rising = shares.iter().filter(|one| one.request <= before && one.limit >= *next).count();
    f64::from(before) + f64::from(WHOLE - at(before)) / rising.max(1) as f64
}
