//! Lifts an order to a policy, so that an event costs what it changes and not the length of the queue.

use crate::index::RankIndex;
use crate::refill::Refill;
use crate::steady::SteadyOrder;
use crate::{Cx, GrantOutcome, JobRef, Offer, Policy, PolicyError, Rank, View};
use serde::{Deserialize, Serialize};
use trainyard_types::{GpuType, Grant, IdSet, JobId, JobState, Phase, Reason, Time};

/// What happens when a job does not fit.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fill {
    /// Those behind it wait.
    Strict,
    /// Those behind it may pass.
    #[default]
    Backfill,
}

/// How the order is turned into a plan at each decision.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// What runs keeps its place unless a job before it needs it.
    #[default]
    Changes,
    /// The cluster is emptied and filled again in order, as the published simulators do.
    Refill,
    /// The same, and a job that is left out moves behind those that run, as in Tiresias' own simulator.
    RefillRequeue,
    /// Which jobs run is counted anew in order, by GPUs alone; a job that ran and still does keeps its GPUs, and the
    /// others are placed in what is left, as in Pollux' simulator.
    Recount,
}

/// How often one decision walks over the queue when displaced gangs leave room behind.
const PASSES_MAX: u32 = 4;

/// What the walks of one decision found.
#[derive(Default)]
struct Pass {
    /// Jobs that may want a later change; not counted any more once a job was displaced.
    left_out: usize,
    displaced: bool,
    wake_at: Option<Time>,
}

/// An order, lifted to a policy.
pub struct Ranked<R> {
    rank: R,
    preempt: bool,
    fill: Fill,
    mode: Mode,
    index: RankIndex,
    list: Refill,
    steady: SteadyOrder,
}

impl<R: Rank> Ranked<R> {
    /// By default jobs are preempted and smaller ones may pass.
    pub fn new(rank: R) -> Ranked<R> {
        Ranked {
            rank,
            preempt: true,
            fill: Fill::Backfill,
            mode: Mode::Changes,
            index: RankIndex::default(),
            list: Refill::default(),
            steady: SteadyOrder::default(),
        }
    }

    /// Never takes GPUs from a job that runs.
    pub fn no_preemption(mut self) -> Ranked<R> {
        self.preempt = false;
        self
    }

    /// What happens when a job does not fit.
    pub fn fill(mut self, fill: Fill) -> Ranked<R> {
        self.fill = fill;
        self
    }

    /// How the order is turned into a plan.
    pub fn mode(mut self, mode: Mode) -> Ranked<R> {
        self.mode = mode;
        self
    }

    fn changes(&mut self, view: &View<'_>, offer: &mut Offer<'_>) {
        self.index.refresh(&mut self.rank, view, self.preempt);
        if view.waiting_len() == 0 {
            return;
        }
        let mut pass = Pass { left_out: view.waiting_len(), ..Pass::default() };
        for _ in 0..PASSES_MAX {
            pass.displaced = false;
            self.pass(view, offer, &mut pass);
            // A displaced job may have left more than was needed: jobs that found no room before look again.
            if !pass.displaced || offer.free().total() == 0 {
                break;
            }
        }
        // With no job left out, a key that changes can change nothing else.
        if pass.left_out > 0
            && let Some(time) = earlier(pass.wake_at, self.index.next_change(view.now))
        {
            offer.wake_at(time);
        }
    }

    /// One walk over the waiting jobs in order; a class is left out once one of it found no room.
    fn pass(&mut self, view: &View<'_>, offer: &mut Offer<'_>, pass: &mut Pass) {
        let mut turn = self.index.turn();
        while let Some(next) = turn.next(&self.index) {
            let Some(job) = view.job(next) else { continue };
            if offer.plan(next).is_some() {
                continue;
            }
            let free = offer.free().total();
            let answer = self.offer_one(job, view, offer);
            if answer == GrantOutcome::Refused {
                continue;
            }
            if answer == GrantOutcome::Taken {
                let displaced = offer.free().total() + job.spec.want.gpus > free;
                pass.displaced |= displaced;
                pass.left_out = if displaced { usize::MAX } else { pass.left_out - 1 };
                // When none is left out, it is not asked when a key changes.
                if self.preempt && pass.left_out > 0 {
                    pass.wake_at = earlier(pass.wake_at, self.next_change_of(job, view, offer));
                }
                continue;
            }
            if self.fill == Fill::Strict {
                turn.close_all(|job| offer.note(job, Reason::Outranked { by: next }));
                break;
            }
            if answer == GrantOutcome::Full
                && self.is_last(job, view)
                && !self.index.has_fractions()
            {
                break;
            }
            turn.close();
        }
    }

