//! Pollux' and Sia's measured trainings (OSDI 2021, SOSP 2023): a folder of CSV files for each application.
//!
//! - `placements.csv`: `placement` (GPUs of each node, one digit each), `local_bsz`, `step_time`, `sync_time`;
//! - `scalability.csv`: `num_nodes`, `num_replicas` instead of the placement;
//! - `validation-BATCH.csv`: a row for each epoch with `progress`, `iteration`, `metric`, `grad_sqr`, `grad_var`;
//! - Sia's names end in the machine, `placements-rtx.csv`, and stand for types of GPU; see [`Role`].
//!
//! A table of queries (`app`, `placement`, `atomic_bsz`, `step_time`, `sync_time`) gives recorded times: what the
//! authors' own interpolation answered, for replays that are exact.
//!
//! Columns may stand in any order. Nothing here opens a file: texts come with the role that their name shows.

use super::{plain_name, table};
use crate::training::{
    BatchLimits, EpochRow, Epochs, MeasuredAt, Site, StepTimes, TimePoint, Training, columns,
    epoch_row, step_time, whole,
};
use crate::{ModelProfile, Point, SizeCost};
use std::collections::BTreeMap;
use std::sync::Arc;
use trainyard_diagnostic::InputError;
use trainyard_types::Span;

/// Whose measurements they are.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Authors {
    /// T4s in nodes of four; every restart takes 30 s.
    Pollux,
    /// Several types; restarts and a slowdown by application.
    Sia,
}

/// What a file holds, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Times by placement on a type of GPU.
    Placements(String),
    /// Times by nodes and GPUs on a type of GPU.
    Scalability(String),
    /// Epochs at a batch size.
    Validation(u32),
}

/// Sia's machines, by the type of GPU in them. The `dgx` tables are a part of `dgx-ext`.
const MACHINES: [(&str, &str); 5] = [
    ("aws", "t4"),
    ("azure", "v100"),
    ("dgx-ext", "a100"),
    ("quad", "rtx6000"),
    ("rtx", "rtx2080ti"),
];

impl Authors {
    /// Those of that name.
    pub fn named(name: &str) -> Option<Authors> {
        const ALL: [(&str, Authors); 2] = [("pollux", Authors::Pollux), ("sia", Authors::Sia)];
        ALL.iter().find(|(own, _)| *own == name).map(|(_, authors)| *authors)
    }
}

/// A fault in one of the files of an application.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {fault}")]
pub struct TableFault {
    /// The name of the file; empty where the fault is that one is missing.
    pub file: String,
    /// What is wrong.
    pub fault: InputError,
}

/// Reads the files of one application, given by name and text, with recorded times beside them.
///
/// Files without a role are not looked at.
pub fn read<'a>(
    authors: Authors,
    application: &str,
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
    recorded: Vec<TimePoint>,
) -> Result<ModelProfile, Box<TableFault>> {
    let mut points = recorded;
    let mut validations = Vec::new();
    for (name, text) in files {
        let at = |fault: InputError| Box::new(TableFault { file: name.to_owned(), fault });
        match Role::of(authors, name) {
            Some(Role::Placements(kind)) => points.extend(placements(text, &kind).map_err(at)?),
            Some(Role::Scalability(kind)) => points.extend(scalability(text, &kind).map_err(at)?),
            Some(Role::Validation(batch)) => {
                validations.push((batch, validation(text).map_err(at)?));
            }
            None => {}
        }
    }
    let whole = profile(authors, application, points, validations);
    whole.map_err(|fault| Box::new(TableFault { file: String::new(), fault }))
}

impl Role {
    /// The role of a file; `None` for one that is not looked at.
    pub fn of(authors: Authors, name: &str) -> Option<Role> {
        let stem = name.strip_suffix(".csv")?;
        if let Some(batch) = stem.strip_prefix("validation-") {
            return batch.parse().ok().map(Role::Validation);
        }
        let kind = |rest: &str| match authors {
            Authors::Pollux => rest.is_empty().then(|| "t4".to_owned()),
            Authors::Sia => {
                let machine = rest.strip_prefix('-')?;
                let known = MACHINES.iter().find(|(name, _)| *name == machine);
                known.map(|(_, kind)| (*kind).to_owned())
            }
        };
        if let Some(rest) = stem.strip_prefix("placements") {
            return kind(rest).map(Role::Placements);
        }
        stem.strip_prefix("scalability").and_then(kind).map(Role::Scalability)
    }
}

/// Why an application is not imported, if it is not.
pub fn left_out(authors: Authors, application: &str) -> Option<&'static str> {
    // Its tables hold the forward pass of one stage of a pipeline, not an iteration.
    (authors == Authors::Sia && application == "gpt_pmp")
        .then_some("is a pipeline of stages, for which a profile has no place yet")
}

