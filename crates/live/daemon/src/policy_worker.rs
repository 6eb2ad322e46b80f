//! The policy on a thread of its own, with a limit on how long it may think.
//!
//! A thread cannot be stopped from outside. One that thinks for too long is abandoned: it keeps its pipeline and ends
//! when its thinking does, and a new thread gets a new pipeline. Only so many may be abandoned at once; a policy that
//! used them up is not built again until another one is chosen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};
use trainyard_engine::{DecisionRequest, PolicyOutcome};
use trainyard_framework::Pipeline;

/// Makes a pipeline from the text that names it.
pub type PolicyFactory = Arc<dyn Fn(&str) -> Result<Pipeline, String> + Send + Sync>;
/// Where outcomes go.
pub type Deliver = Arc<dyn Fn(PolicyAnswer) + Send + Sync>;

/// Threads that may be lost to a policy that does not come back.
pub const ABANDONED_MAX: usize = 8;

/// What a thinking thread says.
pub struct PolicyAnswer {
    /// Which request it is about.
    pub number: u64,
    /// The outcome.
    pub outcome: PolicyOutcome,
    /// How long it took.
    pub seconds: f64,
}

/// A thread that thinks.
struct Worker {
    requests: Sender<(u64, DecisionRequest)>,
    /// Whether it was abandoned.
    lost: Arc<AtomicBool>,
}

/// The policy, to be asked from one thread.
pub struct PolicyWorker {
    factory: PolicyFactory,
    deliver: Deliver,
    limit: Duration,
    label: String,
    worker: Option<Worker>,
    /// The number of the newest request; answers with another one are of no use.
    number: u64,
    /// Until when an answer is waited for.
    deadline: Option<Instant>,
    abandoned: Arc<AtomicUsize>,
    trouble: Option<String>,
}

impl PolicyWorker {
    /// A policy that is built when it is asked first.
    pub fn new(
        factory: PolicyFactory,
        deliver: Deliver,
        limit: Duration,
        label: String,
    ) -> PolicyWorker {
        PolicyWorker {
            factory,
            deliver,
            limit,
            label,
            worker: None,
            number: 0,
            deadline: None,
            abandoned: Arc::default(),
            trouble: None,
        }
    }

    /// Another policy, or the same one without its memory. An answer that is out is no longer waited for.
    pub fn begin_anew(&mut self, label: String, pipeline: Option<Pipeline>) {
        if self.deadline.take().is_some() {
            self.abandon();
        }
        self.label = label;
        self.trouble = None;
        self.number += 1;
        self.worker = pipeline.and_then(|pipeline| self.spawn(pipeline));
    }

    /// Asks. An answer always comes: from the policy, or because the time is up.
    pub fn ask(&mut self, request: DecisionRequest) {
        self.number += 1;
        self.deadline = Some(Instant::now() + self.limit);
        if self.worker.is_none() {
            self.worker = self.build();
        }
        let asked = (self.number, request);
        let sent = self.worker.as_ref().is_some_and(|worker| worker.requests.send(asked).is_ok());
        if !sent {
            // No worker thread takes the request, so its time is up at once.
            self.worker = None;
            self.deadline = Some(Instant::now());
        }
    }

    /// Until when an answer is waited for.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether an answer is waited for.
    pub fn is_asked(&self) -> bool {
        self.deadline.is_some()
    }

    /// Why the policy does not answer at all, if it does not.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Takes an answer, unless the daemon waits for it no more.
    pub fn answered(&mut self, answer: PolicyAnswer) -> Option<(PolicyOutcome, f64)> {
        if answer.number != self.number || self.deadline.is_none() {
            return None;
        }
        self.deadline = None;
        Some((answer.outcome, answer.seconds))
    }

    /// Gives up on an answer whose time is up.
    pub fn give_up(&mut self, now: Instant) -> Option<PolicyOutcome> {
        self.deadline.filter(|deadline| *deadline <= now)?;
        self.deadline = None;
        self.number += 1;
        if let Some(lost) = self.abandon() {
            tracing::warn!(
                target: "trainyard::policy",
                policy = self.label, limit_seconds = self.limit.as_secs_f64(), lost,
                "the policy took too long and was cut off"
            );
        }
        Some(PolicyOutcome::Stuck)
    }

    /// Leaves a thread that thinks to itself; how many are left so. It counts no more when it has ended.
    fn abandon(&mut self) -> Option<usize> {
        let worker = self.worker.take()?;
        worker.lost.store(true, Ordering::SeqCst);
        Some(self.abandoned.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn build(&mut self) -> Option<Worker> {
        if self.abandoned.load(Ordering::SeqCst) >= ABANDONED_MAX {
            self.trouble = Some(format!(
                "`{}` was cut off {ABANDONED_MAX} times and its threads still run; it is not asked again until \
                 another policy is chosen with `trainyard policy`, and the fallback order decides",
                self.label
            ));
            return None;
        }
        match (self.factory)(&self.label) {
            Ok(pipeline) => {
                self.trouble = None;
                self.spawn(pipeline)
            }
            Err(problem) => {
                self.trouble = Some(format!("`{}` cannot be built: {problem}", self.label));
                None
            }
        }
    }

    fn spawn(&mut self, mut pipeline: Pipeline) -> Option<Worker> {
        let (requests, asked) = mpsc::channel::<(u64, DecisionRequest)>();
        let lost = Arc::new(AtomicBool::new(false));
        let worker = Worker { requests, lost: Arc::clone(&lost) };
        let (deliver, abandoned) = (Arc::clone(&self.deliver), Arc::clone(&self.abandoned));
        let thread = thread::Builder::new().name("policy".to_owned()).spawn(move || {
            for (number, request) in asked {
                let begun = Instant::now();
                let outcome = request.think(&mut pipeline);
                deliver(PolicyAnswer { number, outcome, seconds: begun.elapsed().as_secs_f64() });
            }
            if lost.load(Ordering::SeqCst) {
                abandoned.fetch_sub(1, Ordering::SeqCst);
            }
        });
        match thread {
            Ok(_) => Some(worker),
            Err(error) => {
                self.trouble = Some(format!("no thread for the policy: {error}"));
                None
            }
        }
    }
}
