//! The part of every model that does not depend on the objective: no job has more time than there is, and no type more
//! GPUs (Gavel, OSDI 2020, section 3.1).

use super::problem::Problem;
use trainyard_solver::{Column, Model, Name, Row, Sense};

/// A model with the rows of time and GPUs, and a column for each choice.
pub struct Frame {
    /// The model.
    pub model: Model,
    capacity: Vec<Row>,
    time: Vec<Row>,
}

/// What a choice adds to rows of its parties: for each party the row and the factor of its rate.
pub type Entries<'a> = &'a [(Row, f64)];

impl Frame {
    /// The rows alone; columns come last, after all rows there are to be.
    pub fn new(sense: Sense, problem: &Problem<'_>) -> Frame {
        let mut model = Model::new(sense);
        let gpus = problem.table.capacity.iter().enumerate();
        let capacity = gpus
            .map(|(kind, gpus)| model.row(Name("gpus", kind), f64::NEG_INFINITY, f64::from(*gpus)))
            .collect();
        let time =
            problem.all().map(|party| model.row(Name("time", party), f64::NEG_INFINITY, 1.0));
        let time = time.collect();
        Frame { model, capacity, time }
    }

    /// A row for each party with a lower bound.
    pub fn at_least(
        &mut self,
        name: &'static str,
        problem: &Problem<'_>,
        bound: impl Fn(usize) -> f64,
    ) -> Vec<Row> {
        let rows = problem.all();
        rows.map(|party| self.model.row(Name(name, party), bound(party), f64::INFINITY)).collect()
    }

    /// A column for each choice in which a job that takes part can run; with `zeros`, also for those in which none
    /// runs, as in the authors' own models. `worth` is what its time is worth; `into` has for each party a row and the
    /// factor with which its rate enters there.
    pub fn fill(
        &mut self,
        problem: &Problem<'_>,
        zeros: bool,
        worth: impl Fn(usize) -> f64,
        into: Entries<'_>,
    ) -> Shares {
        let mut columns = vec![None; problem.table.choices.len()];
        for (index, choice) in problem.table.choices.iter().enumerate() {
            let mut entries: Vec<(Row, f64)> = Vec::with_capacity(6);
            let mut runs = false;
            for (job, rate) in choice.jobs.iter().zip(&choice.rates) {
                let Some(party) = problem.party(*job) else { continue };
                entries.push((self.time[party], 1.0));
                let rate = if rate.is_finite() { rate.max(0.0) } else { 0.0 };
                runs |= rate > 0.0;
                if let Some((row, factor)) = into.get(party) {
                    entries.push((*row, rate * factor));
                }
            }
            if entries.is_empty() || (!runs && !zeros) {
                continue;
            }
            for (kind, gpus) in &choice.uses {
                entries.push((self.capacity[usize::from(*kind)], f64::from(*gpus)));
            }
            let column = self.model.column(worth(index), 0.0, f64::INFINITY, entries);
            columns[index] = Some(column);
        }
        Shares { columns }
    }
}

/// The column of each choice.
pub struct Shares {
    columns: Vec<Option<Column>>,
}

impl Shares {
    /// The fractions of time in an answer, from 0 to 1.
    pub fn of(&self, values: &[f64]) -> Vec<f64> {
        let share = |column: &Option<Column>| {
            column.map_or(0.0, |column| values[column.index()].clamp(0.0, 1.0))
        };
        self.columns.iter().map(share).collect()
    }

    /// Their columns with the rate of one party in each, as terms of an expression.
    pub fn terms(&self, problem: &Problem<'_>, party: usize, factor: f64) -> Vec<(Column, f64)> {
        let ways = problem.ways(party).iter().filter(|(_, rate)| *rate > 0.0);
        ways.filter_map(|(choice, rate)| Some((self.columns[*choice]?, rate * factor))).collect()
    }
}
