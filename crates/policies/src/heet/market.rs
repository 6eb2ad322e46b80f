//! Jobs and bundles of GPUs: prices, the cheapest matching, and trades that leave the sum of prices lower.

use trainyard_solver::bipartite;

/// GPUs of one type: the type's place in the list of types, and how many.
pub type Bundle = (usize, u32);

/// Bundles that jobs would have instead of their own.
type Trade = Vec<(usize, Bundle)>;

/// A job that takes part.
#[derive(Clone, Debug, PartialEq)]
pub struct Bidder {
    /// Work left.
    pub left: f64,
    /// Sizes and speeds on each type, sizes ascending.
    pub sizes: Vec<Vec<(u32, f64)>>,
    /// What it has.
    pub now: Option<Bundle>,
    /// Seconds that it loses when it gets another bundle.
    pub restart: f64,
    /// The speed of one GPU where that is highest: what efficiency is measured by.
    best_of_one: f64,
}

impl Bidder {
    /// A job with so much work left, its sizes and speeds on each type, what it has, and what another bundle costs it.
    pub fn new(
        left: f64,
        sizes: Vec<Vec<(u32, f64)>>,
        now: Option<Bundle>,
        restart: f64,
    ) -> Bidder {
        let of_one = sizes.iter().flatten().map(|(gpus, rate)| rate / f64::from(*gpus));
        let best_of_one = of_one.fold(0.0, f64::max);
        Bidder { left, sizes, now, restart, best_of_one }
    }

    /// The speed on a bundle, if that size is one of its own.
    pub fn rate(&self, (kind, gpus): Bundle) -> Option<f64> {
        let sizes = &self.sizes[kind];
        let index = sizes.binary_search_by_key(&gpus, |(size, _)| *size).ok()?;
        Some(sizes[index].1)
    }

    /// The largest size on a type that is at most so many GPUs.
    pub fn fit(&self, kind: usize, most: u32) -> Option<u32> {
        self.sizes[kind].iter().rev().map(|(gpus, _)| *gpus).find(|gpus| *gpus <= most)
    }

    /// The next larger size on the same type.
    fn larger(&self, (kind, gpus): Bundle) -> Option<Bundle> {
        self.sizes[kind].iter().find(|(size, _)| *size > gpus).map(|(size, _)| (kind, *size))
    }

    /// The price of a bundle: the time it takes, more the worse it scales there.
    pub fn price(&self, bundle: Bundle, kappa: f64) -> Option<f64> {
        let rate = self.rate(bundle)?;
        let restart = if self.now == Some(bundle) { 0.0 } else { self.restart };
        let efficiency = rate / (f64::from(bundle.1) * self.best_of_one);
        let price = (self.left / rate + restart) * (1.0 + kappa * (1.0 - efficiency));
        price.is_finite().then_some(price)
    }

    /// The cheapest bundle of least size: what the order of admission goes by.
    pub fn least(&self, kappa: f64) -> Option<(f64, Bundle)> {
        let firsts = self.sizes.iter().enumerate();
        let bundles = firsts.filter_map(|(kind, sizes)| Some((kind, sizes.first()?.0)));
        let priced = bundles.filter_map(|bundle| Some((self.price(bundle, kappa)?, bundle)));
        priced.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
    }
}

/// Who gets which bundle, and what is left of each type.
#[derive(Clone, Debug, PartialEq)]
pub struct Market<'b> {
    bidders: &'b [Bidder],
    kappa: f64,
    /// The bundle of each bidder.
    pub given: Vec<Option<Bundle>>,
    /// GPUs of each type that nobody has.
    pub left: Vec<u32>,
}

