//! What a policy may choose for a job: traces of rigid jobs, loosened.
//!
//! Most public traces tell one size of each job. An elastic policy has nothing to decide there, so its users must say
//! how free the jobs are to be taken; results then say it too.

use crate::Workload;
use std::sync::Arc;
use trainyard_profile::ModelProfile;
use trainyard_types::{Cluster, Job};

/// What a policy may choose for the jobs of a workload.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Elasticity {
    /// What each job itself allows.
    #[default]
    Rigid,
    /// The number of GPUs too, from one up; the batch stays.
    Elastic,
    /// The number of GPUs and, of jobs that follow a measured training on more than one GPU, the batch.
    Adaptive,
}

impl Elasticity {
    /// All, from the least to the most.
    pub const ALL: [Elasticity; 3] = [Elasticity::Rigid, Elasticity::Elastic, Elasticity::Adaptive];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Elasticity::Rigid => "rigid",
            Elasticity::Elastic => "elastic",
            Elasticity::Adaptive => "adaptive",
        }
    }

    /// The elasticity of that name.
    pub fn named(name: &str) -> Option<Elasticity> {
        Elasticity::ALL.into_iter().find(|elasticity| elasticity.name() == name)
    }
}

/// The same jobs with more elasticity. Jobs that take a part of a GPU, and jobs that already allow several sizes, keep
/// theirs.
///
/// The most GPUs are those that share a batch of the smallest local size, or those that the model was measured on;
/// at least what is asked for and at most what the cluster has of acceptable types.
pub fn loosen(mut workload: Workload, cluster: &Cluster, elasticity: Elasticity) -> Workload {
    if elasticity == Elasticity::Rigid {
        return workload;
    }
    workload.name = format!("{}, {} jobs", workload.name, elasticity.name());
    for one in &mut workload.jobs {
        let profile = workload.catalog.get(one.job.model);
        let job = Arc::make_mut(&mut one.job);
        let adapts =
            profile.training.as_ref().is_some_and(|training| training.gpus_most != Some(1));
        if elasticity == Elasticity::Adaptive && adapts {
            job.want.batch = None;
        }
        if job.want.is_rigid() && job.want.permille == 1000 {
            let there = gpus_for(job, cluster);
            job.want.gpus_max = most(job, profile).min(there).max(job.want.gpus);
            job.want.gpus_min = 1;
        }
    }
    workload
}

/// The most GPUs a job could make use of, wherever it is.
fn most(job: &Job, profile: &ModelProfile) -> u32 {
    let Some(training) = &profile.training else {
        return profile.points.iter().map(|point| point.gpus).max().unwrap_or(1);
    };
    let by_batch = training.limits.iter().map(|limits| {
        let batch = job.want.batch.unwrap_or(limits.most).min(limits.most);
        (batch / limits.local_least.max(1)).max(1)
    });
    by_batch.max().unwrap_or(1).min(training.gpus_most.unwrap_or(u32::MAX))
}

fn gpus_for(job: &Job, cluster: &Cluster) -> u32 {
    let acceptable = cluster.nodes.iter().filter(|node| job.want.accepts(node.kind));
    acceptable.map(|node| u32::from(node.gpus)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TraceJob;
    use trainyard_profile::Catalog;
    use trainyard_types::{JobId, Time, Want, Work};

    fn loosened(want: Want, elasticity: Elasticity) -> Want {
        let catalog = Catalog::builtin();
        let model = catalog.find("pollux-cifar10-b4096").expect("a model of the zoo");
        let job = Job { want, model, ..Job::simple(JobId(0), Time::ZERO, 1) };
        let jobs = vec![TraceJob::new(job, Work(10.0))];
        let workload = Workload { jobs, catalog, ..Workload::empty("one") };
        let cluster = crate::cluster::parse_line("4x8 a100").expect("a cluster");
        loosen(workload, &cluster, elasticity).jobs[0].job.want.clone()
    }

    #[test]
    fn a_rigid_job_may_have_any_size() {
        let want = loosened(Want::gpus(2), Elasticity::Elastic);
        assert_eq!((want.gpus_min, want.gpus), (1, 2));
        assert!((2..=32).contains(&want.gpus_max), "{want:?}");
    }

    #[test]
    fn what_is_given_or_elastic_or_a_part_of_a_gpu_stays() {
        let rigid = Want::gpus(2);
        assert_eq!(loosened(rigid.clone(), Elasticity::Rigid), rigid);
        let own = Want { gpus_min: 2, gpus_max: 3, ..rigid.clone() };
        assert_eq!(loosened(own.clone(), Elasticity::Elastic), own);
        let part = Want { permille: 500, ..Want::gpus(1) };
        assert_eq!(loosened(part.clone(), Elasticity::Adaptive), part);
    }
}
