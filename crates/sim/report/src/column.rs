//! The one table that names, explains and orders the measures.

use crate::metrics::Summary;
use crate::units::Unit;

/// A measure as a column of every table.
pub struct Column {
    /// Its name in CSV files, with its unit.
    pub key: &'static str,
    /// Its heading, for people.
    pub title: &'static str,
    /// Its definition, in one sentence.
    pub meaning: &'static str,
    /// How its numbers are written.
    pub unit: Unit,
    /// Which of two values is better.
    pub better: Better,
    /// Where it is shown.
    pub shown: Shown,
    /// Its value; `None` where it does not apply.
    pub value: fn(&Summary) -> Option<f64>,
}

/// Which of two values is better.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Better {
    /// The lower one.
    Low,
    /// The higher one.
    High,
    /// Neither: it depends.
    Neither,
}

/// Where a measure is shown; files have all of them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// In every table.
    Always,
    /// On the page only.
    Page,
    /// In every table where any run has a value other than 0.
    WhereAny,
}

macro_rules! columns {
    ($($key:literal $title:literal $unit:ident $better:ident $shown:ident $meaning:literal => $value:expr;)*) => {
        &[$(Column {
            key: $key, title: $title, meaning: $meaning,
            unit: Unit::$unit, better: Better::$better, shown: Shown::$shown, value: $value,
        }),*]
    };
}

