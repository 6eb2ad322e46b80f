//! A large problem as several small ones: Narayanan et al., "Solving Large-Scale Granular Resource Allocation Problems
//! Efficiently with POP", SOSP 2021.
//!
//! Jobs are dealt at random to parts, each part has an equal slice of every type, and each is solved alone. Where there
//! are many jobs and none is large, the parts look alike and little is lost; where one job dominates its part, a lot is.

use super::{Choice, RateTable, Shares, TimeShare};
use crate::{Cx, PolicyError, View};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use trainyard_types::{JobId, Quality};

/// Deals the jobs to parts, solves each by an optimiser of its own and joins the answers.
///
/// A part is shown all GPUs and jobs `parts` times as large, which gives the same fractions as a slice of the GPUs
/// without rounding one. Choices whose members are in different parts are not taken.
/// A job keeps its part while others come and go; at most one job moves for each that leaves.
pub struct Pop<S> {
    inner: Vec<S>,
    deal: Deal,
}

impl<S: TimeShare> Pop<S> {
    /// One optimiser for each part: what it remembers belongs to the jobs of its part.
    pub fn new(inner: Vec<S>, seed: u64) -> Pop<S> {
        assert!(!inner.is_empty(), "a problem has at least one part");
        let deal = Deal { parts: inner.len(), seed, homes: BTreeMap::new() };
        Pop { inner, deal }
    }
}

impl<S: TimeShare> TimeShare for Pop<S> {
    fn shares(
        &mut self,
        table: &RateTable,
        view: &View<'_>,
        cx: &mut Cx,
    ) -> Result<Shares, PolicyError> {
        if let [only] = &mut self.inner[..] {
            return only.shares(table, view, cx);
        }
        self.deal.update(&table.jobs);
        let mut joined = Shares::from(vec![0.0; table.choices.len()]);
        let mut quality = Quality::Feasible;
        for (part, inner) in self.inner.iter_mut().enumerate() {
            let (small, from) = self.deal.part(table, part);
            if small.jobs.is_empty() {
                continue;
            }
            let shares = inner.shares(&small, view, cx)?;
            assert_eq!(shares.of.len(), from.len(), "one share for each choice");
            for (index, share) in from.into_iter().zip(shares.of) {
                joined.of[index] = share;
            }
            let parts = self.deal.parts as u32;
            joined.more.extend(
                shares.more.into_iter().map(|(choice, share)| (shrunk(choice, parts), share)),
            );
            if cx.quality == Quality::Fallback {
                quality = Quality::Fallback;
            }
        }
        cx.quality = quality;
        Ok(joined)
    }

    fn forget(&mut self) {
        self.deal.homes.clear();
        self.inner.iter_mut().for_each(TimeShare::forget);
    }
}

/// Who is in which part.
struct Deal {
    parts: usize,
    seed: u64,
    homes: BTreeMap<JobId, usize>,
}

impl Deal {
    /// Takes in those who came and lets go of those who left, so that no part has two jobs more than another.
    fn update(&mut self, jobs: &[JobId]) {
        self.homes.retain(|job, _| jobs.binary_search(job).is_ok());
        let mut sizes = vec![0usize; self.parts];
        self.homes.values().for_each(|part| sizes[*part] += 1);
        let mut new: Vec<(u64, JobId)> = jobs
            .iter()
            .filter(|job| !self.homes.contains_key(job))
            .map(|job| (self.draw(*job), *job))
            .collect();
        new.sort_unstable();
        for (draw, job) in new {
            let part = smallest(&sizes, draw);
            self.homes.insert(job, part);
            sizes[part] += 1;
        }
        self.level(&mut sizes);
    }

    /// Moves jobs out of parts that have two more than the smallest.
    fn level(&mut self, sizes: &mut [usize]) {
        while let Some(large) = (0..self.parts).max_by_key(|part| sizes[*part]) {
            let least = sizes.iter().copied().min().unwrap_or(0);
            if sizes[large] <= least + 1 {
                return;
            }
            let members = self.homes.iter().filter(|(_, part)| **part == large);
            let drawn = members.map(|(job, _)| (self.draw(*job), *job)).max();
            let (draw, job) = drawn.expect("a part that is too large has members");
            let part = smallest(sizes, draw);
            self.homes.insert(job, part);
            sizes[large] -= 1;
            sizes[part] += 1;
        }
    }

