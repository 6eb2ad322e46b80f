//! Perotin, Sun and Raghavan: moldable jobs of a graph on several types of capacity, within a proven ratio (ICPP 2021).
//!
//! First each job gets an allocation that balances the longest path against the area of all; then allocations are capped
//! at a part of each capacity, and jobs start in a list as soon as they fit.

mod related;
mod uncertain;

pub use related::{Class, RelatedPlan, RelatedWorkflow, plan_related};
pub use uncertain::{Executed, execute};

use crate::PlanError;
use crate::registry::{Level, PlannerEntry, Problem};

/// The row in the table of planners.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "perotin",
    about: "sizes and start times of moldable jobs with dependencies, on several types of capacity",
    paper: "Perotin, Sun and Raghavan, Multi-Resource List Scheduling of Moldable Parallel Jobs under Precedence Constraints, ICPP 2021",
    level: Level::Instance,
    partial: "allocations come from a greedy descent instead of the rounded linear program; types of unequal speed and uncertain times are ours",
    problem: Problem::Stated {
        what: "sizes and start times of a workflow",
        solve: crate::stated::solve_perotin,
        example: crate::stated::PEROTIN,
    },
};

/// The golden ratio.
pub const GOLDEN: f64 = 1.618_033_988_749_895;
/// The part of each capacity that a job gets at most: `1 - 1 / golden ratio` (section 5).
pub const CAP: f64 = 1.0 - 1.0 / GOLDEN;

/// A job that runs on any amounts: `sequential + sum of work_i / amount_i` seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct MoldableJob {
    /// Its name.
    pub name: String,
    /// Seconds that no amount shortens.
    pub sequential: f64,
    /// Seconds on one unit of each type of capacity.
    pub work: Vec<f64>,
    /// Jobs that must have ended, by index; each is a lower one.
    pub after: Vec<usize>,
}

impl MoldableJob {
    /// Its seconds on these amounts.
    pub fn seconds(&self, amounts: &[u32]) -> f64 {
        // A type without work needs no amount.
        let used = self.work.iter().zip(amounts).filter(|(work, _)| **work > 0.0);
        let shared = used.map(|(work, amount)| work / f64::from(*amount));
        self.sequential + shared.sum::<f64>()
    }
}

/// Jobs and what there is of each type of capacity.
#[derive(Clone, Debug, PartialEq)]
pub struct Workflow {
    /// Units of each type.
    pub capacities: Vec<u32>,
    /// The jobs.
    pub jobs: Vec<MoldableJob>,
}

/// When each job starts, and on how much.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkflowPlan {
    /// Amounts of each job before they were capped.
    pub wished: Vec<Vec<u32>>,
    /// Amounts of each job.
    pub amounts: Vec<Vec<u32>>,
    /// When each job starts.
    pub start: Vec<f64>,
    /// When the last one ends.
    pub seconds: f64,
    /// The larger of longest path and area before capping.
    pub bound: f64,
}

/// The order in which jobs that are ready are tried.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Priority {
    /// By index: the ratio holds for any order.
    Index,
    /// The longest path to the end first; ours.
    LongestPath,
}

/// The ratio that the list keeps to the bound of its own allocations: `golden ratio * d + 1`.
pub fn ratio(types: usize) -> f64 {
    GOLDEN * types as f64 + 1.0
}

/// Plans a workflow.
///
/// O(n^2 d) for n jobs and d types in the list, and a descent of at most `n * options` steps of O(n d).
pub fn plan(workflow: &Workflow, priority: Priority) -> Result<WorkflowPlan, PlanError> {
    check(workflow)?;
    let wished = allocate(workflow);
    let cap = |capacity: u32| libm::ceil(CAP * f64::from(capacity)) as u32;
    let capped = |amounts: &Vec<u32>| {
        let pairs = amounts.iter().zip(&workflow.capacities);
        pairs.map(|(amount, capacity)| (*amount).min(cap(*capacity))).collect::<Vec<u32>>()
    };
    let amounts: Vec<Vec<u32>> = wished.iter().map(capped).collect();
    let bound = longest_path(workflow, &wished).max(area(workflow, &wished));
    let start = list(workflow, &amounts, priority, &stated(workflow, &amounts));
    let ends = (0..start.len()).map(|job| start[job] + workflow.jobs[job].seconds(&amounts[job]));
    let seconds = ends.fold(0.0, f64::max);
    Ok(WorkflowPlan { wished, amounts, start, seconds, bound })
}

fn check(workflow: &Workflow) -> Result<(), PlanError> {
    if workflow.capacities.is_empty() || workflow.capacities.contains(&0) {
        return Err(PlanError::Empty("the capacities".to_owned()));
    }
    for (index, job) in workflow.jobs.iter().enumerate() {
        if let Some(before) = job.after.iter().find(|before| **before >= index) {
            let other = workflow.jobs.get(*before).map_or("?", |other| other.name.as_str());
            return Err(PlanError::Cycle(vec![other.to_owned(), job.name.clone()]));
        }
        let operator = || job.name.clone();
        if job.work.len() != workflow.capacities.len() {
            let value = job.work.len() as f64;
            return Err(PlanError::Figure { operator: operator(), field: "work", value });
        }
        let figures = job.work.iter().chain([&job.sequential]);
        if let Some(value) = figures.copied().find(|value| !value.is_finite() || *value < 0.0) {
            return Err(PlanError::Figure { operator: operator(), field: "work", value });
        }
    }
    Ok(())
}

