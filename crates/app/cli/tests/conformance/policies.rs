//! The same policy core everywhere: a daemon with the same jobs on every backend.
//!
//! The first decision is taken from the same state on each, so it must be the same, GPU by GPU. Later ones depend on
//! when jobs end, which differs; but first come, first served has one order of starts whatever the times are.

use crate::local::{PROGRAM, folder};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use trainyard_api::JobSpec;
use trainyard_api::answer::{EventRow, QueueState, SubmitRequest};
use trainyard_api::request::{EventsQuery, JobFilter};
use trainyard_backend::{Backend, Local, LocalOptions, Report};
use trainyard_daemon::core::CoreOptions;
use trainyard_daemon::host::{Host, HostOptions, Message, Running};
use trainyard_daemon::metrics::Metrics;
use trainyard_daemon::policy_worker::PolicyFactory;
use trainyard_daemon::service::Service;
use trainyard_daemon::service_impl::ServiceImpl;
use trainyard_daemon::{Caller, Role};
use trainyard_engine::Setup;
use trainyard_framework::RawSettings;
use trainyard_policies::compose::Selection;
use trainyard_profile::Catalog;
use trainyard_store::Store;
use trainyard_testkit::conformance::{Conduct, Evidence, PATIENCE, Simulated};
use trainyard_types::{Attempt, Cluster, JobId, Span, Tenants};

/// GPUs of each job.
const SIZES: [u32; 12] = [2, 1, 1, 4, 1, 3, 2, 2, 1, 4, 1, 2];

/// GPUs of the one node.
pub const GPUS: u8 = 4;

/// Rounds short enough for a test.
pub const POLICIES: [&str; 3] = ["fifo", "las", "gavel:round=2s"];

/// What became of the jobs under one policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course {
    /// Jobs in the order of their first launches.
    pub starts: Vec<u32>,
    /// What the first decision launched, and where.
    pub first: BTreeMap<u32, Vec<u8>>,
    /// How each ended.
    pub ends: BTreeMap<u32, QueueState>,
    /// Launches of each.
    pub launches: BTreeMap<u32, u32>,
    /// Attempts that ended badly, with what is known of their ends: none of these jobs does anything that could fail.
    pub failures: Vec<String>,
}

/// What runs the jobs of a daemon: its cluster, and its backend.
pub struct Yard {
    pub cluster: Cluster,
    pub make: Box<Make>,
}

/// Makes a backend on a run directory that tells a daemon what happens.
type Make = dyn FnOnce(&Path, mpsc::Sender<Message>) -> Box<dyn Backend>;

/// Where a backend's reports go.
pub fn to(messages: mpsc::Sender<Message>) -> impl Fn(Report) + Send + 'static {
    move |report| drop(messages.send(Message::Report(report)))
}

fn simulated() -> Yard {
    let make = |_: &Path, messages| Simulated::backend_for(1, to(messages));
    Yard { cluster: Cluster::uniform(1, GPUS, "v100"), make: Box::new(make) }
}

fn local() -> Yard {
    let make = |run_dir: &Path, messages| -> Box<dyn Backend> {
        let options = LocalOptions::new(run_dir, PROGRAM);
        Box::new(Local::new(options, to(messages)).expect("a run directory of its own"))
    };
    Yard { cluster: Cluster::uniform(1, GPUS, "v100"), make: Box::new(make) }
}

#[test]
fn the_same_policies_decide_the_same_on_simulated_and_real_processes() {
    for policy in POLICIES {
        agree(policy, &on_simulated(policy), &play("local", policy, local()));
    }
}

/// The jobs on the simulated machine, to which all others are compared.
pub fn on_simulated(policy: &str) -> Course {
    play("simulated", policy, simulated())
}

/// What must not depend on which backend runs the jobs.
pub fn agree(policy: &str, one: &Course, other: &Course) {
    assert!(!one.first.is_empty(), "{policy}: nothing was launched: {one:?}");
    assert_eq!(one.first, other.first, "{policy}: the first decision");
    assert_eq!(one.ends, other.ends, "{policy}");
    assert_eq!((&one.failures, &other.failures), (&Vec::new(), &Vec::new()), "{policy}");
    if policy == POLICIES[0] {
        let in_order: Vec<u32> = (1..=SIZES.len() as u32).collect();
        assert_eq!((&one.starts, &other.starts), (&in_order, &in_order), "{policy}");
        assert_eq!(one.launches, other.launches, "{policy}: no job is stopped");
    }
}

