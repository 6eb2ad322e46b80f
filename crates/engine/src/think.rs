//! Asking the policy: pure, so that it can run beside the engine on a snapshot.

use crate::engine::Engine;
use std::panic::{AssertUnwindSafe, catch_unwind};
use trainyard_framework::{
    Admission, Beliefs, Cx, Free, Offer, Pipeline, PolicyError, State, View,
};
use trainyard_types::{Decision, JobId, Knobs, Quality, Time, Verdict};

/// What asking a policy came to.
pub enum Thought {
    /// A decision.
    Decided(Decision),
    /// It said why it could not decide.
    Failed(PolicyError),
    /// It panicked; what is free may have been left in disorder.
    Panicked,
    /// It was cut off because it took too long; only a host with a clock says so.
    Stuck,
}

/// Asks a policy who gets how much, where and how. Changes nothing but `free`, which is left as it was.
pub fn think(
    now: Time,
    state: &State,
    free: &mut Free,
    beliefs: &dyn Beliefs,
    (pipeline, cx): (&mut Pipeline, &mut Cx),
) -> Thought {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        pipeline.begin(state.decisions);
        let needs = pipeline.needs;
        let view = View::new(now, state, beliefs, &needs);
        let mut offer = Offer::new(&view, free, pipeline.place.as_mut());
        let allocated = pipeline.policy.allocate(&view, &mut offer, cx);
        // Ended in any case: that is what puts `free` back in order.
        let outcome = offer.finish();
        allocated?;
        let mut decision = Decision {
            changes: outcome.changes,
            ends: outcome.ends,
            back: outcome.back,
            verdicts: Vec::new(),
            wake_at: outcome.wake_at,
            notes: outcome.notes,
            faults: outcome.faults,
            idle: outcome.idle,
            quality: Quality::Proven,
        };
        for tuner in &mut pipeline.tune {
            let knobs = tuner.tune(&decision.changes, &view, cx);
            turn_knobs(&mut decision, &view, knobs);
        }
        decision.quality = cx.quality;
        Ok(decision)
    }));
    match outcome {
        Ok(Ok(decision)) => Thought::Decided(decision),
        Ok(Err(error)) => Thought::Failed(error),
        Err(_) => Thought::Panicked,
    }
}

/// Joins new knobs into the changes, or makes a change of knobs alone.
fn turn_knobs(decision: &mut Decision, view: &View<'_>, knobs: Vec<(JobId, Knobs)>) {
    for (job, knobs) in knobs {
        if let Some(change) = decision.changes.iter_mut().find(|change| change.job == job) {
            if let Some(to) = &mut change.to {
                to.knobs = knobs;
            }
            continue;
        }
        let planned = view.job(job).and_then(|job| job.state.planned.clone());
        if let Some(mut planned) = planned
            && planned.knobs != knobs
        {
            planned.knobs = knobs;
            decision.changes.push(trainyard_types::Change { job, to: Some(planned) });
        }
    }
}

/// Asks a policy about jobs that were not admitted yet. The second answer is whether it panicked: a gate that breaks
/// stays open, so that nobody is lost behind it.
pub(crate) fn admission(
    now: Time,
    state: &State,
    beliefs: &dyn Beliefs,
    (pipeline, cx): (&mut Pipeline, &mut Cx),
) -> (Vec<(JobId, Verdict)>, bool) {
    let needs = pipeline.needs;
    let verdicts = catch_unwind(AssertUnwindSafe(|| {
        let view = View::new(now, state, beliefs, &needs);
        let mut queue = Admission::new(&state.unadmitted);
        pipeline.policy.admit(&mut queue, &view, cx);
        queue.into_verdicts()
    }));
    match verdicts {
        Ok(verdicts) => (verdicts, false),
        Err(_) => (state.unadmitted.iter().map(|job| (job, Verdict::Accept)).collect(), true),
    }
}

impl Engine {
    /// Asks the policy about jobs that were not admitted yet.
    pub(crate) fn ask_admission(&mut self, at: Time, pipeline: &mut Pipeline, cx: &mut Cx) {
        if self.state.unadmitted.is_empty() {
            return;
        }
        let (verdicts, panicked) =
            admission(at, &self.state, self.beliefs.as_ref(), (pipeline, cx));
        self.stats.policy_panics += u64::from(panicked);
        self.judge(at, verdicts);
    }

    /// Lets jobs in, or not, as the policy said.
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
}
