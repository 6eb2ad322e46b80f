//! The generator of Gavel (OSDI 2020): its distributions and its streams, so that a seed gives the jobs of its experiments.
//!
//! Facts from `utils.generate_job` and `Scheduler.simulate` of its repository (MIT). Each job is drawn in this order
//! from `random.Random(seed + 2)`: a size (thrown away in the single workload), whether it is long, its duration, and
//! a job type, drawn again until it can run on several GPUs if it has to. Times between arrivals come from
//! `random.Random(seed + 3)`; the first job comes at zero. Steps are duration times the speed on V100s.
//!
//! Not here: priorities and service-level factors, which its Figures 8 to 10 do not use.

use crate::python_random::PythonRandom;
use crate::spec::{Arrival, Spec};
use crate::{TraceJob, Workload, gavel_rates};
use trainyard_diagnostic::InputError;
use trainyard_profile::{Catalog, ModelProfile, Point};
use trainyard_types::{Job, JobId, ModelId, Time, Work};

/// Whether jobs ask for more than one GPU.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sizes {
    One,
    Several,
}

/// Architectures with their batch sizes, and whether they can run on several GPUs, in the order of its table of jobs.
const JOB_TYPES: [(&str, &[u32], bool); 7] = [
    ("gavel-resnet18", &[16, 32, 64, 128, 256], true),
    ("gavel-resnet50", &[16, 32, 64, 128], true),
    ("gavel-transformer", &[16, 32, 64, 128, 256], true),
    ("gavel-lm", &[5, 10, 20, 40, 80], true),
    ("gavel-recommendation", &[512, 1024, 2048, 4096, 8192], false),
    ("gavel-a3c", &[], false),
    ("gavel-cyclegan", &[], false),
];

const REFERENCE: &str = "v100";

/// Draws the jobs of a spec; of its settings only the number of jobs, the seed and the arrivals hold.
pub(crate) fn generate(
    spec: &Spec,
    catalog: &Catalog,
    sizes: Sizes,
) -> Result<Workload, InputError> {
    spec.validate_like()?;
    let mut catalog = catalog.clone();
    gavel_rates::complete(&mut catalog);
    let types = job_types(&catalog)?;
    let mut jobs = PythonRandom::new(spec.seed.wrapping_add(2));
    let mut gaps = PythonRandom::new(spec.seed.wrapping_add(3));
    let name = match sizes {
        Sizes::One => format!("gavel-single-{}", spec.seed),
        Sizes::Several => format!("gavel-multiple-{}", spec.seed),
    };
    let mut workload = Workload { catalog, ..Workload::empty(&name) };
    workload.jobs.reserve_exact(spec.jobs as usize);
    let mut arrival = 0.0;
    for index in 0..spec.jobs {
        let (kind, gpus, seconds) = draw(&mut jobs, &types, sizes);
        let mut job = Job::simple(JobId(index), Time::from_secs_f64(arrival), gpus);
        job.model = types[kind].model;
        workload.jobs.push(TraceJob::new(job, Work(seconds * types[kind].speed(gpus))));
        if let Arrival::PerHour(rate) = spec.arrival {
            let mean = 3600.0 / rate;
            arrival += -libm::log(1.0 - gaps.uniform()) / (1.0 / mean);
        }
    }
    Ok(workload)
}

/// One job: the index of its type, its GPUs and its duration in seconds on V100s.
fn draw(random: &mut PythonRandom, types: &[JobType], sizes: Sizes) -> (usize, u32, f64) {
    let drawn = match random.uniform() {
        below if below < 0.7 => 1,
        // Bounds belong to the smaller size.
        below if below <= 0.8 => 2,
        below if below <= 0.95 => 4,
        _ => 8,
    };
    let is_long = random.uniform() >= 0.8;
    let exponent = if is_long { random.between(3.0, 4.0) } else { random.between(1.5, 3.0) };
    let seconds = 60.0 * libm::pow(10.0, exponent);
    let gpus = if sizes == Sizes::One { 1 } else { drawn };
    loop {
        let kind = random.index(types.len() as u32) as usize;
        if gpus == 1 || types[kind].is_distributed {
            return (kind, gpus, seconds);
        }
    }
}

/// A type of job: a model with its speeds on V100s.
struct JobType {
    model: ModelId,
    is_distributed: bool,
    /// GPUs and steps per second.
    speeds: Vec<(u32, f64)>,
}

impl JobType {
    fn speed(&self, gpus: u32) -> f64 {
        let speed = self.speeds.iter().find(|(size, _)| *size == gpus);
        speed.expect("every size was looked up").1
    }
}

