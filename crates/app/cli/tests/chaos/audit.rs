//! What must hold after a run: what clients were told, what jobs wrote, and what the daemon shows, side by side.

use crate::load::{Promise, Told};
use crate::yard::Yard;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// A launch of a job.
pub type Launch = (u64, u64);

/// What was promised, by job.
type Promises = BTreeMap<u64, Promise>;

/// A line of the ledger.
struct Entry {
    launch: Launch,
    what: String,
    gpus: Vec<u64>,
    /// It was told of a checkpoint to resume from.
    restores: bool,
}

/// What a run came to.
#[derive(Debug, Default)]
pub struct Findings {
    pub jobs: usize,
    pub attempts: usize,
    pub stopped: usize,
    pub cancelled: usize,
    pub failed_as_told: usize,
    pub survivors: usize,
    /// Attempts that were told of a checkpoint.
    pub restored: usize,
    /// Attempts that exited with 0 when they were asked to stop, and said no more.
    pub bowed: usize,
}

/// Launches that have started and not ended by their own word.
pub fn running(yard: &Yard) -> BTreeSet<Launch> {
    let mut running = BTreeSet::new();
    for entry in ledger(yard) {
        match entry.what.as_str() {
            "start" => running.insert(entry.launch),
            _ => running.remove(&entry.launch),
        };
    }
    running
}

/// Compares everything; `outlived` are launches that ran while a daemon was killed.
pub fn audit(yard: &Yard, told: &Told, outlived: &BTreeSet<Launch>) -> Findings {
    let faults = told.faults.lock().expect("no client panics");
    assert!(faults.is_empty(), "{faults:#?}");
    let rows = all_jobs(yard);
    let events = Events::of(yard);
    let mut findings = Findings { jobs: rows.len(), ..Findings::default() };
    for job in rows.keys() {
        assert_eq!(events.ended.get(job), Some(&1), "job {job} ends exactly once");
    }
    let entries = ledger(yard);
    let promises = told.promises.lock().expect("no client panics").clone();
    let ends = starts_once_and_shares_no_gpu(&entries, &events, &promises, &mut findings);
    ends_as_promised(&promises, &rows, &ends, &mut findings);
    nothing_follows_its_own_end(&entries, &ends, &promises);
    what_was_saved_is_handed_on(&entries, &promises, &mut findings);
    exit_codes_are_found(yard, &promises, &rows, &ends);
    let again = entries.iter().filter(|entry| entry.what == "again");
    let again: BTreeSet<Launch> = again.map(|entry| entry.launch).collect();
    for launch in outlived {
        let by_itself = ends.contains(launch) || again.contains(launch);
        let alone = by_itself || events.stopping.contains(launch);
        assert!(
            alone,
            "{launch:?} ran when the daemon was killed and neither ended nor was stopped"
        );
        findings.survivors += usize::from(ends.contains(launch));
    }
    findings
}

/// Every acknowledged job is there, nothing else is, and each ended as it had to.
fn ends_as_promised(
    promises: &Promises,
    rows: &BTreeMap<u64, Value>,
    ends: &BTreeSet<Launch>,
    findings: &mut Findings,
) {
    let (known, there): (BTreeSet<_>, BTreeSet<_>) =
        (promises.keys().collect(), rows.keys().collect());
    assert_eq!(known, there, "acknowledged jobs and those of the daemon");
    for (job, promise) in promises.iter() {
        let state = rows[job]["state"].as_str().unwrap_or_default();
        let by_itself = if promise.code == 0 { "finished" } else { "failed" };
        let right = match state {
            "cancelled" => promise.may_be_cancelled,
            // A job may come to its own good end after its cancel is acknowledged and before it hears of it.
            "finished" if promise.cancelled => ends.iter().any(|(ended, _)| ended == job),
            other => !promise.cancelled && other == by_itself,
        };
        assert!(right, "job {job} is {state}: {promise:?} {}", rows[job]);
        findings.cancelled += usize::from(state == "cancelled");
        findings.failed_as_told += usize::from(state == "failed");
    }
}

/// No launch starts twice, and no two use a GPU at once. The launches that ended by themselves.
fn starts_once_and_shares_no_gpu(
    entries: &[Entry],
    events: &Events,
    promises: &Promises,
    findings: &mut Findings,
) -> BTreeSet<Launch> {
    let (mut started, mut ended) = (BTreeSet::new(), BTreeSet::new());
    let mut users: BTreeMap<u64, Launch> = BTreeMap::new();
    for entry in entries {
        let launch = entry.launch;
        match entry.what.as_str() {
            "start" => {
                assert!(started.insert(launch), "{launch:?} started twice");
                assert!(events.launched.contains(&launch), "{launch:?} was never ordered");
                for &gpu in &entry.gpus {
                    // A silent attempt writes no stop: it is only known that it was asked to stop.
                    let other = users.insert(gpu, launch).filter(|other| {
                        !(promises[&other.0].kind.is_silent() && events.stopping.contains(other))
                    });
                    assert_eq!(other, None, "GPU {gpu} is used by another when {launch:?} starts");
                }
            }
            what => {
                users.retain(|_, user| *user != launch);
                if what == "end" || what == "bow" {
                    assert!(ended.insert(launch), "{launch:?} ended twice");
                }
                findings.bowed += usize::from(what == "bow");
                if what != "end" && what != "again" {
                    findings.stopped += 1;
                    assert!(events.stopping.contains(&launch), "{launch:?} was not asked to stop");
                }
            }
        }
    }
    findings.attempts = started.len();
    // One that fails while it is asked to stop is started again.
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for &(job, attempt) in &ended {
        if let Some(before) = last.insert(job, attempt) {
            assert!(events.stopping.contains(&(job, before)), "job {job} ended twice");
        }
    }
    ended
}

