//! The best mix of demands, and the prices that prove it.
//!
//! Each price that was tried left a demand: parts of each type. Mixed with weights that sum to 1, demands form a demand
//! again; the mix whose fullest type is least full is a small linear problem, and its dual is the next price to try.

use super::basis::{Basis, Column, Entered};

/// Demands that were seen, and the best mix of them.
pub(super) struct Game {
    kinds: usize,
    demands: Vec<Vec<f64>>,
    basis: Option<Basis>,
}

/// The best mix.
pub(super) struct Best {
    /// How full the fullest type is.
    pub fullest: f64,
    /// Prices of whole types, which sum to 1: no demand that was seen is cheaper than `fullest`.
    pub prices: Vec<f64>,
    /// Demands by number, with their weights.
    pub weights: Vec<(usize, f64)>,
}

const PIVOTS_MAX: usize = 2000;

impl Game {
    pub fn new(kinds: usize) -> Game {
        Game { kinds, demands: Vec::new(), basis: None }
    }

    /// Adds a demand and mixes anew. `None` where the arithmetic fails.
    pub fn add(&mut self, demand: Vec<f64>) -> Option<Best> {
        if self.basis.is_none() {
            self.basis = self.first(&demand);
        }
        self.demands.push(demand);
        let mut basis = self.basis.take()?;
        let mut stuck = 0;
        for _ in 0..PIVOTS_MAX {
            let prices = basis.prices();
            let Some(column) = self.entering(&prices, stuck > 20) else { break };
            match basis.enter(column) {
                Entered::For(_, gain) if gain > 1e-15 => stuck = 0,
                Entered::For(..) => stuck += 1,
                Entered::Unbounded | Entered::Singular => return None,
            }
            if !basis.refresh() {
                return None;
            }
        }
        let prices = basis.prices();
        let mut fullest = 0.0;
        let mut weights = Vec::new();
        for (id, value) in basis.values() {
            match id {
                0 => fullest = value,
                id if id > self.kinds && value > 0.0 => weights.push((id - self.kinds - 1, value)),
                _ => {}
            }
        }
        weights.sort_unstable_by_key(|(demand, _)| *demand);
        self.basis = Some(basis);
        let prices = prices[..self.kinds].iter().map(|price| price.max(0.0)).collect();
        Some(Best { fullest, prices, weights })
    }

    /// The first demand alone: its fullest type is exactly as full as is told, all others have room.
    fn first(&self, demand: &[f64]) -> Option<Basis> {
        let fullest =
            (0..self.kinds).max_by(|&a, &b| demand[a].total_cmp(&demand[b]).then(b.cmp(&a)))?;
        let mut members = vec![self.column(0), demand_column(self.kinds + 1, demand)];
        members.extend(
            (0..self.kinds).filter(|kind| *kind != fullest).map(|kind| self.column(kind + 1)),
        );
        let mut bounds = vec![0.0; self.kinds];
        bounds.push(1.0);
        Basis::new(members, bounds)
    }

    /// Column 0 is how full the fullest type is; then comes the room of each type; then the demands.
    fn column(&self, id: usize) -> Column {
        match id {
            0 => Column {
                id,
                worth: -1.0,
                entries: (0..self.kinds).map(|kind| (kind, -1.0)).collect(),
            },
            id if id <= self.kinds => Column { id, worth: 0.0, entries: vec![(id - 1, 1.0)] },
            id => demand_column(id, &self.demands[id - self.kinds - 1]),
        }
    }

    /// The column that gains most, or the first that gains.
    fn entering(&self, prices: &[f64], first: bool) -> Option<Column> {
        let gain_of_room = (0..self.kinds).map(|kind| (kind + 1, -prices[kind]));
        let gain_of_demand = self.demands.iter().enumerate().map(|(index, demand)| {
            let cost: f64 = demand.iter().zip(prices).map(|(part, price)| part * price).sum();
            (index + self.kinds + 1, -cost - prices[self.kinds])
        });
        let mut gains = gain_of_room.chain(gain_of_demand).filter(|(_, gain)| *gain > 1e-13);
        let found = match first {
            true => gains.next(),
            false => gains.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0))),
        };
        found.map(|(id, _)| self.column(id))
    }
}

fn demand_column(id: usize, demand: &[f64]) -> Column {
    let parts = demand.iter().copied().enumerate();
    Column { id, worth: 0.0, entries: parts.chain([(demand.len(), 1.0)]).collect() }
}