/// Reads times by placement.
pub fn placements(text: &str, kind: &str) -> Result<Vec<TimePoint>, InputError> {
    let table = table::read(text)?;
    let at = columns(&table, ["placement", "local_bsz", "step_time", "sync_time"])?;
    let mut points = Vec::with_capacity(table.rows.len());
    for (line, row) in &table.rows {
        let [place, local, step, sync] = at.map(|index| row.get(index).unwrap_or(""));
        points.push(TimePoint {
            kind: kind.to_owned(),
            place: ring(*line, place)?,
            local: whole((*line, "local_bsz"), local)?,
            time: step_time(*line, (step, "step_time"), (sync, "sync_time"))?,
            recorded: false,
        });
    }
    Ok(points)
}

/// Reads times by nodes and GPUs.
pub fn scalability(text: &str, kind: &str) -> Result<Vec<TimePoint>, InputError> {
    let table = table::read(text)?;
    let names = ["num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time"];
    let at = columns(&table, names)?;
    let mut points = Vec::with_capacity(table.rows.len());
    for (line, row) in &table.rows {
        let [nodes, gpus, local, step, sync] = at.map(|index| row.get(index).unwrap_or(""));
        let count = |field: &str, text: &str| {
            let number = text.parse().ok().filter(|number| (1..=4096).contains(number));
            let expected = "a whole number from 1 to 4096, at most as many nodes as GPUs";
            number.ok_or_else(|| InputError::wrong(*line, field, text, expected))
        };
        let size: (u16, u16) = (count("num_nodes", nodes)?, count("num_replicas", gpus)?);
        if size.0 > size.1 {
            let expected = format!("at most {}, the number of replicas", size.1);
            return Err(InputError::wrong(*line, "num_nodes", nodes, expected));
        }
        points.push(TimePoint {
            kind: kind.to_owned(),
            place: MeasuredAt::Size { nodes: size.0, gpus: size.1 },
            local: whole((*line, "local_bsz"), local)?,
            time: step_time(*line, (step, "step_time"), (sync, "sync_time"))?,
            recorded: false,
        });
    }
    Ok(points)
}

/// Reads the epochs at one batch size.
pub fn validation(text: &str) -> Result<Vec<EpochRow>, InputError> {
    let table = table::read(text)?;
    let names = ["progress", "iteration", "metric", "grad_sqr", "grad_var"];
    let at = columns(&table, names)?;
    let rows = table.rows.iter();
    rows.map(|(line, row)| {
        let fields = at.map(|index| row.get(index).unwrap_or(""));
        epoch_row(*line, fields, &names)
    })
    .collect()
}

/// Reads recorded answers on T4s, by application.
pub fn queries(text: &str) -> Result<BTreeMap<String, Vec<TimePoint>>, InputError> {
    let table = table::read(text)?;
    let names = ["app", "placement", "atomic_bsz", "step_time", "sync_time"];
    let at = columns(&table, names)?;
    let mut found: BTreeMap<String, Vec<TimePoint>> = BTreeMap::new();
    for (line, row) in &table.rows {
        let [app, place, local, step, sync] = at.map(|index| row.get(index).unwrap_or(""));
        if plain_name(app).is_empty() {
            return Err(InputError::wrong(*line, "app", app, "the name of an application"));
        }
        found.entry(app.to_owned()).or_default().push(TimePoint {
            kind: "t4".to_owned(),
            place: ring(*line, place)?,
            local: whole((*line, "atomic_bsz"), local)?,
            time: step_time(*line, (step, "step_time"), (sync, "sync_time"))?,
            recorded: true,
        });
    }
    Ok(found)
}

/// The name of the model of an application.
pub fn model_name(authors: Authors, application: &str) -> String {
    let prefix = match authors {
        Authors::Pollux => "pollux",
        Authors::Sia => "sia",
    };
    plain_name(&format!("{prefix}-{application}"))
}

