//! PTD-P: tensor, pipeline and data parallelism of Megatron-LM (SC 2021, arXiv 2104.04473), chosen by a search.
//!
//! The paper gives the formulas and three takeaways by which a person chooses; here all divisions are costed with the
//! formulas, the best few are simulated, and the best of those is the plan. What the paper has not (sequence, context
//! and expert parallelism, less recomputation, synchronisation beside the backward pass) is a second plan.

mod cost;
mod search;

pub use cost::{Costs, Machines, Recompute, Split, RING_SHARE};
pub use search::{Freedom, search};

use crate::plan::{Title, propose};
use crate::registry::{PlannerEntry, Problem};
use crate::{PlanError, Proposal, Request};

/// The row in the table of planners.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "ptd-p",
    about: "tensor, pipeline and data parallelism of a transformer, with interleaving and recomputation",
    paper: "Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters, SC 2021",
    partial: "the layers of all stages are equal in number",
    problem: Problem::Training(plan),
};

/// The best plan of the paper's kind, and the best of ours.
///
/// O(divisors of the numbers of devices, layers and samples), and a few simulations.
pub fn plan(request: &Request<'_>) -> Result<Vec<Proposal>, PlanError> {
    let reason = |reason: &str| PlanError::NotFor { planner: ENTRY.name, reason: reason.to_owned() };
    let model = request.transformer.ok_or_else(|| {
        reason("it needs a transformer by layers, hidden size and heads, not a graph of operators")
    })?;
    let machines = Machines::of(request.devices)
        .ok_or_else(|| reason("it divides equal machines of equal devices"))?;
    let mut proposals = Vec::new();
    for (variant, freedom) in [("paper", Freedom::Paper), ("ours", Freedom::Ours)] {
        let found = search((model, &machines), request.batch, freedom)?;
        let mut best: Option<Proposal> = None;
        for split in found {
            let costs = Costs::new(model, &machines, split);
            let pipeline = costs.pipeline(request.batch)?;
            let title = Title { planner: ENTRY.name, variant, summary: split.summary() };
            let proposal = propose(title, &pipeline, request, split.data)?;
            if best.as_ref().is_none_or(|best| better(&proposal, best)) {
                best = Some(proposal);
            }
        }
        proposals.extend(best);
    }
    Ok(proposals)
}

/// What fits comes before what does not, and then what is faster.
fn better(one: &Proposal, other: &Proposal) -> bool {
    let key = |proposal: &Proposal| (proposal.lacking_bytes(), proposal.seconds);
    let ((lacks, seconds), (other_lacks, other_seconds)) = (key(one), key(other));
    lacks.total_cmp(&other_lacks).then(seconds.total_cmp(&other_seconds)).is_lt()
}
