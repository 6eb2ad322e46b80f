//! On which nodes a batch of jobs runs.
//!
//! A gang that fits a node may be split only in the ways that are known to do (the authors' table); what is split is
//! worth less, by the speed that is believed of it. Wider gangs take whole nodes and one rest, so that 10 GPUs are
//! 8 + 2 and not two whole nodes.

use super::Settings;
use super::book::Facts;
use super::fill::asked;
use super::profiler::reserved_nodes;
use super::search::{Batch, Room, Scattered, Seat, Way};
use super::speeds::extrapolated;
use crate::prelude::*;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use trainyard_types::{Config, Grant, Shape, Tier};

/// How places are looked for.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Method {
    /// The best of four greedy orders, bettered by a local search.
    #[default]
    LocalSearch,
    /// The best of four greedy orders.
    BestOfFour,
    /// One by one, on as few nodes as possible.
    Consolidate,
}

/// GPUs on nodes.
pub(super) type Parts = SmallVec<[(NodeId, u32); 2]>;

pub(super) struct Allocator {
    method: Method,
    work: u64,
    /// Nodes at the end of the cluster that are none of its business.
    reserved: u32,
    /// Whether only speeds on one and two nodes were measured.
    extrapolates: bool,
}

impl Allocator {
    pub(super) fn new(settings: &Settings) -> Allocator {
        Allocator {
            method: settings.allocator,
            work: settings.work,
            reserved: if settings.profile { settings.profile_nodes } else { 0 },
            extrapolates: settings.profile,
        }
    }

    /// Grants to a batch of jobs, in any order that places them well; those left over found no place.
    pub(super) fn grant<'a>(
        &self,
        batch: &[Facts<'a>],
        view: &View<'_>,
        offer: &mut Offer<'_>,
    ) -> Vec<Facts<'a>> {
        let (mut wide, mut gangs, mut single) = (Vec::new(), Vec::new(), Vec::new());
        for one in batch {
            let per_node = view.state().shapes.iter().map(|shape| shape.1).max().unwrap_or(0);
            match one.gpus {
                1 => single.push(*one),
                gpus if gpus > per_node => wide.push(*one),
                _ => gangs.push(*one),
            }
        }
        wide.sort_by_key(|one| std::cmp::Reverse(one.gpus));
        let mut left = Vec::new();
        for one in wide {
            self.grant_alone(one, offer, &mut left);
        }
        if self.method == Method::Consolidate {
            for one in gangs {
                self.grant_alone(one, offer, &mut left);
            }
        } else {
            self.grant_together(gangs, view, offer, &mut left);
        }
        for one in single {
            self.grant_alone(one, offer, &mut left);
        }
        left
    }

    /// One job on as few nodes as possible.
    fn grant_alone<'a>(&self, one: Facts<'a>, offer: &mut Offer<'_>, left: &mut Vec<Facts<'a>>) {
        let taken = match self.reserved {
            0 => offer.grant(&asked(&one)) == GrantOutcome::Taken,
            _ => self.compact(&one, offer.free()).is_some_and(|parts| per_node(&one, parts, offer)),
        };
        if !taken {
            left.push(one);
        }
    }

    /// Gangs that fit a node each, placed with an eye on each other.
    fn grant_together<'a>(
        &self,
        gangs: Vec<Facts<'a>>,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        left: &mut Vec<Facts<'a>>,
    ) {
        let (simple, limited): (Vec<Facts<'a>>, Vec<Facts<'a>>) =
            gangs.into_iter().partition(|one| is_simple(one, offer.free()));
        let free = offer.free();
        let room =
            |node: NodeId| Room { node, kind: free.kind(node), free: free.mask(node).count_ones() };
        let nodes = self.nodes(free).map(room).filter(|room| room.free > 0).collect();
        let seats = simple.iter().map(|one| self.seat(one, view)).collect();
        let batch = Batch { nodes, seats };
        let found = match self.method {
            Method::LocalSearch => batch.search(self.work),
            Method::BestOfFour | Method::Consolidate => batch.best_of_four(),
        };
        for (one, parts) in simple.into_iter().zip(found) {
            let taken = parts.is_some_and(|parts| per_node(&one, parts, offer));
            if !taken {
                self.grant_alone(one, offer, left);
            }
        }
        for one in limited {
            self.grant_alone(one, offer, left);
        }
    }

    /// Nodes that it may use.
    fn nodes(&self, free: &Free) -> impl Iterator<Item = NodeId> + use<> {
        (0..free.nodes() - reserved_nodes(self.reserved, free)).map(|node| NodeId(node as _))
    }

    /// The tightest node that holds all, else the roomiest ones of one type and the tightest rest.
    fn compact(&self, one: &Facts<'_>, free: &Free) -> Option<Parts> {
        let ask = Ask::new(one.job, &wanted(one.job), one.gpus, kinds_of(one));
        let usable = |node: NodeId| ask.usable(node, free);
        let open = || self.nodes(free).filter(|node| ask.accepts(free.kind(*node)));
        let whole = open().filter(|node| usable(*node) >= one.gpus);
        if let Some(node) = whole.min_by_key(|node| (usable(*node), *node)) {
            return Some(SmallVec::from_elem((node, one.gpus), 1));
        }
        free.kinds().into_iter().find_map(|kind| {
            let mut nodes: Vec<(u32, NodeId)> = open()
                .filter(|node| free.kind(*node) == kind)
                .map(|node| (usable(node), node))
                .collect();
            nodes.sort_unstable_by_key(|(room, node)| (std::cmp::Reverse(*room), *node));
            let mut parts = Parts::new();
            let mut need = one.gpus;
            for (room, node) in nodes {
                let here = room.min(need);
                if here > 0 {
                    parts.push((node, here));
                    need -= here;
                }
            }
            (need == 0).then_some(parts)
        })
    }

    /// A job with the ways it may be split and what each is worth.
    fn seat(&self, one: &Facts<'_>, view: &View<'_>) -> Seat {
        let kinds: Vec<GpuType> = view.state().shapes.iter().map(|shape| shape.0).collect();
        let own = |kind: &GpuType| one.kind.is_none_or(|own| own == *kind);
        let wants = |kind: &GpuType| one.job.spec.want.accepts(*kind) && own(kind);
        let accepted = kinds.into_iter().filter(wants);
        let mut ways = Vec::new();
        let mut scattered = Vec::new();
        for kind in accepted {
            let worth = |nodes: u32| {
                f64::from(one.gpus) * self.speed(one, kind, &even(one.gpus, nodes as usize), view)
            };
            scattered.push(Scattered { kind, worth: (1..=one.gpus).map(worth).collect() });
            for split in splits(one.gpus) {
                let worth = f64::from(one.gpus) * self.speed(one, kind, &split, view);
                ways.push(Way { kind, split, worth });
            }
        }
        Seat { gpus: one.gpus, ways, scattered }
    }

    /// The speed of a job over several nodes, beside what it likes best.
    fn speed(&self, one: &Facts<'_>, kind: GpuType, split: &[u32], view: &View<'_>) -> f64 {
        let rate = |nodes: usize| {
            let parts = if nodes == split.len() { split.to_vec() } else { even(one.gpus, nodes) };
            view.rate(one.job, &config(kind, &parts)).map(|rate| rate.0)
        };
        let reference = view.reference_rate(one.job).map_or(0.0, |rate| rate.0);
        if reference <= 0.0 {
            return 1.0 / split.len() as f64;
        }
        let speed = match split.len() {
            nodes if nodes > 2 && self.extrapolates => match (rate(1), rate(2)) {
                (Some(one), Some(two)) if one > 0.0 && two > 0.0 => {
                    Some(extrapolated(one, two, nodes))
                }
                _ => None,
            },
            nodes => rate(nodes),
        };
        speed.unwrap_or(0.0) / reference
    }
}

