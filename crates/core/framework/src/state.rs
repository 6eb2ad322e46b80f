//! Everything the engine knows, as dense arrays that a decision borrows.

use crate::{Aside, Windows};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use trainyard_types::{
    Allocation, Cluster, GpuType, IdMap, IdSet, Job, JobId, JobState, PoolId, Span, TenantId,
    Tenants, Time,
};

/// A job that is not over.
#[derive(Clone, Debug)]
pub struct Live {
    /// What was asked for.
    pub spec: Arc<Job>,
    /// What has happened.
    pub state: JobState,
}

/// Use that fades: GPU-seconds with a half-life, growing by the GPUs held now.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    gpu_seconds: f64,
    at: Time,
    permille: u64,
}

impl Usage {
    /// Decayed GPU-seconds at `now`.
    pub fn at(&self, now: Time, half_life: Span) -> f64 {
        let elapsed = now.since(self.at).as_secs_f64();
        let gpus = self.permille as f64 / 1000.0;
        if half_life == Span::ZERO || half_life == Span::MAX {
            return self.gpu_seconds + gpus * elapsed;
        }
        let half_life = half_life.as_secs_f64();
        let kept = libm::exp2(-elapsed / half_life);
        self.gpu_seconds * kept + gpus * (1.0 - kept) * half_life / std::f64::consts::LN_2
    }

    /// The use up to `now`, with no GPU held from then on.
    pub fn idle_from(self, now: Time, half_life: Span) -> Usage {
        Usage { gpu_seconds: self.at(now, half_life), at: now, permille: 0 }
    }

    /// The GPUs held change at `now`, in thousandths.
    pub fn change(&mut self, now: Time, half_life: Span, permille: i64) {
        self.gpu_seconds = self.at(now, half_life);
        self.at = now;
        self.permille =
            self.permille.checked_add_signed(permille).expect("use never falls below zero");
    }
}

/// A pool whose owner lends the nodes it does not need.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loan {
    /// The pool.
    pub pool: PoolId,
    /// How many of its nodes the owner needs now.
    pub needed: u32,
    /// How many of those are still in use here and must go back with the next decision.
    pub owed: u32,
}

/// How many entries of [`State::changed`] and [`State::ended`] a decision has seen.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ChangeCursor {
    changed: usize,
    ended: usize,
    recalls: u64,
}

/// Everything the engine knows. Written by the engine alone; policies see it through a [`crate::View`].
#[derive(Clone, Debug)]
pub struct State {
    /// The cluster as declared.
    pub cluster: Arc<Cluster>,
    /// Types that have nodes, with the number of GPUs of their largest node.
    pub shapes: Vec<(GpuType, u32)>,
    /// Whether its nodes stand in several racks.
    pub has_racks: bool,
    /// Tenants and their ceilings.
    pub tenants: Tenants,
    /// Jobs that are not over, by id. Shared in chunks, so that a snapshot costs a pointer for each 64 jobs and a write
    /// after it the job that is written and the pointers beside it.
    pub jobs: IdMap<JobId, Arc<Live>>,
    /// Admitted jobs that hold no grant.
    pub waiting: IdSet<JobId>,
    /// Jobs that hold a grant.
    pub granted: IdSet<JobId>,
    /// Jobs allowed to run, but not admitted.
    pub unadmitted: IdSet<JobId>,
    /// Thousandths of GPUs granted to each tenant and all below it.
    pub used_permille: Vec<u64>,
    /// Decayed use of each tenant and all below it.
    pub usage: Vec<Usage>,
    /// After how long a GPU-second of use counts half.
    pub usage_half_life: Span,
    /// Whether any tenant has a ceiling.
    pub has_ceilings: bool,
    /// GPUs asked for by all admitted jobs.
    pub demand: u64,
    /// Jobs that changed since the last decision, in the order they did, possibly more than once.
    pub changed: Vec<JobId>,
    /// Jobs that ended since the last decision, and when, in that order.
    pub ended: Vec<(JobId, Time)>,
    /// Pools that are lent, by id; a pool that is not in it is ours for good.
    pub loans: Vec<Loan>,
    /// Maintenance and reservations that are not over.
    pub windows: Arc<Windows>,
    /// Jobs that are put aside, and how many may be.
    pub aside: Aside,
    /// Whether jobs of different tenants share a GPU only where both tenants allow it.
    pub isolates: bool,
    /// How many grants are not of whole GPUs.
    pub sharing: u32,
    /// How often an owner said what it needs.
    pub recalls: u64,
    /// How many decisions were taken.
    pub decisions: u64,
    /// Whether the host keeps rounds, so that each decision begins one.
    pub keeps_rounds: bool,
    /// When the newest event happened.
    pub now: Time,
}

