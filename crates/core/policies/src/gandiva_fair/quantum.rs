//! The choice at one moment: which job takes a turn, on which type, on which node.

use super::GandivaFair;
use super::market::{Market, size};
use crate::prelude::*;
use crate::turns::able;
use smallvec::smallvec;
use std::collections::{BTreeMap, BTreeSet};
use trainyard_types::{Grant, Shape, TenantId};

/// What one choice keeps in mind.
struct Choice<'a, 'v> {
    active: &'a [JobRef<'v>],
    market: &'a Market,
    /// Tickets of the jobs that live on each node, for each of its GPUs.
    load: Vec<f64>,
    /// GPUs that are not to be had yet, with the moment when they are, by node.
    busy: BTreeMap<NodeId, Vec<(Time, u32)>>,
    /// Nodes kept for a gang, and for which.
    kept_for: BTreeMap<NodeId, JobId>,
    /// Jobs, by place in the list, that hold GPUs already or were tried in vain on the present type.
    out: BTreeSet<usize>,
}

impl GandivaFair {
    /// A job that is within a turn stays; all other GPUs go to tenants and jobs by their passes, type by type.
    pub(super) fn choose<'v>(
        &mut self,
        active: &[JobRef<'v>],
        market: &Market,
        view: &View<'v>,
        offer: &mut Offer<'_>,
    ) {
        offer.everything();
        let mut choice = Choice {
            active,
            market,
            load: vec![0.0; view.cluster().nodes.len()],
            busy: BTreeMap::new(),
            kept_for: BTreeMap::new(),
            out: BTreeSet::new(),
        };
        self.load_nodes(&mut choice, view);
        self.keep_turns(&mut choice, view, offer);
        let holders = choice.out.clone();
        for &kind in &market.kinds {
            self.first_the_reserved(kind, &mut choice, view, offer);
            self.fill(kind, &mut choice, view, offer);
            // A job that was tried in vain on one type may run on the next.
            choice.out.retain(|place| {
                holders.contains(place) || offer.plan(active[*place].id()).is_some()
            });
        }
    }

    fn load_nodes(&mut self, choice: &mut Choice<'_, '_>, view: &View<'_>) {
        for job in choice.active {
            let masks = job.state.planned.as_ref().map(|planned| planned.placement.masks());
            if let Some(&[(node, _)]) = masks {
                self.homes.insert(job.id(), node);
            }
            if let Some(node) = self.homes.get(&job.id()) {
                choice.load[node.index()] += load_of(*job, *node, choice.market, view);
            }
        }
    }

    /// Jobs within their turn, and those that may not be stopped, are not part of the choice.
    fn keep_turns(&mut self, choice: &mut Choice<'_, '_>, view: &View<'_>, offer: &mut Offer<'_>) {
        for (place, job) in choice.active.iter().enumerate() {
            let id = job.id();
            let Some(planned) = &job.state.planned else {
                self.turns.remove(&id);
                continue;
            };
            let mut until = self.turns.get(&id).copied().unwrap_or(view.now);
            if offer.plan(id).is_some() {
                until = until.max(held_until(*job, view));
            } else if until > view.now {
                let grant = exactly(*job, Shape::Exact(planned.placement.clone()));
                if offer.grant(&grant) != GrantOutcome::Taken {
                    continue;
                }
            } else {
                continue;
            }
            choice.out.insert(place);
            for &(node, mask) in planned.placement.masks() {
                choice.busy.entry(node).or_default().push((until, mask.count_ones()));
            }
        }
    }

    /// A gang that was skipped before comes before all others, as in the paper it keeps its priority, and its nodes are lent only while it cannot run.
    fn first_the_reserved(
        &mut self,
        kind: GpuType,
        choice: &mut Choice<'_, '_>,
        view: &View<'_>,
        offer: &mut Offer<'_>,
    ) {
        let Some(gang) = self.reserved.remove(&kind) else { return };
        let Ok(place) = choice.active.binary_search_by_key(&gang, JobRef::id) else { return };
        if offer.plan(gang).is_some() || self.at_ceiling(choice.active[place], offer) {
            return;
        }
        let kept = self.run(place, kind, choice, view, offer) != GrantOutcome::Taken
            && self.keep_for(place, kind, choice, view, offer.free());
        if kept {
            choice.out.insert(place);
        }
    }

