//! MAPA: GPUs of a node whose wires suit the pattern of a job's communication, and what it leaves to others.

pub mod effective;
pub mod matching;

use crate::place::fewest_nodes::fewest_nodes;
use crate::place::{CLASS, kinds};
use crate::prelude::*;
use effective::{Correction, Effective};
use matching::Matches;
use smallvec::SmallVec;
use trainyard_framework::fraction;
use trainyard_types::placement::{bits, lowest_bits};
use trainyard_types::{Config, Inside, Pattern, WireKind};

/// The row in the registry.
pub const ENTRY: PlaceEntry = Entry {
    name: "mapa",
    about: "The GPUs of a node whose wires best carry the pattern of a job; one that needs no bandwidth leaves it to others.",
    paper: "Ranganath et al., MAPA, SC 2021",
    needs: Needs { rates: true, topology: true, ..Needs::NOTHING },
    class: CLASS,
    settings: &[
        ("rule", "how GPUs are chosen: `preserve`, `effbw`, `greedy`, `topo-aware` or `baseline`"),
        (
            "regression",
            "effective bandwidth as `published`, or `monotone`: never less for a faster wire",
        ),
        (
            "pattern",
            "who sends to whom: `auto` for what the model's profile says, or `ring`, `tree`, `all-to-all`, `pipeline`, `parameter-server`",
        ),
        (
            "sensitive_above",
            "a job is sensitive where the fastest wire of a node makes it faster than the slowest by more than this part",
        ),
        ("unknown_sensitive", "whether a job whose traffic is not known counts as sensitive"),
    ],
    defaults: defaults::<Settings>,
    build,
};

/// How GPUs are chosen.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Rule {
    /// The most effective bandwidth for a sensitive job, the most bandwidth left for any other.
    Preserve,
    /// The most effective bandwidth.
    Effbw,
    /// The most bandwidth, summed.
    Greedy,
    /// Within half of the node where that holds the job.
    TopoAware,
    /// The lowest.
    Baseline,
}

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    rule: Rule,
    regression: Correction,
    pattern: String,
    #[serde(deserialize_with = "crate::place::part")]
    sensitive_above: f64,
    unknown_sensitive: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            rule: Rule::Preserve,
            regression: Correction::Published,
            pattern: "auto".to_owned(),
            sensitive_above: 0.1,
            unknown_sensitive: true,
        }
    }
}

fn build(raw: &RawSettings) -> Result<Box<dyn Placer>, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    let known = Pattern::ALL.into_iter().find(|(name, _)| *name == settings.pattern);
    if settings.pattern != "auto" && known.is_none() {
        let names = Pattern::ALL.map(|(name, _)| name).join("`, `");
        let expected = format!("`auto`, `{names}`");
        return Err(ENTRY.bad_value("pattern", &settings.pattern, &expected));
    }
    let pattern = known.map(|(_, pattern)| pattern);
    Ok(Box::new(Mapa { settings, pattern, known: Vec::new(), effective: Effective::default() }))
}

/// Nodes that differ in what is free of them are looked at up to this number.
const NODES_MAX: usize = 64;

/// The placer. Matchings of a kind of node are worked out once for each pattern, in time of GPUs squared times two to
/// their number; after that a choice costs the sets of so many free GPUs of each node looked at.
struct Mapa {
    settings: Settings,
    pattern: Option<Pattern>,
    /// Matchings in kinds of nodes.
    known: Vec<(Inside, Pattern, Matches)>,
    effective: Effective,
}

/// How good some GPUs are: what counts first, then what decides among equals.
type Worth = (f64, f64);

impl Placer for Mapa {
    fn try_place(&mut self, ask: &Ask<'_>, free: &Free, view: &View<'_>) -> Option<Placement> {
        if ask.permille < 1000 {
            return fraction::tightest(ask, free);
        }
        let found = kinds(ask, free).find_map(|kind| self.in_a_node(ask, free, view, kind));
        found.or_else(|| fewest_nodes(ask, free))
    }
}

