//! What a profile says beyond speeds by number of GPUs: host tables, stages and batches, in and out.

use crate::model::StageTimes;
use crate::{Batches, HostTable, ModelTraffic};
use std::fmt::Write;
use trainyard_diagnostic::InputError;
use trainyard_diagnostic::Section;
use trainyard_types::{Pattern, Span};

const GPUS_MAX: u64 = 65_536;

pub(super) fn read_host(section: &Section<'_, '_>) -> Result<HostTable, InputError> {
    section.allow(&["gpus", "cpus_per_gpu", "memory_mib_per_gpu", "usual", "parts"])?;
    let cpus = section.reals("cpus_per_gpu", 1e-3..=65_535.0)?;
    let memory = section.reals("memory_mib_per_gpu", 1.0..=f64::from(u32::MAX))?;
    let Some(usual) = section.section("usual")? else {
        let expected = "the share at which the part is 1: `{ cpus = 3.0, memory_mib = 64000 }`";
        return Err(section.wrong("usual", expected));
    };
    usual.allow(&["cpus", "memory_mib"])?;
    let usual_cpus = usual.real("cpus", 1e-3..=65_535.0)?;
    let usual_cpus = usual_cpus.ok_or_else(|| usual.wrong("cpus", "CPUs for each GPU"))?;
    let usual_memory = usual.needed_whole("memory_mib", 1..=u64::from(u32::MAX))?;
    let table = HostTable {
        gpus: section.needed_whole("gpus", 1..=GPUS_MAX)? as u32,
        cpus,
        memory_mib: memory.into_iter().map(|memory| memory as u32).collect(),
        parts: section.rows_of_reals("parts", 1e-6..=1e6)?,
        usual: (usual_cpus, usual_memory as u32),
    };
    match table.fault() {
        Some(expected) => Err(section.wrong("parts", expected)),
        None => Ok(table),
    }
}

pub(super) fn read_stage(section: &Section<'_, '_>) -> Result<StageTimes, InputError> {
    section.allow(&["gpus", "storage", "cpu", "gpu", "network"])?;
    let time = |key: &str| Ok::<Span, InputError>(section.span(key)?.unwrap_or(Span::ZERO));
    Ok(StageTimes {
        gpus: section.needed_whole("gpus", 1..=GPUS_MAX)? as u32,
        storage: time("storage")?,
        cpu: time("cpu")?,
        gpu: time("gpu")?,
        network: time("network")?,
    })
}

pub(super) fn read_batches(section: &Section<'_, '_>) -> Result<Batches, InputError> {
    section.allow(&["own", "epoch_samples", "others"])?;
    let own = section.needed_whole("own", 1..=u64::from(u32::MAX))? as u32;
    let mut batches = Batches {
        own,
        epoch_samples: section.whole("epoch_samples", 0..=1 << 53)?.unwrap_or(0),
        others: Vec::new(),
    };
    for other in section.sections("others")? {
        other.allow(&["batch", "model"])?;
        let batch = other.needed_whole("batch", 1..=u64::from(u32::MAX))? as u32;
        if batch == own || batches.others.last().is_some_and(|(last, _)| *last >= batch) {
            return Err(other.wrong("batch", "batches in ascending order, without its own"));
        }
        batches.others.push((batch, other.needed_text("model")?.to_owned()));
    }
    Ok(batches)
}

/// Refuses sizes that are not ascending.
pub(super) fn in_order(
    section: &Section<'_, '_>,
    last: Option<u32>,
    gpus: u32,
) -> Result<(), InputError> {
    match last.is_some_and(|last| last >= gpus) {
        true => Err(section.wrong("gpus", "sizes in ascending order, each once")),
        false => Ok(()),
    }
}

pub(super) fn write_host(text: &mut String, table: &HostTable) -> std::fmt::Result {
    let HostTable { gpus, cpus, memory_mib, parts, usual } = table;
    writeln!(text, "[[model.host]]\ngpus = {gpus}\ncpus_per_gpu = {cpus:?}")?;
    writeln!(text, "memory_mib_per_gpu = {memory_mib:?}")?;
    writeln!(text, "usual = {{ cpus = {:?}, memory_mib = {} }}\nparts = [", usual.0, usual.1)?;
    for row in parts {
        writeln!(text, "  {row:?},")?;
    }
    writeln!(text, "]")
}

pub(super) fn write_stage(text: &mut String, stage: &StageTimes) -> std::fmt::Result {
    let StageTimes { gpus, storage, cpu, gpu, network } = stage;
    writeln!(text, "[[model.stage]]\ngpus = {gpus}")?;
    for (key, time) in [("storage", storage), ("cpu", cpu), ("gpu", gpu), ("network", network)] {
        if *time > Span::ZERO {
            writeln!(text, "{key} = \"{time}\"")?;
        }
    }
    Ok(())
}

pub(super) fn write_batches(text: &mut String, batches: &Batches) -> std::fmt::Result {
    let quoted = |plain: &str| toml::Value::String(plain.to_owned()).to_string();
    let Batches { own, epoch_samples, others } = batches;
    let others: Vec<String> = others
        .iter()
        .map(|(batch, model)| format!("{{ batch = {batch}, model = {} }}", quoted(model)))
        .collect();
    let others = others.join(", ");
    writeln!(
        text,
        "batches = {{ own = {own}, epoch_samples = {epoch_samples}, others = [{others}] }}"
    )
}

pub(super) fn read_traffic(section: &Section<'_, '_>) -> Result<ModelTraffic, InputError> {
    section.allow(&["bytes", "pattern", "overlap", "inside_gbps", "across_gbps"])?;
    let Some(bytes) = section.real("bytes", 0.0..=1e15)? else {
        return Err(section.wrong("bytes", "what an iteration exchanges, such as 102.2e6"));
    };
    let mut traffic = ModelTraffic::gradients(bytes / 4.0);
    if let Some(name) = section.text("pattern")? {
        let found = Pattern::ALL.into_iter().find(|(known, _)| *known == name);
        let known = Pattern::ALL.map(|(known, _)| known);
        let (_, pattern) = found.ok_or_else(|| section.unknown("pattern", known))?;
        traffic.moves.pattern = pattern;
    }
    traffic.moves.overlap = section.real("overlap", 0.0..=1.0)?.unwrap_or(0.0);
    let mbps = |gbps: f64| ((gbps * 1000.0 + 0.5) as u64).max(1);
    traffic.inside_mbps = section.real("inside_gbps", 0.001..=1e9)?.map(mbps);
    if let Some(gbps) = section.real("across_gbps", 0.001..=1e9)? {
        traffic.across_mbps = mbps(gbps);
    }
    Ok(traffic)
}

pub(super) fn write_traffic(text: &mut String, traffic: &ModelTraffic) -> std::fmt::Result {
    let ModelTraffic { moves, inside_mbps, across_mbps } = traffic;
    let gbps = |mbps: u64| mbps as f64 / 1000.0;
    let inside = inside_mbps.map(|mbps| format!(", inside_gbps = {:?}", gbps(mbps)));
    writeln!(
        text,
        "traffic = {{ bytes = {:?}, pattern = \"{}\", overlap = {:?}{}, across_gbps = {:?} }}",
        moves.bytes,
        moves.pattern.name(),
        moves.overlap,
        inside.unwrap_or_default(),
        gbps(*across_mbps)
    )
}
