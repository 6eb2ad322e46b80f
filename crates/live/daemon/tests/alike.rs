//! Jobs without a profile are alike whatever their names: a decision asks the placer about one of them for all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use trainyard_engine::{Engine, Setup};
use trainyard_framework::{Ask, Free, Pipeline, Placer, View};
use trainyard_policies::compose::Selection;
use trainyard_profile::Catalog;
use trainyard_types::{
    Action, Cluster, Event, Job, JobId, ModelId, Placement, Span, Tenants, Time, Work,
};

/// Names begin here.
const NAMES: u32 = 1 << 25;
const WAITING: u32 = 1_000;

/// A placer that counts how often it is asked.
struct Counting(Box<dyn Placer>, Arc<AtomicU64>);

impl Placer for Counting {
    fn try_place(&mut self, ask: &Ask<'_>, free: &Free, view: &View<'_>) -> Option<Placement> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.try_place(ask, free, view)
    }

    fn keeps(&self) -> bool {
        self.0.keeps()
    }
}

/// How often the placer is asked in one decision on a cluster of 8 GPUs where jobs hold `held` and others, all of
/// different names, wait for two each.
fn asked(policy: &str, held: u32) -> u64 {
    let cluster = Arc::new(Cluster::uniform(1, 8, "v100"));
    let beliefs = trainyard_daemon::core::beliefs(&Catalog::builtin(), &cluster, None);
    let mut engine = Engine::new(cluster, Tenants::default(), beliefs, Setup::default());
    let mut pipeline = Selection::policy(policy).build().unwrap();
    let count = Arc::new(AtomicU64::new(0));
    let place = std::mem::replace(&mut pipeline.place, Box::new(Nowhere));
    pipeline.place = Box::new(Counting(place, Arc::clone(&count)));
    let submit = |engine: &mut Engine, id: u32, gpus: u32, seconds: f64| {
        let mut job = Job::simple(JobId(id), Time::ZERO, gpus);
        (job.model, job.declared) = (ModelId(NAMES + id), Some(Work(seconds)));
        engine.apply(Time::ZERO, Event::Submitted(Arc::new(job)));
    };
    submit(&mut engine, 0, held, 10.0);
    step(&mut engine, &mut pipeline, Time(1));
    for id in 1..=WAITING {
        submit(&mut engine, id, 2, 1000.0 + f64::from(id));
    }
    step(&mut engine, &mut pipeline, Time(2));
    count.store(0, Ordering::Relaxed);
    submit(&mut engine, WAITING + 1, 2, 5000.0);
    step(&mut engine, &mut pipeline, Time::ZERO + Span::secs(1));
    assert_eq!(engine.state().granted.len(), 1, "{policy}: the others wait");
    assert_eq!(engine.stats().policy_errors + engine.stats().policy_panics, 0);
    count.load(Ordering::Relaxed)
}

/// Stands in while the real one is wrapped.
struct Nowhere;

impl Placer for Nowhere {
    fn try_place(&mut self, _: &Ask<'_>, _: &Free, _: &View<'_>) -> Option<Placement> {
        None
    }
}

fn step(engine: &mut Engine, pipeline: &mut Pipeline, at: Time) {
    for action in engine.step(at, pipeline) {
        if let Action::Launch { job, attempt, .. } = action {
            engine.apply(at, Event::Started { job, attempt });
        }
    }
}

#[test]
fn a_decision_with_a_thousand_names_asks_the_placer_about_a_few() {
    for policy in ["fifo", "priority", "sjf", "srtf", "srsf", "fair-share", "easy"] {
        for held in [7, 8] {
            let asked = asked(policy, held);
            assert!(asked <= 8, "{policy} with {held} of 8 GPUs held: asked {asked} times");
        }
    }
}