/// Runs all jobs to their end.
pub fn play(arm: &str, policy: &str, yard: Yard) -> Course {
    let begun = Instant::now();
    // Two tests may play the same on the simulated machine at once.
    static PLAYED: AtomicUsize = AtomicUsize::new(0);
    let number = PLAYED.fetch_add(1, Ordering::Relaxed);
    let place = folder(&format!("{arm} {policy} {number}"));
    let evidence = Evidence::new(place.join("evidence"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (host, front) = daemon(&place, policy, yard);
    let course = runtime.block_on(async {
        let jobs: Vec<JobSpec> = SIZES.iter().map(|gpus| spec(*gpus, evidence.folder())).collect();
        let request = SubmitRequest { jobs, key: None };
        let submitted = front.submit(admin(), request).await.expect("they are taken on");
        assert_eq!(submitted.jobs.len(), SIZES.len());
        while !front.status(admin()).await.expect("an answer").jobs.is_empty() {
            assert!(begun.elapsed() < PATIENCE, "{arm}, {policy}: {:?}", course(&front).await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        course(&front).await
    });
    host.stop();
    for (job, state) in &course.ends {
        assert_eq!(*state, QueueState::Finished, "{arm}, {policy}, job {job}: {course:?}");
        let runs =
            (1..=course.launches[job]).map(|n| evidence.times_run((JobId(*job), Attempt(n))));
        // A simulated job leaves no evidence; its machine counts by itself.
        assert!(
            arm == "simulated" || runs.max() == Some(1),
            "{arm}, {policy}, job {job} ran twice"
        );
    }
    drop(evidence);
    let _ = std::fs::remove_dir_all(&place);
    println!("{arm}, {policy}: {:.1} s, {:?}", begun.elapsed().as_secs_f64(), course.starts);
    course
}

fn spec(gpus: u32, evidence: &Path) -> JobSpec {
    let script = format!(
        "echo 0 >> {}/ran.$TRAINYARD_JOB_ID.$TRAINYARD_ATTEMPT; sleep 0.1",
        evidence.display()
    );
    let argv = ["/bin/bash", "-c", &script].map(str::to_owned).to_vec();
    let cwd = Some("/".to_owned());
    let mut spec = JobSpec { argv, gpus, cwd, ..JobSpec::default() };
    spec.env.extend([Conduct::Exits(0).as_variable()]);
    spec
}

fn daemon(place: &Path, policy: &str, yard: Yard) -> (Running, ServiceImpl) {
    let factory: PolicyFactory = Arc::new(|label: &str| {
        let (name, settings) = label.split_once(':').unwrap_or((label, ""));
        let mut selection = Selection::policy(name);
        let pairs = settings.split(',').filter(|pair| !pair.is_empty());
        selection.policy.settings = RawSettings::parse(pairs).map_err(|error| error.to_string())?;
        selection.build().map_err(|error| error.to_string())
    });
    let (run_dir, path) = (place.join("run"), place.join("store.db"));
    let queue = mpsc::channel();
    let devices = yard.cluster.nodes.iter();
    let devices = devices.map(|node| (0..node.gpus).map(|gpu| (gpu, gpu.to_string())).collect());
    let devices = devices.collect();
    let backend = (yard.make)(&run_dir, queue.0.clone());
    let announces = backend.wants_announcements();
    let core = CoreOptions {
        cluster: Arc::new(yard.cluster),
        devices,
        catalog: Arc::new(Catalog::builtin()),
        setup: Setup::default(),
        policy: policy.to_owned(),
        half_life: Span::secs(3600),
        boot: "test".to_owned(),
        processes_max: 0,
        log_bytes_max: 1 << 20,
        announces,
        rules: Default::default(),
        open_per_user_max: trainyard_daemon::core::OPEN_PER_USER_MAX,
        gpu_return_after: None,
        hang: trainyard_daemon::hang::Rule::default(),
        notify: Default::default(),
    };
    let options = HostOptions {
        core,
        tenants: Tenants::default(),
        factory: Arc::clone(&factory),
        // On a busy machine a policy must not be taken for one that hangs.
        decision_limit: Duration::from_secs(30),
        flight: place.join("flight"),
        record_bytes_max: 1 << 24,
        runs_as_users: false,
        notifier: None,
    };
    let store = Store::open(&path).expect("a new store");
    let metrics = Arc::new(Metrics::new());
    let host = Host::start(options, store, backend, queue, metrics).expect("a daemon");
    let front = ServiceImpl::new(&host, factory, path, run_dir);
    (host, front)
}

async fn course(front: &ServiceImpl) -> Course {
    let events = front
        .events(admin(), EventsQuery { max: Some(10_000), ..EventsQuery::default() })
        .await
        .expect("events");
    let filter = JobFilter { all: true, limit: Some(100), ..JobFilter::default() };
    let rows = front.jobs(admin(), filter).await.expect("rows");
    let mut course = Course::default();
    let of_kind = |event: &EventRow, kind: &str| event.kind == kind;
    // What is launched in one turn has one time; on a busy machine a second turn may come before a job has started.
    let first = events.iter().find(|event| of_kind(event, "launched")).map(|event| event.at);
    for event in events.iter().filter(|event| of_kind(event, "launched")) {
        let job = event.job.expect("a launch is of a job");
        let launches = course.launches.entry(job).or_default();
        *launches += 1;
        if *launches == 1 {
            course.starts.push(job);
        }
        if Some(event.at) == first {
            let detail = front.job(admin(), job).await.expect("a job");
            let gpus = detail.attempts[0].holds.iter().flat_map(|hold| hold.gpus.clone()).collect();
            course.first.insert(job, gpus);
        }
    }
    for event in events.iter().filter(|event| of_kind(event, "failed")) {
        let job = event.job.expect("a failure is of a job");
        let attempts = front.job(admin(), job).await.expect("a job").attempts;
        course.failures.push(format!("{}: {attempts:?}", event.text));
    }
    course.ends = rows.iter().map(|row| (row.id, row.state)).collect();
    course
}

fn admin() -> Caller {
    Caller::named("ada", Role::Admin)
}
