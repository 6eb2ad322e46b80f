//! GPUs that several attempts share: an arbiter for each, a socket for each attempt, and what the arbiter tells.
//!
//! The arbiter is a process of its own (`program arbiter FOLDER`), started when a share is first launched on its GPU and
//! gone a while after the last. It outlives the daemon and is found again by its folder, `RUN_DIR/share/GPU`. What this
//! remembers is only what it has told; the terms of an attempt stand in its directory (`orders/share.json`).
//!
//! - `mps`: NVIDIA's MPS on a GPU, where attempts are its clients instead of taking turns.
//! - `clients`: what comes of being one: who is not, and who is to blame for a fault.
//! - `offence`: attempts that take more memory than their cap.

mod clients;
mod mps;
mod offence;

use crate::attempt_dir::{self, AttemptDir, KeeperMark};
use crate::health::nvml;
use crate::local::LocalOptions;
use crate::local::worker::Key;
use crate::order::{SharingOrder, SharingPlace};
use crate::report::SharingSeen;
use crate::{LaunchOrder, Report, processes};
use mps::Mps;
pub use mps::find as find_mps;
use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use nvml_wrapper::Nvml;
use offence::{Offence, Use};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use trainyard_sharing::control::{self, ArbiterAnswer, ArbiterOrder, SharingTerms};
use trainyard_sharing::{ServerOptions, Told, ToldClient};

/// The control program of MPS, by name.
pub const MPS_CONTROL: &str = "nvidia-cuda-mps-control";
/// The library that is loaded into programs, by name.
pub const LIBRARY: &str = "libtrainyard_preload.so";
/// How long an arbiter may take to answer after its start.
const START_WITHIN: Duration = Duration::from_secs(3);
/// How often arbiters are asked what there is to tell.
const TELL_EVERY: Duration = Duration::from_secs(2);
/// An attempt that is beyond its cap at so many looks in a row is stopped.
const LOOKS: u32 = 2;
/// A process that uses the GPU at so many looks in a row and has not said hello is told of: it says so at its first
/// launch, which may be a while after its start.
const UNHOOKED_LOOKS: u32 = 15;
/// An attempt none of whose programs said hello for so long is told of.
const HELLO_WITHIN: Duration = Duration::from_secs(120);

/// Where the library stands for a program: beside it, or in `../lib/trainyard`.
pub fn find_library(program: &Path) -> Option<PathBuf> {
    let program = program.canonicalize().ok()?;
    let beside = program.parent()?;
    let places = [beside.join(LIBRARY), beside.parent()?.join("lib/trainyard").join(LIBRARY)];
    places.into_iter().find(|path| path.is_file())
}

/// Why a library must not be loaded into programs: another user could change it.
pub fn distrust(library: &Path) -> Option<String> {
    let parts = [Some(library), library.parent()];
    parts.into_iter().flatten().find_map(|part| {
        let data = match std::fs::metadata(part) {
            Ok(data) => data,
            Err(error) => return Some(format!("{}: {error}", part.display())),
        };
        let is_ours = data.uid() == 0 || data.uid() == geteuid().as_raw();
        // A folder such as /tmp may be written by all, and what is in it is its owner's all the same.
        let is_closed = data.mode() & 0o022 == 0 || data.mode() & 0o1000 != 0;
        (!is_ours || !is_closed).then(|| {
            format!("{} can be changed by another user than root and the daemon's", part.display())
        })
    })
}

/// What one attempt on a shared GPU is known by.
#[derive(Debug)]
struct Member {
    gpu: u8,
    device: String,
    since: Instant,
    was_told: bool,
    /// How many looks in a row found it beyond its cap.
    beyond: u32,
    /// How many looks in a row found a process of it that is not hooked.
    unhooked: u32,
    /// Its standing with MPS, if it is a client.
    client: Option<Standing>,
}

