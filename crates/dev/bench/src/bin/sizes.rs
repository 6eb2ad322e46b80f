//! How long it takes to choose the sizes of 1,000 elastic jobs on 1,024 GPUs: CPU seconds of one decision, the least
//! of several, beside a reference loop.
//!
//! `cargo run --release -p trainyard-bench --bin sizes`; `--gate` fails when a bound is missed.

use anyhow::{Result, bail, ensure};
use clap::Parser;
use std::sync::Arc;
use trainyard_bench::{Flags, Least, least, mark};
use trainyard_engine::{DecisionRequest, Engine, PolicyOutcome};
use trainyard_framework::Snapshot;
use trainyard_policies::compose::Selection;
use trainyard_profile::Catalog;
use trainyard_sim::{Observer, Options, simulate};
use trainyard_types::Time;
use trainyard_workload::elasticity::{Elasticity, loosen};
use trainyard_workload::{Arrival, DurationLaw, SizeLaw, Spec, cluster, generate};

/// Jobs whose size is chosen.
const JOBS: usize = 1_000;
/// The most CPU seconds that a decision may take.
const BOUND: f64 = 0.05;
const POLICIES: [&str; 3] = ["afs-l", "afs-p", "optimus"];

/// Stops a run when there are enough jobs.
#[derive(Default)]
struct Crowd {
    moment: Option<Snapshot>,
}

impl Observer for Crowd {
    fn goes_on(&mut self, _to: Time) -> bool {
        self.moment.is_none()
    }

    fn passed(&mut self, engine: &Engine) {
        let state = engine.state();
        if state.waiting.len() + state.granted.len() >= JOBS {
            self.moment = Some(engine.snapshot());
        }
    }
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    println!("policy    jobs  granted  changes    cpu s  bound s  reference s  x ref");
    let mut missed = 0;
    for policy in POLICIES {
        let moment = crowded(policy)?;
        let took = least(flags.runs, || decide(&moment, policy))?;
        let Least { seconds, reference, found: changes } = took;
        let state = &moment.state;
        let over = seconds > BOUND;
        missed += usize::from(over);
        println!(
            "{policy:<8} {:>5} {:>8} {changes:>8} {seconds:>8.4} {BOUND:>8.2} {reference:>12.3} {:>6.2}{}",
            state.waiting.len() + state.granted.len(),
            state.granted.len(),
            took.times_reference(),
            mark(over),
        );
    }
    flags.conclude(missed)
}

/// A cluster of 1,024 GPUs with so many elastic jobs of measured models, some of which have sizes already.
fn crowded(policy: &str) -> Result<Snapshot> {
    let (cluster, _) = cluster::parse("128x8 a100")?;
    let spec = Spec {
        jobs: 4_000,
        arrival: Arrival::Load(8.0),
        duration: DurationLaw::Gavel,
        size: SizeLaw::Gavel,
        models: vec!["elasticflow-*".to_owned()],
        ..Spec::default()
    };
    let workload = generate(&spec, &Catalog::builtin(), &cluster)?;
    let workload = loosen(workload, &cluster, Elasticity::Elastic);
    let mut crowd = Crowd::default();
    let pipeline = Selection::policy(policy).build()?;
    simulate(&workload, &Arc::new(cluster), pipeline, &Options::default(), &mut crowd);
    crowd.moment.ok_or_else(|| anyhow::anyhow!("{policy}: there were never so many jobs"))
}

/// One decision about all of them by a policy that remembers nothing; what it changes.
fn decide(moment: &Snapshot, policy: &str) -> Result<usize> {
    let mut pipeline = Selection::policy(policy).build()?;
    let request = DecisionRequest { snapshot: moment.clone(), seed: 1, work_max: u64::MAX };
    let outcome = request.think(&mut pipeline);
    let PolicyOutcome::Decided(decision) = outcome else { bail!("{policy} did not decide") };
    ensure!(decision.faults.is_empty(), "{policy}: {:?}", decision.faults);
    Ok(decision.changes.len())
}
