//! Tiresias: two-dimensional least attained service in a few queues, so that only crossing a threshold costs a place.

use crate::prelude::*;
use rustc_hash::FxHashMap;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "tiresias",
    about: "Jobs sink through a few queues as they use GPU time; who waits too long may return to the first.",
    paper: "Gu et al., Tiresias, NSDI 2019",
    needs: Needs::NOTHING,
    class: Taxonomy::rigid(Objective::CompletionTime, Family::LeastServed).preemptive(),
    settings: &[
        (
            "thresholds",
            "service at which a job sinks into the next queue, in GPU-seconds written as a length of time",
        ),
        ("service", "`gpu-time`: GPUs times time; `time`: time alone"),
        (
            "promote_knob",
            "a job that waited this many times as long as it ran returns to the first queue; 0 is never",
        ),
        ("order", "inside a queue: `started`, `waiting-since` or `submitted` first"),
        ("jump", "`exact`, or when the authors' simulators look: `tiresias-code`, `muri-code`"),
        (
            "mode",
            "`changes`, `refill-requeue` as the authors' simulators do, or `recount` as Pollux' does",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    thresholds: Vec<Span>,
    service: Service,
    promote_knob: f64,
    order: Order,
    jump: Jump,
    mode: Mode,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            thresholds: authors_thresholds(),
            service: Service::GpuTime,
            promote_knob: 0.0,
            order: Order::WaitingSince,
            jump: Jump::Exact,
            mode: Mode::Changes,
        }
    }
}

/// The limits in the authors' published code, in GPU-seconds.
pub(crate) fn authors_thresholds() -> Vec<Span> {
    vec![Span::secs(3250), Span::secs(7200)]
}

/// What counts as service.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Service {
    /// GPUs times time: two dimensions.
    #[default]
    GpuTime,
    /// Time alone: one dimension.
    Time,
}

impl Service {
    /// The service a job has attained.
    pub(crate) fn of(self, job: JobRef<'_>, now: Time) -> Span {
        match self {
            Service::GpuTime => job.state.attained(now),
            Service::Time => job.state.ran(now),
        }
    }

    /// The service a job attains in `span` where it is.
    pub(crate) fn over(self, span: Span, job: JobRef<'_>) -> Span {
        match self {
            Service::GpuTime => span.times(u64::from(job.state.gpus())),
            Service::Time => span,
        }
    }

    /// How long a job takes to attain `more`, where it is; never while it holds no GPU.
    pub(crate) fn time_until(self, more: Span, job: JobRef<'_>) -> Option<Span> {
        if !job.state.is_placed() {
            return None;
        }
        let pace = match self {
            Service::GpuTime => u64::from(job.state.gpus()).max(1),
            Service::Time => 1,
        };
        Some(Span(more.0.div_ceil(pace)))
    }
}

/// Who of one queue goes first.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Who started first, and may stop those that started later.
    Started,
    /// Who has waited longest since it last ran; nobody is stopped for one of its own queue.
    #[default]
    WaitingSince,
    /// Who was submitted first; nobody is stopped for one of its own queue.
    Submitted,
}

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

/// The queues. Memory is kept for promoted jobs, and under the authors' rules for every job.
pub(crate) struct Queues {
    pub(crate) thresholds: Vec<Span>,
    pub(crate) service: Service,
    pub(crate) promote_knob: f64,
    pub(crate) jump: Jump,
    seats: FxHashMap<JobId, Seat>,
}

/// What is remembered of one job.
#[derive(Copy, Clone, Default)]
struct Seat {
    queue: usize,
    moved_at: Option<Time>,
    /// Service and run time at the last promotion: what came before does not count.
    service_before: Span,
    ran_before: Span,
    /// The first start since the last promotion.
    started_at: Option<Time>,
}

impl Queues {
    pub(crate) fn new(thresholds: Vec<Span>, service: Service, jump: Jump) -> Queues {
        let mut thresholds = thresholds;
        thresholds.sort_unstable();
        Queues { thresholds, service, promote_knob: 0.0, jump, seats: FxHashMap::default() }
    }

