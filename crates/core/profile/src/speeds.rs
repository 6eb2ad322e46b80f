//! Speeds and costs bound to one cluster: what every placement of a run is asked for.
//!
//! Type names become ids once, in [`Speeds::new`]; after that a question is an index into a dense table.
//! A model with a measured training answers from that: by batch size, and by what is done ([`Speeds::pace`]).
//! A model that was described answers from its best division over the GPUs ([`crate::planned`]).

mod on_links;
mod with_plans;

use crate::batches::{Batches, rate_at};
use crate::classes::Classes;
use crate::colocation::{Colocation, ColocationModel, SharedGpu, kept_in_group};
use crate::cost::{ChangeCost, CostModel, SuspendCost};
use crate::curve::{Cell, Curve, power_of, source_kind};
use crate::features::{Feature, Features};
use crate::host::{self, HostTable};
use crate::interference::{GraphUsage, PairSource, UsageSource};
use crate::kinds;
use crate::model::SizeCost;
use crate::phases::{self, Monitored, Phase};
use crate::planned::Plans;
use crate::spill::{self, MemoryPoint};
use crate::traffic::ModelTraffic;
use crate::training::{Site, StepTime};
use crate::{BatchLimits, Catalog, Iteration, ModelProfile, Pace, StageTimes, Training};
pub(crate) use on_links::LinkClasses;
use on_links::OnLinks;
use smallvec::SmallVec;
use std::sync::Arc;
use trainyard_types::{Cluster, Config, GpuType, ModelId, Occupant, Rate, Span, Tier, Work};

/// Sizes up to this are tabulated; beyond it the last slope goes on.
const TABLE_MAX: u32 = 512;

/// Speeds and costs of every model of a catalog on one cluster.
#[derive(Clone, Debug)]
pub struct Speeds {
    kinds: usize,
    /// By model, then by type; `None` where a model has no point.
    bound: Vec<Option<Bound>>,
    moves: Vec<Moves>,
    /// By model; `None` for one without a measured training.
    trained: Vec<Option<Trained>>,
    /// By model; `None` for one that was not described. Copies share what was found.
    planned: Vec<Option<Arc<Plans>>>,
    /// How many halvings of bandwidth lie between a rack and the core.
    core_halvings: f64,
    colocation: Arc<dyn Colocation>,
    /// Where links are declared one by one.
    links: Option<OnLinks>,
    usage: Arc<GraphUsage>,
    classes: Arc<Classes>,
    /// By type: bytes in a second between a GPU and its host.
    to_host: Vec<f64>,
    /// Whether speeds are as if all GPUs were as close as they were when they were measured.
    close: bool,
    costs: CostModel,
}

/// One model on one type.
#[derive(Clone, Debug)]
struct Bound {
    cells: Vec<Cell>,
    tail: f64,
    /// GPUs, nodes, rate of measured points that are not the packed ones.
    spread_points: Vec<(u32, u32, f64)>,
}

/// A measured training on the types of a cluster.
#[derive(Clone, Debug)]
struct Trained {
    training: Arc<Training>,
    /// By type of the cluster: the measured type that stands for it, and the factor of its times.
    sources: Vec<(usize, f64)>,
}

/// What does not depend on the type.
#[derive(Clone, Debug)]
struct Moves {
    spread: f64,
    memory_mib: u32,
    /// Its speed with less memory than that, by the part of it; ascending.
    spill: Vec<MemoryPoint>,
    skew: Option<f64>,
    save: SizeCost,
    start: SizeCost,
    in_place: bool,
    by_speed: bool,
    /// By number of GPUs, ascending.
    stages: Vec<StageTimes>,
    /// Types and numbers of GPUs on which it does not fit.
    unfit: Vec<(GpuType, u32)>,
    host: Vec<HostTable>,
    batches: Option<Box<BoundBatches>>,
    traffic: Option<ModelTraffic>,
    features: Features,
    cycle: Option<(Vec<Phase>, f64)>,
}

/// The same training at several batches.
#[derive(Clone, Debug)]
struct BoundBatches {
    stated: Batches,
    /// By batch, ascending, with the model itself among them.
    models: Vec<(u32, ModelId)>,
}