    /// Fills one type: the tenant with the lowest pass is next; those entitled to nothing of it come last.
    fn fill(
        &mut self,
        kind: GpuType,
        choice: &mut Choice<'_, '_>,
        view: &View<'_>,
        offer: &mut Offer<'_>,
    ) {
        let mut lanes = self.lanes(kind, choice, view);
        // The first tenant for which there was no room: GPUs are kept for its gangs alone. A tenant behind it is ahead
        // of what its tickets pay for, and would run first at the next turn all the same.
        let mut refused = None;
        while let Some(tenant) = self.next_tenant(kind, &lanes) {
            let lane = lanes.get_mut(&tenant).expect("it was just chosen");
            let Some(place) = lane.jobs.pop() else {
                lanes.remove(&tenant);
                continue;
            };
            let job = choice.active[place];
            if choice.out.contains(&place) || offer.plan(job.id()).is_some() {
                continue;
            }
            if self.at_ceiling(job, offer) {
                continue;
            }
            if self.run(place, kind, choice, view, offer) == GrantOutcome::Taken {
                lane.taken += size(job) * self.turn.quantum.as_secs_f64();
                continue;
            }
            choice.out.insert(place);
            let is_next = *refused.get_or_insert(tenant) == tenant;
            let is_gang =
                is_next && job.spec.want.gpus > 1 && self.passes.entitled(tenant, kind) > 0.0;
            if self.reserve && is_gang && !self.reserved.contains_key(&kind) {
                self.keep_for(place, kind, choice, view, offer.free());
            }
        }
    }

    /// Whether a job waits for its own tenant: no GPU is kept for it then.
    fn at_ceiling(&self, job: JobRef<'_>, offer: &Offer<'_>) -> bool {
        let need = u64::from(job.spec.want.gpus) * u64::from(job.spec.want.permille);
        offer.ceiling_passed(job, need).is_some()
    }

    /// Jobs that can run on a type, by tenant: the lowest pass last, so that it is popped first. Passes within one
    /// turn of the largest gang count as equal, and then a job that is there or gains most from the type goes first.
    fn lanes(
        &self,
        kind: GpuType,
        choice: &Choice<'_, '_>,
        view: &View<'_>,
    ) -> BTreeMap<TenantId, Lane> {
        let mut lanes: BTreeMap<TenantId, Lane> = BTreeMap::new();
        let mut levels: BTreeMap<TenantId, Level> = BTreeMap::new();
        for (place, job) in choice.active.iter().enumerate() {
            if choice.out.contains(&place) || choice.market.worth[place][kind.index()] <= 0.0 {
                continue;
            }
            lanes.entry(job.spec.tenant).or_default().jobs.push(place);
            let level = levels
                .entry(job.spec.tenant)
                .or_insert(Level { lowest: f64::INFINITY, largest: 1.0 });
            level.lowest = level.lowest.min(self.passes.job(job.id()));
            level.largest = level.largest.max(f64::from(job.spec.want.gpus));
        }
        for (tenant, lane) in &mut lanes {
            let Level { lowest, largest } = levels[tenant];
            let turn = self.turn.quantum.as_secs_f64() * largest;
            let key = |place: &usize| {
                let job = choice.active[*place];
                let worth = &choice.market.worth[*place];
                let others: f64 = worth.iter().sum::<f64>() / worth.len() as f64;
                let prefers = (worth[kind.index()] - others) * 1e6;
                let pass = self.passes.job(job.id()) - lowest;
                let is_there = kind_of(job, view) == Some(kind);
                ((pass / turn) as u64, !is_there, -(prefers as i64), (pass * 1e3) as u64, job.id())
            };
            lane.jobs.sort_by_cached_key(|place| std::cmp::Reverse(key(place)));
        }
        lanes
    }

