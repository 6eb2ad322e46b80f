//! Synergy's sensitivity matrices (OSDI 2022), as JSON.
//!
//! `{"models": {"NAME_GPUS": {"iter_time": seconds, "batch": samples, "tput": [[part, ...], ...]}}}`: a row for each
//! number of CPU cores per GPU (`cpu_rows`, or 1, 2, 3, 4, 5, 6, 9, 12, 24), a column for each memory per GPU in GB
//! (`mem_cols_gb`, or 20.83, 62.5, 125, 187.5, 250; a matrix with fewer columns has the last of them), and a value
//! relative to the share of 3 cores and 62.5 GB, at which `iter_time` was measured. A row of zeros was not measured.
//! A GB counts as 1,024 MiB. All was measured on V100s in nodes of 8 GPUs, 24 cores and 500 GB; `iter_time` does not
//! depend on the number of GPUs, so speed in steps does not either (each GPU brings its own batch).
//! Other keys of the file, among them the further sets `models-4` to `models-6` of its authors, are not looked at.

use super::json::{self, Node};
use super::{At, add_point, plain_name, size, skew, with_points};
use crate::{HostTable, ModelProfile, Point};
use trainyard_diagnostic::InputError;

const CPU_ROWS: [f64; 9] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 9.0, 12.0, 24.0];
const MEMORY_GB: [f64; 5] = [20.83, 62.5, 125.0, 187.5, 250.0];
const USUAL: (f64, f64) = (3.0, 62.5);
const GPUS_PER_NODE: u32 = 8;

/// Reads the matrices into one profile for each model and batch.
pub fn read(text: &str) -> Result<Vec<ModelProfile>, InputError> {
    let root = json::root(text)?;
    let entries = root.entries("an object with the key `models`")?;
    let find = |key: &str| entries.iter().find(|(name, _)| name == key).map(|(_, node)| node);
    let axis = |key: &str, known: &[f64]| match find(key) {
        Some(node) => axis(node),
        None => Ok(known.to_vec()),
    };
    let axes =
        Axes { cpus: axis("cpu_rows", &CPU_ROWS)?, memory_gb: axis("mem_cols_gb", &MEMORY_GB)? };
    let expected = "the matrices by model";
    let matrices = find("models").ok_or_else(|| InputError::missing(1, "models", expected))?;
    let mut models: Vec<ModelProfile> = Vec::new();
    for (name, node) in matrices.entries("an object of models")? {
        read_matrix(&name, &node, &axes, &mut models)?;
    }
    for model in &mut models {
        model.host.sort_by_key(|table| table.gpus);
    }
    with_points(models)
}

/// What rows and columns stand for.
struct Axes {
    cpus: Vec<f64>,
    memory_gb: Vec<f64>,
}

fn axis(node: &Node<'_>) -> Result<Vec<f64>, InputError> {
    let numbers = node.numbers("a list of numbers")?;
    let is_valid = |number: &f64| (1e-3..=1e6).contains(number);
    match !numbers.is_empty() && numbers.iter().all(is_valid) && numbers.is_sorted() {
        true => Ok(numbers),
        false => Err(node.wrong("numbers from 0.001 to 1000000 in ascending order")),
    }
}

fn read_matrix(
    name: &str,
    node: &Node<'_>,
    axes: &Axes,
    models: &mut Vec<ModelProfile>,
) -> Result<(), InputError> {
    let expected = "a name and a number of GPUs, such as `res50_4`";
    let (model, gpus) = name
        .rsplit_once('_')
        .filter(|(model, _)| !plain_name(model).is_empty())
        .ok_or_else(|| InputError::wrong(node.line(), "model", name, expected))?;
    let gpus = size(&At { line: node.line(), field: &node.path }, gpus)?;
    let fields = node.entries("an object with `iter_time`, `batch` and `tput`")?;
    let need = |key: &str| {
        let found = fields.iter().find(|(field, _)| field == key).map(|(_, value)| value);
        found.ok_or_else(|| InputError::missing(node.line(), &format!("{}.{key}", node.path), ""))
    };
    let iteration = need("iter_time")?;
    let seconds = iteration.number("seconds above 0")?;
    if !(1e-9..=1e9).contains(&seconds) {
        return Err(iteration.wrong("seconds from 1e-9 to 1e9"));
    }
    let batch = need("batch")?;
    let samples = batch.number("a batch above 0")?;
    if !(1.0..=4e9).contains(&samples) || samples.fract() != 0.0 {
        return Err(batch.wrong("a whole number above 0"));
    }
    let table = read_table(gpus, need("tput")?, axes)?;
    let fresh = named(model, samples as u64);
    let index = models.iter().position(|other| other.name == fresh.name).unwrap_or_else(|| {
        models.push(fresh);
        models.len() - 1
    });
    let nodes = gpus.div_ceil(GPUS_PER_NODE);
    let point = Point { kind: "v100".to_owned(), gpus, nodes, rate: 1.0 / seconds };
    add_point(&mut models[index], point, &At { line: iteration.line(), field: &iteration.path })?;
    models[index].host.push(table);
    Ok(())
}