impl Speeds {
    /// Binds a catalog to a cluster; costs come from the profiles.
    pub fn new(catalog: &Catalog, cluster: &Cluster) -> Speeds {
        let sizes = cluster.gpus().clamp(1, TABLE_MAX);
        let bind = |model: &ModelProfile, kind: &str| {
            let curve = Curve::new(model, kind)?;
            let cells = (1..=sizes).map(|gpus| curve.cell(gpus)).collect();
            Some(Bound { cells, tail: curve.tail(), spread_points: curve.spread_points })
        };
        let links = cluster.links;
        let ratio = links.rack_mbps.max(1) as f64 / links.core_mbps.max(1) as f64;
        Speeds {
            kinds: cluster.kinds.len(),
            bound: catalog
                .iter()
                .flat_map(|(_, model)| {
                    cluster.kinds.iter().map(move |kind| bind(model, &kind.name))
                })
                .collect(),
            trained: catalog.iter().map(|(_, model)| Trained::new(model, cluster)).collect(),
            planned: catalog.iter().map(|(_, model)| Plans::new(model, cluster)).collect(),
            moves: catalog
                .iter()
                .map(|(id, model)| Moves::new((id, model), catalog, cluster))
                .collect(),
            core_halvings: libm::log2(ratio).max(0.0),
            colocation: ColocationModel::default().bind(catalog, cluster),
            links: OnLinks::new(cluster),
            usage: Arc::new(GraphUsage::new(catalog)),
            classes: Arc::new(Classes::new(catalog.len())),
            to_host: cluster
                .kinds
                .iter()
                .map(|kind| kinds::host_bytes_per_second(&kind.name))
                .collect(),
            close: false,
            costs: CostModel::default(),
        }
    }

    /// The same where every model cuts its batch by speed over types.
    pub fn splitting_by_speed(mut self) -> Speeds {
        for moves in &mut self.moves {
            moves.by_speed = true;
        }
        self
    }

    /// The same with other costs.
    pub fn with_costs(mut self, costs: CostModel) -> Speeds {
        self.costs = costs;
        self
    }

    /// The same with another model of what jobs on one GPU leave each other.
    pub fn with_colocation(mut self, colocation: Arc<dyn Colocation>) -> Speeds {
        self.colocation = colocation;
        self
    }

    /// The same, as if all GPUs of a job were always as close as they were when they were measured.
    pub fn without_distance(mut self) -> Speeds {
        (self.close, self.links) = (true, None);
        self
    }

    /// Steps per second; `None` without a GPU, or for a model that has no speed.
    ///
    /// Of a measured training it is the mean over all its epochs, at the batch of the config or at the best one.
    /// A job on several types goes at the pace of the slowest, as if all its GPUs were of that type; one that cuts its
    /// batch by speed goes at the mean of those paces over its GPUs, for then all of them end a step at once.
    /// Racks apart, it loses its `spread` once for each halving of bandwidth from rack to core.
    /// Another batch than the profile's own, and more or fewer host CPUs and memory than usual, change it as the
    /// profile says; a profile that says nothing about them is not changed by them.
    /// A share or its limit caps its speed, others on its GPUs slow it as the co-location model says, on the GPU where
    /// they slow it most; the lower of both holds.
    /// With less GPU memory than it needs it is slower by what lies in the host's memory.
    /// Nothing is the answer where the model was tried and does not fit.
    /// Where links are declared and the traffic of the model is known, its speed is that on links which no other job
    /// uses, as far apart as the config says; nodes and racks then count by their links alone.
    pub fn rate(&self, model: ModelId, config: &Config) -> Option<Rate> {
        self.rate_by(PairSource::Measured, model, config)
    }

    /// The same, where what others on its GPUs leave it is predicted by a source instead of measured.
    pub fn rate_by(&self, source: PairSource, model: ModelId, config: &Config) -> Option<Rate> {
        let rate = self.rate_off_links(source, model, config)?;
        match self.is_on_links(model) {
            true => Some(Rate(rate.0 * self.kept_when_idle(model, config, rate))),
            false => Some(rate),
        }
    }

