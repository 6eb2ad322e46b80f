//! Which jobs run: those first in the order whose GPUs are there (Synergy, section 3.1).

use crate::prelude::*;
use trainyard_framework::once_adopted;
use trainyard_types::IdSet;

/// Jobs in order, and which of them run if only the number of GPUs counts.
pub struct Queue<'a> {
    /// Jobs that run: those that may not be stopped, then by order.
    pub chosen: Vec<JobRef<'a>>,
    /// The others, by order.
    pub others: Vec<JobRef<'a>>,
}

/// Walks over all jobs. O(n log n).
pub fn queue<'a>(rank: &mut dyn Rank, fill: Fill, view: &View<'a>, offer: &Offer<'_>) -> Queue<'a> {
    let jobs = view.granted().chain(view.waiting());
    let mut order: Vec<(Key, JobId)> = jobs.map(|job| (rank.rank(job, view), job.id())).collect();
    order.sort_unstable();
    let mut room: Vec<u64> = (0..view.cluster().kinds.len())
        .map(|kind| u64::from(offer.free().in_service(GpuType(kind as u8))) * 1000)
        .collect();
    let mut queue = Queue { chosen: Vec::new(), others: Vec::new() };
    let mut chosen: IdSet<JobId> = IdSet::default();
    for job in order.iter().filter_map(|(_, id)| view.job(*id)) {
        if job.state.planned.is_some() && !view.may_stop(job) {
            count_in(job, view, &mut room);
            chosen.insert(job.id());
            queue.chosen.push(job);
        }
    }
    let mut shut = false;
    for job in order.iter().filter_map(|(_, id)| view.job(*id)) {
        if chosen.contains(job.id()) {
            continue;
        }
        if !shut && count_in(job, view, &mut room) {
            queue.chosen.push(job);
            continue;
        }
        shut |= fill == Fill::Strict;
        queue.others.push(job);
    }
    queue
}

/// Takes the GPUs of a job from the type where it runs, or else from the first that has them; whether there was one.
fn count_in(job: JobRef<'_>, view: &View<'_>, room: &mut [u64]) -> bool {
    let want = &job.spec.want;
    let planned = job.state.planned.as_ref();
    let gpus = planned.map_or(want.gpus, |planned| planned.placement.gpus());
    let need = u64::from(gpus) * u64::from(want.permille);
    let held = planned.and_then(|planned| planned.placement.masks().first());
    let held = held.map(|(node, _)| view.cluster().node(*node).kind);
    let kinds = (0..room.len()).map(|kind| GpuType(kind as u8));
    let fits = |kind: &GpuType| want.accepts(*kind) && room[kind.index()] >= need;
    let found = kinds.filter(fits).min_by_key(|kind| (Some(*kind) != held, *kind));
    match found {
        Some(kind) => room[kind.index()] -= need,
        None => return false,
    }
    true
}

/// Asks to be woken when the first key changes by itself, once what was offered is done.
pub fn wake(rank: &mut dyn Rank, queue: &Queue<'_>, view: &View<'_>, offer: &mut Offer<'_>) {
    if queue.others.is_empty() {
        // With no job left out, a key that changes can change nothing else.
        return;
    }
    let mut first: Option<Time> = None;
    for job in queue.chosen.iter().chain(&queue.others) {
        let state = once_adopted(*job, view.now, offer);
        let job = JobRef { spec: job.spec, state: state.as_ref().unwrap_or(job.state) };
        let changes = rank.changes_at(job, view).filter(|time| *time > view.now);
        first = first.into_iter().chain(changes).min();
    }
    if let Some(time) = first {
        offer.wake_at(time);
    }
}
