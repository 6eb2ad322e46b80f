//! What became of the rows of a trace, and what the jobs look like.

use crate::check::Problem;
use crate::reference::Reference;
use crate::{TraceJob, Workload};
use serde::Serialize;
use std::fmt::Write;
use trainyard_types::{Cluster, GpuType, ModelId};

/// How often something was met, and where first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Count {
    /// What.
    pub what: String,
    /// How many rows.
    pub rows: u64,
    /// The first line; in JSON, the line where its element begins.
    pub first_line: u64,
}

impl Count {
    pub(crate) fn add(list: &mut Vec<Count>, what: &str, line: u64) {
        match list.iter_mut().find(|count| count.what == what) {
            Some(count) => count.rows += 1,
            None => list.push(Count { what: what.to_owned(), rows: 1, first_line: line }),
        }
    }
}

/// Some quantiles of one quantity; all zero when there are no jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// The least.
    pub least: f64,
    /// The median.
    pub median: f64,
    /// Nine of ten are no larger.
    pub p90: f64,
    /// Ninety-nine of a hundred are no larger.
    pub p99: f64,
    /// The most.
    pub most: f64,
    /// The mean.
    pub mean: f64,
}

impl Quantiles {
    /// Of these values, in any order.
    pub fn of(mut values: Vec<f64>) -> Quantiles {
        if values.is_empty() {
            return Quantiles::default();
        }
        values.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let rank = libm::ceil(part * values.len() as f64) as usize;
            values[rank.clamp(1, values.len()) - 1]
        };
        Quantiles {
            least: values[0],
            median: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            most: at(1.0),
            mean: values.iter().sum::<f64>() / values.len() as f64,
        }
    }
}

/// What is asked of one type of GPU.
///
/// A job that accepts several types burdens each of them alike: its work is divided so that all are busy with it for
/// the same time, with each type at the speed that its model has there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TypeLoad {
    /// The type.
    pub kind: String,
    /// How many GPUs of it there are.
    pub gpus: u32,
    /// Jobs that accept it.
    pub jobs: u64,
    /// The part of these GPUs that they need on the average; `None` when all jobs come at once.
    pub load: Option<f64>,
    /// Those of them that accept nothing else.
    pub only_jobs: u64,
    /// Their part of the load.
    pub only_load: Option<f64>,
}

/// What became of the rows, and what the jobs look like.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ImportReport {
    /// The format that was read.
    pub format: String,
    /// Rows that could have been jobs.
    pub rows: u64,
    /// Those that are.
    pub kept: u64,
    /// Those that are not, by reason.
    pub dropped: Vec<Count>,
    /// Fields that would have helped and are not there.
    pub missing: Vec<Count>,
    /// How the jobs ended, where the trace says so.
    pub ends: Vec<Count>,
    /// What was assumed about the zone of times.
    pub time_zone: String,
    /// The first submission; empty without jobs.
    pub first: String,
    /// The last submission; empty without jobs.
    pub last: String,
    /// GPUs of a job, with shares as parts.
    pub gpus: Quantiles,
    /// How long a job runs undisturbed, in seconds.
    pub duration_s: Quantiles,
    /// GPU-hours of all jobs.
    pub gpu_hours: f64,
    /// The part of the cluster that is asked for; `None` without a cluster, or when all jobs come at once.
    pub offered_load: Option<f64>,
    /// The same for each type of GPU; empty without a cluster.
    pub load_by_type: Vec<TypeLoad>,
    /// Jobs that can never run on the cluster.
    pub never_fit: u64,
    /// The first of them, and why.
    pub never_fit_first: Option<String>,
    /// What else is to be known about this import.
    pub notes: Vec<String>,
}

impl ImportReport {
    /// Rows that gave no job.
    pub fn dropped_rows(&self) -> u64 {
        self.dropped.iter().map(|count| count.rows).sum()
    }

