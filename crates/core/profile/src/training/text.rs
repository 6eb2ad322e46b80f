//! A training as CSV texts, for files: times by placement, recorded times, and epochs by batch size.

use super::{EpochRow, Epochs, MeasuredAt, StepTime, StepTimes, TimePoint, epochs};
use crate::import::is_kind;
use crate::import::table::{self, Table};
use std::collections::BTreeMap;
use std::fmt::Write;
use trainyard_diagnostic::InputError;

const TIMES: [&str; 5] = ["kind", "placement", "local_batch", "step_s", "sync_s"];
const EPOCHS: [&str; 6] = ["batch", "progress", "iterations", "metric", "grad_sqr", "grad_var"];

/// The most GPUs or nodes of one place.
pub(crate) const PLACE_MAX: u16 = 4096;
/// The largest batch.
pub(crate) const BATCH_MAX: u32 = 1 << 30;

impl StepTimes {
    /// The measured times, or the recorded ones; empty if there are none.
    pub(crate) fn to_text(&self, recorded: bool) -> String {
        let mut text = String::new();
        for point in self.points().iter().filter(|point| point.recorded == recorded) {
            if text.is_empty() {
                let _ = writeln!(text, "{}", TIMES.join(","));
            }
            let StepTime { step, sync } = point.time;
            let (kind, place) = (&point.kind, place_text(&point.place));
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{kind},{place},{},{step:?},{sync:?}", point.local);
        }
        text
    }

    /// Reads points from the text of [`StepTimes::to_text`].
    pub(crate) fn points_of(text: &str, recorded: bool) -> Result<Vec<TimePoint>, InputError> {
        let table = table::read(text)?;
        let at = columns(&table, TIMES)?;
        let mut points = Vec::with_capacity(table.rows.len());
        for (line, row) in &table.rows {
            let [kind, place, local, step, sync] = at.map(|index| row.get(index).unwrap_or(""));
            if !is_kind(kind) {
                return Err(InputError::wrong(*line, "kind", kind, "a type of GPU, such as t4"));
            }
            points.push(TimePoint {
                kind: kind.to_lowercase(),
                place: place_of(*line, place)?,
                local: whole((*line, "local_batch"), local)?,
                time: step_time(*line, (step, "step_s"), (sync, "sync_s"))?,
                recorded,
            });
        }
        Ok(points)
    }
}

impl Epochs {
    /// All epochs.
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("{}\n", EPOCHS.join(","));
        for (batch, rows) in self.measured() {
            for EpochRow { progress, iterations, metric, grad_sqr, grad_var } in rows {
                let noise = format!("{grad_sqr:?},{grad_var:?}");
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{batch},{progress:?},{iterations:?},{metric:?},{noise}");
            }
        }
        text
    }

    /// Reads the text of [`Epochs::to_text`].
    pub(crate) fn of_text(text: &str) -> Result<Epochs, InputError> {
        let table = table::read(text)?;
        let at = columns(&table, EPOCHS)?;
        let mut measured: BTreeMap<u32, Vec<EpochRow>> = BTreeMap::new();
        for (line, row) in &table.rows {
            let fields = at.map(|index| row.get(index).unwrap_or(""));
            let batch = whole((*line, "batch"), fields[0])?;
            let rest = [fields[1], fields[2], fields[3], fields[4], fields[5]];
            measured.entry(batch).or_default().push(epoch_row(*line, rest, &EPOCHS[1..])?);
        }
        let wrong = || InputError::wrong(1, "epochs", "this table", epochs::EXPECTED);
        Epochs::new(measured.into_iter().collect()).ok_or_else(wrong)
    }
}

/// Where columns of these names are.
pub(crate) fn columns<const N: usize>(
    table: &Table,
    names: [&str; N],
) -> Result<[usize; N], InputError> {
    let mut at = [0; N];
    for (index, name) in at.iter_mut().zip(names) {
        *index = table.column(name)?;
    }
    Ok(at)
}

/// Progress, iterations, metric, squared norm and variance of one epoch.
pub(crate) fn epoch_row(
    line: u64,
    fields: [&str; 5],
    names: &[&str],
) -> Result<EpochRow, InputError> {
    let mut values = [0.0; 5];
    for ((value, text), name) in values.iter_mut().zip(fields).zip(names) {
        let least = if *name == "metric" { f64::MIN } else { 0.0 };
        let number = text.parse().ok().filter(|number| (least..=f64::MAX).contains(number));
        let expected = if least < 0.0 { "a finite number" } else { "a finite number from 0" };
        *value = number.ok_or_else(|| InputError::wrong(line, name, text, expected))?;
    }
    let [progress, iterations, metric, grad_sqr, grad_var] = values;
    Ok(EpochRow { progress, iterations, metric, grad_sqr, grad_var })
}

/// The time of an iteration and the part of it that exchanging gradients adds, with the names of their columns.
pub(crate) fn step_time(
    line: u64,
    (step, step_name): (&str, &str),
    (sync, sync_name): (&str, &str),
) -> Result<StepTime, InputError> {
    let seconds = |text: &str| text.parse().ok().filter(|number| (0.0..=1e6).contains(number));
    let wrong = |name: &str, text: &str, expected: &str| {
        InputError::wrong(line, name, text, expected.to_owned())
    };
    let whole: Option<f64> = seconds(step).filter(|step| *step > 0.0);
    let whole = whole.ok_or_else(|| wrong(step_name, step, "seconds above 0, up to 1e6"))?;
    let part: Option<f64> = seconds(sync);
    let part = part.ok_or_else(|| wrong(sync_name, sync, "seconds from 0 to 1e6"))?;
    Ok(StepTime { step: whole, sync: part })
}

/// A whole number above 0.
pub(crate) fn whole((line, field): (u64, &str), text: &str) -> Result<u32, InputError> {
    let number = text.parse().ok().filter(|number| (1..=BATCH_MAX).contains(number));
    let expected = || format!("a whole number from 1 to {BATCH_MAX}");
    number.ok_or_else(|| InputError::wrong(line, field, text, expected()))
}

/// `4+4+2` for a ring, `10/3` for ten GPUs on three nodes.
fn place_text(place: &MeasuredAt) -> String {
    match place {
        MeasuredAt::Ring(ring) => ring.iter().map(u16::to_string).collect::<Vec<_>>().join("+"),
        MeasuredAt::Size { nodes, gpus } => format!("{gpus}/{nodes}"),
    }
}

fn place_of(line: u64, text: &str) -> Result<MeasuredAt, InputError> {
    let number = |part: &str| part.parse().ok().filter(|count| (1..=PLACE_MAX).contains(count));
    let place = match text.split_once('/') {
        Some((gpus, nodes)) => match (number(nodes), number(gpus)) {
            (Some(nodes), Some(gpus)) if nodes <= gpus => Some(MeasuredAt::Size { nodes, gpus }),
            _ => None,
        },
        None => text.split('+').map(number).collect::<Option<Vec<u16>>>().map(MeasuredAt::Ring),
    };
    let expected = "GPUs of each node as `4+4+2`, or GPUs and nodes as `10/3`";
    place.ok_or_else(|| InputError::wrong(line, "placement", text, expected))
}
