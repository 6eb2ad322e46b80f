//! The best schedule of few jobs on like GPUs, by branch and bound.
//!
//! Jobs have a fixed number of GPUs and run to their end once they began; any GPUs are as good as any others. For measures
//! that never fall when a job ends later, some best schedule begins every job at a moment at which one is ready or ends, so
//! that the search goes from one such moment to the next and begins some of the jobs that fit at each.

use rustc_hash::FxHashMap;
use trainyard_types::{Span, Time};

/// A job with a fixed number of GPUs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rigid {
    /// The earliest moment at which it may begin, from where its completion time counts.
    pub ready: Time,
    /// How long it runs.
    pub time: Span,
    /// On how many GPUs.
    pub gpus: u32,
    /// The moment by which it should end, if there is one.
    pub deadline: Option<Time>,
}

/// What is made as small as possible.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The sum of completion times, in microseconds.
    Completion,
    /// The last end, in microseconds from the first moment at which a job is ready.
    Makespan,
    /// The number of deadlines that are missed.
    Missed,
}

/// The best schedule that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Optimum {
    /// What the goal comes to.
    pub cost: u64,
    /// When each job begins.
    pub starts: Vec<Time>,
    /// Whether it is proven that none is better; else the search came to its limit.
    pub proven: bool,
}

/// Jobs that the search takes, at most: their sets are masks.
const JOBS_MAX: usize = 32;

/// The best schedule of jobs on so many GPUs, looked for in at most so many steps. Nothing where a job could never run or
/// there are more than 32. A step costs O(n^2).
pub fn optimum(jobs: &[Rigid], gpus: u32, goal: Goal, steps_max: u64) -> Option<Optimum> {
    if jobs.len() > JOBS_MAX || jobs.iter().any(|job| job.gpus == 0 || job.gpus > gpus) {
        return None;
    }
    let first = jobs.iter().map(|job| job.ready).min().unwrap_or(Time::ZERO);
    let mut search = Search {
        jobs,
        gpus,
        goal,
        first,
        steps_left: steps_max,
        starts: vec![Time::ZERO; jobs.len()],
        best: None,
        seen: FxHashMap::default(),
    };
    let left = if jobs.is_empty() { 0 } else { u32::MAX >> (JOBS_MAX - jobs.len()) };
    for order in orders(jobs) {
        search.try_order(&order);
    }
    let root = Node { now: first, left, running: Vec::new(), cost: 0, from: 0 };
    search.visit(&root);
    let proven = search.steps_left > 0;
    search.best.map(|(cost, starts)| Optimum { cost, starts, proven })
}

/// Orders to begin with: a good schedule found early cuts much off.
fn orders(jobs: &[Rigid]) -> Vec<Vec<usize>> {
    let by = |key: &dyn Fn(&Rigid) -> u64| {
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        order.sort_by_key(|job| (key(&jobs[*job]), *job));
        order
    };
    let area = |job: &Rigid| job.time.0.saturating_mul(u64::from(job.gpus));
    vec![
        by(&|job| job.ready.0),
        by(&|job| job.time.0),
        by(&area),
        by(&|job| u64::MAX - area(job)),
        by(&|job| job.deadline.map_or(u64::MAX, |at| at.0)),
    ]
}

/// A partial schedule at a moment.
#[derive(Clone, Debug)]
struct Node {
    now: Time,
    /// Jobs that have not begun.
    left: u32,
    /// When jobs that run end, and their GPUs, in order.
    running: Vec<(Time, u32)>,
    /// What those that have begun cost.
    cost: u64,
    /// At this moment only jobs from this one on are still begun, so that no set of them is tried twice.
    from: usize,
}

/// A moment that was come to: jobs left, when, and those that run.
type Reached = (u32, Time, Vec<(Time, u32)>);

struct Search<'a> {
    jobs: &'a [Rigid],
    gpus: u32,
    goal: Goal,
    first: Time,
    steps_left: u64,
    starts: Vec<Time>,
    best: Option<(u64, Vec<Time>)>,
    /// The least cost with which each moment was come to.
    seen: FxHashMap<Reached, u64>,
}

