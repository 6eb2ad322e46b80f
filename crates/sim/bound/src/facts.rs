//! The least that the jobs of a workload take on a cluster, from the speeds and costs that the simulated world goes by.

use crate::Task;
use rustc_hash::FxHashMap;
use trainyard_profile::Speeds;
use trainyard_sim::{Charge, Distance, Options, Rounding};
use trainyard_types::{Cluster, Config, GpuType, ModelId, Tier, Want, Work};
use trainyard_workload::{TraceJob, Workload};

/// The clock's resolution in seconds: ends are rounded to it.
const TICK: f64 = 1e-6;

/// Why nothing is proven about a run.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// Ends are rounded, so that a job may end before its work is done.
    #[error(
        "semantics that do not round ends, for a job may end before its work is done there: native, tiresias, muri or shockwave"
    )]
    Rounded,
    /// Starts may be given work for nothing.
    #[error("semantics that give no job work for nothing: native, tiresias, muri or shockwave")]
    Slots,
    /// Only some jobs count.
    #[error("a run in which all jobs count; leave `--measure` out")]
    Measured,
}

/// The least that each job takes, by id.
///
/// A job whose speed may change with a batch that a policy chooses or that changes while it runs, with host CPUs and
/// memory, or with links, is not covered: all that is said of it is that it does not end before it begins. Linear in
/// jobs, and for each distinct wish in GPUs, nodes and types.
pub fn tasks(
    workload: &Workload,
    cluster: &Cluster,
    options: &Options,
) -> Result<Vec<Task>, Unsupported> {
    if options.rounding != Rounding::Exact {
        return Err(Unsupported::Rounded);
    }
    if matches!(options.charge, Charge::AtSlots { .. }) {
        return Err(Unsupported::Slots);
    }
    if options.measured.is_some() {
        return Err(Unsupported::Measured);
    }
    let mut speeds = Speeds::new(&workload.catalog, cluster).with_costs(options.costs);
    if options.splits_by_speed {
        speeds = speeds.splitting_by_speed();
    }
    if options.distance == Distance::Ignored {
        speeds = speeds.without_distance();
    }
    let mut facts = Facts {
        speeds,
        cluster,
        charged: options.charge == Charge::PerStart,
        known: FxHashMap::default(),
    };
    Ok(workload.jobs.iter().map(|one| facts.task(one)).collect())
}

/// What a wish comes to at best.
#[derive(Copy, Clone, Default)]
struct Best {
    /// Steps each second.
    rate: f64,
    /// GPU-seconds of a step.
    area: f64,
    /// Seconds from getting GPUs to the first step.
    start: f64,
}

struct Facts<'a> {
    speeds: Speeds,
    cluster: &'a Cluster,
    /// Whether each start is paid for.
    charged: bool,
    known: FxHashMap<(ModelId, Want), Option<Best>>,
}

impl Facts<'_> {
    fn task(&mut self, one: &TraceJob) -> Task {
        let job = &one.job;
        let submitted = job.submitted.as_secs_f64();
        let ready = job.not_before.map_or(submitted, |at| at.as_secs_f64().max(submitted));
        let deadline = job.deadline().map(|at| at.as_secs_f64());
        let begun = Task { submitted, ready, deadline, ..Task::default() };
        if !one.batches.is_empty() {
            return begun;
        }
        let key = (job.model, job.want.clone());
        let best = match self.known.get(&key) {
            Some(best) => *best,
            None => {
                let best = self.best(job.model, &job.want);
                self.known.insert(key, best);
                best
            }
        };
        let Some(best) = best else { return begun };
        Task {
            start: (best.start - TICK).max(0.0),
            time: (one.work.0 / best.rate - TICK).max(0.0),
            area: (one.work.0 * best.area - TICK * f64::from(job.want.gpus_max)).max(0.0),
            ..begun
        }
    }

    /// The best that a wish comes to over all types, numbers of GPUs and nodes; nothing where its speed has no such limit.
    fn best(&self, model: ModelId, want: &Want) -> Option<Best> {
        let follows_links = self.cluster.topology.is_some() && self.speeds.traffic(model).is_some();
        if self.speeds.follows_batch(model) || follows_links {
            return None;
        }
        if self.speeds.knows_batches(model) && want.batch.is_none() {
            return None;
        }
        let mut best = Best { rate: 0.0, area: f64::INFINITY, start: f64::INFINITY };
        for kind in (0..self.cluster.kinds.len()).map(|kind| GpuType(kind as u8)) {
            let most = self.cluster.gpus_of(kind).min(want.gpus_max);
            if !want.accepts(kind) {
                continue;
            }
            for gpus in want.gpus_min.max(1)..=most {
                if self.speeds.host_table(model, gpus).is_some() {
                    return None;
                }
                self.on(model, want, (kind, gpus), &mut best);
            }
        }
        // A share of a GPU may turn out to be more than that where others leave it, so that it takes no room for certain.
        if want.permille < 1000 {
            best.area = 0.0;
        }
        (best.rate > 0.0).then_some(best)
    }

    fn on(&self, model: ModelId, want: &Want, (kind, gpus): (GpuType, u32), best: &mut Best) {
        let nodes = self.cluster.nodes.iter().filter(|node| node.kind == kind);
        let largest = nodes.clone().map(|node| u32::from(node.gpus)).max().unwrap_or(1);
        for spanned in 1..=(nodes.count() as u32).min(gpus) {
            let tier = match (gpus, spanned) {
                (1, _) => Tier::Gpu,
                (_, 1) => Tier::Node,
                _ => Tier::Rack,
            };
            let packed = Config::packed(kind, gpus, largest);
            let config = Config {
                nodes: spanned,
                racks: 1,
                tier,
                permille: 1000,
                batch: want.batch,
                ..packed
            };
            let pace = self.speeds.pace(model, &config, Work::ZERO);
            let Some(rate) = pace.map(|pace| pace.rate.0).filter(|rate| *rate > 0.0) else {
                continue;
            };
            best.rate = best.rate.max(rate);
            best.area = best.area.min(f64::from(gpus) / rate);
            if self.charged {
                let start = self.speeds.change(model, None, Some(&config)).start.as_secs_f64();
                best.start = best.start.min(start);
            } else {
                best.start = 0.0;
            }
        }
    }
}
