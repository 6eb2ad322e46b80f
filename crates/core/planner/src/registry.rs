//! The one table that makes planners exist.

use serde::Serialize;

use crate::stated::Answer;
use crate::{PlanError, Proposal, Request};
use crate::{cc_os, dapple, duan_wu, harmony, herti, perotin, pesto, ptd_p, spotlight, ursa, yang};

/// What a planner makes plans for.
#[derive(Copy, Clone, Debug)]
pub enum Problem {
    /// Training of one model on a cluster: what `trainyard split` asks.
    Training(fn(&Request<'_>) -> Result<Vec<Proposal>, PlanError>),
    /// Something else, stated as JSON: what it is, who solves it, and an input.
    Stated {
        /// What it is, in a few words.
        what: &'static str,
        /// Solves an input.
        solve: fn(&str) -> Result<Answer, PlanError>,
        /// An input.
        example: &'static str,
    },
}

/// The unit that is divided or ordered, after the survey of Gao et al. (arXiv 2205.11913); the unit of every policy is
/// an instance.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// A whole job.
    Instance,
    /// Groups of operators, such as the stages of a pipeline.
    OperatorSet,
    /// Single operators.
    Operator,
}

/// One planner.
#[derive(Copy, Clone, Debug)]
pub struct PlannerEntry {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// The paper.
    pub paper: &'static str,
    /// The unit it divides or orders.
    pub level: Level,
    /// What is left out of the paper; empty for nothing.
    pub partial: &'static str,
    /// What it plans.
    pub problem: Problem,
}

/// All planners.
pub const PLANNERS: &[&PlannerEntry] = &[
    &ptd_p::ENTRY,
    &dapple::ENTRY,
    &pesto::ENTRY,
    &spotlight::ENTRY,
    &harmony::ENTRY,
    &duan_wu::ENTRY,
    &yang::ENTRY,
    &herti::ENTRY,
    &cc_os::ENTRY,
    &perotin::ENTRY,
    &ursa::ENTRY,
];

/// A planner by its name.
pub fn planner(name: &str) -> Option<&'static PlannerEntry> {
    PLANNERS.iter().copied().find(|entry| entry.name == name)
}
