//! `serve`: the daemon.

use super::forecast_service::ForecastService;
use super::host_args::{HealthArgs, LogForm, ServeArgs, SharingArgs, SuspendArgs};
use super::places::Places;
use super::policy_factory::{self, policy_factory};
use super::{machine, pools, slurm};
use crate::failure::Failure;
use crate::output::Output;
use nix::sys::signal::{SigSet, Signal};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{self, Writer};
use trainyard_api::request::PolicyRequest;
use trainyard_backend::health::{self, Readings};
use trainyard_backend::{Backend, HealthOptions, HealthVerdict, Local, LocalOptions, shared_gpu};
use trainyard_daemon::access::{Role, Rules};
use trainyard_daemon::core::CoreOptions;
use trainyard_daemon::hang::Rule;
use trainyard_daemon::host::{Host, HostOptions, Message, Running};
use trainyard_daemon::http::{HttpOptions, Server, TlsSource};
use trainyard_daemon::metrics::Metrics;
use trainyard_daemon::notify::Notifier;
use trainyard_daemon::recorder::RECORD_BYTES_MAX;
use trainyard_daemon::service_impl::{ServiceImpl, label};
use trainyard_engine::Setup;
use trainyard_experiment::{files, given, options};
use trainyard_store::Store;
use trainyard_types::{Span, SuspendRule, Tenants, printable, printable_json};
use trainyard_workload::cluster;

/// Where the page is served unless flags say otherwise; another free port where this one is taken.
const PAGE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7780);

/// Bytes of log kept for each process.
const LOG_BYTES_MAX: u64 = 256 << 20;

/// `serve`.
pub fn run(args: &ServeArgs, output: &Output) -> Result<(), Failure> {
    begin(args.log);
    let mut places = Places::find(&args.state)?;
    let listen = Listen::parse(args, &places)?;
    let slurm = slurm::find(&args.slurm, &mut places)?;
    let machine = machine(args, slurm.as_ref())?;
    places.make()?;
    let ended = watch_signals()?;
    let store = Store::open(&places.store).map_err(operation)?;
    let (mut core, tenants) = core_options(args, &store, &machine)?;
    let kept = store.reader().and_then(|reader| reader.meta("forecasts")).map_err(operation)?;
    let forecast_service = Arc::new(ForecastService::new(policy_factory(), kept.as_deref()));
    let (queue, readings) = (mpsc::channel(), Readings::default());
    let (backend, runs_as_users): (Box<dyn Backend>, bool) = match slurm {
        Some(found) => {
            // An attempt does not end with the machine of the daemon, as it does where that runs it.
            core.boot = "slurm".to_owned();
            let slurm = found.backend(&args.slurm, &places, queue.0.clone())?;
            let runs_as_users = slurm.changes_users();
            (Box::new(slurm), runs_as_users)
        }
        None => {
            let local = backend(args, &places, &readings, queue.0.clone())?;
            let runs_as_users = local.changes_users();
            (Box::new(local), runs_as_users)
        }
    };
    core.announces = backend.wants_announcements();
    core.setup.suspend = suspend(&args.suspend, backend.as_ref())?;
    let host = HostOptions {
        notifier: Some(Notifier::start(Arc::clone(&core.notify)).map_err(operation)?),
        core,
        tenants,
        factory: policy_factory(),
        decision_limit: Duration::from_micros(
            options::span("--decision-limit", &args.decision_limit)?.0,
        ),
        flight: places.flight.clone(),
        record_bytes_max: RECORD_BYTES_MAX,
        runs_as_users,
    };
    let metrics = Arc::new(Metrics::new());
    let policy = host.core.policy.clone();
    let host = Host::start(host, store, backend, queue, Arc::clone(&metrics)).map_err(operation)?;
    let (store, run) = (places.store.clone(), places.run.clone());
    let front = ServiceImpl::new(&host, policy_factory(), store, run)
        .with_forecasts(forecast_service)
        .with_facts(machine.usage(readings), policy_factory::rows());
    let http = listen.options(args, metrics, !runs_as_users);
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(operation)?;
    let served = runtime.block_on(async {
        let forecasts = front.clone();
        tokio::spawn(async move { forecasts.keep_forecasting().await });
        let server = Server::bind(Arc::new(front), http).await.map_err(operation)?;
        let address = server.address();
        let print = server.fingerprint().map(str::to_owned);
        let listening = listen.told(address, print.as_deref());
        output.print(&told(&places, &machine, &policy, &host, &listening, &listen))?;
        server.run(async { drop(ended.await) }).await;
        Ok(())
    });
    host.stop();
    runtime.shutdown_timeout(Duration::from_secs(1));
    if served.is_ok() {
        output.print("ended; jobs that run go on, and the next start finds them\n")?;
    }
    served
}

