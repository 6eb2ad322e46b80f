//! What the policy inside a virtual cluster sees: the jobs of that cluster alone.

use crate::prelude::*;
use std::sync::Arc;
use trainyard_framework::{Live, State};

/// One policy and the jobs it is asked about.
pub(super) struct Part {
    pub(super) policy: Box<dyn Policy>,
    pub(super) state: State,
}

impl Part {
    pub(super) fn new(policy: Box<dyn Policy>, view: &View<'_>) -> Part {
        let of = view.state();
        let mut state = State::new(of.cluster.clone(), of.tenants.clone());
        state.usage_half_life = of.usage_half_life;
        Part { policy, state }
    }

    /// Takes over what is the same for all parts at a decision.
    pub(super) fn begin(&mut self, view: &View<'_>) {
        let of = view.state();
        if self.state.tenants != of.tenants {
            self.state.tenants = of.tenants.clone();
            self.state.has_ceilings = of.has_ceilings;
        }
        self.state.used_permille.clone_from(&of.used_permille);
        self.state.usage.clone_from(&of.usage);
        self.state.windows = of.windows.clone();
        (self.state.now, self.state.decisions) = (of.now, of.decisions);
        self.state.keeps_rounds = of.keeps_rounds;
        self.state.changed.clear();
        self.state.ended.clear();
    }

    /// A job is not of this part any more, or over.
    pub(super) fn drop_job(&mut self, job: JobId) {
        if self.is_admitted(job) {
            let gpus = self.state.live(job).map_or(0, |live| u64::from(live.spec.want.gpus));
            self.state.demand -= gpus;
        }
        self.state.jobs.remove(&job);
        self.state.waiting.remove(job);
        self.state.granted.remove(job);
        self.state.unadmitted.remove(job);
    }

    /// A job of this part as it is now.
    pub(super) fn put_job(&mut self, job: JobId, view: &View<'_>) {
        let of = view.state();
        let Some(live) = of.jobs.get(&job) else { return };
        let before = self.is_admitted(job);
        self.state.jobs.insert(job, live.clone());
        for (own, others) in [
            (&mut self.state.waiting, &of.waiting),
            (&mut self.state.granted, &of.granted),
            (&mut self.state.unadmitted, &of.unadmitted),
        ] {
            if others.contains(job) {
                own.insert(job);
            } else {
                own.remove(job);
            }
        }
        let gpus = u64::from(live.spec.want.gpus);
        match (before, self.is_admitted(job)) {
            (false, true) => self.state.demand += gpus,
            (true, false) => self.state.demand -= gpus,
            _ => {}
        }
    }

    /// A job lost its GPUs to a guaranteed one in this very decision.
    pub(super) fn take_grant(&mut self, job: JobId) {
        if !self.state.granted.contains(job) {
            return;
        }
        self.state.granted.remove(job);
        self.state.waiting.insert(job);
        self.state.changed.push(job);
        if let Some(live) = self.state.jobs.get_mut(&job) {
            let live: &mut Live = Arc::make_mut(live);
            live.state.planned = None;
        }
    }

    fn is_admitted(&self, job: JobId) -> bool {
        self.state.waiting.contains(job) || self.state.granted.contains(job)
    }
}
