//! Application graphs in hardware graphs: which wires a set of GPUs can use for a pattern.

use smallvec::{SmallVec, smallvec};
use trainyard_types::placement::bits;
use trainyard_types::{Inside, Pattern, WireKind};

/// How many wires of each class a matching uses.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Used {
    /// Pairs with two NVLinks or more, or over a switch.
    pub double: u8,
    /// Pairs with one NVLink.
    pub single: u8,
    /// Pairs over PCIe.
    pub pcie: u8,
}

/// Up to so many GPUs all matchings are kept, above it that with the most bandwidth of each set.
const EXACT_GPUS_MAX: usize = 8;
/// Larger nodes are matched one set at a time, nearest wire first.
const TABLE_GPUS_MAX: usize = 16;
/// Wires of a ring in a node whose matchings are all kept, and one more.
const SIDE: u32 = 9;

/// The matchings of a pattern with the sets of GPUs of a kind of node.
#[derive(Clone, Debug)]
pub struct Matches {
    gpus: usize,
    pattern: Pattern,
    /// By pair, row by row: 0 for double, 1 for single, 2 for PCIe.
    classes: Vec<u8>,
    /// GB/s of each class.
    gbytes: [f64; 3],
    paths: Paths,
}

/// Paths through all GPUs of a set, by set and last GPU.
#[derive(Clone, Debug)]
enum Paths {
    /// The numbers of double and single wires that some path has, one bit for each.
    All(Vec<u128>),
    /// The double and single wires of the path with the most bandwidth; nothing where there is none.
    Best(Vec<Option<(u8, u8)>>),
    /// Not needed, or too many.
    None,
}

impl Matches {
    /// Works out all matchings of a pattern.
    pub fn new(inside: &Inside, pattern: Pattern) -> Matches {
        let gpus = usize::from(inside.gpus);
        let mut matches = Matches {
            gpus,
            pattern,
            classes: vec![2; gpus * gpus],
            gbytes: [0.0; 3],
            paths: Paths::None,
        };
        let mut seen = [0u32; 3];
        for (a, b) in (0..gpus).flat_map(|a| (0..gpus).map(move |b| (a, b))).filter(|(a, b)| a != b)
        {
            let wire = inside.wire(a as u8, b as u8);
            let class = match wire.kind {
                WireKind::NvLink(0 | 1) => 1,
                WireKind::NvLink(_) | WireKind::NvSwitch => 0,
                WireKind::Pcie => 2,
            };
            matches.classes[a * gpus + b] = class;
            // Wires of one class count alike: by their mean, where they are not.
            let (sum, count) =
                (&mut matches.gbytes[usize::from(class)], &mut seen[usize::from(class)]);
            *sum = (*sum * f64::from(*count) + wire.mbps as f64 / 8000.0) / f64::from(*count + 1);
            *count += 1;
        }
        if matches!(pattern, Pattern::Ring | Pattern::Pipeline) {
            matches.paths = if gpus <= EXACT_GPUS_MAX {
                Paths::All(matches.all_paths())
            } else if gpus <= TABLE_GPUS_MAX {
                Paths::Best(matches.best_paths())
            } else {
                Paths::None
            };
        }
        matches
    }

    /// The bandwidth of all wires of a matching together, in GB/s.
    pub fn gbytes(&self, used: Used) -> f64 {
        f64::from(used.double) * self.gbytes[0]
            + f64::from(used.single) * self.gbytes[1]
            + f64::from(used.pcie) * self.gbytes[2]
    }

    /// The matchings of the pattern with a set of GPUs: all that use different wires, or the best.
    pub fn of(&self, mask: u64) -> SmallVec<[Used; 16]> {
        let gpus: SmallVec<[usize; 16]> = bits(mask).map(usize::from).collect();
        if gpus.len() < 2 {
            return smallvec![Used::default()];
        }
        match self.pattern {
            Pattern::Ring | Pattern::Pipeline => self.along_paths(mask, &gpus),
            Pattern::Tree => smallvec![self.spanning_tree(&gpus)],
            Pattern::AllToAll => {
                let pairs = (0..gpus.len()).flat_map(|a| (a + 1..gpus.len()).map(move |b| (a, b)));
                smallvec![self.counted(pairs.map(|(a, b)| (gpus[a], gpus[b])))]
            }
            Pattern::ParameterServer => {
                let star = |centre: &usize| {
                    let others = gpus.iter().filter(|other| *other != centre);
                    self.counted(others.map(|other| (*centre, *other)))
                };
                let mut found: SmallVec<[Used; 16]> = gpus.iter().map(star).collect();
                found.sort_unstable();
                found.dedup();
                found
            }
        }
    }

