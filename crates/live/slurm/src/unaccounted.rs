//! GPUs that Slurm counts as used though no job has them.
//!
//! A slurmctld that was killed may come back with jobs that ended long ago, end them and go on counting their GPUs. A
//! job that is placed on such GPUs never starts. Jobs and nodes are read by two calls, and a job that has just ended is
//! in one of them only: what is missing counts after it was missing for a while without a break.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// What is missing for so long is missing.
const WINDOW: Duration = Duration::from_secs(5);
/// Slurm is asked to count anew after so long, for it may find its count by itself.
const COUNTED_ANEW_AFTER: Duration = Duration::from_secs(15);
/// And again after so long.
const COUNTED_ANEW_EVERY: Duration = Duration::from_secs(60);

/// How many GPUs of each node were missing at the last looks.
#[derive(Debug, Default)]
pub struct Unaccounted {
    nodes: BTreeMap<String, VecDeque<(Instant, u32)>>,
    /// Since when some have been missing, and when Slurm was asked to count anew.
    since: Option<Instant>,
    asked: Option<Instant>,
}

impl Unaccounted {
    /// Takes note of a look and answers how many GPUs of the node have been missing all the time. Constant work for a
    /// node of which nothing is missing.
    pub fn note(&mut self, node: &str, at: Instant, missing: u32) -> u32 {
        if missing == 0 {
            self.nodes.remove(node);
            return 0;
        }
        if !self.nodes.contains_key(node) {
            self.nodes.insert(node.to_owned(), VecDeque::new());
        }
        let Some(looks) = self.nodes.get_mut(node) else { return 0 };
        looks.push_back((at, missing));
        // One look from before the window stays, because it shows that the looks cover the whole window.
        while looks.get(1).is_some_and(|(second, _)| at.duration_since(*second) >= WINDOW) {
            looks.pop_front();
        }
        let covers = looks.front().is_some_and(|(first, _)| at.duration_since(*first) >= WINDOW);
        let least = looks.iter().map(|(_, missing)| *missing).min();
        least.filter(|_| covers).unwrap_or(0)
    }

    /// Whether it is time for Slurm to count anew, after a look at which some are missing or none.
    pub fn wants_new_count(&mut self, at: Instant, missing: bool) -> bool {
        if !missing {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(at);
        let lately = |asked: Instant| at.duration_since(asked) < COUNTED_ANEW_EVERY;
        let due = at.duration_since(since) >= COUNTED_ANEW_AFTER && !self.asked.is_some_and(lately);
        if due {
            self.asked = Some(at);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_counts_after_a_while_and_no_longer_than_it_is() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut seen = Unaccounted::default();
        let told =
            [(0, 2), (2, 2), (4, 3), (5, 3), (6, 2), (9, 3), (10, 3), (11, 3), (12, 0), (13, 2)]
                .map(|(seconds, missing)| seen.note("n1", at(seconds), missing));
        assert_eq!(told, [0, 0, 0, 2, 2, 2, 2, 2, 0, 0]);
        assert_eq!(seen.note("n1", at(18), 2), 2);
        assert_eq!(seen.note("n2", at(18), 2), 0, "another node has a time of its own");
    }

    #[test]
    fn a_new_count_is_wanted_after_a_while_and_not_at_every_look() {
        let start = Instant::now();
        let mut seen = Unaccounted::default();
        let mut asked = |seconds: u64, missing| {
            seen.wants_new_count(start + Duration::from_secs(seconds), missing)
        };
        let told = [(0, true), (14, true), (15, true), (16, true), (70, true), (75, true)]
            .map(|(seconds, missing)| asked(seconds, missing));
        assert_eq!(told, [false, false, true, false, false, true]);
        assert!(!asked(80, false) && !asked(140, true), "they came back in between");
        assert!(asked(155, true));
    }
}
