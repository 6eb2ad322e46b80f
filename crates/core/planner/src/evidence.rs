//! What was measured of a model on one GPU, beside what is predicted of it.
//!
//! `scripts/planner-evidence` measures whole steps of a transformer at several micro-batches and with and without
//! recomputation, and single layers at the smallest and the largest micro-batch. A step is predicted twice: from the
//! layers, which is what any layer profile allows, and from the description of the model alone.

use crate::devices::{DeviceGraph, KindFigures, LinkSpeeds, peak_flops};
use crate::pipeline::{Chunk, Pipeline};
use crate::ptd_p::{Costs, Machines, Recompute, Split};
use crate::schedule::Schedule;
use crate::{PlanError, Transformer};
use serde::{Deserialize, Serialize};
use trainyard_diagnostic::InputError;

/// What was measured.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Evidence {
    /// The type of GPU.
    pub gpu: String,
    /// The model as a description.
    pub model: String,
    /// Times of operators that ran alone, by micro-batch, ascending.
    pub profiles: Vec<LayerTimes>,
    /// Whole steps.
    pub cases: Vec<Case>,
}

/// Times of all operators at one micro-batch.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LayerTimes {
    /// Samples.
    pub batch: u32,
    /// The operators in order.
    pub operators: Vec<OperatorTime>,
}

/// Times of one operator.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct OperatorTime {
    /// Its name.
    pub name: String,
    /// Seconds of its forward pass.
    pub forward_seconds: f64,
    /// Seconds of its backward pass.
    pub backward_seconds: f64,
    /// Seconds of the update of its parameters.
    pub update_seconds: f64,
    /// Whether it is one of the layers that are computed again with recomputation.
    pub is_layer: bool,
}

/// A step that was measured.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Case {
    /// Samples of a micro-batch.
    pub micro_batch: u32,
    /// How many of them.
    pub micro_batches: u32,
    /// `nothing` or `all`.
    pub recompute: String,
    /// Seconds.
    pub seconds: f64,
}

/// A step that was measured and predicted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Samples of a micro-batch.
    pub micro_batch: u32,
    /// Whether everything but the input of a layer is computed again.
    pub recomputes: bool,
    /// Seconds measured.
    pub measured: f64,
    /// Seconds predicted from the times of layers.
    pub from_layers: f64,
    /// Seconds predicted from the description alone; nothing where the type of GPU is not known.
    pub from_description: Option<f64>,
}

impl Compared {
    /// By how much the prediction from layers is off, as a part of what was measured.
    pub fn off(&self) -> f64 {
        self.from_layers / self.measured - 1.0
    }
}

/// Reads what the script wrote.
pub fn parse(text: &str) -> Result<Evidence, InputError> {
    let evidence: Evidence = serde_json::from_str(text).map_err(|error| {
        let what = error.to_string();
        let what = what.split(" at line ").next().unwrap_or_default().to_owned();
        let expected = format!("what `scripts/planner-evidence` writes ({what})");
        InputError::wrong(error.line() as u64, "", "", expected)
    })?;
    let missing = |field: &str, expected: &str| Err(InputError::missing(0, field, expected));
    if evidence.cases.is_empty() {
        return missing("cases", "one measured step at least");
    }
    let first = evidence.profiles.first();
    let Some(first) = first.filter(|first| !first.operators.is_empty()) else {
        return missing("profiles", "the times of operators at one micro-batch at least");
    };
    for profile in &evidence.profiles {
        if profile.operators.len() != first.operators.len() {
            let count = profile.operators.len().to_string();
            let expected = format!("{} operators, as in the first profile", first.operators.len());
            return Err(InputError::wrong(0, "operators", &count, expected));
        }
        for one in &profile.operators {
            let times = [one.forward_seconds, one.backward_seconds, one.update_seconds];
            if let Some(bad) = times.iter().find(|time| !time.is_finite() || **time < 0.0) {
                let expected = format!("seconds from 0, at operator `{}`", one.name);
                return Err(InputError::wrong(0, "seconds", &bad.to_string(), expected));
            }
        }
    }
    if !evidence.profiles.is_sorted_by(|a, b| a.batch < b.batch) {
        return missing("profiles", "micro-batches in ascending order, each once");
    }
    for case in &evidence.cases {
        if case.seconds.is_nan()
            || case.seconds <= 0.0
            || case.micro_batch * case.micro_batches == 0
        {
            let expected = "a step of at least one sample, in seconds above 0";
            return Err(InputError::wrong(0, "cases", &case.seconds.to_string(), expected));
        }
        if !matches!(case.recompute.as_str(), "all" | "nothing") {
            let known = ["all", "nothing"];
            return Err(InputError::unknown(0, "recompute", &case.recompute, known));
        }
    }
    Ok(evidence)
}

/// Every case beside its predictions.
pub fn compare(evidence: &Evidence) -> Result<Vec<Compared>, PlanError> {
    let described = evidence.model.strip_prefix("transformer ").unwrap_or(&evidence.model);
    let model = Transformer::parse(described)?;
    let compare = |case: &Case| {
        let recomputes = case.recompute == "all";
        Ok(Compared {
            micro_batch: case.micro_batch,
            recomputes,
            measured: case.seconds,
            from_layers: from_layers(&evidence.profiles, case, recomputes)?,
            from_description: from_description(&model, &evidence.gpu, case, recomputes)?,
        })
    };
    evidence.cases.iter().map(compare).collect()
}

