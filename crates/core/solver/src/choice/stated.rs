//! The problem row by row.

use super::Choices;
use crate::{Column, Model, Name, Sense};

/// The same problem for a general engine: a whole number from 0 to 1 for every choice, in the order in which they were
/// given.
pub fn stated(choices: &Choices) -> (Model, Vec<Column>) {
    let mut model = Model::new(Sense::Maximise);
    let rows: Vec<_> = choices
        .capacity()
        .iter()
        .enumerate()
        .map(|(kind, gpus)| model.row(Name("capacity", kind), f64::NEG_INFINITY, f64::from(*gpus)))
        .collect();
    let mut columns = Vec::new();
    for job in 0..choices.jobs() {
        let one = model.row(Name("job", job), f64::NEG_INFINITY, 1.0);
        for choice in choices.of(job) {
            let gpus = rows.get(choice.kind).map(|row| (*row, f64::from(choice.gpus)));
            let most = if gpus.is_some() { 1.0 } else { 0.0 };
            columns.push(model.integer(
                choice.value,
                0.0,
                most,
                gpus.into_iter().chain([(one, 1.0)]),
            ));
        }
    }
    (model, columns)
}
