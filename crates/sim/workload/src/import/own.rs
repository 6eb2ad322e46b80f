//! Formats that have readers of their own: ours, and those of the Tiresias and Muri simulators.
//!
//! In these nothing is dropped: a row that cannot be used is an error.
//! Durations are those of the trace; models of the simulators are steady, with the skew of their tensors.

use super::Sink;
use crate::trace_row::RowReader;
use crate::{ReadError, TraceContext, Workload, gavel_rates, muri, tiresias, trace};
use std::io::BufRead;

pub(crate) fn read_csv(reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    let rows = trace::csv_rows(reader, row_reader(sink))?;
    sink.take_rows(rows);
    Ok(())
}

pub(crate) fn read_jsonl(reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    let rows = trace::jsonl_rows(reader, row_reader(sink))?;
    sink.take_rows(rows);
    Ok(())
}

fn row_reader(sink: &Sink) -> RowReader<'_> {
    let (known, cluster, is_closed) = sink.ground();
    // A trace of generated jobs may name any model of Gavel.
    let mut catalog = known.catalog.clone();
    gavel_rates::complete(&mut catalog);
    let context =
        TraceContext { name: known.name.clone(), cluster, catalog, tenants: known.tenants.clone() };
    if is_closed { RowReader::new(context) } else { RowReader::open(context) }
}

pub(crate) fn read_tiresias(reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    sink.measured_on("p100");
    let workload = tiresias::read(reader, &sink.ground().0.name)?;
    take_owned(workload, sink);
    Ok(())
}

pub(crate) fn read_muri(reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    sink.measured_on("v100");
    let options = muri::MuriOptions::named(&sink.ground().0.name);
    let workload = muri::read(reader, &options)?.workload;
    take_owned(workload, sink);
    Ok(())
}

/// Gives the jobs to the tenants that are declared; these formats name none, so all belong to the first.
fn take_owned(workload: Workload, sink: &mut Sink) {
    let declared = sink.ground().0.tenants.clone();
    let workload = workload.owned_by(declared);
    sink.take_whole(workload);
}
