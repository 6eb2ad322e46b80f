//! The search over placements: groups of operators, a descent with chance, and single operators at the end.

use crate::draws::Draws;
use crate::placing::{Pieces, Placing, is_better, lists};

/// How much a search may do.
#[derive(Clone, Debug, PartialEq)]
pub struct Effort {
    /// Where chance starts.
    pub seed: u64,
    /// Pieces that may be put into list schedules, over all placements that are rated.
    pub pieces_max: u64,
    /// Placements that are rated at most.
    pub ratings_max: u64,
    /// Nodes of the exact search.
    pub steps_max: u64,
    /// Groups of operators that are moved as one, from few to many; single operators come last.
    pub groups_max: Vec<usize>,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort {
            seed: 1,
            pieces_max: 10_000_000,
            ratings_max: 6_000,
            steps_max: 20_000_000,
            groups_max: vec![40, 200],
        }
    }
}

struct Search<'a, 'b> {
    placing: &'a Placing<'b>,
    draws: Draws,
    current: (Vec<usize>, (f64, f64)),
    best: (Vec<usize>, (f64, f64)),
    pieces_left: u64,
    ratings_left: u64,
}

/// The best placement found from the best of the seeds.
///
/// Limited by what is rated and not by time, so that the same inputs give the same placement.
pub fn search(placing: &Placing<'_>, seeds: &[Vec<usize>], effort: &Effort) -> Vec<usize> {
    let mut best: Option<(Vec<usize>, (f64, f64))> = None;
    for seed in seeds {
        let rating = placing.rate(seed);
        if best.as_ref().is_none_or(|(_, other)| is_better(rating, *other)) {
            best = Some((seed.clone(), rating));
        }
    }
    let best = best.expect("there is a placement to start from");
    let single: Vec<Vec<usize>> = placing.graph.order().iter().map(|one| vec![*one]).collect();
    let mut search = Search {
        placing,
        draws: Draws::new(effort.seed),
        current: best.clone(),
        best,
        pieces_left: effort.pieces_max,
        ratings_left: effort.ratings_max,
    };
    if placing.sites.len() > 1 {
        for most in effort.groups_max.iter().filter(|most| **most < single.len()) {
            search.anneal(&groups(placing, *most), 0.5);
            search.current = search.best.clone();
        }
        search.anneal(&single, 1.0);
    }
    search.best.0
}

impl Search<'_, '_> {
    /// Moves units while this share of what is left of the effort lasts; less is accepted the longer it goes.
    fn anneal(&mut self, units: &[Vec<usize>], share: f64) {
        let (pieces, ratings) = (self.pieces_left, self.ratings_left);
        let keep = |all: u64| (all as f64 * (1.0 - share)) as u64;
        let (pieces_end, ratings_end) = (keep(pieces), keep(ratings));
        let left = |now: u64, end: u64, all: u64| {
            (now.saturating_sub(end)) as f64 / (all - end).max(1) as f64
        };
        loop {
            let left = left(self.pieces_left, pieces_end, pieces).min(left(
                self.ratings_left,
                ratings_end,
                ratings,
            ));
            if left <= 0.0 {
                break;
            }
            // From a thirtieth of the best time down to nothing.
            let warmth = self.best.1.1 * 0.03 * left * left;
            let Some(placement) = self.moved(units) else { continue };
            let pieces = Pieces::new(self.placing, &placement);
            let rating = (self.placing.lacking(&placement), lists(&pieces).seconds);
            self.pieces_left = self.pieces_left.saturating_sub(pieces.all.len() as u64);
            self.ratings_left = self.ratings_left.saturating_sub(1);
            if is_better(rating, self.best.1) {
                self.best = (placement.clone(), rating);
            }
            let is_taken = match rating.0.total_cmp(&self.current.1.0) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Greater => false,
                std::cmp::Ordering::Equal => {
                    let worse = rating.1 - self.current.1.1;
                    worse <= 0.0 || self.draws.unit() < libm::exp(-worse / warmth.max(1e-300))
                }
            };
            if is_taken {
                self.current = (placement, rating);
            }
        }
    }

    /// A placement near the current one; nothing where the draw changes nothing.
    fn moved(&mut self, units: &[Vec<usize>]) -> Option<Vec<usize>> {
        let mut placement = self.current.0.clone();
        let unit = self.draws.below(units.len() as u32) as usize;
        let first = units[unit][0];
        let site = match self.draws.below(4) {
            0 => self.beside(first),
            1 => {
                // Neighbours in the order of the graph go together.
                let site = self.beside(first);
                let count = 1 + self.draws.below(8.min(units.len() as u32)) as usize;
                for other in units[unit..].iter().take(count) {
                    other.iter().for_each(|one| placement[*one] = site);
                }
                site
            }
            2 => {
                let other = self.draws.below(units.len() as u32) as usize;
                let (a, b) = (placement[first], placement[units[other][0]]);
                units[other].iter().for_each(|one| placement[*one] = a);
                b
            }
            _ => self.draws.below(self.placing.sites.len() as u32) as usize,
        };
        units[unit].iter().for_each(|one| placement[*one] = site);
        (placement != self.current.0).then_some(placement)
    }

    /// The site of an operator before or after another, or any.
    fn beside(&mut self, operator: usize) -> usize {
        let (into, out) = (self.placing.edges_into(operator), self.placing.edges_out_of(operator));
        let edges = &self.placing.graph.edges;
        let count = (into.len() + out.len()) as u32;
        if count == 0 {
            return self.draws.below(self.placing.sites.len() as u32) as usize;
        }
        let at = self.draws.below(count) as usize;
        let other = match at < into.len() {
            true => edges[into[at]].from,
            false => edges[out[at - into.len()]].to,
        };
        self.current.0[other]
    }
}

/// Operators joined along the edges that cost most beside what they compute; groups in the order of the graph.
///
/// The paper joins so that groups have no cycle, because a group runs as one; here a group only shares its site.
fn groups(placing: &Placing<'_>, most: usize) -> Vec<Vec<usize>> {
    let count = placing.graph.operators.len();
    let mut of: Vec<usize> = (0..count).collect();
    let mut seconds: Vec<f64> = (0..count).map(|one| placing.site_seconds(one, 0)).collect();
    let devices = placing.devices.devices.len();
    let cap = seconds.iter().sum::<f64>() / (4 * devices) as f64;
    let mut edges: Vec<(f64, usize)> = (0..placing.graph.edges.len())
        .map(|edge| (placing.edge_seconds(edge, (0, 1.min(devices - 1))), edge))
        .collect();
    edges.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut left = count;
    for (moved, edge) in edges {
        let root = |mut one: usize| {
            while of[one] != one {
                one = of[one];
            }
            one
        };
        let one = &placing.graph.edges[edge];
        let (a, b) = (root(one.from), root(one.to));
        let is_worth = left > most || moved > seconds[a].min(seconds[b]);
        if a == b || !is_worth || seconds[a] + seconds[b] > cap {
            continue;
        }
        of[b.max(a)] = a.min(b);
        seconds[a.min(b)] += seconds[b.max(a)];
        left -= 1;
    }
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(); count];
    for operator in placing.graph.order().iter().copied() {
        let mut root = operator;
        while of[root] != root {
            root = of[root];
        }
        groups[root].push(operator);
    }
    let mut position = vec![0; count];
    placing.graph.order().iter().enumerate().for_each(|(at, one)| position[*one] = at);
    groups.retain(|group| !group.is_empty());
    groups.sort_by_key(|group| position[group[0]]);
    groups
}
