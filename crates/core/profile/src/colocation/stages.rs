//! Co-location by stages: jobs that use storage and CPU, GPU and network one after another, and take turns on them.
//!
//! Two models stand on the same stage times, both from Muri (SIGCOMM 2022) and its simulator.
//! In [`Interleaved`] all jobs of a group do one iteration in each period, whatever their shares are; the group's period
//! is that of the best order, longer by what jobs were measured to lose to each other.
//! In [`Guarded`], Muri's approximation of AntMan, jobs with a right to the GPU run as if alone, and the others fit their
//! stages into what those leave.
//! More than four jobs were not measured: they take turns of a whole iteration each.

use super::{Colocation, MeasuredPairs, SharedGpu, Sharing};
use crate::{Catalog, ModelProfile, StageTimes};
use smallvec::SmallVec;
use trainyard_types::{Cluster, ModelId, Occupant};

/// The most jobs that take turns stage by stage: as many as there are stages.
pub const GROUP_MAX: usize = 4;

/// An iteration of a group of two, three and four over what its stages say; a job alone takes 1.015 of it, which is
/// part of its own iteration.
const LOSS: [f64; 3] = [1.33 / 1.015, 1.5 / 1.015, 1.37 / 1.015];

/// How often the slots of a period are worked through until it is stable.
const PERIODS: usize = 2;

/// Two periods are the same when they differ by less than this part.
const SAME: f64 = 1e-3;

/// Seconds of the stages of one iteration, and of a whole one where the job is alone.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Iteration {
    /// Storage and CPU: loading and preparing samples. Takes two slots of the period.
    pub load: f64,
    /// GPU.
    pub compute: f64,
    /// Network.
    pub network: f64,
    /// An iteration alone. Stages overlap, so that it may be below their sum.
    pub alone: f64,
}

/// Seconds in which every job of a group does one iteration, in the best order of its stages.
///
/// Without the loss of jobs that disturb each other: see [`period`].
pub fn undisturbed(jobs: &[Iteration]) -> f64 {
    match jobs {
        [] => 0.0,
        [one] => one.alone,
        jobs if jobs.len() > GROUP_MAX => jobs.iter().map(|job| job.alone).sum(),
        [one, other] => {
            in_order(jobs, &[0, 1]).min(in_order(jobs, &[1, 0])).min(alternating(one, other))
        }
        jobs => {
            let mut best = f64::INFINITY;
            let mut order: SmallVec<[usize; GROUP_MAX]> = (0..jobs.len()).collect();
            each_order(&mut order, 0, &mut |order| best = best.min(in_order(jobs, order)));
            best
        }
    }
}

/// Seconds in which every job of a group does one iteration, with what they lose to each other.
pub fn period(jobs: &[Iteration]) -> f64 {
    let undisturbed = undisturbed(jobs);
    match jobs.len() {
        2..=GROUP_MAX => undisturbed * LOSS[jobs.len() - 2],
        _ => undisturbed,
    }
}

/// The period where each job runs one slot behind the next. In slot `i` a job ends its network stage, the one behind it
/// its computation, and the one behind that its loading, which began a slot earlier.
fn in_order(jobs: &[Iteration], order: &[usize]) -> f64 {
    let at = |slot: usize| order.get(slot % GROUP_MAX).map(|place| &jobs[*place]);
    let mut ends = [0.0_f64; GROUP_MAX * PERIODS + 1];
    for slot in 0..GROUP_MAX * PERIODS {
        let mut end = 0.0_f64;
        if let Some(job) = at(slot + 1) {
            end = end.max(ends[slot] + job.network);
        }
        if let Some(job) = at(slot + 2) {
            end = end.max(ends[slot] + job.compute);
        }
        if let Some(job) = at(slot + 3).filter(|_| slot > 0) {
            end = end.max(ends[slot - 1] + job.load);
        }
        ends[slot + 1] = end;
        if slot >= GROUP_MAX {
            let period = end - ends[slot + 1 - GROUP_MAX];
            let before = ends[slot] - ends[slot - GROUP_MAX];
            if (period - before).abs() <= SAME * period.abs().max(before.abs()) && period > 0.0 {
                return period;
            }
        }
    }
    ends[GROUP_MAX * PERIODS] - ends[GROUP_MAX * (PERIODS - 1)]
}

