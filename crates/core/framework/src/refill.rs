//! The persistent list behind [`crate::Mode::Refill`]: the published simulators sort one list stably at every
//! event, so that ties are decided by history. Linear in the number of jobs; meant for comparisons, not for size. Keys that
//! stay while a job waits are kept in order by [`crate::steady`] instead.

use crate::{Key, Rank, View};
use std::collections::BTreeMap;
use trainyard_types::JobId;

/// All active jobs in the order of the last decision.
#[derive(Default)]
pub(crate) struct Refill {
    list: Vec<JobId>,
    keys: BTreeMap<JobId, Key>,
}

impl Refill {
    /// The jobs in order.
    pub(crate) fn jobs(&self) -> &[JobId] {
        &self.list
    }

    /// Drops jobs that ended, adds new ones at the tail, moves those whose tier changed to the tail if asked to,
    /// and sorts stably by key.
    pub(crate) fn order<R: Rank>(&mut self, rank: &mut R, view: &View<'_>, tail_on_tier: bool) {
        let state = view.state();
        let active = |job: &JobId| state.waiting.contains(*job) || state.granted.contains(*job);
        for &job in &self.list {
            if view.job(job).is_none() {
                rank.over(job, view);
            }
        }
        self.list.retain(active);
        self.keys.retain(|job, _| active(job));
        let mut moved = Vec::new();
        for job in state.waiting.iter().chain(state.granted.iter()) {
            if !self.keys.contains_key(&job) {
                moved.push(job);
            }
        }
        self.list.append(&mut moved);
        let mut ids: Vec<JobId> = self.list.clone();
        ids.sort_unstable();
        for id in ids {
            let Some(job) = view.job(id) else { continue };
            let key = rank.rank(job, view);
            if let Some(old) = self.keys.insert(id, key)
                && tail_on_tier
                && old.tier != key.tier
            {
                moved.push(id);
            }
        }
        if !moved.is_empty() {
            self.list.retain(|job| !moved.contains(job));
            self.list.append(&mut moved);
        }
        let keys = &self.keys;
        self.list.sort_by_key(|job| keys[job]);
    }

    /// Moves those left out behind those that run, keeping the order on both sides.
    pub(crate) fn requeue(&mut self, runs: impl Fn(JobId) -> bool) {
        let (run, left): (Vec<_>, Vec<_>) = self.list.iter().partition(|job| runs(**job));
        self.list = run;
        self.list.extend(left);
    }
}
