//! ElasticFlow's tables of throughputs (ASPLOS 2023): one CSV for each model and type of GPU.
//!
//! A row is a global batch, a column a number of GPUs, a cell iterations per second.
//! Neither the model nor the type stands in the table, so both are given beside it.
//! A blank, `0` and `nan` mean that the size was not measured or does not fit, and give no point.
//! The T4 tables are Pollux's, and are named after it, as in the zoo.

use super::{At, add_point, is_kind, plain_name, size, skew, speed, table, with_points};
use crate::{ModelProfile, Point};
use trainyard_diagnostic::InputError;

/// Reads one table into one profile for each batch.
pub fn read(text: &str, model: &str, kind: &str) -> Result<Vec<ModelProfile>, InputError> {
    if !is_kind(kind) || plain_name(model).is_empty() {
        let expected = "the name of a model and a type of GPU, such as bert and a100";
        return Err(InputError::wrong(0, "model", &format!("{model} on {kind}"), expected));
    }
    let kind = kind.to_lowercase();
    let table = table::read(text)?;
    if table.column("global_batch_size")? != 0 {
        let expected = "the first column";
        return Err(InputError::wrong(1, "column", "global_batch_size", expected));
    }
    let at = At { line: 1, field: "column" };
    let sizes = table.heading[1..].iter().map(|text| size(&at, text));
    let sizes = sizes.collect::<Result<Vec<u32>, InputError>>()?;
    let mut models: Vec<ModelProfile> = Vec::new();
    for (line, row) in &table.rows {
        let batch: Option<u64> = row.get(0).and_then(|text| text.parse().ok());
        let Some(batch) = batch.filter(|batch| *batch > 0) else {
            let value = row.get(0).unwrap_or("");
            return Err(InputError::wrong(*line, "global_batch_size", value, "a batch above 0"));
        };
        let mut profile = named(model, &kind, batch);
        if models.iter().any(|other| other.name == profile.name) {
            let expected = "each batch once";
            return Err(InputError::wrong(
                *line,
                "global_batch_size",
                &batch.to_string(),
                expected,
            ));
        }
        for (gpus, cell) in sizes.iter().zip(row.iter().skip(1)) {
            let field = gpus.to_string();
            let at = At { line: *line, field: &field };
            if let Some(rate) = cell_speed(&at, cell)? {
                let nodes = gpus.div_ceil(gpus_per_node(&kind));
                let point = Point { kind: kind.clone(), gpus: *gpus, nodes, rate };
                add_point(&mut profile, point, &at)?;
            }
        }
        models.push(profile);
    }
    with_points(models)
}

/// The testbeds: nodes of 4 T4, or of 8 A100; other types are taken to come by 8.
fn gpus_per_node(kind: &str) -> u32 {
    if kind == "t4" { 4 } else { 8 }
}

fn cell_speed(at: &At<'_>, cell: &str) -> Result<Option<f64>, InputError> {
    if cell.is_empty() || cell.eq_ignore_ascii_case("nan") {
        return Ok(None);
    }
    // What is no number is refused by the same words as a number out of range.
    speed(at, cell, cell.parse().unwrap_or(f64::NAN))
}

fn named(model: &str, kind: &str, batch: u64) -> ModelProfile {
    let (prefix, from) = match kind {
        "t4" => ("pollux", "Pollux (OSDI 2021) as shipped with ElasticFlow"),
        _ => ("elasticflow", "ElasticFlow (ASPLOS 2023)"),
    };
    let source = format!(
        "{from}, an imported table of throughputs: {model}, global batch {batch}, nodes of {} GPUs",
        gpus_per_node(kind)
    );
    let name = plain_name(&format!("{prefix}-{model}-b{batch}"));
    ModelProfile { skew: skew(model), ..ModelProfile::named(&name, &source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_model_and_a_blank_a_zero_or_nan_is_no_point() {
        let text = "global_batch_size,1,8,16\n64,1.5,,4\n128,0,nan,2\n";
        let models = read(text, "vgg16", "A100").unwrap();
        assert_eq!(models[0].name, "elasticflow-vgg16-b64");
        assert_eq!((models[0].points.len(), models[1].points.len()), (2, 1));
        assert_eq!((models[0].points[1].gpus, models[0].points[1].nodes), (16, 2));
        assert_eq!(models[0].skew, Some(0.743));
        assert_eq!(read(text, "ncf", "t4").unwrap()[0].name, "pollux-ncf-b64");
    }

    #[test]
    fn faults_name_line_column_and_value() {
        for (text, expected) in [
            ("batch,1\n64,1\n", "line 1: `global_batch_size` is missing"),
            ("global_batch_size,one\n64,1\n", "line 1: `column` cannot be `one`"),
            ("global_batch_size,1\n64,fast\n", "line 2: `1` cannot be `fast`"),
            ("global_batch_size,1\n64,-3\n", "line 2: `1` cannot be `-3`"),
            ("global_batch_size,1\n64,1,2\n", "line 2: `row` cannot be `3 columns`"),
            ("global_batch_size,1\n64,1\n64,2\n", "line 3: `global_batch_size` cannot be `64`"),
            ("global_batch_size,1\n0,1\n", "line 2: `global_batch_size` cannot be `0`"),
            ("global_batch_size,1,1\n64,1,2\n", "line 2: `1` cannot be `2`"),
            ("", "line 1: `heading` is missing"),
            ("global_batch_size,1\n64,0\n", "line 1: `speed` is missing"),
        ] {
            let found = read(text, "bert", "a100").unwrap_err().to_string();
            assert!(found.starts_with(expected), "{found}\n  does not start with\n{expected}");
        }
    }
}
