//! What a time share is worked out from, and what comes out.

use super::Menu;
use crate::{Offer, View};
use smallvec::SmallVec;
use trainyard_types::{GpuType, JobId};

/// One way to run: one job, or several that share GPUs, on so many GPUs of a type.
///
/// The unknowns of every optimiser are fractions of time, one for each choice. Types, sizes, partners and distance are
/// all distinct by having a choice each, so that none of them is a special case of the mathematics.
#[derive(Debug, PartialEq)]
pub struct Choice {
    /// The jobs that run, the lower id first.
    pub jobs: SmallVec<[JobId; 2]>,
    /// GPUs taken at once, by the number of their type in [`RateTable::kinds`]. More than one entry is a job across
    /// several types.
    pub uses: SmallVec<[(u16, u32); 1]>,
    /// The most nodes the GPUs may lie on; 0 means any.
    pub nodes_max: u16,
    /// Work per second of each of the jobs; 0 where it cannot run.
    pub rates: SmallVec<[f64; 2]>,
}

impl Clone for Choice {
    /// Tables are copied at every change of the jobs: slices, not element by element.
    fn clone(&self) -> Choice {
        Choice {
            jobs: SmallVec::from_slice(&self.jobs),
            uses: SmallVec::from_slice(&self.uses),
            nodes_max: self.nodes_max,
            rates: SmallVec::from_slice(&self.rates),
        }
    }
}

impl Choice {
    /// The number of its (first) type.
    pub fn kind(&self) -> usize {
        usize::from(self.uses[0].0)
    }

    /// Whether all its jobs make progress.
    pub fn runs(&self) -> bool {
        self.rates.iter().all(|rate| *rate > 0.0)
    }

    /// GPUs in all.
    pub fn gpus(&self) -> u32 {
        self.uses.iter().map(|(_, gpus)| gpus).sum()
    }
}

/// What a time share is worked out from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RateTable {
    /// Jobs that take part, by id.
    pub jobs: Vec<JobId>,
    /// Types of GPU.
    pub kinds: Vec<GpuType>,
    /// GPUs of each type in service.
    pub capacity: Vec<u32>,
    /// Ways to run, those of one job alone first: by job, then by type.
    pub choices: Vec<Choice>,
}

impl RateTable {
    /// One choice for each active job and type, at the size it asks for.
    pub fn singles(view: &View<'_>, offer: &Offer<'_>) -> RateTable {
        Menu::default().table(view, offer)
    }

    /// Makes the table safe to compute with: a rate that is negative, infinite or not a number becomes zero, and a
    /// job that can run in no way leaves the table with all its choices. Gives the jobs that left, and those that
    /// stay though a rate of theirs was no speed.
    pub fn clean(&mut self) -> Cleaned {
        let mut cleaned = Cleaned::default();
        for choice in &mut self.choices {
            for (job, rate) in choice.jobs.iter().zip(&mut choice.rates) {
                if !rate.is_finite() || *rate < 0.0 {
                    *rate = 0.0;
                    cleaned.bad_rates.push(*job);
                }
            }
        }
        let mut runs = vec![false; self.jobs.len()];
        for choice in self.choices.iter().filter(|choice| choice.runs()) {
            for job in &choice.jobs {
                if let Ok(row) = self.jobs.binary_search(job) {
                    runs[row] = true;
                }
            }
        }
        if runs.iter().any(|runs| !runs) {
            let mut row = 0..;
            self.jobs.retain(|job| {
                let stays = runs[row.next().unwrap_or(0)];
                if !stays {
                    cleaned.without.push(*job);
                }
                stays
            });
            let jobs = &self.jobs;
            let known = |job: &JobId| jobs.binary_search(job).is_ok();
            self.choices.retain(|choice| choice.jobs.iter().all(known));
        }
        cleaned.bad_rates.dedup();
        cleaned
    }

    /// The place of a job in [`RateTable::jobs`].
    pub fn position(&self, job: JobId) -> Option<usize> {
        self.jobs.binary_search(&job).ok()
    }
}

/// What [`RateTable::clean`] found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cleaned {
    /// Jobs that can run in no way and left the table.
    pub without: Vec<JobId>,
    /// Jobs one of whose rates was negative, infinite or not a number.
    pub bad_rates: Vec<JobId>,
}

/// Fractions of time, each from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares {
    /// One for each choice of the table.
    pub of: Vec<f64>,
    /// Choices that are not in the table and that the optimiser made itself, as one that generates pairs does.
    pub more: Vec<(Choice, f64)>,
}

impl From<Vec<f64>> for Shares {
    fn from(of: Vec<f64>) -> Shares {
        Shares { of, more: Vec::new() }
    }
}
