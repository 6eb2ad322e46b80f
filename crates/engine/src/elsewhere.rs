//! Deciding elsewhere: a question that a policy can think about while the engine goes on.

use crate::engine::Engine;
use crate::think::{Thought, admission, think};
use std::sync::Arc;
use trainyard_framework::{Cx, Pipeline, Seen, Snapshot, State};
use trainyard_types::{JobId, Span, Time, Verdict};

/// All that a policy is told, frozen, to be thought about anywhere.
#[derive(Clone)]
pub struct Question {
    /// The moment.
    pub snapshot: Snapshot,
    /// The seed of the policy's randomness.
    pub seed: u64,
    /// Units of work it may spend.
    pub work_max: u64,
}

impl Question {
    /// Asks the policy: first who may take part, then who gets what. Pure but for the policy's own memory.
    pub fn think(&self, pipeline: &mut Pipeline) -> Thought {
        let Snapshot { now, state, free, beliefs } = &self.snapshot;
        let mut state = Arc::clone(state);
        let mut cx = Cx::new(self.seed, state.decisions, self.work_max);
        let mut verdicts = Vec::new();
        if !state.unadmitted.is_empty() {
            let (given, panicked) = admission(*now, &state, beliefs.as_ref(), (pipeline, &mut cx));
            if panicked {
                return Thought::Panicked;
            }
            verdicts = given;
            let state = Arc::make_mut(&mut state);
            for (job, verdict) in &verdicts {
                if *verdict == Verdict::Accept {
                    let_in(state, *job);
                }
            }
        }
        let mut free = free.clone();
        match think(*now, &state, &mut free, beliefs.as_ref(), (pipeline, &mut cx)) {
            Thought::Decided(mut decision) => {
                decision.verdicts = verdicts;
                Thought::Decided(decision)
            }
            other => other,
        }
    }
}

/// A job takes part, as far as a policy can see.
fn let_in(state: &mut State, job: JobId) {
    state.unadmitted.remove(job);
    state.waiting.insert(job);
    state.changed.push(job);
    let Some(live) = state.live_mut(job) else { return };
    live.state.admitted = true;
    live.state.phase = trainyard_types::Phase::Waiting;
    let gpus = u64::from(live.spec.want.gpus);
    state.demand += gpus;
}

impl Engine {
    /// What the policy must be asked now, if anything: one question at a time. While the policy is left alone because
    /// it failed too often, the plain order decides at once and nothing is asked.
    ///
    /// `half_life` is the one the policy's pipeline names for the use of tenants.
    pub fn question(&mut self, at: Time, half_life: Span) -> Option<Question> {
        let at = self.advance(at);
        if self.asked || !self.decision_due(at) {
            return None;
        }
        self.wants_decision = false;
        self.round_over = false;
        self.decided_at = Some(at);
        self.wake_at = None;
        if self.state.usage_half_life != half_life {
            self.state_mut().usage_half_life = half_life;
        }
        if self.left_alone(at) {
            self.decide_plainly(at);
            return None;
        }
        self.settle_loans();
        self.wants_decision = false;
        self.asked = true;
        let (seed, work_max) = (self.setup.seed, self.setup.work_max);
        Some(Question { snapshot: self.snapshot(), seed, work_max })
    }

    /// Takes the answer to the newest question, checked against what is known by now. Without a decision the plan is
    /// kept, and after too many failures the plain order takes over.
    pub fn conclude(&mut self, at: Time, question: &Question, thought: Thought) {
        let at = self.advance(at);
        assert!(self.asked, "an answer without a question");
        self.asked = false;
        self.notes.clear();
        let again = self.wants_decision;
        let seen = question.snapshot.state.seen();
        match thought {
            Thought::Decided(mut decision) => {
                self.policy_failures = 0;
                let verdicts = std::mem::take(&mut decision.verdicts);
                self.judge(at, verdicts);
                self.adopt_seen(at, decision, seen);
            }
            Thought::Failed(_) => {
                self.stats.policy_errors += 1;
                self.without_decision(at, seen);
            }
            Thought::Panicked => {
                self.stats.policy_panics += 1;
                self.without_decision(at, seen);
            }
            Thought::Stuck => {
                self.stats.policy_stuck += 1;
                self.without_decision(at, seen);
            }
        }
        self.wake_to_retry();
        let knew = self.state.knew_recalls(seen);
        self.wants_decision = again || (knew && self.recall(at));
    }

    /// Whether a question is out.
    pub fn is_asked(&self) -> bool {
        self.asked
    }

    /// A new policy has a clean record.
    pub fn forgive_policy(&mut self) {
        self.policy_failures = 0;
        self.wants_decision = true;
        // Whatever memory the new policy brings is not of this state.
        self.state_mut().decisions += 2;
    }

    fn without_decision(&mut self, at: Time, seen: Seen) {
        self.policy_failed(at);
        self.state_mut().decided(seen);
        if self.policy_failing() {
            self.decide_plainly(at);
        }
    }

    /// Everyone is let in, and the plain order decides.
    fn decide_plainly(&mut self, at: Time) {
        let all: Vec<JobId> = self.state.unadmitted.iter().collect();
        for job in all {
            self.admit(at, job);
        }
        let mut cx = Cx::new(self.setup.seed, self.state.decisions, self.setup.work_max);
        if let Some(decision) = self.ask_plain(at, &mut cx) {
            self.notes.clear();
            let seen = self.state.seen();
            self.adopt_seen(at, decision, seen);
        }
        self.wake_to_retry();
        self.wants_decision = self.recall(at);
    }
}
