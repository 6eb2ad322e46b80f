//! A workload of clusters that train large models: transformers beside small jobs.
//!
//! The laws are ours, because no public trace names its models: two jobs of five train a transformer of table 1 of PTD-P
//! (described, so that its speed on any GPUs is that of its best division), the others a measured model on a few GPUs. A
//! transformer asks for one to four times the fewest GPUs on which it fits on the type with the most memory, and is
//! elastic in its copies from that fewest number to four times what it asks for. One transformer in ten and one small
//! job in twenty fails by its own fault; failures of machines and checkpoints are those of the simulated world
//! (`--failures`, `--checkpoint-every`).

use crate::laws::{Draw, cumulated};
use crate::reference::Reference;
use crate::spec::{Arrival, Spec};
use crate::{TraceJob, Workload};
use trainyard_diagnostic::InputError;
use trainyard_profile::Catalog;
use trainyard_types::{Cluster, GpuType, Job, JobId, ModelId, Time, Want, Work};

/// Transformers with their batches and weights.
const LARGE: [(&str, f64); 5] = [
    ("gpt-1.7b batch=512", 4.0),
    ("gpt-3.6b batch=512", 3.0),
    ("gpt-7.5b batch=512", 2.0),
    ("gpt-18b batch=1024", 1.0),
    ("gpt-39b batch=1536", 0.5),
];
/// Measured models of the zoo.
const SMALL: [&str; 4] = [
    "gavel-resnet18-b128",
    "gavel-resnet50-b64",
    "elasticflow-vgg16-b256",
    "elasticflow-inception3-b128",
];
/// The part of jobs that train a transformer.
const LARGE_SHARE: f64 = 0.4;
/// Parts of either sort that fail by their own fault.
const FAIL_SHARES: (f64, f64) = (0.1, 0.05);
/// Median and deviation of the logarithm of durations as asked for, in seconds: of transformers, and of others.
const DURATIONS: [(f64, f64); 2] = [(6.0 * 3600.0, 1.0), (1800.0, 1.2)];
/// Durations lie between these.
const DURATION_LIMITS: (f64, f64) = (120.0, 7.0 * 86_400.0);

/// Streams of random numbers.
mod purpose {
    pub const ARRIVAL: u64 = 101;
    pub const SORT: u64 = 102;
    pub const MODEL: u64 = 103;
    pub const SIZE: u64 = 104;
    pub const DURATION: u64 = 105;
    pub const FAILURE: u64 = 106;
}

/// Draws the jobs of a spec; of its settings only the number of jobs, the seed and the arrivals hold.
pub(crate) fn generate(
    spec: &Spec,
    catalog: &Catalog,
    cluster: &Cluster,
) -> Result<Workload, InputError> {
    spec.validate_like()?;
    let mut catalog = catalog.clone();
    let mut models = Vec::with_capacity(LARGE.len());
    for (text, _) in LARGE {
        models.push(catalog.resolve(0, "models", text)?.0);
    }
    let small: Result<Vec<ModelId>, InputError> =
        SMALL.iter().map(|name| catalog.lookup(0, "models", name)).collect();
    let small = small?;
    let reference = Reference::new(&catalog, cluster);
    // Those that fit here at all, with the fewest GPUs that they need and the type on which that is.
    let fewest: Vec<(ModelId, f64, (GpuType, u32))> = models
        .iter()
        .zip(LARGE)
        .filter_map(|(model, (_, weight))| Some((*model, weight, reference.fewest(*model)?)))
        .collect();
    if fewest.is_empty() {
        let expected = "a cluster with room for one transformer of 1.7 billion parameters at least";
        return Err(InputError::wrong(0, "like", "llm", expected));
    }
    let weights = cumulated(fewest.iter().map(|(_, weight, _)| *weight));
    let draw = |purpose| Draw::new(spec.seed, purpose);
    let (mut arrival, mut sort, mut model) =
        (draw(purpose::ARRIVAL), draw(purpose::SORT), draw(purpose::MODEL));
    let (mut size, mut duration, mut failure) =
        (draw(purpose::SIZE), draw(purpose::DURATION), draw(purpose::FAILURE));
    let mut workload = Workload { catalog, ..Workload::empty(&format!("llm-{}", spec.seed)) };
    let mut at = 0.0;
    for index in 0..spec.jobs {
        if let (1.., Arrival::PerHour(rate)) = (index, spec.arrival) {
            at += arrival.exponential() * 3600.0 / rate;
        }
        let is_large = sort.chance(LARGE_SHARE);
        let power = (size.uniform() * 3.0) as u32;
        let mut job = Job::simple(JobId(index), Time::from_secs_f64(at), 1);
        if is_large {
            let (id, _, (kind, least)) = fewest[model.index(&weights)];
            let most = reference.gpus_of(kind);
            let gpus = (least << power).min(most).max(least);
            let gpus_max = gpus.saturating_mul(4).min(most);
            job.model = id;
            job.want = Want { gpus_min: least, gpus_max, ..Want::gpus(gpus) };
            reference.settle(&mut job);
        } else {
            job.model = small[(model.uniform() * small.len() as f64) as usize];
            job.want = Want::gpus(1 << power);
            job.want.gpu_memory_mib = reference.memory_mib(job.model);
        }
        let (median, sigma) = DURATIONS[usize::from(!is_large)];
        let (least, most) = DURATION_LIMITS;
        let seconds = (median * libm::exp(sigma * duration.normal())).clamp(least, most);
        let work = reference.work_in(job.model, &job.want, seconds);
        let share = if is_large { FAIL_SHARES.0 } else { FAIL_SHARES.1 };
        let fails = failure.chance(share);
        let part = failure.uniform();
        let fails_at = fails.then_some(Work(work.0 * part)).filter(|at| at.0 > 0.0);
        workload.jobs.push(TraceJob { fails_at, ..TraceJob::new(job, work) });
    }
    Ok(workload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Like;

    fn cluster() -> Cluster {
        let mut cluster = Cluster::uniform(8, 8, "a100");
        for name in ["v100", "h100"] {
            let kind = cluster.add_kind(name);
            for _ in 0..4 {
                cluster.add_node(kind, 8);
            }
        }
        cluster
    }

    fn drawn(seed: u64) -> Workload {
        let arrival = Arrival::PerHour(20.0);
        let spec = Spec { like: Like::Llm, jobs: 60, seed, arrival, ..Spec::default() };
        crate::generate(&spec, &Catalog::builtin(), &cluster()).unwrap()
    }

    #[test]
    fn transformers_fit_where_they_may_run_and_are_elastic_in_copies() {
        let workload = drawn(3);
        let large = |one: &&TraceJob| workload.catalog.get(one.job.model).described.is_some();
        let jobs: Vec<&TraceJob> = workload.jobs.iter().filter(large).collect();
        assert!((15..=35).contains(&jobs.len()), "{}", jobs.len());
        assert!(jobs.iter().any(|one| one.job.want.gpus_max > one.job.want.gpus));
        assert!(workload.jobs.iter().any(|one| one.fails_at.is_some()));
        assert!(workload.check(&cluster()).is_empty());
        assert_eq!(workload, drawn(3));
        assert_ne!(workload, drawn(4));
    }
}
