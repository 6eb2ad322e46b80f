//! CC-OS: threads for each operator and operators side by side on a many-core CPU (IPDPS 2019).
//!
//! Training repeats its operators, so the first steps are used to time an operator with a few numbers of threads. A hill
//! climb finds the best number, what was not timed is interpolated, and ready operators are started beside each other in
//! the cores that are left.

use crate::PlanError;
use crate::registry::{Level, PlannerEntry, Problem};
use std::collections::BTreeMap;

/// The row in the table of planners.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "cc-os",
    about: "threads for each operator by a hill climb in the first steps, and operators side by side on one CPU",
    paper: "Liu, Li, Kestor and Vetter, Runtime Concurrency Control and Operation Scheduling for High Performance Neural Network Training, IPDPS 2019",
    level: Level::Operator,
    partial: "times by threads are a curve that the caller states; no measurement of ours stands behind them",
    problem: Problem::Stated {
        what: "threads and co-running of operators on a CPU",
        solve: crate::stated::solve_cc_os,
        example: crate::stated::CC_OS,
    },
};

/// One operator on a CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuOperator {
    /// Its name.
    pub name: String,
    /// Seconds that no thread shortens.
    pub serial: f64,
    /// Seconds that threads share.
    pub parallel: f64,
    /// Seconds that each thread costs.
    pub per_thread: f64,
    /// The part of the memory's bandwidth that it takes while it runs.
    pub memory_share: f64,
    /// Operators that must have ended, by index; each is a lower one.
    pub after: Vec<usize>,
}

impl CpuOperator {
    /// Its seconds on so many threads, each on a core of its own.
    pub fn seconds(&self, threads: u32) -> f64 {
        let threads = f64::from(threads.max(1));
        self.serial + self.parallel / threads + self.per_thread * threads
    }
}

/// What may be set; the paper's figures for these are not known to us.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Cores of the CPU.
    pub cores: u32,
    /// Threads between two timings of the hill climb.
    pub interval: u32,
    /// Operators whose shares of the bandwidth sum to more are kept apart.
    pub memory_max: f64,
    /// How much longer than what runs an operator beside it may take.
    pub slack: f64,
    /// The speed of an operator on the second hardware threads of cores that are taken.
    pub second_speed: f64,
    /// How much of a second of such an operator the one that has the cores loses.
    pub second_cost: f64,
    /// Operators shorter than this part of what runs may use second hardware threads.
    pub small_share: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            cores: 32,
            interval: 4,
            memory_max: 1.0,
            slack: 0.1,
            second_speed: 0.4,
            second_cost: 0.1,
            small_share: 0.5,
        }
    }
}

/// What timings told of one operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Seconds by threads, for those that were timed.
    pub timed: BTreeMap<u32, f64>,
    /// The number of threads with the least.
    pub best: u32,
}

impl Curve {
    /// Seconds on so many threads: timed, or on the line between the two timings beside it.
    pub fn seconds(&self, threads: u32) -> f64 {
        let below = self.timed.range(..=threads).next_back();
        let above = self.timed.range(threads..).next();
        match (below, above) {
            (Some((a, x)), Some((b, y))) if a < b => {
                x + (y - x) * f64::from(threads - a) / f64::from(b - a)
            }
            (Some((_, x)), _) | (None, Some((_, x))) => *x,
            (None, None) => f64::INFINITY,
        }
    }
}

/// Times an operator with one thread, then with `interval` more, until it gets slower: the hill climb.
pub fn climb(timing: &dyn Fn(u32) -> f64, settings: &Settings) -> Curve {
    let mut timed = BTreeMap::from([(1, timing(1))]);
    let (mut best, mut least) = (1, timed[&1]);
    let mut threads = 1;
    while threads < settings.cores {
        threads = match threads {
            1 => settings.interval.max(2).min(settings.cores),
            more => (more + settings.interval.max(1)).min(settings.cores),
        };
        let seconds = timing(threads);
        timed.insert(threads, seconds);
        if seconds >= least {
            break;
        }
        (best, least) = (threads, seconds);
    }
    Curve { timed, best }
}

/// When and on how many threads each operator runs.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuPlan {
    /// Threads of each.
    pub threads: Vec<u32>,
    /// When each starts.
    pub start: Vec<f64>,
    /// When each ends.
    pub end: Vec<f64>,
    /// When the last one ends.
    pub seconds: f64,
    /// Timings that were taken.
    pub timings: usize,
}

