//! A daemon to be measured, and requests on connections that stay open.

use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
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
            .args(["serve", "--state", "s", "--gpus", "1", "--listen", "unix:api.sock"])
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
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Line(BufReader::new(stream)))
    }

    /// Memory that it holds, in MiB.
    pub fn resident_mib(&self) -> Result<f64> {
        let process = self.process.as_ref().context("it runs")?;
        let status = fs::read_to_string(format!("/proc/{}/status", process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.context("VmRSS")? / 1024.0)
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
        let cancel = |mut line: Line| line.post("/v1/jobs/0/act", "{\"action\":\"cancel\"}");
        if self.connect().and_then(cancel).is_ok() {
            sleep(Duration::from_millis(500));
        }
        let _ = self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A connection.
pub struct Line(BufReader<UnixStream>);

impl Line {
    pub fn get(&mut self, path: &str) -> Result<Vec<u8>> {
        self.ask("GET", path, "")
    }

    pub fn post(&mut self, path: &str, body: &str) -> Result<Vec<u8>> {
        self.ask("POST", path, body)
    }

    fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<Vec<u8>> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.get_mut().write_all(request.as_bytes())?;
        let mut head = String::new();
        let (mut status, mut length) = (0u16, 0usize);
        loop {
            head.clear();
            ensure!(self.0.read_line(&mut head)? > 0, "the connection ended");
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
        self.0.read_exact(&mut answer)?;
        ensure!(status == 200, "{path}: {status} {}", String::from_utf8_lossy(&answer));
        Ok(answer)
    }
}
