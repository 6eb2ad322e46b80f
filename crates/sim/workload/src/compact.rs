//! Jobs in little room: a few numbers each, and what many have in common once.
//!
//! A job of a trace takes some three hundred bytes, most of which say that nothing special was asked for. Here it takes
//! 24, and becomes a [`TraceJob`] when a run comes to it. What few jobs have, such as deadlines, stands apart and takes
//! its room for those alone.

use crate::intake::Labels;
use crate::reference::Reference;
use crate::tells::TrainingSignals;
use crate::{BatchPhase, TraceJob, Workload};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use trainyard_profile::Catalog;
use trainyard_types::{Cluster, Job, JobId, Span, Tenants, Time, Work};

/// Jobs by their place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompactJobs {
    rows: Vec<Row>,
    sorts: Vec<Sort>,
    /// The first sort with a hash.
    by_hash: FxHashMap<u64, u32>,
    rare: Vec<Rare>,
}

/// What is a job's own.
#[derive(Copy, Clone, Debug, PartialEq)]
struct Row {
    submitted: Time,
    work: Work,
    sort: u32,
    /// One more than the place of what few jobs have; 0 for none.
    rare: u32,
}

/// What many jobs have in common.
#[derive(Clone, Debug, PartialEq)]
struct Sort {
    /// Without id, submission and what few jobs have.
    job: Job,
    /// Another sort with the same hash.
    next: Option<u32>,
}

/// What few jobs have.
#[derive(Clone, Debug, Default, PartialEq)]
struct Rare {
    declared: Option<Work>,
    value: Vec<(Time, f64)>,
    after: Vec<JobId>,
    not_before: Option<Time>,
    fails_at: Option<Work>,
    batches: Box<[BatchPhase]>,
    tells: Option<Box<TrainingSignals>>,
}

impl CompactJobs {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// When the job at a place is submitted; nothing behind the last.
    pub fn submitted(&self, at: usize) -> Option<Time> {
        self.rows.get(at).map(|row| row.submitted)
    }

    /// The job at a place; its id is that place.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn get(&self, at: usize) -> TraceJob {
        let row = self.rows[at];
        let mut job = Job {
            id: JobId(at as u32),
            submitted: row.submitted,
            ..self.sorts[row.sort as usize].job.clone()
        };
        let Some(rare) = self.rare_of(row) else { return TraceJob::new(job, row.work) };
        let Rare { declared, value, after, not_before, fails_at, batches, tells } = rare.clone();
        (job.declared, job.not_before) = (declared, not_before);
        (job.value, job.after) = (value, after);
        TraceJob { job: Arc::new(job), work: row.work, fails_at, batches, tells }
    }

    /// All jobs, by their place.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = TraceJob> + '_ {
        (0..self.len()).map(|at| self.get(at))
    }

    /// How much work each is as its user declared it, or else as it is; by place.
    pub fn known_work(&self) -> impl ExactSizeIterator<Item = Work> + '_ {
        self.rows.iter().map(|row| {
            let declared = self.rare_of(*row).and_then(|rare| rare.declared);
            declared.unwrap_or(row.work)
        })
    }

    /// Adds a job behind the last; its id does not matter.
    pub(crate) fn push(&mut self, one: TraceJob) {
        let TraceJob { job, work, fails_at, batches, tells } = one;
        let mut job = Arc::unwrap_or_clone(job);
        let submitted = job.submitted;
        (job.id, job.submitted) = (JobId(0), Time::ZERO);
        let rare = Rare {
            declared: job.declared.take(),
            value: std::mem::take(&mut job.value),
            after: std::mem::take(&mut job.after),
            not_before: job.not_before.take(),
            fails_at,
            batches,
            tells,
        };
        let rare = if rare.is_nothing() {
            0
        } else {
            self.rare.push(rare);
            self.rare.len() as u32
        };
        let sort = self.sort_of(job);
        self.rows.push(Row { submitted, work, sort, rare });
    }

    /// Says which jobs the one at a place has to follow.
    pub(crate) fn set_after(&mut self, at: usize, after: Vec<JobId>) {
        if self.rows[at].rare == 0 {
            self.rare.push(Rare::default());
            self.rows[at].rare = self.rare.len() as u32;
        }
        self.rare[self.rows[at].rare as usize - 1].after = after;
    }

    /// The order of submission, the earlier row first of equals; nothing if that is how they stand.
    pub(crate) fn order(&self) -> Option<Vec<u32>> {
        if self.rows.is_sorted_by_key(|row| row.submitted) {
            return None;
        }
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        order.sort_by_key(|row| (self.rows[*row as usize].submitted, *row));
        Some(order)
    }

    /// Puts them into an order.
    pub(crate) fn arrange(&mut self, order: &[u32]) {
        self.rows = order.iter().map(|row| self.rows[*row as usize]).collect();
    }

    /// Counts time from another moment.
    pub(crate) fn count_from(&mut self, first: Time) {
        let moved = |time: Time| Time(time.0.saturating_sub(first.0));
        for row in &mut self.rows {
            row.submitted = moved(row.submitted);
        }
        for rare in &mut self.rare {
            rare.not_before = rare.not_before.map(moved);
            for (time, _) in &mut rare.value {
                *time = moved(*time);
            }
        }
    }

    fn rare_of(&self, row: Row) -> Option<&Rare> {
        self.rare.get((row.rare as usize).checked_sub(1)?)
    }

    /// The sort that is like this, a new one if none is.
    fn sort_of(&mut self, job: Job) -> u32 {
        let new = self.sorts.len() as u32;
        let first = *self.by_hash.entry(hash(&job)).or_insert(new);
        let mut at = first;
        while at != new {
            let sort = &mut self.sorts[at as usize];
            if sort.job == job {
                return at;
            }
            at = *sort.next.get_or_insert(new);
        }
        self.sorts.push(Sort { job, next: None });
        new
    }
}