impl Search<'_> {
    /// What a job that begins then adds to a cost.
    fn cost_with(&self, cost: u64, job: usize, start: Time) -> u64 {
        let Rigid { ready, time, deadline, .. } = self.jobs[job];
        let end = start + time;
        match self.goal {
            Goal::Completion => cost + end.since(ready).0,
            Goal::Makespan => cost.max(end.since(self.first).0),
            Goal::Missed => cost + u64::from(deadline.is_some_and(|at| end > at)),
        }
    }

    /// Takes note of a whole schedule.
    fn found(&mut self, cost: u64) {
        if self.best.as_ref().is_none_or(|(least, _)| cost < *least) {
            self.best = Some((cost, self.starts.clone()));
        }
    }

    /// Begins each job in turn as early as those before it leave it.
    fn try_order(&mut self, order: &[usize]) {
        let mut running: Vec<(Time, u32)> = Vec::new();
        let (mut now, mut cost) = (self.first, 0);
        for &job in order {
            now = now.max(self.jobs[job].ready);
            loop {
                running.retain(|(end, _)| *end > now);
                let used: u32 = running.iter().map(|(_, gpus)| gpus).sum();
                if used + self.jobs[job].gpus <= self.gpus {
                    break;
                }
                now = running.iter().map(|(end, _)| *end).min().unwrap_or(now);
            }
            running.push((now + self.jobs[job].time, self.jobs[job].gpus));
            self.starts[job] = now;
            cost = self.cost_with(cost, job, now);
        }
        self.found(cost);
    }

    fn is_left(node: &Node, job: usize) -> bool {
        node.left >> job & 1 == 1
    }

    fn visit(&mut self, node: &Node) {
        if node.left == 0 {
            return self.found(node.cost);
        }
        let least = self.best.as_ref().map_or(u64::MAX, |(cost, _)| *cost);
        if self.steps_left == 0 || self.bound(node) >= least {
            return;
        }
        self.steps_left -= 1;
        if node.from == 0 {
            let key = (node.left, node.now, node.running.clone());
            let known = self.seen.entry(key).or_insert(u64::MAX);
            if *known <= node.cost {
                return;
            }
            *known = node.cost;
        }
        let used: u32 = node.running.iter().map(|(_, gpus)| gpus).sum();
        for job in node.from..self.jobs.len() {
            let fits = self.jobs[job].ready <= node.now && self.jobs[job].gpus <= self.gpus - used;
            if Search::is_left(node, job) && fits && !self.has_earlier_twin(node, job) {
                self.starts[job] = node.now;
                self.visit(&self.begun(node, job));
            }
        }
        if let Some(next) = self.next_moment(node)
            && !self.wastes(node, next, self.gpus - used)
        {
            let running = node.running.iter().copied().filter(|(end, _)| *end > next).collect();
            self.visit(&Node { now: next, running, from: 0, ..node.clone() });
        }
    }

    fn begun(&self, node: &Node, job: usize) -> Node {
        let mut running = node.running.clone();
        running.push((node.now + self.jobs[job].time, self.jobs[job].gpus));
        running.sort_unstable();
        let cost = self.cost_with(node.cost, job, node.now);
        Node { now: node.now, left: node.left & !(1 << job), running, cost, from: job + 1 }
    }

    /// Of jobs that are alike the first begins first.
    fn has_earlier_twin(&self, node: &Node, job: usize) -> bool {
        (0..job).any(|other| Search::is_left(node, other) && self.jobs[other] == self.jobs[job])
    }

    /// When a job is ready or ends next.
    fn next_moment(&self, node: &Node) -> Option<Time> {
        let jobs = (0..self.jobs.len()).filter(|job| Search::is_left(node, *job));
        let ready = jobs.map(|job| self.jobs[job].ready).filter(|ready| *ready > node.now);
        ready.chain(node.running.iter().map(|(end, _)| *end)).min()
    }

    /// Whether a job that could begin now would have ended by the next moment: leaving it out helps none.
    fn wastes(&self, node: &Node, next: Time, free: u32) -> bool {
        (0..self.jobs.len()).any(|job| {
            let Rigid { ready, time, gpus, .. } = self.jobs[job];
            let could = Search::is_left(node, job) && ready <= node.now && gpus <= free;
            could && node.now + time <= next
        })
    }

    /// No schedule that goes on from here costs less.
    fn bound(&self, node: &Node) -> u64 {
        let left = (0..self.jobs.len()).filter(|job| Search::is_left(node, *job));
        let begins = |job: usize| self.jobs[job].ready.max(node.now);
        let alone =
            left.clone().fold(node.cost, |cost, job| self.cost_with(cost, job, begins(job)));
        let area = |job: usize| self.jobs[job].time.0 * u64::from(self.jobs[job].gpus);
        let capacity = u64::from(self.gpus);
        match self.goal {
            Goal::Missed => alone,
            Goal::Makespan => {
                let held = |(end, gpus): &(Time, u32)| end.since(node.now).0 * u64::from(*gpus);
                let work: u64 =
                    left.map(area).sum::<u64>() + node.running.iter().map(held).sum::<u64>();
                let filled = node.now.since(self.first).0 + work.div_ceil(capacity);
                alone.max(filled)
            }
            Goal::Completion => {
                let jobs: Vec<(u64, u64, u64)> =
                    left.map(|job| (begins(job).0, area(job), self.jobs[job].ready.0)).collect();
                alone.max(node.cost + fast_machine(jobs, capacity))
            }
        }
    }
}

