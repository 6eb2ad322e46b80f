//! What is known of a job's goodput, from what was measured of it.

use super::problem::Worth;
use super::types::{Fits, TypeRules};
use std::collections::BTreeMap;
use trainyard_framework::{JobRef, View};
use trainyard_profile::BatchLimits;
use trainyard_profile::goodput::{
    Efficiency, Exchange, FitError, Fitted, Guard, IterationTime, Menu, NoBatch, Size,
};
use trainyard_types::{GpuType, Measured};

/// How batches are chosen and fits are trusted.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Care {
    /// The batch growth limit, but for the present batch.
    pub guard: Guard,
    /// By how many of its own relative errors the time of an iteration is taken to be longer.
    pub uncertainty: f64,
    /// How many times its first batch a job trains with while it was seen with one number of samples on a GPU only.
    pub probe: f64,
}

/// Which sizes of a job are looked at, and beside what.
#[derive(Copy, Clone, Debug)]
pub struct Reach {
    /// The most GPUs.
    pub most: u32,
    /// The most of them on a node.
    pub per_node: u32,
    /// GPUs of a fair share.
    pub fair: u32,
    /// What speed-ups are multiplied with.
    pub scale: f64,
}

/// What is remembered of a job: a cache, made anew when what it was made of changes.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    seen: u64,
    fits: Fits,
    /// The guard's largest batch for which menus were made.
    most: f64,
    menus: BTreeMap<(GpuType, Exchange, u32), Result<Menu, NoBatch>>,
}

impl Memory {
    /// Fits anew if something new was measured.
    pub fn refresh(&mut self, measured: &Measured, types: &dyn TypeRules) {
        let seen = fingerprint(measured);
        if seen == self.seen && !self.fits.is_empty() {
            return;
        }
        self.seen = seen;
        self.menus.clear();
        self.fits = types.fits(measured);
    }

    /// The fit of a type, else that of the first type the job ran on: all types are alike until seen.
    fn fitted(&self, kind: GpuType) -> Result<Fitted, FitError> {
        let own = self.fits.iter().find(|(other, _)| *other == kind);
        own.or(self.fits.first()).map_or(Err(FitError::TooFew), |(_, fitted)| *fitted)
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

/// A fit whose times are longer by so many of its relative errors; below 0 shorter.
struct Doubted<'a> {
    fitted: &'a Fitted,
    errors: f64,
}

impl IterationTime for Doubted<'_> {
    fn seconds(&self, size: Size, local: u32, accumulated: u32) -> f64 {
        let factor = 1.0 + self.errors.abs() * self.fitted.relative_error(size);
        let seconds = self.fitted.seconds(size, local, accumulated);
        if self.errors < 0.0 { seconds / factor } else { seconds * factor }
    }
}

/// What is known of one job on one type of GPU.
pub struct Goodput<'m> {
    memory: &'m mut Memory,
    kind: GpuType,
    fitted: Result<Fitted, FitError>,
    batch: Batch,
    efficiency: Efficiency,
    care: Care,
}

/// What batch a job trains with.
#[derive(Copy, Clone, Debug)]
enum Batch {
    /// Whatever is best within limits.
    Free(BatchLimits),
    /// This one, from its request or else from its state.
    Fixed(u32),
    /// Not known.
    Unknown,
}

