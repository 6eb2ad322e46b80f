//! Gandiva as the simulators of Tiresias and ElasticFlow have it: jobs of one size share sets of nodes, and a size
//! that has more GPUs than its jobs ask for gives sets up.
//!
//! A job that lived on a set that is given up queues behind the jobs of another one, so a size tends to end on one set
//! while other nodes are idle. That is a loss and not an idea: it is here because published comparisons contain it.

use super::{Home, Turns, home_of};
use crate::prelude::*;
use crate::turns::able;
use smallvec::{SmallVec, smallvec};
use std::collections::{BTreeMap, BTreeSet};
use trainyard_types::{Grant, PoolId, Shape, Want};

/// Jobs that may share sets: GPUs, pool and acceptable types.
type Class = (u32, Option<PoolId>, SmallVec<[GpuType; 4]>);

fn class(want: &Want) -> Class {
    (want.gpus, want.pool, want.kinds.clone())
}

/// Nodes that take jobs of one class in turns.
#[derive(Debug)]
struct Set {
    /// What one of its jobs holds on each node.
    home: Home,
    /// GPUs of its nodes.
    gpus: u32,
    /// Jobs that fit at once.
    capacity: usize,
    /// Jobs in order: the first `capacity` of them run.
    jobs: Vec<JobId>,
    /// Jobs that ever came. It does not fall when one ends, in the authors' program neither.
    load: u32,
}

impl Set {
    /// Without jobs; `nodes` are the GPUs of each node, and those that one job holds there.
    fn on(home: Home, nodes: impl Iterator<Item = (u32, u32)>) -> Set {
        let (mut gpus, mut capacity) = (0, u32::MAX);
        for (has, each) in nodes {
            gpus += has;
            capacity = capacity.min(has / each.max(1));
        }
        Set { home, gpus, capacity: capacity.max(1) as usize, jobs: Vec::new(), load: 0 }
    }

    fn take(&mut self, job: JobId) {
        self.jobs.push(job);
        self.load += 1;
    }
}

/// O(jobs) for each decision, O(sets) for each job that moves, and O(nodes) for one that looks for a new set.
pub(super) struct Sets {
    turn: Turns,
    /// The least loaded set of a class first.
    classes: BTreeMap<Class, Vec<Set>>,
    /// Jobs that are in a set.
    settled: BTreeSet<JobId>,
}

impl Sets {
    pub(super) fn new(turn: Turns) -> Sets {
        Sets { turn, classes: BTreeMap::new(), settled: BTreeSet::new() }
    }

    /// Turns that are over, jobs and nodes that are gone, jobs that came.
    fn refresh(&mut self, view: &View<'_>, free: &Free) {
        let turn_over = view.now.0.is_multiple_of(self.turn.quantum.0);
        let state = view.state();
        let takes_part = |job: &JobId| state.granted.contains(*job) || state.waiting.contains(*job);
        let in_service = |(node, count): &(NodeId, u32)| free.up(*node).count_ones() >= *count;
        for sets in self.classes.values_mut() {
            for set in &mut *sets {
                if turn_over && set.jobs.len() > set.capacity {
                    set.jobs.rotate_left(set.capacity);
                }
                set.jobs.retain(takes_part);
            }
            sets.retain(|set| !set.jobs.is_empty() && set.home.iter().all(in_service));
        }
        self.classes.retain(|_, sets| !sets.is_empty());
        let sets = self.classes.values().flatten();
        self.settled = sets.flat_map(|set| &set.jobs).copied().collect();
        // Those that run say where they live; the others find a set around them.
        for job in view.granted() {
            self.adopt(job, free);
        }
        for job in view.waiting() {
            self.place(job, view, free);
        }
    }

    /// A job that runs but is in none of our sets: after a restart, or when another policy ran it before.
    fn adopt(&mut self, job: JobRef<'_>, free: &Free) {
        let Some(planned) = &job.state.planned else { return };
        if !self.settled.insert(job.id()) {
            return;
        }
        let home = home_of(planned);
        let sets = self.classes.entry(class(&job.spec.want)).or_default();
        match sets.iter_mut().find(|set| set.home == home) {
            Some(set) => set.take(job.id()),
            None => {
                let each = |(node, count): &(NodeId, u32)| (free.up(*node).count_ones(), *count);
                let mut set = Set::on(home.clone(), home.iter().map(each));
                set.take(job.id());
                sets.push(set);
            }
        }
        sets.sort_by_key(|set| set.load);
    }

    /// A set of the job's class with room, else a new one, else turns on the least loaded.
    fn place(&mut self, job: JobRef<'_>, view: &View<'_>, free: &Free) {
        if self.settled.contains(&job.id()) {
            return;
        }
        let class = class(&job.spec.want);
        let first = self.classes.get(&class).and_then(|sets| sets.first());
        let has_room = first.is_some_and(|set| set.load as usize + 1 < set.capacity);
        let new = if has_room { None } else { self.open(job, view, free) };
        if new.is_none() && first.is_none() {
            return;
        }
        let sets = self.classes.entry(class).or_default();
        sets.splice(0..0, new);
        sets[0].take(job.id());
        sets.sort_by_key(|set| set.load);
        self.settled.insert(job.id());
    }