    /// A number that depends on the seed and the job alone.
    fn draw(&self, job: JobId) -> u64 {
        let mut rng = ChaCha12Rng::seed_from_u64(self.seed);
        rng.set_stream(u64::from(job.0));
        rng.next_u64()
    }

    /// The table of a part, and where each of its choices stands in the whole.
    fn part(&self, table: &RateTable, part: usize) -> (RateTable, Vec<usize>) {
        let here = |job: &JobId| self.homes.get(job) == Some(&part);
        let mut small = RateTable {
            jobs: table.jobs.iter().copied().filter(here).collect(),
            kinds: table.kinds.clone(),
            capacity: table.capacity.clone(),
            choices: Vec::new(),
        };
        let mut from = Vec::new();
        for (index, choice) in table.choices.iter().enumerate() {
            if choice.jobs.iter().all(here) {
                let mut choice = choice.clone();
                choice.uses.iter_mut().for_each(|(_, gpus)| *gpus *= self.parts as u32);
                small.choices.push(choice);
                from.push(index);
            }
        }
        (small, from)
    }
}

/// One of the smallest parts, by a draw.
fn smallest(sizes: &[usize], draw: u64) -> usize {
    let least = sizes.iter().copied().min().unwrap_or(0);
    let ties: Vec<usize> = (0..sizes.len()).filter(|part| sizes[*part] == least).collect();
    ties[(draw % ties.len() as u64) as usize]
}

/// A choice of a part, at its true size.
fn shrunk(mut choice: Choice, parts: u32) -> Choice {
    choice.uses.iter_mut().for_each(|(_, gpus)| *gpus /= parts);
    choice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deal(parts: usize, jobs: impl IntoIterator<Item = u32>) -> (Deal, Vec<JobId>) {
        let jobs: Vec<JobId> = jobs.into_iter().map(JobId).collect();
        let mut deal = Deal { parts, seed: 7, homes: BTreeMap::new() };
        deal.update(&jobs);
        (deal, jobs)
    }

    fn sizes(deal: &Deal) -> Vec<usize> {
        (0..deal.parts)
            .map(|part| deal.homes.values().filter(|home| **home == part).count())
            .collect()
    }

    #[test]
    fn parts_are_even_and_mixed() {
        let (deal, _) = deal(4, 0..512);
        assert_eq!(sizes(&deal), [128; 4]);
        let early = (0..128).filter(|job| deal.homes[&JobId(*job)] == 0).count();
        assert!((20..45).contains(&early), "{early} of the first 128 jobs are in one part");
    }

    #[test]
    fn a_job_keeps_its_part_while_others_come_and_go() {
        let (mut deal, _) = deal(4, 0..200);
        let before = deal.homes.clone();
        // Twenty leave and twenty come.
        let jobs: Vec<JobId> = (20..220).map(JobId).collect();
        deal.update(&jobs);
        let moved =
            jobs.iter().filter(|job| before.get(job).is_some_and(|home| deal.homes[job] != *home));
        assert_eq!(moved.count(), 0, "those who come fill the places of those who left");
        // Twenty more leave and nobody comes.
        let before = deal.homes.clone();
        let jobs: Vec<JobId> = (40..220).map(JobId).collect();
        deal.update(&jobs);
        let moved = jobs.iter().filter(|job| deal.homes[job] != before[job]).count();
        assert!(moved <= 20, "{moved} jobs moved for 20 that left");
        assert!(sizes(&deal).iter().all(|size| *size == 45), "{:?}", sizes(&deal));
    }

    #[test]
    fn another_seed_deals_otherwise() {
        let (first, jobs) = deal(2, 0..64);
        let mut second = Deal { parts: 2, seed: 8, homes: BTreeMap::new() };
        second.update(&jobs);
        assert_ne!(first.homes, second.homes);
    }
}
