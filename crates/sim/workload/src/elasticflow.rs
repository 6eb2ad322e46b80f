//! The generator of ElasticFlow (ASPLOS 2023): its distributions and its streams, so that a seed gives the
//! jobs of its Figure 10.
//!
//! Facts from `trace_generator` of its repository (Apache-2.0). Four streams of `random.Random` are seeded with the
//! seed and the three numbers after it: types of jobs, times between arrivals, durations, sizes. There are fourteen
//! types of jobs, and iterations are duration times the speed at the drawn size on A100s. Submissions, durations and
//! deadlines are cut to whole seconds, iterations to whole ones. Jobs are elastic: from one GPU to the largest size
//! that was measured, at most 64 and at most a sample for each GPU.
//!
//! A deadline is the submission plus 1.5 times the duration, as in Figure 10. Its script draws the factor from 0.5 to
//! 1.5 elsewhere, from a stream that it does not seed, so that those runs cannot be drawn again.

use crate::python_random::PythonRandom;
use crate::spec::{Arrival, Spec};
use crate::{TraceJob, Workload};
use trainyard_diagnostic::InputError;
use trainyard_profile::{Catalog, ModelProfile, Point};
use trainyard_types::{Class, Job, JobId, ModelId, Time, Work};

/// Types of jobs in the order of its table: models with their global batches.
const JOB_TYPES: [(&str, u32); 14] = [
    ("resnet50", 64),
    ("resnet50", 128),
    ("resnet50", 256),
    ("vgg16", 64),
    ("vgg16", 128),
    ("vgg16", 256),
    ("inception3", 64),
    ("inception3", 128),
    ("gpt2", 128),
    ("gpt2", 256),
    ("bert", 128),
    ("bert", 64),
    ("deepspeech2", 64),
    ("deepspeech2", 32),
];

const REFERENCE: &str = "a100";
/// The largest size that its simulator grants.
const GPUS_MAX: u32 = 64;
const SLACK: f64 = 1.5;

/// A type of job: a model with its speeds on A100s.
struct JobType {
    model: ModelId,
    batch: u32,
    /// GPUs and iterations per second, ascending.
    speeds: Vec<(u32, f64)>,
}

/// Draws the jobs of a spec; of its settings only the number of jobs, the seed and the arrivals hold.
pub(crate) fn generate(spec: &Spec, catalog: &Catalog) -> Result<Workload, InputError> {
    spec.validate_like()?;
    let types: Result<Vec<JobType>, InputError> =
        JOB_TYPES.iter().map(|one| job_type(catalog, *one)).collect();
    let types = types?;
    let stream = |offset: u64| PythonRandom::new(spec.seed.wrapping_add(offset));
    let (mut kinds, mut gaps, mut lengths, mut sizes) =
        (stream(0), stream(1), stream(2), stream(3));
    let name = format!("elasticflow-{}", spec.seed);
    let mut workload = Workload { catalog: catalog.clone(), ..Workload::empty(&name) };
    workload.jobs.reserve_exact(spec.jobs as usize);
    let mut arrival = 0.0;
    for index in 0..spec.jobs {
        let gpus = size(&mut sizes);
        let kind = &types[kinds.index(types.len() as u32) as usize];
        let seconds = duration(&mut lengths);
        if let (1.., Arrival::PerHour(rate)) = (index, spec.arrival) {
            arrival += -libm::log(1.0 - gaps.uniform()) * (3600.0 / rate);
        }
        let mut job = Job::simple(JobId(index), Time::from_secs_f64(arrival.trunc()), gpus);
        let due = (arrival + (SLACK * seconds).trunc()).trunc();
        job.model = kind.model;
        job.class = Class::Guaranteed;
        job.value = vec![(Time::from_secs_f64(due), 1.0)];
        job.want.gpus_min = 1;
        job.want.gpus_max = kind.largest().max(gpus);
        let iterations = (seconds * kind.speed(gpus)?).trunc();
        workload.jobs.push(TraceJob::new(job, Work(iterations)));
    }
    Ok(workload)
}

