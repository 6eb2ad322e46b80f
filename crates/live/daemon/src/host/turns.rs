//! One turn after the other.

use super::{Failing, Host, HostError, Message, Moment, Refusal};
use crate::clock::wall_micros;
use crate::core::{Ask, Input, Turn};
use crate::metrics::Eviction;
use crate::seen::DaemonSnapshot;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use trainyard_api::{Code, Problem};
use trainyard_backend::{GpuSeen, Report};
use trainyard_framework::Pipeline;
use trainyard_store::{Retention, StoreError, Write};
use trainyard_types::Why;

/// Findings about a GPU that are remembered while nothing can be written.
const HAPPENED_MAX: usize = 64;
/// Messages that one turn takes at most: one commit for all of them.
const BATCH_MAX: usize = 4096;
/// When nothing was compacted for so long, it is looked whether something can be.
pub(super) const COMPACT_AFTER: Duration = Duration::from_secs(600);
/// Between two slices of compaction.
const SLICE_PAUSE: Duration = Duration::from_millis(50);
/// A moment that is overdue because a request is out is looked at again after this.
const OVERDUE_PAUSE: Duration = Duration::from_millis(20);
/// How soon a store that failed is tried again, at first and at most.
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_MOST: Duration = Duration::from_secs(15);
/// What is shown while nothing can be written is not much older than this.
const SHOWN_AFTER: Duration = Duration::from_millis(500);
/// How soon a flight record that failed is begun anew.
const RECORD_RETRY: Duration = Duration::from_secs(60);

/// A caller that waits for an answer.
struct Waiter {
    reply: oneshot::Sender<Result<crate::core::Said, Refusal>>,
    /// The policy that decides from now on if the answer is yes.
    policy: Option<(String, trainyard_types::Span, Option<Pipeline>)>,
}

/// What a turn takes in, and the callers that wait for its outcome.
#[derive(Default)]
struct Batch {
    inputs: Vec<Input>,
    waiters: BTreeMap<u64, Waiter>,
    lookers: Vec<oneshot::Sender<Arc<DaemonSnapshot>>>,
    drafts: Vec<Message>,
    forks: Vec<oneshot::Sender<Result<Moment, Problem>>>,
    keeps: Vec<Write>,
    stop: bool,
}

impl Host {
    pub(super) fn run(mut self) {
        loop {
            let batch = self.gather();
            let stop = batch.stop;
            self.take(batch);
            if stop {
                return self.part();
            }
            if self.wants_base() {
                self.renew();
            }
        }
    }

