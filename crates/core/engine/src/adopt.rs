//! Adopting a decision after checking it against what is known by then.

use crate::engine::Engine;
use std::sync::Arc;
use trainyard_framework::{ChangeCursor, Shortage, shapes, used_permille};
use trainyard_types::{
    Allocation, Change, Decision, End, Fault, JobId, NodeId, Phase, Quality, Time,
};

/// How many faults are kept as samples.
const FAULT_SAMPLES_MAX: usize = 16;

impl Engine {
    /// Takes what may be taken, gives what still fits, drops and counts the rest. What the policy has not seen is left
    /// for its next turn, and what it could not know is no fault of its.
    pub(crate) fn adopt(
        &mut self,
        at: Time,
        mut decision: Decision,
        (seen, overtaken): (ChangeCursor, bool),
    ) {
        self.stats.decisions += 1;
        self.judge(at, std::mem::take(&mut decision.verdicts));
        self.state_mut().decided(seen);
        if decision.quality == Quality::Fallback {
            // The policy went on with what it knew, which is an answer, and still something went wrong.
            self.stats.policy_errors += 1;
        }
        if let Quality::Within(millionths) = decision.quality {
            self.stats.gap_worst = self.stats.gap_worst.max(Some(millionths));
        }
        for fault in decision.faults {
            self.fault(fault);
        }
        if decision.changes.is_empty() {
            self.stats.idle_decisions += 1;
        }
        // What jobs had, in the order of the changes; most that are given something had nothing.
        let mut lifted: Vec<(JobId, Allocation)> = Vec::new();
        decision.changes.retain(|change| {
            let fault = self.unchangeable(at, change.job, change.to.as_ref());
            match fault {
                Some(fault) => self.drop_change(fault, overtaken),
                None => lifted.extend(self.unplan(at, change.job).map(|old| (change.job, old))),
            }
            fault.is_none()
        });
        let mut lifted = lifted.into_iter().peekable();
        let mut taken = Vec::new();
        for Change { job, to } in decision.changes {
            let old = lifted.next_if(|(lost, _)| *lost == job).map(|(_, old)| old);
            let Some(to) = to else {
                taken.extend(old.map(|old| (job, old)));
                continue;
            };
            let stays = old.as_ref().is_some_and(|old| old.same_place(&to));
            match self.plan(at, job, to, stays) {
                Ok(()) => {}
                Err(fault) => {
                    self.drop_change(fault, overtaken);
                    if let Some(old) = old {
                        // It keeps what it had, unless that was given away in the same breath.
                        let _ = self.plan(at, job, old, true);
                    }
                }
            }
        }
        for node in decision.back {
            self.take_back(at, node);
        }
        if !decision.idle {
            self.keep_what_nobody_needs(at, taken);
        }
        for job in decision.ends {
            self.stop_for_good(at, job, End::Pruned);
        }
        for note in decision.notes {
            self.notes.insert(note.job, note.reason);
        }
        self.wake_at = decision.wake_at.filter(|time| *time > at);
        if self.stats.decisions.is_multiple_of(self.setup.check_every.max(1)) {
            self.assert_invariants();
        }
    }

    /// No job is preempted for nothing: a job that lost GPUs which no other job got keeps them.
    fn keep_what_nobody_needs(&mut self, at: Time, mut taken: Vec<(JobId, Allocation)>) {
        // A job on leftovers comes before the job that it shared with, which would be in its way.
        taken.sort_by_key(|(_, old)| !old.is_on_leftovers());
        for (job, old) in taken {
            let kept = |node: NodeId| self.machines.stand(node).1;
            let gone = old.placement.masks().iter().any(|(node, _)| kept(*node));
            if !gone && self.free.may_keep(&old) {
                // A ceiling that was lowered meanwhile still takes them away.
                let _ = self.plan(at, job, old, true);
            }
        }
    }

    pub(crate) fn unchangeable(
        &self,
        at: Time,
        job: JobId,
        to: Option<&Allocation>,
    ) -> Option<Fault> {
        let Some(live) = self.state.live(job) else { return Some(Fault::NotEligible(job)) };
        let state = &live.state;
        // A job that was set aside while it stops is blocked, though its phase does not say so yet.
        if matches!(state.phase, Phase::Blocked | Phase::Unadmitted)
            || self.blocked.contains_key(&job)
            || self.ending.contains_key(&job)
        {
            return Some(Fault::NotEligible(job));
        }
        if let (Some(planned), Some(_)) = (&state.planned, &state.held) {
            let moves = to.is_none_or(|to| !planned.is_kept_in(to));
            let leased = planned.lease_until.is_some_and(|until| until > at);
            let fresh = state.last_start.is_some_and(|start| start + live.spec.min_run > at);
            if moves && !live.spec.preemptible {
                return Some(Fault::NotPreemptible(job));
            }
            if moves && (leased || fresh) {
                return Some(Fault::LeaseBroken(job));
            }
        }
        let gpus = to.map(|to| to.placement.gpus());
        let want = &live.spec.want;
        if gpus.is_some_and(|gpus| !(want.gpus_min.max(1)..=want.gpus_max).contains(&gpus)) {
            return Some(Fault::WrongSize(job));
        }
        None
    }

