//! What comes back from the backend.

use super::ending::{self, Ending, Terms};
use super::{Core, Order};
use crate::messages;
use crate::record::Unit;
use serde_json::json;
use trainyard_api::wire::FromJob;
use trainyard_backend::{Exit, Report};
use trainyard_types::{Attempt, Cause, Event, JobId, Phase, Rate, Sample, Span, Work};

impl Core {
    pub(super) fn report(&mut self, report: Report) {
        match report {
            Report::Started { job, attempt } => self.started(job, attempt),
            Report::Said { job, attempt, sample, message } => {
                self.said(job, attempt, sample, &message);
            }
            Report::Ended { job, attempt, exit } => self.attempt_ended(job, attempt, exit),
            Report::Node { node, seen } => self.node_seen(&node, seen),
            Report::Gpu(seen) => self.gpu_seen(&seen),
            Report::Aside { job, attempt, seen } => self.aside_seen(job, attempt, &seen),
            Report::Sharing { gpu, seen } => self.sharing_seen(gpu, seen),
            Report::Gone { job, why } => self.gone(job, &why),
            Report::Notice { job, what } => {
                let about = job.map_or_else(String::new, |job| format!("job {}: ", job.0));
                self.event("backend", job, &format!("{about}{what}"), serde_json::Value::Null);
            }
            Report::Trouble(trouble) => {
                let sentence = trouble.unwrap_or_else(|| "all is well again".to_owned());
                self.event("backend", None, &sentence, serde_json::Value::Null);
            }
        }
    }

    pub(super) fn started(&mut self, job: JobId, attempt: Attempt) {
        if !self.is_current(job, attempt)
            || self.phase(job) != Some(Phase::Starting)
            || self.is_coming_back(job)
        {
            return;
        }
        let wall = self.wall;
        if let Some(record) = self.record_mut(job)
            && let Some(launch) = &mut record.launch
        {
            launch.started = Some(wall);
        }
        self.apply(Event::Started { job, attempt });
        self.promise_rate(job, attempt);
        let sentence = format!("job {} attempt {} runs", job.0, attempt.0);
        self.event("started", Some(job), &sentence, json!({ "attempt": attempt.0 }));
    }

    fn said(&mut self, job: JobId, attempt: Attempt, sample: Sample, message: &FromJob) {
        if !self.is_current(job, attempt) {
            return;
        }
        if self.phase(job) == Some(Phase::Starting) {
            // A job that reports something runs; the report that it started may come later.
            self.started(job, attempt);
        }
        let wall = self.wall;
        self.watch_progress(job, attempt, message);
        let Some(record) = self.record_mut(job) else { return };
        let mut sample = sample;
        match message {
            // Only how far ranks are, which is no news of the job.
            FromJob::Progress { done: None, ranks, .. } if !ranks.is_empty() => {}
            FromJob::Progress { rank: Some(1..), .. } => return,
            FromJob::Progress { done, total, rate, loss, .. } => {
                record.pace.take(wall as f64 / 1e6, *done, *rate, *loss);
                record.total = total.or(record.total);
                record.measured.rate = rate.or(record.measured.rate);
                sample.total = record.total.map(Work);
                record.report = serde_json::to_value(message).ok();
            }
            FromJob::Saved { done, .. } => {
                (record.saved, record.has_checkpoint) = (*done, true);
            }
            FromJob::Restored { seconds, .. } => {
                record.measured.restore = seconds.or(record.measured.restore);
            }
            FromJob::Finished | FromJob::Saving => {}
            FromJob::Resized { devices } => return self.went_over(job, attempt, devices),
        }
        let (unit, total) = (record.submission.unit, record.total);
        let expected = record.submission.expected_seconds;
        if let FromJob::Saved { .. } = message {
            self.keep_course(job);
        }
        let sample = in_unit(sample, unit, total, expected);
        if sample != Sample::default() {
            self.apply(Event::Report { job, attempt, sample });
        }
    }

