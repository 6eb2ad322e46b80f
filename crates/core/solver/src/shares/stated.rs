//! The same problem stated the general way, for an engine that knows nothing of shares.

use super::pairs::{PairJob, PairPool};
use super::pool::Pool;
use crate::{Column, Model, Name, Row, Sense};

/// Max-min as a model: the level is the last column, one column for each way of the pool comes before it.
///
/// Bounds of time and GPUs are rows; a way that is not possible has an upper bound of 0. This is the reference that
/// [`Market`](super::Market) is tested and measured against.
pub fn stated(pool: &Pool, parts: &[f64]) -> (Model, Column) {
    let mut model = Model::new(Sense::Maximise);
    let capacity: Vec<Row> = (0..pool.kinds())
        .map(|kind| model.row(Name("capacity", kind), f64::NEG_INFINITY, pool.capacity(kind)))
        .collect();
    let mut rates = Vec::new();
    for job in 0..pool.jobs() {
        let time = model.row(Name("time", job), f64::NEG_INFINITY, 1.0);
        let rate = model.row(Name("rate", job), 0.0, f64::INFINITY);
        rates.push(rate);
        for way in pool.ways(job) {
            let positive = |value: f64| value.is_finite() && value > 0.0;
            let uses =
                way.uses.iter().filter(|(kind, gpus)| positive(*gpus) && *kind < capacity.len());
            let uses: Vec<(Row, f64)> = uses.map(|(kind, gpus)| (capacity[*kind], *gpus)).collect();
            let possible = positive(way.rate) && !uses.is_empty();
            let entries = uses.into_iter().chain([(time, 1.0), (rate, way.rate)]);
            let entries = entries.filter(|_| possible);
            model.column(0.0, 0.0, if possible { f64::INFINITY } else { 0.0 }, entries);
        }
    }
    let parts = rates.iter().zip(parts).filter(|(_, part)| **part > 0.0);
    let level = model.column(1.0, 0.0, f64::INFINITY, parts.map(|(row, part)| (*row, -part)));
    (model, level)
}

/// Max-min with pairs as a model, one column for each job or pair of jobs and type; the level is the last column.
///
/// The reference for [`max_min_pairs`](super::max_min_pairs): it grows with the square of the number of jobs.
pub fn stated_pairs(pool: &PairPool<'_>, jobs: &[PairJob]) -> (Model, Column) {
    let mut model = Model::new(Sense::Maximise);
    let kinds = pool.capacity.len();
    let capacity: Vec<Row> = (0..kinds)
        .map(|kind| model.row(Name("capacity", kind), f64::NEG_INFINITY, pool.capacity[kind]))
        .collect();
    let time: Vec<Row> =
        (0..jobs.len()).map(|job| model.row(Name("time", job), f64::NEG_INFINITY, 1.0)).collect();
    let rates: Vec<Row> =
        (0..jobs.len()).map(|job| model.row(Name("rate", job), 0.0, f64::INFINITY)).collect();
    for (i, one) in jobs.iter().enumerate() {
        for (kind, &capacity) in capacity.iter().enumerate() {
            let gpus = pool.gpus[one.class];
            let rate = pool.alone[one.class * kinds + kind];
            if rate > 0.0 {
                let entries = [(capacity, gpus), (time[i], 1.0), (rates[i], rate)];
                model.column(0.0, 0.0, f64::INFINITY, entries);
            }
            for (j, other) in jobs.iter().enumerate().skip(i + 1) {
                let (of_one, of_other) = (pool.pair)(one.class, other.class, kind);
                if of_one > 0.0 && of_other > 0.0 {
                    let gpus = gpus.max(pool.gpus[other.class]);
                    let times = [(capacity, gpus), (time[i], 1.0), (time[j], 1.0)];
                    let gained = [(rates[i], of_one), (rates[j], of_other)];
                    model.column(0.0, 0.0, f64::INFINITY, times.into_iter().chain(gained));
                }
            }
        }
    }
    let parts = rates.iter().zip(jobs).map(|(row, job)| (*row, -job.part));
    let level = model.column(1.0, 0.0, f64::INFINITY, parts);
    (model, level)
}
