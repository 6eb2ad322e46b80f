//! Pollux: sizes, places and batches of all jobs at once, for the highest mean of goodput.
//!
//! - `model`: what is known of each job's goodput, from what it reported.
//! - `queue`: which waiting jobs take part.
//! - `parts`: nodes, or parts of them, as the search sees them.
//! - `problem`: jobs by nodes, and what a matrix of GPUs is worth.
//! - `separate`: the search for a good matrix, first sizes and then places.
//! - `vary`, `evolve`: the authors' genetic search (section 4.2), sizes and places at once.
//! - `types`: how types of GPU are distinguished; `alike`: not at all, as Sia's authors ran it.
//!
//! Sections are of Qiao et al., OSDI 2021; the goodput model is section 3 of it (`trainyard_profile::goodput`).
//!
//! A decision costs O(jobs * (nodes + sizes)) for a few passes, or O(generations * population * jobs * nodes) by the
//! joint search, and 50 batches for each size that a job may have.

mod alike;
pub mod evolve;
mod model;
mod parts;
pub mod problem;
mod queue;
pub mod separate;
#[cfg(test)]
mod tests;
mod types;
pub mod vary;

use crate::prelude::*;
use evolve::{Effort, evolve};
use model::{Care, Goodput, Memory, Reach};
use parts::Parts;
use problem::{Problem, SearchJob, SearchSpace, gpus};
use queue::{Demand, is_quiet, seen_on, thinned};
use rustc_hash::FxHashMap;
use separate::separate;
use std::collections::BTreeMap;
use std::sync::Arc;
use trainyard_profile::goodput::{Guard, NoBatch, Size};
use trainyard_types::{Grant, Knobs, Quality, Shape};
use types::Types;
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
            "the time between searches while jobs report, at its multiples; `0s` for one at each decision",
        ),
        ("p", "the power of the mean over jobs: -1 is fair, 1 gives most to jobs that gain most"),
        (
            "search",
            "`separate`: sizes first, then places; `joint`: both at once by the authors' genetic search",
        ),
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
            "`apart`: fits for each type of GPU; `alike`: all types are one, as Sia's authors ran it",
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
    search: SearchKind,
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
            search: SearchKind::Separate,
            population: 100,
            generations: 100,
            patience: 0,
            restart: Span::secs(30),
            avoid: true,
            nodes_max: 16,
            explore: 2.0,
            // Measured: see "A batch that follows the gradient noise" in the guide.
            growth_max: 16.0,
            growth_step: 0.0,
            uncertainty: 0.0,
            probe: 1.0,
            types: Types::Apart,
        }
    }
}

/// Of a job whose speed-up loses less than this by a restart, time alone changes no decision.
const SETTLED: f64 = 0.9;

/// How a good state is looked for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SearchKind {
    /// Sizes first, then places.
    Separate,
    /// Both at once, by the authors' genetic search.
    Joint,
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
        let types = self.settings.types.rules();
        let parts = Parts::new(view, offer.free(), types);
        let (jobs, problem) = self.problem(view, offer, &parts);
        if jobs.is_empty() || problem.nodes == 0 {
            return Ok(());
        }
        offer.leave_idle();
        cx.quality = Quality::Feasible;
        let ids: Vec<JobId> = jobs.iter().map(JobRef::id).collect();
        let mut dice = Dice(cx.rng());
        let mut best = match self.searches(view, offer, &jobs) {
            true => self.search(&problem, ids, &mut dice),
            false => problem.base(),
        };
        fill(&problem, &mut best, &mut dice, &mut Scratch::new(&problem));
        types.settle(&parts, view, &problem, &mut best);
        let found = Found { jobs: &jobs, problem: &problem, parts: &parts, best: &best };
        self.wake_to_grow(view, &found, offer);
        self.grant_all(view, &found, offer);
        Ok(())
    }

    fn forget(&mut self) {
        self.memory.clear();
        self.states.clear();
        self.jobs.clear();
        self.searched = None;
    }
}

/// What a search came to.
struct Found<'a, 'v> {
    jobs: &'a [JobRef<'v>],
    problem: &'a Problem,
    parts: &'a Parts,
    best: &'a [u8],
}

/// The room that a job has on nodes of one type.
#[derive(Copy, Clone, Default)]
struct RoomOfKind {
    gpus: u32,
    /// The most on one node.
    per_node: u32,
}

