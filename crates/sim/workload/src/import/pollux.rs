//! Pollux (OSDI 2021) and Sia (SOSP 2023): CSV `name,time,application,num_replicas,batch_size[,category]`.
//!
//! The file tells no length: a job trains its application to the end.
//!
//! Where the catalog has a measured training of the application (`pollux-cifar10` or `sia-cifar10`, from
//! `trainyard profile import`), the job follows it: its work is that training's, its batch size the user's.
//! Otherwise its work is the number of steps of a whole training at the batch size of a model of the zoo
//! (`pollux-cifar10-b4096`), counted in the validation tables of the authors, and its own batch size is not used.
//! The size is `num_replicas` and fixed. An application that the catalog knows in neither way is dropped.

use super::Skip;
use super::sink::{Draft, Sink};
use super::table::{Column, SECONDS_MAX, Table, TableRow, needed, optional};
use crate::ReadError;
use std::io::BufRead;
use std::sync::Arc;
use trainyard_profile::Training;
use trainyard_types::{ModelId, Work};

const COLUMNS: &[Column] = &[
    needed(&["name"]),
    needed(&["time"]),
    needed(&["application"]),
    needed(&["num_replicas"]),
    optional(&["batch_size"]),
    optional(&["category"]),
];

/// Application, model of the catalog, steps of a whole training at its batch size.
///
/// From the last rows of `validation-*.csv` of Pollux; `bert` by two epochs of SQuAD (88,524 examples).
const APPLICATIONS: [(&str, &str, f64); 6] = [
    ("cifar10", "pollux-cifar10-b4096", 2012.0),
    ("deepspeech2", "pollux-deepspeech2-b640", 1424.0),
    ("imagenet", "pollux-imagenet-b6400", 23_973.0),
    ("ncf", "pollux-ncf-b32768", 1549.0),
    ("yolov3", "pollux-yolov3-b64", 14_578.0),
    ("bert", "pollux-bert-b384", 461.0),
];

pub(crate) fn read(mut reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    sink.measured_on("t4");
    sink.report.notes.push("lengths are those of whole trainings of each application".to_owned());
    let known = APPLICATIONS.iter().filter(|(name, _, _)| training(name, sink).is_some()).count();
    if known > 0 {
        sink.report.notes.push(format!("{known} applications follow a measured training"));
    }
    let mut table = Table::csv(&mut reader, COLUMNS)?;
    while let Some(row) = table.next()? {
        let draft = draft(&row, sink);
        sink.take(row.line, draft)?;
    }
    Ok(())
}

fn draft<'a>(row: &TableRow<'a>, sink: &mut Sink) -> Result<Draft<'a>, Skip> {
    let application = row.need(2)?;
    let submitted = row.need_number(1, 0.0..=SECONDS_MAX)?;
    if let Some((model, training)) = training(application, sink) {
        let mut draft = Draft::new(row.need(0)?, submitted, (row.gpus(3)?, training.work().0))?;
        draft.job.model = model;
        draft.job.want.batch = batch(row, &training)?;
        note_category(row, sink);
        return Ok(draft);
    }
    let known = APPLICATIONS.iter().find(|(name, _, _)| *name == application);
    let unknown = || Skip::because("the length of its application is not known");
    let (_, model, steps) = known.ok_or_else(unknown)?;
    let mut draft = Draft::new(row.need(0)?, submitted, (row.gpus(3)?, *steps))?;
    draft.job.model = sink.model(model).ok_or_else(unknown)?;
    draft.work = Work(*steps);
    note_category(row, sink);
    Ok(draft)
}

fn note_category(row: &TableRow<'_>, sink: &mut Sink) {
    if let Some(category) = row.text(5) {
        sink.note_end(row.line, category);
    }
}

/// The measured training of an application, Pollux' before Sia's.
fn training(application: &str, sink: &Sink) -> Option<(ModelId, Arc<Training>)> {
    let catalog = &sink.ground().0.catalog;
    ["pollux", "sia"].into_iter().find_map(|authors| {
        let id = catalog.find(&format!("{authors}-{application}"))?;
        Some((id, catalog.get(id).training.clone()?))
    })
}

/// The user's batch size, which must be one that the training was measured at or between two such.
fn batch(row: &TableRow<'_>, training: &Training) -> Result<Option<u32>, Skip> {
    if row.text(4).is_none() {
        return Ok(None);
    }
    let batches = training.epochs.batches();
    let (first, most) = (batches[0], batches[batches.len() - 1]);
    let size = row.need_number(4, 1.0..=f64::from(u32::MAX))?;
    if size.fract() != 0.0 || !(f64::from(first)..=f64::from(most)).contains(&size) {
        return Err(Skip::because("its batch size is outside of what was measured"));
    }
    Ok(Some(size as u32))
}