/// How an attempt stands with MPS.
#[derive(Debug, Default)]
struct Standing {
    /// The percentage of the GPU's threads that it was given.
    threads: u8,
    /// How many looks in a row found a process of it on the GPU that is no client.
    astray: u32,
    /// Since when it is known to have failed.
    failed: Option<Instant>,
    /// It was said that its share changes at its next start.
    told_of_change: bool,
}

impl Member {
    fn new(place: &SharingPlace) -> Member {
        Member {
            gpu: place.gpu,
            device: place.device.clone(),
            since: Instant::now(),
            was_told: false,
            beyond: 0,
            unhooked: 0,
            client: place
                .mps
                .as_ref()
                .map(|mps| Standing { threads: mps.threads, ..Standing::default() }),
        }
    }
}

/// All shared GPUs of this machine.
pub struct SharedGpus {
    run_dir: PathBuf,
    program: PathBuf,
    library: Option<PathBuf>,
    members: BTreeMap<Key, Member>,
    mps: Mps,
    arbiters: Vec<Child>,
    /// The driver's library, once it was looked for, and where.
    nvml: Option<Option<Nvml>>,
    nvml_library: Option<PathBuf>,
    asked: Option<Instant>,
}

impl SharedGpus {
    /// No attempt is there yet, or they are found again by [`SharedGpus::found`].
    pub fn new(options: &LocalOptions) -> SharedGpus {
        SharedGpus {
            run_dir: options.run_dir.clone(),
            program: options.program.clone(),
            library: options.library.clone(),
            nvml: None,
            nvml_library: options.health.as_ref().and_then(|health| health.library.clone()),
            members: BTreeMap::new(),
            mps: Mps::new(&options.run_dir, options.mps.clone()),
            arbiters: Vec::new(),
            asked: None,
        }
    }

    /// Makes ready what an attempt with a share needs. Where that cannot be, the order is changed so that it runs without
    /// limits, and what is returned says why; so it does where it takes turns though MPS is wanted.
    pub fn join(&mut self, order: &mut LaunchOrder) -> Option<String> {
        let wish = order.sharing.clone()?;
        match self.try_join(order, &wish) {
            Ok((place, notice)) => {
                let sharing = SharingOrder { place: Some(place), ..wish };
                order.sharing = Some(sharing);
                notice
            }
            Err(why) => {
                order.sharing = None;
                let permille = wish.request;
                Some(format!(
                    "its share of {permille} permille is not enforced, it runs by time slicing: {why}"
                ))
            }
        }
    }

    fn try_join(
        &mut self,
        order: &LaunchOrder,
        wish: &SharingOrder,
    ) -> Result<(SharingPlace, Option<String>), String> {
        let &[gpu] = &order.gpus[..] else {
            let count = order.gpus.len();
            return Err(format!(
                "it has {count} GPUs, and jobs that take turns on several GPUs can wait for each other for ever"
            ));
        };
        if order.image.is_some() {
            return Err("the library is not loaded into containers".to_owned());
        }
        let library = self.library.clone().ok_or_else(|| {
            format!(
                "{LIBRARY} is neither beside {} nor in ../lib/trainyard",
                self.program.display()
            )
        })?;
        if let Some(why) = distrust(&library) {
            return Err(why);
        }
        let own = geteuid();
        let user = match &order.identity {
            Some(who) if own.is_root() => who.uid,
            Some(who) if who.uid != own.as_raw() => {
                return Err(
                    "only a daemon that runs as root can make sockets for other users".to_owned()
                );
            }
            _ => own.as_raw(),
        };
        let key = (order.job, order.attempt);
        let folder = self.folder(gpu);
        self.start_arbiter(&folder).map_err(|error| format!("its arbiter: {error}"))?;
        let socket = folder.join(attempt_dir::name(order.job, order.attempt));
        let device = order.devices.first().cloned().unwrap_or_else(|| gpu.to_string());
        let place = SharingPlace { socket, library, gpu, device, user, mps: None };
        let (place, notice) = self.with_mps(order, place, wish);
        match control::ask(&folder, &ArbiterOrder::Set(terms(&place, wish))) {
            Ok(ArbiterAnswer::Done) => {}
            Ok(ArbiterAnswer::Refused(why)) => return Err(why),
            Ok(ArbiterAnswer::Told(_)) => return Err("its arbiter gives no answer".to_owned()),
            Err(error) => return Err(format!("its arbiter: {error}")),
        }
        self.members.insert(key, Member::new(&place));
        Ok((place, notice))
    }

