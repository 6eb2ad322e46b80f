//! Packing by trial: when jobs wait, one is put beside a running one for a few iterations, and stays if both together do
//! more than they would in turns.

use super::Turns;
use crate::prelude::*;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use trainyard_framework::Terms;
use trainyard_types::{Allocation, Grant, Phase, Shape, Share};

/// How long after its start a job is looked at, and how often where the start takes longer than expected.
const LATE: Span = Span::secs(1);

/// How many waiting jobs are looked at for one decision.
const GUESTS_MAX: usize = 64;

/// When a pair is kept.
#[derive(Copy, Clone, Debug)]
pub(super) struct Trying {
    /// Iterations of the slower job that a trial lasts.
    pub iterations: u32,
    /// By how much the normalised speeds must sum to more than 1, which is what turns give.
    pub gain: f64,
    /// How many trials a job may lose.
    pub tries: u32,
    pub across_tenants: bool,
}

/// A job on what another one leaves, and the other one, if it is still there.
pub(super) type Pairs = Vec<(JobId, Option<JobId>)>;

/// What was seen of jobs alone and of pairs. O(changed + pairs) for each decision, O(64 x running) more while jobs wait.
pub(super) struct Packing {
    by: Trying,
    /// Iterations in a second on a type of GPU, as a job reported them while it was alone.
    alone: FxHashMap<JobId, (GpuType, f64)>,
    /// Guests on trial, and beside which job.
    trials: BTreeMap<JobId, JobId>,
    /// Pairs that were tried and undone, the lower id first.
    lost: BTreeSet<(JobId, JobId)>,
    /// Whether jobs were looked at since the last time that all was forgotten.
    has_looked: bool,
}

impl Packing {
    pub fn new(by: Trying) -> Packing {
        let (alone, trials, lost) = (FxHashMap::default(), BTreeMap::new(), BTreeSet::new());
        Packing { by, alone, trials, lost, has_looked: false }
    }

    pub fn forget(&mut self) {
        self.has_looked = false;
        self.alone.clear();
        self.trials.clear();
        self.lost.clear();
    }

