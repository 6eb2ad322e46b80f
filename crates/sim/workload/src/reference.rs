//! Between durations and work: how fast a job runs as its user asked for it.

use crate::{BatchPhase, TraceJob};
use trainyard_profile::{Catalog, Speeds};
use trainyard_types::{Cluster, Config, GpuType, HostShare, Job, ModelId, Want, Work};

/// Speeds at the wanted size on the reference type.
///
/// The reference type is the first the job accepts, or else the first type of the cluster with enough memory.
/// The wanted size is packed on the fewest nodes of that type.
pub(crate) struct Reference {
    speeds: Speeds,
    /// By type: memory, GPUs of the largest node, GPUs in all.
    kinds: Vec<(u32, u32, u32)>,
}

impl Reference {
    pub fn new(catalog: &Catalog, cluster: &Cluster) -> Reference {
        let mut kinds: Vec<(u32, u32, u32)> =
            cluster.kinds.iter().map(|kind| (kind.memory_mib, 1, 0)).collect();
        for node in &cluster.nodes {
            let (_, largest, all) = &mut kinds[node.kind.index()];
            *largest = (*largest).max(u32::from(node.gpus));
            *all += u32::from(node.gpus);
        }
        // A type that is only named, as by a trace without a cluster, stands in nodes of the usual size.
        for (_, largest, _) in kinds.iter_mut().filter(|kind| kind.2 == 0) {
            *largest = 8;
        }
        if !cluster.nodes.is_empty() {
            return Reference { speeds: Speeds::new(catalog, cluster), kinds };
        }
        // Tables of speeds reach as far as the cluster does, so one is put in its place.
        let mut stand_in = cluster.clone();
        for index in 0..cluster.kinds.len() {
            for _ in 0..8 {
                stand_in.add_node(GpuType(index as u8), 8);
            }
        }
        Reference { speeds: Speeds::new(catalog, &stand_in), kinds }
    }

    /// The most GPUs of one type.
    pub fn gpus_max(&self) -> u32 {
        self.kinds.iter().map(|kind| kind.2).max().unwrap_or(0)
    }

    /// Makes a job of a described model accept the types on which it fits as it was asked for, where its user named none,
    /// and raises its least number of GPUs to one on which it fits. Nothing changes for a measured model.
    ///
    /// One division for each type, and for each number of GPUs below the first that fits; all are kept.
    pub fn settle(&self, job: &mut Job) {
        if !self.speeds.is_planned(job.model) {
            return;
        }
        let fits = |kind: GpuType, gpus: u32| self.fits(job.model, kind, gpus);
        let kinds = || (0..self.kinds.len()).map(|index| GpuType(index as u8));
        let want = &job.want;
        let accepted: Vec<GpuType> =
            kinds().filter(|kind| want.accepts(*kind) && fits(*kind, want.gpus)).collect();
        let least = (want.gpus_min..want.gpus)
            .find(|gpus| accepted.iter().any(|kind| fits(*kind, *gpus)))
            .unwrap_or(want.gpus);
        let is_free = want.kinds.is_empty() && !want.across_kinds;
        let is_part = !accepted.is_empty() && accepted.len() < self.kinds.len();
        let want = &mut job.want;
        want.gpus_min = least;
        if is_free && is_part {
            want.kinds = accepted.into_iter().collect();
        }
    }

    /// The type with the most memory on which a described model fits, and the smallest power of two of its GPUs that hold
    /// it; nothing where it fits on none.
    pub fn fewest(&self, model: ModelId) -> Option<(GpuType, u32)> {
        let mut kinds: Vec<usize> = (0..self.kinds.len()).collect();
        kinds.sort_by_key(|index| std::cmp::Reverse(self.kinds[*index].0));
        kinds.into_iter().find_map(|index| {
            let kind = GpuType(index as u8);
            let sizes = (0..).map(|power| 1u32 << power);
            let mut sizes = sizes.take_while(|gpus| *gpus <= self.gpus_of(kind));
            Some((kind, sizes.find(|gpus| self.fits(model, kind, *gpus))?))
        })
    }

    /// GPUs of a type.
    pub fn gpus_of(&self, kind: GpuType) -> u32 {
        self.kinds.get(kind.index()).map_or(0, |kind| kind.2)
    }

    fn fits(&self, model: ModelId, kind: GpuType, gpus: u32) -> bool {
        self.speeds.rate(model, &self.packed(kind, gpus)).is_some()
    }

    fn packed(&self, kind: GpuType, gpus: u32) -> Config {
        let per_node = self.kinds.get(kind.index()).map_or(1, |kind| kind.1);
        Config::packed(kind, gpus, per_node)
    }

    /// Why a job of a described model fits nowhere as it was asked for; nothing where it fits somewhere.
    pub fn fits_nowhere(&self, job: &Job) -> Option<String> {
        if !self.speeds.is_planned(job.model) {
            return None;
        }
        let want = &job.want;
        let kinds = (0..self.kinds.len()).map(|index| GpuType(index as u8));
        let accepted: Vec<GpuType> = kinds.filter(|kind| want.accepts(*kind)).collect();
        let mut first = None;
        for kind in &accepted {
            match self.speeds.division(job.model, &self.packed(*kind, want.gpus)) {
                Some(Ok(_)) => return None,
                Some(Err(reason)) => {
                    first.get_or_insert(reason);
                }
                None => {}
            }
        }
        // Across types the most that each could give.
        if want.across_kinds && accepted.len() > 1 {
            let mut config = Config { permille: 1000, racks: 1, ..Config::default() };
            config.tier = trainyard_types::Tier::Rack;
            let mut open = want.gpus;
            for kind in &accepted {
                let own = self.kinds[kind.index()].2.min(open);
                open -= own;
                let part = self.packed(*kind, own);
                config.kinds.extend(part.kinds.into_iter().filter(|(_, gpus)| *gpus > 0));
                config.shape.extend(part.shape);
                config.gpus += own;
                config.nodes += part.nodes;
            }
            config.shape.sort_unstable_by(|a, b| b.cmp(a));
            if self.speeds.rate(job.model, &config).is_some() {
                return None;
            }
        }
        first
    }