/// Two jobs where one loads while the other does all the rest.
fn alternating(one: &Iteration, other: &Iteration) -> f64 {
    one.load.max(other.compute + other.network) + other.load.max(one.compute + one.network)
}

fn each_order(order: &mut [usize], fixed: usize, visit: &mut impl FnMut(&[usize])) {
    if fixed + 1 >= order.len() {
        return visit(order);
    }
    for next in fixed..order.len() {
        order.swap(fixed, next);
        each_order(order, fixed + 1, visit);
        order.swap(fixed, next);
    }
}

/// Seconds of an iteration of a job that runs beside one with a right to the GPU: so many iterations of that one pass
/// until each own stage has found enough time in which the other uses something else.
fn beside_guaranteed(own: &Iteration, host: &Iteration) -> f64 {
    let mut own = *own;
    // Loading goes on while the host computes and communicates; what is left of that time is the next stage's.
    let gap = host.compute + host.network;
    let (mut iterations, rest) = passes(own.load, gap);
    if rest > 0.0 {
        iterations += 1.0;
        own.compute -= own.compute.min(host.network).min(gap - rest);
    }
    let gap = host.load + host.network;
    let (more, rest) = passes(own.compute, gap);
    iterations += more;
    if rest > 0.0 {
        iterations += 1.0;
        if rest < host.load {
            own.network -= own.network.min(host.load + host.compute - rest);
        }
    }
    let (more, rest) = passes(own.network, host.load + host.compute);
    iterations += more;
    if rest > host.load {
        iterations += 1.0;
    }
    iterations * host.alone
}

/// How often a gap fits into a time, and what is left of the time.
fn passes(time: f64, gap: f64) -> (f64, f64) {
    if gap > 0.0 { ((time / gap).floor(), time % gap) } else { (0.0, 0.0) }
}

/// Stage times of the models of a catalog, by the number of GPUs.
#[derive(Clone, Debug)]
pub struct StageTable {
    /// By model, then by number of GPUs ascending.
    known: Vec<SmallVec<[(u32, Iteration); 6]>>,
    /// What holds where stages are not known.
    pairs: MeasuredPairs,
}

impl StageTable {
    /// The stages that the models of a catalog tell of.
    pub fn new(catalog: &Catalog, cluster: &Cluster) -> StageTable {
        let known = catalog.iter().map(|(_, model)| {
            let stages = model.stages.iter();
            stages.filter_map(|stage| Some((stage.gpus, iteration(model, stage)?))).collect()
        });
        let pairs = MeasuredPairs::new(catalog, cluster, Sharing::TimeSliced);
        StageTable { known: known.collect(), pairs }
    }

    /// The stages of a model on so many GPUs; where that size was not measured, on the next smaller one that was.
    pub fn get(&self, model: ModelId, gpus: u32) -> Option<&Iteration> {
        let sizes = self.known.get(model.index())?;
        let next = sizes.partition_point(|(size, _)| *size <= gpus);
        sizes.get(next.saturating_sub(1)).map(|(_, iteration)| iteration)
    }

    fn of(&self, job: Occupant, on: SharedGpu) -> Option<&Iteration> {
        self.get(job.model, if job.gpus == 0 { on.gpus } else { job.gpus })
    }
}

fn iteration(model: &ModelProfile, stage: &StageTimes) -> Option<Iteration> {
    let point = model.points.iter().find(|point| point.gpus == stage.gpus)?;
    Some(Iteration {
        load: (stage.storage + stage.cpu).as_secs_f64(),
        compute: stage.gpu.as_secs_f64(),
        network: stage.network.as_secs_f64(),
        alone: 1.0 / point.rate,
    })
}

/// Groups whose jobs take turns on storage and CPU, GPU and network, one iteration each in a period.
#[derive(Clone, Debug)]
pub struct Interleaved(pub StageTable);

impl Colocation for Interleaved {
    fn kept(&self, own: Occupant, on: SharedGpu, others: &[Occupant]) -> f64 {
        let all: SmallVec<[Occupant; GROUP_MAX]> =
            std::iter::once(own).chain(others.iter().copied()).collect();
        match (self.0.of(own, on), self.period(&all, on)) {
            (Some(stages), Some(period)) => stages.alone / period,
            _ => self.0.pairs.kept(own, on, others),
        }
    }

    fn period(&self, jobs: &[Occupant], on: SharedGpu) -> Option<f64> {
        let stages = jobs.iter().map(|job| self.0.of(*job, on).copied());
        let stages: SmallVec<[Iteration; GROUP_MAX]> = stages.collect::<Option<_>>()?;
        Some(period(&stages))
    }
}

