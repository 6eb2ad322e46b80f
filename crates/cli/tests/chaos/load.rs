//! Clients that submit, cancel and hold, and ask again when an answer is lost.

use crate::yard::{Dice, ask};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

/// With more open jobs than this, clients wait: every job of a run must end soon after it.
const OPEN_MAX: u64 = 24;

/// A job writes when it starts, stops because it was asked to, and ends; all appends are one line each.
///
/// The trap stands before the first line, so an attempt that was asked to stop never starts in silence.
const SCRIPT: &str = r#"
tell() { echo "$TRAINYARD_JOB_ID $TRAINYARD_ATTEMPT $1 $SLURM_JOB_GPUS" >> ledger; }
trap 'tell stop; exit 85' TERM
tell start
sleep "$1" & wait $!
tell end
exit "$2"
"#;

/// What was promised about a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The exit code it was given.
    pub code: i64,
    /// A cancellation was acknowledged.
    pub cancelled: bool,
    /// A cancellation came too late or without an answer at first.
    pub may_be_cancelled: bool,
}

/// What clients were told.
#[derive(Default)]
pub struct Told {
    /// By job.
    pub promises: Mutex<BTreeMap<u64, Promise>>,
    /// Requests that got no answer and were made again.
    pub repeated: AtomicU64,
    /// Keys that were sent once more after their answer.
    pub echoed: AtomicU64,
    /// Answers that nobody expected.
    pub faults: Mutex<Vec<String>>,
    stop: AtomicBool,
}

/// Clients at work.
pub struct Load {
    pub told: Arc<Told>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    pub fn start(folder: &std::path::Path, clients: u64, seed: u64) -> Load {
        let told = Arc::<Told>::default();
        let threads = (0..clients).map(|number| {
            let mut client = Client {
                folder: folder.to_owned(),
                number,
                requests: 0,
                dice: Dice(seed.wrapping_add(number << 32)),
                told: Arc::clone(&told),
            };
            thread::spawn(move || client.run())
        });
        Load { threads: threads.collect(), told }
    }

    /// Lets every client finish what it is about.
    pub fn stop(self) -> Arc<Told> {
        self.told.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().expect("a client does not panic");
        }
        self.told
    }
}

struct Client {
    folder: PathBuf,
    number: u64,
    requests: u64,
    dice: Dice,
    told: Arc<Told>,
}

impl Client {
    fn run(&mut self) {
        let mut own: Vec<u64> = Vec::new();
        while !self.told.stop.load(Ordering::SeqCst) {
            let (_, status) = self.insist("GET", "/v1/status", None);
            let open = status["jobs"].as_object().into_iter().flat_map(|jobs| jobs.values());
            if open.filter_map(Value::as_u64).sum::<u64>() > OPEN_MAX {
                sleep(Duration::from_millis(50));
                continue;
            }
            match self.dice.below(10) {
                0 => self.cancel(&own),
                1 => self.hold_and_release(&own),
                2 | 3 => {
                    let count = 2 + self.dice.below(4);
                    own.extend(self.submit(count));
                }
                _ => own.extend(self.submit(1)),
            }
            let pause = self.dice.below(40);
            sleep(Duration::from_millis(pause));
        }
    }

    /// Asks until there is an answer.
    fn insist(&mut self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        loop {
            match ask(&self.folder.join("api.sock"), method, path, body) {
                Ok((status, answer)) if status < 500 => return (status, answer),
                _ => {
                    self.told.repeated.fetch_add(1, Ordering::Relaxed);
                    sleep(Duration::from_millis(10));
                }
            }
        }
    }

    fn submit(&mut self, count: u64) -> Vec<u64> {
        let mut codes = Vec::new();
        let jobs: Vec<Value> = (0..count)
            .map(|_| {
                let code = [0, 0, 0, 3][self.dice.below(4) as usize];
                codes.push(code);
                // A few are long enough to be stopped for younger ones, and to outlive several daemons.
                let long = self.dice.below(8) == 0;
                let millis = self.dice.below(150) + if long { 1500 } else { 0 };
                let gpus = 1 + self.dice.below(2);
                let seconds = (millis + 1) as f64 / 1e3;
                json!({
                    "name": "chaos", "cwd": self.folder, "retries": 0, "gpus": gpus,
                    "expected_seconds": seconds,
                    "argv": ["sh", "-c", SCRIPT, "job", seconds.to_string(), code.to_string()],
                })
            })
            .collect();
        self.requests += 1;
        let key = format!("client-{}-{}", self.number, self.requests);
        let body = json!({ "jobs": jobs, "key": key });
        let ids = self.submitted(&body);
        if ids.len() != codes.len() {
            self.fault(format!("{key}: {} jobs became {ids:?}", codes.len()));
        }
        let mut promises = self.told.promises.lock().expect("no client panics");
        for (&job, code) in ids.iter().zip(codes) {
            let promise = Promise { code, cancelled: false, may_be_cancelled: false };
            if promises.insert(job, promise).is_some() {
                self.fault(format!("{key}: job {job} was given out before"));
            }
        }
        drop(promises);
        if self.dice.below(4) == 0 {
            self.told.echoed.fetch_add(1, Ordering::Relaxed);
            let again = self.submitted(&body);
            if again != ids {
                self.fault(format!("{key}: first {ids:?}, then {again:?}"));
            }
        }
        ids
    }

    fn submitted(&mut self, body: &Value) -> Vec<u64> {
        let (status, answer) = self.insist("POST", "/v1/jobs", Some(body));
        if status != 200 {
            self.fault(format!("a submission was refused: {answer}"));
        }
        let ids = answer["jobs"].as_array().into_iter().flatten();
        ids.filter_map(Value::as_u64).collect()
    }

    fn cancel(&mut self, own: &[u64]) {
        let Some(job) = self.one_of_the_last(own) else { return };
        // Until it is acknowledged it may be done or not.
        self.promise(job, |promise| promise.may_be_cancelled = true);
        let status = self.act(job, "cancel");
        if status == 200 {
            self.promise(job, |promise| promise.cancelled = true);
        }
    }

    fn hold_and_release(&mut self, own: &[u64]) {
        let Some(job) = self.one_of_the_last(own) else { return };
        self.act(job, "hold");
        self.act(job, "release");
    }

    fn act(&mut self, job: u64, action: &str) -> u16 {
        let path = format!("/v1/jobs/{job}/act");
        let (status, answer) = self.insist("POST", &path, Some(&json!({ "action": action })));
        if status != 200 && status != 409 {
            self.fault(format!("{action} of job {job}: {status} {answer}"));
        }
        status
    }

    fn one_of_the_last(&mut self, own: &[u64]) -> Option<u64> {
        let back = self.dice.below(8) as usize + 1;
        own.len().checked_sub(back).map(|index| own[index])
    }

    fn promise(&self, job: u64, change: impl FnOnce(&mut Promise)) {
        let mut promises = self.told.promises.lock().expect("no client panics");
        promises.get_mut(&job).map(change);
    }

    fn fault(&self, what: String) {
        self.told.faults.lock().expect("no client panics").push(what);
    }
}