    /// Waits for a message or a moment, and takes what is there.
    fn gather(&mut self) -> Batch {
        let mut batch = Batch::default();
        let wait = self.next_moment().saturating_duration_since(Instant::now());
        let mut next = match self.messages.recv_timeout(wait) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => {
                self.compact();
                None
            }
            Err(RecvTimeoutError::Disconnected) => {
                batch.stop = true;
                None
            }
        };
        for _ in 0..BATCH_MAX {
            let Some(message) = next else { break };
            self.sort(message, &mut batch);
            next = self.messages.try_recv().ok();
        }
        if let Some(message) = next {
            self.sort(message, &mut batch);
        }
        if let Some(outcome) = self.policy_worker.give_up(Instant::now()) {
            batch.inputs.push(Input::Outcome(outcome));
        }
        if !self.policy_worker.is_asked() {
            for message in std::mem::take(&mut self.put_off) {
                self.sort(message, &mut batch);
            }
        }
        batch
    }

    fn next_moment(&self) -> Instant {
        let now = Instant::now();
        let mut next = self.compact_at;
        if let Some(failing) = &self.failing {
            return next.min(failing.retry_at);
        }
        if let Some(deadline) = self.policy_worker.deadline() {
            next = next.min(deadline);
        }
        if let Some(due) = self.core.as_ref().and_then(|core| core.due()) {
            let wait = due.since(self.clock.now());
            let pause = if self.policy_worker.is_asked() { OVERDUE_PAUSE } else { Duration::ZERO };
            next = next.min(now + Duration::from_micros(wait.0).max(pause));
        }
        next
    }

    fn sort(&mut self, message: Message, batch: &mut Batch) {
        match message {
            Message::Ask { caller, ask, pipeline, reply } => {
                let sets_policy = matches!(*ask, Ask::SetPolicy { .. } | Ask::TryPolicy(_));
                if sets_policy && self.policy_worker.is_asked() {
                    // The present policy answers first: an answer belongs to the policy that was asked.
                    self.put_off.push(Message::Ask { caller, ask, pipeline, reply });
                    return;
                }
                let policy = match &*ask {
                    Ask::SetPolicy { label, half_life } => {
                        Some((label.clone(), *half_life, pipeline))
                    }
                    Ask::TryPolicy(asked) => Some((asked.label.clone(), asked.half_life, pipeline)),
                    _ => None,
                };
                let ticket = batch.waiters.len() as u64;
                batch.waiters.insert(ticket, Waiter { reply, policy });
                batch.inputs.push(Input::Ask { ticket, caller, ask: *ask });
            }
            Message::Report(report) => {
                self.note(&report);
                batch.inputs.push(Input::Report(report));
            }
            Message::PolicyOutcome(answer) => {
                if let Some((outcome, seconds)) = self.policy_worker.answered(answer) {
                    let launches = match &outcome {
                        trainyard_engine::PolicyOutcome::Decided(decision) => {
                            decision.changes.iter().filter(|change| change.to.is_some()).count()
                        }
                        _ => 0,
                    };
                    self.shared.metrics.decided(seconds, launches as u64);
                    batch.inputs.push(Input::Outcome(outcome));
                }
            }
            Message::Look(reply) => batch.lookers.push(reply),
            draft @ Message::Draft { .. } => batch.drafts.push(draft),
            Message::Fork(reply) => batch.forks.push(reply),
            Message::Keep { name, value } => batch.keeps.push(Write::SetMeta { name, value }),
            Message::Stop => batch.stop = true,
        }
    }

    /// What must be known beside the core, which may be made anew at any time.
    fn note(&mut self, report: &Report) {
        match report {
            Report::Node { node, seen } => {
                self.nodes.insert(node.clone(), seen.clone());
            }
            Report::Gpu(seen) => {
                let known = self.gpus.entry(seen.uuid.clone()).or_default();
                let mut happened = std::mem::take(&mut known.happened);
                happened.extend(seen.happened.iter().cloned());
                happened.truncate(HAPPENED_MAX);
                *known = GpuSeen { happened, ..seen.clone() };
            }
            Report::Trouble(trouble) => self.trouble.clone_from(trouble),
            _ => {}
        }
    }

    fn take(&mut self, batch: Batch) {
        let Batch { inputs, mut waiters, lookers, drafts, forks, keeps, .. } = batch;
        if let Some(failing) = &self.failing
            && failing.retry_at <= Instant::now()
        {
            self.retry();
        }
        match self.core.as_ref().map(|core| core.due()) {
            // A look alone is no reason for a turn.
            Some(due) if inputs.is_empty() && due.is_none_or(|due| due > self.clock.now()) => {}
            Some(_) => self.turn(inputs, &mut waiters),
            None => self.refuse_all(waiters, &self.store_failed()),
        }
        self.draft(drafts);
        self.fork(forks);
        if self.failing.is_none()
            && let Err(error) = self.commit(&keeps)
        {
            // It is learnt again; a store that fails is found out by the next turn.
            tracing::warn!(target: "trainyard::host", %error, "what was learnt is not kept");
        }
        if !lookers.is_empty() || self.shared.latest().is_none() {
            self.publish();
            if let Some(seen) = self.shared.latest() {
                for looker in lookers {
                    let _ = looker.send(Arc::clone(&seen));
                }
            }
        }
    }

    fn turn(&mut self, inputs: Vec<Input>, waiters: &mut BTreeMap<u64, Waiter>) {
        let (at, wall) = (self.clock.now(), wall_micros());
        let Some(core) = &mut self.core else { return };
        let taken = catch_unwind(AssertUnwindSafe(|| core.turn(at, wall, inputs)));
        let waiting = std::mem::take(waiters);
        let Ok(turn) = taken else {
            let what = "internal error: the core panicked and is made anew from the store; please report it";
            tracing::error!(target: "trainyard::host", "{what}");
            self.fail(what.to_owned());
            return self.refuse_all(waiting, &Problem::new(Code::Internal, what));
        };
        match self.commit(&turn.writes) {
            Ok(()) => self.answer(turn, waiting),
            Err(
                error @ (StoreError::Conflict { .. }
                | StoreError::Missing { .. }
                | StoreError::Invalid { .. }),
            ) => {
                tracing::warn!(target: "trainyard::host", %error, "a turn is taken again");
                self.reopen();
                for waiter in waiting.into_values() {
                    let _ = waiter.reply.send(Err(Refusal::Again));
                }
            }
            Err(error) => {
                tracing::error!(target: "trainyard::host", %error, "nothing can be written");
                self.fail(error.to_string());
                self.refuse_all(waiting, &self.store_failed());
            }
        }
    }

    /// Writes, and tells the clients that follow events.
    pub(super) fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        if writes.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        let committed = self.store.commit(writes)?;
        self.shared.metrics.committed(begun.elapsed().as_secs_f64());
        self.shared.follow_tokens(writes);
        self.shared.events.send_replace(committed.last_event);
        tell(writes);
        Ok(())
    }

    /// What was written may be answered and done.
    fn answer(&mut self, turn: Turn, mut waiting: BTreeMap<u64, Waiter>) {
        let mut turn = turn;
        self.turns += 1;
        self.shared.set_turn(self.turns);
        for (ticket, said) in std::mem::take(&mut turn.replies) {
            let Some(waiter) = waiting.remove(&ticket) else { continue };
            if let (Ok(_), Some((label, half_life, pipeline))) = (&said, waiter.policy) {
                self.options.core.policy.clone_from(&label);
                self.options.core.half_life = half_life;
                self.policy_worker.begin_anew(label, pipeline);
            }
            // The caller may be gone.
            let _ = waiter.reply.send(said.map_err(Refusal::Problem));
        }
        self.carry_out(turn);
        if self.published_at.elapsed() >= SHOWN_AFTER {
            self.publish();
        }
    }

    /// Orders, flight record, request, figures.
    pub(super) fn carry_out(&mut self, turn: Turn) {
        self.count(&turn);
        // What happened to GPUs is on disk.
        self.gpus.values_mut().for_each(|seen| seen.happened.clear());
        for order in turn.orders {
            self.backend.obey(order);
        }
        for notice in turn.notices {
            self.options.notifier.iter().for_each(|notifier| notifier.tell(notice.clone()));
        }
        self.recorder.record(turn.lines);
        if let Some((label, half_life)) = turn.policy {
            self.options.core.policy.clone_from(&label);
            self.options.core.half_life = half_life;
            self.policy_worker.begin_anew(label, None);
        }
        if let Some(request) = turn.request {
            self.policy_worker.ask(request);
        }
    }

    fn count(&mut self, turn: &Turn) {
        self.shared.note_ended(turn.ended.iter().map(|(job, _)| *job));
        let metrics = &self.shared.metrics;
        metrics.quarantined(turn.quarantined);
        metrics.hung(turn.hung);
        for (_, waited) in &turn.launched {
            metrics.admitted();
            metrics.waited(waited.as_secs_f64());
        }
        for why in &turn.stops {
            metrics.evicted(match why {
                Why::Preempted | Why::Moved | Why::Window | Why::Dropped => Eviction::Preempted,
                Why::Machine => Eviction::NodeLost,
                Why::Asked | Why::Pruned => Eviction::Asked,
                Why::TimeLimit => Eviction::TimeLimit,
            });
        }
        for _ in 0..turn.failed {
            metrics.evicted(Eviction::Failed);
        }
        let Some(stats) = self.core.as_ref().map(|core| core.engine().stats()) else { return };
        let failures = |stats: &trainyard_engine::Stats| {
            stats.policy_errors + stats.policy_panics + stats.policy_stuck
        };
        metrics.policy_failed(failures(stats).saturating_sub(failures(&self.counted)));
        metrics.fell_back(stats.fallbacks.saturating_sub(self.counted.fallbacks));
        self.counted = stats.clone();
    }

    fn draft(&mut self, drafts: Vec<Message>) {
        for message in drafts {
            let Message::Draft { caller, request, ends, reply } = message else { continue };
            let drafted = match &self.core {
                Some(core) => core.draft(&caller, &request, &ends),
                None => Err(self.store_failed()),
            };
            let drafted = drafted.and_then(|jobs| {
                self.publish();
                let gone = || Problem::new(Code::Internal, "nothing can be looked at yet");
                Ok((jobs, self.shared.latest().ok_or_else(gone)?))
            });
            let _ = reply.send(drafted);
        }
    }

    /// Hands out forks of the engine as it is now.
    fn fork(&mut self, forks: Vec<oneshot::Sender<Result<Moment, Problem>>>) {
        if forks.is_empty() {
            return;
        }
        self.publish();
        let seen = self.shared.latest();
        for reply in forks {
            let moment = match (&self.core, &seen) {
                (Some(core), Some(seen)) => {
                    let fork = core.engine().fork(seen.snapshot.now);
                    Ok(Moment { seen: Arc::clone(seen), fork })
                }
                _ => Err(self.store_failed()),
            };
            let _ = reply.send(moment);
        }
    }

    fn refuse_all(&self, waiters: BTreeMap<u64, Waiter>, problem: &Problem) {
        for waiter in waiters.into_values() {
            let _ = waiter.reply.send(Err(Refusal::Problem(problem.clone())));
        }
    }

    fn store_failed(&self) -> Problem {
        let why =
            self.shared.health().store.unwrap_or_else(|| "the store takes nothing".to_owned());
        Problem::new(Code::StoreFailed, format!("{why}; nothing was accepted, try again later"))
    }

    /// The turn never was. The core is made anew as soon as the store takes writes again.
    fn fail(&mut self, why: String) {
        self.core = None;
        self.policy_worker.begin_anew(self.options.core.policy.clone(), None);
        self.failing = Some(Failing { retry_at: Instant::now(), pause: RETRY_FIRST });
        self.say(Some(why));
        self.show_what_is_kept();
    }

    fn retry(&mut self) {
        let at = self.clock.now();
        let probe = Write::SetMeta { name: "last_at".to_owned(), value: at.0.to_string() };
        let opened = match self.store.commit(&[probe]) {
            Ok(_) => self.load_and_open(),
            Err(error) => Err(HostError::Store(error)),
        };
        match opened {
            Ok(()) => {
                tracing::info!(target: "trainyard::host", "the core is made anew from the store");
                self.failing = None;
                self.say(None);
            }
            Err(error) => {
                self.core = None;
                let pause = self.failing.as_ref().map_or(RETRY_FIRST, |failing| failing.pause);
                let retry_at = Instant::now() + pause;
                self.failing = Some(Failing { retry_at, pause: (pause * 2).min(RETRY_MOST) });
                self.say(Some(error.to_string()));
            }
        }
    }

    fn load_and_open(&mut self) -> Result<(), HostError> {
        let loaded = self.store.load()?;
        self.open(loaded)
    }

    fn reopen(&mut self) {
        self.core = None;
        if let Err(error) = self.load_and_open() {
            self.fail(error.to_string());
        }
    }

    fn say(&mut self, trouble: Option<String>) {
        let mut health = self.shared.health();
        health.store_since = match &trouble {
            Some(_) => health.store_since.or_else(|| Some(wall_micros())),
            None => None,
        };
        self.shared.metrics.store_fails(trouble.is_some());
        health.store = trouble.map(|why| format!("the store takes nothing: {why}"));
        self.shared.set_health(health);
    }

    /// Whether the flight record needs a new beginning; only possible while no request is out.
    fn wants_base(&self) -> bool {
        let broken = self.recorder.trouble().is_some() && self.base_at.elapsed() >= RECORD_RETRY;
        self.core.is_some() && !self.policy_worker.is_asked() && (self.recorder.is_full() || broken)
    }

    /// Makes the core anew from its own state: a new base for the flight record, a policy without memory.
    fn renew(&mut self) {
        let Some(core) = &mut self.core else { return };
        let writes = core.parting_writes();
        match self.commit(&writes) {
            Ok(()) => self.reopen(),
            Err(error) => self.fail(error.to_string()),
        }
    }

    fn compact(&mut self) {
        if self.compact_at > Instant::now() || self.failing.is_some() {
            return;
        }
        let wait = match self.store.compact(&Retention::usual(wall_micros())) {
            Ok(done) if done.more => SLICE_PAUSE,
            Ok(_) => COMPACT_AFTER,
            Err(error) => {
                tracing::warn!(target: "trainyard::host", %error, "the store was not compacted");
                COMPACT_AFTER
            }
        };
        self.compact_at = Instant::now() + wait;
    }

    /// The end: what policies use is written; jobs go on.
    fn part(mut self) {
        if let Some(core) = &mut self.core {
            let writes = core.parting_writes();
            if let Err(error) = self.commit(&writes) {
                tracing::error!(target: "trainyard::host", %error, "the last words were not written");
            }
        }
        let Host { store, backend, .. } = self;
        drop(backend);
        if let Err(error) = store.close() {
            tracing::error!(target: "trainyard::host", %error, "the store was not closed well");
        }
    }
}

/// The log tells of what was scheduled in the words of the events: a line for each, once it is on disk.
fn tell(writes: &[Write]) {
    for write in writes {
        let Write::AddEvent { kind, job, user, data, .. } = write else { continue };
        let told: Option<serde_json::Value> = serde_json::from_str(data).ok();
        let text = told.as_ref().and_then(|told| told["text"].as_str()).unwrap_or_default();
        tracing::info!(target: "trainyard::schedule", kind = %kind, job = job, user = user.as_deref(), "{text}");
    }
}
