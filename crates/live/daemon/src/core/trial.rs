//! A policy on trial: it is replaced by itself when its time has passed or a measure worsens, also after a restart.
//!
//! What is kept is the policy to go back to, the moment, and what was measured so far. The change back is made while
//! no request is out, because an answer belongs to the policy that was asked.

use super::{Core, Said};
use crate::access::{self, Caller, Right};
use crate::flight::Line;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::VecDeque;
use trainyard_api::trial::{GuardRequest, Measure, TrialRow};
use trainyard_api::{Code, Problem};
use trainyard_types::{Span, Time};

/// How much of each measure is remembered to compare with.
const REMEMBERED_MAX: usize = 10_000;
/// So many are needed before anything is compared.
const LEAST: u64 = 3;
/// The longest trial.
const SECONDS_MAX: f64 = 366.0 * 86_400.0;

/// A policy on trial, as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The policy on trial.
    pub policy: String,
    /// The one that comes back.
    pub back_to: String,
    /// The half-life that one names.
    pub half_life: Span,
    /// Who began it.
    pub by: String,
    /// When it began, in the engine's time, which no program can set.
    pub begun: Time,
    /// When it ends.
    pub until: Time,
    /// What ends it sooner, with the measure before it.
    pub guard: Option<(GuardRequest, f64)>,
    /// What was measured since.
    #[serde(default)]
    pub tally: Tally,
}

/// So many values with such a sum.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    count: u64,
    sum: f64,
}

impl Tally {
    fn note(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
    }

    /// The measure after so many hours.
    fn value(&self, measure: Measure, hours: f64) -> f64 {
        match measure {
            Measure::Wait | Measure::Jct => self.sum / self.count.max(1) as f64,
            Measure::Restarts => self.count as f64 / hours.max(1e-9),
        }
    }
}

impl Trial {
    /// The measure since the trial began; nothing while there is too little of it.
    fn measured(&self, now: Time) -> Option<f64> {
        let (guard, _) = self.guard?;
        let enough = self.tally.count >= LEAST || guard.measure == Measure::Restarts;
        enough.then(|| self.tally.value(guard.measure, hours(now.since(self.begun))))
    }

    /// Why it is over, if it is. What a switch alone causes is not held against it: a tenth of its time must be gone.
    fn over(&self, now: Time) -> Option<String> {
        if now >= self.until {
            return Some("its time is over".to_owned());
        }
        let (guard, before) = self.guard?;
        let early = now.since(self.begun).0 < self.until.since(self.begun).0 / 10;
        let value = self.measured(now).filter(|_| !early && self.tally.count >= LEAST)?;
        (value > before * (1.0 + guard.worse_by)).then(|| {
            let name = guard.measure.name();
            let percent = guard.worse_by * 100.0;
            format!("{name} is {value:.1}, and was {before:.1}: more than {percent:.0} % worse")
        })
    }

    /// As it is shown at a moment that is `wall` in microseconds of Unix time.
    pub fn row(&self, now: Time, wall: i64) -> TrialRow {
        let unix = |at: Time| (wall as f64 + at.0 as f64 - now.0 as f64) / 1e6;
        TrialRow {
            policy: self.policy.clone(),
            back_to: self.back_to.clone(),
            by: self.by.clone(),
            begun: unix(self.begun),
            until: unix(self.until),
            guard: self.guard.map(|(guard, _)| guard),
            before: self.guard.map(|(_, before)| before),
            now: self.measured(now),
        }
    }
}

/// What happened lately, to be compared with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lately {
    noted: VecDeque<(Time, Measure, f64)>,
    since: Option<Time>,
}

impl Lately {
    fn note(&mut self, at: Time, measure: Measure, value: f64) {
        self.since.get_or_insert(at);
        if self.noted.len() >= REMEMBERED_MAX {
            self.noted.pop_front();
            self.since = self.noted.front().map(|(at, ..)| *at);
        }
        self.noted.push_back((at, measure, value));
    }

