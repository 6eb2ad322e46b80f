//! A large cluster to look at: the real daemon with 1,000 nodes of 8 GPUs and 10,000 jobs, on a backend that only
//! pretends to run them. `cargo run --release -p trainyard-daemon --example large_yard -- [NODES JOBS]` prints where
//! the page is, and ends with its input.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use trainyard_api::JobSpec;
use trainyard_api::answer::SubmitRequest;
use trainyard_api::token::TokenInfo;
use trainyard_api::wire::FromJob;
use trainyard_backend::{Backend, Exit, Found, Order, Report};
use trainyard_daemon::core::CoreOptions;
use trainyard_daemon::host::{Host, HostOptions, Message, Running};
use trainyard_daemon::http::{HttpOptions, Server, secret};
use trainyard_daemon::metrics::Metrics;
use trainyard_daemon::policy_worker::PolicyFactory;
use trainyard_daemon::service::{NewToken, Service};
use trainyard_daemon::service_impl::ServiceImpl;
use trainyard_daemon::{Caller, Role};
use trainyard_engine::Setup;
use trainyard_policies::compose::Selection;
use trainyard_profile::Catalog;
use trainyard_store::Store;
use trainyard_types::{Attempt, Cluster, JobId, Sample, Span, Tenants};

const NODES: u32 = 1000;
const JOBS: u32 = 10_000;
const NODES_IN_A_RACK: u32 = 40;
const TENANTS: u32 = 12;
const POLICY: &str = "priority";

/// What is to happen to an attempt, and when: it starts, tells of its progress, ends.
type Due = Reverse<(Instant, u32, u32, u8)>;

/// Starts attempts at once and ends them when their time is up; nothing runs.
struct Pretender {
    due: Arc<Mutex<BinaryHeap<Due>>>,
}

