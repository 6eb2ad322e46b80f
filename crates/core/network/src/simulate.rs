//! An event simulation of a plan: transfers share links, and ranks go on when their own step is done.

use crate::flows::max_min;
use crate::plan::{Fold, Plan, folds};
use crate::tree::Tree;
use trainyard_types::LinkId;

/// What came of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// When the last rank is done, in seconds.
    pub seconds: f64,
    /// When each rank is done.
    pub done: Vec<f64>,
    /// Bytes that passed each link.
    pub loads: Vec<f64>,
}

/// Lets a plan run on the servers of a tree.
///
/// A transfer begins when both ends have reached its step, waits for the latency of the switch where its way turns, and
/// then has its max-min fair share of the links. A receiver with a fan-in above the threshold takes each byte with the
/// penalty of incast. When all that a rank receives in a step has come, it adds it up; when its own transfers are done
/// too, it goes on. Without ties the closed forms are lower: they let all ranks go on together.
///
/// # Panics
///
/// When the plan has more ranks than the tree has servers.
pub fn simulate(plan: &Plan, tree: &Tree) -> Simulated {
    assert!(plan.ranks <= tree.servers.len(), "every rank has a server");
    let mut run = Run::new(plan, tree);
    for rank in 0..plan.ranks {
        run.go_on(rank);
    }
    while let Some(next) = run.next_moment() {
        run.advance_to(next);
    }
    let seconds = run.ranks.iter().map(|rank| rank.at).fold(0.0, f64::max);
    let done = run.ranks.iter().map(|rank| rank.at).collect();
    Simulated { seconds, done, loads: run.loads }
}

struct Run<'a> {
    plan: &'a Plan,
    tree: &'a Tree,
    capacities: Vec<f64>,
    /// Fold of each rank by step.
    folds: Vec<Vec<Fold>>,
    ranks: Vec<RankRun>,
    transfers: Vec<TransferRun>,
    /// Numbers of transfers by step and rank at either end.
    ends: Vec<Vec<Vec<usize>>>,
    /// Transfers with bytes under way, ascending.
    flowing: Vec<usize>,
    rates: Vec<f64>,
    loads: Vec<f64>,
    now: f64,
}

struct RankRun {
    step: usize,
    /// Transfers of the step that are not done.
    open: usize,
    /// Those among them that it receives.
    receives: usize,
    /// When its additions are done, once all is there.
    folding: Option<f64>,
    at: f64,
}

struct TransferRun {
    step: usize,
    from: usize,
    to: usize,
    links: Vec<LinkId>,
    alpha: f64,
    left: f64,
    /// When its first byte goes; unknown until both ends are there.
    begins: Option<f64>,
    done: bool,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, tree: &'a Tree) -> Run<'a> {
        let mut holds: Vec<bool> = (0..plan.ranks).map(|rank| rank < plan.workers).collect();
        let mut all_folds = Vec::with_capacity(plan.steps.len());
        let mut ends = vec![vec![Vec::new(); plan.ranks]; plan.steps.len()];
        let mut transfers = Vec::new();
        for (number, step) in plan.steps.iter().enumerate() {
            all_folds.push(folds(step, plan.ranks, &holds));
            for one in step {
                holds[one.to] = true;
                ends[number][one.from].push(transfers.len());
                ends[number][one.to].push(transfers.len());
                let (links, meet) = tree.route(one.from, one.to);
                transfers.push(TransferRun {
                    step: number,
                    from: one.from,
                    to: one.to,
                    links,
                    alpha: tree.switches[meet].alpha,
                    left: one.bytes as f64,
                    begins: None,
                    done: false,
                });
            }
        }
        let rank = || RankRun { step: usize::MAX, open: 0, receives: 0, folding: None, at: 0.0 };
        let capacities = tree.capacities();
        Run {
            plan,
            tree,
            folds: all_folds,
            ranks: (0..plan.ranks).map(|_| rank()).collect(),
            transfers,
            ends,
            flowing: Vec::new(),
            rates: Vec::new(),
            loads: vec![0.0; capacities.len()],
            capacities,
            now: 0.0,
        }
    }

