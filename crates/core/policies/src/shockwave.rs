//! Shockwave: a window of rounds planned ahead for the welfare of all, with a forecast of how jobs will change.
//!
//! - `forecast`: how long a job will take still, when its batch size may change.
//! - `target`: when it should be over by right, and what it weighs when it is late.
//! - `welfare`: how many rounds of the window each job gets; `knapsack` is its core.
//! - `calendar`: which rounds these are.
//! - `constants`: the two numbers that weigh makespan and lateness, chosen for each plan.

mod calendar;
mod constants;
mod forecast;
mod knapsack;
mod target;
#[cfg(test)]
mod tests;
mod welfare;

use crate::prelude::*;
use calendar::{Booking, Calendar};
use constants::{Constant, Prospect};
use forecast::{BatchHistory, LastOutlook, Outlook};
use std::cmp::Reverse;
use target::Target;
use trainyard_framework::Knowledge;
use trainyard_types::IdMap;
use welfare::{Candidate, Chosen, Program};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "shockwave",
    about: "A window of rounds is planned ahead for the log welfare of all jobs, fair in finish time, with a forecast of changing batch sizes.",
    paper: "Zheng et al., Shockwave, NSDI 2023",
    needs: Needs { work_left: Knowledge::Estimate, rates: true, ..Needs::NOTHING },
    class: Taxonomy::rigid(Objective::Fairness, Family::Optimiser).preemptive(),
    settings: &[
        ("round", "the length of a round; jobs start and stop at its multiples"),
        ("window", "rounds that are planned ahead"),
        ("replan", "rounds after which a plan is made anew though no job came or went"),
        (
            "k",
            "what a second of the longest time left costs in the plan; `auto` chooses for each plan",
        ),
        ("lambda", "the power of lateness that a late job weighs; `auto` chooses for each plan"),
        (
            "rho_max",
            "the largest ratio of finish time to fair finish time that a plan must keep while it can",
        ),
        (
            "rules",
            "`ours`, or `authors`: progress in whole epochs, lateness from the start of the run, their constants",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    round: Span,
    window: u32,
    replan: u32,
    k: Constant,
    lambda: Constant,
    rho_max: f64,
    rules: Rules,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            round: Span::secs(120),
            window: 20,
            replan: 8,
            k: Constant::AUTO,
            lambda: Constant::AUTO,
            rho_max: 1.0,
            rules: Rules::Ours,
        }
    }
}

/// In what we and the authors' program differ.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Rules {
    /// Progress as it is, lateness since the submission of a job.
    #[default]
    Ours,
    /// Progress in whole epochs, lateness since the start of the run.
    Authors,
}

/// O(n + G w log n) for a plan of w rounds for n jobs whose sizes divide each other on G GPUs, O(n + s G w log(G w)) for s
/// other sizes, times the steps of a search (about 20) and the constants tried; O(n log n) for a round without a new plan.
struct Shockwave {
    settings: Settings,
    /// What was seen of each job, and when it should be over.
    memory: IdMap<JobId, Memory>,
    plan: Option<Plan>,
    /// The round of the last decision.
    current: Option<u64>,
    /// Whether rounds after it were left out, because they are alike by the plan.
    asleep: bool,
}

/// What is remembered of one job.
#[derive(Clone, Default)]
struct Memory {
    history: BatchHistory,
    target: Target,
    outlook: Option<LastOutlook>,
}

/// A window of rounds.
struct Plan {
    /// Its first round.
    since: u64,
    /// The jobs it was made for, by id.
    jobs: Vec<JobId>,
    /// For how many GPUs.
    gpus: u32,
    /// Which jobs run in each round, by id.
    rounds: Vec<Vec<JobId>>,
    /// All of them, the longest time left first.
    longest: Vec<JobId>,
}

/// A job as a plan sees it.
struct Planned<'a> {
    job: JobRef<'a>,
    outlook: Outlook,
    /// Seconds since what lateness is counted from.
    clock: f64,
    /// When it should be over on that clock.
    target: f64,
    /// Whether it may not be stopped.
    is_pinned: bool,
}