    fn class(&self, a: usize, b: usize) -> u8 {
        self.classes[a * self.gpus + b]
    }

    fn counted(&self, pairs: impl Iterator<Item = (usize, usize)>) -> Used {
        let mut counts = [0u8; 3];
        pairs.for_each(|(a, b)| counts[usize::from(self.class(a, b))] += 1);
        Used { double: counts[0], single: counts[1], pcie: counts[2] }
    }

    /// The tree over all GPUs of a set with the most bandwidth.
    fn spanning_tree(&self, gpus: &[usize]) -> Used {
        let mut inside: SmallVec<[usize; 16]> = smallvec![gpus[0]];
        let mut edges: SmallVec<[(usize, usize); 16]> = SmallVec::new();
        while inside.len() < gpus.len() {
            let outside = gpus.iter().filter(|gpu| !inside.contains(gpu));
            let pairs = outside.flat_map(|to| inside.iter().map(move |from| (*from, *to)));
            let nearest = pairs.max_by(|a, b| {
                let gbytes =
                    |pair: &(usize, usize)| self.gbytes[usize::from(self.class(pair.0, pair.1))];
                gbytes(a).total_cmp(&gbytes(b)).then(b.cmp(a))
            });
            let nearest = nearest.expect("a GPU is left outside");
            edges.push(nearest);
            inside.push(nearest.1);
        }
        self.counted(edges.into_iter())
    }

    /// The rings, or the chains, through all GPUs of a set. A ring of two passes its wire twice.
    fn along_paths(&self, mask: u64, gpus: &[usize]) -> SmallVec<[Used; 16]> {
        let is_ring = self.pattern == Pattern::Ring;
        let wires = (gpus.len() - usize::from(!is_ring)) as u8;
        let close = |last: usize| if is_ring { self.class(last, gpus[0]) } else { 2 };
        let lasts = gpus.iter().filter(|last| !is_ring || **last != gpus[0]);
        let used = |double: u8, single: u8| Used { double, single, pcie: wires - double - single };
        match &self.paths {
            Paths::All(paths) => {
                let row = mask as usize * self.gpus;
                let sets = lasts.map(|last| with(paths[row + last], close(*last)));
                let all = sets.fold(0u128, |all, set| all | set);
                let mut found = SmallVec::new();
                let mut rest = all;
                while rest != 0 {
                    let bit = rest.trailing_zeros();
                    found.push(used((bit / SIDE) as u8, (bit % SIDE) as u8));
                    rest &= rest - 1;
                }
                found
            }
            Paths::Best(paths) => {
                let row = mask as usize * self.gpus;
                let ends = lasts.filter_map(|last| {
                    let (double, single) = paths[row + last]?;
                    let close = close(*last);
                    Some(used(double + u8::from(close == 0), single + u8::from(close == 1)))
                });
                let best = ends.max_by(|a, b| self.gbytes(*a).total_cmp(&self.gbytes(*b)));
                best.into_iter().collect()
            }
            Paths::None => {
                // From the lowest GPU on to the nearest that is left.
                let mut order: SmallVec<[usize; 64]> = smallvec![gpus[0]];
                while order.len() < gpus.len() {
                    let last = order[order.len() - 1];
                    let left = gpus.iter().filter(|gpu| !order.contains(gpu));
                    let next = left.min_by_key(|gpu| (self.class(last, **gpu), **gpu));
                    order.push(*next.expect("a GPU is left"));
                }
                let back = is_ring.then(|| (order[order.len() - 1], order[0]));
                let steps = order.windows(2).map(|pair| (pair[0], pair[1])).chain(back);
                smallvec![self.counted(steps)]
            }
        }
    }

    /// The GPUs that may come next on a path through `mask`: rings begin with their lowest GPU, chains anywhere.
    fn next(&self, mask: usize) -> impl Iterator<Item = usize> + use<> {
        let from = match self.pattern {
            Pattern::Ring => mask.trailing_zeros() as usize + 1,
            _ => 0,
        };
        (from..self.gpus).filter(move |gpu| mask >> gpu & 1 == 0)
    }

    fn all_paths(&self) -> Vec<u128> {
        let mut paths = vec![0u128; self.gpus << self.gpus];
        (0..self.gpus).for_each(|gpu| paths[(1 << gpu) * self.gpus + gpu] = 1);
        for mask in 1usize..1 << self.gpus {
            for last in 0..self.gpus {
                let here = paths[mask * self.gpus + last];
                if here == 0 {
                    continue;
                }
                for next in self.next(mask) {
                    let after = with(here, self.class(last, next));
                    paths[(mask | 1 << next) * self.gpus + next] |= after;
                }
            }
        }
        paths
    }

