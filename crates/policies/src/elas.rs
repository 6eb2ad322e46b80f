//! E-LAS: least attained service, tempered by how far a job has come through its epochs.

use crate::prelude::*;
use crate::tiresias::{Order, Service, authors_thresholds, place_in_queue};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "elas",
    about: "Jobs are queued by GPU time used, weighed by the share of their epochs still to come.",
    paper: "Sultana et al., E-LAS, ICPP 2020",
    needs: Needs::ESTIMATE,
    class: Taxonomy::rigid(Objective::CompletionTime, Family::LeastServed).preemptive(),
    settings: &[
        ("index", "`remaining-service`: used x left / done; `unfinished-share`: used x share left"),
        ("thresholds", "index at which a job sinks into the next queue, in GPU-seconds"),
        (
            "epoch",
            "how long a job runs before its progress is known, and how often it is looked at",
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
    order: Order,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            index: Index::RemainingService,
            thresholds: authors_thresholds(),
            epoch: Span::secs(600),
            order: Order::default(),
        }
    }
}

/// The index: its exact form is not known to us, so both readings are here.
#[derive(Copy, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Index {
    /// w t (E - e) / e: the service still to come, if the pace so far lasts.
    #[default]
    RemainingService,
    /// w t (1 - e / E): attained service, forgiven as the end comes near.
    UnfinishedShare,
}

/// O(log n) for each job that changes and for each epoch of a running job while others wait.
struct Elas {
    index: Index,
    thresholds: Vec<Span>,
    epoch: Span,
    order: Order,
}

/// Epochs looked ahead for the next change of queue.
const AHEAD_MAX: u64 = 64;

impl Elas {
    /// The queue a job will be in after it ran on for `more`, if its pace lasts.
    ///
    /// The index is zero until an epoch was seen, and plain attained service where the number of epochs is not known.
    fn queue(&self, job: JobRef<'_>, view: &View<'_>, more: Span) -> usize {
        let now = view.now + more;
        if job.state.ran(now) < self.epoch {
            return 0;
        }
        let used = Service::GpuTime.of(job, now);
        let done = job.state.progress.done_at(now).0;
        let left = view
            .work_left(job)
            .map(|left| (left.0 - job.state.progress.rate.over(more).0).max(0.0));
        let index = match (self.index, left) {
            (_, None) => used,
            (Index::RemainingService, Some(left)) if done > 0.0 => used.scaled(left / done),
            (Index::UnfinishedShare, Some(left)) if left > 0.0 => used.scaled(left / (done + left)),
            (Index::RemainingService, Some(_)) => used,
            (Index::UnfinishedShare, Some(_)) => Span::ZERO,
        };
        self.thresholds.partition_point(|limit| *limit <= index)
    }
}

impl Rank for Elas {
    fn rank(&mut self, job: JobRef<'_>, view: &View<'_>) -> Key {
        place_in_queue(self.queue(job, view, Span::ZERO), self.order, job)
    }

    fn changes_at(&mut self, job: JobRef<'_>, view: &View<'_>) -> Option<Time> {
        if !job.state.is_placed() {
            return None;
        }
        let into = Span(job.state.ran(view.now).0 % self.epoch.0);
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
    Ok(Pipeline::new(policy, FewestNodes, ENTRY.needs))
}