impl Shockwave {
    /// Takes note of all jobs, and forgets those that ended.
    fn note(&mut self, active: &[JobRef<'_>], view: &View<'_>) {
        if self.memory.len() > 2 * active.len() + 64 {
            let is_gone = |id: &JobId| active.binary_search_by_key(id, JobRef::id).is_err();
            let gone: Vec<JobId> = self.memory.keys().filter(is_gone).collect();
            for job in gone {
                self.memory.remove(&job);
            }
        }
        for job in active {
            self.memory_of(job.id()).history.note(*job, view);
        }
    }

    /// What is remembered of a job; nothing yet of one that is new.
    fn memory_of(&mut self, job: JobId) -> &mut Memory {
        if !self.memory.contains_key(&job) {
            self.memory.insert(job, Memory::default());
        }
        self.memory.get_mut(&job).expect("it is there now")
    }

    /// Whether the plan is of use for a round.
    fn is_planned(&self, round: u64, active: &[JobRef<'_>], gpus: u32) -> bool {
        let length = u64::from(self.settings.replan.min(self.settings.window));
        self.plan.as_ref().is_some_and(|plan| {
            round < plan.since + length
                && round >= plan.since
                && plan.gpus == gpus
                && plan.jobs.iter().copied().eq(active.iter().map(JobRef::id))
        })
    }

    /// The first round after one that the plan does not have alike, or that needs a new plan.
    ///
    /// Jobs that run on in the same company stay where they are, and what is idle stays with those that have it. Where
    /// the batches of jobs change they are looked at in every round, and so are jobs that may not be stopped for a while.
    fn next_round(&self, round: u64, active: &[JobRef<'_>], view: &View<'_>, gpus: u32) -> u64 {
        let pinned = view.granted().any(|job| !view.may_stop(job));
        let watched = active.iter().any(|job| view.batches(*job).is_some());
        let Some(plan) = &self.plan else { return round + 1 };
        let alike = |other: u64| {
            let of = |round: u64| plan.rounds.get(round.saturating_sub(plan.since) as usize);
            self.is_planned(other, active, gpus) && of(other) == of(round)
        };
        if pinned || watched || view.learns() || !self.is_planned(round + 1, active, gpus) {
            return round + 1;
        }
        let last = plan.since + u64::from(self.settings.replan.min(self.settings.window));
        (round + 1..last).find(|other| !alike(*other)).unwrap_or(last)
    }

    /// Makes a plan for the window that begins with a round.
    fn make_plan(&mut self, round: u64, active: &[JobRef<'_>], view: &View<'_>, gpus: u32) {
        let jobs: Vec<JobId> = active.iter().map(JobRef::id).collect();
        let is_new = self.plan.as_ref().is_none_or(|plan| plan.jobs != jobs);
        let planned = self.outlooks((round, is_new), active, view, gpus);
        let window = self.settings.window;
        let mut rounds = Vec::new();
        if let Some((program, chosen)) = self.choose(&planned, gpus) {
            let booking = |(index, count): (usize, &u32)| Booking {
                gpus: planned[index].gpus(),
                rounds: *count,
                urgency: program.jobs[index].weight,
                runs: planned[index].job.state.planned.is_some(),
            };
            let bookings: Vec<Booking> = chosen.rounds.iter().enumerate().map(booking).collect();
            let mut calendar = Calendar::new(&bookings, gpus, window);
            calendar.fit(&bookings, &program);
            let ids = |round: Vec<usize>| {
                let mut ids: Vec<JobId> =
                    round.into_iter().map(|at| planned[at].job.id()).collect();
                ids.sort_unstable();
                ids
            };
            rounds = calendar.rounds.into_iter().map(ids).collect();
        }
        let mut longest: Vec<(Reverse<u64>, JobId)> = planned
            .iter()
            .map(|one| (Reverse(Span::from_secs_f64(one.outlook.rest).0), one.job.id()))
            .collect();
        longest.sort_unstable();
        let longest = longest.into_iter().map(|(_, id)| id).collect();
        self.plan = Some(Plan { since: round, jobs, gpus, rounds, longest });
    }

    /// What is believed about all jobs that the cluster can hold.
    fn outlooks<'a>(
        &mut self,
        (round, is_new): (u64, bool),
        active: &[JobRef<'a>],
        view: &View<'_>,
        gpus: u32,
    ) -> Vec<Planned<'a>> {
        let whole = self.settings.rules == Rules::Authors;
        let fitting: Vec<JobRef<'a>> =
            active.iter().copied().filter(|job| job.spec.want.gpus <= gpus).collect();
        let known: Vec<Option<Outlook>> = fitting
            .iter()
            .map(|job| {
                let Memory { history, outlook, .. } = self.memory.get_mut(&job.id())?;
                LastOutlook::of(outlook, history, (*job, view), whole)
            })
            .collect();
        let unknown = self.unknown(&known);
        let share = share(gpus, fitting.len());
        let mut planned = Vec::with_capacity(fitting.len());
        for (job, outlook) in fitting.into_iter().zip(known) {
            // Time on GPUs stands for progress, so that those alike take turns.
            let outlook = outlook.unwrap_or_else(|| {
                let past = job.state.ran(view.now).as_secs_f64();
                Outlook { total: past + unknown, done: past, past, rest: unknown, pace: 1.0 }
            });
            let (origin, submitted) = self.clock_of(job);
            let target = &mut self.memory_of(job.id()).target;
            if is_new {
                target.push(round, submitted - origin + (outlook.past + outlook.rest) / share);
            }
            planned.push(Planned {
                clock: view.now.as_secs_f64() - origin,
                target: target.at(round),
                is_pinned: job.state.planned.is_some() && !view.may_stop(job),
                job,
                outlook,
            });
        }
        planned
    }

    /// From when on the lateness of a job is counted, and its submission, both in seconds.
    fn clock_of(&self, job: JobRef<'_>) -> (f64, f64) {
        let submitted = job.spec.submitted;
        match self.settings.rules {
            Rules::Ours => (submitted.as_secs_f64(), submitted.as_secs_f64()),
            // Their scheduler hears of a job when the next round begins.
            Rules::Authors => {
                let round = self.settings.round.0;
                (0.0, Time(submitted.0.div_ceil(round).saturating_mul(round)).as_secs_f64())
            }
        }
    }

    /// Seconds left of a job whose length is not known: the median of the others, or as long as the window.
    fn unknown(&self, known: &[Option<Outlook>]) -> f64 {
        let mut rests: Vec<f64> = known.iter().flatten().map(|outlook| outlook.rest).collect();
        let window = self.settings.round.as_secs_f64() * f64::from(self.settings.window);
        let middle = rests.len() / 2;
        match rests.is_empty() {
            true => window,
            false => *rests.select_nth_unstable_by(middle, f64::total_cmp).1,
        }
    }

    /// The program and its answer: with the constraint of fairness if it can be kept, else with weights in its place.
    fn choose(&self, planned: &[Planned<'_>], gpus: u32) -> Option<(Program, Chosen)> {
        let mut program = self.fair_program(planned, gpus);
        let ground = program.ground();
        if program.is_feasible() {
            let chosen = program.solve_on(&ground)?;
            return Some((program, chosen));
        }
        let share = share(gpus, planned.len());
        let length = self.settings.round.as_secs_f64();
        let given = self.settings.lambda.given().or(match self.settings.rules {
            Rules::Ours => None,
            Rules::Authors => Some(constants::of_authors(gpus).1),
        });
        let mut tried: Vec<(Program, Chosen)> = Vec::new();
        let mut prospects = Vec::new();
        for lambda in constants::powers(given) {
            for (job, one) in program.jobs.iter_mut().zip(planned) {
                job.least = if one.is_pinned { job.most(program.rounds) } else { 0 };
                let rho = (one.clock + one.outlook.rest / share) / one.target;
                let is_last = one.outlook.rest < length;
                job.weight = target::weight(rho / self.settings.rho_max, lambda, is_last);
            }
            let chosen = program.solve_on(&ground)?;
            prospects.push(self.prospect(planned, &program, &chosen));
            tried.push((program.clone(), chosen));
        }
        let window = length * f64::from(self.settings.window);
        let best = constants::best(&prospects, window)?;
        Some(tried.swap_remove(best))
    }

    /// The program with the constraint of fairness.
    fn fair_program(&self, planned: &[Planned<'_>], gpus: u32) -> Program {
        let share = share(gpus, planned.len());
        let Settings { window, rho_max, .. } = self.settings;
        let length = self.settings.round.as_secs_f64();
        let jobs: Vec<Candidate> = planned.iter().map(|one| one.candidate(length)).collect();
        let k = self.settings.k.given().unwrap_or_else(|| match self.settings.rules {
            Rules::Ours => {
                let left: Vec<f64> = jobs.iter().map(|job| job.left).collect();
                constants::cost_of_second(drain(&jobs, &left, gpus), window)
            }
            Rules::Authors => constants::of_authors(gpus).0,
        });
        let mut program = Program { jobs, gpus, rounds: window, k };
        for (job, one) in program.jobs.iter_mut().zip(planned) {
            job.least = match one.is_pinned {
                true => job.most(window),
                false => one.least((rho_max, share), (length, window)),
            };
        }
        program
    }

    /// What a plan leads to by its own forecast.
    fn prospect(&self, planned: &[Planned<'_>], program: &Program, chosen: &Chosen) -> Prospect {
        let left: Vec<f64> =
            program.jobs.iter().zip(&chosen.rounds).map(|(job, count)| job.left(*count)).collect();
        let share = share(program.gpus, planned.len());
        let window = self.settings.round.as_secs_f64() * f64::from(self.settings.window);
        let late = planned.iter().zip(&left).map(|(one, left)| {
            let more = if *left > 0.0 { window + left / share } else { one.outlook.rest };
            ((one.clock + more) / one.target - 1.0).max(0.0)
        });
        Prospect { late: late.sum(), drain: drain(&program.jobs, &left, program.gpus) }
    }

    /// Grants what the plan says for a round, and what is idle to the jobs with the longest time left.
    fn grant(&self, round: u64, view: &View<'_>, offer: &mut Offer<'_>) {
        let Some(plan) = &self.plan else { return };
        let index = round.saturating_sub(plan.since) as usize;
        // A job of the plan may have been held by its user since.
        let takes_part = |id: &JobId| {
            let state = view.state();
            let active = state.waiting.contains(*id) || state.granted.contains(*id);
            view.job(*id).filter(|_| active)
        };
        let mut chosen: Vec<JobRef<'_>> =
            plan.rounds.get(index).into_iter().flatten().filter_map(takes_part).collect();
        // A job that stays, stays in place; then large gangs, which are the hardest to place.
        let order =
            |job: &JobRef<'_>| (job.state.planned.is_none(), Reverse(job.spec.want.gpus), job.id());
        chosen.sort_unstable_by_key(order);
        let others = plan.longest.iter().filter_map(takes_part);
        for job in chosen.into_iter().chain(others) {
            if offer.plan(job.id()).is_none() && offer.grant(&wanted(job)) == GrantOutcome::Full {
                break;
            }
        }
    }
}

impl Planned<'_> {
    /// GPUs that a round of it takes; a share of one counts as one.
    fn gpus(&self) -> u32 {
        self.job.spec.want.gpus.max(1)
    }

    fn candidate(&self, length: f64) -> Candidate {
        let Outlook { total, done, pace, rest, .. } = self.outlook;
        Candidate {
            gpus: self.gpus(),
            weight: 1.0,
            done: (done / total).clamp(0.0, 1.0),
            step: length / pace / total,
            left: rest,
            round: length,
            least: 0,
        }
    }

    /// Rounds of the window without which it cannot be over in time if it gets an equal share afterwards; more than
    /// the window has if none suffice.
    fn least(&self, (rho_max, share): (f64, f64), (length, window): (f64, u32)) -> u32 {
        let end = self.clock + length * f64::from(window);
        let slack = (self.target * rho_max - end) * share;
        if slack < 0.0 {
            return window + 1;
        }
        libm::ceil((self.outlook.rest - slack) / length - 1e-9).clamp(0.0, f64::from(window) + 1.0)
            as u32
    }
}

/// Seconds in which a cluster could at best do what is left of some jobs, given for each.
fn drain(jobs: &[Candidate], left: &[f64], gpus: u32) -> f64 {
    let longest = left.iter().copied().fold(0.0, f64::max);
    let all: f64 = jobs.iter().zip(left).map(|(job, left)| f64::from(job.gpus) * left).sum();
    longest.max(all / f64::from(gpus.max(1)))
}

/// The part of its time that each of so many jobs may run.
fn share(gpus: u32, jobs: usize) -> f64 {
    (f64::from(gpus) / jobs.max(1) as f64).clamp(f64::MIN_POSITIVE, 1.0)
}

impl Policy for Shockwave {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let mut active: Vec<JobRef<'_>> = view.waiting().chain(view.granted()).collect();
        active.sort_unstable_by_key(JobRef::id);
        self.note(&active, view);
        if active.is_empty() {
            self.asleep = false;
            return Ok(());
        }
        let length = self.settings.round.0;
        let round = view.now.0 / length;
        if std::mem::take(&mut self.asleep) && !view.now.0.is_multiple_of(length) {
            // The round has begun, alike to the one before.
            self.current = Some(round);
        }
        let gpus = offer.free().in_service_total();
        if self.current.replace(round) != Some(round) {
            if !self.is_planned(round, &active, gpus) {
                self.make_plan(round, &active, view, gpus);
            }
            offer.everything();
        }
        self.grant(round, view, offer);
        if view.waiting_len() > 0 {
            let next = self.next_round(round, &active, view, gpus);
            self.asleep = next > round + 1;
            offer.wake_at(Time(next.saturating_mul(length)));
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.memory = IdMap::default();
        self.plan = None;
        self.current = None;
        self.asleep = false;
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    if settings.round < Span::secs(1) {
        return Err(ENTRY.bad_value("round", settings.round, "at least a second"));
    }
    if !(1..=1000).contains(&settings.window) {
        return Err(ENTRY.bad_value("window", settings.window, "from 1 to 1000 rounds"));
    }
    if settings.replan == 0 {
        return Err(ENTRY.bad_value("replan", settings.replan, "at least 1 round"));
    }
    if !(settings.rho_max > 0.0 && settings.rho_max.is_finite()) {
        return Err(ENTRY.bad_value("rho_max", settings.rho_max, "a number above 0"));
    }
    for (key, constant) in [("k", &settings.k), ("lambda", &settings.lambda)] {
        if let Some(value) = constant.given()
            && !(value >= 0.0 && value.is_finite())
        {
            return Err(ENTRY.bad_value(key, value, "`auto` or a number from 0 on"));
        }
    }
    let policy =
        Shockwave { settings, memory: IdMap::default(), plan: None, current: None, asleep: false };
    Ok(Pipeline::new(policy, FewestNodes, ENTRY.needs))
}