    pub(super) fn attempt_ended(&mut self, job: JobId, attempt: Attempt, exit: Exit) {
        if !self.is_current(job, attempt) {
            // An end that is known already, or of an attempt that is over: the backend may drop it.
            self.turn.orders.push(Order::Forget(job, attempt));
            return;
        }
        self.shared.remove(&job);
        self.learn_costs(job, attempt, &exit);
        if let Some(idle) = exit.idle_seconds.filter(|_| !exit.finished) {
            // As if its user had ended it: another attempt would idle as well.
            if let Some(record) = self.record_mut(job) {
                let said = format!("its GPUs had done nothing for {}", messages::rounded(idle));
                record.said.get_or_insert(said);
            }
            self.apply(Event::Cancelled(job));
        }
        let held = self.engine.state().live(job).and_then(|live| live.state.held.clone());
        let (event, outcome) = self.judge_exit(job, attempt, &exit);
        let (event, outcome) = self.blamed(event, outcome);
        let excuse = exit.excused.clone();
        let excuse = excuse.or_else(|| held.as_ref().and_then(|held| self.excuse(held)));
        let (event, outcome) = excused(event, outcome, excuse);
        let wall = self.wall;
        if let Some(record) = self.record_mut(job) {
            if let Some(launch) = &mut record.launch {
                launch.ended = Some(wall);
                launch.outcome.clone_from(&outcome);
                launch.exit = Some(exit);
            }
            let launch = record.launch.clone();
            let gpus = held.as_ref().map_or(0, |held| held.placement.gpus());
            let price = held.as_ref().map_or(0.0, |held| self.price(held));
            if let Some(launch) = launch {
                self.write_attempt(job, &launch, gpus, price);
            }
        }
        let kind = match event {
            Event::Finished { .. } => "finished",
            Event::Stopped { .. } => "stopped",
            _ => "failed",
        };
        self.turn.failed += u64::from(kind == "failed");
        let sentence = format!("job {} attempt {}: {outcome}", job.0, attempt.0);
        self.event(kind, Some(job), &sentence, json!({ "attempt": attempt.0 }));
        self.apply(event);
        self.turn.orders.push(Order::Forget(job, attempt));
    }

    /// An attempt that was stopped because it hung has failed, however it stopped: otherwise it could hang for ever.
    fn blamed(&self, event: Event, outcome: String) -> (Event, String) {
        match event {
            Event::Stopped { job, attempt, done } => match self.is_restarted(job, attempt) {
                Some(hang) => {
                    let silent = self.now.since(hang.since);
                    let said = messages::hang(silent, hang.usual, hang.rank);
                    let event = Event::Failed { job, attempt, cause: Cause::Job, done };
                    (event, format!("hung, {said} ({outcome})"))
                }
                None => (event, outcome),
            },
            event => (event, outcome),
        }
    }

    /// What an end means, and the sentence for it. What it tells of a checkpoint stays with the job.
    fn judge_exit(&mut self, job: JobId, attempt: Attempt, exit: &Exit) -> (Event, String) {
        let for_good = self.engine.kept(job).is_some_and(|kept| kept.ending.is_some());
        let Some(record) = self.record_mut(job) else {
            return (Event::Finished { job, attempt }, String::new());
        };
        let terms = Terms { saved_code: record.submission.exit_code, for_good };
        record.saved = exit.saved.unwrap_or(record.saved);
        record.has_checkpoint |= exit.has_checkpoint(terms.saved_code);
        let (unit, total) = (record.submission.unit, record.total);
        let scale = scale(unit, total, record.submission.expected_seconds);
        let done = Work(record.saved * scale.unwrap_or(1.0));
        match ending::judge(exit, &terms) {
            Ending::Finished if exit.code == Some(0) => {
                (Event::Finished { job, attempt }, "finished".to_owned())
            }
            Ending::Finished => {
                let sentence = format!("finished, then {}", how(exit));
                (Event::Finished { job, attempt }, sentence)
            }
            Ending::Stopped { saved } => {
                // A job that saved and did not tell how much is taken to have saved all that it had done.
                let told = exit.saved.is_some() || !saved;
                let progress = self.engine.state().live(job).map(|live| live.state.progress.done);
                let done = progress.filter(|_| !told).unwrap_or(done);
                let stopped = if exit.killed { "" } else { "stopped, " };
                (Event::Stopped { job, attempt, done }, format!("{stopped}{}", how(exit)))
            }
            Ending::Failed(cause) => {
                let sentence = match (&exit.launch_error, exit.lost) {
                    (Some(error), _) => format!("could not be started: {error}"),
                    (None, true) => "lost: nothing is left of it".to_owned(),
                    (None, false) => format!("failed, {}", how(exit)),
                };
                (Event::Failed { job, attempt, cause, done }, sentence)
            }
        }
    }

