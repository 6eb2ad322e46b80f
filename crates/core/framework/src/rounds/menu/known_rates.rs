//! Speeds of jobs alone, as long as what they follow from stays as it is.

use crate::{JobRef, View};
use rustc_hash::FxHashMap;
use trainyard_types::{GpuType, JobId};

/// What a menu was told of jobs at the size that they ask for, so that it need not ask again at each change of the jobs.
#[derive(Debug, Default)]
pub struct KnownRates {
    made_from: Option<RateBasis>,
    /// By job and number of the type, with the GPUs for which it was asked.
    of: FxHashMap<(JobId, usize), (u32, f64)>,
}

/// What speeds follow from, but for the job.
#[derive(Clone, Debug, PartialEq)]
struct RateBasis {
    beliefs: u64,
    shapes: Vec<(GpuType, u32)>,
    capacity: Vec<u32>,
    oversized: bool,
}

impl KnownRates {
    /// Forgets what no longer holds; jobs that ended go with all the others from time to time.
    pub(super) fn refresh(&mut self, view: &View<'_>, capacity: &[u32], oversized: bool) {
        let shapes = &view.state().shapes;
        let now = view.beliefs_version().map(|beliefs| RateBasis {
            beliefs,
            shapes: shapes.clone(),
            capacity: capacity.to_vec(),
            oversized,
        });
        let active = view.waiting_len() + view.granted_len();
        let is_large = self.of.len() > 2 * active * shapes.len() + 64;
        if now.is_none() || now != self.made_from || is_large {
            self.of.clear();
            self.made_from = now;
        }
    }

    pub(super) fn get(&self, job: JobRef<'_>, kind: usize) -> Option<f64> {
        let known = self.of.get(&(job.id(), kind));
        known.filter(|(gpus, _)| *gpus == job.spec.want.gpus).map(|(_, rate)| *rate)
    }

    pub(super) fn keep(&mut self, job: JobRef<'_>, kind: usize, rate: f64) {
        if self.made_from.is_some() {
            self.of.insert((job.id(), kind), (job.spec.want.gpus, rate));
        }
    }
}