    fn next_tenant(&self, kind: GpuType, lanes: &BTreeMap<TenantId, Lane>) -> Option<TenantId> {
        let key = |tenant: TenantId, lane: &Lane| {
            let entitled = self.passes.entitled(tenant, kind);
            let part = if entitled > 0.0 { lane.taken / entitled } else { lane.taken };
            (entitled <= 0.0, self.passes.tenant(tenant, kind) + part)
        };
        let best = lanes.iter().min_by(|a, b| {
            let (a, b) = (key(*a.0, a.1), key(*b.0, b.1));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        best.map(|(tenant, _)| *tenant)
    }

    /// Gives a job a turn on a type: where it is, else at home, else on the node of the least ticket load.
    fn run(
        &mut self,
        place: usize,
        kind: GpuType,
        choice: &mut Choice<'_, '_>,
        view: &View<'_>,
        offer: &mut Offer<'_>,
    ) -> GrantOutcome {
        let job = choice.active[place];
        let Some(Seat { shape, node }) = self.seat(job, kind, choice, view, offer.free()) else {
            return GrantOutcome::NoRoom;
        };
        let stays = matches!(shape, Shape::Exact(_));
        let answer = offer.grant(&exactly(job, shape));
        if answer != GrantOutcome::Taken {
            return answer;
        }
        choice.out.insert(place);
        let Some(planned) = offer.plan(job.id()) else { return answer };
        let lent = planned
            .placement
            .masks()
            .iter()
            .any(|(n, _)| choice.kept_for.get(n).is_some_and(|gang| *gang != job.id()));
        let least = match (lent, stays) {
            (true, _) => Span(1),
            // A job that goes on pays nothing for it.
            (false, true) => Span(self.turn.quantum.0 / 2),
            (false, false) => self.turn.least(job, planned, view),
        };
        let until = self.turn.multiple_after(view.now + least);
        self.turns.insert(job.id(), until);
        for &(node, mask) in planned.placement.masks() {
            choice.busy.entry(node).or_default().push((until, mask.count_ones()));
        }
        if let Some(node) = node
            && self.homes.insert(job.id(), node) != Some(node)
        {
            choice.load[node.index()] += load_of(job, node, choice.market, view);
        }
        answer
    }

    /// What to ask for; of several nodes the one with the least ticket load, by which the paper balances load. Parts of a GPU and gangs larger than a node are left to the placer.
    fn seat(
        &self,
        job: JobRef<'_>,
        kind: GpuType,
        choice: &Choice<'_, '_>,
        view: &View<'_>,
        free: &Free,
    ) -> Option<Seat> {
        let want = &job.spec.want;
        if let Some(planned) = &job.state.planned
            && kind_of(job, view) == Some(kind)
        {
            let masks = planned.placement.masks();
            let free_still = masks.iter().all(|(node, mask)| free.mask(*node) & mask == *mask);
            if free_still && masks.iter().all(|(node, _)| self.may_use(job, *node, choice)) {
                let shape = Shape::Exact(planned.placement.clone());
                return Some(Seat { shape, node: None });
            }
        }
        let whole = want.permille == 1000;
        let nodes = (0..free.nodes()).map(NodeId).filter(|node| free.kind(*node) == kind);
        let holds = |node: &NodeId| able(want, *node, view, free) >= want.gpus;
        let mut nodes = nodes.filter(holds).peekable();
        if !whole || nodes.peek().is_none() {
            let blocked = choice.kept_for.keys().any(|node| !self.may_use(job, *node, choice));
            let shape =
                Shape::Gpus { count: want.gpus, kind: Some(kind), nodes_max: want.nodes_max };
            let fits = !whole || free.gpus(kind) >= want.gpus;
            return (!blocked && fits).then_some(Seat { shape, node: None });
        }
        let home = self.homes.get(&job.id()).copied();
        let at_home = |node: &NodeId| home.is_some_and(|home| home == *node);
        let stay_put = !self.migrate && home.is_some_and(|home| free.kind(home) == kind);
        let best = nodes
            .filter(|node| free.mask(*node).count_ones() >= want.gpus)
            .filter(|node| self.may_use(job, *node, choice) && (!stay_put || at_home(node)))
            .min_by(|a, b| {
                let loads = choice.load[a.index()].total_cmp(&choice.load[b.index()]);
                at_home(b).cmp(&at_home(a)).then(loads).then(a.cmp(b))
            })?;
        Some(Seat { shape: Shape::PerNode(smallvec![(best, want.gpus)]), node: Some(best) })
    }

    /// Whether a job may start on a node: if it is kept for a gang, only if it can be stopped again at the next turn.
    fn may_use(&self, job: JobRef<'_>, node: NodeId, choice: &Choice<'_, '_>) -> bool {
        match choice.kept_for.get(&node) {
            Some(gang) if *gang != job.id() => {
                job.spec.preemptible && job.spec.min_run <= Span(self.turn.quantum.0 / 2)
            }
            _ => true,
        }
    }

    /// Keeps the nodes that are soonest free for a gang that found no room; whether there are any.
    fn keep_for(
        &mut self,
        place: usize,
        kind: GpuType,
        choice: &mut Choice<'_, '_>,
        view: &View<'_>,
        free: &Free,
    ) -> bool {
        let job = choice.active[place];
        let want = &job.spec.want;
        let soonest = |node: NodeId, gpus: u32| {
            let mut left = free.mask(node).count_ones();
            let mut ends = choice.busy.get(&node).cloned().unwrap_or_default();
            ends.sort_unstable();
            let mut ends = ends.into_iter();
            let mut until = view.now;
            while left < gpus {
                let (time, count) = ends.next()?;
                (until, left) = (time, left + count);
            }
            (until < Time::NEVER).then_some(until)
        };
        let nodes = (0..free.nodes()).map(NodeId).filter(|node| free.kind(*node) == kind);
        let mut nodes: Vec<Soon> = nodes
            .filter_map(|node| {
                let gpus = able(want, node, view, free).min(want.gpus);
                (gpus > 0).then_some(Soon { time: soonest(node, gpus)?, node, gpus })
            })
            .collect();
        // One node if any can hold it, else the largest of those soonest free.
        let whole = nodes.iter().filter(|soon| soon.gpus == want.gpus);
        let chosen: Vec<NodeId> = match whole.min_by_key(|soon| (soon.time, soon.node)) {
            Some(soon) => vec![soon.node],
            None => {
                nodes.sort_unstable_by_key(|soon| {
                    (std::cmp::Reverse(soon.gpus), soon.time, soon.node)
                });
                let mut rest = want.gpus;
                let enough = nodes.iter().map_while(|soon| {
                    let needed = rest > 0;
                    rest = rest.saturating_sub(soon.gpus);
                    needed.then_some(soon.node)
                });
                let enough: Vec<NodeId> = enough.collect();
                if rest > 0 { Vec::new() } else { enough }
            }
        };
        if chosen.is_empty() {
            return false;
        }
        choice.kept_for.extend(chosen.into_iter().map(|node| (node, job.id())));
        self.reserved.insert(kind, job.id());
        true
    }

    /// When the next turn ends, if that can change anything: a job waits, or runs on a type that suits it less.
    pub(super) fn next_turn(
        &self,
        active: &[JobRef<'_>],
        market: &Market,
        view: &View<'_>,
        offer: &Offer<'_>,
    ) -> Option<Time> {
        let stirs = active.iter().zip(&market.worth).any(|(job, worth)| {
            let Some(plan) = offer.plan(job.id()) else { return true };
            let (node, _) = plan.placement.masks()[0];
            worth[view.cluster().node(node).kind.index()] < 1.0
        });
        let ends = active.iter().filter(|job| offer.plan(job.id()).is_some());
        let ends = ends.filter_map(|job| self.turns.get(&job.id()).copied());
        let next = ends.filter(|time| *time > view.now).min()?;
        (stirs && next != Time::NEVER).then_some(next)
    }
}

/// The jobs of one tenant that wait for a type, the next one last, and GPU-seconds given to it in this choice.
#[derive(Default)]
struct Lane {
    jobs: Vec<usize>,
    taken: f64,
}

/// The jobs of a tenant beside which their passes are compared.
#[derive(Copy, Clone)]
struct Level {
    /// The lowest pass.
    lowest: f64,
    /// GPUs of the largest gang.
    largest: f64,
}

/// What to ask for.
struct Seat {
    shape: Shape,
    /// The node, if it is one.
    node: Option<NodeId>,
}

/// A node that could be kept for a gang.
struct Soon {
    /// When it has room.
    time: Time,
    node: NodeId,
    /// GPUs of the gang that it holds.
    gpus: u32,
}

/// The grant of what a job asked for, in a shape.
fn exactly(job: JobRef<'_>, shape: Shape) -> Grant {
    let mut grant = wanted(job);
    grant.shape = shape;
    grant
}

/// The type on which a job is planned to run.
fn kind_of(job: JobRef<'_>, view: &View<'_>) -> Option<GpuType> {
    let planned = job.state.planned.as_ref()?;
    let (node, _) = planned.placement.masks().first()?;
    Some(view.cluster().node(*node).kind)
}

/// Until when a job that may not be stopped now stays.
fn held_until(job: JobRef<'_>, view: &View<'_>) -> Time {
    if !job.spec.preemptible {
        return Time::NEVER;
    }
    let lease = job.state.planned.as_ref().and_then(|planned| planned.lease_until);
    let fresh = job.state.last_start.map_or(view.now, |start| start + job.spec.min_run);
    lease.unwrap_or(view.now).max(fresh)
}

/// Tickets behind a job for each GPU of a node.
fn load_of(job: JobRef<'_>, node: NodeId, market: &Market, view: &View<'_>) -> f64 {
    let gpus = f64::from(view.cluster().node(node).gpus.max(1));
    market.per_gpu[job.spec.tenant.index()] * size(job) / gpus
}
