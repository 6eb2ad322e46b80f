//! Muri's measured iterations (SIGCOMM 2022), as CSV.
//!
//! Needed columns are `model`, `num_gpu`, `batch_size` and `iteration_ms`, in any order; those of the three stages
//! (`stage0_ms` to `stage2_ms`, or any name that holds `resource_time_0` to `resource_time_2`) may be there.
//! The first stage, storage and CPU together, stands under `cpu`; the others are the GPU and the network.
//! All was measured on V100s in nodes of 8; start times are those of the authors' simulator, saving is free there.

use super::{At, add_point, plain_name, size, skew, table, with_points};
use crate::{ModelProfile, Point, SizeCost, StageTimes, zoo};
use trainyard_diagnostic::InputError;
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
    let stages = stage_columns(&table)?;
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
        if let Some(columns) = &stages {
            add_stage(&mut models[index], stage(*line, gpus, (columns, row))?);
        }
    }
    for model in &mut models {
        model.stages.sort_by_key(|stage| stage.gpus);
    }
    with_points(models)
}

/// Where the three stages are; a table has all of them or none.
fn stage_columns(table: &table::Table) -> Result<Option<[(usize, String); 3]>, InputError> {
    let find = |stage: usize| {
        let (short, long) = (format!("stage{stage}_ms"), format!("resource_time_{stage}"));
        let is_it = |name: &&String| **name == short || name.contains(&long);
        table.heading.iter().position(|name| is_it(&name)).ok_or(short)
    };
    let found = [find(0), find(1), find(2)];
    if found.iter().all(Result::is_err) {
        return Ok(None);
    }
    let mut columns = [const { (0, String::new()) }; 3];
    for (column, found) in columns.iter_mut().zip(found) {
        let place = found.map_err(|name| {
            InputError::missing(1, &name, "a column of that name, as for the other stages")
        })?;
        *column = (place, table.heading[place].clone());
    }
    Ok(Some(columns))
}

fn stage(
    line: u64,
    gpus: u32,
    (columns, row): (&[(usize, String); 3], &csv::StringRecord),
) -> Result<StageTimes, InputError> {
    let mut times = [Span::ZERO; 3];
    for (time, (place, name)) in times.iter_mut().zip(columns) {
        let text = row.get(*place).unwrap_or("");
        let millis: Option<f64> = text.parse().ok().filter(|ms| (0.0..=1e9).contains(ms));
        let millis =
            millis.ok_or_else(|| InputError::wrong(line, name, text, "milliseconds from 0 to 1e9"));
        *time = Span::from_secs_f64(millis? / 1000.0);
    }
    let [cpu, gpu, network] = times;
    Ok(StageTimes { gpus, storage: Span::ZERO, cpu, gpu, network })
}

/// Adds the stages of a size. The published table has a size twice with other stages; there those stand whose sum is
/// nearest to the time of an iteration.
fn add_stage(model: &mut ModelProfile, stage: StageTimes) {
    let iteration = model.points.iter().find(|point| point.gpus == stage.gpus);
    let iteration = iteration.map_or(Span::ZERO, |point| Span::from_secs_f64(1.0 / point.rate));
    let off = |stage: &StageTimes| (stage.cpu + stage.gpu + stage.network).0.abs_diff(iteration.0);
    match model.stages.iter_mut().find(|known| known.gpus == stage.gpus) {
        None => model.stages.push(stage),
        Some(known) if off(&stage) < off(known) => *known = stage,
        Some(_) => {}
    }
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
        let text = "num_gpu,model,iteration_ms,batch_size,epoch\n\
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
    fn stages_are_kept_under_either_name() {
        let rows =
            "16,vgg16,332,16,83,68,110\n1,vgg16,107,16,117,68,0.5\n16,vgg16,332,16,83,68,110\n";
        for names in [
            "stage0_ms,stage1_ms,stage2_ms",
            "cpu(resource_time_0),resource_time_1,resource_time_2",
        ] {
            let heading = format!("num_gpu,model,iteration_ms,batch_size,{names}\n");
            let models = read(&format!("{heading}{rows}")).unwrap();
            let [one, many] = &models[0].stages[..] else { panic!("two sizes: {models:?}") };
            assert_eq!((one.gpus, one.cpu, one.network), (1, Span(117_000), Span(500)));
            assert_eq!((many.gpus, many.gpu, many.network), (16, Span(68_000), Span(110_000)));
        }
        let heading = "num_gpu,model,iteration_ms,batch_size,stage0_ms,stage1_ms,stage2_ms\n";
        let fault = |rows: &str| read(&format!("{heading}{rows}")).unwrap_err().to_string();
        assert!(fault("1,a,5,4,1,-2,0\n").starts_with("line 2: `stage1_ms` cannot be `-2`"));
        let twice = read(&format!("{heading}1,a,50,4,9,1,1\n1,a,50,4,30,9,9\n1,a,50,4,8,1,1\n"));
        assert_eq!(twice.unwrap()[0].stages[0].cpu, Span(30_000), "48 ms are nearest to 50 ms");
        let half = read("num_gpu,model,iteration_ms,batch_size,stage0_ms\n1,a,5,4,1\n");
        assert!(half.unwrap_err().to_string().starts_with("line 1: `stage1_ms` is missing"));
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
