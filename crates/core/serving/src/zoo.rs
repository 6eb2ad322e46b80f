//! The built-in latency tables: our own measurements on an H200 (`data/h200`), read at their first use.

use crate::latency::{Measured, Model, Slowdowns};
use crate::llm::LlmModel;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Models by name, ascending: captured as CUDA graphs, and `NAME-eager` launched kernel by kernel.
pub fn models() -> &'static BTreeMap<String, Model> {
    static MODELS: OnceLock<BTreeMap<String, Model>> = OnceLock::new();
    MODELS.get_or_init(|| {
        let mut points: BTreeMap<String, (Vec<Measured>, u64)> = BTreeMap::new();
        for row in rows(include_str!("../data/h200/infer_latency.csv")) {
            let name = if row[1] == "graph" { row[0].clone() } else { format!("{}-eager", row[0]) };
            let entry = points.entry(name).or_default();
            entry.0.push(Measured {
                batch: row[2].parse().unwrap_or(0),
                p50_us: 1e3 * number(&row[3]),
                p99_us: 1e3 * number(&row[4]),
            });
            // Weights in half precision and half as much again for activations and workspace, which is our guess: the
            // measured reservation is that of one process with all models before it.
            entry.1 = (number(&row[7]) * 2.0 * 1.5 / f64::from(1 << 20)) as u64 + 1;
        }
        let made = points.into_iter().filter_map(|(name, (measured, memory_mib))| {
            let model = Model::new(&name, measured, memory_mib, segments(&name))?;
            Some((name, model))
        });
        made.collect()
    })
}

/// Pieces of a model: as many as its residual units, convolutions or layers, after Abacus (SC 2021) where it has the model.
fn segments(name: &str) -> u32 {
    match name.trim_end_matches("-eager") {
        "resnet50" => 18,
        "resnet152" => 52,
        "inception_v3" => 14,
        "vgg16" => 19,
        "bert_base" | "vit_b16" => 12,
        "mobilenet_v3" => 15,
        "efficientnet_b4" => 32,
        _ => 10,
    }
}

/// One row of the measured pairs: (model, batch), milliseconds alone and beside the other, in both directions.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredPair {
    /// The first model, its batch, milliseconds alone and beside the second.
    pub first: (String, u32, f64, f64),
    /// The same of the second.
    pub second: (String, u32, f64, f64),
}

/// The measured pairs.
pub fn pairs() -> Vec<MeasuredPair> {
    let read = |row: Vec<String>| MeasuredPair {
        first: (row[0].clone(), row[1].parse().unwrap_or(0), number(&row[2]), number(&row[3])),
        second: (row[5].clone(), row[6].parse().unwrap_or(0), number(&row[7]), number(&row[8])),
    };
    rows(include_str!("../data/h200/infer_pairs.csv")).map(read).collect()
}

/// Slowdowns of these models beside each other, by the measured pairs; others have the mean of all.
pub fn slowdowns(models: &[Model]) -> Slowdowns {
    let numbers = |name: &str| -> Vec<u32> {
        let is = |model: &&Model| model.name.trim_end_matches("-eager") == name;
        let all = models.iter().enumerate().filter(|(_, model)| is(model));
        all.map(|(at, _)| at as u32).collect()
    };
    let mut measured = Vec::new();
    let (mut sum, mut count) = (0.0, 0.0);
    for pair in pairs() {
        let ((one, b1, alone1, beside1), (two, b2, alone2, beside2)) = (&pair.first, &pair.second);
        sum += beside1 / alone1 + beside2 / alone2;
        count += 2.0;
        for first in numbers(one) {
            for second in numbers(two) {
                measured.push(((first, *b1), (second, *b2), beside1 / alone1));
                measured.push(((second, *b2), (first, *b1), beside2 / alone2));
            }
        }
    }
    Slowdowns::new(&measured, sum / f64::max(count, 1.0))
}

/// The measured model of 8 billion parameters.
pub fn llm_8b() -> &'static LlmModel {
    static MODEL: OnceLock<LlmModel> = OnceLock::new();
    MODEL.get_or_init(|| {
        let (mut decode, mut prefill) = (Vec::new(), Vec::new());
        for row in rows(include_str!("../data/h200/llm_8b_graph.csv")) {
            let (batch, context, new) = (number(&row[1]), number(&row[2]), number(&row[3]));
            let micros = 1e3 * number(&row[4]);
            match (row[0].as_str(), batch == 1.0 && context == 0.0) {
                ("decode", _) => decode.push((batch, context, micros)),
                (_, true) => prefill.push((new, micros)),
                // Batches of prompts and chunks are for the test of the formula alone.
                (_, false) => {}
            }
        }
        LlmModel::fitted("llama-8b", &decode, &prefill)
    })
}

/// The rows of the measured prefills: prompts at once, tokens in the cache, new tokens of each, milliseconds.
pub fn llm_prefills() -> Vec<(u32, u32, u32, f64)> {
    let all = rows(include_str!("../data/h200/llm_8b_graph.csv"));
    let whole = |text: &str| text.parse().unwrap_or(0);
    let read = |row: Vec<String>| (whole(&row[1]), whole(&row[2]), whole(&row[3]), number(&row[4]));
    all.filter(|row| row[0] == "prefill").map(read).collect()
}

/// The rows of an embedded table, without its heading.
fn rows(text: &'static str) -> impl Iterator<Item = Vec<String>> {
    text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect())
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_what_was_measured() {
        let models = models();
        assert_eq!(models.len(), 16);
        let resnet = &models["resnet50"];
        assert_eq!((resnet.span(1).0, resnet.span(64).0, resnet.batch_max()), (897, 4207, 64));
        assert_eq!(models["bert_base-eager"].batch_max(), 128);
        assert_eq!(pairs().len(), 128);
        let all: Vec<Model> = models.values().cloned().collect();
        let at = |name: &str| all.iter().position(|model| model.name == name).unwrap() as u32;
        let slow = slowdowns(&all);
        let found = slow.pair((at("resnet50"), 4), (at("efficientnet_b4"), 4));
        assert!((found - 10.307 / 5.641).abs() < 1e-9, "{found}");
    }
}