    /// The same as it was measured, whatever the links.
    fn measured_rate(&self, model: ModelId, config: &Config) -> Option<Rate> {
        self.rate_off_links(PairSource::Measured, model, config)
    }

    fn rate_off_links(&self, source: PairSource, model: ModelId, config: &Config) -> Option<Rate> {
        if self.fits_nowhere_in(model, config) {
            return None;
        }
        let unfit = &self.moves.get(model.index())?.unfit;
        let fits = |kind: &GpuType| !unfit.contains(&(*kind, config.gpus));
        let all_fit = config.kinds.iter().all(|(kind, _)| fits(kind));
        all_fit.then(|| self.forced_by(source, model, config))?
    }

    /// Steps per second, also of a model that does not fit: a job that is put there all the same gets a speed between
    /// those of its other sizes.
    fn forced(&self, model: ModelId, config: &Config) -> Option<Rate> {
        self.forced_by(PairSource::Measured, model, config)
    }

    fn forced_by(&self, source: PairSource, model: ModelId, config: &Config) -> Option<Rate> {
        let moves = self.moves.get(model.index())?;
        if source == PairSource::Classified {
            let on_gpus = self.classes.rate(model, config, self)?;
            let kept = self.part(source, model, config) * self.in_memory(model, config, on_gpus);
            return Some(Rate(on_gpus * kept));
        }
        let on_gpus = match (config.batch, &moves.batches) {
            (Some(batch), Some(batches)) => self.at_batch(batches, batch, config)?,
            (None, _) | (_, None) => self.on_gpus(model, config)?,
        };
        let host = host::part(&moves.host, config.gpus, config.host);
        let kept = self.part(source, model, config) * self.in_memory(model, config, on_gpus);
        Some(Rate(on_gpus * host * kept))
    }

    /// The part of its speed that a job keeps with the GPU memory that it may take at most, where it needs more: by its
    /// profile, or by the time that it takes to move the rest to the host and back.
    fn in_memory(&self, model: ModelId, config: &Config, rate: f64) -> f64 {
        let Some((has_mib, moves)) = config.memory_mib_max.zip(self.moves.get(model.index()))
        else {
            return 1.0;
        };
        let need_mib = if config.memory_mib > 0 { config.memory_mib } else { moves.memory_mib };
        let slowest = config.kinds.iter().filter_map(|(kind, _)| self.to_host.get(kind.index()));
        let bytes_per_second = slowest.copied().fold(f64::INFINITY, f64::min);
        spill::kept(&moves.spill, spill::Short { need_mib, has_mib, bytes_per_second }, rate)
    }

    /// How many types the cluster has.
    pub fn kinds(&self) -> usize {
        self.kinds
    }

    /// Whether another batch changes the speed of a model.
    pub fn knows_batches(&self, model: ModelId) -> bool {
        self.moves.get(model.index()).is_some_and(|moves| moves.batches.is_some())
    }

    /// The batches at which a model is known, if several are.
    pub fn batches(&self, model: ModelId) -> Option<&Batches> {
        self.moves.get(model.index())?.batches.as_ref().map(|batches| &batches.stated)
    }

    /// How the speed of a model on a number of GPUs depends on host CPUs and memory, if that is known.
    pub fn host_table(&self, model: ModelId, gpus: u32) -> Option<&HostTable> {
        host::table(&self.moves.get(model.index())?.host, gpus)
    }

    /// Own steps per second at another batch.
    fn at_batch(&self, batches: &BoundBatches, batch: u32, config: &Config) -> Option<f64> {
        let rates = batches.models.iter().filter_map(|(batch, model)| {
            Some((*batch, self.on_gpus(*model, config)? * batches.stated.worth(*batch)))
        });
        rate_at(&rates.collect::<SmallVec<[(u32, f64); 8]>>(), batch)
    }