/// A default framework: one operator after the other, on all cores.
pub fn one_by_one(operators: &[CpuOperator], cores: u32) -> Result<CpuPlan, PlanError> {
    check(operators)?;
    let (mut start, mut end, mut now) = (Vec::new(), Vec::new(), 0.0);
    for operator in operators {
        start.push(now);
        now += operator.seconds(cores);
        end.push(now);
    }
    let threads = vec![cores; operators.len()];
    Ok(CpuPlan { threads, start, end, seconds: now, timings: 0 })
}

/// The plan after the first steps: O(n^2) for n operators.
pub fn plan(operators: &[CpuOperator], settings: &Settings) -> Result<CpuPlan, PlanError> {
    plan_within(operators, settings, settings.cores)
}

/// Ours: the best of plans in which no operator has more than all cores, three quarters, a half and so on of them, so that
/// operators that are ready together need not go one after the other.
pub fn best_plan(operators: &[CpuOperator], settings: &Settings) -> Result<CpuPlan, PlanError> {
    let mut best = plan(operators, settings)?;
    for (over, under) in [(3, 4), (1, 2), (1, 3), (1, 4), (1, 8)] {
        let most = (settings.cores * over / under).max(1);
        let other = plan_within(operators, settings, most)?;
        if other.seconds < best.seconds {
            best = other;
        }
    }
    Ok(best)
}

fn plan_within(
    operators: &[CpuOperator],
    settings: &Settings,
    most: u32,
) -> Result<CpuPlan, PlanError> {
    check(operators)?;
    let curves: Vec<Curve> = (operators.iter())
        .map(|one| climb(&|threads| one.seconds(threads), settings))
        .map(|curve| Curve { best: curve.best.min(most), ..curve })
        .collect();
    let mut tails = vec![0.0f64; operators.len()];
    for at in (0..operators.len()).rev() {
        tails[at] += curves[at].seconds(curves[at].best);
        for before in &operators[at].after {
            tails[*before] = tails[*before].max(tails[at]);
        }
    }
    let mut order: Vec<usize> = (0..operators.len()).collect();
    order.sort_by(|a, b| tails[*b].total_cmp(&tails[*a]).then(a.cmp(b)));
    let timings = curves.iter().map(|one| one.timed.len()).sum();
    let mut state = Running {
        operators,
        curves: &curves,
        settings,
        free: settings.cores,
        second_free: settings.cores,
        now: 0.0,
        running: Vec::new(),
        plan: CpuPlan {
            threads: vec![0; operators.len()],
            start: vec![f64::NAN; operators.len()],
            end: vec![f64::NAN; operators.len()],
            seconds: 0.0,
            timings,
        },
    };
    loop {
        order.iter().for_each(|at| state.try_start(*at));
        let ends = state.running.iter().map(|(at, ..)| state.plan.end[*at]);
        let Some(next) = ends.min_by(f64::total_cmp) else { break };
        state.advance(next);
    }
    state.plan.seconds = state.now;
    Ok(state.plan)
}

struct Running<'a> {
    operators: &'a [CpuOperator],
    curves: &'a [Curve],
    settings: &'a Settings,
    free: u32,
    second_free: u32,
    now: f64,
    /// What runs, on how many threads, and whether on second hardware threads.
    running: Vec<(usize, u32, bool)>,
    plan: CpuPlan,
}

impl Running<'_> {
    fn is_ready(&self, at: usize) -> bool {
        let ended = |before: &usize| self.plan.end[*before] <= self.now;
        self.plan.start[at].is_nan() && self.operators[at].after.iter().all(ended)
    }

    fn try_start(&mut self, at: usize) {
        if !self.is_ready(at) {
            return;
        }
        let beside: f64 =
            self.running.iter().map(|(one, ..)| self.operators[*one].memory_share).sum();
        let crowded = beside + self.operators[at].memory_share > self.settings.memory_max;
        if !self.running.is_empty() && crowded {
            return;
        }
        let curve = &self.curves[at];
        let longest = self.running.iter().map(|(one, ..)| self.plan.end[*one] - self.now);
        let longest = longest.fold(0.0, f64::max);
        if self.free > 0 {
            let threads = curve.best.min(self.free);
            let seconds = curve.seconds(threads);
            // With fewer threads than are best only what ends with what runs, so that nothing waits for it.
            let ends_in_time = seconds <= longest * (1.0 + self.settings.slack);
            if self.running.is_empty() || threads == curve.best || ends_in_time {
                self.start(at, threads, false);
                return;
            }
        }
        let threads = curve.best.min(self.second_free);
        let small = longest * self.settings.small_share;
        let is_small = threads > 0 && curve.seconds(threads) / self.settings.second_speed <= small;
        let has_host = self.running.iter().any(|(_, _, is_second)| !is_second);
        if is_small && has_host {
            self.start(at, threads, true);
        }
    }

    fn start(&mut self, at: usize, threads: u32, is_second: bool) {
        // What really happens, which the curve only estimates.
        let alone = self.operators[at].seconds(threads);
        let seconds = if is_second { alone / self.settings.second_speed } else { alone };
        if is_second {
            self.second_free -= threads;
            let hosts = self.running.iter().filter(|(.., second)| !second).map(|(one, ..)| *one);
            let ends = |one: usize| self.plan.end[one];
            let host = hosts.max_by(|a, b| ends(*a).total_cmp(&ends(*b)).then(b.cmp(a)));
            self.plan.end[host.expect("it has a host")] += seconds * self.settings.second_cost;
        } else {
            self.free -= threads;
        }
        self.plan.threads[at] = threads;
        self.plan.start[at] = self.now;
        self.plan.end[at] = self.now + seconds;
        self.running.push((at, threads, is_second));
    }

    fn advance(&mut self, to: f64) {
        self.now = to;
        let (over, running) = std::mem::take(&mut self.running)
            .into_iter()
            .partition(|(at, ..)| self.plan.end[*at] <= to);
        self.running = running;
        for (_, threads, is_second) in Vec::<(usize, u32, bool)>::into_iter(over) {
            match is_second {
                true => self.second_free += threads,
                false => self.free += threads,
            }
        }
    }
}

