//! Speeds where links are declared one by one: what was measured over one network, on another.

use super::Speeds;
use crate::traffic::usual_inside;
use trainyard_types::{
    Cluster, Config, ModelId, NodeId, Pattern, Placement, Rate, Tier, Topology, Traffic,
};

/// What speeds must know of a topology.
#[derive(Clone, Debug)]
pub(super) struct OnLinks {
    /// By type, by number of GPUs: bandwidth inside the machine on which the type is usually measured.
    usual: Vec<Vec<u64>>,
    /// The same inside the best node of the cluster.
    inside: Vec<Vec<u64>>,
    /// Between two idle nodes of a rack.
    rack_mbps: f64,
    /// Between two idle nodes of different racks.
    core_mbps: f64,
}

impl OnLinks {
    pub(super) fn new(cluster: &Cluster) -> Option<OnLinks> {
        let topology = cluster.topology.as_deref()?;
        let usual = cluster.kinds.iter().map(|kind| usual_inside(&kind.name)).collect();
        let inside = (0..cluster.kinds.len()).map(|kind| best_inside(cluster, topology, kind));
        let first = cluster.nodes.first()?;
        let near = cluster.nodes.iter().find(|node| node.id != first.id && node.rack == first.rack);
        let far = cluster.nodes.iter().find(|node| node.rack != first.rack);
        let between = |other: NodeId| {
            let pair = Placement::from_masks([(first.id, 1), (other, 1)]);
            topology.load(&pair, Pattern::Ring).alone_mbps(topology)
        };
        let core_mbps = far.or(near).map_or(f64::INFINITY, |node| between(node.id));
        let rack_mbps = near.map_or(core_mbps, |node| between(node.id));
        Some(OnLinks { usual, inside: inside.collect(), rack_mbps, core_mbps })
    }

    /// The bandwidth that a job has in an idle cluster, by how far apart its GPUs are.
    fn idle_mbps(&self, config: &Config) -> f64 {
        let most = config.shape.first().copied().unwrap_or(1);
        let kind = config.kind().map_or(0, |kind| kind.index());
        let inside = at(&self.inside[kind], u32::from(most));
        match config.tier {
            Tier::Gpu | Tier::Node => inside,
            Tier::Rack => inside.min(self.rack_mbps),
            Tier::Core => inside.min(self.core_mbps),
        }
    }
}

/// Bandwidths of an idle cluster by class of link, where links are declared one by one.
pub(crate) struct LinkClasses {
    /// By type: of a ring over all GPUs of its best node; nothing for a node of one GPU.
    inside: Vec<Option<f64>>,
    /// Between nodes of one rack.
    pub(crate) rack_mbps: f64,
    /// Between racks.
    pub(crate) core_mbps: f64,
}

impl LinkClasses {
    pub(crate) fn of(cluster: &Cluster) -> Option<LinkClasses> {
        let links = OnLinks::new(cluster)?;
        let whole =
            |own: &Vec<u64>| own.last().filter(|mbps| **mbps < u64::MAX).map(|it| *it as f64);
        let inside = links.inside.iter().map(whole).collect();
        Some(LinkClasses { inside, rack_mbps: links.rack_mbps, core_mbps: links.core_mbps })
    }

    /// Between the GPUs of a node of a type; as between nodes where it has one GPU.
    pub(crate) fn inside_mbps(&self, kind: usize) -> f64 {
        self.inside.get(kind).copied().flatten().unwrap_or(self.rack_mbps)
    }
}

/// By number of GPUs, the bandwidth inside the node of a type where it is best.
fn best_inside(cluster: &Cluster, topology: &Topology, kind: usize) -> Vec<u64> {
    let mut seen: Vec<&str> = Vec::new();
    let mut best = vec![u64::MAX, u64::MAX];
    for node in cluster.nodes.iter().filter(|node| node.kind.index() == kind) {
        let inside = topology.inside(node.id);
        if seen.contains(&inside.name.as_str()) {
            continue;
        }
        seen.push(&inside.name);
        for gpus in 2..=inside.gpus {
            let mbps = inside.best_ring_mbps(gpus);
            match best.get_mut(usize::from(gpus)) {
                Some(known) => *known = (*known).max(mbps),
                None => best.push(mbps),
            }
        }
    }
    best
}

/// The entry of a number of GPUs, or the last one.
fn at(by_gpus: &[u64], gpus: u32) -> f64 {
    let index = (gpus as usize).min(by_gpus.len() - 1);
    by_gpus[index] as f64
}

impl Speeds {
    /// What one iteration of a model moves, where links are declared and that is known.
    pub fn traffic(&self, model: ModelId) -> Option<Traffic> {
        self.links.as_ref()?;
        Some(self.moves.get(model.index())?.traffic.as_ref()?.moves)
    }

    /// Whether the speed of a model follows the links that it uses instead of the number of its nodes and racks.
    pub(super) fn is_on_links(&self, model: ModelId) -> bool {
        self.links.is_some()
            && self.moves.get(model.index()).is_some_and(|moves| moves.traffic.is_some())
    }

    /// The part of a speed, as measured, that a job keeps where the slowest link that it uses gives it so much bandwidth.
    pub fn kept_on_links(&self, model: ModelId, config: &Config, rate: Rate, mbps: f64) -> f64 {
        let known = self.links.as_ref().zip(self.moves.get(model.index()));
        let Some((links, traffic)) =
            known.and_then(|(links, moves)| Some((links, moves.traffic.as_ref()?)))
        else {
            return 1.0;
        };
        let kind = config.kind().map_or(0, |kind| kind.index());
        let inside = traffic
            .inside_mbps
            .map_or_else(|| at(&links.usual[kind], config.gpus), |stated| stated as f64);
        let bound = self.bound.get(model.index() * self.kinds + kind).and_then(Option::as_ref);
        let cell = bound.and_then(|bound| bound.cells.get(config.gpus.max(1) as usize - 1));
        let measured = match cell {
            Some(cell) if cell.nodes <= 1 => inside,
            _ => inside.min(traffic.across_mbps as f64),
        };
        traffic.kept(config.gpus, rate.0, (measured, mbps))
    }

    /// The same at the bandwidth that a job has in an idle cluster.
    pub(super) fn kept_when_idle(&self, model: ModelId, config: &Config, rate: Rate) -> f64 {
        match &self.links {
            Some(links) if config.gpus > 1 => {
                self.kept_on_links(model, config, rate, links.idle_mbps(config))
            }
            _ => 1.0,
        }
    }

    /// Steps per second where the slowest link that a job uses gives it so much bandwidth; as [`Speeds::rate`] where its
    /// speed does not follow links.
    pub fn rate_on_links(&self, model: ModelId, config: &Config, mbps: f64) -> Option<Rate> {
        if !self.is_on_links(model) {
            return self.rate(model, config);
        }
        let measured = self.measured_rate(model, config)?;
        Some(Rate(measured.0 * self.kept_on_links(model, config, measured, mbps)))
    }
}
