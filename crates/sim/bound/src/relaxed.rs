//! Lower bounds by relaxation: each job as if it were alone, and the whole cluster as one fast machine.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The least that a job takes, whatever is decided. In seconds and GPU-seconds.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Task {
    /// When it is submitted, from where its completion time counts.
    pub submitted: f64,
    /// The earliest moment at which it could get GPUs.
    pub ready: f64,
    /// The least time from getting GPUs to its first step.
    pub start: f64,
    /// The least time from its first step to its end.
    pub time: f64,
    /// The least GPU time from its first step to its end; 0 where nothing can be said.
    pub area: f64,
    /// The last moment at which its end is worth anything, if it has a deadline.
    pub deadline: Option<f64>,
}

impl Task {
    /// No step is made before.
    fn first_step(&self) -> f64 {
        self.ready + self.start
    }

    /// It does not end before.
    fn end(&self) -> f64 {
        self.first_step() + self.time
    }
}

/// Bounds on the measures of a run in which every job finishes.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// No mean completion time is below, in seconds.
    pub jct_mean_s: f64,
    /// No makespan is below, in seconds.
    pub makespan_s: f64,
    /// No more deadlines can be met; nothing where no job has one.
    pub deadlines_met: Option<u64>,
}

/// Bounds for a workload.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Bounds {
    /// Where a GPU never does more than one job at a time.
    pub apart: Figures,
    /// Where jobs may share GPUs and win by that: each job alone counts, and no capacity does.
    pub shared: Figures,
    /// Jobs of which more is known than that they do not end before they begin.
    pub covered: u64,
    /// Jobs in all.
    pub jobs: u64,
}

impl Bounds {
    /// The bounds of jobs on so many GPUs. O(n log n).
    pub fn new(tasks: &[Task], gpus: f64) -> Bounds {
        let jobs = tasks.len() as u64;
        let covered = tasks.iter().filter(|task| task.time > 0.0).count() as u64;
        let Some(first) = tasks.iter().map(|task| task.submitted).reduce(f64::min) else {
            return Bounds::default();
        };
        // Counted from the first submission, so that squares of moments lose no digits.
        let since = |moment: f64| moment - first;
        let tasks: Vec<Task> = tasks
            .iter()
            .map(|task| Task {
                submitted: since(task.submitted),
                ready: since(task.ready),
                deadline: task.deadline.map(since),
                ..*task
            })
            .collect();
        let submitted: f64 = tasks.iter().map(|task| task.submitted).sum();
        let mean = |ends: f64| ((ends - submitted) / jobs as f64).max(0.0);
        let alone: f64 = tasks.iter().map(Task::end).sum();
        let last = tasks.iter().map(Task::end).fold(0.0, f64::max);
        let has_deadlines = tasks.iter().any(|task| task.deadline.is_some());
        let deadlines = |met: u64| has_deadlines.then_some(met);
        let shared = Figures {
            jct_mean_s: mean(alone),
            makespan_s: last,
            deadlines_met: deadlines(meetable(&tasks)),
        };
        let apart = Figures {
            jct_mean_s: mean(
                alone.max(shortest_remaining(&tasks, gpus)).max(mean_busy(&tasks, gpus)),
            ),
            makespan_s: last.max(filled(&tasks, gpus)),
            deadlines_met: deadlines(on_time(&tasks, gpus)),
        };
        Bounds { apart, shared, covered, jobs }
    }

    /// The bounds that hold for a run: those without capacity where jobs held GPUs at once.
    pub fn of_run(&self, shares_gpus: bool) -> &Figures {
        if shares_gpus { &self.shared } else { &self.apart }
    }
}

/// A non-negative number as one that can be compared.
fn ordered(number: f64) -> u64 {
    number.max(0.0).to_bits()
}

/// Tasks by their first possible step, the earliest first.
fn by_first_step(tasks: &[Task]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by(|a, b| tasks[*a].first_step().total_cmp(&tasks[*b].first_step()).then(a.cmp(b)));
    order
}

