//! NVIDIA's MPS on a GPU: its control daemon, started for the attempts that share the GPU and ended after the last.
//!
//! Clients of one server run at the same time, each on a part of the GPU's threads. Control daemon and server run as the
//! user of the attempts, and the pipes are that user's alone: no other user is served. The control daemon makes itself
//! independent of what starts it and outlives the daemon; `RUN_DIR/mps/GPU.json` says what was started, and its pipes are
//! in `RUN_DIR/mps/GPU`. The arbiter of the GPU ends it where no daemon is there to do it.

use crate::attempt_dir;
use crate::order::MpsPlace;
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use trainyard_types::JobId;

/// How long the control program may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How long the control daemon may take to be there.
const START_WITHIN: Duration = Duration::from_secs(5);
/// How long clients that are left may take at its end, as it is told.
const QUIT_SECONDS: u32 = 1;
/// No answer is longer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Servers of one control daemon that are asked: there is one for each user and GPU.
const SERVERS_MAX: usize = 4;
/// Jobs that are kept apart; the oldest goes first.
const APART_MAX: usize = 10_000;
/// What the context of a program takes beside what it allocates, in MiB: MPS counts it, the library does not.
const BESIDE_MIB: u32 = 1024;

/// A control daemon, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    program: PathBuf,
    pipes: PathBuf,
    device: String,
    user: u32,
    group: u32,
}

/// What an attempt wants to be a client with.
pub struct Wish<'a> {
    /// Its job.
    pub job: JobId,
    /// The index of the GPU on this machine.
    pub gpu: u8,
    /// What a process is told of the GPU.
    pub device: &'a str,
    /// Its user and group.
    pub user: (u32, u32),
    /// Thousandths of the GPU at most.
    pub limit: u16,
    /// MiB that its programs may allocate.
    pub memory_mib: Option<u32>,
    /// How many attempts are clients there.
    pub clients: usize,
}

/// A GPU whose control daemon runs, as far as it is known.
struct OnGpu {
    mark: Mark,
    servers: Vec<i32>,
    clients: BTreeSet<i32>,
    /// When it failed, among how many clients, and what is known of it.
    fault: Option<(Instant, usize, String)>,
    was_told: bool,
}

/// MPS on all shared GPUs of this machine.
pub struct Mps {
    folder: PathBuf,
    /// The control program, where attempts are to be clients.
    program: Option<PathBuf>,
    on: BTreeMap<u8, OnGpu>,
    /// Jobs that were in a fault.
    apart: BTreeSet<JobId>,
}

impl Mps {
    pub fn new(run_dir: &Path, program: Option<PathBuf>) -> Mps {
        let folder = run_dir.join("mps");
        let apart = attempt_dir::read(&folder.join("apart.json")).ok().flatten();
        Mps { folder, program, on: BTreeMap::new(), apart: apart.unwrap_or_default() }
    }

    pub fn is_wanted(&self) -> bool {
        self.program.is_some()
    }

    /// Makes the control daemon of a GPU ready for one more client.
    pub fn join(&mut self, wish: &Wish<'_>) -> Result<MpsPlace, String> {
        let program = self.program.clone().ok_or("MPS is not wanted")?;
        if self.apart.contains(&wish.job) {
            return Err(
                "it was a client when a fault brought MPS down, and may be to blame".to_owned()
            );
        }
        let pipes = self.folder.join(wish.gpu.to_string());
        let (user, group) = wish.user;
        let device = wish.device.to_owned();
        let mark = Mark { program, pipes: pipes.clone(), device, user, group };
        if let Some(known) = self.known(wish.gpu).map(|on| on.mark.clone()) {
            if wish.clients > 0 && known.user != user {
                return Err("MPS serves one user there, and it is another's".to_owned());
            }
            if wish.clients > 0
                && let Some((_, _, what)) = self.fault(wish.gpu, wish.clients)
            {
                return Err(format!(
                    "MPS has failed there ({what}), and its clients are not gone yet"
                ));
            }
            if known != mark || known.ask("get_server_list").is_err() {
                self.end(wish.gpu);
            }
        }
        if !self.on.contains_key(&wish.gpu) {
            self.start(wish.gpu, &mark)?;
        }
        // A control daemon that is shown one GPU by its number calls it the first.
        let device = match mark.device.parse::<u8>() {
            Ok(_) => "0".to_owned(),
            Err(_) => mark.device,
        };
        Ok(MpsPlace {
            pipes,
            threads: wish.limit.div_ceil(10).clamp(1, 100) as u8,
            memory_mib: wish.memory_mib.map(|mib| mib.saturating_add(BESIDE_MIB)),
            device,
        })
    }

