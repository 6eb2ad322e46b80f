//! The jobs on each GPU by the plan, and the GPUs where one more costs least.

use crate::alike::Classes;
use crate::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use trainyard_types::placement::bits;
use trainyard_types::{Config, GpuAt, Grant, Shape, Share};

/// The jobs on one GPU, ascending.
pub(crate) type Residents = SmallVec<[JobId; 2]>;

/// The jobs on each GPU by the plan.
#[derive(Default)]
pub(crate) struct Tenancy {
    on: FxHashMap<GpuAt, Residents>,
}

/// A place for a job, and what it costs on the GPU where it costs most.
pub(crate) struct Cheapest {
    pub(crate) place: Placement,
    pub(crate) cost: f64,
}

/// A GPU that may be taken: what that costs, and whether other jobs are there.
#[derive(Copy, Clone)]
struct Open {
    gpu: u8,
    cost: f64,
    jobs: usize,
}

impl Tenancy {
    /// The jobs of the plan, by GPU.
    pub(crate) fn of(view: &View<'_>) -> Tenancy {
        let mut tenancy = Tenancy::default();
        for job in view.granted() {
            if let Some(planned) = &job.state.planned {
                tenancy.sit(job.id(), &planned.placement);
            }
        }
        tenancy
    }

    /// A job takes its seats.
    pub(crate) fn sit(&mut self, job: JobId, place: &Placement) {
        for gpu in place.each_gpu() {
            let jobs = self.on.entry(gpu).or_default();
            jobs.push(job);
            jobs.sort_unstable();
        }
    }

    /// The jobs on a GPU, ascending.
    pub(crate) fn residents(&self, gpu: GpuAt) -> &[JobId] {
        self.on.get(&gpu).map_or(&[], |jobs| jobs.as_slice())
    }

