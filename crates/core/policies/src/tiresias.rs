//! Tiresias: two-dimensional least attained service in a few queues, so that only crossing a threshold costs a place.
//!
//! Sections are of Gu et al., NSDI 2019: 3.2.2 is the attained service in two dimensions, 3.2.3 the queues, 3.3 the
//! placement, which is the placer `skew` here.

mod authors;
mod queues;

use crate::prelude::*;
pub(crate) use queues::{Jump, Queues};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "tiresias",
    about: "Jobs sink through a few queues as they use GPU time; a job that waits too long may return to the first.",
    paper: "Gu et al., Tiresias, NSDI 2019",
    needs: Needs::NOTHING,
    class: Taxonomy::rigid(Objective::CompletionTime, Family::LeastServed).preemptive(),
    settings: &[
        (
            "thresholds",
            "service at which a job sinks into the next queue, in GPU-seconds written as a length of time",
        ),
        ("service", "`gpu-time`: GPUs times time; `time`: time alone"),
        (
            "promote_knob",
            "a job that waited this many times as long as it ran returns to the first queue; 0 is never",
        ),
        ("order", "inside a queue: `started`, `waiting-since` or `submitted` first"),
        ("jump", "`exact`, or when the authors' simulators look: `tiresias-code`, `muri-code`"),
        (
            "mode",
            "`changes`, `refill-requeue` as the authors' simulators do, or `recount` as Pollux' does",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    thresholds: Vec<Span>,
    service: Service,
    promote_knob: f64,
    order: QueueOrder,
    jump: Jump,
    mode: Mode,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            thresholds: authors_thresholds(),
            service: Service::GpuTime,
            promote_knob: 0.0,
            order: QueueOrder::WaitingSince,
            jump: Jump::Exact,
            mode: Mode::Changes,
        }
    }
}

/// The limits of the authors' three queues, in GPU-seconds; they write a third one that none of them uses.
pub(crate) fn authors_thresholds() -> Vec<Span> {
    vec![Span::secs(3250), Span::secs(7200)]
}

/// What counts as service.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Service {
    /// GPUs times time: 2D-LAS (section 3.2.2), the authors' `dlas-gpu`.
    #[default]
    GpuTime,
    /// Time alone: one dimension, the authors' `dlas`.
    Time,
}

impl Service {
    /// The service a job has attained.
    pub(crate) fn of(self, job: JobRef<'_>, now: Time) -> Span {
        match self {
            Service::GpuTime => job.state.attained(now),
            Service::Time => job.state.ran(now),
        }
    }

    /// The service a job attains in `span` where it is.
    pub(crate) fn over(self, span: Span, job: JobRef<'_>) -> Span {
        match self {
            Service::GpuTime => span.times(u64::from(job.state.gpus())),
            Service::Time => span,
        }
    }

    /// How long a job takes to attain `more`, where it is; never while it holds no GPU.
    pub(crate) fn time_until(self, more: Span, job: JobRef<'_>) -> Option<Span> {
        if !job.state.is_placed() {
            return None;
        }
        let pace = match self {
            Service::GpuTime => u64::from(job.state.gpus()).max(1),
            Service::Time => 1,
        };
        Some(Span(more.0.div_ceil(pace)))
    }
}

/// Which job of one queue goes first.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum QueueOrder {
    /// The job that started first; it may stop those that started later.
    Started,
    /// The job that has waited longest since it last ran; no job is stopped for one of its own queue.
    #[default]
    WaitingSince,
    /// The job that was submitted first; no job is stopped for one of its own queue.
    Submitted,
}

/// The place of a job inside its queue.
pub(crate) fn place_in_queue(queue: usize, order: QueueOrder, job: JobRef<'_>) -> Key {
    // A job that is being stopped waits from now on; among those that run, the latest to start goes first.
    let since = if job.state.is_placed() { job.state.since } else { job.state.queued_at };
    let key = match order {
        // A job that has not started yet comes last, in order of submission.
        QueueOrder::Started => {
            Key::at(job.state.first_start.unwrap_or(Time::NEVER)).tie(job.spec.submitted)
        }
        QueueOrder::WaitingSince => Key::value(0).tie(since),
        QueueOrder::Submitted => Key::value(0).tie(job.spec.submitted),
    };
    key.tier(queue as i64)
}

/// O(log n) for each job that changes or crosses a threshold.
struct Tiresias {
    queues: Queues,
    order: QueueOrder,
    mode: Mode,
}

impl Rank for Tiresias {
    fn rank(&mut self, job: JobRef<'_>, view: &View<'_>) -> Key {
        let queue = self.queues.queue(job, view);
        match self.mode {
            Mode::Changes => place_in_queue(queue, self.order, job),
            Mode::Refill | Mode::RefillRequeue | Mode::Recount => authors::place_in_queue(queue),
        }
    }

    fn changes_at(&mut self, job: JobRef<'_>, view: &View<'_>) -> Option<Time> {
        self.queues.changes_at(job, view)
    }

    fn over(&mut self, job: JobId, _view: &View<'_>) {
        self.queues.over(job);
    }

    fn forget(&mut self) {
        self.queues.forget();
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { thresholds, service, promote_knob, order, jump, mode } = raw.read(ENTRY.name)?;
    if !(0.0..=1e9).contains(&promote_knob) {
        return Err(ENTRY.bad_value("promote_knob", promote_knob, "a number from 0 to 1e9"));
    }
    let mut queues = Queues::new(thresholds, service, jump);
    queues.promote_knob = promote_knob;
    let policy = Ranked::new(Tiresias { queues, order, mode }).mode(mode);
    Ok(Pipeline::new(policy, FewestNodes, ENTRY.needs))
}
