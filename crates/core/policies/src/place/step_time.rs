//! Step time: of several ways to spread a gang, the one whose predicted step is shortest for what it strands.

use crate::place::fewest_nodes::{fewest_nodes, roomiest};
use crate::place::{CLASS, kinds, part};
use crate::prelude::*;
use smallvec::{SmallVec, smallvec};
use trainyard_framework::fraction;
use trainyard_types::placement::lowest_bits;

/// The row in the registry.
pub const ENTRY: PlaceEntry = Entry {
    name: "step-time",
    about: "Of several ways to spread a gang, the one with the shortest predicted step for the nodes that it breaks up.",
    paper: "-",
    needs: Needs { rates: true, topology: true, ..Needs::NOTHING },
    class: CLASS,
    settings: &[
        ("nodes_more", "how many nodes beyond the fewest a gang may be spread over"),
        ("racks", "in how many racks it is tried by itself, those with the most room first"),
        (
            "wait",
            "the part of its speed that a gang gives up rather than leave as many GPUs as its own on nodes that it breaks up, where gangs of whole nodes then wait",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    nodes_more: u32,
    racks: u32,
    #[serde(deserialize_with = "part")]
    wait: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { nodes_more: 3, racks: 4, wait: 0.1 }
    }
}

fn build(raw: &RawSettings) -> Result<Box<dyn Placer>, ConfigError> {
    Ok(Box::new(StepTime { settings: raw.read(ENTRY.name)? }))
}

/// The placer. O(n) for n nodes for each of `nodes_more` + 1 numbers of nodes and of `racks` racks, and a look at all
/// jobs on several nodes for each candidate.
struct StepTime {
    settings: Settings,
}

impl Placer for StepTime {
    fn try_place(&mut self, ask: &Ask<'_>, free: &Free, view: &View<'_>) -> Option<Placement> {
        if ask.permille < 1000 {
            return fraction::tightest(ask, free);
        }
        let usual = fewest_nodes(ask, free)?;
        if ask.count < 2 || view.cluster().topology.is_none() {
            return Some(usual);
        }
        let Some(speed) = view.rate_at(ask.job, &usual).filter(|rate| rate.0 > 0.0) else {
            return Some(usual);
        };
        let broken = stranded(&usual, free, view);
        let mut best = (1.0, usual);
        for other in self.others(ask, free) {
            let Some(rate) = view.rate_at(ask.job, &other) else { continue };
            let more = f64::from(stranded(&other, free, view)) - f64::from(broken);
            let value = rate.0 / speed.0 - self.settings.wait * more / f64::from(ask.count);
            // The usual place stands where another is no better; of equals the first.
            if value > best.0 + 1e-9 {
                best = (value, other);
            }
        }
        Some(best.1)
    }
}

impl StepTime {
    /// Equal parts on the roomiest nodes, for several numbers of nodes, anywhere and in each of some racks; and what
    /// the usual rule finds in those.
    fn others(&self, ask: &Ask<'_>, free: &Free) -> Vec<Placement> {
        let Some(kind) = kinds(ask, free).next() else { return Vec::new() };
        let mut asks: Vec<Ask<'_>> = vec![ask.clone()];
        if ask.racks.is_empty() {
            let mut room: Vec<(u32, u16)> = Vec::new();
            for (node, usable) in roomiest(ask, free, kind) {
                let rack = free.rack(node);
                match room.iter_mut().find(|(_, known)| *known == rack) {
                    Some((gpus, _)) => *gpus += usable,
                    None => room.push((usable, rack)),
                }
            }
            room.sort_by_key(|(gpus, rack)| (std::cmp::Reverse(*gpus), *rack));
            let racks = room.into_iter().filter(|(gpus, _)| *gpus >= ask.count);
            let racks = racks.take(self.settings.racks as usize);
            asks.extend(racks.map(|(_, rack)| Ask { racks: smallvec![rack], ..ask.clone() }));
        }
        let mut found = Vec::new();
        for ask in &asks {
            found.extend(fewest_nodes(ask, free));
            let nodes: SmallVec<[(NodeId, u32); 16]> = roomiest(ask, free, kind).collect();
            let parts =
                (1..=nodes.len() as u32).filter_map(|count| in_parts(ask, free, &nodes, count));
            found.extend(parts.take(self.settings.nodes_more as usize + 1));
        }
        found
    }
}

/// Equal parts on so many of the roomiest nodes; parts differ by one GPU at most.
fn in_parts(ask: &Ask<'_>, free: &Free, nodes: &[(NodeId, u32)], count: u32) -> Option<Placement> {
    let allowed = ask.nodes_max == 0 || count <= u32::from(ask.nodes_max);
    if !allowed || count > ask.count {
        return None;
    }
    let (each, more) = (ask.count / count, ask.count % count);
    let part = |at: usize| each + u32::from((at as u32) < more);
    let nodes = &nodes[..count as usize];
    let fits = nodes.iter().enumerate().all(|(at, (_, usable))| *usable >= part(at));
    fits.then(|| {
        let masks = nodes.iter().enumerate();
        Placement::from_masks(
            masks.map(|(at, (node, _))| {
                (*node, lowest_bits(ask.usable_mask(*node, free), part(at)))
            }),
        )
    })
}

/// Free GPUs that stay behind on nodes that were wholly free.
fn stranded(placement: &Placement, free: &Free, view: &View<'_>) -> u32 {
    let masks = placement.masks().iter();
    masks
        .map(|(node, mask)| {
            let whole = view.cluster().node(*node).mask();
            if free.mask(*node) == whole { (whole & !mask).count_ones() } else { 0 }
        })
        .sum()
}
