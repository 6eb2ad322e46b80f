//! Which waiting jobs take part in a search.
//!
//! Of jobs that report nothing, ask for the same and differ only in what a start would cost them, no more can run at once
//! than the cluster holds, and one that starts more cheaply is never the worse choice. The others of such a class are left
//! out, so that a long queue costs little.

use crate::prelude::*;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use trainyard_types::PoolId;

/// What a job asks for, as far as the search distinguishes it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Demand {
    kinds: SmallVec<[GpuType; 4]>,
    pool: Option<PoolId>,
    cpus_per_gpu: u16,
    memory_mib_per_gpu: u32,
}

impl Demand {
    pub(super) fn of(job: JobRef<'_>) -> Demand {
        let want = &job.spec.want;
        Demand {
            kinds: want.kinds.clone(),
            pool: want.pool,
            cpus_per_gpu: want.cpus_per_gpu,
            memory_mib_per_gpu: want.memory_mib_per_gpu,
        }
    }
}

/// Jobs that differ in the cost of a start only.
#[derive(PartialEq, Eq, Hash)]
struct Class {
    demand: Demand,
    gpus_min: u32,
    gpus_max: u32,
    seen_on: u32,
    nodes_max: u16,
}

/// Whether nothing is ever learnt of a job's speed: it reported none, and no batch is to be chosen.
pub(super) fn is_quiet(view: &View<'_>, job: JobRef<'_>) -> bool {
    let kinds = || (0..view.cluster().kinds.len()).map(|kind| GpuType(kind as u8));
    job.state.measured.is_none() && kinds().all(|kind| view.batch_limits(job, kind).is_none())
}

/// The most GPUs on which a job was seen: by its reports, as it runs, or by the mean over its time on GPUs.
///
/// The last is for jobs that report nothing and were stopped: the mean is never above the most.
pub(super) fn seen_on(view: &View<'_>, job: JobRef<'_>) -> u32 {
    let measured = job.state.measured.as_ref();
    let reported = measured
        .map_or(0, |measured| measured.steps.iter().map(|step| step.gpus).max().unwrap_or(0));
    let mean = match job.state.ran(view.now).0 {
        0 => 0,
        _ if reported > 0 => 0,
        ran => job.state.attained(view.now).0.div_ceil(ran) as u32,
    };
    reported.max(job.state.gpus()).max(mean)
}

/// The jobs that take part: all but those of a class that could not run even if it had all `gpus` alone. `cheapness`
/// says what a start leaves of a job's speed-up.
pub(super) fn thinned<'a>(
    view: &View<'a>,
    jobs: Vec<JobRef<'a>>,
    gpus: u32,
    cheapness: impl Fn(JobRef<'a>) -> f64,
) -> Vec<JobRef<'a>> {
    if jobs.len() <= gpus as usize {
        return jobs;
    }
    let mut classes: FxHashMap<Class, Vec<(f64, usize)>> = FxHashMap::default();
    for (index, job) in jobs.iter().enumerate() {
        if job.state.planned.is_some() || !is_quiet(view, *job) {
            continue;
        }
        let want = &job.spec.want;
        let class = Class {
            demand: Demand::of(*job),
            gpus_min: want.gpus_min.max(1),
            gpus_max: want.gpus_max,
            seen_on: if want.is_rigid() { 0 } else { seen_on(view, *job) },
            nodes_max: want.nodes_max,
        };
        classes.entry(class).or_default().push((cheapness(*job), index));
    }
    let mut stays = vec![true; jobs.len()];
    for (class, mut members) in classes {
        // A job that fits nowhere is told so, each of them.
        let most = match gpus / class.gpus_min {
            0 => continue,
            most => most as usize,
        };
        if members.len() <= most {
            continue;
        }
        let key = |index: usize| (jobs[index].spec.submitted, jobs[index].id());
        members.select_nth_unstable_by(most - 1, |a, b| {
            b.0.total_cmp(&a.0).then_with(|| key(a.1).cmp(&key(b.1)))
        });
        members[most..].iter().for_each(|(_, index)| stays[*index] = false);
    }
    let kept = jobs.into_iter().zip(stays).filter(|(_, stays)| *stays);
    kept.map(|(job, _)| job).collect()
}
