//! The index as SymbioticLab/Tiresias computes it, to meet its runs.

use super::Past;

/// 1e6 P / E, one quantum ahead: the chance P to end within it over the service E that all receive.
///
/// It charges whole service instead of what is still to come, and rounds to few decimals.
pub(super) fn index(past: &Past<'_>, from: usize) -> i64 {
    let (samples, count) = (past.samples, past.samples.len());
    let limit = samples[from] + past.quantum;
    let from = samples.partition_point(|other| *other < samples[from]);
    let to = match limit > samples[count - 1] {
        true => count - 1,
        false => samples.partition_point(|other| *other < limit),
    };
    let received =
        past.sums[to] - past.sums[from] + u128::from(past.quantum.0) * (count - to) as u128;
    let alive = (count - from) as u128;
    let chance = rounded((to - from) as f64 / alive as f64, 5);
    let expected = (received / 1_000_000 / alive).max(1) as f64;
    (rounded(chance * 1e6 / expected, 4) * 1e4).round() as i64
}

/// To so many decimals, as exact decimal arithmetic would round.
fn rounded(value: f64, decimals: usize) -> f64 {
    format!("{value:.decimals$}").parse().expect("a printed number reads back")
}
