//! Chronus (SoCC 2021): `trace_job_Philly_*.csv`, times in minutes, with strict and soft deadlines.
//!
//! Columns `job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,
//! expect_value_list,best_effort,job_type`. A job's length is `duration` in minutes; its simulator ignores the
//! placement, so that models are steady unless the catalog holds those of its table of placement speeds. `expect_time_list` counts minutes from submission, with the value of meeting
//! each in `expect_value_list`: one pair is a strict deadline, several are a soft one, and a job with
//! `best_effort` has none. Jobs with deadlines are guaranteed. About 200 rows without GPUs are dropped, as its
//! simulator skips them.

use super::sink::Draft;
use super::table::{Column, Table, TableRow, needed, optional};
use super::{Sink, Skip};
use crate::ReadError;
use std::io::BufRead;
use trainyard_profile::{ModelProfile, zoo};
use trainyard_types::{Class, ModelId, Time};

const COLUMNS: &[Column] = &[
    needed(&["job_id"]),
    needed(&["num_gpu"]),
    needed(&["submit_time"]),
    needed(&["duration"]),
    needed(&["expect_time_list"]),
    needed(&["expect_value_list"]),
    needed(&["best_effort"]),
    optional(&["user"]),
    optional(&["model_name"]),
    optional(&["job_type"]),
];

const MINUTES_MAX: f64 = 1e8;

pub(crate) fn read(mut reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    // Any type will do: its models are as fast on each.
    sink.measured_on("v100");
    sink.report.time_zone = "none: minutes from the start of the trace".to_owned();
    let mut table = Table::csv(&mut reader, COLUMNS)?;
    while let Some(row) = table.next()? {
        let draft = draft(&row, sink);
        sink.take(row.line, draft)?;
    }
    Ok(())
}

fn draft<'a>(row: &TableRow<'a>, sink: &mut Sink) -> Result<Draft<'a>, Skip> {
    let submitted = row.need_number(2, 0.0..=MINUTES_MAX)? * 60.0;
    let seconds = row.need_number(3, 0.0..=MINUTES_MAX)? * 60.0;
    let mut draft = Draft::new(row.need(0)?, submitted, (row.gpus(1)?, seconds))?;
    if let Some(user) = row.text(7) {
        draft.job.tenant = sink.tenant(user);
    }
    if let Some(name) = row.text(8) {
        // A profile of the authors' placement speeds, if it was given, knows what a placement costs.
        let imported = format!("chronus-{}", name.to_lowercase().replace('_', "-"));
        draft.job.model = sink.model(&imported).unwrap_or_else(|| steady(sink, name));
    }
    if row.need_number(6, 0.0..=1.0)? == 0.0 {
        draft.job.class = Class::Guaranteed;
        draft.job.value = value(row, submitted)?;
    }
    sink.note_end(row.line, row.text(9).unwrap_or("not stated"));
    Ok(draft)
}

fn value(row: &TableRow<'_>, submitted: f64) -> Result<Vec<(Time, f64)>, Skip> {
    let list = |column: usize| -> Result<Vec<f64>, Skip> {
        let wrong = || row.wrong(column, "numbers from 0 separated by `-`, such as 159-189");
        let number = |text: &str| {
            let number: Option<f64> = text.trim().parse().ok();
            number.filter(|number| (0.0..=MINUTES_MAX).contains(number)).ok_or_else(wrong)
        };
        Ok(row.need(column)?.split('-').map(number).collect::<Result<_, _>>()?)
    };
    let (times, values) = (list(4)?, list(5)?);
    if times.len() != values.len() || !times.is_sorted_by(|earlier, later| earlier < later) {
        return Err(row
            .wrong(4, "ascending times, as many as `expect_value_list` has values")
            .into());
    }
    let moment = |minutes: f64| Time::from_secs_f64(submitted + minutes * 60.0);
    Ok(times.into_iter().zip(values).map(|(minutes, value)| (moment(minutes), value)).collect())
}

/// A model that does one second of work in each second, with the skew of its tensors if that is known.
pub(crate) fn steady(sink: &mut Sink, name: &str) -> ModelId {
    sink.model(name).unwrap_or_else(|| {
        let source = "the trace that names it: work is given as seconds, whatever the placement";
        let mut profile = ModelProfile::steady(name, source, 1.0);
        profile.skew = zoo::skew(name);
        sink.add_model(profile)
    })
}