impl Mapa {
    /// The best GPUs of the best node; of equal ones those of the tightest.
    fn in_a_node(
        &mut self,
        ask: &Ask<'_>,
        free: &Free,
        view: &View<'_>,
        kind: GpuType,
    ) -> Option<Placement> {
        if ask.count > 64 {
            return None;
        }
        let mut seen: SmallVec<[(u64, u64); 8]> = SmallVec::new();
        let mut best: Option<(Worth, NodeId, u64)> = None;
        let holding = free.tightest(kind, ask.count);
        for node in holding.filter(|node| ask.usable(*node, free) >= ask.count) {
            let mask = ask.usable_mask(node, free);
            let inside = inside_of(view, node);
            // Nodes in the same state give the same answer; the lowest stands for them.
            let state = (mask, address(&inside, &self.known));
            if seen.contains(&state) && state.1 != u64::MAX {
                continue;
            }
            seen.push(state);
            let (worth, chosen) = self.choose(ask, view, &inside, mask);
            if best.is_none_or(|(other, ..)| {
                worth.0 > other.0 || worth.0 == other.0 && worth.1 > other.1
            }) {
                best = Some((worth, node, chosen));
            }
            if seen.len() >= NODES_MAX {
                break;
            }
        }
        best.map(|(_, node, mask)| Placement::on(node, mask))
    }

    /// The best GPUs of one node out of those that are free.
    fn choose(
        &mut self,
        ask: &Ask<'_>,
        view: &View<'_>,
        inside: &Inside,
        free: u64,
    ) -> (Worth, u64) {
        let lowest = lowest_bits(free, ask.count);
        if ask.count == 0 || inside.is_uniform() || free.count_ones() == ask.count {
            return ((0.0, 0.0), lowest);
        }
        let rule = match self.settings.rule {
            Rule::Preserve if ask.count > 1 && self.is_sensitive(ask, view, inside) => Rule::Effbw,
            Rule::Preserve | Rule::TopoAware | Rule::Baseline => self.settings.rule,
            Rule::Effbw | Rule::Greedy if ask.count < 2 => return ((0.0, 0.0), lowest),
            rule => rule,
        };
        match rule {
            Rule::Baseline => ((0.0, 0.0), lowest),
            Rule::TopoAware => ((0.0, 0.0), in_half(inside, free, ask.count).unwrap_or(lowest)),
            Rule::Preserve | Rule::Effbw | Rule::Greedy => {
                self.best(ask, view, inside, (free, rule))
            }
        }
    }

    /// The best of all sets of so many free GPUs, the lowest of equals.
    fn best(
        &mut self,
        ask: &Ask<'_>,
        view: &View<'_>,
        inside: &Inside,
        (free, rule): (u64, Rule),
    ) -> (Worth, u64) {
        let pattern = self.pattern.or_else(|| view.traffic(ask.job).map(|traffic| traffic.pattern));
        let at = self.matches(inside, pattern.unwrap_or_default());
        let (matches, correction) = (&self.known[at].2, self.settings.regression);
        let mut best: Option<(Worth, u64)> = None;
        for mask in subsets(free, ask.count) {
            let used = matches.of(mask);
            let most = used.iter().map(|used| matches.gbytes(*used)).fold(0.0, f64::max);
            let worth = match rule {
                Rule::Greedy => (most, 0.0),
                Rule::Preserve => (preserved(inside, free & !mask) - preserved(inside, free), most),
                _ => (self.effective.best(correction, matches, &used), most),
            };
            let better = |(other, _): &(Worth, u64)| {
                worth.0 > other.0 || worth.0 == other.0 && worth.1 > other.1
            };
            if best.as_ref().is_none_or(better) {
                best = Some((worth, mask));
            }
        }
        best.unwrap_or(((0.0, 0.0), lowest_bits(free, ask.count)))
    }

    fn matches(&mut self, inside: &Inside, pattern: Pattern) -> usize {
        let same =
            |(other, known, _): &(Inside, Pattern, Matches)| *known == pattern && other == inside;
        self.known.iter().position(same).unwrap_or_else(|| {
            let matches = Matches::new(inside, pattern);
            self.known.push((inside.clone(), pattern, matches));
            self.known.len() - 1
        })
    }

    /// Whether the wires that a job gets make it faster or slower: its speed over the fastest wire of a node against that
    /// over the slowest.
    fn is_sensitive(&self, ask: &Ask<'_>, view: &View<'_>, inside: &Inside) -> bool {
        if view.traffic(ask.job).is_none() {
            return self.settings.unknown_sensitive;
        }
        let kind = ask.kinds.first().copied().unwrap_or(GpuType(0));
        let on = Config::packed(kind, ask.count, u32::from(inside.gpus));
        let wires = || inside.pairs(u64::MAX).map(|wire| wire.mbps);
        let (slowest, fastest) = (wires().min().unwrap_or(1), wires().max().unwrap_or(1));
        let rate = |mbps: u64| view.rate_at_bandwidth(ask.job, &on, mbps as f64);
        match (rate(slowest), rate(fastest)) {
            (Some(slow), Some(fast)) => fast.0 > slow.0 * (1.0 + self.settings.sensitive_above),
            _ => self.settings.unknown_sensitive,
        }
    }
}

