//! kube-scheduler as it comes: pod by pod. A gang's pods are bound one by one, and those that are bound hold their GPUs
//! while the rest waits.

mod book;
mod victims;

use crate::alike::Classes;
use crate::pods::{NodeScore, Pods, asked};
use crate::prelude::*;
use book::{Book, Partial, holding};
use rustc_hash::{FxHashMap, FxHashSet};
use trainyard_framework::fraction;
use trainyard_types::{Grant, Shape};
use victims::{Level, level, victims};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "kube-scheduler",
    about: "Kubernetes as it comes: pods one by one by priority; a gang holds the GPUs of its bound pods while the rest waits.",
    paper: "Kubernetes documentation: scheduling framework, pod priority and preemption, scheduler configuration",
    needs: Needs::NOTHING,
    class: Taxonomy::rigid(Objective::Arrival, Family::ClusterManager)
        .preemptive()
        .by_setting("`preempt=false` stops no job"),
    settings: &[
        (
            "pod_gpus",
            "GPUs of a pod, into which a job is cut; 0 for as many as the largest node has",
        ),
        ("score", "which nodes are preferred: `least-allocated` or `most-allocated`, by GPUs"),
        ("preempt", "whether pods of a higher class or priority stop jobs of a lower one"),
        ("backoff", "how long a pod that found no node waits at least; doubled each time"),
        ("backoff_max", "the longest such wait"),
        (
            "gang_timeout",
            "after how long a gang whose pods are not all bound fails and lets go of its GPUs; 0 for never",
        ),
        ("recreate", "how long after that its pods are made again; doubled each time"),
        ("recreate_max", "the longest such wait"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    pod_gpus: u32,
    score: NodeScore,
    preempt: bool,
    /// `podInitialBackoffSeconds` and `podMaxBackoffSeconds` of the scheduler's configuration.
    backoff: Span,
    backoff_max: Span,
    /// The time-out of a rendezvous of `torchrun`.
    gang_timeout: Span,
    /// The Job controller's delays of failed pods.
    recreate: Span,
    recreate_max: Span,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            pod_gpus: 0,
            score: NodeScore::LeastAllocated,
            preempt: true,
            backoff: Span::secs(1),
            backoff_max: Span::secs(10),
            gang_timeout: Span::secs(600),
            recreate: Span::secs(10),
            recreate_max: Span::secs(360),
        }
    }
}

/// What was tried for a job that waits.
#[derive(Copy, Clone, Default)]
struct Tries {
    /// Since it was last made anew.
    attempts: u32,
    /// How often its gang gave up.
    given_up: u32,
    /// When it may be tried again.
    again_at: Time,
    /// When it was put back into the queue, if it ever was.
    stamp: Option<Time>,
    /// How often room had been made when it was tried.
    moves: Option<u64>,
}

/// A decision costs O(waiting jobs, with their logarithm) and O(nodes with room) for each pod that is tried, one for each
/// class that does not fit; a pod that may preempt adds O(jobs with GPUs + nodes).
struct KubeScheduler {
    settings: Settings,
    pods: Pods,
    book: Book,
    tries: FxHashMap<JobId, Tries>,
    /// How often room was made.
    moves: u64,
    /// GPUs that no job held after the last decision.
    left: u32,
}

/// One decision.
struct Moment<'m, 'v, 'o> {
    view: &'m View<'v>,
    offer: &'m mut Offer<'o>,
    /// What is free besides what bound pods hold.
    seen: Free,
    /// The least important level among those that could be preempted.
    lowest: Option<Level>,
    /// Classes whose first pod finds no node.
    failed: FxHashSet<usize>,
}

/// A wait that is doubled each time, up to a limit.
fn doubled(first: Span, times: u32, most: Span) -> Span {
    Span(first.0.saturating_mul(1u64 << times.min(32))).min(most)
}

impl KubeScheduler {
    /// Forgets what was tried for jobs that no longer wait; room that was made moves all that wait to the active queue.
    fn refresh(&mut self, moment: &mut Moment<'_, '_, '_>) {
        let view = moment.view;
        self.tries.retain(|id, _| view.state().waiting.contains(*id));
        self.book.hold(view, &mut moment.seen);
        self.give_up(moment);
        if moment.seen.total() > self.left || !view.ended().is_empty() {
            self.moves += 1;
        }
        let held = self.book.0.keys().filter_map(|id| view.job(*id));
        moment.lowest = match self.settings.preempt {
            true => view.granted().chain(held).map(|job| level(job.spec)).max(),
            false => None,
        };
    }