/// All measures, in the order of every table.
pub const COLUMNS: &[Column] = columns! {
    "jobs" "jobs" Count Neither Page
        "Jobs of the workload." => |s| Some(s.jobs as f64);
    "finished" "finished" Count High Page
        "Jobs that did all their work; means and quantiles are over these." => |s| Some(s.finished as f64);
    "ended_otherwise" "other ends" Count Low WhereAny
        "Jobs that were cancelled, failed, ran out of time, were orphaned, rejected or pruned."
        => |s| Some(s.ended_otherwise.total() as f64);
    "unfinished" "UNFINISHED" Count Low WhereAny
        "Jobs that were never over: the policy did not serve them." => |s| Some(s.unfinished as f64);
    "jct_mean_s" "JCT mean" Seconds Low Always
        "Mean job completion time, from submission to the end." => |s| s.if_any(s.jct_s.mean);
    "jct_median_s" "JCT median" Seconds Low Always
        "Half of all jobs are complete in at most this time." => |s| s.if_any(s.jct_s.median);
    "jct_p95_s" "JCT p95" Seconds Low Page
        "95 % of all jobs are complete in at most this time, by nearest rank." => |s| s.if_any(s.jct_s.p95);
    "jct_p99_s" "JCT p99" Seconds Low Always
        "99 % of all jobs are complete in at most this time, by nearest rank." => |s| s.if_any(s.jct_s.p99);
    "jct_max_s" "JCT max" Seconds Low Page
        "The longest completion time." => |s| s.if_any(s.jct_s.max);
    "queueing_mean_s" "wait mean" Seconds Low Always
        "Mean time without GPUs: completion time less the time on GPUs." => |s| s.if_any(s.queueing_s.mean);
    "queueing_p99_s" "wait p99" Seconds Low Page
        "99 % of all jobs spend at most this time without GPUs." => |s| s.if_any(s.queueing_s.p99);
    "first_start_mean_s" "first start mean" Seconds Low Page
        "Mean time from submission to the first GPUs." => |s| s.if_any(s.first_start_s.mean);
    "first_start_p99_s" "first start p99" Seconds Low Page
        "99 % of all jobs get their first GPUs within this time." => |s| s.if_any(s.first_start_s.p99);
    "slowdown_mean" "slowdown" Factor Low Always
        "Mean of completion time over the time the job takes undisturbed, as asked for, on its reference type."
        => |s| s.if_any(s.slowdown.mean);
    "slowdown_median" "slowdown median" Factor Low Page
        "Half of all jobs are slowed down by at most this factor." => |s| s.if_any(s.slowdown.median);
    "slowdown_p95" "slowdown p95" Factor Low Page
        "95 % of all jobs are slowed down by at most this factor." => |s| s.if_any(s.slowdown.p95);
    "slowdown_p99" "slowdown p99" Factor Low Page
        "99 % of all jobs are slowed down by at most this factor." => |s| s.if_any(s.slowdown.p99);
    "rho_mean" "rho mean" Factor Low Page
        "Finish-time fairness: mean of completion time over the time alone on a 1/n share of the cluster, n being the mean number of jobs during the job's life."
        => |s| s.if_any(s.rho.mean);
    "rho_worst" "rho worst" Factor Low Page
        "The largest finish-time fairness of a job." => |s| s.if_any(s.rho.worst);
    "rho_above_one" "rho > 1" Part Low Page
        "The part of jobs that would have fared better alone on a 1/n share of the cluster." => |s| s.if_any(s.rho.above_one);
    "rho_of_all_worst" "rho of all worst" Factor Low Page
        "The largest completion time of a job over its time alone on one of as many equal parts of the cluster as there are jobs in all."
        => |s| s.if_any(s.rho_of_all.worst);
    "makespan_s" "makespan" Seconds Low Always
        "Time from the first submission to the last end." => |s| Some(s.makespan_s);
    "last_end_s" "last end" Seconds Low Page
        "The last end, on the clock of the trace." => |s| Some(s.last_end_s);
    "utilisation" "GPU allocation" Part High Always
        "The part of the cluster's GPU time, over the makespan, that jobs held; a GPU that jobs share counts once." => |s| Some(s.utilisation);
    "fragmentation" "fragmented" Part Low Page
        "Of the GPU time wholly free while jobs waited, the part on nodes with too few free GPUs for the mean waiting gang."
        => |s| s.fragmentation;
    "stranded" "stranded" Part Low Page
        "The part of the cluster's GPU time that was free while jobs waited, on nodes with too few free GPUs for the mean waiting gang."
        => |s| Some(s.stranded);
    "goodput" "goodput" Part High Page
        "The part of the GPU time held that was neither starting, nor saving, nor lost to failures." => |s| Some(s.goodput);
    "gpu_hours" "GPU-hours" GpuHours Low Page
        "GPU time held by jobs." => |s| Some(s.gpu_hours);
    "gpu_hours_overhead" "overhead" GpuHours Low Page
        "GPU-hours held while starting and saving." => |s| Some(s.gpu_hours_overhead);
    "gpu_hours_lost" "lost" GpuHours Low WhereAny
        "GPU-hours whose work was lost to failures." => |s| Some(s.gpu_hours_lost);
    "gpu_hours_restarts" "lost to restarts" GpuHours Low Page
        "GPU-hours that restarts cost: saving, every start but the first, and work lost to failures." => |s| Some(s.gpu_hours_restarts);
    "preemptions" "preempted" Count Low Always
        "Times a job was stopped for another one." => |s| Some(s.preemptions as f64);
    "restarts" "restarts" Count Low Page
        "Launches beyond the first of each job." => |s| Some(s.restarts as f64);
    "slowdown_fairness" "slowdown fairness" Index High WhereAny
        "Jain's index over the tenants' mean slowdowns: 1 when the jobs of all fare alike." => |s| s.slowdown_fairness;
    "share_fairness" "share fairness" Index High WhereAny
        "Jain's index over the part of the GPU time it was entitled to by weight that each tenant received while one of its jobs waited: 1 when all received alike."
        => |s| s.share_fairness;
    "deadlines_total" "deadlines" Count Neither Page
        "Jobs with a deadline." => |s| s.deadlines.map(|d| d.total as f64);
    "deadlines_met" "deadlines met" Part High WhereAny
        "The part of all deadlines that was met."
        => |s| s.deadlines.map(|d| d.met as f64 / d.total.max(1) as f64);
    "value" "value" Factor High Page
        "What the deadlines met are worth." => |s| s.deadlines.map(|d| d.value);
    "deadlines_missed_first" "first missed" Part Low Page
        "The part of jobs with a deadline that missed their first one."
        => |s| s.deadlines.map(|d| d.missed_first as f64 / d.total.max(1) as f64);
    "value_missed" "value missed" Part Low Page
        "Mean over jobs with a deadline of one less the value met over the value of the first deadline."
        => |s| s.deadlines.map(|d| d.missed_worth / d.total.max(1) as f64);
    "deadlines_queueing_mean_s" "deadline wait" Seconds Low Page
        "Mean time without GPUs of finished jobs with a deadline." => |s| s.deadlines.map(|d| d.queueing_mean_s);
    "jct_bound_s" "JCT bound" Seconds Neither Page
        "No schedule that finishes every job has a mean completion time below; with `--bound`." => |s| s.bound.map(|b| b.jct_mean_s);
    "jct_above_bound" "JCT above bound" Part Low WhereAny
        "How far the mean completion time is above that at most, where every job finished." => |s| s.jct_above_bound();
    "makespan_bound_s" "makespan bound" Seconds Neither Page
        "No schedule that finishes every job has a makespan below; with `--bound`." => |s| s.bound.map(|b| b.makespan_s);
    "makespan_above_bound" "makespan above bound" Part Low WhereAny
        "How far the makespan is above that at most, where every job finished." => |s| s.makespan_above_bound();
    "deadlines_bound" "deadlines at most" Part Neither WhereAny
        "No schedule meets a larger part of all deadlines; with `--bound`."
        => |s| Some(s.bound?.deadlines_met? as f64 / s.deadlines?.total.max(1) as f64);
    "cost" "cost" Money Low Page
        "GPU time held times the price of its type, in the currency of the cluster's prices." => |s| Some(s.cost);
    "energy_kwh" "energy kWh" Factor Low Page
        "GPU time held times the power of its type, where the power is known." => |s| s.energy_kwh;
};