/// A job that exited with 0 and said no more has ended: no attempt of it ever starts again.
fn nothing_follows_its_own_end(entries: &[Entry], ends: &BTreeSet<Launch>, promises: &Promises) {
    for entry in entries.iter().filter(|entry| entry.what == "start") {
        let (job, attempt) = entry.launch;
        let before = ends.range((job, 0)..(job, attempt)).next();
        assert!(
            before.is_none() || promises[&job].code != 0,
            "{:?} runs after the job's own end, {before:?}: {:?}",
            entry.launch,
            promises[&job]
        );
    }
}

/// A job that saved is told so in every attempt that follows, and no other job is.
fn what_was_saved_is_handed_on(entries: &[Entry], promises: &Promises, findings: &mut Findings) {
    let mut saved: BTreeSet<u64> = BTreeSet::new();
    for entry in entries {
        let job = entry.launch.0;
        match entry.what.as_str() {
            "start" => {
                let kind = promises[&job].kind;
                assert_eq!(entry.restores, saved.contains(&job), "{:?}, {kind:?}", entry.launch);
                findings.restored += usize::from(entry.restores);
            }
            "stop" | "again" => drop(saved.insert(job)),
            _ => {}
        }
    }
}

/// A job that ended by itself shows the exit code it had, also when no daemon ran at that moment.
fn exit_codes_are_found(
    yard: &Yard,
    promises: &Promises,
    rows: &BTreeMap<u64, Value>,
    ends: &BTreeSet<Launch>,
) {
    for (job, row) in rows {
        if !["finished", "failed"].contains(&row["state"].as_str().unwrap_or_default()) {
            continue;
        }
        let detail = yard.get(&format!("/v1/jobs/{job}"));
        let last = detail["attempts"].as_array().and_then(|all| all.last());
        let last = last.unwrap_or_else(|| panic!("job {job} had an attempt"));
        assert_eq!(last["exit_code"].as_i64(), Some(promises[job].code), "job {job}: {last}");
        let launch = (*job, last["attempt"].as_u64().expect("a number"));
        assert!(ends.contains(&launch), "{launch:?} ended without having run to its end");
    }
}

fn all_jobs(yard: &Yard) -> BTreeMap<u64, Value> {
    let mut rows = BTreeMap::new();
    let mut before = u64::from(u32::MAX);
    loop {
        let page = yard.get(&format!("/v1/jobs?all=true&limit=1000&before={before}"));
        let page = page["jobs"].as_array().cloned().unwrap_or_default();
        for row in page.iter() {
            let id = row["id"].as_u64().expect("an id");
            before = before.min(id);
            rows.insert(id, row.clone());
        }
        if page.len() < 1000 {
            return rows;
        }
    }
}

/// What the daemon wrote down.
#[derive(Default)]
struct Events {
    ended: BTreeMap<u64, u32>,
    launched: BTreeSet<Launch>,
    stopping: BTreeSet<Launch>,
}

impl Events {
    fn of(yard: &Yard) -> Events {
        let mut all = Events::default();
        let mut after = 0;
        loop {
            let page = yard.get(&format!("/v1/events?after={after}&max=1000"));
            let page = page["events"].as_array().cloned().unwrap_or_default();
            for event in &page {
                after = event["seq"].as_u64().expect("a number");
                all.note(event);
            }
            if page.is_empty() {
                return all;
            }
        }
    }

    fn note(&mut self, event: &Value) {
        let Some(job) = event["job"].as_u64() else { return };
        let launch = (job, event["data"]["attempt"].as_u64().unwrap_or(0));
        match event["kind"].as_str().unwrap_or_default() {
            "ended" => *self.ended.entry(job).or_default() += 1,
            "launched" => assert!(self.launched.insert(launch), "{launch:?} was ordered twice"),
            "stopping" => drop(self.stopping.insert(launch)),
            _ => {}
        }
    }
}

fn ledger(yard: &Yard) -> Vec<Entry> {
    let text = fs::read_to_string(yard.folder.join("ledger")).unwrap_or_default();
    // The last line may be on its way.
    let whole = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
    let entry = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| word.parse::<u64>().unwrap_or_else(|_| panic!("{line}"));
        Entry {
            launch: (number(words[0]), number(words[1])),
            what: words[2].to_owned(),
            gpus: words[3].split(',').map(number).collect(),
            restores: words.get(4) == Some(&"restores"),
        }
    };
    whole.lines().map(entry).collect()
}
