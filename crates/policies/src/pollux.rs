//! Pollux: sizes, places and batches of all jobs at once, for the highest mean of goodput.
//!
//! - `model`: what is known of each job's goodput, from what it reported.
//! - `parts`: nodes, or parts of them, as the search sees them.
//! - `problem`: jobs by nodes, and what a matrix of GPUs is worth.
//! - `vary`, `evolve`: the genetic search for a good matrix.
//!
//! A decision costs O(generations * population * jobs * nodes), and 50 batches for each size that a job may have.

pub mod evolve;
mod model;
mod parts;
pub mod problem;
#[cfg(test)]
mod tests;
pub mod vary;

use crate::prelude::*;
use evolve::{Effort, evolve};
use model::{Care, Goodput, Memory};
use parts::{Parts, Types};
use problem::{Ground, Problem, Row, gpus};
use std::collections::BTreeMap;
use trainyard_profile::goodput::{Guard, NoBatch, Size};
use trainyard_types::{Grant, Knobs, Quality, Shape};
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
        (
            "round",
            "the time between searches while jobs report, at its multiples; 0s for one at each decision",
        ),
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
        (
            "probe",
            "a job seen with one number of samples on a GPU only trains with so many times its first batch; 1 for never",
        ),
        (
            "types",
            "apart: fits for each type of GPU; alike: all types are one, as Sia's authors ran it",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    round: Span,
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
    probe: f64,
    types: Types,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            round: Span::secs(60),
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
            probe: 1.0,
            types: Types::Apart,
        }
    }
}

/// The policy. Its memory is a cache: fits of what was measured, and the population of the last search.
struct Pollux {
    settings: Settings,
    memory: BTreeMap<JobId, Memory>,
    states: Vec<Vec<u8>>,
    jobs: Vec<JobId>,
    /// The round of the last search.
    searched: Option<u64>,
}

impl Policy for Pollux {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        offer.everything();
        let parts = Parts::new(view, offer.free(), self.settings.types);
        let (jobs, problem) = self.problem(view, offer, &parts);
        if jobs.is_empty() || problem.nodes == 0 {
            return Ok(());
        }
        offer.leave_idle();
        cx.quality = Quality::Feasible;
        let ids: Vec<JobId> = jobs.iter().map(JobRef::id).collect();
        let mut dice = Dice(cx.rng());
        let mut best = match self.searches(view, offer, &jobs) {
            true => {
                let seeds = self.adapted(&ids, problem.nodes);
                let Settings { population, generations, patience, .. } = self.settings;
                let effort = Effort { population, generations, patience };
                let found = evolve(&problem, &seeds, effort, &mut dice);
                (self.states, self.jobs) = (found.states, ids);
                found.best
            }
            false => problem.base(),
        };
        fill(&problem, &mut best, &mut dice, &mut Scratch::new(&problem));
        parts.one_type_each(view, &problem, &mut best);
        self.grant_all(view, (&jobs, &problem, &parts), &best, offer);
        Ok(())
    }

    fn forget(&mut self) {
        self.memory.clear();
        self.states.clear();
        self.jobs.clear();
        self.searched = None;
    }
}

/// The cluster as a job's row sees it.
struct Site<'a> {
    ground: &'a Ground,
    parts: &'a Parts,
    free: &'a Free,
    /// GPUs of a fair share, and in service.
    fair: u32,
    total: u32,
}

