//! What cannot work, said before anything runs.

use crate::reference::Reference;
use crate::{TraceJob, Workload};
use std::collections::BTreeMap;
use trainyard_types::{Cluster, GpuType, Job, JobId, PoolId};

/// Something in a workload that cannot work on a cluster.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    /// A job needs more than the cluster has.
    #[error(
        "job `{label}` needs at least {need} GPUs, but the cluster has at most {most} of one type that it accepts"
    )]
    TooLarge {
        /// The job.
        job: JobId,
        /// Its name outside.
        label: String,
        /// What it needs.
        need: u32,
        /// What there is.
        most: u32,
    },
    /// A job's range of sizes makes no sense.
    #[error(
        "job `{label}` asks for {gpus} GPUs within {least} to {most}: expected 1 <= least <= asked <= most"
    )]
    BadSize {
        /// The job.
        job: JobId,
        /// Its name outside.
        label: String,
        /// What it asks for.
        gpus: u32,
        /// Its least.
        least: u32,
        /// Its most.
        most: u32,
    },
    /// A job names something that is not there.
    #[error("job `{label}` names {what} number {number}, but there are only {count}")]
    Unknown {
        /// The job.
        job: JobId,
        /// Its name outside.
        label: String,
        /// What it names: a GPU type, pool, model or tenant, or a job it follows.
        what: &'static str,
        /// The number.
        number: u32,
        /// How many there are.
        count: usize,
    },
    /// A job has no work, or an amount that is no amount.
    #[error("job `{label}` has {work} steps of work: expected more than 0")]
    NoWork {
        /// The job.
        job: JobId,
        /// Its name outside.
        label: String,
        /// The amount.
        work: f64,
    },
    /// A described model has no division over the GPUs that its job asks for.
    #[error("job `{label}`: {reason}")]
    FitsNowhere {
        /// The job.
        job: JobId,
        /// Its name outside.
        label: String,
        /// What it lacks.
        reason: String,
    },
    /// Jobs wait for each other.
    #[error("job `{label}` waits for itself, through the jobs it has to follow")]
    Cycle {
        /// One of them.
        job: JobId,
        /// Its name outside.
        label: String,
    },
}

impl Workload {
    /// Everything that cannot work on this cluster, in order of job.
    pub fn check(&self, cluster: &Cluster) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut sizes = Sizes::new(cluster);
        let is_described = self.catalog.iter().any(|(_, model)| model.described.is_some());
        let reference = is_described.then(|| Reference::new(&self.catalog, cluster));
        for one in &self.jobs {
            let found = self.check_names(one, cluster);
            let found = found.or_else(|| self.check_size(one, &mut sizes));
            let fits = || {
                let reason = reference.as_ref()?.fits_nowhere(&one.job)?;
                let (job, label) = (one.job.id, self.label(one.job.id));
                Some(Problem::FitsNowhere { job, label, reason })
            };
            if let Some(problem) = found.or_else(fits) {
                problems.push(problem);
            }
        }
        problems.extend(self.check_order());
        problems
    }

    fn check_names(&self, one: &TraceJob, cluster: &Cluster) -> Option<Problem> {
        let job = &one.job;
        let unknown = |what, number, count| {
            Some(Problem::Unknown { job: job.id, label: self.label(job.id), what, number, count })
        };
        if let Some(kind) = job.want.kinds.iter().find(|kind| kind.index() >= cluster.kinds.len()) {
            return unknown("GPU type", u32::from(kind.0), cluster.kinds.len());
        }
        if let Some(pool) = job.want.pool.filter(|pool| pool.index() >= cluster.pools.len()) {
            return unknown("pool", u32::from(pool.0), cluster.pools.len());
        }
        if job.model.index() >= self.catalog.len() {
            return unknown("model", job.model.0, self.catalog.len());
        }
        if job.tenant.index() >= self.tenants.len() {
            return unknown("tenant", job.tenant.0, self.tenants.len());
        }
        if let Some(other) = job.after.iter().find(|other| other.index() >= self.jobs.len()) {
            return unknown("job", other.0, self.jobs.len());
        }
        if !(one.work.0 > 0.0 && one.work.0.is_finite()) {
            return Some(Problem::NoWork {
                job: job.id,
                label: self.label(job.id),
                work: one.work.0,
            });
        }
        None
    }

    fn check_size(&self, one: &TraceJob, sizes: &mut Sizes<'_>) -> Option<Problem> {
        let (job, want) = (&one.job, &one.job.want);
        let label = || self.label(job.id);
        let (least, most) = (want.gpus_min, want.gpus_max);
        if least == 0 || want.gpus < least || want.gpus > most {
            let (job, gpus) = (job.id, want.gpus);
            return Some(Problem::BadSize { job, label: label(), gpus, least, most });
        }
        let room = sizes.most(job);
        (least > room).then(|| Problem::TooLarge {
            job: job.id,
            label: label(),
            need: least,
            most: room,
        })
    }

    /// One problem for each job on a cycle or behind one.
    fn check_order(&self) -> Vec<Problem> {
        if self.jobs.iter().all(|one| one.job.after.is_empty()) {
            return Vec::new();
        }
        let count = self.jobs.len();
        let mut waits = vec![0u32; count];
        let mut followers: Vec<Vec<u32>> = vec![Vec::new(); count];
        for (index, one) in self.jobs.iter().enumerate() {
            for before in one.job.after.iter().filter(|before| before.index() < count) {
                waits[index] += 1;
                followers[before.index()].push(index as u32);
            }
        }
        let mut free: Vec<u32> =
            (0..count as u32).filter(|job| waits[*job as usize] == 0).collect();
        while let Some(job) = free.pop() {
            for next in std::mem::take(&mut followers[job as usize]) {
                waits[next as usize] -= 1;
                if waits[next as usize] == 0 {
                    free.push(next);
                }
            }
        }
        let stuck = (0..count as u32).map(JobId).filter(|job| waits[job.index()] > 0);
        stuck.map(|job| Problem::Cycle { job, label: self.label(job) }).collect()
    }
}

