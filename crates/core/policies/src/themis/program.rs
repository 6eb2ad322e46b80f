//! Themis as a program: the worst finish-time fairness is made as good as it can be, and jobs run in the order of how far
//! they are behind the fractions of time that come out.

use super::central::central;
use super::fairest::{Finish, fairest};
use super::lease_end;
use crate::prelude::*;
use std::collections::BTreeMap;

/// Which of the answers with the least worst rho is taken.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Method {
    /// The one whose second worst is least too, and so on: it depends on no solver.
    #[default]
    Lexicographic,
    /// The one at which an interior point stops, near the middle of all.
    Interior,
}

/// O(n) for each step of a bisection, or one conic program, and O(n log n) for the order, at each decision.
pub(crate) struct Program {
    /// As Muri's simulator does it: the cluster is refilled at each event, and the time alone is counted in iterations
    /// while the time shared is counted in seconds.
    pub muri: bool,
    pub method: Method,
    /// How long a job keeps its GPUs.
    pub lease: Span,
    pub list: Vec<JobId>,
    pub seen: BTreeMap<JobId, ServiceRecord>,
    pub last: Time,
}

/// What is remembered of a job; after a restart it is made up from what the job has done.
#[derive(Copy, Clone, Default)]
pub(crate) struct ServiceRecord {
    /// Time that its work so far would have taken alone.
    alone: f64,
    /// Work left, and the part of its wish that it would have had alone, when it was last looked at.
    left: f64,
    part: f64,
    /// Time it should have run by the fractions so far.
    due: f64,
}

/// A job in the order.
struct Turn {
    id: JobId,
    behind: f64,
    deficit: f64,
    fraction: f64,
}

impl Program {
    pub fn new(muri: bool, method: Method, lease: Span) -> Program {
        Program { muri, method, lease, list: Vec::new(), seen: BTreeMap::new(), last: Time::ZERO }
    }

    pub fn allocate(&mut self, view: &View<'_>, offer: &mut Offer<'_>) -> Result<(), PolicyError> {
        self.refresh(view);
        let gpus = f64::from(offer.free().in_service_total());
        if self.list.is_empty() || gpus == 0.0 {
            return Ok(());
        }
        let order = self.order(gpus, view)?;
        offer.everything();
        for turn in &order {
            let Some(job) = view.job(turn.id) else { continue };
            if offer.plan(turn.id).is_some() {
                continue;
            }
            let mut grant = wanted(job);
            grant.lease_until = (!self.muri).then(|| lease_end(view.now, self.lease, 1.0));
            offer.grant(&grant);
        }
        if !self.muri && order.iter().any(|turn| offer.plan(turn.id).is_none()) {
            let leases = order.iter().filter_map(|turn| offer.plan(turn.id)?.lease_until);
            if let Some(next) = leases.filter(|time| *time > view.now).min() {
                offer.wake_at(next);
            }
        }
        // Muri places the largest first, and that order is the next one's tie.
        let size = |id: &JobId| view.job(*id).map_or(0, |job| job.spec.want.gpus);
        self.list = order.iter().map(|turn| turn.id).collect();
        self.list.sort_by_key(|id| std::cmp::Reverse(size(id)));
        Ok(())
    }

    pub fn forget(&mut self) {
        *self = Program::new(self.muri, self.method, self.lease);
    }

    fn refresh(&mut self, view: &View<'_>) {
        let state = view.state();
        let active = |job: &JobId| state.waiting.contains(*job) || state.granted.contains(*job);
        self.list.retain(active);
        self.seen.retain(|job, _| active(job));
        let known: std::collections::BTreeSet<JobId> = self.list.iter().copied().collect();
        let mut new: Vec<JobId> = state.waiting.iter().chain(state.granted.iter()).collect();
        new.retain(|job| !known.contains(job));
        new.sort_unstable();
        self.list.append(&mut new);
    }

    /// All jobs, furthest behind first.
    fn order(&mut self, gpus: f64, view: &View<'_>) -> Result<Vec<Turn>, PolicyError> {
        let mut jobs = Vec::with_capacity(self.list.len());
        for index in 0..self.list.len() {
            jobs.push(self.finish(self.list[index], gpus, view)?);
        }
        let fractions = self.fractions(&jobs, gpus);
        let since = view.now.since(self.last).as_secs_f64();
        self.last = view.now;
        let mut order: Vec<Turn> = Vec::with_capacity(jobs.len());
        for (&id, &fraction) in self.list.iter().zip(&fractions) {
            let Some(job) = view.job(id) else { continue };
            let ran = job.state.ran(view.now).as_secs_f64();
            let seen = self.seen.entry(id).or_default();
            let deficit = seen.due - ran;
            seen.due += fraction * since;
            let behind = if ran == 0.0 { fraction * 1e9 } else { fraction / ran };
            order.push(Turn { id, behind, deficit, fraction });
        }
        order.sort_by(|a, b| {
            let by_need = b.behind.total_cmp(&a.behind).then(b.deficit.total_cmp(&a.deficit));
            by_need.then(b.fraction.total_cmp(&a.fraction))
        });
        Ok(order)
    }

    /// Where the arithmetic of the interior point breaks down, the other answer, which is as good, is taken.
    fn fractions(&self, jobs: &[Finish], gpus: f64) -> Vec<f64> {
        let (fractions, worst) = fairest(jobs, gpus);
        match self.method {
            Method::Lexicographic => fractions,
            Method::Interior => central(jobs, gpus, worst).unwrap_or(fractions),
        }
    }

    /// A job as the program sees it.
    fn finish(&mut self, id: JobId, gpus: f64, view: &View<'_>) -> Result<Finish, PolicyError> {
        let job = view.job(id).ok_or(PolicyError::NoEstimate { job: id })?;
        let wanted =
            f64::from(job.spec.want.gpus.max(1)) * f64::from(job.spec.want.permille) / 1000.0;
        let elapsed = view.now.since(job.spec.submitted).as_secs_f64();
        let rate = view.reference_rate(job).map_or(1.0, |rate| rate.0);
        let rate = if rate > 0.0 && rate.is_finite() { rate } else { 1.0 };
        // A job of unknown length is expected to run as long again as it has, and a lease at least.
        let unknown = job.state.ran(view.now).max(self.lease).as_secs_f64() * rate;
        let left = view.work_left(job).map_or(unknown, |work| work.0).max(1e-9);
        let each = gpus / self.list.len() as f64;
        let part = ((if self.muri { each.ceil() } else { each }) / wanted).min(1.0);
        let unit = if self.muri { 1.0 } else { rate };
        let seen = self.seen.entry(id).or_insert_with(|| {
            let done = job.state.progress.done_at(view.now).0;
            ServiceRecord { alone: done / (part * unit), left, part, due: 0.0 }
        });
        seen.alone += (seen.left - left).max(0.0) / (seen.part * unit);
        (seen.left, seen.part) = (left, part);
        let alone = seen.alone + left / (part * unit);
        Ok(Finish { elapsed, left: left / rate, rate, alone, gpus: wanted })
    }
}
