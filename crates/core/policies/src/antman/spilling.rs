//! The memory of opportunistic jobs: squeezed to the least when a guaranteed job needs it, and given back as far as it goes.

use super::AntMan;
use super::memory::{Eater, split};
use crate::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use trainyard_framework::Terms;
use trainyard_types::{Config, GpuAt, Knobs, Share};

impl AntMan {
    /// The least memory with which an opportunistic job goes on: what it keeps between iterations, or a part of what it
    /// needs. 0 where it does not say what it needs.
    pub(super) fn least_memory(&self, job: JobRef<'_>) -> u32 {
        let want = &job.spec.want;
        let floor = f64::from(want.gpu_memory_mib) * self.settings.memory_floor;
        (floor.ceil() as u32).max(want.gpu_memory_persistent_mib).min(want.gpu_memory_mib)
    }

    /// Memory that an opportunistic job with a plan could give up.
    pub(super) fn yields(&self, job: JobId, view: &View<'_>, offer: &Offer<'_>) -> u32 {
        let (Some(job), Some(plan)) = (view.job(job), offer.plan(job)) else { return 0 };
        plan.gpu_memory_mib.saturating_sub(self.least_memory(job))
    }

    /// Opportunistic jobs spill all that they can; says whether any did. What is not needed comes back to them in
    /// [`AntMan::feed`].
    pub(super) fn squeeze(
        &self,
        guests: impl IntoIterator<Item = JobId>,
        view: &View<'_>,
        offer: &mut Offer<'_>,
    ) -> bool {
        let mut any = false;
        for guest in guests {
            if self.yields(guest, view, offer) > 0
                && let Some(job) = view.job(guest)
            {
                any |= give(job, self.least_memory(job), offer);
            }
        }
        any
    }

    /// Gives the memory that guaranteed jobs leave to the opportunistic ones. O(jobs on GPUs where it does not suffice
    /// for all, squared, times a constant); O(opportunistic jobs) where it does.
    pub(super) fn feed(&self, view: &View<'_>, offer: &mut Offer<'_>) {
        let jobs =
            view.granted().chain(view.waiting()).filter(|job| job.spec.want.gpu_memory_mib > 0);
        let is_guest =
            |job: &JobRef<'_>| offer.plan(job.id()).is_some_and(|it| it.is_on_leftovers());
        let mut guests: Vec<JobRef<'_>> = jobs.filter(is_guest).collect();
        guests.sort_by_key(|job| job.id());
        let short: BTreeSet<JobId> = guests
            .iter()
            .filter(|job| {
                offer
                    .plan(job.id())
                    .is_some_and(|it| it.gpu_memory_mib < job.spec.want.gpu_memory_mib)
            })
            .map(|job| job.id())
            .collect();
        if short.is_empty() {
            return;
        }
        let seats = |job: &JobRef<'_>| -> Vec<GpuAt> {
            offer.plan(job.id()).map_or(Vec::new(), |plan| plan.placement.each_gpu().collect())
        };
        let tight: BTreeSet<GpuAt> =
            guests.iter().filter(|job| short.contains(&job.id())).flat_map(seats).collect();
        guests.retain(|job| seats(job).iter().any(|gpu| tight.contains(gpu)));
        let mut room: BTreeMap<GpuAt, u32> = BTreeMap::new();
        let mut eaters = Vec::with_capacity(guests.len());
        for job in &guests {
            let gives = self.yields(job.id(), view, offer);
            let gpus = seats(job);
            for gpu in &gpus {
                let left = room.entry(*gpu).or_insert_with(|| offer.free().memory_left(*gpu));
                *left = left.saturating_add(gives);
            }
            let (need, least) = (job.spec.want.gpu_memory_mib, self.least_memory(*job));
            let eater = Eater { gpus, need, least, kept: Vec::new() };
            eaters.push(eater.told(|mib| kept_with(*job, mib, view, offer)));
        }
        let found = split(&eaters, &room);
        // Those who give up memory first, for the others need it.
        let mut given: Vec<(JobRef<'_>, u32)> = guests.into_iter().zip(found).collect();
        given.sort_by_key(|(job, mib)| {
            offer.plan(job.id()).is_some_and(|plan| plan.gpu_memory_mib < *mib)
        });
        for (job, mib) in given {
            give(job, mib, offer);
        }
    }
}

/// Counts so much memory for an opportunistic job, and lets it take no more; false where there is not so much.
fn give(job: JobRef<'_>, mib: u32, offer: &mut Offer<'_>) -> bool {
    let Some(plan) = offer.plan(job.id()) else { return false };
    let cap = (mib < job.spec.want.gpu_memory_mib).then_some(mib);
    let knobs = Knobs { memory_mib_max: cap, ..plan.knobs.clone() };
    offer.set_terms(job.id(), Terms { share: Share::Leftover, knobs, gpu_memory_mib: mib })
}

/// The part of its speed that a job is believed to keep with so much memory; as much as its part of the memory where no
/// speed is known.
fn kept_with(job: JobRef<'_>, mib: u32, view: &View<'_>, offer: &Offer<'_>) -> f64 {
    let need = job.spec.want.gpu_memory_mib;
    let proportion = f64::from(mib) / f64::from(need.max(1));
    let Some(plan) = offer.plan(job.id()) else { return proportion };
    let whole = Config { memory_mib_max: None, limit: None, ..plan.config(view.cluster()) };
    let capped = Config { memory_mib_max: Some(mib), ..whole.clone() };
    match (view.rate(job, &capped), view.rate(job, &whole)) {
        (Some(capped), Some(whole)) if whole.0 > 0.0 => capped.0 / whole.0,
        _ => proportion,
    }
}
