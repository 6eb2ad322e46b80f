//! The loss by epoch: `1 / (a k + b) + c`, none of them negative.

use super::FitError;
use crate::nnls::nnls;

/// A curve of loss that was fitted.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct LossModel {
    /// The largest loss seen; the curve is of losses divided by it.
    scale: f64,
    fall: f64,
    first: f64,
    floor: f64,
}

/// When a training counts as converged.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Convergence {
    /// The loss falls by less than this part of the largest ...
    pub fall: f64,
    /// ... over so many epochs.
    pub epochs: u32,
    /// Epochs that are to come where nothing can be told.
    pub unknown: u32,
    /// The most epochs that any training takes.
    pub most: u32,
}

impl Default for Convergence {
    /// As in the authors' code.
    fn default() -> Convergence {
        Convergence { fall: 0.05, epochs: 10, unknown: 20, most: 100 }
    }
}

/// Losses are cut into so many segments, and those of a later one count four times as much.
const SEGMENTS: usize = 3;
/// The fewest losses that a fit is made from.
const LEAST: usize = 4;
/// Floors that are tried, evenly from nothing to just below the least loss.
const FLOORS: usize = 64;
/// A loss so many times above or below all of the two before and the two after it is an outlier.
const OUTLIER: f64 = 1.5;

impl LossModel {
    /// Fits the curve to losses by epoch, outliers left out.
    pub fn fit(losses: &[(u32, f64)]) -> Result<LossModel, FitError> {
        let (known, scale) = prepared(losses);
        if known.len() < LEAST {
            return Err(FitError::TooFew { seen: known.len(), needed: LEAST });
        }
        let kept = without_outliers(&known);
        best_floor_of(&kept, scale).ok_or(FitError::Nowhere { factor: f64::INFINITY })
    }

    /// The loss at an epoch.
    pub fn loss(&self, epoch: u32) -> f64 {
        self.part(epoch) * self.scale
    }

    /// The loss as a part of the largest.
    fn part(&self, epoch: u32) -> f64 {
        1.0 / (self.fall * f64::from(epoch) + self.first) + self.floor
    }

    /// The first epoch after which the loss hardly falls; nothing if that is beyond the most.
    pub fn converged_at(&self, rule: Convergence) -> Option<u32> {
        let still = |epoch: &u32| self.part(*epoch) - self.part(epoch + rule.epochs) < rule.fall;
        (0..=rule.most).find(still)
    }

    /// Epochs to come after so many, by a model or without one: never none, and never beyond the most but for one.
    pub fn epochs_left(model: Option<&LossModel>, done: u32, rule: Convergence) -> u32 {
        let end = model.and_then(|model| model.converged_at(rule));
        let end = end.unwrap_or_else(|| (done + rule.unknown).min(rule.most));
        end.saturating_sub(done).max(1)
    }
}

/// Sound losses in order of epochs, one for each, as parts of the largest; and that.
pub(super) fn prepared(losses: &[(u32, f64)]) -> (Vec<(u32, f64)>, f64) {
    let mut known: Vec<(u32, f64)> = losses.to_vec();
    known.retain(|(_, loss)| *loss > 0.0 && loss.is_finite());
    known.sort_by_key(|(epoch, _)| *epoch);
    known.dedup_by_key(|(epoch, _)| *epoch);
    let scale = known.iter().map(|(_, loss)| *loss).fold(0.0, f64::max);
    known.iter_mut().for_each(|(_, loss)| *loss /= scale);
    (known, scale)
}

/// What is left without outliers; the first and the last have no neighbour on one side and stay.
fn without_outliers(known: &[(u32, f64)]) -> Vec<(u32, f64)> {
    let is_kept = |at: usize| {
        let near = at.saturating_sub(2)..(at + 3).min(known.len());
        let others = || near.clone().filter(|other| *other != at).map(|other| known[other].1);
        let (least, most) = (others().fold(f64::INFINITY, f64::min), others().fold(0.0, f64::max));
        let is_end = at == 0 || at + 1 == known.len();
        is_end || (known[at].1 <= OUTLIER * most && known[at].1 * OUTLIER >= least)
    };
    (0..known.len()).filter(|at| is_kept(*at)).map(|at| known[at]).collect()
}

