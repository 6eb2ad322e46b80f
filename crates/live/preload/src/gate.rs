//! What every launch passes.
//!
//! The way through is two additions and a look at the clock. The thread that shuts the gate waits until every launch
//! inside is out; then what the GPU has to do is all there is, and waiting for it drains the turn.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Work that may be on the GPU beyond what was waited for, in microseconds: what a turn can be late by.
const AHEAD_US: u64 = 20_000;
/// Launches before anything is known of how long they take.
const PACE_FIRST: u32 = 8;
const PACE_MAX: u32 = 1 << 16;

/// A gate that is open until some moment. Moments are microseconds of one clock.
#[derive(Debug)]
pub struct Gate {
    open_until: AtomicU64,
    inside: AtomicU32,
    passed: AtomicU64,
    last: AtomicU64,
    /// Launches since the GPU was last waited for, and how many there may be.
    ahead: AtomicU32,
    pace: AtomicU32,
    /// What one launch took of late, at most half a turn.
    cost: AtomicU64,
}

/// What one finds at the gate.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Passage {
    /// Inside; [`Gate::leave`] when done.
    Inside,
    /// The turn is over, or would be before this launch is done.
    Shut,
    /// So much is on the GPU already that it has to be waited for; [`Gate::paced`] when that is done.
    Ahead,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate {
            open_until: AtomicU64::new(0),
            inside: AtomicU32::new(0),
            passed: AtomicU64::new(0),
            last: AtomicU64::new(0),
            ahead: AtomicU32::new(0),
            pace: AtomicU32::new(PACE_FIRST),
            cost: AtomicU64::new(0),
        }
    }
}

impl Gate {
    /// Goes in, if one may.
    pub fn enter(&self, now: u64) -> Passage {
        // Counted before the look, so that the thread that shuts the gate sees every launch that found it open.
        self.inside.fetch_add(1, Ordering::SeqCst);
        if !self.is_open(now) {
            self.leave();
            return Passage::Shut;
        }
        if self.ahead.fetch_add(1, Ordering::Relaxed) >= self.pace.load(Ordering::Relaxed) {
            self.leave();
            return Passage::Ahead;
        }
        self.passed.fetch_add(1, Ordering::Relaxed);
        self.last.store(now, Ordering::Relaxed);
        Passage::Inside
    }

    /// Whether a launch now would be done in time.
    pub fn is_open(&self, now: u64) -> bool {
        now.saturating_add(self.cost.load(Ordering::Relaxed)) < self.open_until()
    }

    /// Comes out.
    pub fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    /// Opens for a turn.
    pub fn open(&self, now: u64, quota: u64) {
        self.ahead.store(0, Ordering::Relaxed);
        self.last.store(now, Ordering::Relaxed);
        self.cost.fetch_min(quota / 2, Ordering::Relaxed);
        self.open_until.store(now.saturating_add(quota), Ordering::SeqCst);
    }

    /// Opens again as it was, for a turn that goes on.
    pub fn reopen(&self, until: u64) {
        self.open_until.store(until, Ordering::SeqCst);
    }

    /// Opens for good.
    pub fn open_forever(&self) {
        self.pace.store(u32::MAX, Ordering::Relaxed);
        self.open_until.store(u64::MAX, Ordering::SeqCst);
    }

    /// No launch enters any more.
    pub fn shut(&self) {
        self.open_until.store(0, Ordering::SeqCst);
    }

    /// The GPU was waited for: so long after it was before, it has done so many launches.
    pub fn paced(&self, elapsed: u64, launches: u32, quota: u64) {
        let cost = elapsed / u64::from(launches.max(1));
        let pace = AHEAD_US / cost.max(1);
        let pace = u32::try_from(pace).unwrap_or(PACE_MAX).clamp(1, PACE_MAX);
        self.cost.store(cost.min(quota / 2), Ordering::Relaxed);
        self.pace.store(pace, Ordering::Relaxed);
        self.ahead.store(0, Ordering::Relaxed);
    }

    /// Until when it is open.
    pub fn open_until(&self) -> u64 {
        self.open_until.load(Ordering::SeqCst)
    }

    /// Whether no launch is inside.
    pub fn is_empty(&self) -> bool {
        self.inside.load(Ordering::SeqCst) == 0
    }

    /// How many went in, ever.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }

    /// When one last went in.
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Launches since the GPU was last waited for.
    pub fn ahead(&self) -> u32 {
        self.ahead.load(Ordering::Relaxed)
    }

    /// Whether so many launches are too many.
    pub fn is_ahead(&self) -> bool {
        self.ahead() >= self.pace.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::{Gate, Passage};

    #[test]
    fn a_gate_is_open_for_its_quota_and_no_longer() {
        let gate = Gate::default();
        assert_eq!(gate.enter(0), Passage::Shut);
        gate.open(100, 50);
        assert_eq!(gate.enter(100), Passage::Inside);
        assert!(!gate.is_empty());
        assert_eq!(gate.enter(149), Passage::Inside);
        assert_eq!(gate.enter(150), Passage::Shut);
        gate.leave();
        gate.leave();
        assert!(gate.is_empty());
        assert_eq!(gate.passed(), 2);
    }

    #[test]
    fn a_launch_that_would_not_be_done_in_time_waits_for_the_next_turn() {
        let gate = Gate::default();
        gate.open(0, 100_000);
        gate.paced(80_000, 8, 100_000);
        assert_eq!(gate.enter(89_999), Passage::Inside);
        assert_eq!(gate.enter(90_000), Passage::Shut);
        // A launch as long as a turn gets its turn all the same.
        gate.paced(1_000_000, 1, 100_000);
        gate.open(200_000, 100_000);
        assert_eq!(gate.enter(200_000), Passage::Inside);
    }

    #[test]
    fn no_more_is_on_the_gpu_than_can_be_waited_for() {
        let gate = Gate::default();
        gate.open(0, 1_000_000);
        for _ in 0..8 {
            assert_eq!(gate.enter(0), Passage::Inside);
        }
        assert_eq!(gate.enter(0), Passage::Ahead);
        // 5 ms each: four of them are 20 ms.
        gate.paced(40_000, 8, 1_000_000);
        for _ in 0..4 {
            assert_eq!(gate.enter(0), Passage::Inside);
        }
        assert_eq!(gate.enter(0), Passage::Ahead);
        gate.paced(10, 4, 1_000_000);
        assert_eq!((0..70_000).filter(|_| gate.enter(0) == Passage::Inside).count(), 10_000);
    }
}