/// Jobs with a right to the GPU run as if alone; the others use what their stages leave.
#[derive(Clone, Debug)]
pub struct Guarded(pub StageTable);

impl Colocation for Guarded {
    fn kept(&self, own: Occupant, on: SharedGpu, others: &[Occupant]) -> f64 {
        if own.request > 0 {
            return 1.0;
        }
        let Some(stages) = self.0.of(own, on) else { return self.0.pairs.kept(own, on, others) };
        let mut seconds = stages.alone;
        for other in others {
            let beside = match (other.request > 0, self.0.of(*other, on)) {
                (true, Some(host)) => beside_guaranteed(stages, host),
                (true, None) => stages.alone / self.0.pairs.kept(own, on, &[*other]).max(1e-6),
                // Two without a right take turns.
                (false, _) => 2.0 * stages.alone,
            };
            seconds = seconds.max(beside);
        }
        stages.alone / seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(load: f64, compute: f64, network: f64) -> Iteration {
        Iteration { load, compute, network, alone: load + compute + network }
    }

    #[test]
    fn two_jobs_that_halve_the_time_between_loading_and_the_rest_fit_into_one() {
        let two = [job(2.0, 1.0, 1.0); 2];
        // Slots end at 0, 1, 2, 3, 4, 5: the period is 4 at the first look.
        assert_eq!(in_order(&two, &[0, 1]), 4.0);
        assert_eq!(alternating(&two[0], &two[1]), 4.0);
        assert_eq!(undisturbed(&two), 4.0);
        assert!((period(&two) - 4.0 * 1.33 / 1.015).abs() < 1e-12);
    }

    #[test]
    fn two_jobs_of_unlike_stages_alternate() {
        // One loads for 9 while the other computes for 4 and communicates for 2; then it needs 3 while the other loads for 1.
        let (loads, computes) = (job(9.0, 2.0, 1.0), job(1.0, 4.0, 2.0));
        assert_eq!(alternating(&loads, &computes), 9.0 + 3.0);
        assert_eq!(undisturbed(&[loads, computes]), undisturbed(&[computes, loads]));
        assert!(undisturbed(&[loads, computes]) <= 12.0);
    }

    #[test]
    fn four_jobs_alike_keep_every_stage_busy() {
        // Loading takes two slots, so that four jobs of 2 + 1 + 1 fill four slots of 1.
        let four = [job(2.0, 1.0, 1.0); 4];
        assert_eq!(undisturbed(&four), 4.0);
        assert_eq!(period(&four), 4.0 * (1.37 / 1.015));
        // A longer stage sets the pace of all four slots.
        let slow = [job(2.0, 3.0, 1.0); 4];
        assert_eq!(undisturbed(&slow), 12.0);
    }

    #[test]
    fn the_best_order_does_not_depend_on_how_jobs_are_listed() {
        let jobs = [job(711.0, 110.0, 1.0), job(0.5, 160.0, 2.0), job(117.0, 68.0, 40.0)];
        let best = undisturbed(&jobs);
        assert_eq!(best, undisturbed(&[jobs[2], jobs[0], jobs[1]]));
        assert!(best <= in_order(&jobs, &[0, 1, 2]) && best <= in_order(&jobs, &[0, 2, 1]));
    }

    #[test]
    fn one_job_is_alone_and_five_take_turns() {
        assert_eq!(period(&[job(1.0, 2.0, 3.0)]), 6.0);
        assert_eq!(period(&[job(1.0, 2.0, 3.0); 5]), 30.0);
        assert_eq!(period(&[]), 0.0);
    }

    #[test]
    fn a_job_without_a_right_fits_its_stages_into_gaps() {
        // The host leaves the loader for 3 of each iteration: a load of 6 takes two of them, and nothing is left over.
        // Computing for 2 fits into the 3 in which the host loads and communicates, and the network's 1 into the rest.
        let host = job(2.0, 2.0, 1.0);
        assert_eq!(beside_guaranteed(&job(6.0, 2.0, 1.0), &host), 3.0 * host.alone);
        // A load of 4 leaves a rest of 1: of the other 2, the 1 of the host's network serves the computation.
        assert_eq!(beside_guaranteed(&job(4.0, 1.0, 0.0), &host), 2.0 * host.alone);
    }
}
