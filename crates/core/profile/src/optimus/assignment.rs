//! Which parameter server holds which parameters: Optimus' parameter assignment (PAA).
//!
//! A model is a list of blocks, one for each of its tensors. In every step each worker sends and fetches every block, a
//! request for each slice of one. A step waits for the server with most parameters, and every request costs; so loads
//! should be equal and blocks be cut as little as possible.

/// A part of a block, or all of it, on a server.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The number of the block in the list.
    pub block: usize,
    /// The number of the server.
    pub server: usize,
    /// How many parameters.
    pub parameters: u64,
}

/// What one server holds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerLoad {
    /// Parameters.
    pub parameters: u64,
    /// Slices: requests of each worker in a step.
    pub requests: u32,
}

/// All blocks on servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// Where each part is, in the order in which they were assigned.
    pub slices: Vec<Slice>,
    /// What each server holds.
    pub loads: Vec<ServerLoad>,
}

/// A block of at most this part of the mean load of a server counts as small: only its request costs.
const SMALL: f64 = 0.01;

/// Blocks above this many parameters are cut over all servers by MXNet.
pub const MXNET_BOUND: u64 = 1_000_000;

impl Assignment {
    /// By Optimus' rules, largest block first: a block above the mean load is cut into slices of that size, each on the
    /// server with least; one up to the mean goes where it fits best, or where there is least; a small one goes to the
    /// server with the fewest requests. O(b log b + b s) for b blocks and s servers.
    pub fn balanced(blocks: &[u64], servers: u32) -> Assignment {
        let mut assignment = Assignment::over(servers);
        let mean = blocks.iter().sum::<u64>().div_ceil(u64::from(servers.max(1))).max(1);
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        order.sort_by_key(|&block| (std::cmp::Reverse(blocks[block]), block));
        for block in order {
            let size = blocks[block];
            if size as f64 <= SMALL * mean as f64 {
                assignment.put(block, assignment.least(|load| u64::from(load.requests)), size);
            } else if size <= mean {
                let fits = assignment.tightest(size, mean);
                let server = fits.unwrap_or_else(|| assignment.least(|load| load.parameters));
                assignment.put(block, server, size);
            } else {
                let mut rest = size;
                while rest > 0 {
                    let part = rest.min(mean);
                    assignment.put(block, assignment.least(|load| load.parameters), part);
                    rest -= part;
                }
            }
        }
        assignment
    }

    /// As MXNet does it: a block above a bound is cut into equal parts over all servers, any other goes to a server that
    /// follows from its number.
    pub fn by_bound(blocks: &[u64], servers: u32, bound: u64) -> Assignment {
        let mut assignment = Assignment::over(servers);
        let count = u64::from(servers.max(1));
        for (block, &size) in blocks.iter().enumerate() {
            if size < bound {
                assignment.put(block, ((block as u64 * 9973) % count) as usize, size);
                continue;
            }
            for server in 0..count {
                let part = size * (server + 1) / count - size * server / count;
                assignment.put(block, server as usize, part);
            }
        }
        assignment
    }

    fn over(servers: u32) -> Assignment {
        let loads = vec![ServerLoad::default(); servers.max(1) as usize];
        Assignment { slices: Vec::new(), loads }
    }

    fn put(&mut self, block: usize, server: usize, parameters: u64) {
        self.slices.push(Slice { block, server, parameters });
        self.loads[server].parameters += parameters;
        self.loads[server].requests += 1;
    }

    /// The server that is lowest by a measure, then by what it holds, then by its number.
    fn least(&self, measure: impl Fn(&ServerLoad) -> u64) -> usize {
        let key = |server: &usize| {
            let load = &self.loads[*server];
            (measure(load), load.parameters, *server)
        };
        (0..self.loads.len()).min_by_key(key).unwrap_or(0)
    }

    /// The fullest server on which a block stays within the mean.
    fn tightest(&self, size: u64, mean: u64) -> Option<usize> {
        let fits = |server: &usize| self.loads[*server].parameters + size <= mean;
        let key = |server: &usize| (self.loads[*server].parameters, std::cmp::Reverse(*server));
        (0..self.loads.len()).filter(fits).max_by_key(key)
    }