impl State {
    /// No jobs yet.
    pub fn new(cluster: Arc<Cluster>, tenants: Tenants) -> State {
        let has_ceilings = tenants.iter().any(|(_, tenant)| tenant.ceiling.is_some());
        let largest = |kind: usize| {
            let of_kind = cluster.nodes.iter().filter(|node| node.kind.index() == kind);
            of_kind.map(|node| u32::from(node.gpus)).max()
        };
        let shapes = (0..cluster.kinds.len())
            .filter_map(|kind| Some((GpuType(kind as u8), largest(kind)?)))
            .collect();
        let has_racks = cluster.nodes.iter().any(|node| node.rack != cluster.nodes[0].rack);
        State {
            cluster,
            has_racks,
            shapes,
            used_permille: vec![0; tenants.len()],
            usage: vec![Usage::default(); tenants.len()],
            usage_half_life: Span::secs(7 * 86_400),
            has_ceilings,
            tenants,
            jobs: IdMap::default(),
            waiting: IdSet::default(),
            granted: IdSet::default(),
            unadmitted: IdSet::default(),
            demand: 0,
            changed: Vec::new(),
            ended: Vec::new(),
            loans: Vec::new(),
            windows: Arc::default(),
            aside: Aside::default(),
            isolates: false,
            sharing: 0,
            recalls: 0,
            decisions: 0,
            keeps_rounds: false,
            now: Time::ZERO,
        }
    }

    /// A job that is not over.
    #[inline]
    pub fn live(&self, job: JobId) -> Option<&Live> {
        self.jobs.get(&job).map(Arc::as_ref)
    }

    /// A job that is not over, to be written.
    #[inline]
    pub fn live_mut(&mut self, job: JobId) -> Option<&mut Live> {
        self.jobs.get_mut(&job).map(Arc::make_mut)
    }

    /// Whether an allocation would put a job on a GPU with one of another tenant, where not both allow that. Linear in
    /// granted jobs, and only where tenants are kept apart, there are several, and any GPU is shared.
    pub fn meets_strangers(
        &self,
        job: JobId,
        to: &Allocation,
        plan: &dyn Fn(JobId) -> Option<Allocation>,
        mut others: impl Iterator<Item = JobId>,
    ) -> bool {
        let Some(tenant) = self.live(job).map(|live| live.spec.tenant) else { return false };
        others.any(|other| {
            let stranger =
                |live: &Live| other != job && !self.tenants.may_share(tenant, live.spec.tenant);
            self.live(other).is_some_and(stranger)
                && plan(other).is_some_and(|there| {
                    (there.is_shared() || to.is_shared()) && there.placement.overlaps(&to.placement)
                })
        })
    }

    /// How much of what happened a decision has seen that is taken on this state.
    pub fn seen(&self) -> ChangeCursor {
        ChangeCursor { changed: self.changed.len(), ended: self.ended.len(), recalls: self.recalls }
    }

    /// Whether a decision that has seen so much knew all that owners of pools need by now.
    pub fn knew_recalls(&self, seen: ChangeCursor) -> bool {
        seen.recalls == self.recalls
    }

    /// A decision was taken that has seen so much.
    pub fn decided(&mut self, seen: ChangeCursor) {
        self.decisions += 1;
        drop_first(&mut self.changed, seen.changed);
        drop_first(&mut self.ended, seen.ended);
    }

    /// The first tenant on the way to the top whose ceiling `extra` thousandths more would pass.
    #[inline]
    pub fn ceiling_passed(&self, tenant: TenantId, extra: u64) -> Option<TenantId> {
        if !self.has_ceilings {
            return None;
        }
        self.tenants.path(tenant).find(|id| {
            let ceiling = self.tenants.get(*id).ceiling;
            ceiling
                .is_some_and(|gpus| self.used_permille[id.index()] + extra > u64::from(gpus) * 1000)
        })
    }
}

/// Drops the first so many; nearly always that is all there are.
fn drop_first<T>(list: &mut Vec<T>, count: usize) {
    if count >= list.len() {
        list.clear();
    } else {
        list.drain(..count);
    }
}
