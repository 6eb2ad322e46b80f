//! The policy on a thread of its own, with a limit on how long it may think.
//!
//! A thread cannot be stopped from outside. One that thinks for too long is abandoned: it keeps its pipeline and ends
//! when its thought does, and a new thread gets a new pipeline. Only so many may be abandoned at once; a policy that
//! used them up is not built again until another one is chosen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};
use trainyard_engine::{Question, Thought};
use trainyard_framework::Pipeline;

/// Makes a pipeline from the text that names it.
pub type Maker = Arc<dyn Fn(&str) -> Result<Pipeline, String> + Send + Sync>;
/// Where thoughts go.
pub type Deliver = Arc<dyn Fn(Answer) + Send + Sync>;

/// Threads that may be lost to a policy that does not come back.
pub const ABANDONED_MAX: usize = 8;

/// What a thinking thread says.
pub struct Answer {
    /// Which question it is about.
    pub number: u64,
    /// The thought.
    pub thought: Thought,
    /// How long it took.
    pub seconds: f64,
}

/// A thread that thinks.
struct Worker {
    questions: Sender<(u64, Question)>,
    /// Whether it was abandoned.
    lost: Arc<AtomicBool>,
}

/// The policy, to be asked from one thread.
pub struct Thinker {
    maker: Maker,
    deliver: Deliver,
    limit: Duration,
    label: String,
    worker: Option<Worker>,
    /// The number of the newest question; answers with another one are of no use.
    number: u64,
    /// Until when an answer is waited for.
    deadline: Option<Instant>,
    abandoned: Arc<AtomicUsize>,
    trouble: Option<String>,
}

impl Thinker {
    /// A policy that is built when it is asked first.
    pub fn new(maker: Maker, deliver: Deliver, limit: Duration, label: String) -> Thinker {
        Thinker {
            maker,
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
    pub fn ask(&mut self, question: Question) {
        self.number += 1;
        self.deadline = Some(Instant::now() + self.limit);
        if self.worker.is_none() {
            self.worker = self.build();
        }
        let asked = (self.number, question);
        let sent = self.worker.as_ref().is_some_and(|worker| worker.questions.send(asked).is_ok());
        if !sent {
            // Nobody will think about it, so the time is up at once.
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

    /// Takes an answer, unless nobody waits for it any more.
    pub fn answered(&mut self, answer: Answer) -> Option<(Thought, f64)> {
        if answer.number != self.number || self.deadline.is_none() {
            return None;
        }
        self.deadline = None;
        if !matches!(answer.thought, Thought::Decided(_)) {
            // What it remembers may be half of something.
            self.worker = None;
        }
        Some((answer.thought, answer.seconds))
    }

    /// Gives up on an answer whose time is up.
    pub fn give_up(&mut self, now: Instant) -> Option<Thought> {
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
        Some(Thought::Stuck)
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
                 another policy is chosen with `trainyard policy`, and the plain order decides",
                self.label
            ));
            return None;
        }
        match (self.maker)(&self.label) {
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
        let (questions, asked) = mpsc::channel::<(u64, Question)>();
        let lost = Arc::new(AtomicBool::new(false));
        let worker = Worker { questions, lost: Arc::clone(&lost) };
        let (deliver, abandoned) = (Arc::clone(&self.deliver), Arc::clone(&self.abandoned));
        let thread = thread::Builder::new().name("policy".to_owned()).spawn(move || {
            for (number, question) in asked {
                let begun = Instant::now();
                let thought = question.think(&mut pipeline);
                deliver(Answer { number, thought, seconds: begun.elapsed().as_secs_f64() });
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
