//! The engine's parts, and the two calls a host makes.

use crate::fallback;
use crate::machines::Machines;
use crate::occupancy::Occupancy;
use crate::own_state::{OwnState, Writable};
use crate::resizing::Resizing;
use crate::setup::{Setup, Trigger};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trainyard_framework::{Beliefs, Free, Live, Pipeline, Snapshot, State};
use trainyard_types::{
    Action, Attempt, Cluster, End, Event, Fault, IdSet, JobId, NodeId, Reason, Span, Tenants, Time,
    WindowId,
};

/// The engine. See the crate's documentation.
pub struct Engine {
    pub(crate) state: OwnState,
    pub(crate) free: Free,
    pub(crate) real: Occupancy,
    pub(crate) machines: Machines,
    pub(crate) beliefs: Arc<dyn Beliefs>,
    pub(crate) setup: Setup,
    pub(crate) timers: BTreeSet<(Time, Timer)>,
    /// Why jobs may not run yet.
    pub(crate) blocked: BTreeMap<JobId, Block>,
    /// Jobs that wait for a job to finish.
    pub(crate) dependents: BTreeMap<JobId, Vec<JobId>>,
    /// How jobs ended, by id.
    pub(crate) ends: Vec<Option<End>>,
    /// Jobs that end as soon as they have stopped.
    pub(crate) ending: BTreeMap<JobId, End>,
    /// Jobs that must stop because a machine was lost.
    pub(crate) evicted: BTreeSet<JobId>,
    /// Jobs that must stop because a window is about to begin.
    pub(crate) leaving: BTreeSet<JobId>,
    /// Jobs whose plan differs from reality.
    pub(crate) dirty: IdSet<JobId>,
    /// Jobs that a user sends back to the queue and that have not stopped yet.
    pub(crate) requeued: BTreeSet<JobId>,
    /// Jobs that were told of other GPUs and have not gone over to them yet.
    pub(crate) resizing: BTreeMap<JobId, Resizing>,
    /// Jobs that are being put aside.
    pub(crate) suspending: BTreeSet<JobId>,
    /// Jobs that are put aside and are being killed.
    pub(crate) discarding: BTreeSet<JobId>,
    /// Jobs of which something changed that must survive a restart.
    pub(crate) touched: IdSet<JobId>,
    /// Whether a question is out.
    pub(crate) asked: bool,
    pub(crate) notes: BTreeMap<JobId, Reason>,
    pub(crate) wake_at: Option<Time>,
    pub(crate) wants_decision: bool,
    /// Whether the host said so since the last decision.
    pub(crate) round_over: bool,
    /// When the policy was last asked.
    pub(crate) decided_at: Option<Time>,
    pub(crate) outbox: Vec<Action>,
    /// Jobs that ended and were not yet asked for.
    pub(crate) over: Vec<(Arc<Live>, End)>,
    pub(crate) stats: Stats,
    pub(crate) policy_failures: u32,
    pub(crate) policy_retry_at: Time,
    pub(crate) fallback: Pipeline,
}

/// What may be due by the clock alone.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A job's start time or retry time has come.
    Unblock(JobId),
    /// A launch has used up the job's time limit.
    Limit(JobId, Attempt),
    /// A node's quarantine is over.
    Readmit(NodeId),
    /// A job has to be gone from a node that is soon in a window.
    Leave(JobId),
    /// A window begins or is over.
    Window(WindowId),
    /// A launch should have gone over to other GPUs.
    Resize(JobId, Attempt),
    /// A job has been put aside for as long as it waits for its own GPUs.
    Away(JobId, Attempt),
}

/// Why a job may not run yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Block {
    pub(crate) by_user: bool,
    pub(crate) throttled: bool,
    /// Jobs it must follow that are not over.
    pub(crate) after: Vec<JobId>,
    pub(crate) not_before: Option<Time>,
    pub(crate) retry_at: Option<Time>,
}

impl Block {
    pub(crate) fn is_over(&self) -> bool {
        !self.by_user
            && !self.throttled
            && self.after.is_empty()
            && self.not_before.is_none()
            && self.retry_at.is_none()
    }
}