impl Pollux {
    /// Whether a round begins. Within one, jobs that come are only put where there is room.
    ///
    /// Rounds are for jobs that report or have batches to choose: of others nothing is learnt between events, and every
    /// decision is a search.
    fn searches(&mut self, view: &View<'_>, offer: &mut Offer<'_>, jobs: &[JobRef<'_>]) -> bool {
        let kinds = || (0..view.cluster().kinds.len()).map(|kind| GpuType(kind as u8));
        let learns = jobs.iter().any(|job| {
            job.state.measured.is_some()
                || kinds().any(|kind| view.batch_limits(*job, kind).is_some())
        });
        let number = view.now.0.checked_div(self.settings.round.0).filter(|_| learns);
        let Some(number) = number else { return true };
        offer.wake_at(Time((number + 1).saturating_mul(self.settings.round.0)));
        self.searched.replace(number) != Some(number)
    }

    /// Jobs that take part, in order of attained service, and the problem they make. Whoever cannot run is told why.
    fn problem<'a>(
        &mut self,
        view: &View<'a>,
        offer: &mut Offer<'_>,
        parts: &Parts,
    ) -> (Vec<JobRef<'a>>, Problem) {
        let all = view.granted().chain(view.waiting());
        let mut jobs: Vec<JobRef<'a>> = all.filter(|job| offer.plan(job.id()).is_none()).collect();
        jobs.sort_by_key(|job| (job.state.attained(view.now), job.spec.submitted, job.id()));
        self.memory.retain(|job, _| view.job(*job).is_some());
        let free = offer.free();
        let ground = Ground {
            capacity: parts.capacity(free),
            kinds: parts.kinds(),
            avoid: self.settings.avoid,
            power: self.settings.p,
        };
        let total = free.in_service_total().max(1);
        let fair = total.div_ceil(jobs.len().max(1) as u32);
        let site = Site { ground: &ground, parts, free, fair, total };
        let verdicts: Vec<Result<Row, Reason>> =
            jobs.iter().map(|job| self.row(view, *job, &site)).collect();
        let mut rows = Vec::with_capacity(jobs.len());
        let mut index = 0;
        jobs.retain(|job| {
            index += 1;
            match &verdicts[index - 1] {
                Ok(row) => rows.push(row.clone()),
                Err(reason) => offer.note(job.id(), reason.clone()),
            }
            verdicts[index - 1].is_ok()
        });
        (jobs, Problem::new(rows, ground))
    }

