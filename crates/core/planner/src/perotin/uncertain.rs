//! Times that are not certain: the list goes on with what really happens.

use super::{Priority, Workflow, WorkflowPlan, list};
use crate::PlanError;

/// What came of a plan whose jobs took other times than stated.
#[derive(Clone, Debug, PartialEq)]
pub struct Executed {
    /// When each job started.
    pub start: Vec<f64>,
    /// When the last one ended.
    pub seconds: f64,
}

/// Runs a plan whose jobs take `actual` seconds; amounts and order stay, and starts follow what ends.
///
/// A list uses no time before it has passed, so where no job takes more than `1 + e` times what was stated, the makespan
/// is at most `1 + e` times the ratio of the plan: area and path grow by no more than that.
pub fn execute(
    workflow: &Workflow,
    plan: &WorkflowPlan,
    priority: Priority,
    actual: &[f64],
) -> Result<Executed, PlanError> {
    for (at, job) in workflow.jobs.iter().enumerate() {
        let value = actual.get(at).copied().unwrap_or(f64::NAN);
        if !value.is_finite() || value < 0.0 {
            let operator = job.name.clone();
            return Err(PlanError::Figure { operator, field: "actual", value });
        }
    }
    let start = list(workflow, &plan.amounts, priority, actual);
    let seconds = start.iter().zip(actual).map(|(start, own)| start + own).fold(0.0, f64::max);
    Ok(Executed { start, seconds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;
    use crate::perotin::{MoldableJob, plan, ratio};

    fn workflow(draws: &mut Draws) -> Workflow {
        let job = |at: usize, draws: &mut Draws| MoldableJob {
            name: format!("j{at}"),
            sequential: 0.1 * draws.unit(),
            work: (0..2).map(|_| 10.0 * draws.unit()).collect(),
            after: (0..at).filter(|_| draws.unit() < 0.15).collect(),
        };
        Workflow { capacities: vec![16, 8], jobs: (0..20).map(|at| job(at, draws)).collect() }
    }

    #[test]
    fn the_ratio_grows_by_the_error_and_no_more() {
        let mut beyond = 0;
        for seed in 0..300 {
            let mut draws = Draws::new(seed);
            let workflow = workflow(&mut draws);
            let plan = plan(&workflow, Priority::LongestPath).unwrap();
            let error = 0.8 * draws.unit();
            let actual: Vec<f64> = (workflow.jobs.iter().zip(&plan.amounts))
                .map(|(job, amounts)| {
                    job.seconds(amounts) * (1.0 - error + 2.0 * error * draws.unit())
                })
                .collect();
            let done = execute(&workflow, &plan, Priority::LongestPath, &actual).unwrap();
            assert!(done.seconds <= (1.0 + error) * ratio(2) * plan.bound, "seed {seed}");
            for (at, job) in workflow.jobs.iter().enumerate() {
                let ended =
                    |before: &usize| done.start[*before] + actual[*before] <= done.start[at];
                assert!(job.after.iter().all(ended), "seed {seed}");
            }
            // The control: the planned starts would not do, because something runs longer than planned.
            let overrun = |at: usize| plan.start[at] + actual[at];
            let early = (0..20).any(|at| {
                workflow.jobs[at]
                    .after
                    .iter()
                    .any(|before| overrun(*before) > plan.start[at] + 1e-9)
            });
            beyond += u32::from(early);
        }
        assert!(beyond > 200, "{beyond}");
    }

    #[test]
    fn a_job_without_a_time_is_refused_by_name() {
        let workflow = workflow(&mut Draws::new(1));
        let plan = plan(&workflow, Priority::Index).unwrap();
        let error = execute(&workflow, &plan, Priority::Index, &[1.0; 3]).unwrap_err().to_string();
        assert!(error.contains("operator `j3`: `actual`"), "{error}");
    }
}
