//! One decision: the lines of jobs in each queue, and which is served next.

use super::queues::{Queues, need};
use super::{Ordering, Settings};
use crate::alike::Classes;
use crate::prelude::*;
use rustc_hash::FxHashSet;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use trainyard_types::TenantId;

/// Where a job stands among those of its user: class, priority, arrival. The smaller, the sooner.
type Turn = (i64, i64, Time, JobId);

fn turn(job: JobRef<'_>) -> Turn {
    let spec = job.spec;
    (spec.class as i64, -i64::from(spec.priority), spec.submitted, spec.id)
}

/// A queue with jobs that wait, or whose jobs have GPUs.
#[derive(Default)]
struct Leaf {
    /// Waiting jobs by user.
    lines: BTreeMap<TenantId, VecDeque<Turn>>,
    /// Thousandths of GPUs that each user has.
    used: BTreeMap<TenantId, u64>,
    /// Jobs that did not fit, in order; they may be worth stopping others for.
    passed: Vec<JobId>,
}

/// One decision.
pub(super) struct Moment<'m, 'v, 'o> {
    settings: &'m Settings,
    pub(super) view: &'m View<'v>,
    pub(super) offer: &'m mut Offer<'o>,
    queues: Queues,
    /// By queue.
    leaves: BTreeMap<usize, Leaf>,
    /// Thousandths of GPUs in service.
    pub(super) total: f64,
    classes: Classes,
    failed: FxHashSet<usize>,
}

