//! Jobs that are put aside in host memory and come back, with what they cost the policies that stop them.

use std::sync::Arc;
use trainyard_engine::{Engine, Setup};
use trainyard_framework::{Cx, Needs, Offer, Pipeline, Policy, PolicyError, View};
use trainyard_policies::compose::{Choice, Selection};
use trainyard_policies::place::FewestNodes;
use trainyard_policies::registry::POLICIES;
use trainyard_profile::{Catalog, CostModel};
use trainyard_sim::{Observer, Options, Outcome, Quiet, simulate};
use trainyard_testkit::host::{Host, Plain};
use trainyard_types::{
    Action, Attempt, Cluster, End, Event, GpuAt, Grant, Job, JobId, NodeId, Phase, Placement,
    Reason, Shape, Span, SuspendRule, Tenants, Time, Why,
};
use trainyard_workload::{Arrival, Spec, Workload, cluster, generate, scenario};

/// The most host memory that was taken at any moment.
#[derive(Default)]
struct Memory {
    most_mib: u64,
}

impl Observer for Memory {
    fn passed(&mut self, engine: &Engine) {
        self.most_mib = self.most_mib.max(engine.state().aside.used_mib(NodeId(0)));
    }
}

/// A job of an hour and nine of five minutes behind it, each with 16 GiB, on one GPU.
fn ten(word: &str) -> Workload {
    let mut text = "cluster 1x1 h200\npolicy fifo\nexpect table\n".to_owned();
    for number in 0..10 {
        let work = if number == 0 { 3600 } else { 300 };
        text += &format!("job j{number} at {number}s wants 1 work {work}s memory 16384 {word}\n");
    }
    scenario::parse(&text).expect("a scenario").workload
}

fn options(rule: &str) -> Options {
    let mut options = Options::default();
    options.setup.check_every = 1;
    options.setup.suspend = Some(rule.parse().expect("a rule"));
    // What a daemon believes of a job that it knows nothing of, as it was on an H200.
    options.costs = CostModel::Flat { save: Span::secs(5), start: Span::secs(17) };
    options
}

fn run(workload: &Workload, policy: &str, options: &Options) -> (Outcome, u64) {
    let (name, setting) = policy.split_once(':').unwrap_or((policy, ""));
    let mut choice = Choice::named(name);
    if !setting.is_empty() {
        choice.settings.add(setting).expect("a setting");
    }
    let pipeline = Selection { policy: choice, ..Selection::default() }.build().expect("it builds");
    let mut memory = Memory::default();
    let cluster = Arc::new(cluster::parse("1x1 h200").expect("a cluster").0);
    let outcome = simulate(workload, &cluster, pipeline, options, &mut memory);
    assert_eq!(outcome.stats.faults, 0, "{policy}: {:?}", outcome.stats.fault_samples);
    assert!(outcome.unfinished.is_empty(), "{policy}");
    assert!(outcome.jobs.iter().all(|job| job.end == End::Finished), "{policy}");
    (outcome, memory.most_mib)
}

fn mean_completion(outcome: &Outcome) -> f64 {
    // They come within ten seconds, which do not matter here.
    let times = outcome.jobs.iter().map(|job| job.ended.since(Time::ZERO).as_secs_f64());
    times.sum::<f64>() / outcome.jobs.len() as f64
}

#[test]
fn ten_jobs_of_16_gib_take_turns_in_64_gib_of_host_memory_and_come_back() {
    for word in ["saves-nothing", ""] {
        let workload = ten(word);
        let rule = options("64GiB,away=3h");
        let fifo = mean_completion(&run(&workload, "fifo", &rule).0);
        // Two hundredths of a turn is Gandiva's default; a fifth makes turns short.
        // Jobs alike that take many turns end together and late, so that only the long one's turn is a gain then.
        for (policy, part) in [("gandiva", 0.9), ("gandiva:overhead=0.2", 1.0)] {
            let (outcome, most) = run(&workload, policy, &rule);
            let stats = &outcome.stats;
            let turns =
                format!("{policy} {word}: {} put aside, {} back", stats.suspends, stats.resumes);
            assert!(stats.suspends > 0 && stats.suspends == stats.resumes, "{turns}");
            assert_eq!((stats.dropped, outcome.gpu_seconds_lost), (0, 0.0), "{turns}");
            assert!(most <= 64 << 10, "{turns}: {most} MiB");
            let mean = mean_completion(&outcome);
            assert!(mean < part * fifo, "{turns}: {mean:.0} s on the mean, fifo {fifo:.0} s");
        }
        let (short, _) = run(&workload, "gandiva:overhead=0.2", &rule);
        let been_away = short.stats.suspends;
        assert!(been_away >= 10, "only {been_away} times one of ten was put aside");
    }
}

