//! The measures of a run.
//!
//! Times are counted in integer microseconds and become seconds only here.
//! A quantile is by nearest rank: the smallest value that at least that part of all values does not exceed.

use crate::curve::Curves;
use crate::fairness::{Rho, rhos};
use crate::tally::{Gathered, Record};
use serde::Serialize;
use trainyard_sim::{JobOutcome, Outcome};
use trainyard_types::{Cluster, End, Job, Span};
use trainyard_workload::Workload;

/// The measures of a run. Means and quantiles are over jobs that finished.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Jobs of the workload, or those of them that count.
    pub jobs: u64,
    /// Jobs that did all their work.
    pub finished: u64,
    /// Jobs that ended in another way: cancelled, failed, out of time, orphaned, rejected or pruned.
    pub ended_otherwise: Ends,
    /// Jobs that were never over, because the policy did not serve them or nothing more happened.
    pub unfinished: u64,
    /// Job completion time: from submission to the end.
    pub jct_s: Spread,
    /// Time without GPUs: completion time less the time on GPUs.
    pub queueing_s: Spread,
    /// Time from submission to the first GPUs.
    pub first_start_s: Spread,
    /// Completion time over the time the job takes undisturbed, as asked for, on its reference type; below 1 for
    /// a job that ran on a faster type.
    pub slowdown: Spread,
    /// From the first submission to the last end.
    pub makespan_s: f64,
    /// The last end, on the clock of the trace.
    pub last_end_s: f64,
    /// Completion time over the time on a share of the cluster, for each job; see [`crate::fairness`].
    pub rho: Rho,
    /// The same against as many equal parts of the cluster as there are jobs in all.
    pub rho_of_all: Rho,
    /// Of the GPU time that was wholly free while jobs waited, the part on nodes with too few free GPUs for the
    /// mean waiting gang, or for a node's own size if that gang is larger; nothing if there was no such time.
    pub fragmentation: Option<f64>,
    /// The part of the cluster's GPU time, over the makespan, that was free on such nodes while jobs waited.
    pub stranded: f64,
    /// The part of the GPU time held that was neither starting, nor saving, nor lost.
    pub goodput: f64,
    /// The part of the cluster's GPU time, over the makespan, that jobs held.
    pub utilisation: f64,
    /// GPU time held by jobs that ended.
    pub gpu_hours: f64,
    /// The part of it spent on starting and saving.
    pub gpu_hours_overhead: f64,
    /// GPU time whose work was lost to failures.
    pub gpu_hours_lost: f64,
    /// GPU time that restarts cost: saving, every start but the first, and what was lost and done twice.
    pub gpu_hours_restarts: f64,
    /// Times a job was stopped for another one.
    pub preemptions: u64,
    /// Launches beyond the first of each job.
    pub restarts: u64,
    /// Jain's index over the tenants' mean slowdowns: 1 when all fare alike, 1/n when one bears everything.
    pub slowdown_fairness: Option<f64>,
    /// Jain's index over what tenants received of the GPU time they were entitled to while one of their jobs waited.
    pub share_fairness: Option<f64>,
    /// Deadlines and value, where any job has them.
    pub deadlines: Option<Deadlines>,
    /// GPU time held times the price of its type.
    pub cost: f64,
    /// GPU time held times the power of its type; nothing where the power of a type in use is not known.
    pub energy_kwh: Option<f64>,
    /// How far below the best a decision was at most, as a part, where the policy proves it.
    pub gap_worst: Option<f64>,
    /// What no schedule can do better than, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// What went wrong with the policy itself.
    pub trouble: Trouble,
}

/// What no schedule of the same jobs can do better than.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
pub struct Bound {
    /// No mean completion time is below, if all jobs finish.
    pub jct_mean_s: f64,
    /// No makespan is below, if all jobs finish.
    pub makespan_s: f64,
    /// No more deadlines can be met; nothing where no job has one.
    pub deadlines_met: Option<u64>,
    /// Jobs of which more is known than that they do not end before they may begin.
    pub covered: u64,
    /// Whether GPUs did several jobs at once, so that each job counts alone.
    pub shares_gpus: bool,
}

/// Jobs by how they ended, other than well.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ends {
    /// Ended by their users.
    pub cancelled: u64,
    /// Failed more often than they may be retried.
    pub failed: u64,
    /// Used up their time limit.
    pub time_limit: u64,
    /// A job they had to follow did not finish.
    pub orphaned: u64,
    /// Refused by the policy.
    pub rejected: u64,
    /// Ended by the policy.
    pub pruned: u64,
}