/// What an engine has counted so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Times the policy was asked.
    pub decisions: u64,
    /// Decisions that changed nothing.
    pub idle_decisions: u64,
    /// Launches.
    pub launches: u64,
    /// Stops in favour of others.
    pub preemptions: u64,
    /// Stops to go on elsewhere or at another size.
    pub moves: u64,
    /// Jobs put aside in host memory, each time.
    #[serde(skip_serializing_if = "is_none")]
    pub suspends: u64,
    /// Jobs brought back from there.
    #[serde(skip_serializing_if = "is_none")]
    pub resumes: u64,
    /// Jobs killed to go back to their last checkpoint, put aside or running.
    #[serde(skip_serializing_if = "is_none")]
    pub dropped: u64,
    /// Messages of attempts that were over.
    pub stale_events: u64,
    /// Changes dropped because something happened while the policy thought.
    pub overtaken: u64,
    /// Grants dropped because they were faulty.
    pub faults: u64,
    /// The first few of them.
    pub fault_samples: Vec<Fault>,
    /// Errors of the policy.
    pub policy_errors: u64,
    /// Panics of the policy.
    pub policy_panics: u64,
    /// Times the policy was cut off because it took too long.
    pub policy_stuck: u64,
    /// Decisions taken by the fallback order instead.
    pub fallbacks: u64,
    /// Nodes put into quarantine.
    pub quarantines: u64,
    /// How far below the best a decision may be at most, in millionths, over all that prove it.
    pub gap_worst: Option<u32>,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

impl Engine {
    /// An engine without jobs.
    pub fn new(
        cluster: Arc<Cluster>,
        tenants: Tenants,
        beliefs: Arc<dyn Beliefs>,
        setup: Setup,
    ) -> Engine {
        let mut state = State::new(Arc::clone(&cluster), tenants);
        state.aside.rule = setup.suspend;
        state.isolates = setup.isolates_tenants;
        state.keeps_rounds = matches!(setup.trigger, Trigger::Barrier(_));
        let declared = cluster.windows.clone();
        let mut engine = Engine {
            free: Free::new(&cluster),
            real: Occupancy::new(&cluster),
            machines: Machines::new(&cluster),
            state: OwnState::new(state),
            beliefs,
            setup,
            timers: BTreeSet::new(),
            blocked: BTreeMap::new(),
            dependents: BTreeMap::new(),
            ends: Vec::new(),
            ending: BTreeMap::new(),
            evicted: BTreeSet::new(),
            leaving: BTreeSet::new(),
            dirty: IdSet::default(),
            requeued: BTreeSet::new(),
            resizing: BTreeMap::new(),
            suspending: BTreeSet::new(),
            discarding: BTreeSet::new(),
            touched: IdSet::default(),
            asked: false,
            notes: BTreeMap::new(),
            wake_at: None,
            wants_decision: false,
            round_over: false,
            decided_at: None,
            outbox: Vec::new(),
            over: Vec::new(),
            stats: Stats::default(),
            policy_failures: 0,
            policy_retry_at: Time::ZERO,
            fallback: fallback::pipeline(),
        };
        for window in declared {
            engine.window_set(Time::ZERO, window);
        }
        engine
    }