/// The nodes that are scheduled, with the pools that are declared of them.
fn machine(args: &ServeArgs, slurm: Option<&slurm::Found>) -> Result<machine::Machine, Failure> {
    let mut machine = match slurm {
        Some(found) => found.machine(),
        None => machine::find(args.gpus.as_deref())?,
    };
    pools::declare(&mut machine.cluster, &args.pools)?;
    Ok(machine)
}

fn operation(error: impl std::fmt::Display) -> Failure {
    Failure::Operation(error.to_string())
}

fn begin(form: LogForm) {
    // Descriptors inherited from the process that started this are not used here, and jobs must not get them.
    trainyard_backend::descriptors::close_inherited();
    let subscriber = tracing_subscriber::fmt().with_writer(std::io::stderr);
    let subscriber = subscriber.with_max_level(tracing::Level::INFO);
    // A second one in the same process would be refused, and is not needed.
    let _ = match form {
        LogForm::Text => {
            let color = std::io::IsTerminal::is_terminal(&std::io::stderr());
            let subscriber =
                subscriber.with_ansi(color).fmt_fields(format::debug_fn(field).delimited(" "));
            tracing::subscriber::set_global_default(subscriber.finish())
        }
        LogForm::Json => {
            let subscriber = subscriber.with_writer(|| JsonLines(std::io::stderr()));
            tracing::subscriber::set_global_default(subscriber.json().finish())
        }
    };
}

/// A field of a line of the log: a reader sees the text of users, and the reader's terminal does not obey it.
fn field(to: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    let text = format!("{value:?}");
    match field.name() {
        "message" => write!(to, "{}", printable(&text)),
        name => write!(to, "{name}={}", printable(&text)),
    }
}

/// Lines of JSON, each whole, with everything escaped that a terminal obeys.
struct JsonLines(std::io::Stderr);

