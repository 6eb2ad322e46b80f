//! The auction: which bidder gets which GPUs, and what part of them the winners keep.
//!
//! Each bidder states what every bundle it could use is worth to it, and what having nothing is worth. The winners are
//! those for which the product of all values is largest. Winner i keeps the part
//! c_i = (product of the others' values here) / (the same in an auction without i), a hidden payment.
//! What i has of it, c_i times its value, is the product of all values over a number that i cannot change, so the truth
//! is the best bid (partial allocation: Cole, Gkatzelis and Goel, EC 2013).

use smallvec::SmallVec;

/// Something a bidder could use.
#[derive(Clone, Debug, PartialEq)]
pub struct Bundle {
    /// How much of which slots.
    pub takes: SmallVec<[(usize, u32); 2]>,
    /// What it is worth, above 0.
    pub value: f64,
}

/// The table of one bidder.
#[derive(Clone, Debug, PartialEq)]
pub struct Bid {
    /// What nothing is worth, above 0.
    pub nothing: f64,
    /// What it could use; it gets one of these at most.
    pub bundles: Vec<Bundle>,
}

impl Bid {
    /// What an outcome is worth.
    pub fn value(&self, won: Option<usize>) -> f64 {
        won.map_or(self.nothing, |bundle| self.bundles[bundle].value)
    }
}

/// What came of an auction.
#[derive(Clone, Debug, PartialEq)]
pub struct Result {
    /// The bundle of each bidder.
    pub won: Vec<Option<usize>>,
    /// The part of it that each keeps, from 0 to 1.
    pub kept: Vec<f64>,
    /// Whether no other outcome has a larger product, for all that was searched.
    pub proven: bool,
}

/// Holds an auction over slots with room. `work_max` bounds the steps of all searches together; when it is used up the
/// best outcome so far counts, which at first is the greedy one.
pub fn hold(room: &[u32], bids: &[Bid], hidden: bool, work_max: u64) -> Result {
    let searches = if hidden { bids.len() as u64 + 1 } else { 1 };
    let each = (work_max / searches).max(bids.len() as u64 + 1);
    let all_bids: Vec<&Bid> = bids.iter().collect();
    let (won, mut proven) = best(room, &all_bids, each);
    let mut kept = vec![1.0; bids.len()];
    if hidden {
        let value = |i: usize| libm::log(bids[i].value(won[i]));
        let total: f64 = (0..bids.len()).map(value).sum();
        for i in (0..bids.len()).filter(|i| won[*i].is_some()) {
            let others: Vec<&Bid> =
                bids.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, bid)| bid).collect();
            let (without, sure) = best(room, &others, each);
            proven &= sure;
            let alone: f64 =
                others.iter().zip(&without).map(|(bid, won)| libm::log(bid.value(*won))).sum();
            kept[i] = libm::exp(total - value(i) - alone).clamp(0.0, 1.0);
        }
    }
    Result { won, kept, proven }
}

/// The outcome with the largest product of values, and whether that is certain.
pub fn best(room: &[u32], bids: &[&Bid], work_max: u64) -> (Vec<Option<usize>>, bool) {
    let gain = |bid: &Bid, won: Option<usize>| libm::log(bid.value(won)) - libm::log(bid.nothing);
    let ways: Vec<Vec<(f64, usize)>> = bids
        .iter()
        .map(|bid| {
            // A bundle that is worth no more than nothing is never taken.
            let all = (0..bid.bundles.len()).map(|bundle| (gain(bid, Some(bundle)), bundle));
            let mut ways: Vec<(f64, usize)> = all.filter(|(gain, _)| *gain > 0.0).collect();
            ways.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            ways
        })
        .collect();
    let most = |i: &usize| ways[*i].first().map_or(0.0, |(gain, _)| *gain);
    let mut order: Vec<usize> = (0..bids.len()).collect();
    order.sort_by(|a, b| most(b).total_cmp(&most(a)).then(a.cmp(b)));
    // What those from a place on could add at most.
    let mut beyond = vec![0.0; bids.len() + 1];
    for place in (0..bids.len()).rev() {
        beyond[place] = beyond[place + 1] + most(&order[place]);
    }
    let mut search = Search {
        bids,
        ways,
        order,
        beyond,
        room: room.to_vec(),
        now: vec![None; bids.len()],
        best: vec![None; bids.len()],
        best_gain: -1.0,
        work: 0,
        work_max,
    };
    search.from(0, 0.0);
    let proven = search.work < search.work_max;
    (search.best, proven)
}