    /// Takes note of something that happened. Time never goes back: an earlier `at` counts as now.
    pub fn apply(&mut self, at: Time, event: Event) {
        let at = self.advance(at);
        match event {
            Event::Submitted(job) => self.submitted(at, job),
            Event::Cancelled(job) => self.stop_for_good(at, job, End::Cancelled),
            Event::Hold(job) => self.hold(at, job),
            Event::Release(job) => self.release(at, job),
            Event::Requeue(job) => self.requeue(at, job),
            Event::GivenUp(job) => self.stop_for_good(at, job, End::Failed),
            Event::Throttle(job, on) => self.throttle(at, job, on),
            Event::TenantAdded(tenant) => self.add_tenant(tenant),
            Event::Started { job, attempt } => self.started(at, job, attempt),
            Event::Resized { job, attempt } => self.resized(at, job, attempt),
            Event::Suspended { job, attempt, memory_mib } => {
                self.suspended(at, job, attempt, memory_mib);
            }
            Event::NotSuspended { job, attempt } => self.not_suspended(at, job, attempt),
            Event::Stopped { job, attempt, done } => self.stopped(at, job, attempt, done),
            Event::Finished { job, attempt } => self.finished(at, job, attempt),
            Event::Failed { job, attempt, cause, done } => {
                self.failed(at, job, attempt, (cause, done));
            }
            Event::Report { job, attempt, sample } => self.report(at, job, attempt, &sample),
            Event::NodeUp(node) => self.node_up(at, node),
            Event::NodeLost(node) => self.node_lost(at, node),
            Event::NodeDrained(node) => self.node_drained(node),
            Event::GpuLost(gpu) => self.gpu_lost(at, gpu),
            Event::GpuBack(gpu) => self.gpu_back(gpu),
            Event::GpuQuarantined { gpu, evict } => self.quarantine_gpu(at, gpu, evict),
            Event::GpuReturned(gpu) => self.return_gpu(gpu),
            Event::Claimed(node, gpus) => self.claim(at, node, gpus),
            Event::RoundOver => self.round_over = true,
            Event::Needed(pool, nodes) => self.needed(pool, nodes),
            Event::WindowSet(window) => self.window_set(at, window),
            Event::WindowRemoved(id) => self.window_removed(at, id),
            Event::PriceChanged(kind, price) => {
                let mut cluster = Cluster::clone(&self.state.cluster);
                cluster.kinds[kind.index()].price_per_hour = price;
                self.state_mut().cluster = Arc::new(cluster);
                self.wants_decision = true;
            }
            Event::QuotaChanged(tenant, ceiling) => {
                let state = self.state_mut();
                state.tenants.set_ceiling(tenant, ceiling);
                state.has_ceilings =
                    state.tenants.iter().any(|(_, tenant)| tenant.ceiling.is_some());
                self.wants_decision = true;
            }
        }
    }

    /// Fires what is due and says what is to be done, without asking the policy: for a host that lets it think
    /// elsewhere, see [`Engine::request`].
    pub fn tick(&mut self, at: Time) -> Vec<Action> {
        let at = self.advance(at);
        self.fire_timers(at);
        self.reconcile(at);
        std::mem::take(&mut self.outbox)
    }

