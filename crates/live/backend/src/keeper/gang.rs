//! The ranks of an attempt: started together, or not at all.

use crate::attempt_dir::AttemptDir;
use crate::container::{self, Inside};
use crate::environment::{PASSED_ON, PATH_DEFAULT, Seat, Variables, environment};
use crate::log::LogWriter;
use crate::order::Identity;
use crate::rank::{GO, READY, Spec};
use crate::{LaunchOrder, cgroup::Cgroup, processes};
use nix::unistd::{getegid, geteuid};
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use trainyard_api::Processes;

/// How long a rank may take to enter its directory and execute its command: a directory on the network may be slow.
const EXECUTE_WAIT: Duration = Duration::from_secs(60);

/// Ranks that run, or did.
#[derive(Debug)]
pub struct Gang {
    /// Their processes, which are also their process groups, by rank.
    pub pids: Vec<i32>,
    /// Their output.
    pub logs: Vec<Arc<Mutex<LogWriter>>>,
    /// Closed when all output is written.
    pub written: mpsc::Receiver<()>,
}

/// How many ranks an order means.
pub fn world(order: &LaunchOrder) -> u32 {
    match order.processes {
        Processes::PerJob | Processes::PerNode => 1,
        Processes::PerGpu => order.gpus.len().max(1) as u32,
    }
}

/// The user whom ranks become; nothing where they are to run as the keeper's own user, or could run as no other.
pub fn identity(order: &LaunchOrder) -> Option<&Identity> {
    let own = geteuid();
    order.identity.as_ref().filter(|who| own.is_root() && who.uid != own.as_raw())
}

/// Starts all ranks. The second part says why they do not all run; those that do are left to the caller.
///
/// Must be called by a thread that lives as long as the keeper: the kernel ends a rank when the thread that started it
/// ends.
pub fn start(
    dir: &AttemptDir,
    order: &LaunchOrder,
    cgroup: Option<&Cgroup>,
) -> io::Result<(Gang, Option<String>)> {
    let (done, written) = mpsc::channel();
    let mut gang = Gang { pids: Vec::new(), logs: Vec::new(), written };
    let mut streams = Vec::new();
    for rank in 0..world(order) {
        let (ours, theirs) = UnixStream::pair()?;
        let (reader, writer) = io::pipe()?;
        let child = Command::new("/proc/self/exe")
            .arg("rank")
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .spawn()?;
        gang.pids.push(child.id() as i32);
        let folder = dir.file("logs").join(rank.to_string());
        let log = LogWriter::create(&folder, order.limits.log_bytes_max)?;
        let log = Arc::new(Mutex::new(log));
        gang.logs.push(log.clone());
        let done = done.clone();
        thread::spawn(move || copy(reader, &log, done));
        streams.push(ours);
    }
    let specs = specs(dir, order, cgroup)?;
    for (stream, spec) in streams.iter_mut().zip(specs) {
        let mut line = serde_json::to_vec(&spec).map_err(io::Error::other)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        stream.set_read_timeout(Some(EXECUTE_WAIT))?;
    }
    let mut lines: Vec<_> = streams.into_iter().map(BufReader::new).collect();
    if let Some(why) = first_trouble(&mut lines, READY) {
        return Ok((gang, Some(why)));
    }
    for stream in &mut lines {
        stream.get_mut().write_all(GO.as_bytes())?;
    }
    let trouble = first_trouble(&mut lines, "");
    Ok((gang, trouble))
}

/// What the first rank says that does not say what is expected; nothing is what one says whose command runs.
fn first_trouble(lines: &mut [BufReader<UnixStream>], expected: &str) -> Option<String> {
    let mut trouble = None;
    for (rank, stream) in lines.iter_mut().enumerate() {
        let mut line = String::new();
        let why = match stream.read_line(&mut line) {
            Ok(_) if line == expected => continue,
            Ok(0) => format!("rank {rank} ended before it began"),
            Ok(_) => line,
            Err(_) => format!("rank {rank} did not start within {} s", EXECUTE_WAIT.as_secs()),
        };
        trouble.get_or_insert(why);
    }
    trouble
}

