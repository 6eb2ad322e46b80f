//! Preemption by priority, node by node (`DefaultPreemption`).

use super::book::{Book, holding};
use crate::prelude::*;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use trainyard_types::{Allocation, Job};

/// The place of a job's PriorityClass: the smaller, the more important.
pub(super) type Level = (i64, i64);

/// The level of a job: its class, and its priority within that.
pub(super) fn level(job: &Job) -> Level {
    (job.class as i64, -i64::from(job.priority))
}

/// A pod that may go for a more important one.
struct Candidate {
    level: Level,
    started: Option<Time>,
    job: JobId,
    /// What it has of the node.
    pod: Allocation,
}

/// How bad it is to take a node from those on it; the least is taken (`pickOneNodeForPreemption`): where the most important
/// victim matters least, then the smallest sum of priorities, the fewest victims, and those that started last.
type Harm = (Reverse<Level>, i64, usize, Reverse<Option<Time>>, NodeId);

/// The jobs that go so that a pod of so many GPUs finds a node of a type; nothing if that does not help.
/// O(jobs with GPUs + nodes of the type).
pub(super) fn victims(
    (ask, gpus): (&Ask<'_>, u32),
    kind: GpuType,
    (view, seen): (&View<'_>, &Free),
    (offer, book): (&Offer<'_>, &Book),
) -> Option<Vec<JobId>> {
    let own = level(ask.job.spec);
    let mut scratch = seen.clone();
    let mut best: Option<(Harm, Vec<JobId>)> = None;
    for (node, mut there) in candidates(own, kind, view, (offer, book)) {
        for one in &there {
            scratch.give(&one.pod);
        }
        let fits = |scratch: &Free| ask.usable(node, scratch) >= gpus;
        let possible = fits(&scratch);
        // The most important ones are spared first, and of equals those that run longest.
        there.sort_by_key(|one| (one.level, one.started.unwrap_or(Time::NEVER), one.job));
        let mut gone: Vec<&Candidate> = Vec::new();
        for one in &there {
            scratch.take(&one.pod);
            if possible && !fits(&scratch) {
                scratch.give(&one.pod);
                gone.push(one);
            }
        }
        for one in &gone {
            scratch.take(&one.pod);
        }
        let Some(top) = gone.iter().map(|one| one.level).min() else { continue };
        let sum = gone.iter().map(|one| -one.level.1).sum();
        let first = gone.iter().filter(|one| one.level == top).filter_map(|one| one.started).min();
        let harm = (Reverse(top), sum, gone.len(), Reverse(first), node);
        if best.as_ref().is_none_or(|(least, _)| harm < *least) {
            best = Some((harm, gone.iter().map(|one| one.job).collect()));
        }
    }
    best.map(|(_, jobs)| jobs)
}

/// Less important pods by node: of jobs that run and may be stopped, and of gangs that wait for the rest.
fn candidates(
    own: Level,
    kind: GpuType,
    view: &View<'_>,
    (offer, book): (&Offer<'_>, &Book),
) -> BTreeMap<NodeId, Vec<Candidate>> {
    let mut by_node: BTreeMap<NodeId, Vec<Candidate>> = BTreeMap::new();
    let mut add = |job: JobRef<'_>, whole: &Allocation| {
        for &(node, mask) in whole.placement.masks() {
            if view.cluster().node(node).kind == kind {
                by_node.entry(node).or_default().push(Candidate {
                    level: level(job.spec),
                    started: job.state.last_start,
                    job: job.id(),
                    pod: Allocation { placement: Placement::on(node, mask), ..whole.clone() },
                });
            }
        }
    };
    for job in view.granted().filter(|job| level(job.spec) > own && view.may_stop(*job)) {
        // Shares that differ from GPU to GPU are no pods.
        if let Some(plan) = offer.plan(job.id()).filter(|plan| plan.shares.len() == 1) {
            add(job, plan);
        }
    }
    for (id, partial) in &book.0 {
        if let Some(job) = view.job(*id).filter(|job| level(job.spec) > own) {
            add(job, &holding(job.spec, &partial.bound));
        }
    }
    by_node
}