    /// Memory the model needs on each GPU; 0 means not known.
    pub fn memory_mib(&self, model: ModelId) -> u32 {
        self.speeds.memory_mib(model)
    }

    /// Steps per second as the user asked for it; its share of 1 on a cluster without any type.
    pub fn rate(&self, model: ModelId, want: &Want) -> f64 {
        self.rate_on(model, want, self.kind(want))
    }

    /// The work of a job that takes so long.
    pub fn work_in(&self, model: ModelId, want: &Want, seconds: f64) -> Work {
        Work(seconds * self.rate(model, want))
    }

    /// How long the first so much of a job's work takes, with the batches it has on its way.
    pub fn seconds_for(&self, one: &TraceJob, work: Work) -> f64 {
        let (model, want) = (one.job.model, &one.job.want);
        let Some(first) = one.batches.first() else { return work.0 / self.rate(model, want) };
        let before = first.begins(one.work).0.min(work.0) / self.rate(model, want);
        let phases = one.batches.iter().enumerate().map(|(index, phase)| {
            let end = one.batches.get(index + 1).map_or(work.0, |next| next.begins(one.work).0);
            let part = (end.min(work.0) - phase.begins(one.work).0).max(0.0);
            part / self.rate_at(model, want, (self.kind(want), Some(phase.batch)))
        });
        before + phases.sum::<f64>()
    }

    /// The work of a job that takes so long with the batches it has on its way.
    pub fn work_with(&self, job: &Job, batches: &[BatchPhase], seconds: f64) -> Work {
        if batches.is_empty() {
            return self.work_in(job.model, &job.want, seconds);
        }
        // Every part of the work takes time in proportion to the whole, so one unit tells.
        let unit = TraceJob { batches: batches.into(), ..TraceJob::new(job.clone(), Work(1.0)) };
        Work(seconds / self.seconds_for(&unit, unit.work))
    }

    /// Whether another batch changes the speed of a model.
    pub fn knows_batches(&self, model: ModelId) -> bool {
        self.speeds.knows_batches(model)
    }

    /// GPU-seconds on the reference type over the size of the cluster in GPUs of that type.
    pub fn demand(&self, job: &Job, seconds: f64) -> f64 {
        self.demand_of(job, seconds, |_| true)
    }

    /// The same over the types that a job accepts and that have enough memory: how long each of them is busy, when
    /// all are busy equally long with it.
    pub fn demand_of_accepted(&self, job: &Job, seconds: f64) -> f64 {
        self.demand_of(job, seconds, |kind| self.takes(&job.want, kind))
    }

    /// Whether a job accepts a type that has enough memory.
    pub fn takes(&self, want: &Want, kind: GpuType) -> bool {
        let memory = self.kinds[kind.index()].0;
        want.accepts(kind) && (memory == 0 || memory >= want.gpu_memory_mib)
    }

    /// GPUs that a job counts as, and the cluster in GPUs of its reference type, 1 at least.
    pub fn demand_parts(&self, job: &Job) -> (f64, f64) {
        self.parts_of(job, |_| true)
    }

    fn demand_of(&self, job: &Job, seconds: f64, counts: impl Fn(GpuType) -> bool) -> f64 {
        let (gpus, whole) = self.parts_of(job, counts);
        gpus * seconds / whole
    }

    fn parts_of(&self, job: &Job, counts: impl Fn(GpuType) -> bool) -> (f64, f64) {
        let own = self.kind(&job.want);
        let here = self.rate_on(job.model, &job.want, own);
        let kinds = (0..self.kinds.len()).map(|index| GpuType(index as u8));
        let whole: f64 = kinds
            .filter(|kind| counts(*kind))
            .map(|kind| {
                let there =
                    if kind == own { here } else { self.rate_on(job.model, &job.want, kind) };
                f64::from(self.kinds[kind.index()].2) * there / here
            })
            .sum();
        let gpus = f64::from(job.want.gpus) * f64::from(job.want.permille) / 1000.0;
        (gpus, whole.max(1.0))
    }

    fn kind(&self, want: &Want) -> GpuType {
        want.kinds.first().copied().unwrap_or_else(|| {
            let fits = |kind: &(u32, u32, u32)| kind.0 == 0 || kind.0 >= want.gpu_memory_mib;
            GpuType(self.kinds.iter().position(fits).unwrap_or(0) as u8)
        })
    }

    fn rate_on(&self, model: ModelId, want: &Want, kind: GpuType) -> f64 {
        self.rate_at(model, want, (kind, None))
    }

    fn rate_at(&self, model: ModelId, want: &Want, (kind, batch): (GpuType, Option<u32>)) -> f64 {
        let per_node = self.kinds.get(kind.index()).map_or(1, |kind| kind.1);
        let mut config = Config::packed(kind, want.gpus, per_node);
        config.permille = want.permille;
        config.batch = batch.or(want.batch);
        config.host = HostShare {
            cpus: u32::from(want.cpus_per_gpu) * want.gpus,
            memory_mib: u64::from(want.memory_mib_per_gpu) * u64::from(want.gpus),
        };
        let share = f64::from(want.permille) / 1000.0;
        self.speeds.rate(model, &config).map_or(share, |rate| rate.0)
    }
}
