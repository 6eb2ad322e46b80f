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
}

struct OnItsLinks {
    load: Load,
    mbps: f64,
}

impl OnLinks {
    pub(crate) fn new(cluster: &Arc<Cluster>) -> Option<Box<OnLinks>> {
        let links = cluster.topology.as_deref()?.links();
        let (cluster, jobs) = (Arc::clone(cluster), FxHashMap::default());
        Some(Box::new(OnLinks { cluster, jobs, on: vec![SmallVec::new(); links] }))
    }

    fn topology(&self) -> &Topology {
        self.cluster.topology.as_deref().expect("made for a cluster with links")
    }

    /// A job begins to use the links of its placement. The other jobs whose bandwidth that changes, ascending.
    fn join(&mut self, job: JobId, place: &Placement, traffic: Traffic) -> Vec<JobId> {
        let load = self.topology().load(place, traffic.pattern);
        let mbps = load.alone_mbps(self.topology());
        for same in load.links.chunk_by(|a, b| a == b) {
            self.on[same[0].index()].push(job);
        }
        let shared = !load.links.is_empty();
        self.jobs.insert(job, OnItsLinks { load, mbps });
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
        self.share(&met)
    }

    /// Shares links anew among some jobs and all that meet them, over others too. The jobs whose bandwidth that changes,
    /// ascending.
    fn share(&mut self, from: &[JobId]) -> Vec<JobId> {
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
        let jobs: Vec<JobId> = reached.iter().collect();
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
}

impl World<'_> {
    /// A job begins to move its traffic. The other jobs that it slows.
    pub(crate) fn join_links(&mut self, job: JobId) -> Vec<JobId> {
        let Some(links) = &mut self.on_links else { return Vec::new() };
        let Some(traffic) = self.truth.traffic(self.truth.job(job)) else { return Vec::new() };
        links.join(job, &self.placed[job].allocation.placement, traffic)
    }

    /// A job moves nothing any more. The jobs that are faster for it.
    pub(crate) fn leave_links(&mut self, job: JobId) -> Vec<JobId> {
        self.on_links.as_mut().map_or_else(Vec::new, |links| links.leave(job))
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
        self.truth.kept_on_links(truth, &placed.config, pace, one.mbps)
    }
}
