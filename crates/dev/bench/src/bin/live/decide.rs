//! How long a decision takes on 1,000 nodes with 10,000 waiting jobs: from an event to the engine's actions.

use crate::Row;
use anyhow::{Context, Result, ensure};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trainyard_engine::{Engine, Setup};
use trainyard_framework::Pipeline;
use trainyard_policies::compose::Selection;
use trainyard_profile::Catalog;
use trainyard_types::{
    Action, Attempt, Cluster, Event, Job, JobId, Span, Tenant, TenantId, Tenants, Time, Work,
};

/// Jobs that wait throughout.
const WAITING: u32 = 10_000;
/// Decisions that are timed.
const DECISIONS: usize = 1_000;
/// The target for the slowest hundredth.
const P99_MAX: Duration = Duration::from_millis(100);

const POLICIES: [&str; 9] =
    ["fifo", "priority", "sjf", "srtf", "srsf", "las", "tiresias", "fair-share", "easy"];

pub fn run(show: &mut impl FnMut(Row)) -> Result<()> {
    for policy in POLICIES {
        let mut times = Yard::new(policy)?.times()?;
        times.sort_unstable();
        let at = |share: f64| times[(times.len() as f64 * share) as usize];
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let text = format!(
            "p50 {:.2} ms, p99 {:.2} ms, worst {:.2} ms",
            millis(at(0.5)),
            millis(at(0.99)),
            millis(times[times.len() - 1])
        );
        let met = at(0.99) <= P99_MAX;
        show(Row {
            name: format!("live-decide-{policy}"),
            text,
            target: "p99 <= 100 ms".to_owned(),
            met,
        });
    }
    Ok(())
}

/// A full cluster with a long queue.
struct Yard {
    engine: Engine,
    pipeline: Pipeline,
    now: Time,
    jobs: u32,
    running: Vec<(JobId, Attempt)>,
    seed: u64,
}

impl Yard {
    fn new(policy: &str) -> Result<Yard> {
        let cluster = Arc::new(Cluster::uniform(1000, 8, "a100"));
        let mut tenants = Tenants::default();
        for number in 0..8 {
            tenants.insert(Tenant::named(&format!("team-{number}")));
        }
        let beliefs = trainyard_daemon::core::beliefs(&Catalog::builtin(), &cluster, None);
        let engine = Engine::new(cluster, tenants, beliefs, Setup::default());
        let pipeline = Selection::policy(policy).build()?;
        let (now, running) = (Time::ZERO, Vec::new());
        let mut yard = Yard { engine, pipeline, now, jobs: 0, running, seed: 1 };
        while yard.engine.state().waiting.len() < WAITING as usize {
            for _ in 0..500 {
                yard.submit();
            }
            yard.decide()?;
        }
        Ok(yard)
    }

    /// A job ends and another one comes, again and again.
    fn times(mut self) -> Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(DECISIONS);
        for _ in 0..DECISIONS {
            self.now = self.now + Span::secs(1);
            let index = self.draw(self.running.len() as u64) as usize;
            let (job, attempt) = self.running.swap_remove(index);
            let begun = Instant::now();
            self.engine.apply(self.now, Event::Finished { job, attempt });
            self.submit();
            let noted = begun.elapsed();
            times.push(noted + self.decide()?);
        }
        Ok(times)
    }

    fn submit(&mut self) {
        let gpus = [1, 1, 1, 2, 2, 4, 8, 16][self.draw(8) as usize];
        let mut job = Job::simple(JobId(self.jobs), self.now, gpus);
        job.tenant = TenantId(self.draw(8) as u32);
        job.priority = self.draw(4) as i32;
        job.declared = Some(Work(600.0 + self.draw(100_000) as f64));
        self.jobs += 1;
        self.engine.apply(self.now, Event::Submitted(Arc::new(job)));
    }

    /// One decision; the time it took without what the world does after it.
    fn decide(&mut self) -> Result<Duration> {
        let begun = Instant::now();
        let mut actions = self.engine.tick(self.now);
        let request = self.engine.request(self.now, self.pipeline.usage_half_life);
        let request = request.context("something changed, so the policy is asked")?;
        let outcome = request.think(&mut self.pipeline);
        self.engine.conclude(self.now, &request, outcome);
        drop(request);
        actions.extend(self.engine.tick(self.now));
        self.engine.take_touched();
        self.engine.take_over();
        let took = begun.elapsed();
        self.obey(actions)?;
        Ok(took)
    }

    fn obey(&mut self, actions: Vec<Action>) -> Result<()> {
        let mut left = actions;
        while !left.is_empty() {
            for action in std::mem::take(&mut left) {
                match action {
                    Action::Launch { job, attempt, .. } => {
                        self.engine.apply(self.now, Event::Started { job, attempt });
                        self.running.push((job, attempt));
                    }
                    Action::Stop { job, attempt, .. } => {
                        self.running.retain(|one| *one != (job, attempt));
                        self.engine
                            .apply(self.now, Event::Stopped { job, attempt, done: Work(0.0) });
                    }
                    // The engine of this bench puts no job aside.
                    Action::Suspend { .. } | Action::Resume { .. } => {}
                    Action::Adjust { .. } | Action::Ended { .. } => {}
                }
            }
            left = self.engine.tick(self.now);
        }
        let stats = self.engine.stats();
        ensure!(stats.policy_errors + stats.policy_panics == 0, "the policy failed: {stats:?}");
        Ok(())
    }

    /// A number below a limit, from a seed.
    fn draw(&mut self, limit: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % limit
    }
}
