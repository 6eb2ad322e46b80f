//! From a choice to grants: one for the job that leads, and one for each that shares its GPUs.

use super::Choice;
use crate::{GrantOutcome, JobRef, Offer, View, wanted};
use trainyard_types::placement::lowest_bits;
use trainyard_types::{GpuType, Grant, Placement, Shape, Share};

/// Offers what a choice means: GPUs for the largest of its jobs, and the same GPUs, or as many of them as it needs, to
/// each other one. A job that shares takes what the leader leaves, so that speeds are those of the measured pair.
/// Gives the GPUs of the leader.
pub(super) fn offer_choice(
    choice: &Choice,
    kinds: &[GpuType],
    place: Option<Placement>,
    (view, offer): (&View<'_>, &mut Offer<'_>),
) -> Result<Placement, GrantOutcome> {
    let leader = leader(choice, view).ok_or(GrantOutcome::Refused)?;
    let mut grant = wanted(leader);
    grant.shape = match place {
        Some(placement) => Shape::Exact(placement),
        None => shape(choice, kinds, leader),
    };
    let answer = offer.grant(&grant);
    let plan = offer.plan(leader.id()).filter(|_| answer == GrantOutcome::Taken);
    let place = plan.map(|plan| plan.placement.clone()).ok_or(answer)?;
    for job in choice.jobs.iter().filter(|job| **job != leader.id()) {
        let Some(partner) = view.job(*job) else { continue };
        let size = partner.spec.want.gpus_max.min(place.gpus());
        let mut grant = Grant::gpus(*job, size).share(Share::Leftover);
        grant.shape = Shape::Exact(first_of(&place, size));
        offer.grant(&grant);
    }
    Ok(place)
}

/// The job that gets its GPUs whole: the one that needs most of them, of equals the one that has them already.
fn leader<'v>(choice: &Choice, view: &View<'v>) -> Option<JobRef<'v>> {
    let mut best: Option<(JobRef<'v>, (u32, bool))> = None;
    for id in &choice.jobs {
        let job = view.job(*id)?;
        let plan = job.state.planned.as_ref();
        let whole = plan.is_some_and(|plan| plan.share(0).permille() > 0);
        let claim = (job.spec.want.gpus_max.min(choice.gpus()), whole);
        if best.is_none_or(|(_, other)| claim > other) {
            best = Some((job, claim));
        }
    }
    best.map(|(job, _)| job)
}

fn shape(choice: &Choice, kinds: &[GpuType], job: JobRef<'_>) -> Shape {
    let nodes_max = match (choice.nodes_max, job.spec.want.nodes_max) {
        (0, own) => own,
        (limit, 0) => limit,
        (limit, own) => limit.min(own),
    };
    match choice.uses.as_slice() {
        [(kind, count)] => {
            Shape::Gpus { count: *count, kind: Some(kinds[usize::from(*kind)]), nodes_max }
        }
        several => Shape::PerKind(
            several.iter().map(|(kind, count)| (kinds[usize::from(*kind)], *count)).collect(),
        ),
    }
}

/// The first GPUs of a placement.
fn first_of(place: &Placement, count: u32) -> Placement {
    let mut rest = count;
    Placement::from_masks(place.masks().iter().map(|&(node, mask)| {
        let here = mask.count_ones().min(rest);
        rest -= here;
        (node, lowest_bits(mask, here))
    }))
}
