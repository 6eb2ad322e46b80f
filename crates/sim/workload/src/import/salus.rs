//! Salus (MLSys 2020): its list of workloads, one TensorFlow job on one GPU in each row.
//!
//! Columns `workload,duration_s,peak_mem_mib,iterations`; names are network, batch size and nominal length, such as
//! `vgg16_100_10min`. Nothing says when jobs arrive: all are submitted at 0. The peak is the memory asked for; what of it
//! is kept between iterations is not in the list. One name stands there twice, so that ids are names with iterations.

use super::sink::Draft;
use super::table::{Column, Table, TableRow, needed};
use super::{Sink, Skip};
use crate::ReadError;
use std::collections::BTreeMap;
use std::io::BufRead;
use trainyard_profile::ModelProfile;
use trainyard_types::{ModelId, Work};

const COLUMNS: &[Column] = &[
    needed(&["workload"]),
    needed(&["duration_s"]),
    needed(&["peak_mem_mib"]),
    needed(&["iterations"]),
];

/// Models by name, with iterations in a second.
type Rates = BTreeMap<String, (ModelId, f64)>;

pub(crate) fn read(mut reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    // Any type will do: which one the list was measured on is not said.
    sink.measured_on("p100");
    sink.report.time_zone = "none: all jobs come at once".to_owned();
    let mut rates = Rates::new();
    let mut table = Table::csv(&mut reader, COLUMNS)?;
    while let Some(row) = table.next()? {
        let draft = draft(&row, &mut rates, sink);
        sink.take(row.line, draft)?;
    }
    Ok(())
}

fn draft<'a>(row: &TableRow<'a>, rates: &mut Rates, sink: &mut Sink) -> Result<Draft<'a>, Skip> {
    let name = row.need(0)?;
    let seconds = row.need_number(1, 0.0..=1e9)?;
    let memory = row.need_number(2, 0.0..=f64::from(u32::MAX))?;
    let iterations = row.need_number(3, 1.0..=1e12)?;
    let mut draft = Draft::new(format!("{name}:{iterations}"), 0.0, (1, seconds))?;
    let kind = name.rsplit_once('_').map_or(name, |(kind, _)| kind).replace('_', "-b");
    // The same network at the same batch is one model, as fast as in its first row; lengths stay what they are.
    let (model, rate) = match rates.get(&kind) {
        Some(known) => *known,
        None => {
            let source = "Salus, list of workloads: iterations over duration";
            let rate = iterations / seconds;
            let profile = ModelProfile::steady(&format!("salus-{kind}"), source, rate);
            let model = sink.model(&profile.name).unwrap_or_else(|| sink.add_model(profile));
            *rates.entry(kind).or_insert((model, rate))
        }
    };
    draft.job.model = model;
    draft.work = Work(seconds * rate);
    draft.job.want.gpu_memory_mib = memory.ceil() as u32;
    Ok(draft)
}
