//! DAPPLE: stages of layers, each copied over several devices, with early backward passes (PPoPP 2021).
//!
//! The paper's planner is a dynamic program over layers planned, devices used and three ways to place a stage. Ours
//! looks at all plans of up to three stages, bounded by the best few found so far, and by the program at plans of four,
//! counts unequal devices by their speed, and takes the best of its own and of the paper's in the simulation.

mod exact;
mod instance;
mod program;

pub use exact::exhaustive;
pub use instance::{Instance, Placed, Settings};
pub use program::{data_parallel, paper_plan, straight};

use crate::plan::{Title, propose};
use crate::registry::{Level, PlannerEntry, Problem};
use crate::{PlanError, Proposal, Request};

/// Devices from which the states of the program are too many.
pub const DEVICES_MAX: usize = 32;
/// Stages of the plans that ours takes from the program.
const STAGES_MAX: usize = 4;

/// The row in the table of planners.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "dapple",
    about: "stages of consecutive layers, each on several devices, with early backward passes",
    paper: "Fan et al., DAPPLE: A Pipelined Data Parallel Approach for Training Large Models, PPoPP 2021",
    level: Level::OperatorSet,
    partial: "the program keeps plans of up to two stages and ours of up to four, beside one with a stage for each device; at most 32 devices",
    problem: Problem::Training(plan),
};

/// The paper's plan and ours.
///
/// O(l^2 g states) for l layers and g devices in the program; ours is bounded by `exact::EVALUATIONS_MAX`.
pub fn plan(request: &Request<'_>) -> Result<Vec<Proposal>, PlanError> {
    plan_with(request, &Settings::default())
}

/// The same with settings.
pub fn plan_with(request: &Request<'_>, settings: &Settings) -> Result<Vec<Proposal>, PlanError> {
    if request.devices.devices.len() > DEVICES_MAX {
        let reason = format!("its search ends at {DEVICES_MAX} devices");
        return Err(PlanError::NotFor { planner: ENTRY.name, reason });
    }
    let chain = request.graph.chain().joined(settings.join_share);
    let instance = Instance::new(&chain, request, settings)?;
    // The authors' planner takes what leaves a machine for another as one transfer; ours and the simulation do not.
    let one_stream = Settings { is_one_stream: true, ..settings.clone() };
    let mut candidates = vec![paper_plan(&Instance::new(&chain, request, &one_stream)?)];
    candidates.extend(exhaustive(&instance));
    let longer = Settings { stages_max: STAGES_MAX, ..settings.clone() };
    candidates.push(paper_plan(&Instance::new(&chain, request, &longer)?));
    candidates.extend([data_parallel(&instance), straight(&instance)].into_iter().flatten());
    let mut proposals = Vec::new();
    let mut best: Option<Proposal> = None;
    let mut lacking: Option<PlanError> = None;
    for (at, plan) in candidates.iter().enumerate() {
        let is_paper = at == 0;
        for (in_levels, wide) in instance.ways(plan, is_paper) {
            let pipeline = match instance.pipeline(plan, (in_levels, wide)) {
                Ok(pipeline) => pipeline,
                Err(error) => {
                    lacking.get_or_insert(error);
                    continue;
                }
            };
            let variant = if is_paper { "paper" } else { "ours" };
            let summary = instance.summary(plan, &pipeline);
            let proposal =
                propose(Title { planner: ENTRY.name, variant, summary }, &pipeline, request, 1)?;
            if is_paper {
                proposals.push(proposal.clone());
            }
            if best.as_ref().is_none_or(|best| proposal.seconds < best.seconds) {
                best = Some(Proposal { variant: "ours", ..proposal });
            }
        }
    }
    proposals.extend(best);
    match (proposals.is_empty(), lacking) {
        (true, Some(error)) => Err(error),
        _ => Ok(proposals),
    }
}