struct Search<'a> {
    bids: &'a [&'a Bid],
    ways: Vec<Vec<(f64, usize)>>,
    order: Vec<usize>,
    beyond: Vec<f64>,
    room: Vec<u32>,
    now: Vec<Option<usize>>,
    best: Vec<Option<usize>>,
    best_gain: f64,
    work: u64,
    work_max: u64,
}

impl Search<'_> {
    /// Branch and bound: the bidder at a place takes each of its bundles in turn, the best first, and at last nothing.
    fn from(&mut self, place: usize, gain: f64) {
        if gain > self.best_gain && place == self.order.len() {
            self.best_gain = gain;
            self.best.clone_from(&self.now);
        }
        if place == self.order.len() || gain + self.beyond[place] <= self.best_gain {
            return;
        }
        let bidder = self.order[place];
        for way in 0..self.ways[bidder].len() {
            let (more, bundle) = self.ways[bidder][way];
            self.work += 1;
            if self.work >= self.work_max && self.best_gain >= 0.0 {
                return;
            }
            if !self.take(bidder, bundle) {
                continue;
            }
            self.now[bidder] = Some(bundle);
            self.from(place + 1, gain + more);
            self.now[bidder] = None;
            self.give(bidder, bundle);
        }
        self.work += 1;
        self.from(place + 1, gain);
    }

    fn take(&mut self, bidder: usize, bundle: usize) -> bool {
        let takes = &self.bids[bidder].bundles[bundle].takes;
        let fits = takes.iter().all(|(slot, count)| self.room[*slot] >= *count);
        if fits {
            takes.iter().for_each(|(slot, count)| self.room[*slot] -= count);
        }
        fits
    }

    fn give(&mut self, bidder: usize, bundle: usize) {
        let takes = &self.bids[bidder].bundles[bundle].takes;
        takes.iter().for_each(|(slot, count)| self.room[*slot] += count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    const SLOTS: usize = 3;

    fn any_bid() -> impl Strategy<Value = Bid> {
        let take = (0..SLOTS, 1u32..4);
        let bundle = (take.clone(), prop::option::of(take), 0.05f64..4.0).prop_map(
            |((slot, count), second, value)| {
                let second = second.filter(|(other, _)| *other != slot);
                let takes = std::iter::once((slot, count)).chain(second).collect();
                Bundle { takes, value }
            },
        );
        (0.05f64..1.0, prop::collection::vec(bundle, 0..5))
            .prop_map(|(nothing, bundles)| Bid { nothing, bundles })
    }

    fn any_auction(bidders: usize) -> impl Strategy<Value = (Vec<u32>, Vec<Bid>)> {
        (prop::collection::vec(0u32..5, SLOTS), prop::collection::vec(any_bid(), 1..=bidders))
    }

    /// The largest product, by trying everything.
    fn brute_force(room: &[u32], bids: &[Bid]) -> f64 {
        let Some((first, rest)) = bids.split_first() else { return 1.0 };
        let mut most = first.nothing * brute_force(room, rest);
        for bundle in &first.bundles {
            let mut left = room.to_vec();
            let fits = bundle.takes.iter().all(|(slot, count)| left[*slot] >= *count);
            if fits {
                bundle.takes.iter().for_each(|(slot, count)| left[*slot] -= count);
                most = most.max(bundle.value * brute_force(&left, rest));
            }
        }
        most
    }

    fn product(bids: &[Bid], won: &[Option<usize>]) -> f64 {
        bids.iter().zip(won).map(|(bid, won)| bid.value(*won)).product()
    }

    /// What a bidder has in the end, by its true values, when it bids `said`.
    fn has(room: &[u32], bids: &[Bid], who: usize, said: &Bid, hidden: bool) -> f64 {
        let mut bids = bids.to_vec();
        let truth = std::mem::replace(&mut bids[who], said.clone());
        let result = hold(room, &bids, hidden, u64::MAX);
        assert!(result.proven);
        result.kept[who] * truth.value(result.won[who])
    }

    /// The same bundles with other values.
    fn lie(truth: &Bid, factors: &[f64]) -> Bid {
        let bundles = truth.bundles.iter().zip(factors.iter().skip(1));
        Bid {
            nothing: truth.nothing * factors[0],
            bundles: bundles
                .map(|(bundle, factor)| Bundle { value: bundle.value * factor, ..bundle.clone() })
                .collect(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, rng_seed: RngSeed::Fixed(3), failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_outcome_has_a_larger_product((room, bids) in any_auction(5)) {
            let result = hold(&room, &bids, true, u64::MAX);
            let (ours, best) = (product(&bids, &result.won), brute_force(&room, &bids));
            prop_assert!(result.proven && (ours / best - 1.0).abs() < 1e-9, "{ours} of {best}");
            prop_assert!(result.kept.iter().all(|part| (0.0..=1.0).contains(part)));
        }

        #[test]
        fn a_search_that_is_cut_short_is_legal_and_says_so((room, bids) in any_auction(6)) {
            let result = hold(&room, &bids, false, 2);
            let mut left = room.clone();
            for (bid, won) in bids.iter().zip(&result.won) {
                for (slot, count) in won.iter().flat_map(|won| &bid.bundles[*won].takes) {
                    prop_assert!(left[*slot] >= *count);
                    left[*slot] -= count;
                }
            }
            let best = brute_force(&room, &bids);
            prop_assert!(!result.proven || product(&bids, &result.won) >= best * (1.0 - 1e-9));
        }

        #[test]
        fn nobody_gains_by_another_bid_than_the_truth(
            (room, bids) in any_auction(4),
            factors in prop::collection::vec(0.05f64..20.0, 6),
        ) {
            for who in 0..bids.len() {
                let truth = has(&room, &bids, who, &bids[who], true);
                let lied = has(&room, &bids, who, &lie(&bids[who], &factors), true);
                prop_assert!(lied <= truth * (1.0 + 1e-9), "bidder {who} has {lied}, not {truth}");
            }
        }
    }

    #[test]
    fn without_hidden_payments_whoever_exaggerates_wins() {
        let bundle = |value| Bundle { takes: [(0, 1)].into_iter().collect(), value };
        let bid = |value| Bid { nothing: 1.0, bundles: vec![bundle(value)] };
        let bids = [bid(2.0), bid(3.0)];
        let exaggerated = bid(9.0);
        assert_eq!(has(&[1], &bids, 0, &bids[0], false), 1.0);
        assert_eq!(has(&[1], &bids, 0, &exaggerated, false), 2.0);
        // With them it keeps a third of what it won: 2 / 3, less than nothing was worth.
        assert!((has(&[1], &bids, 0, &exaggerated, true) - 2.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn the_winner_keeps_what_it_leaves_to_the_others() {
        let bundle = |value| Bundle { takes: [(0, 2)].into_iter().collect(), value };
        let bid = |value| Bid { nothing: 1.0, bundles: vec![bundle(value)] };
        let result = hold(&[2], &[bid(5.0), bid(2.0)], true, 1000);
        assert_eq!(result.won, [Some(0), None]);
        assert!((result.kept[0] - 0.5).abs() < 1e-12, "the other would have had twice as much");
    }
}