fn copy(mut reader: PipeReader, log: &Mutex<LogWriter>, done: mpsc::Sender<()>) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        match reader.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => {
                log.lock().unwrap_or_else(PoisonError::into_inner).write(&bytes[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    drop(done);
}

fn specs(dir: &AttemptDir, order: &LaunchOrder, cgroup: Option<&Cgroup>) -> io::Result<Vec<Spec>> {
    let world = world(order);
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let identity = identity(order).cloned();
    let uid = identity.as_ref().map_or(geteuid().as_raw(), |who| who.uid);
    let counted = cgroup.is_some_and(Cgroup::limits_processes);
    let processes_max = match u64::from(order.limits.processes_max) {
        0 => None,
        _ if counted => None,
        // The kernel counts all tasks of the user, whatever job they belong to.
        most => Some(most + processes::tasks_of(uid)),
    };
    let base = base(identity.is_some());
    let mut order = order.clone();
    if identity.is_none() && uid != order.identity.as_ref().map_or(uid, |who| who.uid) {
        // It runs as another user than it should, and must not be told that user's home.
        order.identity = None;
    }
    if let Some(text) = &order.script {
        let path = dir.script();
        // The directory is the user's: a file that is there already may lead anywhere.
        let mut new = std::fs::OpenOptions::new();
        new.write(true).create_new(true).mode(0o555).open(&path)?.write_all(text.as_bytes())?;
        let path = path.to_string_lossy().into_owned();
        match order.argv.first_mut() {
            Some(program) => *program = path,
            None => order.argv.push(path),
        }
    }
    let (socket, ack_file) = (dir.socket(), dir.ack_file());
    let spec = |rank| {
        let seat =
            Seat { rank, world, port, host: host.trim(), socket: &socket, ack_file: &ack_file };
        let env = environment(&order, &seat, &base);
        let argv = contained(dir, &order, &env, rank)?;
        Ok(Spec {
            argv,
            cwd: order.cwd.clone(),
            env,
            identity: identity.clone(),
            processes_max,
            cgroup: cgroup.map(|group| group.path().to_path_buf()),
            checkpoint_dir: order.checkpoint_dir.clone(),
            checkpoint_named: order.names_checkpoints(),
            venv: order.venv.clone(),
            keeper: std::process::id() as i32,
        })
    };
    (0..world).map(spec).collect()
}

/// The command of a rank, by way of a container engine if it runs in an image.
fn contained(
    dir: &AttemptDir,
    order: &LaunchOrder,
    env: &Variables,
    rank: u32,
) -> io::Result<Vec<String>> {
    let Some(image) = &order.image else { return Ok(order.argv.clone()) };
    let path = env.get("PATH").map_or(PATH_DEFAULT, String::as_str);
    let found = container::find(path).ok_or_else(|| io::Error::other(container::missing(path)))?;
    let own = (geteuid().as_raw(), getegid().as_raw());
    let ids = identity(order).map_or(own, |who| (who.uid, who.gid));
    let talk = dir.file("job");
    let init = container::has_init(found.0);
    let inside = Inside { order, image, argv: &order.argv, env, talk: &talk, rank, ids, init };
    Ok(container::command(found.0, &found.1, &inside))
}

/// Ends and removes the containers that an engine keeps though the process that asked for them is gone. Called when
/// nothing is left below the keeper.
pub fn remove_containers(dir: &AttemptDir, order: &LaunchOrder) {
    if order.image.is_none() {
        return;
    }
    let Ok(specs) = specs(dir, &LaunchOrder { script: None, ..order.clone() }, None) else {
        return;
    };
    for (rank, spec) in (0..).zip(specs) {
        let path = spec.env.get("PATH").map_or(PATH_DEFAULT, String::as_str);
        let Some((engine, program)) = container::find(path) else { return };
        let name = container::name(order, rank);
        let Some(argv) = container::removal(engine, &program, &name) else { return };
        // As the job's user, like the engine before: there is nothing to report if it fails.
        let _ = run_aside(Spec { argv, ..spec });
    }
}

/// Runs a command as a rank would be run, and waits for it for a while.
fn run_aside(spec: Spec) -> io::Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut child = Command::new("/proc/self/exe")
        .arg("rank")
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = serde_json::to_vec(&spec).map_err(io::Error::other)?;
    line.push(b'\n');
    (&ours).write_all(&line)?;
    ours.set_read_timeout(Some(EXECUTE_WAIT))?;
    let mut streams = [BufReader::new(ours)];
    if first_trouble(&mut streams, READY).is_none() {
        streams[0].get_mut().write_all(GO.as_bytes())?;
        let begun = Instant::now();
        while child.try_wait()?.is_none() && begun.elapsed() < EXECUTE_WAIT {
            thread::sleep(Duration::from_millis(20));
        }
    }
    let _ = child.kill();
    child.wait().map(drop)
}

/// What ranks may have of the keeper's environment: more if they are the same user.
fn base(other_user: bool) -> Variables {
    let own: &[&str] =
        if other_user { &[] } else { &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"] };
    let names = PASSED_ON.iter().chain(own);
    names.filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect()
}