impl Rare {
    fn is_nothing(&self) -> bool {
        self.declared.is_none()
            && self.value.is_empty()
            && self.after.is_empty()
            && self.not_before.is_none()
            && self.fails_at.is_none()
            && self.batches.is_empty()
            && self.tells.is_none()
    }
}

/// Of what jobs differ in; two that differ in the rest alone have one hash, and equality looks at all of it.
fn hash(job: &Job) -> u64 {
    let mut hasher = FxHasher::default();
    let want = &job.want;
    (job.tenant, job.model, job.priority, job.group, job.run_max).hash(&mut hasher);
    (want.gpus, want.gpus_min, want.gpus_max, want.batch, &want.kinds[..]).hash(&mut hasher);
    // All that rows of a trace differ in: jobs with the same hash stand in one line, which is walked for each of them.
    (want.permille, want.gpu_memory_mib, want.cpus_per_gpu, want.memory_mib_per_gpu)
        .hash(&mut hasher);
    (want.nodes_max, want.pool, job.weight.to_bits(), job.min_run).hash(&mut hasher);
    (want.permille_max, want.gpu_memory_persistent_mib, &job.labels).hash(&mut hasher);
    hasher.finish()
}

/// A workload whose jobs are [`CompactJobs`]: sorted by submission, the id of each its place.
#[derive(Clone, Debug)]
pub struct CompactWorkload {
    /// What it is called in reports.
    pub name: String,
    /// The jobs, by [`JobId`].
    pub jobs: CompactJobs,
    /// The tenants they belong to.
    pub tenants: Tenants,
    /// The models they train.
    pub catalog: Catalog,
    /// Their names outside.
    pub(crate) labels: Labels,
}

impl CompactWorkload {
    /// What a job is called outside.
    pub fn label(&self, job: JobId) -> String {
        self.labels.get(job.index()).unwrap_or_else(|| job.0.to_string())
    }

    /// The same jobs at full length.
    pub fn into_whole(self) -> Workload {
        Workload {
            name: self.name,
            jobs: self.jobs.iter().collect(),
            tenants: self.tenants,
            catalog: self.catalog,
            labels: self.labels.into_list(self.jobs.len()),
        }
    }

