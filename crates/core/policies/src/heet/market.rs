//! Jobs and bundles of GPUs: prices, the cheapest matching, and trades that leave the sum of prices lower.

use smallvec::SmallVec;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use trainyard_solver::bipartite;

/// GPUs of one type.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bundle {
    /// The type's place in the list of types.
    pub kind: usize,
    /// How many.
    pub gpus: u32,
}

/// A number of GPUs, and the speed of a job on them.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Size {
    /// How many.
    pub gpus: u32,
    /// Steps in a second.
    pub rate: f64,
}

/// A bundle and what it costs a job.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Priced {
    /// The price.
    pub price: f64,
    /// The bundle.
    pub bundle: Bundle,
}

impl Priced {
    /// The cheaper one first, of equals the first by type and size.
    fn order(&self, other: &Priced) -> Ordering {
        self.price.total_cmp(&other.price).then(self.bundle.cmp(&other.bundle))
    }
}

/// Bundles that jobs would have instead of their own.
type Trade = Vec<(usize, Bundle)>;

/// A job that takes part.
#[derive(Clone, Debug, PartialEq)]
pub struct Bidder {
    /// Work left.
    pub left: f64,
    /// Sizes and speeds on each type, sizes ascending.
    pub sizes: Vec<Vec<Size>>,
    /// What it has.
    pub now: Option<Bundle>,
    /// Seconds that it loses when it gets another bundle.
    pub restart: f64,
    /// The speed of one GPU where that is highest: what efficiency is measured by.
    best_of_one: f64,
}

impl Bidder {
    /// A job with so much work left, its sizes and speeds on each type, what it has, and what another bundle costs it.
    pub fn new(left: f64, sizes: Vec<Vec<Size>>, now: Option<Bundle>, restart: f64) -> Bidder {
        let of_one = sizes.iter().flatten().map(|size| size.rate / f64::from(size.gpus));
        let best_of_one = of_one.fold(0.0, f64::max);
        Bidder { left, sizes, now, restart, best_of_one }
    }

    /// The speed on a bundle, if that size is one of its own.
    pub fn rate(&self, bundle: Bundle) -> Option<f64> {
        let sizes = &self.sizes[bundle.kind];
        let index = sizes.binary_search_by_key(&bundle.gpus, |size| size.gpus).ok()?;
        Some(sizes[index].rate)
    }

    /// The largest size on a type that is at most so many GPUs.
    pub fn fit(&self, kind: usize, most: u32) -> Option<u32> {
        self.sizes[kind].iter().rev().map(|size| size.gpus).find(|gpus| *gpus <= most)
    }

    /// The next larger size on the same type.
    fn larger(&self, Bundle { kind, gpus }: Bundle) -> Option<Bundle> {
        let larger = self.sizes[kind].iter().find(|size| size.gpus > gpus)?;
        Some(Bundle { kind, gpus: larger.gpus })
    }

    /// The least bundle of each type.
    fn firsts(&self) -> impl Iterator<Item = Bundle> + '_ {
        let kinds = self.sizes.iter().enumerate();
        kinds.filter_map(|(kind, sizes)| Some(Bundle { kind, gpus: sizes.first()?.gpus }))
    }

    /// Bundles of all sizes.
    fn bundles(&self) -> impl Iterator<Item = Bundle> + '_ {
        let kinds = self.sizes.iter().enumerate();
        kinds.flat_map(|(kind, sizes)| {
            sizes.iter().map(move |size| Bundle { kind, gpus: size.gpus })
        })
    }

    /// The price of a bundle: the time it takes, more the worse it scales there.
    ///
    /// The paper weighs scaling efficiency against scheduling efficiency by a price; its form is not known to us, and
    /// this one is ours.
    pub fn price(&self, bundle: Bundle, kappa: f64) -> Option<f64> {
        let rate = self.rate(bundle)?;
        let restart = if self.now == Some(bundle) { 0.0 } else { self.restart };
        let efficiency = rate / (f64::from(bundle.gpus) * self.best_of_one);
        let price = (self.left / rate + restart) * (1.0 + kappa * (1.0 - efficiency));
        price.is_finite().then_some(price)
    }

    /// The cheapest bundle of least size: what the order of admission goes by.
    pub fn least(&self, kappa: f64) -> Option<Priced> {
        let priced = |bundle| Some(Priced { price: self.price(bundle, kappa)?, bundle });
        self.firsts().filter_map(priced).min_by(Priced::order)
    }
}