    /// Steps per second by type, number and distance of the GPUs alone.
    fn on_gpus(&self, model: ModelId, config: &Config) -> Option<f64> {
        if config.gpus == 0 {
            return None;
        }
        if let Some(trained) = self.trained(model) {
            let rate = trained.joined(config, self.splits_by_speed(model), |training, site| {
                Some(Pace { rate: training.mean_rate(site, config.batch)?, until: None })
            })?;
            return Some(rate.rate.0 * self.across(model, config)?);
        }
        if let Some(plans) = self.planned(model) {
            return plans.rate_or_swapped(config);
        }
        let moves = self.moves.get(model.index())?;
        let nodes = if self.close || self.is_on_links(model) { 1 } else { config.nodes };
        let mut joined: Option<f64> = None;
        for (kind, count) in &config.kinds {
            let bound = self.bound.get(model.index() * self.kinds + kind.index())?.as_ref()?;
            let alone = bound.rate(config.gpus, nodes, moves.spread);
            joined = Some(match (joined, config.kinds.len() > 1 && moves.by_speed) {
                (before, true) => before.unwrap_or(0.0) + part_of(*count, config) * alone,
                (before, false) => before.unwrap_or(f64::INFINITY).min(alone),
            });
        }
        Some(joined? * self.across(model, config)?)
    }

    /// Steps per second once so much is done, and where that changes; at the same rate throughout for a model
    /// without a measured training. Where its speed follows links, it is as measured: [`Speeds::kept_on_links`] says
    /// what is left of it.
    pub fn pace(&self, model: ModelId, config: &Config, done: Work) -> Option<Pace> {
        let Some(trained) = self.trained(model).filter(|_| config.gpus > 0) else {
            return self.forced(model, config).map(|rate| Pace { rate, until: None });
        };
        let pace = trained.joined(config, self.splits_by_speed(model), |training, site| {
            training.pace(site, config.batch, done)
        })?;
        let moves = self.moves.get(model.index())?;
        let host = host::part(&moves.host, config.gpus, config.host);
        let kept =
            self.across(model, config)? * host * self.part(PairSource::Measured, model, config);
        let kept = kept * self.in_memory(model, config, pace.rate.0);
        Some(Pace { rate: Rate(pace.rate.0 * kept), ..pace })
    }

    /// What a job would tell about its iterations once so much is done; nothing without a measured training.
    ///
    /// On several types it waits for the slowest, and that one is told of.
    pub fn iteration(&self, model: ModelId, config: &Config, done: Work) -> Option<Iteration> {
        let trained = self.trained(model)?;
        let mut slowest: Option<Iteration> = None;
        for (kind, _) in &config.kinds {
            let (kind, factor) = *trained.sources.get(kind.index())?;
            let site = Site { kind, factor, shape: &config.shape };
            let here = trained.training.iteration_at(site, config.batch, done)?;
            if slowest.is_none_or(|other| here.seconds > other.seconds) {
                slowest = Some(here);
            }
        }
        slowest
    }

    /// The time of one pass with so many samples on each GPU; nothing without a measured training or on several types.
    pub fn pass(&self, model: ModelId, config: &Config, local: u32) -> Option<StepTime> {
        let trained = self.trained(model)?;
        let [(kind, _)] = config.kinds[..] else { return None };
        let (kind, factor) = *trained.sources.get(kind.index())?;
        let time = trained.training.times.at(kind, &config.shape, local)?;
        let factor = factor * trained.training.slowdown;
        Some(StepTime { step: time.step * factor, sync: time.sync * factor })
    }

    /// Seconds of an iteration at the batch of a config with at least so many accumulated passes; nothing without a
    /// batch or a measured training.
    pub fn iteration_seconds(
        &self,
        model: ModelId,
        config: &Config,
        accumulated_least: u32,
    ) -> Option<f64> {
        let (trained, batch) = (self.trained(model)?, config.batch?);
        let mut slowest: f64 = 0.0;
        for (kind, _) in &config.kinds {
            let (kind, factor) = *trained.sources.get(kind.index())?;
            let limits = trained.training.limits.get(kind)?;
            let split = limits.split_into(batch, config.gpus, accumulated_least);
            let site = Site { kind, factor, shape: &config.shape };
            slowest = slowest.max(trained.training.iteration(site, split)?);
        }
        (slowest > 0.0).then_some(slowest)
    }

