//! How long it takes to choose by links: MAPA's GPUs of a node, and CASSINI's plan of ten with 100 jobs. CPU seconds of
//! one choice, the least of several runs, beside a reference loop.
//!
//! `cargo run --release -p trainyard-bench --bin network`; `--gate` fails when a bound is missed.

use anyhow::{Context, Result};
use clap::Parser;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::sync::Arc;
use trainyard_bench::{Flags, Least, least, mark};
use trainyard_framework::{
    Ask, Beliefs, ChangeCost, Free, Live, Needs, Placer, RawSettings, State, View, wanted,
};
use trainyard_network::cassini::{Candidate, CircleSettings, Loops, Profile, SharedLink, choose};
use trainyard_policies::compose::find;
use trainyard_policies::registry::PLACERS;
use trainyard_types::{
    Allocation, Config, Job, JobId, JobState, LinkId, NodeId, Placement, Rate, Span, Tenants, Time,
    Work,
};
use trainyard_workload::cluster;

fn main() -> Result<()> {
    let flags = Flags::parse();
    println!("case               times     cpu ms  bound ms  reference s");
    let mut missed = 0;
    let torus = torus();
    for (name, text, count, bound) in [
        ("mapa-8-gpus", "1x8 v100 inside dgx-1v over leaf-spine 1 rack 100g", 1000, 1.0),
        ("mapa-16-gpus", torus.as_str(), 100, 10.0),
    ] {
        let mut choices = Mapa::new(text)?;
        // The matchings of a kind of node are found once.
        choices.choose(1)?;
        let took = least(flags.runs, || choices.choose(count))?;
        missed += show(name, &took, bound);
    }
    let (profiles, candidates) = plans(100, 10);
    let took = least(flags.runs, || {
        let settings = CircleSettings::default();
        let found = choose(&profiles, &candidates, Loops::Solve, &settings);
        found.map(|_| 1).context("a plan is found")
    })?;
    missed += show("cassini-100-jobs", &took, 100.0);
    flags.conclude(missed)
}

/// A row; 1 where its bound is missed.
fn show(name: &str, took: &Least<u32>, bound_ms: f64) -> usize {
    let each = took.seconds * 1e3 / f64::from(took.found);
    let over = each > bound_ms;
    println!(
        "{name:<18} {:>5} {each:>10.3} {bound_ms:>9.1} {:>12.3}{}",
        took.found,
        took.reference,
        mark(over)
    );
    usize::from(over)
}

/// A node of 16 GPUs joined as a torus of four by four: two NVLinks to the right, one downwards.
fn torus() -> String {
    let mut text = "[[nodes]]\ngpus = 16\nkind = \"v100\"\ninside = \"torus\"\n".to_owned();
    text += "[[inside]]\nname = \"torus\"\ngpus = 16\npair = [";
    for gpu in 0..16 {
        let (row, column) = (gpu / 4, gpu % 4);
        let (right, down) = (row * 4 + (column + 1) % 4, (row + 1) % 4 * 4 + column);
        text += &format!("{{ gpus = [{gpu}, {right}], gbps = 400, nvlinks = 2 }}, ");
        text += &format!("{{ gpus = [{gpu}, {down}], gbps = 200, nvlinks = 1 }}, ");
    }
    text + "]\n"
}

/// Nothing is known of the job's traffic, so that it counts as sensitive.
struct Unknown;

impl Beliefs for Unknown {
    fn copied(&self) -> Arc<dyn Beliefs> {
        Arc::new(Unknown)
    }

    fn rate(&self, _job: &Job, _on: &Config) -> Option<Rate> {
        Some(Rate(1.0))
    }

    fn change(&self, _job: &Job, _from: Option<&Config>, _to: Option<&Config>) -> ChangeCost {
        ChangeCost::default()
    }

    fn work(&self, _job: &Job) -> Option<Work> {
        None
    }
}

/// Five GPUs for a sensitive job on a node where two are taken.
struct Mapa {
    state: State,
    free: Free,
    placer: Box<dyn Placer>,
}

impl Mapa {
    fn new(text: &str) -> Result<Mapa> {
        let cluster = Arc::new(cluster::parse(text)?.0);
        let mut state = State::new(cluster.clone(), Tenants::default());
        let job = Job::simple(JobId(0), Time::ZERO, 5);
        let live = Live { spec: Arc::new(job), state: JobState::submitted(Time::ZERO) };
        state.jobs.insert(JobId(0), Arc::new(live));
        let mut free = Free::new(&cluster);
        free.take(&Allocation::whole(Placement::on(NodeId(0), 0b1001)));
        let placer = (find("placer", PLACERS, "mapa")?.build)(&RawSettings::default())?;
        Ok(Mapa { state, free, placer })
    }

    fn choose(&mut self, count: u32) -> Result<u32> {
        let needs = Needs { rates: true, topology: true, ..Needs::NOTHING };
        let view = View::new(Time::ZERO, &self.state, &Unknown, &needs);
        let job = view.job(JobId(0)).context("it was put there")?;
        let grant = wanted(job);
        let ask = Ask::new(job, &grant, 5, job.spec.want.kinds.clone());
        for _ in 0..count {
            self.placer.try_place(&ask, &self.free, &view).context("enough others are free")?;
        }
        Ok(count)
    }
}

/// Jobs of a few periods, three to six on each of the links of a plan.
fn plans(jobs: usize, count: usize) -> (Vec<Profile>, Vec<Candidate>) {
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    let mut below = |bound: usize| (rng.next_u64() % bound as u64) as usize;
    let profiles = (0..jobs).map(|_| {
        let period = [120, 160, 240, 320, 480][below(5)];
        let on = period * (20 + below(30) as u64) / 100;
        let millis = |count: u64| Span(count * 1000);
        Profile::on_off(millis(period - on), millis(on), 1.0)
    });
    let profiles = profiles.collect();
    let candidates = (0..count).map(|_| {
        let links = (0..jobs / 3).map(|link| {
            let mut jobs: Vec<usize> = (0..3 + below(4)).map(|_| below(jobs)).collect();
            jobs.sort_unstable();
            jobs.dedup();
            SharedLink { link: LinkId(link as u32), capacity: 1.0, jobs }
        });
        Candidate { links: links.filter(|link| link.jobs.len() > 1).collect() }
    });
    (profiles, candidates.collect())
}