#[test]
fn policies_that_stop_jobs_keep_to_the_memory_and_lose_nothing_of_jobs_that_cannot_save() {
    let workload = ten("saves-nothing");
    for policy in ["tiresias", "las", "gandiva-fair", "gandiva:form=\"sets\"", "srtf", "shockwave"]
    {
        let (outcome, most) = run(&workload, policy, &options("64GiB,away=3h"));
        assert_eq!(outcome.gpu_seconds_lost, 0.0, "{policy}: {:?}", outcome.stats);
        assert!(most <= 64 << 10, "{policy}: {most} MiB");
    }
}

#[test]
fn no_policy_loses_what_jobs_did_that_cannot_save_but_can_be_put_aside() {
    let (cluster, _) = cluster::parse("2x4 v100, 1x4 a100").expect("a valid cluster");
    let spec = Spec {
        jobs: 60,
        seed: 9,
        arrival: Arrival::Load(1.4),
        models: vec!["gavel-*".to_owned()],
        tenants: 3,
        priority_share: 0.3,
        ..Spec::default()
    };
    let mut workload = generate(&spec, &Catalog::builtin(), &cluster).expect("a valid spec");
    for one in &mut workload.jobs {
        Arc::make_mut(&mut one.job).saves = false;
    }
    let cluster = Arc::new(cluster);
    // They wait for their own GPUs for as long as it takes: nobody is sent elsewhere.
    let options = options("48GiB,away=10000h");
    let (mut suspends, mut wrong) = (0, Vec::new());
    for entry in POLICIES {
        let pipeline = Selection::policy(entry.name).build().expect("defaults build");
        let outcome = simulate(&workload, &cluster, pipeline, &options, &mut Quiet);
        let stats = &outcome.stats;
        if outcome.gpu_seconds_lost != 0.0
            || !outcome.unfinished.is_empty()
            || stats.suspends != stats.resumes
        {
            wrong.push((entry.name, outcome.gpu_seconds_lost, outcome.unfinished, stats.suspends));
        }
        suspends += outcome.stats.suspends;
    }
    assert!(wrong.is_empty(), "lost, unfinished and put aside: {wrong:?}");
    assert!(suspends > 1000, "{suspends}");
}

/// Gives each job the GPU that is named for it, and nothing to those that are not named.
struct Seats(Vec<(u32, u8)>);

impl Policy for Seats {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        offer.everything();
        for (job, gpu) in &self.0 {
            let place = Shape::Exact(Placement::on(NodeId(0), 1 << gpu));
            if view.job(JobId(*job)).is_some() {
                offer.grant(&Grant { shape: place, ..Grant::gpus(JobId(*job), 1) });
            }
        }
        Ok(())
    }
}

fn host(gpus: u8, seats: &[(u32, u8)]) -> Host {
    let pipeline = Pipeline::new(Seats(seats.to_vec()), FewestNodes, Needs::NOTHING);
    let cluster = Cluster::uniform(1, gpus, "v100");
    let mut host = Host::new(cluster.clone(), Tenants::default(), pipeline);
    let rule = SuspendRule { memory_mib: 1000, away_max: Span::secs(600) };
    let setup = Setup { check_every: 1, suspend: Some(rule), ..Setup::default() };
    host.engine = Engine::new(Arc::new(cluster), Tenants::default(), Arc::new(Plain), setup);
    host
}

fn unsaving(id: u32, memory_mib: u32) -> Job {
    let mut job = Job { saves: false, ..Job::simple(JobId(id), Time::ZERO, 1) };
    job.want.gpu_memory_mib = memory_mib;
    job
}

fn wants(host: &mut Host, seats: &[(u32, u8)]) {
    host.pipeline = Pipeline::new(Seats(seats.to_vec()), FewestNodes, Needs::NOTHING);
}

fn phase(host: &Host, job: u32) -> Phase {
    host.engine.state().live(JobId(job)).expect("live").state.phase
}

