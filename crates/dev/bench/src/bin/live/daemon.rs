//! A daemon to be measured, and requests on connections that stay open.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A daemon with one slot, which one job holds for ever: all others wait and every decision looks at them.
pub struct Daemon {
    program: PathBuf,
    folder: PathBuf,
    process: Option<Child>,
}

impl Daemon {
    /// A daemon with an empty store in that folder; not started yet.
    pub fn new(program: &Path, folder: &Path) -> Result<Daemon> {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let (program, folder) = (program.canonicalize()?, folder.canonicalize()?);
        Ok(Daemon { program, folder, process: None })
    }

    /// Starts it; how long until it answered.
    pub fn start(&mut self) -> Result<Duration> {
        let log = File::create(self.folder.join("serve.log"))?;
        let begun = Instant::now();
        let process = Command::new(&self.program)
            .args(["serve", "--state", "s", "--gpus", "1"])
            .args(["--listen", "unix:api.sock", "--listen", "127.0.0.1:0"])
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.process = Some(process);
        loop {
            let answered = self.connect().and_then(|mut line| line.get("/v1/status"));
            if answered.is_ok() {
                return Ok(begun.elapsed());
            }
            let log = fs::read_to_string(self.folder.join("serve.log")).unwrap_or_default();
            ensure!(begun.elapsed() < Duration::from_secs(60), "the daemon does not answer: {log}");
            sleep(Duration::from_millis(2));
        }
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// A connection that stays open.
    pub fn connect(&self) -> Result<Line> {
        let stream = UnixStream::connect(self.folder.join("api.sock"))?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        Ok(Line { stream: BufReader::new(Box::new(stream)), headers: String::new() })
    }

    /// Connections over TCP with a token each, beside those that one Unix user may have.
    pub fn connect_tcp(&self, count: usize) -> Result<Vec<Line>> {
        let mut local = self.connect()?;
        let page: Value = serde_json::from_slice(&local.get("/v1/page")?)?;
        let url = page["url"].as_str().context("the daemon listens on TCP")?;
        let address = url.split('/').nth(2).context("an address")?.to_owned();
        let request = "{\"name\":\"bench\",\"user\":\"bench\",\"role\":\"viewer\"}";
        let made: Value = serde_json::from_slice(&local.post("/v1/tokens", request)?)?;
        let token = made["token"].as_str().context("a token")?;
        let headers = format!("authorization: Bearer {token}\r\n");
        let connect = |_| {
            let stream = TcpStream::connect(&address)?;
            stream.set_read_timeout(Some(Duration::from_secs(120)))?;
            Ok(Line { stream: BufReader::new(Box::new(stream)), headers: headers.clone() })
        };
        (0..count).map(connect).collect()
    }

    /// Memory that it holds, in MiB.
    pub fn resident_mib(&self) -> Result<f64> {
        self.memory_mib("VmRSS:")
    }

    /// The most memory that it held since [`Daemon::forget_peak`], in MiB.
    pub fn peak_mib(&self) -> Result<f64> {
        self.memory_mib("VmHWM:")
    }

    /// From now on the peak is counted anew.
    pub fn forget_peak(&self) -> Result<()> {
        let process = self.process.as_ref().context("it runs")?;
        Ok(fs::write(format!("/proc/{}/clear_refs", process.id()), "5")?)
    }

    fn memory_mib(&self, name: &str) -> Result<f64> {
        let process = self.process.as_ref().context("it runs")?;
        let status = fs::read_to_string(format!("/proc/{}/status", process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.context("a figure of memory")? / 1024.0)
    }

    /// CPU seconds that it has used.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let process = self.process.as_ref().context("it runs")?;
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.id()))?;
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks: f64 = fields.skip(11).take(2).filter_map(|text| text.parse::<f64>().ok()).sum();
        // The kernel counts in hundredths of a second wherever it shows this file.
        Ok(ticks / 100.0)
    }

    /// Syncs a second that the disk under its state can do, one after the other.
    pub fn syncs_per_second(&self) -> Result<f64> {
        let path = self.folder.join("probe");
        let mut file = File::create(&path)?;
        let begun = Instant::now();
        let mut count = 0u32;
        while begun.elapsed() < Duration::from_secs(1) {
            file.write_all(&[0; 4096])?;
            file.sync_data()?;
            count += 1;
        }
        fs::remove_file(path)?;
        Ok(f64::from(count) / begun.elapsed().as_secs_f64())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The job that holds the slot goes on without a daemon, so it is ended first.
        let cancel = |mut line: Line| line.post("/v1/jobs/1/act", "{\"action\":\"cancel\"}");
        if self.connect().and_then(cancel).is_ok() {
            sleep(Duration::from_millis(500));
        }
        let _ = self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A stream of either kind.
trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// A connection.
pub struct Line {
    stream: BufReader<Box<dyn Stream>>,
    /// Headers of every request.
    headers: String,
}

impl Line {
    pub fn get(&mut self, path: &str) -> Result<Vec<u8>> {
        self.ask("GET", path, "")
    }

    pub fn post(&mut self, path: &str, body: &str) -> Result<Vec<u8>> {
        self.ask("POST", path, body)
    }

    /// From now on answers may come packed.
    pub fn accept_gzip(&mut self) {
        self.headers.push_str("accept-encoding: gzip\r\n");
    }

    fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<Vec<u8>> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{}\
             content-length: {}\r\n\r\n{body}",
            self.headers,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut head = String::new();
        let (mut status, mut length) = (0u16, 0usize);
        loop {
            head.clear();
            ensure!(self.stream.read_line(&mut head)? > 0, "the connection ended");
            let text = head.trim_end();
            if let Some(rest) = text.strip_prefix("HTTP/1.1 ") {
                status = rest.get(..3).unwrap_or_default().parse()?;
            } else if let Some((name, value)) = text.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            } else if text.is_empty() {
                break;
            }
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer)?;
        ensure!(status == 200, "{path}: {status} {}", String::from_utf8_lossy(&answer));
        Ok(answer)
    }
}