    /// Which jobs are packed by the plan.
    pub fn pairs(view: &View<'_>) -> Pairs {
        let guests: Vec<JobRef<'_>> = view
            .granted()
            .filter(|job| job.state.planned.as_ref().is_some_and(|plan| plan.is_on_leftovers()))
            .collect();
        if guests.is_empty() {
            return Pairs::new();
        }
        let mut hosts: FxHashMap<&Placement, JobId> = FxHashMap::default();
        for job in view.granted() {
            if let Some(planned) = job.state.planned.as_ref().filter(|plan| !plan.is_on_leftovers())
            {
                hosts.insert(&planned.placement, job.id());
            }
        }
        let host = |guest: &JobRef<'_>| {
            let planned = guest.state.planned.as_ref()?;
            hosts.get(&planned.placement).copied()
        };
        guests.iter().map(|guest| (guest.id(), host(guest))).collect()
    }

    /// Learns from what jobs that are alone report.
    pub fn look(&mut self, view: &View<'_>, pairs: &Pairs) {
        for (ended, _) in view.ended() {
            self.alone.remove(ended);
            self.trials.remove(ended);
            self.lost.retain(|(one, other)| one != ended && other != ended);
        }
        let all: Vec<JobId> = match std::mem::replace(&mut self.has_looked, true) {
            true => view.changed().to_vec(),
            false => view.granted().map(|job| job.id()).collect(),
        };
        for id in &all {
            let Some(job) = view.job(*id).filter(|job| job.state.phase == Phase::Running) else {
                continue;
            };
            let rate = job.state.progress.rate.0;
            if rate > 0.0
                && !is_packed(*id, pairs)
                && let Some(kind) = kind_of(job, view)
            {
                self.alone.insert(*id, (kind, rate));
            }
        }
    }

    /// Guests whose host has gone have their GPUs for themselves; trials that are over are kept or undone.
    pub fn judge(&mut self, pairs: &Pairs, view: &View<'_>, offer: &mut Offer<'_>) {
        for (guest, host) in pairs {
            let Some(host) = host.and_then(|host| view.job(host)) else {
                stand_alone(*guest, offer);
                continue;
            };
            let Some(guest) = view.job(*guest) else { continue };
            if self.trials.get(&guest.id()) != Some(&host.id()) {
                continue;
            }
            let Some((together, over)) = self.seen(guest, host) else {
                offer.wake_at(view.now + LATE);
                continue;
            };
            if view.now < over {
                offer.wake_at(over);
                continue;
            }
            self.trials.remove(&guest.id());
            if together <= 1.0 + self.by.gain {
                self.lost.insert(pair(guest.id(), host.id()));
                offer.revoke(guest.id());
            }
        }
    }

    /// The sum of the normalised speeds of a pair of which both run, and when that was looked at for long enough.
    pub fn seen(&self, guest: JobRef<'_>, host: JobRef<'_>) -> Option<(f64, Time)> {
        let runs = |job: JobRef<'_>| job.state.phase == Phase::Running;
        let kept = |job: JobRef<'_>| {
            let (_, alone) = self.alone.get(&job.id())?;
            let rate = job.state.progress.rate.0;
            (rate > 0.0).then_some((rate / alone, rate))
        };
        if !runs(guest) || !runs(host) {
            return None;
        }
        let (own, others) = (kept(guest)?, kept(host)?);
        let slower = own.1.min(others.1);
        let window = Span::from_secs_f64(f64::from(self.by.iterations) / slower);
        Some((own.0 + others.0, guest.state.since.max(host.state.since) + window))
    }

    /// Guests whose host has lost its turn in this offer go with it, unless no job has taken their GPUs.
    pub fn follow(&mut self, pairs: &Pairs, offer: &mut Offer<'_>) {
        for (guest, host) in pairs {
            if host.is_some_and(|host| offer.plan(host).is_none()) {
                stand_alone(*guest, offer);
            }
        }
    }

    /// Puts jobs that still wait beside running ones of the same size, each pair for a trial.
    pub fn pack(&mut self, pairs: &Pairs, view: &View<'_>, offer: &mut Offer<'_>) {
        let mut guests: Vec<JobRef<'_>> = view
            .waiting()
            .filter(|job| offer.plan(job.id()).is_none() && self.is_known(*job))
            .collect();
        guests.sort_by_key(|job| (job.state.queued_at, job.id()));
        if guests.is_empty() {
            return;
        }
        look_again(pairs, view, offer);
        let mut hosts: Vec<JobRef<'_>> = view
            .granted()
            .filter(|job| {
                let runs = job.state.phase == Phase::Running && offer.plan(job.id()).is_some();
                runs && !is_packed(job.id(), pairs) && self.is_known(*job) && view.may_stop(*job)
            })
            .collect();
        for guest in guests.into_iter().take(GUESTS_MAX) {
            let beside = |host: &JobRef<'_>| self.may_meet(guest, *host, view);
            let found =
                hosts.iter().enumerate().filter(|(_, host)| beside(host)).find_map(|(at, host)| {
                    let place = offer.plan(host.id())?.placement.clone();
                    let mut grant = Grant::gpus(guest.id(), place.gpus()).share(Share::Leftover);
                    grant.shape = Shape::Exact(place);
                    (offer.grant(&grant) == GrantOutcome::Taken).then_some((at, host.id()))
                });
            if let Some((at, host)) = found {
                hosts.remove(at);
                self.trials.insert(guest.id(), host);
            }
        }
    }

    /// Whether it is known how fast a job is alone, and it may be packed at all.
    fn is_known(&self, job: JobRef<'_>) -> bool {
        let losses = self.lost.iter().filter(|(one, other)| [*one, *other].contains(&job.id()));
        let whole = job.spec.want.permille >= 1000 && job.spec.preemptible;
        whole && self.alone.contains_key(&job.id()) && losses.count() < self.by.tries as usize
    }

    fn may_meet(&self, guest: JobRef<'_>, host: JobRef<'_>, view: &View<'_>) -> bool {
        let tenants = self.by.across_tenants || guest.spec.tenant == host.spec.tenant;
        let Some(planned) = &host.state.planned else { return false };
        let (want, place) = (&guest.spec.want, &planned.placement);
        let near = want.nodes_max == 0 || place.nodes() <= u32::from(want.nodes_max);
        let accepted = place.masks().iter().all(|(node, _)| {
            let node = view.cluster().node(*node);
            want.accepts(node.kind) && want.pool.is_none_or(|pool| node.pool == pool)
        });
        // Speeds alone are compared on the type on which they were seen.
        let kind = |job: JobRef<'_>| self.alone.get(&job.id()).map(|(kind, _)| *kind);
        let alike = kind(guest) == kind(host) && kind(host) == kind_of(host, view);
        tenants
            && near
            && accepted
            && alike
            && place.gpus() == want.gpus
            && !self.lost.contains(&pair(guest.id(), host.id()))
    }

    /// A packed job moves to idle GPUs where both lose more than the move costs: the end of interference.
    pub fn unpack(&mut self, pairs: &Pairs, turn: &Turns, view: &View<'_>, offer: &mut Offer<'_>) {
        for (guest, host) in pairs {
            let (Some(guest), Some(host)) =
                (view.job(*guest), host.and_then(|host| view.job(host)))
            else {
                continue;
            };
            let Some((together, over)) = self.seen(guest, host) else { continue };
            let Some(planned) = &guest.state.planned else { continue };
            let pays = guest.state.since + turn.least(guest, planned, view) <= view.now;
            let enough = offer.free().total() >= planned.placement.gpus();
            if over <= view.now
                && together < 2.0 - turn.overhead
                && pays
                && enough
                && view.may_stop(guest)
            {
                offer.grant(&wanted(guest));
            }
        }
    }
}