impl std::io::Write for JsonLines {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.write_all(printable_json(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Signals that ask for the end are waited for by one thread; all others, made later, leave them alone.
fn watch_signals() -> Result<oneshot::Receiver<()>, Failure> {
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
    signals.thread_block().map_err(operation)?;
    let (end, ended) = oneshot::channel();
    let watch = move || {
        let _ = signals.wait();
        let _ = end.send(());
        // A second signal means that the user does not want to wait.
        let _ = signals.wait();
        std::process::exit(crate::failure::INTERRUPTED);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(watch).map_err(operation)?;
    Ok(ended)
}

fn core_options(
    args: &ServeArgs,
    store: &Store,
    machine: &machine::Machine,
) -> Result<(CoreOptions, Tenants), Failure> {
    let kept = store.reader().and_then(|reader| reader.meta("policy")).map_err(operation)?;
    let kept = kept.and_then(|text| serde_json::from_str::<String>(&text).ok());
    let asked = args.policy.as_ref().map(|policy| {
        let (place, admit) = (args.place.clone(), args.admit.clone());
        label(&PolicyRequest { policy: policy.clone(), place, admit })
    });
    let policy = asked.or(kept).unwrap_or_else(|| policy_factory::FIRST.to_owned());
    let half_life = policy_factory::build(&policy)?.usage_half_life;
    let (tenants, members) = match &args.tenants {
        None => (Tenants::default(), BTreeMap::new()),
        Some(path) => {
            let text = files::read_text(path)?;
            let members = cluster::parse_members(&text);
            let read = cluster::parse_tenants(&text).and_then(|tenants| Ok((tenants, members?)));
            read.map_err(|fault| Failure::input(path.display(), fault))?
        }
    };
    let rules = rules(args, members)?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let core = CoreOptions {
        cluster: Arc::new(machine.cluster.clone()),
        devices: machine.devices.clone(),
        catalog: Arc::new(given::load_catalog(&args.profiles)?),
        setup: Setup {
            resize_wait: Some(options::span("--resize-wait", &args.health.resize_wait)?),
            isolates_tenants: true,
            ..Setup::default()
        },
        policy,
        half_life,
        boot: boot.trim().to_owned(),
        processes_max: args.processes_max,
        log_bytes_max: LOG_BYTES_MAX,
        announces: false,
        rules,
        open_per_user_max: args.jobs_per_user_max,
        gpu_return_after: args.health.gpu_return_after.as_deref().map(return_after).transpose()?,
        hang: hang(&args.health)?,
        notify: Arc::new(args.notify.rules()?),
    };
    Ok((core, tenants))
}

/// How far the submissions of each role may go.
fn rules(args: &ServeArgs, members: BTreeMap<String, Vec<String>>) -> Result<Rules, Failure> {
    let mut rules = Rules { members, ..Rules::default() };
    for text in &args.priority_max {
        let (role, most) = limit("--priority-max", text, "ROLE=NUMBER, such as user=10")?;
        rules.priority_max.insert(role, most);
    }
    for text in &args.weight_max {
        let expected = "ROLE=NUMBER above 0, such as user=2";
        let (role, most) = limit::<f64>("--weight-max", text, expected)?;
        if !(most > 0.0 && most.is_finite()) {
            return Err(Failure::flag("--weight-max", text, expected));
        }
        rules.weight_max.insert(role, most);
    }
    Ok(rules)
}

fn limit<T: FromStr>(flag: &str, text: &str, expected: &str) -> Result<(Role, T), Failure> {
    let read = text.split_once('=');
    let read = read.and_then(|(role, most)| Some((Role::named(role)?, most.parse().ok()?)));
    read.ok_or_else(|| Failure::flag(flag, text, expected))
}

fn backend(
    args: &ServeArgs,
    places: &Places,
    readings: &Readings,
    messages: mpsc::Sender<Message>,
) -> Result<Local, Failure> {
    let program = std::env::current_exe().map_err(operation)?;
    let mut options = LocalOptions::new(places.run.clone(), program);
    options.helper.clone_from(&args.helper);
    options.cgroups = !args.no_cgroups;
    options.driver.clone_from(&args.suspend.driver_library);
    options.mps = mps(&args.sharing);
    let health = health(&args.health)?;
    options.health =
        health.map(|health| HealthOptions { readings: Arc::clone(readings), ..health });
    let reports = move |report| {
        // The receiver is gone when the daemon ends.
        let _ = messages.send(Message::Report(report));
    };
    Local::new(options, reports).map_err(operation)
}

/// The control program of MPS, where jobs with a share are to be its clients. Without one they take turns, and an event
/// says so of each.
fn mps(args: &SharingArgs) -> Option<PathBuf> {
    if !args.mps {
        return None;
    }
    let named = args.mps_control.clone().unwrap_or_else(|| PathBuf::from(shared_gpu::MPS_CONTROL));
    let found = shared_gpu::find_mps(&named);
    if found.is_none() {
        tracing::warn!("--mps: there is no {}: jobs with a share take turns", named.display());
    }
    found.or(Some(named))
}

/// How jobs are put aside in host memory: as its user says, where the backend can; not at all by default.
fn suspend(args: &SuspendArgs, backend: &dyn Backend) -> Result<Option<SuspendRule>, Failure> {
    let ram = ram_mib();
    let asked = args.suspend_memory.as_deref().map(|text| {
        let refuse = |expected: &str| Failure::flag("--suspend-memory", text, expected);
        let rule: SuspendRule = text.parse().map_err(|_| refuse(SuspendRule::EXPECTED))?;
        match ram.filter(|ram| rule.memory_mib > *ram) {
            Some(ram) => Err(refuse(&format!("at most the RAM of this machine, {ram} MiB"))),
            None => Ok(rule),
        }
    });
    let asked = asked.transpose()?;
    let Some(rule) = asked.filter(|rule| rule.memory_mib > 0) else { return Ok(None) };
    match backend.cannot_suspend() {
        None => Ok(Some(rule)),
        Some(why) => {
            tracing::warn!("--suspend-memory: no job is put aside: {why}");
            Ok(None)
        }
    }
}

/// The RAM of this machine.
pub(super) fn ram_mib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes / 1024)
}

/// From when on a job hangs.
fn hang(args: &HealthArgs) -> Result<Rule, Failure> {
    let least = options::span("--hang-min", &args.hang_min)?;
    let times = args.hang_times;
    if !(1.0..=1e6).contains(&times) {
        let expected = "a number from 1 to 1000000";
        return Err(Failure::flag("--hang-times", &times.to_string(), expected));
    }
    Ok(Rule { times, least })
}

fn return_after(text: &str) -> Result<Span, Failure> {
    Ok(options::span("--gpu-return-after", text)?)
}

/// How the health of GPUs is watched.
fn health(args: &HealthArgs) -> Result<Option<HealthOptions>, Failure> {
    let mut health = HealthOptions::default();
    for text in &args.verdicts {
        let rule = text.split_once('=').filter(|(code, _)| health::Rules::knows(code));
        let rule = rule.and_then(|(code, name)| Some((code, HealthVerdict::named(name)?)));
        let expected =
            "a finding and a verdict, such as xid-63=tell; `docs/guide/reliability.md` lists both";
        let (code, verdict) = rule.ok_or_else(|| Failure::flag("--gpu-verdict", text, expected))?;
        health.rules.verdicts.insert(code.to_owned(), verdict);
    }
    Ok((!args.no_gpu_health).then_some(health))
}

/// Where the daemon listens.
struct Listen {
    socket: Option<PathBuf>,
    tcp: Option<SocketAddr>,
    tls: Option<TlsSource>,
    /// Whether commands find it without being told.
    usual: bool,
    /// Whether the TCP address was not asked for, so that another port is as good.
    any_port: bool,
}

impl Listen {
    fn parse(args: &ServeArgs, places: &Places) -> Result<Listen, Failure> {
        let mut listen =
            Listen { socket: None, tcp: None, tls: None, usual: false, any_port: false };
        let expected = "unix:PATH or ADDRESS:PORT, each once at most";
        for text in &args.listen {
            let taken = match (text.strip_prefix("unix:"), text.parse::<SocketAddr>()) {
                (Some(path), _) if !path.is_empty() => listen.socket.replace(path.into()).is_some(),
                (None, Ok(address)) => listen.tcp.replace(address).is_some(),
                _ => true,
            };
            if taken {
                return Err(Failure::flag("--listen", text, expected));
            }
        }
        if listen.socket.is_none() {
            // Without a socket no user could make the token that an address asks for.
            listen.socket = Some(places.socket.clone());
            // Commands look at the variable too, and not at the flag.
            let flag = args.state.state.clone();
            let variable = std::env::var_os("TRAINYARD_STATE").map(PathBuf::from);
            listen.usual = flag.is_none() || flag == variable;
        }
        if args.listen.is_empty() && !args.no_page && args.tls.is_none() {
            (listen.tcp, listen.any_port) = (Some(PAGE), true);
        }
        listen.tls = match args.tls.as_deref() {
            None => None,
            Some("self-signed") => Some(TlsSource::SelfSigned { folder: places.tls.clone() }),
            Some(text) => {
                let expected = "CERTIFICATE,KEY or self-signed";
                let files = text.split_once(',');
                let (certificate, key) =
                    files.ok_or_else(|| Failure::flag("--tls", text, expected))?;
                Some(TlsSource::Files { certificate: certificate.into(), key: key.into() })
            }
        };
        Ok(listen)
    }

    fn options(&self, args: &ServeArgs, metrics: Arc<Metrics>, only_own_user: bool) -> HttpOptions {
        let (groups, operators): (Vec<String>, Vec<String>) =
            args.operators.iter().cloned().partition(|name| name.starts_with('@'));
        HttpOptions {
            socket: self.socket.clone(),
            tcp: self.tcp,
            any_port: self.any_port,
            tls: self.tls.clone(),
            names: args.names.clone(),
            only_own_user,
            operators,
            operator_group: groups.first().map(|name| name.trim_start_matches('@').to_owned()),
            ..HttpOptions::new(metrics)
        }
    }

    fn told(&self, address: Option<SocketAddr>, print: Option<&str>) -> Vec<String> {
        let mut told = Vec::new();
        told.extend(self.socket.as_ref().map(|path| format!("unix:{}", path.display())));
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let what = if self.any_port { "the page: `trainyard web`" } else { "a token is needed" };
        told.extend(address.map(|address| format!("{scheme}://{address} ({what})")));
        told.extend(print.map(|print| format!("certificate {print}")));
        told
    }
}

/// What the daemon does, for the user who started it.
fn told(
    places: &Places,
    machine: &machine::Machine,
    policy: &str,
    host: &Running,
    listening: &[String],
    listen: &Listen,
) -> String {
    let health = host.shared.health();
    let mut text = format!("trainyard {}\n", crate::args::VERSION);
    let mut row = |name: &str, value: &str| text.push_str(&format!("{name:<10}{value}\n"));
    for place in listening {
        row("listens", place);
    }
    row("GPUs", &machine.told);
    row("policy", policy);
    row(
        "jobs",
        match health.runs_as_users {
            true => "run as the users who submit them",
            false => "run as the daemon's user; it serves that user and root only",
        },
    );
    let open = host.shared.latest().map_or(0, |seen| seen.records.len());
    let state = format!("{} (start {}, {open} jobs open)", places.state.display(), health.epoch);
    row("state", &state);
    for warning in &health.backend {
        row("warning", warning);
    }
    let server = match (&listen.socket, listen.usual) {
        (Some(path), false) => format!(" --server unix:{}", path.display()),
        _ => String::new(),
    };
    text.push_str(&format!("\nTry:  trainyard run{server} -- echo hello\n"));
    text
}
