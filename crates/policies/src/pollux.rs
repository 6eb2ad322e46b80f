//! Pollux: sizes, places and batches of all jobs at once, for the highest mean of goodput.
//!
//! - `model`: what is known of each job's goodput, from what it reported.
//! - `problem`: jobs by nodes, and what a matrix of GPUs is worth.
//! - `vary`, `evolve`: the genetic search for a good matrix.
//!
//! A decision costs O(generations * population * jobs * nodes), and 50 batches for each size that a job may have.

pub mod evolve;
mod model;
pub mod problem;
#[cfg(test)]
mod tests;
pub mod vary;

use crate::prelude::*;
use evolve::{Effort, evolve};
use model::{Care, Fits, Goodput};
use problem::{Ground, Problem, Row};
use std::collections::BTreeMap;
use trainyard_profile::goodput::{Guard, NoBatch, Size};
use trainyard_types::{Grant, Knobs, Quality, Shape, Share};
use vary::{Dice, Scratch, fill};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "pollux",
    about: "Sizes, places and batches of all jobs are chosen at once, for the highest mean of goodput.",
    paper: "Qiao et al., Pollux, OSDI 2021",
    needs: Needs::NOTHING,
    class: Taxonomy {
        elastic: true,
        ..Taxonomy::rigid(Objective::Throughput, Family::Goodput).preemptive()
    },
    settings: &[
        ("p", "the power of the mean over jobs: -1 is fair, 1 gives most to whoever gains most"),
        ("population", "states that survive a generation of the search"),
        ("generations", "generations of the search at each decision"),
        ("patience", "generations without a gain that end the search; 0 never does"),
        ("restart", "how long a restart is believed to take"),
        ("avoid", "whether at most one job that spans nodes may be on a node"),
        ("nodes_max", "the most nodes that a job spans"),
        ("explore", "a job may have so many times the most GPUs it was seen on"),
        ("growth_max", "the largest batch, as a multiple of a job's first; 0 means no guard"),
        ("growth_step", "the largest growth of a batch at one change; 0 means no guard"),
        (
            "uncertainty",
            "how many of its own errors a fitted time is taken to be longer; below 0 shorter",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    p: f64,
    population: usize,
    generations: u32,
    patience: u32,
    restart: Span,
    avoid: bool,
    nodes_max: u32,
    explore: f64,
    growth_max: f64,
    growth_step: f64,
    uncertainty: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            p: -1.0,
            population: 100,
            generations: 100,
            patience: 0,
            restart: Span::secs(30),
            avoid: true,
            nodes_max: 16,
            explore: 2.0,
            growth_max: 0.0,
            growth_step: 0.0,
            uncertainty: 0.0,
        }
    }
}

/// The policy. Its memory is a cache: fits of what was measured, and the population of the last search.
struct Pollux {
    settings: Settings,
    fits: BTreeMap<JobId, Fits>,
    states: Vec<Vec<u8>>,
    jobs: Vec<JobId>,
}

/// A job that takes part, with what its row was made of.
struct Candidate<'a> {
    job: JobRef<'a>,
    /// By type of GPU.
    goodputs: Vec<Goodput>,
}

impl Policy for Pollux {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        offer.everything();
        let (candidates, problem) = self.problem(view, offer);
        if candidates.is_empty() || problem.nodes == 0 {
            return Ok(());
        }
        offer.leave_idle();
        cx.quality = Quality::Feasible;
        let jobs: Vec<JobId> = candidates.iter().map(|one| one.job.id()).collect();
        let seeds = self.adapted(&jobs, problem.nodes);
        let mut dice = Dice(cx.rng());
        let Settings { population, generations, patience, .. } = self.settings;
        let effort = Effort { population, generations, patience };
        let found = evolve(&problem, &seeds, effort, &mut dice);
        let mut best = found.best;
        fill(&problem, &mut best, &mut dice, &mut Scratch::new(&problem));
        self.states = found.states;
        self.jobs = jobs;
        grant_all(&candidates, &problem, &best, offer);
        Ok(())
    }

    fn forget(&mut self) {
        self.fits.clear();
        self.states.clear();
        self.jobs.clear();
    }
}

