//! Training by swaps on one machine.

use super::{Answer, above_zero, model, read, seconds};
use crate::devices::{DeviceGraph, KindFigures, LinkSpeeds};
use crate::harmony::{Form, plan};
use crate::{PlanError, gib};
use serde::Deserialize;
use serde_json::{Value, json};

/// An input.
pub const EXAMPLE: &str = r#"{
  "model": "transformer layers=24 hidden=2048 heads=16",
  "measured_on": "v100",
  "gpus": 4,
  "gpu_memory_bytes": 16000000000,
  "host_bytes_per_second": 12000000000,
  "gpu_bytes_per_second": 25000000000,
  "micro_batches": 4
}
"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stated {
    model: Value,
    #[serde(default)]
    measured_on: Option<String>,
    gpus: u32,
    gpu_memory_bytes: f64,
    host_bytes_per_second: f64,
    gpu_bytes_per_second: f64,
    micro_batches: u32,
}

/// The three forms side by side.
pub fn solve(text: &str) -> Result<Answer, PlanError> {
    let stated: Stated = read(text)?;
    let kind = stated.measured_on.as_deref().unwrap_or("v100");
    let chain = model(&stated.model, kind)?.chain();
    if stated.gpus == 0 || stated.gpus > 64 {
        let value = f64::from(stated.gpus);
        return Err(PlanError::Figure { operator: "machine".to_owned(), field: "gpus", value });
    }
    let memory = above_zero("machine", "gpu_memory_bytes", stated.gpu_memory_bytes)?;
    let inside = above_zero("machine", "gpu_bytes_per_second", stated.gpu_bytes_per_second)?;
    let speeds = LinkSpeeds {
        inside,
        network: inside,
        between_two: f64::INFINITY,
        host: above_zero("machine", "host_bytes_per_second", stated.host_bytes_per_second)?,
        latency: 0.0,
    };
    let figures = KindFigures { speed: 1.0, memory_bytes: memory, peak_flops: 1.0 };
    let devices = DeviceGraph::uniform((1, stated.gpus), kind, figures, &speeds);
    let forms = [
        ("paged memory", Form::Paged),
        ("a copy on each GPU", Form::DataParallel),
        ("packs go round", Form::WrapAround),
    ];
    let mut found = Vec::new();
    for (name, form) in forms {
        found.push((name, plan(&chain, &devices, form, stated.micro_batches)?));
    }
    let best = found.iter().min_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds));
    let best = best.ok_or_else(|| PlanError::Empty("the forms".to_owned()))?;
    Ok(Answer {
        summary: format!("{}: {} an iteration", best.0, seconds(best.1.seconds)),
        heading: vec!["form", "iteration", "swapped", "packs"],
        rows: (found.iter())
            .map(|(name, plan)| {
                let packs = plan.packs.len().to_string();
                vec![(*name).to_owned(), seconds(plan.seconds), gib(plan.swapped_bytes), packs]
            })
            .collect(),
        data: json!({
            "forms": found.iter().map(|(name, plan)| json!({
                "form": name, "seconds": plan.seconds, "swapped_bytes": plan.swapped_bytes,
                "packs": plan.packs,
            })).collect::<Vec<Value>>(),
        }),
    })
}