/// The least sum of completion times of jobs (the moment from which on they may run, area, the moment from which they count)
/// on one machine as fast as all GPUs, the shortest remaining first. In units of one over the GPUs, rounded down. O(n^2).
fn fast_machine(mut jobs: Vec<(u64, u64, u64)>, capacity: u64) -> u64 {
    let mut now = 0;
    let mut sum = 0;
    let scaled = |moment: u64| u128::from(moment) * u128::from(capacity);
    while !jobs.is_empty() {
        let open = (0..jobs.len()).filter(|job| scaled(jobs[*job].0) <= now);
        let Some(job) = open.min_by_key(|job| (jobs[*job].1, *job)) else {
            now = jobs.iter().map(|job| scaled(job.0)).min().unwrap_or(now);
            continue;
        };
        let next = jobs.iter().map(|job| scaled(job.0)).filter(|at| *at > now).min();
        let end = now + u128::from(jobs[job].1);
        match next.filter(|next| *next < end) {
            Some(next) => {
                jobs[job].1 -= (next - now) as u64;
                now = next;
            }
            None => {
                sum += end - scaled(jobs[job].2);
                now = end;
                jobs.swap_remove(job);
            }
        }
    }
    (sum / u128::from(capacity)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random and are the same each time (Lehmer).
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0 * 48_271 % 2_147_483_647;
            self.0 % limit
        }

        fn jobs(&mut self, count: usize, gpus: u32) -> Vec<Rigid> {
            let job = |_| {
                let (ready, time) = (Time(self.below(12)), Span(1 + self.below(9)));
                let width = 1 + self.below(u64::from(gpus)) as u32;
                let slack = Span(self.below(14));
                Rigid { ready, time, gpus: width, deadline: Some(ready + time + slack) }
            };
            (0..count).map(job).collect()
        }
    }

    /// The least cost over all orders, each job as early as possible where those before it in the order are: an active
    /// schedule for each, and some best schedule is one.
    fn brute_force(jobs: &[Rigid], gpus: u32, goal: Goal) -> u64 {
        fn go(jobs: &[Rigid], gpus: u32, goal: Goal, placed: &mut Vec<(usize, Time)>) -> u64 {
            if placed.len() == jobs.len() {
                let first = jobs.iter().map(|job| job.ready).min().unwrap();
                let ends = placed.iter().map(|(job, start)| (*job, *start + jobs[*job].time));
                return match goal {
                    Goal::Completion => ends.map(|(job, end)| end.since(jobs[job].ready).0).sum(),
                    Goal::Makespan => ends.map(|(_, end)| end.since(first).0).max().unwrap(),
                    Goal::Missed => {
                        ends.filter(|(job, end)| jobs[*job].deadline.unwrap() < *end).count() as u64
                    }
                };
            }
            let mut least = u64::MAX;
            for job in 0..jobs.len() {
                if placed.iter().all(|(other, _)| *other != job) {
                    let start = earliest(jobs, gpus, placed, job);
                    placed.push((job, start));
                    least = least.min(go(jobs, gpus, goal, placed));
                    placed.pop();
                }
            }
            least
        }
        go(jobs, gpus, goal, &mut Vec::new())
    }

    /// The first moment, microsecond by microsecond, at which a job fits for its whole length.
    fn earliest(jobs: &[Rigid], gpus: u32, placed: &[(usize, Time)], job: usize) -> Time {
        let busy = |at: u64| -> u32 {
            let runs =
                |start: Time, other: usize| start.0 <= at && at < start.0 + jobs[other].time.0;
            placed.iter().filter(|(o, s)| runs(*s, *o)).map(|(o, _)| jobs[*o].gpus).sum()
        };
        let fits =
            |from: u64| (from..from + jobs[job].time.0).all(|at| busy(at) + jobs[job].gpus <= gpus);
        Time((jobs[job].ready.0..).find(|from| fits(*from)).unwrap())
    }

    /// That a schedule is one, and costs what it is said to.
    fn check(jobs: &[Rigid], gpus: u32, found: &Optimum) {
        for moment in &found.starts {
            let runs = |job: &usize| {
                let start = found.starts[*job];
                start <= *moment && *moment < start + jobs[*job].time
            };
            let used: u32 = (0..jobs.len()).filter(runs).map(|job| jobs[job].gpus).sum();
            assert!(used <= gpus, "{found:?}");
        }
        assert!(jobs.iter().zip(&found.starts).all(|(job, start)| job.ready <= *start));
    }

    #[test]
    fn the_search_finds_what_brute_force_finds() {
        let mut dice = Dice(7);
        for case in 0..40 {
            let jobs = dice.jobs(3 + case % 4, 4);
            for goal in [Goal::Completion, Goal::Makespan, Goal::Missed] {
                let found = optimum(&jobs, 4, goal, 1_000_000).unwrap();
                assert!(found.proven);
                assert_eq!(found.cost, brute_force(&jobs, 4, goal), "{goal:?} of {jobs:?}");
                check(&jobs, 4, &found);
            }
        }
    }

    #[test]
    fn ten_jobs_on_eight_gpus_are_proven_within_a_million_steps() {
        let mut dice = Dice(11);
        for _ in 0..5 {
            let jobs = dice.jobs(10, 8);
            for goal in [Goal::Completion, Goal::Makespan, Goal::Missed] {
                let found = optimum(&jobs, 8, goal, 1_000_000).unwrap();
                assert!(found.proven, "{goal:?} of {jobs:?}");
                check(&jobs, 8, &found);
            }
        }
    }

    #[test]
    fn no_relaxation_is_above_the_optimum() {
        let mut dice = Dice(23);
        for _ in 0..40 {
            let jobs = dice.jobs(6, 4);
            let task = |job: &Rigid| crate::Task {
                submitted: job.ready.as_secs_f64(),
                ready: job.ready.as_secs_f64(),
                start: 0.0,
                time: job.time.as_secs_f64(),
                area: job.time.as_secs_f64() * f64::from(job.gpus),
                deadline: job.deadline.map(Time::as_secs_f64),
            };
            let tasks: Vec<crate::Task> = jobs.iter().map(task).collect();
            let bounds = crate::Bounds::new(&tasks, 4.0).apart;
            let best = |goal| optimum(&jobs, 4, goal, 1_000_000).unwrap().cost;
            let mean = best(Goal::Completion) as f64 / 6.0 / 1e6;
            assert!(bounds.jct_mean_s <= mean + 1e-12, "{bounds:?} {mean}");
            assert!(bounds.makespan_s <= best(Goal::Makespan) as f64 / 1e6 + 1e-12);
            assert!(bounds.deadlines_met.unwrap() >= 6 - best(Goal::Missed));
        }
    }

    #[test]
    fn what_cannot_be_searched_is_refused() {
        let job = Rigid { ready: Time::ZERO, time: Span(1), gpus: 9, deadline: None };
        assert_eq!(optimum(&[job], 8, Goal::Makespan, 10), None);
        assert_eq!(optimum(&[Rigid { gpus: 1, ..job }; 33], 8, Goal::Makespan, 10), None);
        let limited = optimum(&[Rigid { gpus: 5, ..job }; 8], 8, Goal::Completion, 0).unwrap();
        assert!(!limited.proven && limited.cost == (1..=8).sum::<u64>());
    }
}