/// Which job gets which bundle, and what is left of each type.
#[derive(Clone, Debug, PartialEq)]
pub struct Market<'b> {
    bidders: &'b [Bidder],
    kappa: f64,
    /// The bundle of each bidder.
    pub given: Vec<Option<Bundle>>,
    /// GPUs of each type that no bidder has.
    pub left: Vec<u32>,
}

impl<'b> Market<'b> {
    /// No bidder has anything yet.
    pub fn new(bidders: &'b [Bidder], left: Vec<u32>, kappa: f64) -> Market<'b> {
        Market { bidders, kappa, given: vec![None; bidders.len()], left }
    }

    /// The sum of the prices of all that were admitted.
    pub fn sum(&self) -> f64 {
        let priced = self.given.iter().zip(self.bidders);
        priced.filter_map(|(given, one)| one.price((*given)?, self.kappa)).sum()
    }

    /// Lets bidders in, in order of the price of their least bundle, where that is cheapest and there is room.
    pub fn admit(&mut self) {
        let mut order: Vec<(f64, usize)> = (0..self.bidders.len())
            .filter_map(|one| Some((self.bidders[one].least(self.kappa)?.price, one)))
            .collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (_, one) in order {
            let bidder = &self.bidders[one];
            let fits = bidder.firsts().filter(|bundle| bundle.gpus <= self.left[bundle.kind]);
            let priced = |bundle| Some(Priced { price: bidder.price(bundle, self.kappa)?, bundle });
            if let Some(Priced { bundle, .. }) = fits.filter_map(priced).min_by(Priced::order) {
                self.left[bundle.kind] -= bundle.gpus;
                self.given[one] = Some(bundle);
            }
        }
    }

    /// Makes bundles larger while GPUs are left: each time the one whose price falls most for each GPU.
    pub fn enlarge(&mut self) {
        let mut heap: BinaryHeap<Step> =
            (0..self.bidders.len()).filter_map(|one| self.step(one)).collect();
        while let Some(Step { one, larger, .. }) = heap.pop() {
            let Some(bundle) = self.given[one] else { continue };
            // What is left only becomes less, so that a step without room never finds any.
            if larger.gpus - bundle.gpus <= self.left[bundle.kind] {
                self.give(one, larger);
                heap.extend(self.step(one));
            }
        }
    }

    /// The next larger bundle of a job, where its price falls.
    fn step(&self, one: usize) -> Option<Step> {
        let bundle = self.given[one]?;
        let larger = self.bidders[one].larger(bundle)?;
        let fall = self.fall(one, bundle, larger)? / f64::from(larger.gpus - bundle.gpus);
        (fall > 0.0).then_some(Step { fall, one, larger })
    }

    /// At most so many jobs with a bundle, those whose price could fall most if they had their choice.
    pub fn contested(&self, most: usize) -> Vec<usize> {
        let regret = |one: usize| {
            let own = self.bidders[one].price(self.given[one]?, self.kappa)?;
            let all = self.bidders[one].bundles();
            let best = all.filter_map(|to| self.bidders[one].price(to, self.kappa));
            Some((own - best.fold(own, f64::min), one))
        };
        let mut all: Vec<(f64, usize)> = (0..self.given.len()).filter_map(regret).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut jobs: Vec<usize> = all.into_iter().take(most).map(|(_, one)| one).collect();
        jobs.sort_unstable();
        jobs
    }

    /// The paper's minimum-weight full bipartite matching of jobs and bundles: the given jobs, with the bundles they
    /// have, at the least sum of prices. A bundle may only go to a job that can use all of it. False, and
    /// nothing is changed, if no matching gives each job one.
    pub fn rematch(&mut self, rows: &[usize]) -> bool {
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

    /// The paper's opportunistic trading among the given jobs. They trade while the sum of prices falls, each time the
    /// trade by which it falls most and by which no price rises: one job takes another bundle out of what is left, one
    /// makes room for another, or two swap. Gives back how many trades there were.
    pub fn trade(&mut self, jobs: &[usize], trades_max: usize) -> usize {
        for trades in 0..trades_max {
            let mut best: Option<(f64, Trade)> = None;
            for &giver in jobs {
                let alone = self.moves(giver).into_iter().map(|to| vec![(giver, to)]);
                let takers = jobs.iter().filter(|taker| **taker != giver);
                let both = takers.flat_map(|taker| self.trades(giver, *taker));
                for trade in alone.chain(both) {
                    let falls =
                        trade.iter().map(|(one, to)| self.fall(*one, self.given[*one]?, *to));
                    let Some(falls) = falls.collect::<Option<SmallVec<[f64; 2]>>>() else {
                        continue;
                    };
                    let fall: f64 = falls.iter().sum();
                    if fall <= 1e-9 || falls.iter().any(|fall| *fall < 0.0) {
                        continue;
                    }
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
        let room = |kind: usize| self.left[kind] + if kind == own.kind { own.gpus } else { 0 };
        let all = self.bidders[one].bundles();
        all.filter(|to| *to != own && to.gpus <= room(to.kind)).collect()
    }

    /// Trades between two that leave no type short.
    fn trades(&self, giver: usize, taker: usize) -> Vec<Trade> {
        let (Some(from), Some(own)) = (self.given[giver], self.given[taker]) else {
            return Vec::new();
        };
        let kind = from.kind;
        let mut trades = Vec::new();
        // One moves out of the way, and the other takes as much of what that leaves as it can use.
        for to in self.moves(giver).into_iter().filter(|to| to.kind != kind || to.gpus < from.gpus)
        {
            let kept = if to.kind == kind { to.gpus } else { 0 };
            let held = if own.kind == kind { own.gpus } else { 0 };
            let room = self.left[kind] + from.gpus - kept + held;
            let taken = self.bidders[taker].fit(kind, room).map(|gpus| Bundle { kind, gpus });
            trades.extend(
                taken.filter(|taken| *taken != own).map(|taken| vec![(giver, to), (taker, taken)]),
            );
        }
        if kind != own.kind && giver < taker {
            // Each takes as much of the other's bundle, and of what is left beside it, as it can use.
            let fit = |one: usize, bundle: Bundle| {
                let kind = bundle.kind;
                let gpus = self.bidders[one].fit(kind, bundle.gpus + self.left[kind])?;
                Some(Bundle { kind, gpus })
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
        if let Some(Bundle { kind, gpus }) = self.given[one].replace(to) {
            self.left[kind] = self.left[kind].wrapping_add(gpus);
        }
        // The other half of a trade comes after: what is short for a moment wraps back.
        self.left[to.kind] = self.left[to.kind].wrapping_sub(to.gpus);
    }
}

/// A larger bundle for a job, and by how much its price falls for each GPU.
#[derive(Copy, Clone, Debug, PartialEq)]
struct Step {
    fall: f64,
    one: usize,
    larger: Bundle,
}

impl Eq for Step {}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Step) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Step {
    /// By the fall, of equals the lower job.
    fn cmp(&self, other: &Step) -> Ordering {
        self.fall.total_cmp(&other.fall).then(other.one.cmp(&self.one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha12Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    fn size(gpus: u32, rate: f64) -> Size {
        Size { gpus, rate }
    }

    fn bundle(kind: usize, gpus: u32) -> Bundle {
        Bundle { kind, gpus }
    }

    fn drawn(rng: &mut ChaCha12Rng, jobs: usize) -> Vec<Bidder> {
        let mut below = |n: u64| (rng.next_u64() % n) as f64;
        let one = |below: &mut dyn FnMut(u64) -> f64| {
            let bend = 0.3 + below(70) / 100.0;
            let speeds = [1.0 + below(10), 1.0 + below(4)];
            let sizes = speeds.map(|speed| {
                let rate = |gpus: u32| speed * (1.0 + bend * f64::from(gpus - 1));
                [1, 2, 4].map(|gpus| Size { gpus, rate: rate(gpus) }).to_vec()
            });
            Bidder::new(10.0 + below(1000), sizes.to_vec(), None, 0.0)
        };
        (0..jobs).map(|_| one(&mut below)).collect()
    }

    fn run<'b>(bidders: &'b [Bidder], left: &[u32]) -> Market<'b> {
        let mut market = Market::new(bidders, left.to_vec(), 1.0);
        market.admit();
        market.enlarge();
        market
    }

    /// The least sum over all ways to give each bidder a bundle; nothing if there is none.
    fn brute(bidders: &[Bidder], left: &[u32]) -> Option<f64> {
        let Some((one, rest)) = bidders.split_first() else { return Some(0.0) };
        let fits = one.bundles().filter(|bundle| bundle.gpus <= left[bundle.kind]);
        let sums = fits.filter_map(|bundle| {
            let mut less = left.to_vec();
            less[bundle.kind] -= bundle.gpus;
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
            let all = market.contested(4);
            market.rematch(&all);
            let matched = market.sum();
            market.trade(&all, 100);
            let traded = market.sum();
            assert!(matched <= first + 1e-9 && traded <= matched + 1e-9, "case {case}");
            let used = |kind| {
                let here = market.given.iter().flatten().filter(|bundle| bundle.kind == kind);
                here.map(|bundle| bundle.gpus).sum::<u32>()
            };
            assert!((0..2).all(|kind| used(kind) + market.left[kind] == left[kind]), "case {case}");
            assert!(market.given.iter().all(Option::is_some), "case {case}: a bidder was left out");
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
            let mut sizes = vec![vec![size(1, 1.0)], vec![size(1, 1.0)]];
            sizes[fast] = vec![size(1, 10.0)];
            Bidder::new(100.0, sizes, Some(bundle(1 - fast, 1)), 1.0)
        };
        let bidders = [one(0), one(1)];
        let mut market = Market::new(&bidders, vec![0, 0], 1.0);
        market.given = vec![Some(bundle(1, 1)), Some(bundle(0, 1))];
        assert!(market.clone().rematch(&[0, 1]));
        assert_eq!(market.trade(&[0, 1], 10), 1);
        assert_eq!(market.given, [Some(bundle(0, 1)), Some(bundle(1, 1))]);
        // A restart that costs more than the swap saves keeps them where they are.
        let slow = bidders.map(|one| Bidder { restart: 1e6, ..one });
        let mut market = Market::new(&slow, vec![0, 0], 1.0);
        market.given = vec![Some(bundle(1, 1)), Some(bundle(0, 1))];
        assert!(!market.rematch(&[0, 1]) && market.trade(&[0, 1], 10) == 0);
    }

    #[test]
    fn no_job_pays_more_after_a_trade() {
        let mut rng = ChaCha12Rng::seed_from_u64(6);
        for case in 0..200 {
            let bidders = drawn(&mut rng, 5);
            let mut market = run(&bidders, &[4, 5]);
            let prices = |market: &Market<'_>| -> Vec<Option<f64>> {
                let given = market.given.iter().zip(&bidders);
                given.map(|(given, one)| one.price((*given)?, 1.0)).collect()
            };
            let before = prices(&market);
            market.trade(&[0, 1, 2, 3, 4], 100);
            let after = prices(&market);
            let dearer = before.iter().zip(&after).any(|(a, b)| b > &a.map(|a| a + 1e-9));
            assert!(!dearer, "case {case}: {before:?} {after:?}");
        }
    }

    #[test]
    fn efficiency_is_dearer_with_kappa() {
        let bidder = Bidder::new(100.0, vec![vec![size(1, 1.0), size(4, 2.0)]], None, 0.0);
        assert_eq!(bidder.price(bundle(0, 4), 0.0), Some(50.0));
        assert_eq!(bidder.price(bundle(0, 4), 1.0), Some(75.0));
        assert_eq!(bidder.price(bundle(0, 2), 1.0), None);
    }
}
