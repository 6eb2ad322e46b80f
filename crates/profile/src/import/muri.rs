//! Muri's measured iterations (SIGCOMM 2022), as CSV.
//!
//! Needed columns are `model`, `num_gpu`, `batch_size` and `iteration_ms`, in any order; others are not looked at.
//! So the times of stages are not kept: a profile has no place for them.
//! All was measured on V100s in nodes of 8; start times are those of the authors' simulator, saving is free there.

use super::{At, add_point, plain_name, size, skew, table, with_points};
use crate::{InputError, ModelProfile, Point, SizeCost, zoo};
use trainyard_types::Span;

const GPUS_PER_NODE: u32 = 8;

/// Reads the table into one profile for each model and batch.
pub fn read(text: &str) -> Result<Vec<ModelProfile>, InputError> {
    let table = table::read(text)?;
    let columns = ["model", "num_gpu", "batch_size", "iteration_ms"];
    let mut at = [0; 4];
    for (index, column) in at.iter_mut().zip(columns) {
        *index = table.column(column)?;
    }
    let mut models: Vec<ModelProfile> = Vec::new();
    for (line, row) in &table.rows {
        let [model, gpus, batch, iteration] = at.map(|index| row.get(index).unwrap_or(""));
        let gpus = size(&At { line: *line, field: "num_gpu" }, gpus)?;
        if plain_name(model).is_empty() {
            return Err(InputError::wrong(*line, "model", model, "the name of a model"));
        }
        if batch.parse::<u32>().ok().filter(|batch| *batch > 0).is_none() {
            return Err(InputError::wrong(*line, "batch_size", batch, "a batch above 0"));
        }
        let field = At { line: *line, field: "iteration_ms" };
        let point = Point {
            kind: "v100".to_owned(),
            gpus,
            nodes: gpus.div_ceil(GPUS_PER_NODE),
            rate: rate(&field, iteration)?,
        };
        let fresh = named(model, batch);
        let index = models.iter().position(|other| other.name == fresh.name);
        let index = index.unwrap_or_else(|| {
            models.push(fresh);
            models.len() - 1
        });
        add_point(&mut models[index], point, &field)?;
    }
    with_points(models)
}

fn rate(at: &At<'_>, text: &str) -> Result<f64, InputError> {
    let milliseconds: Option<f64> = text.parse().ok().filter(|ms| (1e-6..=1e9).contains(ms));
    let expected = "milliseconds from 0.000001 to 1e9";
    milliseconds
        .map(|milliseconds| 1000.0 / milliseconds)
        .ok_or_else(|| InputError::wrong(at.line, at.field, text, expected))
}

fn named(model: &str, batch: &str) -> ModelProfile {
    let short = model.trim_end_matches("_v2_x1_0");
    let source = format!(
        "Muri (SIGCOMM 2022), an imported table of iterations: {model}, batch {batch} per GPU; \
         start times of its simulator"
    );
    ModelProfile {
        skew: skew(short),
        save: SizeCost::flat(Span::ZERO),
        start: zoo::muri_start(model),
        ..ModelProfile::named(&plain_name(&format!("muri-{short}-b{batch}")), &source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name_and_equal_rows_are_one_point() {
        let text = "num_gpu,model,iteration_ms,batch_size,stage0_ms\n\
                    1,vgg16,100,16,3\n16,vgg16,250,16,3\n16,vgg16,250,16,4\n";
        let models = read(text).unwrap();
        assert_eq!((models.len(), models[0].name.as_str()), (1, "muri-vgg16-b16"));
        let points: Vec<(u32, u32, f64)> =
            models[0].points.iter().map(|point| (point.gpus, point.nodes, point.rate)).collect();
        assert_eq!(points, [(1, 1, 10.0), (16, 2, 4.0)]);
        assert_eq!(models[0].start.on(32), Span::secs(10));
        assert_eq!(models[0].save.on(1), Span::ZERO);
    }

    #[test]
    fn faults_name_line_column_and_value() {
        let heading = "model,num_gpu,batch_size,iteration_ms\n";
        for (row, expected) in [
            ("a,1,4,0\n", "line 2: `iteration_ms` cannot be `0`"),
            ("a,1,4,nan\n", "line 2: `iteration_ms` cannot be `nan`"),
            ("a,x,4,5\n", "line 2: `num_gpu` cannot be `x`"),
            ("a,1,,5\n", "line 2: `batch_size` is missing"),
            (",1,4,5\n", "line 2: `model` is missing"),
            ("a,1,4,5\na,1,4,6\n", "line 3: `iteration_ms` cannot be"),
        ] {
            let found = read(&format!("{heading}{row}")).unwrap_err().to_string();
            assert!(found.starts_with(expected), "{found}\n  does not start with\n{expected}");
        }
        let found = read("model,num_gpus,batch_size,iteration_ms\n").unwrap_err().to_string();
        assert!(found.ends_with("did you mean `num_gpus`?"), "{found}");
    }
}
