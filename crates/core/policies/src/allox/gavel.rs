//! AlloX as in Gavel's simulator (`scheduler/policies/allox.py` of its repository at c4fa4009), so that its numbers can be
//! met: every idle machine is a machine of its own, all jobs are looked at, and a job that was given a type keeps it.
//!
//! Machines of one type are alike, so many matchings are equally good, and they differ in which job is first. The
//! original takes the one that its library finds: shortest augmenting paths row by row (Crouse 2016), columns tried
//! from the last to the first, and of equals one that no job has yet. The same rules are kept here, in the same
//! arithmetic.

use crate::prelude::*;
use std::collections::BTreeMap;
use trainyard_framework::{RateTable, Shares, TimeShare};

/// Shares of all or nothing.
#[derive(Default)]
pub(super) struct Rows {
    /// The type that each job was given, by its place in the table.
    kept: BTreeMap<JobId, usize>,
}

impl TimeShare for Rows {
    fn shares(
        &mut self,
        table: &RateTable,
        view: &View<'_>,
        _cx: &mut Cx,
    ) -> Result<Shares, PolicyError> {
        self.kept.retain(|job, _| table.position(*job).is_some());
        let machines = self.idle_machines(table, view);
        let mut jobs: Vec<JobRef<'_>> = table
            .jobs
            .iter()
            .filter(|job| !self.kept.contains_key(job))
            .filter_map(|job| view.job(*job))
            .collect();
        jobs.sort_by_key(|job| job.spec.submitted);
        self.match_jobs(table, &machines, &jobs, view)?;
        let of = table.choices.iter().map(|choice| {
            let kept = self.kept.get(&choice.jobs[0]) == Some(&choice.kind());
            f64::from(u8::from(kept && choice.jobs.len() == 1))
        });
        Ok(Shares::from(of.collect::<Vec<f64>>()))
    }

    fn forget(&mut self) {
        self.kept.clear();
    }
}

impl Rows {
    /// The types of the machines that no job keeps, types in order of name.
    fn idle_machines(&self, table: &RateTable, view: &View<'_>) -> Vec<usize> {
        let mut kinds: Vec<usize> = (0..table.kinds.len()).collect();
        let name = |kind: usize| view.cluster().kinds[table.kinds[kind].index()].name.as_str();
        kinds.sort_by(|a, b| name(*a).cmp(name(*b)));
        let mut machines = Vec::new();
        for kind in kinds {
            let kept = self.kept.values().filter(|other| **other == kind).count();
            let idle = (table.capacity[kind] as usize).saturating_sub(kept);
            machines.extend(std::iter::repeat_n(kind, idle));
        }
        machines
    }

    /// Matches jobs to machines and positions; the first on each machine keeps its type from now on.
    fn match_jobs(
        &mut self,
        table: &RateTable,
        machines: &[usize],
        jobs: &[JobRef<'_>],
        view: &View<'_>,
    ) -> Result<(), PolicyError> {
        if machines.is_empty() || jobs.is_empty() {
            return Ok(());
        }
        let mut lengths = Vec::with_capacity(jobs.len());
        for job in jobs {
            let left = view.work_left(*job).ok_or(PolicyError::NoEstimate { job: job.id() })?;
            lengths.push(self.lengths(table, machines, job.id(), left.0.round()));
        }
        let width = machines.len();
        let waited = |job: usize| view.now.since(jobs[job].spec.submitted).as_secs_f64();
        let cost = |row: usize, column: usize| {
            (column / width + 1) as f64 * lengths[row][column % width] + waited(row)
        };
        let columns = row_by_row(jobs.len(), jobs.len() * width, cost);
        for (machine, kind) in machines.iter().enumerate() {
            let here = columns.iter().enumerate().filter_map(|(row, column)| {
                (*column).filter(|column| column % width == machine).map(|column| (column, row))
            });
            // The last position from the end is the first to run.
            if let Some((_, row)) = here.max() {
                self.kept.insert(jobs[row].id(), *kind);
            }
        }
        Ok(())
    }

    /// How long the rest of a job takes on each machine.
    fn lengths(&self, table: &RateTable, machines: &[usize], job: JobId, left: f64) -> Vec<f64> {
        let mut rates = vec![0.0; table.kinds.len()];
        let own = table.choices.iter().filter(|choice| choice.jobs.as_slice() == [job]);
        for choice in own {
            rates[choice.kind()] = choice.rates[0];
        }
        machines.iter().map(|kind| left / rates[*kind]).collect()
    }
}

/// The cheapest column for each row, by shortest augmenting paths; nothing for a row that can have none.
fn row_by_row(
    rows: usize,
    columns: usize,
    cost: impl Fn(usize, usize) -> f64,
) -> Vec<Option<usize>> {
    let mut found = Found {
        row_price: vec![0.0; rows],
        column_price: vec![0.0; columns],
        column_of: vec![None; rows],
        row_of: vec![None; columns],
    };
    for row in 0..rows {
        found.add(row, &cost);
    }
    found.column_of
}

struct Found {
    row_price: Vec<f64>,
    column_price: Vec<f64>,
    column_of: Vec<Option<usize>>,
    row_of: Vec<Option<usize>>,
}

impl Found {
    fn add(&mut self, start: usize, cost: &impl Fn(usize, usize) -> f64) {
        let columns = self.row_of.len();
        let mut left: Vec<usize> = (0..columns).rev().collect();
        let mut reach = vec![f64::INFINITY; columns];
        let mut from = vec![start; columns];
        let (mut rows, mut taken) = (Vec::new(), Vec::new());
        let (mut row, mut so_far) = (start, 0.0);
        let end = loop {
            rows.push(row);
            let (mut best, mut lowest) = (None, f64::INFINITY);
            for (place, &column) in left.iter().enumerate() {
                let way =
                    so_far + cost(row, column) - self.row_price[row] - self.column_price[column];
                if way < reach[column] {
                    (reach[column], from[column]) = (way, row);
                }
                let way = reach[column];
                if way < lowest || (way == lowest && self.row_of[column].is_none()) {
                    (best, lowest) = (Some(place), way);
                }
            }
            let Some(best) = best.filter(|_| lowest.is_finite()) else { return };
            so_far = lowest;
            let column = left.swap_remove(best);
            taken.push(column);
            match self.row_of[column] {
                None => break column,
                Some(next) => row = next,
            }
        };
        self.row_price[start] += so_far;
        for &row in rows.iter().filter(|row| **row != start) {
            let column = self.column_of[row].expect("only the first row has no column");
            self.row_price[row] += so_far - reach[column];
        }
        for column in taken {
            self.column_price[column] -= so_far - reach[column];
        }
        let mut column = end;
        loop {
            let row = from[column];
            self.row_of[column] = Some(row);
            let Some(next) = self.column_of[row].replace(column) else { break };
            column = next;
        }
    }
}
