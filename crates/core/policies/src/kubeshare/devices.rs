//! Which jobs are on which GPU, what their labels allow there, and the best fit of version 1.0.

use crate::prelude::*;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use trainyard_types::placement::bits;
use trainyard_types::{GpuAt, Labels, TenantId};

/// The labels and the tenant of one of the jobs on a GPU.
#[derive(Clone, Debug)]
struct Occupant {
    tenant: TenantId,
    labels: Option<Box<Labels>>,
}

/// The jobs on the GPUs by the plan.
#[derive(Default)]
pub(super) struct Devices(FxHashMap<GpuAt, SmallVec<[Occupant; 2]>>);

impl Devices {
    /// As planned now.
    pub fn of(view: &View<'_>) -> Devices {
        let mut devices = Devices::default();
        for job in view.granted() {
            let Some(planned) = &job.state.planned else { continue };
            planned.placement.each_gpu().for_each(|gpu| devices.add(job, gpu));
        }
        devices
    }

    /// A job comes to a GPU.
    pub fn add(&mut self, job: JobRef<'_>, gpu: GpuAt) {
        let occupant = Occupant { tenant: job.spec.tenant, labels: job.spec.labels.clone() };
        self.0.entry(gpu).or_default().push(occupant);
    }

    /// The filters, in their order: affinity keeps the GPUs that carry the name, anti-affinity drops those that do, and
    /// exclusion keeps those with exactly the same name or, without one, those that have none. An idle GPU carries
    /// nothing and is not filtered: a first job brings its names along.
    pub fn allows(&self, job: JobRef<'_>, gpu: GpuAt, across_tenants: bool) -> bool {
        let Some(here) = self.0.get(&gpu).filter(|here| !here.is_empty()) else { return true };
        let own = job.spec.labels.as_deref();
        let name =
            |which: fn(&Labels) -> &Option<Box<str>>| own.and_then(|own| which(own).as_deref());
        let carries = |which: fn(&Labels) -> &Option<Box<str>>, name: &str| {
            let labels = here.iter().filter_map(|one| one.labels.as_deref());
            labels.into_iter().any(|labels| which(labels).as_deref() == Some(name))
        };
        let affinity = name(|labels| &labels.affinity);
        let anti = name(|labels| &labels.anti_affinity);
        let exclusion = name(|labels| &labels.exclusion);
        let excludes = |one: &Occupant| {
            let other = one.labels.as_deref().and_then(|labels| labels.exclusion.as_deref());
            other != exclusion
        };
        affinity.is_none_or(|name| carries(|labels| &labels.affinity, name))
            && !anti.is_some_and(|name| carries(|labels| &labels.anti_affinity, name))
            && !here.iter().any(excludes)
            && (across_tenants || here.iter().all(|one| one.tenant == job.spec.tenant))
    }

    /// The GPUs of the jobs of the same group.
    pub fn near(&self, job: JobRef<'_>, view: &View<'_>) -> Vec<GpuAt> {
        let Some(group) = job.spec.group else { return Vec::new() };
        let mates = view.granted().filter(|other| other.spec.group == Some(group));
        mates
            .filter_map(|mate| mate.state.planned.as_ref())
            .flat_map(|plan| plan.placement.each_gpu().collect::<Vec<_>>())
            .collect()
    }
}

/// The nodes of the types that a job accepts which have what it needs of the host, by id.
pub(super) fn nodes<'a>(
    job: JobRef<'a>,
    (view, free): (&'a View<'_>, &'a Free),
) -> impl Iterator<Item = NodeId> + 'a {
    let want = &job.spec.want;
    let host = want.host_per_gpu();
    (0..free.nodes()).map(NodeId).filter(move |node| {
        want.accepts(free.kind(*node))
            && want.pool.is_none_or(|pool| view.cluster().node(*node).pool == pool)
            && free.shut(*node, job).is_none()
            && free.cpus_left(*node).is_none_or(|left| left >= host.cpus)
            && free.host_memory_left(*node).is_none_or(|left| left >= host.memory_mib)
    })
}

/// The GPUs of a node in service that have room for a job and that its labels allow.
pub(super) fn rooms<'a>(
    job: JobRef<'a>,
    node: NodeId,
    open: &'a dyn Fn(GpuAt) -> bool,
    free: &'a Free,
) -> impl Iterator<Item = GpuAt> + 'a {
    let want = &job.spec.want;
    let gpus = bits(free.up(node)).map(move |gpu| GpuAt { node, gpu });
    gpus.filter(move |gpu| {
        free.left(*gpu) >= want.permille
            && free.memory_left(*gpu) >= want.gpu_memory_mib
            && open(*gpu)
    })
}

/// The GPU in use that is left with the least; on a node without such a GPU an idle one counts for that.
pub(super) fn best_fit(
    job: JobRef<'_>,
    open: &dyn Fn(GpuAt) -> bool,
    (view, free): (&View<'_>, &Free),
) -> Option<GpuAt> {
    let permille = job.spec.want.permille;
    let best_of = |node: NodeId| {
        let score = |gpu: GpuAt| (free.left(gpu) - permille, gpu);
        let in_use = rooms(job, node, open, free).filter(|gpu| free.left(*gpu) < 1000);
        let idle = || rooms(job, node, open, free).filter(|gpu| free.left(*gpu) == 1000);
        in_use.map(score).min().or_else(|| idle().map(score).min())
    };
    nodes(job, (view, free)).filter_map(best_of).min().map(|(_, gpu)| gpu)
}
