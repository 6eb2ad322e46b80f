//! First in, first out: jobs start in the order of submission; by default the head of the queue blocks the rest.

use crate::prelude::*;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "fifo",
    about: "Jobs start in the order of submission; the head of the queue blocks the rest unless it backfills.",
    paper: "-",
    needs: Needs::NOTHING,
    class: Taxonomy::rigid(Objective::Arrival, Family::Arrival),
    settings: &[
        ("fill", "`strict`: the head blocks the rest; `backfill`: any job that fits may pass it"),
        (
            "mode",
            "`changes`, or `refill` to fill an emptied cluster at each event as published simulators do",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    fill: Fill,
    mode: Mode,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { fill: Fill::Strict, mode: Mode::Changes }
    }
}

/// By submission.
pub(crate) struct Fifo;

impl Rank for Fifo {
    fn rank(&mut self, job: JobRef<'_>, _view: &View<'_>) -> Key {
        Key::at(job.spec.submitted)
    }

    fn is_steady(&self) -> bool {
        true
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { fill, mode } = raw.read(ENTRY.name)?;
    let policy = Ranked::new(Fifo).no_preemption().fill(fill).mode(mode);
    Ok(Pipeline::new(policy, FewestNodes, ENTRY.needs))
}
