//! Gavel (OSDI 2020) and Shockwave (NSDI 2023): `.trace`, one job in a line, fields separated by tabs.
//!
//! Gavel has ten fields: job type, command, directory, steps flag, needs data (0 or 1), steps, GPUs, weight,
//! service-level factor (-1 is none), arrival in seconds. The old form has seven: job type, command, steps flag, needs
//! data, steps, arrival, GPUs. Shockwave has twelve: Gavel's with the batch-size mode (`static`, `accordion`, `gns`)
//! before the weight and the duration in seconds before the arrival.
//! Work is the steps at the speeds that Gavel measured (`data/gavel_rates.csv`, K80, P100, V100, packed), so that the
//! reference is a V100 unless a cluster is given. A job type without measured speeds is dropped.
//! In Shockwave speeds are its own and batches change on the way (`shockwave.rs`); where its tables do not agree with a
//! line, the duration of the line is used. A service-level factor becomes a deadline: arrival and factor times the
//! length on a V100, without what larger batches gain. Ids are the numbers of the lines from 0.

use super::Skip;
use super::shockwave::{Rates, Stated, adapts};
use super::sink::{Draft, Sink};
use super::table::{SECONDS_MAX, is_unknown, whole_gpus};
use crate::ReadError;
use crate::gavel_rates::{self, Rated};
use std::collections::BTreeMap;
use std::io::BufRead;
use std::ops::RangeInclusive;
use trainyard_diagnostic::InputError;
use trainyard_types::{BatchMode, ModelId, Time, Work};

/// Where the fields of a form stand; `usize::MAX` for those it does not have.
struct Form {
    count: usize,
    steps: usize,
    gpus: usize,
    weight: usize,
    factor: usize,
    arrival: usize,
    mode: usize,
    duration: usize,
}

const NONE: usize = usize::MAX;
const NEW: Form = Form {
    count: 10,
    steps: 5,
    gpus: 6,
    weight: 7,
    factor: 8,
    arrival: 9,
    mode: NONE,
    duration: NONE,
};
const OLD: Form = Form {
    count: 7,
    steps: 4,
    gpus: 6,
    weight: NONE,
    factor: NONE,
    arrival: 5,
    mode: NONE,
    duration: NONE,
};
const SHOCKWAVE: Form =
    Form { count: 12, steps: 5, gpus: 6, weight: 8, factor: 9, arrival: 11, mode: 7, duration: 10 };

pub(crate) fn read(reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    read_lines(reader, sink, &[&NEW, &OLD])
}

pub(crate) fn read_shockwave(reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    read_lines(reader, sink, &[&SHOCKWAVE])
}

fn read_lines(reader: &mut dyn BufRead, sink: &mut Sink, forms: &[&Form]) -> Result<(), ReadError> {
    sink.measured_on("v100");
    let mut models = Models::default();
    let (mut text, mut line) = (String::new(), 0);
    loop {
        text.clear();
        line += 1;
        let count = reader.read_line(&mut text);
        if count.map_err(|error| ReadError::in_line(line, error))? == 0 {
            return Ok(());
        }
        if text.trim().is_empty() {
            continue;
        }
        let fields: Vec<&str> = text.trim_end().split('\t').map(str::trim).collect();
        let Some(form) = forms.iter().find(|form| form.count == fields.len()) else {
            let counts: Vec<String> = forms.iter().map(|form| form.count.to_string()).collect();
            let expected = format!("{} fields separated by tabs", counts.join(" or "));
            let value = format!("{} fields", fields.len());
            return Err(InputError::wrong(line, "", &value, expected).into());
        };
        let line_of = Line { line, fields: &fields, form };
        let draft = line_of.draft(sink, &mut models);
        sink.take(line, draft)?;
    }
}

struct Line<'a> {
    line: u64,
    fields: &'a [&'a str],
    form: &'a Form,
}

