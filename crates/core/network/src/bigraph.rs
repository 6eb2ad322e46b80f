//! EFLOPS: a network of two sides, ranks placed so that halving and doubling never share a link, and NICs bound to GPUs
//! (Dong and others, HPCA 2020).
//!
//! A BiGraph has two sets of switches; every switch of one side has equal links to every switch of the other, and none
//! to its own side. Between NICs on opposite sides of it there is one way through each parallel link, so that placing
//! ranks is choosing paths.

/// A BiGraph with one NIC for each rank.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct BiGraph {
    /// Switches of each side, a power of two.
    pub switches: usize,
    /// NICs at each switch, a power of two.
    pub nics: usize,
    /// Links between each pair of switches of opposite sides.
    pub parallel: usize,
}

/// Why ranks cannot be placed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BiGraphError {
    /// The construction needs powers of two.
    #[error("{what} are {count}: expected a power of two")]
    NoPowerOfTwo {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
    },
    /// Switches of opposite sides are joined.
    #[error("a BiGraph without links between its sides joins nothing: expected at least 1")]
    NoLinks,
}

/// Where a rank is: its side, the switch there and the NIC at the switch.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NicAt {
    /// 0 or 1.
    pub side: usize,
    /// The switch within its side.
    pub switch: usize,
    /// The NIC at the switch.
    pub nic: usize,
}

impl BiGraph {
    /// A BiGraph whose switches have as many links to the other side as NICs.
    pub fn balanced(switches: usize, nics: usize) -> Result<BiGraph, BiGraphError> {
        let graph = BiGraph { switches, nics, parallel: nics.div_ceil(switches.max(1)).max(1) };
        graph.check()?;
        Ok(graph)
    }

    fn check(&self) -> Result<(), BiGraphError> {
        for (what, count) in
            [("switches of a side", self.switches), ("NICs at a switch", self.nics)]
        {
            if !count.is_power_of_two() {
                return Err(BiGraphError::NoPowerOfTwo { what, count });
            }
        }
        if self.parallel == 0 { Err(BiGraphError::NoLinks) } else { Ok(()) }
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        2 * self.switches * self.nics
    }

    /// Ranks one after the other, switch by switch and side by side.
    pub fn in_order(&self) -> Vec<NicAt> {
        let place = |rank: usize| NicAt {
            side: rank / (self.switches * self.nics),
            switch: rank / self.nics % self.switches,
            nic: rank % self.nics,
        };
        (0..self.ranks()).map(place).collect()
    }

    /// Halving and doubling with rank mapping (HDRM).
    ///
    /// The side of a rank is the parity of its bits, so that partners, who differ in one bit, are on opposite sides. Of
    /// the bits above the lowest, the low ones are the switch on one side and the high ones on the other: the ranks of
    /// a switch then have partners that are spread evenly over the switches of the other side, in every step.
    pub fn mapped(&self) -> Result<Vec<NicAt>, BiGraphError> {
        self.check()?;
        let half = self.switches * self.nics;
        let place = |rank: usize| {
            let (side, index) = (rank.count_ones() as usize % 2, rank / 2);
            if side == 0 {
                NicAt { side, switch: index % self.switches, nic: index / self.switches }
            } else {
                let nics = half / self.switches;
                NicAt { side, switch: index / nics, nic: index % nics }
            }
        };
        Ok((0..self.ranks()).map(place).collect())
    }

    /// The most flows on one link in each step of halving and doubling, when ranks are at these places.
    ///
    /// Flows between two switches of opposite sides are spread over their parallel links. Between switches of the same
    /// side a flow goes over the switch of the other side that `detour` names for its two ends.
    pub fn most_flows(
        &self,
        places: &[NicAt],
        mut detour: impl FnMut(NicAt, NicAt) -> usize,
    ) -> Vec<usize> {
        let count = self.switches;
        let steps = places.len().ilog2();
        let mut most = Vec::with_capacity(steps as usize);
        for bit in 0..steps {
            // Flows between switches, by the side that they leave: from one of it to one of the other.
            let mut flows = vec![0usize; 2 * count * count];
            for (rank, from) in places.iter().enumerate() {
                let to = places[rank ^ (1 << bit)];
                if from.side != to.side {
                    flows[(from.side * count + from.switch) * count + to.switch] += 1;
                } else if from.switch != to.switch {
                    let over = detour(*from, to) % count;
                    flows[(from.side * count + from.switch) * count + over] += 1;
                    flows[((1 - from.side) * count + over) * count + to.switch] += 1;
                }
            }
            let busiest = flows.into_iter().max().unwrap_or(0);
            most.push(busiest.div_ceil(self.parallel).max(1));
        }
        most
    }
}

/// A GPU or a NIC of a server by the PCIe root that it hangs on.
pub type PcieRoot = usize;

/// Which NIC each GPU uses: one on its own PCIe root where there is one, and each as often as any other.
///
/// GPUs of a root share its NICs in turn; those of a root without one get the NIC that has the fewest, the first of
/// equals. Empty when there is no NIC.
pub fn bind_nics(gpus: &[PcieRoot], nics: &[PcieRoot]) -> Vec<usize> {
    let mut users = vec![0usize; nics.len()];
    let mut bound = vec![None; gpus.len()];
    for own in [true, false] {
        for (gpu, root) in gpus.iter().enumerate().filter(|(_, _)| !nics.is_empty()) {
            let fits = |nic: &usize| !own || nics[*nic] == *root;
            if bound[gpu].is_none()
                && let Some(nic) =
                    (0..nics.len()).filter(fits).min_by_key(|nic| (users[*nic], *nic))
            {
                users[nic] += 1;
                bound[gpu] = Some(nic);
            }
        }
    }
    bound.into_iter().flatten().collect()
}

/// What a server's paths to its NICs carry, in bytes per second.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct ServerPaths {
    /// A NIC.
    pub nic: f64,
    /// The PCIe link between a root and what hangs on it.
    pub root: f64,
    /// The way between roots.
    pub across: f64,
}

/// Bytes per second that each GPU can send over its NIC when all send at once.
pub fn send_rates(
    gpus: &[PcieRoot],
    nics: &[PcieRoot],
    bound: &[usize],
    paths: &ServerPaths,
) -> Vec<f64> {
    let roots = gpus.iter().chain(nics).max().map_or(0, |root| root + 1);
    let link = |at: usize| trainyard_types::LinkId(at as u32);
    // NICs first, then the way out of each root, then the way between roots.
    let mut capacities = vec![paths.nic; nics.len()];
    capacities.extend(vec![paths.root; roots]);
    capacities.push(paths.across);
    let flows: Vec<_> = (gpus.iter().zip(bound))
        .map(|(root, nic)| {
            let mut links = vec![link(*nic)];
            if nics[*nic] != *root {
                links.extend([link(nics.len() + root), link(nics.len() + roots)]);
            }
            links
        })
        .collect();
    crate::flows::max_min(&capacities, &flows)
}
