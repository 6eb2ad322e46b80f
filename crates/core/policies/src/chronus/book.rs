//! What is known and promised of each job.

use super::Settings;
use crate::prelude::*;
use trainyard_types::{Config, IdMap};

/// How a job stands.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum PromiseState {
    /// Its deadline is promised.
    Promised,
    /// Its deadline was refused.
    Refused,
    /// It has no deadline.
    BestEffort,
    /// Its deadline cannot be met any more.
    Lost,
}

/// A job in the book.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) standing: PromiseState,
    /// Deadlines that may be promised, with their value, soonest first.
    pub(super) steps: Vec<(Time, f64)>,
    /// The moment by which it must be over: the last step if one was promised, else the first.
    pub(super) by: Option<Time>,
    /// The step that is planned for; later ones are worth less.
    pub(super) step: usize,
    /// The type of GPU that its leases are on, if they are promised.
    pub(super) lane: Option<Lane>,
    /// How long it may take in all, with a margin for overheads and errors.
    pub(super) allowed: Span,
    /// Whether plans reckon with it.
    pub(super) is_planned: bool,
    /// Whether it holds the present lease, by plan or because it can end within it.
    pub(super) holds: bool,
    /// Whether it has used up what it was allowed, and is first to get what is left over.
    pub(super) is_overdue: bool,
    /// By how much the soonest moment that could be promised is late.
    pub(super) late: Span,
}

/// The leases of one type of GPU, as a promised job has them.
#[derive(Copy, Clone, Debug)]
pub(super) struct Lane {
    pub(super) kind: GpuType,
    /// How many times as long it takes there as where it is reckoned without a promise.
    pub(super) slowness: f64,
    /// How much longer it may take where idle GPUs are slowest.
    pub(super) slowest: f64,
}

/// What is believed of a job at a moment.
#[derive(Copy, Clone)]
pub(super) struct Facts<'a> {
    pub(super) job: JobRef<'a>,
    /// GPUs that it takes; a share of one counts as one.
    pub(super) gpus: u32,
    /// The type of GPU that its leases are on.
    pub(super) kind: Option<GpuType>,
    /// How long it takes in all, if that is known; this and the others on the type of its leases.
    pub(super) total: Option<Span>,
    /// The same with overheads and a margin.
    pub(super) allowed: Span,
    /// How long the rest takes.
    pub(super) left: Span,
    /// The same with what is left of overheads and margin.
    pub(super) rest: Span,
}

impl Facts<'_> {
    pub(super) fn id(&self) -> JobId {
        self.job.id()
    }
}

/// All jobs.
#[derive(Default)]
pub(super) struct Book {
    records: IdMap<JobId, Record>,
}

impl Book {
    pub(super) fn get(&self, job: JobId) -> Option<&Record> {
        self.records.get(&job)
    }

    pub(super) fn get_mut(&mut self, job: JobId) -> Option<&mut Record> {
        self.records.get_mut(&job)
    }

    pub(super) fn insert(&mut self, job: JobId, record: Record) {
        self.records.insert(job, record);
    }

    /// Ends all leases.
    pub(super) fn end_leases(&mut self) {
        let holders: Vec<JobId> =
            self.records.iter().filter(|(_, record)| record.holds).map(|(id, _)| id).collect();
        for job in holders {
            self.records.get_mut(&job).expect("it was found").holds = false;
        }
    }

    /// Forgets jobs that ended; those that take part are given by id.
    pub(super) fn retain(&mut self, facts: &[Facts<'_>]) {
        let known = facts.iter().filter(|one| self.records.contains_key(&one.id())).count();
        if known == self.records.len() {
            return;
        }
        let mut there = facts.iter().map(Facts::id).peekable();
        let mut is_gone = |id: &JobId| {
            while there.next_if(|other| other < id).is_some() {}
            there.peek() != Some(id)
        };
        let gone: Vec<JobId> = self.records.keys().filter(|id| is_gone(id)).collect();
        for job in gone {
            self.records.remove(&job);
        }
    }

    pub(super) fn clear(&mut self) {
        self.records = IdMap::default();
    }

    /// What is believed of a job now.
    ///
    /// The margin is for the whole job: what restarts and slow places have cost of it so far is gone.
    pub(super) fn facts<'a>(
        &self,
        job: JobRef<'a>,
        view: &View<'a>,
        settings: &Settings,
    ) -> Facts<'a> {
        let gpus = job.spec.want.gpus.max(1);
        let lane = self.get(job.id()).and_then(|record| record.lane);
        let here = |span: Span| lane.map_or(span, |lane| stretched(span, lane.slowness));
        let total = view.time_total(job).map(here);
        let allowed = match self.get(job.id()) {
            Some(record) => record.allowed,
            None => allowed(job, view, total, settings),
        };
        let left = view.time_left(job).map_or(settings.lease(), here);
        let done = total.map_or(Span::ZERO, |total| total.minus(left));
        let margin = allowed.minus(total.unwrap_or(allowed));
        let spent = job.state.ran(view.now).minus(done);
        let kind = lane.map(|lane| lane.kind);
        Facts { job, gpus, kind, total, allowed, left, rest: left + margin.minus(spent) }
    }
}

/// A span that is so many times as long; exactly itself where nothing changes.
pub(super) fn stretched(span: Span, times: f64) -> Span {
    if times == 1.0 { span } else { span.scaled(times) }
}

/// The duration that is reckoned with: with one stop and start in each lease, and a margin.
///
/// The authors' `estimate_duration` is duration x (1 + (1 + log2 GPUs) x 0.5 min / lease) x 1.1; what a stop and a
/// start cost comes from the profile here.
fn allowed(job: JobRef<'_>, view: &View<'_>, total: Option<Span>, settings: &Settings) -> Span {
    let Some(total) = total else { return settings.lease() };
    let shapes = &view.state().shapes;
    let shape = shapes.iter().find(|(kind, _)| job.spec.want.accepts(*kind));
    let config = shape.map(|&(kind, per_node)| Config::packed(kind, job.spec.want.gpus, per_node));
    let save = view.change(job, config.as_ref(), None).save;
    let start = view.change(job, None, config.as_ref()).start;
    let overhead = (save + start).as_secs_f64() / settings.lease().as_secs_f64();
    let allowed = total.scaled((1.0 + overhead) * settings.margin);
    settings.rules.set().allowed(allowed)
}

/// Starts after a boundary come some microseconds late, and ends with them.
pub(super) const INSTANT: Span = Span(1000);