    /// Says what the jobs look like, on a cluster if it has nodes.
    pub fn describe(&mut self, workload: &Workload, cluster: &Cluster) {
        let ideal = workload.ideal(cluster);
        // Without any type of GPU it is not known how long the steps of a model take.
        let is_timed = |index: usize| {
            !cluster.kinds.is_empty() || workload.jobs[index].job.model == ModelId(0)
        };
        let untimed = (0..workload.jobs.len()).filter(|index| !is_timed(*index)).count();
        if untimed > 0 {
            let note =
                "jobs state steps of a model; their durations need --cluster and are left out";
            self.notes.push(format!("{untimed} {note}"));
        }
        self.notes.extend(late(workload));
        let gpus = |index: usize| {
            let want = &workload.jobs[index].job.want;
            f64::from(want.gpus) * f64::from(want.permille) / 1000.0
        };
        let timed = || (0..ideal.len()).filter(|index| is_timed(*index));
        let seconds: Vec<f64> = timed().map(|index| ideal[index].as_secs_f64()).collect();
        self.gpu_hours =
            timed().map(|index| ideal[index].as_secs_f64() * gpus(index)).sum::<f64>() / 3600.0;
        self.gpus = Quantiles::of((0..workload.jobs.len()).map(gpus).collect());
        self.duration_s = Quantiles::of(seconds);
        if cluster.nodes.is_empty() {
            return;
        }
        self.offered_load = Some(workload.offered_load(cluster)).filter(|load| load.is_finite());
        self.load_by_type = loads(workload, cluster);
        let problems = workload.check(cluster);
        self.never_fit = problems.len() as u64;
        self.never_fit_first = problems.first().map(Problem::to_string);
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, text: String| {
            let _ = writeln!(out, "{name:<14}{text}");
        };
        line("format", self.format.clone());
        line(
            "rows",
            format!("{} read, {} kept, {} dropped", self.rows, self.kept, self.dropped_rows()),
        );
        for count in &self.dropped {
            line("  dropped", at_line(count));
        }
        for count in &self.missing {
            line("  missing", at_line(count));
        }
        let ends: Vec<String> =
            self.ends.iter().map(|end| format!("{} {}", end.what, end.rows)).collect();
        if !ends.is_empty() {
            line("ended", ends.join(", "));
        }
        line("time zone", self.time_zone.clone());
        if !self.first.is_empty() {
            line("submitted", format!("from {} to {}", self.first, self.last));
        }
        line("gpus", quantiles_text(&self.gpus));
        line("duration s", quantiles_text(&self.duration_s));
        line("gpu hours", format!("{:.1}", self.gpu_hours));
        if let Some(load) = self.offered_load {
            line("offered load", format!("{load:.3} of the cluster"));
        }
        for kind in self.load_by_type.iter().filter(|kind| kind.jobs > 0) {
            let shown = |load: Option<f64>| {
                load.map_or("all at once".to_owned(), |load| format!("{load:.3}"))
            };
            let TypeLoad { kind, gpus, jobs, load, only_jobs, only_load } = kind;
            let mut text = format!("{kind} {} of {gpus} GPUs by {jobs} jobs", shown(*load));
            if *only_jobs > 0 {
                let load = shown(*only_load);
                text += &format!(", {load} by {only_jobs} that accept nothing else");
            }
            line("  of", text);
        }
        if let Some(first) = &self.never_fit_first {
            line("never fit", format!("{} jobs; {first}", self.never_fit));
        }
        for note in &self.notes {
            line("note", note.clone());
        }
        out
    }
}

/// Jobs whose last deadline is over when they come.
fn late(workload: &Workload) -> Option<String> {
    let is_late = |one: &&TraceJob| {
        one.job.value.last().is_some_and(|(deadline, _)| *deadline <= one.job.submitted)
    };
    let first = workload.jobs.iter().find(is_late)?;
    let count = workload.jobs.iter().filter(is_late).count();
    let name = workload.label(first.job.id);
    Some(format!(
        "{count} jobs have a deadline that is over when they come, the first of them `{name}`: policies count it as \
         missed, and those that promise deadlines decline it"
    ))
}

fn at_line(count: &Count) -> String {
    format!("{} x {}, first in line {}", count.rows, count.what, count.first_line)
}

fn quantiles_text(of: &Quantiles) -> String {
    let Quantiles { least, median, p90, p99, most, mean } = of;
    let short = |value: &f64| {
        if value.fract() == 0.0 { format!("{value}") } else { format!("{value:.2}") }
    };
    format!(
        "least {}, median {}, p90 {}, p99 {}, most {}, mean {mean:.2}",
        short(least),
        short(median),
        short(p90),
        short(p99),
        short(most)
    )
}

fn loads(workload: &Workload, cluster: &Cluster) -> Vec<TypeLoad> {
    let reference = Reference::new(&workload.catalog, cluster);
    let span = workload.span().as_secs_f64();
    let kinds = || (0..cluster.kinds.len()).map(|index| GpuType(index as u8));
    let mut loads: Vec<TypeLoad> = kinds()
        .map(|kind| {
            let nodes = cluster.nodes.iter().filter(|node| node.kind == kind);
            TypeLoad {
                kind: cluster.kinds[kind.index()].name.clone(),
                gpus: nodes.map(|node| u32::from(node.gpus)).sum(),
                jobs: 0,
                load: Some(0.0),
                only_jobs: 0,
                only_load: Some(0.0),
            }
        })
        .collect();
    for one in &workload.jobs {
        let job = &one.job;
        let busy = reference.demand_of_accepted(job, reference.seconds_for(one, one.work)) / span;
        let add = |load: &mut Option<f64>| {
            *load = load.map(|load| load + busy).filter(|load| load.is_finite());
        };
        let is_only = job.want.kinds.len() == 1;
        for kind in kinds().filter(|kind| reference.takes(&job.want, *kind)) {
            let there = &mut loads[kind.index()];
            there.jobs += 1;
            add(&mut there.load);
            if is_only {
                there.only_jobs += 1;
                add(&mut there.only_load);
            }
        }
    }
    loads
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::{Job, JobId, Time, Work};

    #[test]
    fn deadlines_that_are_over_are_told() {
        let mut workload = Workload::empty("two");
        for (id, deadline) in [(0, 500), (1, 50)] {
            let at = |seconds: u64| Time(seconds * 1_000_000);
            let mut job = Job::simple(JobId(id), at(100), 1);
            job.value = vec![(at(deadline), 1.0)];
            workload.jobs.push(TraceJob::new(job, Work(10.0)));
            workload.labels.push(format!("job-{id}"));
        }
        let mut report = ImportReport::default();
        report.describe(&workload, &Cluster::default());
        assert_eq!(report.notes.len(), 1);
        assert!(
            report.notes[0].starts_with("1 jobs have a deadline")
                && report.notes[0].contains("`job-1`")
        );
    }
}
