//! Salus: jobs stay in the memory of a GPU together, and take turns there from one iteration to the next.

mod lanes;
mod turns;

use crate::prelude::*;
use lanes::{Footprint, Lanes, Resident};
use std::collections::{BTreeMap, BTreeSet};
use trainyard_framework::{Knowledge, Terms};
use trainyard_types::placement::bits;
use trainyard_types::{GpuAt, Grant, Knobs, Shape, Share};
use turns::Order;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "salus",
    about: "Jobs that fit into the memory of a GPU together are all started and switched at the ends of iterations; the shortest runs.",
    paper: "Yu and Chowdhury, Salus, MLSys 2020",
    needs: Needs { rates: true, ..Needs::ESTIMATE },
    class: Taxonomy::rigid(Objective::CompletionTime, Family::Sharing)
        .by_setting("`order=pack`, `fair` and `fifo` need no estimates")
        .partial(
            "jobs of several GPUs, and those whose memory is not stated, get GPUs of their own",
        ),
    settings: &[
        (
            "order",
            "whose iteration is next in a lane: `srtf`: the job with the least time left; `fair`: that with the least memory times time; `pack`: each in turn; `fifo`: the first to arrive",
        ),
        (
            "lanes",
            "the most lanes on a GPU; 0: as many as memory holds with `pack`, one with the other orders",
        ),
        (
            "persistent",
            "the part of its memory that a job keeps between iterations, where it does not say",
        ),
        ("across_tenants", "whether jobs of different tenants may share a GPU"),
        (
            "fill",
            "`strict`: the first job that does not fit blocks the rest; `backfill`: any that fits may pass it",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Clone, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    order: Order,
    lanes: u16,
    persistent: f64,
    across_tenants: bool,
    fill: Fill,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            order: Order::Srtf,
            lanes: 0,
            persistent: 0.1,
            across_tenants: false,
            fill: Fill::Backfill,
        }
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    if !(0.0..=1.0).contains(&settings.persistent) {
        return Err(ENTRY.bad_value("persistent", settings.persistent, "a part from 0 to 1"));
    }
    let mut needs = ENTRY.needs;
    if settings.order != Order::Srtf {
        needs.work_left = Knowledge::Nothing;
    }
    needs.rates = settings.order == Order::Pack;
    Ok(Pipeline::new(Salus { settings }, FewestNodes, needs))
}

/// O(granted + waiting x (GPUs + jobs in lanes)) for each decision. It remembers nothing: lanes are part of the plan.
struct Salus {
    settings: Settings,
}

/// The GPUs that have lanes.
type Boards = BTreeMap<GpuAt, Lanes>;

impl Policy for Salus {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let mut boards = self.boards(view);
        // Before any other job could take a GPU whose first job has ended.
        for lanes in boards.values() {
            keep_whole(lanes, offer);
        }
        for job in self.in_order(view) {
            let Some(job) = view.job(job) else { continue };
            let is_in = match self.footprint(job) {
                Some(footprint) if self.may_share(job) => {
                    self.seat((job, footprint), &mut boards, (view, offer))
                }
                _ => offer.grant(&wanted(job)) == GrantOutcome::Taken,
            };
            if !is_in && self.settings.fill == Fill::Strict {
                break;
            }
        }
        for (gpu, lanes) in &boards {
            self.set_turns(*gpu, lanes, view, offer);
        }
        Ok(())
    }
}

impl Salus {
    /// Who may be in a lane: a job of one GPU that may be made to wait.
    fn may_share(&self, job: JobRef<'_>) -> bool {
        let want = &job.spec.want;
        want.gpus == 1 && want.permille >= 1000 && job.spec.preemptible
    }

    /// The memory of a job, by what it says of itself; nothing if it says nothing.
    fn footprint(&self, job: JobRef<'_>) -> Option<Footprint> {
        let want = &job.spec.want;
        let whole = want.gpu_memory_mib;
        let persistent_mib = match want.gpu_memory_persistent_mib {
            0 => (f64::from(whole) * self.settings.persistent) as u32,
            stated => stated.min(whole),
        };
        (whole > 0).then(|| Footprint { persistent_mib, ephemeral_mib: whole - persistent_mib })
    }

