//! Inference of a convolutional network by edge devices together.

use super::{Answer, read, seconds};
use crate::yang::{
    Edge, EdgeDevice, EdgePlan, Scheme, Window, choose_by_formula, choose_by_replay, exact_by_type,
    one_device, paper_plan, whole_as_one,
};
use crate::{Cnn, PlanError};
use serde::Deserialize;
use serde_json::{Value, json};
use trainyard_diagnostic::InputError;

/// An input.
pub const EXAMPLE: &str = r#"{
  "model": "cnn image=64x64x3 layers=conv32k3,conv32k3,pool2,conv64k3,conv64k3,pool2,fc10",
  "bytes_per_second": 6250000,
  "devices": [
    { "name": "pi-0", "flops": 3e9 }, { "name": "pi-1", "flops": 3e9 }, { "name": "nano", "flops": 9e9 }
  ],
  "arrivals_seconds": [0, 0.1, 0.2, 0.3, 2.0, 2.1, 2.2]
}
"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stated {
    model: String,
    bytes_per_second: f64,
    devices: Vec<StatedDevice>,
    #[serde(default)]
    latency_max_seconds: Option<f64>,
    #[serde(default)]
    arrivals_seconds: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatedDevice {
    name: String,
    flops: f64,
}

/// One device, one stage, the paper's pipeline and ours; and which of them serves the arrivals best.
pub fn solve(text: &str) -> Result<Answer, PlanError> {
    let stated: Stated = read(text)?;
    let shape = stated.model.strip_prefix("cnn ").ok_or_else(|| {
        let expected = "a network such as `cnn image=64x64x3 layers=conv32k3,fc10`";
        InputError::wrong(0, "model", &stated.model, expected)
    })?;
    let cnn = Cnn::parse(shape)?;
    let devices: Vec<EdgeDevice> = (stated.devices.iter())
        .map(|one| EdgeDevice { name: one.name.clone(), flops: one.flops })
        .collect();
    if !stated.arrivals_seconds.is_sorted() {
        return Err(
            InputError::wrong(0, "arrivals_seconds", "", "moments in ascending order").into()
        );
    }
    let edge = Edge::new(&cnn, &devices, stated.bytes_per_second)?;
    let most = stated.latency_max_seconds.unwrap_or(f64::INFINITY);
    let plans: [(&str, Option<EdgePlan>); 4] = [
        ("one device", Some(one_device(&edge))),
        ("one stage", Some(whole_as_one(&edge))),
        ("pipeline (paper)", paper_plan(&edge, most)),
        ("pipeline (ours)", exact_by_type(&edge, most)),
    ];
    let found: Vec<(&str, EdgePlan)> =
        plans.into_iter().filter_map(|(name, plan)| Some((name, plan?))).collect();
    let stages = |plan: &EdgePlan| -> Vec<String> {
        let names = |devices: &[usize]| -> Vec<&str> {
            devices.iter().map(|one| stated.devices[*one].name.as_str()).collect()
        };
        let one = |stage: &crate::yang::Strips| {
            format!("{}..{} on {}", stage.from, stage.to - 1, names(&stage.devices).join("+"))
        };
        plan.stages.iter().map(one).collect()
    };
    let schemes: Vec<Scheme> = (found.iter())
        .map(|(_, plan)| Scheme { period: plan.period(), latency: plan.latency() })
        .collect();
    let window = Window { arrivals: stated.arrivals_seconds.clone() };
    let named = |at: Option<usize>| at.map(|at| found[at].0);
    let (formula, replay) =
        (named(choose_by_formula(&schemes, &window)), named(choose_by_replay(&schemes, &window)));
    let best = found.iter().min_by(|a, b| a.1.period().total_cmp(&b.1.period()));
    let best = best.ok_or_else(|| PlanError::Empty("the devices".to_owned()))?;
    let chosen = match (window.arrivals.is_empty(), formula, replay) {
        (false, Some(formula), Some(replay)) => {
            format!("; for what arrived: {replay} (the formula says {formula})")
        }
        _ => String::new(),
    };
    Ok(Answer {
        summary: format!("{}: a result every {}{chosen}", best.0, seconds(best.1.period())),
        heading: vec!["scheme", "period", "latency", "stages"],
        rows: (found.iter())
            .map(|(name, plan)| {
                let (period, latency) = (seconds(plan.period()), seconds(plan.latency()));
                vec![(*name).to_owned(), period, latency, stages(plan).join("; ")]
            })
            .collect(),
        data: json!({
            "schemes": found.iter().map(|(name, plan)| json!({
                "scheme": name, "period_seconds": plan.period(), "latency_seconds": plan.latency(),
                "stages": stages(plan),
            })).collect::<Vec<Value>>(),
            "by_formula": formula, "by_replay": replay,
        }),
    })
}
