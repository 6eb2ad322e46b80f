//! Jobs that hang: who is looked at when, and what their users want done.

use super::Core;
use crate::hang::{Hang, Judgement, Rule, Watch};
use crate::messages;
use serde_json::json;
use std::collections::BTreeMap;
use trainyard_api::OnHang;
use trainyard_api::wire::FromJob;
use trainyard_types::{Attempt, Event, JobId, Phase, Span, Time};

impl Core {
    /// A job told something: whether it lives on, and how fast.
    pub(super) fn watch_progress(&mut self, job: JobId, attempt: Attempt, message: &FromJob) {
        let now = self.now;
        let Some(record) = self.record_mut(job) else { return };
        let fits = record.watch.as_ref().is_some_and(|watch| watch.attempt() == attempt);
        if !fits {
            record.watch = Some(Box::new(Watch::new(attempt, now)));
        }
        let Some(watch) = record.watch.as_deref_mut() else { return };
        let usual = watch.usual();
        let advanced = match message {
            FromJob::Progress { done, step_seconds, rank: None, ranks, .. } => {
                watch.progress(now, (*done, *step_seconds), ranks)
            }
            // From a backend that passes on what each rank says.
            FromJob::Progress { done, step_seconds, rank: Some(rank), .. } => {
                let ranks = done.map(|done| (*rank, done)).into_iter().collect();
                let whole = done.filter(|_| *rank == 0);
                watch.progress(now, (whole, *step_seconds), &ranks)
            }
            FromJob::Saving => {
                watch.saving(now);
                false
            }
            FromJob::Saved { .. } | FromJob::Restored { .. } | FromJob::Resized { .. } => {
                watch.sign(now);
                false
            }
            FromJob::Finished => false,
        };
        let changed = is_other(usual, watch.usual());
        let recovered = watch.hung.filter(|_| advanced && !watch.acted);
        if recovered.is_some() {
            watch.hung = None;
        }
        if !watch.looked_for && watch.usual().is_some() {
            watch.looked_for = true;
            self.hang_looks.insert((now, job));
        }
        if recovered.is_some() {
            let sentence = format!("job {} attempt {} goes on again", job.0, attempt.0);
            self.event("hung", Some(job), &sentence, json!({ "attempt": attempt.0, "over": true }));
        }
        if changed || recovered.is_some() {
            self.keep_course(job);
        }
    }

    /// When a job must be looked at next.
    pub(super) fn hang_due(&self) -> Option<Time> {
        self.hang_looks.first().map(|(at, _)| *at)
    }

    /// Looks at all whose time has come.
    pub(super) fn look_for_hangs(&mut self) {
        while let Some((at, job)) =
            self.hang_looks.first().copied().filter(|(at, _)| *at <= self.now)
        {
            self.hang_looks.remove(&(at, job));
            if let Some(next) = self.look_at_hang(job) {
                // Never at this very moment again: a look takes no time.
                self.hang_looks.insert((next.max(self.now + Span(1)), job));
            } else if let Some(watch) =
                self.record_mut(job).and_then(|record| record.watch.as_mut())
            {
                watch.looked_for = false;
            }
        }
    }

    /// Looks at one job. When to look again, if ever.
    fn look_at_hang(&mut self, job: JobId) -> Option<Time> {
        let now = self.now;
        let live = self.engine.state().live(job)?;
        let (phase, attempt) = (live.state.phase, live.state.attempt);
        let record = self.records.get(&job)?;
        let (times, least) = record.submission.hang;
        let usual = self.options.hang;
        let rule = Rule {
            times: times.unwrap_or(usual.times),
            least: least.map_or(usual.least, Span::from_secs_f64),
        };
        let watch = record.watch.as_ref().filter(|watch| watch.attempt() == attempt)?;
        // A job that starts or saves is not late; a job that goes on reports that.
        if phase != Phase::Running || watch.acted {
            return None;
        }
        match watch.judge(now, &rule) {
            Judgement::Unknown => None,
            Judgement::Well { until } => Some(until),
            Judgement::Hung(_) if watch.hung.is_some() => Some(now + rule.least),
            Judgement::Hung(hang) => {
                self.hung(job, attempt, hang);
                Some(now + rule.least)
            }
        }
    }

    fn hung(&mut self, job: JobId, attempt: Attempt, hang: Hang) {
        let wall = self.wall - self.now.since(hang.since).0 as i64;
        let hang = Hang { wall, ..hang };
        let silent = self.now.since(hang.since);
        let said = messages::hang(silent, hang.usual, hang.rank);
        let Some(record) = self.record_mut(job) else { return };
        let then = record.submission.on_hang;
        if let Some(watch) = &mut record.watch {
            (watch.hung, watch.acted) = (Some(hang), then != OnHang::Tell);
        }
        if then == OnHang::Fail {
            record.said = Some(format!("hung: {said}"));
        }
        let follows = match then {
            OnHang::Tell => "",
            OnHang::Restart => "; it is started again",
            OnHang::Fail => "; it is given up",
        };
        self.turn.hung += 1;
        let sentence = format!("job {} attempt {} hangs: {said}{follows}", job.0, attempt.0);
        let data = json!({
            "attempt": attempt.0, "rank": hang.rank, "action": then,
            "silent_seconds": silent.as_secs_f64(), "usual_seconds": hang.usual.as_secs_f64(),
        });
        self.event("hung", Some(job), &sentence, data);
        self.keep_course(job);
        match then {
            OnHang::Tell => {}
            OnHang::Restart => self.apply(Event::Requeue(job)),
            OnHang::Fail => self.apply(Event::GivenUp(job)),
        }
    }

    /// Whether an attempt is stopped because it hangs, to be started again.
    pub(super) fn is_restarted(&self, job: JobId, attempt: Attempt) -> Option<Hang> {
        let record = self.records.get(&job)?;
        let watch = record.watch.as_ref().filter(|watch| watch.attempt() == attempt)?;
        watch.hung.filter(|_| watch.acted && record.submission.on_hang == OnHang::Restart)
    }

    /// After a restart: attempts that run are watched from now on.
    pub(super) fn watch_again(&mut self) {
        let mut again: BTreeMap<JobId, Attempt> = BTreeMap::new();
        for (job, record) in self.records.iter() {
            let current = self.engine.state().live(job).map(|live| live.state.attempt);
            let watched = record.watch.as_ref().map(|watch| watch.attempt());
            again.extend(current.filter(|_| watched == current).map(|attempt| (job, attempt)));
        }
        let now = self.now;
        for job in again.into_keys() {
            if let Some(watch) = self.record_mut(job).and_then(|record| record.watch.as_mut()) {
                watch.looked_for = true;
                watch.sign(now);
            }
            self.hang_looks.insert((now, job));
        }
    }
}

/// Whether what is usual is known only now, or is quite another than before.
fn is_other(before: Option<Span>, now: Option<Span>) -> bool {
    match (before, now) {
        (None, Some(_)) => true,
        (Some(before), Some(now)) => now.0 > 2 * before.0 || 2 * now.0 < before.0,
        (_, None) => false,
    }
}
