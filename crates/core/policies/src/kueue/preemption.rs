//! Which jobs go so that a job fits the quota of its queue.

use super::quota::{QueueId, Quotas};
use super::{Reclaim, Settings, WithinQueue, kind_of, need};
use crate::prelude::*;
use std::cmp::Reverse;

/// A job that asks for quota.
pub(super) struct Asked<'v> {
    pub(super) job: JobRef<'v>,
    pub(super) kind: GpuType,
    pub(super) queue: QueueId,
    pub(super) amount: i64,
}

/// A job that may go.
#[derive(Copy, Clone)]
struct Target {
    job: JobId,
    queue: QueueId,
    amount: i64,
}

/// Class and priority: the smaller, the more important.
fn level(job: JobRef<'_>) -> (i64, i64) {
    (job.spec.class as i64, -i64::from(job.spec.priority))
}

/// The jobs that must go; nothing if that does not help or is not allowed. O(admitted jobs, with their logarithm, x depth).
pub(super) fn targets(
    settings: &Settings,
    asked: &Asked<'_>,
    quotas: &Quotas,
    (view, offer): (&View<'_>, &Offer<'_>),
) -> Option<Vec<JobId>> {
    if settings.within_queue == WithinQueue::Never && settings.reclaim == Reclaim::Never {
        return None;
    }
    let candidates = candidates(settings, asked, quotas, (view, offer));
    if settings.fair_sharing {
        return fairly(asked, quotas, &candidates);
    }
    // Others of the cohort give back what they borrowed to a queue that stays within its own quota.
    let reclaimed = minimal(asked, quotas, &candidates, |quotas| {
        fits(asked, quotas) && !quotas.borrows(asked.queue, asked.kind, asked.amount)
    });
    reclaimed.or_else(|| {
        let own: Vec<Target> =
            candidates.iter().copied().filter(|one| one.queue == asked.queue).collect();
        minimal(asked, quotas, &own, |quotas| fits(asked, quotas))
    })
}

fn fits(asked: &Asked<'_>, quotas: &Quotas) -> bool {
    asked.amount <= quotas.available(asked.queue, asked.kind)
}

/// Jobs with GPUs of the type that may go: those of other queues first, the least important and latest first.
fn candidates(
    settings: &Settings,
    asked: &Asked<'_>,
    quotas: &Quotas,
    (view, offer): (&View<'_>, &Offer<'_>),
) -> Vec<Target> {
    let own = level(asked.job);
    let mut found = Vec::new();
    for job in view.granted().filter(|job| view.may_stop(*job)) {
        if kind_of(job, offer) != Some(asked.kind) {
            continue;
        }
        let queue = quotas.queue(job.spec.tenant);
        let allowed = if queue == asked.queue {
            let newer = job.spec.submitted > asked.job.spec.submitted;
            match settings.within_queue {
                WithinQueue::Never => false,
                WithinQueue::LowerPriority => level(job) > own,
                WithinQueue::LowerOrNewerEqualPriority => {
                    level(job) > own || (level(job) == own && newer)
                }
            }
        } else {
            quotas.borrows(queue, asked.kind, 0)
                && match settings.reclaim {
                    Reclaim::Never => false,
                    Reclaim::LowerPriority => level(job) > own,
                    Reclaim::Any => true,
                }
        };
        if allowed {
            let order = (
                queue == asked.queue,
                Reverse(level(job)),
                Reverse(job.state.last_start),
                job.id(),
            );
            found.push((order, Target { job: job.id(), queue, amount: need(job) }));
        }
    }
    found.sort_unstable_by_key(|(order, _)| *order);
    found.into_iter().map(|(_, target)| target).collect()
}

/// Takes jobs away until the one that asks fits, then spares those that need not go (`minimalPreemptions`).
fn minimal(
    asked: &Asked<'_>,
    quotas: &Quotas,
    candidates: &[Target],
    fits: impl Fn(&Quotas) -> bool,
) -> Option<Vec<JobId>> {
    let mut quotas = quotas.clone();
    let mut gone: Vec<Target> = Vec::new();
    for one in candidates {
        // A queue that no longer borrows keeps the rest.
        if one.queue != asked.queue && !quotas.borrows(one.queue, asked.kind, 0) {
            continue;
        }
        quotas.remove(one.queue, asked.kind, one.amount);
        gone.push(*one);
        if fits(&quotas) {
            return Some(spare(gone, asked.kind, quotas, fits));
        }
    }
    None
}

/// Without those that need not go; the last one must, for the one that asks did not fit before.
fn spare(
    mut gone: Vec<Target>,
    kind: GpuType,
    mut quotas: Quotas,
    fits: impl Fn(&Quotas) -> bool,
) -> Vec<JobId> {
    for index in (0..gone.len().saturating_sub(1)).rev() {
        let one = gone[index];
        quotas.add(one.queue, kind, one.amount);
        if fits(&quotas) {
            gone.remove(index);
        } else {
            quotas.remove(one.queue, kind, one.amount);
        }
    }
    gone.into_iter().map(|one| one.job).collect()
}

/// By fair sharing: the queue that borrows most gives up a job, as long as it still borrows no less than the one that asks
/// (`LessThanOrEqualToFinalShare`), and after that as long as it borrowed more before (`LessThanInitialShare`).
fn fairly(asked: &Asked<'_>, quotas: &Quotas, candidates: &[Target]) -> Option<Vec<JobId>> {
    let mut quotas = quotas.clone();
    let mut gone: Vec<Target> = Vec::new();
    let mut left: Vec<Target> = candidates.to_vec();
    for by_final in [true, false] {
        let mut skipped: Vec<Target> = Vec::new();
        while let Some(index) = most_borrowing(&left, asked.kind, &quotas) {
            let one = left.remove(index);
            let own = quotas.share(asked.queue, asked.kind, asked.amount);
            let before = quotas.share(one.queue, asked.kind, 0);
            let allowed = one.queue == asked.queue || {
                let after = quotas.share(one.queue, asked.kind, -one.amount);
                if by_final { own <= after } else { own < before }
            };
            if !allowed {
                skipped.push(one);
                continue;
            }
            quotas.remove(one.queue, asked.kind, one.amount);
            gone.push(one);
            if fits(asked, &quotas) {
                return Some(spare(gone, asked.kind, quotas, |quotas| fits(asked, quotas)));
            }
        }
        left = skipped;
    }
    None
}

/// The first candidate of the queue with the largest share; of equals the first.
fn most_borrowing(left: &[Target], kind: GpuType, quotas: &Quotas) -> Option<usize> {
    let share = |target: &Target| quotas.share(target.queue, kind, 0);
    let mut best: Option<(usize, f64)> = None;
    for (index, target) in left.iter().enumerate() {
        let share = share(target);
        if best.is_none_or(|(_, most)| share > most) {
            best = Some((index, share));
        }
    }
    best.map(|(index, _)| index)
}
