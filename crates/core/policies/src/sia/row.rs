//! The goodput of each configuration of one job, with the batch that gives it.

use super::configurations::{ClusterShape, ConfigurationKind};
use super::models::Models;
use std::sync::Arc;
use trainyard_framework::{JobRef, View};
use trainyard_profile::BatchLimits;
use trainyard_profile::goodput::{
    BatchChoice, Efficiency, Guard, IterationTime, NoBatch, Noise, Size, best_batch,
};
use trainyard_types::{Config, Reason};

/// One configuration and what it gives.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Yield {
    pub sort: ConfigurationKind,
    /// In units of the job's own, the same for all configurations.
    pub goodput: f64,
    /// The goodput to the power of the program, once that is known.
    pub power: f64,
    /// The batch over all GPUs, where it may be chosen.
    pub batch: Option<u32>,
}

impl Yield {
    fn new(sort: ConfigurationKind, goodput: f64, batch: Option<u32>) -> Yield {
        Yield { sort, goodput, power: f64::NAN, batch }
    }
}

/// All configurations of a job that give anything.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidates {
    pub options: Vec<Yield>,
    pub verdict: Eligibility,
    /// What it was made from; nothing where that cannot be told.
    pub seen: Option<CandidateInputs>,
    /// The worst goodput, and the power of the program of what the job's unit is to it, once that is known.
    pub unit_power: (f64, f64),
}

/// Whether a job can run at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eligibility {
    /// It can.
    Sound,
    /// It cannot, for this reason.
    Nowhere(Reason),
}

/// What a row depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateInputs {
    places: u32,
    noise: Option<u64>,
    beliefs: u64,
    ground: Arc<ClusterShape>,
}

impl Candidates {
    fn new(options: Vec<Yield>, reason: Reason, seen: Option<CandidateInputs>) -> Candidates {
        let verdict =
            if options.is_empty() { Eligibility::Nowhere(reason) } else { Eligibility::Sound };
        Candidates { options, verdict, seen, unit_power: (f64::NAN, f64::NAN) }
    }

    /// Takes all goodputs to a power: that of a product is the product of powers, so that it is done once for each row.
    pub fn raise(&mut self, p: f64, unit: f64) {
        for option in &mut self.options {
            option.power = libm::pow(option.goodput, p);
        }
        let least = least_goodput(&self.options);
        self.unit_power = (least, libm::pow(unit / least, p));
    }

    /// The most GPUs that the job may have, twice those on which it was seen: what more would give is not known.
    ///
    /// Jobs whose speeds are known, and units, are not bound by it.
    pub fn double(&self, job: JobRef<'_>) -> u32 {
        if self.options.iter().all(|option| option.batch.is_none()) {
            return u32::MAX;
        }
        let steps = job.state.measured.iter().flat_map(|measured| &measured.steps);
        let most = steps.map(|step| step.gpus).max().unwrap_or(0);
        (2 * most).max(job.spec.want.gpus_min).max(1)
    }
}

/// The goodput of the worst of some configurations.
pub fn least_goodput(options: &[Yield]) -> f64 {
    options.iter().map(|option| option.goodput).fold(f64::INFINITY, f64::min)
}

/// Where a row comes from.
#[derive(Copy, Clone)]
pub struct Source<'a, 'b> {
    pub job: JobRef<'a>,
    pub view: &'a View<'b>,
    pub ground: &'a Arc<ClusterShape>,
    /// The most configurations of each type.
    pub most: u32,
}

impl Source<'_, '_> {
    /// What a row would be made from now.
    pub fn seen(&self) -> Option<CandidateInputs> {
        let measured = self.job.state.measured.as_ref();
        Some(CandidateInputs {
            places: measured.map_or(0, |measured| measured.places),
            noise: measured.and_then(|measured| measured.noise).map(f64::to_bits),
            beliefs: self.view.beliefs_version()?,
            ground: Arc::clone(self.ground),
        })
    }

    /// Whether the job's batch may be chosen, so that its goodput follows from models.
    pub fn adapts(&self) -> bool {
        let kinds = self.ground.kinds.iter();
        kinds.into_iter().any(|of| self.view.batch_limits(self.job, of.kind).is_some())
    }

    fn sorts(&self) -> Vec<ConfigurationKind> {
        self.ground.sorts(&self.job.spec.want, self.most)
    }

    /// Why a job without any configuration has none.
    fn too_large(&self) -> Reason {
        let want = &self.job.spec.want;
        Reason::NeverFits { need: want.gpus_min, most: self.ground.most(want) }
    }