    /// Iterations at a batch after the epoch in which so much is done; nothing without a measured training.
    pub fn iterations_ahead(&self, model: ModelId, batch: u32, done: Work) -> Option<f64> {
        Some(self.trained(model)?.training.epochs.iterations_ahead(batch, done.0))
    }

    /// The limits of a model's batch on a type; nothing without a measured training.
    pub fn batch_limits(&self, model: ModelId, kind: GpuType) -> Option<BatchLimits> {
        let trained = self.trained(model)?;
        let (source, _) = trained.sources.get(kind.index())?;
        trained.training.limits.get(*source).copied()
    }

    /// Whether the speed of a model depends on its batch size.
    pub fn follows_batch(&self, model: ModelId) -> bool {
        self.trained(model).is_some()
    }

    /// Whether a model cuts its batch by speed over types.
    pub fn splits_by_speed(&self, model: ModelId) -> bool {
        self.moves.get(model.index()).is_some_and(|moves| moves.by_speed)
    }

    fn trained(&self, model: ModelId) -> Option<&Trained> {
        self.trained.get(model.index()).and_then(Option::as_ref)
    }

    /// The part of its speed a job keeps across racks.
    fn across(&self, model: ModelId, config: &Config) -> Option<f64> {
        let moves = self.moves.get(model.index())?;
        let mut kept = 1.0;
        let counts = config.tier == Tier::Core && !self.close && !self.is_on_links(model);
        if counts && self.core_halvings > 0.0 {
            kept *= libm::pow(moves.spread, self.core_halvings);
        }
        Some(kept)
    }

    /// What it costs to change what a job holds; `None` stands for nothing.
    pub fn change(&self, model: ModelId, from: Option<&Config>, to: Option<&Config>) -> ChangeCost {
        let Some(moves) = self.moves.get(model.index()) else { return ChangeCost::default() };
        let in_place = moves.in_place && from.is_some() && to.is_some();
        let (save, start) = match self.costs {
            CostModel::Free => (Span::ZERO, Span::ZERO),
            CostModel::Flat { save, start } => (save, start),
            CostModel::ByGpus { save, start } => {
                let gpus = |config: Option<&Config>| config.map_or(1, |it| it.gpus);
                let factor = |config| CostModel::by_gpus(gpus(config));
                (save.scaled(factor(from)), start.scaled(factor(to)))
            }
            CostModel::Profile => moves.times(from, to),
            CostModel::Scaled(factor) => {
                let (save, start) = moves.times(from, to);
                (save.scaled(factor), start.scaled(factor))
            }
        };
        let start = start + self.recut(model, from, to);
        ChangeCost {
            save: if from.is_some() && !in_place { save } else { Span::ZERO },
            start: if to.is_some() && !in_place { start } else { Span::ZERO },
            in_place,
        }
    }

    /// What it costs to put a job aside that has so much in its GPU's memory, and to bring it back.
    pub fn suspend(&self, memory_mib: u64) -> SuspendCost {
        SuspendCost::by_model(self.costs, memory_mib)
    }

    /// Memory the model needs on each GPU; 0 means not known.
    pub fn memory_mib(&self, model: ModelId) -> u32 {
        self.moves.get(model.index()).map_or(0, |moves| moves.memory_mib)
    }

    /// Seconds in which each of several models on the same GPUs does one iteration, where they go on together.
    pub fn period(&self, models: &[ModelId], config: &Config) -> Option<f64> {
        let jobs: SmallVec<[Occupant; 4]> =
            models.iter().copied().map(Occupant::unlimited).collect();
        self.colocation.period(&jobs, SharedGpu { kind: config.kind(), gpus: config.gpus })
    }

    /// How long an iteration keeps each stage busy on so many GPUs, if known; where that size was not measured, on the
    /// next smaller one that was.
    pub fn stages(&self, model: ModelId, gpus: u32) -> Option<StageTimes> {
        let stages = &self.moves.get(model.index())?.stages;
        let next = stages.partition_point(|stage| stage.gpus <= gpus);
        stages.get(next.saturating_sub(1)).copied()
    }