impl Line<'_> {
    fn number(
        &self,
        (at, name): (usize, &str),
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, InputError> {
        let Some(text) = self.fields.get(at).filter(|text| !is_unknown(text)) else {
            return Ok(None);
        };
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.map(Some).ok_or_else(|| {
            let expected = format!("a number from {} to {}", range.start(), range.end());
            InputError::wrong(self.line, name, text, expected)
        })
    }

    fn draft(&self, sink: &mut Sink, models: &mut Models) -> Result<Draft<'static>, Skip> {
        let form = self.form;
        let gpus = self.number((form.gpus, "scale_factor"), 0.0..=1e6)?;
        let gpus = gpus.and_then(whole_gpus).ok_or_else(|| {
            InputError::wrong(self.line, "scale_factor", self.fields[form.gpus], "a whole number")
        })?;
        let steps = self.number((form.steps, "total_steps"), 0.0..=1e18)?;
        let steps = steps.ok_or_else(|| Skip::missing("total_steps"))?;
        let arrival = self.number((form.arrival, "arrival"), 0.0..=SECONDS_MAX)?;
        let arrival = arrival.ok_or_else(|| Skip::missing("arrival"))?;
        let duration = self.number((form.duration, "duration"), 0.0..=SECONDS_MAX)?;
        let mut draft = Draft::new((self.line - 1).to_string(), arrival, (gpus, steps))?;
        let seconds = match form.mode {
            NONE => {
                let unknown = || Skip::because("the speed of its job type is not known");
                let (model, rated) = models.find(self.fields[0], sink).ok_or_else(unknown)?;
                draft.job.model = model;
                steps / rated.on_v100(gpus).ok_or_else(unknown)?
            }
            _ => {
                let duration = duration.ok_or_else(|| Skip::missing("duration"))?;
                self.adapt(&mut draft, (steps, duration), (sink, models))?;
                duration
            }
        };
        if let Some(weight) = self.number((form.weight, "priority_weight"), 0.0..=1e9)? {
            draft.job.weight = if weight > 0.0 { weight } else { 1.0 };
        }
        let factor = self.number((form.factor, "SLO"), -1.0..=1e9)?.filter(|factor| *factor > 0.0);
        if let Some(factor) = factor {
            let deadline = (arrival + factor * seconds).min(SECONDS_MAX);
            draft.job.value = vec![(Time::from_secs_f64(deadline), 1.0)];
        }
        Ok(draft)
    }

    /// The model of a line of Shockwave, its mode and its batches on the way.
    fn adapt(
        &self,
        draft: &mut Draft<'static>,
        (steps, duration): (f64, f64),
        (sink, models): (&mut Sink, &mut Models),
    ) -> Result<(), Skip> {
        if duration < 1e-6 {
            return Err(Skip::because("it ran for no time"));
        }
        let text = self.fields[self.form.mode];
        let mode = BatchMode::named(text).ok_or_else(|| {
            let names = BatchMode::ALL.iter().map(|mode| mode.name());
            InputError::unknown(self.line, "mode", text, names)
        })?;
        let (job_type, gpus) = (self.fields[0], draft.job.want.gpus);
        let stated = Stated { job_type, gpus, steps, duration, mode };
        let rates = models.shockwave.get_or_insert_with(Rates::new);
        match rates.bind(&stated, sink) {
            Some((model, batches)) => {
                (draft.job.model, draft.batches) = (model, batches);
            }
            None => {
                sink.note_missing(self.line, "the speed of its job type; its duration is used");
                draft.work = Work(duration);
            }
        }
        // The authors' rules do not change the batch of every model; where they do not, the mode is a word only.
        draft.job.batch_mode = if adapts(job_type) { mode } else { BatchMode::Static };
        sink.note_end(self.line, &format!("mode {mode}", mode = mode.name()));
        Ok(())
    }
}

/// Models by job type, made when they are first met.
#[derive(Default)]
struct Models {
    found: BTreeMap<&'static str, ModelId>,
    shockwave: Option<Rates>,
}

impl Models {
    /// The model of a job type as Gavel measured it, and its number in the catalog.
    fn find(&mut self, job_type: &str, sink: &mut Sink) -> Option<(ModelId, &'static Rated)> {
        let rated = gavel_rates::of_job_type(job_type)?;
        let name = rated.profile.name.as_str();
        let add = || sink.model(name).unwrap_or_else(|| sink.add_model(rated.profile.clone()));
        Some((*self.found.entry(name).or_insert_with(add), rated))
    }
}
