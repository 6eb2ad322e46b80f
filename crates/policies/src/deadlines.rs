//! What policies with deadlines share: whether one can still be met, and the verdict on those that cannot.

use crate::prelude::*;
use trainyard_framework::Admission;

/// What becomes of jobs whose deadline is lost.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Hopeless {
    /// They come after everyone else.
    #[default]
    Last,
    /// They keep their turn, and may make others late.
    InOrder,
}

/// The latest moment at which a job must run without pause to meet its deadline: the deadline less the time left.
/// Nothing for a job without a deadline or of unknown length; zero if that moment lies before time began.
pub(crate) fn latest_start(job: JobRef<'_>, view: &View<'_>) -> Option<Time> {
    let deadline = job.spec.deadline()?;
    Some(Time(deadline.0.saturating_sub(view.time_left(job)?.0)))
}

/// By how much a job misses its deadline if it runs without pause from now on.
pub(crate) fn lateness(job: JobRef<'_>, view: &View<'_>) -> Option<Span> {
    let (deadline, left) = (job.spec.deadline()?, view.time_to_end(job)?);
    Some((view.now + left).since(deadline)).filter(|late| *late > Span::ZERO)
}

/// Why a job can run nowhere, whatever becomes free.
pub(crate) fn contradiction(job: JobRef<'_>) -> Option<Reason> {
    let want = &job.spec.want;
    (want.gpus_min > want.gpus_max)
        .then_some(Reason::NeverFits { need: want.gpus_min, most: want.gpus_max })
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

/// A policy that says of each waiting job whose deadline is lost that it is, and sends away who contradicts itself.
/// Adds O(waiting jobs) to a decision.
pub(crate) struct Judged<P>(pub(crate) P);

impl<P: Policy> Policy for Judged<P> {
    fn admit(&mut self, queue: &mut Admission<'_>, view: &View<'_>, _cx: &mut Cx) {
        while let Some(id) = queue.next() {
            match view.job(id).and_then(contradiction) {
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