/// The least sum of ends on one machine as fast as the whole cluster, on which jobs may be stopped for nothing: the
/// shortest remaining job first (Schrage 1968).
///
/// Any schedule is one of that machine: it spends on each job no less GPU time than the least, and no more at any moment
/// than there is.
fn shortest_remaining(tasks: &[Task], gpus: f64) -> f64 {
    let order = by_first_step(tasks);
    let mut open: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let (mut next, mut now, mut sum) = (0, 0.0_f64, 0.0);
    while next < order.len() || !open.is_empty() {
        if open.is_empty() {
            now = now.max(tasks[order[next]].first_step());
        }
        while next < order.len() && tasks[order[next]].first_step() <= now {
            open.push(Reverse((ordered(tasks[order[next]].area), order[next])));
            next += 1;
        }
        let Some(Reverse((bits, job))) = open.pop() else { continue };
        let left = f64::from_bits(bits);
        let end = now + left / gpus;
        let until = order.get(next).map_or(f64::INFINITY, |job| tasks[*job].first_step());
        if end <= until {
            sum += end;
            now = end;
        } else {
            open.push(Reverse((ordered(left - (until - now) * gpus), job)));
            now = until;
        }
    }
    sum
}

/// The least sum of mean busy times on that machine, plus half of each job's least time.
///
/// The mean busy time of a job is the mean moment of its work. A job works no faster than at its fastest, so that its mean
/// busy time is at least half its least time before its end. The least sum of these is had by serving, of the jobs that are there,
/// the one with the smallest area, whatever of it is left (Goemans, Queyranne, Schulz, Skutella and Wang, SIAM J. Discrete
/// Mathematics 2002, section 2).
fn mean_busy(tasks: &[Task], gpus: f64) -> f64 {
    let order = by_first_step(tasks);
    let mut left: Vec<f64> = tasks.iter().map(|task| task.area).collect();
    let mut open: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let (mut next, mut now, mut sum) = (0, 0.0_f64, 0.0);
    while next < order.len() || !open.is_empty() {
        if open.is_empty() {
            now = now.max(tasks[order[next]].first_step());
        }
        while next < order.len() && tasks[order[next]].first_step() <= now {
            open.push(Reverse((ordered(tasks[order[next]].area), order[next])));
            next += 1;
        }
        let Some(Reverse((bits, job))) = open.pop() else { continue };
        let task = &tasks[job];
        if task.area <= 0.0 {
            sum += task.first_step();
            continue;
        }
        let until = order.get(next).map_or(f64::INFINITY, |job| tasks[*job].first_step());
        let end = (now + left[job] / gpus).min(until);
        // The part of the job that is done here, at the middle of the time that it takes.
        sum += (end - now) * gpus / task.area * (now + end) / 2.0;
        if end < until {
            left[job] = 0.0;
        } else {
            left[job] -= (end - now) * gpus;
            if left[job] > 0.0 {
                open.push(Reverse((bits, job)));
            }
        }
        now = end;
    }
    sum + tasks.iter().map(|task| task.time / 2.0).sum::<f64>()
}

/// What comes from a moment on fills the cluster for so long, whichever moment.
fn filled(tasks: &[Task], gpus: f64) -> f64 {
    let mut latest_first = by_first_step(tasks);
    latest_first.reverse();
    let (mut area, mut most) = (0.0, 0.0_f64);
    for job in latest_first {
        area += tasks[job].area;
        most = most.max(tasks[job].first_step() + area / gpus);
    }
    most
}

/// Whether an end is in time; a hair too late is rounding, and a bound errs on the side of more.
fn is_in_time(end: f64, task: &Task) -> bool {
    task.deadline.is_some_and(|deadline| end <= deadline * (1.0 + 1e-12) + 1e-6)
}

/// Jobs that could meet their deadline alone.
fn meetable(tasks: &[Task]) -> u64 {
    tasks.iter().filter(|task| is_in_time(task.end(), task)).count() as u64
}

/// Moments from which jobs are looked at, at most.
const MOMENTS_MAX: usize = 16;

