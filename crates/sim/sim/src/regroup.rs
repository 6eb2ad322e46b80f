//! What a decision costs jobs that train together: GPUs that have not worked together before must meet first.
//!
//! The rule of ElasticFlow's simulator (ASPLOS 2023, Apache-2.0, `estimate_overhead`): each decision costs every
//! running job 2 s, 7 s on clusters of 256 GPUs or more. If its GPUs did not work together since all processes were
//! last started anew, it pays 2 s more and 2 s for each doubling of one GPU. Every 240th decision starts all processes
//! anew: such a job then pays 27 s more, 47 s on a large cluster, and whatever is known of groups is forgotten.

use std::collections::BTreeSet;
use trainyard_types::{Placement, Span};

/// After so many decisions all processes are started anew.
const RENEW_EVERY: u64 = 240;
/// A cluster of so many GPUs is large.
const LARGE: u32 = 256;

/// Groups of GPUs that have worked together.
#[derive(Debug, Default)]
pub struct Regroup {
    known: BTreeSet<Vec<(u32, u64)>>,
    decisions: u64,
}

impl Regroup {
    /// A decision was taken; says whether it starts all processes anew.
    pub fn decided(&mut self) -> bool {
        let renews = self.decisions > 0 && self.decisions.is_multiple_of(RENEW_EVERY);
        self.decisions += 1;
        renews
    }

    /// What the decision costs a job on these GPUs of a cluster of `all` GPUs; they are known from then on.
    pub fn cost(&mut self, placement: &Placement, all: u32, renews: bool) -> Span {
        let large = all >= LARGE;
        let known = Span::secs(if large { 7 } else { 2 });
        let group = placement.masks().iter().map(|(node, mask)| (node.0, *mask)).collect();
        if !self.known.insert(group) {
            return known;
        }
        let renewal = match (renews, large) {
            (false, _) => Span::ZERO,
            (true, false) => Span::secs(27),
            (true, true) => Span::secs(47),
        };
        let doublings = libm::log2(f64::from(placement.gpus().max(1)));
        known + renewal + Span::from_secs_f64(2.0 * (doublings + 1.0))
    }

    /// All processes were started anew.
    pub fn forget(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::NodeId;

    #[test]
    fn gpus_that_worked_together_cost_two_seconds_and_others_more_with_their_number() {
        let mut groups = Regroup::default();
        let eight = Placement::on(NodeId(0), 0xff);
        let four = Placement::on(NodeId(0), 0x0f);
        assert_eq!(groups.cost(&eight, 128, false), Span::secs(2 + 8));
        assert_eq!(groups.cost(&eight, 128, false), Span::secs(2));
        assert_eq!(groups.cost(&four, 128, false), Span::secs(2 + 6));
        assert_eq!(groups.cost(&four, 256, false), Span::secs(7));
    }

    #[test]
    fn every_240th_decision_starts_all_processes_anew() {
        let mut groups = Regroup::default();
        let renewals: Vec<u64> = (0..=480).filter(|_| groups.decided()).collect();
        assert_eq!(renewals, [240, 480]);
        let one = Placement::on(NodeId(3), 1);
        assert_eq!(groups.cost(&one, 128, true), Span::secs(2 + 2 + 27));
        groups.forget();
        assert_eq!(groups.cost(&one, 512, true), Span::secs(7 + 2 + 47));
    }
}
