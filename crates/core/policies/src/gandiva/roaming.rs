//! What running jobs do with GPUs that no job waits for: gangs spread over nodes come together, and jobs that allow it
//! grow; they shrink when jobs wait.

use super::packing::{Pairs, is_packed};
use super::{Home, Turns};
use crate::prelude::*;
use smallvec::smallvec;
use trainyard_types::{Allocation, Grant, Shape};

/// How many running jobs move in one decision.
const MOVES_MAX: usize = 4;

/// Gangs that a departure left room for on fewer nodes move there. O(granted + nodes) after a departure.
pub(super) fn defragment(turn: &Turns, pairs: &Pairs, view: &View<'_>, offer: &mut Offer<'_>) {
    if view.ended().is_empty() {
        return;
    }
    let mut moves = 0;
    for job in view.granted() {
        let Some(planned) = settled(job, turn, view) else { continue };
        if planned.placement.nodes() < 2 || moves >= MOVES_MAX || is_packed(job.id(), pairs) {
            continue;
        }
        let count = planned.placement.gpus();
        let (first, _) = planned.placement.masks()[0];
        let kind = offer.free().kind(first);
        let want = &job.spec.want;
        let usable = |node: &NodeId| {
            want.pool.is_none_or(|pool| offer.free().pool(*node) == pool)
                && offer.free().shut(*node, job).is_none()
        };
        let found = offer.free().tightest(kind, count).find(usable);
        if let Some(node) = found {
            let grant = Grant { shape: Shape::PerNode(smallvec![(node, count)]), ..wanted(job) };
            moves += usize::from(offer.grant(&grant) == GrantOutcome::Taken);
        }
    }
}

/// Jobs on one node that can use more GPUs take the idle ones there. O(granted).
pub(super) fn grow(turn: &Turns, pairs: &Pairs, view: &View<'_>, offer: &mut Offer<'_>) {
    for job in view.granted() {
        let Some(planned) = settled(job, turn, view) else { continue };
        let [(node, mask)] = planned.placement.masks() else { continue };
        let (node, has) = (*node, mask.count_ones());
        let idle = offer.free().mask(node).count_ones();
        let count = job.spec.want.gpus_max.min(has + idle);
        if count > has && !is_packed(job.id(), pairs) && offer.plan(job.id()) == Some(planned) {
            let home: Home = smallvec![(node, count)];
            offer.grant(&Grant { shape: Shape::PerNode(home), ..wanted(job) });
        }
    }
}

/// Jobs that have more GPUs than they asked for give those back where they are. O(granted).
pub(super) fn shrink(view: &View<'_>, offer: &mut Offer<'_>) {
    for job in view.granted() {
        let Some(planned) = &job.state.planned else { continue };
        let want = job.spec.want.gpus;
        if planned.placement.gpus() <= want || !view.may_stop(job) {
            continue;
        }
        if let [(node, _)] = planned.placement.masks() {
            let home: Home = smallvec![(*node, want)];
            offer.grant(&Grant { shape: Shape::PerNode(home), ..wanted(job) });
        }
    }
}

/// The plan of a job that has run for so long that a change pays, and may be changed.
fn settled<'a>(job: JobRef<'a>, turn: &Turns, view: &View<'_>) -> Option<&'a Allocation> {
    let planned = job.state.planned.as_ref()?;
    let start = job.state.last_start.filter(|_| job.state.held.is_some())?;
    let pays = start + turn.least(job, planned, view) <= view.now;
    (pays && view.may_stop(job) && job.spec.want.permille >= 1000).then_some(planned)
}
