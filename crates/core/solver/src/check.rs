//! What is known about a model before an engine sees it.

use crate::model::{ColumnData, RowData};
use crate::{Affine, Cone, Limit, Model, Name, Sense, Solution, SolverError, Status};

/// How far outside a bound a sum of constants may lie.
const SLACK: f64 = 1e-9;

/// Finds what no engine should be given; answers at once where the answer needs no engine.
///
/// What is left has a column in at least one row or cone, bounds that leave room, and rows that can hold.
pub(crate) fn before_solving(
    model: &Model,
    limit: &Limit,
) -> Result<Option<Solution>, SolverError> {
    numbers(model)?;
    shapes(model)?;
    if !has_room(model) {
        return Ok(Some(Solution::without_values(Status::Infeasible, 0)));
    }
    if limit.steps == 0 || limit.wall.is_some_and(|wall| wall.is_zero()) {
        return Ok(Some(Solution::without_values(Status::OutOfLimit, 0)));
    }
    let alone = model.entries.is_empty()
        && model.cones.iter().all(|(_, of)| of.iter().all(|one| one.terms.is_empty()));
    Ok(alone.then(|| column_by_column(model)))
}

fn numbers(model: &Model) -> Result<(), SolverError> {
    for (place, row) in model.rows.iter().enumerate() {
        bounds(Name("row", place), row.lower, row.upper).map_err(|fault| named(fault, row))?;
    }
    for (place, column) in model.columns.iter().enumerate() {
        let at = Name("column", place);
        bounds(at, column.lower, column.upper)?;
        finite(Name("cost of column", place), column.cost)?;
        let entries = &model.entries[model.starts[place]..model.starts[place + 1]];
        for (row, factor) in entries {
            finite(at, *factor)?;
            if row.index() >= model.rows.len() {
                return Err(SolverError::Malformed {
                    at,
                    what: "has an entry in a row of another model",
                });
            }
        }
    }
    for (place, (_, of)) in model.cones.iter().enumerate() {
        for one in of {
            finite(Name("cone", place), one.constant)?;
            for (_, factor) in &one.terms {
                finite(Name("cone", place), *factor)?;
            }
        }
    }
    Ok(())
}

/// The name that a row was given says more than its place.
fn named(fault: SolverError, row: &RowData) -> SolverError {
    match fault {
        SolverError::NotANumber { value, .. } => SolverError::NotANumber { at: row.name, value },
        other => other,
    }
}

fn finite(at: Name, value: f64) -> Result<(), SolverError> {
    if value.is_finite() { Ok(()) } else { Err(SolverError::NotANumber { at, value }) }
}

fn bounds(at: Name, lower: f64, upper: f64) -> Result<(), SolverError> {
    if lower.is_nan() || lower == f64::INFINITY {
        return Err(SolverError::NotANumber { at, value: lower });
    }
    if upper.is_nan() || upper == f64::NEG_INFINITY {
        return Err(SolverError::NotANumber { at, value: upper });
    }
    Ok(())
}

fn shapes(model: &Model) -> Result<(), SolverError> {
    for (place, (cone, of)) in model.cones.iter().enumerate() {
        let at = Name("cone", place);
        let fits = match cone {
            Cone::Second => !of.is_empty(),
            Cone::Exponential | Cone::Power(_) => of.len() == 3,
        };
        if !fits {
            return Err(SolverError::Malformed { at, what: "has too many or too few expressions" });
        }
        if let Cone::Power(exponent) = cone {
            let inside = *exponent > 0.0 && *exponent < 1.0;
            if !inside {
                return Err(SolverError::Malformed { at, what: "has an exponent outside (0, 1)" });
            }
        }
        let mut columns = of.iter().flat_map(|one| &one.terms).map(|(column, _)| column.index());
        if columns.any(|column| column >= model.columns.len()) {
            return Err(SolverError::Malformed { at, what: "names a column of another model" });
        }
    }
    Ok(())
}

/// Whether the bounds of each column and row, and each row without columns, leave room.
fn has_room(model: &Model) -> bool {
    let mut used = vec![false; model.rows.len()];
    for (row, _) in &model.entries {
        used[row.index()] = true;
    }
    let rows = model.rows.iter().zip(used).all(|(row, used)| {
        row.lower <= row.upper && (used || row.lower <= SLACK && row.upper >= -SLACK)
    });
    let columns = model.columns.iter().all(|column| {
        let (lower, upper) = whole(column);
        lower <= upper
    });
    let cones = model.cones.iter().all(|(cone, of)| {
        let constant = of.iter().all(|one| one.terms.is_empty());
        !constant || holds(*cone, of)
    });
    rows && columns && cones
}

/// The bounds of a column, drawn in to whole numbers where it takes only these.
pub(crate) fn whole(column: &ColumnData) -> (f64, f64) {
    if column.integer {
        ((column.lower - SLACK).ceil(), (column.upper + SLACK).floor())
    } else {
        (column.lower, column.upper)
    }
}

/// Whether the constants alone lie in the cone.
fn holds(cone: Cone, of: &[Affine]) -> bool {
    let of: Vec<f64> = of.iter().map(|one| one.constant).collect();
    match cone {
        Cone::Second => {
            let length = of[1..].iter().map(|part| part * part).sum::<f64>().sqrt();
            of[0] + SLACK >= length
        }
        // The cone is closed: at y = 0 it holds x <= 0 and z >= 0.
        Cone::Exponential if of[1].abs() <= SLACK => of[0] <= SLACK && of[2] >= -SLACK,
        Cone::Exponential => of[1] > 0.0 && of[1] * libm::exp(of[0] / of[1]) <= of[2] + SLACK,
        Cone::Power(exponent) => {
            of[0] >= -SLACK
                && of[1] >= -SLACK
                && libm::pow(of[0].max(0.0), exponent) * libm::pow(of[1].max(0.0), 1.0 - exponent)
                    >= of[2].abs() - SLACK
        }
    }
}

/// The best of each column where none meets another.
fn column_by_column(model: &Model) -> Solution {
    let mut values = Vec::with_capacity(model.columns.len());
    for column in &model.columns {
        let (lower, upper) = whole(column);
        let gain = match model.sense {
            Sense::Maximise => column.cost,
            Sense::Minimise => -column.cost,
        };
        let value = if gain > 0.0 {
            upper
        } else if gain < 0.0 {
            lower
        } else {
            0.0_f64.clamp(lower, upper)
        };
        if value.is_infinite() {
            return Solution::without_values(Status::Unbounded, 0);
        }
        values.push(value);
    }
    let objective = model.objective(&values);
    let prices = vec![0.0; model.rows.len()];
    Solution { status: Status::Proven, values, objective, prices, steps: 0 }
}
