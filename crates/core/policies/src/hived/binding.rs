//! Which cells the virtual cells are bound to at a decision (Zhao et al., HiveD, OSDI 2020, section 3.3).

use super::forest::{Buddies, Forest};
use std::sync::Arc;
use trainyard_types::{Cells, Cluster, Placement};

/// A cell that a virtual cluster owns.
#[derive(Copy, Clone, Debug)]
struct Virtual {
    owner: usize,
    chain: usize,
    level: u16,
    bound: Option<u32>,
}

/// What the binding of a decision follows, as masks by node.
pub(super) struct Present<'a> {
    /// What guaranteed jobs hold, for each virtual cluster.
    pub(super) used: &'a [Vec<Placement>],
    /// GPUs out of service.
    pub(super) bad: &'a [u64],
    /// GPUs of jobs that may be stopped for guaranteed ones.
    pub(super) opportunistic: &'a [u64],
    /// Whether a virtual cluster has jobs that wait.
    pub(super) waits: &'a [bool],
}

/// The binding. Cells in use stay bound; the others are bound anew at each decision, so that those that need one get
/// those that cost opportunistic jobs least.
pub(super) struct Binding {
    pub(super) cells: Arc<Cells>,
    forests: Vec<Forest>,
    owned: Vec<Virtual>,
    nodes: usize,
}

impl Binding {
    pub(super) fn new(cells: &Arc<Cells>, cluster: &Cluster) -> Binding {
        let forests = cells.chains.iter().map(|chain| Forest::new(chain, cluster)).collect();
        let mut owned = Vec::new();
        for (owner, one) in cells.virtual_clusters.iter().enumerate() {
            for count in &one.cells {
                let (chain, level) = (usize::from(count.chain), count.level);
                let cell = Virtual { owner, chain, level, bound: None };
                owned.extend(std::iter::repeat_n(cell, count.count as usize));
            }
        }
        // Largest first: with nested sizes that packs whenever anything does. Of equals by owner.
        owned.sort_by_key(|cell| (cell.chain, std::cmp::Reverse(cell.level), cell.owner));
        Binding { cells: cells.clone(), forests, owned, nodes: cluster.nodes.len() }
    }

    /// Binds what is needed and what may be. Returns the GPUs of each virtual cluster, by node.
    ///
    /// O(cells log cells), and once more for each virtual cell whose binding was forgotten.
    pub(super) fn bind(&mut self, present: &Present<'_>) -> Vec<Vec<u64>> {
        let owners = self.cells.virtual_clusters.len();
        let used: Vec<Vec<u64>> = present.used.iter().map(|jobs| self.masks(jobs)).collect();
        for cell in &mut self.owned {
            let forest = &self.forests[cell.chain];
            cell.bound = cell.bound.filter(|at| forest.count(*at, &used[cell.owner]) > 0);
        }
        self.recognise(&used);
        for chain in 0..self.forests.len() {
            self.bind_rest(chain, present);
        }
        let mut may = vec![vec![0u64; self.nodes]; owners];
        for cell in &self.owned {
            let bound = cell.bound.into_iter();
            for (node, mask) in bound.flat_map(|at| self.forests[cell.chain].masks(at)) {
                may[cell.owner][node.index()] |= mask;
            }
        }
        may
    }

    fn masks(&self, placements: &[Placement]) -> Vec<u64> {
        let mut masks = vec![0u64; self.nodes];
        for (node, mask) in placements.iter().flat_map(Placement::masks) {
            masks[node.index()] |= mask;
        }
        masks
    }

    /// Finds bindings again that were forgotten, as after a restart: the largest unbound cell of an owner is bound where
    /// it covers most of what no bound cell covers. What stays uncovered is not guaranteed any more.
    fn recognise(&mut self, used: &[Vec<u64>]) {
        let mut uncovered: Vec<Vec<u64>> = used.to_vec();
        let mut closed = vec![0u64; self.nodes];
        for cell in &self.owned {
            for (node, mask) in cell.bound.iter().flat_map(|at| self.forests[cell.chain].masks(*at))
            {
                uncovered[cell.owner][node.index()] &= !mask;
                closed[node.index()] |= mask;
            }
        }
        if uncovered.iter().flatten().all(|mask| *mask == 0) {
            return;
        }
        let forests = &self.forests;
        for cell in self.owned.iter_mut().filter(|cell| cell.bound.is_none()) {
            let forest = &forests[cell.chain];
            let others = |at: u32| {
                let held = used.iter().enumerate().filter(|(owner, _)| *owner != cell.owner);
                forest.count(at, &closed)
                    + held.map(|(_, masks)| forest.count(at, masks)).sum::<u32>()
            };
            let covers = |at: &u32| forest.count(*at, &uncovered[cell.owner]);
            let open = forest.of_level(cell.level).filter(|at| covers(at) > 0 && others(*at) == 0);
            let best = open.max_by_key(|at| (covers(at), std::cmp::Reverse(*at)));
            for (node, mask) in best.iter().flat_map(|at| forest.masks(*at)) {
                uncovered[cell.owner][node.index()] &= !mask;
                closed[node.index()] |= mask;
            }
            cell.bound = best;
        }
    }

    /// Binds the virtual cells of a chain that no job uses, largest first; of one size those that are needed now first.
    /// One that finds no cell, as where machines hold jobs that the guarantee does not know, stays unbound.
    fn bind_rest(&mut self, chain: usize, present: &Present<'_>) {
        let of_chain = |cell: &&mut Virtual| cell.chain == chain;
        let taken: Vec<u32> =
            self.owned.iter_mut().filter(of_chain).filter_map(|one| one.bound).collect();
        let masks = (present.bad, present.opportunistic);
        let mut buddies = Buddies::new(&self.forests[chain], &taken, masks);
        let open = |cell: &&mut Virtual| cell.bound.is_none();
        let mut rest: Vec<&mut Virtual> =
            self.owned.iter_mut().filter(of_chain).filter(open).collect();
        rest.sort_by_key(|cell| (std::cmp::Reverse(cell.level), !present.waits[cell.owner]));
        for cell in rest {
            cell.bound = buddies.allocate(cell.level, present.waits[cell.owner]);
        }
    }
}
