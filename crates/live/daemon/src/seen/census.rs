//! What one walk over all jobs tells: made once for a moment, however many lists, pages and metrics are made from it.

use trainyard_framework::State;
use trainyard_types::{JobId, Phase};

/// Jobs counted, and those that are asked about apart.
#[derive(Debug)]
pub(crate) struct Census {
    /// For each tenant its jobs in each of [`Phase::ALL`], without those of tenants below it.
    counts: Vec<[u64; Phase::ALL.len()]>,
    /// Jobs that hold GPUs, by id.
    pub(crate) holders: Vec<JobId>,
    /// For each tenant its first job that waits.
    pub(crate) first_waiting: Vec<Option<JobId>>,
    /// GPUs asked for by all that wait.
    pub(crate) gpus_wanted: u64,
}

impl Census {
    pub(crate) fn new(state: &State) -> Census {
        let tenants = state.tenants.len();
        let mut census = Census {
            counts: vec![[0; Phase::ALL.len()]; tenants],
            holders: Vec::new(),
            first_waiting: vec![None; tenants],
            gpus_wanted: 0,
        };
        for (id, live) in state.jobs.iter() {
            let (spec, tenant) = (&live.spec, live.spec.tenant.index());
            census.counts[tenant][live.state.phase as usize] += 1;
            if live.state.held.is_some() {
                census.holders.push(id);
            }
            if state.waiting.contains(id) {
                census.first_waiting[tenant].get_or_insert(id);
                census.gpus_wanted += u64::from(spec.want.gpus);
            }
        }
        census
    }

    /// Phases by name with the jobs of all tenants in them, those with none left out.
    pub(crate) fn phases(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let sum = |phase: Phase| self.counts.iter().map(|own| own[phase as usize]).sum();
        Phase::ALL.into_iter().map(move |phase| (phase.name(), sum(phase))).filter(|one| one.1 > 0)
    }

    /// Jobs of one tenant by phase, those that hold GPUs and phases without jobs left out.
    pub(crate) fn pending(&self, tenant: usize) -> impl Iterator<Item = (&'static str, u64)> {
        let own = self.counts[tenant];
        let before =
            [Phase::Blocked, Phase::Unadmitted, Phase::Waiting, Phase::Suspended].into_iter();
        before.map(move |phase| (phase.name(), own[phase as usize])).filter(|one| one.1 > 0)
    }

    /// Jobs of one tenant without GPUs, and with.
    pub(crate) fn waiting_and_running(&self, tenant: usize) -> (u32, u32) {
        let own = &self.counts[tenant];
        let running = own[Phase::Starting as usize..].iter().sum::<u64>();
        let all = own.iter().sum::<u64>();
        ((all - running) as u32, running as u32)
    }
}