    fn best_paths(&self) -> Vec<Option<(u8, u8)>> {
        let mut paths = vec![None; self.gpus << self.gpus];
        (0..self.gpus).for_each(|gpu| paths[(1 << gpu) * self.gpus + gpu] = Some((0, 0)));
        // PCIe wires are what is left of the number of wires, which is the same for all paths of a set.
        let worth = |(double, single): (u8, u8)| {
            f64::from(double) * (self.gbytes[0] - self.gbytes[2])
                + f64::from(single) * (self.gbytes[1] - self.gbytes[2])
        };
        for mask in 1usize..1 << self.gpus {
            for last in 0..self.gpus {
                let Some((double, single)) = paths[mask * self.gpus + last] else { continue };
                for next in self.next(mask) {
                    let class = self.class(last, next);
                    let after = (double + u8::from(class == 0), single + u8::from(class == 1));
                    let there = &mut paths[(mask | 1 << next) * self.gpus + next];
                    if there.is_none_or(|other| worth(after) > worth(other)) {
                        *there = Some(after);
                    }
                }
            }
        }
        paths
    }
}

/// The set of counts after one more wire of a class.
fn with(set: u128, class: u8) -> u128 {
    match class {
        0 => set << SIDE,
        1 => set << 1,
        _ => set,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All orders of some GPUs, counted one by one.
    fn by_hand(matches: &Matches, gpus: &[usize]) -> Vec<Used> {
        fn extend(
            matches: &Matches,
            left: &mut Vec<usize>,
            path: &mut Vec<usize>,
            found: &mut Vec<Used>,
        ) {
            if left.is_empty() {
                let is_ring = matches.pattern == Pattern::Ring;
                let back = is_ring.then(|| (path[path.len() - 1], path[0]));
                let steps = path.windows(2).map(|pair| (pair[0], pair[1])).chain(back);
                found.push(matches.counted(steps));
                return;
            }
            for index in 0..left.len() {
                let gpu = left.remove(index);
                path.push(gpu);
                extend(matches, left, path, found);
                path.pop();
                left.insert(index, gpu);
            }
        }
        let mut found = Vec::new();
        extend(matches, &mut gpus.to_vec(), &mut Vec::new(), &mut found);
        found.sort_unstable();
        found.dedup();
        found
    }

    #[test]
    fn matchings_are_those_that_all_orders_give() {
        let inside = Inside::preset("dgx-1v", 8).unwrap();
        for pattern in [Pattern::Ring, Pattern::Pipeline] {
            let matches = Matches::new(&inside, pattern);
            for mask in [0b11u64, 0b1001, 0b100_0011, 0b1111, 0b1011_0101, 0b0111_1110] {
                let gpus: Vec<usize> = bits(mask).map(usize::from).collect();
                let mut found = matches.of(mask).to_vec();
                found.sort_unstable();
                assert_eq!(found, by_hand(&matches, &gpus), "{pattern:?} {mask:b}");
            }
        }
    }

    #[test]
    fn in_a_large_node_the_matching_with_the_most_bandwidth_is_kept() {
        let mut large = Inside::preset("pcie", 16).unwrap();
        let small = Inside::preset("dgx-1v", 8).unwrap();
        for (a, b) in (0..8u8).flat_map(|a| (0..a).map(move |b| (a, b))) {
            large.join((a, b), small.wire(a, b));
            large.join((a + 8, b + 8), small.wire(a, b));
        }
        let (exact, best) =
            (Matches::new(&small, Pattern::Ring), Matches::new(&large, Pattern::Ring));
        for mask in 1u64..256 {
            let most = |matches: &Matches, mask: u64| {
                matches.of(mask).iter().map(|used| matches.gbytes(*used)).fold(0.0, f64::max)
            };
            assert_eq!(most(&exact, mask), most(&best, mask << 8), "{mask:b}");
        }
    }

    #[test]
    fn a_tree_a_star_and_each_to_each_use_their_own_wires() {
        let inside = Inside::preset("dgx-1v", 8).unwrap();
        let of = |pattern| Matches::new(&inside, pattern).of(0b1111)[0];
        // GPUs 0 to 3: three double pairs, and three single ones.
        assert_eq!(of(Pattern::Tree), Used { double: 3, single: 0, pcie: 0 });
        assert_eq!(of(Pattern::AllToAll), Used { double: 3, single: 3, pcie: 0 });
        let stars = Matches::new(&inside, Pattern::ParameterServer).of(0b1111);
        assert!(stars.contains(&Used { double: 2, single: 1, pcie: 0 }));
    }
}