    /// So many GPUs of one type for a job, on the type where the dearest costs least. O(GPUs log GPUs).
    pub(crate) fn cheapest(
        &self,
        asked: (JobRef<'_>, u32),
        (view, free): (&View<'_>, &Free),
        most: usize,
        cost: &mut dyn FnMut(GpuType, &[JobId]) -> Option<f64>,
    ) -> Option<Cheapest> {
        let kinds = free.kinds().into_iter().filter(|kind| asked.0.spec.want.accepts(*kind));
        let found = kinds.filter_map(|kind| {
            self.cheapest_on(kind, asked, (view, free), most, &mut |jobs| cost(kind, jobs))
        });
        // Of equals the first type.
        found.reduce(|best, next| if next.cost < best.cost { next } else { best })
    }

    /// So many GPUs of a type for a job: on one node where one has enough, those where the dearest costs least. No GPU gets
    /// more than `most` jobs; `cost` says what a GPU costs beside whom, or that it may not be taken.
    /// O(GPUs of the type, with their logarithm).
    pub(crate) fn cheapest_on(
        &self,
        kind: GpuType,
        (job, gpus): (JobRef<'_>, u32),
        (view, free): (&View<'_>, &Free),
        most: usize,
        cost: &mut dyn FnMut(&[JobId]) -> Option<f64>,
    ) -> Option<Cheapest> {
        let want = &job.spec.want;
        let mut known: FxHashMap<Residents, Option<f64>> = FxHashMap::default();
        let mut asked = |jobs: &[JobId]| {
            if let Some(cost) = known.get(jobs) {
                return *cost;
            }
            *known.entry(Residents::from_slice(jobs)).or_insert_with(|| cost(jobs))
        };
        let nodes = view.cluster().nodes.iter().filter(|node| {
            node.kind == kind
                && want.pool.is_none_or(|pool| node.pool == pool)
                && free.shut(node.id, job).is_none()
        });
        let open: Vec<(NodeId, Vec<Open>)> = nodes
            .map(|node| (node.id, self.open(node.id, job, free, most, &mut asked)))
            .filter(|(_, open)| !open.is_empty())
            .collect();
        pick(open, gpus, want.nodes_max)
    }

    /// The GPUs of a node that a job may take, the cheapest first, as many as its host has room for.
    fn open(
        &self,
        node: NodeId,
        job: JobRef<'_>,
        free: &Free,
        most: usize,
        cost: &mut dyn FnMut(&[JobId]) -> Option<f64>,
    ) -> Vec<Open> {
        let mut open = Vec::new();
        for gpu in bits(free.up(node)) {
            let at = GpuAt { node, gpu };
            let jobs = self.residents(at);
            let is_shared_otherwise = jobs.is_empty() && free.left(at) < 1000;
            if jobs.len() >= most
                || is_shared_otherwise
                || free.memory_left(at) < job.spec.want.gpu_memory_mib
            {
                continue;
            }
            if let Some(cost) = cost(jobs) {
                open.push(Open { gpu, cost, jobs: jobs.len() });
            }
        }
        open.sort_by(|a, b| {
            a.cost.total_cmp(&b.cost).then(a.jobs.cmp(&b.jobs)).then(a.gpu.cmp(&b.gpu))
        });
        open.truncate(host_room(node, job, free));
        open
    }

    /// Puts a job on GPUs: each is its own where no other has it whole; on the rest it lives on what others leave.
    pub(crate) fn seat(
        &mut self,
        job: JobRef<'_>,
        place: Placement,
        offer: &mut Offer<'_>,
    ) -> GrantOutcome {
        let mut grant = Grant::gpus(job.id(), place.gpus());
        let share =
            |gpu| if offer.free().left(gpu) == 1000 { Share::Whole } else { Share::Leftover };
        grant.shares = place.each_gpu().map(share).collect();
        grant.shape = Shape::Exact(place.clone());
        let answer = offer.grant(&grant);
        if answer == GrantOutcome::Taken {
            self.sit(job.id(), &place);
        }
        answer
    }
}

/// How many GPUs of a node a job could have by what is left of its host.
fn host_room(node: NodeId, job: JobRef<'_>, free: &Free) -> usize {
    let want = &job.spec.want;
    let by = |left: Option<u64>, each: u64| match left {
        Some(left) if each > 0 => usize::try_from(left / each).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    let cpus = by(free.cpus_left(node).map(u64::from), u64::from(want.cpus_per_gpu));
    cpus.min(by(free.host_memory_left(node), u64::from(want.memory_mib_per_gpu)))
}

/// So many GPUs: on the node where the dearest of them costs least, else over several, those with most first.
fn pick(mut open: Vec<(NodeId, Vec<Open>)>, gpus: u32, nodes_max: u16) -> Option<Cheapest> {
    let count = gpus as usize;
    let mask = |gpus: &[Open]| gpus.iter().fold(0u64, |mask, open| mask | 1 << open.gpu);
    let dearest = |gpus: &[Open]| gpus.iter().map(|open| open.cost).fold(0.0, f64::max);
    let crowd = |gpus: &[Open]| gpus.iter().map(|open| open.jobs).sum::<usize>();
    let whole = open.iter().filter(|(_, gpus)| gpus.len() >= count);
    let best = whole.min_by(|(a, x), (b, y)| {
        let (x, y) = (&x[..count], &y[..count]);
        dearest(x).total_cmp(&dearest(y)).then(crowd(x).cmp(&crowd(y))).then(a.cmp(b))
    });
    if let Some((node, gpus)) = best {
        let gpus = &gpus[..count];
        return Some(Cheapest { place: Placement::on(*node, mask(gpus)), cost: dearest(gpus) });
    }
    open.sort_by_key(|(node, gpus)| (std::cmp::Reverse(gpus.len()), *node));
    let nodes = if nodes_max == 0 { usize::MAX } else { usize::from(nodes_max) };
    let (mut rest, mut cost, mut masks) = (count, 0.0_f64, Vec::new());
    for (node, gpus) in open.iter().take(nodes) {
        let taken = &gpus[..gpus.len().min(rest)];
        rest -= taken.len();
        cost = cost.max(dearest(taken));
        masks.push((*node, mask(taken)));
    }
    (rest == 0).then(|| Cheapest { place: Placement::from_masks(masks), cost })
}

/// A job on what others leave of a GPU that no other has any more has it for itself from now on, which is no restart.
pub(crate) fn stand_alone(view: &View<'_>, offer: &mut Offer<'_>) {
    for job in view.granted() {
        let Some(plan) = offer.plan(job.id()).filter(|plan| plan.is_on_leftovers()) else {
            continue;
        };
        let place = plan.placement.clone();
        let share = |(index, gpu)| match offer.free().left(gpu) {
            1000 => Share::Whole,
            _ => plan.share(index),
        };
        let shares: SmallVec<[Share; 4]> = place.each_gpu().enumerate().map(share).collect();
        if (0..shares.len()).any(|index| shares[index] != plan.share(index)) {
            let mut grant = Grant::gpus(job.id(), place.gpus());
            grant.shares = shares;
            grant.shape = Shape::Exact(place);
            offer.grant(&grant);
        }
    }
}

/// The part of its speed that a job keeps on a type of GPU beside others, as far as is believed; nothing where it has
/// no speed there at all.
pub(crate) fn kept_beside(
    job: JobRef<'_>,
    on: &Config,
    others: impl IntoIterator<Item = JobId>,
    view: &View<'_>,
) -> Option<f64> {
    let models = others.into_iter().filter_map(|other| Some(view.job(other)?.spec.model));
    let alone = view.rate(job, on)?.0;
    let together = view.rate(job, &on.clone().with_partners(models))?.0;
    (alone > 0.0).then(|| together / alone)
}

/// The GPUs that a job has, or would have on a type, all for itself.
pub(crate) fn config_on(job: JobRef<'_>, kind: GpuType, view: &View<'_>) -> Config {
    let per_node = view.state().shapes.iter().find(|shape| shape.0 == kind).map_or(1, |it| it.1);
    Config::packed(kind, job.spec.want.gpus, per_node)
}

/// Whether jobs may be on the same GPUs: whole GPUs were asked for by both, and the same tenant unless it is allowed.
pub(crate) fn may_meet(job: JobRef<'_>, other: JobRef<'_>, across_tenants: bool) -> bool {
    let whole = |job: JobRef<'_>| job.spec.want.permille >= 1000;
    whole(job) && whole(other) && (across_tenants || job.spec.tenant == other.spec.tenant)
}

/// Waiting jobs of which one that does not fit speaks for all that are alike.
#[derive(Default)]
pub(crate) struct Failed {
    classes: Classes,
    failed: FxHashSet<usize>,
}

impl Failed {
    /// The number of a job's class, unless one like it did not fit.
    pub(crate) fn class(&mut self, job: JobRef<'_>, view: &View<'_>) -> Option<usize> {
        let class = self.classes.number(job, view, true);
        (!self.failed.contains(&class)).then_some(class)
    }

    /// A job of this class did not fit.
    pub(crate) fn add(&mut self, class: usize) {
        self.failed.insert(class);
    }
}