/// The types that a job may be placed on.
fn kinds_of(one: &Facts<'_>) -> SmallVec<[GpuType; 4]> {
    match one.kind {
        Some(kind) => SmallVec::from_elem(kind, 1),
        None => one.job.spec.want.kinds.clone(),
    }
}

/// Whether nothing but the number of GPUs decides where a job may run.
fn is_simple(one: &Facts<'_>, free: &Free) -> bool {
    let want = &one.job.spec.want;
    let ask = Ask::new(one.job, &wanted(one.job), one.gpus, want.kinds.clone());
    !ask.is_limited(free) && want.nodes_max == 0 && want.permille == 1000
}

fn per_node(one: &Facts<'_>, parts: Parts, offer: &mut Offer<'_>) -> bool {
    let want = &one.job.spec.want;
    if want.permille < 1000 {
        return offer.grant(&asked(one)) == GrantOutcome::Taken;
    }
    let mut parts = parts;
    parts.sort_unstable();
    let grant = Grant { shape: Shape::PerNode(parts), ..wanted(one.job) };
    offer.grant(&grant) == GrantOutcome::Taken
}

/// The ways in which a gang may be split over nodes, best first: those of the authors' profiler up to 8 GPUs
/// (`profile_allocate_set`).
pub(super) fn splits(gpus: u32) -> Vec<Vec<u32>> {
    let known: &[&[u32]] = match gpus {
        2 => &[&[2], &[1, 1]],
        3 => &[&[3], &[2, 1]],
        4 => &[&[4], &[2, 2]],
        5 => &[&[5], &[3, 2], &[2, 2, 1]],
        6 => &[&[6], &[4, 2], &[2, 2, 2]],
        7 => &[&[7], &[6, 1], &[4, 3], &[3, 2, 2]],
        8 => &[&[8], &[4, 4], &[6, 2], &[4, 2, 2], &[2, 2, 2, 2]],
        _ => return vec![vec![gpus], even(gpus, 2), even(gpus, 4)],
    };
    known.iter().map(|split| split.to_vec()).collect()
}

/// GPUs over so many nodes, as evenly as possible.
fn even(gpus: u32, nodes: usize) -> Vec<u32> {
    let nodes = nodes as u32;
    let part = |index: u32| gpus / nodes + u32::from(index < gpus % nodes);
    (0..nodes).map(part).filter(|part| *part > 0).collect()
}

fn config(kind: GpuType, parts: &[u32]) -> Config {
    let gpus = parts.iter().sum();
    let mut config = Config::packed(kind, gpus, gpus);
    config.shape = parts.iter().map(|part| *part as u16).collect();
    config.nodes = parts.len() as u32;
    if parts.len() > 1 {
        config.tier = Tier::Rack;
    }
    config
}
