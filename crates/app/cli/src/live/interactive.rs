//! A terminal in a job: `run --interactive`.
//!
//! The client listens on a socket of its own, and the job's process connects to it, gives its command a terminal, and
//! passes what is typed and shown. Nothing of it goes through the daemon, so that it works where client and job are on
//! one machine. When the client goes, the command is hung up; when the command ends, so does the job.

use super::args::RunArgs;
use super::{connect, follow, submit};
use crate::failure::Failure;
use crate::output::{Output, reason};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{
    OptionalActions, Termios, Winsize, isatty, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize,
};
use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;
use trainyard_api::{JobSpec, ask};
use trainyard_client::Client;

/// Between two looks at what may change without a word: the job's state, the size of the window.
const LOOK: Duration = Duration::from_millis(200);
/// How often a command is hung up before it is killed.
const HANG_UPS: u32 = 25;
/// What a client sends: text, the size of its window, the end of its input.
const TEXT: u8 = b't';
const SIZE: u8 = b's';
const END: u8 = b'e';

/// `run --interactive`.
pub fn run(args: &RunArgs, job: JobSpec, output: &Output) -> Result<(), Failure> {
    let place = Place::make().map_err(|error| failed("its socket", &error))?;
    let listener =
        UnixListener::bind(place.socket()).map_err(|error| failed("its socket", &error))?;
    let program = std::env::current_exe().map_err(|error| failed("this program", &error))?;
    let mut argv = vec![
        program.to_string_lossy().into_owned(),
        "terminal".to_owned(),
        place.socket().to_string_lossy().into_owned(),
        "--".to_owned(),
    ];
    argv.extend(job.argv.iter().cloned());
    // No user types into it a second time: it is not moved, and not tried again.
    let job = JobSpec { argv, retries: 0, preemptible: false, ..job };
    let client = connect::connect(&args.connection)?;
    let submitted = submit::send(&client, vec![job], args.key.clone())?;
    let Some(id) = submitted.jobs.first().copied() else {
        return Err(Failure::Operation("the daemon gave no id".to_owned()));
    };
    eprintln!("job {id}; waiting for its GPUs");
    let client = client.following();
    let stream = accepted(&listener, &client, id)?;
    drop(place);
    if let Some(stream) = stream {
        relay(stream, output)?;
    }
    follow::wait(client, &[id])
}

fn failed(what: &str, error: &io::Error) -> Failure {
    Failure::Operation(format!("an interactive job needs {what}: {}", reason(error)))
}

/// A folder that only this user can enter, removed when it is dropped.
struct Place(PathBuf);

impl Place {
    fn make() -> io::Result<Place> {
        let base =
            std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let mut bytes = [0u8; 8];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let folder = base.join(format!("trainyard-{:016x}", u64::from_be_bytes(bytes)));
        DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Place(folder))
    }

    fn socket(&self) -> PathBuf {
        self.0.join("terminal")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The connection of the job; nothing if it has ended before.
fn accepted(
    listener: &UnixListener,
    client: &Client,
    id: u32,
) -> Result<Option<UnixStream>, Failure> {
    let trouble = |error: &io::Error| failed("its socket", error);
    listener.set_nonblocking(true).map_err(|error| trouble(&error))?;
    let own = nix::unistd::geteuid();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let peer = getsockopt(&stream, PeerCredentials).map(|peer| peer.uid());
                // No other user can enter the folder; this says so once more.
                if peer.is_ok_and(|uid| own.is_root() || uid == own.as_raw()) {
                    stream.set_nonblocking(false).map_err(|error| trouble(&error))?;
                    return Ok(Some(stream));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if client.send(&ask::job(id))?.row.state.is_over() {
                    return Ok(None);
                }
                thread::sleep(LOOK);
            }
            Err(error) => return Err(trouble(&error)),
        }
    }
}

