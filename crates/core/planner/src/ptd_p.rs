//! PTD-P: tensor, pipeline and data parallelism of Megatron-LM (SC 2021, arXiv 2104.04473), chosen by a search.
//!
//! The paper gives the formulas and three takeaways by which a person chooses; here all divisions are costed with the
//! formulas, the best few are simulated, and the best of those is the plan. What the paper has not (sequence, context
//! and expert parallelism, less recomputation, synchronisation beside the backward pass) is a second plan.

mod cost;
#[cfg(test)]
mod published;
mod search;
pub mod unequal;

pub use cost::{Costs, Machines, RING_SHARE, Recompute, Split};
pub use search::{Extent, search};

use crate::plan::{Title, propose};
use crate::registry::{Level, PlannerEntry, Problem};
use crate::{PlanError, Proposal, Request};

/// The row in the table of planners.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "ptd-p",
    about: "tensor, pipeline and data parallelism of a transformer, with interleaving and recomputation",
    paper: "Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters, SC 2021",
    level: Level::OperatorSet,
    partial: "the layers of all stages are equal in number",
    problem: Problem::Training(plan),
};

/// Passes of a pipeline from which only the best by formula is simulated.
const LONG_FROM: u64 = 40_000;

/// The best plan of the paper's kind, and the best of ours.
///
/// O(divisors of the numbers of devices, layers and samples), and a few simulations.
pub fn plan(request: &Request<'_>) -> Result<Vec<Proposal>, PlanError> {
    let reason =
        |reason: &str| PlanError::NotFor { planner: ENTRY.name, reason: reason.to_owned() };
    let model = request.transformer.ok_or_else(|| {
        reason("it needs a transformer by layers, hidden size and heads, not a graph of operators")
    })?;
    let machines = Machines::of(request.devices)
        .ok_or_else(|| reason("it divides equal machines of equal devices"))?;
    let mut proposals = Vec::new();
    for (variant, extent) in [("paper", Extent::Paper), ("ours", Extent::Ours)] {
        let found = search((model, &machines), request.batch, extent)?;
        let mut best: Option<((f64, f64), Split)> = None;
        // Of divisions that are long to simulate, the best by formula is the plan.
        let is_long = found.iter().any(|split| split.passes() > LONG_FROM);
        for split in found {
            if is_long {
                best = Some(((0.0, 0.0), split));
                break;
            }
            let pipeline = Costs::new(model, &machines, split).pipeline(request.batch)?;
            let run = pipeline.simulate(request.devices)?.run;
            let peak = run.peak_bytes.iter().copied().fold(0.0, f64::max);
            // What fits comes before what does not, and then what is faster.
            let key = ((peak - machines.memory_bytes).max(0.0), run.seconds);
            let wins = |(other, _): &((f64, f64), Split)| {
                key.0.total_cmp(&other.0).then(key.1.total_cmp(&other.1)).is_lt()
            };
            if best.as_ref().is_none_or(wins) {
                best = Some((key, split));
            }
        }
        let (_, split) = best.expect("a search ends with a division or an error");
        let pipeline = Costs::new(model, &machines, split).pipeline(request.batch)?;
        let title = Title { planner: ENTRY.name, variant, summary: split.summary() };
        proposals.push(propose(title, &pipeline, request, split.data)?);
    }
    Ok(proposals)
}