impl<'b> Market<'b> {
    /// Nobody has anything yet.
    pub fn new(bidders: &'b [Bidder], left: Vec<u32>, kappa: f64) -> Market<'b> {
        Market { bidders, kappa, given: vec![None; bidders.len()], left }
    }

    /// The sum of the prices of all that were let in.
    pub fn sum(&self) -> f64 {
        let priced = self.given.iter().zip(self.bidders);
        priced.filter_map(|(given, one)| one.price((*given)?, self.kappa)).sum()
    }

    /// Lets bidders in, in order of the price of their least bundle, where that is cheapest and there is room.
    pub fn admit(&mut self) {
        let mut order: Vec<(f64, usize)> = (0..self.bidders.len())
            .filter_map(|one| Some((self.bidders[one].least(self.kappa)?.0, one)))
            .collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (_, one) in order {
            let bidder = &self.bidders[one];
            let firsts = bidder.sizes.iter().enumerate();
            let fits = firsts.filter_map(|(kind, sizes)| {
                let bundle = (kind, sizes.first()?.0);
                let price = bidder.price(bundle, self.kappa)?;
                (bundle.1 <= self.left[kind]).then_some((price, bundle))
            });
            let found = fits.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            if let Some((_, bundle)) = found {
                self.left[bundle.0] -= bundle.1;
                self.given[one] = Some(bundle);
            }
        }
    }

    /// Makes bundles larger while GPUs are left: each time the one whose price falls most for each GPU.
    pub fn enlarge(&mut self, steps_max: usize) {
        for _ in 0..steps_max {
            let gain = |one: usize| {
                let bundle = self.given[one]?;
                let larger = self.bidders[one].larger(bundle)?;
                let more = larger.1 - bundle.1;
                let fall = self.fall(one, bundle, larger)? / f64::from(more);
                (more <= self.left[bundle.0] && fall > 0.0).then_some((fall, one, larger))
            };
            let best = (0..self.bidders.len()).filter_map(gain);
            let best = best.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
            let Some((_, one, larger)) = best else { return };
            self.give(one, larger);
        }
    }

    /// Matches those that were let in with the bundles there are, at the least sum of prices. A bundle may only go to
    /// who can use all of it. False, and nothing is changed, if no matching gives everyone one.
    pub fn rematch(&mut self) -> bool {
        let rows: Vec<usize> = (0..self.given.len()).filter(|i| self.given[*i].is_some()).collect();
        let bundles: Vec<Bundle> = rows.iter().filter_map(|row| self.given[*row]).collect();
        let price =
            |row: usize, column: usize| self.bidders[rows[row]].price(bundles[column], self.kappa);
        let Ok(found) = bipartite(rows.len(), bundles.len(), price) else { return false };
        let mut next = self.given.clone();
        for (row, column) in rows.iter().zip(&found) {
            let Some(column) = column else { return false };
            next[*row] = Some(bundles[*column]);
        }
        let before = std::mem::replace(&mut self.given, next);
        // A solver that counts in steps may call two sums equal that are not.
        let matched = self.sum();
        let after = std::mem::replace(&mut self.given, before);
        let better = matched < self.sum();
        if better {
            self.given = after;
        }
        better
    }

    /// Trades while the sum of prices falls, each time the one by which it falls most: one job takes another bundle out
    /// of what is left, one makes room for another, or two swap. Gives back how many trades there were.
    pub fn trade(&mut self, trades_max: usize) -> usize {
        for trades in 0..trades_max {
            let mut best: Option<(f64, Trade)> = None;
            for giver in 0..self.given.len() {
                let alone = self.moves(giver).into_iter().map(|to| vec![(giver, to)]);
                let takers = (0..self.given.len()).filter(|taker| *taker != giver);
                let both = takers.flat_map(|taker| self.trades(giver, taker));
                for trade in alone.chain(both) {
                    let falls =
                        trade.iter().map(|(one, to)| self.fall(*one, self.given[*one]?, *to));
                    let Some(fall) = falls.sum::<Option<f64>>().filter(|fall| *fall > 1e-9) else {
                        continue;
                    };
                    if best.as_ref().is_none_or(|(known, _)| fall > *known) {
                        best = Some((fall, trade));
                    }
                }
            }
            let Some((_, trade)) = best else { return trades };
            for (one, to) in trade {
                self.give(one, to);
            }
        }
        trades_max
    }

    /// Bundles that a job could have instead of its own out of what is left.
    fn moves(&self, one: usize) -> Vec<Bundle> {
        let Some(own) = self.given[one] else { return Vec::new() };
        let kinds = self.bidders[one].sizes.iter().enumerate();
        let all = kinds.flat_map(|(kind, sizes)| sizes.iter().map(move |(gpus, _)| (kind, *gpus)));
        let room = |kind: usize| self.left[kind] + if kind == own.0 { own.1 } else { 0 };
        all.filter(|to| *to != own && to.1 <= room(to.0)).collect()
    }

    /// Trades between two that leave no type short.
    fn trades(&self, giver: usize, taker: usize) -> Vec<Trade> {
        let (Some(from), Some(own)) = (self.given[giver], self.given[taker]) else {
            return Vec::new();
        };
        let kind = from.0;
        let mut trades = Vec::new();
        // One moves out of the way, and the other takes as much of what that leaves as it can use.
        for to in self.moves(giver).into_iter().filter(|to| to.0 != kind || to.1 < from.1) {
            let kept = if to.0 == kind { to.1 } else { 0 };
            let held = if own.0 == kind { own.1 } else { 0 };
            let room = self.left[kind] + from.1 - kept + held;
            let taken = self.bidders[taker].fit(kind, room).map(|gpus| (kind, gpus));
            trades.extend(
                taken.filter(|taken| *taken != own).map(|taken| vec![(giver, to), (taker, taken)]),
            );
        }
        if kind != own.0 && giver < taker {
            // Each takes as much of the other's bundle, and of what is left beside it, as it can use.
            let fit = |one: usize, bundle: Bundle| {
                let gpus = self.bidders[one].fit(bundle.0, bundle.1 + self.left[bundle.0])?;
                Some((bundle.0, gpus))
            };
            if let (Some(a), Some(b)) = (fit(giver, own), fit(taker, from)) {
                trades.push(vec![(giver, a), (taker, b)]);
            }
        }
        trades
    }

    fn fall(&self, one: usize, from: Bundle, to: Bundle) -> Option<f64> {
        let bidder = &self.bidders[one];
        Some(bidder.price(from, self.kappa)? - bidder.price(to, self.kappa)?)
    }

    fn give(&mut self, one: usize, to: Bundle) {
        if let Some((kind, gpus)) = self.given[one].replace(to) {
            self.left[kind] = self.left[kind].wrapping_add(gpus);
        }
        // The other half of a trade comes after: what is short for a moment wraps back.
        self.left[to.0] = self.left[to.0].wrapping_sub(to.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha12Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    fn drawn(rng: &mut ChaCha12Rng, jobs: usize) -> Vec<Bidder> {
        let mut below = |n: u64| (rng.next_u64() % n) as f64;
        let one = |below: &mut dyn FnMut(u64) -> f64| {
            let bend = 0.3 + below(70) / 100.0;
            let speeds = [1.0 + below(10), 1.0 + below(4)];
            let sizes = speeds.map(|speed| {
                [1u32, 2, 4].map(|gpus| (gpus, speed * (1.0 + bend * f64::from(gpus - 1)))).to_vec()
            });
            Bidder::new(10.0 + below(1000), sizes.to_vec(), None, 0.0)
        };
        (0..jobs).map(|_| one(&mut below)).collect()
    }

    fn run<'b>(bidders: &'b [Bidder], left: &[u32]) -> Market<'b> {
        let mut market = Market::new(bidders, left.to_vec(), 1.0);
        market.admit();
        market.enlarge(1000);
        market
    }

    /// The least sum over all ways to give everyone a bundle; nothing if there is none.
    fn brute(bidders: &[Bidder], left: &[u32]) -> Option<f64> {
        let Some((one, rest)) = bidders.split_first() else { return Some(0.0) };
        let kinds = one.sizes.iter().enumerate();
        let bundles = kinds.flat_map(|(kind, sizes)| sizes.iter().map(move |(n, _)| (kind, *n)));
        let sums = bundles.filter(|(kind, gpus)| *gpus <= left[*kind]).filter_map(|bundle| {
            let mut less = left.to_vec();
            less[bundle.0] -= bundle.1;
            Some(one.price(bundle, 1.0)? + brute(rest, &less)?)
        });
        sums.min_by(f64::total_cmp)
    }

    #[test]
    fn matching_and_trading_never_raise_the_sum_and_come_near_the_least() {
        let mut rng = ChaCha12Rng::seed_from_u64(5);
        let (mut ratio, mut admitted) = (0.0, 0.0);
        for case in 0..200 {
            let bidders = drawn(&mut rng, 4);
            let left = [5, 4];
            let mut market = run(&bidders, &left);
            let first = market.sum();
            market.rematch();
            let matched = market.sum();
            market.trade(100);
            let traded = market.sum();
            assert!(matched <= first + 1e-9 && traded <= matched + 1e-9, "case {case}");
            let used = |kind| {
                market.given.iter().flatten().filter(|b| b.0 == kind).map(|b| b.1).sum::<u32>()
            };
            assert!((0..2).all(|kind| used(kind) + market.left[kind] == left[kind]), "case {case}");
            assert!(market.given.iter().all(Option::is_some), "case {case}: somebody was left out");
            let least = brute(&bidders, &left).expect("there is room for four");
            assert!(traded >= least - 1e-6, "case {case}");
            ratio += traded / least / 200.0;
            admitted += first / least / 200.0;
        }
        println!("sum over the least: {admitted:.3} before, {ratio:.3} after");
        assert!(ratio < 1.03, "{ratio}");
    }

    #[test]
    fn two_jobs_on_the_wrong_types_swap() {
        // Each is fast where the other one is.
        let one = |fast: usize| {
            let mut sizes = vec![vec![(1, 1.0)], vec![(1, 1.0)]];
            sizes[fast] = vec![(1, 10.0)];
            Bidder::new(100.0, sizes, Some((1 - fast, 1)), 1.0)
        };
        let bidders = [one(0), one(1)];
        let mut market = Market::new(&bidders, vec![0, 0], 1.0);
        market.given = vec![Some((1, 1)), Some((0, 1))];
        assert!(market.clone().rematch());
        assert_eq!(market.trade(10), 1);
        assert_eq!(market.given, [Some((0, 1)), Some((1, 1))]);
        // A restart that costs more than the swap saves keeps them where they are.
        let slow = bidders.map(|one| Bidder { restart: 1e6, ..one });
        let mut market = Market::new(&slow, vec![0, 0], 1.0);
        market.given = vec![Some((1, 1)), Some((0, 1))];
        assert!(!market.rematch() && market.trade(10) == 0);
    }

    #[test]
    fn efficiency_is_dearer_with_kappa() {
        let bidder = Bidder::new(100.0, vec![vec![(1, 1.0), (4, 2.0)]], None, 0.0);
        assert_eq!(bidder.price((0, 4), 0.0), Some(50.0));
        assert_eq!(bidder.price((0, 4), 1.0), Some(75.0));
        assert_eq!(bidder.price((0, 2), 1.0), None);
    }
}