/// The most deadlines that can be met: from several moments on, what comes later is as if it came then, on the machine as
/// fast as the cluster, where as many as possible are met by leaving out the largest of those that are too much (Moore and
/// Hodgson 1968). What came before counts where it could be met alone. O(n log n) for each moment.
fn on_time(tasks: &[Task], gpus: f64) -> u64 {
    let able: Vec<&Task> = tasks.iter().filter(|task| is_in_time(task.end(), task)).collect();
    let mut moments: Vec<f64> = able.iter().map(|task| task.first_step()).collect();
    moments.sort_by(f64::total_cmp);
    let step = moments.len().div_ceil(MOMENTS_MAX).max(1);
    let from = |moment: f64| {
        let (later, before): (Vec<&Task>, Vec<&Task>) =
            able.iter().partition(|task| task.first_step() >= moment);
        before.len() as u64 + moore_hodgson(later, moment, gpus)
    };
    let fewest = moments.into_iter().step_by(step).map(from).min();
    fewest.unwrap_or(0)
}

fn moore_hodgson(mut tasks: Vec<&Task>, from: f64, gpus: f64) -> u64 {
    let due = |task: &Task| task.deadline.unwrap_or(f64::INFINITY);
    tasks.sort_by(|a, b| due(a).total_cmp(&due(b)));
    let mut kept: BinaryHeap<u64> = BinaryHeap::new();
    let mut end = from;
    for task in tasks {
        kept.push(ordered(task.area));
        end += task.area / gpus;
        if !is_in_time(end, task)
            && let Some(largest) = kept.pop()
        {
            end -= f64::from_bits(largest) / gpus;
        }
    }
    kept.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(ready: f64, time: f64, gpus: f64) -> Task {
        Task { submitted: ready, ready, time, area: time * gpus, ..Task::default() }
    }

    #[test]
    fn one_after_the_other_the_shortest_first_is_met_exactly() {
        // Each takes both GPUs, so that the cluster is one machine: ends at 1, 3 and 6.
        let tasks = [task(0.0, 3.0, 2.0), task(0.0, 1.0, 2.0), task(0.0, 2.0, 2.0)];
        let bounds = Bounds::new(&tasks, 2.0).apart;
        assert!((bounds.jct_mean_s - 10.0 / 3.0).abs() < 1e-9, "{bounds:?}");
        assert!((bounds.makespan_s - 6.0).abs() < 1e-9, "{bounds:?}");
    }

    #[test]
    fn narrow_jobs_are_bounded_by_half_their_own_time_besides() {
        // Four of 1 s on 2 GPUs: two end at 1 s and two at 2 s, 1.5 s on the average. The fast machine alone says
        // (0.5 + 1 + 1.5 + 2) / 4 = 1.25; with mean busy times it is 1 + 0.5.
        let tasks = [task(0.0, 1.0, 1.0); 4];
        let bounds = Bounds::new(&tasks, 2.0).apart;
        assert!((bounds.jct_mean_s - 1.5).abs() < 1e-9, "{bounds:?}");
    }

    #[test]
    fn a_job_that_comes_stops_a_longer_one() {
        // 10 s from 0 on, and 1 s at 4: ends at 11 and 5.
        let tasks = [task(0.0, 10.0, 1.0), task(4.0, 1.0, 1.0)];
        let bounds = Bounds::new(&tasks, 1.0).apart;
        assert!((bounds.jct_mean_s - (11.0 + 1.0) / 2.0).abs() < 1e-9, "{bounds:?}");
    }

    #[test]
    fn shared_gpus_leave_the_bounds_of_each_job_alone() {
        let tasks = [task(0.0, 3.0, 2.0), task(0.0, 1.0, 2.0)];
        let bounds = Bounds::new(&tasks, 2.0);
        assert!((bounds.of_run(true).jct_mean_s - 2.0).abs() < 1e-9, "{bounds:?}");
        assert!((bounds.of_run(false).makespan_s - 4.0).abs() < 1e-9, "{bounds:?}");
    }

    #[test]
    fn of_three_deadlines_that_two_fit_into_one_is_lost() {
        let due = |time, deadline| Task { deadline: Some(deadline), ..task(0.0, time, 1.0) };
        let tasks = [due(2.0, 2.0), due(2.0, 4.0), due(2.0, 5.0), due(9.0, 5.0)];
        let bounds = Bounds::new(&tasks, 1.0);
        assert_eq!(bounds.shared.deadlines_met, Some(3), "the last cannot be met alone");
        assert_eq!(bounds.apart.deadlines_met, Some(2));
    }
}
