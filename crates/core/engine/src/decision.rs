//! The one decision path: a request, what came of asking the policy, and its conclusion.
//!
//! A host that waits for the policy calls [`Engine::step`], which borrows the engine's own state and goes all the way.
//! A host that goes on meanwhile takes the request with it ([`Engine::request`]) and comes back with the outcome
//! ([`Engine::conclude`]). Both ask through [`think`] and take the answer through the same conclusion, so that a policy
//! that errs, panics or lies has the same effect in both.

use crate::engine::Engine;
use crate::think::{PolicyOutcome, think};
use std::sync::Arc;
use trainyard_framework::{ChangeCursor, Cx, Pipeline, Snapshot};
use trainyard_types::{Action, JobId, Span, Time, Verdict};

/// All that a policy is told, frozen, to be thought about anywhere.
#[derive(Clone)]
pub struct DecisionRequest {
    /// The moment.
    pub snapshot: Snapshot,
    /// The seed of the policy's randomness.
    pub seed: u64,
    /// Units of work it may spend.
    pub work_max: u64,
}

impl DecisionRequest {
    /// Asks the policy: first which jobs are admitted, then which gets what. Pure but for the policy's own memory.
    pub fn think(&self, pipeline: &mut Pipeline) -> PolicyOutcome {
        let Snapshot { now, state, free, beliefs } = &self.snapshot;
        let mut cx = Cx::new(self.seed, state.decisions, self.work_max);
        let (mut state, mut free) = (Arc::clone(state), free.clone());
        think(*now, &mut state, &mut free, beliefs.as_ref(), (pipeline, &mut cx))
    }
}

impl Engine {
    /// Fires what is due, asks the policy if it must be asked, and says what is to be done.
    pub fn step(&mut self, at: Time, pipeline: &mut Pipeline) -> Vec<Action> {
        let mut actions = Vec::new();
        self.step_into(at, pipeline, &mut actions);
        actions
    }

    /// The same into a list, which is emptied first: a host that makes many steps uses its room again.
    pub fn step_into(&mut self, at: Time, pipeline: &mut Pipeline, actions: &mut Vec<Action>) {
        let at = self.advance(at);
        self.fire_timers(at);
        if self.begin_decision(at, pipeline.usage_half_life) {
            let seen = self.state.seen();
            let outcome = self.ask(at, pipeline);
            self.conclude_seen(at, seen, outcome);
        }
        self.reconcile(at);
        actions.clear();
        std::mem::swap(actions, &mut self.outbox);
    }

    /// Fires what is due, and says what the policy must be asked now, if anything: one request at a time. The host goes
    /// on with [`Engine::tick`], for what is planned already is done meanwhile.
    ///
    /// `half_life` is the one the policy's pipeline names for the use of tenants.
    pub fn request(&mut self, at: Time, half_life: Span) -> Option<DecisionRequest> {
        let at = self.advance(at);
        self.fire_timers(at);
        if !self.begin_decision(at, half_life) {
            return None;
        }
        self.asked = true;
        let (seed, work_max) = (self.setup.seed, self.setup.work_max);
        Some(DecisionRequest { snapshot: self.snapshot(), seed, work_max })
    }

    /// Takes the outcome of the newest request, checked against what is known by now.
    pub fn conclude(&mut self, at: Time, request: &DecisionRequest, outcome: PolicyOutcome) {
        let at = self.advance(at);
        assert!(self.asked, "an outcome without a request");
        self.asked = false;
        self.conclude_seen(at, request.snapshot.state.seen(), outcome);
    }

    /// Whether a request is out.
    pub fn is_asked(&self) -> bool {
        self.asked
    }

    /// A new policy has a clean record.
    pub fn reset_failures(&mut self) {
        self.policy_failures = 0;
        self.wants_decision = true;
        // Whatever memory the new policy brings is not of this state.
        self.state_mut().decisions += 2;
    }

    /// Whether the fallback order stands in for a policy that fails.
    pub fn in_backoff(&self, at: Time) -> bool {
        self.policy_failing() && at < self.policy_retry_at
    }