    /// The load of the fullest server as a multiple of the mean: 1 where all are equal.
    ///
    /// The time in which workers exchange parameters with p servers grows by this factor ([`super::SpeedModel::rate_on`]).
    pub fn imbalance(&self) -> f64 {
        let most = self.loads.iter().map(|load| load.parameters).max().unwrap_or(0);
        let all: u64 = self.loads.iter().map(|load| load.parameters).sum();
        if all == 0 { 1.0 } else { most as f64 * self.loads.len() as f64 / all as f64 }
    }

    /// Parameters by which the fullest and the emptiest server differ.
    pub fn spread(&self) -> u64 {
        let parameters = || self.loads.iter().map(|load| load.parameters);
        parameters().max().unwrap_or(0) - parameters().min().unwrap_or(0)
    }

    /// Requests of each worker in a step.
    pub fn requests(&self) -> u32 {
        self.loads.iter().map(|load| load.requests).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The tensors of ResNet-50, from its architecture: a convolution is one tensor, its normalisation two.
    fn resnet50() -> Vec<u64> {
        let mut blocks = vec![7 * 7 * 3 * 64, 64, 64];
        let mut conv =
            |from: u64, to: u64, side: u64| blocks.extend([side * side * from * to, to, to]);
        let mut wide = 64;
        for (width, count) in [(64, 3), (128, 4), (256, 6), (512, 3)] {
            for block in 0..count {
                conv(wide, width, 1);
                conv(width, width, 3);
                conv(width, 4 * width, 1);
                if block == 0 {
                    conv(wide, 4 * width, 1);
                }
                wide = 4 * width;
            }
        }
        blocks.extend([2048 * 1000, 1000]);
        blocks
    }

    #[test]
    fn resnet50_is_nearly_even_on_ten_servers_with_few_requests() {
        let blocks = resnet50();
        assert_eq!(blocks.iter().sum::<u64>(), 25_557_032, "the known size of the model");
        let ours = Assignment::balanced(&blocks, 10);
        let theirs = Assignment::by_bound(&blocks, 10, MXNET_BOUND);
        assert!(ours.imbalance() < 1.02 && theirs.imbalance() > 1.13, "{ours:?} {theirs:?}");
        assert_eq!((ours.spread(), theirs.spread()), (102_912, 718_264));
        assert_eq!((ours.requests(), theirs.requests()), (161, 251), "of 161 tensors");
    }

    #[test]
    fn each_rule_is_taken_where_it_holds() {
        // A mean of 100: 150 is cut, 60 and 40 share a server, 45 goes to the least, 1 to the fewest requests.
        let blocks = [150, 60, 40, 45, 1, 4];
        let found = Assignment::balanced(&blocks, 3);
        let of = |block: usize| -> Vec<(usize, u64)> {
            let slices = found.slices.iter().filter(|slice| slice.block == block);
            slices.map(|slice| (slice.server, slice.parameters)).collect()
        };
        assert_eq!(of(0), [(0, 100), (1, 50)]);
        assert_eq!(of(1), [(2, 60)], "no server has 60 left beside the mean but the empty one");
        assert_eq!(of(3), [(1, 45)], "the fullest on which it fits");
        assert_eq!(of(2), [(2, 40)]);
        assert_eq!(of(5), [(1, 4)]);
        assert_eq!(of(4), [(0, 1)], "the fewest requests, however full");
        assert_eq!(Assignment::balanced(&blocks, 0).loads.len(), 1);
        assert_eq!(Assignment::balanced(&[], 4).imbalance(), 1.0);
    }

    proptest! {
        #[test]
        fn no_parameter_is_lost_and_no_server_holds_two_means(
            blocks in prop::collection::vec(0u64..5_000_000, 0..60),
            servers in 1u32..20,
        ) {
            let found = Assignment::balanced(&blocks, servers);
            for (block, size) in blocks.iter().enumerate() {
                let parts = found.slices.iter().filter(|slice| slice.block == block);
                prop_assert_eq!(parts.map(|slice| slice.parameters).sum::<u64>(), *size);
            }
            // What is put where there is least is put below the mean and is no larger; what is small may come on top.
            let small = blocks.len() as f64 * SMALL;
            prop_assert!(found.imbalance() <= 2.0 + small + 1e-3, "{}", found.imbalance());
        }
    }
}
