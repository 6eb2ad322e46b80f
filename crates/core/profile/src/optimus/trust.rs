//! How far a curve of loss can be trusted, and between which epochs a training converges by it.

use super::loss::{best_floor_of, prepared, with_floor};
use super::{Convergence, FitError, LossModel};

/// A curve of loss with what speaks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct LossFit {
    /// The best curve.
    pub model: LossModel,
    /// From 0 to 1: how well the losses foretold their own last third, see [`LossFit::of`].
    pub trust: f64,
    /// Curves that explain the losses nearly as well.
    plausible: Vec<LossModel>,
}

/// Below this trust a curve is worth as much as none.
pub const TRUST_LEAST: f64 = 0.8;

/// The fewest losses of which a third can be foretold from the others.
const FORETOLD_LEAST: usize = 6;

/// A curve is plausible while its sum of squares is above the least by at most this many times the mean square: about the
/// 95 % region of one parameter.
const REGION: f64 = 4.0;

impl LossFit {
    /// Fits a curve, and asks what it is worth: a curve is fitted to the first two thirds of the losses, and its mean
    /// error on the last third, as a part of the range of all losses, is what is missing from a trust of 1. So noise costs
    /// little, while a step or a loss that rises again costs much. With fewer than six losses the error of the fit itself
    /// counts.
    pub fn of(losses: &[(u32, f64)]) -> Result<LossFit, FitError> {
        let model = LossModel::fit(losses)?;
        let (known, scale) = prepared(losses);
        // A training whose newest loss is no number has diverged, whatever came before.
        let newest = losses.iter().max_by_key(|(epoch, _)| *epoch);
        let diverged = newest.is_some_and(|(_, loss)| !loss.is_finite());
        let trust = if diverged { 0.0 } else { trust(&known, &model, scale) };
        Ok(LossFit { model, trust, plausible: plausible(&known, scale) })
    }

    /// Whether it is worth more than nothing.
    pub fn is_trusted(&self) -> bool {
        self.trust >= TRUST_LEAST
    }

    /// The first and the last epoch in which the training converges by any plausible curve; no last one where by some it
    /// does not within the most epochs.
    pub fn converged_between(&self, rule: Convergence) -> (u32, Option<u32>) {
        let all = || std::iter::once(&self.model).chain(&self.plausible);
        let ends = || all().map(|model| model.converged_at(rule));
        let first = ends().map(|end| end.unwrap_or(rule.most)).min().unwrap_or(rule.most);
        (first, ends().collect::<Option<Vec<u32>>>().and_then(|ends| ends.into_iter().max()))
    }
}

/// One less the mean error on what was not fitted, in parts of the range.
fn trust(known: &[(u32, f64)], model: &LossModel, scale: f64) -> f64 {
    let values = || known.iter().map(|(_, loss)| *loss);
    let range = values().fold(0.0, f64::max) - values().fold(f64::INFINITY, f64::min);
    if range <= 0.0 || !range.is_finite() {
        return 0.0;
    }
    let cut = known.len() * 2 / 3;
    let before = (known.len() >= FORETOLD_LEAST).then(|| best_floor_of(&known[..cut], scale));
    let (model, judged) = match &before {
        Some(Some(before)) => (before, &known[cut..]),
        Some(None) => return 0.0,
        None => (model, known),
    };
    let off = judged.iter().map(|(epoch, loss)| (model.loss(*epoch) / scale - loss).abs());
    let mean = off.sum::<f64>() / judged.len() as f64;
    (1.0 - mean / range).clamp(0.0, 1.0)
}

/// The best curve above each floor, of those within the region.
fn plausible(known: &[(u32, f64)], scale: f64) -> Vec<LossModel> {
    let fits: Vec<(LossModel, f64)> =
        super::loss::floors(known).filter_map(|floor| with_floor(known, scale, floor)).collect();
    let least = fits.iter().map(|(_, squares)| *squares).fold(f64::INFINITY, f64::min);
    let free = known.len().saturating_sub(3).max(1) as f64;
    let most = least * (1.0 + REGION / free);
    fits.into_iter().filter(|(_, squares)| *squares <= most).map(|(model, _)| model).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    fn curve(epoch: u32) -> f64 {
        1.0 / (0.2 * f64::from(epoch) + 0.4) + 0.3
    }

    /// A sequence of numbers from 0 to 1 that looks random, by Knuth's linear congruence.
    fn draws(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// The curve times 1 and a part of about normal noise, of mean 0 and deviation 1.
    fn noisy(epochs: u32, part: f64, seed: u64) -> Vec<(u32, f64)> {
        let mut draw = draws(seed);
        let mut noise = || (0..12).map(|_| draw()).sum::<f64>() - 6.0;
        (0..epochs).map(|k| (k, curve(k) * (1.0 + part * noise()))).collect()
    }

    fn truth(rule: Convergence) -> u32 {
        let still = |k: &u32| curve(*k) - curve(k + rule.epochs) < rule.fall * curve(0);
        (0..).find(still).unwrap()
    }

    #[test]
    fn noise_widens_the_interval_and_leaves_the_truth_inside() {
        let rule = Convergence::default();
        let truth = truth(rule);
        let (mut inside, mut trusted, mut width) = (0, 0, [0u32; 2]);
        for seed in 0..100 {
            for (at, part) in [0.01, 0.05].into_iter().enumerate() {
                let fit = LossFit::of(&noisy(15, part, seed)).unwrap();
                let (first, last) = fit.converged_between(rule);
                let last = last.unwrap_or(rule.most);
                width[at] += last - first;
                if at == 1 {
                    inside += u32::from((first..=last).contains(&truth));
                    trusted += u32::from(fit.is_trusted());
                }
            }
        }
        assert!(width[1] > width[0], "{width:?}");
        assert!(inside >= 80, "{inside} of 100 intervals hold the truth");
        assert!(trusted >= 95, "{trusted} of 100 noisy curves are trusted");
    }

    #[test]
    fn steps_and_losses_that_rise_again_are_not_trusted() {
        let step = |k: u32| if k < 12 { 1.0 - 0.002 * f64::from(k) } else { 0.4 };
        let rises = |k: u32| if k < 12 { curve(k) } else { curve(12) * 1.4f64.powi(k as i32 - 11) };
        let diverges = |k: u32| 1.0 + 0.2 * f64::from(k);
        let flat = |_: u32| 0.7;
        let shapes: [&dyn Fn(u32) -> f64; 4] = [&step, &rises, &diverges, &flat];
        for (number, shape) in shapes.iter().enumerate() {
            let losses: Vec<(u32, f64)> = (0..18).map(|k| (k, shape(k))).collect();
            let fit = LossFit::of(&losses).unwrap();
            assert!(!fit.is_trusted(), "shape {number}: {}", fit.trust);
        }
        let smooth: Vec<(u32, f64)> = (0..18).map(|k| (k, curve(k))).collect();
        assert!(LossFit::of(&smooth).unwrap().trust > 0.97);
    }

    #[test]
    fn with_few_losses_the_fit_itself_is_judged() {
        let few: Vec<(u32, f64)> = (0..4).map(|k| (k, curve(k))).collect();
        assert!(LossFit::of(&few).unwrap().is_trusted());
        let wild = [(0, 1.0), (1, 0.2), (2, 0.9), (3, 0.3)];
        assert!(!LossFit::of(&wild).unwrap().is_trusted());
        assert!(LossFit::of(&few[..3]).is_err());
    }
}
