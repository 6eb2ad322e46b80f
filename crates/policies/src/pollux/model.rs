//! What is known of a job's goodput, from what was measured of it.

use super::problem::Worth;
use trainyard_framework::{JobRef, View};
use trainyard_profile::BatchLimits;
use trainyard_profile::goodput::{
    BatchChoice, Efficiency, FitError, Fitted, Guard, IterationTime, NoBatch, Observation, Size,
    best_batch, fit,
};
use trainyard_types::{GpuType, Measured};

/// How batches are chosen and fits are trusted.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Care {
    /// The guard of accuracy, but for the present batch.
    pub guard: Guard,
    /// By how many of its own doubts the time of an iteration is taken to be longer.
    pub uncertainty: f64,
}

/// What is known of one job on one type of GPU.
#[derive(Clone, Debug)]
pub struct Goodput {
    fitted: Result<Fitted, FitError>,
    batch: Batch,
    efficiency: Efficiency,
    guard: Guard,
    uncertainty: f64,
}

/// What batch a job trains with.
#[derive(Copy, Clone, Debug)]
enum Batch {
    /// Whatever is best within limits.
    Free(BatchLimits),
    /// This one, whoever chose it.
    Fixed(u32),
    /// Nobody knows.
    Unknown,
}

/// A fit whose times are longer by its doubts.
struct Doubted<'a>(&'a Fitted, f64);

impl IterationTime for Doubted<'_> {
    fn seconds(&self, size: Size, local: u32, accumulated: u32) -> f64 {
        let factor = 1.0 + self.1.abs() * self.0.doubt(size);
        let seconds = self.0.seconds(size, local, accumulated);
        if self.1 < 0.0 { seconds / factor } else { seconds * factor }
    }
}

/// Fits to all that was measured, by type of GPU, and what they were fitted to.
#[derive(Clone, Debug, Default)]
pub struct Fits {
    seen: u64,
    by_kind: Vec<(GpuType, Result<Fitted, FitError>)>,
}

impl Fits {
    /// The same fits if nothing new was measured, else new ones.
    pub fn refresh(&mut self, measured: &Measured) {
        let seen = fingerprint(measured);
        if seen == self.seen && !self.by_kind.is_empty() {
            return;
        }
        self.seen = seen;
        let mut kinds: Vec<GpuType> = measured.steps.iter().map(|step| step.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let on = |kind: GpuType| {
            let steps = measured.steps.iter().filter(|step| step.kind == kind);
            let all: Vec<Observation> = steps
                .map(|step| Observation {
                    size: Size { nodes: step.nodes, gpus: step.gpus },
                    local: step.local,
                    step: step.step,
                    sync: if step.gpus > 1 { step.sync } else { 0.0 },
                })
                .collect();
            (kind, fit(&all))
        };
        self.by_kind = kinds.into_iter().map(on).collect();
    }

    /// The fit of a type, else that of the first type the job ran on: all types are alike until seen.
    fn of(&self, kind: GpuType) -> Result<Fitted, FitError> {
        let own = self.by_kind.iter().find(|(other, _)| *other == kind);
        own.or(self.by_kind.first()).map_or(Err(FitError::TooFew), |(_, fitted)| *fitted)
    }
}

fn fingerprint(measured: &Measured) -> u64 {
    use std::hash::Hasher;
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write_u32(measured.places);
    for step in &measured.steps {
        hasher.write_u64(step.step.to_bits());
        hasher.write_u64(step.sync.to_bits());
    }
    hasher.finish()
}

impl Goodput {
    /// What is known of a job on a type of GPU.
    pub fn new(
        view: &View<'_>,
        job: JobRef<'_>,
        kind: GpuType,
        fits: &Fits,
        care: Care,
    ) -> Goodput {
        let limits = view.batch_limits(job, kind);
        let fixed = job.spec.want.batch.or(job.state.batch);
        let batch = match (limits, fixed) {
            (Some(limits), _) => Batch::Free(limits),
            (None, Some(batch)) => Batch::Fixed(batch),
            (None, None) => Batch::Unknown,
        };
        let first = limits.map_or(1, |limits| limits.first);
        let noise = job.state.measured.as_ref().and_then(|measured| measured.noise);
        Goodput {
            fitted: fits.of(kind),
            batch,
            efficiency: Efficiency::of_scale(first, noise),
            guard: Guard { present: job.state.batch, ..care.guard },
            uncertainty: care.uncertainty,
        }
    }

    /// The batch to train with on so many GPUs; nothing where the job's own stands.
    ///
    /// A job of which nothing was observed begins with the smallest batch that these GPUs can share.
    pub fn batch(&self, size: Size) -> Result<Option<BatchChoice>, NoBatch> {
        let Batch::Free(limits) = &self.batch else { return Ok(None) };
        if let Ok(fitted) = &self.fitted {
            let speed = Doubted(fitted, self.uncertainty);
            return best_batch(&speed, &self.efficiency, limits, self.guard, size).map(Some);
        }
        // Every time is alike, so the first that is tried is the best.
        let split = limits.split(limits.first.max(limits.local_least * size.gpus), size.gpus);
        let gain = self.efficiency.gain(f64::from(split.batch));
        let least = limits.local_least.saturating_mul(size.gpus);
        match least <= limits.most && split.local <= limits.local_most {
            true => Ok(Some(BatchChoice { split, goodput: 0.0, gain })),
            false => Err(NoBatch::OverLimit { gpus: size.gpus, least, most: limits.most }),
        }
    }

    /// Samples per second on so many GPUs, each counted for what it is worth; nothing before there is a fit.
    /// Zero where no batch will do.
    fn goodput(&self, size: Size) -> Option<f64> {
        let fitted = self.fitted.as_ref().ok()?;
        let speed = Doubted(fitted, self.uncertainty);
        let goodput = match &self.batch {
            Batch::Free(limits) => {
                let best = best_batch(&speed, &self.efficiency, limits, self.guard, size);
                best.map_or(0.0, |choice| choice.goodput)
            }
            Batch::Fixed(batch) => speed.throughput(size, batch.div_ceil(size.gpus).max(1), 0),
            Batch::Unknown => return None,
        };
        Some(if goodput.is_finite() { goodput } else { 0.0 })
    }

    /// Speed-ups over the fair share of `fair` GPUs, times `scale`, up to `most` GPUs of which a node has `per_node`.
    ///
    /// The authors take the fair share to be on one node, however large it is; it only weighs jobs against each other.
    pub fn worth(&self, most: u32, per_node: u32, fair: u32, scale: f64) -> Worth {
        let fair = match &self.batch {
            Batch::Free(limits) => fair.min(limits.most / limits.local_least.max(1)).max(1),
            Batch::Fixed(_) | Batch::Unknown => fair.max(1),
        };
        let base = self.goodput(Size::on_one_node(fair)).filter(|base| *base > 0.0);
        let at = |size: Size| {
            let allowed = self.batch(size).is_ok();
            match base {
                _ if !allowed => 0.0,
                Some(base) => self.goodput(size).unwrap_or(0.0) / base * scale,
                None => f64::from(size.gpus) / f64::from(fair) * scale,
            }
        };
        Worth {
            node: (1..=most.min(per_node)).map(|gpus| at(Size::on_one_node(gpus))).collect(),
            network: (1..=most)
                .map(|gpus| if gpus > 1 { at(Size { nodes: 2, gpus }) } else { 0.0 })
                .collect(),
        }
    }
}