/// The most GPUs a job could ever get, remembered for each sort of wish.
struct Sizes<'a> {
    cluster: &'a Cluster,
    seen: BTreeMap<Sort, u32>,
}

/// Types, pool, most nodes, GPU memory, CPUs, host memory, and the most GPUs where not every size can be placed.
type Sort = (Vec<GpuType>, Option<PoolId>, u16, u32, u16, u32, (u32, bool));

impl<'a> Sizes<'a> {
    fn new(cluster: &'a Cluster) -> Sizes<'a> {
        Sizes { cluster, seen: BTreeMap::new() }
    }

    fn most(&mut self, job: &Job) -> u32 {
        let want = &job.want;
        let host = (want.cpus_per_gpu, want.memory_mib_per_gpu);
        let cluster = self.cluster;
        let at_most = if cluster.rules.is_none() { u32::MAX } else { want.gpus_max };
        let memory = want.gpu_memory_mib;
        let sort = (
            want.kinds.to_vec(),
            want.pool,
            want.nodes_max,
            memory,
            host.0,
            host.1,
            (at_most, want.across_kinds),
        );
        *self.seen.entry(sort).or_insert_with(|| cluster.largest_size(want, at_most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::{ModelId, Time, Want, Work};

    fn workload(change: impl Fn(usize, &mut Job)) -> Workload {
        let mut workload = Workload::empty("test");
        for index in 0..3 {
            let mut job = Job::simple(JobId(index), Time::ZERO, 2);
            change(index as usize, &mut job);
            let work = Work(if job.priority == 9 { 0.0 } else { 5.0 });
            workload.jobs.push(TraceJob::new(job, work));
        }
        workload
    }

    fn problems(change: impl Fn(usize, &mut Job)) -> Vec<String> {
        let cluster = Cluster::uniform(2, 4, "v100");
        workload(change).check(&cluster).iter().map(Problem::to_string).collect()
    }

    #[test]
    fn a_sound_workload_has_no_problems() {
        assert!(problems(|_, _| ()).is_empty());
        assert!(
            problems(|index, job| job.after = if index > 0 { vec![JobId(0)] } else { vec![] })
                .is_empty()
        );
    }

    #[test]
    fn each_kind_of_problem_is_named() {
        let found = problems(|index, job| match index {
            0 => (job.want.gpus, job.want.gpus_min, job.want.gpus_max) = (9, 9, 9),
            1 => job.priority = 9,
            _ => job.model = ModelId(7),
        });
        assert_eq!(
            found[0],
            "job `0` needs at least 9 GPUs, but the cluster has at most 8 of one type that it accepts"
        );
        assert_eq!(found[1], "job `1` has 0 steps of work: expected more than 0");
        assert_eq!(found[2], "job `2` names model number 7, but there are only 1");
        let found = problems(|_, job| (job.want.gpus_min, job.want.nodes_max) = (3, 1));
        assert!(found[0].contains("expected 1 <= least"), "{found:?}");
        let found =
            problems(|_, job| (job.want.gpus_max, job.want.kinds) = (2, [GpuType(3)][..].into()));
        assert!(found[0].contains("GPU type number 3"), "{found:?}");
    }

    #[test]
    fn a_limit_on_nodes_limits_the_size() {
        let found = problems(|_, job| {
            job.want = Want { nodes_max: 1, ..Want::gpus(5) };
        });
        assert!(found[0].contains("at most 4"), "{found:?}");
    }

    #[test]
    fn jobs_that_wait_for_each_other_are_found() {
        let found = problems(|index, job| job.after = vec![JobId([1, 0, 0][index])]);
        assert_eq!(found.len(), 3);
        let found =
            problems(|index, job| job.after = if index == 1 { vec![JobId(1)] } else { vec![] });
        assert_eq!(found, ["job `1` waits for itself, through the jobs it has to follow"]);
    }
}
