//! Least attained service: the job that has used the least goes first, counted in quanta so that no job is stopped for
//! a tiny difference.
//!
//! With `service=gpu-time` it is Tiresias' 2D-LAS before it is cut into queues.

use crate::prelude::*;
use crate::tiresias::Service;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "las",
    about: "The job that has used the least GPU time runs; service is counted in quanta.",
    paper: "Nuyens and Wierman, Performance Evaluation 2008; in two dimensions: Gu et al., Tiresias, NSDI 2019",
    needs: Needs::NOTHING,
    class: Taxonomy::rigid(Objective::CompletionTime, Family::LeastServed).preemptive(),
    settings: &[
        (
            "quantum",
            "service that counts as the first step; within a step no job is stopped for another",
        ),
        ("growth", "how many times as long each further step is; 1 makes all steps alike"),
        ("thresholds", "if given, the limits between steps, instead of `quantum` and `growth`"),
        ("turn", "how long a job keeps its place after a start, whatever it attains"),
        ("service", "`gpu-time`: GPUs times time; `time`: time alone"),
        ("fill", "`strict`: the head blocks the rest; `backfill`: any job that fits may pass it"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    quantum: Span,
    growth: f64,
    thresholds: Vec<Span>,
    turn: Span,
    service: Service,
    fill: Fill,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            quantum: Span::secs(3600),
            growth: 2.0,
            thresholds: Vec::new(),
            turn: Span::secs(300),
            service: Service::GpuTime,
            fill: Fill::Backfill,
        }
    }
}

/// O(log n) for each job that changes or crosses a step. Without memory: the key is a function of the state.
struct Las {
    steps: Steps,
    turn: Span,
    service: Service,
}

/// Where steps begin.
enum Steps {
    /// At every multiple.
    Even(Span),
    /// At these.
    At(Vec<Span>),
}

impl Steps {
    /// Each step `growth` times as long as the one before, up to the longest span.
    fn growing(quantum: Span, growth: f64) -> Steps {
        let mut limits = Vec::new();
        let (mut limit, mut length) = (0.0, quantum.0 as f64);
        while limit + length < u64::MAX as f64 {
            limit += length;
            length *= growth;
            limits.push(Span(limit as u64));
        }
        Steps::At(limits)
    }

    fn number(&self, attained: Span) -> u64 {
        match self {
            Steps::Even(quantum) => attained.0 / quantum.0,
            Steps::At(limits) => limits.partition_point(|limit| *limit <= attained) as u64,
        }
    }

    /// The service at which the step after `number` begins.
    fn end(&self, number: u64) -> Option<Span> {
        match self {
            Steps::Even(quantum) => Some(quantum.times(number + 1)),
            Steps::At(limits) => limits.get(number as usize).copied(),
        }
    }
}

impl Las {
    /// The end of the turn a running job has had no time to lose its place in yet.
    fn turn_ends(&self, job: JobRef<'_>, now: Time) -> Option<Time> {
        let ends = job.state.last_start.filter(|_| job.state.is_placed())? + self.turn;
        (ends > now).then_some(ends)
    }

    /// The service that decides: within a turn, that at its start.
    fn decisive(&self, job: JobRef<'_>, now: Time) -> Span {
        let attained = self.service.of(job, now);
        match self.turn_ends(job, now) {
            Some(ends) => {
                attained.minus(self.service.over(now.since(Time(ends.0 - self.turn.0)), job))
            }
            None => attained,
        }
    }
}

impl Rank for Las {
    fn rank(&mut self, job: JobRef<'_>, view: &View<'_>) -> Key {
        let step = self.steps.number(self.decisive(job, view.now));
        Key::value(0).tier(step as i64).tie(job.spec.submitted)
    }

    fn changes_at(&mut self, job: JobRef<'_>, view: &View<'_>) -> Option<Time> {
        let limit = self.steps.end(self.steps.number(self.decisive(job, view.now)))?;
        let more = limit.minus(self.service.of(job, view.now));
        let crosses = view.now + self.service.time_until(more, job)?;
        Some(crosses.max(self.turn_ends(job, view.now).unwrap_or(Time::ZERO)))
    }
}

/// The order at its usual settings, for policies that stand on it.
pub(crate) fn usual() -> impl Rank {
    let Settings { quantum, growth, turn, service, .. } = Settings::default();
    Las { steps: Steps::growing(quantum, growth), turn, service }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { quantum, growth, mut thresholds, turn, service, fill } = raw.read(ENTRY.name)?;
    if quantum == Span::ZERO {
        return Err(ENTRY.bad_value("quantum", quantum, "a length of time above 0"));
    }
    if growth != 1.0 && !(1.01..=1e6).contains(&growth) {
        return Err(ENTRY.bad_value("growth", growth, "1, or a number from 1.01 to 1e6"));
    }
    thresholds.sort_unstable();
    let steps = match (thresholds.is_empty(), growth == 1.0) {
        (false, _) => Steps::At(thresholds),
        (true, true) => Steps::Even(quantum),
        (true, false) => Steps::growing(quantum, growth),
    };
    let policy = Ranked::new(Las { steps, turn, service }).fill(fill);
    Ok(Pipeline::new(policy, FewestNodes, ENTRY.needs))
}
