//! When a job should be over by right, and how far behind it is (Shockwave, section 5.2).

/// How much the running mean counts against the newest estimate.
const MOMENTUM: f64 = 0.9;
/// A job that ends within a round is pushed with this power.
const LAST_POWER: f64 = 100.0;
/// Weights are cut here: beyond it a sum no longer shows jobs that weigh 1.
const WEIGHT_MAX: f64 = 1e9;

/// When a job would be over with an equal share of the cluster, averaged over how long each estimate held.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Target {
    sum: f64,
    weight: f64,
    newest: f64,
    since: u64,
}

impl Target {
    /// The estimate of a round; it holds until the next one.
    pub fn push(&mut self, round: u64, finish: f64) {
        let held = round.saturating_sub(self.since) as f64;
        if self.newest > 0.0 {
            (self.sum, self.weight) = (self.sum + held * self.newest, self.weight + held);
        }
        (self.newest, self.since) = (finish, round);
    }

    /// The target as it stands in a round.
    pub fn at(&self, round: u64) -> f64 {
        let held = round.saturating_sub(self.since) as f64;
        let weight = self.weight + held;
        let mean =
            if weight > 0.0 { (self.sum + held * self.newest) / weight } else { self.newest };
        MOMENTUM * mean + (1.0 - MOMENTUM) * self.newest
    }
}

/// How much the welfare of a job counts when it is late by a ratio: nothing more below 1, a power of it above.
pub fn weight(rho: f64, lambda: f64, is_last_round: bool) -> f64 {
    if rho <= 1.0 || !rho.is_finite() {
        return 1.0;
    }
    libm::pow(rho, if is_last_round { LAST_POWER } else { lambda }).clamp(1.0, WEIGHT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_counts_as_long_as_it_held() {
        let mut target = Target::default();
        target.push(0, 1000.0);
        assert_eq!(target.at(0), 1000.0);
        target.push(3, 2000.0);
        // Three rounds of 1000 and one of 2000.
        assert!((target.at(4) - (0.9 * 1250.0 + 0.1 * 2000.0)).abs() < 1e-9);
    }

    #[test]
    fn only_the_late_weigh_more_and_those_near_their_end_most() {
        assert_eq!(weight(0.9, 5.0, true), 1.0);
        assert_eq!(weight(2.0, 5.0, false), 32.0);
        assert_eq!(weight(1.1, 5.0, true), 1.1f64.powi(100).min(1e9));
        assert_eq!(weight(f64::NAN, 5.0, false), 1.0);
    }
}
