//! A model without the columns whose bounds leave them one value.

use crate::{Affine, Column, Model, Solution};

/// What is left of a model, and where its columns were.
pub(crate) struct Rest {
    pub model: Model,
    kept: Vec<usize>,
}

impl Rest {
    /// None if no column is fixed.
    ///
    /// An interior point has no inside where a column is fixed; taken as an equation, it hides from the engine that
    /// other equations contradict it.
    pub fn of(model: &Model) -> Option<Rest> {
        let fixed = |column: usize| model.columns[column].lower == model.columns[column].upper;
        let kept: Vec<usize> = (0..model.columns.len()).filter(|column| !fixed(*column)).collect();
        if kept.len() == model.columns.len() {
            return None;
        }
        let mut rest = Model::new(model.sense);
        rest.rows = model.rows.clone();
        let mut places = vec![None; model.columns.len()];
        for (column, data) in model.columns.iter().enumerate() {
            let entries = &model.entries[model.starts[column]..model.starts[column + 1]];
            if fixed(column) {
                for (row, factor) in entries {
                    let row = &mut rest.rows[row.index()];
                    row.lower -= factor * data.lower;
                    row.upper -= factor * data.lower;
                }
            } else {
                let entries = entries.iter().copied();
                places[column] = Some(rest.column(data.cost, data.lower, data.upper, entries));
            }
        }
        for (cone, of) in &model.cones {
            let of = of.iter().map(|one| without(one, model, &places)).collect();
            rest.cone(*cone, of);
        }
        Some(Rest { model: rest, kept })
    }

    /// The answer to the whole model from the answer to the rest.
    pub fn whole(&self, model: &Model, rest: Solution) -> Solution {
        if !rest.has_values() {
            return rest;
        }
        let mut values: Vec<f64> = model.columns.iter().map(|column| column.lower).collect();
        for (column, value) in self.kept.iter().zip(&rest.values) {
            values[*column] = *value;
        }
        Solution { objective: model.objective(&values), values, ..rest }
    }
}

fn without(one: &Affine, model: &Model, places: &[Option<Column>]) -> Affine {
    let mut rest = Affine { terms: Vec::new(), constant: one.constant };
    for (column, factor) in &one.terms {
        match places[column.index()] {
            Some(place) => rest.terms.push((place, *factor)),
            None => rest.constant += factor * model.columns[column.index()].lower,
        }
    }
    rest
}