fn check(operators: &[CpuOperator]) -> Result<(), PlanError> {
    for (at, one) in operators.iter().enumerate() {
        if let Some(before) = one.after.iter().find(|before| **before >= at) {
            let other = operators.get(*before).map_or("?", |other| other.name.as_str());
            return Err(PlanError::Cycle(vec![other.to_owned(), one.name.clone()]));
        }
        let figures = [
            ("serial", one.serial),
            ("parallel", one.parallel),
            ("per_thread", one.per_thread),
            ("memory_share", one.memory_share),
        ];
        let bad = figures.iter().find(|(_, value)| !value.is_finite() || *value < 0.0);
        if let Some((field, value)) = bad.copied() {
            return Err(PlanError::Figure { operator: one.name.clone(), field, value });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;

    fn operators(draws: &mut Draws, count: usize) -> Vec<CpuOperator> {
        let operator = |at: usize, draws: &mut Draws| CpuOperator {
            name: format!("o{at}"),
            serial: 0.001 * draws.unit(),
            parallel: 0.05 * draws.unit() * draws.unit(),
            // Best between 2 threads and more than there are.
            per_thread: 0.00004 * draws.unit(),
            memory_share: 0.6 * draws.unit(),
            after: (0..at).filter(|before| at - before < 4 && draws.unit() < 0.4).collect(),
        };
        (0..count).map(|at| operator(at, draws)).collect()
    }

    /// The least over all numbers of threads and all orders of a list without second hardware threads.
    fn exhaustive(operators: &[CpuOperator], settings: &Settings) -> f64 {
        let choices: Vec<u32> =
            [1, 2, 4, 8, 12, 16].into_iter().filter(|one| *one <= settings.cores).collect();
        fn go(
            (operators, settings, choices): (&[CpuOperator], &Settings, &[u32]),
            placed: &mut Vec<(f64, f64, u32, usize)>,
            best: &mut f64,
        ) {
            if placed.len() == operators.len() {
                *best = best.min(placed.iter().map(|one| one.1).fold(0.0, f64::max));
                return;
            }
            for at in 0..operators.len() {
                if placed.iter().any(|one| one.3 == at) {
                    continue;
                }
                let ends: Option<Vec<f64>> = (operators[at].after.iter())
                    .map(|before| placed.iter().find(|one| one.3 == *before).map(|one| one.1))
                    .collect();
                let Some(ends) = ends else { continue };
                let from = ends.into_iter().fold(0.0, f64::max);
                for threads in choices {
                    let seconds = operators[at].seconds(*threads);
                    let moments =
                        placed.iter().map(|one| one.1).chain([from]).filter(|one| *one >= from);
                    let fits = |start: f64| {
                        let inside = placed.iter().map(|one| one.0).chain([start]);
                        inside.filter(|one| *one >= start && *one < start + seconds).all(|moment| {
                            let beside =
                                placed.iter().filter(|one| one.0 <= moment && moment < one.1);
                            let (mut cores, mut memory) = (*threads, operators[at].memory_share);
                            let mut others = 0;
                            for one in beside {
                                (cores, memory) =
                                    (cores + one.2, memory + operators[one.3].memory_share);
                                others += 1;
                            }
                            cores <= settings.cores
                                && (others == 0 || memory <= settings.memory_max)
                        })
                    };
                    let start = moments.filter(|one| fits(*one)).fold(f64::INFINITY, f64::min);
                    if start + seconds < *best {
                        placed.push((start, start + seconds, *threads, at));
                        go((operators, settings, choices), placed, best);
                        placed.pop();
                    }
                }
            }
        }
        let mut best = f64::INFINITY;
        go((operators, settings, &choices), &mut Vec::new(), &mut best);
        best
    }

    /// The paper's direction: a third less on average, up to a half, over one operator at a time on all cores.
    #[test]
    fn chosen_threads_and_co_running_beat_all_cores_for_each() {
        let settings = Settings::default();
        let (mut sum, mut most, mut least) = (0.0, 0.0f64, f64::INFINITY);
        for seed in 0..100 {
            let operators = operators(&mut Draws::new(seed), 40);
            let plan = plan(&operators, &settings).unwrap();
            let default = one_by_one(&operators, settings.cores).unwrap();
            let gain = 1.0 - plan.seconds / default.seconds;
            (sum, most, least) = (sum + gain, most.max(gain), least.min(gain));
            assert!(plan.timings <= operators.len() * 9);
        }
        println!("less by {sum:.0} % in the mean, from {least:.3} to {most:.3}");
        assert!(least > 0.0 && sum / 100.0 > 0.2, "{sum} {least}");
    }

    #[test]
    fn plans_of_small_graphs_are_near_the_best_of_all() {
        let settings = Settings { cores: 16, ..Settings::default() };
        let (mut sum, mut worst, mut paper_sum) = (0.0, 0.0f64, 0.0);
        for seed in 0..30 {
            let operators = operators(&mut Draws::new(500 + seed), 4);
            let best = exhaustive(&operators, &settings);
            let paper = plan(&operators, &settings).unwrap().seconds / best - 1.0;
            let gap = best_plan(&operators, &settings).unwrap().seconds / best - 1.0;
            assert!(gap <= paper);
            (sum, worst, paper_sum) = (sum + gap, worst.max(gap), paper_sum + paper);
        }
        println!(
            "mean gap {:.1} %, ours {:.1} %, worst {:.1} %",
            paper_sum / 0.3,
            sum / 0.3,
            100.0 * worst
        );
        assert!(sum < 0.8 * paper_sum && sum / 30.0 < 0.15, "{sum} {paper_sum} {worst}");
    }

    #[test]
    fn no_core_is_given_twice_and_interfering_operators_are_apart() {
        let settings = Settings::default();
        for seed in 0..50 {
            let operators = operators(&mut Draws::new(seed), 30);
            let plan = plan(&operators, &settings).unwrap();
            for at in 0..operators.len() {
                let now = plan.start[at];
                let is_beside = |one: &usize| plan.start[*one] <= now && now < plan.end[*one];
                let beside: Vec<usize> = (0..operators.len()).filter(is_beside).collect();
                let threads: u32 = beside.iter().map(|one| plan.threads[*one]).sum();
                let memory: f64 = beside.iter().map(|one| operators[*one].memory_share).sum();
                assert!(threads <= 2 * settings.cores, "seed {seed}: {threads}");
                assert!(beside.len() < 2 || memory <= settings.memory_max + 1e-12, "seed {seed}");
                assert!(operators[at].after.iter().all(|before| plan.end[*before] <= now));
            }
        }
    }

    #[test]
    fn the_hill_climb_ends_near_the_best_number_with_few_timings() {
        let settings = Settings::default();
        let one = CpuOperator {
            name: "conv".to_owned(),
            serial: 0.0,
            parallel: 0.1,
            per_thread: 0.0007,
            memory_share: 0.0,
            after: Vec::new(),
        };
        let curve = climb(&|threads| one.seconds(threads), &settings);
        // Best at sqrt(0.1 / 0.0007), which is 12.
        assert_eq!((curve.best, curve.timed.len()), (12, 5));
        let least = (1..=32).map(|threads| one.seconds(threads)).fold(f64::INFINITY, f64::min);
        assert!(one.seconds(curve.best) <= 1.01 * least);
    }

    #[test]
    fn faults_name_the_operator() {
        let mut operators = operators(&mut Draws::new(1), 3);
        operators[1].after = vec![2];
        let error = plan(&operators, &Settings::default()).unwrap_err().to_string();
        assert_eq!(error, "the graph has a cycle: o2 -> o1");
        operators[1].after = Vec::new();
        operators[2].parallel = f64::NAN;
        let error = plan(&operators, &Settings::default()).unwrap_err().to_string();
        assert!(error.contains("operator `o2`: `parallel`"), "{error}");
    }
}