    /// Whether the policy must be asked now. While it is in backoff because it failed too often, the fallback order
    /// decides at once and nothing is asked.
    fn begin_decision(&mut self, at: Time, half_life: Span) -> bool {
        if self.asked || !self.decision_due(at) {
            return false;
        }
        self.round_over = false;
        self.decided_at = Some(at);
        self.wake_at = None;
        if self.state.usage_half_life != half_life {
            self.state_mut().usage_half_life = half_life;
        }
        self.settle_loans();
        self.wants_decision = false;
        if self.in_backoff(at) {
            self.decide_by_fallback(at);
            return false;
        }
        true
    }

    /// Takes a decision. Without one the plan is kept, and after too many failures the fallback order takes over.
    fn conclude_seen(&mut self, at: Time, seen: ChangeCursor, outcome: PolicyOutcome) {
        if !self.notes.is_empty() {
            self.notes.clear();
        }
        let again = self.wants_decision;
        let failures = match outcome {
            PolicyOutcome::Decided(decision) => {
                self.policy_failures = 0;
                let overtaken = again || self.state.seen() != seen;
                self.adopt(at, decision, (seen, overtaken));
                None
            }
            PolicyOutcome::Failed(_) => Some(&mut self.stats.policy_errors),
            PolicyOutcome::Panicked => Some(&mut self.stats.policy_panics),
            PolicyOutcome::Stuck => Some(&mut self.stats.policy_stuck),
        };
        if let Some(failures) = failures {
            *failures += 1;
            self.policy_failed(at);
            // What changed was seen, so a policy's index must start anew.
            self.state_mut().decided(seen);
            if self.policy_failing() {
                self.decide_by_fallback(at);
            }
        }
        self.wake_to_retry();
        let knew = self.state.knew_recalls(seen);
        self.wants_decision = again || (knew && self.recall(at));
    }

    /// All jobs are admitted, and the fallback order decides.
    fn decide_by_fallback(&mut self, at: Time) {
        let all: Vec<JobId> = self.state.unadmitted.iter().collect();
        for job in all {
            self.admit(at, job);
            self.state_mut().changed.push(job);
        }
        self.stats.fallbacks += 1;
        let mut fallback = std::mem::replace(&mut self.fallback, crate::fallback::pipeline());
        let seen = self.state.seen();
        if let PolicyOutcome::Decided(decision) = self.ask(at, &mut fallback) {
            self.notes.clear();
            self.adopt(at, decision, (seen, false));
        }
        self.fallback = fallback;
        self.wake_to_retry();
        self.wants_decision = self.recall(at);
    }

    /// Asks a policy on the engine's own state, which is left as it was.
    fn ask(&mut self, at: Time, pipeline: &mut Pipeline) -> PolicyOutcome {
        let mut cx = Cx::new(self.setup.seed, self.state.decisions, self.setup.work_max);
        let beliefs = self.beliefs.as_ref();
        let outcome = think(at, &mut self.state, &mut self.free, beliefs, (pipeline, &mut cx));
        if matches!(outcome, PolicyOutcome::Panicked) {
            self.free = self.free_by_plan();
        }
        outcome
    }

    /// Admits jobs, or not, as the policy said; it has seen those that it admitted.
    pub(crate) fn judge(&mut self, at: Time, verdicts: Vec<(JobId, Verdict)>) {
        for (job, verdict) in verdicts {
            if !self.state.unadmitted.contains(job) {
                continue;
            }
            match verdict {
                Verdict::Accept => self.admit(at, job),
                Verdict::Hold(reason) => {
                    self.notes.insert(job, reason);
                }
                Verdict::Reject(reason) => {
                    self.notes.insert(job, reason);
                    self.over(at, job, trainyard_types::End::Rejected);
                }
            }
        }
    }

    fn policy_failing(&self) -> bool {
        self.policy_failures >= self.setup.policy_failures_max
    }

    /// The policy is asked again after a while that doubles.
    fn policy_failed(&mut self, at: Time) {
        self.policy_failures += 1;
        let doublings = self.policy_failures.min(9) - 1;
        let wait = self.setup.policy_retry_after.times(1 << doublings);
        self.policy_retry_at = at + wait.min(Span::secs(3600));
    }

    /// A policy that failed is asked again when its time has come, though nothing happens.
    fn wake_to_retry(&mut self) {
        if self.policy_failures > 0 {
            let retry = self.policy_retry_at;
            self.wake_at = Some(self.wake_at.map_or(retry, |wake| wake.min(retry)));
        }
    }
}
