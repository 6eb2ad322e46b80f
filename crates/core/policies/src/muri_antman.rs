//! The AntMan of Muri's evaluation: at most two jobs on a GPU, one with a right to it and one on what that leaves.
//!
//! It is no AntMan: nothing is measured or adjusted, and memory always suffices. It stands here to meet Muri's figures.

mod gpus;

use crate::prelude::*;
use gpus::{Gpus, Use};
use std::collections::BTreeMap;
use trainyard_types::{Class, Grant, Shape, Share};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "muri-antman",
    about: "Jobs with a right to their GPUs come first and gather them one by one; opportunistic jobs share the least used ones.",
    paper: "the baseline of Zhao et al., Muri, SIGCOMM 2022, after Xiao et al., AntMan, OSDI 2020",
    needs: Needs::NOTHING,
    class: Taxonomy::rigid(Objective::Arrival, Family::Sharing)
        .partial("no measurement of jobs, no limits of memory or computation that follow it"),
    settings: &[],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Settings {}

/// O(w log w + w n) for w waiting jobs and n nodes at each event, and O(m log m) for m GPUs at each start of an
/// opportunistic job.
#[derive(Default)]
struct MuriAntman {
    gpus: Option<Gpus>,
    /// What jobs have of GPUs, complete or not.
    seats: BTreeMap<JobId, Seat>,
    /// The jobs that gathered GPUs when it was last asked to be called again because nothing ran.
    entangled: Vec<JobId>,
}

/// How soon jobs that gather GPUs while nothing runs are looked at again.
const AGAIN: Span = Span::secs(1);

/// What one job has.
struct Seat {
    place: Placement,
    is_guest: bool,
    /// Whether it is all that the job asked for.
    is_complete: bool,
}

impl MuriAntman {
    /// Forgets jobs that are over or lost their GPUs, and learns of those that have some.
    fn refresh(&mut self, view: &View<'_>, free: &Free) {
        let gpus = self.gpus.get_or_insert_with(|| Gpus::new(free));
        gpus.refresh(free);
        self.seats.retain(|id, seat| {
            let planned = view.job(*id).map(|job| job.state.planned.as_ref());
            let stays = match (planned, seat.is_complete) {
                (Some(Some(planned)), true) => planned.placement == seat.place,
                (Some(None), false) => gpus.is_up(&seat.place),
                _ => false,
            };
            if !stays {
                gpus.give(&seat.place, seat.use_of());
            }
            stays
        });
        for job in view.granted() {
            let Some(planned) = &job.state.planned else { continue };
            if self.seats.contains_key(&job.id()) || job.spec.want.permille < 1000 {
                continue;
            }
            let is_guest = planned.is_on_leftovers();
            let seat = Seat { place: planned.placement.clone(), is_guest, is_complete: true };
            gpus.take(&seat.place, seat.use_of());
            self.seats.insert(job.id(), seat);
        }
    }

