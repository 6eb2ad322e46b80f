//! A shared device: the stand-in for the driver, programs on it, and the arbiter.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use trainyard_sharing::{ClientOptions, ClientStats, Server, ServerOptions, Settings, Share};
use trainyard_token::{LOST_VARIABLE, SOCKET_VARIABLE};
use trainyard_types::Span;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
/// No program of these tests takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a program finds the driver.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Finds {
    Linked = 1,
    ByDlsym = 2,
    ByProcAddress = 3,
    ByDefault = 4,
    /// The driver is part of the program, which no library can be loaded into.
    Static = 5,
}

pub const WAYS: [Finds; 4] =
    [Finds::Linked, Finds::ByDlsym, Finds::ByProcAddress, Finds::ByDefault];

/// A device in a folder of its own.
pub struct Device {
    folder: PathBuf,
    built: &'static Path,
    server: Option<Server>,
}

/// Quick figures: what takes ten seconds by Gemini's takes half of one.
pub fn quick() -> ServerOptions {
    let settings = Settings {
        window: Span(500_000),
        quota_base: Span(20_000),
        quota_min: Span(10_000),
        quota_max: Some(Span(20_000)),
        grace: Span(700_000),
        ..Settings::default()
    };
    ServerOptions { settings, ..ServerOptions::default() }
}

impl Device {
    /// Nothing where there is no C compiler, which is said.
    pub fn new(options: ServerOptions) -> Option<Device> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let built = built()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("trainyard-gpu-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Some(Device { folder, built, server: Some(Server::start(options).unwrap()) })
    }

    /// A job comes, with a share and a cap in bytes. Jobs are numbered from 0.
    pub fn job(&self, number: u32, share: (u32, u32), memory_cap: u64) {
        self.come(number, share, memory_cap, true);
    }

    /// A job comes that is held to its share by other means than turns.
    pub fn job_without_turns(&self, number: u32, share: (u32, u32), memory_cap: u64) {
        self.come(number, share, memory_cap, false);
    }

    fn come(&self, number: u32, (request, limit): (u32, u32), memory_cap: u64, turns: bool) {
        let user = own_user();
        let options = ClientOptions {
            share: Share { request, limit },
            memory_cap,
            socket: self.socket(number),
            user,
            turns,
        };
        self.server().add(options).unwrap();
    }

    pub fn socket(&self, number: u32) -> PathBuf {
        self.folder.join(format!("job{number}"))
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("it was not ended")
    }

    /// The arbiter goes away.
    pub fn end_server(&mut self) {
        self.server = None;
    }

    pub fn stats(&self, number: usize) -> ClientStats {
        self.server().stats().clients[number].clone()
    }

    /// Looks again and again until it is as expected.
    pub fn wait_for(&self, what: &str, seen: impl Fn(&Device) -> bool) {
        let start = Instant::now();
        while !seen(self) {
            assert!(start.elapsed() < PATIENCE, "{what}: {:?}", self.server().stats());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A program that runs hooked.
    pub fn command(&self, job: u32, finds: Finds, words: &[&str]) -> Command {
        let mut command = self.plain(finds, words);
        command.env("LD_PRELOAD", library()).env(SOCKET_VARIABLE, self.socket(job));
        command.env("FAKE_CUDA_JOB", job.to_string());
        command
    }

    /// A program that runs without the library.
    pub fn plain(&self, finds: Finds, words: &[&str]) -> Command {
        let mut command = Command::new(self.built.join(format!("program{}", finds as u32)));
        command.args(words).env("FAKE_CUDA", &self.folder).env("LD_LIBRARY_PATH", self.built);
        command.env_remove(LOST_VARIABLE).env_remove(SOCKET_VARIABLE);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn start(&self, job: u32, finds: Finds, words: &[&str]) -> Running {
        Running(self.command(job, finds, words).spawn().unwrap())
    }

    /// Lines of a program that ends well, without the last.
    pub fn run(&self, job: u32, finds: Finds, words: &[&str]) -> Vec<String> {
        self.start(job, finds, words).lines()
    }

    /// How long kernels of a job have run so far.
    pub fn executed(&self, job: u32) -> Span {
        let bytes = std::fs::read(self.folder.join("device")).unwrap_or_default();
        let at = 24 + 8 * job as usize;
        let number = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        Span(number.map_or(0, u64::from_le_bytes))
    }

    pub fn built(&self) -> &Path {
        self.built
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.server = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A program; it ends with the test.
pub struct Running(pub Child);

impl Running {
    pub fn lines(self) -> Vec<String> {
        let output = self.output();
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(lines.pop().as_deref(), Some("end"), "{:?}: {text} {told}", output.status);
        assert_eq!(told, "");
        lines
    }

    /// Waits, but not for ever.
    pub fn output(mut self) -> Output {
        let start = Instant::now();
        while self.0.try_wait().unwrap().is_none() {
            if start.elapsed() > PATIENCE {
                self.0.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // What it wrote fits in a pipe.
        let mut output = Output { status: self.0.wait().unwrap(), stdout: vec![], stderr: vec![] };
        use std::io::Read;
        self.0.stdout.take().unwrap().read_to_end(&mut output.stdout).unwrap();
        self.0.stderr.take().unwrap().read_to_end(&mut output.stderr).unwrap();
        output
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn own_user() -> u32 {
    use std::os::unix::fs::MetadataExt;
    // The user of this process, as the kernel tells it.
    std::fs::metadata("/proc/self").unwrap().uid()
}

/// The library as it was built for these tests.
pub fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().unwrap().join("libtrainyard_preload.so");
    assert!(path.exists(), "{} was not built", path.display());
    path
}

/// The driver and the programs, compiled once.
fn built() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build).as_deref()
}

fn build() -> Option<PathBuf> {
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("gpu{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let driver = format!("{FIXTURES}/libcuda.c");
    let program = format!("{FIXTURES}/program.c");
    let out = |name: &str| folder.join(name).display().to_string();
    let shared = ["-shared", "-fPIC"];
    // The driver finds its own functions in itself; another build of it finds them in the whole program.
    let own = ["-Wl,-Bsymbolic"];
    compile(&[&shared[..], &own, &["-o", &out("libcuda.so.1"), &driver]].concat())?;
    std::fs::create_dir_all(folder.join("loose")).unwrap();
    compile(&[&shared[..], &["-o", &out("loose/libcuda.so.1"), &driver]].concat())?;
    compile(&[&shared[..], &["-o", &out("libnext.so"), &format!("{FIXTURES}/next.c")]].concat())?;
    let driver_there = out("libcuda.so.1");
    for (number, more) in [(1, driver_there.as_str()), (2, ""), (3, ""), (4, "")] {
        let (find, out) = (format!("-DFIND={number}"), out(&format!("program{number}")));
        let mut words = vec![find.as_str(), "-o", &out, &program];
        words.extend((!more.is_empty()).then_some(more));
        compile(&words)?;
    }
    compile(&["-static", "-DFIND=1", "-o", &out("program5"), &program, &driver])?;
    Some(folder)
}

fn compile(words: &[&str]) -> Option<()> {
    match Command::new("cc").args(["-O1"]).args(words).args(["-ldl", "-lpthread"]).output() {
        Err(_) => {
            trainyard_testkit::skip!("cc", "there is no C compiler");
            None
        }
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(())
        }
    }
}