    /// Whether nothing speaks against a run on this cluster; if not, [`Workload::check`] says what does.
    pub fn is_sound(&self, cluster: &Cluster) -> bool {
        let row = |row: &Row| row.work.0 > 0.0 && row.work.0.is_finite();
        // Jobs that follow others may wait in a circle, which takes all of them to be seen.
        if !self.jobs.rows.iter().all(row) || self.jobs.rare.iter().any(|one| !one.after.is_empty())
        {
            return false;
        }
        let sort = |sort: &Sort| TraceJob::new(sort.job.clone(), Work(1.0));
        let one_of_each = Workload {
            jobs: self.jobs.sorts.iter().map(sort).collect(),
            tenants: self.tenants.clone(),
            catalog: self.catalog.clone(),
            ..Workload::empty(&self.name)
        };
        one_of_each.check(cluster).is_empty()
    }

    /// The part of the cluster that the jobs need, as [`Workload::offered_load`] tells it.
    pub fn offered_load(&self, cluster: &Cluster) -> f64 {
        let reference = Reference::new(&self.catalog, cluster);
        let parts: Vec<(f64, (f64, f64))> = (self.jobs.sorts.iter())
            .map(|sort| {
                let rate = reference.rate(sort.job.model, &sort.job.want);
                (rate, reference.demand_parts(&sort.job))
            })
            .collect();
        let demand = |(at, row): (usize, &Row)| {
            let (rate, (gpus, whole)) = parts[row.sort as usize];
            let changes_batch =
                self.jobs.rare_of(*row).is_some_and(|rare| !rare.batches.is_empty());
            let seconds = if changes_batch {
                reference.seconds_for(&self.jobs.get(at), row.work)
            } else {
                row.work.0 / rate
            };
            gpus * seconds / whole
        };
        let demand: f64 = self.jobs.rows.iter().enumerate().map(demand).sum();
        let at = |row: Option<&Row>| row.map_or(Time::ZERO, |row| row.submitted);
        let span = at(self.jobs.rows.last()).since(at(self.jobs.rows.first()));
        demand / span.as_secs_f64()
    }
}

/// How long jobs run undisturbed as their users asked for them, packed on their reference type.
pub struct Ideal(Reference);

impl Ideal {
    /// Of jobs that train models of a catalog on a cluster.
    pub fn new(catalog: &Catalog, cluster: &Cluster) -> Ideal {
        Ideal(Reference::new(catalog, cluster))
    }

    /// How long one job runs.
    pub fn of(&self, one: &TraceJob) -> Span {
        Span::from_secs_f64(self.0.seconds_for(one, one.work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::{GpuType, Want};

    fn odd_ones() -> Vec<TraceJob> {
        let simple = |id, gpus| Job::simple(JobId(id), Time(u64::from(id) * 7), gpus);
        let mut jobs: Vec<TraceJob> = (0..6)
            .map(|id| TraceJob::new(simple(id, 1 + id % 2), Work(f64::from(id) + 0.5)))
            .collect();
        let mut odd = simple(6, 4);
        odd.value = vec![(Time(5), 1.0), (Time(9), 0.25)];
        (odd.declared, odd.not_before, odd.after) =
            (Some(Work(3.0)), Some(Time(8)), vec![JobId(2)]);
        odd.want = Want { kinds: [GpuType(1)][..].into(), nodes_max: 2, ..Want::gpus(4) };
        jobs.push(TraceJob { fails_at: Some(Work(1.0)), ..TraceJob::new(odd, Work(2.0)) });
        // Like the first but for what the hash does not look at.
        let alike = Job { preemptible: false, ..simple(7, 1) };
        jobs.push(TraceJob::new(alike, Work(1.0)));
        let batches = Box::new([BatchPhase { from: 0.5, batch: 64 }]);
        jobs.push(TraceJob { batches, ..TraceJob::new(simple(8, 1), Work(1.0)) });
        jobs
    }

    #[test]
    fn every_job_comes_out_as_it_went_in() {
        let mut compact = CompactJobs::default();
        odd_ones().into_iter().for_each(|one| compact.push(one));
        assert_eq!(compact.iter().collect::<Vec<_>>(), odd_ones());
        assert_eq!((compact.sorts.len(), compact.rare.len()), (4, 2), "sorts are shared");
        assert_eq!(compact.known_work().nth(6), Some(Work(3.0)));
        assert_eq!(size_of::<Row>(), 24);
    }
}