/// Area of a job: the mean over types of its share of the capacity, times its seconds.
fn job_area(workflow: &Workflow, job: usize, amounts: &[u32]) -> f64 {
    let shares = amounts.iter().zip(&workflow.capacities);
    let shares: f64 = shares.map(|(own, all)| f64::from(*own) / f64::from(*all)).sum();
    shares / workflow.capacities.len() as f64 * workflow.jobs[job].seconds(amounts)
}

fn area(workflow: &Workflow, amounts: &[Vec<u32>]) -> f64 {
    (0..amounts.len()).map(|job| job_area(workflow, job, &amounts[job])).sum()
}

/// Seconds from the start of each job to the end of the last one that waits for it.
fn tails(workflow: &Workflow, amounts: &[Vec<u32>]) -> Vec<f64> {
    let mut tails = vec![0.0f64; amounts.len()];
    for job in (0..amounts.len()).rev() {
        tails[job] += workflow.jobs[job].seconds(&amounts[job]);
        for before in &workflow.jobs[job].after {
            tails[*before] = tails[*before].max(tails[job]);
        }
    }
    tails
}

fn longest_path(workflow: &Workflow, amounts: &[Vec<u32>]) -> f64 {
    tails(workflow, amounts).into_iter().fold(0.0, f64::max)
}

/// Jobs on a longest path.
fn critical(workflow: &Workflow, amounts: &[Vec<u32>]) -> Vec<usize> {
    let tails = tails(workflow, amounts);
    let longest = tails.iter().copied().fold(0.0, f64::max);
    let mut next = tails.iter().position(|tail| *tail == longest);
    let mut path = Vec::new();
    while let Some(job) = next {
        path.push(job);
        let left = tails[job] - workflow.jobs[job].seconds(&amounts[job]);
        let followers =
            (job + 1..tails.len()).filter(|one| workflow.jobs[*one].after.contains(&job));
        let longest = followers.max_by(|a, b| tails[*a].total_cmp(&tails[*b]).then(b.cmp(a)));
        next = longest.filter(|_| left > 0.0);
    }
    path
}

/// Starts with one unit of everything and doubles what shortens the longest path at the least area, while that path is
/// longer than the area of all; the best balance met is the allocation.
fn allocate(workflow: &Workflow) -> Vec<Vec<u32>> {
    let least = |job: &MoldableJob| job.work.iter().map(|work| u32::from(*work > 0.0)).collect();
    let mut amounts: Vec<Vec<u32>> = workflow.jobs.iter().map(least).collect();
    let mut best = (f64::INFINITY, amounts.clone());
    loop {
        let (path, area) = (longest_path(workflow, &amounts), area(workflow, &amounts));
        if path.max(area) < best.0 {
            best = (path.max(area), amounts.clone());
        }
        if path <= area {
            break;
        }
        let mut cheapest: Option<(f64, usize, Vec<u32>)> = None;
        for job in critical(workflow, &amounts) {
            let now = workflow.jobs[job].seconds(&amounts[job]);
            for (kind, capacity) in workflow.capacities.iter().enumerate() {
                let mut more = amounts[job].clone();
                more[kind] = (2 * more[kind]).min(*capacity);
                let gain = now - workflow.jobs[job].seconds(&more);
                if gain <= 0.0 {
                    continue;
                }
                let before = job_area(workflow, job, &amounts[job]);
                let price = (job_area(workflow, job, &more) - before) / gain;
                if cheapest.as_ref().is_none_or(|(least, ..)| price < *least) {
                    cheapest = Some((price, job, more));
                }
            }
        }
        let Some((_, job, more)) = cheapest else { break };
        amounts[job] = more;
    }
    best.1
}

/// The seconds of each job as stated.
fn stated(workflow: &Workflow, amounts: &[Vec<u32>]) -> Vec<f64> {
    workflow.jobs.iter().zip(amounts).map(|(job, amounts)| job.seconds(amounts)).collect()
}

