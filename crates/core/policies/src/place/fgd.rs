//! Fragmentation gradient descent: the node and GPU where the ask makes the fewest GPUs useless to what usually comes.

mod fragments;
mod target;

use self::fragments::{Fragments, Room};
use self::target::Target;
use crate::place::{CLASS, kinds};
use crate::prelude::*;
use std::collections::BTreeMap;
use trainyard_framework::fraction;
use trainyard_types::GpuAt;
use trainyard_types::placement::lowest_bits;

/// The row in the registry.
pub const ENTRY: PlaceEntry = Entry {
    name: "fgd",
    about: "The node and GPU where the ask makes the fewest free GPUs useless to the jobs that usually come.",
    paper: "Weng et al., Fragmentation Gradient Descent, USENIX ATC 2023",
    needs: Needs::NOTHING,
    class: CLASS,
    settings: &[
        (
            "window",
            "after so many further jobs a job counts half in what usually comes; 0 for never",
        ),
        ("popularity", "the share of all jobs that the classes looked at cover at least"),
        ("classes_max", "the most classes of jobs looked at"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Clone, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    window: u32,
    #[serde(deserialize_with = "crate::place::part")]
    popularity: f64,
    classes_max: u16,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { window: 1000, popularity: 0.95, classes_max: 32 }
    }
}

fn build(raw: &RawSettings) -> Result<Box<dyn Placer>, ConfigError> {
    let target = Target::new(raw.read(ENTRY.name)?);
    Ok(Box::new(Fgd { target, fragments: Fragments::default() }))
}

/// The placer. Nodes in equal states count once and the fragmentation of a state is computed once for each target, so
/// that a placement looks up as many states as there are: 64 for each type and one for each node with a partly used
/// GPU, or one for each node with room where the target asks for CPUs or host memory.
struct Fgd {
    target: Target,
    fragments: Fragments,
}

impl Placer for Fgd {
    fn try_place(&mut self, ask: &Ask<'_>, free: &Free, view: &View<'_>) -> Option<Placement> {
        if let Some(typical) = self.target.learn(view.state()) {
            self.fragments = Fragments::new(typical, view);
        }
        match (ask.permille < 1000, ask.count) {
            (true, 1) => self.share(ask, free),
            (true, _) => fraction::tightest(ask, free),
            (false, _) => self.on_one_node(ask, free).or_else(|| self.on_many_nodes(ask, free)),
        }
    }
}

impl Fgd {
    /// The node that holds the gang with the least increase of fragmentation; among equals the tightest, then by id.
    fn on_one_node(&mut self, ask: &Ask<'_>, free: &Free) -> Option<Placement> {
        let mut best: Option<(i64, u32, NodeId)> = None;
        for kind in kinds(ask, free).filter(|_| ask.count <= 64) {
            for node in self.distinct(ask, free, kind) {
                let increase = self.increase(ask, &Room::of(node, free), ask.count);
                let found = (increase, free.mask(node).count_ones(), node);
                best = Some(best.map_or(found, |best| best.min(found)));
            }
        }
        let (_, _, node) = best?;
        Some(Placement::on(node, lowest_bits(ask.usable_mask(node, free), ask.count)))
    }

    /// A share of the GPU with the least increase; among equals of the one with the least left, then by id.
    fn share(&mut self, ask: &Ask<'_>, free: &Free) -> Option<Placement> {
        let memory = ask.job.spec.want.gpu_memory_mib;
        let mut best: Option<(i64, u16, GpuAt)> = None;
        let accepted = free.kinds().into_iter().filter(|kind| ask.accepts(*kind));
        for kind in accepted {
            let partial = free.partial(kind, ask.permille);
            let partial = partial
                .filter(|(_, at)| ask.allows(at.node, free) && free.memory_left(*at) >= memory);
            let fresh = self.distinct(ask, free, kind).into_iter().map(|node| {
                let gpu = ask.usable_mask(node, free).trailing_zeros() as u8;
                (1000, GpuAt { node, gpu })
            });
            for (left, at) in partial.chain(fresh) {
                let before = Room::of(at.node, free);
                let after = before.with_share(ask, left);
                let increase = self.fragments.of(&after) - self.fragments.of(&before);
                let found = (increase, left, at);
                best = Some(best.map_or(found, |best| best.min(found)));
            }
        }
        best.map(|(_, _, at)| Placement::on(at.node, 1 << at.gpu))
    }

    /// As few nodes as possible, one by one, each with the least increase for each GPU it gives.
    fn on_many_nodes(&mut self, ask: &Ask<'_>, free: &Free) -> Option<Placement> {
        if ask.nodes_max == 1 {
            return None;
        }
        let found = kinds(ask, free).filter_map(|kind| self.gang(ask, free, kind));
        let (_, masks) = found.min_by_key(|(increase, _)| *increase)?;
        Some(Placement::from_masks(masks))
    }

    fn gang(&mut self, ask: &Ask<'_>, free: &Free, kind: GpuType) -> Option<Gang> {
        let mut groups = Groups::new(ask, free, kind);
        let mut nodes_left = groups.fewest_nodes(ask.count)?;
        if ask.nodes_max > 0 && nodes_left > u32::from(ask.nodes_max) {
            return None;
        }
        let mut rest = ask.count;
        let mut total = 0;
        let mut masks = Vec::with_capacity(nodes_left as usize);
        while rest > 0 {
            nodes_left -= 1;
            let steps = (0..groups.0.len()).filter_map(|index| {
                let group = &groups.0[index];
                let gpus = group.usable.min(rest);
                let node = *group.nodes.last()?;
                if groups.most_without(index, nodes_left) < rest - gpus {
                    return None;
                }
                let increase = self.increase(ask, &group.room, gpus);
                Some(Step { increase, gpus, usable: group.usable, node, group: index })
            });
            let step = steps.min_by(Step::cmp).expect("the roomiest node is always a step");
            groups.0[step.group].nodes.pop();
            masks.push((step.node, lowest_bits(ask.usable_mask(step.node, free), step.gpus)));
            rest -= step.gpus;
            total += step.increase;
        }
        Some((total, masks))
    }

    fn increase(&mut self, ask: &Ask<'_>, room: &Room, gpus: u32) -> i64 {
        let after = room.with_gpus(ask, gpus);
        self.fragments.of(&after) - self.fragments.of(room)
    }

    /// Nodes that hold the gang, one for each state as far as that is known without looking.
    fn distinct(&self, ask: &Ask<'_>, free: &Free, kind: GpuType) -> Vec<NodeId> {
        let holds = |node: &NodeId| ask.usable(*node, free) >= ask.count;
        if self.fragments.sees_hosts() {
            return free.tightest(kind, ask.count).filter(holds).collect();
        }
        let mut mixed: Vec<NodeId> = free.partial(kind, 1).map(|(_, at)| at.node).collect();
        mixed.sort_unstable();
        mixed.dedup();
        let plain = |node: &NodeId| mixed.binary_search(node).is_err() && holds(node);
        let firsts =
            (ask.count..=64).filter_map(|count| free.nodes_with(kind, count).iter().find(plain));
        let mut nodes: Vec<NodeId> = firsts.collect();
        nodes.extend(mixed.iter().copied().filter(holds));
        nodes
    }
}

/// The increase of fragmentation, and the GPUs.
type Gang = (i64, Vec<(NodeId, u64)>);

/// A node that a gang may take next.
struct Step {
    increase: i64,
    gpus: u32,
    usable: u32,
    node: NodeId,
    group: usize,
}

impl Step {
    /// By the increase for each GPU, then more GPUs first, then fewer left over, then by id.
    fn cmp(&self, other: &Step) -> std::cmp::Ordering {
        let here = self.increase * i64::from(other.gpus);
        let there = other.increase * i64::from(self.gpus);
        let size = |step: &Step| (std::cmp::Reverse(step.gpus), step.usable, step.node);
        here.cmp(&there).then(size(self).cmp(&size(other)))
    }
}

/// Nodes in the same state.
struct Group {
    room: Room,
    usable: u32,
    /// Lowest id last.
    nodes: Vec<NodeId>,
}

/// All nodes of a type with room, those with the most usable GPUs first.
struct Groups(Vec<Group>);

impl Groups {
    fn new(ask: &Ask<'_>, free: &Free, kind: GpuType) -> Groups {
        let mut by_state: BTreeMap<(u32, Room), Vec<NodeId>> = BTreeMap::new();
        for node in free.tightest(kind, 1) {
            let usable = ask.usable(node, free);
            if usable > 0 {
                by_state.entry((usable, Room::of(node, free))).or_default().push(node);
            }
        }
        let groups = by_state.into_iter().rev().map(|((usable, room), mut nodes)| {
            nodes.reverse();
            Group { room, usable, nodes }
        });
        Groups(groups.collect())
    }

    /// How many nodes the gang needs at least.
    fn fewest_nodes(&self, count: u32) -> Option<u32> {
        let mut rest = count;
        let mut nodes = 0;
        for group in &self.0 {
            let taken = (group.nodes.len() as u32).min(rest.div_ceil(group.usable));
            nodes += taken;
            rest = rest.saturating_sub(taken * group.usable);
        }
        (rest == 0).then_some(nodes)
    }

    /// The most GPUs that so many nodes give when one of a group is left out.
    fn most_without(&self, left_out: usize, nodes: u32) -> u32 {
        let mut nodes_left = nodes;
        let mut gpus = 0;
        for (index, group) in self.0.iter().enumerate() {
            let taken = (group.nodes.len() as u32 - u32::from(index == left_out)).min(nodes_left);
            gpus += taken * group.usable;
            nodes_left -= taken;
        }
        gpus
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::tests::{Yard, any_want, any_yard, wants, wants_share};
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;
    use trainyard_types::Want;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 500, rng_seed: RngSeed::Fixed(23), failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn no_node_left_out_as_equal_would_have_been_better(yard in any_yard(), want in any_want()) {
            let want = Want { permille: 1000, ..want };
            yard.ask(want, |ask, free, view| {
                let mut target = Target::new(Settings::default());
                let fragments = Fragments::new(target.learn(view.state()).unwrap(), view);
                let mut fgd = Fgd { target, fragments };
                let nodes = (0..free.nodes()).map(NodeId).filter(|node| {
                    ask.accepts(free.kind(*node)) && ask.usable(*node, free) >= ask.count
                });
                let best = nodes.map(|node| fgd.increase(ask, &Room::of(node, free), ask.count)).min();
                let found = fgd.on_one_node(ask, free).map(|found| {
                    fgd.increase(ask, &Room::of(found.masks()[0].0, free), ask.count)
                });
                assert_eq!(found, best);
            });
        }
    }

    #[test]
    fn a_small_job_spares_the_gap_that_a_usual_job_fits() {
        // Free: 3 and 4 of 8. Where gangs of 4 are usual, one GPU of node 1 would make its other three useless.
        let yard = Yard::new("2x8 v100").taken("n0[0-4] n1[0-3]").seen([wants(4), wants(4)]);
        assert_eq!(yard.place("fgd", wants(1)), "n0[5]");
        // Free: 4 and 5. The fifth GPU of node 1 is of no use to a gang of 4.
        let yard = Yard::new("2x8 v100").taken("n0[0-3] n1[0-2]").seen([wants(4), wants(4)]);
        assert_eq!(yard.place("fgd", wants(1)), "n1[3]");
    }

    #[test]
    fn a_share_goes_where_the_rest_stays_useful() {
        // Left: 600 and 500 thousandths. Halves are usual: 100 of the first still leaves a half.
        let yard = Yard::new("1x2 v100").shared("n0[0]", 400).shared("n0[1]", 500);
        let halves = yard.clone().seen((0..9).map(|_| wants_share(500)));
        assert_eq!(halves.place("fgd", wants_share(100)), "n0[0]");
        assert_eq!(yard.place("fewest-nodes", wants_share(100)), "n0[1]");
    }

    #[test]
    fn a_share_spares_whole_gpus_where_they_are_wanted() {
        let yard = Yard::new("2x2 v100").shared("n1[0]", 200).seen((0..9).map(|_| wants(2)));
        assert_eq!(yard.place("fgd", wants_share(100)), "n1[0]");
    }

    #[test]
    fn gpus_without_cpus_are_fragments_and_are_taken_first() {
        // Node 0 has CPUs for one GPU of the usual jobs only; one that needs none goes there.
        let mut yard =
            Yard::new("2x4 v100").seen((0..9).map(|_| Want { cpus_per_gpu: 8, ..wants(2) }));
        yard.cluster().nodes[0].cpus = 8;
        yard.cluster().nodes[1].cpus = 64;
        assert_eq!(yard.place("fgd", wants(2)), "n0[0-1]");
        yard.cluster().nodes[0].cpus = 64;
        yard.cluster().nodes[1].cpus = 8;
        assert_eq!(yard.place("fgd", wants(2)), "n1[0-1]");
    }

    #[test]
    fn a_gang_of_many_nodes_takes_the_rest_where_it_harms_least() {
        // Free: 8, 8, 5, 4. Gangs of 4 are usual: the rest of 12 takes the 4 and not 4 of the 5.
        let yard = Yard::new("4x8 v100").taken("n2[0-2] n3[0-3]").seen((0..9).map(|_| wants(4)));
        assert_eq!(yard.place("fgd popularity=0.8", wants(12)), "n0[0-7] n3[4-7]");
    }
}