impl Ends {
    /// Adds one more end; a good one changes nothing.
    pub fn count(&mut self, end: End) {
        match end {
            End::Finished => {}
            End::Cancelled => self.cancelled += 1,
            End::Failed => self.failed += 1,
            End::TimeLimit => self.time_limit += 1,
            End::Orphaned => self.orphaned += 1,
            End::Rejected => self.rejected += 1,
            End::Pruned => self.pruned += 1,
        }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.cancelled + self.failed + self.time_limit + self.orphaned + self.rejected + self.pruned
    }
}

/// Where a set of values lies; all zero when it is empty.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Their sum over their number.
    pub mean: f64,
    /// Quantile 0.5.
    pub median: f64,
    /// Quantile 0.95.
    pub p95: f64,
    /// Quantile 0.99.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

/// Deadlines met and value earned.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
pub struct Deadlines {
    /// Jobs with a deadline.
    pub total: u64,
    /// Those that finished by their last deadline.
    pub met: u64,
    /// What the deadlines met are worth.
    pub value: f64,
    /// What meeting every first deadline would be worth.
    pub value_possible: f64,
    /// Jobs that missed their first deadline.
    pub missed_first: u64,
    /// What was missed: the sum over jobs of one less the value met over the value of the first deadline.
    pub missed_worth: f64,
    /// Mean time without GPUs of those that finished, in seconds.
    pub queueing_mean_s: f64,
}

/// What went wrong with the policy itself; all zero for a sound one.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// Grants dropped because they were faulty.
    pub faults: u64,
    /// Errors it returned.
    pub errors: u64,
    /// Panics.
    pub panics: u64,
    /// Decisions taken by a fallback order instead.
    pub fallbacks: u64,
}

impl Summary {
    /// How far the mean completion time is above its bound, as a part of that; nothing where not all jobs finished.
    pub fn jct_above_bound(&self) -> Option<f64> {
        self.above(self.jct_s.mean, self.bound?.jct_mean_s)
    }

    /// The same of the makespan.
    pub fn makespan_above_bound(&self) -> Option<f64> {
        self.above(self.makespan_s, self.bound?.makespan_s)
    }

    fn above(&self, found: f64, least: f64) -> Option<f64> {
        (self.finished == self.jobs && least > 0.0).then(|| found / least - 1.0)
    }

    /// Measures a run of a workload on a cluster.
    pub fn new(workload: &Workload, cluster: &Cluster, outcome: &Outcome) -> Summary {
        Summary::with_curves(workload, cluster, outcome).0
    }

    /// The same with what is drawn of the run.
    pub fn with_curves(
        workload: &Workload,
        cluster: &Cluster,
        outcome: &Outcome,
    ) -> (Summary, Curves) {
        let ideal = workload.ideal(cluster);
        let mut gathered = Gathered::new(workload.tenants.len());
        for one in workload.jobs.iter().filter(|one| outcome.measures(one.job.id)) {
            gathered.owe(&one.job);
        }
        for (one, rho) in outcome.jobs.iter().zip(rhos(workload, cluster.gpus(), outcome, &ideal)) {
            let at = one.job.index();
            gathered.add(&Record::new(&workload.jobs[at].job, one, (ideal[at], rho)));
        }
        gathered.finish(workload.jobs.len(), cluster, outcome)
    }

    /// The measures that do not speak of jobs.
    pub(crate) fn of_cluster(cluster: &Cluster, outcome: &Outcome) -> Summary {
        let hours = |gpu_seconds: f64| gpu_seconds / 3600.0;
        let price = |index: usize| cluster.kinds.get(index).map_or(0.0, |kind| kind.price_per_hour);
        let by_kind = outcome.gpu_seconds_by_kind.iter().enumerate();
        Summary {
            unfinished: outcome.unfinished.len() as u64,
            makespan_s: outcome.makespan().as_secs_f64(),
            last_end_s: outcome.ended.as_secs_f64(),
            fragmentation: fragmentation(outcome),
            stranded: outcome.series.mean(|point| point.stranded) / f64::from(outcome.gpus.max(1)),
            goodput: goodput(outcome),
            utilisation: outcome.utilisation(),
            gpu_hours: hours(outcome.gpu_seconds_held),
            gpu_hours_overhead: hours(outcome.gpu_seconds_overhead),
            gpu_hours_lost: hours(outcome.gpu_seconds_lost),
            gpu_hours_restarts: hours(outcome.gpu_seconds_restarting + outcome.gpu_seconds_lost),
            share_fairness: share_fairness(outcome),
            cost: by_kind.map(|(index, seconds)| hours(*seconds) * price(index)).sum(),
            energy_kwh: energy_kwh(cluster, outcome),
            gap_worst: outcome.stats.gap_worst.map(|millionths| f64::from(millionths) / 1e6),
            trouble: Trouble {
                faults: outcome.stats.faults,
                errors: outcome.stats.policy_errors,
                panics: outcome.stats.policy_panics,
                fallbacks: outcome.stats.fallbacks,
            },
            ..Summary::default()
        }
    }
}