fn read_table(gpus: u32, node: &Node<'_>, axes: &Axes) -> Result<HostTable, InputError> {
    let rows = node.rows_of_numbers("a list of lists of numbers")?;
    let columns = rows.first().map_or(0, Vec::len);
    let is_shaped = rows.len() == axes.cpus.len()
        && (1..=axes.memory_gb.len()).contains(&columns)
        && rows.iter().all(|row| row.len() == columns);
    if !is_shaped {
        let (cpus, memory) = (axes.cpus.len(), axes.memory_gb.len());
        return Err(node.wrong(format!("{cpus} rows of equally many columns, at most {memory}")));
    }
    let mib = |gb: f64| (gb * 1024.0).round() as u32;
    let memory = &axes.memory_gb[axes.memory_gb.len() - columns..];
    let is_measured = |row: &[f64]| row.iter().any(|part| *part != 0.0);
    let measured = axes.cpus.iter().zip(rows).filter(|(_, row)| is_measured(row));
    let (cpus, parts) = measured.unzip();
    let table = HostTable {
        gpus,
        cpus,
        memory_mib: memory.iter().map(|gb| mib(*gb)).collect(),
        parts,
        usual: (USUAL.0, mib(USUAL.1)),
    };
    match table.fault() {
        Some(expected) => Err(node.wrong(expected)),
        None => Ok(table),
    }
}

fn named(model: &str, batch: u64) -> ModelProfile {
    let long = match model {
        "res18" => "resnet18",
        "res50" => "resnet50",
        other => other,
    };
    let source = format!(
        "Synergy (OSDI 2022), an imported table of CPU and memory sensitivity: {model}, batch {batch} \
         on each GPU"
    );
    let name = plain_name(&format!("synergy-{long}-b{batch}"));
    ModelProfile { scaling: 0.0, skew: skew(long), ..ModelProfile::named(&name, &source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"{"cpu_rows": [1, 3, 9], "mem_cols_gb": [20.83, 62.5], "note": "x", "models": {
        "res18_1": {"iter_time": 0.5, "batch": 512, "tput": [[0.1, 0.3], [0.1, 1], [0.1, 2.4]]},
        "res18_2": {"iter_time": 0.5, "batch": 512, "tput": [[0.3], [1], [0]]}}}"#;

    #[test]
    fn a_matrix_becomes_a_table_for_its_number_of_gpus() {
        let models = read(TWO).unwrap();
        assert_eq!((models.len(), models[0].name.as_str()), (1, "synergy-resnet18-b512"));
        let [one, two] = &models[0].host[..] else { panic!("two tables") };
        assert_eq!(
            (one.gpus, &one.cpus[..], &one.memory_mib[..]),
            (1, &[1.0, 3.0, 9.0][..], &[21_330, 64_000][..])
        );
        assert_eq!(
            (two.gpus, &two.cpus[..], &two.memory_mib[..]),
            (2, &[1.0, 3.0][..], &[64_000][..])
        );
        assert_eq!(models[0].points.len(), 2);
        assert_eq!(one.part(9.0, 64_000.0), 2.4);
    }

    #[test]
    fn faults_name_line_path_and_value() {
        for (from, to, expected) in [
            ("0.5, \"batch\"", "0, \"batch\"", "line 2: `models.res18_1.iter_time` cannot be `0`"),
            (
                "512, \"tput\": [[0.1",
                "0.5, \"tput\": [[0.1",
                "line 2: `models.res18_1.batch` cannot be `0.5`",
            ),
            ("[0.1, 2.4]", "[0.1, -1]", "line 2: `models.res18_1.tput` cannot be"),
            ("[0.1, 2.4]", "[0.1]", "line 2: `models.res18_1.tput` cannot be"),
            ("[0.1, 1]", "[0.1, 1.5]", "line 2: `models.res18_1.tput` cannot be"),
            ("res18_2", "res18", "line 3: `model` cannot be `res18`"),
            ("res18_2", "res18_0", "line 3: `models.res18_0` cannot be `0`"),
            ("\"models\"", "\"model\"", "line 1: `models` is missing"),
            ("[1, 3, 9]", "[3, 1, 9]", "line 1: `cpu_rows` cannot be"),
            (
                "\"iter_time\": 0.5, \"batch\": 512, \"tput\": [[0.3]",
                "\"batch\": 512, \"tput\": [[0.3]",
                "line 3: `models.res18_2.iter_time` is missing",
            ),
        ] {
            let found = read(&TWO.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(found.starts_with(expected), "{found}\n  does not start with\n{expected}");
        }
    }
}
