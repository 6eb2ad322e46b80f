//! Shortest remaining service first: time left times GPUs, preemptive.

use crate::prelude::*;
use crate::srtf::{Remaining, SETTINGS, Settings};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "srsf",
    about: "The job with the least estimated GPU time left runs; it stops larger ones to do so.",
    paper: "Gu et al., Tiresias, NSDI 2019",
    needs: Needs::ESTIMATE,
    class: Taxonomy::rigid(Objective::CompletionTime, Family::Shortest).preemptive(),
    settings: SETTINGS,
    defaults: defaults::<Settings>,
    build,
};

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { fill, mode } = raw.read(ENTRY.name)?;
    let policy = Ranked::new(Remaining { by_gpus: true, mode }).fill(fill).mode(mode);
    Ok(Pipeline::new(policy, FewestNodes, ENTRY.needs))
}
