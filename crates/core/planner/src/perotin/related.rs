//! Types of capacity whose units are not equally fast: each job takes the units of one class of a type.

use super::{
    MoldableJob, Priority, Workflow, WorkflowPlan, allocate, area, check, longest_path, plan,
};
use crate::PlanError;

/// Units of one type that are equally fast.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Class {
    /// How many.
    pub units: u32,
    /// Their speed; work is stated for speed 1.
    pub speed: f64,
}

/// Jobs, and the classes of each type of capacity.
#[derive(Clone, Debug, PartialEq)]
pub struct RelatedWorkflow {
    /// The classes of each type.
    pub types: Vec<Vec<Class>>,
    /// The jobs, with work by type.
    pub jobs: Vec<MoldableJob>,
}

/// A plan, with the class that each job takes of each type.
#[derive(Clone, Debug, PartialEq)]
pub struct RelatedPlan {
    /// The class of each type, for each job.
    pub classes: Vec<Vec<usize>>,
    /// Amounts by class of all types one after the other, starts and makespan.
    pub plan: WorkflowPlan,
}

/// Rounds over all jobs in which classes may change.
const ROUNDS_MAX: usize = 3;

/// Plans jobs on types of unequal units.
///
/// A class is a type of its own of which jobs of other classes take none, so the ratio holds with the number of classes
/// for `d`. Classes are chosen by a descent in the bound. O(rounds x jobs x classes) allocations.
pub fn plan_related(work: &RelatedWorkflow, priority: Priority) -> Result<RelatedPlan, PlanError> {
    for class in work.types.iter().flatten() {
        if class.units == 0 || !class.speed.is_finite() || class.speed <= 0.0 {
            let (operator, value) = ("a class".to_owned(), class.speed);
            return Err(PlanError::Figure { operator, field: "speed", value });
        }
    }
    if work.types.iter().any(Vec::is_empty) {
        return Err(PlanError::Empty("the classes of a type".to_owned()));
    }
    if let Some(job) = work.jobs.iter().find(|job| job.work.len() != work.types.len()) {
        let (operator, value) = (job.name.clone(), job.work.len() as f64);
        return Err(PlanError::Figure { operator, field: "work", value });
    }
    // All on the class that is fastest as a whole, and then what makes the bound smaller.
    let strongest = |classes: &Vec<Class>| {
        let all = |one: &Class| f64::from(one.units) * one.speed;
        let best = (0..classes.len())
            .max_by(|a, b| all(&classes[*a]).total_cmp(&all(&classes[*b])).then(b.cmp(a)));
        best.expect("a type has a class")
    };
    let start: Vec<usize> = work.types.iter().map(strongest).collect();
    let mut classes = vec![start; work.jobs.len()];
    check(&flat(work, &classes))?;
    let mut least = bound(work, &classes);
    for _ in 0..ROUNDS_MAX {
        let before = least;
        for job in 0..work.jobs.len() {
            for kind in 0..work.types.len() {
                let old = classes[job][kind];
                for class in 0..work.types[kind].len() {
                    let kept = classes[job][kind];
                    if class == kept || class == old {
                        continue;
                    }
                    classes[job][kind] = class;
                    let own = bound(work, &classes);
                    match own < least * (1.0 - 1e-12) {
                        true => least = own,
                        false => classes[job][kind] = kept,
                    }
                }
            }
        }
        if least >= before * (1.0 - 1e-9) {
            break;
        }
    }
    let plan = plan(&flat(work, &classes), priority)?;
    Ok(RelatedPlan { classes, plan })
}

/// The same with each class as a type.
pub(super) fn flat(work: &RelatedWorkflow, classes: &[Vec<usize>]) -> Workflow {
    let capacities = work.types.iter().flatten().map(|class| class.units).collect();
    let jobs = work.jobs.iter().zip(classes).map(|(job, own)| {
        let by_class = work.types.iter().enumerate().flat_map(|(kind, all)| {
            let chosen = own[kind];
            let given = job.work[kind];
            all.iter().enumerate().map(move |(at, class)| match at == chosen {
                true => given / class.speed,
                false => 0.0,
            })
        });
        MoldableJob { work: by_class.collect(), ..job.clone() }
    });
    Workflow { capacities, jobs: jobs.collect() }
}

fn bound(work: &RelatedWorkflow, classes: &[Vec<usize>]) -> f64 {
    let flat = flat(work, classes);
    let amounts = allocate(&flat);
    // The area is a mean over classes; its largest part is what a class must do at least.
    longest_path(&flat, &amounts).max(area(&flat, &amounts)).max(fullest(&flat, &amounts))
}

/// Seconds for which the fullest class is taken as a whole.
fn fullest(flat: &Workflow, amounts: &[Vec<u32>]) -> f64 {
    let of = |kind: usize| {
        let own = flat.jobs.iter().zip(amounts);
        let sum: f64 = own.map(|(job, own)| f64::from(own[kind]) * job.seconds(own)).sum();
        sum / f64::from(flat.capacities[kind])
    };
    (0..flat.capacities.len()).map(of).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;
    use crate::perotin::ratio;

    fn workflow(draws: &mut Draws) -> RelatedWorkflow {
        let gpus = vec![Class { units: 8, speed: 1.0 }, Class { units: 8, speed: 0.5 }];
        let cores = vec![Class { units: 32, speed: 1.0 }];
        let job = |at: usize, draws: &mut Draws| MoldableJob {
            name: format!("j{at}"),
            sequential: 0.1 * draws.unit(),
            work: vec![20.0 * draws.unit(), 5.0 * draws.unit()],
            after: (0..at).filter(|_| draws.unit() < 0.08).collect(),
        };
        let jobs = (0..16).map(|at| job(at, draws)).collect();
        RelatedWorkflow { types: vec![gpus, cores], jobs }
    }

    #[test]
    fn slow_units_are_used_and_the_ratio_holds() {
        let (mut gain, mut slow) = (0.0, 0);
        for seed in 0..60 {
            let work = workflow(&mut Draws::new(seed));
            let found = plan_related(&work, Priority::LongestPath).unwrap();
            assert!(
                found.plan.seconds <= ratio(3) * found.plan.bound * (1.0 + 1e-9),
                "seed {seed}"
            );
            let fast = vec![vec![0, 0]; work.jobs.len()];
            let alone = plan(&flat(&work, &fast), Priority::LongestPath).unwrap();
            gain += found.plan.seconds / alone.seconds;
            slow += found.classes.iter().filter(|one| one[0] == 1).count();
        }
        println!("makespan with slow units {:.3} of that without", gain / 60.0);
        assert!(gain / 60.0 < 0.95 && slow > 60, "{gain} {slow}");
    }

    #[test]
    fn a_class_without_speed_is_refused() {
        let mut work = workflow(&mut Draws::new(1));
        work.types[0][1].speed = 0.0;
        assert!(plan_related(&work, Priority::Index).is_err());
    }
}
