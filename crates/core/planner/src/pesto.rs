//! Pesto: a device for each operator and an order on each device, so that a step is shortest (Middleware 2021).
//!
//! The paper states one integer program for both and solves it for groups of operators. Here small graphs are solved
//! exactly by branch and bound, and large ones by a search over placements that a list schedule rates. Ours may also let
//! several devices share the samples of an operator.

mod baselines;
mod exact;
mod search;

pub use baselines::{earliest_start, expert, heft, topological};
pub use exact::{Exact, exact};
pub use search::{Effort, search};

use crate::placing::{Placing, is_better};
use crate::plan::Title;
use crate::registry::{Level, PlannerEntry, Problem};
use crate::{PlanError, Proposal, Request};

/// The row in the table of planners.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "pesto",
    about: "a device for each operator of a graph and their order; ours lets devices share operators",
    paper: "Hafeez, Sun, Gandhi and Liu, Towards Optimal Placement and Scheduling of DNN Operations with Pesto, Middleware 2021",
    level: Level::Operator,
    partial: "one batch at a time, without micro-batches; at most 16 devices; exact up to 12 operators on four devices",
    problem: Problem::Training(plan),
};

/// Devices from which the search would be too long.
pub const DEVICES_MAX: usize = 16;
/// Operators and devices up to which the plan is exact.
const EXACT_MAX: (usize, usize) = (12, 4);

/// The plan of the paper's kind, with a device for each operator, and ours.
pub fn plan(request: &Request<'_>) -> Result<Vec<Proposal>, PlanError> {
    plan_with(request, &Effort::default())
}

/// The same with a stated effort.
pub fn plan_with(request: &Request<'_>, effort: &Effort) -> Result<Vec<Proposal>, PlanError> {
    if request.devices.devices.len() > DEVICES_MAX {
        let reason = format!("its search ends at {DEVICES_MAX} devices");
        return Err(PlanError::NotFor { planner: ENTRY.name, reason });
    }
    let single = Placing::single(request)?;
    let mut seeds = baselines::all(&single);
    let found = search(&single, &seeds, effort);
    let is_small = request.graph.operators.len() <= EXACT_MAX.0
        && request.devices.devices.len() <= EXACT_MAX.1;
    let (found, how) = match is_small {
        true => {
            let exact = exact(&single, &found, effort.steps_max);
            (exact.placement, if exact.is_proven { ", exact" } else { "" })
        }
        false => (found, ""),
    };
    seeds.push(found.clone());
    let paper = best_simulated(&single, &seeds)?;
    let summary = format!("{}{}", single.summary(&paper), if paper == found { how } else { "" });
    let title = Title { planner: ENTRY.name, variant: "paper", summary };
    let mut proposals = vec![single.proposal(title, &paper)?];
    let mixed = Placing::mixed(request)?;
    if mixed.sites.len() > single.sites.len() {
        let operators = request.graph.operators.len();
        let shared = (single.sites.len()..mixed.sites.len()).map(|site| vec![site; operators]);
        let mut seeds: Vec<Vec<usize>> = shared.chain([paper]).collect();
        let found = search(&mixed, &seeds, effort);
        seeds.push(found);
        let ours = best_simulated(&mixed, &seeds)?;
        let title = Title { planner: ENTRY.name, variant: "ours", summary: mixed.summary(&ours) };
        proposals.push(mixed.proposal(title, &ours)?);
    }
    refuse_if_full(&mut proposals, request)?;
    Ok(proposals)
}

/// The best of several placements in the simulation.
pub fn best_simulated(placing: &Placing<'_>, all: &[Vec<usize>]) -> Result<Vec<usize>, PlanError> {
    let mut best: Option<((f64, f64), &Vec<usize>)> = None;
    for placement in all {
        let rating = (placing.lacking(placement), placing.simulate(placement)?.1.seconds);
        if best.is_none_or(|(other, _)| is_better(rating, other)) {
            best = Some((rating, placement));
        }
    }
    Ok(best.expect("there is a placement to start from").1.clone())
}

/// Plans that do not fit go; where none fits, the fullest device of the best says what is lacking.
pub(crate) fn refuse_if_full(
    proposals: &mut Vec<Proposal>,
    request: &Request<'_>,
) -> Result<(), PlanError> {
    let least = proposals.iter().min_by(|a, b| a.lacking_bytes().total_cmp(&b.lacking_bytes()));
    let fullest = least.and_then(|one| one.memory.first().cloned());
    proposals.retain(|one| one.lacking_bytes() <= 0.0);
    match (proposals.is_empty(), fullest) {
        (true, Some(fullest)) => Err(PlanError::NoRoom {
            what: format!("`{}` with a batch of {}", request.graph.name, request.batch),
            needed: fullest.bytes,
            capacity: fullest.capacity,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