#[test]
fn of_two_jobs_that_cannot_save_one_stays_where_there_is_memory_for_one() {
    let mut host = host(2, &[(0, 0), (1, 1)]);
    host.submit(0, unsaving(0, 600));
    host.submit(1, unsaving(1, 600));
    wants(&mut host, &[(2, 0), (3, 1)]);
    host.submit(100, unsaving(2, 600));
    let actions = host.submit(100, unsaving(3, 600));
    let all: Vec<&Action> = host.actions.iter().collect();
    let suspended = all.iter().filter(|one| matches!(one, Action::Suspend { .. })).count();
    assert_eq!(suspended, 1, "{actions:?}");
    assert!(!all.iter().any(|one| matches!(one, Action::Stop { .. })), "{all:?}");
    let running = [0, 1].into_iter().filter(|job| phase(&host, *job) == Phase::Running).count();
    assert_eq!(running, 1, "the other one keeps its GPU and all that it did");
}

#[test]
fn a_job_that_cannot_save_and_is_refused_by_the_driver_runs_on_and_the_other_waits() {
    let mut host = host(1, &[(0, 0)]);
    host.submit(0, unsaving(0, 600));
    host.obeys = false;
    wants(&mut host, &[(1, 0)]);
    let actions = host.submit(100, unsaving(1, 600));
    assert!(matches!(actions[..], [Action::Suspend { .. }]), "{actions:?}");
    let refused = Event::NotSuspended { job: JobId(0), attempt: Attempt(1) };
    let actions = host.at(103, refused);
    assert!(actions.is_empty(), "{actions:?}");
    assert_eq!((phase(&host, 0), phase(&host, 1)), (Phase::Running, Phase::Waiting));
    host.until(1000);
    assert!(!host.actions.iter().any(|one| matches!(one, Action::Stop { .. })), "not even later");
    host.obeys = true;
    host.finish(1001, 0);
    assert_eq!(phase(&host, 1), Phase::Running);
}

#[test]
fn a_job_that_could_save_and_is_refused_by_the_driver_saves() {
    let mut host = host(1, &[(0, 0)]);
    host.submit(0, Job { saves: true, ..unsaving(0, 600) });
    host.obeys = false;
    wants(&mut host, &[(1, 0)]);
    // Plain beliefs say that a stop is free, so that no job that can save is put aside by them.
    let actions = host.submit(100, unsaving(1, 600));
    let stops = |one: &Action| matches!(one, Action::Stop { why: Why::Preempted, .. });
    assert!(actions.iter().all(stops) && actions.len() == 1, "{actions:?}");
}

#[test]
fn a_job_that_is_put_aside_says_for_which_gpu_it_waits_and_who_holds_it() {
    let mut host = host(2, &[(0, 1)]);
    host.submit(0, unsaving(0, 600));
    wants(&mut host, &[(1, 1)]);
    host.submit(100, unsaving(1, 600));
    assert_eq!(phase(&host, 0), Phase::Suspended);
    let reasons = |host: &Host| host.engine.explain(JobId(0)).expect("known").reasons;
    let gpu = GpuAt { node: NodeId(0), gpu: 1 };
    let until = Time(700 * 1_000_000);
    assert_eq!(reasons(&host), [Reason::OwnGpu { gpu, by: Some(JobId(1)), until }]);
    wants(&mut host, &[]);
    host.finish(200, 1);
    assert_eq!(reasons(&host), [Reason::OwnGpu { gpu, by: None, until }]);
    host.until(701);
    assert!(!matches!(reasons(&host)[0], Reason::OwnGpu { .. }), "it may go elsewhere now");
    wants(&mut host, &[(0, 1)]);
    host.submit(800, unsaving(2, 600));
    assert_eq!(phase(&host, 0), Phase::Running, "and comes back where it was all the same");
    assert_eq!(host.attempt(0), Attempt(1));
}

#[test]
fn a_job_with_more_memory_than_any_gpu_has_is_refused_and_the_others_go_on() {
    let pipeline = Selection::policy("fifo").build().expect("defaults build");
    let mut cluster = Cluster::uniform(1, 2, "h200");
    cluster.kinds[0].memory_mib = 143_771;
    let mut host = Host::new(cluster, Tenants::default(), pipeline);
    host.submit(0, unsaving(0, 600));
    let actions = host.submit(1, unsaving(1, 200_000));
    let ended =
        |one: &Action| matches!(one, Action::Ended { job: JobId(1), end: End::Rejected, .. });
    assert!(actions.iter().any(ended), "{actions:?}");
    host.submit(2, unsaving(2, 143_771));
    assert!(host.runs(0) && host.runs(2));
}
