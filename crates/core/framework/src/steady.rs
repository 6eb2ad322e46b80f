//! The order behind [`crate::Mode::Refill`] for keys that stay while a job waits: what changed and what runs is looked
//! at, and a class of waiting jobs is left out once one of it found no room.
//!
//! The published simulators sort one list stably at every event, so that ties are decided by history: a job that comes
//! to a key from below stands before those that had it, one that comes from above or is new stands behind them. Here
//! that is a number beside the key.

use crate::index::Class;
use crate::{JobRef, Key, Rank, View};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Bound;
use trainyard_types::JobId;

/// Where a job stands: its key, and the order among those that have it.
type Place = (Key, i64, JobId);

#[derive(Copy, Clone, Debug)]
struct Seat {
    place: Place,
    lane: usize,
}

/// All active jobs in the order in which an emptied cluster is filled.
#[derive(Default)]
pub(crate) struct SteadyOrder {
    /// What it is good for: the number of the decision, the version of what is believed, that of the windows.
    valid_for: Option<(u64, u64, u64)>,
    seats: FxHashMap<JobId, Seat>,
    order: BTreeSet<Place>,
    /// The first lane is of the jobs that have or had GPUs and may find room where others do not; each other one is of
    /// the waiting jobs of a class.
    lanes: Vec<BTreeSet<Place>>,
    lane_of: FxHashMap<Class, usize>,
}

/// The lane of jobs that hold something, by the plan or really.
const HOLDING: usize = 0;

/// A walk over the jobs in order, lane by lane.
pub(crate) struct SteadyTurn {
    heads: BinaryHeap<Reverse<(Place, usize)>>,
    /// The job told last; the next of its lane follows unless the lane is closed.
    last: Option<(Place, usize)>,
}

impl SteadyOrder {
    /// Brings the order up to the view.
    pub(crate) fn refresh<R: Rank>(&mut self, rank: &mut R, view: &View<'_>) {
        let state = view.state();
        let windows = state.windows.version();
        let good_for = view.beliefs_version().map(|beliefs| (view.decision(), beliefs, windows));
        let valid = good_for.is_some() && self.valid_for == good_for && !rank.renewed();
        let mut ids: Vec<JobId> = match valid {
            true => view.changed().iter().copied().chain(state.granted.iter()).collect(),
            false => {
                let active = state.waiting.iter().chain(state.granted.iter());
                self.seats.keys().copied().chain(active).collect()
            }
        };
        ids.sort_unstable();
        ids.dedup();
        if !valid {
            self.lanes.clear();
            self.lane_of.clear();
        }
        if self.lanes.is_empty() {
            self.lanes.push(BTreeSet::new());
        }
        self.update(&ids, (rank, !valid), view);
        let next = |(decision, beliefs, windows)| (decision + 1, beliefs, windows);
        self.valid_for = good_for.map(next);
    }

    fn update<R: Rank>(&mut self, ids: &[JobId], (rank, anew): (&mut R, bool), view: &View<'_>) {
        let state = view.state();
        let mut risen: Vec<(Place, Key)> = Vec::new();
        let mut fallen: Vec<(Place, Key)> = Vec::new();
        let mut new: Vec<(bool, JobId, Key)> = Vec::new();
        for &id in ids {
            let Some(job) = view.job(id) else {
                self.remove(id);
                rank.over(id, view);
                continue;
            };
            if !(state.waiting.contains(id) || state.granted.contains(id)) {
                self.remove(id);
                continue;
            }
            let key = rank.rank(job, view);
            match self.seats.get(&id).copied() {
                None => new.push((state.granted.contains(id), id, key)),
                Some(seat) if seat.place.0 == key => self.reseat(seat, anew, (job, view)),
                Some(seat) => {
                    self.remove(id);
                    let list = if seat.place.0 < key { &mut risen } else { &mut fallen };
                    list.push((seat.place, key));
                }
            }
        }
        risen.sort_unstable_by_key(|(place, _)| Reverse(*place));
        for (place, key) in risen {
            let first = self.order.range((key, i64::MIN, JobId(0))..).next();
            let number = first.filter(|first| first.0 == key).map_or(0, |first| first.1 - 1);
            self.insert((key, number, place.2), view);
        }
        fallen.sort_unstable_by_key(|(place, _)| *place);
        new.sort_unstable_by_key(|(granted, id, _)| (*granted, *id));
        let behind = fallen.into_iter().map(|(place, key)| (place.2, key));
        for (id, key) in behind.chain(new.into_iter().map(|(_, id, key)| (id, key))) {
            let last = self.order.range(..=(key, i64::MAX, JobId(u32::MAX))).next_back();
            let number = last.filter(|last| last.0 == key).map_or(0, |last| last.1 + 1);
            self.insert((key, number, id), view);
        }
    }

