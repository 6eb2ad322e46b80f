//! Shortest remaining time first, preemptive.

use crate::prelude::*;
use crate::sjf::known_first;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "srtf",
    about: "The job with the least estimated time left runs; it stops longer ones to do so.",
    paper: "Schrage and Miller, Operations Research 1966",
    needs: Needs::ESTIMATE,
    class: Taxonomy::rigid(Objective::CompletionTime, Family::Shortest).preemptive(),
    settings: SETTINGS,
    defaults: defaults::<Settings>,
    build,
};

/// Settings of the preemptive shortest-first policies.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    ("fill", "`strict`: the head blocks the rest; `backfill`: any job that fits may pass it"),
    (
        "mode",
        "`changes`, or `refill` to fill an emptied cluster at each event as published simulators do",
    ),
];

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Settings {
    pub(crate) fill: Fill,
    pub(crate) mode: Mode,
}

/// O(log n) for each job that changes: while a job runs its key falls at a constant pace and stays in place.
pub(crate) struct Remaining {
    /// Whether the time left is multiplied by the GPUs asked for.
    pub(crate) by_gpus: bool,
    /// Published simulators look at keys at arrivals and ends only.
    pub(crate) mode: Mode,
}

impl Remaining {
    fn factor(&self, job: JobRef<'_>) -> u32 {
        if self.by_gpus { job.spec.want.gpus } else { 1 }
    }
}

impl Rank for Remaining {
    fn rank(&mut self, job: JobRef<'_>, view: &View<'_>) -> Key {
        let factor = u64::from(self.factor(job));
        known_first(view.time_left(job).map(|left| left.times(factor)), job)
    }

    fn fall(&self, job: JobRef<'_>, view: &View<'_>) -> u32 {
        view.pace_permille(job).saturating_mul(self.factor(job))
    }

    /// What is left of a job that does not run stays.
    fn is_steady(&self) -> bool {
        self.mode != Mode::Changes
    }

    /// The moment it outlives its estimate and is believed to be longer.
    fn changes_at(&mut self, job: JobRef<'_>, view: &View<'_>) -> Option<Time> {
        if self.mode != Mode::Changes || !job.state.is_placed() {
            return None;
        }
        Some(view.now + view.time_to_end(job)?.max(Span(1)))
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { fill, mode } = raw.read(ENTRY.name)?;
    let policy = Ranked::new(Remaining { by_gpus: false, mode }).fill(fill).mode(mode);
    Ok(Pipeline::new(policy, FewestNodes, ENTRY.needs))
}