impl<'m, 'v, 'o> Moment<'m, 'v, 'o> {
    pub(super) fn new(
        settings: &'m Settings,
        (view, offer): (&'m View<'v>, &'m mut Offer<'o>),
        mut queues: Queues,
        total: f64,
    ) -> Moment<'m, 'v, 'o> {
        let mut leaves: BTreeMap<usize, Leaf> = BTreeMap::new();
        for job in view.granted() {
            let tenant = job.spec.tenant;
            let queue = queues.of[tenant.index()];
            queues.add(queue, need(job));
            *leaves.entry(queue).or_default().used.entry(tenant).or_default() += need(job);
        }
        for job in view.waiting() {
            let tenant = job.spec.tenant;
            let leaf = leaves.entry(queues.of[tenant.index()]).or_default();
            leaf.lines.entry(tenant).or_default().push_back(turn(job));
        }
        for line in leaves.values_mut().flat_map(|leaf| leaf.lines.values_mut()) {
            line.make_contiguous().sort_unstable();
        }
        let (classes, failed) = (Classes::default(), FxHashSet::default());
        Moment { settings, view, offer, queues, leaves, total, classes, failed }
    }

    /// Starts the next job of the queue that is served least and has one that fits; false if none has.
    pub(super) fn start_next(&mut self) -> bool {
        let mut order: Vec<(Vec<(f64, usize)>, usize)> = self
            .leaves
            .iter()
            .filter(|(_, leaf)| !leaf.lines.is_empty())
            .map(|(queue, _)| (self.queues.service(*queue), *queue))
            .collect();
        order.sort_by(|a, b| compare(&a.0, &b.0));
        order.into_iter().any(|(_, queue)| self.start_in(queue))
    }

    /// Starts the first job of a queue that fits. Jobs that do not leave the line for this decision.
    fn start_in(&mut self, queue: usize) -> bool {
        while let Some((user, id)) = self.first(queue) {
            let Some(job) = self.view.job(id) else {
                self.leave_line(queue, user);
                continue;
            };
            if !self.within_user_limit(queue, job) {
                // What the others of this user ask for does not change what it has.
                self.leaf(queue).lines.remove(&user);
                continue;
            }
            self.leave_line(queue, user);
            if self.start(queue, job) {
                return true;
            }
            self.leaf(queue).passed.push(id);
            if self.settings.fill == Fill::Strict {
                self.leaf(queue).lines.clear();
            }
        }
        false
    }

    fn leaf(&mut self, queue: usize) -> &mut Leaf {
        self.leaves.entry(queue).or_default()
    }

    /// The first of a user's line leaves it.
    fn leave_line(&mut self, queue: usize, user: TenantId) {
        let lines = &mut self.leaf(queue).lines;
        if let Some(line) = lines.get_mut(&user) {
            line.pop_front();
            if line.is_empty() {
                lines.remove(&user);
            }
        }
    }

    /// Whose turn it is in a queue.
    fn first(&self, queue: usize) -> Option<(TenantId, JobId)> {
        let leaf = self.leaves.get(&queue)?;
        let heads = leaf.lines.iter().filter_map(|(user, line)| Some((*user, *line.front()?)));
        let used = |user: TenantId| match self.settings.ordering {
            Ordering::Fifo => 0,
            Ordering::Fair => leaf.used.get(&user).copied().unwrap_or(0),
        };
        let first = heads.min_by_key(|(user, turn)| (used(*user), *turn));
        first.map(|(user, turn)| (user, turn.3))
    }

    /// Whether a user may have one more job, where tenants are users: below its limit before it gets it
    /// (`UsersManager.computeUserLimit`).
    fn within_user_limit(&self, queue: usize, job: JobRef<'_>) -> bool {
        let tenant = job.spec.tenant;
        let Some(leaf) = self.leaves.get(&queue).filter(|_| self.settings.users) else {
            return true;
        };
        let own = leaf.used.get(&tenant).copied().unwrap_or(0) as f64;
        let Queues { list, .. } = &self.queues;
        let (guaranteed, used) = (list[queue].guaranteed, list[queue].used as f64);
        let whole = if used < guaranteed { guaranteed } else { used + need(job) as f64 };
        let active = leaf.lines.len().max(1) as f64;
        let share = (whole / active).max(whole * self.settings.minimum_user_limit);
        own == 0.0 || own < share.min(guaranteed * self.settings.user_limit_factor)
    }

    fn start(&mut self, queue: usize, job: JobRef<'_>) -> bool {
        if !self.queues.may_have(queue, need(job)) {
            return false;
        }
        let class = self.classes.number(job, self.view, true);
        if self.failed.contains(&class) {
            return false;
        }
        if self.offer.grant(&wanted(job)) != GrantOutcome::Taken {
            self.failed.insert(class);
            return false;
        }
        self.count(queue, job);
        true
    }

    fn count(&mut self, queue: usize, job: JobRef<'_>) {
        self.queues.add(queue, need(job));
        *self.leaf(queue).used.entry(job.spec.tenant).or_default() += need(job);
    }

    /// The first job of each queue that does not fit and would be within what its queue is guaranteed.
    pub(super) fn entitled(&self) -> Vec<JobRef<'v>> {
        let of = |(queue, leaf): (&usize, &Leaf)| {
            let queue = &self.queues.list[*queue];
            let within =
                |job: &JobRef<'_>| (queue.used + need(*job)) as f64 <= queue.guaranteed + 0.5;
            leaf.passed.iter().filter_map(|id| self.view.job(*id)).find(within)
        };
        self.leaves.iter().filter_map(of).collect()
    }

    /// Gives a job GPUs of queues above what they are guaranteed, the least important and latest jobs first, up to so many
    /// thousandths of GPUs; those that need not go stay.
    pub(super) fn reclaim(&mut self, job: JobRef<'_>, allowed: f64) -> bool {
        let own = self.queues.of[job.spec.tenant.index()];
        let mut victims: Vec<(Reverse<Turn>, JobRef<'_>)> = self
            .view
            .granted()
            .filter(|one| self.offer.plan(one.id()).is_some() && self.view.may_stop(*one))
            .filter(|one| self.queues.of[one.spec.tenant.index()] != own)
            .map(|one| (Reverse(turn(one)), one))
            .collect();
        victims.sort_unstable_by_key(|(order, _)| *order);
        let mut after = self.queues.clone();
        let mut taken = 0.0;
        let mut gone: Vec<JobId> = Vec::new();
        for (_, victim) in victims {
            let queue = after.of[victim.spec.tenant.index()];
            let over = |index: &usize| {
                let queue = &after.list[*index];
                queue.used as f64 > queue.guaranteed * (1.0 + self.settings.preempt_tolerance)
            };
            let more = need(victim) as f64;
            if over(&queue) && taken + more <= allowed + 0.5 {
                taken += more;
                after.remove(queue, need(victim));
                gone.push(victim.id());
            }
        }
        if gone.is_empty()
            || self.offer.instead(&wanted(job), &mut gone.iter().copied()) != GrantOutcome::Taken
        {
            return false;
        }
        self.count(own, job);
        for victim in gone.into_iter().filter_map(|id| self.view.job(id)) {
            if self.offer.plan(victim.id()).is_none() {
                self.queues.remove(self.queues.of[victim.spec.tenant.index()], need(victim));
            }
        }
        true
    }
}

/// From the root down: the queue that has the least part of what it is guaranteed, and of equals the first.
fn compare(a: &[(f64, usize)], b: &[(f64, usize)]) -> std::cmp::Ordering {
    let each = a.iter().zip(b).map(|(a, b)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    each.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then).then(a.len().cmp(&b.len()))
}