    /// By the known speeds of a job whose batch is fixed.
    pub fn by_rates(&self) -> Candidates {
        let sorts = self.sorts();
        let reason = if sorts.is_empty() { self.too_large() } else { Reason::NoSpeed };
        let options = sorts.into_iter().filter_map(|sort| {
            let of = self.ground.of(sort.kind)?;
            let mut config = Config::packed(sort.kind, sort.gpus, of.per_node);
            config.permille = self.job.spec.want.permille;
            let rate = self.view.rate(self.job, &config)?.0;
            let usable = rate.is_finite() && rate > 0.0;
            usable.then_some(Yield::new(sort, rate, None))
        });
        Candidates::new(options.collect(), reason, self.seen())
    }

    /// By what trials tell of every configuration.
    pub fn by_trials(&self) -> Candidates {
        self.row(|sort| {
            let of = self.ground.of(sort.kind)?;
            Some(Tried { source: self, sort, per_node: of.per_node })
        })
    }

    /// By models; a type of which nothing is known gets a first try on as little as possible.
    pub fn by_models(&self, models: &Models) -> Candidates {
        let mut row = self.row(|sort| models.on(sort.kind).copied());
        let least = row.options.iter().map(|option| option.goodput).reduce(f64::min);
        for sort in self.sorts() {
            let limits = self.view.batch_limits(self.job, sort.kind);
            let unknown = models.on(sort.kind).is_none();
            if let Some(limits) = limits.filter(|_| unknown)
                && sort.gpus == self.job.spec.want.gpus_min
            {
                let batch = limits.first.max(limits.local_least.saturating_mul(sort.gpus));
                if batch <= limits.most && limits.local_least <= limits.local_most {
                    let goodput = least.unwrap_or(1.0);
                    row.options.push(Yield::new(sort, goodput, Some(batch)));
                    row.verdict = Eligibility::Sound;
                } else if row.options.is_empty() {
                    let reason = Reason::NoBatch { least: batch, most: limits.most };
                    row.verdict = Eligibility::Nowhere(reason);
                }
            }
        }
        debug_assert!(!models.is_empty() || least.is_none());
        row
    }

    /// The best batch of every configuration of which there is a model.
    fn row<T: IterationTime>(&self, model: impl Fn(ConfigurationKind) -> Option<T>) -> Candidates {
        let sorts = self.sorts();
        let mut reason = if sorts.is_empty() { self.too_large() } else { Reason::NoSpeed };
        let mut options = Vec::with_capacity(sorts.len());
        for sort in sorts {
            let Some(limits) = self.view.batch_limits(self.job, sort.kind) else { continue };
            let Some(model) = model(sort) else { continue };
            match self.best(&model, sort, &limits) {
                Ok(choice) if choice.goodput > 0.0 => {
                    options.push(Yield::new(sort, choice.goodput, Some(choice.split.batch)));
                }
                Ok(_) => {}
                Err(
                    NoBatch::OverLimit { least, most, .. }
                    | NoBatch::Guarded { least, most, .. }
                    | NoBatch::NoCut { least, most, .. },
                ) => {
                    if reason == Reason::NoSpeed {
                        reason = Reason::NoBatch { least, most };
                    }
                }
            }
        }
        Candidates::new(options, reason, self.seen())
    }

    fn best<T: IterationTime>(
        &self,
        model: &T,
        sort: ConfigurationKind,
        limits: &BatchLimits,
    ) -> Result<BatchChoice, NoBatch> {
        let noise = self.job.state.measured.as_ref().and_then(|measured| measured.noise);
        let noise =
            noise.map(|scale| Noise { sqr: 1.0, var: scale / f64::from(limits.first.max(1)) });
        let efficiency = Efficiency::new(limits.first, noise);
        let size = Size { nodes: sort.nodes, gpus: sort.gpus };
        best_batch(model, &efficiency, limits, Guard::NONE, size)
    }
}

/// What a trial tells of one configuration.
struct Tried<'a, 'b, 'c> {
    source: &'a Source<'b, 'c>,
    sort: ConfigurationKind,
    per_node: u32,
}

impl IterationTime for Tried<'_, '_, '_> {
    fn seconds(&self, _size: Size, local: u32, accumulated: u32) -> f64 {
        let config = Config::packed(self.sort.kind, self.sort.gpus, self.per_node);
        let time = self.source.view.trial(self.source.job, &config, local);
        time.map_or(f64::INFINITY, |time| {
            time.step + f64::from(accumulated) * (time.step - time.sync)
        })
    }
}