/// A job on what another one left has its GPUs whole from now on; if another job has taken them, it stops.
fn stand_alone(guest: JobId, offer: &mut Offer<'_>) {
    let Some(plan) = offer.plan(guest).filter(|plan| plan.is_on_leftovers()).cloned() else {
        return;
    };
    let Allocation { knobs, gpu_memory_mib, .. } = plan;
    if !offer.set_terms(guest, Terms { share: Share::Whole, knobs, gpu_memory_mib }) {
        offer.revoke(guest);
    }
}

/// A job that is being started could be packed once it was seen to run alone: it is looked at again when it should.
fn look_again(pairs: &Pairs, view: &View<'_>, offer: &mut Offer<'_>) {
    let mut next: Option<Time> = None;
    for job in view.granted().chain(view.waiting()) {
        let settled = job.state.phase == Phase::Running || is_packed(job.id(), pairs);
        let Some(plan) = offer.plan(job.id()).filter(|_| !settled) else { continue };
        let start = view.change(job, None, Some(&plan.config(view.cluster()))).start;
        let launched = job.state.last_start.filter(|_| job.state.phase == Phase::Starting);
        let time = (launched.unwrap_or(view.now) + start).max(view.now + LATE);
        next = Some(next.map_or(time, |next| next.min(time)));
    }
    if let Some(next) = next {
        offer.wake_at(next);
    }
}

/// Whether a job shares its GPUs with another one.
pub(super) fn is_packed(job: JobId, pairs: &Pairs) -> bool {
    pairs.iter().any(|(guest, host)| *guest == job || *host == Some(job))
}

fn kind_of(job: JobRef<'_>, view: &View<'_>) -> Option<GpuType> {
    job.state.held.as_ref()?.config(view.cluster()).kind()
}

fn pair(one: JobId, other: JobId) -> (JobId, JobId) {
    (one.min(other), one.max(other))
}