/// What a node looks like inside: as declared, or as nodes of its type usually do.
fn inside_of(view: &View<'_>, node: NodeId) -> Inside {
    let cluster = view.cluster();
    match &cluster.topology {
        Some(topology) => topology.inside(node).clone(),
        None => {
            let node = cluster.node(node);
            Inside::usual(&cluster.kinds[node.kind.index()].name, node.gpus)
        }
    }
}

/// Where a kind of node is known; the largest number if it is not.
fn address(inside: &Inside, known: &[(Inside, Pattern, Matches)]) -> u64 {
    known.iter().position(|(other, ..)| other == inside).map_or(u64::MAX, |index| index as u64)
}

/// The bandwidth of all NVLinks among some GPUs, in GB/s.
fn preserved(inside: &Inside, mask: u64) -> f64 {
    let linked = inside.pairs(mask).filter(|wire| wire.kind != WireKind::Pcie);
    linked.map(|wire| wire.mbps as f64 / 8000.0).sum()
}

/// The lowest free GPUs of the first half of a node that holds so many.
fn in_half(inside: &Inside, free: u64, count: u32) -> Option<u64> {
    let half = inside.gpus.div_ceil(2);
    let first = trainyard_types::cluster::mask_of(half);
    let halves = [free & first, free & !first];
    halves.into_iter().find(|half| half.count_ones() >= count).map(|half| lowest_bits(half, count))
}

/// All sets of so many of some GPUs, by the lowest first.
pub(crate) fn subsets(free: u64, count: u32) -> impl Iterator<Item = u64> {
    let gpus: SmallVec<[u8; 64]> = bits(free).collect();
    let count = count as usize;
    let mut chosen: SmallVec<[usize; 64]> = (0..count).collect();
    let mut more = count <= gpus.len();
    std::iter::from_fn(move || {
        if !more {
            return None;
        }
        let mask = chosen.iter().fold(0, |mask, index| mask | 1u64 << gpus[*index]);
        more = match (0..count).rev().find(|at| chosen[*at] < gpus.len() - (count - at)) {
            None => false,
            Some(at) => {
                chosen[at] += 1;
                for next in at + 1..count {
                    chosen[next] = chosen[next - 1] + 1;
                }
                true
            }
        };
        Some(mask)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::tests::{Yard, wants};

    #[test]
    fn every_set_of_free_gpus_is_looked_at_once() {
        let sets: Vec<u64> = subsets(0b1101_0011, 3).collect();
        assert_eq!(sets.len(), 10);
        assert_eq!((sets[0], sets[9]), (0b0001_0011, 0b1101_0000));
        assert_eq!(subsets(0b1, 2).count(), 0);
        assert_eq!(subsets(0b11, 2).collect::<Vec<_>>(), [0b11]);
    }

    #[test]
    fn a_pair_gets_two_nvlinks_and_a_single_gpu_leaves_them() {
        let yard = Yard::new("1x8 v100");
        assert_eq!(yard.place("mapa rule=baseline", wants(2)), "n0[0-1]");
        assert_eq!(yard.place("mapa rule=greedy", wants(2)), "n0[0,3]");
        assert_eq!(yard.place("mapa", wants(2)), "n0[0,3]");
        // One GPU of a job that is not sensitive goes where it costs the others the least NVLink.
        let modest = "mapa unknown_sensitive=false";
        assert_eq!(yard.clone().taken("n0[0]").place(modest, wants(1)), "n0[3]");
    }

    #[test]
    fn half_a_node_is_kept_to_where_it_has_room() {
        let yard = Yard::new("1x8 v100").taken("n0[0-1]");
        assert_eq!(yard.place("mapa rule=topo-aware", wants(3)), "n0[4-6]");
        assert_eq!(yard.place("mapa rule=topo-aware", wants(2)), "n0[2-3]");
        assert_eq!(yard.place("mapa rule=topo-aware", wants(5)), "n0[2-6]");
    }

    #[test]
    fn the_pattern_decides_which_gpus_suit() {
        let yard = Yard::new("1x8 v100").taken("n0[2]");
        // A chain of three needs two good wires, a ring of three three, each to each all pairs.
        let of =
            |pattern: &str| yard.place(&format!("mapa rule=greedy pattern={pattern}"), wants(3));
        assert_eq!(of("pipeline"), "n0[0,3-4]");
        assert_eq!(of("ring"), "n0[4,6-7]");
        assert_eq!(of("all-to-all"), of("ring"));
    }
}
