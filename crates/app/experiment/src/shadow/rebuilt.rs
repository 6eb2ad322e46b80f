//! The workload that ran, rebuilt from what was watched.
//!
//! The simulated clock begins at the first look.
//! Jobs that ran then come first, with the work they had left; jobs that waited then count from that moment, in
//! reality and in every simulation alike.
//! Measured are the jobs that began to wait or came during the watch and ended in it; all others are load.

use super::lengths::{Basis, Lengths};
use crate::given::Given;
use std::collections::BTreeMap;
use std::sync::Arc;
use trainyard_profile::{Catalog, CostModel};
use trainyard_slurm::{Fate, History, Inventory, Past};
use trainyard_types::{
    Cluster, Job, JobId, ModelId, Span, Tenant, TenantId, Tenants, Time, Want, Work,
};
use trainyard_workload::{TraceJob, Workload};

/// The workload that ran, and how its jobs are to be taken.
pub struct Rebuilt {
    /// Jobs and cluster.
    pub given: Given,
    /// For each job: its number in Slurm and whether it is measured.
    pub jobs: Vec<(u32, bool)>,
    /// How many jobs of which sort there are.
    pub counts: Counts,
}

/// How many jobs of which sort there are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Ended while watched, and not running when the watch began: these are measured.
    pub measured: u32,
    /// Ran when the watch began.
    pub ran_before: u32,
    /// Still ran at the end: their length is estimated.
    pub running: u32,
    /// Still waited at the end: their length is estimated.
    pub waiting: u32,
    /// Estimates of length by where they come from.
    pub bases: BTreeMap<Basis, u32>,
    /// Asked for no GPU.
    pub without_gpus: u32,
    /// Went away without having run, or were held back by their users throughout.
    pub never_ran: u32,
    /// Asked for more than the cluster has.
    pub too_large: u32,
    /// Were started more than once.
    pub requeued: u32,
    /// Measured ones that were shorter than a start is taken to cost.
    pub shorter_than_a_start: u32,
}

impl Rebuilt {
    /// By how much the expected lengths of measured jobs were wrong: the spread of the logarithm of the factor.
    pub fn error_of_lengths(&self) -> f64 {
        let all = self.given.workload.jobs.iter().zip(&self.jobs).filter(|(_, (_, is))| *is);
        let errors: Vec<f64> = all
            .filter_map(|(one, _)| Some((one.job.declared?.0 / one.work.0).ln().powi(2)))
            .collect();
        (errors.iter().sum::<f64>() / errors.len().max(1) as f64).sqrt()
    }
}

/// How the unknown is assumed.
#[derive(Copy, Clone, Debug)]
pub struct Assumed {
    /// What is left of jobs that had not ended is the estimate times this.
    pub left: f64,
    /// Whether a job may be stopped once it runs.
    pub preemptible: bool,
    /// What stopping and starting costs.
    pub costs: CostModel,
}

impl Assumed {
    /// The time a job on so many GPUs takes to start, which is part of every run that was seen.
    fn start(&self, catalog: &Catalog, gpus: u32) -> f64 {
        let usual = catalog.get(ModelId(0)).start.on(gpus);
        let start = match self.costs {
            CostModel::Profile => usual,
            CostModel::Scaled(factor) => usual.scaled(factor),
            CostModel::Free => Span::ZERO,
            CostModel::Flat { start, .. } => start,
            CostModel::ByGpus { start, .. } => start.scaled(CostModel::by_gpus(gpus)),
        };
        start.as_secs_f64()
    }
}