    /// An empty set on nodes that are in none: one node if one is large enough, else as many as are needed.
    fn open(&self, job: JobRef<'_>, view: &View<'_>, free: &Free) -> Option<Set> {
        let want = &job.spec.want;
        let sets = self.classes.values().flatten();
        let taken: BTreeSet<NodeId> =
            sets.flat_map(|set| &set.home).map(|(node, _)| *node).collect();
        let nodes: Vec<(NodeId, u32)> = (0..free.nodes())
            .map(NodeId)
            .filter(|node| !taken.contains(node))
            .map(|node| (node, able(want, node, view, free)))
            .filter(|(_, gpus)| *gpus > 0)
            .collect();
        if let Some((node, gpus)) = nodes.iter().find(|(_, gpus)| *gpus >= want.gpus) {
            let home = smallvec![(*node, want.gpus)];
            return Some(Set::on(home, [(*gpus, want.gpus)].into_iter()));
        }
        free.kinds().iter().find_map(|kind| {
            let (mut rest, mut home, mut parts) = (want.gpus, Home::new(), Vec::new());
            for (node, gpus) in nodes.iter().filter(|(node, _)| free.kind(*node) == *kind) {
                let count = rest.min(*gpus);
                if count > 0 {
                    home.push((*node, count));
                    parts.push((*gpus, count));
                    rest -= count;
                }
            }
            let within = want.nodes_max == 0 || home.len() <= usize::from(want.nodes_max);
            (rest == 0 && within).then(|| Set::on(home, parts.into_iter()))
        })
    }

    /// Takes sets from classes that have more GPUs than a fair part of the cluster, or than their jobs ask for.
    ///
    /// The authors give sets to others too, but their loop does not deal jobs anew as long as nodes are free, so that
    /// those sets are empty and given up at once.
    fn shrink(&mut self, gpus: u32) {
        let demand = |class: &Class, sets: &[Set]| -> u64 {
            let jobs: usize = sets.iter().map(|set| set.jobs.len()).sum();
            jobs as u64 * u64::from(class.0)
        };
        let all: u64 = self.classes.iter().map(|(class, sets)| demand(class, sets)).sum();
        for (class, sets) in &mut self.classes {
            let own = demand(class, sets);
            let target = own.min(own * u64::from(gpus) / all.max(1));
            let held: u64 = sets.iter().map(|set| u64::from(set.gpus)).sum();
            let too_many = held.saturating_sub(target).div_ceil(u64::from(class.0.max(1)));
            let given_up = (too_many as usize).min(sets.len() - 1);
            let moving: Vec<JobId> = sets.drain(..given_up).flat_map(|set| set.jobs).collect();
            for job in moving {
                sets[0].take(job);
                sets.sort_by_key(|set| set.load);
            }
        }
    }

    fn grant_all(&self, view: &View<'_>, offer: &mut Offer<'_>) {
        let running = || {
            let sets = self.classes.values().flatten();
            sets.flat_map(|set| set.jobs.iter().take(set.capacity).map(move |job| (set, *job)))
        };
        let stays = |set: &Set, job: JobRef<'_>| {
            let planned = job.state.planned.as_ref()?;
            (home_of(planned) == set.home).then(|| Shape::Exact(planned.placement.clone()))
        };
        // First the jobs that stay, so that no other job is put on their GPUs.
        for first in [true, false] {
            for (set, id) in running() {
                let Some(job) = view.job(id) else { continue };
                let shape = stays(set, job);
                if shape.is_some() == first && offer.plan(id).is_none() {
                    let shape = shape.unwrap_or_else(|| Shape::PerNode(set.home.clone()));
                    offer.grant(&Grant { shape, ..wanted(job) });
                }
            }
        }
        for set in self.classes.values().flatten() {
            for job in set.jobs.iter().skip(set.capacity) {
                offer.note(*job, Reason::Outranked { by: set.jobs[0] });
            }
        }
        let free = offer.free().total();
        for job in view.waiting().filter(|job| !self.settled.contains(&job.id())) {
            offer.note(job.id(), Reason::NoRoom { need: job.spec.want.gpus, free });
        }
    }
}

impl Policy for Sets {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        self.refresh(view, offer.free());
        self.shrink(offer.free().in_service_total());
        offer.everything();
        offer.leave_idle();
        self.grant_all(view, offer);
        if self.classes.values().flatten().any(|set| set.jobs.len() > set.capacity) {
            let turn = self.turn.multiple_after(view.now + Span(1));
            if turn != Time::NEVER {
                offer.wake_at(turn);
            }
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.classes.clear();
        self.settled.clear();
    }
}