    fn start(&mut self, gpu: u8, mark: &Mark) -> Result<(), String> {
        let told = |error: io::Error| format!("{}: {error}", self.folder.display());
        match attempt_dir::make_dir(&self.folder, 0o711) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(told(error)),
            _ => {}
        }
        for dir in [mark.pipes.clone(), mark.logs()] {
            // What another user's left is not trusted.
            let _ = std::fs::remove_dir_all(&dir);
            attempt_dir::make_dir(&dir, 0o700).map_err(told)?;
            if geteuid().is_root() {
                std::os::unix::fs::chown(&dir, Some(mark.user), Some(mark.group)).map_err(told)?;
            }
        }
        // Before it is there, so that it is found and ended whatever happens here.
        attempt_dir::write_durably(&self.mark_file(gpu), mark).map_err(told)?;
        if let Err(why) = mark.start() {
            self.end(gpu);
            return Err(why);
        }
        self.on.insert(gpu, OnGpu::new(mark.clone()));
        Ok(())
    }

    fn mark_file(&self, gpu: u8) -> PathBuf {
        self.folder.join(format!("{gpu}.json"))
    }

    /// What runs on a GPU, also what a daemon before this one started.
    fn known(&mut self, gpu: u8) -> Option<&mut OnGpu> {
        if !self.on.contains_key(&gpu) {
            let mark: Mark = attempt_dir::read(&self.mark_file(gpu)).ok()??;
            self.on.insert(gpu, OnGpu::new(mark));
        }
        self.on.get_mut(&gpu)
    }

    /// Asks how it is, among so many clients. What is returned is a fault that was not told yet.
    pub fn look(&mut self, gpu: u8, among: usize) -> Option<String> {
        let on = self.known(gpu)?;
        on.look(among);
        let what = on.fault.as_ref().map(|(_, _, what)| what.clone())?;
        (!std::mem::replace(&mut on.was_told, true)).then_some(what)
    }

    /// The fault of a GPU, asked for now where none is known: when, among how many clients, and what.
    pub fn fault(&mut self, gpu: u8, among: usize) -> Option<(Instant, usize, String)> {
        let on = self.known(gpu)?;
        on.look(among);
        on.fault.clone()
    }

    /// Something that only a fault explains.
    pub fn presume(&mut self, gpu: u8, among: usize, what: &str) {
        if let Some(on) = self.known(gpu) {
            on.fault.get_or_insert_with(|| (Instant::now(), among, what.to_owned()));
        }
    }

    /// The processes that are clients on a GPU; nothing where that is not known.
    pub fn clients(&self, gpu: u8) -> Option<&BTreeSet<i32>> {
        let on = self.on.get(&gpu)?;
        on.fault.is_none().then_some(&on.clients)
    }

    /// Ends the control daemon of a GPU.
    pub fn end(&mut self, gpu: u8) {
        self.on.remove(&gpu);
        end_by(&self.mark_file(gpu));
    }

    pub fn keep_apart(&mut self, job: JobId) {
        self.apart.insert(job);
        while self.apart.len() > APART_MAX {
            self.apart.pop_first();
        }
        self.keep();
    }

    pub fn forget(&mut self, job: JobId) {
        if self.apart.remove(&job) {
            self.keep();
        }
    }

    fn keep(&self) {
        // Lost, it costs a job that was in a fault one more attempt as a client.
        let _ = attempt_dir::write_durably(&self.folder.join("apart.json"), &self.apart);
    }
}