    /// The queue of a job now. Asking twice at one moment gives the same answer.
    pub(crate) fn queue(&mut self, job: JobRef<'_>, view: &View<'_>) -> usize {
        let mut seat = self.seat(job, view.now);
        let before = seat;
        let runs = job.state.planned.is_some();
        if job.state.is_placed() && seat.started_at.is_none() {
            seat.started_at = job.state.last_start;
        }
        if self.jump == Jump::Exact {
            seat.queue = self.natural(self.since_promotion(job, &seat, view.now));
        } else if runs
            && seat.moved_at != Some(view.now)
            && self
                .thresholds
                .get(seat.queue)
                .is_some_and(|limit| self.since_promotion(job, &seat, view.now) >= *limit)
        {
            seat.queue += 1;
            seat.moved_at = Some(view.now);
        }
        if !runs && seat.queue > 0 && self.overdue(job, &seat, view.now) == Some(Span::ZERO) {
            seat = Seat {
                moved_at: Some(view.now),
                service_before: self.service.of(job, view.now),
                ran_before: job.state.ran(view.now),
                ..Seat::default()
            };
        }
        if self.jump != Jump::Exact
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
        let gpus = match self.service {
            Service::GpuTime => u64::from(job.spec.want.gpus).max(1),
            Service::Time => 1,
        };
        let executed = job.state.ran(now).minus(seat.ran_before);
        match self.jump {
            Jump::Exact => {
                let more = limit.minus(self.since_promotion(job, &seat, now));
                Some(now + self.service.time_until(more, job)?)
            }
            Jump::TiresiasCode => {
                Some(now + Span::secs(limit.minus(executed).0 / 1_000_000 / gpus))
            }
            Jump::MuriCode => {
                let whole = Span::secs(limit.0.div_ceil(gpus).div_ceil(1_000_000));
                Some(now + whole.minus(executed))
            }
        }
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

    fn natural(&self, service: Span) -> usize {
        self.thresholds.partition_point(|limit| *limit <= service)
    }

    fn since_promotion(&self, job: JobRef<'_>, seat: &Seat, now: Time) -> Span {
        match (self.jump, self.service) {
            (Jump::Exact, service) => service.of(job, now).minus(seat.service_before),
            (_, Service::Time) => job.state.ran(now).minus(seat.ran_before),
            (_, Service::GpuTime) => {
                let gpus = u64::from(job.spec.want.gpus);
                job.state.ran(now).minus(seat.ran_before).times(gpus)
            }
        }
    }

    /// How much longer a waiting job must wait to be promoted; nothing if it never will be.
    ///
    /// It must have waited `promote_knob` times as long as it ran, both counted since its last promotion
    /// (the paper's STARVELIMIT; the authors' code does not start counting anew when the job runs again).
    fn overdue(&self, job: JobRef<'_>, seat: &Seat, now: Time) -> Option<Span> {
        let ran = job.state.ran(now).minus(seat.ran_before);
        if self.promote_knob <= 0.0 || ran == Span::ZERO {
            return None;
        }
        let waited = now.since(seat.started_at?).minus(ran);
        let needed = match self.jump {
            Jump::Exact => ran.scaled(self.promote_knob),
            // The authors count whole seconds.
            Jump::TiresiasCode | Jump::MuriCode => {
                Span::secs((ran.as_secs_f64() * self.promote_knob) as u64)
            }
        };
        Some(needed.minus(waited))
    }
}

/// The place of a job inside its queue.
pub(crate) fn place_in_queue(queue: usize, order: Order, job: JobRef<'_>) -> Key {
    // A job that is being stopped waits from now on; among those that run, the latest to start goes first.
    let since = if job.state.is_placed() { job.state.since } else { job.state.queued_at };
    let key = match order {
        // Who has not started yet comes last, in order of submission.
        Order::Started => {
            Key::at(job.state.first_start.unwrap_or(Time::NEVER)).tie(job.spec.submitted)
        }
        Order::WaitingSince => Key::value(0).tie(since),
        Order::Submitted => Key::value(0).tie(job.spec.submitted),
    };
    key.tier(queue as i64)
}

/// O(log n) for each job that changes or crosses a threshold.
struct Tiresias {
    queues: Queues,
    order: Order,
    mode: Mode,
}

impl Rank for Tiresias {
    fn rank(&mut self, job: JobRef<'_>, view: &View<'_>) -> Key {
        let queue = self.queues.queue(job, view);
        match self.mode {
            Mode::Changes => place_in_queue(queue, self.order, job),
            // The position in the authors' list decides.
            Mode::Refill | Mode::RefillRequeue | Mode::Recount => Key::value(0).tier(queue as i64),
        }
    }

    fn changes_at(&mut self, job: JobRef<'_>, view: &View<'_>) -> Option<Time> {
        self.queues.changes_at(job, view)
    }

    fn over(&mut self, job: JobId, _view: &View<'_>) {
        self.queues.over(job);
    }

    fn forget(&mut self) {
        self.queues.forget();
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { thresholds, service, promote_knob, order, jump, mode } = raw.read(ENTRY.name)?;
    if !(0.0..=1e9).contains(&promote_knob) {
        return Err(ENTRY.bad_value("promote_knob", promote_knob, "a number from 0 to 1e9"));
    }
    let mut queues = Queues::new(thresholds, service, jump);
    queues.promote_knob = promote_knob;
    let policy = Ranked::new(Tiresias { queues, order, mode }).mode(mode);
    Ok(Pipeline::new(policy, FewestNodes, ENTRY.needs))
}