/// Rebuilds the workload.
pub fn rebuild(
    history: &History,
    inventory: &Inventory,
    (partitions, assumed): (&[String], Assumed),
) -> Rebuilt {
    let lengths = Lengths::of(history);
    let mut counts = Counts::default();
    let mut tenants = Accounts::default();
    let mut rows: Vec<(bool, Row<'_>)> = Vec::new();
    for past in history.jobs.values() {
        let wanted = partitions.is_empty()
            || past.job.partition.split(',').any(|one| partitions.iter().any(|p| p == one));
        if !wanted {
            continue;
        }
        let Some(mut row) = row(past, history, &inventory.cluster, &mut counts) else { continue };
        let known_at = past.ready().max(history.from);
        row.declared = lengths.expected(past, 0, known_at).0;
        if !matches!(past.fate, Fate::Ended(_)) {
            let elapsed = past.ran_between(i64::MIN / 2, history.to);
            let (length, basis) = lengths.expected(past, elapsed, history.to);
            *counts.bases.entry(basis).or_default() += past.job.tasks.max(1);
            let left = (length - elapsed as f64).max(1.0) * assumed.left;
            row.seconds = past.ran_between(history.from, history.to) as f64 + left;
        }
        let ran_before = past.runs.first().is_some_and(|(begin, _)| *begin < history.from);
        // One row stands for all waiting tasks of an array.
        for _ in 0..past.job.tasks.clamp(1, TASKS_MAX) {
            rows.push((!ran_before, row.clone()));
        }
    }
    // What ran comes first, then by when each could have started.
    rows.sort_by_key(|(is_new, row)| (*is_new, row.submitted, row.past.job.id));
    let mut workload = Workload::empty("watched");
    workload.catalog = Catalog::builtin();
    let mut jobs = Vec::with_capacity(rows.len());
    for (index, (_, row)) in rows.into_iter().enumerate() {
        let tenant = tenants.of(&row.past.job.account, &row.past.job.user);
        let start = assumed.start(&workload.catalog, row.want.gpus);
        counts.shorter_than_a_start += u32::from(row.measured && row.seconds < start);
        let job = Job {
            tenant,
            want: row.want.clone(),
            declared: Some(Work((row.declared - start).max(1.0))),
            run_max: None,
            preemptible: assumed.preemptible,
            ..Job::simple(JobId(index as u32), row.submitted, row.want.gpus)
        };
        workload.jobs.push(TraceJob::new(job, Work((row.seconds - start).max(0.5))));
        workload.labels.push(row.past.job.id.to_string());
        jobs.push((row.past.job.id, row.measured));
    }
    workload.tenants = tenants.finish();
    let cluster = Arc::new(inventory.cluster.clone());
    Rebuilt { given: Given { notes: Vec::new(), workload, cluster }, jobs, counts }
}

/// The most jobs that one row of an array becomes.
const TASKS_MAX: u32 = 10_000;

/// What a job becomes.
#[derive(Clone)]
struct Row<'a> {
    past: &'a Past,
    submitted: Time,
    seconds: f64,
    declared: f64,
    want: Want,
    measured: bool,
}

/// Sorts a job, and counts what it is.
fn row<'a>(
    past: &'a Past,
    history: &History,
    cluster: &Cluster,
    counts: &mut Counts,
) -> Option<Row<'a>> {
    let tasks = past.job.tasks.max(1);
    if matches!(past.fate, Fate::Ended(ended) if ended <= history.from) {
        return None;
    }
    if past.job.gpus == 0 {
        counts.without_gpus += tasks;
        return None;
    }
    let held_back = past.fate == Fate::Waits
        && past.runs.is_empty()
        && (past.job.priority == 0 || past.eligible.is_none_or(|at| at > history.to));
    if past.fate == Fate::NeverRan || held_back {
        counts.never_ran += tasks;
        return None;
    }
    let want = want(past, cluster);
    if cluster.most_gpus(&want) < want.gpus {
        counts.too_large += tasks;
        return None;
    }
    let ran_before = past.runs.first().is_some_and(|(begin, _)| *begin < history.from);
    match past.fate {
        Fate::Waits => counts.waiting += tasks,
        Fate::Runs => counts.running += 1,
        Fate::Ended(_) if ran_before => counts.ran_before += 1,
        Fate::Ended(_) => counts.measured += 1,
        Fate::NeverRan => {}
    }
    counts.requeued += u32::from(past.runs.len() > 1);
    let since = |at: i64| Time::ZERO + Span::secs((at - history.from).max(0) as u64);
    Some(Row {
        past,
        submitted: since(past.ready()),
        seconds: past.ran_between(history.from, history.to) as f64,
        declared: 0.0,
        want,
        measured: matches!(past.fate, Fate::Ended(_)) && !ran_before,
    })
}

/// What it asked for: GPUs in whole, of the types it named.
fn want(past: &Past, cluster: &Cluster) -> Want {
    let mut want = Want::gpus(past.job.gpus);
    want.kinds = past.job.gpu_types.iter().filter_map(|name| cluster.kind(name)).collect();
    // The least number of nodes is told, and nearly always the only one that was asked for.
    want.nodes_max = past.job.nodes_min.min(u32::from(u16::MAX)) as u16;
    if cluster.most_gpus(&want) < want.gpus {
        want.nodes_max = 0;
    }
    want
}

/// Accounts as tenants, by name; a job without an account counts by its user.
#[derive(Default)]
struct Accounts(BTreeMap<String, TenantId>, Vec<Tenant>);

impl Accounts {
    fn of(&mut self, account: &str, user: &str) -> TenantId {
        let name = if account.is_empty() { user } else { account };
        let next = TenantId(self.1.len() as u32);
        let Accounts(ids, list) = self;
        *ids.entry(name.to_owned()).or_insert_with(|| {
            list.push(Tenant::named(name));
            next
        })
    }

    fn finish(self) -> Tenants {
        if self.1.is_empty() { Tenants::default() } else { Tenants::new(self.1) }
    }
}
