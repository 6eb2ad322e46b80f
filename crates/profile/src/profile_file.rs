//! Profiles as TOML: a list of `[[model]]` tables.
//!
//! ```toml
//! [[model]]
//! name = "our-gpt"
//! source = "measured on our own cluster"
//! memory_mib = 30000
//! scaling = 0.9             # speed grows as GPUs to this power where nothing was measured
//! spread = 0.85             # kept each time the nodes double beyond what was measured
//! skew = 0.3                # share of the largest tensor
//! resizes_in_place = false
//! save = { base = "20s" }
//! start = { base = "40s", per_doubling = "5s" }
//! [[model.point]]
//! kind = "a100"
//! gpus = 8
//! nodes = 1
//! rate = 3.5
//! [[model.pair]]
//! partner = "our-bert"
//! time_sliced = 0.6
//! mps = 0.8
//! [[model.host]]            # speed by host CPUs and memory for each GPU, relative to the usual share
//! gpus = 1
//! cpus_per_gpu = [1.0, 3.0]
//! memory_mib_per_gpu = [64000]
//! usual = { cpus = 3.0, memory_mib = 64000 }
//! parts = [[0.3], [1.0]]
//! [[model.stage]]           # how long one iteration keeps each resource busy
//! gpus = 8
//! cpu = "80ms"
//! gpu = "150ms"
//! network = "40ms"
//! ```
//!
//! `batches = { own = 32, epoch_samples = 50000, others = [{ batch = 64, model = "our-gpt-64" }] }` names the models
//! that are the same training at other batch sizes.

mod axes;

use crate::document::{Document, Section};
use crate::model::{ANY_KIND, ModelProfile, Pair, Point, SizeCost};
use crate::{InputError, kinds};
use std::fmt::Write;
use trainyard_types::Span;

/// Reads profiles; every fault names its line and key.
pub fn read(text: &str) -> Result<Vec<ModelProfile>, InputError> {
    let document = Document::parse(text)?;
    let root = document.root();
    root.allow(&["model"])?;
    let mut models: Vec<ModelProfile> = Vec::new();
    for section in root.sections("model")? {
        let model = read_model(&section)?;
        if models.iter().any(|other| other.name == model.name) {
            return Err(section.wrong("name", "a name that no other model of the file has"));
        }
        models.push(model);
    }
    Ok(models)
}

/// Writes profiles in the form that [`read`] takes.
pub fn write<'a>(models: impl IntoIterator<Item = &'a ModelProfile>) -> String {
    let mut text = String::new();
    for model in models {
        // Writing to a string cannot fail.
        let _ = write_model(&mut text, model);
    }
    text
}

const MODEL_KEYS: [&str; 14] = [
    "name",
    "source",
    "memory_mib",
    "scaling",
    "spread",
    "skew",
    "save",
    "start",
    "resizes_in_place",
    "point",
    "pair",
    "host",
    "stage",
    "batches",
];

fn read_model(section: &Section<'_, '_>) -> Result<ModelProfile, InputError> {
    section.allow(&MODEL_KEYS)?;
    let source = section.text("source")?.unwrap_or("not stated");
    let mut model = ModelProfile::named(section.needed_text("name")?, source);
    if let Some(memory) = section.whole("memory_mib", 0..=u64::from(u32::MAX))? {
        model.memory_mib = memory as u32;
    }
    if let Some(scaling) = section.real("scaling", -1.0..=1.0)? {
        model.scaling = scaling;
    }
    if let Some(spread) = section.real("spread", 0.01..=1.0)? {
        model.spread = spread;
    }
    model.skew = section.real("skew", 0.0..=1.0)?;
    model.resizes_in_place = section.flag("resizes_in_place")?.unwrap_or(false);
    if let Some(save) = section.section("save")? {
        model.save = read_cost(&save)?;
    }
    if let Some(start) = section.section("start")? {
        model.start = read_cost(&start)?;
    }
    for point in section.sections("point")? {
        model.points.push(read_point(&point, &model.points)?);
    }
    if model.points.is_empty() {
        return Err(section.wrong("point", "at least one `[[model.point]]`"));
    }
    for pair in section.sections("pair")? {
        model.pairs.push(read_pair(&pair)?);
    }
    for table in section.sections("host")? {
        let read = axes::read_host(&table)?;
        axes::in_order(&table, model.host.last().map(|last| last.gpus), read.gpus)?;
        model.host.push(read);
    }
    for stage in section.sections("stage")? {
        let read = axes::read_stage(&stage)?;
        axes::in_order(&stage, model.stages.last().map(|last| last.gpus), read.gpus)?;
        model.stages.push(read);
    }
    if let Some(batches) = section.section("batches")? {
        model.batches = Some(axes::read_batches(&batches)?);
    }
    Ok(model)
}