    /// Gangs that waited too long for their last pods fail, and are made anew after a while.
    fn give_up(&mut self, moment: &mut Moment<'_, '_, '_>) {
        let (now, limit) = (moment.view.now, self.settings.gang_timeout);
        if limit == Span::ZERO {
            return;
        }
        let late = |partial: &Partial| partial.since + limit <= now;
        let late: Vec<JobId> =
            self.book.0.iter().filter(|(_, one)| late(one)).map(|(id, _)| *id).collect();
        for id in late {
            let Some(job) = moment.view.job(id) else { continue };
            self.book.let_go(job, &mut moment.seen);
            let tries = self.tries.entry(id).or_default();
            let wait = doubled(self.settings.recreate, tries.given_up, self.settings.recreate_max);
            let again_at = now + wait;
            let given_up = tries.given_up + 1;
            *tries = Tries { given_up, again_at, stamp: Some(again_at), ..Tries::default() };
        }
    }

    /// The jobs to be tried now, by class, priority and the time they were put into the queue (`PrioritySort`).
    fn active(&mut self, moment: &mut Moment<'_, '_, '_>) -> Vec<JobId> {
        let now = moment.view.now;
        let mut active: Vec<(Level, Time, JobId)> = Vec::new();
        for job in moment.view.waiting() {
            let tries = self.tries.get(&job.id()).copied().unwrap_or_default();
            if tries.moves == Some(self.moves) {
                continue;
            }
            if tries.again_at > now {
                moment.offer.wake_at(tries.again_at);
                continue;
            }
            let stamp = tries.stamp.unwrap_or(job.spec.submitted);
            active.push((level(job.spec), stamp, job.id()));
        }
        active.sort_unstable();
        active.into_iter().map(|(_, _, id)| id).collect()
    }

    /// A job whose pods did not all find a node goes to the unschedulable ones, with a wait.
    fn put_back(&mut self, id: JobId, now: Time) {
        let tries = self.tries.entry(id).or_default();
        let wait = doubled(self.settings.backoff, tries.attempts, self.settings.backoff_max);
        tries.attempts += 1;
        tries.again_at = now + wait;
        tries.stamp = Some(now);
        tries.moves = Some(self.moves);
    }

    /// Tries the pods of a job that are not bound; true if all are, so that it runs.
    fn schedule(&mut self, job: JobRef<'_>, moment: &mut Moment<'_, '_, '_>) -> bool {
        let want = &job.spec.want;
        let grant = wanted(job);
        let need = u64::from(want.gpus) * u64::from(want.permille);
        let known = self.book.0.contains_key(&job.id());
        if !known {
            // Pods over a quota are not even made (ResourceQuota); those of gangs that wait count.
            let others = self.book.asked(job.spec.tenant, moment.view);
            if moment.offer.ceiling_passed(job, need + others).is_some() {
                return false;
            }
        }
        if want.permille < 1000 {
            let found = fraction::tightest(&asked(job, &grant, None), &moment.seen);
            return found.is_some_and(|place| moment.run(job, &grant, place, &mut self.book));
        }
        let known = self.book.0.remove(&job.id());
        let Some(mut partial) = known.or_else(|| self.fresh(job, &grant, moment)) else {
            return false;
        };
        self.bind(job, &grant, &mut partial, moment);
        if partial.rest.is_empty() {
            let held = holding(job.spec, &partial.bound);
            moment.seen.give(&held);
            return moment.run(job, &grant, held.placement, &mut self.book);
        }
        if !partial.bound.is_empty() {
            self.book.0.insert(job.id(), partial);
        }
        false
    }

    /// The pods of a job of which none is bound, on the type that is best for the first.
    fn fresh(
        &self,
        job: JobRef<'_>,
        grant: &Grant,
        moment: &Moment<'_, '_, '_>,
    ) -> Option<Partial> {
        let (view, ask) = (moment.view, asked(job, grant, None));
        let begin = |kind, rest| Partial { kind, bound: Vec::new(), rest, since: view.now };
        if let Some((kind, sizes)) = self.pods.kinds(&ask, (view, &moment.seen)).into_iter().next()
        {
            return Some(begin(kind, sizes));
        }
        if moment.lowest.is_none_or(|lowest| lowest <= level(job.spec)) {
            return None;
        }
        let kinds = moment.seen.kinds().into_iter().filter(|kind| ask.accepts(*kind));
        kinds.into_iter().find_map(|kind| {
            let sizes = self.pods.sizes(&job.spec.want, kind, view)?;
            let seen = (view, &moment.seen);
            victims((&ask, sizes[0]), kind, seen, (moment.offer, &self.book))?;
            Some(begin(kind, sizes))
        })
    }

