//! The engine's time: microseconds since the store was born.
//!
//! It follows the time since the machine was started, which goes on while the machine sleeps and which no program can
//! set. The wall clock is read once, at the start, so that time spent without a daemon counts; if it jumps later, only
//! the times that are shown change. Across starts time never goes back.

use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use trainyard_types::Time;

/// The engine's clock.
#[derive(Copy, Clone, Debug)]
pub struct Clock {
    begun: Time,
    booted: u64,
}

impl Clock {
    /// A clock for a store that was born at Unix time `born` and last written at engine time `last`.
    pub fn start(born: i64, last: Time) -> Clock {
        Clock::started_at((wall_micros(), boot_micros()), born, last)
    }

    /// The engine's time.
    pub fn now(&self) -> Time {
        self.at(boot_micros())
    }

    /// The same with the two clocks of the machine given: Unix time, and time since it was started.
    fn started_at((wall, boot): (i64, u64), born: i64, last: Time) -> Clock {
        let age = u64::try_from(wall.saturating_sub(born)).unwrap_or(0);
        Clock { begun: Time(age.max(last.0)), booted: boot }
    }

    fn at(&self, boot: u64) -> Time {
        Time(self.begun.0 + boot.saturating_sub(self.booted))
    }
}

/// Unix time in microseconds.
pub fn wall_micros() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_micros() as i64
}

/// Microseconds since the machine was started.
fn boot_micros() -> u64 {
    let since = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from);
    since.expect("Linux has this clock since 2.6.39").as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_that_jumps_by_a_year_either_way_costs_no_time_and_gives_none() {
        const YEAR: i64 = 366 * 86_400_000_000;
        let (born, boot) = (5 * YEAR, 1_000_000);
        let mut last = Time::ZERO;
        let mut clock = Clock::started_at((born, boot), born, last);
        // While it runs it does not look at the wall clock at all, and a daemon that starts again goes on from `last`.
        for (second, jump) in [(1, 0), (2, YEAR), (3, -YEAR), (4, -6 * YEAR), (5, 0)] {
            let now = clock.at(boot + second * 1_000_000);
            assert!(now > last, "{now:?} after {last:?}");
            assert!(now.0 < (YEAR + 10_000_000) as u64, "a jump counts once, at a start: {now:?}");
            last = now;
            let wall = born + second as i64 * 1_000_000 + jump;
            clock = Clock::started_at((wall, boot + second * 1_000_000), born, last);
            assert!(clock.at(boot + second * 1_000_000) >= last, "never back");
        }
        assert_eq!(clock.at(0), clock.begun, "not even where the machine's own clock is odd");
    }

    #[test]
    fn time_never_goes_back_whatever_the_wall_clock_says() {
        let last = Time(5_000_000);
        let born_later = wall_micros() + 3_600_000_000;
        let clock = Clock::start(born_later, last);
        assert!(clock.now() >= last, "a wall clock set back does not set the engine back");
        let clock = Clock::start(wall_micros() - 60_000_000, last);
        let now = clock.now();
        assert!(now >= Time(60_000_000), "time without a daemon counts: {now:?}");
        assert!(clock.now() >= now);
    }
}
