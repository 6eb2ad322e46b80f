//! What came of a run of language models.

use crate::measures::{Tally, percentile};
use std::collections::BTreeMap;
use trainyard_types::Span;

/// Buckets of the histogram of gaps in each doubling.
const PER_DOUBLING: f64 = 32.0;

/// What a run counted, beyond what every run counts.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenTally {
    /// What every run counts; in time is an answer whose first token and whose pace were.
    pub whole: Tally,
    /// Microseconds to the first token, ascending once the run is over.
    pub first: Vec<u64>,
    /// The same for the requests of each priority.
    pub first_of: BTreeMap<u8, Vec<u64>>,
    /// Microseconds for each further token on average, by answer, ascending once the run is over.
    pub pace: Vec<u64>,
    /// Tokens that were made.
    pub tokens: u64,
    /// Tokens of prompts that were computed.
    pub computed: u64,
    /// Tokens of prompts that were in the cache already.
    pub reused: u64,
    /// Requests that were taken off a GPU.
    pub evictions: u64,
    /// Iterations.
    pub iterations: u64,
    gaps: Vec<u64>,
}

impl TokenTally {
    pub(crate) fn new(servers: usize) -> TokenTally {
        TokenTally {
            whole: Tally::new(1, servers),
            first: Vec::new(),
            first_of: BTreeMap::new(),
            pace: Vec::new(),
            tokens: 0,
            computed: 0,
            reused: 0,
            evictions: 0,
            iterations: 0,
            gaps: vec![0; 64 * PER_DOUBLING as usize],
        }
    }

    /// So many gaps between tokens of this length.
    pub(crate) fn gap(&mut self, micros: f64, count: u64) {
        let at = (libm::log2(micros.max(1.0)) * PER_DOUBLING) as usize;
        let last = self.gaps.len() - 1;
        self.gaps[at.min(last)] += count;
    }

    pub(crate) fn finish(&mut self) {
        self.first.sort_unstable();
        self.first_of.values_mut().for_each(|all| all.sort_unstable());
        self.pace.sort_unstable();
    }

    /// The time to the first token that this part of the answers stays within.
    pub fn first_within(&self, part: f64) -> Span {
        percentile(&self.first, part)
    }

    /// The same among the requests of a priority; nothing for none.
    pub fn first_within_of(&self, priority: u8, part: f64) -> Span {
        self.first_of.get(&priority).map_or(Span::ZERO, |all| percentile(all, part))
    }

    /// The time for a token that this part of the answers stays within on average.
    pub fn pace_within(&self, part: f64) -> Span {
        percentile(&self.pace, part)
    }

    /// The gap between two tokens that this part of all gaps stays within, to 2.2 %.
    pub fn gap_within(&self, part: f64) -> Span {
        let all: u64 = self.gaps.iter().sum();
        let rank = libm::ceil(part * all as f64) as u64;
        let mut seen = 0;
        for (at, count) in self.gaps.iter().enumerate() {
            seen += count;
            if seen >= rank.max(1) {
                return Span(libm::exp2((at + 1) as f64 / PER_DOUBLING) as u64);
            }
        }
        Span::ZERO
    }

    /// Tokens made in a second.
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 / self.whole.until.as_secs_f64().max(1e-6)
    }
}
