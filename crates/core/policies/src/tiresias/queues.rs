//! The queues of discretised 2D-LAS (section 3.2.3), through which a job sinks as it is served.

use super::Service;
use super::authors::{MURI, TIRESIAS};
use crate::prelude::*;
use rustc_hash::FxHashMap;

/// When queues are looked at, and how fast a job sinks.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Jump {
    /// At the moment a threshold is crossed; the queue is a function of the service attained.
    #[default]
    Exact,
    /// (limit - executed) / GPUs seconds from now, rounded down, one queue at each event: SymbioticLab/Tiresias.
    TiresiasCode,
    /// limit / GPUs - executed seconds from now, rounded up, one queue at each event: Rivendile/Muri.
    MuriCode,
}

impl Jump {
    /// How jobs sink by this choice.
    fn sinking(self) -> &'static dyn Sinking {
        match self {
            Jump::Exact => &Exact,
            Jump::TiresiasCode => &TIRESIAS,
            Jump::MuriCode => &MURI,
        }
    }
}

/// How jobs sink.
pub(super) trait Sinking: Sync {
    /// The service of a job since its last promotion.
    fn served(&self, job: JobRef<'_>, seat: &Seat, service: Service, now: Time) -> Span;

    /// Puts a job into its queue, given what it was served.
    fn sink(&self, job: JobRef<'_>, seat: &mut Seat, queues: &Queues, now: Time);

    /// How long from now until a job that runs has been served up to a limit; nothing if that never happens.
    fn time_to(
        &self,
        limit: Span,
        job: JobRef<'_>,
        seat: &Seat,
        service: Service,
        now: Time,
    ) -> Option<Span>;

    /// How long a job must have waited that ran so long, to be promoted.
    fn wait_needed(&self, ran: Span, promote_knob: f64) -> Span;

    /// Whether the queue of a job depends on its past, so that each must be remembered.
    fn has_memory(&self) -> bool;
}

/// The queues. Memory is kept for promoted jobs, and under the authors' rules for every job.
pub(crate) struct Queues {
    pub(crate) thresholds: Vec<Span>,
    pub(crate) service: Service,
    /// PROMOTEKNOB of section 3.2.3; 0 for never, which the paper writes as infinity.
    pub(crate) promote_knob: f64,
    sinking: &'static dyn Sinking,
    seats: FxHashMap<JobId, Seat>,
}

/// What is remembered of one job.
#[derive(Copy, Clone, Default)]
pub(super) struct Seat {
    pub(super) queue: usize,
    pub(super) moved_at: Option<Time>,
    /// Service and run time at the last promotion: what came before does not count.
    service_before: Span,
    ran_before: Span,
    /// The first start since the last promotion.
    started_at: Option<Time>,
}

impl Seat {
    /// How long a job ran since its last promotion.
    pub(super) fn ran(&self, job: JobRef<'_>, now: Time) -> Span {
        job.state.ran(now).minus(self.ran_before)
    }
}

impl Queues {
    pub(crate) fn new(thresholds: Vec<Span>, service: Service, jump: Jump) -> Queues {
        let mut thresholds = thresholds;
        thresholds.sort_unstable();
        let sinking = jump.sinking();
        Queues { thresholds, service, promote_knob: 0.0, sinking, seats: FxHashMap::default() }
    }

    /// The queue of a job now. Asking twice at one moment gives the same answer.
    pub(crate) fn queue(&mut self, job: JobRef<'_>, view: &View<'_>) -> usize {
        let mut seat = self.seat(job, view.now);
        let before = seat;
        let runs = job.state.planned.is_some();
        if job.state.is_placed() && seat.started_at.is_none() {
            seat.started_at = job.state.last_start;
        }
        self.sinking.sink(job, &mut seat, self, view.now);
        if !runs && seat.queue > 0 && self.overdue(job, &seat, view.now) == Some(Span::ZERO) {
            // Back to the first queue, with what it was served and how long it waited counted anew.
            seat = Seat {
                moved_at: Some(view.now),
                service_before: self.service.of(job, view.now),
                ran_before: job.state.ran(view.now),
                ..Seat::default()
            };
        }
        if self.sinking.has_memory()
            || seat.ran_before != before.ran_before
            || self.seats.contains_key(&job.id())
        {
            self.seats.insert(job.id(), seat);
        }
        seat.queue
    }

    /// When the queue of a job changes though nothing happens to it.
    pub(crate) fn changes_at(&self, job: JobRef<'_>, view: &View<'_>) -> Option<Time> {
        let now = view.now;
        let seat = self.seat(job, now);
        if job.state.planned.is_none() {
            let more = (seat.queue > 0).then(|| self.overdue(job, &seat, now)).flatten()?;
            return Some(now + more);
        }
        let limit = *self.thresholds.get(seat.queue)?;
        Some(now + self.sinking.time_to(limit, job, &seat, self.service, now)?)
    }

    pub(crate) fn over(&mut self, job: JobId) {
        self.seats.remove(&job);
    }

    pub(crate) fn forget(&mut self) {
        self.seats.clear();
    }

    /// What is remembered of a job, or what would be if it had never been promoted.
    fn seat(&self, job: JobRef<'_>, now: Time) -> Seat {
        self.seats.get(&job.id()).copied().unwrap_or_else(|| Seat {
            queue: self.natural(self.service.of(job, now)),
            started_at: job.state.first_start,
            ..Seat::default()
        })
    }

    /// The first queue whose limit a service is below; the last one has none.
    fn natural(&self, service: Span) -> usize {
        self.thresholds.partition_point(|limit| *limit <= service)
    }

    /// How much longer a waiting job must wait to be promoted; nothing if it never will be.
    ///
    /// It must have waited `promote_knob` times as long as it ran, both counted since its last promotion
    /// (STARVELIMIT of section 3.2.3; the authors' code does not start counting anew when the job runs again).
    fn overdue(&self, job: JobRef<'_>, seat: &Seat, now: Time) -> Option<Span> {
        let ran = seat.ran(job, now);
        if self.promote_knob <= 0.0 || ran == Span::ZERO {
            return None;
        }
        let waited = now.since(seat.started_at?).minus(ran);
        Some(self.sinking.wait_needed(ran, self.promote_knob).minus(waited))
    }
}

/// The moment a threshold is crossed decides.
struct Exact;

impl Sinking for Exact {
    fn served(&self, job: JobRef<'_>, seat: &Seat, service: Service, now: Time) -> Span {
        service.of(job, now).minus(seat.service_before)
    }

    fn sink(&self, job: JobRef<'_>, seat: &mut Seat, queues: &Queues, now: Time) {
        seat.queue = queues.natural(self.served(job, seat, queues.service, now));
    }

    fn time_to(
        &self,
        limit: Span,
        job: JobRef<'_>,
        seat: &Seat,
        service: Service,
        now: Time,
    ) -> Option<Span> {
        service.time_until(limit.minus(self.served(job, seat, service, now)), job)
    }

    fn wait_needed(&self, ran: Span, promote_knob: f64) -> Span {
        ran.scaled(promote_knob)
    }

    fn has_memory(&self) -> bool {
        false
    }
}