    /// A measure over the last span; nothing if too little happened.
    fn value(&self, measure: Measure, now: Time, span: Span) -> Option<f64> {
        let from = Time(now.0.saturating_sub(span.0)).max(self.since?);
        let mut tally = Tally::default();
        let seen = self.noted.iter().filter(|(at, one, _)| *at >= from && *one == measure);
        seen.for_each(|(_, _, value)| tally.note(*value));
        let enough = tally.count >= LEAST || measure == Measure::Restarts;
        enough.then(|| tally.value(measure, hours(now.since(from))))
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct TrialAsked {
    /// The policy, as it is shown.
    pub label: String,
    /// The half-life it names.
    pub half_life: Span,
    /// For how long.
    pub seconds: f64,
    /// What ends it sooner.
    pub guard: Option<GuardRequest>,
}

impl Core {
    /// Puts a policy on trial.
    pub(super) fn try_policy(
        &mut self,
        caller: &Caller,
        asked: TrialAsked,
    ) -> Result<Said, Problem> {
        let allowed = access::check(caller, Right::RulePolicy, None);
        self.audit(&caller.user, "policy try", &asked.label, allowed.is_ok());
        allowed?;
        let TrialAsked { label, half_life, seconds, guard } = asked;
        if let Some(trial) = &self.trial {
            let detail = format!(
                "`{}` is on trial already: end that with `policy try --keep` or `policy try --back`",
                trial.policy
            );
            return Err(Problem::new(Code::Conflict, detail));
        }
        if !(1.0..=SECONDS_MAX).contains(&seconds) {
            let detail = "expected a length from a second to a year";
            return Err(Problem::field(Code::BadInput, "seconds", detail));
        }
        let guard = match guard {
            None => None,
            Some(guard) => Some((guard, self.before(guard, Span::from_secs_f64(seconds))?)),
        };
        let begun = self.called_at;
        let until = begun + Span::from_secs_f64(seconds);
        self.trial = Some(Trial {
            policy: label.clone(),
            back_to: self.options.policy.clone(),
            half_life: self.options.half_life,
            by: caller.user.clone(),
            begun,
            until,
            guard,
            tally: Tally::default(),
        });
        let end = crate::messages::moment(self.wall as f64 / 1e6 + seconds);
        let sentence = format!("{}: policy {label} on trial until {end}", caller.user);
        self.event("policy", None, &sentence, Value::Null);
        self.keep_trial();
        self.switch_policy(label, half_life);
        Ok(Said::Done)
    }

    /// Ends a trial before its time.
    pub(super) fn end_trial(&mut self, caller: &Caller, keep: bool) -> Result<Said, Problem> {
        let allowed = access::check(caller, Right::RulePolicy, None);
        let verb = if keep { "policy keep" } else { "policy back" };
        self.audit(&caller.user, verb, &self.options.policy.clone(), allowed.is_ok());
        allowed?;
        let now = self.now;
        let Some(trial) = &mut self.trial else {
            return Err(Problem::new(Code::Conflict, "no policy is on trial"));
        };
        if keep {
            let sentence = format!("{}: policy {} stays", caller.user, trial.policy);
            self.event("policy", None, &sentence, Value::Null);
            self.trial = None;
        } else {
            // The turn ends it, as soon as the policy on trial has answered.
            trial.until = trial.until.min(now);
        }
        self.keep_trial();
        Ok(Said::Done)
    }

    /// A policy that was chosen for good ends a trial.
    pub(super) fn forget_trial(&mut self) {
        if self.trial.take().is_some() {
            self.keep_trial();
        }
    }

    /// Goes back to the policy before, if the trial is over and no request is out.
    pub(super) fn settle_trial(&mut self) {
        if self.request.is_some() {
            return;
        }
        let Some(trial) = self.trial.take() else { return };
        let Some(why) = trial.over(self.now) else {
            self.trial = Some(trial);
            return;
        };
        let sentence =
            format!("policy {} is back: the trial of {} ends, {why}", trial.back_to, trial.policy);
        self.event("policy", None, &sentence, json!({ "why": why }));
        self.keep_trial();
        self.switch_policy(trial.back_to.clone(), trial.half_life);
        self.turn.policy = Some((trial.back_to, trial.half_life));
    }

    /// When a trial is over: by the clock, or now.
    pub(super) fn trial_due(&self) -> Option<Time> {
        let trial = self.trial.as_ref()?;
        Some(if trial.over(self.now).is_some() { self.now } else { trial.until })
    }

    /// Another policy decides from now on.
    pub(super) fn switch_policy(&mut self, label: String, half_life: Span) {
        self.meta("policy", &json!(label));
        let at = self.now;
        self.turn.lines.push(Line::Policy { at, policy: label.clone(), half_life });
        self.options.policy = label;
        self.options.half_life = half_life;
        self.engine.reset_failures();
    }

    /// Something was measured.
    pub(super) fn measured(&mut self, measure: Measure, value: f64) {
        self.lately.note(self.now, measure, value);
        let Some(trial) = &mut self.trial else { return };
        if trial.guard.is_some_and(|(guard, _)| guard.measure == measure) {
            trial.tally.note(value);
            self.keep_trial();
        }
    }

    fn before(&self, guard: GuardRequest, span: Span) -> Result<f64, Problem> {
        if !(0.0..=1000.0).contains(&guard.worse_by) {
            let detail = "expected a part from 0 to 1000, such as 0.2";
            return Err(Problem::field(Code::BadInput, "worse_by", detail));
        }
        self.lately.value(guard.measure, self.now, span).ok_or_else(|| {
            let name = guard.measure.name();
            let detail = format!(
                "too little happened lately to compare `{name}` with: {LEAST} are needed; try again later, or without \
                 a measure"
            );
            Problem::field(Code::Conflict, "measure", detail)
        })
    }

    fn keep_trial(&mut self) {
        let trial = json!(self.trial);
        self.meta("trial", &trial);
    }
}

fn hours(span: Span) -> f64 {
    span.as_secs_f64() / 3600.0
}