    /// Whether no job runs that this job or one behind it could displace.
    fn is_last(&mut self, job: JobRef<'_>, view: &View<'_>) -> bool {
        if !self.preempt {
            return true;
        }
        let key = self.rank.rank(job, view);
        self.index.seat_running();
        self.index.worst_first(key, view.now).next().is_none()
    }

    /// When the key of a job will change by itself, once what was offered is done.
    fn next_change_of(
        &mut self,
        job: JobRef<'_>,
        view: &View<'_>,
        offer: &Offer<'_>,
    ) -> Option<Time> {
        let state = once_adopted(job, view.now, offer);
        let job = JobRef { spec: job.spec, state: state.as_ref().unwrap_or(job.state) };
        self.rank.changes_at(job, view).filter(|time| *time > view.now)
    }

    fn offer_one(
        &mut self,
        job: JobRef<'_>,
        view: &View<'_>,
        offer: &mut Offer<'_>,
    ) -> GrantOutcome {
        let grant = self.rank.grant(job, view);
        if !self.preempt {
            return offer.grant(&grant);
        }
        let key = self.rank.rank(job, view);
        if !self.index.enough_behind(&key, &grant, view, offer) {
            return offer.grant(&grant);
        }
        // The order of those that run is only needed when one of them must go.
        let (index, now) = (&mut self.index, view.now);
        let victims = std::iter::once_with(move || {
            let index = index;
            index.seat_running();
            let index: &RankIndex = index;
            index.worst_first(key, now)
        });
        offer.instead(&grant, &mut victims.flatten())
    }

    /// The same as [`Ranked::refill`] for keys that stay while a job waits, and as quick as the jobs that changed or run.
    fn refill_steady(&mut self, view: &View<'_>, offer: &mut Offer<'_>) {
        self.steady.refresh(&mut self.rank, view);
        offer.everything();
        let mut stopped = false;
        let mut turn = self.steady.turn();
        while let Some(id) = turn.next(&self.steady) {
            let Some(job) = view.job(id) else { continue };
            let runs_on = !self.preempt && job.state.planned.is_some();
            if stopped && !runs_on {
                continue;
            }
            let answer = offer.grant(&self.rank.grant(job, view));
            if !matches!(answer, GrantOutcome::NoRoom | GrantOutcome::Full) {
                continue;
            }
            match self.fill {
                Fill::Backfill => turn.close(),
                Fill::Strict => {
                    stopped = true;
                    turn.close_waiting();
                }
            }
        }
    }

    fn refill(&mut self, view: &View<'_>, offer: &mut Offer<'_>) {
        let requeue = self.mode == Mode::RefillRequeue;
        self.list.order(&mut self.rank, view, requeue);
        offer.everything();
        let mut stopped_at: Option<JobId> = None;
        for &id in self.list.jobs() {
            let Some(job) = view.job(id) else { continue };
            let runs_on = !self.preempt && job.state.planned.is_some();
            if stopped_at.is_some() && !runs_on {
                continue;
            }
            let answer = offer.grant(&self.rank.grant(job, view));
            if matches!(answer, GrantOutcome::NoRoom | GrantOutcome::Full)
                && self.fill == Fill::Strict
            {
                stopped_at = Some(id);
            }
        }
        if requeue {
            self.list.requeue(|job| offer.plan(job).is_some());
        }
        self.wake_for_all(view, offer);
    }

