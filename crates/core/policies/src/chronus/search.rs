//! Places for a batch of gangs: four greedy orders, and a local search from the best of them.

use super::allocator::Parts;
use crate::prelude::*;

/// Gangs to be placed, and what is free.
pub(super) struct Batch {
    pub(super) nodes: Vec<Room>,
    pub(super) seats: Vec<Seat>,
}

/// A node with free GPUs.
pub(super) struct Room {
    pub(super) node: NodeId,
    pub(super) kind: GpuType,
    pub(super) free: u32,
}

/// A gang.
pub(super) struct Seat {
    pub(super) gpus: u32,
    /// The ways in which it may be placed.
    pub(super) ways: Vec<Way>,
    /// Where none of them fits.
    pub(super) scattered: Vec<Scattered>,
}

/// A gang split over nodes of a type, and what that is worth: the authors' reward, GPUs times relative speed.
pub(super) struct Way {
    pub(super) kind: GpuType,
    pub(super) split: Vec<u32>,
    pub(super) worth: f64,
}

/// A gang over nodes of a type as it comes.
pub(super) struct Scattered {
    pub(super) kind: GpuType,
    /// What it is worth on so many nodes, from one on.
    pub(super) worth: Vec<f64>,
}

/// In which order gangs choose: the authors' four.
#[derive(Copy, Clone)]
enum Order {
    /// First the gang that would lose most if it got its second best (the authors' gap of rewards).
    Gap,
    Widest,
    Narrowest,
    /// First the gang that is worth most.
    Dearest,
}

/// Gangs of a batch that is ordered by what is left for each; beyond, that is too dear.
const GAP_MAX: usize = 64;

/// A gang's place.
#[derive(Clone)]
struct Spot {
    worth: f64,
    /// GPUs by index of the node.
    parts: Vec<(usize, u32)>,
}

/// Which gang is where.
#[derive(Clone)]
struct Layout {
    free: Vec<u32>,
    spots: Vec<Option<Spot>>,
}

impl Layout {
    fn worth(&self) -> f64 {
        self.spots.iter().flatten().map(|spot| spot.worth).sum()
    }

    fn put(&mut self, seat: usize, spot: Spot) {
        for (node, gpus) in &spot.parts {
            self.free[*node] -= gpus;
        }
        self.spots[seat] = Some(spot);
    }

    fn take(&mut self, seat: usize) {
        for (node, gpus) in self.spots[seat].take().map(|spot| spot.parts).unwrap_or_default() {
            self.free[node] += gpus;
        }
    }
}

impl Batch {
    /// The best of the four orders.
    pub(super) fn best_of_four(&self) -> Vec<Option<Parts>> {
        self.parts(self.greedy())
    }

    /// What the greedy orders and the search come to.
    #[cfg(test)]
    pub(super) fn worths(&self) -> (f64, f64) {
        (self.greedy().worth(), self.improved(1_000_000).worth())
    }

    /// The same, bettered by taking up one or two gangs and putting them down elsewhere, within so many units of
    /// work: a unit is a gang that is put down.
    pub(super) fn search(&self, work_max: u64) -> Vec<Option<Parts>> {
        self.parts(self.improved(work_max))
    }

    fn improved(&self, work_max: u64) -> Layout {
        let mut layout = self.greedy();
        let mut work = 0;
        let mut improved = true;
        while improved {
            improved = false;
            for first in 0..self.seats.len() {
                for second in first..self.seats.len() {
                    if work >= work_max || self.is_perfect(&layout) {
                        return layout;
                    }
                    improved |= self.try_again(&mut layout, (first, second), &mut work);
                }
            }
        }
        layout
    }

    fn greedy(&self) -> Layout {
        let orders = [Order::Gap, Order::Widest, Order::Narrowest, Order::Dearest];
        let mut best: Option<Layout> = None;
        for order in orders {
            if matches!(order, Order::Gap) && self.seats.len() > GAP_MAX {
                continue;
            }
            let layout = self.in_order(order);
            if best.as_ref().is_none_or(|best| layout.worth() > best.worth() + 1e-9) {
                best = Some(layout);
            }
        }
        best.expect("an order was tried")
    }

    fn in_order(&self, order: Order) -> Layout {
        let free = self.nodes.iter().map(|node| node.free).collect();
        let mut layout = Layout { free, spots: vec![None; self.seats.len()] };
        let mut rest: Vec<usize> = (0..self.seats.len()).collect();
        match order {
            Order::Gap => {}
            Order::Widest => rest.sort_by_key(|seat| u32::MAX - self.seats[*seat].gpus),
            Order::Narrowest => rest.sort_by_key(|seat| self.seats[*seat].gpus),
            Order::Dearest => {
                rest.sort_by(|a, b| self.seats[*b].most().total_cmp(&self.seats[*a].most()));
            }
        }
        while !rest.is_empty() {
            let next = match order {
                Order::Gap => self.largest_gap(&layout, &rest),
                Order::Widest | Order::Narrowest | Order::Dearest => 0,
            };
            let seat = rest.remove(next);
            if let Some(spot) = self.spots(&layout, seat).into_iter().next() {
                layout.put(seat, spot);
            }
        }
        layout
    }

