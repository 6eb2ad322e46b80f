//! The loop with a backend that only notes orders, and policies that do not behave.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::sleep;
use std::time::{Duration, Instant};
use trainyard_api::JobSpec;
use trainyard_api::answer::{Status, SubmitRequest};
use trainyard_api::request::{EventsQuery, PolicyRequest};
use trainyard_backend::{Backend, Exit, Found, Order, Report};
use trainyard_daemon::core::CoreOptions;
use trainyard_daemon::host::{Host, HostOptions, Message, Running};
use trainyard_daemon::metrics::Metrics;
use trainyard_daemon::policy_worker::{ABANDONED_MAX, PolicyFactory};
use trainyard_daemon::service::Service;
use trainyard_daemon::service_impl::ServiceImpl;
use trainyard_daemon::{Caller, Role};
use trainyard_engine::Setup;
use trainyard_framework::{Cx, Needs, Offer, Pipeline, Placer, Policy, PolicyError, View, wanted};
use trainyard_profile::Catalog;
use trainyard_store::Store;
use trainyard_types::placement::lowest_bits;
use trainyard_types::{Attempt, Cluster, JobId, Placement, Span, Tenants};

/// Runs every attempt for no time at all, once, and remembers its end until it may forget it.
struct Instantly {
    messages: mpsc::Sender<Message>,
    kept: BTreeSet<(JobId, Attempt)>,
    launched: Arc<Mutex<Vec<u32>>>,
}

impl Backend for Instantly {
    fn obey(&mut self, order: Order) {
        let order = match order {
            Order::Launch(order) => order,
            Order::Forget(job, attempt) => {
                self.kept.remove(&(job, attempt));
                return;
            }
            _ => return,
        };
        let (job, attempt) = (order.job, order.attempt);
        if self.kept.insert((job, attempt)) {
            self.launched.lock().unwrap().push(job.0);
        }
        for report in
            [Report::Started { job, attempt }, Report::Ended { job, attempt, exit: well() }]
        {
            self.messages.send(Message::Report(report)).unwrap();
        }
    }
    fn list_attempts(&mut self) -> Vec<Found> {
        let found = |(job, attempt): &(JobId, Attempt)| Found::Ended {
            job: *job,
            attempt: *attempt,
            exit: well(),
        };
        self.kept.iter().map(found).collect()
    }
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

fn well() -> Exit {
    Exit { code: Some(0), ..Exit::default() }
}

/// First come, first served; or sleeps, or panics.
struct Sometimes(String);

impl Policy for Sometimes {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _: &mut Cx,
    ) -> Result<(), PolicyError> {
        match self.0.as_str() {
            "sleeps" => sleep(Duration::from_secs(2)),
            "panics" => panic!("on purpose"),
            _ => {}
        }
        for job in view.waiting() {
            offer.grant(&wanted(job));
        }
        Ok(())
    }
}

struct Lowest;

impl Placer for Lowest {
    fn try_place(
        &mut self,
        ask: &trainyard_framework::Ask<'_>,
        free: &trainyard_framework::Free,
        _: &View<'_>,
    ) -> Option<Placement> {
        let node = free.tightest(free.kinds()[0], ask.count).next()?;
        Some(Placement::on(node, lowest_bits(free.mask(node), ask.count)))
    }
}

struct Bench {
    host: Option<Running>,
    front: ServiceImpl,
    launched: Arc<Mutex<Vec<u32>>>,
    folder: PathBuf,
}