impl<'m> Goodput<'m> {
    /// What is known of a job on a type of GPU.
    pub fn new(
        view: &View<'_>,
        job: JobRef<'_>,
        kind: GpuType,
        memory: &'m mut Memory,
        mut care: Care,
    ) -> Goodput<'m> {
        let limits = view.batch_limits(job, kind);
        let fixed = job.spec.want.batch.or(job.state.batch);
        let batch = match (limits, fixed) {
            (Some(limits), _) => Batch::Free(limits),
            (None, Some(batch)) => Batch::Fixed(batch),
            (None, None) => Batch::Unknown,
        };
        let first = limits.map_or(1, |limits| limits.first);
        care.guard.present = job.state.batch;
        let most = care.guard.most(first);
        if most != memory.most {
            memory.most = most;
            memory.menus.clear();
        }
        let noise = job.state.measured.as_ref().and_then(|measured| measured.noise);
        let efficiency = Efficiency::of_scale(first, noise);
        Goodput { fitted: memory.fitted(kind), memory, kind, batch, efficiency, care }
    }

    /// The batch to train with on so many GPUs; nothing where the job's own stands.
    ///
    /// A job of which nothing was observed begins with the smallest batch that these GPUs can share.
    pub fn batch(&mut self, size: Size) -> Result<Option<u32>, NoBatch> {
        let Batch::Free(limits) = self.batch else { return Ok(None) };
        if let Ok(fitted) = &self.fitted {
            let efficiency = self.efficiency;
            // Of one number of samples the fit can only guess what more of them would cost.
            let probes = self.care.probe > 1.0 && !fitted.knows_batches();
            let samples = self.care.probe * f64::from(limits.first);
            let menu = self.menu(limits, size)?;
            return Ok(menu.map(|menu| match probes {
                true => menu.at_least(samples).batch,
                false => menu.best(&efficiency).split.batch,
            }));
        }
        let least = limits.first.max(limits.local_least.saturating_mul(size.gpus));
        let split = limits.split(least, size.gpus);
        match least <= limits.most && split.local <= limits.local_most {
            true => Ok(Some(split.batch)),
            false => Err(NoBatch::OverLimit { gpus: size.gpus, least, most: limits.most }),
        }
    }

    /// The batches that are tried on so many GPUs; nothing before there is a fit.
    fn menu(&mut self, limits: BatchLimits, size: Size) -> Result<Option<&Menu>, NoBatch> {
        let Ok(fitted) = &self.fitted else { return Ok(None) };
        let key = (self.kind, size.exchange(), size.gpus);
        let care = self.care;
        let menu = self.memory.menus.entry(key).or_insert_with(|| {
            let speed = Doubted { fitted, errors: care.uncertainty };
            Menu::new(&speed, &limits, care.guard, size)
        });
        menu.as_ref().map(Some).map_err(|verdict| *verdict)
    }

    /// Samples per second on so many GPUs, each counted for what it is worth; nothing before there is a fit.
    /// Zero where no batch will do.
    fn goodput(&mut self, size: Size) -> Option<f64> {
        let fitted = self.fitted.as_ref().ok()?;
        let goodput = match self.batch {
            Batch::Free(limits) => {
                let efficiency = self.efficiency;
                let menu = self.menu(limits, size).ok().flatten();
                menu.map_or(0.0, |menu| menu.best(&efficiency).goodput)
            }
            Batch::Fixed(batch) => {
                let speed = Doubted { fitted, errors: self.care.uncertainty };
                speed.throughput(size, batch.div_ceil(size.gpus).max(1), 0)
            }
            Batch::Unknown => return None,
        };
        Some(if goodput.is_finite() { goodput } else { 0.0 })
    }

    /// Speed-ups over the fair share (SPEEDUP of Pollux, section 4.2: goodput over the goodput of a fair share; before
    /// there is a fit, GPUs over its GPUs).
    ///
    /// The authors take the fair share to be on one node, however large it is; it only weighs jobs against each other.
    pub fn worth(&mut self, reach: Reach) -> Worth {
        let Reach { most, per_node, fair, scale } = reach;
        let fair = match self.batch {
            Batch::Free(limits) => fair.min(limits.most / limits.local_least.max(1)).max(1),
            Batch::Fixed(_) | Batch::Unknown => fair.max(1),
        };
        let base = self.goodput(Size::on_one_node(fair)).filter(|base| *base > 0.0);
        let mut at = |size: Size| match base {
            Some(base) => self.goodput(size).unwrap_or(0.0) / base * scale,
            None if self.batch(size).is_err() => 0.0,
            None => f64::from(size.gpus) / f64::from(fair) * scale,
        };
        let node = (1..=most.min(per_node)).map(|gpus| at(Size::on_one_node(gpus))).collect();
        let across = |gpus| if gpus > 1 { at(Size { nodes: 2, gpus }) } else { 0.0 };
        Worth { node, network: (1..=most).map(across).collect() }
    }
}