/// Passes on what is typed and what is shown, until the job closes the connection.
fn relay(stream: UnixStream, output: &Output) -> Result<(), Failure> {
    let lost = |error: io::Error| failed("its connection", &error);
    let writer = stream.try_clone().map_err(lost)?;
    let raw = Raw::begin();
    thread::spawn(move || type_on(writer));
    let mut stream = stream;
    let mut bytes = [0; 8 << 10];
    let shown = loop {
        match stream.read(&mut bytes) {
            Ok(0) => break Ok(()),
            Ok(count) => {
                let mut out = io::stdout().lock();
                if let Err(error) = out.write_all(&bytes[..count]).and_then(|()| out.flush()) {
                    break Err(lost(error));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The job was killed.
            Err(_) => break Ok(()),
        }
    };
    drop(raw);
    output.flush().and(shown)
}

/// Sends what is typed, and the size of the window whenever it changes.
fn type_on(writer: UnixStream) {
    let sizes = writer.try_clone();
    if let (Ok(sizes), true) = (sizes, io::stdin().is_terminal()) {
        thread::spawn(move || tell_size(sizes));
    }
    let mut bytes = [0; 4 << 10];
    let mut writer = writer;
    loop {
        match io::stdin().read(&mut bytes) {
            Ok(0) | Err(_) => {
                let _ = send(&mut writer, END, &[]);
                return;
            }
            Ok(count) => {
                if send(&mut writer, TEXT, &bytes[..count]).is_err() {
                    return;
                }
            }
        }
    }
}

fn tell_size(mut writer: UnixStream) {
    let mut last = None;
    loop {
        let size = tcgetwinsize(io::stdin()).ok().map(|size| (size.ws_row, size.ws_col));
        if let Some((rows, columns)) = size.filter(|size| last != Some(*size)) {
            let bytes = [rows.to_be_bytes(), columns.to_be_bytes()].concat();
            if send(&mut writer, SIZE, &bytes).is_err() {
                return;
            }
            last = size;
        }
        thread::sleep(LOOK);
    }
}

/// One write, so that the two threads do not mix.
fn send(writer: &mut UnixStream, kind: u8, bytes: &[u8]) -> io::Result<()> {
    let length = u16::try_from(bytes.len()).map_err(io::Error::other)?.to_be_bytes();
    writer.write_all(&[&[kind], &length[..], bytes].concat())
}

/// The terminal of this process, passing on every key; as it was when this is dropped.
struct Raw(Option<Termios>);

impl Raw {
    fn begin() -> Raw {
        let stdin = io::stdin();
        if !isatty(&stdin) {
            return Raw(None);
        }
        let Ok(before) = tcgetattr(&stdin) else { return Raw(None) };
        let mut raw = before.clone();
        raw.make_raw();
        match tcsetattr(&stdin, OptionalActions::Now, &raw) {
            Ok(()) => Raw(Some(before)),
            Err(_) => Raw(None),
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// The hidden commands that run in the job; nothing if the arguments are none of them.
pub fn inside(arguments: &[OsString]) -> Option<ExitCode> {
    match arguments {
        [name, socket, dashes, command @ ..] if name == "terminal" && dashes == "--" => {
            Some(serve(Path::new(socket), command).unwrap_or_else(|error| complain(&error)))
        }
        [name, device, dashes, command @ ..] if name == "terminal-command" && dashes == "--" => {
            Some(complain(&become_command(Path::new(device), command)))
        }
        _ => None,
    }
}

fn complain(error: &io::Error) -> ExitCode {
    eprintln!("trainyard terminal: {error}");
    ExitCode::from(125)
}

/// Runs a command in a terminal of its own, typed into and shown by the client that listens on a socket.
fn serve(socket: &Path, command: &[OsString]) -> io::Result<ExitCode> {
    let stream = UnixStream::connect(socket)?;
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let device = ptsname(&master, Vec::new())?;
    let device = PathBuf::from(std::ffi::OsString::from(device.to_string_lossy().into_owned()));
    let master = File::from(master);
    // Held open until the command has it: without any holder the other side ends at once.
    let slave = OpenOptions::new().read(true).write(true).open(&device)?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg("terminal-command")
        .arg(&device)
        .arg("--")
        .args(command)
        .stdin(Stdio::from(slave.try_clone()?))
        .stdout(Stdio::from(slave.try_clone()?))
        .stderr(Stdio::from(slave.try_clone()?))
        .spawn()?;
    drop(slave);
    let typed = (stream.try_clone()?, master.try_clone()?);
    let group = child.id() as i32;
    thread::spawn(move || {
        take_typed(typed.0, typed.1);
        // The client is gone: nothing will be typed any more.
        hang_up(nix::unistd::Pid::from_raw(group));
    });
    show(master, stream);
    let status = child.wait()?;
    let code = status.code().unwrap_or(128 + status.signal().unwrap_or(0));
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Tells a command that its terminal is gone until it ends, which ends this process. It may not lead its group yet; and
/// one that was started under `nohup`, or by a daemon that was, does not hear the first signal.
fn hang_up(group: nix::unistd::Pid) {
    use nix::sys::signal::{Signal, killpg};
    for round in 0.. {
        let _ = killpg(group, if round < HANG_UPS { Signal::SIGHUP } else { Signal::SIGKILL });
        thread::sleep(LOOK);
    }
}

/// Shows what the command writes, to the client and in the log, until the command and all that it started let go.
fn show(mut master: File, mut stream: UnixStream) {
    let mut bytes = [0; 8 << 10];
    // The end of a terminal is an error of its other side.
    while let Ok(count @ 1..) = master.read(&mut bytes) {
        let _ = stream.write_all(&bytes[..count]);
        let _ = io::stdout().write_all(&bytes[..count]).and_then(|()| io::stdout().flush());
    }
}

fn take_typed(mut stream: UnixStream, mut master: File) {
    let mut head = [0; 3];
    while stream.read_exact(&mut head).is_ok() {
        let mut bytes = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
        if stream.read_exact(&mut bytes).is_err() {
            return;
        }
        let done = match head[0] {
            TEXT => master.write_all(&bytes),
            // What a terminal takes for the end of input.
            END => master.write_all(&[4]),
            SIZE if bytes.len() == 4 => {
                let number = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
                let size =
                    Winsize { ws_row: number(0), ws_col: number(2), ws_xpixel: 0, ws_ypixel: 0 };
                tcsetwinsize(&master, size).map_err(io::Error::from)
            }
            _ => Ok(()),
        };
        if done.is_err() {
            return;
        }
    }
}

/// Leads a session whose terminal is the device, and becomes the command; comes back only with a reason why not.
fn become_command(device: &Path, command: &[OsString]) -> io::Error {
    if let Err(error) = nix::unistd::setsid() {
        return io::Error::from(error);
    }
    // The first terminal that the leader of a session opens is the session's own.
    let opened = OpenOptions::new().read(true).write(true).open(device);
    let Some((program, arguments)) = command.split_first() else {
        return io::Error::other("no command");
    };
    match opened {
        Ok(_terminal) => {
            let mut command = Command::new(program);
            if std::env::var_os("TERM").is_none() {
                command.env("TERM", "xterm-256color");
            }
            command.args(arguments).exec()
        }
        Err(error) => error,
    }
}
