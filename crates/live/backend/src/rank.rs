//! The last stage before a rank: a process that becomes it.
//!
//! What must happen between fork and exec (groups, user, limits, process group) happens here, in a process of its own,
//! which then executes the user's command in its place. Its standard input is a socket to the keeper: the [`Spec`]
//! comes in as a line and [`READY`] goes out; when all ranks are ready, [`GO`] comes in, and the socket closes because
//! the command runs. At either point a sentence about what went wrong may go out instead.
//!
//! The user's variables arrive with the spec and not as this process's own: `LD_PRELOAD` of a user must not be obeyed
//! while it is still privileged.

use crate::checkpoints;
use crate::order::Identity;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, Pid, Uid, getppid, initgroups, setgid, setpgid, setuid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// What a stage says when nothing but the command itself can fail.
pub const READY: &str = "ready\n";
/// What it waits for then.
pub const GO: &str = "go\n";
/// A spec holds an environment and arguments, of which the kernel takes two megabytes.
const SPEC_BYTES_MAX: u64 = 64 << 20;

/// What a rank is to become.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// The command and its arguments.
    pub argv: Vec<String>,
    /// Where it runs.
    pub cwd: String,
    /// All of its environment.
    pub env: BTreeMap<String, String>,
    /// The user it runs as; nothing keeps the user of this process.
    pub identity: Option<Identity>,
    /// The most processes its user may have, where no cgroup counts them.
    pub processes_max: Option<u64>,
    /// The cgroup it joins.
    pub cgroup: Option<PathBuf>,
    /// Where its checkpoints go.
    pub checkpoint_dir: String,
    /// Whether its user named that; then it is made if it is missing.
    pub checkpoint_named: bool,
    /// The virtual environment that must be there.
    #[serde(default)]
    pub venv: Option<String>,
    /// Its keeper: without it, it must not live.
    pub keeper: i32,
}

/// Becomes the rank, or says why not.
pub fn main() -> ExitCode {
    let stream = match io::stdin().as_fd().try_clone_to_owned() {
        Ok(fd) => UnixStream::from(fd),
        Err(error) => return refuse(&error.to_string()),
    };
    let mut lines = BufReader::new(stream.take(SPEC_BYTES_MAX));
    let spec = match read_line(&mut lines).map(|line| serde_json::from_str::<Spec>(&line)) {
        Ok(Ok(spec)) => spec,
        Ok(Err(error)) => return refuse(&error.to_string()),
        Err(error) => return refuse(&error.to_string()),
    };
    let why = match prepare(&spec).and_then(|()| program(&spec)) {
        Err(why) => why,
        Ok(file) => {
            let ready = lines.get_mut().get_mut().write_all(READY.as_bytes());
            if ready.is_err() || !read_line(&mut lines).is_ok_and(|line| line == GO) {
                // Another rank could not, or the keeper is gone.
                return ExitCode::from(125);
            }
            execute(&spec, &file)
        }
    };
    let _ = lines.get_mut().get_mut().write_all(why.as_bytes());
    ExitCode::from(125)
}

fn read_line(lines: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    lines.read_line(&mut line).map(|_| line)
}

fn refuse(why: &str) -> ExitCode {
    eprintln!("trainyard rank is started by a keeper and not by hand: {why}");
    ExitCode::from(2)
}