fn job_types(catalog: &Catalog) -> Result<Vec<JobType>, InputError> {
    let mut types = Vec::new();
    for (architecture, batches, is_distributed) in JOB_TYPES {
        let names = match batches {
            [] => vec![architecture.to_owned()],
            _ => batches.iter().map(|batch| format!("{architecture}-b{batch}")).collect(),
        };
        for name in names {
            let model = catalog.lookup(0, "models", &name)?;
            let sizes: &[u32] = if is_distributed { &[1, 2, 4, 8] } else { &[1] };
            let speeds = sizes.iter();
            let speeds =
                speeds.map(|gpus| Ok((*gpus, reference_speed(catalog.get(model), *gpus)?)));
            let speeds = speeds.collect::<Result<_, InputError>>()?;
            types.push(JobType { model, is_distributed, speeds });
        }
    }
    Ok(types)
}

fn reference_speed(model: &ModelProfile, gpus: u32) -> Result<f64, InputError> {
    let here = |point: &&Point| point.kind == REFERENCE && point.gpus == gpus && point.nodes == 1;
    let point = model.points.iter().find(here).filter(|point| point.rate > 0.0);
    point.map(|point| point.rate).ok_or_else(|| {
        let expected = format!("a speed on {gpus} {REFERENCE} on one node");
        InputError::wrong(0, "models", &model.name, expected)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Like;

    fn drawn(like: Like, seed: u64, jobs: u32) -> Workload {
        let spec = Spec { like, seed, jobs, arrival: Arrival::PerHour(5.6), ..Spec::default() };
        let cluster = trainyard_types::Cluster::uniform(1, 1, "k80");
        crate::generate(&spec, &Catalog::builtin(), &cluster).unwrap()
    }

    /// Submission, model, GPUs and duration on V100s of a job.
    fn row(workload: &Workload, index: usize) -> (f64, &str, u32, f64) {
        let TraceJob { job, work, .. } = &workload.jobs[index];
        let model = workload.catalog.get(job.model);
        let seconds = work.0 / reference_speed(model, job.want.gpus).unwrap();
        (job.submitted.as_secs_f64(), &model.name, job.want.gpus, seconds)
    }

    fn assert_row(found: (f64, &str, u32, f64), expected: (f64, &str, u32, f64)) {
        assert_eq!((found.1, found.2), (expected.1, expected.2));
        assert!((found.0 - expected.0).abs() < 1e-6, "{found:?} {expected:?}");
        assert!((found.3 / expected.3 - 1.0).abs() < 1e-12, "{found:?} {expected:?}");
    }

    /// Expected rows come from the laws written down in CPython with its own `random`.
    #[test]
    fn a_seed_gives_the_jobs_of_the_published_experiments() {
        let many = drawn(Like::GavelMultiple, 0, 5000);
        assert_row(row(&many, 0), (0.0, "gavel-resnet18-b64", 8, 68344.35010595087));
        assert_row(
            row(&many, 1),
            (174.7043377930725, "gavel-transformer-b16", 1, 31016.60914593223),
        );
        assert_row(
            row(&many, 4999),
            (3180483.72686496, "gavel-resnet18-b16", 1, 25100.75419837262),
        );
        let single = drawn(Like::GavelSingle, 2, 5000);
        assert_row(row(&single, 2), (1497.3555734638012, "gavel-lm-b40", 1, 4083.60299739675));
        assert_row(
            row(&single, 4999),
            (3228601.6776312357, "gavel-resnet18-b16", 1, 544338.5750087067),
        );
    }

    #[test]
    fn sizes_differ_only_where_they_may() {
        let (single, many) =
            (drawn(Like::GavelSingle, 7, 3000), drawn(Like::GavelMultiple, 7, 3000));
        assert!(single.jobs.iter().all(|one| one.job.want.gpus == 1));
        let share = |gpus: u32| {
            let fits = many.jobs.iter().filter(|one| one.job.want.gpus == gpus);
            fits.count() as f64 / 3000.0
        };
        for (gpus, expected) in [(1, 0.7), (2, 0.1), (4, 0.15), (8, 0.05)] {
            assert!((share(gpus) - expected).abs() < 0.03, "{gpus}: {}", share(gpus));
        }
    }

    #[test]
    fn laws_of_our_own_are_refused() {
        let fault = |spec: Spec| {
            let cluster = trainyard_types::Cluster::uniform(1, 1, "v100");
            crate::generate(&spec, &Catalog::builtin(), &cluster).unwrap_err().field
        };
        let like = Like::GavelSingle;
        assert_eq!(fault(Spec { like, ..Spec::default() }), "arrival");
        let arrival = Arrival::AtOnce;
        assert_eq!(fault(Spec { like, arrival, tenants: 3, ..Spec::default() }), "tenants");
        assert_eq!(fault(Spec { like, arrival, daily: 0.5, ..Spec::default() }), "daily");
    }
}