impl Bench {
    fn new(name: &str, policy: &str) -> Bench {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&folder);
        let factory: PolicyFactory = Arc::new(|label: &str| match label {
            "good" | "sleeps" | "panics" => {
                Ok(Pipeline::new(Sometimes(label.to_owned()), Lowest, Needs::NOTHING))
            }
            other => Err(format!("no policy is called `{other}`")),
        });
        let cluster = Cluster::uniform(1, 2, "gpu");
        let core = CoreOptions {
            cluster: Arc::new(cluster),
            devices: vec![vec![(0, "0".to_owned()), (1, "1".to_owned())]],
            catalog: Arc::new(Catalog::builtin()),
            setup: Setup { policy_retry_after: Span::secs(1), ..Setup::default() },
            policy: policy.to_owned(),
            half_life: Span::secs(3600),
            boot: "test".to_owned(),
            processes_max: 0,
            log_bytes_max: 0,
            announces: false,
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
            // A panic that prints where it was takes its time, and must not count as a policy that hangs.
            decision_limit: Duration::from_millis(if policy == "sleeps" { 60 } else { 10_000 }),
            flight: folder.join("flight"),
            record_bytes_max: 20_000,
            runs_as_users: false,
            notifier: None,
        };
        let path = folder.join("store.db");
        let store = Store::open(&path).unwrap();
        let queue = mpsc::channel();
        let launched = Arc::<Mutex<Vec<u32>>>::default();
        let backend = Instantly {
            messages: queue.0.clone(),
            kept: BTreeSet::new(),
            launched: Arc::clone(&launched),
        };
        let metrics = Arc::new(Metrics::new());
        let host = Host::start(options, store, Box::new(backend), queue, metrics).unwrap();
        let front = ServiceImpl::new(&host, factory, path, folder.join("run"));
        Bench { host: Some(host), front, launched, folder }
    }

    async fn submit(&self, count: usize, key: &str) -> Vec<u32> {
        let spec = JobSpec { argv: vec!["true".to_owned()], ..JobSpec::default() };
        let request = SubmitRequest { jobs: vec![spec; count], key: Some(key.to_owned()) };
        self.front.submit(admin(), request).await.unwrap().jobs
    }

    async fn until(&self, what: &str, holds: impl Fn(&Status) -> bool) -> Status {
        let begun = Instant::now();
        loop {
            let status = self.front.status(admin()).await.unwrap();
            if holds(&status) {
                return status;
            }
            assert!(begun.elapsed() < Duration::from_secs(15), "{what}: {status:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(host) = self.host.take() {
            host.stop();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn admin() -> Caller {
    Caller::named("ann", Role::Admin)
}

#[tokio::test]
async fn a_policy_that_hangs_is_cut_off_and_the_plain_order_takes_over() {
    let bench = Bench::new("hangs", "sleeps");
    bench.submit(1, "one").await;
    let status = bench.until("all jobs end", |status| status.jobs.is_empty()).await;
    assert_eq!(*bench.launched.lock().unwrap(), [1]);
    assert!(status.stats["policy_stuck"].as_u64().unwrap() >= 3, "{status:?}");
    assert!(status.stats["policy_stuck"].as_u64().unwrap() <= ABANDONED_MAX as u64);
    assert!(status.policy_trouble.is_some(), "it is said: {status:?}");
    let events = bench.front.events(admin(), EventsQuery::default()).await.unwrap();
    assert!(events.iter().any(|event| event.kind == "policy-failed"), "{events:?}");

    let request = PolicyRequest { policy: "good".to_owned(), ..PolicyRequest::default() };
    let status = bench.front.set_policy(admin(), request).await.unwrap();
    assert_eq!((status.policy.as_str(), status.policy_trouble), ("good", None));
    bench.submit(3, "two").await;
    bench.until("the new policy decides", |status| status.jobs.is_empty()).await;
    assert_eq!(*bench.launched.lock().unwrap(), [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_policy_that_panics_does_not_stop_the_daemon() {
    let bench = Bench::new("panics", "panics");
    bench.submit(2, "one").await;
    let status = bench.until("all jobs end", |status| status.jobs.is_empty()).await;
    // On a busy machine a panic takes longer to be told of than the policy may think.
    let count = |name: &str| status.stats[name].as_u64().unwrap();
    assert!(count("policy_panics") + count("policy_stuck") >= 3, "{status:?}");
    assert!(count("policy_panics") >= 1, "{status:?}");
    let refused = PolicyRequest { policy: "other".to_owned(), ..PolicyRequest::default() };
    let refused = bench.front.set_policy(admin(), refused).await.unwrap_err();
    assert_eq!(refused.code, trainyard_api::Code::BadInput);
}

#[tokio::test]
async fn a_key_gives_the_same_answer_and_a_full_record_begins_anew() {
    let bench = Bench::new("record", "good");
    let first = bench.submit(2, "same").await;
    assert_eq!(bench.submit(2, "same").await, first);
    for round in 0..20 {
        bench.submit(5, &format!("round {round}")).await;
    }
    bench.until("all jobs end", |status| status.jobs.is_empty()).await;
    assert_eq!(bench.submit(2, "same").await, first, "also when the core was made anew");
    let record = String::from_utf8(bench.front.capture(admin()).await.unwrap()).unwrap();
    assert!(record.starts_with("{\"base\":"), "{}", &record[..60]);
    let files = std::fs::read_dir(bench.folder.join("flight")).unwrap().count();
    assert!((2..=4).contains(&files), "{files} files");
    let launched = bench.launched.lock().unwrap();
    let mut once = launched.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!((once.len(), launched.len()), (102, 102), "every job ran once");
}

#[tokio::test]
async fn a_queue_that_is_longer_than_the_record_may_be_does_not_begin_it_anew_at_every_turn() {
    let bench = Bench::new("long-queue", "good");
    let held = JobSpec { argv: vec!["true".to_owned()], hold: true, ..JobSpec::default() };
    let submit = |count: usize| {
        let request = SubmitRequest { jobs: vec![held.clone(); count], key: None };
        bench.front.submit(admin(), request)
    };
    // Its base is ten times as long as the record may be.
    submit(400).await.unwrap();
    let newest = || {
        let files = std::fs::read_dir(bench.folder.join("flight")).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let part = names.map(|name| name[9..13].parse::<u32>().unwrap()).max();
        part.expect("a record")
    };
    bench.until("a new base", |_| newest() >= 1).await;
    let before = newest();
    for _ in 0..60 {
        submit(1).await.unwrap();
    }
    bench.front.capture(admin()).await.unwrap();
    let begun = newest() - before;
    assert!(begun <= 2, "begun anew {begun} times for 60 jobs");
}
