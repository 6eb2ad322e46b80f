//! The jobs that hold GPUs: found in constant time, listed by id.

use crate::world::Placed;
use rustc_hash::FxHashMap;
use std::ops::Index;
use trainyard_types::{IdSet, JobId};

/// The jobs that hold GPUs. Takes room for those there are, not for all that ever were, but for a bit each.
#[derive(Default)]
pub(crate) struct PlacedJobs {
    /// Boxed, because a map moves its values when others come and go.
    by_id: FxHashMap<JobId, Box<Placed>>,
    ids: IdSet<JobId>,
}

impl PlacedJobs {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(crate) fn get(&self, job: JobId) -> Option<&Placed> {
        self.by_id.get(&job).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, job: JobId) -> Option<&mut Placed> {
        self.by_id.get_mut(&job).map(Box::as_mut)
    }

    pub(crate) fn insert(&mut self, job: JobId, placed: Placed) {
        self.by_id.insert(job, Box::new(placed));
        self.ids.insert(job);
    }

    pub(crate) fn remove(&mut self, job: JobId) -> Option<Box<Placed>> {
        self.ids.remove(job);
        self.by_id.remove(&job)
    }

    /// Their ids, ascending.
    pub(crate) fn keys(&self) -> impl Iterator<Item = JobId> + '_ {
        self.ids.iter()
    }

    /// All of them by ascending id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (JobId, &Placed)> + '_ {
        self.ids.iter().map(|job| (job, &self[job]))
    }

    /// All of them by ascending id, without their ids.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Placed> + '_ {
        self.iter().map(|(_, placed)| placed)
    }
}

impl Index<JobId> for PlacedJobs {
    type Output = Placed;

    fn index(&self, job: JobId) -> &Placed {
        self.get(job).expect("the job holds GPUs")
    }
}