    fn recount(&mut self, view: &View<'_>, offer: &mut Offer<'_>) {
        self.list.order(&mut self.rank, view, true);
        let counted = self.counted(view, offer);
        for &id in self.list.jobs() {
            if !counted.contains(id) {
                offer.revoke(id);
            }
        }
        // Limits on nodes or hosts may keep out a job that was counted in: what they leave is for the rest.
        let strict = self.fill == Fill::Strict;
        for is_counted in [true, false] {
            for job in self.list.jobs().iter().filter_map(|id| view.job(*id)) {
                if counted.contains(job.id()) != is_counted || offer.plan(job.id()).is_some() {
                    continue;
                }
                let answer = offer.grant(&self.rank.grant(job, view));
                if strict && matches!(answer, GrantOutcome::NoRoom | GrantOutcome::Full) {
                    break;
                }
            }
        }
        self.wake_for_all(view, offer);
    }

    /// The jobs that may run if only the number of GPUs of each type counts.
    fn counted(&self, view: &View<'_>, offer: &Offer<'_>) -> IdSet<JobId> {
        let room = |kind| u64::from(offer.free().in_service(kind)) * 1000;
        let shapes = view.state().shapes.iter();
        let mut left: Vec<(GpuType, u64)> = shapes.map(|(kind, _)| (*kind, room(*kind))).collect();
        let mut counted = IdSet::default();
        // A job that may not be stopped runs on, whatever its place.
        let runs_on =
            |job: JobRef<'_>| job.state.planned.is_some() && !(self.preempt && view.may_stop(job));
        for first in [true, false] {
            for job in self.list.jobs().iter().filter_map(|id| view.job(*id)) {
                if runs_on(job) != first {
                    continue;
                }
                if count_in(job, &self.rank.grant(job, view), view, &mut left) || first {
                    counted.insert(job.id());
                } else if self.fill == Fill::Strict {
                    break;
                }
            }
        }
        counted
    }

    /// Asks to be woken when the first key changes by itself.
    fn wake_for_all(&mut self, view: &View<'_>, offer: &mut Offer<'_>) {
        let mut wake_at = None;
        for id in self.list.jobs().to_vec() {
            let Some(job) = view.job(id) else { continue };
            wake_at = earlier(wake_at, self.next_change_of(job, view, offer));
        }
        if let Some(time) = wake_at {
            offer.wake_at(time);
        }
    }
}

impl<R: Rank> Policy for Ranked<R> {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        match self.mode {
            Mode::Changes => self.changes(view, offer),
            Mode::Refill if self.rank.is_steady() => self.refill_steady(view, offer),
            Mode::Refill | Mode::RefillRequeue => self.refill(view, offer),
            Mode::Recount => self.recount(view, offer),
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.rank.forget();
        self.index = RankIndex::default();
        self.list = Refill::default();
        self.steady = SteadyOrder::default();
    }
}

/// The state of a job as if what was offered were done at once; nothing if that is its state already.
pub fn once_adopted(job: JobRef<'_>, now: Time, offer: &Offer<'_>) -> Option<JobState> {
    let plan = offer.plan(job.id());
    if plan.is_some() == job.state.planned.is_some() {
        return None;
    }
    let mut state = job.state.clone();
    state.gpu_time = state.attained(now);
    state.ran = state.ran(now);
    state.since = now;
    state.planned = plan.cloned();
    state.held = plan.cloned();
    if plan.is_some() {
        state.phase = Phase::Starting;
        state.first_start.get_or_insert(now);
        state.last_start = Some(now);
    } else {
        state.phase = Phase::Waiting;
        state.queued_at = now;
    }
    Some(state)
}

/// Counts a job in on the type where it runs, or else on the first that has enough left; whether there was one.
fn count_in(job: JobRef<'_>, grant: &Grant, view: &View<'_>, left: &mut [(GpuType, u64)]) -> bool {
    let need = u64::from(grant.count()) * u64::from(job.spec.want.permille);
    let held = job.state.planned.as_ref().and_then(|plan| plan.placement.masks().first());
    let held = held.map(|(node, _)| view.cluster().node(*node).kind);
    let fits = |(kind, room): &&mut (GpuType, u64)| job.spec.want.accepts(*kind) && *room >= need;
    let chosen = left.iter_mut().filter(fits).min_by_key(|(kind, _)| (Some(*kind) != held, *kind));
    chosen.map(|(_, room)| *room -= need).is_some()
}

/// The earlier of two optional moments.
fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}
