//! A workflow of moldable jobs on several types of capacity.

use super::{Answer, above_zero, distinct, earlier, read, seconds};
use crate::PlanError;
use crate::perotin::{Class, MoldableJob, Priority, RelatedWorkflow, plan_related, ratio};
use serde::Deserialize;
use serde_json::json;

/// An input.
pub const EXAMPLE: &str = r#"{
  "types": [
    { "name": "gpu", "classes": [{ "units": 8, "speed": 1.0 }, { "units": 8, "speed": 0.5 }] },
    { "name": "cpu", "classes": [{ "units": 32, "speed": 1.0 }] }
  ],
  "jobs": [
    { "name": "read", "sequential_seconds": 5, "work_seconds": [0, 400] },
    { "name": "train", "sequential_seconds": 10, "work_seconds": [3600, 200], "after": ["read"] },
    { "name": "search", "work_seconds": [1800, 0], "after": ["read"] },
    { "name": "report", "sequential_seconds": 20, "work_seconds": [0, 30], "after": ["train", "search"] }
  ]
}
"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stated {
    types: Vec<StatedType>,
    jobs: Vec<StatedJob>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatedType {
    name: String,
    classes: Vec<StatedClass>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatedClass {
    units: u32,
    speed: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatedJob {
    name: String,
    #[serde(default)]
    sequential_seconds: f64,
    work_seconds: Vec<f64>,
    #[serde(default)]
    after: Vec<String>,
}

/// Amounts and starts of all jobs, in the order of index and by the longest path; the shorter one.
pub fn solve(text: &str) -> Result<Answer, PlanError> {
    let stated: Stated = read(text)?;
    let names = distinct(stated.jobs.iter().map(|one| one.name.as_str()))?;
    let mut jobs = Vec::with_capacity(names.len());
    for (at, one) in stated.jobs.iter().enumerate() {
        let after = one.after.iter().map(|name| earlier(&names[..at], &one.name, name));
        jobs.push(MoldableJob {
            name: one.name.clone(),
            sequential: one.sequential_seconds,
            work: one.work_seconds.clone(),
            after: after.collect::<Result<_, _>>()?,
        });
    }
    let mut types = Vec::with_capacity(stated.types.len());
    for one in &stated.types {
        let mut classes = Vec::new();
        for class in &one.classes {
            let speed = above_zero(&one.name, "speed", class.speed)?;
            above_zero(&one.name, "units", f64::from(class.units))?;
            classes.push(Class { units: class.units, speed });
        }
        if classes.is_empty() {
            return Err(PlanError::Empty(format!("type `{}`", one.name)));
        }
        types.push(classes);
    }
    let work = RelatedWorkflow { types, jobs };
    let by_index = plan_related(&work, Priority::Index)?;
    let by_path = plan_related(&work, Priority::LongestPath)?;
    let best = if by_path.plan.seconds <= by_index.plan.seconds { &by_path } else { &by_index };
    let classes: usize = work.types.iter().map(Vec::len).sum();
    // A class is a type of its own in the plan, and a job takes one class of each type that it has work for.
    let amounts = |job: usize| -> Vec<String> {
        let mut first = 0;
        let mut texts = Vec::new();
        for (index, one) in stated.types.iter().enumerate() {
            let class = best.classes[job][index];
            if work.jobs[job].work[index] > 0.0 {
                let amount = best.plan.amounts[job][first + class];
                texts.push(format!("{amount} {}, speed {}", one.name, one.classes[class].speed));
            }
            first += one.classes.len();
        }
        texts
    };
    Ok(Answer {
        summary: format!(
            "{}, at most {:.3} times the bound of {} of its own allocations",
            seconds(best.plan.seconds),
            ratio(classes),
            seconds(best.plan.bound)
        ),
        heading: vec!["job", "starts", "on"],
        rows: (0..names.len())
            .map(|job| {
                vec![names[job].to_owned(), seconds(best.plan.start[job]), amounts(job).join(", ")]
            })
            .collect(),
        data: json!({
            "seconds": best.plan.seconds, "bound_seconds": best.plan.bound, "ratio": ratio(classes),
            "by_index_seconds": by_index.plan.seconds, "by_path_seconds": by_path.plan.seconds,
            "start_seconds": best.plan.start, "classes": best.classes, "amounts": best.plan.amounts,
        }),
    })
}
