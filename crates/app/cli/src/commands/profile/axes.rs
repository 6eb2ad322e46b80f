//! What a model says beyond its speed over GPUs: host CPUs and memory, stages, batches.

use crate::failure::Failure;
use crate::output::Output;
use serde_json::{Value, json};
use trainyard_profile::{Batches, HostTable, ModelProfile, StageTimes};
use trainyard_report::table::listing;

/// The widest bar of a host table, in characters.
const BAR: usize = 20;

/// Draws each axis that the model has.
pub fn show(model: &ModelProfile, output: &Output) -> Result<(), Failure> {
    for table in &model.host {
        let of = if table.gpus == 1 { "GPU" } else { "GPUs" };
        let (cpus, memory) = (table.usual.0, gib(table.usual.1));
        output.print(&format!(
            "\nspeed by host CPUs and memory for each GPU, on {} {of} (1 at {cpus} CPUs and {memory})\n",
            table.gpus
        ))?;
        let (heading, rows) = host_rows(table);
        let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
        output.print(&listing(&heading, &rows, output.ink, output.width))?;
    }
    if !model.stages.is_empty() {
        output.print("\ntime of one iteration on each resource (stages may overlap)\n")?;
        let heading = ["GPUs", "storage", "CPU", "GPU", "network"];
        let row = |stage: &StageTimes| {
            let StageTimes { gpus, storage, cpu, gpu, network } = stage;
            let mut row = vec![gpus.to_string()];
            row.extend([storage, cpu, gpu, network].map(ToString::to_string));
            row
        };
        let rows: Vec<Vec<String>> = model.stages.iter().map(row).collect();
        output.print(&listing(&heading, &rows, output.ink, output.width))?;
    }
    if let Some(Batches { own, epoch_samples, others }) = &model.batches {
        let others: Vec<String> =
            others.iter().map(|(batch, model)| format!("{batch} ({model})")).collect();
        let epoch = match epoch_samples {
            0 => String::new(),
            samples => format!(", {samples} samples an epoch"),
        };
        output.print(&format!("\nbatch    {own}{epoch}; also {}\n", others.join(", ")))?;
    }
    Ok(())
}

/// A row for each number of CPUs, and a bar for the most memory.
fn host_rows(table: &HostTable) -> (Vec<String>, Vec<Vec<String>>) {
    let most = table.parts.iter().flatten().fold(0.0, |most: f64, part| most.max(*part));
    let mut heading = vec!["CPUs".to_owned()];
    heading.extend(table.memory_mib.iter().map(|memory| gib(*memory)));
    heading.push("with the most memory".to_owned());
    let row = |(cpus, parts): (&f64, &Vec<f64>)| {
        let mut row = vec![cpus.to_string()];
        row.extend(parts.iter().map(|part| format!("{part:.2}")));
        let last = parts.last().copied().unwrap_or(0.0);
        row.push("#".repeat((last / most * BAR as f64).round() as usize));
        row
    };
    (heading, table.cpus.iter().zip(&table.parts).map(row).collect())
}

fn gib(memory_mib: u32) -> String {
    format!("{:.1} GiB", f64::from(memory_mib) / 1024.0)
}

/// A host table for programs.
pub fn host_json(table: &HostTable) -> Value {
    let HostTable { gpus, cpus, memory_mib, parts, usual } = table;
    json!({
        "gpus": gpus,
        "cpus_per_gpu": cpus,
        "memory_mib_per_gpu": memory_mib,
        "usual": { "cpus": usual.0, "memory_mib": usual.1 },
        "parts": parts,
    })
}

/// Stages for programs.
pub fn stage_json(stage: &StageTimes) -> Value {
    let StageTimes { gpus, storage, cpu, gpu, network } = stage;
    json!({
        "gpus": gpus,
        "storage_s": storage.as_secs_f64(),
        "cpu_s": cpu.as_secs_f64(),
        "gpu_s": gpu.as_secs_f64(),
        "network_s": network.as_secs_f64(),
    })
}

/// Batches for programs.
pub fn batches_json(batches: &Batches) -> Value {
    let Batches { own, epoch_samples, others } = batches;
    let others: Vec<Value> =
        others.iter().map(|(batch, model)| json!({ "batch": batch, "model": model })).collect();
    json!({
        "own": own,
        "epoch_samples": (*epoch_samples > 0).then_some(epoch_samples),
        "others": others,
    })
}