    /// Jobs that gather GPUs on the same node, or on all nodes together, and wait for each other alone would wait for ever:
    /// the first in order keeps what it has and the others begin anew.
    fn release_entangled(&mut self, waiting: &[JobRef<'_>]) {
        let gathers = |id: &JobId| self.seats.contains_key(id);
        let holders: Vec<JobId> = waiting.iter().map(JobRef::id).filter(gathers).collect();
        let owners = || self.seats.values().filter(|seat| !seat.is_guest && seat.is_complete);
        let is_stuck = |(node, _): &(NodeId, u64)| owners().all(|seat| seat.place.mask(*node) == 0);
        let nothing_ends = owners().next().is_none();
        let mut behind = Vec::new();
        for (place, id) in holders.iter().enumerate() {
            let before = || holders[..place].iter().filter_map(|other| self.seats.get(other));
            let meets = |part: &(NodeId, u64)| before().any(|seat| seat.place.mask(part.0) != 0);
            let mut parts = self.seats[id].place.masks().iter();
            if place > 0 && (nothing_ends || parts.any(|part| is_stuck(part) && meets(part))) {
                behind.push(*id);
            }
        }
        for id in behind {
            self.drop_seat(id);
        }
    }

    /// Where nothing runs no event may come that would part jobs that wait for each other's GPUs. The same jobs are looked
    /// at once more only: what did not help then will not.
    fn part_soon(&mut self, view: &View<'_>, offer: &mut Offer<'_>) {
        let nothing_runs = offer.free().total() == offer.free().in_service_total();
        let gathers = |(id, seat): (&JobId, &Seat)| (!seat.is_complete).then_some(*id);
        let gathering: Vec<JobId> = self.seats.iter().filter_map(gathers).collect();
        if nothing_runs && gathering.len() > 1 && gathering != self.entangled {
            offer.wake_at(view.now + AGAIN);
            self.entangled = gathering;
        }
    }

    fn drop_seat(&mut self, id: JobId) {
        if let (Some(seat), Some(gpus)) = (self.seats.remove(&id), self.gpus.as_mut()) {
            gpus.give(&seat.place, seat.use_of());
        }
    }

    /// A job with a right to its GPUs takes those that no other such job has, and starts when it has all.
    fn gather(&mut self, job: JobRef<'_>, offer: &mut Offer<'_>) {
        let (id, need) = (job.id(), job.spec.want.gpus);
        // Nodes that it keeps to may have shrunk since, or be closed to it: it begins anew elsewhere.
        let stays = |gpus: &Gpus, seat: &Seat| gpus.may_complete(job, &seat.place, offer.free());
        if let (Some(gpus), Some(seat)) = (self.gpus.as_ref(), self.seats.get(&id))
            && !stays(gpus, seat)
        {
            self.drop_seat(id);
        }
        let Some(gpus) = self.gpus.as_mut() else { return };
        let before = self.seats.get(&id).map(|seat| seat.place.clone()).unwrap_or_default();
        let more = gpus.gatherable(job, &before, offer.free());
        if more.gpus() == 0 && before.gpus() < need {
            return;
        }
        gpus.take(&more, Use::Gathered);
        let place = Placement::from_masks(before.masks().iter().chain(more.masks()).copied());
        let is_complete = place.gpus() == need;
        if is_complete {
            gpus.complete(&place);
        }
        self.seats.insert(id, Seat { place: place.clone(), is_guest: false, is_complete });
        if is_complete {
            let mut grant = wanted(job);
            grant.shape = Shape::Exact(place);
            self.offer(&grant, offer);
        }
    }

    /// An opportunistic job takes the least used GPUs that no other such job is on.
    fn visit(&mut self, job: JobRef<'_>, offer: &mut Offer<'_>) {
        let Some(gpus) = self.gpus.as_mut() else { return };
        let Some(place) = gpus.least_used(job, offer.free()) else { return };
        gpus.take(&place, Use::Guest);
        let seat = Seat { place: place.clone(), is_guest: true, is_complete: true };
        self.seats.insert(job.id(), seat);
        let mut grant = wanted(job).share(Share::Leftover);
        grant.shape = Shape::Exact(place);
        self.offer(&grant, offer);
    }

    fn offer(&mut self, grant: &Grant, offer: &mut Offer<'_>) {
        if offer.grant(grant) != GrantOutcome::Taken {
            self.drop_seat(grant.members[0].job);
        }
    }
}

impl Seat {
    fn use_of(&self) -> Use {
        match (self.is_guest, self.is_complete) {
            (true, _) => Use::Guest,
            (false, true) => Use::Owned,
            (false, false) => Use::Gathered,
        }
    }
}

impl Policy for MuriAntman {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        self.refresh(view, offer.free());
        let (mut guests, mut owners): (Vec<JobRef<'_>>, Vec<JobRef<'_>>) =
            view.waiting().partition(|job| job.spec.class == Class::Opportunistic);
        owners.sort_by_key(|job| (job.spec.submitted, job.id()));
        guests.sort_by_key(|job| (job.spec.submitted, job.id()));
        self.release_entangled(&owners);
        for job in owners.into_iter().chain(guests) {
            let is_guest = job.spec.class == Class::Opportunistic;
            match (job.spec.want.permille < 1000, is_guest) {
                (true, _) => {
                    offer.grant(&wanted(job));
                }
                (false, false) => self.gather(job, offer),
                (false, true) => self.visit(job, offer),
            }
            if offer.plan(job.id()).is_none() {
                let (need, free) = (job.spec.want.gpus, offer.free().total());
                offer.note(job.id(), Reason::NoRoom { need, free });
            }
        }
        self.part_soon(view, offer);
        Ok(())
    }

    fn forget(&mut self) {
        *self = MuriAntman::default();
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings {} = raw.read(ENTRY.name)?;
    Ok(Pipeline::new(MuriAntman::default(), FewestNodes, ENTRY.needs))
}