/// The cluster as a job's row sees it.
struct Site<'a> {
    space: &'a SearchSpace,
    parts: &'a Parts,
    free: &'a Free,
    /// The room of each demand that was met.
    rooms: FxHashMap<Demand, Arc<[u8]>>,
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
        let learns = jobs.iter().any(|job| !is_quiet(view, *job));
        let number = view.now.0.checked_div(self.settings.round.0).filter(|_| learns);
        let Some(number) = number else { return true };
        offer.wake_at(Time((number + 1).saturating_mul(self.settings.round.0)));
        self.searched.replace(number) != Some(number)
    }

    /// The best state that is found.
    fn search(&mut self, problem: &Problem, ids: Vec<JobId>, dice: &mut Dice) -> Vec<u8> {
        let Settings { search, population, generations, patience, .. } = self.settings;
        match search {
            SearchKind::Separate => separate(problem),
            SearchKind::Joint => {
                let seeds = self.adapted(&ids, problem.nodes);
                let effort = Effort { population, generations, patience };
                let found = evolve(problem, &seeds, effort, dice);
                (self.states, self.jobs) = (found.states, ids);
                found.best
            }
        }
    }

    /// Jobs that take part, in order of attained service, and the problem they make. A job that cannot run is told why.
    fn problem<'a>(
        &mut self,
        view: &View<'a>,
        offer: &mut Offer<'_>,
        parts: &Parts,
    ) -> (Vec<JobRef<'a>>, Problem) {
        let all = view.granted().chain(view.waiting());
        let jobs: Vec<JobRef<'a>> = all.filter(|job| offer.plan(job.id()).is_none()).collect();
        let total = offer.free().in_service_total().max(1);
        // A fair share: all GPUs over all jobs, rounded up.
        let fair = total.div_ceil(jobs.len().max(1) as u32);
        let mut jobs = thinned(view, jobs, total, |job| self.after_restart(view, job));
        jobs.sort_by_key(|job| (job.state.attained(view.now), job.spec.submitted, job.id()));
        self.memory.retain(|job, _| view.job(*job).is_some());
        let free = offer.free();
        let space = SearchSpace {
            capacity: parts.capacity(free),
            kinds: parts.kinds(self.settings.types.rules()),
            avoid: self.settings.avoid,
            power: self.settings.p,
        };
        let rooms = FxHashMap::default();
        let mut site = Site { space: &space, parts, free, rooms, fair, total };
        let verdicts: Vec<Result<SearchJob, Reason>> =
            jobs.iter().map(|job| self.row(view, *job, &mut site)).collect();
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
        (jobs, Problem::new(rows, space))
    }

    /// What is known of a job on a type of GPU.
    fn goodput(&mut self, view: &View<'_>, job: JobRef<'_>, kind: GpuType) -> Goodput<'_> {
        let Settings { growth_max, growth_step, uncertainty, probe, .. } = self.settings;
        let bound = |value: f64| if value > 0.0 { value } else { f64::INFINITY };
        let guard =
            Guard { growth_max: bound(growth_max), step_max: bound(growth_step), present: None };
        let memory = self.memory.entry(job.id()).or_default();
        if let Some(measured) = &job.state.measured {
            memory.refresh(measured, self.settings.types.rules());
        }
        Goodput::new(view, job, kind, memory, Care { guard, uncertainty, probe })
    }

    /// A job's row, or why it cannot run.
    fn row(
        &mut self,
        view: &View<'_>,
        job: JobRef<'_>,
        site: &mut Site<'_>,
    ) -> Result<SearchJob, Reason> {
        let want = &job.spec.want;
        let least = want.gpus_min.max(1);
        let room = site.rooms.entry(Demand::of(job));
        let room = room.or_insert_with(|| site.parts.room(job, &site.space.capacity, site.free));
        let room = Arc::clone(room);
        let mut by_kind = vec![RoomOfKind::default(); view.cluster().kinds.len()];
        for (room, kind) in room.iter().zip(&site.space.kinds) {
            let of = &mut by_kind[usize::from(*kind)];
            of.gpus += u32::from(*room);
            of.per_node = of.per_node.max(u32::from(*room));
        }
        let there = site.parts.most(&room);
        if there < least || want.gpus_max < least {
            return Err(Reason::NeverFits { need: least, most: there.min(want.gpus_max) });
        }
        // At most twice what was seen, by default: the authors' bound on exploring.
        let explored = (f64::from(seen_on(view, job)) * self.settings.explore) as u32;
        let most = explored.max(least).min(want.gpus_max).min(there);
        let most = most.min(ceiling(view, job)).max(least);
        let scale = site.space.capacity.len() as f64 / f64::from(site.total);
        let mut worth = Vec::with_capacity(by_kind.len());
        let mut verdict = Reason::NoSpeed;
        for (kind, RoomOfKind { gpus, per_node }) in by_kind.into_iter().enumerate() {
            let mut goodput = self.goodput(view, job, GpuType(kind as u8));
            worth.push(goodput.worth(Reach {
                most: most.min(gpus),
                per_node,
                fair: site.fair,
                scale,
            }));
            if let Err(no_batch) = goodput.batch(Size::on_one_node(least)) {
                verdict = unfit(no_batch);
            }
        }
        let mut values = worth.iter().flat_map(|worth| worth.node.iter().chain(&worth.network));
        if !values.any(|value| *value > 0.0) {
            return Err(verdict);
        }
        let nodes_most = match want.nodes_max {
            0 => self.settings.nodes_max,
            most => self.settings.nodes_max.min(u32::from(most)),
        };
        let base = site.parts.held(job);
        let factor = self.after_restart(view, job);
        Ok(SearchJob { least, most, nodes_most, base, room, worth, factor })
    }

    /// What a restart leaves of a job's speed-up: (T - R d) / (T + d).
    fn after_restart(&self, view: &View<'_>, job: JobRef<'_>) -> f64 {
        let age = view.now.since(job.spec.submitted).as_secs_f64();
        let delay = self.settings.restart.as_secs_f64();
        let lost = delay * f64::from(job.state.restarts);
        (age - lost).max(0.0) / (age + delay).max(1e-9)
    }

    /// Asks for a decision at the next round while a job that reports nothing may still grow into idle GPUs: it may
    /// have more once it ran on what it has, and is worth a restart as it grows older. Nothing else would wake the policy.
    fn wake_to_grow(&self, view: &View<'_>, found: &Found<'_, '_>, offer: &mut Offer<'_>) {
        let Found { jobs, problem, best, .. } = found;
        let given: u32 = gpus(best);
        if given >= gpus(&problem.space.capacity) {
            return;
        }
        let rows = jobs.iter().zip(&problem.rows).zip(best.chunks_exact(problem.nodes));
        let grows = rows.into_iter().any(|((job, row), cells)| {
            let has = gpus(cells);
            let room = row.room.iter().map(|cell| u32::from(*cell)).sum();
            let held_back = has == row.most || row.factor < SETTLED;
            (1..job.spec.want.gpus_max.min(room)).contains(&has)
                && held_back
                && is_quiet(view, *job)
        });
        if let Some(round) = view.now.0.checked_div(self.settings.round.0).filter(|_| grows) {
            offer.wake_at(Time((round + 1).saturating_mul(self.settings.round.0)));
        }
    }

    /// Grants what a state says: first the jobs that stay, so that no other job is put on their GPUs.
    fn grant_all(&mut self, view: &View<'_>, found: &Found<'_, '_>, offer: &mut Offer<'_>) {
        let Found { jobs, problem, parts, best } = found;
        let types = self.settings.types.rules();
        let rows = || jobs.iter().zip(&problem.rows).zip(best.chunks_exact(problem.nodes));
        for ((job, row), cells) in rows() {
            if let Some(planned) = &job.state.planned
                && cells == row.base
            {
                let shape = Shape::Exact(planned.placement.clone());
                let grant = self.grant(view, *job, parts, cells, shape);
                offer.grant(&grant);
            }
        }
        let anywhere = |count: u32| Shape::Gpus { count, kind: None, nodes_max: 0 };
        for ((job, row), cells) in rows().filter(|((_, row), cells)| *cells != row.base) {
            if gpus(cells) == 0 {
                continue;
            }
            let shape = types.shape(parts, cells, offer.free());
            let mut grant = self.grant(view, *job, parts, cells, shape);
            if offer.grant(&grant) != GrantOutcome::NoRoom {
                continue;
            }
            // Host CPUs and memory are shared by all rows, ceilings by all jobs of a tenant, and the search sees neither:
            // the placer may know another place, and what a job holds or the least it runs on is better than nothing.
            let held = job.state.planned.as_ref();
            let held = held.map(|planned| Shape::Exact(planned.placement.clone()));
            let others = [Some(anywhere(gpus(cells))), held, Some(anywhere(row.least))];
            for shape in others.into_iter().flatten() {
                grant.shape = shape;
                if offer.grant(&grant) == GrantOutcome::Taken {
                    break;
                }
            }
        }
        for ((job, row), _) in rows().filter(|(_, cells)| gpus(cells) == 0) {
            let least = Grant { shape: anywhere(row.least), ..wanted(*job) };
            if !types.are_nodes_cut() || offer.grant(&least) != GrantOutcome::Taken {
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
        parts: &Parts,
        cells: &[u8],
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

/// The most GPUs that a job could have if its tenant ran nothing else.
fn ceiling(view: &View<'_>, job: JobRef<'_>) -> u32 {
    let tenants = view.tenants();
    let ceilings = tenants.path(job.spec.tenant).filter_map(|id| tenants.get(id).ceiling);
    let share = u64::from(job.spec.want.permille.max(1));
    ceilings.min().map_or(u32::MAX, |gpus| (u64::from(gpus) * 1000 / share) as u32)
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
