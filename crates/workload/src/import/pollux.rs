//! Pollux (OSDI 2021) and Sia (SOSP 2023): CSV `name,time,application,num_replicas,batch_size[,category]`.
//!
//! The file tells no length: a job trains its application to the end. Its work is the number of steps of that
//! training at the batch size of the catalog's model (`pollux-cifar10-b4096`), counted in the validation tables of the
//! authors, and its speed is that model's; the user's own `batch_size` is not used, for these systems adapt it.
//! The size is `num_replicas` and fixed. An application that the catalog
//! does not hold is dropped. The progress of statistical efficiency over epochs is deliberately absent here.

use super::Skip;
use super::sink::{Draft, Sink};
use super::table::{Column, Row, SECONDS_MAX, Table, needed, optional};
use crate::ReadError;
use std::io::BufRead;
use trainyard_types::Work;

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
    let mut table = Table::csv(&mut reader, COLUMNS)?;
    while let Some(row) = table.next()? {
        let draft = draft(&row, sink);
        sink.take(row.line, draft)?;
    }
    Ok(())
}

fn draft<'a>(row: &Row<'a>, sink: &mut Sink) -> Result<Draft<'a>, Skip> {
    let application = row.need(2)?;
    let known = APPLICATIONS.iter().find(|(name, _, _)| *name == application);
    let unknown = || Skip::because("the length of its application is not known");
    let (_, model, steps) = known.ok_or_else(unknown)?;
    let submitted = row.need_number(1, 0.0..=SECONDS_MAX)?;
    let mut draft = Draft::new(row.need(0)?, submitted, (row.gpus(3)?, *steps))?;
    draft.job.model = sink.model(model).ok_or_else(unknown)?;
    draft.work = Work(*steps);
    if let Some(category) = row.text(5) {
        sink.note_end(row.line, category);
    }
    Ok(draft)
}