impl OnGpu {
    fn new(mark: Mark) -> OnGpu {
        let (servers, clients) = (Vec::new(), BTreeSet::new());
        OnGpu { mark, servers, clients, fault: None, was_told: false }
    }

    /// At most one question and two for each server. After a fault nothing is asked any more: it is over when the last
    /// client is gone.
    fn look(&mut self, among: usize) {
        if self.fault.is_some() {
            return;
        }
        match self.mark.ask_all() {
            Ok((servers, clients)) => {
                let stays =
                    self.servers.is_empty() || self.servers.iter().any(|one| servers.contains(one));
                // One whose clients have all ended may go without a fault.
                if !stays && self.clients.iter().any(|client| is_there(*client)) {
                    return self
                        .fail(among, "its server is gone, and clients of it are not".to_owned());
                }
                (self.servers, self.clients) = (servers, clients);
            }
            Err(what) => self.fail(among, what),
        }
    }

    fn fail(&mut self, among: usize, what: String) {
        self.fault = Some((Instant::now(), among, what));
    }
}

impl Mark {
    fn logs(&self) -> PathBuf {
        self.pipes.with_extension("log")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().current_dir("/").stdin(Stdio::null());
        // It looks for the program of its server in PATH, and that for the driver's libraries.
        let beside = self.program.parent().unwrap_or(Path::new("/usr/bin")).display();
        command.env("PATH", format!("{beside}:{}", crate::environment::PATH_DEFAULT));
        if let Some(libraries) = std::env::var_os("LD_LIBRARY_PATH") {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command.env("CUDA_MPS_PIPE_DIRECTORY", &self.pipes);
        command.env("CUDA_MPS_LOG_DIRECTORY", self.logs());
        command.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID").env("CUDA_VISIBLE_DEVICES", &self.device);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if geteuid().is_root() && self.user != 0 {
            command.uid(self.user).gid(self.group);
        }
        command
    }