impl Pretender {
    fn new(messages: mpsc::Sender<Message>) -> Pretender {
        let due: Arc<Mutex<BinaryHeap<Due>>> = Arc::default();
        let heap = Arc::clone(&due);
        let tell = move || {
            while ready(&heap).into_iter().all(|due| messages.send(report(due)).is_ok()) {
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        std::thread::spawn(tell);
        Pretender { due }
    }

    fn later(&self, seconds: f64, (job, attempt): (JobId, Attempt), what: u8) {
        let at = Instant::now() + Duration::from_secs_f64(seconds);
        let mut due = self.due.lock().expect("no thread panics with it");
        due.push(Reverse((at, job.0, attempt.0, what)));
    }
}

fn ready(heap: &Mutex<BinaryHeap<Due>>) -> Vec<Due> {
    let mut heap = heap.lock().expect("no thread panics with it");
    let mut ready = Vec::new();
    while heap.peek().is_some_and(|Reverse(next)| next.0 <= Instant::now()) {
        ready.extend(heap.pop());
    }
    ready
}

fn report(Reverse((_, job, attempt, what)): Due) -> Message {
    let (job, attempt) = (JobId(job), Attempt(attempt));
    Message::Report(match what {
        0 => Report::Started { job, attempt },
        1 => {
            let text = r#"{"type":"progress","done":10,"total":1000,"rate":2.5,"loss":1.5}"#;
            let message: FromJob = serde_json::from_str(text).expect("a message as jobs send it");
            Report::Said { job, attempt, sample: Sample::default(), message }
        }
        _ => {
            let exit = Exit { code: Some(0), ..Exit::default() };
            Report::Ended { job, attempt, exit }
        }
    })
}

impl Backend for Pretender {
    fn obey(&mut self, order: Order) {
        let order = match order {
            Order::Launch(order) => order,
            Order::Stop(job, attempt, _) => return self.later(0.2, (job, attempt), 2),
            _ => return,
        };
        let of = (order.job, order.attempt);
        self.later(0.05, of, 0);
        self.later(2.0, of, 1);
        // A few are short, so that something changes all the time; most run longer than a client watches.
        let seconds = if order.job.0.is_multiple_of(40) { 5 + order.job.0 % 31 } else { 3600 };
        self.later(f64::from(seconds), of, 2);
    }
    fn list_attempts(&mut self) -> Vec<Found> {
        Vec::new()
    }
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

fn cluster(nodes: u32) -> Cluster {
    let mut cluster = Cluster { pools: vec!["default".to_owned()], ..Cluster::default() };
    let kinds = [cluster.add_kind("h100"), cluster.add_kind("a100")];
    for index in 0..nodes {
        let rack = index / NODES_IN_A_RACK;
        let id = cluster.add_node(kinds[rack as usize % 2], 8);
        let node = &mut cluster.nodes[id.index()];
        node.name = format!("n{:04}", index + 1);
        node.rack = rack as u16;
    }
    cluster
}

fn jobs(count: u32) -> Vec<JobSpec> {
    let models = ["bert", "resnet50", "gpt-medium", "vit", "dlrm", "whisper", "unet"];
    let sizes = [1, 1, 2, 4, 4, 8, 8, 16];
    let job = |index: u32| {
        let is_part = index % 19 == 3;
        let size = sizes[(index.wrapping_mul(2_654_435_761) >> 29) as usize];
        JobSpec {
            name: format!("{}-{}", models[(index % 7) as usize], index / 7),
            argv: vec!["python".to_owned(), "train.py".to_owned()],
            tenant: Some(format!("team-{:02}", index * 7 % TENANTS)),
            gpus: if is_part { 1 } else { size },
            gpu_permille: is_part.then_some(500),
            priority: (index % 3) as i32,
            expected_seconds: Some(f64::from(600 + index % 50 * 120)),
            ..JobSpec::default()
        }
    };
    (0..count).map(job).collect()
}

fn host(nodes: u32, folder: &Path, metrics: &Arc<Metrics>) -> (Running, ServiceImpl) {
    let cluster = cluster(nodes);
    let factory: PolicyFactory =
        Arc::new(|label| Selection::policy(label).build().map_err(|error| error.to_string()));
    let devices = cluster.nodes.iter().map(|node| (0..node.gpus).map(|gpu| (gpu, gpu.to_string())));
    let core = CoreOptions {
        devices: devices.map(Iterator::collect).collect(),
        cluster: Arc::new(cluster),
        catalog: Arc::new(Catalog::builtin()),
        setup: Setup::default(),
        policy: POLICY.to_owned(),
        half_life: Span::secs(3600),
        boot: "large".to_owned(),
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
        decision_limit: Duration::from_secs(60),
        flight: folder.join("flight"),
        record_bytes_max: 1 << 30,
        runs_as_users: false,
        notifier: None,
    };
    let path = folder.join("store.db");
    let store = Store::open(&path).expect("a new store can be made");
    let queue = mpsc::channel();
    let backend = Box::new(Pretender::new(queue.0.clone()));
    let host = Host::start(options, store, backend, queue, Arc::clone(metrics));
    let host = host.expect("a new host starts");
    let front = ServiceImpl::new(&host, factory, path, folder.join("run"));
    (host, front)
}

async fn token(front: &ServiceImpl, caller: Caller) -> String {
    let token = secret::draw().expect("the system gives randomness");
    let (name, user) = ("page".to_owned(), caller.user.clone());
    let info = TokenInfo { name, user, role: Role::Admin, created: 0.0, expires: None };
    let new = NewToken { info, digest: secret::digest(&token) };
    front.add_token(caller, new).await.expect("the token is taken on");
    token
}

#[tokio::main]
async fn main() {
    let given: Vec<u32> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let nodes = given.first().copied().unwrap_or(NODES);
    let count = given.get(1).copied().unwrap_or(JOBS);
    let folder = std::env::temp_dir().join(format!("trainyard-large-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder for temporary files can be used");
    let metrics = Arc::new(Metrics::new());
    let (running, front) = host(nodes, &folder, &metrics);
    let caller = Caller::named("ann", Role::Admin);
    let request = SubmitRequest { jobs: jobs(count), key: None };
    front.submit(caller.clone(), request).await.expect("the jobs are taken on");
    let token = token(&front, caller).await;
    let mut options = HttpOptions::new(metrics);
    options.tcp = Some(([127, 0, 0, 1], 0).into());
    let server = Server::bind(Arc::new(front), options).await.expect("a free port is there");
    let address = server.address().expect("it listens on TCP");
    println!("http://{address}/#token={token}");
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = end.send(());
    });
    server.run(async { drop(ended.await) }).await;
    running.stop();
    let _ = std::fs::remove_dir_all(&folder);
}
