//! `trainyard profile check`: how far the interpolation is from recorded times.

use crate::args::CheckArgs;
use crate::failure::Failure;
use crate::output::Output;
use serde_json::{Value, json};
use trainyard_diagnostic::InputError;
use trainyard_experiment::given::load_catalog;
use trainyard_experiment::trainings;
use trainyard_profile::Training;
use trainyard_profile::import::pollux;
use trainyard_profile::training::{MeasuredAt, StepTimes, TimePoint};
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::table::figures;

/// How far answers are from recorded times, as parts of these.
struct Errors {
    /// What they are of.
    of: String,
    /// How many placements of them were never measured.
    unmeasured: usize,
    /// Each error, ascending.
    each: Vec<f64>,
}

/// Compares recorded times with what the interpolation answers without them.
pub fn check(args: &CheckArgs, output: &Output) -> Result<(), Failure> {
    let queries = trainings::recorded(&args.queries)?;
    let catalog = load_catalog(&args.profiles)?;
    let mut rows = Vec::new();
    for (application, points) in &queries {
        let name = pollux::model_name(pollux::Authors::Pollux, application);
        let id = catalog.find(&name);
        let training = id.and_then(|id| catalog.get(id).training.as_deref());
        let training = training.ok_or_else(|| {
            let expected = format!(
                "an application with a measured training `{name}`; see `trainyard profile import`"
            );
            let fault = InputError::wrong(0, "app", application, expected);
            Failure::input(args.queries.display(), fault)
        })?;
        rows.push(errors(application, points, training));
    }
    let mut all = Errors { of: "all".to_owned(), unmeasured: 0, each: Vec::new() };
    for row in &rows {
        all.unmeasured += row.unmeasured;
        all.each.extend(&row.each);
    }
    all.each.sort_by(f64::total_cmp);
    rows.push(all);
    if args.json {
        let rows: Vec<Value> = rows.iter().map(Errors::json).collect();
        return output.print_json(&json!({
            "schema_version": SCHEMA_VERSION,
            "kind": "profile-check",
            "errors": rows,
        }));
    }
    let heading = ["application", "times", "not measured", "mean error", "p95", "max"];
    let rows: Vec<Vec<String>> = rows.iter().map(Errors::row).collect();
    output.print(&figures(&heading, 1, &rows, output.ink))
}

fn errors(application: &str, points: &[TimePoint], training: &Training) -> Errors {
    let measured = training.times.points().iter().filter(|point| !point.recorded);
    let times = StepTimes::new(measured.cloned().collect());
    let mut each = Vec::with_capacity(points.len());
    let mut unmeasured = 0;
    for point in points {
        let MeasuredAt::Ring(shape) = &point.place else { continue };
        let kind = times.kinds().iter().position(|kind| *kind == point.kind);
        let found = kind.and_then(|kind| times.at(kind, shape, point.local));
        // A time that cannot be answered is as wrong as can be.
        each.push(found.map_or(1.0, |found| (found.step / point.time.step - 1.0).abs()));
        unmeasured += usize::from(!times.is_measured(kind.unwrap_or(0), shape));
    }
    each.sort_by(f64::total_cmp);
    Errors { of: application.to_owned(), unmeasured, each }
}

impl Errors {
    fn mean(&self) -> f64 {
        self.each.iter().sum::<f64>() / self.each.len().max(1) as f64
    }

    /// The least error that 95 of 100 do not pass.
    fn p95(&self) -> f64 {
        let rank = (self.each.len() * 95).div_ceil(100);
        self.each.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    }

    fn max(&self) -> f64 {
        self.each.last().copied().unwrap_or(0.0)
    }

    fn row(&self) -> Vec<String> {
        let percent = |part: f64| format!("{:.3} %", part * 100.0);
        let (count, unmeasured) = (self.each.len().to_string(), self.unmeasured.to_string());
        let (mean, p95, max) = (percent(self.mean()), percent(self.p95()), percent(self.max()));
        vec![self.of.clone(), count, unmeasured, mean, p95, max]
    }

    fn json(&self) -> Value {
        json!({
            "application": self.of,
            "times": self.each.len(),
            "not_measured": self.unmeasured,
            "mean": self.mean(),
            "p95": self.p95(),
            "max": self.max(),
        })
    }
}