impl Column {
    /// The best value among runs that served every job; nothing when there is no better, or all are alike.
    pub fn best<'a>(&self, all: impl Iterator<Item = &'a Summary>) -> Option<f64> {
        let served = all.filter(|summary| summary.unfinished == 0);
        let mut values: Vec<f64> = served.filter_map(|summary| (self.value)(summary)).collect();
        values.sort_unstable_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        match self.better {
            Better::Low if least < most => Some(least),
            Better::High if least < most => Some(most),
            Better::Low | Better::High | Better::Neither => None,
        }
    }

    /// Whether a run's value reads the same as the best among all, and not all read the same.
    ///
    /// What is shown decides, so that of two equal texts never one alone is marked.
    pub fn is_best<'a>(
        &self,
        one: &Summary,
        all: impl Iterator<Item = &'a Summary> + Clone,
    ) -> bool {
        let text = |summary: &Summary| (self.value)(summary).map(|value| self.unit.text(value));
        let best = self.best(all.clone()).map(|value| self.unit.text(value));
        one.unfinished == 0
            && best.is_some()
            && text(one) == best
            && all.filter(|other| other.unfinished == 0).any(|other| text(other) != best)
    }

    /// Whether any run has something to say here.
    pub fn says_anything<'a>(&self, mut all: impl Iterator<Item = &'a Summary>) -> bool {
        all.any(|summary| (self.value)(summary).is_some_and(|value| value != 0.0))
    }
}

impl Summary {
    /// A measure over finished jobs, where there are any.
    fn if_any(&self, value: f64) -> Option<f64> {
        (self.finished > 0).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(key: &str) -> &'static Column {
        COLUMNS.iter().find(|column| column.key == key).expect("a column")
    }

    #[test]
    fn a_run_that_leaves_jobs_unfinished_is_never_best() {
        let run = |restarts, unfinished| Summary { restarts, unfinished, ..Summary::default() };
        let all = [run(5, 0), run(3, 0), run(0, 9)];
        let restarts = column("restarts");
        assert_eq!(restarts.best(all.iter()), Some(3.0));
        assert!(restarts.is_best(&all[1], all.iter()) && !restarts.is_best(&all[2], all.iter()));
    }

    #[test]
    fn values_that_read_alike_are_marked_alike() {
        let run = |makespan_s| Summary { makespan_s, ..Summary::default() };
        let all = [run(7200.0), run(7201.0), run(9000.0)];
        let marks = all.iter().map(|one| column("makespan_s").is_best(one, all.iter()));
        assert_eq!(marks.collect::<Vec<bool>>(), [true, true, false]);
        assert!(!column("makespan_s").is_best(&all[0], all[..2].iter()), "all read alike");
    }

    #[test]
    fn equal_values_have_no_best_and_means_of_nothing_are_not_shown() {
        let all = [Summary::default(), Summary::default()];
        assert_eq!(column("restarts").best(all.iter()), None);
        assert_eq!((column("jct_mean_s").value)(&all[0]), None);
    }

    #[test]
    fn keys_are_unique() {
        let mut keys: Vec<&str> = COLUMNS.iter().map(|column| column.key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), COLUMNS.len());
    }
}