    /// The lanes as they are planned.
    fn boards(&self, view: &View<'_>) -> Boards {
        let mut boards = Boards::new();
        for job in view.granted() {
            let Some(planned) = &job.state.planned else { continue };
            let (Some(lane), Some(footprint)) = (planned.knobs.lane, self.footprint(job)) else {
                continue;
            };
            for gpu in planned.placement.each_gpu() {
                let capacity = capacity(gpu.node, view);
                let board = boards.entry(gpu).or_insert_with(|| Lanes::new(capacity));
                board.admit(job.id(), footprint, lane);
            }
        }
        boards
    }

    fn in_order(&self, view: &View<'_>) -> Vec<JobId> {
        let key = |job: JobRef<'_>| match self.settings.order {
            Order::Srtf => view.time_left(job).unwrap_or(Span::MAX).0,
            Order::Fair | Order::Pack | Order::Fifo => job.spec.submitted.0,
        };
        let mut jobs: Vec<(u64, JobId)> = view.waiting().map(|job| (key(job), job.id())).collect();
        jobs.sort_unstable();
        jobs.into_iter().map(|(_, job)| job).collect()
    }

    /// The most lanes of a GPU.
    fn lanes_most(&self) -> usize {
        match (self.settings.lanes, self.settings.order) {
            (0, Order::Pack) => usize::MAX,
            (0, Order::Srtf | Order::Fair | Order::Fifo) => 1,
            (most, _) => usize::from(most),
        }
    }

    /// Puts a job on an idle GPU, else into a lane of the GPU with the fewest jobs that has room.
    fn seat(
        &self,
        (job, footprint): (JobRef<'_>, Footprint),
        boards: &mut Boards,
        (view, offer): (&View<'_>, &mut Offer<'_>),
    ) -> bool {
        let idle = idle_gpu(job, footprint, boards, (view, offer.free()));
        let found = idle.map(|gpu| (gpu, 0)).or_else(|| {
            let open = boards
                .iter()
                .filter(|(gpu, lanes)| self.may_join(job, **gpu, lanes, (view, offer)));
            let rooms = open.filter_map(|(gpu, lanes)| {
                let lane = lanes.lane_for(footprint, self.lanes_most())?;
                Some((lanes.residents().len(), *gpu, lane))
            });
            rooms.min().map(|(_, gpu, lane)| (gpu, lane))
        });
        let Some((gpu, lane)) = found else {
            offer.note(job.id(), Reason::NoRoom { need: 1, free: 0 });
            return false;
        };
        let is_first = !boards.contains_key(&gpu);
        let share = if is_first { Share::Whole } else { Share::Leftover };
        let mut grant = Grant::gpus(job.id(), 1).share(share);
        grant.shape = Shape::Exact(Placement::on(gpu.node, 1 << gpu.gpu));
        grant.knobs = Some(Box::new(Knobs { lane: Some(lane), ..Knobs::default() }));
        // What its lane grows by is counted for the first job there, once all have come.
        grant.gpu_memory_mib = Some(if is_first { footprint.whole_mib() as u32 } else { 0 });
        if offer.grant(&grant) != GrantOutcome::Taken {
            return false;
        }
        let capacity = capacity(gpu.node, view);
        let board = boards.entry(gpu).or_insert_with(|| Lanes::new(capacity));
        board.admit(job.id(), footprint, lane);
        true
    }

    /// Whether a job may be on a GPU that has lanes, memory aside.
    fn may_join(
        &self,
        job: JobRef<'_>,
        gpu: GpuAt,
        lanes: &Lanes,
        (view, offer): (&View<'_>, &Offer<'_>),
    ) -> bool {
        let tenant = |other: JobId| view.job(other).map(|other| other.spec.tenant);
        let known = self.settings.across_tenants
            || lanes.residents().iter().all(|one| tenant(one.job) == Some(job.spec.tenant));
        let there = offer.free().up(gpu.node) >> gpu.gpu & 1 == 1;
        known && there && is_welcome(job, gpu.node, (view, offer.free()))
    }

    /// Says for each job of a GPU how much of its lane's time it has, and what memory is counted for it: for the first
    /// what it keeps and the sizes of all lanes, for the others what they keep.
    fn set_turns(&self, gpu: GpuAt, lanes: &Lanes, view: &View<'_>, offer: &mut Offer<'_>) {
        let turns = turns::turns(self.settings.order, lanes, gpu, view);
        for one in lanes.residents().iter().filter(|one| lanes.members(one.lane).count() > 1) {
            if let Some(time) = turns::starts_at(one.job, gpu, view) {
                offer.wake_at(time);
            }
        }
        let is_whole = |job: &JobId| offer.plan(*job).is_some_and(|plan| !plan.is_on_leftovers());
        let all = lanes.residents();
        let first = all.iter().map(|one| one.job).find(is_whole).or(all.first().map(|one| one.job));
        let ephemeral = lanes.ephemeral_mib() as u32;
        let terms = |one: &Resident, permille: u16, lanes_mib: u32| {
            let is_first = Some(one.job) == first;
            let knobs = Knobs {
                lane: Some(one.lane),
                compute_permille_max: (permille < 1000).then_some(permille),
                ..Knobs::default()
            };
            let share = if is_first { Share::Whole } else { Share::Leftover };
            Terms { share, knobs, gpu_memory_mib: one.footprint.persistent_mib + lanes_mib }
        };
        // What each keeps before the lanes: at no step is more counted than there is.
        for (one, permille) in all.iter().zip(&turns) {
            if Some(one.job) == first {
                offer.set_terms(one.job, terms(one, *permille, 0));
            }
        }
        for (one, permille) in all.iter().zip(&turns) {
            let is_first = Some(one.job) == first;
            if !is_first {
                offer.set_terms(one.job, terms(one, *permille, 0));
            }
        }
        for (one, permille) in all.iter().zip(&turns) {
            if Some(one.job) == first {
                offer.set_terms(one.job, terms(one, *permille, ephemeral));
            }
        }
    }
}

