//! Max-min with jobs that share GPUs two by two, without a choice for every two of them: pairs are made where they gain.

use super::problem::Problem;
use smallvec::smallvec;
use std::collections::BTreeMap;
use trainyard_framework::{Choice, JobRef, Shares, View};
use trainyard_solver::Limit;
use trainyard_solver::shares::{PairJob, PairPool, max_min_pairs};
use trainyard_types::{Config, GpuType, ModelId};

/// Pivots that may be made.
const STEPS_MAX: u64 = 20_000;

/// Jobs that are alike to the solver: same model, same number of GPUs, same rates.
struct Class<'v> {
    gpus: u32,
    rates: Vec<f64>,
    /// One of them.
    job: JobRef<'v>,
}

/// Shares of single choices and of pairs that are not in the table, each party at the same multiple of its need.
///
/// Jobs of different sizes may be there, and only those of the same size share: beside a smaller job a gang would wait for
/// the few of its GPUs that are shared. `None` where the table has more than one choice for each job and type, or the
/// solver leaves a job out.
pub fn max_min(problem: &Problem<'_>, needs: &[f64], view: &View<'_>) -> Option<Shares> {
    let kinds = problem.table.kinds.len();
    let mut classes: Vec<Class<'_>> = Vec::new();
    let mut known: BTreeMap<(ModelId, u32, Vec<u64>), usize> = BTreeMap::new();
    let mut jobs = Vec::with_capacity(problem.len());
    for (party, need) in needs.iter().enumerate() {
        let ways = problem.ways(party);
        let plain = |(kind, (choice, _)): (usize, &(usize, f64))| {
            let choice = &problem.table.choices[*choice];
            choice.jobs.len() == 1 && choice.uses.len() == 1 && choice.kind() == kind
        };
        if ways.len() != kinds || !ways.iter().enumerate().all(plain) {
            return None;
        }
        let job = view.job(problem.parties[party].job)?;
        let gpus = problem.table.choices[ways[0].0].gpus();
        let rates: Vec<f64> = ways.iter().map(|(_, rate)| *rate).collect();
        let bits = rates.iter().map(|rate| rate.to_bits()).collect();
        let class = *known.entry((job.spec.model, gpus, bits)).or_insert_with(|| {
            classes.push(Class { gpus, rates, job });
            classes.len() - 1
        });
        jobs.push(PairJob { class, part: *need });
    }
    let capacity: Vec<f64> = problem.table.capacity.iter().map(|gpus| f64::from(*gpus)).collect();
    let gpus: Vec<f64> = classes.iter().map(|class| f64::from(class.gpus)).collect();
    let alone: Vec<f64> = classes.iter().flat_map(|class| class.rates.iter().copied()).collect();
    let pair = |a: usize, b: usize, kind: usize| beside((&classes[a], &classes[b]), kind, view);
    let pool = PairPool { capacity: &capacity, gpus: &gpus, alone: &alone, pair: &pair };
    let found = max_min_pairs(&pool, &jobs, &Limit::steps(STEPS_MAX));
    if !found.left_out.is_empty() || !found.level.is_finite() {
        return None;
    }
    let mut shares = Shares::from(vec![0.0; problem.table.choices.len()]);
    for (party, kind, share) in found.alone {
        shares.of[problem.ways(party)[kind].0] = share;
    }
    for ((a, b), kind, share) in found.together {
        let (first, second) = (&classes[jobs[a].class], &classes[jobs[b].class]);
        let (own, others) = beside((first, second), kind, view);
        let choice = Choice {
            jobs: smallvec![problem.parties[a].job, problem.parties[b].job],
            uses: smallvec![(kind as u16, first.gpus)],
            nodes_max: 0,
            rates: smallvec![own, others],
        };
        shares.more.push((choice, share));
    }
    Some(shares)
}

/// The rates of two jobs that share GPUs of a type: what each is believed to have alone, times the part that it keeps.
fn beside((a, b): (&Class<'_>, &Class<'_>), kind: usize, view: &View<'_>) -> (f64, f64) {
    let (own, others) = (a.rates[kind], b.rates[kind]);
    if own <= 0.0 || others <= 0.0 || a.gpus != b.gpus {
        return (0.0, 0.0);
    }
    let shape = view.state().shapes[kind];
    let parts = (kept((a.job, b.job), shape, view), kept((b.job, a.job), shape, view));
    match parts.0 > 0.0 && parts.1 > 0.0 {
        true => (own * parts.0, others * parts.1),
        false => (0.0, 0.0),
    }
}

/// The part of its speed that a job keeps beside another of its size on GPUs of a type, of which a node has so many; 0 if
/// they cannot share.
pub(super) fn kept(
    (job, other): (JobRef<'_>, JobRef<'_>),
    (gpu, per_node): (GpuType, u32),
    view: &View<'_>,
) -> f64 {
    let (want, with) = (&job.spec.want, &other.spec.want);
    let memory = view.cluster().kinds[gpu.index()].memory_mib;
    let fits = memory == 0 || want.gpu_memory_mib + with.gpu_memory_mib <= memory;
    if !fits || want.permille != 1000 || with.permille != 1000 {
        return 0.0;
    }
    let mut config = Config::packed(gpu, want.gpus, per_node);
    let alone = view.rate(job, &config).map_or(0.0, |rate| rate.0);
    config = config.with_partners([other.spec.model]);
    let kept = view.rate(job, &config).map_or(0.0, |rate| rate.0);
    if alone > 0.0 && kept.is_finite() { kept / alone } else { 0.0 }
}
