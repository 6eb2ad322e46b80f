//! E-LAS: least attained service, tempered by how far a job has come through its epochs.

use crate::place::skew::Skew;
use crate::prelude::*;
use crate::tiresias::{QueueOrder, Service, authors_thresholds, place_in_queue};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "elas",
    about: "Jobs are queued by GPU time used, weighed by the share of their epochs still to come.",
    paper: "Sultana et al., E-LAS, ICPP 2020",
    needs: Needs::ESTIMATE,
    class: Taxonomy::rigid(Objective::CompletionTime, Family::LeastServed)
        .preemptive()
        .partial("index and placement are readings of the abstract"),
    settings: &[
        (
            "index",
            "`remaining-service`: used x left / done; `unfinished-share`: used x share left; `service-and-epochs`: used, and in a queue more epochs first",
        ),
        ("thresholds", "index at which a job sinks into the next queue, in GPU-seconds"),
        (
            "epoch",
            "of a job that reports no epochs: how long it runs before its progress is known, and how often it is looked at",
        ),
        ("order", "inside a queue: `started`, `waiting-since` or `submitted` first"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    index: Index,
    thresholds: Vec<Span>,
    epoch: Span,
    order: QueueOrder,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            index: Index::RemainingService,
            thresholds: authors_thresholds(),
            epoch: Span::secs(600),
            order: QueueOrder::default(),
        }
    }
}

/// The index: its exact form is not known to us, so all readings are here.
#[derive(Copy, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Index {
    /// w t (E - e) / e: the service still to come, if the pace so far lasts.
    #[default]
    RemainingService,
    /// w t (1 - e / E): attained service, forgiven as the end comes near.
    UnfinishedShare,
    /// w t, and among jobs of one queue the one with more epochs first.
    ServiceAndEpochs,
}

/// O(log n) for each job that changes, for each threshold it crosses, and for each epoch of a running job that reports
/// none while others wait.
struct Elas {
    index: Index,
    thresholds: Vec<Span>,
    epoch: Span,
    order: QueueOrder,
}

/// Epochs looked ahead for the next change of queue.
const AHEAD_MAX: u64 = 64;

/// How far a job has come at the end of its last epoch.
struct Progressed {
    done: f64,
    left: f64,
}

impl Elas {
    /// What the attained service of a job is multiplied by, when it has run on for `more`; nothing before an epoch was seen.
    ///
    /// A job that reports epochs has come as far as the last one it reported. One that reports none is taken to finish an
    /// epoch in each stretch of its run time, so that it has come as far as it is.
    fn factor(&self, job: JobRef<'_>, view: &View<'_>, more: Span) -> Option<f64> {
        let reported = job.state.measured.as_ref().and_then(|measured| measured.epochs);
        let at = match reported {
            Some(epochs) if epochs.finished == 0 => return None,
            Some(epochs) => Some(epochs.done.0),
            None if job.state.ran(view.now + more) < self.epoch => return None,
            None => None,
        };
        let now = job.state.progress.done_at(view.now).0;
        let then = job.state.progress.done_at(view.now + more).0;
        let progressed = view.work_left(job).map(|left| {
            let done = at.unwrap_or(then);
            Progressed { done, left: (now + left.0 - done).max(0.0) }
        });
        Some(self.index.factor(progressed))
    }

    /// The queue a job will be in after it ran on for `more`, if its pace lasts.
    ///
    /// The index is zero until an epoch was seen, and plain attained service where the number of epochs is not known.
    fn queue(&self, job: JobRef<'_>, view: &View<'_>, more: Span) -> usize {
        let Some(factor) = self.factor(job, view, more) else { return 0 };
        let index = Service::GpuTime.of(job, view.now + more).scaled(factor);
        self.thresholds.partition_point(|limit| *limit <= index)
    }

    /// When a job that reports its epochs sinks before it reports the next one: its service grows alone.
    fn sinks_at(&self, job: JobRef<'_>, view: &View<'_>) -> Option<Time> {
        let factor = self.factor(job, view, Span::ZERO).filter(|factor| *factor > 0.0)?;
        let used = Service::GpuTime.of(job, view.now);
        let limit = *self.thresholds.get(self.queue(job, view, Span::ZERO))?;
        let more = limit.scaled(1.0 / factor).minus(used) + Span(1);
        Some(view.now + Service::GpuTime.time_until(more, job)?.max(Span(1)))
    }
}

impl Index {
    /// What attained service is multiplied by.
    fn factor(self, progressed: Option<Progressed>) -> f64 {
        let Some(Progressed { done, left }) = progressed else { return 1.0 };
        match self {
            Index::RemainingService if done > 0.0 => left / done,
            Index::UnfinishedShare if left > 0.0 => left / (done + left),
            Index::UnfinishedShare => 0.0,
            Index::RemainingService | Index::ServiceAndEpochs => 1.0,
        }
    }
}

/// Epochs that a job has finished: as it reports, or by its run time.
fn epochs(job: JobRef<'_>, epoch: Span, now: Time) -> i64 {
    let reported = job.state.measured.as_ref().and_then(|measured| measured.epochs);
    match reported {
        Some(epochs) => i64::from(epochs.finished),
        None => (job.state.ran(now).0 / epoch.0).min(i64::MAX as u64) as i64,
    }
}

impl Rank for Elas {
    fn rank(&mut self, job: JobRef<'_>, view: &View<'_>) -> Key {
        let mut key = place_in_queue(self.queue(job, view, Span::ZERO), self.order, job);
        if self.index == Index::ServiceAndEpochs {
            key.value = -epochs(job, self.epoch, view.now);
        }
        key
    }

    fn changes_at(&mut self, job: JobRef<'_>, view: &View<'_>) -> Option<Time> {
        if !job.state.is_placed() {
            return None;
        }
        if job.state.measured.as_ref().is_some_and(|measured| measured.epochs.is_some()) {
            return self.sinks_at(job, view);
        }
        let into = Span(job.state.ran(view.now).0 % self.epoch.0);
        if self.index == Index::ServiceAndEpochs {
            return Some(view.now + self.epoch.minus(into));
        }
        let queue = self.queue(job, view, Span::ZERO);
        let mut ends = (1..=AHEAD_MAX).map(|epochs| self.epoch.times(epochs).minus(into));
        let change = ends.find(|more| self.queue(job, view, *more) != queue);
        Some(view.now + change.unwrap_or(self.epoch.times(AHEAD_MAX)))
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { index, mut thresholds, epoch, order } = raw.read(ENTRY.name)?;
    if epoch < Span::secs(1) {
        return Err(ENTRY.bad_value("epoch", epoch, "at least a second"));
    }
    thresholds.sort_unstable();
    let policy = Ranked::new(Elas { index, thresholds, epoch, order });
    Ok(Pipeline::new(policy, Skew::relaxed(), ENTRY.needs))
}
