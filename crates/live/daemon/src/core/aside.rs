//! Jobs that are put aside in host memory and brought back on the same GPUs.

use super::Core;
use serde_json::json;
use trainyard_backend::{AsideOrder, AsideSeen, Order};
use trainyard_types::{Allocation, Attempt, Event, JobId, Phase};

impl Core {
    /// Has the backend put a job aside.
    pub(super) fn suspend(&mut self, job: JobId, attempt: Attempt, memory_mib: u64) {
        let sentence = format!(
            "job {} attempt {} is put aside in host memory, up to {memory_mib} MiB: another job takes its place",
            job.0, attempt.0
        );
        self.event("suspending", Some(job), &sentence, json!({ "attempt": attempt.0 }));
        self.turn.stops.push(trainyard_types::Why::Preempted);
        self.order_aside(job, attempt, true);
    }

    /// Has the backend bring it back.
    pub(super) fn resume(&mut self, job: JobId, attempt: Attempt, to: &Allocation) {
        let sentence = format!("job {} attempt {} comes back on its GPUs", job.0, attempt.0);
        self.event("resuming", Some(job), &sentence, json!({ "attempt": attempt.0 }));
        self.note_held(job, false);
        self.order_aside(job, attempt, false);
        if to.is_shared() {
            // It went as one that had its GPU for itself.
            self.change_share(job, attempt, to);
        }
    }

    fn order_aside(&mut self, job: JobId, attempt: Attempt, aside: bool) {
        let state = self.engine.state();
        let Some(live) = state.live(job) else { return };
        let memory_mib = state.aside.taken.get(&job).map_or(0, |(_, memory)| *memory);
        let order = AsideOrder { number: live.state.suspends, aside, memory_mib, library: None };
        self.turn.orders.push(Order::Aside(job, attempt, order));
    }

    /// Tells the backend, perhaps once more, what a job was told before a restart.
    pub(super) fn aside_again(&mut self, job: JobId, attempt: Attempt) {
        let Some(live) = self.engine.state().live(job) else { return };
        match live.state.phase {
            Phase::Saving if self.engine.is_suspending(job) => self.order_aside(job, attempt, true),
            Phase::Starting if live.state.suspended.is_some() => {
                self.order_aside(job, attempt, false);
            }
            _ => {}
        }
    }

    /// Whether a job is on its way back: nothing that it said before shows that it runs again.
    pub(super) fn is_coming_back(&self, job: JobId) -> bool {
        let live = self.engine.state().live(job);
        live.is_some_and(|live| {
            live.state.suspended.is_some() && live.state.phase == Phase::Starting
        })
    }

    /// What came of putting a job aside or of bringing it back.
    pub(super) fn aside_seen(&mut self, job: JobId, attempt: Attempt, seen: &AsideSeen) {
        let Some(live) = self.engine.state().live(job) else { return };
        if live.state.attempt != attempt || live.state.suspends != seen.number {
            return;
        }
        let goes = live.state.phase == Phase::Saving && self.engine.is_suspending(job);
        let data = json!({ "attempt": attempt.0 });
        match (&seen.refused, seen.aside) {
            (Some(why), _) if goes => {
                self.apply(Event::NotSuspended { job, attempt });
                let live = self.engine.state().live(job);
                let runs_on = live.is_some_and(|live| live.state.phase == Phase::Running);
                let then = match runs_on {
                    true => "runs on, because it cannot save",
                    false => "is asked to save instead",
                };
                let sentence = format!(
                    "job {} attempt {} cannot be put aside, and {then}: {why}",
                    job.0, attempt.0
                );
                self.event("not-suspended", Some(job), &sentence, data);
                if runs_on {
                    self.promise_rate(job, attempt);
                    self.watch_anew(job, attempt);
                }
            }
            (None, true) if goes => {
                let sentence = format!(
                    "job {} attempt {} is put aside: {} MiB of host memory, {:.1} s",
                    job.0, attempt.0, seen.memory_mib, seen.seconds
                );
                self.event("suspended", Some(job), &sentence, data);
                let memory_mib = seen.memory_mib;
                self.apply(Event::Suspended { job, attempt, memory_mib });
                self.note_away(job);
                self.tell_excess(job);
            }
            (None, false) if self.is_coming_back(job) => {
                let sentence = format!(
                    "job {} attempt {} goes on where it was put aside, after {:.1} s",
                    job.0, attempt.0, seen.seconds
                );
                self.event("resumed", Some(job), &sentence, data);
                self.apply(Event::Started { job, attempt });
                self.promise_rate(job, attempt);
                self.watch_anew(job, attempt);
            }
            _ => {}
        }
    }

    /// A job that was away has been silent for a reason: whether it hangs is judged from now on.
    fn watch_anew(&mut self, job: JobId, attempt: Attempt) {
        let now = self.now;
        let watch = self.record_mut(job).and_then(|record| record.watch.as_mut());
        if let Some(watch) = watch.filter(|watch| watch.attempt() == attempt) {
            watch.sign(now);
        }
    }

    /// More memory than there was to be is told: the rule bounds what is set aside, not what the driver then takes.
    fn tell_excess(&mut self, job: JobId) {
        let aside = &self.engine.state().aside;
        let (Some(rule), Some((node, _))) = (aside.rule, aside.taken.get(&job)) else { return };
        let used = aside.used_mib(*node);
        if used > rule.memory_mib {
            let sentence = format!(
                "jobs put aside take {used} MiB of host memory, more than the {} MiB they may: state `gpu_memory` in job files",
                rule.memory_mib
            );
            self.event("suspend-memory", Some(job), &sentence, json!({ "used_mib": used }));
        }
    }
}
