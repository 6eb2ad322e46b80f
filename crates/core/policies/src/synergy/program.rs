//! Synergy-OPT's first program (section 4.1): one cell for each job, of greatest speed together, as if all nodes were
//! one.
//!
//! Jobs of the same demand are one row with a whole number of jobs for each cell, so that the search does not try the
//! same answer under many names.

use super::demand::Demand;
use trainyard_solver::{Column, Limit, Model, Name, Sense, Simplex, Solve, Status};
use trainyard_types::HostShare;

/// Memory is stated in units of this, so that rows are of like size.
const MEMORY_UNIT_MIB: f64 = 1024.0;

/// What is left of a host for all jobs together; nothing where it is not stated.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Room {
    pub cpus: Option<u64>,
    pub memory_mib: Option<u64>,
}

/// The best cells that were found.
#[derive(Clone, Debug, PartialEq)]
pub struct BestDivision {
    /// For each demand the number of its cell.
    pub cells: Vec<usize>,
    /// The sum of all speeds, in parts of that with the proportional share.
    pub value: f64,
    /// The part of the value that may be missing.
    pub gap: f64,
}

/// A sort of demand and how many have it.
struct Sort<'a> {
    demand: &'a Demand,
    members: Vec<usize>,
    columns: Vec<Column>,
}

/// The best cells within so many nodes of a search, or nothing if none were found.
pub fn best(demands: &[&Demand], room: Room, steps_max: u64) -> Option<BestDivision> {
    let mut sorts: Vec<Sort<'_>> = Vec::new();
    for (index, demand) in demands.iter().enumerate() {
        match sorts.iter_mut().find(|sort| sort.demand == *demand) {
            Some(sort) => sort.members.push(index),
            None => sorts.push(Sort { demand, members: vec![index], columns: Vec::new() }),
        }
    }
    let mut model = Model::new(Sense::Maximise);
    let bound = |amount: Option<u64>| amount.map_or(f64::INFINITY, |amount| amount as f64);
    let cpus = model.row(Name("cpus", 0), f64::NEG_INFINITY, bound(room.cpus));
    let memory_mib = bound(room.memory_mib) / MEMORY_UNIT_MIB;
    let memory = model.row(Name("memory", 0), f64::NEG_INFINITY, memory_mib);
    for (index, sort) in sorts.iter_mut().enumerate() {
        let count = sort.members.len() as f64;
        let each = model.row(Name("jobs", index), count, count);
        for cell in &sort.demand.cells {
            let (used_cpus, used_memory) = used(sort.demand, cell.host);
            let entries = [(each, 1.0), (cpus, used_cpus), (memory, used_memory)];
            sort.columns.push(model.integer(cell.speed, 0.0, count, entries));
        }
    }
    let solution = Simplex::default().solve(&model, &Limit::steps(steps_max)).ok()?;
    let gap = match solution.status {
        Status::Proven => 0.0,
        Status::Feasible { gap } => gap,
        Status::Infeasible | Status::Unbounded | Status::OutOfLimit => return None,
    };
    let mut cells = vec![0; demands.len()];
    for sort in &sorts {
        let mut members = sort.members.iter();
        // The fastest go to the first.
        for (cell, column) in sort.columns.iter().enumerate().rev() {
            let count = solution.values[column.index()] as usize;
            members.by_ref().take(count).for_each(|member| cells[*member] = cell);
        }
        debug_assert!(members.next().is_none(), "every job has a cell");
    }
    Some(BestDivision { cells, value: solution.objective, gap })
}

fn used(demand: &Demand, host: HostShare) -> (f64, f64) {
    let gpus = f64::from(demand.gpus);
    (f64::from(host.cpus) * gpus, host.memory_mib as f64 / MEMORY_UNIT_MIB * gpus)
}