fn read_point(section: &Section<'_, '_>, others: &[Point]) -> Result<Point, InputError> {
    section.allow(&["kind", "gpus", "nodes", "rate"])?;
    let kind = section.needed_text("kind")?.to_lowercase();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !kind.chars().all(plain) {
        return Err(section.unknown("kind", kinds::KINDS.iter().map(|kind| kind.name)));
    }
    let gpus = section.needed_whole("gpus", 1..=65_536)?;
    let nodes = section.whole("nodes", 1..=gpus)?.unwrap_or(1);
    let rate = section
        .real("rate", f64::MIN_POSITIVE..=1e12)
        .and_then(|rate| rate.ok_or_else(|| section.wrong("rate", "")))
        .map_err(|_| section.wrong("rate", "steps per second, more than 0"))?;
    let point = Point { kind, gpus: gpus as u32, nodes: nodes as u32, rate };
    let same = |other: &Point| {
        (&other.kind, other.gpus, other.nodes) == (&point.kind, point.gpus, point.nodes)
    };
    if others.iter().any(same) {
        return Err(section.wrong("gpus", "one point for each kind, number of GPUs and of nodes"));
    }
    if others.iter().any(|other| (other.kind == ANY_KIND) != (point.kind == ANY_KIND)) {
        return Err(section.wrong("kind", "either `any` for all points or for none"));
    }
    Ok(point)
}

fn read_pair(section: &Section<'_, '_>) -> Result<Pair, InputError> {
    section.allow(&["partner", "time_sliced", "mps"])?;
    let time_sliced = section.real("time_sliced", 0.0..=2.0)?;
    let mps = section.real("mps", 0.0..=2.0)?;
    let Some(either) = time_sliced.or(mps) else {
        return Err(section.wrong("time_sliced", "the part of its speed kept, from 0 to 2"));
    };
    Ok(Pair {
        partner: section.needed_text("partner")?.to_owned(),
        time_sliced: time_sliced.unwrap_or(either),
        mps: mps.unwrap_or(either),
    })
}

fn read_cost(section: &Section<'_, '_>) -> Result<SizeCost, InputError> {
    section.allow(&["base", "per_gpu", "per_doubling", "at"])?;
    let mut cost = SizeCost {
        base: section.span("base")?.unwrap_or(Span::ZERO),
        per_gpu: section.span("per_gpu")?.unwrap_or(Span::ZERO),
        per_doubling: section.span("per_doubling")?.unwrap_or(Span::ZERO),
        at: Vec::new(),
    };
    for entry in section.sections("at")? {
        entry.allow(&["gpus", "time"])?;
        let gpus = entry.needed_whole("gpus", 1..=65_536)? as u32;
        if cost.at.last().is_some_and(|(last, _)| *last >= gpus) {
            return Err(entry.wrong("gpus", "sizes in ascending order"));
        }
        let Some(time) = entry.span("time")? else {
            return Err(entry.wrong("time", "a length of time"));
        };
        cost.at.push((gpus, time));
    }
    Ok(cost)
}

fn write_model(text: &mut String, model: &ModelProfile) -> std::fmt::Result {
    let quoted = |plain: &str| toml::Value::String(plain.to_owned()).to_string();
    writeln!(
        text,
        "[[model]]\nname = {}\nsource = {}",
        quoted(&model.name),
        quoted(&model.source)
    )?;
    writeln!(text, "memory_mib = {}", model.memory_mib)?;
    writeln!(text, "scaling = {:?}\nspread = {:?}", model.scaling, model.spread)?;
    if let Some(skew) = model.skew {
        writeln!(text, "skew = {skew:?}")?;
    }
    writeln!(text, "resizes_in_place = {}", model.resizes_in_place)?;
    writeln!(text, "save = {}\nstart = {}", cost_text(&model.save), cost_text(&model.start))?;
    if let Some(batches) = &model.batches {
        axes::write_batches(text, batches)?;
    }
    for point in &model.points {
        let Point { kind, gpus, nodes, rate } = point;
        let kind = quoted(kind);
        writeln!(
            text,
            "[[model.point]]\nkind = {kind}\ngpus = {gpus}\nnodes = {nodes}\nrate = {rate:?}"
        )?;
    }
    for pair in &model.pairs {
        let Pair { partner, time_sliced, mps } = pair;
        let partner = quoted(partner);
        writeln!(
            text,
            "[[model.pair]]\npartner = {partner}\ntime_sliced = {time_sliced:?}\nmps = {mps:?}"
        )?;
    }
    for table in &model.host {
        axes::write_host(text, table)?;
    }
    for stage in &model.stages {
        axes::write_stage(text, stage)?;
    }
    writeln!(text)
}

fn cost_text(cost: &SizeCost) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (key, span) in
        [("base", cost.base), ("per_gpu", cost.per_gpu), ("per_doubling", cost.per_doubling)]
    {
        if span > Span::ZERO {
            parts.push(format!("{key} = \"{span}\""));
        }
    }
    if !cost.at.is_empty() {
        let at: Vec<String> = cost
            .at
            .iter()
            .map(|(gpus, time)| format!("{{ gpus = {gpus}, time = \"{time}\" }}"))
            .collect();
        parts.push(format!("at = [{}]", at.join(", ")));
    }
    format!("{{ {} }}", parts.join(", "))
}
