//! The front that placers implement: a score for a node, lifted to a placer by [`Greedy`].

use crate::{Ask, Free, Placer, View};
use trainyard_types::placement::lowest_bits;
use trainyard_types::{GpuType, NodeId, Placement};

/// How good a node is for some GPUs of an ask. Larger is better; `None` forbids.
pub trait Score: Send {
    /// The score of taking `count` wholly free GPUs of `node`, or the share that the ask names of one GPU.
    fn score(
        &mut self,
        ask: &Ask<'_>,
        node: NodeId,
        count: u32,
        on: &ScoreContext<'_>,
    ) -> Option<f64>;
}

/// What a score may look at.
pub struct ScoreContext<'a> {
    /// What is free.
    pub free: &'a Free,
    /// Everything else.
    pub view: &'a View<'a>,
}

/// Takes the node with the best score that holds the whole gang, or else node after node, best first.
/// Ties go to the lower id. Linear in the number of nodes with room.
pub struct Greedy<S> {
    score: S,
}

impl<S: Score> Greedy<S> {
    /// A placer out of a score.
    pub fn new(score: S) -> Greedy<S> {
        Greedy { score }
    }

    fn best(
        &mut self,
        ask: &Ask<'_>,
        on: &ScoreContext<'_>,
        nodes: impl Iterator<Item = (NodeId, u32)>,
    ) -> Option<(NodeId, u32)> {
        let mut best: Option<(f64, NodeId, u32)> = None;
        for (node, count) in nodes {
            let Some(score) = self.score.score(ask, node, count, on) else { continue };
            let better = best.is_none_or(|(top, id, _)| {
                score.total_cmp(&top).is_gt() || (score.total_cmp(&top).is_eq() && node < id)
            });
            if better {
                best = Some((score, node, count));
            }
        }
        best.map(|(_, node, count)| (node, count))
    }

    fn on_kind(
        &mut self,
        ask: &Ask<'_>,
        on: &ScoreContext<'_>,
        kind: GpuType,
    ) -> Option<Placement> {
        let free = on.free;
        let whole =
            free.tightest(kind, ask.count).filter(|node| ask.usable(*node, free) >= ask.count);
        let whole: Vec<_> = whole.map(|node| (node, ask.count)).collect();
        if let Some((node, count)) = self.best(ask, on, whole.into_iter()) {
            return Some(Placement::on(node, lowest_bits(ask.usable_mask(node, free), count)));
        }
        if ask.nodes_max == 1 || free.gpus(kind) < ask.count {
            return None;
        }
        let mut rest = ask.count;
        let mut masks: Vec<(NodeId, u64)> = Vec::new();
        while rest > 0 {
            if ask.nodes_max > 0 && masks.len() == usize::from(ask.nodes_max) {
                return None;
            }
            let nodes: Vec<_> = free
                .roomiest(kind)
                .filter(|node| masks.iter().all(|(taken, _)| taken != node))
                .map(|node| (node, ask.usable(node, free).min(rest)))
                .filter(|(_, count)| *count > 0)
                .collect();
            let (node, count) = self.best(ask, on, nodes.into_iter())?;
            masks.push((node, lowest_bits(ask.usable_mask(node, free), count)));
            rest -= count;
        }
        Some(Placement::from_masks(masks))
    }
}

impl<S: Score> Placer for Greedy<S> {
    fn try_place(&mut self, ask: &Ask<'_>, free: &Free, view: &View<'_>) -> Option<Placement> {
        if ask.permille < 1000 {
            return crate::fraction::tightest(ask, free);
        }
        let on = ScoreContext { free, view };
        free.kinds()
            .into_iter()
            .filter(|kind| ask.accepts(*kind))
            .find_map(|kind| self.on_kind(ask, &on, kind))
    }
}