impl Pollux {
    /// Jobs that take part, in order of attained service, and the problem they make. Whoever cannot run is told why.
    fn problem<'a>(
        &mut self,
        view: &View<'a>,
        offer: &mut Offer<'_>,
    ) -> (Vec<Candidate<'a>>, Problem) {
        let nodes = offer.free().nodes() as usize;
        let node = |index: usize| NodeId(index as u32);
        let free = offer.free();
        let ground = Ground {
            capacity: (0..nodes).map(|n| free.mask(node(n)).count_ones() as u8).collect(),
            kinds: (0..nodes).map(|n| free.kind(node(n)).0).collect(),
            avoid: self.settings.avoid,
            power: self.settings.p,
        };
        let all = view.granted().chain(view.waiting());
        let mut jobs: Vec<JobRef<'a>> = all.filter(|job| offer.plan(job.id()).is_none()).collect();
        jobs.sort_by_key(|job| (job.state.attained(view.now), job.spec.submitted, job.id()));
        let alive: std::collections::BTreeSet<JobId> = jobs.iter().map(|job| job.id()).collect();
        self.fits.retain(|job, _| alive.contains(job));
        let total = free.in_service_total().max(1);
        let fair = total.div_ceil(jobs.len().max(1) as u32);
        let mut candidates = Vec::with_capacity(jobs.len());
        let mut rows = Vec::with_capacity(jobs.len());
        for job in jobs {
            let goodputs = self.goodputs(view, job);
            match self.row(view, job, &goodputs, &ground, (offer.free(), fair, total)) {
                Ok(row) => {
                    rows.push(row);
                    candidates.push(Candidate { job, goodputs });
                }
                Err(reason) => offer.note(job.id(), reason),
            }
        }
        (candidates, Problem::new(rows, ground))
    }

    /// What is known of a job, by type of GPU.
    fn goodputs(&mut self, view: &View<'_>, job: JobRef<'_>) -> Vec<Goodput> {
        let fits = self.fits.entry(job.id()).or_default();
        if let Some(measured) = &job.state.measured {
            fits.refresh(measured);
        }
        let Settings { growth_max, growth_step, uncertainty, .. } = self.settings;
        let bound = |value: f64| if value > 0.0 { value } else { f64::INFINITY };
        let guard =
            Guard { growth_max: bound(growth_max), step_max: bound(growth_step), present: None };
        let care = Care { guard, uncertainty };
        let kinds = 0..view.cluster().kinds.len();
        kinds.map(|kind| Goodput::new(view, job, GpuType(kind as u8), fits, care)).collect()
    }

    /// A job's row, or why it cannot run.
    fn row(
        &self,
        view: &View<'_>,
        job: JobRef<'_>,
        goodputs: &[Goodput],
        ground: &Ground,
        (free, fair, total): (&Free, u32, u32),
    ) -> Result<Row, Reason> {
        let want = &job.spec.want;
        let least = want.gpus_min.max(1);
        let room = room(job, ground, free);
        let mut by_kind = vec![(0u32, 0u32); goodputs.len()];
        for (node, room) in room.iter().enumerate() {
            let (gpus, largest) = &mut by_kind[usize::from(ground.kinds[node])];
            *gpus += u32::from(*room);
            *largest = (*largest).max(u32::from(*room));
        }
        let there = by_kind.iter().map(|(gpus, _)| *gpus).max().unwrap_or(0);
        if there < least || want.gpus_max < least {
            return Err(Reason::NeverFits { need: least, most: there.min(want.gpus_max) });
        }
        let seen =
            job.state.measured.as_ref().map_or(0, |measured| {
                measured.steps.iter().map(|step| step.gpus).max().unwrap_or(0)
            });
        let explored = (f64::from(seen.max(job.state.gpus())) * self.settings.explore) as u32;
        let most = explored.max(least).min(want.gpus_max).min(there);
        let scale = ground.capacity.len() as f64 / f64::from(total);
        let worth: Vec<_> = goodputs
            .iter()
            .zip(&by_kind)
            .map(|(goodput, (gpus, largest))| goodput.worth(most.min(*gpus), *largest, fair, scale))
            .collect();
        let values = worth.iter().flat_map(|worth| worth.node.iter().chain(&worth.network));
        if !values.clone().any(|value| *value > 0.0) {
            return Err(unfit(goodputs, least));
        }
        let age = view.now.since(job.spec.submitted).as_secs_f64();
        let delay = self.settings.restart.as_secs_f64();
        let lost = delay * f64::from(job.state.restarts);
        let nodes_most = match want.nodes_max {
            0 => self.settings.nodes_max,
            most => self.settings.nodes_max.min(u32::from(most)),
        };
        Ok(Row {
            least,
            most,
            nodes_most,
            base: base(job, ground.capacity.len()),
            room,
            worth,
            factor: (age - lost).max(0.0) / (age + delay).max(1e-9),
        })
    }

    /// The last population with the rows of jobs that are still there; new jobs hold nothing in it.
    fn adapted(&self, jobs: &[JobId], nodes: usize) -> Vec<Vec<u8>> {
        let mut rows: Vec<(JobId, usize)> =
            self.jobs.iter().enumerate().map(|(index, job)| (*job, index)).collect();
        rows.sort_unstable();
        let old = |job: &JobId| rows.binary_search_by_key(job, |row| row.0).ok();
        let places: Vec<Option<usize>> =
            jobs.iter().map(|job| old(job).map(|index| rows[index].1)).collect();
        let adapt = |state: &Vec<u8>| {
            let mut next = vec![0; jobs.len() * nodes];
            for (row, place) in next.chunks_exact_mut(nodes).zip(&places) {
                if let Some(cells) = place.and_then(|at| state.get(at * nodes..(at + 1) * nodes)) {
                    row.copy_from_slice(cells);
                }
            }
            next
        };
        self.states.iter().map(adapt).collect()
    }
}

