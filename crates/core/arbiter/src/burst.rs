//! How long a quota a client needs.
//!
//! A training step gives the GPU work in a burst and then pauses. A quota that ends with the burst costs nothing;
//! one that ends within it makes the program wait with half a step on the GPU.

use crate::settings::Settings;
use std::collections::VecDeque;
use trainyard_types::{Span, Time};

/// The bursts of one client, and the quota that follows from them.
#[derive(Clone, Debug)]
pub struct Bursts {
    quota: Span,
    /// Ends and lengths, lengths falling: a longer burst makes all before it superfluous.
    recent: VecDeque<(Time, Span)>,
    last_end: Option<Time>,
}

impl Bursts {
    /// Nothing is known yet.
    pub fn new(settings: &Settings, limit: u32) -> Bursts {
        let quota = settings.quota_base.min(settings.quota_max(limit));
        Bursts { quota, recent: VecDeque::new(), last_end: None }
    }

    /// The GPU was held for `length` until `end`.
    pub fn ended(&mut self, settings: &Settings, end: Time, length: Span) {
        while self.recent.back().is_some_and(|(_, shorter)| *shorter <= length) {
            self.recent.pop_back();
        }
        self.recent.push_back((end, length));
        self.forget(settings, end);
        self.last_end = Some(end);
    }

    /// The client wants the GPU again: the quota moves half the way to the longest burst of late, or to twice that
    /// where the client was cut off.
    pub fn begins(&mut self, settings: &Settings, now: Time, limit: u32) {
        self.forget(settings, now);
        let Some((_, longest)) = self.recent.front() else { return };
        let idle = self.last_end.map_or(Span::MAX, |end| now.since(end));
        let burst = if idle < settings.idle_min { longest.times(2) } else { *longest };
        let between = Span((burst + self.quota).0 / 2);
        self.quota = between.clamp(settings.quota_min, settings.quota_max(limit));
    }

    /// The quota of the next turn.
    pub fn quota(&self) -> Span {
        self.quota
    }

    /// The quota under a new limit.
    pub fn bound(&mut self, settings: &Settings, limit: u32) {
        self.quota = self.quota.min(settings.quota_max(limit));
    }

    fn forget(&mut self, settings: &Settings, now: Time) {
        let old = |end: Time| now.since(end) > settings.burst_memory;
        while self.recent.front().is_some_and(|(end, _)| old(*end)) {
            self.recent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Bursts;
    use crate::settings::Settings;
    use trainyard_types::{Span, Time};

    #[test]
    fn a_quota_follows_the_longest_burst_of_late() {
        let settings = Settings::default();
        let mut bursts = Bursts::new(&settings, 1000);
        assert_eq!(bursts.quota(), Span(250_000));
        bursts.begins(&settings, Time(0), 1000);
        assert_eq!(bursts.quota(), Span(250_000), "nothing was seen yet");
        bursts.ended(&settings, Time(150_000), Span(150_000));
        bursts.begins(&settings, Time(160_000), 1000);
        assert_eq!(bursts.quota(), Span(200_000));
        bursts.ended(&settings, Time(200_000), Span(40_000));
        bursts.begins(&settings, Time(210_000), 1000);
        assert_eq!(bursts.quota(), Span(175_000), "the longest of late counts");
        bursts.begins(&settings, Time(3_160_000), 1000);
        bursts.begins(&settings, Time(3_170_000), 1000);
        assert_eq!(
            bursts.quota(),
            Span(100_000),
            "the long one is forgotten, and 100 ms is the least"
        );
    }

    #[test]
    fn a_burst_that_was_cut_off_counts_twice() {
        let settings = Settings::default();
        let mut bursts = Bursts::new(&settings, 100);
        bursts.ended(&settings, Time(250_000), Span(250_000));
        bursts.begins(&settings, Time(251_999), 100);
        assert_eq!(bursts.quota(), Span(375_000));
        for turn in 1..20 {
            bursts.ended(&settings, Time(turn * 1_000_000), Span(600_000));
            bursts.begins(&settings, Time(turn * 1_000_000), 100);
        }
        assert_eq!(bursts.quota(), Span(1_000_000), "the limit's part of the window is the most");
    }
}
