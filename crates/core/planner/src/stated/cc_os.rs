//! Operators of a training step on one CPU.

use super::{Answer, distinct, earlier, read, seconds};
use crate::PlanError;
use crate::cc_os::{CpuOperator, Settings, best_plan, one_by_one, plan};
use serde::Deserialize;
use serde_json::json;

/// An input.
pub const EXAMPLE: &str = r#"{
  "cores": 16,
  "operators": [
    { "name": "conv", "serial_seconds": 0.001, "parallel_seconds": 0.08, "per_thread_seconds": 0.0001, "memory_share": 0.3 },
    { "name": "pool", "parallel_seconds": 0.01, "memory_share": 0.8, "after": ["conv"] },
    { "name": "norm", "parallel_seconds": 0.02, "memory_share": 0.2, "after": ["conv"] },
    { "name": "join", "parallel_seconds": 0.03, "memory_share": 0.1, "after": ["pool", "norm"] }
  ]
}
"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stated {
    cores: u32,
    #[serde(default)]
    interval: Option<u32>,
    operators: Vec<StatedOperator>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatedOperator {
    name: String,
    #[serde(default)]
    serial_seconds: f64,
    parallel_seconds: f64,
    #[serde(default)]
    per_thread_seconds: f64,
    #[serde(default)]
    memory_share: f64,
    #[serde(default)]
    after: Vec<String>,
}

/// Plans it by the paper's rules and by ours, beside one operator at a time.
pub fn solve(text: &str) -> Result<Answer, PlanError> {
    let stated: Stated = read(text)?;
    let names = distinct(stated.operators.iter().map(|one| one.name.as_str()))?;
    let mut operators = Vec::with_capacity(names.len());
    for (at, one) in stated.operators.iter().enumerate() {
        let after = one.after.iter().map(|name| earlier(&names[..at], &one.name, name));
        operators.push(CpuOperator {
            name: one.name.clone(),
            serial: one.serial_seconds,
            parallel: one.parallel_seconds,
            per_thread: one.per_thread_seconds,
            memory_share: one.memory_share,
            after: after.collect::<Result<_, _>>()?,
        });
    }
    if operators.is_empty() || stated.cores == 0 {
        return Err(PlanError::Empty("operators on cores".to_owned()));
    }
    let mut settings = Settings { cores: stated.cores, ..Settings::default() };
    settings.interval = stated.interval.unwrap_or(settings.interval).max(1);
    let alone = one_by_one(&operators, stated.cores)?.seconds;
    let paper = plan(&operators, &settings)?.seconds;
    let best = best_plan(&operators, &settings)?;
    let row = |at: usize| {
        let threads = best.threads[at].to_string();
        vec![operators[at].name.clone(), threads, seconds(best.start[at]), seconds(best.end[at])]
    };
    Ok(Answer {
        summary: format!(
            "{}; by the paper's rules {}, one operator at a time on all cores {}",
            seconds(best.seconds),
            seconds(paper),
            seconds(alone)
        ),
        heading: vec!["operator", "threads", "starts", "ends"],
        rows: (0..operators.len()).map(row).collect(),
        data: json!({
            "seconds": best.seconds, "paper_seconds": paper, "one_at_a_time_seconds": alone,
            "threads": best.threads, "start_seconds": best.start, "end_seconds": best.end,
        }),
    })
}