    /// What is known of a model that has a GPU for itself.
    pub fn features(&self, model: ModelId) -> Option<&Features> {
        self.moves.get(model.index()).map(|moves| &moves.features)
    }

    /// The part of the time in which a model keeps a GPU busy that it has for itself, as a source says.
    pub fn utilisation(&self, model: ModelId, source: UsageSource) -> Option<f64> {
        match source {
            UsageSource::Nothing => None,
            UsageSource::Profiled => self.features(model)?.get(Feature::Utilisation),
            UsageSource::Graph => self.usage.utilisation(model),
        }
    }

    /// What monitoring shows of a model so long after a job of it started; nothing where neither its phases nor its
    /// utilisation are known.
    pub fn monitored(&self, model: ModelId, after: Span) -> Option<Monitored> {
        let cycle = self.moves.get(model.index())?.cycle.as_ref()?;
        Some(phases::shown(cycle, after))
    }

    /// The share of the model's largest tensor, if known.
    pub fn skew(&self, model: ModelId) -> Option<f64> {
        self.moves.get(model.index()).and_then(|moves| moves.skew)
    }

    /// The part of its speed a job keeps by its share and by what it meets on its GPUs.
    fn part(&self, source: PairSource, model: ModelId, config: &Config) -> f64 {
        if config.beside.is_empty() && config.limit.is_none() && config.permille >= 1000 {
            return 1.0;
        }
        let colocation = self.colocation.by(source).unwrap_or(self.colocation.as_ref());
        let limit = match (config.limit, config.permille) {
            (Some(limit), _) => limit,
            (None, 0) => 1000,
            (None, share) => share,
        };
        let on = SharedGpu { kind: config.kind(), gpus: config.gpus };
        let met = config.beside.iter().map(|gpu| {
            let own = Occupant {
                model,
                request: gpu.request,
                limit,
                gpus: config.gpus,
                lane: config.lane,
            };
            match config.lane {
                Some(_) => self.in_lanes(own, on, &gpu.others),
                None => colocation.kept(own, on, &gpu.others),
            }
        });
        let slowest = met.min_by(f64::total_cmp);
        match (slowest, limit) {
            // The turns of a lane are counted in it.
            (Some(kept), _) if config.lane.is_some() => kept,
            (None, 1000..) => 1.0,
            (Some(kept), 1000..) => kept,
            (None, limit) => f64::from(limit) / 1000.0,
            (Some(kept), limit) => kept.min(f64::from(limit) / 1000.0),
        }
    }
    /// The part of its speed that a job keeps which takes turns in a lane: it has its part of the time there, and runs
    /// meanwhile beside the jobs of the other lanes, one of each at a time. Jobs without a lane are a lane each.
    fn in_lanes(&self, own: Occupant, on: SharedGpu, others: &[Occupant]) -> f64 {
        let turns = f64::from(own.limit.min(1000)) / 1000.0;
        let own = Occupant { limit: 1000, ..own };
        let mut kept: SmallVec<[f64; 4]> = SmallVec::new();
        for (index, other) in others.iter().enumerate() {
            let before = &others[..index];
            let is_seen = other.lane.is_some() && before.iter().any(|one| one.lane == other.lane);
            if is_seen || (other.lane.is_some() && other.lane == own.lane) {
                continue;
            }
            let loss = |one: &Occupant| 1.0 - self.colocation.kept(own, on, &[*one]);
            let lost: f64 = match other.lane {
                None => loss(other),
                lane => others.iter().filter(|one| one.lane == lane).map(loss).sum(),
            };
            kept.push((1.0 - lost).max(0.0));
        }
        turns * kept_in_group(kept)
    }
}

/// The part of a config's GPUs that are of one type.
fn part_of(count: u32, config: &Config) -> f64 {
    f64::from(count) / f64::from(config.gpus)
}

impl Trained {
    fn new(model: &ModelProfile, cluster: &Cluster) -> Option<Trained> {
        let training = model.training.as_ref()?;
        let mut sources = Vec::with_capacity(cluster.kinds.len());
        for kind in &cluster.kinds {
            let (source, speed) = source_kind(model, &kind.name)?;
            let index = training.times.kinds().iter().position(|known| known == source)?;
            sources.push((index, 1.0 / speed));
        }
        Some(Trained { training: Arc::clone(training), sources })
    }