impl Spread {
    /// The spread of lengths of time, in seconds.
    pub fn of_spans(mut spans: Vec<Span>) -> Spread {
        Spread::of_mut(&mut spans)
    }

    /// The same of a list that may be left in another order.
    pub(crate) fn of_mut(spans: &mut [Span]) -> Spread {
        if spans.is_empty() {
            return Spread::default();
        }
        let sum: u128 = spans.iter().map(|span| u128::from(span.0)).sum();
        // The ranks are ascending, and behind one that was selected lie the larger values.
        let (mut from, count) = (0, spans.len());
        let mut at = |part: f64| {
            let rank = nearest_rank(part, count);
            let (_, value, _) = spans[from..].select_nth_unstable(rank - from);
            from = rank;
            value.as_secs_f64()
        };
        Spread {
            mean: sum as f64 / 1e6 / count as f64,
            median: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            max: at(1.0),
        }
    }

    /// The spread of numbers.
    pub fn of(mut values: Vec<f64>) -> Spread {
        if values.is_empty() {
            return Spread::default();
        }
        values.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| values[nearest_rank(part, values.len())];
        Spread {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            median: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

/// The completion time of a job.
pub fn jct(job: &Job, one: &JobOutcome) -> Span {
    one.ended.since(job.submitted)
}

/// The time from submission to the first GPUs; to the end for a job that never had any.
pub fn first_start(job: &Job, one: &JobOutcome) -> Span {
    one.first_start.unwrap_or(one.ended).since(job.submitted)
}

/// Completion time over ideal time. A job shorter than a millisecond counts as one millisecond.
pub fn slowdown(job: &Job, one: &JobOutcome, ideal: Span) -> f64 {
    slowdown_of(jct(job, one), ideal)
}

/// The same of a completion time.
pub(crate) fn slowdown_of(jct: Span, ideal: Span) -> f64 {
    jct.as_secs_f64() / ideal.as_secs_f64().max(1e-3)
}

/// The index of a quantile among `count` ascending values.
fn nearest_rank(part: f64, count: usize) -> usize {
    let rank = (part * count as f64).ceil() as usize;
    rank.clamp(1, count) - 1
}

/// Jain's index: the square of the sum over the count times the sum of squares.
pub fn jain(values: &[f64]) -> Option<f64> {
    let (sum, squares) =
        values.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    (values.len() >= 2 && squares > 0.0).then(|| sum * sum / (values.len() as f64 * squares))
}

/// Jain's index over the parts of their entitlement that tenants received; nothing unless two of them waited.
fn share_fairness(outcome: &Outcome) -> Option<f64> {
    let waited = outcome.tenants.iter().filter(|tenant| tenant.entitled > 0.0);
    jain(&waited.map(|tenant| tenant.received / tenant.entitled).collect::<Vec<f64>>())
}

fn fragmentation(outcome: &Outcome) -> Option<f64> {
    let idle = outcome.series.mean(|point| point.idle);
    (idle > 0.0).then(|| outcome.series.mean(|point| point.stranded) / idle)
}

fn goodput(outcome: &Outcome) -> f64 {
    let held = outcome.gpu_seconds_held;
    if held == 0.0 {
        return 0.0;
    }
    // Overhead of jobs that were never over is not part of what is held.
    ((held - outcome.gpu_seconds_overhead - outcome.gpu_seconds_lost) / held).clamp(0.0, 1.0)
}

fn energy_kwh(cluster: &Cluster, outcome: &Outcome) -> Option<f64> {
    let mut sum = 0.0;
    for (kind, seconds) in cluster.kinds.iter().zip(&outcome.gpu_seconds_by_kind) {
        if *seconds > 0.0 && kind.watts == 0 {
            return None;
        }
        sum += seconds * f64::from(kind.watts) / 3.6e6;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use trainyard_policies::compose::Selection;
    use trainyard_sim::{Options, Quiet, simulate};
    use trainyard_types::{JobId, Time, Work};
    use trainyard_workload::TraceJob;

    /// The measures of jobs run in order of arrival, on a cluster without costs.
    fn in_order(workload: &Workload, cluster: Cluster) -> Summary {
        let cluster = Arc::new(cluster);
        let pipeline = Selection::policy("fifo").build().expect("fifo exists");
        let options =
            Options { costs: "free".parse().expect("a cost model"), ..Options::default() };
        let outcome = simulate(workload, &cluster, pipeline, &options, &mut Quiet);
        Summary::new(workload, &cluster, &outcome)
    }

    /// The measures of jobs run in order of arrival, with their GPUs and seconds, on a cluster without costs.
    fn measured(jobs: &[(u32, f64)], cluster: Cluster) -> Summary {
        let mut workload = Workload::empty("few");
        for (index, (gpus, seconds)) in jobs.iter().enumerate() {
            let job = Job::simple(JobId(index as u32), Time::ZERO, *gpus);
            let (job, work) = (Arc::new(job), Work(*seconds));
            workload.jobs.push(TraceJob::new(job, work));
        }
        in_order(&workload, cluster)
    }

    #[test]
    fn free_gpus_beside_a_gang_that_finds_no_room_are_stranded() {
        // Three GPUs on each node for a minute; the gang of four looks at one free GPU on each.
        let summary = measured(&[(3, 60.0), (3, 60.0), (4, 60.0)], Cluster::uniform(2, 4, "v100"));
        assert_eq!((summary.makespan_s, summary.fragmentation), (120.0, Some(1.0)));
        assert!((summary.stranded - 0.125).abs() < 1e-9, "2 of 8 GPUs, half of the time");
        // Behind the gang of eight a whole node is free for no job: no node has more than four.
        let summary = measured(&[(4, 60.0), (8, 60.0)], Cluster::uniform(2, 4, "v100"));
        assert_eq!((summary.fragmentation, summary.stranded), (Some(0.0), 0.0));
    }

    #[test]
    fn energy_is_not_told_where_power_is_not_known() {
        let mut cluster = Cluster::uniform(1, 4, "v100");
        cluster.kinds[0].watts = 0;
        assert_eq!(measured(&[(4, 3600.0)], cluster.clone()).energy_kwh, None);
        cluster.kinds[0].watts = 250;
        let energy = measured(&[(4, 3600.0)], cluster).energy_kwh.expect("known");
        assert!((energy - 1.0).abs() < 1e-9, "{energy}");
    }

    /// Two gangs of the whole cluster, one after the other: `a` takes 60 s, `b` 30 s and comes 1 s later.
    fn two_in_a_row() -> Summary {
        let mut workload = Workload::empty("two");
        for (index, seconds) in [(0, 60.0), (1, 30.0)] {
            let mut job = Job::simple(JobId(index), Time::from_secs_f64(f64::from(index)), 4);
            if index == 1 {
                job.value =
                    vec![(Time::from_secs_f64(80.0), 5.0), (Time::from_secs_f64(100.0), 2.0)];
            }
            let (job, work) = (Arc::new(job), Work(seconds));
            workload.jobs.push(TraceJob::new(job, work));
        }
        let mut cluster = Cluster::uniform(1, 4, "v100");
        cluster.kinds[0].price_per_hour = 2.0;
        in_order(&workload, cluster)
    }

    #[test]
    fn the_measures_of_a_small_run_are_those_counted_by_hand() {
        let summary = two_in_a_row();
        assert_eq!((summary.finished, summary.unfinished, summary.restarts), (2, 0, 0));
        assert_eq!((summary.jct_s.mean, summary.jct_s.max), (74.5, 89.0));
        assert_eq!((summary.queueing_s.mean, summary.first_start_s.max), (29.5, 59.0));
        assert_eq!(summary.slowdown.max, 89.0 / 30.0);
        assert_eq!((summary.makespan_s, summary.utilisation), (90.0, 1.0));
        assert!((summary.gpu_hours - 0.1).abs() < 1e-12 && (summary.cost - 0.2).abs() < 1e-12);
        let met = Deadlines {
            total: 1,
            met: 1,
            value: 2.0,
            value_possible: 5.0,
            missed_first: 1,
            missed_worth: 0.6,
            queueing_mean_s: 59.0,
        };
        assert_eq!((summary.deadlines, summary.slowdown_fairness), (Some(met), None));
        assert_eq!(summary.trouble, Trouble::default());
        // `a` shares with `b` for 59 of its 60 s and takes the whole cluster: 60 / (60 * 119/60).
        // `b` has `a` beside it for 59 of its 89 s: 89 / (30 * 148/89).
        let (a, b) = (60.0 / 119.0, 89.0 * 89.0 / (30.0 * 148.0));
        assert!((summary.rho.worst - b).abs() < 1e-9 && summary.rho.above_one == 0.5);
        assert!((summary.rho.mean - (a + b) / 2.0).abs() < 1e-9, "{:?}", summary.rho);
        assert_eq!((summary.goodput, summary.fragmentation), (1.0, None), "nothing was ever free");
        assert_eq!((summary.last_end_s, summary.gpu_hours_restarts), (90.0, 0.0));
    }

    /// The measures of a scenario under a policy.
    fn of_scenario(text: &str, policy: &str) -> Summary {
        let scenario = trainyard_workload::scenario::parse(text).expect("a scenario");
        let cluster = Arc::new(scenario.cluster);
        let pipeline = Selection::policy(policy).build().expect("a policy");
        let options = Options { costs: scenario.costs, ..Options::default() };
        let outcome = simulate(&scenario.workload, &cluster, pipeline, &options, &mut Quiet);
        Summary::new(&scenario.workload, &cluster, &outcome)
    }

    #[test]
    fn a_gpu_that_two_jobs_share_is_allocated_once() {
        let mut text = String::from("cluster 1x2 v100\n");
        for job in 0..8 {
            text += &format!("job j{job} at 0s wants 1 work 30m model gavel-a3c\n");
        }
        text += "costs free\n";
        let summary = of_scenario(&text, "gavel-gandiva");
        assert!(summary.gpu_hours > 1.01 * 2.0 * summary.makespan_s / 3600.0, "jobs do share");
        assert!(summary.utilisation <= 1.0 + 1e-9, "{}", summary.utilisation);
        assert!(summary.utilisation > 0.9, "both GPUs are busy: {}", summary.utilisation);
    }

    #[test]
    fn shares_are_kept_by_fair_share_and_not_by_arrival_while_slowdowns_say_the_contrary() {
        // One tenant floods the queue, the other has a job now and then.
        let mut text = String::from("cluster 1x4 v100\ntenant flood\ntenant trickle\n");
        for job in 0..120 {
            text += &format!("job f{job} at {job}s wants 1 work 20m tenant flood\n");
        }
        for job in 0..40 {
            let at = 200 + 60 * job;
            text += &format!("job t{job} at {at}s wants 1 work 20m tenant trickle\n");
        }
        text += "costs free\n";
        let (fair, fifo) = (of_scenario(&text, "fair-share"), of_scenario(&text, "fifo"));
        let of = |summary: &Summary| summary.share_fairness.expect("two tenants waited");
        assert!(of(&fair) > 0.95 && of(&fifo) < 0.9, "{} and {}", of(&fair), of(&fifo));
        let slow = |summary: &Summary| summary.slowdown_fairness.expect("two tenants");
        assert!(slow(&fair) < slow(&fifo), "{} and {}", slow(&fair), slow(&fifo));
    }

    #[test]
    fn quantiles_are_by_nearest_rank() {
        let spread = Spread::of((1..=10).map(f64::from).collect());
        assert_eq!((spread.median, spread.p95, spread.p99, spread.max), (5.0, 10.0, 10.0, 10.0));
        assert_eq!(spread.mean, 5.5);
        let spread = Spread::of_spans((1..=100).map(Span::secs).collect());
        assert_eq!((spread.median, spread.p95, spread.p99), (50.0, 95.0, 99.0));
    }

    #[test]
    fn nothing_has_a_spread_of_zero_and_one_value_is_all_its_quantiles() {
        assert_eq!(Spread::of_spans(Vec::new()), Spread::default());
        let one = Spread::of(vec![3.0]);
        assert_eq!((one.mean, one.median, one.p99, one.max), (3.0, 3.0, 3.0, 3.0));
    }

    #[test]
    fn jain_is_one_for_equals_and_one_nth_when_one_bears_all() {
        assert_eq!(jain(&[2.0, 2.0, 2.0]), Some(1.0));
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[1.0]), None);
    }
}