/// 1, 2, 4, 8 or 16 GPUs.
fn size(random: &mut PythonRandom) -> u32 {
    match random.between(0.0, 1.0) {
        below if below < 0.83 => 1,
        // Bounds belong to the smaller size, but for the first.
        below if below <= 0.86 => 2,
        below if below <= 0.89 => 4,
        below if below <= 0.99 => 8,
        _ => 16,
    }
}

fn duration(random: &mut PythonRandom) -> f64 {
    let is_long = random.uniform() >= 0.8;
    let exponent = if is_long { random.between(2.5, 4.0) } else { random.between(1.0, 2.5) };
    60.0 * libm::pow(10.0, exponent)
}

impl JobType {
    fn speed(&self, gpus: u32) -> Result<f64, InputError> {
        let speed = self.speeds.iter().find(|(size, _)| *size == gpus).map(|(_, rate)| *rate);
        speed.ok_or_else(|| {
            let expected = format!("speeds on {gpus} {REFERENCE}");
            InputError::wrong(0, "models", &format!("batch {}", self.batch), expected)
        })
    }

    fn largest(&self) -> u32 {
        let most = GPUS_MAX.min(self.batch);
        let sizes = self.speeds.iter().map(|(gpus, _)| *gpus).filter(|gpus| *gpus <= most);
        sizes.max().unwrap_or(1)
    }
}

fn job_type(catalog: &Catalog, (model, batch): (&str, u32)) -> Result<JobType, InputError> {
    let model = catalog.lookup(0, "models", &format!("elasticflow-{model}-b{batch}"))?;
    let ModelProfile { points, .. } = catalog.get(model);
    let here = |point: &&Point| point.kind == REFERENCE && point.rate > 0.0;
    let mut speeds: Vec<(u32, f64)> =
        points.iter().filter(here).map(|point| (point.gpus, point.rate)).collect();
    speeds.sort_unstable_by_key(|(gpus, _)| *gpus);
    Ok(JobType { model, batch, speeds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Like;

    /// A catalog whose types of jobs do an iteration in a second on any number of GPUs.
    fn flat() -> Catalog {
        let mut catalog = Catalog::builtin();
        for (model, batch) in JOB_TYPES {
            let name = format!("elasticflow-{model}-b{batch}");
            let mut profile = ModelProfile::named(&name, "made for a test");
            profile.points = (0..7)
                .map(|power| {
                    let (gpus, kind) = (1 << power, REFERENCE.to_owned());
                    Point { kind, gpus, nodes: u32::div_ceil(gpus, 8), rate: 1.0 }
                })
                .collect();
            catalog.add(profile);
        }
        catalog
    }

    /// Expected rows come from the laws written down in CPython with its own `random`; submissions, sizes and
    /// deadlines agree with all hundred jobs in the authors' logs, models with the lengths in them.
    #[test]
    fn seed_1_gives_the_jobs_of_figure_10() {
        let arrival = Arrival::PerHour(2.4);
        let spec = Spec { like: Like::Elasticflow, seed: 1, jobs: 100, arrival, ..Spec::default() };
        let cluster = trainyard_types::Cluster::uniform(16, 8, "a100");
        let workload = crate::generate(&spec, &flat(), &cluster).unwrap();
        let row = |index: usize| {
            let TraceJob { job, work, .. } = &workload.jobs[index];
            let seconds = |time: Time| time.as_secs_f64() as u64;
            let model = workload.catalog.get(job.model).name.as_str();
            let due = seconds(job.deadline().unwrap());
            (seconds(job.submitted), model, job.want.gpus, work.0 as u64, due)
        };
        assert_eq!(row(0), (0, "elasticflow-resnet50-b256", 1, 3930, 5896));
        assert_eq!(row(2), (9116, "elasticflow-deepspeech2-b32", 1, 752, 10244));
        assert_eq!(row(6), (14041, "elasticflow-vgg16-b128", 8, 98328, 161534));
        assert_eq!(row(99).0, 175378);
        assert_eq!(workload.jobs[2].job.want.gpus_max, 32);
        assert_eq!(workload.jobs[0].job.want.gpus_max, 64);
    }
}