    /// A rank whose step is done enters the next one that it takes part in.
    fn go_on(&mut self, rank: usize) {
        self.ranks[rank].at = self.now;
        let from = self.ranks[rank].step.wrapping_add(1);
        let next = (from..self.plan.steps.len()).find(|step| !self.ends[*step][rank].is_empty());
        self.ranks[rank].step = next.unwrap_or(self.plan.steps.len());
        let Some(step) = next else { return };
        let own = self.ends[step][rank].clone();
        self.ranks[rank].open = own.len();
        self.ranks[rank].receives = own.iter().filter(|at| self.transfers[**at].to == rank).count();
        for at in own {
            let one = &self.transfers[at];
            let other = if one.from == rank { one.to } else { one.from };
            if self.ranks[other].step == step {
                self.transfers[at].begins = Some(self.now + one.alpha);
            }
        }
    }

    /// The next moment at which something begins or is done.
    fn next_moment(&self) -> Option<f64> {
        let begins = self.transfers.iter().filter(|one| !one.done).filter_map(|one| one.begins);
        let begins = begins.filter(|begins| *begins > self.now || self.flowing.is_empty());
        let ends = self.flowing.iter().zip(&self.rates);
        let ends = ends.map(|(at, rate)| self.now + self.transfers[*at].left / rate);
        let folds = self.ranks.iter().filter_map(|rank| rank.folding);
        begins.chain(ends).chain(folds).min_by(f64::total_cmp)
    }

    fn advance_to(&mut self, moment: f64) {
        let span = moment - self.now;
        let mut ended = Vec::new();
        for (at, rate) in self.flowing.iter().zip(&self.rates) {
            let one = &mut self.transfers[*at];
            // The same division as in `next_moment`, so that what ends now ends exactly.
            let ends = self.now + one.left / rate <= moment;
            let moved = if ends { one.left } else { rate * span };
            one.links.iter().for_each(|link| self.loads[link.index()] += moved);
            one.left -= moved;
            if ends {
                ended.push(*at);
            }
        }
        self.now = moment;
        self.flowing.retain(|at| !ended.contains(at));
        for at in ended {
            self.end(at);
        }
        for rank in 0..self.ranks.len() {
            if self.ranks[rank].folding.is_some_and(|until| until <= moment) {
                self.ranks[rank].folding = None;
                if self.ranks[rank].open == 0 {
                    self.go_on(rank);
                }
            }
        }
        self.begin();
        self.share();
    }

    fn begin(&mut self) {
        for at in 0..self.transfers.len() {
            let one = &self.transfers[at];
            let due = one.begins.is_some_and(|begins| begins <= self.now);
            if due && !one.done && self.flowing.binary_search(&at).is_err() {
                let place = self.flowing.partition_point(|other| *other < at);
                self.flowing.insert(place, at);
            }
        }
    }

    fn end(&mut self, at: usize) {
        let TransferRun { step, from, to, .. } = self.transfers[at];
        self.transfers[at].done = true;
        for rank in [from, to] {
            self.ranks[rank].open -= 1;
        }
        self.ranks[to].receives -= 1;
        if self.ranks[to].receives == 0 {
            let fold = self.folds[step][to];
            let costs = &self.tree.costs;
            let seconds = fold.reduced * costs.gamma + fold.accessed * costs.delta;
            self.ranks[to].folding = Some(self.now + seconds);
        }
        if self.ranks[from].open == 0 && self.ranks[from].folding.is_none() && from != to {
            self.go_on(from);
        }
    }

    /// Each flow gets its share; a receiver with many senders takes bytes more slowly.
    fn share(&mut self) {
        let mut senders: Vec<(usize, usize)> = self
            .flowing
            .iter()
            .map(|at| (self.transfers[*at].to, self.transfers[*at].from))
            .collect();
        senders.sort_unstable();
        senders.dedup();
        let mut capacities = self.capacities.clone();
        for group in senders.chunk_by(|a, b| a.0 == b.0) {
            let link = self.tree.into_server(group[0].0).index();
            let penalty = self.tree.penalty(group.len() as u32 + 1);
            if penalty > 0.0 {
                capacities[link] = 1.0 / (1.0 / capacities[link] + penalty);
            }
        }
        let flows: Vec<Vec<LinkId>> =
            self.flowing.iter().map(|at| self.transfers[*at].links.clone()).collect();
        self.rates = max_min(&capacities, &flows);
    }
}