/// The most GPUs of each node that a job could have.
fn room(job: JobRef<'_>, ground: &Ground, free: &Free) -> Vec<u8> {
    let want = &job.spec.want;
    let on = |(index, capacity): (usize, &u8)| {
        let node = NodeId(index as u32);
        let kind = free.kind(node);
        let acceptable = want.accepts(kind) && want.pool.is_none_or(|pool| free.pool(node) == pool);
        let by_host = |left: Option<u64>, each: u64| match (left, each) {
            (Some(left), 1..) => left / each,
            _ => u64::MAX,
        };
        let cpus = by_host(free.cpus_left(node).map(u64::from), u64::from(want.cpus_per_gpu));
        let memory = by_host(free.host_memory_left(node), u64::from(want.memory_mib_per_gpu));
        let most = u64::from(*capacity).min(cpus).min(memory);
        if acceptable { most as u8 } else { 0 }
    };
    ground.capacity.iter().enumerate().map(on).collect()
}

/// What a job holds or is to hold on each node.
fn base(job: JobRef<'_>, nodes: usize) -> Vec<u8> {
    let mut cells = vec![0; nodes];
    if let Some(planned) = &job.state.planned {
        for (node, mask) in planned.placement.masks() {
            cells[node.index()] = mask.count_ones() as u8;
        }
    }
    cells
}

/// Why no size of a job is worth anything.
fn unfit(goodputs: &[Goodput], least: u32) -> Reason {
    let verdicts = goodputs.iter().filter_map(|one| one.batch(Size::on_one_node(least)).err());
    match verdicts.last() {
        Some(
            NoBatch::OverLimit { least, most, .. }
            | NoBatch::Guarded { least, most, .. }
            | NoBatch::NoCut { least, most, .. },
        ) => Reason::NoBatch { least, most },
        None => Reason::NoSpeed,
    }
}

