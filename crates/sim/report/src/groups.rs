//! The measures of parts of a workload: by tenant, by type of GPU, by size of gang.

use crate::column::{COLUMNS, Column};
use crate::fairness::{Rho, rhos};
use crate::metrics::{Spread, Summary, first_start, jct, slowdown};
use crate::table::{Ink, figures};
use serde::Serialize;
use serde_json::{Value, json};
use trainyard_sim::{JobOutcome, Outcome};
use trainyard_types::{Cluster, End, Job};
use trainyard_workload::Workload;

/// What jobs are grouped by.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The tenant they belong to.
    Tenant,
    /// The type of GPU they spent most time on.
    Type,
    /// How many GPUs they asked for: 1, 2-4, 5-8, 9-16, more.
    Size,
}

impl By {
    /// The name used on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            By::Tenant => "tenant",
            By::Type => "type",
            By::Size => "size",
        }
    }
}

/// The measures of one part of the jobs of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// What the part is called.
    pub name: String,
    /// Its measures; those of the whole cluster are zero.
    pub summary: Summary,
}

/// The measures that make sense for a part of the jobs, in the order of every table.
pub const GROUP_KEYS: [&str; 14] = [
    "jobs",
    "finished",
    "ended_otherwise",
    "jct_mean_s",
    "jct_median_s",
    "jct_p99_s",
    "queueing_mean_s",
    "slowdown_mean",
    "slowdown_p99",
    "rho_worst",
    "rho_above_one",
    "gpu_hours",
    "preemptions",
    "restarts",
];

/// The columns of [`GROUP_KEYS`].
pub fn columns() -> Vec<&'static Column> {
    COLUMNS.iter().filter(|column| GROUP_KEYS.contains(&column.key)).collect()
}

/// The classes of sizes, by the most GPUs of each.
const SIZES: [(u32, &str); 5] = [(1, "1"), (4, "2-4"), (8, "5-8"), (16, "9-16"), (u32::MAX, ">16")];

/// The parts of a run that have jobs, in their natural order; jobs that never ran have the type `-`.
///
/// A job that was never over belongs to a part by tenant and size, and to the type `-`.
pub fn groups(workload: &Workload, cluster: &Cluster, outcome: &Outcome, by: By) -> Vec<Group> {
    let names: Vec<String> = match by {
        By::Tenant => workload.tenants.iter().map(|(_, tenant)| tenant.name.clone()).collect(),
        By::Type => {
            let kinds = cluster.kinds.iter().map(|kind| kind.name.clone());
            kinds.chain(["-".to_owned()]).collect()
        }
        By::Size => SIZES.map(|(_, name)| name.to_owned()).to_vec(),
    };
    let part_of = |job: &Job, one: Option<&JobOutcome>| match by {
        By::Tenant => job.tenant.index(),
        By::Type => one.and_then(|one| one.kind).map_or(names.len() - 1, |kind| kind.index()),
        By::Size => SIZES.iter().position(|(most, _)| job.want.gpus <= *most).unwrap_or(0),
    };
    let ideal = workload.ideal(cluster);
    let rho = rhos(workload, cluster.gpus(), outcome, &ideal);
    let mut parts: Vec<Part> = names.iter().map(|_| Part::default()).collect();
    for (one, rho) in outcome.jobs.iter().zip(&rho) {
        let job = &workload.jobs[one.job.index()].job;
        let slowdown = slowdown(job, one, ideal[one.job.index()]);
        parts[part_of(job, Some(one))].add(job, one, (slowdown, *rho));
    }
    for id in &outcome.unfinished {
        let part = &mut parts[part_of(&workload.jobs[id.index()].job, None)].summary;
        part.jobs += 1;
        part.unfinished += 1;
    }
    let all = names.into_iter().zip(parts.into_iter().map(Part::finish));
    let with_jobs = all.filter(|(_, summary)| summary.jobs > 0);
    with_jobs.map(|(name, summary)| Group { name, summary }).collect()
}

/// The parts of several runs for a terminal, runs below each other within each part.
pub fn terminal(by: By, runs: &[(String, Vec<Group>)], ink: Ink) -> String {
    let columns: Vec<&Column> = columns()
        .into_iter()
        .filter(|column| {
            let all = runs.iter().flat_map(|(_, groups)| groups);
            column.says_anything(all.map(|group| &group.summary))
        })
        .collect();
    let mut heading = vec![by.name(), "policy"];
    heading.extend(columns.iter().map(|column| column.title));
    let mut names: Vec<&str> = Vec::new();
    for group in runs.iter().flat_map(|(_, groups)| groups) {
        if !names.contains(&group.name.as_str()) {
            names.push(&group.name);
        }
    }
    let mut rows = Vec::new();
    for name in names {
        for (policy, groups) in runs {
            let Some(group) = groups.iter().find(|group| group.name == name) else { continue };
            let mut row = vec![name.to_owned(), policy.clone()];
            row.extend(columns.iter().map(|column| {
                (column.value)(&group.summary)
                    .map_or_else(|| "-".to_owned(), |value| column.unit.text(value))
            }));
            rows.push(row);
        }
    }
    figures(&heading, 2, &rows, ink)
}

/// The parts of several runs as JSON: by policy and name, with the measures of [`GROUP_KEYS`].
pub fn json(by: By, runs: &[(String, Vec<Group>)]) -> Value {
    let mut rows = Vec::new();
    for (policy, groups) in runs {
        for group in groups {
            let mut measures = serde_json::Map::new();
            for column in columns() {
                measures.insert(column.key.to_owned(), json!((column.value)(&group.summary)));
            }
            rows.push(json!({ "policy": policy, "name": group.name, "measures": measures }));
        }
    }
    json!({ "by": by.name(), "rows": rows })
}

/// What is gathered of one part.
#[derive(Default)]
struct Part {
    summary: Summary,
    jct: Vec<trainyard_types::Span>,
    queueing: Vec<trainyard_types::Span>,
    first_start: Vec<trainyard_types::Span>,
    slowdown: Vec<f64>,
    rho: Vec<f64>,
}

impl Part {
    fn add(&mut self, job: &Job, one: &JobOutcome, (slowdown, rho): (f64, f64)) {
        let summary = &mut self.summary;
        summary.jobs += 1;
        summary.gpu_hours += one.gpu_time.as_secs_f64() / 3600.0;
        summary.preemptions += u64::from(one.preemptions);
        summary.restarts += u64::from(one.restarts);
        summary.ended_otherwise.count(one.end);
        if one.end == End::Finished {
            summary.finished += 1;
            self.jct.push(jct(job, one));
            self.queueing.push(jct(job, one).minus(one.ran));
            self.first_start.push(first_start(job, one));
            self.slowdown.push(slowdown);
            self.rho.push(rho);
        }
    }

    fn finish(self) -> Summary {
        Summary {
            jct_s: Spread::of_spans(self.jct),
            queueing_s: Spread::of_spans(self.queueing),
            first_start_s: Spread::of_spans(self.first_start),
            slowdown: Spread::of(self.slowdown),
            rho: Rho::of(&self.rho),
            ..self.summary
        }
    }
}