/// One of the jobs of a GPU has it whole, so that no job comes there that is in none of its lanes.
fn keep_whole(lanes: &Lanes, offer: &mut Offer<'_>) {
    let whole = |job: JobId| offer.plan(job).is_some_and(|plan| !plan.is_on_leftovers());
    if lanes.residents().iter().any(|one| whole(one.job)) {
        return;
    }
    let Some(first) = lanes.residents().first() else { return };
    let Some(knobs) = offer.plan(first.job).map(|plan| plan.knobs.clone()) else { return };
    let gpu_memory_mib = first.footprint.persistent_mib + lanes.ephemeral_mib() as u32;
    offer.set_terms(first.job, Terms { share: Share::Whole, knobs, gpu_memory_mib });
}

/// Memory of a GPU of a node; none where it is not stated, for then nothing is known to be safe.
fn capacity(node: NodeId, view: &View<'_>) -> u32 {
    view.cluster().kinds[view.cluster().node(node).kind.index()].memory_mib
}

/// Whether a node is one that a job accepts and has what the job needs of the host.
fn is_welcome(job: JobRef<'_>, node: NodeId, (view, free): (&View<'_>, &Free)) -> bool {
    let want = &job.spec.want;
    let host = want.host_per_gpu();
    want.accepts(free.kind(node))
        && want.pool.is_none_or(|pool| view.cluster().node(node).pool == pool)
        && free.shut(node, job).is_none()
        && free.cpus_left(node).is_none_or(|left| left >= host.cpus)
        && free.host_memory_left(node).is_none_or(|left| left >= host.memory_mib)
}

/// A GPU without any job on the node with the fewest of them.
fn idle_gpu(
    job: JobRef<'_>,
    footprint: Footprint,
    boards: &Boards,
    (view, free): (&View<'_>, &Free),
) -> Option<GpuAt> {
    let taken: BTreeSet<GpuAt> = boards.keys().copied().collect();
    let kinds = free.kinds();
    kinds.into_iter().filter(|kind| job.spec.want.accepts(*kind)).find_map(|kind| {
        let able = |node: &NodeId| {
            u64::from(capacity(*node, view)) >= footprint.whole_mib()
                && is_welcome(job, *node, (view, free))
        };
        free.tightest(kind, 1).filter(able).find_map(|node| {
            let mut gpus = bits(free.mask(node)).map(|gpu| GpuAt { node, gpu });
            gpus.find(|gpu| !taken.contains(gpu))
        })
    })
}
