//! Whole plans that hold what a policy granted, each with GPUs of its own: what a stage that compares plans may choose
//! among. The policy is asked once; its grants are replayed.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::Rng;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use trainyard_framework::{Free, JobRef, View, shapes};
use trainyard_types::placement::lowest_bits;
use trainyard_types::{Allocation, Change, NodeId, Placement, Share};

/// The policy's own plan, and up to so many others: what it gives new GPUs lies on other nodes there, of the same type
/// and pool, with as many GPUs on each and in no more racks. A plan that comes out as an earlier one is left out.
///
/// O(plans × changes × nodes).
pub(crate) fn candidates(
    view: &View<'_>,
    free: &Free,
    changes: &[Change],
    (count, mut rng): (usize, ChaCha12Rng),
) -> Vec<Vec<Change>> {
    let mut plans = vec![changes.to_vec()];
    if !changes.iter().any(|change| is_moved(view, change)) {
        return plans;
    }
    let mut nodes: Vec<NodeId> = (0..free.nodes()).map(NodeId).collect();
    for _ in 1..count {
        shuffle(&mut nodes, &mut rng);
        if let Some(plan) = replay(view, free, changes, &nodes)
            && !plans.contains(&plan)
        {
            plans.push(plan);
        }
    }
    plans
}

fn shuffle(nodes: &mut [NodeId], rng: &mut ChaCha12Rng) {
    for at in (1..nodes.len()).rev() {
        let other = rng.next_u64() % (at as u64 + 1);
        nodes.swap(at, other as usize);
    }
}

/// Whether a change gives a job whole GPUs that it did not have by the plan, and other ones would do as well.
fn is_moved(view: &View<'_>, change: &Change) -> bool {
    let Some(to) = &change.to else { return false };
    let planned = view.job(change.job).and_then(|job| job.state.planned.as_ref());
    to.shares[..] == [Share::Whole] && planned.is_none_or(|planned| !planned.same_place(to))
}

/// The changes with GPUs on the first nodes of an order that can hold them; nothing where they do not fit so.
fn replay(
    view: &View<'_>,
    free: &Free,
    changes: &[Change],
    order: &[NodeId],
) -> Option<Vec<Change>> {
    let mut free = free.clone();
    for change in changes {
        if let Some(planned) = view.job(change.job).and_then(|job| job.state.planned.as_ref()) {
            free.give(planned);
        }
    }
    // What stays where it is comes first, so that no other job is put there.
    let stays = changes.iter().filter(|change| !is_moved(view, change));
    for to in stays.filter_map(|change| change.to.as_ref()) {
        free.fits_again(to).ok()?;
        free.take(to);
    }
    let mut plan = Vec::with_capacity(changes.len());
    for change in changes {
        let Some(to) = change.to.as_ref().filter(|_| is_moved(view, change)) else {
            plan.push(change.clone());
            continue;
        };
        let job = view.job(change.job)?;
        let placement = elsewhere((view, job), &free, &to.placement, order)?;
        let to = Allocation { placement, ..to.clone() };
        free.fits(&to).ok().filter(|()| shapes::is_allowed(view.cluster().rules, &to, &free))?;
        free.take(&to);
        plan.push(Change { job: change.job, to: Some(to) });
    }
    Some(plan)
}

/// As many GPUs on each of other nodes: the parts of one rack go to one rack, the largest first.
fn elsewhere(
    (view, job): (&View<'_>, JobRef<'_>),
    free: &Free,
    placement: &Placement,
    order: &[NodeId],
) -> Option<Placement> {
    let (first, _) = placement.masks().first()?;
    let (kind, pool) = (free.kind(*first), free.pool(*first));
    let mut groups: BTreeMap<u16, Vec<u32>> = BTreeMap::new();
    for (node, mask) in placement.masks() {
        if free.kind(*node) != kind || free.pool(*node) != pool {
            return None;
        }
        groups.entry(free.rack(*node)).or_default().push(mask.count_ones());
    }
    let mut groups: Vec<Vec<u32>> = groups.into_values().collect();
    groups.iter_mut().for_each(|parts| parts.sort_by_key(|count| Reverse(*count)));
    groups.sort_by_key(|parts| Reverse(parts.iter().sum::<u32>()));
    let usable = |node: &NodeId| {
        free.kind(*node) == kind && free.pool(*node) == pool && free.shut(*node, job).is_none()
    };
    let mut by_rack: Vec<(u16, Vec<NodeId>)> = Vec::new();
    for node in order.iter().copied().filter(usable) {
        let rack = view.cluster().node(node).rack;
        match by_rack.iter_mut().find(|(known, _)| *known == rack) {
            Some((_, nodes)) => nodes.push(node),
            None => by_rack.push((rack, vec![node])),
        }
    }
    let mut masks: Vec<(NodeId, u64)> = Vec::new();
    for parts in &groups {
        let taken: Vec<NodeId> = masks.iter().map(|(node, _)| *node).collect();
        let found = by_rack.iter().find_map(|(_, nodes)| in_rack(free, parts, nodes, &taken))?;
        masks.extend(found);
    }
    Some(Placement::from_masks(masks))
}

/// A part for each number of GPUs, on different nodes of a rack.
fn in_rack(
    free: &Free,
    parts: &[u32],
    nodes: &[NodeId],
    taken: &[NodeId],
) -> Option<Vec<(NodeId, u64)>> {
    let mut masks: Vec<(NodeId, u64)> = Vec::new();
    for count in parts {
        let open = nodes.iter().find(|node| {
            let is_new = !taken.contains(node) && masks.iter().all(|(other, _)| other != *node);
            is_new && free.mask(**node).count_ones() >= *count
        });
        let node = *open?;
        masks.push((node, lowest_bits(free.mask(node), *count)));
    }
    Some(masks)
}