/// A pipeline of one stage with the times of the layers, which lie on a line between the micro-batches measured.
fn from_layers(profiles: &[LayerTimes], case: &Case, recomputes: bool) -> Result<f64, PlanError> {
    let (first, last) = (&profiles[0], &profiles[profiles.len() - 1]);
    let part = match last.batch - first.batch {
        0 => 0.0,
        span => (f64::from(case.micro_batch) - f64::from(first.batch)) / f64::from(span),
    };
    let (mut forward, mut backward, mut update) = (0.0, 0.0, 0.0);
    for (low, high) in first.operators.iter().zip(&last.operators) {
        let at = |low: f64, high: f64| low + part * (high - low);
        let own = at(low.forward_seconds, high.forward_seconds);
        forward += own;
        backward += at(low.backward_seconds, high.backward_seconds);
        if recomputes && low.is_layer {
            backward += own;
        }
        update += low.update_seconds;
    }
    let chunk = Chunk {
        name: "all layers".to_owned(),
        layers: first.operators.len() as u32,
        forward,
        backward,
        to_next: Vec::new(),
        synchronise: Vec::new(),
        synchronise_seconds: update,
        devices: vec![0],
        fixed_bytes: 0.0,
        kept_bytes: 0.0,
        working_bytes: 0.0,
    };
    let pipeline = Pipeline {
        chunks: vec![chunk],
        micro_batches: case.micro_batches,
        schedule: Schedule::OneForwardOneBackward,
    };
    Ok(pipeline.simulate(&one_device(1.0))?.run.seconds)
}

/// By the operations of the model and the curve of `ptd-p`, without anything that was measured here.
fn from_description(
    model: &Transformer,
    kind: &str,
    case: &Case,
    recomputes: bool,
) -> Result<Option<f64>, PlanError> {
    let Some(peak_flops) = peak_flops(kind) else { return Ok(None) };
    let machines = Machines {
        devices: 1,
        per_machine: 1,
        inside: f64::INFINITY,
        network: f64::INFINITY,
        memory_bytes: f64::INFINITY,
        peak_flops,
    };
    let split = Split {
        tensor: 1,
        pipeline: 1,
        data: 1,
        chunks: 1,
        micro_batch: case.micro_batch,
        micro_batches: case.micro_batches,
        context: 1,
        expert: 1,
        sequence: false,
        recompute: if recomputes { Recompute::Full } else { Recompute::Nothing },
        overlap: false,
    };
    let costs = Costs::new(model, &machines, split);
    let pipeline = costs.pipeline(case.micro_batch * case.micro_batches)?;
    Ok(Some(pipeline.simulate(&one_device(peak_flops))?.run.seconds))
}

fn one_device(peak_flops: f64) -> DeviceGraph {
    let figures = KindFigures { speed: 1.0, memory_bytes: f64::INFINITY, peak_flops };
    let unlimited = f64::INFINITY;
    let speeds = LinkSpeeds {
        inside: unlimited,
        network: unlimited,
        between_two: unlimited,
        host: unlimited,
        latency: 0.0,
    };
    DeviceGraph::uniform((1, 1), "one", figures, &speeds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(recompute: &str) -> String {
        let operators = |factor: f64| {
            let one = |name: &str, is_layer: bool| {
                format!(
                    r#"{{"name":"{name}","forward_seconds":{},"backward_seconds":{},"update_seconds":0.01,"is_layer":{is_layer}}}"#,
                    0.1 * factor,
                    0.2 * factor
                )
            };
            format!("[{},{}]", one("layer_0", true), one("head", false))
        };
        format!(
            r#"{{"gpu":"h200","model":"transformer layers=1 hidden=64 heads=4 sequence=16 vocabulary=64",
            "profiles":[{{"batch":1,"operators":{}}},{{"batch":4,"operators":{}}}],
            "cases":[{{"micro_batch":2,"micro_batches":3,"recompute":"{recompute}","seconds":2.0}}]}}"#,
            operators(1.0),
            operators(4.0)
        )
    }

    #[test]
    fn a_step_is_its_passes_its_second_forward_passes_and_its_update() {
        let seconds =
            |recompute: &str| compare(&parse(&text(recompute)).unwrap()).unwrap()[0].from_layers;
        // Three micro-batches of two samples: 3 (2 * 0.2 + 2 * 0.4), and the update of both.
        assert!((seconds("nothing") - 3.62).abs() < 1e-9);
        assert!((seconds("all") - 3.62 - 3.0 * 0.2).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_evidence_is_refused_by_name() {
        let cases = [
            (text("some"), "recompute"),
            (text("all").replace("\"seconds\":2.0", "\"seconds\":0"), "above 0"),
            (text("all").replace("\"forward_seconds\":0.1,", ""), "forward_seconds"),
            (text("all").replace("\"batch\":4", "\"batch\":1"), "ascending"),
        ];
        for (text, expected) in cases {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
