//! Conservative backfill: many jobs have reservations, and no job passes that would delay one of them.

use crate::backfill::Backfill;
use crate::prelude::*;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "conservative",
    about: "In order of arrival; the first `depth` waiting jobs have reservations that no job may delay.",
    paper: "Mu'alem and Feitelson, IEEE TPDS 2001",
    needs: Needs::ESTIMATE,
    class: Taxonomy::rigid(Objective::Arrival, Family::Backfill),
    settings: &[("depth", "how many waiting jobs have a reservation")],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    depth: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { depth: 100 }
    }
}

/// A decision costs O(depth x (ends that the last reservation waits for + depth) + waiting jobs looked at), nothing when
/// no GPU is free.
fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { depth } = raw.read(ENTRY.name)?;
    if depth == 0 {
        return Err(ENTRY.bad_value("depth", depth, "at least 1"));
    }
    Ok(Pipeline::new(Backfill::new(depth as usize, false), FewestNodes, ENTRY.needs))
}
