//! Jobs that share a GPU: what they are promised of it, and what they get.

use super::Core;
use super::obey::shared_permille;
use crate::record::Record;
use trainyard_backend::{Order, SharingOrder, SharingSeen};
use trainyard_types::{Allocation, Attempt, JobId, Occupant};

impl Core {
    /// What the backend holds an attempt to; nothing where it has its GPUs for itself.
    pub(super) fn sharing_order(
        &self,
        record: &Record,
        allocation: &Allocation,
    ) -> Option<SharingOrder> {
        let job = &record.submission.job;
        let gpus = allocation.placement.gpus() as usize;
        // With one GPU there is one share; of several, which the backend refuses to hold, the least is told.
        let least = (0..gpus)
            .map(|index| allocation.occupant(job.model, index))
            .min_by_key(|one| one.request)?;
        let Occupant { request, limit, .. } = least;
        if request >= 1000 {
            return None;
        }
        let (spec, _) = record.submission.unpack();
        let limit = match allocation.knobs.compute_permille_max {
            Some(limit) => limit,
            None => limit.max(spec.gpu_permille_max.unwrap_or(0)),
        };
        let memory = allocation.knobs.memory_mib_max.unwrap_or(allocation.gpu_memory_mib);
        Some(SharingOrder {
            request,
            limit: limit.clamp(request.max(1), 1000),
            memory_mib: (memory > 0).then_some(memory),
            place: None,
        })
    }

    /// What the backend holds a running attempt to: one that has its GPU for itself now may have been started with a share.
    fn share_now(&self, record: &Record, allocation: &Allocation) -> SharingOrder {
        let memory = allocation.knobs.memory_mib_max.unwrap_or(allocation.gpu_memory_mib);
        let memory_mib = (memory > 0).then_some(memory);
        let whole = SharingOrder { request: 1000, limit: 1000, memory_mib, place: None };
        self.sharing_order(record, allocation).unwrap_or(whole)
    }

    /// A job goes on with another share of its GPU, which is no restart.
    pub(super) fn change_share(&mut self, job: JobId, attempt: Attempt, to: &Allocation) {
        let Some(record) = self.records.get(&job) else { return };
        let order = self.share_now(record, to);
        let told = record.launch.as_ref().map(|launch| launch.permille);
        if told.is_some_and(|told| told != shared_permille(to)) {
            self.note_held(job, false);
        }
        self.turn.orders.push(Order::Share(job, attempt, order));
    }

    /// Tells a job, perhaps once more, of its share: the last change may have been on disk and not ordered yet.
    pub(super) fn share_again(&mut self, job: JobId, attempt: Attempt) {
        let held = self.engine.state().live(job).and_then(|live| live.state.held.clone());
        if let Some(held) = held {
            self.change_share(job, attempt, &held);
        }
    }

    /// What the arbiter of a GPU told of the jobs there.
    pub(super) fn sharing_seen(&mut self, gpu: u8, seen: Vec<SharingSeen>) {
        self.shared.retain(|_, one| one.gpu != gpu);
        for one in seen {
            if self.is_current(one.job, one.attempt) {
                self.shared.insert(one.job, one);
            }
        }
    }
}
