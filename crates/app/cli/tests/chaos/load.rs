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
/// The trap stands before the first line, so an attempt that was asked to stop never starts in silence. Once its end is
/// told nothing comes between it and the exit.
const SCRIPT: &str = r#"
restores=${TRAINYARD_RESTORE_FROM:+restores}
tell() { echo "$TRAINYARD_JOB_ID $TRAINYARD_ATTEMPT $1 $SLURM_JOB_GPUS $restores" >> ledger; }
case $3 in
    saves) trap 'tell stop; exit 85' TERM ;;
    acknowledges) trap 'tell stop; : > "$TRAINYARD_ACK_FILE"; exit 0' TERM ;;
    bows) trap 'tell bow; exit 0' TERM ;;
    quits) trap 'tell quit; exit 1' TERM ;;
    deaf) trap '' TERM ;;
    forks) trap 'tell stop; exit 85' TERM; (setsid sleep 60 &) ;;
esac
tell start
if [ "$3" = again ] && [ -z "$restores" ]; then
    sleep 1.2 & wait $!
    trap '' TERM
    tell again
    exit 85
fi
sleep "$1" & wait $!
trap '' TERM
tell end
exit "$2"
"#;

/// How jobs behave, each as often as it is named.
const KINDS: [Kind; 16] = [
    Kind::Saves,
    Kind::Saves,
    Kind::Saves,
    Kind::Saves,
    Kind::Acknowledges,
    Kind::Acknowledges,
    Kind::Plain,
    Kind::Plain,
    Kind::Plain,
    Kind::Bows,
    Kind::Bows,
    Kind::Quits,
    Kind::Deaf,
    Kind::Deaf,
    Kind::Forks,
    Kind::Again,
];

/// How a job behaves when it is asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It saves and exits with 85.
    Saves,
    /// It saves, says so by the file, and exits with 0.
    Acknowledges,
    /// It knows nothing of any contract: the signal ends it.
    Plain,
    /// It knows nothing of any contract and exits with 0.
    Bows,
    /// It knows nothing of any contract and exits with 1.
    Quits,
    /// It does not hear.
    Deaf,
    /// It saves, and leaves a process of another session behind, always.
    Forks,
    /// The signal ends it; in its first attempt it saves unasked and wants to be started again.
    Again,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Saves => "saves",
            Kind::Acknowledges => "acknowledges",
            Kind::Plain => "plain",
            Kind::Bows => "bows",
            Kind::Quits => "quits",
            Kind::Deaf => "deaf",
            Kind::Forks => "forks",
            Kind::Again => "again",
        }
    }

    /// Whether it may stop without writing an entry.
    pub fn is_silent(self) -> bool {
        matches!(self, Kind::Plain | Kind::Deaf | Kind::Again)
    }
}

/// What was promised about a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The exit code it was given.
    pub code: i64,
    /// How it behaves.
    pub kind: Kind,
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
    /// Answers that were not expected.
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
        let mut given = Vec::new();
        let jobs: Vec<Value> = (0..count)
            .map(|_| {
                let kind = KINDS[self.dice.below(16) as usize];
                let code = [0, 0, 0, 3][self.dice.below(4) as usize];
                // A job that bows out exits with 0, however it was meant to end.
                let code = if kind == Kind::Bows { 0 } else { code };
                given.push((code, kind));
                let grace = if kind == Kind::Deaf { 0.3 } else { 30.0 };
                // A few are long enough to be stopped for younger ones, and to outlive several daemons.
                let long = self.dice.below(8) == 0;
                let millis = self.dice.below(150) + if long { 1500 } else { 0 };
                let gpus = 1 + self.dice.below(2);
                let seconds = (millis + 1) as f64 / 1e3;
                json!({
                    "name": "chaos", "cwd": self.folder, "retries": 0, "gpus": gpus,
                    "expected_seconds": seconds, "checkpoint": { "grace_seconds": grace },
                    "argv": [
                        "sh", "-c", SCRIPT, "job", seconds.to_string(), code.to_string(), kind.name(),
                    ],
                })
            })
            .collect();
        self.requests += 1;
        let key = format!("client-{}-{}", self.number, self.requests);
        let body = json!({ "jobs": jobs, "key": key });
        let ids = self.submitted(&body);
        if ids.len() != given.len() {
            self.fault(format!("{key}: {} jobs became {ids:?}", given.len()));
        }
        let mut promises = self.told.promises.lock().expect("no client panics");
        for (&job, (code, kind)) in ids.iter().zip(given) {
            let promise = Promise { code, kind, cancelled: false, may_be_cancelled: false };
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