/// Puts the files of one application together.
pub fn profile(
    authors: Authors,
    application: &str,
    points: Vec<TimePoint>,
    validations: Vec<(u32, Vec<EpochRow>)>,
) -> Result<ModelProfile, InputError> {
    let missing = |what: &str, expected: &str| InputError::missing(0, what, expected);
    if points.iter().all(|point| point.recorded) {
        return Err(missing("placements", "a file with times by placement"));
    }
    let batches: Vec<u32> = validations.iter().map(|(batch, _)| *batch).collect();
    let (Some(first), Some(most)) = (batches.iter().min(), batches.iter().max()) else {
        return Err(missing("validation", "a file `validation-BATCH.csv` for each batch size"));
    };
    let (first, most) = (*first, *most);
    let times = StepTimes::new(points);
    let mut limits = Vec::with_capacity(times.kinds().len());
    for kind in times.kinds() {
        let on_kind = |point: &&TimePoint| {
            point.kind == *kind && !point.recorded && matches!(point.place, MeasuredAt::Ring(_))
        };
        let locals = || times.points().iter().filter(on_kind).map(|point| point.local);
        let (Some(least), Some(largest)) = (locals().min(), locals().max()) else {
            let expected = format!("times by placement on `{kind}`, where others were recorded");
            return Err(missing("placements", &expected));
        };
        let local_most = local_most(application, kind).unwrap_or(largest);
        limits.push(BatchLimits { first, most, local_least: least, local_most });
    }
    let epochs = Epochs::new(validations)
        .ok_or_else(|| InputError::wrong(0, "progress", application, crate::training::EXPECTED))?;
    let (slowdown, restart) = match authors {
        Authors::Pollux => (1.0, Span::secs(30)),
        Authors::Sia => sia_facts(application),
    };
    let gpus_most = gpus_most(authors, application);
    let training = Training { times, epochs, limits, slowdown, gpus_most };
    let source = match authors {
        Authors::Pollux => "Pollux (OSDI 2021)",
        Authors::Sia => "Sia (SOSP 2023)",
    };
    let source = format!(
        "{source}, imported tables of a measured training: {application}; a step is an iteration at \
         batch {first}"
    );
    let mut model = ModelProfile::named(&model_name(authors, application), &source);
    model.save = SizeCost::flat(Span::ZERO);
    model.start = SizeCost::flat(restart);
    model.points = mean_rates(&training);
    model.training = Some(Arc::new(training));
    Ok(model)
}

/// Batches above this did not fit on one GPU of the authors, though the tables go further.
fn local_most(application: &str, kind: &str) -> Option<u32> {
    match (application, kind) {
        ("yolov3", "t4") => Some(8),
        ("deepspeech2", "rtx2080ti") => Some(57),
        _ => None,
    }
}

/// Pollux' authors let this one train on a single GPU, though it was measured on more.
fn gpus_most(authors: Authors, application: &str) -> Option<u32> {
    (authors == Authors::Pollux && application == "ncf").then_some(1)
}

/// What a testbed takes longer than the measured iterations, and the time of a restart, in Sia's simulator.
fn sia_facts(application: &str) -> (f64, Span) {
    let (slowdown, restart) = match application {
        "cifar10" => (1.8, 50),
        "ncf" => (1.5, 15),
        "deepspeech2" => (1.2, 25),
        "bert" => (1.2, 120),
        "yolov3" => (1.2, 80),
        "imagenet" => (1.2, 250),
        _ => (1.2, 30),
    };
    (slowdown, Span::secs(restart))
}

/// The mean rate over the whole training at the best batch, for every measured number of nodes and GPUs.
pub(crate) fn mean_rates(training: &Training) -> Vec<Point> {
    let mut points = Vec::new();
    for (kind, name) in training.times.kinds().iter().enumerate() {
        for (nodes, gpus) in training.times.cells(kind) {
            let shape = even(gpus, nodes);
            let site = Site { kind, factor: 1.0, shape: &shape };
            if let Some((_, rate)) = training.best_batch(site) {
                points.push(Point { kind: name.clone(), gpus, nodes, rate: rate.0 });
            }
        }
    }
    points.sort_by(|a, b| (&a.kind, a.gpus, a.nodes).cmp(&(&b.kind, b.gpus, b.nodes)));
    points
}

/// GPUs spread over nodes as evenly as can be, largest first.
fn even(gpus: u32, nodes: u32) -> Vec<u16> {
    let (each, more) = (gpus / nodes, gpus % nodes);
    (0..nodes).map(|node| (each + u32::from(node < more)) as u16).collect()
}

/// `142` is one GPU, four and two, on three nodes.
fn ring(line: u64, text: &str) -> Result<MeasuredAt, InputError> {
    let digit = |c: char| c.to_digit(10).filter(|digit| *digit > 0).map(|digit| digit as u16);
    let ring: Option<Vec<u16>> = text.chars().map(digit).collect();
    let expected = "GPUs of each node, one digit from 1 to 9 each, such as 442";
    ring.filter(|ring| !ring.is_empty() && ring.len() <= 4096)
        .map(MeasuredAt::Ring)
        .ok_or_else(|| InputError::wrong(line, "placement", text, expected))
}