    /// A walk over the jobs in order.
    pub(crate) fn turn(&self) -> SteadyTurn {
        let heads = self.lanes.iter().enumerate();
        let heads = heads.filter_map(|(lane, jobs)| Some(Reverse((*jobs.first()?, lane))));
        SteadyTurn { heads: heads.collect(), last: None }
    }

    /// A job whose key stays may hold GPUs now, or none any more.
    fn reseat(&mut self, seat: Seat, anew: bool, (job, view): (JobRef<'_>, &View<'_>)) {
        if !anew && holds(job) == (seat.lane == HOLDING) {
            return;
        }
        if let Some(jobs) = self.lanes.get_mut(seat.lane) {
            jobs.remove(&seat.place);
        }
        self.seat(seat.place, (job, view));
    }

    fn insert(&mut self, place: Place, view: &View<'_>) {
        let Some(job) = view.job(place.2) else { return };
        self.order.insert(place);
        self.seat(place, (job, view));
    }

    fn seat(&mut self, place: Place, (job, view): (JobRef<'_>, &View<'_>)) {
        let lane = if holds(job) { HOLDING } else { self.lane(job, view) };
        self.lanes[lane].insert(place);
        self.seats.insert(place.2, Seat { place, lane });
    }

    fn remove(&mut self, id: JobId) {
        let Some(seat) = self.seats.remove(&id) else { return };
        self.order.remove(&seat.place);
        if let Some(jobs) = self.lanes.get_mut(seat.lane) {
            jobs.remove(&seat.place);
        }
    }

    fn lane(&mut self, job: JobRef<'_>, view: &View<'_>) -> usize {
        let class = Class::of(job, view);
        if let Some(&lane) = self.lane_of.get(&class) {
            return lane;
        }
        self.lanes.push(BTreeSet::new());
        self.lane_of.insert(class, self.lanes.len() - 1);
        self.lanes.len() - 1
    }
}

/// Whether a job has a grant or GPUs.
fn holds(job: JobRef<'_>) -> bool {
    job.state.planned.is_some() || job.state.held.is_some()
}

impl SteadyTurn {
    /// The next job whose lane is open.
    pub(crate) fn next(&mut self, order: &SteadyOrder) -> Option<JobId> {
        if let Some((place, lane)) = self.last.take() {
            let after = (Bound::Excluded(place), Bound::Unbounded);
            if let Some(next) = order.lanes[lane].range(after).next() {
                self.heads.push(Reverse((*next, lane)));
            }
        }
        let Reverse(head) = self.heads.pop()?;
        self.last = Some(head);
        Some(head.0.2)
    }

    /// The job told last found no room: those of its class behind it will not either. A job that holds GPUs speaks for
    /// itself alone.
    pub(crate) fn close(&mut self) {
        self.last = self.last.filter(|(_, lane)| *lane == HOLDING);
    }

    /// From here on only jobs that hold something are told.
    pub(crate) fn close_waiting(&mut self) {
        self.close();
        self.heads.retain(|Reverse((_, lane))| *lane == HOLDING);
    }
}
