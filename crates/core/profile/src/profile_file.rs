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
//! [model.features]          # what is known of it alone, from which its speed beside others is predicted
//! utilisation = 0.7
//! memory_utilisation = 0.2
//! power = 0.6
//! batch = 64
//! [[model.spill]]           # its speed with a part of its memory, the rest being in the host's
//! memory = 0.1
//! kept = 0.75
//! [[model.phase]]           # how it uses its GPU over time: a cycle that repeats
//! length = "8m"
//! utilisation = 0.9
//! memory = 1.0              # a part of the most that it uses
//! ```
//!
//! A model that was not measured may be described: `described = "gpt-7.5b batch=512"` in place of points.
//!
//! A measured training is a table `[model.training]`, whose long tables are CSV in three quotes:
//!
//! ```toml
//! [model.training]
//! batch_first = 32
//! batch_most = 64
//! slowdown = 1.0
//! local = [{ kind = "t4", least = 8, most = 64 }]
//! epochs = '''
//! batch,progress,iterations,metric,grad_sqr,grad_var
//! 32,100,100,0.5,1.0,2.0
//! '''
//! times = '''
//! kind,placement,local_batch,step_s,sync_s
//! t4,4+4,8,0.5,0.1
//! t4,16/6,8,0.7,0.2
//! '''
//! ```
//!
//! `batches = { own = 32, epoch_samples = 50000, others = [{ batch = 64, model = "our-gpt-64" }] }` names the models
//! that are the same training at other batch sizes.
//! `traffic = { bytes = 102.2e6, pattern = "ring", overlap = 0.0, inside_gbps = 600, across_gbps = 100 }` says what an
//! iteration moves and over which links the points were measured.

mod axes;
mod told;

use crate::kinds;
use crate::model::{ANY_KIND, ModelProfile, Pair, Point, SizeCost};
use crate::training::{BATCH_MAX, BatchLimits, Epochs, StepTimes, Training};
use std::fmt::Write;
use std::sync::Arc;
use trainyard_diagnostic::InputError;
use trainyard_diagnostic::{Document, Section};
use trainyard_planner::Described;
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

const MODEL_KEYS: [&str; 22] = [
    "name",
    "source",
    "memory_mib",
    "spill",
    "scaling",
    "spread",
    "skew",
    "save",
    "start",
    "splits_by_speed",
    "resizes_in_place",
    "point",
    "pair",
    "unfit",
    "training",
    "host",
    "stage",
    "batches",
    "traffic",
    "features",
    "phase",
    "described",
];

fn read_model(section: &Section<'_, '_>) -> Result<ModelProfile, InputError> {
    section.allow(&MODEL_KEYS)?;
    let source = section.text("source")?.unwrap_or("not stated");
    let mut model = ModelProfile::named(section.needed_text("name")?, source);
    if let Some(text) = section.text("described")? {
        let described = Described::parse(text)
            .map_err(|fault| InputError { line: section.line_of("described"), ..fault })?;
        (model.save, model.start) = crate::planned::costs(&described);
        model.described = Some(Arc::new(described));
    }
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
    model.splits_by_speed = section.flag("splits_by_speed")?.unwrap_or(false);
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
    match (&model.described, model.points.is_empty()) {
        (None, true) => {
            return Err(section.wrong("point", "at least one `[[model.point]]`, or `described`"));
        }
        (Some(_), false) => {
            return Err(section.wrong("point", "either points or `described`, not both"));
        }
        _ => {}
    }
    for pair in section.sections("pair")? {
        model.pairs.push(read_pair(&pair)?);
    }
    for unfit in section.sections("unfit")? {
        unfit.allow(&["kind", "gpus"])?;
        let gpus = unfit.needed_whole("gpus", 1..=65_536)? as u32;
        model.unfit.push((read_kind(&unfit)?, gpus));
    }
    if let Some(training) = section.section("training")? {
        let training = read_training(&training)?;
        let kinds = training.times.kinds();
        let has_point = |kind: &String| model.points.iter().any(|point| point.kind == *kind);
        // A type with points alone would be answered by no training, and one with times alone by no point.
        if !kinds.iter().all(has_point)
            || !model.points.iter().all(|point| kinds.contains(&point.kind))
        {
            let expected = "a `[[model.point]]` on every type that its training has times for, and on no other";
            return Err(section.wrong("point", expected));
        }
        model.training = Some(Arc::new(training));
    }
    read_use(section, &mut model)?;
    Ok(model)
}

