//! Backfilling with reservations, the machinery behind EASY and conservative backfill.
//!
//! Jobs are taken in order of arrival. Those that cannot start get a reservation on a timeline of GPUs expected to be
//! free, up to a number of them; all others start only where that leaves the reservations untouched.
//! GPUs are counted by type, not by node: a gang that finds its GPUs scattered is reserved at the next expected end.

use crate::alike::Classes;
use crate::prelude::*;
use crate::timeline::{Coming, Hole, Room, Timeline};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, btree_set};
use std::iter::Peekable;
use std::ops::Bound;
use trainyard_types::Grant;

/// Jobs passed over because of a tenant's ceiling in one decision, at most.
const SKIPPED_MAX: usize = 4096;

/// Backfilling behind `depth` reservations.
///
/// A decision costs O(depth x timeline + waiting jobs looked at), where the timeline is as long as the ends that the
/// reservations wait for; nothing when no GPU is free, or none any more.
pub(crate) struct Backfill {
    depth: usize,
    /// Whether a reservation holds for good, as EASY's spare nodes rule has it, or for the estimated length.
    for_good: bool,
    backlog: Backlog,
    ends: Ends,
}

/// Where a job stands in the order of arrival.
type Turn = (Time, JobId);

/// One decision.
struct Moment<'m, 'v, 'o> {
    view: &'m View<'v>,
    offer: &'m mut Offer<'o>,
    timeline: Timeline,
    /// Ends that the timeline has not looked at.
    ends: Peekable<btree_set::Iter<'m, (Time, JobId)>>,
}

/// Where the walk in order stopped, and the first reservation.
struct Stopped {
    after: Option<Turn>,
    reserved: Option<Reserved>,
}

/// A reservation, as told to those it keeps waiting.
#[derive(Copy, Clone)]
struct Reserved {
    job: JobId,
    at: Time,
}

impl Backfill {
    pub(crate) fn new(depth: usize, for_good: bool) -> Backfill {
        Backfill { depth, for_good, backlog: Backlog::default(), ends: Ends::default() }
    }

    /// Starts jobs in order for as long as they fit: until then no job needs a reservation, and no timeline is built.
    /// True if one did not fit.
    fn at_once(&self, view: &View<'_>, offer: &mut Offer<'_>, started: &mut Vec<Turn>) -> bool {
        for &turn in &self.backlog.order {
            let Some(job) = view.job(turn.1) else { continue };
            if offer.grant(&wanted(job)) != GrantOutcome::Taken {
                return true;
            }
            started.push(turn);
        }
        false
    }

    /// Starts jobs in order and reserves for those that cannot start; tells where it stopped.
    fn in_order(&self, after: Option<Turn>, moment: &mut Moment<'_, '_, '_>) -> Stopped {
        let mut stopped = Stopped { after, reserved: None };
        let (mut reserved, mut skipped) = (0, 0);
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        for &turn in self.backlog.order.range((from, Bound::Unbounded)) {
            if reserved >= self.depth || skipped >= SKIPPED_MAX {
                break;
            }
            stopped.after = Some(turn);
            let Some(job) = moment.view.job(turn.1) else { continue };
            let need = need(job);
            if moment.offer.ceiling_passed(job, need).is_some() {
                // It waits for its own tenant, not for GPUs; the offer tells it so.
                moment.offer.grant(&wanted(job));
                skipped += 1;
                continue;
            }
            let length = self.backlog.length(turn.1);
            if moment.start(job, length) {
                continue;
            }
            reserved += 1;
            let hole = Hole { after: moment.view.now, need, length };
            let Some((kind, at)) = moment.earliest(hole, job) else { continue };
            let length = if self.for_good { Span::MAX } else { length };
            moment.timeline.reserve(kind, at, Room { need, length });
            moment.offer.note(turn.1, Reason::Reserved { by: turn.1, until: at });
            stopped.reserved.get_or_insert(Reserved { job: turn.1, at });
        }
        stopped
    }

