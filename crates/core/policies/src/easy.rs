//! EASY backfill: the head of the queue has a reservation, and others pass it only if they do not delay it.

use crate::backfill::Backfill;
use crate::prelude::*;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "easy",
    about: "In order of arrival; a job that fits may pass the head if it ends before the head can start or uses spare GPUs.",
    paper: "Lifka, The ANL/IBM SP Scheduling System, JSSPP 1995",
    needs: Needs::ESTIMATE,
    class: Taxonomy::rigid(Objective::Arrival, Family::Backfill),
    settings: &[],
    defaults: toml::Table::new,
    build,
};

#[derive(Default, Serialize, Deserialize)]
struct Settings {}

/// One reservation, for good: what is spare beside it at the time is spare for any length.
/// A decision costs O(ends that the head waits for + waiting jobs looked at), nothing when no GPU is free.
fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings {} = raw.read(ENTRY.name)?;
    Ok(Pipeline::new(Backfill::new(1, true), FewestNodes, ENTRY.needs))
}
