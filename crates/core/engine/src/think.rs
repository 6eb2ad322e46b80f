//! Asking the policy: it changes nothing, so that it can run beside the engine on a snapshot.

use crate::own_state::Writable;
use crate::{kept, plans};
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use trainyard_framework::{
    Admission, Beliefs, Cx, Free, Offer, Pipeline, PolicyError, State, View,
};
use trainyard_types::{Decision, JobId, Knobs, Phase, Quality, Time, Verdict};

/// What asking a policy came to.
#[derive(Clone, Debug)]
pub enum PolicyOutcome {
    /// A decision.
    Decided(Decision),
    /// It said why it could not decide.
    Failed(PolicyError),
    /// It panicked; what is free may have been left in disorder.
    Panicked,
    /// It was cut off because it took too long; only a host with a clock says so.
    Stuck,
}

/// Asks a policy which jobs are admitted, and then which job gets how much, where and how. State and `free` are left as
/// they were, but for `free` after a panic. A policy that failed forgets: its memory may be half of something.
pub(crate) fn think<S: Writable>(
    now: Time,
    state: &mut S,
    free: &mut Free,
    beliefs: &dyn Beliefs,
    (pipeline, cx): (&mut Pipeline, &mut Cx),
) -> PolicyOutcome {
    let mut admitted: SmallVec<[(JobId, Time); 4]> = SmallVec::new();
    let mut hidden = None;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        pipeline.begin(state.decisions);
        let verdicts = admission(now, state, beliefs, (pipeline, cx));
        for (job, verdict) in &verdicts {
            if *verdict == Verdict::Accept {
                admitted.extend(admit(now, state.write(), *job));
            }
        }
        let kept = kept::allocate(now, state, free, beliefs, pipeline);
        if let Some(kept) = &kept {
            hidden = Some(kept::hide(state.write(), kept));
            kept.apply(free);
        }
        let decision = allocation(now, state, free, beliefs, (pipeline, cx));
        if let Some(kept) = &kept {
            kept.undo(free);
        }
        let mut decision = decision?;
        if let Some(kept) = kept {
            kept.join(&mut decision);
        }
        decision.verdicts = verdicts;
        Ok(decision)
    }));
    if let Some(hidden) = hidden {
        kept::show(state.write(), hidden);
    }
    if !admitted.is_empty() {
        take_back(state.write(), &admitted);
    }
    let outcome = match outcome {
        Ok(Ok(decision)) => return PolicyOutcome::Decided(decision),
        Ok(Err(error)) => PolicyOutcome::Failed(error),
        Err(_) => PolicyOutcome::Panicked,
    };
    match catch_unwind(AssertUnwindSafe(|| pipeline.policy.forget())) {
        Ok(()) => outcome,
        Err(_) => PolicyOutcome::Panicked,
    }
}

/// Asks about jobs that are not admitted yet.
fn admission(
    now: Time,
    state: &State,
    beliefs: &dyn Beliefs,
    (pipeline, cx): (&mut Pipeline, &mut Cx),
) -> Vec<(JobId, Verdict)> {
    if state.unadmitted.is_empty() {
        return Vec::new();
    }
    let needs = pipeline.needs;
    let view = View::new(now, state, beliefs, &needs);
    let mut queue = Admission::new(&state.unadmitted, &mut pipeline.admit, &view);
    pipeline.policy.admit(&mut queue, &view, cx);
    queue.into_verdicts()
}

/// Asks which job gets how much, where and how.
fn allocation(
    now: Time,
    state: &State,
    free: &mut Free,
    beliefs: &dyn Beliefs,
    (pipeline, cx): (&mut Pipeline, &mut Cx),
) -> Result<Decision, PolicyError> {
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
        let compared = tuner.plans_max();
        if compared > 1 {
            let draws = (compared, cx.rng());
            let mut plans = plans::candidates(&view, free, &decision.changes, draws);
            let best = tuner.choose(&plans, &view, cx);
            if best > 0 && best < plans.len() {
                decision.changes = plans.swap_remove(best);
            }
        }
        let knobs = tuner.tune(&decision.changes, &view, cx);
        turn_knobs(&mut decision, &view, knobs);
    }
    decision.quality = cx.quality;
    Ok(decision)
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

/// A job is admitted as far as the rest of this decision can see. Since when it had been in its phase before.
fn admit(now: Time, state: &mut State, job: JobId) -> Option<(JobId, Time)> {
    let live = state.live_mut(job)?;
    live.state.admitted = true;
    live.state.phase = Phase::Waiting;
    let since = std::mem::replace(&mut live.state.since, now);
    let gpus = u64::from(live.spec.want.gpus);
    state.demand += gpus;
    state.unadmitted.remove(job);
    state.waiting.insert(job);
    state.changed.push(job);
    Some((job, since))
}

/// Undoes [`admit`]: only the engine admits, when it takes the decision.
fn take_back(state: &mut State, admitted: &[(JobId, Time)]) {
    state.changed.truncate(state.changed.len() - admitted.len());
    for &(job, since) in admitted {
        state.waiting.remove(job);
        state.unadmitted.insert(job);
        let Some(live) = state.live_mut(job) else { continue };
        live.state.admitted = false;
        live.state.phase = Phase::Unadmitted;
        live.state.since = since;
        let gpus = u64::from(live.spec.want.gpus);
        state.demand -= gpus;
    }
}
