//! Another policy offers over a part of the jobs and a part of the GPUs, and what it comes to is joined in.

use super::{Offer, Outcome};
use crate::{Cx, JobRef};
use crate::{Free, Policy, PolicyError, View};
use trainyard_types::{JobId, NodeId};

/// The GPUs of a part, by node.
#[derive(Clone, Debug, Default)]
pub struct PartGpus {
    /// Those it may use.
    pub may: Vec<u64>,
    /// Those of them that it leaves to others while there is room elsewhere.
    pub spare: Vec<u64>,
}

impl Offer<'_> {
    /// Lets a policy that sees a part of the jobs offer over a part of the GPUs; to it the others are out of service.
    /// The jobs of the part are in the view that is handed in, and what is free is what this offer has left so far.
    ///
    /// Linear in the nodes.
    pub fn part(
        &mut self,
        policy: &mut dyn Policy,
        view: &View<'_>,
        gpus: &PartGpus,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let mut free = self.free.clone();
        limit(&mut free, |node, up| up & gpus.may.get(node).copied().unwrap_or(0));
        let open = gpus.spare.iter().any(|mask| *mask != 0).then(|| {
            let mut open = free.clone();
            limit(&mut open, |node, up| up & !gpus.spare.get(node).copied().unwrap_or(0));
            Box::new(open)
        });
        let mut inner = Offer::new(view, &mut free, &mut *self.place);
        inner.open = open;
        inner.used_permille.clone_from(&self.used_permille);
        let answer = policy.allocate(view, &mut inner, cx);
        let outcome = inner.finish();
        answer?;
        self.join(outcome);
        Ok(())
    }

    /// Gives a job that was revoked in this offer its former plan back. False if that is not possible any more.
    pub fn keep(&mut self, job: JobRef<'_>) -> bool {
        self.restore(job.id(), None);
        self.plan(job.id()).is_some()
    }

    /// Takes what an inner offer came to, takings before givings, so that two jobs may change places.
    fn join(&mut self, outcome: Outcome) {
        let Outcome { changes, ends, back: _, notes, faults, wake_at, idle } = outcome;
        let jobs: Vec<JobId> = changes.iter().map(|change| change.job).collect();
        jobs.into_iter().for_each(|job| self.lift(job));
        for change in changes {
            if let Some(to) = change.to {
                self.put(change.job, to);
                self.touched.entry(change.job).is_granted = true;
            }
        }
        self.ends.extend(ends);
        self.notes.extend(notes);
        self.faults.extend(faults);
        self.conserve &= !idle;
        if let Some(at) = wake_at {
            self.wake_at(at);
        }
    }
}

/// Leaves some GPUs of each node in service.
fn limit(free: &mut Free, left: impl Fn(usize, u64) -> u64) {
    for node in (0..free.nodes()).map(NodeId) {
        let up = free.up(node);
        let stays = left(node.index(), up);
        if stays != up {
            free.set_up(node, stays);
        }
    }
}
