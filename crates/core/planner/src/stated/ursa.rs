//! Jobs of monotasks on workers.

use super::{Answer, distinct, earlier, read, seconds};
use crate::PlanError;
use crate::ursa::{Binding, DagJob, JobOrder, Monotask, Outcome, Settings, Stage, Worker, run};
use serde::Deserialize;
use serde_json::{Value, json};
use trainyard_diagnostic::InputError;

/// An input.
pub const EXAMPLE: &str = r#"{
  "kinds": ["disk", "cpu", "gpu"],
  "workers": [
    { "name": "w0", "slots": [1, 8, 1], "rates": [200, 1, 1], "memory_bytes": 64e9 },
    { "name": "w1", "slots": [1, 8, 1], "rates": [200, 1, 1], "memory_bytes": 64e9 }
  ],
  "jobs": [
    { "name": "a", "memory_bytes": 8e9, "stages": [
      { "name": "load", "tasks": 8, "chain": [["disk", 100], ["cpu", 0.5]] },
      { "name": "train", "tasks": 8, "chain": [["gpu", 0.4]], "after": ["load"] } ] },
    { "name": "b", "arrival_seconds": 0.5, "memory_bytes": 8e9, "stages": [
      { "name": "load", "tasks": 4, "chain": [["disk", 200], ["cpu", 0.2], ["gpu", 0.1]] } ] }
  ]
}
"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stated {
    kinds: Vec<String>,
    workers: Vec<StatedWorker>,
    jobs: Vec<StatedJob>,
    #[serde(default)]
    interval_seconds: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatedWorker {
    name: String,
    slots: Vec<u32>,
    rates: Vec<f64>,
    memory_bytes: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatedJob {
    name: String,
    #[serde(default)]
    arrival_seconds: f64,
    #[serde(default)]
    memory_bytes: f64,
    stages: Vec<StatedStage>,
}

/// `tasks` tasks that are alike, each a chain of a kind and an amount.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatedStage {
    name: String,
    tasks: u32,
    chain: Vec<(String, f64)>,
    #[serde(default)]
    after: Vec<String>,
}

/// Tasks of all jobs at most.
const TASKS_MAX: u64 = 1_000_000;

/// Both orders of jobs, beside executors that hold a slot of the first kind.
pub fn solve(text: &str) -> Result<Answer, PlanError> {
    let stated: Stated = read(text)?;
    let names = distinct(stated.jobs.iter().map(|job| job.name.as_str()))?;
    let tasks: u64 =
        stated.jobs.iter().flat_map(|job| &job.stages).map(|stage| u64::from(stage.tasks)).sum();
    if tasks > TASKS_MAX {
        let expected = format!("at most {TASKS_MAX} tasks");
        return Err(InputError::wrong(0, "tasks", &tasks.to_string(), expected).into());
    }
    let mut jobs = Vec::with_capacity(names.len());
    for job in &stated.jobs {
        jobs.push(read_job(job, &stated.kinds)?);
    }
    let workers: Vec<Worker> = (stated.workers.iter())
        .map(|one| Worker {
            name: one.name.clone(),
            slots: one.slots.clone(),
            rates: one.rates.clone(),
            memory_bytes: one.memory_bytes,
        })
        .collect();
    if stated.kinds.is_empty() || workers.iter().any(|one| one.slots.len() != stated.kinds.len()) {
        let expected = format!("a number for each of the {} kinds", stated.kinds.len());
        return Err(InputError::wrong(0, "slots", "", expected).into());
    }
    let plain = Settings::default();
    let interval = stated.interval_seconds.unwrap_or(plain.interval);
    if !(interval.is_finite() && interval > 0.0) {
        let expected = "seconds, more than 0";
        return Err(
            InputError::wrong(0, "interval_seconds", &interval.to_string(), expected).into()
        );
    }
    let ways = [
        ("earliest job first (EJF)", JobOrder::Earliest, Binding::Monotasks),
        ("least work left first (SRJF)", JobOrder::ShortestLeft, Binding::Monotasks),
        ("executors", JobOrder::Earliest, Binding::Executors { kind: 0 }),
    ];
    let mut found: Vec<(&str, Outcome)> = Vec::new();
    for (name, order, binding) in ways {
        let settings = Settings { order, binding, interval, ..plain.clone() };
        found.push((name, run(&workers, &jobs, &settings)?));
    }
    let busy = |outcome: &Outcome| {
        let shares = stated.kinds.iter().zip(&outcome.busy);
        shares.map(|(kind, part)| format!("{kind} {:.0} %", 100.0 * part)).collect::<Vec<_>>()
    };
    Ok(Answer {
        summary: format!(
            "all done after {}, in the mean {} a job",
            seconds(found[0].1.makespan),
            seconds(found[0].1.mean_seconds)
        ),
        heading: vec!["order", "makespan", "mean", "busy"],
        rows: (found.iter())
            .map(|(name, one)| {
                let (whole, mean) = (seconds(one.makespan), seconds(one.mean_seconds));
                vec![(*name).to_owned(), whole, mean, busy(one).join(", ")]
            })
            .collect(),
        data: json!({
            "orders": found.iter().map(|(name, one)| json!({
                "order": name, "makespan_seconds": one.makespan, "mean_seconds": one.mean_seconds,
                "ended_seconds": one.ended, "busy": one.busy,
            })).collect::<Vec<Value>>(),
        }),
    })
}

fn read_job(job: &StatedJob, kinds: &[String]) -> Result<DagJob, PlanError> {
    let names = distinct(job.stages.iter().map(|stage| stage.name.as_str()))?;
    let mut stages = Vec::with_capacity(names.len());
    for (at, stage) in job.stages.iter().enumerate() {
        let mut chain = Vec::with_capacity(stage.chain.len());
        for (name, amount) in &stage.chain {
            let kind = kinds.iter().position(|kind| kind == name);
            let unknown =
                || InputError::unknown(0, "chain", name, kinds.iter().map(String::as_str));
            chain.push(Monotask { kind: kind.ok_or_else(unknown)?, amount: *amount });
        }
        let after = stage.after.iter().map(|name| earlier(&names[..at], &stage.name, name));
        stages.push(Stage {
            name: stage.name.clone(),
            after: after.collect::<Result<_, _>>()?,
            tasks: vec![chain; stage.tasks as usize],
        });
    }
    Ok(DagJob {
        name: job.name.clone(),
        arrival: job.arrival_seconds,
        memory_bytes: job.memory_bytes,
        stages,
    })
}