    /// Lets those behind start where no reservation is touched, class by class.
    fn behind(&self, stopped: &Stopped, moment: &mut Moment<'_, '_, '_>) {
        let mut heads: BinaryHeap<Reverse<(Turn, usize)>> = BinaryHeap::new();
        for class in 0..self.backlog.lanes.len() {
            let window = self.backlog.window(class, &moment.timeline);
            if let Some(turn) = self.backlog.next_within(class, stopped.after, window) {
                heads.push(Reverse((turn, class)));
            } else if let Some(turn) = self.backlog.next_within(class, stopped.after, Span::MAX)
                && let Some(Reserved { job, at }) = stopped.reserved
            {
                moment.offer.note(turn.1, Reason::Reserved { by: job, until: at });
            }
        }
        while let Some(Reverse((turn, class))) = heads.pop() {
            if moment.offer.free().total() == 0 {
                return;
            }
            let Some(job) = moment.view.job(turn.1) else { continue };
            let length = self.backlog.length(turn.1);
            // Windows have shrunk since the job was found.
            let still = length <= self.backlog.window(class, &moment.timeline);
            if still && !moment.start(job, length) {
                continue;
            }
            let window = self.backlog.window(class, &moment.timeline);
            if let Some(turn) = self.backlog.next_within(class, Some(turn), window) {
                heads.push(Reverse((turn, class)));
            }
        }
    }

    /// With no whole GPU free, only jobs that need less than one can start, and they are in no other job's way.
    fn fractions(&self, view: &View<'_>, offer: &mut Offer<'_>) {
        for (class, lane) in self.backlog.lanes.iter().enumerate() {
            if self.backlog.classes.get(class).want.permille >= 1000 {
                continue;
            }
            for &(_, id) in &lane.by_arrival {
                let Some(job) = view.job(id) else { continue };
                if offer.grant(&wanted(job)) != GrantOutcome::Taken {
                    break;
                }
            }
        }
    }
}

impl Policy for Backfill {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        self.ends.refresh(view, self.backlog.valid_for);
        self.backlog.refresh(view);
        if self.backlog.order.is_empty() {
            return Ok(());
        }
        if offer.free().total() == 0 {
            self.fractions(view, offer);
            return Ok(());
        }
        let free = free_now(offer.free());
        let mut started = Vec::new();
        if !self.at_once(view, offer, &mut started) {
            return Ok(());
        }
        // Where no whole GPU is left, only those that need less than one could start now.
        if offer.free().total() == 0 && !self.backlog.has_fractions() {
            return Ok(());
        }
        let timeline = Timeline::new(view.now, &free);
        let mut ends = self.ends.order.iter().peekable();
        let next_end = ends.peek().map(|(end, _)| *end);
        let mut moment = Moment { view, offer, timeline, ends };
        for (_, id) in &started {
            moment.reserve_started(*id, self.backlog.length(*id));
        }
        let stopped = self.in_order(started.last().copied(), &mut moment);
        if moment.offer.free().total() > 0 {
            self.behind(&stopped, &mut moment);
            // A job that outlives its estimate moves reservations, and others may pass.
            if let Some(time) = next_end {
                moment.offer.wake_at(time);
            }
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.backlog = Backlog::default();
        self.ends = Ends::default();
    }
}

/// Thousandths of GPUs that a job asks for.
fn need(job: JobRef<'_>) -> u64 {
    u64::from(job.spec.want.gpus) * u64::from(job.spec.want.permille)
}

