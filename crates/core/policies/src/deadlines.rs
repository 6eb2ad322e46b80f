//! What policies with deadlines share: whether one can still be met, and the verdict on those that cannot.

use crate::prelude::*;
use trainyard_framework::Admission;

/// What becomes of jobs whose deadline is lost.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Hopeless {
    /// They come after all other jobs.
    #[default]
    Last,
    /// They keep their turn, and may make others late.
    InOrder,
}

/// The latest moment from which a job must run without pause to meet its deadline, in microseconds: the deadline less
/// the time left, before time began if that is more. Nothing for a job without a deadline or of unknown length.
pub(crate) fn latest_start(job: JobRef<'_>, view: &View<'_>) -> Option<i64> {
    let (deadline, left) = (job.spec.deadline()?.0, view.time_left(job)?.0);
    let signed = |value: u64| value.min(i64::MAX as u64) as i64;
    Some(signed(deadline).saturating_sub(signed(left)))
}

/// Whether a job misses its deadline even if it runs without pause from now on.
pub(crate) fn is_lost(latest: i64, now: Time) -> bool {
    u64::try_from(latest).is_err() || (latest as u64) < now.0
}

/// The moment after which a waiting job has lost its deadline; nothing if it has already.
pub(crate) fn lost_at(job: JobRef<'_>, view: &View<'_>) -> Option<Time> {
    let latest = latest_start(job, view).filter(|latest| !is_lost(*latest, view.now))?;
    Some(Time(latest as u64) + Span(1))
}

/// By how much a job misses its deadline if it runs without pause from now on.
pub(crate) fn lateness(job: JobRef<'_>, view: &View<'_>) -> Option<Span> {
    let (deadline, left) = (job.spec.deadline()?, view.time_to_end(job)?);
    Some((view.now + left).since(deadline)).filter(|late| *late > Span::ZERO)
}

/// Why a job can run nowhere, whatever becomes free: its least is above its most, or above all GPUs of any type that
/// it accepts and that have the memory it needs.
pub(crate) fn contradiction(job: JobRef<'_>, view: &View<'_>) -> Option<Reason> {
    let (want, cluster) = (&job.spec.want, view.cluster());
    if want.gpus_min > want.gpus_max {
        return Some(Reason::NeverFits { need: want.gpus_min, most: want.gpus_max });
    }
    let mut gpus = vec![0; cluster.kinds.len()];
    for node in &cluster.nodes {
        let memory = cluster.kinds[node.kind.index()].memory_mib;
        if want.accepts(node.kind) && (memory == 0 || memory >= want.gpu_memory_mib) {
            gpus[node.kind.index()] += u32::from(node.gpus);
        }
    }
    let most = gpus.into_iter().max().unwrap_or(0);
    (want.gpus_min > most).then_some(Reason::NeverFits { need: want.gpus_min, most })
}

/// Leaves a note on each job that goes on waiting though its deadline is lost.
pub(crate) fn note_lost(view: &View<'_>, offer: &mut Offer<'_>) {
    for job in view.waiting() {
        if offer.plan(job.id()).is_none()
            && let Some(late) = lateness(job, view)
        {
            offer.note(job.id(), Reason::DeadlineLost { late });
        }
    }
}

/// A policy that says of each waiting job whose deadline is lost that it is, and sends away jobs that contradict
/// themselves. Adds O(waiting jobs) to a decision.
pub(crate) struct Judged<P>(pub(crate) P);

impl<P: Policy> Policy for Judged<P> {
    fn admit(&mut self, queue: &mut Admission<'_>, view: &View<'_>, _cx: &mut Cx) {
        while let Some(id) = queue.next() {
            match view.job(id).and_then(|job| contradiction(job, view)) {
                Some(reason) => queue.reject(reason),
                None => queue.accept(),
            }
        }
    }

    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        self.0.allocate(view, offer, cx)?;
        note_lost(view, offer);
        Ok(())
    }

    fn forget(&mut self) {
        self.0.forget();
    }
}
