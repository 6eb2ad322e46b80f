//! Both hosts on the same moments: one that waits for the policy, and one that lets it think elsewhere.

use std::sync::Arc;
use trainyard_engine::Engine;
use trainyard_framework::{Admission, Cx, Offer, Pipeline, Policy, PolicyError, View};
use trainyard_sim::Observer;
use trainyard_types::{Action, Event, Grant, Job, JobId, Span, Time};

/// What is wrong with a policy, in one of so many decisions.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    None,
    /// `admit` panics.
    AdmitPanics,
    /// `allocate` errs after its grants.
    AllocateErrs,
    /// `allocate` panics after its grants.
    AllocatePanics,
    /// `allocate` grants more than there is, and to jobs that are not there.
    Lies,
}

impl Trouble {
    /// All of them.
    pub const ALL: [Trouble; 5] = [
        Trouble::None,
        Trouble::AdmitPanics,
        Trouble::AllocateErrs,
        Trouble::AllocatePanics,
        Trouble::Lies,
    ];
}

/// A policy with a trouble in one of `every` decisions.
pub struct Troubled {
    /// The policy.
    pub inner: Box<dyn Policy>,
    /// What is wrong.
    pub trouble: Trouble,
    /// How often.
    pub every: u64,
}

impl Policy for Troubled {
    fn admit(&mut self, queue: &mut Admission<'_>, view: &View<'_>, cx: &mut Cx) {
        self.inner.admit(queue, view, cx);
        if self.trouble == Trouble::AdmitPanics && view.decision().is_multiple_of(self.every) {
            panic!("a policy whose admission panics");
        }
    }

    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let troubled = view.decision().is_multiple_of(self.every);
        if self.trouble == Trouble::Lies && troubled {
            for job in view.waiting().chain(view.granted()) {
                let _ = offer.grant(&Grant::gpus(job.id(), 1 << 20));
            }
            let _ = offer.grant(&Grant::gpus(JobId(u32::MAX), 1));
        }
        self.inner.allocate(view, offer, cx)?;
        match self.trouble {
            Trouble::AllocateErrs if troubled => Err(PolicyError::Infeasible),
            Trouble::AllocatePanics if troubled => panic!("a policy that panics"),
            _ => Ok(()),
        }
    }

    fn forget(&mut self) {
        self.inner.forget();
    }
}

/// Takes moments of a run and lets both hosts go on from each with a policy that remembers nothing.
pub struct BothHosts<'a> {
    /// Makes the policy.
    pub build: &'a dyn Fn() -> Pipeline,
    /// One moment of so many is taken.
    pub every: u64,
    /// Moments so far, and those that were compared.
    pub moments: u64,
    /// Decisions that were compared.
    pub compared: u64,
}

impl<'a> BothHosts<'a> {
    /// One moment of `every`.
    pub fn new(build: &'a dyn Fn() -> Pipeline, every: u64) -> BothHosts<'a> {
        BothHosts { build, every, moments: 0, compared: 0 }
    }

    fn compare(&mut self, engine: &Engine) {
        let (mut waits, mut goes_on) =
            (engine.fork(engine.state().now), engine.fork(engine.state().now));
        let (mut own, mut other) = ((self.build)(), (self.build)());
        let (mut at, mut next) = (engine.state().now, first_unused(engine));
        for round in 0..ROUNDS {
            for event in newcomers(engine, at, &mut next) {
                waits.apply(at, event.clone());
                goes_on.apply(at, event);
            }
            let actions = waits.step(at, &mut own);
            let others = elsewhere(&mut goes_on, at, &mut other);
            assert_eq!(actions, others, "round {round} at {at:?}");
            assert_eq!(waits.stats(), goes_on.stats(), "round {round} at {at:?}");
            for live in waits.state().jobs.values() {
                let job = live.spec.id;
                let twin = goes_on.state().live(job).expect("both know the same jobs");
                assert_eq!(live.state, twin.state, "round {round}, job {}", job.0);
                let why = |engine: &Engine| engine.explain(job).map(|told| told.reasons);
                assert_eq!(why(&waits), why(&goes_on), "round {round}, job {}", job.0);
            }
            for engine in [&mut waits, &mut goes_on] {
                obey(engine, at, &actions);
            }
            at = at + Span::secs(7);
            self.compared += waits.stats().decisions + waits.stats().fallbacks;
        }
    }
}

/// How often both are asked from each moment.
const ROUNDS: u32 = 6;

impl Observer for BothHosts<'_> {
    fn passed(&mut self, engine: &Engine) {
        self.moments += 1;
        if self.moments.is_multiple_of(self.every) {
            self.compare(engine);
        }
    }
}

/// A host that asks, thinks elsewhere and concludes in the same moment.
fn elsewhere(engine: &mut Engine, at: Time, pipeline: &mut Pipeline) -> Vec<Action> {
    if let Some(request) = engine.request(at, pipeline.usage_half_life) {
        let outcome = request.think(pipeline);
        engine.conclude(at, &request, outcome);
    }
    engine.tick(at)
}

fn obey(engine: &mut Engine, at: Time, actions: &[Action]) {
    for action in actions {
        match action {
            Action::Launch { job, attempt, .. } => {
                engine.apply(at, Event::Started { job: *job, attempt: *attempt });
            }
            Action::Stop { job, attempt, .. } => {
                let done = trainyard_types::Work::ZERO;
                engine.apply(at, Event::Stopped { job: *job, attempt: *attempt, done });
            }
            Action::Suspend { job, attempt, memory_mib } => {
                let (job, attempt, memory_mib) = (*job, *attempt, *memory_mib);
                engine.apply(at, Event::Suspended { job, attempt, memory_mib });
            }
            Action::Resume { job, attempt, .. } => {
                engine.apply(at, Event::Started { job: *job, attempt: *attempt });
            }
            Action::Adjust { .. } | Action::Ended { .. } => {}
        }
    }
}

fn first_unused(engine: &Engine) -> u32 {
    engine.state().jobs.values().map(|live| live.spec.id.0 + 1).max().unwrap_or(0) + 1_000_000
}

/// Jobs like those that are there, as if they came now.
fn newcomers(engine: &Engine, at: Time, next: &mut u32) -> Vec<Event> {
    let known = engine.state().jobs.values().take(2);
    let copies: Vec<Event> = known
        .map(|live| {
            *next += 1;
            let spec =
                Job { id: JobId(*next), submitted: at, after: Vec::new(), ..(*live.spec).clone() };
            Event::Submitted(Arc::new(spec))
        })
        .collect();
    copies
}

/// A pipeline whose policy has a trouble.
pub fn troubled(mut pipeline: Pipeline, trouble: Trouble, every: u64) -> Pipeline {
    struct Idle;
    impl Policy for Idle {
        fn allocate(
            &mut self,
            _: &View<'_>,
            _: &mut Offer<'_>,
            _: &mut Cx,
        ) -> Result<(), PolicyError> {
            Ok(())
        }
    }
    let inner = std::mem::replace(&mut pipeline.policy, Box::new(Idle));
    pipeline.policy = Box::new(Troubled { inner, trouble, every });
    pipeline
}