    fn folder(&self, gpu: u8) -> PathBuf {
        self.run_dir.join("share").join(gpu.to_string())
    }

    /// Starts the arbiter of a folder, unless one answers there.
    fn start_arbiter(&mut self, folder: &Path) -> io::Result<()> {
        for dir in [folder.parent().unwrap_or(folder), folder] {
            match attempt_dir::make_dir(dir, 0o711) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        let begun = Instant::now();
        let mut child = None;
        while control::ask(folder, &ArbiterOrder::Tell).is_err() {
            if begun.elapsed() > START_WITHIN {
                let what = format!("it does not answer in {}", folder.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            // One that found another still about to end has gone at once.
            let is_gone = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
            if child.as_mut().is_some_and(is_gone) {
                thread::sleep(Duration::from_millis(50));
                child = None;
            }
            if child.is_none() {
                let words = [OsStr::new("arbiter"), folder.as_os_str()];
                let mut command = Command::new(&self.program);
                command.args(words).env_clear().current_dir("/").stdin(Stdio::null());
                child = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.arbiters.extend(child);
        Ok(())
    }

    /// An attempt that was launched by a daemon before this one.
    pub fn found(&mut self, (job, attempt): Key) {
        let dir = AttemptDir::new(&self.run_dir, job, attempt);
        let Some((place, _)) = kept(&dir) else { return };
        self.members.entry((job, attempt)).or_insert_with(|| Member::new(&place));
    }

    /// The terms of an attempt change while it runs. What is returned says why they could not.
    pub fn change(&mut self, (job, attempt): Key, wish: &SharingOrder) -> Option<String> {
        let dir = AttemptDir::new(&self.run_dir, job, attempt);
        let Some((place, _)) = kept(&dir) else {
            // It is over, or it was started on a whole GPU and has one.
            return (wish.request < 1000 && dir.path().exists()).then(|| format!(
                "its share of {} permille is not enforced, it runs by time slicing: it was started without one",
                wish.request
            ));
        };
        let terms = terms(&place, wish);
        let folder = self.folder(place.gpu);
        let later = self.changes_later((job, attempt), &place);
        let sharing = SharingOrder { place: Some(place), ..wish.clone() };
        let written = attempt_dir::write_durably(&dir.file("orders/share.json"), &sharing);
        match control::ask(&folder, &ArbiterOrder::Set(terms)) {
            Ok(ArbiterAnswer::Done) => written
                .err()
                .map(|error| format!("its new share is lost with its arbiter: {error}"))
                .or(later),
            Ok(ArbiterAnswer::Refused(why)) => {
                Some(format!("its share cannot become another: {why}"))
            }
            Ok(ArbiterAnswer::Told(_)) => None,
            Err(error) => {
                Some(format!("its share cannot become another, its arbiter is gone: {error}"))
            }
        }
    }

    /// An attempt is over.
    pub fn leave(&mut self, key: Key) {
        let Some(member) = self.members.remove(&key) else { return };
        let folder = self.folder(member.gpu);
        let socket = folder.join(attempt_dir::name(key.0, key.1));
        // An arbiter that is gone has no client either.
        let _ = control::ask(&folder, &ArbiterOrder::Remove(socket));
        if member.client.is_some() && self.clients_of(member.gpu) == 0 {
            self.mps.end(member.gpu);
        }
    }

    /// Asks all arbiters, if it is time to; starts those anew that are gone.
    pub fn look(&mut self) -> Vec<Report> {
        self.arbiters.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        if self.members.is_empty() || self.asked.is_some_and(|at| at.elapsed() < TELL_EVERY) {
            return Vec::new();
        }
        self.asked = Some(Instant::now());
        let gpus: BTreeSet<u8> = self.members.values().map(|member| member.gpu).collect();
        gpus.into_iter().flat_map(|gpu| self.look_at(gpu)).collect()
    }

    fn look_at(&mut self, gpu: u8) -> Vec<Report> {
        match control::ask(&self.folder(gpu), &ArbiterOrder::Tell) {
            Ok(ArbiterAnswer::Told(told)) => self.read(gpu, &told),
            Ok(ArbiterAnswer::Done | ArbiterAnswer::Refused(_)) => Vec::new(),
            Err(_) => self.again(gpu),
        }
    }

    fn read(&mut self, gpu: u8, told: &Told) -> Vec<Report> {
        let of = |socket: &str| {
            let name = Path::new(socket).file_name().and_then(OsStr::to_str);
            name.and_then(attempt_dir::parse_name)
        };
        let mut reports = self.look_at_mps(gpu);
        let mut seen = Vec::new();
        for client in &told.clients {
            let Some(key) = of(&client.socket) else { continue };
            let Some(member) = self.members.get_mut(&key) else { continue };
            let late = client.hellos == 0 && member.since.elapsed() > HELLO_WITHIN;
            if late && !std::mem::replace(&mut member.was_told, true) {
                let seconds = HELLO_WITHIN.as_secs();
                let what = format!(
                    "none of its programs said hello to the arbiter of GPU {gpu} in {seconds} s: its share and its \
                     cap are not enforced where it uses the GPU by a driver that is linked statically or without \
                     the library"
                );
                reports.push(Report::Notice { job: Some(key.0), what });
            }
            let behind = client.behind_us.iter();
            let behind = behind.filter_map(|(socket, us)| Some((of(socket)?.0, *us))).collect();
            let threads = member.client.as_ref().map(|standing| standing.threads);
            seen.push(SharingSeen { threads, ..seen_of(key, gpu, client, behind) });
            reports.extend(self.look_at_memory(key, client));
            reports.extend(self.look_for_strays(key, client));
        }
        reports.push(Report::Sharing { gpu, seen });
        reports
    }

    /// Stops an attempt that takes more memory than its cap, as the driver tells it, and tells of processes that nothing
    /// is enforced for.
    fn look_at_memory(&mut self, key: Key, client: &ToldClient) -> Option<Report> {
        let library = self.nvml_library.as_deref();
        let nvml = self.nvml.get_or_insert_with(|| nvml::load(library).ok()).as_ref()?;
        let member = self.members.get_mut(&key)?;
        let on_gpu = nvml::users(nvml, &member.device).ok()?;
        let own = processes_of(&self.run_dir, key)?;
        let hooked = &client.processes;
        let offence = Use { cap: client.memory_cap, on_gpu: &on_gpu, own: &own, hooked }.offence();
        (member.beyond, member.unhooked) = match &offence {
            Some(Offence::Beyond { .. }) => (member.beyond + 1, member.unhooked),
            Some(Offence::Unhooked(_)) => (0, member.unhooked + 1),
            None => (0, 0),
        };
        let what = match offence? {
            Offence::Beyond { used, processes: all } if member.beyond >= LOOKS => {
                for process in &all {
                    processes::send(*process, Signal::SIGKILL);
                }
                let cap = client.memory_cap.unwrap_or(u64::MAX) >> 20;
                format!(
                    "it uses {} MiB of GPU {}, more than its cap of {cap} MiB and its contexts: its processes there \
                     are stopped",
                    used >> 20,
                    member.gpu
                )
            }
            Offence::Unhooked(process) if member.unhooked == UNHOOKED_LOOKS => format!(
                "its process {process} uses GPU {} without the library: its share and its cap are not enforced there",
                member.gpu
            ),
            Offence::Beyond { .. } | Offence::Unhooked(_) => return None,
        };
        Some(Report::Notice { job: Some(key.0), what })
    }

    /// An arbiter is gone: another is started for what is launched later.
    fn again(&mut self, gpu: u8) -> Vec<Report> {
        let folder = self.folder(gpu);
        let mut reports = Vec::new();
        let told = match self.start_arbiter(&folder) {
            Ok(()) => "a new one serves programs that start from now on".to_owned(),
            Err(error) => format!("a new one cannot be started: {error}"),
        };
        let here: Vec<Key> = self
            .members
            .iter()
            .filter(|(_, member)| member.gpu == gpu)
            .map(|(key, _)| *key)
            .collect();
        for key in here {
            let dir = AttemptDir::new(&self.run_dir, key.0, key.1);
            if let Some((place, wish)) = kept(&dir) {
                let _ = control::ask(&folder, &ArbiterOrder::Set(terms(&place, &wish)));
            }
            let what = format!(
                "the arbiter of GPU {gpu} was gone: programs that run go on by time slicing, each within its cap; {told}"
            );
            reports.push(Report::Notice { job: Some(key.0), what });
        }
        reports
    }
}

/// All processes below the keeper of an attempt.
fn processes_of(run_dir: &Path, (job, attempt): Key) -> Option<Vec<i32>> {
    let dir = AttemptDir::new(run_dir, job, attempt);
    let mark: Option<KeeperMark> = attempt_dir::read(&dir.file("keeper.json")).ok().flatten();
    Some(processes::descendants(mark?.pid))
}

fn seen_of(
    (job, attempt): Key,
    gpu: u8,
    client: &ToldClient,
    behind_us: BTreeMap<trainyard_types::JobId, u64>,
) -> SharingSeen {
    SharingSeen {
        job,
        attempt,
        gpu,
        request: client.request,
        limit: client.limit,
        threads: None,
        usage_us: client.usage_us,
        held_us: client.held_us,
        waited_us: client.waited_us,
        limited_us: client.limited_us,
        behind_us,
        memory_used: client.memory_used,
        memory_peak: client.memory_peak,
        memory_cap: client.memory_cap,
        memory_refusals: client.memory_refusals,
        revocations: client.revocations,
        hellos: client.hellos,
    }
}

fn terms(place: &SharingPlace, wish: &SharingOrder) -> SharingTerms {
    SharingTerms {
        socket: place.socket.clone(),
        user: place.user,
        // MPS holds its clients to a part of the GPU's threads, all of the time.
        turns: place.mps.is_none(),
        request: wish.request.into(),
        limit: wish.limit.into(),
        memory_cap: wish.memory_mib.map(|mib| u64::from(mib) << 20),
    }
}

/// Where an attempt shares, and the newest terms, as its directory says.
fn kept(dir: &AttemptDir) -> Option<(SharingPlace, SharingOrder)> {
    let newest: Option<SharingOrder> = attempt_dir::read(&dir.file("orders/share.json")).ok()?;
    let first = || {
        let launch = attempt_dir::read::<attempt_dir::Launch>(&dir.file("orders/launch.json"));
        launch.ok()??.order.sharing
    };
    let sharing = newest.or_else(first)?;
    Some((sharing.place.clone()?, sharing))
}

/// Serves as the arbiter in that folder: a hidden command.
pub fn main(folder: &Path) -> std::process::ExitCode {
    let at_end = || mps::end_beside(folder);
    match control::serve(folder, ServerOptions::default(), control::IDLE, at_end) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(_) => std::process::ExitCode::FAILURE,
    }
}