    /// Binds what can be bound; GPUs are taken off what is seen.
    fn bind(
        &mut self,
        job: JobRef<'_>,
        grant: &Grant,
        partial: &mut Partial,
        moment: &mut Moment<'_, '_, '_>,
    ) {
        let (view, ask) = (moment.view, asked(job, grant, Some(partial.kind)));
        let may_preempt = moment.lowest.is_some_and(|lowest| level(job.spec) < lowest);
        let mut waiting = Vec::new();
        for gpus in std::mem::take(&mut partial.rest) {
            let find = |seen: &Free| self.pods.seat((&ask, gpus), partial.kind, (view, seen), &[]);
            let mut seat = find(&moment.seen);
            if seat.is_none() && may_preempt {
                let seen = (view, &moment.seen);
                let found = victims((&ask, gpus), partial.kind, seen, (moment.offer, &self.book));
                for victim in found.unwrap_or_default() {
                    moment.evict(victim, &mut self.book);
                }
                seat = find(&moment.seen);
            }
            match seat {
                Some(seat) => {
                    let pod = (seat.node, seat.mask);
                    moment.seen.take(&holding(job.spec, &[pod]));
                    partial.bound.push(pod);
                }
                None => waiting.push(gpus),
            }
        }
        partial.rest = waiting;
    }
}

impl Moment<'_, '_, '_> {
    /// Starts a job in a place that is seen to be free; false if the house does not take it.
    fn run(&mut self, job: JobRef<'_>, grant: &Grant, place: Placement, book: &mut Book) -> bool {
        let exact = Grant { shape: Shape::Exact(place.clone()), ..grant.clone() };
        if self.offer.grant(&exact) != GrantOutcome::Taken {
            return false;
        }
        let plan = self.offer.plan(job.id()).cloned().expect("it was just taken");
        if plan.placement == place {
            self.seen.take(&plan);
        } else {
            // Rules for shapes moved it, maybe to where pods of others are.
            self.seen = self.offer.free().clone();
            book.hold(self.view, &mut self.seen);
        }
        true
    }

    /// A job loses all its GPUs, though only one of its pods is in the way: the others cannot go on without it.
    fn evict(&mut self, victim: JobId, book: &mut Book) {
        let Some(job) = self.view.job(victim) else { return };
        book.let_go(job, &mut self.seen);
        if let Some(plan) = self.offer.plan(victim).cloned() {
            // What is taken may stay idle until the last pod of the gang is bound.
            self.offer.leave_idle();
            self.offer.revoke(victim);
            self.seen.give(&plan);
        }
        self.failed.clear();
    }
}

impl Policy for KubeScheduler {
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
        let seen = offer.free().clone();
        let mut moment = Moment { view, offer, seen, lowest: None, failed: FxHashSet::default() };
        self.refresh(&mut moment);
        let mut classes = Classes::default();
        for id in self.active(&mut moment) {
            let Some(job) = view.job(id) else { continue };
            let known = self.book.0.contains_key(&id);
            let class = classes.number(job, view, true);
            // Those before it are as important, so where none of their pods found a node none of its does.
            if (known || !moment.failed.contains(&class)) && self.schedule(job, &mut moment) {
                self.tries.remove(&id);
                continue;
            }
            if !self.book.0.contains_key(&id) {
                moment.failed.insert(class);
            }
            self.put_back(id, view.now);
        }
        self.left = moment.seen.total();
        for (id, partial) in &self.book.0 {
            if self.settings.gang_timeout > Span::ZERO {
                moment.offer.wake_at(partial.since + self.settings.gang_timeout);
            }
            let need = partial.rest.iter().sum();
            moment.offer.note(*id, Reason::NoRoom { need, free: self.left });
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.book = Book::default();
        self.tries.clear();
        self.moves = 0;
        self.left = 0;
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    for (key, wait) in [("backoff", settings.backoff), ("recreate", settings.recreate)] {
        if wait == Span::ZERO {
            return Err(ENTRY.bad_value(key, wait, "a length of time above 0"));
        }
    }
    if settings.backoff_max < settings.backoff {
        return Err(ENTRY.bad_value("backoff_max", settings.backoff_max, "at least `backoff`"));
    }
    if settings.recreate_max < settings.recreate {
        return Err(ENTRY.bad_value("recreate_max", settings.recreate_max, "at least `recreate`"));
    }
    let pods = Pods { gpus: settings.pod_gpus, score: settings.score };
    let policy = KubeScheduler {
        settings,
        pods,
        book: Book::default(),
        tries: FxHashMap::default(),
        moves: 0,
        left: 0,
    };
    Ok(Pipeline::new(policy, FewestNodes, ENTRY.needs))
}
