//! The part of `profile show` about a measured training.

use crate::plot::number;
use serde_json::{Value, json};
use trainyard_profile::Training;
use trainyard_profile::training::{BatchLimits, Site};
use trainyard_report::table::listing;
use trainyard_report::units::Unit;
use trainyard_types::{Config, GpuType};

/// Sizes at which iterations are shown.
const SIZES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Epochs, efficiency and iterations as text; `ink` and `width` as for every table.
pub fn text(training: &Training, ink: trainyard_report::table::Ink, width: Option<u16>) -> String {
    let count = training.epochs.len();
    let mut text = format!(
        "\ntraining {count} epochs, {} steps at the first batch size; slowdown {}\n",
        number(training.work().0),
        training.slowdown
    );
    let shown: Vec<usize> = [0, count / 4, count / 2, count * 3 / 4, count - 1].to_vec();
    let mut heading = vec!["batch".to_owned(), "iterations".to_owned(), "best metric".to_owned()];
    heading.extend(shown.iter().map(|epoch| format!("efficiency, epoch {}", epoch + 1)));
    let first = training.limits.first().map_or(1, |limits| limits.first);
    let rows: Vec<Vec<String>> = (training.epochs.batches().iter())
        .map(|batch| {
            let mut row = vec![
                batch.to_string(),
                number(training.epochs.iterations_in_all(*batch, first)),
                number(training.epochs.best_metric(*batch, count - 1)),
            ];
            row.extend(shown.iter().map(|epoch| {
                let scale = f64::from(*batch) / f64::from(first);
                Unit::Part.text(training.epochs.gain(*batch, first, *epoch) / scale)
            }));
            row
        })
        .collect();
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    text.push_str(&format!("\n{}", listing(&heading, &rows, ink, width)));
    let heading = ["type", "GPUs", "nodes", "best batch", "on each GPU", "passes", "iteration"];
    let rows: Vec<Vec<String>> =
        kinds(training).flat_map(|kind| iterations(training, kind)).collect();
    text.push_str(&format!("\n{}", listing(&heading, &rows, ink, width)));
    text
}

/// The same for programs.
pub fn json(training: &Training) -> Value {
    let limits = |(kind, limits): (&String, &BatchLimits)| {
        json!({
            "kind": kind,
            "batch_first": limits.first,
            "batch_most": limits.most,
            "local_least": limits.local_least,
            "local_most": limits.local_most,
        })
    };
    let limits: Vec<Value> =
        training.times.kinds().iter().zip(&training.limits).map(limits).collect();
    let epochs: Vec<Value> = (training.epochs.measured())
        .map(|(batch, rows)| {
            let rows: Vec<Value> = rows
                .iter()
                .map(|row| {
                    json!({
                        "progress": row.progress,
                        "iterations": row.iterations,
                        "metric": row.metric,
                        "grad_sqr": row.grad_sqr,
                        "grad_var": row.grad_var,
                    })
                })
                .collect();
            json!({ "batch": batch, "epochs": rows })
        })
        .collect();
    let recorded = training.times.points().iter().filter(|point| point.recorded).count();
    json!({
        "work": training.work().0,
        "slowdown": training.slowdown,
        "limits": limits,
        "batches": epochs,
        "times": training.times.points().len() - recorded,
        "recorded_times": recorded,
    })
}

fn kinds(training: &Training) -> impl Iterator<Item = usize> {
    0..training.times.kinds().len()
}

/// The best batch and its iteration on packed nodes of the largest measured size.
fn iterations(training: &Training, kind: usize) -> Vec<Vec<String>> {
    let cells = training.times.cells(kind);
    let per_node = cells.iter().filter(|cell| cell.0 == 1).map(|cell| cell.1).max().unwrap_or(1);
    let most = cells.iter().map(|cell| cell.1).max().unwrap_or(1);
    let row = |gpus: u32| {
        let config = Config::packed(GpuType(0), gpus, per_node);
        let site = Site { kind, factor: 1.0, shape: &config.shape };
        let (batch, _) = training.best_batch(site)?;
        let split = training.limits.get(kind)?.split(batch, gpus);
        let seconds = training.iteration(site, split)?;
        Some(vec![
            training.times.kinds()[kind].clone(),
            gpus.to_string(),
            config.nodes.to_string(),
            split.batch.to_string(),
            split.local.to_string(),
            (split.accumulated + 1).to_string(),
            format!("{:.1} ms", seconds * 1000.0),
        ])
    };
    SIZES.into_iter().filter(|gpus| *gpus <= most).filter_map(row).collect()
}
