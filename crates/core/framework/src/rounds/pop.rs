//! A large problem as several small ones: Narayanan et al., "Solving Large-Scale Granular Resource Allocation Problems
//! Efficiently with POP", SOSP 2021.
//!
//! Jobs are dealt to parts, each part has an equal slice of every type, and each is solved alone. Where there are many
//! jobs and none is large, the parts look alike and little is lost; where one job is large beside its part, a lot is, and
//! the remedy is to deal such a job to several parts, a piece to each.
//!
//! The paper deals at random. Here jobs that are alike, in size, weight and speed by type, are dealt evenly, and chance
//! decides the rest: parts look more alike than chance makes them.

use super::{RateTable, Shares, TimeShare};
use crate::{Cx, Offer, PolicyError, View};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use trainyard_types::{JobId, Quality};

/// Deals the jobs to parts, solves each by an optimiser of its own and joins the answers.
///
/// Choices whose members are in different parts are not taken, and a job in pieces runs alone.
/// A job keeps its part while others come and go; at most one job moves for each that leaves.
pub struct Pop<S> {
    inner: Vec<S>,
    split: f64,
    deal: Deal,
}

impl<S: TimeShare> Pop<S> {
    /// One optimiser for each part: what it remembers belongs to the jobs of its part.
    ///
    /// A job that asks for more than `split` times the GPUs of one part, or weighs as much more than its jobs, is dealt
    /// in pieces; infinity splits none.
    pub fn new(inner: Vec<S>, split: f64, seed: u64) -> Pop<S> {
        assert!(!inner.is_empty(), "a problem has at least one part");
        let deal = Deal { parts: inner.len(), seed, homes: BTreeMap::new() };
        Pop { inner, split, deal }
    }

    /// The pieces of each job that is not whole. A number of pieces divides the GPUs of every choice, so that a piece
    /// uses whole GPUs.
    fn pieces(&self, table: &RateTable, weight: impl Fn(JobId) -> f64) -> BTreeMap<JobId, u32> {
        let parts = self.inner.len() as u32;
        let slice = f64::from(table.capacity.iter().sum::<u32>()) / f64::from(parts);
        let weights: f64 = table.jobs.iter().map(|job| weight(*job)).sum();
        let mut sizes: BTreeMap<JobId, (u32, u32)> = BTreeMap::new();
        for choice in table.choices.iter().filter(|choice| choice.jobs.len() == 1) {
            let (divisor, most) = sizes.entry(choice.jobs[0]).or_default();
            for (_, gpus) in &choice.uses {
                *divisor = common_divisor(*divisor, *gpus);
            }
            *most = (*most).max(choice.gpus());
        }
        let mut pieces = BTreeMap::new();
        for (job, (divisor, most)) in sizes {
            let heavy = weight(job) / (weights / f64::from(parts));
            if (f64::from(most) / slice).max(heavy) > self.split {
                let most = (1..=parts).rev().find(|pieces| divisor % pieces == 0).unwrap_or(1);
                pieces.insert(job, most);
            }
        }
        pieces.retain(|_, pieces| *pieces > 1);
        pieces
    }
}

impl<S: TimeShare> TimeShare for Pop<S> {
    fn table(&mut self, view: &View<'_>, offer: &Offer<'_>) -> RateTable {
        self.inner[0].table(view, offer)
    }

    fn shares(
        &mut self,
        table: &RateTable,
        view: &View<'_>,
        cx: &mut Cx,
    ) -> Result<Shares, PolicyError> {
        if let [only] = &mut self.inner[..] {
            return only.shares(table, view, cx);
        }
        let weight = |job: JobId| view.job(job).map_or(1.0, |job| job.spec.weight);
        let pieces = self.pieces(table, weight);
        let mut whole = likenesses(table, weight);
        whole.retain(|job, _| !pieces.contains_key(job));
        self.deal.update(&whole);
        let mut joined = Shares::from(vec![0.0; table.choices.len()]);
        let mut quality = Quality::Feasible;
        for (part, inner) in self.inner.iter_mut().enumerate() {
            let Part { table: small, from } = self.deal.part(table, &pieces, part);
            if small.jobs.is_empty() {
                continue;
            }
            let shares = inner.shares(&small, view, cx)?;
            assert_eq!(shares.of.len(), from.len(), "one share for each choice");
            for ((index, pieces), share) in from.into_iter().zip(shares.of) {
                joined.of[index] += share / f64::from(pieces);
            }
            let is_whole = |job: &JobId| !pieces.contains_key(job);
            let more = shares.more.into_iter();
            joined.more.extend(more.filter(|(choice, _)| choice.jobs.iter().all(is_whole)));
            if cx.quality == Quality::Fallback {
                quality = Quality::Fallback;
            }
        }
        cx.quality = quality;
        Ok(joined)
    }