    /// Measured times become what policies believe about jobs like this one.
    fn learn_costs(&mut self, job: JobId, attempt: Attempt, exit: &Exit) {
        let Some(record) = self.record_mut(job) else { return };
        let measured = &mut record.measured;
        // A job that had to be killed shows its grace, not what saving takes.
        let save = exit.save_seconds.filter(|_| !exit.killed);
        measured.save = save.or(measured.save);
        measured.start = exit.start_seconds.or(measured.start);
        measured.restore = exit.restore_seconds.or(measured.restore);
        let sample = Sample {
            save: save.map(Span::from_secs_f64),
            start: exit.start_seconds.map(Span::from_secs_f64),
            ..Sample::default()
        };
        if sample != Sample::default() {
            self.apply(Event::Report { job, attempt, sample });
        }
    }

    /// Something that only the record knows must survive a restart.
    pub(super) fn keep_course(&mut self, job: JobId) {
        let (Some(record), Some(kept)) = (self.records.get(&job), self.engine.kept(job)) else {
            return;
        };
        let state = super::text(&record.course(kept));
        self.turn.writes.push(trainyard_store::Write::SetState { job: job.0, state, end: None });
    }

    pub(super) fn is_current(&self, job: JobId, attempt: Attempt) -> bool {
        self.engine.state().live(job).is_some_and(|live| {
            let here = live.state.is_placed() || live.state.phase == Phase::Suspended;
            live.state.attempt == attempt && here
        })
    }

    pub(super) fn phase(&self, job: JobId) -> Option<Phase> {
        self.engine.state().live(job).map(|live| live.state.phase)
    }
}

/// A job that counts steps, for whom its user expects seconds, is measured in these seconds.
fn scale(unit: Unit, total: Option<f64>, expected: Option<f64>) -> Option<f64> {
    match (unit, total, expected) {
        (Unit::Steps, _, _) => Some(1.0),
        (Unit::Seconds, Some(total), Some(expected)) if total > 0.0 => Some(expected / total),
        (Unit::Seconds, _, _) => None,
    }
}

fn in_unit(sample: Sample, unit: Unit, total: Option<f64>, expected: Option<f64>) -> Sample {
    let scale = scale(unit, total, expected);
    Sample {
        done: sample.done.and_then(|done| Some(Work(done.0 * scale?))),
        rate: sample.rate.and_then(|rate| Some(Rate(rate.0 * scale?))),
        total: sample.total.filter(|_| unit == Unit::Steps),
        ..sample
    }
}

/// A failure on a GPU that is ill, or by a neighbour's fault, is not the job's: the attempt is lost, and another one
/// follows.
fn excused(event: Event, outcome: String, excuse: Option<String>) -> (Event, String) {
    match (event, excuse) {
        (Event::Failed { job, attempt, cause: Cause::Job, done }, Some(why)) => {
            let event = Event::Failed { job, attempt, cause: Cause::Machine, done };
            (event, format!("lost with {why} ({outcome})"))
        }
        (event, _) => (event, outcome),
    }
}

/// How its processes ended.
fn how(exit: &Exit) -> String {
    if exit.lost {
        return "lost".to_owned();
    }
    let killed = if exit.killed { "killed after its grace, " } else { "" };
    let memory = if exit.out_of_memory { ", out of memory" } else { "" };
    format!("{killed}{}{memory}", code_of(exit))
}

fn code_of(exit: &Exit) -> String {
    match (exit.code, exit.signal) {
        (_, Some(signal)) => format!("signal {signal}"),
        (Some(code), None) => format!("exit code {code}"),
        (None, None) => "no exit code".to_owned(),
    }
}
