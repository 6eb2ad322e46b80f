//! The engine's time: microseconds since the store was born.
//!
//! It follows the time since the machine was started, which goes on while the machine sleeps and which nobody can
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
        let age = u64::try_from(wall_micros() - born).unwrap_or(0);
        Clock { begun: Time(age.max(last.0)), booted: boot_micros() }
    }

    /// The engine's time.
    pub fn now(&self) -> Time {
        Time(self.begun.0 + boot_micros().saturating_sub(self.booted))
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
