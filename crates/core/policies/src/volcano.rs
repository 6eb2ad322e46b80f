//! Volcano: sessions once a second, in which gangs are enqueued, allocated whole, and may preempt or reclaim.

mod session;

use crate::alike::Classes;
use crate::pods::{NodeScore, PodByPod, Pods};
use crate::prelude::*;
use rustc_hash::FxHashSet;
use session::{Queue, Queues, need, queues};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use trainyard_types::TenantId;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "volcano",
    about: "Volcano: whole gangs, queues by their share of what they deserve or by dominant share, priorities within a queue.",
    paper: "Volcano documentation: actions, and the plugins gang, priority, drf, proportion and overcommit",
    needs: Needs::NOTHING,
    class: Taxonomy::rigid(Objective::Fairness, Family::ClusterManager)
        .by_setting("the actions `preempt` and `reclaim` stop jobs"),
    settings: &[
        ("period", "the time between two sessions; 0 for one at each event"),
        (
            "actions",
            "what a session does, in order, of `enqueue`, `allocate`, `backfill`, `preempt` and `reclaim`",
        ),
        ("overcommit", "GPUs that enqueued jobs may ask for in all, as a multiple of the cluster"),
        (
            "queue_order",
            "which queue is served first: `proportion`, the least part of what it deserves, or `drf`, the least dominant share by weight",
        ),
        (
            "past_share",
            "whether a queue below what it deserves may pass it with one gang; else it waits for others to ask for less",
        ),
        (
            "pod_gpus",
            "GPUs of a pod, into which a job is cut; 0 for as many as the largest node has",
        ),
        ("score", "which nodes are preferred: `least-allocated` or `most-allocated`"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    period: Span,
    actions: Vec<Action>,
    overcommit: f64,
    queue_order: QueueOrder,
    past_share: bool,
    pod_gpus: u32,
    score: NodeScore,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            period: Span::secs(1),
            actions: vec![Action::Enqueue, Action::Allocate, Action::Backfill],
            overcommit: 1.2,
            queue_order: QueueOrder::Proportion,
            past_share: true,
            pod_gpus: 0,
            score: NodeScore::LeastAllocated,
        }
    }
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Action {
    /// Gangs that the cluster could soon have room for are let into the queue.
    Enqueue,
    /// Gangs that fit get GPUs.
    Allocate,
    /// Pods that ask for nothing get a node: no job here does.
    Backfill,
    /// Gangs stop those of lower priority in their queue.
    Preempt,
    /// Gangs of queues below what they deserve stop those of queues above it.
    Reclaim,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum QueueOrder {
    Proportion,
    Drf,
}

/// A session costs O(admitted jobs, with their logarithm + tenants squared), and asks the placer once for each gang that
/// starts and for each class that does not.
struct Volcano {
    settings: Settings,
    /// Jobs that were let into the queue (`Inqueue`).
    enqueued: BTreeSet<JobId>,
    /// When the next session is held, where something happened since the last.
    due: Option<Time>,
}

/// Where a job stands in its queue: priority, then arrival (`priority`, then the creation of the PodGroup). A gang without
/// GPUs has no dominant share, so that `drf` leaves the order among those that wait as it is.
type Turn = (i64, i64, Time, JobId);

fn turn(job: JobRef<'_>) -> Turn {
    let spec = job.spec;
    (spec.class as i64, -i64::from(spec.priority), spec.submitted, spec.id)
}

/// One session.
struct Session<'m, 'v, 'o> {
    view: &'m View<'v>,
    offer: &'m mut Offer<'o>,
    queues: Queues,
    total: f64,
    classes: Classes,
    /// Classes that do not fit; of each queue the most important come first.
    failed: FxHashSet<usize>,
    /// Classes that do not fit at the expense of others either, in the present action.
    stuck: FxHashSet<usize>,
}

impl Volcano {
    /// Whether a session is held now; if not, when the next is.
    fn holds_session(&mut self, view: &View<'_>, offer: &mut Offer<'_>) -> bool {
        let period = self.settings.period.0;
        if period == 0 || view.keeps_rounds() {
            return true;
        }
        let next = Time(view.now.0.div_ceil(period).saturating_mul(period));
        let due = *self.due.get_or_insert(next);
        if due <= view.now {
            self.due = None;
            return true;
        }
        offer.wake_at(due);
        false
    }

    /// How far a queue is served: the smaller, the sooner it is its turn.
    fn share(&self, queue: &Queue, total: f64) -> f64 {
        let (part, whole) = match self.settings.queue_order {
            QueueOrder::Proportion => (queue.allocated, queue.deserved),
            QueueOrder::Drf => (queue.allocated / total.max(1.0), queue.weight),
        };
        if whole > 0.0 {
            part / whole
        } else if part > 0.0 {
            f64::INFINITY
        } else {
            // A queue without weight comes last, and is served where others leave room.
            1.0
        }
    }