    fn is_steady(&self) -> bool {
        self.inner.iter().all(TimeShare::is_steady)
    }

    fn forget(&mut self) {
        self.deal.homes.clear();
        self.inner.iter_mut().for_each(TimeShare::forget);
    }
}

/// One of the small problems.
struct Part {
    table: RateTable,
    /// For each choice its place in the whole, and of how many pieces of its job it is one.
    from: Vec<(usize, u32)>,
}

/// Which job is in which part.
struct Deal {
    parts: usize,
    seed: u64,
    homes: BTreeMap<JobId, usize>,
}

impl Deal {
    /// Takes in the jobs that came and lets go of those that left, so that no part has two jobs more than another.
    fn update(&mut self, jobs: &BTreeMap<JobId, Likeness>) {
        self.homes.retain(|job, _| jobs.contains_key(job));
        let mut counts = Counts { all: vec![0; self.parts], alike: BTreeMap::new() };
        for (job, part) in &self.homes {
            counts.add(&jobs[job], *part);
        }
        let mut new: Vec<(u64, JobId)> = jobs
            .keys()
            .filter(|job| !self.homes.contains_key(job))
            .map(|job| (self.draw(*job), *job))
            .collect();
        new.sort_unstable();
        for (draw, job) in new {
            let part = counts.emptiest(&jobs[&job], draw);
            self.homes.insert(job, part);
            counts.add(&jobs[&job], part);
        }
        self.level(jobs, &mut counts);
    }

    /// Moves jobs out of parts that have two more than the smallest, first those of which there are more like them.
    fn level(&mut self, jobs: &BTreeMap<JobId, Likeness>, counts: &mut Counts) {
        while let Some(large) = (0..self.parts).max_by_key(|part| counts.all[*part]) {
            let small = (0..self.parts).min_by_key(|part| counts.all[*part]).unwrap_or(large);
            if counts.all[large] <= counts.all[small] + 1 {
                return;
            }
            let members = self.homes.iter().filter(|(_, part)| **part == large);
            let surplus = |job: &JobId| {
                let alike = &jobs[job];
                counts.of(alike, large) as i64 - counts.of(alike, small) as i64
            };
            let drawn = members.map(|(job, _)| (surplus(job), self.draw(*job), *job)).max();
            let (_, _, job) = drawn.expect("a part that is too large has members");
            self.homes.insert(job, small);
            counts.remove(&jobs[&job], large);
            counts.add(&jobs[&job], small);
        }
    }

    /// A number that depends on the seed and the job alone.
    fn draw(&self, job: JobId) -> u64 {
        let mut rng = ChaCha12Rng::seed_from_u64(self.seed);
        rng.set_stream(u64::from(job.0));
        rng.next_u64()
    }

    /// Whether a job, or a piece of it, is in a part: the pieces go to that many parts in a row.
    fn holds(&self, part: usize, job: JobId, pieces: Option<&u32>) -> bool {
        match pieces {
            None => self.homes.get(&job) == Some(&part),
            Some(pieces) => {
                let first = (self.draw(job) % self.parts as u64) as usize;
                (part + self.parts - first) % self.parts < *pieces as usize
            }
        }
    }

    fn part(&self, table: &RateTable, pieces: &BTreeMap<JobId, u32>, part: usize) -> Part {
        let here = |job: &JobId| self.holds(part, *job, pieces.get(job));
        let mut small = RateTable {
            jobs: table.jobs.iter().copied().filter(here).collect(),
            kinds: table.kinds.clone(),
            capacity: (0..table.capacity.len()).map(|kind| self.slice(table, kind, part)).collect(),
            choices: Vec::new(),
        };
        let mut from = Vec::new();
        for (index, choice) in table.choices.iter().enumerate() {
            let split = choice.jobs.iter().find_map(|job| pieces.get(job)).copied();
            let alone = split.is_none() || choice.jobs.len() == 1;
            if !alone || !choice.jobs.iter().all(here) {
                continue;
            }
            let pieces = split.unwrap_or(1);
            let mut choice = choice.clone();
            choice.uses.iter_mut().for_each(|(_, gpus)| *gpus /= pieces);
            small.choices.push(choice);
            from.push((index, pieces));
        }
        Part { table: small, from }
    }

