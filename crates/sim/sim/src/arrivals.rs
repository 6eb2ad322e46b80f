//! Jobs as a run comes to them, and what becomes of them when they are over.

use crate::in_order::InOrder;
use crate::outcome::JobOutcome;
use trainyard_types::{JobId, Span, Time};
use trainyard_workload::{CompactJobs, TraceJob};

/// Told of jobs that come and go in a run that keeps none of them.
pub trait Ledger {
    /// A job has come. They come by ascending submission and id.
    fn submitted(&mut self, job: &TraceJob);

    /// A job is over. They are over in the order of time.
    fn over(&mut self, job: &TraceJob, one: &JobOutcome);
}

/// Jobs to come, sorted by submission.
pub(crate) enum Arrivals<'a> {
    /// At full length, all of them; what came of each is kept until the end.
    Listed(&'a [TraceJob]),
    /// In little room; each is there from its submission to its end, and a ledger is told of both.
    Compact(&'a CompactJobs, &'a mut dyn Ledger),
}

impl Arrivals<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Arrivals::Listed(jobs) => jobs.len(),
            Arrivals::Compact(jobs, _) => jobs.len(),
        }
    }

    /// When the job at a place comes; nothing behind the last.
    pub(crate) fn submitted(&self, at: usize) -> Option<Time> {
        match self {
            Arrivals::Listed(jobs) => jobs.get(at).map(|one| one.job.submitted),
            Arrivals::Compact(jobs, _) => jobs.submitted(at),
        }
    }

    /// Their ids, ascending.
    pub(crate) fn ids(&self) -> Vec<JobId> {
        match self {
            Arrivals::Listed(jobs) => jobs.iter().map(|one| one.job.id).collect(),
            Arrivals::Compact(..) => Vec::new(),
        }
    }
}

/// GPU-seconds of jobs that are over, added up by ascending id: a sum of real numbers depends on its order.
pub(crate) struct Held {
    sum: f64,
    waiting: InOrder<Span>,
}

impl Default for Held {
    fn default() -> Held {
        // The sum of nothing has its own sign.
        Held { sum: std::iter::empty::<f64>().sum(), waiting: InOrder::default() }
    }
}

impl Held {
    pub(crate) fn add(&mut self, job: JobId, gpu_time: Span) {
        let Held { sum, waiting } = self;
        waiting.put(job.index(), gpu_time, |time| *sum += time.as_secs_f64());
    }

    pub(crate) fn finish(self) -> f64 {
        let mut sum = self.sum;
        self.waiting.finish(|time| sum += time.as_secs_f64());
        sum
    }
}