fn accepted(job: JobRef<'_>) -> impl Fn(GpuType) -> bool + '_ {
    move |kind| job.spec.want.accepts(kind)
}

impl Moment<'_, '_, '_> {
    /// The earliest moment at which a hole is open on a type that a job accepts.
    fn earliest(&mut self, hole: Hole, job: JobRef<'_>) -> Option<(GpuType, Time)> {
        let free = self.offer.free();
        let mut coming = Freed { ends: &mut self.ends, view: self.view, free };
        self.timeline.earliest(hole, accepted(job), &mut coming)
    }

    /// Starts a job now if the timeline has room for its whole length, on the types where it does.
    fn start(&mut self, job: JobRef<'_>, length: Span) -> bool {
        let need = need(job);
        let usable = accepted(job);
        let mut open: SmallVec<[GpuType; 8]> = SmallVec::new();
        let mut shut = 0;
        for kind in self.timeline.kinds().filter(|kind| usable(*kind)) {
            match self.timeline.room(kind, need) >= length {
                true => open.push(kind),
                false => shut += 1,
            }
        }
        if open.is_empty() && shut > 0 {
            return false;
        }
        let grant = wanted(job);
        // Where every type is open the placer chooses.
        let tries: SmallVec<[Grant; 8]> = match shut {
            0 => SmallVec::from_elem(grant, 1),
            _ => open.iter().map(|kind| grant.clone().of(*kind)).collect(),
        };
        let taken = tries.iter().any(|grant| self.offer.grant(grant) == GrantOutcome::Taken);
        if taken {
            self.reserve_started(job.id(), length);
        }
        taken
    }

    /// Takes a job that was started off the timeline.
    fn reserve_started(&mut self, id: JobId, length: Span) {
        let (Some(plan), Some(job)) = (self.offer.plan(id), self.view.job(id)) else { return };
        let kind = self.offer.free().kind(plan.placement.masks()[0].0);
        self.timeline.reserve(kind, self.view.now, Room { need: need(job), length });
    }
}

/// Thousandths of GPUs that are wholly free, by type.
fn free_now(free: &Free) -> Vec<u64> {
    free.kinds().iter().map(|kind| u64::from(free.gpus(*kind)) * 1000).collect()
}

/// When those that hold a grant are expected to end, in order; brought up to date by what changed.
#[derive(Default)]
struct Ends {
    order: BTreeSet<(Time, JobId)>,
    of: FxHashMap<JobId, Time>,
}

impl Ends {
    fn refresh(&mut self, view: &View<'_>, valid_for: Option<u64>) {
        if valid_for == Some(view.decision()) {
            for &job in view.changed() {
                self.update(view, job);
            }
        } else {
            *self = Ends::default();
            for job in view.granted() {
                self.update(view, job.id());
            }
        }
        // A job that outlives its estimate is believed to be longer.
        while let Some(&(_, job)) = self.order.first().filter(|(end, _)| *end <= view.now) {
            self.update(view, job);
        }
    }

    fn update(&mut self, view: &View<'_>, id: JobId) {
        if let Some(end) = self.of.remove(&id) {
            self.order.remove(&(end, id));
        }
        let Some(job) = view.job(id).filter(|job| job.state.planned.is_some()) else { return };
        let Some(left) = length(job, view) else { return };
        let end = view.now + left.max(Span(1));
        self.of.insert(id, end);
        self.order.insert((end, id));
    }
}

/// The ends of jobs that run, for a timeline.
struct Freed<'a, 'm> {
    ends: &'a mut Peekable<btree_set::Iter<'m, (Time, JobId)>>,
    view: &'a View<'a>,
    free: &'a Free,
}

impl Coming for Freed<'_, '_> {
    fn next_at(&mut self) -> Option<Time> {
        self.ends.peek().map(|(end, _)| *end)
    }

    fn take_next(&mut self, freed: &mut dyn FnMut(GpuType, u64)) {
        let job = self.ends.next().and_then(|(_, id)| self.view.job(*id));
        let Some(job) = job else { return };
        let permille = u64::from(job.spec.want.permille);
        let planned = job.state.planned.as_ref();
        for &(node, mask) in planned.map_or(&[][..], |planned| planned.placement.masks()) {
            // GPUs out of service do not come back when the job ends.
            let gpus = u64::from((mask & self.free.up(node)).count_ones());
            freed(self.free.kind(node), gpus * permille);
        }
    }
}