    /// The GPUs of a type in one part: what cannot be divided goes to another part for each type.
    fn slice(&self, table: &RateTable, kind: usize, part: usize) -> u32 {
        let (gpus, parts) = (table.capacity[kind], self.parts as u32);
        let turn = (part + self.parts - kind % self.parts) % self.parts;
        gpus / parts + u32::from((turn as u32) < gpus % parts)
    }
}

/// What makes two jobs alike: GPUs, the logarithm of the weight, and for each type how many times as slow as on the
/// fastest one they are, in half doublings.
type Likeness = (u32, i16, Vec<i16>);

fn likenesses(table: &RateTable, weight: impl Fn(JobId) -> f64) -> BTreeMap<JobId, Likeness> {
    let kinds = table.kinds.len();
    let mut rates: BTreeMap<JobId, (u32, Vec<f64>)> =
        table.jobs.iter().map(|job| (*job, (0, vec![0.0; kinds]))).collect();
    for choice in table.choices.iter().filter(|choice| choice.jobs.len() == 1) {
        if let Some((gpus, rates)) = rates.get_mut(&choice.jobs[0]) {
            *gpus = (*gpus).max(choice.gpus());
            rates[choice.kind()] = rates[choice.kind()].max(choice.rates[0]);
        }
    }
    let doublings = |ratio: f64| libm::round(2.0 * libm::log2(ratio)) as i16;
    let like = |(job, (gpus, rates)): (JobId, (u32, Vec<f64>))| {
        let best = rates.iter().copied().fold(0.0, f64::max);
        let slower = rates.iter().map(|rate| doublings(best / rate)).collect();
        (job, (gpus, doublings(weight(job)), slower))
    };
    rates.into_iter().map(like).collect()
}

/// How many jobs there are in each part.
struct Counts {
    all: Vec<usize>,
    alike: BTreeMap<(Likeness, usize), usize>,
}

impl Counts {
    fn of(&self, alike: &Likeness, part: usize) -> usize {
        self.alike.get(&(alike.clone(), part)).copied().unwrap_or(0)
    }

    fn add(&mut self, alike: &Likeness, part: usize) {
        self.all[part] += 1;
        *self.alike.entry((alike.clone(), part)).or_default() += 1;
    }

    fn remove(&mut self, alike: &Likeness, part: usize) {
        self.all[part] -= 1;
        if let Some(count) = self.alike.get_mut(&(alike.clone(), part)) {
            *count -= 1;
        }
    }

    /// The part with the fewest jobs alike, of those the one with the fewest jobs, and of those one by a draw.
    fn emptiest(&self, alike: &Likeness, draw: u64) -> usize {
        let crowd = |part: &usize| (self.of(alike, *part), self.all[*part]);
        let least = (0..self.all.len()).map(|part| crowd(&part)).min();
        let ties: Vec<usize> =
            (0..self.all.len()).filter(|part| Some(crowd(part)) == least).collect();
        ties[(draw % ties.len() as u64) as usize]
    }
}