    /// Gives a job an allocation in the plan; one that stays may stay on a node that takes no new jobs.
    pub(crate) fn plan(
        &mut self,
        at: Time,
        job: JobId,
        to: Allocation,
        stays: bool,
    ) -> Result<(), Fault> {
        let live = self.state.live(job).ok_or(Fault::NotEligible(job))?;
        let tenant = live.spec.tenant;
        let kinds_ok = to.placement.masks().iter().all(|(node, _)| {
            let nodes = &self.state.cluster.nodes;
            nodes.get(node.index()).is_some_and(|node| live.spec.want.accepts(node.kind))
        });
        if !kinds_ok {
            return Err(Fault::WrongKind(job));
        }
        let room = if stays { self.free.fits_again(&to) } else { self.free.fits(&to) };
        room.map_err(|shortage| match shortage {
            Shortage::NoSuchGpu(at) => Fault::NoSuchGpu(at),
            Shortage::Gpu(at) | Shortage::GpuMemory(at) => Fault::Oversubscribed(at),
            Shortage::Host(node) => Fault::HostOversubscribed(node),
        })?;
        let rules = self.state.cluster.rules;
        let can_be_launched = match stays {
            _ if rules.is_none() => true,
            true => shapes::is_alone(rules, &to, &self.free),
            false => shapes::is_allowed(rules, &to, &self.free),
        };
        if !can_be_launched {
            return Err(Fault::WrongShape(job));
        }
        if !stays && let Some(node) = self.shut_at(job, &to) {
            return Err(Fault::InWindow(job, node));
        }
        if self.meets_strangers(job, &to) {
            return Err(Fault::Strangers(job));
        }
        let used = used_permille(&to);
        if self.state.ceiling_passed(tenant, used).is_some() {
            return Err(Fault::QuotaPassed(job));
        }
        self.free.take(&to);
        self.count_granted(at, tenant, used as i64);
        let state = self.state_mut();
        state.sharing += u32::from(to.is_shared());
        state.waiting.remove(job);
        state.granted.insert(job);
        state.changed.push(job);
        state.live_mut(job).expect("checked above").state.planned = Some(to);
        self.dirty.insert(job);
        self.assert_within_ceilings(tenant);
        if !self.state.windows.is_empty() {
            self.leave_or_watch(at, job);
        }
        Ok(())
    }

    /// Whether a job would share a GPU with one of a tenant that it must not share with. Linear in granted jobs, where
    /// tenants are kept apart and any GPU is shared.
    fn meets_strangers(&self, job: JobId, to: &Allocation) -> bool {
        let state = &self.state;
        if !state.isolates || state.tenants.len() < 2 || !to.is_shared() && state.sharing == 0 {
            return false;
        }
        let plan = |other| state.live(other).and_then(|live| live.state.planned.clone());
        state.meets_strangers(job, to, &plan, state.granted.iter())
    }

    fn drop_change(&mut self, fault: Fault, overtaken: bool) {
        match overtaken {
            true => self.stats.overtaken += 1,
            false => self.fault(fault),
        }
    }

    fn fault(&mut self, fault: Fault) {
        self.stats.faults += 1;
        if self.stats.fault_samples.len() < FAULT_SAMPLES_MAX {
            self.stats.fault_samples.push(fault);
        }
    }

    /// What is free by the plan, worked out anew.
    pub(crate) fn free_by_plan(&self) -> trainyard_framework::Free {
        let mut free = trainyard_framework::Free::new(&Arc::clone(&self.state.cluster));
        for job in self.state.granted.iter() {
            let live = self.state.live(job).expect("granted jobs are live");
            free.take(live.state.planned.as_ref().expect("granted jobs have a plan"));
        }
        for node in &self.state.cluster.nodes {
            free.set_up(node.id, self.machines.in_service(node.id));
        }
        free.set_windows(Arc::clone(&self.state.windows));
        free.set_now(self.state.now);
        free
    }
}
