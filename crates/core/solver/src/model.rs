//! The problem.

use std::fmt;

/// Which way is better.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Sense {
    /// Small.
    Minimise,
    /// Large.
    Maximise,
}

/// What a row stands for: a word and a number, such as `capacity[2]`. Costs nothing to make, unlike a text.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub &'static str, pub usize);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.0, self.1)
    }
}

/// A row of a model.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row(pub(crate) u32);

/// A column of a model.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Column(pub(crate) u32);

impl Column {
    /// Its place in [`crate::Solution::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl Row {
    /// Its place in [`crate::Solution::prices`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A sum of multiples of columns, and a constant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Affine {
    /// Columns and their factors.
    pub terms: Vec<(Column, f64)>,
    /// The constant.
    pub constant: f64,
}

/// A set in which a list of expressions must lie.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Cone {
    /// The first is at least the Euclidean length of the others.
    Second,
    /// Three expressions x, y, z with y exp(x / y) <= z and y > 0.
    Exponential,
    /// Three expressions x, y, z with x^a y^(1-a) >= |z|, x and y at least 0.
    Power(f64),
}

#[derive(Clone, Debug)]
pub(crate) struct RowData {
    pub name: Name,
    pub lower: f64,
    pub upper: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct ColumnData {
    pub cost: f64,
    pub lower: f64,
    pub upper: f64,
    pub integer: bool,
}

/// A linear problem, with integers or cones where wanted, column by column.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) sense: Sense,
    pub(crate) rows: Vec<RowData>,
    pub(crate) columns: Vec<ColumnData>,
    /// Where the entries of each column begin; one more than there are columns.
    pub(crate) starts: Vec<usize>,
    pub(crate) entries: Vec<(Row, f64)>,
    pub(crate) cones: Vec<(Cone, Vec<Affine>)>,
}

impl Model {
    /// A problem without rows and columns.
    pub fn new(sense: Sense) -> Model {
        Model {
            sense,
            rows: Vec::new(),
            columns: Vec::new(),
            starts: vec![0],
            entries: Vec::new(),
            cones: Vec::new(),
        }
    }

    /// A row that must lie between two bounds, either of which may be infinite.
    pub fn row(&mut self, name: Name, lower: f64, upper: f64) -> Row {
        self.rows.push(RowData { name, lower, upper });
        Row(self.rows.len() as u32 - 1)
    }

    /// A column between two bounds, with its cost and its entries in rows that exist.
    pub fn column(
        &mut self,
        cost: f64,
        lower: f64,
        upper: f64,
        entries: impl IntoIterator<Item = (Row, f64)>,
    ) -> Column {
        self.entries.extend(entries.into_iter().filter(|(_, factor)| *factor != 0.0));
        self.starts.push(self.entries.len());
        self.columns.push(ColumnData { cost, lower, upper, integer: false });
        Column(self.columns.len() as u32 - 1)
    }

    /// A column that takes whole values only.
    pub fn integer(
        &mut self,
        cost: f64,
        lower: f64,
        upper: f64,
        entries: impl IntoIterator<Item = (Row, f64)>,
    ) -> Column {
        let column = self.column(cost, lower, upper, entries);
        self.columns[column.index()].integer = true;
        column
    }

    /// Expressions that must lie in a cone. Engines without cones refuse such a model.
    pub fn cone(&mut self, cone: Cone, of: Vec<Affine>) {
        self.cones.push((cone, of));
    }

    /// The entries of a column by row, ascending; entries of one row are added up.
    pub(crate) fn entries_of(&self, column: usize) -> Vec<(usize, f64)> {
        let given = &self.entries[self.starts[column]..self.starts[column + 1]];
        let mut entries: Vec<(usize, f64)> =
            given.iter().map(|(row, factor)| (row.index(), *factor)).collect();
        entries.sort_by_key(|(row, _)| *row);
        entries.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0.0 };
            same
        });
        entries
    }

    /// The entries of each row by column, ascending.
    pub(crate) fn by_row(&self) -> Vec<Vec<(usize, f64)>> {
        let mut rows = vec![Vec::new(); self.rows.len()];
        for column in 0..self.columns.len() {
            for (row, factor) in self.entries_of(column) {
                rows[row].push((column, factor));
            }
        }
        rows
    }

    /// The objective at these values.
    pub(crate) fn objective(&self, values: &[f64]) -> f64 {
        self.columns.iter().zip(values).map(|(column, value)| column.cost * value).sum()
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// How many columns there are.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }
}