    /// Waiting jobs of each queue in turn.
    fn waiting(&self, session: &Session<'_, '_, '_>) -> Vec<(TenantId, Vec<Turn>)> {
        let mut all: Vec<(TenantId, Turn)> = session
            .view
            .waiting()
            .filter(|job| session.offer.plan(job.id()).is_none())
            .map(|job| (job.spec.tenant, turn(job)))
            .collect();
        all.sort_unstable();
        let of = |chunk: &[(TenantId, Turn)]| (chunk[0].0, chunk.iter().map(|it| it.1).collect());
        all.chunk_by(|a, b| a.0 == b.0).map(of).collect()
    }

    /// Lets jobs into the queue while what it asks for stays below the cluster times `overcommit`, less what is used.
    fn enqueue(&mut self, session: &mut Session<'_, '_, '_>) {
        let (view, total) = (session.view, session.total);
        self.enqueued.retain(|id| view.state().waiting.contains(*id));
        let used: f64 = session.queues.values().map(|queue| queue.allocated).sum();
        let idle = total * self.settings.overcommit - used;
        let asks = |id: &JobId| view.job(*id).map_or(0.0, need);
        let mut asked: f64 = self.enqueued.iter().map(asks).sum();
        let mut waiting = self.waiting(session);
        let by_share = |id: &TenantId| self.share(&session.queues[id], total);
        waiting.sort_by(|a, b| by_share(&a.0).total_cmp(&by_share(&b.0)).then(a.0.cmp(&b.0)));
        for (_, turns) in waiting {
            for (_, _, _, id) in turns {
                let Some(job) = view.job(id).filter(|_| !self.enqueued.contains(&id)) else {
                    continue;
                };
                if asked + need(job) <= idle + 1e-9 {
                    asked += need(job);
                    self.enqueued.insert(id);
                }
            }
        }
    }

    /// Whether jobs must be let into the queue at all.
    fn is_in(&self, id: JobId) -> bool {
        !self.settings.actions.contains(&Action::Enqueue) || self.enqueued.contains(&id)
    }

    /// Queue after queue, the least served first, one gang at a time.
    fn allocate_gangs(&mut self, session: &mut Session<'_, '_, '_>) {
        let mut waiting = self.waiting(session);
        for (_, turns) in &mut waiting {
            turns.retain(|turn| self.is_in(turn.3));
            // The next is at the end.
            turns.reverse();
        }
        let mut open: Vec<usize> = (0..waiting.len()).collect();
        loop {
            open.retain(|index| !waiting[*index].1.is_empty());
            let share =
                |index: &usize| self.share(&session.queues[&waiting[*index].0], session.total);
            let least = open.iter().copied().min_by(|a, b| {
                share(a).total_cmp(&share(b)).then(waiting[*a].0.cmp(&waiting[*b].0))
            });
            let Some(index) = least else { return };
            let tenant = waiting[index].0;
            let queue = &session.queues[&tenant];
            // Overused: `deserved` is not more than `allocated`.
            if queue.weight > 0.0 && queue.deserved <= queue.allocated + 1e-9 {
                open.retain(|other| *other != index);
                continue;
            }
            let Some((_, _, _, id)) = waiting[index].1.pop() else { continue };
            let Some(job) = session.view.job(id) else { continue };
            let within = queue.allocated + need(job) <= queue.deserved + 1e-9;
            if (within || self.settings.past_share) && session.try_gang(job) {
                self.enqueued.remove(&id);
            }
        }
    }

    /// Gangs at the expense of less important ones of the same queue.
    fn preempt(&mut self, session: &mut Session<'_, '_, '_>) {
        let view = session.view;
        session.stuck.clear();
        for (tenant, turns) in self.waiting(session) {
            for (class, priority, _, id) in turns {
                let tried = view.job(id).filter(|_| self.is_in(id));
                let Some(job) = tried.filter(|job| !session.is_stuck(*job)) else { continue };
                let victims = session.victims(|job| {
                    let (own, level, _, _) = turn(job);
                    job.spec.tenant == tenant && (own, level) > (class, priority)
                });
                if !victims.is_empty() && session.instead(job, &victims) {
                    self.enqueued.remove(&id);
                }
            }
        }
    }