/// The best curve over all floors that are tried.
pub(super) fn best_floor_of(known: &[(u32, f64)], scale: f64) -> Option<LossModel> {
    let fits = floors(known).filter_map(|floor| with_floor(known, scale, floor));
    fits.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(model, _)| model)
}

/// The floors that are tried.
pub(super) fn floors(known: &[(u32, f64)]) -> impl Iterator<Item = f64> + use<> {
    let least = known.iter().map(|(_, loss)| *loss).fold(f64::INFINITY, f64::min);
    (0..FLOORS).map(move |step| least * 0.999 * step as f64 / FLOORS as f64)
}

/// The curve above a floor, and its weighted sum of squares: `1 / (loss - floor)` is a line.
pub(super) fn with_floor(known: &[(u32, f64)], scale: f64, floor: f64) -> Option<(LossModel, f64)> {
    let weight = |at: usize| (1 << (2 * (at * SEGMENTS / known.len()))) as f64;
    let mut rows = Vec::with_capacity(known.len());
    for (at, (epoch, loss)) in known.iter().enumerate() {
        // An error of the line by the square of the loss is the error of the loss.
        let factor = weight(at) * (loss - floor) * (loss - floor);
        rows.push((vec![f64::from(*epoch) * factor, factor], factor / (loss - floor)));
    }
    let (rows, values): (Vec<Vec<f64>>, Vec<f64>) = rows.into_iter().unzip();
    let x = nnls(&rows, &values)?;
    let model = LossModel { scale, fall: x[0], first: x[1].max(1e-9), floor };
    let off = |(at, (epoch, loss)): (usize, &(u32, f64))| {
        let off = weight(at) * (model.part(*epoch) - loss);
        off * off
    };
    let squares: f64 = known.iter().enumerate().map(off).sum();
    squares.is_finite().then_some((model, squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(epoch: u32) -> f64 {
        1.0 / (0.2 * f64::from(epoch) + 0.4) + 0.3
    }

    #[test]
    fn a_curve_is_found_from_its_first_epochs() {
        let losses: Vec<(u32, f64)> = (0..12).map(|epoch| (epoch, curve(epoch))).collect();
        let model = LossModel::fit(&losses).unwrap();
        for epoch in [0, 5, 11, 20, 40] {
            let off = (model.loss(epoch) - curve(epoch)).abs();
            assert!(off < 0.03, "{epoch}: {} {}", model.loss(epoch), curve(epoch));
        }
        let rule = Convergence::default();
        let still = |k: u32| curve(k) - curve(k + rule.epochs) < rule.fall * curve(0);
        let truth = (0..).find(|epoch| still(*epoch)).unwrap();
        let found = model.converged_at(rule).unwrap();
        assert!(found.abs_diff(truth) <= 1, "{found} {truth}");
        assert_eq!(LossModel::epochs_left(Some(&model), 3, rule), found - 3);
    }

    #[test]
    fn one_wild_loss_changes_little() {
        let mut losses: Vec<(u32, f64)> = (0..15).map(|epoch| (epoch, curve(epoch))).collect();
        losses[9].1 *= 3.0;
        let model = LossModel::fit(&losses).unwrap();
        assert!((model.loss(14) - curve(14)).abs() < 0.05, "{} {}", model.loss(14), curve(14));
    }

    #[test]
    fn without_a_curve_twenty_more_epochs_are_expected_up_to_a_hundred() {
        let few = LossModel::fit(&[(0, 1.0), (1, 0.5), (1, 0.6), (2, 0.0), (3, f64::NAN)]);
        assert_eq!(few, Err(FitError::TooFew { seen: 2, needed: 4 }));
        let rule = Convergence::default();
        let left = |done| LossModel::epochs_left(None, done, rule);
        assert_eq!([left(0), left(15), left(90), left(100), left(400)], [20, 20, 10, 1, 1]);
    }

    #[test]
    fn a_loss_that_rises_has_converged() {
        let losses: Vec<(u32, f64)> = (0..9).map(|k| (k, 1.0 + f64::from(k))).collect();
        let model = LossModel::fit(&losses).unwrap();
        assert_eq!(model.converged_at(Convergence::default()), Some(0));
    }
}
