//! Ursa: jobs as graphs of monotasks, each of which uses one kind of capacity (EuroSys 2020).
//!
//! A task is a chain of monotasks, such as load, preprocess, copy, compute, reduce. Each worker has a queue for each kind.
//! At every interval tasks of ready stages go where they fill what would stand idle: `F(t, w)` sums over kinds how much
//! worker `w` lacks to be busy, times how much task `t` would add. Queues go by job, and within a job by depth.

mod run;

pub use run::run;

use crate::PlanError;
use crate::registry::{Level, PlannerEntry, Problem};

/// The row in the table of planners.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "ursa",
    about: "jobs of monotasks with a queue for each kind of capacity, placed where capacity would stand idle",
    paper: "Jin et al., Improving Resource Utilization by Timely Fine-Grained Scheduling (Ursa), EuroSys 2020",
    level: Level::Operator,
    partial: "no policy of jobs on GPUs: a simulation of its own; sizes of monotasks are known before",
    problem: Problem::Stated {
        what: "jobs of monotasks on workers",
        solve: crate::stated::solve_ursa,
        example: crate::stated::URSA,
    },
};

/// A worker: for each kind of capacity how many monotasks run at once, and how fast each.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// Its name.
    pub name: String,
    /// Monotasks that run at once, by kind.
    pub slots: Vec<u32>,
    /// Units of work in a second of each of them, by kind.
    pub rates: Vec<f64>,
    /// Memory.
    pub memory_bytes: f64,
}

/// Work of one kind.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Monotask {
    /// The kind of capacity.
    pub kind: usize,
    /// Units of work.
    pub amount: f64,
}

/// Tasks that may start when other stages have ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// Stages of the job that must have ended, by index; each is a lower one.
    pub after: Vec<usize>,
    /// Its tasks, each a chain of monotasks.
    pub tasks: Vec<Vec<Monotask>>,
}

/// A job.
#[derive(Clone, Debug, PartialEq)]
pub struct DagJob {
    /// Its name.
    pub name: String,
    /// When it arrives, in seconds.
    pub arrival: f64,
    /// Memory from its admission to its end, over all workers.
    pub memory_bytes: f64,
    /// Its stages.
    pub stages: Vec<Stage>,
}

/// Which job comes first.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum JobOrder {
    /// The earliest (EJF).
    Earliest,
    /// The one with the least work left, weighed by what there is of each kind (SRJF).
    ShortestLeft,
}

/// How tasks are bound to workers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    /// The paper's: at intervals, by what would stand idle.
    Monotasks,
    /// What it is compared with: a task holds a slot of one kind from its first monotask to its last.
    Executors {
        /// The kind.
        kind: usize,
    },
}

/// What may be set.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Which job comes first.
    pub order: JobOrder,
    /// How tasks are bound.
    pub binding: Binding,
    /// Seconds between two placements.
    pub interval: f64,
    /// The horizon `EPT` in intervals; the paper's figure is not known to us.
    pub horizon: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            order: JobOrder::Earliest,
            binding: Binding::Monotasks,
            interval: 0.1,
            horizon: 1.5,
        }
    }
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// When each job ended.
    pub ended: Vec<f64>,
    /// When the last one did.
    pub makespan: f64,
    /// The mean seconds from arrival to end.
    pub mean_seconds: f64,
    /// The part of all slots of each kind that was busy until the last job ended.
    pub busy: Vec<f64>,
}

fn check(workers: &[Worker], jobs: &[DagJob]) -> Result<(), PlanError> {
    let Some(first) = workers.first() else {
        return Err(PlanError::Empty("the workers".to_owned()));
    };
    let kinds = first.slots.len();
    for worker in workers {
        let is_whole = worker.slots.len() == kinds && worker.rates.len() == kinds;
        let bad = worker.rates.iter().copied().find(|rate| !rate.is_finite() || *rate <= 0.0);
        if let (false, value) | (true, value @ Some(_)) = (is_whole, bad) {
            let value = value.unwrap_or(worker.rates.len() as f64);
            let operator = worker.name.clone();
            return Err(PlanError::Figure { operator, field: "rates", value });
        }
        if let Some(kind) = worker.slots.iter().position(|slots| *slots == 0) {
            let operator = format!("{}, kind {kind}", worker.name);
            return Err(PlanError::Figure { operator, field: "slots", value: 0.0 });
        }
    }
    let capacity: f64 = workers.iter().map(|worker| worker.memory_bytes).sum();
    for job in jobs {
        if job.memory_bytes > capacity {
            let (what, needed) = (format!("job `{}`", job.name), job.memory_bytes);
            return Err(PlanError::NoRoom { what, needed, capacity });
        }
        for (at, stage) in job.stages.iter().enumerate() {
            let name = |stage: &Stage| format!("{}/{}", job.name, stage.name);
            if let Some(before) = stage.after.iter().find(|before| **before >= at) {
                let other = job.stages.get(*before).map_or_else(|| "?".to_owned(), name);
                return Err(PlanError::Cycle(vec![other, name(stage)]));
            }
            for one in stage.tasks.iter().flatten() {
                let is_amount = one.amount.is_finite() && one.amount >= 0.0;
                if one.kind >= kinds || !is_amount {
                    let (field, value) =
                        if is_amount { ("kind", one.kind as f64) } else { ("amount", one.amount) };
                    return Err(PlanError::Figure { operator: name(stage), field, value });
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