fn common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::Choice;
    use smallvec::smallvec;
    use trainyard_types::GpuType;

    fn deal(parts: usize, jobs: impl IntoIterator<Item = u32>) -> (Deal, Vec<JobId>) {
        let jobs: Vec<JobId> = jobs.into_iter().map(JobId).collect();
        let mut deal = Deal { parts, seed: 7, homes: BTreeMap::new() };
        deal.update(&alike(&jobs));
        (deal, jobs)
    }

    /// All alike.
    fn alike(jobs: &[JobId]) -> BTreeMap<JobId, Likeness> {
        jobs.iter().map(|job| (*job, (1, 0, Vec::new()))).collect()
    }

    fn sizes(deal: &Deal) -> Vec<usize> {
        (0..deal.parts)
            .map(|part| deal.homes.values().filter(|home| **home == part).count())
            .collect()
    }

    /// Jobs of these sizes on 10 and 7 GPUs of two types.
    fn table(gpus: &[u32]) -> RateTable {
        let choice = |(job, gpus): (usize, &u32)| {
            [0, 1].map(|kind| Choice {
                jobs: smallvec![JobId(job as u32)],
                uses: smallvec![(kind, *gpus)],
                nodes_max: 0,
                rates: smallvec![1.0],
            })
        };
        RateTable {
            jobs: (0..gpus.len() as u32).map(JobId).collect(),
            kinds: vec![GpuType(0), GpuType(1)],
            capacity: vec![10, 7],
            choices: gpus.iter().enumerate().flat_map(choice).collect(),
        }
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
        deal.update(&alike(&jobs));
        let moved =
            jobs.iter().filter(|job| before.get(job).is_some_and(|home| deal.homes[job] != *home));
        assert_eq!(moved.count(), 0, "jobs that come fill the places of those that left");
        // Twenty more leave and none comes.
        let before = deal.homes.clone();
        let jobs: Vec<JobId> = (40..220).map(JobId).collect();
        deal.update(&alike(&jobs));
        let moved = jobs.iter().filter(|job| deal.homes[job] != before[job]).count();
        assert!(moved <= 20, "{moved} jobs moved for 20 that left");
        assert!(sizes(&deal).iter().all(|size| *size == 45), "{:?}", sizes(&deal));
    }

    #[test]
    fn jobs_that_are_alike_are_dealt_evenly() {
        // Twelve of a GPU, four of four GPUs and four that weigh eight times as much.
        let gpus: Vec<u32> = (0..20).map(|job| if job % 5 == 1 { 4 } else { 1 }).collect();
        let weight = |job: JobId| if job.0 % 5 == 3 { 8.0 } else { 1.0 };
        let mut deal = Deal { parts: 4, seed: 3, homes: BTreeMap::new() };
        deal.update(&likenesses(&table(&gpus), weight));
        for of in [1, 3] {
            let mut parts: Vec<usize> =
                (0..4).map(|job| deal.homes[&JobId(job * 5 + of)]).collect();
            parts.sort_unstable();
            assert_eq!(parts, [0, 1, 2, 3]);
        }
        assert_eq!(sizes(&deal), [5; 4]);
    }

    #[test]
    fn another_seed_deals_otherwise() {
        let (first, jobs) = deal(2, 0..64);
        let mut second = Deal { parts: 2, seed: 8, homes: BTreeMap::new() };
        second.update(&alike(&jobs));
        assert_ne!(first.homes, second.homes);
    }

    #[test]
    fn slices_add_up_and_every_choice_is_in_one_part() {
        let table = table(&[1; 9]);
        let (deal, _) = deal(4, 0..9);
        let parts: Vec<Part> =
            (0..4).map(|part| deal.part(&table, &BTreeMap::new(), part)).collect();
        let gpus: Vec<&[u32]> = parts.iter().map(|part| &part.table.capacity[..]).collect();
        assert_eq!(gpus, [&[3, 1], &[3, 2], &[2, 2], &[2, 2]]);
        let mut all: Vec<usize> =
            parts.iter().flat_map(|part| part.from.iter().map(|from| from.0)).collect();
        all.sort_unstable();
        assert_eq!(all, (0..18).collect::<Vec<usize>>());
    }

    #[test]
    fn a_large_job_is_dealt_in_pieces_that_divide_it() {
        struct NoShares;
        impl TimeShare for NoShares {
            fn shares(
                &mut self,
                _: &RateTable,
                _: &View<'_>,
                _: &mut Cx,
            ) -> Result<Shares, PolicyError> {
                Err(PolicyError::Infeasible)
            }
        }
        // A slice has 4 GPUs: more than half of it is large. Small ones are there so that no job is heavy.
        let mut gpus = vec![1; 25];
        gpus[1..5].copy_from_slice(&[8, 2, 6, 7]);
        let table = table(&gpus);
        let pop = Pop::new(vec![NoShares, NoShares, NoShares, NoShares], 0.5, 1);
        let pieces = pop.pieces(&table, |_| 1.0);
        assert_eq!(pieces, BTreeMap::from([(JobId(1), 4), (JobId(3), 3)]), "7 cannot be divided");
        let of_job = |part: usize, job: u32| {
            let Part { table, .. } = pop.deal.part(&table, &pieces, part);
            table.choices.iter().find(|choice| choice.jobs[0] == JobId(job)).map(|it| it.gpus())
        };
        let of_eight: Vec<Option<u32>> = (0..4).map(|part| of_job(part, 1)).collect();
        assert_eq!(of_eight, [Some(2); 4]);
        let of_six: u32 = (0..4).filter_map(|part| of_job(part, 3)).sum();
        assert_eq!(of_six, 6);
        let none = Pop::new(vec![NoShares, NoShares], f64::INFINITY, 1);
        assert!(none.pieces(&table, |_| 1.0).is_empty());
    }
}
