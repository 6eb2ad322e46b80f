//! How long a program leaves the GPU idle between two pieces of work.
//!
//! Training waits for a step before it begins the next. Were its turn over at each of these moments, its neighbour
//! would be the only one that waits then, and every share would come out as a half. So a turn goes on through a pause
//! that is worth waiting for, and is given back at once by a program whose pauses were long of late.

use std::sync::atomic::{AtomicU64, Ordering};

/// The longest pause that is waited for, in microseconds: a busy host needs that long at times to wake a program.
const MOST_US: u64 = 20_000;
/// A longer pause counts as one of this length: one alone, as a checkpoint makes it, changes nothing.
const COUNTED_MAX_US: u64 = 3 * MOST_US;

/// What is known of the pauses of one program.
#[derive(Debug, Default)]
pub struct Pauses {
    mean: AtomicU64,
    /// Since when the GPU is idle, if a turn was given back for that.
    idle_since: AtomicU64,
}

impl Pauses {
    /// For how long the next launch is worth waiting for.
    pub fn patience(&self) -> u64 {
        if self.mean.load(Ordering::Relaxed) > MOST_US { 0 } else { MOST_US }
    }

    /// A pause was so long: a quarter of what is believed from then on.
    pub fn ended(&self, length: u64) {
        let mean = self.mean.load(Ordering::Relaxed);
        self.mean.store((3 * mean + length.min(COUNTED_MAX_US)) / 4, Ordering::Relaxed);
    }

    /// A turn was given back, for the GPU is idle since then.
    pub fn gave_back(&self, idle_since: u64) {
        self.idle_since.store(idle_since, Ordering::Relaxed);
    }

    /// The program wants to launch again.
    pub fn asked(&self, now: u64) {
        let since = self.idle_since.swap(0, Ordering::Relaxed);
        if since > 0 {
            self.ended(now.saturating_sub(since));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pauses;

    #[test]
    fn short_pauses_are_waited_for_and_long_ones_are_not() {
        let pauses = Pauses::default();
        assert_eq!(pauses.patience(), 20_000, "nothing is known of it yet");
        for _ in 0..20 {
            pauses.ended(3_000);
        }
        assert_eq!(pauses.patience(), 20_000);
        for _ in 0..3 {
            pauses.ended(100_000);
        }
        assert_eq!(pauses.patience(), 0, "it computes on the host meanwhile");
    }

    #[test]
    fn one_long_pause_changes_nothing_and_long_ones_are_forgotten() {
        let pauses = Pauses::default();
        pauses.ended(60_000_000);
        assert!(pauses.patience() > 0, "a checkpoint");
        pauses.ended(60_000_000);
        assert_eq!(pauses.patience(), 0);
        for _ in 0..10 {
            pauses.gave_back(1_000);
            pauses.asked(6_000);
            // It has said how long its pause was: this is no other one.
            pauses.asked(900_000);
        }
        assert!(pauses.patience() > 0);
    }
}
