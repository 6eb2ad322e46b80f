//! How much of the last window a client used.

use std::collections::VecDeque;
use trainyard_types::{Span, Time};

/// Short stretches are joined into ones of at most this part of the window, so that memory is bounded.
const PARTS: u64 = 1024;

/// A stretch of time, and how much of it was used.
#[derive(Copy, Clone, Debug)]
struct Stretch {
    start: Time,
    end: Time,
    used: Span,
}

impl Stretch {
    /// What was used of it from `from` on; evenly spread, which is exact unless stretches were joined.
    fn used_since(&self, from: Time) -> Span {
        if from <= self.start {
            return self.used;
        }
        let length = u128::from(self.end.since(self.start).0.max(1));
        let left = u128::from(self.end.since(from).0);
        Span((u128::from(self.used.0) * left / length) as u64)
    }
}

/// What a client used within a sliding window.
#[derive(Clone, Debug)]
pub struct History {
    window: Span,
    stretches: VecDeque<Stretch>,
}

impl History {
    /// Nothing was used yet.
    pub fn new(window: Span) -> History {
        History { window, stretches: VecDeque::new() }
    }

    /// All of `start..end` was used. Stretches come in order; an overlap with the one before counts twice.
    pub fn charge(&mut self, start: Time, end: Time) {
        let used = end.since(start);
        if used == Span::ZERO {
            return;
        }
        let begin = self.beginning(end);
        while self.stretches.front().is_some_and(|first| first.end <= begin) {
            self.stretches.pop_front();
        }
        let short = Span(self.window.0 / PARTS);
        match self.stretches.back_mut() {
            Some(last) if end.since(last.start) <= short => {
                last.end = last.end.max(end);
                last.used += used;
            }
            _ => self.stretches.push_back(Stretch { start, end, used }),
        }
    }

    /// What was used in the window that ends now.
    pub fn used(&self, now: Time) -> Span {
        let begin = self.beginning(now);
        let inside = self.stretches.iter().filter(|stretch| stretch.end > begin);
        inside.fold(Span::ZERO, |sum, stretch| sum + stretch.used_since(begin))
    }

    /// When less than `amount` is used, if nothing is used from now on.
    pub fn below(&self, amount: Span, now: Time) -> Time {
        if amount == Span::ZERO {
            return Time::NEVER;
        }
        let begin = self.beginning(now);
        let used = self.used(now);
        if used < amount {
            return now;
        }
        // So much has to leave the window.
        let mut excess = used.minus(amount) + Span(1);
        for stretch in self.stretches.iter().filter(|stretch| stretch.end > begin) {
            let inside = stretch.used_since(begin);
            if inside < excess {
                excess = excess.minus(inside);
                continue;
            }
            let length = u128::from(stretch.end.since(stretch.start).0);
            let gone = u128::from(excess.0) * length;
            let gone = Span(gone.div_ceil(u128::from(stretch.used.0.max(1))) as u64);
            return (stretch.start.max(begin) + gone + self.window).max(now + Span(1));
        }
        // What lies before time zero never leaves: only at the start of a run.
        now + Span(1)
    }

    /// How many stretches are remembered.
    pub fn len(&self) -> usize {
        self.stretches.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    fn beginning(&self, now: Time) -> Time {
        Time(now.0.saturating_sub(self.window.0))
    }
}

#[cfg(test)]
mod tests {
    use super::History;
    use trainyard_types::{Span, Time};

    #[test]
    fn what_was_used_leaves_the_window_bit_by_bit() {
        let mut history = History::new(Span(100_000));
        history.charge(Time(0), Time(30_000));
        history.charge(Time(50_000), Time(60_000));
        assert_eq!(history.used(Time(60_000)), Span(40_000));
        assert_eq!(history.used(Time(100_000)), Span(40_000));
        assert_eq!(history.used(Time(110_000)), Span(30_000));
        assert_eq!(history.used(Time(155_000)), Span(5_000));
        assert_eq!(history.used(Time(200_000)), Span(0));
    }

    #[test]
    fn the_moment_at_which_less_is_used_is_exact() {
        let mut history = History::new(Span(100_000));
        history.charge(Time(0), Time(30_000));
        history.charge(Time(50_000), Time(60_000));
        for amount in [1, 5_000, 10_000, 10_001, 20_000, 39_999, 40_000] {
            let moment = history.below(Span(amount), Time(60_000));
            assert!(history.used(moment) < Span(amount), "{amount}: {moment:?}");
            assert!(history.used(Time(moment.0 - 1)) >= Span(amount), "{amount}: {moment:?}");
        }
        assert_eq!(history.below(Span(40_001), Time(60_000)), Time(60_000));
        assert_eq!(history.below(Span::ZERO, Time(60_000)), Time::NEVER);
    }

    #[test]
    fn a_million_short_turns_take_little_room() {
        let mut history = History::new(Span::secs(10));
        for turn in 0..1_000_000 {
            history.charge(Time(turn * 20), Time(turn * 20 + 10));
        }
        assert!(history.len() <= 1_100, "{}", history.len());
        let used = history.used(Time(20_000_000)).0;
        assert!(used.abs_diff(5_000_000) < 10_000, "{used}");
    }
}
