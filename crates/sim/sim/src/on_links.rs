//! Jobs that share links: who meets whom, and how much bandwidth each has.

use crate::truth::Truth;
use crate::world::World;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;
use trainyard_framework::links::shares;
use trainyard_types::{
    Cluster, Event, IdSet, JobId, LinkId, Load, Placement, Rate, Time, Topology, Traffic,
};

/// The traffic of jobs that run, where links are declared.
pub(crate) struct OnLinks {
    cluster: Arc<Cluster>,
    jobs: FxHashMap<JobId, OnItsLinks>,
    /// By directed link, the jobs on it.
    on: Vec<SmallVec<[JobId; 2]>>,
    /// Whether jobs meet only while both send.
    in_phases: bool,
}

struct OnItsLinks {
    load: Load,
    mbps: f64,
    /// Since when it iterates there.
    since: Time,
    /// The part of its speed on idle links that is left beside others, where they meet only while both send.
    kept: f64,
}

impl OnLinks {
    pub(crate) fn new(cluster: &Arc<Cluster>, in_phases: bool) -> Option<Box<OnLinks>> {
        let links = cluster.topology.as_deref()?.links();
        let (cluster, jobs) = (Arc::clone(cluster), FxHashMap::default());
        Some(Box::new(OnLinks { cluster, jobs, on: vec![SmallVec::new(); links], in_phases }))
    }

    pub(crate) fn topology(&self) -> &Topology {
        self.cluster.topology.as_deref().expect("made for a cluster with links")
    }

    /// A job begins to use the links of its placement. The other jobs whose bandwidth that changes, ascending.
    fn join(
        &mut self,
        (job, since): (JobId, Time),
        place: &Placement,
        traffic: Traffic,
    ) -> Vec<JobId> {
        let load = self.topology().load(place, traffic.pattern);
        let mbps = load.alone_mbps(self.topology());
        for same in load.links.chunk_by(|a, b| a == b) {
            self.on[same[0].index()].push(job);
        }
        let shared = !load.links.is_empty();
        self.jobs.insert(job, OnItsLinks { load, mbps, since, kept: 1.0 });
        if self.in_phases {
            return Vec::new();
        }
        let mut changed = if shared { self.share(&[job]) } else { Vec::new() };
        changed.retain(|other| *other != job);
        changed
    }

    /// A job uses no link any more. The jobs whose bandwidth that changes, ascending.
    fn leave(&mut self, job: JobId) -> Vec<JobId> {
        let Some(one) = self.jobs.remove(&job) else { return Vec::new() };
        let mut met: Vec<JobId> = Vec::new();
        for same in one.load.links.chunk_by(|a, b| a == b) {
            let here = &mut self.on[same[0].index()];
            here.retain(|other| *other != job);
            met.extend_from_slice(here);
        }
        met.sort_unstable();
        met.dedup();
        if self.in_phases { met } else { self.share(&met) }
    }

    /// What a job loads, and since when it iterates there.
    pub(crate) fn load_of(&self, job: JobId) -> (&Load, Time) {
        let one = &self.jobs[&job];
        (&one.load, one.since)
    }

    /// Whether the part of its speed that a job keeps changes.
    pub(crate) fn set_kept(&mut self, job: JobId, kept: f64) -> bool {
        let one = self.jobs.get_mut(&job).expect("a job that was reached is on links");
        std::mem::replace(&mut one.kept, kept) != kept
    }

    /// Shares links anew among some jobs and all that meet them, over others too. The jobs whose bandwidth that changes,
    /// ascending.
    fn share(&mut self, from: &[JobId]) -> Vec<JobId> {
        let jobs = self.reach(from);
        let loads: Vec<&Load> = jobs.iter().map(|job| &self.jobs[job].load).collect();
        let mbps = shares(self.topology(), &loads);
        let mut changed = Vec::new();
        for (job, mbps) in jobs.into_iter().zip(mbps) {
            let one = self.jobs.get_mut(&job).expect("a job that was reached is on links");
            if one.mbps != mbps {
                one.mbps = mbps;
                changed.push(job);
            }
        }
        changed
    }

    /// Some jobs and all that meet them on links, over others too, ascending.
    pub(crate) fn reach(&self, from: &[JobId]) -> Vec<JobId> {
        let mut reached: IdSet<JobId> = IdSet::default();
        let mut seen: FxHashSet<LinkId> = FxHashSet::default();
        let mut queue: Vec<JobId> = from.to_vec();
        for job in from {
            reached.insert(*job);
        }
        while let Some(job) = queue.pop() {
            for link in &self.jobs[&job].load.links {
                if seen.insert(*link) {
                    for other in &self.on[link.index()] {
                        if reached.insert(*other) {
                            queue.push(*other);
                        }
                    }
                }
            }
        }
        reached.iter().collect()
    }
}

impl World<'_> {
    /// A job begins to move its traffic. The other jobs that it slows.
    pub(crate) fn join_links(&mut self, at: Time, job: JobId) -> Vec<JobId> {
        let Some(links) = &mut self.on_links else { return Vec::new() };
        let Some(traffic) = self.truth.traffic(self.truth.job(job)) else { return Vec::new() };
        let changed = links.join((job, at), &self.placed[job].allocation.placement, traffic);
        if links.in_phases { self.settle(at, &[job]) } else { changed }
    }

    /// A job moves nothing any more. The jobs that are faster for it.
    pub(crate) fn leave_links(&mut self, at: Time, job: JobId) -> Vec<JobId> {
        let Some(links) = &mut self.on_links else { return Vec::new() };
        let met = links.leave(job);
        if links.in_phases { self.settle(at, &met) } else { met }
    }

    /// The speeds of jobs change whose bandwidth did.
    pub(crate) fn retime_on_links(&mut self, at: Time, jobs: &[JobId], events: &mut Vec<Event>) {
        if !jobs.is_empty() {
            self.retime_with(at, None, jobs, events);
        }
    }

    /// The part of a pace, as measured, that a job keeps with the bandwidth that it has.
    pub(crate) fn kept_on_links(&self, job: JobId, pace: Rate) -> f64 {
        let Some(links) = &self.on_links else { return 1.0 };
        let Some(one) = links.jobs.get(&job) else { return 1.0 };
        let (truth, placed) = (self.truth.job(job), &self.placed[job]);
        self.truth.kept_on_links(truth, &placed.config, pace, one.mbps) * one.kept
    }
}