    /// Gangs of queues below what they deserve at the expense of queues that stay at what they deserve without the victim
    /// (`reclaimable` of `proportion`).
    fn reclaim(&mut self, session: &mut Session<'_, '_, '_>) {
        let view = session.view;
        session.stuck.clear();
        for (tenant, turns) in self.waiting(session) {
            for (_, _, _, id) in turns {
                let tried = view.job(id).filter(|_| self.is_in(id));
                let Some(job) = tried.filter(|job| !session.is_stuck(*job)) else { continue };
                let own = &session.queues[&tenant];
                if own.allocated + need(job) > own.deserved + 1e-9 {
                    continue;
                }
                let mut spare: Vec<(TenantId, f64)> =
                    session.queues.iter().map(|(id, q)| (*id, q.allocated - q.deserved)).collect();
                let victims = session.victims(|other| other.spec.tenant != tenant);
                let spared = |id: &JobId| {
                    let Some(other) = view.job(*id) else { return false };
                    let of = spare.iter_mut().find(|(id, _)| *id == other.spec.tenant);
                    let Some((_, left)) = of.filter(|(_, left)| *left + 1e-9 >= need(other)) else {
                        return false;
                    };
                    *left -= need(other);
                    true
                };
                let victims: Vec<JobId> = victims.into_iter().filter(spared).collect();
                if !victims.is_empty() && session.instead(job, &victims) {
                    self.enqueued.remove(&id);
                }
            }
        }
    }
}

impl Session<'_, '_, '_> {
    /// A gang, if all of it fits.
    fn try_gang(&mut self, job: JobRef<'_>) -> bool {
        let class = self.classes.number(job, self.view, true);
        if self.failed.contains(&class) {
            return false;
        }
        let taken = self.offer.grant(&wanted(job)) == GrantOutcome::Taken;
        if taken {
            self.count(job, need(job));
        } else {
            self.failed.insert(class);
        }
        taken
    }

    fn count(&mut self, job: JobRef<'_>, more: f64) {
        if let Some(queue) = self.queues.get_mut(&job.spec.tenant) {
            queue.allocated += more;
        }
    }

    /// Jobs that run and may go, the least important and latest first.
    fn victims(&self, is_one: impl Fn(JobRef<'_>) -> bool) -> Vec<JobId> {
        let running = self.view.granted().filter(|job| {
            self.offer.plan(job.id()).is_some() && self.view.may_stop(*job) && is_one(*job)
        });
        let mut victims: Vec<Turn> = running.map(turn).collect();
        victims.sort_unstable_by_key(|turn| Reverse(*turn));
        victims.into_iter().map(|turn| turn.3).collect()
    }

    fn is_stuck(&mut self, job: JobRef<'_>) -> bool {
        let class = self.classes.number(job, self.view, true);
        self.stuck.contains(&class)
    }

    /// A gang at the expense of others; those that need not go stay.
    fn instead(&mut self, job: JobRef<'_>, victims: &[JobId]) -> bool {
        let taken = self.offer.instead(&wanted(job), &mut victims.iter().copied());
        if taken != GrantOutcome::Taken {
            self.stuck.insert(self.classes.number(job, self.view, true));
            return false;
        }
        self.count(job, need(job));
        for victim in victims.iter().filter_map(|id| self.view.job(*id)) {
            if self.offer.plan(victim.id()).is_none() {
                self.count(victim, -need(victim));
            }
        }
        true
    }
}

impl Policy for Volcano {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        if view.waiting_len() == 0 {
            self.forget();
            return Ok(());
        }
        if !self.holds_session(view, offer) {
            return Ok(());
        }
        let total = f64::from(offer.free().in_service_total());
        let queues = queues(view, total);
        let (failed, stuck) = (FxHashSet::default(), FxHashSet::default());
        let classes = Classes::default();
        let mut session = Session { view, offer, queues, total, classes, failed, stuck };
        for action in self.settings.actions.clone() {
            match action {
                Action::Enqueue => self.enqueue(&mut session),
                Action::Allocate => self.allocate_gangs(&mut session),
                Action::Backfill => {}
                Action::Preempt => self.preempt(&mut session),
                Action::Reclaim => self.reclaim(&mut session),
            }
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.enqueued.clear();
        self.due = None;
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    if !(settings.overcommit >= 1.0 && settings.overcommit.is_finite()) {
        return Err(ENTRY.bad_value("overcommit", settings.overcommit, "a number of at least 1"));
    }
    if !settings.actions.contains(&Action::Allocate) {
        let expected = "a list with `allocate` in it: nothing runs without";
        return Err(ENTRY.bad_value("actions", "without `allocate`", expected));
    }
    let placer = PodByPod(Pods { gpus: settings.pod_gpus, score: settings.score });
    let policy = Volcano { settings, enqueued: BTreeSet::new(), due: None };
    Ok(Pipeline::new(policy, placer, ENTRY.needs))
}
