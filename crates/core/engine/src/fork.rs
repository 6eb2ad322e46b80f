//! The engine once more, to be led elsewhere: what would come of this moment if things went on in a stated way.

use crate::engine::{Engine, Stats};
use crate::fallback;
use std::sync::Arc;
use trainyard_framework::Beliefs;
use trainyard_types::{JobId, Time};

impl Engine {
    /// The same engine once more at a moment from now on, with a count of its own. Jobs are shared until one of the two writes them.
    ///
    /// A question that is out is asked again, for its answer goes to the other one. What is ordered but not yet done
    /// stands as ordered: the caller that drives the fork says what becomes of it. Only resizes in place are taken for
    /// done, and those to come are done at once.
    pub fn fork(&self, at: Time) -> Engine {
        let mut fork = Engine {
            state: self.state.clone(),
            free: self.free.clone(),
            real: self.real.clone(),
            machines: self.machines.clone(),
            beliefs: Arc::clone(&self.beliefs),
            setup: self.setup,
            timers: self.timers.clone(),
            blocked: self.blocked.clone(),
            dependents: self.dependents.clone(),
            ends: self.ends.clone(),
            ending: self.ending.clone(),
            evicted: self.evicted.clone(),
            leaving: self.leaving.clone(),
            dirty: self.dirty.clone(),
            requeued: self.requeued.clone(),
            resizing: self.resizing.clone(),
            suspending: self.suspending.clone(),
            discarding: self.discarding.clone(),
            touched: self.touched.clone(),
            asked: false,
            notes: self.notes.clone(),
            wake_at: self.wake_at,
            wants_decision: self.wants_decision || self.asked,
            round_over: self.round_over,
            decided_at: self.decided_at,
            outbox: Vec::new(),
            over: Vec::new(),
            stats: Stats::default(),
            policy_failures: self.policy_failures,
            policy_retry_at: self.policy_retry_at,
            fallback: fallback::pipeline(),
        };
        fork.advance(at);
        fork.end_resizes();
        fork
    }

    /// Believes something else from now on.
    pub fn believe(&mut self, beliefs: Arc<dyn Beliefs>) {
        self.beliefs = beliefs;
    }

    /// What is believed about speeds and sizes, to be shared.
    pub fn shared_beliefs(&self) -> Arc<dyn Beliefs> {
        Arc::clone(&self.beliefs)
    }

    /// How it is set up.
    pub fn setup(&self) -> &crate::setup::Setup {
        &self.setup
    }

    /// Whether a step would do something at this very moment, though nothing more happens.
    pub fn wants_step(&self) -> bool {
        !self.outbox.is_empty() || self.decision_due(self.state.now) && self.wants_decision
    }

    /// Whether a step at a moment would ask the policy, as far as is known now.
    pub fn decides(&self, at: Time) -> bool {
        self.decision_due(at)
    }

    /// Whether a user keeps a job aside, so that only a user can let it go on.
    pub fn is_held(&self, job: JobId) -> bool {
        self.blocked.get(&job).is_some_and(|block| block.by_user)
    }

    /// Whether the host keeps a job back because enough of its array run.
    pub fn is_throttled(&self, job: JobId) -> bool {
        self.blocked.get(&job).is_some_and(|block| block.throttled)
    }
}
