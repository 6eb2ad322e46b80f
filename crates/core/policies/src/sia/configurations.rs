//! Which numbers of GPUs of a type a job may have (Sia, section 3.3).
//!
//! Within a node powers of two, beyond it whole nodes: then any choice that fits by number can also be placed, and there
//! are only `nodes + log2(GPUs of a node)` of them. The least that a job can do with is the unit in which it grows, as
//! with a pipeline of stages; a rigid job has one size.

use trainyard_framework::{Free, View};
use trainyard_types::{GpuType, NodeId, Want};

/// So many GPUs of one type, on as few nodes as hold them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ConfigurationKind {
    pub kind: GpuType,
    pub gpus: u32,
    pub nodes: u32,
}

/// What there is of each type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterShape {
    pub kinds: Vec<OfKind>,
}

/// What there is of one type.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct OfKind {
    pub kind: GpuType,
    /// GPUs of its largest node in service.
    pub per_node: u32,
    pub nodes: u32,
    pub gpus: u32,
}

impl ClusterShape {
    /// Types with nodes in service.
    pub fn new(view: &View<'_>, free: &Free) -> ClusterShape {
        let empty = |&(kind, _): &(GpuType, u32)| OfKind { kind, per_node: 0, nodes: 0, gpus: 0 };
        let mut kinds: Vec<OfKind> = view.state().shapes.iter().map(empty).collect();
        for node in (0..free.nodes()).map(NodeId) {
            let up = free.up(node).count_ones();
            let of = kinds.iter_mut().find(|of| of.kind == free.kind(node));
            if let Some(of) = of.filter(|_| up > 0) {
                of.per_node = of.per_node.max(up);
                of.nodes += 1;
                of.gpus += up;
            }
        }
        kinds.retain(|of| of.gpus > 0);
        ClusterShape { kinds }
    }

    /// All configurations of a job, by type and number, at most `most` of each type.
    pub fn sorts(&self, want: &Want, most: u32) -> Vec<ConfigurationKind> {
        let accepted = self.kinds.iter().filter(|of| want.accepts(of.kind));
        accepted.flat_map(|of| of.sorts(want, most)).collect()
    }

    /// The type of a configuration.
    pub fn of(&self, kind: GpuType) -> Option<&OfKind> {
        self.kinds.iter().find(|of| of.kind == kind)
    }

    /// The most GPUs of one type that a job accepts.
    pub fn most(&self, want: &Want) -> u32 {
        let accepted = self.kinds.iter().filter(|of| want.accepts(of.kind));
        accepted.map(|of| of.gpus).max().unwrap_or(0)
    }
}

impl OfKind {
    fn sorts(&self, want: &Want, most: u32) -> Vec<ConfigurationKind> {
        let unit = want.gpus_min.max(1);
        let mut sizes: Vec<u32> = Vec::new();
        if want.is_rigid() {
            sizes.push(unit);
        } else {
            sizes.push(unit);
            sizes.extend((0..32).map(|power| 1 << power).take_while(|size| *size <= self.per_node));
            sizes.push(self.per_node);
            sizes.extend((2..=self.nodes).map(|nodes| nodes * self.per_node));
            sizes.sort_unstable();
            sizes.dedup();
        }
        let allowed =
            |size: &u32| size.is_multiple_of(unit) && *size <= want.gpus_max && *size <= self.gpus;
        let sorts = sizes.into_iter().filter(allowed).map(|gpus| ConfigurationKind {
            kind: self.kind,
            gpus,
            nodes: gpus.div_ceil(self.per_node),
        });
        let limit = u32::from(want.nodes_max);
        sorts.filter(|sort| limit == 0 || sort.nodes <= limit).take(most as usize).collect()
    }
}