/// Grants what a state says: first those who stay, so that nobody else is put on their GPUs.
fn grant_all(candidates: &[Candidate<'_>], problem: &Problem, best: &[u8], offer: &mut Offer<'_>) {
    let rows = || candidates.iter().zip(&problem.rows).zip(best.chunks_exact(problem.nodes));
    for ((candidate, row), cells) in rows() {
        if let Some(planned) = &candidate.job.state.planned
            && cells == row.base
        {
            let shape = Shape::Exact(planned.placement.clone());
            grant(candidate, problem, (cells, shape), offer);
        }
    }
    for ((candidate, row), cells) in rows() {
        let gpus: u32 = cells.iter().map(|cell| u32::from(*cell)).sum();
        if gpus == 0 {
            let free = offer.free().total();
            offer.note(candidate.job.id(), Reason::NoRoom { need: row.least, free });
        } else if cells != row.base || candidate.job.state.planned.is_none() {
            let parts = cells.iter().enumerate().filter(|(_, cell)| **cell > 0);
            let parts = parts.map(|(node, cell)| (NodeId(node as u32), u32::from(*cell)));
            let shape = Shape::PerNode(parts.collect());
            if grant(candidate, problem, (cells, shape), offer) == Answer::NoRoom {
                // Host CPUs and memory are not part of the search: the placer may know another place.
                let shape = Shape::Gpus { count: gpus, kind: None, nodes_max: 0 };
                grant(candidate, problem, (cells, shape), offer);
            }
        }
    }
}

fn grant(
    candidate: &Candidate<'_>,
    problem: &Problem,
    (cells, shape): (&[u8], Shape),
    offer: &mut Offer<'_>,
) -> Answer {
    let job = candidate.job;
    let mut grant = Grant::gpus(job.id(), 1);
    if job.spec.want.permille < 1000 {
        grant = grant.share(Share::Permille(job.spec.want.permille));
    }
    grant.shape = shape;
    grant.pool = job.spec.want.pool;
    let first = cells.iter().position(|cell| *cell > 0).unwrap_or(0);
    let kind = usize::from(problem.ground.kinds[first]);
    let size = Size {
        nodes: cells.iter().filter(|cell| **cell > 0).count() as u32,
        gpus: cells.iter().map(|cell| u32::from(*cell)).sum(),
    };
    if let Ok(Some(choice)) = candidate.goodputs[kind].batch(size) {
        grant.knobs = Some(Box::new(Knobs { batch: Some(choice.split.batch), ..Knobs::default() }));
    }
    offer.grant(&grant)
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    let finite = |key: &str, value: f64, good: bool, expected: &str| match good && value.is_finite()
    {
        true => Ok(()),
        false => Err(ENTRY.bad_value(key, value, expected)),
    };
    let Settings { p, explore, growth_max, growth_step, uncertainty, .. } = settings;
    finite("p", p, p.abs() <= 10.0, "a power from -10 to 10")?;
    finite("explore", explore, explore >= 1.0, "a factor of at least 1")?;
    let guard = "0, or a factor of at least 1";
    finite("growth_max", growth_max, growth_max == 0.0 || growth_max >= 1.0, guard)?;
    finite("growth_step", growth_step, growth_step == 0.0 || growth_step > 1.0, guard)?;
    finite("uncertainty", uncertainty, uncertainty.abs() <= 10.0, "a number from -10 to 10")?;
    if !(2..=10_000).contains(&settings.population) {
        return Err(ENTRY.bad_value("population", settings.population, "from 2 to 10000"));
    }
    if settings.generations > 100_000 {
        return Err(ENTRY.bad_value("generations", settings.generations, "at most 100000"));
    }
    if settings.nodes_max == 0 {
        return Err(ENTRY.bad_value("nodes_max", settings.nodes_max, "at least 1"));
    }
    let (fits, states, jobs) = (BTreeMap::new(), Vec::new(), Vec::new());
    Ok(Pipeline::new(Pollux { settings, fits, states, jobs }, FewestNodes, ENTRY.needs))
}