/// What a model does to hosts, stages, links and GPUs, and at which batches else it trains.
fn read_use(section: &Section<'_, '_>, model: &mut ModelProfile) -> Result<(), InputError> {
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
    if let Some(traffic) = section.section("traffic")? {
        model.traffic = Some(axes::read_traffic(&traffic)?);
    }
    if let Some(features) = section.section("features")? {
        model.features = told::read_features(&features)?;
    }
    for phase in section.sections("phase")? {
        model.phases.push(told::read_phase(&phase)?);
    }
    for point in section.sections("spill")? {
        model.spill.push(told::read_spill(&point, model.spill.last())?);
    }
    Ok(())
}

fn read_point(section: &Section<'_, '_>, others: &[Point]) -> Result<Point, InputError> {
    section.allow(&["kind", "gpus", "nodes", "rate"])?;
    let kind = read_kind(section)?;
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

/// The name of a type of GPU.
fn read_kind(section: &Section<'_, '_>) -> Result<String, InputError> {
    let kind = section.needed_text("kind")?.to_lowercase();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !kind.chars().all(plain) {
        return Err(section.unknown("kind", kinds::KINDS.iter().map(|kind| kind.name)));
    }
    Ok(kind)
}

fn read_pair(section: &Section<'_, '_>) -> Result<Pair, InputError> {
    section.allow(&["partner", "kind", "time_sliced", "mps", "estimated"])?;
    let kind = match section.text("kind")? {
        Some(_) => read_kind(section)?,
        None => ANY_KIND.to_owned(),
    };
    let time_sliced = section.real("time_sliced", 0.0..=2.0)?;
    let mps = section.real("mps", 0.0..=2.0)?;
    let Some(either) = time_sliced.or(mps) else {
        return Err(section.wrong("time_sliced", "the part of its speed kept, from 0 to 2"));
    };
    Ok(Pair {
        partner: section.needed_text("partner")?.to_owned(),
        kind,
        time_sliced: time_sliced.unwrap_or(either),
        mps: mps.unwrap_or(either),
        estimated: section.flag("estimated")?.unwrap_or(false),
    })
}

fn read_training(section: &Section<'_, '_>) -> Result<Training, InputError> {
    section.allow(&[
        "batch_first",
        "batch_most",
        "slowdown",
        "gpus_most",
        "local",
        "times",
        "recorded",
        "epochs",
    ])?;
    let table = |key: &str| {
        let text = section.text(key)?.unwrap_or("");
        // The first line break after the quotes is no part of the text.
        Ok::<_, InputError>((text, section.line_of(key) + 1))
    };
    let (text, line) = table("times")?;
    if text.is_empty() {
        return Err(section.wrong("times", "times of iterations as CSV in three quotes"));
    }
    let mut points = StepTimes::points_of(text, false).map_err(|fault| fault.below(line))?;
    let (text, line) = table("recorded")?;
    if !text.is_empty() {
        points.extend(StepTimes::points_of(text, true).map_err(|fault| fault.below(line))?);
    }
    let (text, line) = table("epochs")?;
    let epochs = Epochs::of_text(text).map_err(|fault| fault.below(line))?;
    let times = StepTimes::new(points);
    let batches = 1..=u64::from(BATCH_MAX);
    let first = section.needed_whole("batch_first", batches.clone())? as u32;
    let most = section.needed_whole("batch_most", u64::from(first)..=*batches.end())? as u32;
    let mut limits: Vec<Option<BatchLimits>> = vec![None; times.kinds().len()];
    for local in section.sections("local")? {
        local.allow(&["kind", "least", "most"])?;
        let kind = local.needed_text("kind")?;
        let Some(at) = times.kinds().iter().position(|known| known == kind) else {
            return Err(local.unknown("kind", times.kinds().iter().map(String::as_str)));
        };
        let local_least = local.needed_whole("least", batches.clone())? as u32;
        let above = u64::from(local_least)..=*batches.end();
        let local_most = local.needed_whole("most", above)? as u32;
        limits[at] = Some(BatchLimits { first, most, local_least, local_most });
    }
    let limits: Option<Vec<BatchLimits>> = limits.into_iter().collect();
    let expected = "`kind`, `least` and `most` for every type that times are given for";
    let limits = limits.ok_or_else(|| section.wrong("local", expected))?;
    let slowdown = section.real("slowdown", 1e-3..=1e3)?.unwrap_or(1.0);
    let gpus_most = section.whole("gpus_most", 1..=u64::from(u16::MAX))?.map(|most| most as u32);
    Ok(Training { times, epochs, limits, slowdown, gpus_most })
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
    if let Some(described) = &model.described {
        writeln!(text, "described = {}", quoted(&described.text))?;
    }
    writeln!(text, "memory_mib = {}", model.memory_mib)?;
    writeln!(text, "scaling = {:?}\nspread = {:?}", model.scaling, model.spread)?;
    if let Some(skew) = model.skew {
        writeln!(text, "skew = {skew:?}")?;
    }
    if model.splits_by_speed {
        writeln!(text, "splits_by_speed = true")?;
    }
    writeln!(text, "resizes_in_place = {}", model.resizes_in_place)?;
    writeln!(text, "save = {}\nstart = {}", cost_text(&model.save), cost_text(&model.start))?;
    if let Some(batches) = &model.batches {
        axes::write_batches(text, batches)?;
    }
    if let Some(traffic) = &model.traffic {
        axes::write_traffic(text, traffic)?;
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
        let Pair { partner, kind, time_sliced, mps, estimated } = pair;
        writeln!(text, "[[model.pair]]\npartner = {}", quoted(partner))?;
        if kind != ANY_KIND {
            writeln!(text, "kind = {}", quoted(kind))?;
        }
        writeln!(text, "time_sliced = {time_sliced:?}\nmps = {mps:?}")?;
        if *estimated {
            writeln!(text, "estimated = true")?;
        }
    }
    for (kind, gpus) in &model.unfit {
        writeln!(text, "[[model.unfit]]\nkind = {}\ngpus = {gpus}", quoted(kind))?;
    }
    if let Some(training) = &model.training {
        write_training(text, training)?;
    }
    for table in &model.host {
        axes::write_host(text, table)?;
    }
    for stage in &model.stages {
        axes::write_stage(text, stage)?;
    }
    told::write_features(text, &model.features)?;
    for phase in &model.phases {
        told::write_phase(text, phase)?;
    }
    for point in &model.spill {
        told::write_spill(text, *point)?;
    }
    writeln!(text)
}

fn write_training(text: &mut String, training: &Training) -> std::fmt::Result {
    let Training { times, epochs, limits, slowdown, gpus_most } = training;
    writeln!(text, "[model.training]")?;
    if let Some(BatchLimits { first, most, .. }) = limits.first() {
        writeln!(text, "batch_first = {first}\nbatch_most = {most}")?;
    }
    writeln!(text, "slowdown = {slowdown:?}")?;
    if let Some(most) = gpus_most {
        writeln!(text, "gpus_most = {most}")?;
    }
    let local = times.kinds().iter().zip(limits).map(|(kind, limits)| {
        let BatchLimits { local_least, local_most, .. } = limits;
        format!("{{ kind = \"{kind}\", least = {local_least}, most = {local_most} }}")
    });
    writeln!(text, "local = [{}]", local.collect::<Vec<_>>().join(", "))?;
    writeln!(text, "epochs = '''\n{}'''", epochs.to_text())?;
    writeln!(text, "times = '''\n{}'''", times.to_text(false))?;
    let recorded = times.to_text(true);
    if !recorded.is_empty() {
        writeln!(text, "recorded = '''\n{recorded}'''")?;
    }
    Ok(())
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