fn prepare(spec: &Spec) -> Result<(), String> {
    if let Some(cgroup) = &spec.cgroup {
        let file = cgroup.join("cgroup.procs");
        std::fs::write(&file, "0")
            .map_err(|error| format!("it cannot join its cgroup {}: {error}", cgroup.display()))?;
    }
    let own = Pid::from_raw(0);
    setpgid(own, own).map_err(|error| format!("it gets no process group of its own: {error}"))?;
    umask(Mode::from_bits_truncate(0o022));
    // The keeper's blocked signals are inherited, and a job could not hear that it should save.
    SigSet::empty()
        .thread_set_mask()
        .map_err(|error| format!("its signals cannot be unblocked: {error}"))?;
    if let Some(most) = spec.processes_max {
        let (_, hard) = getrlimit(Resource::RLIMIT_NPROC).unwrap_or((most, most));
        let most = most.min(hard);
        setrlimit(Resource::RLIMIT_NPROC, most, most)
            .map_err(|error| format!("its limit of {most} processes cannot be set: {error}"))?;
    }
    if let Some(identity) = &spec.identity {
        become_user(identity)?;
    }
    // Set after the user changed, because the change clears it.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|error| format!("it cannot be tied to its keeper: {error}"))?;
    if getppid() != Pid::from_raw(spec.keeper) {
        return Err("its keeper is gone".to_owned());
    }
    std::env::set_current_dir(&spec.cwd).map_err(|error| {
        let who = spec
            .identity
            .as_ref()
            .map_or_else(String::new, |who| format!(" for user {}", who.name));
        format!("working directory {:?} cannot be entered{who}: {}", spec.cwd, plain(&error))
    })?;
    // Without it another Python would be found further on in the path.
    if let Some(venv) =
        spec.venv.as_ref().filter(|venv| !Path::new(venv).join("bin/python").exists())
    {
        return Err(format!("its virtual environment {venv:?} is not there: it has no bin/python"));
    }
    // With the rights of the job's user, which are all that it has by now.
    let dir = Path::new(&spec.checkpoint_dir);
    let looked = if spec.checkpoint_named {
        checkpoints::take_named(dir)
    } else {
        checkpoints::look_over(dir)
    };
    looked.map_err(|refusal| refusal.to_string())
}

/// Takes on a user for good.
pub(crate) fn become_user(identity: &Identity) -> Result<(), String> {
    let failed = |what: &str, error: nix::Error| {
        format!("it cannot become user {} ({what}): {}", identity.name, error.desc())
    };
    if identity.uid == 0 {
        return Err("jobs do not run as root; submit it as another user".to_owned());
    }
    let name = CString::new(identity.name.as_str())
        .map_err(|_| format!("{:?} is no name of a user", identity.name))?;
    let gid = Gid::from_raw(identity.gid);
    initgroups(&name, gid).map_err(|error| failed("groups", error))?;
    setgid(gid).map_err(|error| failed("main group", error))?;
    setuid(Uid::from_raw(identity.uid)).map_err(|error| failed("user", error))?;
    if setuid(Uid::from_raw(0)).is_ok() {
        return Err(format!("it could become root again after it became user {}", identity.name));
    }
    Ok(())
}

/// The file that the command means.
fn program(spec: &Spec) -> Result<PathBuf, String> {
    let program = spec.argv.first().ok_or("its command is empty; give at least a program")?;
    let path = spec.env.get("PATH").map_or(crate::environment::PATH_DEFAULT, String::as_str);
    find(program, path).ok_or_else(|| {
        let place = if program.contains('/') {
            format!("in {:?}", spec.cwd)
        } else {
            format!("in PATH={path}")
        };
        format!("command {program:?} does not exist {place}")
    })
}

/// Executes the command; comes back only with a reason why it could not.
fn execute(spec: &Spec, file: &Path) -> String {
    let mut command = Command::new(file);
    command
        .arg0(&spec.argv[0])
        .args(&spec.argv[1..])
        .env_clear()
        .envs(&spec.env)
        .stdin(Stdio::null());
    let error = command.exec();
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("command {:?} may not be executed: {}", file.display(), plain(&error))
        }
        io::ErrorKind::NotFound => {
            format!("the interpreter that command {:?} names does not exist", file.display())
        }
        _ => format!("command {:?} cannot be executed: {}", file.display(), plain(&error)),
    }
}

/// The file that a command means, as execvp(3) finds it.
fn find(program: &str, path: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Path::new(program).exists().then(|| PathBuf::from(program));
    }
    let files = path.split(':').map(|folder| Path::new(folder).join(program));
    let files: Vec<PathBuf> = files.filter(|file| file.is_file()).collect();
    let executable = files.iter().find(|file| {
        use std::os::unix::fs::PermissionsExt;
        file.metadata().is_ok_and(|data| data.permissions().mode() & 0o111 != 0)
    });
    executable.or(files.first()).cloned()
}

/// The sentence of an error without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