    /// What is known of a job on a type of GPU.
    fn goodput(&mut self, view: &View<'_>, job: JobRef<'_>, kind: GpuType) -> Goodput<'_> {
        let Settings { growth_max, growth_step, uncertainty, probe, .. } = self.settings;
        let bound = |value: f64| if value > 0.0 { value } else { f64::INFINITY };
        let guard =
            Guard { growth_max: bound(growth_max), step_max: bound(growth_step), present: None };
        let memory = self.memory.entry(job.id()).or_default();
        if let Some(measured) = &job.state.measured {
            memory.refresh(measured, self.settings.types);
        }
        Goodput::new(view, job, kind, memory, Care { guard, uncertainty, probe })
    }

    /// A job's row, or why it cannot run.
    fn row(&mut self, view: &View<'_>, job: JobRef<'_>, site: &Site<'_>) -> Result<Row, Reason> {
        let want = &job.spec.want;
        let least = want.gpus_min.max(1);
        let room = site.parts.room(job, &site.ground.capacity, site.free);
        let mut by_kind = vec![(0u32, 0u32); view.cluster().kinds.len()];
        for (room, kind) in room.iter().zip(&site.ground.kinds) {
            let (gpus, largest) = &mut by_kind[usize::from(*kind)];
            *gpus += u32::from(*room);
            *largest = (*largest).max(u32::from(*room));
        }
        let there = site.parts.most(&room);
        if there < least || want.gpus_max < least {
            return Err(Reason::NeverFits { need: least, most: there.min(want.gpus_max) });
        }
        let seen =
            job.state.measured.as_ref().map_or(0, |measured| {
                measured.steps.iter().map(|step| step.gpus).max().unwrap_or(0)
            });
        let explored = (f64::from(seen.max(job.state.gpus())) * self.settings.explore) as u32;
        let most = explored.max(least).min(want.gpus_max).min(there);
        let scale = site.ground.capacity.len() as f64 / f64::from(site.total);
        let mut worth = Vec::with_capacity(by_kind.len());
        let mut verdict = Reason::NoSpeed;
        for (kind, (gpus, largest)) in by_kind.into_iter().enumerate() {
            let mut goodput = self.goodput(view, job, GpuType(kind as u8));
            worth.push(goodput.worth(most.min(gpus), largest, site.fair, scale));
            if let Err(no_batch) = goodput.batch(Size::on_one_node(least)) {
                verdict = unfit(no_batch);
            }
        }
        let mut values = worth.iter().flat_map(|worth| worth.node.iter().chain(&worth.network));
        if !values.any(|value| *value > 0.0) {
            return Err(verdict);
        }
        let age = view.now.since(job.spec.submitted).as_secs_f64();
        let delay = self.settings.restart.as_secs_f64();
        let lost = delay * f64::from(job.state.restarts);
        let nodes_most = match want.nodes_max {
            0 => self.settings.nodes_max,
            most => self.settings.nodes_max.min(u32::from(most)),
        };
        let base = site.parts.held(job);
        let factor = (age - lost).max(0.0) / (age + delay).max(1e-9);
        Ok(Row { least, most, nodes_most, base, room, worth, factor })
    }

    /// Grants what a state says: first those who stay, so that nobody else is put on their GPUs.
    fn grant_all(
        &mut self,
        view: &View<'_>,
        (jobs, problem, parts): (&[JobRef<'_>], &Problem, &Parts),
        best: &[u8],
        offer: &mut Offer<'_>,
    ) {
        let rows = || jobs.iter().zip(&problem.rows).zip(best.chunks_exact(problem.nodes));
        for ((job, row), cells) in rows() {
            if let Some(planned) = &job.state.planned
                && cells == row.base
            {
                let shape = Shape::Exact(planned.placement.clone());
                let grant = self.grant(view, *job, (parts, cells), shape);
                offer.grant(&grant);
            }
        }
        let anywhere = |count: u32| Shape::Gpus { count, kind: None, nodes_max: 0 };
        for ((job, _), cells) in rows().filter(|((_, row), cells)| *cells != row.base) {
            if gpus(cells) == 0 {
                continue;
            }
            let shape = parts.shape(cells, offer.free());
            let mut grant = self.grant(view, *job, (parts, cells), shape);
            if offer.grant(&grant) == Answer::NoRoom {
                // Host CPUs and memory are shared by all rows, and the search does not see that: the placer may know
                // another place.
                grant.shape = anywhere(gpus(cells));
                offer.grant(&grant);
            }
        }
        for ((job, row), _) in rows().filter(|(_, cells)| gpus(cells) == 0) {
            let least = Grant { shape: anywhere(row.least), ..wanted(*job) };
            if !parts.are_cut() || offer.grant(&least) != Answer::Taken {
                let free = offer.free().total();
                offer.note(job.id(), Reason::NoRoom { need: row.least, free });
            }
        }
    }

    /// A grant with the batch that is best on so many GPUs.
    fn grant(
        &mut self,
        view: &View<'_>,
        job: JobRef<'_>,
        (parts, cells): (&Parts, &[u8]),
        shape: Shape,
    ) -> Grant {
        let mut grant = Grant { shape, ..wanted(job) };
        let mut goodput = self.goodput(view, job, parts.kind(cells));
        let size = parts.size(cells);
        if let Ok(Some(batch)) = goodput.batch(size) {
            grant.knobs = Some(Box::new(Knobs { batch: Some(batch), ..Knobs::default() }));
        }
        grant
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

/// Why no size of a job is worth anything.
fn unfit(verdict: NoBatch) -> Reason {
    match verdict {
        NoBatch::OverLimit { least, most, .. }
        | NoBatch::Guarded { least, most, .. }
        | NoBatch::NoCut { least, most, .. } => Reason::NoBatch { least, most },
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    let finite = |key: &str, value: f64, good: bool, expected: &str| match good && value.is_finite()
    {
        true => Ok(()),
        false => Err(ENTRY.bad_value(key, value, expected)),
    };
    let Settings { p, explore, growth_max, growth_step, uncertainty, probe, .. } = settings;
    finite("p", p, p.abs() <= 10.0, "a power from -10 to 10")?;
    finite("explore", explore, explore >= 1.0, "a factor of at least 1")?;
    finite("probe", probe, probe >= 1.0, "a factor of at least 1")?;
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
    let (memory, states, jobs) = (BTreeMap::new(), Vec::new(), Vec::new());
    let policy = Pollux { settings, memory, states, jobs, searched: None };
    Ok(Pipeline::new(policy, FewestNodes, ENTRY.needs))
}
