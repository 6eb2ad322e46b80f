//! Inferences of one network, each cut between a device and a server.

use super::{Answer, above_zero, model, read, seconds};
use crate::PlanError;
use crate::duan_wu::{Cut, Sides, below_layers, best_mix, mix, of_chain, of_graph};
use serde::Deserialize;
use serde_json::{Value, json};

/// An input.
pub const EXAMPLE: &str = r#"{
  "model": "cnn image=224x224x3 layers=conv64k3,conv64k3,pool2,conv128k3,pool2,conv256k3,pool2,fc1000",
  "measured_on": "v100",
  "jobs": 4,
  "device_speed": 0.001,
  "upload_bytes_per_second": 2500000,
  "input_bytes": 150528,
  "parts": 4
}
"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stated {
    model: Value,
    #[serde(default)]
    measured_on: Option<String>,
    jobs: usize,
    device_speed: f64,
    upload_bytes_per_second: f64,
    input_bytes: f64,
    #[serde(default)]
    parts: Option<u32>,
}

/// Most inferences and most parts of a layer.
const JOBS_MAX: usize = 200;
const PARTS_MAX: u32 = 64;

/// Cuts along the layers, within them, and through branches.
pub fn solve(text: &str) -> Result<Answer, PlanError> {
    let stated: Stated = read(text)?;
    let graph = model(&stated.model, stated.measured_on.as_deref().unwrap_or("v100"))?;
    let sides = Sides {
        speed: above_zero("device", "device_speed", stated.device_speed)?,
        bytes_per_second: above_zero(
            "device",
            "upload_bytes_per_second",
            stated.upload_bytes_per_second,
        )?,
        input_bytes: stated.input_bytes,
    };
    if stated.jobs == 0 || stated.jobs > JOBS_MAX {
        let value = stated.jobs as f64;
        return Err(PlanError::Figure { operator: "inferences".to_owned(), field: "jobs", value });
    }
    let parts = stated.parts.unwrap_or(4).clamp(1, PARTS_MAX);
    let chain = graph.chain();
    let plain = of_chain(&chain, &sides);
    let ways: [(&str, Option<crate::duan_wu::Mix>, Vec<Cut>); 4] = [
        ("paper: between layers", mix(&plain, stated.jobs), plain.clone()),
        ("ours: between layers", best_mix(&plain, stated.jobs), plain.clone()),
        {
            let cuts = below_layers(&chain, &sides, parts);
            ("ours: within layers", best_mix(&cuts, stated.jobs), cuts)
        },
        {
            let cuts = of_graph(&graph, &sides);
            ("ours: through branches", best_mix(&cuts, stated.jobs), cuts)
        },
    ];
    let found: Vec<(&str, crate::duan_wu::Mix, Vec<Cut>)> =
        ways.into_iter().filter_map(|(name, mix, cuts)| Some((name, mix?, cuts))).collect();
    let best = found.iter().min_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds));
    let best = best.ok_or_else(|| PlanError::Empty("the cuts".to_owned()))?;
    let cut = |cut: &Cut| format!("{} here, {} up", seconds(cut.local), seconds(cut.upload));
    let row = |(name, mix, cuts): &(&str, crate::duan_wu::Mix, Vec<Cut>)| {
        vec![
            (*name).to_owned(),
            seconds(mix.seconds),
            format!("{} x {}", mix.first, cut(&cuts[mix.cuts.0])),
            format!("{} x {}", stated.jobs - mix.first, cut(&cuts[mix.cuts.1])),
        ]
    };
    let data = |(name, mix, cuts): &(&str, crate::duan_wu::Mix, Vec<Cut>)| {
        let (a, b) = (&cuts[mix.cuts.0], &cuts[mix.cuts.1]);
        json!({
            "way": name, "seconds": mix.seconds, "first": mix.first,
            "cuts": [{ "local_seconds": a.local, "upload_seconds": a.upload },
                     { "local_seconds": b.local, "upload_seconds": b.upload }],
        })
    };
    Ok(Answer {
        summary: format!("{} inferences in {} ({})", stated.jobs, seconds(best.1.seconds), best.0),
        heading: vec!["cuts", "all done", "these first by Johnson's rule", "and these"],
        rows: found.iter().map(row).collect(),
        data: json!({ "ways": found.iter().map(data).collect::<Vec<Value>>() }),
    })
}
