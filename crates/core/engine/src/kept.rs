//! Jobs that an admission control keeps for a while: it grants them GPUs itself, and the policy sees neither.

use std::sync::Arc;

use trainyard_framework::{
    Beliefs, Free, Live, Offer, Outcome, Pipeline, State, View, used_permille,
};
use trainyard_types::{Allocation, Change, Decision, JobId, NodeId, TenantId, Time};

/// What the controls decided about the jobs they keep.
pub(crate) struct Kept {
    jobs: Vec<JobId>,
    outcome: Outcome,
    /// What changes: from, to, and the tenant that is charged.
    moves: Vec<(Option<Allocation>, Option<Allocation>, TenantId)>,
    /// GPUs of a node that the policy does not see, with those in service there.
    nodes: Vec<(NodeId, u64, u64)>,
}

/// What the policy does not see of a state.
pub(crate) struct Hidden {
    jobs: Vec<(JobId, Arc<Live>, bool)>,
    changed: Vec<JobId>,
    demand: u64,
    used_permille: Vec<u64>,
}

/// Asks the controls about the jobs they keep; nothing where they keep none.
pub(crate) fn allocate(
    now: Time,
    state: &State,
    free: &mut Free,
    beliefs: &dyn Beliefs,
    pipeline: &mut Pipeline,
) -> Option<Kept> {
    if !pipeline.admit.iter().any(|control| control.has_kept_jobs()) {
        return None;
    }
    let needs = pipeline.needs;
    let view = View::new(now, state, beliefs, &needs);
    let jobs: Vec<JobId> = (view.granted().chain(view.waiting()))
        .filter(|job| pipeline.admit.iter().any(|control| control.keeps(*job, now)))
        .map(|job| job.id())
        .collect();
    if jobs.is_empty() {
        return None;
    }
    let mut offer = Offer::new(&view, free, pipeline.place.as_mut());
    for control in &mut pipeline.admit {
        control.allocate(&view, &mut offer);
    }
    let outcome = offer.finish();
    let planned = |job: JobId| view.job(job).and_then(|job| job.state.planned.clone());
    let tenant = |job: JobId| view.job(job).map_or(TenantId(0), |job| job.spec.tenant);
    let moves = outcome
        .changes
        .iter()
        .map(|change| (planned(change.job), change.to.clone(), tenant(change.job)))
        .collect();
    let nodes = held(&jobs, &outcome.changes, free, planned);
    Some(Kept { jobs, outcome, moves, nodes })
}

/// The GPUs that kept jobs have after the changes, by node.
fn held(
    jobs: &[JobId],
    changes: &[Change],
    free: &Free,
    planned: impl Fn(JobId) -> Option<Allocation>,
) -> Vec<(NodeId, u64, u64)> {
    let mut nodes: std::collections::BTreeMap<NodeId, u64> = std::collections::BTreeMap::new();
    for job in jobs {
        let changed = changes.iter().find(|change| change.job == *job);
        let has = changed.map_or_else(|| planned(*job), |change| change.to.clone());
        for &(node, mask) in has.iter().flat_map(|has| has.placement.masks()) {
            *nodes.entry(node).or_default() |= mask;
        }
    }
    nodes.into_iter().map(|(node, mask)| (node, mask, free.up(node))).collect()
}

impl Kept {
    /// What is free for the policy: to it the GPUs of kept jobs are out of service.
    pub(crate) fn apply(&self, free: &mut Free) {
        for (from, to, _) in &self.moves {
            from.iter().for_each(|from| free.give(from));
            to.iter().for_each(|to| free.take(to));
        }
        for &(node, mask, up) in &self.nodes {
            free.set_up(node, up & !mask);
        }
    }

    /// What is free is as it was before.
    pub(crate) fn undo(&self, free: &mut Free) {
        for &(node, _, up) in &self.nodes {
            free.set_up(node, up);
        }
        for (from, to, _) in self.moves.iter().rev() {
            to.iter().for_each(|to| free.give(to));
            from.iter().for_each(|from| free.take(from));
        }
    }

    /// Joins what the controls decided into what the policy decided: GPUs are given up before they are given out.
    pub(crate) fn join(self, decision: &mut Decision) {
        let Outcome { changes, notes, faults, wake_at, idle, .. } = self.outcome;
        let of_policy = std::mem::take(&mut decision.changes);
        let takes = |change: &Change| change.to.is_none();
        let (taken, given): (Vec<Change>, Vec<Change>) = changes.into_iter().partition(takes);
        let (policy_taken, policy_given): (Vec<Change>, Vec<Change>) =
            of_policy.into_iter().partition(takes);
        decision.changes = [taken, policy_taken, given, policy_given].concat();
        decision.notes.extend(notes);
        decision.faults.extend(faults);
        decision.idle |= idle;
        decision.wake_at = match (decision.wake_at, wake_at) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}

/// Takes kept jobs out of a state, so that the policy does not see them.
pub(crate) fn hide(state: &mut State, kept: &Kept) -> Hidden {
    let before = (state.demand, state.used_permille.clone(), state.changed.clone());
    for (from, to, tenant) in &kept.moves {
        let path: Vec<TenantId> = state.tenants.path(*tenant).collect();
        for id in path {
            let used = &mut state.used_permille[id.index()];
            *used -= from.as_ref().map_or(0, used_permille);
            *used += to.as_ref().map_or(0, used_permille);
        }
    }
    let mut jobs = Vec::with_capacity(kept.jobs.len());
    for &job in &kept.jobs {
        let Some(live) = state.jobs.remove(&job) else { continue };
        let granted = state.granted.contains(job);
        state.granted.remove(job);
        state.waiting.remove(job);
        state.demand -= u64::from(live.spec.want.gpus);
        jobs.push((job, live, granted));
    }
    let State { jobs: seen, changed, .. } = state;
    // Jobs that ended stay in the list: a policy may have known them.
    changed.retain(|job| seen.contains_key(job) || !jobs.iter().any(|(hidden, ..)| hidden == job));
    Hidden { jobs, changed: before.2, demand: before.0, used_permille: before.1 }
}

/// Undoes [`hide`].
pub(crate) fn show(state: &mut State, hidden: Hidden) {
    for (job, live, granted) in hidden.jobs {
        state.jobs.insert(job, live);
        if granted {
            state.granted.insert(job);
        } else {
            state.waiting.insert(job);
        }
    }
    state.changed = hidden.changed;
    state.demand = hidden.demand;
    state.used_permille = hidden.used_permille;
}