    fn start(&self) -> Result<(), String> {
        let program = self.program.display();
        let child = self.command().arg("-d").spawn();
        let mut child = child.map_err(|error| format!("{program}: {error}"))?;
        let status = wait(&mut child, START_WITHIN)?;
        if !status.success() {
            return Err(format!("{program} -d ended with {status}"));
        }
        let begun = Instant::now();
        loop {
            match self.ask("get_server_list") {
                Ok(_) => return Ok(()),
                Err(why) if begun.elapsed() > START_WITHIN => return Err(why),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Its servers and their clients; an error where one of them says that it has failed.
    fn ask_all(&self) -> Result<(Vec<i32>, BTreeSet<i32>), String> {
        let servers: Vec<i32> = numbers(&self.ask("get_server_list")?);
        let mut clients = BTreeSet::new();
        for server in servers.iter().take(SERVERS_MAX) {
            clients.extend(numbers::<Vec<i32>>(&self.ask(&format!("get_client_list {server}"))?));
            // Older control daemons do not know the question.
            let status = self.ask(&format!("get_server_status {server}")).unwrap_or_default();
            if status.contains("FAULT") {
                return Err(format!("its server {server} says FAULT"));
            }
        }
        Ok((servers, clients))
    }

    /// One question to the control daemon, by the control program.
    fn ask(&self, line: &str) -> Result<String, String> {
        let program = self.program.display();
        let child = self.command().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("{program}: {error}"))?;
        if let Some(mut input) = child.stdin.take() {
            // One that does not listen is found by its end.
            let _ = writeln!(input, "{line}");
        }
        let status = wait(&mut child, ANSWER_WITHIN)?;
        if !status.success() {
            return Err(format!("its control daemon does not answer ({status})"));
        }
        let mut answer = Vec::new();
        if let Some(output) = child.stdout.take() {
            let _ = output.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
        }
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// The end of a program, which is killed when it takes longer.
fn wait(child: &mut Child, limit: Duration) -> Result<ExitStatus, String> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if begun.elapsed() < limit => thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!(
                    "its control program does not end within {} s",
                    limit.as_secs()
                ));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn is_there(process: i32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

/// The numbers that stand in lines of their own.
fn numbers<T: FromIterator<i32>>(text: &str) -> T {
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// Ends what a mark tells of.
fn end_by(file: &Path) {
    let Ok(Some(mark)) = attempt_dir::read::<Mark>(file) else { return };
    // One that is gone needs no end; one that does not end is found again by its mark.
    let is_gone = match mark.ask(&format!("quit -t {QUIT_SECONDS}")) {
        Ok(_) => true,
        Err(_) => mark.ask("get_server_list").is_err(),
    };
    if is_gone {
        let _ = std::fs::remove_file(file);
        for dir in [mark.logs(), mark.pipes] {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

/// The arbiter of a GPU has had no client for long, and ends: so does MPS there.
pub fn end_beside(arbiter: &Path) {
    let (Some(run_dir), Some(gpu)) = (arbiter.ancestors().nth(2), arbiter.file_name()) else {
        return;
    };
    end_by(&run_dir.join("mps").join(format!("{}.json", gpu.display())));
}

/// The control program, looked for as a shell would; as it is named where it is not found.
pub fn find(program: &Path) -> Option<PathBuf> {
    // It is started in another folder than this process is in.
    let is_there = |file: PathBuf| std::path::absolute(file).ok().filter(|file| file.is_file());
    if program.components().count() > 1 {
        return is_there(program.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find_map(is_there)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::{getegid, geteuid};

    #[test]
    fn another_users_job_is_no_client_while_one_is_there() {
        let run_dir = std::env::temp_dir().join(format!("ty-mps-user-{}", std::process::id()));
        std::fs::create_dir_all(&run_dir).unwrap();
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/mps-control");
        let mut mps = Mps::new(&run_dir, Some(PathBuf::from(program)));
        let own = (geteuid().as_raw(), getegid().as_raw());
        let wish = Wish {
            job: JobId(1),
            gpu: 3,
            device: "GPU-aa",
            user: own,
            limit: 305,
            memory_mib: Some(1000),
            clients: 0,
        };
        let place = mps.join(&wish).unwrap();
        assert_eq!((place.threads, place.memory_mib, &*place.device), (31, Some(2024), "GPU-aa"));
        let other = Wish { job: JobId(2), user: (own.0 + 1, own.1), clients: 1, ..wish };
        let why = mps.join(&other).unwrap_err();
        assert!(why.contains("serves one user"), "{why}");
        let same = Wish { job: JobId(3), user: own, ..other };
        assert!(mps.join(&same).is_ok());
        // A fault closes it to newcomers; who was in one is no client again.
        mps.presume(3, 2, "a test");
        assert!(mps.join(&same).unwrap_err().contains("has failed"));
        mps.keep_apart(JobId(3));
        assert!(mps.join(&same).unwrap_err().contains("may be to blame"));
        let again = Mps::new(&run_dir, None);
        assert!(again.apart.contains(&JobId(3)), "also after a start of the daemon");
        mps.end(3);
        assert!(!run_dir.join("mps/3").exists() && !run_dir.join("mps/3.json").exists());
        // Where no daemon is there to do it, the arbiter of the GPU does.
        assert!(mps.join(&Wish { job: JobId(4), clients: 0, ..same }).is_ok());
        end_beside(&run_dir.join("share/3"));
        assert!(!run_dir.join("mps/3").exists() && !run_dir.join("mps/3.json").exists());
        let _ = std::fs::remove_dir_all(run_dir);
    }
}