    /// The pace over all types of a config: the slowest, or their mean by GPUs where the batch is cut by speed.
    fn joined(
        &self,
        config: &Config,
        by_speed: bool,
        pace: impl Fn(&Training, Site<'_>) -> Option<Pace>,
    ) -> Option<Pace> {
        let mean = by_speed && config.kinds.len() > 1;
        let mut joined: Option<Pace> = None;
        for (kind, count) in &config.kinds {
            let (kind, factor) = *self.sources.get(kind.index())?;
            let here = pace(&self.training, Site { kind, factor, shape: &config.shape })?;
            joined = match joined {
                before if mean => {
                    let sum = before.as_ref().map_or(0.0, |before| before.rate.0);
                    let rate = Rate(sum + part_of(*count, config) * here.rate.0);
                    Some(Pace { rate, ..before.unwrap_or(here) })
                }
                Some(before) if before.rate.0 <= here.rate.0 => Some(before),
                _ => Some(here),
            };
        }
        joined
    }
}

impl Bound {
    fn rate(&self, gpus: u32, nodes: u32, spread: f64) -> f64 {
        let size = gpus.min(self.cells.len() as u32);
        let cell = &self.cells[size as usize - 1];
        let (mut rate, mut packed) = (cell.rate, cell.nodes);
        if gpus > size {
            rate *= power_of(gpus, size, self.tail);
            packed = (u64::from(packed) * u64::from(gpus)).div_ceil(u64::from(size)) as u32;
        }
        if nodes <= packed {
            return rate;
        }
        if let Ok(index) =
            self.spread_points.binary_search_by_key(&(gpus, nodes), |point| (point.0, point.1))
        {
            return self.spread_points[index].2;
        }
        rate * cell.kept(packed, nodes, spread)
    }
}

impl Cell {
    /// The part of the speed kept on `nodes` nodes instead of `packed`.
    fn kept(&self, packed: u32, nodes: u32, spread: f64) -> f64 {
        let doublings = |from: u32| libm::log2(f64::from(nodes) / f64::from(from));
        if self.far_nodes <= packed {
            libm::pow(spread, doublings(packed))
        } else if nodes >= self.far_nodes {
            self.far * libm::pow(spread, doublings(self.far_nodes))
        } else {
            let whole = libm::log2(f64::from(self.far_nodes) / f64::from(packed));
            libm::pow(self.far, doublings(packed) / whole)
        }
    }
}

impl Moves {
    fn new((id, model): (ModelId, &ModelProfile), catalog: &Catalog, cluster: &Cluster) -> Moves {
        let unfit =
            model.unfit.iter().filter_map(|(name, gpus)| Some((cluster.kind(name)?, *gpus)));
        let unfit = unfit.collect();
        let batches = model.batches.clone().map(|stated| {
            let find = |(batch, name): &(u32, String)| Some((*batch, catalog.find(name)?));
            let mut models: Vec<(u32, ModelId)> = stated.others.iter().filter_map(find).collect();
            models.push((stated.own, id));
            models.sort_by_key(|known| known.0);
            Box::new(BoundBatches { stated, models })
        });
        Moves {
            spread: model.spread,
            memory_mib: model.memory_mib,
            spill: model.spill.clone(),
            skew: model.skew,
            save: model.save.clone(),
            start: model.start.clone(),
            in_place: model.resizes_in_place,
            by_speed: model.splits_by_speed,
            stages: model.stages.clone(),
            unfit,
            host: model.host.clone(),
            batches,
            // The times of a measured training hold its exchange of gradients already.
            traffic: model.traffic.clone().filter(|_| model.training.is_none()),
            features: model.features,
            cycle: phases::cycle(model),
        }
    }

    fn times(&self, from: Option<&Config>, to: Option<&Config>) -> (Span, Span) {
        let on = |cost: &SizeCost, config: Option<&Config>| {
            config.map_or(Span::ZERO, |config| cost.on(config.gpus))
        };
        (on(&self.save, from), on(&self.start, to))
    }
}
