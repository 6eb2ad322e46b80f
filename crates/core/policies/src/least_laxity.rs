//! Least laxity first: the job that can wait the shortest runs.

use crate::deadlines::{Hopeless, Judged, is_lost, latest_start, lost_at};
use crate::prelude::*;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "least-laxity",
    about: "The job that can wait the shortest and still meet its deadline runs; it stops others to do so.",
    paper: "Mok, PhD thesis, MIT 1983",
    needs: Needs::ESTIMATE,
    class: Taxonomy::rigid(Objective::Deadline, Family::Deadline).preemptive(),
    settings: &[
        (
            "hopeless",
            "jobs that miss their deadline even if they run at once: `last`, or `in-order` as any other",
        ),
        (
            "quantum",
            "how often a running job is looked at anew, and how much less another must be able to wait to stop it",
        ),
        ("fill", "`strict`: the head blocks the rest; `backfill`: any job that fits may pass it"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    hopeless: Hopeless,
    quantum: Span,
    fill: Fill,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { hopeless: Hopeless::Last, quantum: Span::secs(300), fill: Fill::default() }
    }
}

/// O(log n) for each job that changes, and for each running job in each quantum while others wait.
///
/// Laxity is the deadline less now less the time left. Now is the same for all, so the order is that of the deadline
/// less the time left: that of a waiting job stands still, that of a running one grows.
struct Laxity {
    hopeless: Hopeless,
    quantum: Span,
}

impl Rank for Laxity {
    fn rank(&mut self, job: JobRef<'_>, view: &View<'_>) -> Key {
        match latest_start(job, view) {
            Some(latest) => {
                let lost = is_lost(latest, view.now) && self.hopeless == Hopeless::Last;
                // A job that runs is only stopped for one that can wait much less.
                let ahead = if job.state.planned.is_some() { self.quantum.0 as i64 } else { 0 };
                let key = Key::value(latest.saturating_sub(ahead));
                key.tier(if lost { 2 } else { 0 }).tie(job.spec.submitted)
            }
            None => Key::at(job.spec.submitted).tier(1),
        }
    }

    fn changes_at(&mut self, job: JobRef<'_>, view: &View<'_>) -> Option<Time> {
        latest_start(job, view)?;
        match (job.state.is_placed(), self.hopeless) {
            (true, _) => Some(view.now + self.quantum),
            (false, Hopeless::Last) => lost_at(job, view),
            (false, Hopeless::InOrder) => None,
        }
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { hopeless, quantum, fill } = raw.read(ENTRY.name)?;
    if !(Span::secs(1)..=Span::secs(86_400)).contains(&quantum) {
        return Err(ENTRY.bad_value("quantum", quantum, "a second to a day"));
    }
    let policy = Ranked::new(Laxity { hopeless, quantum }).fill(fill);
    Ok(Pipeline::new(Judged(policy), FewestNodes, ENTRY.needs))
}