    fn largest_gap(&self, layout: &Layout, rest: &[usize]) -> usize {
        let gap = |seat: &usize| {
            let spots = self.spots(layout, *seat);
            let worth = |index: usize| spots.get(index).map_or(0.0, |spot| spot.worth);
            worth(0) - worth(1)
        };
        let gaps: Vec<f64> = rest.iter().map(gap).collect();
        let best = (0..rest.len()).max_by(|a, b| gaps[*a].total_cmp(&gaps[*b]).then(b.cmp(a)));
        best.expect("a gang is left")
    }

    /// Places that a gang could take, one for each way, most worth first.
    fn spots(&self, layout: &Layout, seat: usize) -> Vec<Spot> {
        let mut spots: Vec<Spot> = self.seats[seat]
            .ways
            .iter()
            .filter_map(|way| Some(Spot { worth: way.worth, parts: self.fit(layout, way)? }))
            .collect();
        if spots.is_empty() {
            let scattered = self.seats[seat].scattered.iter();
            spots.extend(scattered.filter_map(|way| self.scatter(layout, seat, way)));
        }
        spots.sort_by(|a, b| b.worth.total_cmp(&a.worth));
        spots
    }

    /// The roomiest nodes of a type, as many as it takes.
    fn scatter(&self, layout: &Layout, seat: usize, way: &Scattered) -> Option<Spot> {
        let mut open: Vec<usize> =
            (0..self.nodes.len()).filter(|node| self.nodes[*node].kind == way.kind).collect();
        open.sort_by_key(|node| (u32::MAX - layout.free[*node], *node));
        let mut need = self.seats[seat].gpus;
        let mut parts = Vec::new();
        for node in open {
            let here = layout.free[node].min(need);
            if here > 0 {
                parts.push((node, here));
                need -= here;
            }
        }
        let worth = way.worth.get(parts.len().checked_sub(1)?).copied()?;
        (need == 0).then_some(Spot { worth, parts })
    }

    /// The tightest nodes for the parts of a split, the largest part first.
    fn fit(&self, layout: &Layout, way: &Way) -> Option<Vec<(usize, u32)>> {
        let mut parts: Vec<(usize, u32)> = Vec::with_capacity(way.split.len());
        for gpus in &way.split {
            let open = (0..self.nodes.len()).filter(|node| {
                self.nodes[*node].kind == way.kind
                    && layout.free[*node] >= *gpus
                    && parts.iter().all(|part| part.0 != *node)
            });
            parts.push((open.min_by_key(|node| (layout.free[*node], *node))?, *gpus));
        }
        Some(parts)
    }

    /// Takes up one or two gangs, and puts them down in each order and way; keeps what is worth more.
    fn try_again(
        &self,
        layout: &mut Layout,
        (first, second): (usize, usize),
        work: &mut u64,
    ) -> bool {
        let before = layout.worth();
        let mut bare = layout.clone();
        bare.take(first);
        bare.take(second);
        // A gang that has no place at all comes last, if something is left for it.
        let homeless: Vec<usize> =
            (0..self.seats.len()).filter(|seat| layout.spots[*seat].is_none()).collect();
        let orders = [[first, second], [second, first]];
        for order in &orders[..if first == second { 1 } else { 2 }] {
            for spot in self.spots(&bare, order[0]) {
                let mut tried = bare.clone();
                tried.put(order[0], spot);
                let others = [order[1]].into_iter().chain(homeless.iter().copied());
                for seat in others {
                    *work += 1;
                    if tried.spots[seat].is_none()
                        && let Some(spot) = self.spots(&tried, seat).into_iter().next()
                    {
                        tried.put(seat, spot);
                    }
                }
                if tried.worth() > before + 1e-9 {
                    *layout = tried;
                    return true;
                }
            }
        }
        false
    }

    /// Whether every gang has what is best for it.
    fn is_perfect(&self, layout: &Layout) -> bool {
        let best: f64 = self.seats.iter().map(Seat::most).sum();
        layout.worth() >= best - 1e-9
    }

    fn parts(&self, layout: Layout) -> Vec<Option<Parts>> {
        let parts = |spot: Spot| -> Parts {
            spot.parts.into_iter().map(|(node, gpus)| (self.nodes[node].node, gpus)).collect()
        };
        layout.spots.into_iter().map(|spot| spot.map(parts)).collect()
    }
}

impl Seat {
    /// What its best way is worth.
    fn most(&self) -> f64 {
        self.ways.iter().map(|way| way.worth).fold(0.0, f64::max)
    }
}