    /// Jobs of which something changed since the last call that must survive a restart, over or not.
    pub fn take_touched(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.touched).iter().collect()
    }

    /// When [`Engine::step`] must be called though no event comes.
    pub fn due(&self) -> Option<Time> {
        let timer = self.timers.first().map(|(time, _)| *time);
        let wake = match self.setup.trigger {
            Trigger::Events => self.wake_at,
            Trigger::Clock(span) => self.is_busy().then(|| next_multiple(self.state.now, span)),
            Trigger::Barrier(_) => self.wake_at.filter(|_| self.state.granted.is_empty()),
            Trigger::Slots(span) => {
                let called = if self.wants_decision { Some(self.state.now) } else { self.wake_at };
                called.map(|time| time.max(self.slot_over(span)))
            }
        };
        match (timer, wake) {
            (Some(timer), Some(wake)) => Some(timer.min(wake)),
            (one, None) | (None, one) => one,
        }
    }

    /// A frozen copy of what is known, for a policy that thinks while the engine goes on.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            now: self.state.now,
            state: self.state.freeze(),
            free: self.free.clone(),
            beliefs: Arc::clone(&self.beliefs),
        }
    }

    /// What is known, to be looked at.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What is believed about speeds and sizes.
    pub fn beliefs(&self) -> &dyn Beliefs {
        self.beliefs.as_ref()
    }

    /// What is free by the plan.
    pub fn free(&self) -> &Free {
        &self.free
    }

    /// Jobs that ended since the last call, as they were at their end.
    pub fn take_over(&mut self) -> Vec<(Arc<Live>, End)> {
        std::mem::take(&mut self.over)
    }

    /// The same into a list, which is emptied first.
    #[inline]
    pub fn take_over_into(&mut self, over: &mut Vec<(Arc<Live>, End)>) {
        over.clear();
        std::mem::swap(over, &mut self.over);
    }

    /// Until when a node is left alone because it failed too often.
    pub fn quarantined_until(&self, node: NodeId) -> Option<Time> {
        self.machines.quarantined_until(node)
    }

    /// Nodes that the owners of their pools had when the engine was kept, for one that is made anew. What they need
    /// ([`Event::Needed`]) is told afterwards.
    pub fn restore_reclaimed(&mut self, nodes: &[NodeId]) {
        for node in nodes {
            self.keep_node(*node, true);
        }
    }

    /// Whether the owner of its pool has taken a node back.
    pub fn is_reclaimed(&self, node: NodeId) -> bool {
        self.machines.stand(node).1
    }

    /// What was counted so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// How a job ended, if it did.
    pub fn end(&self, job: JobId) -> Option<End> {
        self.ends.get(job.index()).copied().flatten()
    }

    /// What is believed, to be changed; a policy that is deciding meanwhile keeps the old beliefs.
    pub(crate) fn beliefs_mut(&mut self) -> &mut dyn Beliefs {
        if Arc::get_mut(&mut self.beliefs).is_none() {
            self.beliefs = self.beliefs.copied();
        }
        Arc::get_mut(&mut self.beliefs).expect("no other owner has a fresh copy")
    }

    #[inline]
    pub(crate) fn state_mut(&mut self) -> &mut State {
        self.state.write()
    }

    pub(crate) fn advance(&mut self, at: Time) -> Time {
        let at = at.max(self.state.now);
        if at > self.state.now {
            self.state_mut().now = at;
            self.free.set_now(at);
        }
        at
    }

    fn is_busy(&self) -> bool {
        let state = &self.state;
        !(state.waiting.is_empty() && state.granted.is_empty() && state.unadmitted.is_empty())
    }

    pub(crate) fn decision_due(&self, at: Time) -> bool {
        let called = self.wants_decision || self.wake_at.is_some_and(|time| time <= at);
        match self.setup.trigger {
            Trigger::Events => called,
            Trigger::Barrier(_) => self.round_over || (called && self.state.granted.is_empty()),
            // Once for each tick, unless something happened since: what jobs report of a new batch must not be
            // answered with another one in the same moment, for ever.
            Trigger::Clock(span) => {
                let is_new = self.decided_at != Some(at) || self.wants_decision;
                at.0.is_multiple_of(span.0.max(1)) && self.is_busy() && is_new
            }
            Trigger::Slots(span) => called && at >= self.slot_over(span),
        }
    }

    /// When the slot of the last decision is over.
    fn slot_over(&self, span: Span) -> Time {
        self.decided_at.map_or(Time::ZERO, |decided| decided + span)
    }

    pub(crate) fn fire_timers(&mut self, at: Time) {
        while let Some(&(time, timer)) = self.timers.first() {
            if time > at {
                return;
            }
            self.timers.pop_first();
            match timer {
                Timer::Unblock(job) => self.unblock(at, job),
                Timer::Limit(job, attempt) => {
                    // A job that was stopped keeps the number of its attempt until its next launch, which sets
                    // another timer: time without GPUs does not count.
                    let live = self.state.live(job);
                    let holds =
                        |live: &Live| live.state.attempt == attempt && live.state.is_placed();
                    match live.filter(|live| holds(live)) {
                        // While it was put aside its clock stood still.
                        Some(live)
                            if live.spec.run_max.is_some_and(|max| live.state.ran(at) < max) =>
                        {
                            let limit = live.spec.run_max.unwrap_or(Span::ZERO);
                            let left = limit.minus(live.state.ran(at));
                            self.timers.insert((at + left, Timer::Limit(job, attempt)));
                        }
                        Some(_) => self.stop_for_good(at, job, End::TimeLimit),
                        None => {}
                    }
                }
                Timer::Readmit(node) => self.readmit(node),
                Timer::Leave(job) => self.leave_or_watch(at, job),
                Timer::Window(id) => self.window_turns(at, id),
                Timer::Resize(job, attempt) => self.resize_is_late(at, job, attempt),
                Timer::Away(job, attempt) => self.away_for_long(at, job, attempt),
            }
        }
    }
}

fn next_multiple(now: Time, span: Span) -> Time {
    let span = span.0.max(1);
    Time((now.0 / span + 1).saturating_mul(span))
}