/// How long a job is expected to hold GPUs: by its estimate, and no longer than its time limit.
fn length(job: JobRef<'_>, view: &View<'_>) -> Option<Span> {
    let limit = job.spec.run_max.map(|limit| limit.minus(job.state.ran(view.now)));
    match (view.time_to_end(job), limit) {
        (Some(left), Some(limit)) => Some(left.min(limit)),
        (one, None) | (None, one) => one,
    }
}

/// The waiting jobs, in order of arrival and by class; brought up to date by what changed.
#[derive(Default)]
struct Backlog {
    valid_for: Option<u64>,
    entries: FxHashMap<JobId, (usize, Time, Span)>,
    order: BTreeSet<Turn>,
    classes: Classes,
    lanes: Vec<Lane>,
}

/// The waiting jobs of one class.
#[derive(Default)]
struct Lane {
    by_arrival: BTreeSet<Turn>,
    by_length: BTreeSet<(Span, JobId)>,
}

impl Backlog {
    fn refresh(&mut self, view: &View<'_>) {
        if self.valid_for == Some(view.decision()) {
            for &job in view.changed() {
                self.update(view, job);
            }
        } else {
            *self = Backlog::default();
            for job in view.waiting() {
                self.update(view, job.id());
            }
        }
        self.valid_for = Some(view.decision() + 1);
    }

    fn update(&mut self, view: &View<'_>, id: JobId) {
        if let Some((class, submitted, length)) = self.entries.remove(&id) {
            self.order.remove(&(submitted, id));
            self.lanes[class].by_arrival.remove(&(submitted, id));
            self.lanes[class].by_length.remove(&(length, id));
        }
        if !view.state().waiting.contains(id) {
            return;
        }
        let Some(job) = view.job(id) else { return };
        let class = self.classes.number(job, view, view.state().has_ceilings);
        if class == self.lanes.len() {
            self.lanes.push(Lane::default());
        }
        // When a job without an estimate ends is not known, so it is never short enough to pass.
        let length = length(job, view).unwrap_or(Span::MAX).max(Span(1));
        let submitted = job.spec.submitted;
        self.entries.insert(id, (class, submitted, length));
        self.order.insert((submitted, id));
        self.lanes[class].by_arrival.insert((submitted, id));
        self.lanes[class].by_length.insert((length, id));
    }

    /// Whether a job waits that needs less than a whole GPU.
    fn has_fractions(&self) -> bool {
        let mut lanes = self.lanes.iter().enumerate();
        lanes.any(|(class, lane)| {
            !lane.by_arrival.is_empty() && self.classes.get(class).want.permille < 1000
        })
    }

    fn length(&self, job: JobId) -> Span {
        self.entries.get(&job).map_or(Span::MAX, |(_, _, length)| *length)
    }

    /// For how long from now a job of this class finds room.
    fn window(&self, class: usize, timeline: &Timeline) -> Span {
        let want = &self.classes.get(class).want;
        let need = u64::from(want.gpus) * u64::from(want.permille);
        let kinds = timeline.kinds().filter(|kind| want.accepts(*kind));
        kinds.map(|kind| timeline.room(kind, need)).max().unwrap_or(Span::ZERO)
    }

    /// The first of a class behind `after` that is no longer than `window`. Walks the jobs by arrival and by length at
    /// the same pace, so that it is quick both where many are short enough and where few are.
    fn next_within(&self, class: usize, after: Option<Turn>, window: Span) -> Option<Turn> {
        let lane = &self.lanes[class];
        let mut short = lane.by_length.range(..=(window, JobId(u32::MAX)));
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut first_short: Option<Turn> = None;
        for &turn in lane.by_arrival.range((from, Bound::Unbounded)) {
            if self.length(turn.1) <= window {
                return Some(turn);
            }
            let Some(&(_, job)) = short.next() else { return first_short };
            let turn = (self.entries.get(&job)?.1, job);
            let behind = after.is_none_or(|after| turn > after);
            if behind && first_short.is_none_or(|first| turn < first) {
                first_short = Some(turn);
            }
        }
        None
    }
}
