//! How many GPUs of which type each job gets: the least cost of all, with the room of each type and not of each node.

use super::super::problem::{Problem, SearchJob, gpus};
use super::Target;
use trainyard_solver::choice::{Aim, Choice, Choices};

/// The part of the value that may be missing: a job without GPUs costs 1000, so this is far below what one GPU is worth.
const GAP_MAX: f64 = 1e-7;
/// States that the knapsack may look at in one decision.
const WORK_MAX: u64 = 20_000;

/// The target of each job.
pub(super) fn choose(problem: &Problem) -> Vec<Target> {
    let kinds = problem.space.kinds.iter().map(|kind| usize::from(*kind) + 1).max().unwrap_or(0);
    let mut capacity = vec![0u32; kinds];
    for (kind, free) in problem.space.kinds.iter().zip(&problem.space.capacity) {
        capacity[usize::from(*kind)] += u32::from(*free);
    }
    let mut choices = Choices::new(capacity);
    let mut targets: Vec<Vec<Target>> = Vec::with_capacity(problem.rows.len());
    for row in 0..problem.rows.len() {
        let (of_row, options) = targets_of(problem, row, kinds as u8);
        targets.push(of_row);
        choices.job(options);
    }
    let found = choices.best(&Aim { gap_max: GAP_MAX, work_max: WORK_MAX, grain: 0.0 });
    let chosen = found.of.iter().zip(targets);
    chosen.map(|(at, of_row)| at.map_or(Target::Nothing, |at| of_row[at])).collect()
}

/// What a row may get, with what that is worth beside nothing.
fn targets_of(problem: &Problem, row: usize, kinds: u8) -> (Vec<Target>, Vec<Choice>) {
    let none = problem.cost_without(row);
    let SearchJob { least, most, nodes_most, base, .. } = &problem.rows[row];
    let (mut targets, mut options) = (Vec::new(), Vec::new());
    let held = base.iter().position(|cell| *cell > 0);
    let held = held.map(|first| (problem.space.kinds[first], gpus(base)));
    if let Some((kind, gpus)) = held {
        targets.push(Target::Stay);
        let value = none - problem.cost_held(row);
        options.push(Choice { kind: usize::from(kind), gpus, value });
    }
    for kind in 0..kinds {
        let (on_node, across) = problem.sizes(row, kind);
        for gpus in (*least).max(1)..=(*most).min(on_node.max(across)) {
            // Where it is held it costs no restart, so that moving it at the same size never pays here.
            let spans = gpus > on_node;
            let reach = u64::from(on_node) * u64::from(*nodes_most);
            if held == Some((kind, gpus)) || u64::from(gpus) > reach {
                continue;
            }
            let value = none - problem.cost_changed(row, kind, (gpus, spans));
            targets.push(Target::Change { kind, gpus });
            options.push(Choice { kind: usize::from(kind), gpus, value });
        }
    }
    (targets, options)
}
