//! Muri-L: jobs in groups that take turns on storage and CPU, GPU and network; the least GPU time attained first.

use crate::muri::{Muri, Order, SETTINGS, Settings};
use crate::prelude::*;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "muri-l",
    about: "Where GPUs are short, jobs whose stages fit share them in groups of up to four; the least GPU time used goes first.",
    paper: "Zhao et al., Multi-resource interleaving for deep learning training (Muri), SIGCOMM 2022",
    needs: Needs { rates: true, ..Needs::NOTHING },
    class: Taxonomy::rigid(Objective::CompletionTime, Family::Sharing).preemptive(),
    settings: SETTINGS,
    defaults: defaults::<Settings>,
    build,
};

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    Ok(Pipeline::new(Muri::new(Order::Attained, raw, &ENTRY)?, FewestNodes, ENTRY.needs))
}