/// List scheduling: whenever something ends, every job that is ready and fits starts. The order goes by what is stated,
/// and a job takes its `seconds`.
fn list(
    workflow: &Workflow,
    amounts: &[Vec<u32>],
    priority: Priority,
    seconds: &[f64],
) -> Vec<f64> {
    let count = amounts.len();
    let tails = tails(workflow, amounts);
    let mut order: Vec<usize> = (0..count).collect();
    if priority == Priority::LongestPath {
        order.sort_by(|a, b| tails[*b].total_cmp(&tails[*a]).then(a.cmp(b)));
    }
    let mut free = workflow.capacities.clone();
    let (mut start, mut end) = (vec![f64::NAN; count], vec![f64::NAN; count]);
    let mut running: Vec<usize> = Vec::new();
    let mut now = 0.0;
    loop {
        for job in &order {
            let ended = |before: &usize| end[*before] <= now;
            let fits = amounts[*job].iter().zip(&free).all(|(own, free)| own <= free);
            if start[*job].is_nan() && fits && workflow.jobs[*job].after.iter().all(ended) {
                start[*job] = now;
                end[*job] = now + seconds[*job];
                free.iter_mut().zip(&amounts[*job]).for_each(|(free, own)| *free -= own);
                running.push(*job);
            }
        }
        let Some(next) = running.iter().map(|job| end[*job]).min_by(f64::total_cmp) else { break };
        now = next;
        for job in running.iter().filter(|job| end[**job] <= now) {
            free.iter_mut().zip(&amounts[*job]).for_each(|(free, own)| *free += own);
        }
        running.retain(|job| end[*job] > now);
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;

    fn workflow(draws: &mut Draws) -> Workflow {
        let types = 1 + draws.below(3) as usize;
        let capacities: Vec<u32> = (0..types).map(|_| 2 + draws.below(30)).collect();
        let count = 1 + draws.below(25);
        let job = |index: u32, draws: &mut Draws| MoldableJob {
            name: format!("j{index}"),
            sequential: 0.2 * draws.unit(),
            work: (0..types).map(|_| 10.0 * draws.unit()).collect(),
            after: (0..index).filter(|_| draws.unit() < 0.15).map(|one| one as usize).collect(),
        };
        let jobs = (0..count).map(|index| job(index, draws)).collect();
        Workflow { capacities, jobs }
    }

    /// `TRAINYARD_PLANNER_CASES=10000` runs as many as the issue asks for.
    fn cases() -> u64 {
        let given = std::env::var("TRAINYARD_PLANNER_CASES");
        given.ok().and_then(|text| text.parse().ok()).unwrap_or(500)
    }

    #[test]
    fn the_list_keeps_the_proven_ratio_on_random_graphs() {
        for seed in 0..cases() {
            let workflow = workflow(&mut Draws::new(seed));
            for priority in [Priority::Index, Priority::LongestPath] {
                let plan = plan(&workflow, priority).unwrap();
                let bound = ratio(workflow.capacities.len()) * plan.bound;
                assert!(
                    plan.seconds <= bound * (1.0 + 1e-9),
                    "seed {seed}: {} {bound}",
                    plan.seconds
                );
            }
        }
    }

    #[test]
    fn no_capacity_is_overdrawn_and_every_job_waits_for_those_before() {
        for seed in 0..200 {
            let workflow = workflow(&mut Draws::new(seed));
            let plan = plan(&workflow, Priority::LongestPath).unwrap();
            let end = |job: usize| plan.start[job] + workflow.jobs[job].seconds(&plan.amounts[job]);
            for job in 0..workflow.jobs.len() {
                assert!(
                    workflow.jobs[job].after.iter().all(|before| end(*before) <= plan.start[job])
                );
                let now = plan.start[job];
                let beside = (0..workflow.jobs.len())
                    .filter(|other| plan.start[*other] <= now && now < end(*other));
                let beside: Vec<usize> = beside.collect();
                for (kind, capacity) in workflow.capacities.iter().enumerate() {
                    let used: u32 = beside.iter().map(|one| plan.amounts[*one][kind]).sum();
                    assert!(used <= *capacity, "seed {seed}");
                }
            }
        }
    }

    /// The control: without sizing, on one unit each, a chain is far beyond what the ratio allows.
    #[test]
    fn jobs_of_one_unit_miss_the_ratio() {
        let job = |index: usize| MoldableJob {
            name: format!("j{index}"),
            sequential: 0.0,
            work: vec![32.0],
            after: if index == 0 { Vec::new() } else { vec![index - 1] },
        };
        let workflow = Workflow { capacities: vec![32], jobs: (0..8).map(job).collect() };
        let plan = plan(&workflow, Priority::Index).unwrap();
        let single = vec![vec![1]; 8];
        let start = list(&workflow, &single, Priority::Index, &stated(&workflow, &single));
        assert!(start[7] + 32.0 > ratio(1) * plan.bound);
        assert!(plan.seconds <= ratio(1) * plan.bound);
    }

    #[test]
    fn a_job_that_waits_for_a_later_one_is_refused_by_name() {
        let job = |name: &str, after: Vec<usize>| MoldableJob {
            name: name.to_owned(),
            sequential: 1.0,
            work: vec![1.0],
            after,
        };
        let jobs = vec![job("load", vec![1]), job("train", Vec::new())];
        let error = plan(&Workflow { capacities: vec![4], jobs }, Priority::Index).unwrap_err();
        assert_eq!(error.to_string(), "the graph has a cycle: train -> load");
    }
}
