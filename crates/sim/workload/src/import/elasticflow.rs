//! ElasticFlow (ASPLOS 2023): CSV with deadlines, in the naming of its code or of the Microsoft traces.
//!
//! Columns `job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration[,best_effort]`, or
//! `submission_time,num_iteration,...,deadline`. Where the catalog holds the model at this batch size
//! (`elasticflow-resnet50-b256`) and its measured speed gives the stated length within 5 %, work is the iterations; otherwise it is `duration` in seconds
//! at the wanted size, whatever the placement. Deadlines are moments; a job with `best_effort` has none, and one whose
//! deadline lies before its submission keeps it, for it can only be missed. Jobs with a deadline are guaranteed.

use super::Skip;
use super::sink::{Draft, Sink};
use super::table::{Column, SECONDS_MAX, Table, TableRow, needed, optional};
use crate::ReadError;
use std::io::BufRead;
use trainyard_types::{Class, ModelId, Time, Work};

const COLUMNS: &[Column] = &[
    needed(&["job_id"]),
    needed(&["submit_time", "submission_time"]),
    needed(&["num_gpu"]),
    needed(&["duration"]),
    needed(&["ddl", "deadline"]),
    needed(&["model_name"]),
    needed(&["batch_size"]),
    needed(&["iteration", "num_iteration"]),
    optional(&["best_effort"]),
];

pub(crate) fn read(mut reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    sink.measured_on("a100");
    let mut table = Table::csv(&mut reader, COLUMNS)?;
    while let Some(row) = table.next()? {
        let draft = draft(&row, sink);
        sink.take(row.line, draft)?;
    }
    Ok(())
}

fn draft<'a>(row: &TableRow<'a>, sink: &mut Sink) -> Result<Draft<'a>, Skip> {
    let submitted = row.need_number(1, 0.0..=SECONDS_MAX)?;
    let seconds = row.need_number(3, 0.0..=SECONDS_MAX)?;
    let mut draft = Draft::new(row.need(0)?, submitted, (row.gpus(2)?, seconds))?;
    let iterations = row.number(7, 0.0..=1e18)?.filter(|iterations| *iterations > 0.0);
    let name = format!("elasticflow-{}-b{}", row.need(5)?.replace('_', "-"), row.need(6)?);
    let gpus = draft.job.want.gpus;
    let agrees = |model: &ModelId, iterations: f64| {
        let points = &sink.ground().0.catalog.get(*model).points;
        let mut rates = points.iter().filter(|point| point.gpus == gpus).map(|point| point.rate);
        rates.any(|rate| (iterations / rate - seconds).abs() <= 0.05 * seconds)
    };
    let steps = iterations.unwrap_or(0.0);
    match (sink.model(&name).filter(|model| agrees(model, steps)), iterations) {
        (Some(model), Some(iterations)) => {
            draft.job.model = model;
            draft.work = Work(iterations);
        }
        _ => sink.note_missing(row.line, "a model of the catalog; its duration is used"),
    }
    let deadline = row.number(4, 0.0..=SECONDS_MAX)?;
    let is_best_effort = row.number(8, 0.0..=1.0)? == Some(1.0);
    if let Some(deadline) = deadline.filter(|_| !is_best_effort) {
        draft.job.class = Class::Guaranteed;
        draft.job.value = vec![(Time::from_secs_f64(deadline), 1.0)];
    }
    Ok(draft)
}
