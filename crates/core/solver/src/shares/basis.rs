//! A revised simplex whose columns come from outside, one by one.
//!
//! The rows are few and the columns many or unknown, so the inverse of the basis is kept whole and the caller, which
//! knows the columns, prices them: [`Basis::prices`] tells what a row is worth, [`Basis::enter`] takes a column in. All
//! columns are at least 0, all rows are equalities, and the objective is made large.

/// A column: a number of the caller's, its worth, and its entries.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    pub id: usize,
    pub worth: f64,
    pub entries: Vec<(usize, f64)>,
}

/// What became of a column.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) enum Entered {
    /// It took the place of this one; the objective rose by so much.
    For(usize, f64),
    /// Nothing bounds it.
    Unbounded,
    /// The basis could not be inverted; it is as it was.
    Singular,
}

/// Columns that span the rows, with the inverse of their matrix.
pub(crate) struct Basis {
    size: usize,
    /// Column by column.
    inverse: Vec<f64>,
    members: Vec<Column>,
    values: Vec<f64>,
    bounds: Vec<f64>,
    /// Pivots since the inverse was last made from the members.
    age: usize,
}

/// Entries of a direction below this do not bound a step.
const PIVOT_MIN: f64 = 1e-9;
/// Pivots after which the inverse is made anew.
const AGE_MAX: usize = 128;

impl Basis {
    /// A basis of these columns; `None` where they do not span the rows.
    pub fn new(members: Vec<Column>, bounds: Vec<f64>) -> Option<Basis> {
        let size = bounds.len();
        let mut basis =
            Basis { size, inverse: Vec::new(), members, values: vec![0.0; size], bounds, age: 0 };
        basis.refresh().then_some(basis)
    }

    /// The value of each member, by the caller's number.
    pub fn values(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.members.iter().zip(&self.values).map(|(member, value)| (member.id, value.max(0.0)))
    }

    /// What one more of each row's bound would be worth.
    pub fn prices(&self) -> Vec<f64> {
        let price = |column: &[f64]| {
            let terms = column.iter().zip(&self.members);
            terms.map(|(entry, member)| entry * member.worth).sum()
        };
        self.inverse.chunks_exact(self.size).map(price).collect()
    }

    /// Takes a column in for the first member that it drives to 0.
    pub fn enter(&mut self, column: Column) -> Entered {
        let direction = self.direction(&column.entries);
        let mut leaving = None;
        let mut step = f64::INFINITY;
        for (row, &along) in direction.iter().enumerate() {
            if along > PIVOT_MIN {
                let ratio = self.values[row].max(0.0) / along;
                let better = match leaving {
                    None => true,
                    // Of equals, the larger pivot is the safer one.
                    Some(other) => {
                        ratio < step - 1e-14 || ratio <= step + 1e-14 && along > direction[other]
                    }
                };
                if better {
                    (leaving, step) = (Some(row), ratio.min(step));
                }
            }
        }
        let Some(row) = leaving else { return Entered::Unbounded };
        let worth = |members: &[Column]| -> f64 {
            members.iter().zip(&direction).map(|(member, along)| member.worth * along).sum()
        };
        let gain = step * (column.worth - worth(&self.members));
        let left = std::mem::replace(&mut self.members[row], column);
        self.age += 1;
        if self.age >= AGE_MAX {
            if !self.refresh() {
                self.members[row] = left;
                return Entered::Singular;
            }
        } else {
            self.pivot(row, step, &direction);
        }
        Entered::For(left.id, gain)
    }

    /// Makes inverse and values anew from the members; says whether they span the rows.
    pub fn refresh(&mut self) -> bool {
        let Some(inverse) = invert(self.size, &self.members) else { return false };
        self.inverse = inverse;
        self.age = 0;
        self.values = vec![0.0; self.size];
        for (column, &bound) in self.inverse.chunks_exact(self.size).zip(&self.bounds) {
            if bound != 0.0 {
                self.values
                    .iter_mut()
                    .zip(column)
                    .for_each(|(value, entry)| *value += bound * entry);
            }
        }
        true
    }

    /// How the members change when a column comes in, negated.
    fn direction(&self, entries: &[(usize, f64)]) -> Vec<f64> {
        let mut direction = vec![0.0; self.size];
        for &(row, factor) in entries {
            let column = &self.inverse[row * self.size..][..self.size];
            direction.iter_mut().zip(column).for_each(|(sum, entry)| *sum += factor * entry);
        }
        direction
    }

    fn pivot(&mut self, row: usize, step: f64, direction: &[f64]) {
        for (value, along) in self.values.iter_mut().zip(direction) {
            *value -= step * along;
        }
        self.values[row] = step;
        let pivot = direction[row];
        for column in self.inverse.chunks_exact_mut(self.size) {
            if column[row] == 0.0 {
                continue;
            }
            let factor = column[row] / pivot;
            column.iter_mut().zip(direction).for_each(|(entry, along)| *entry -= factor * along);
            column[row] = factor;
        }
    }
}

/// The inverse of the matrix whose columns are given, column by column, by elimination with row pivots.
fn invert(size: usize, columns: &[Column]) -> Option<Vec<f64>> {
    if columns.len() != size {
        return None;
    }
    // Both are kept row by row here: matrix * inverse^T stays the identity.
    let mut matrix = vec![0.0; size * size];
    for (index, column) in columns.iter().enumerate() {
        column.entries.iter().for_each(|&(row, factor)| matrix[row * size + index] += factor);
    }
    let mut inverse = vec![0.0; size * size];
    (0..size).for_each(|index| inverse[index * size + index] = 1.0);
    for at in 0..size {
        let found = (at..size).max_by(|&a, &b| {
            let entry = |row: usize| matrix[row * size + at].abs();
            entry(a).total_cmp(&entry(b)).then(b.cmp(&a))
        })?;
        let pivot = matrix[found * size + at];
        if pivot.abs() <= 1e-11 || pivot.is_nan() {
            return None;
        }
        for index in 0..size {
            matrix.swap(at * size + index, found * size + index);
            inverse.swap(at * size + index, found * size + index);
        }
        for table in [&mut matrix, &mut inverse] {
            table[at * size..][..size].iter_mut().for_each(|entry| *entry /= pivot);
        }
        let lines: Vec<Vec<f64>> =
            [&matrix, &inverse].iter().map(|table| table[at * size..][..size].to_vec()).collect();
        for row in (0..size).filter(|row| *row != at) {
            let factor = matrix[row * size + at];
            if factor == 0.0 {
                continue;
            }
            for (table, line) in [&mut matrix, &mut inverse].into_iter().zip(&lines) {
                let entries = table[row * size..][..size].iter_mut();
                entries.zip(line).for_each(|(entry, top)| *entry -= factor * top);
            }
        }
    }
    let mut by_column = vec![0.0; size * size];
    for row in 0..size {
        for column in 0..size {
            by_column[column * size + row] = inverse[row * size + column];
        }
    }
    Some(by_column)
}
