//! What must hold after a run: what clients were told, what jobs wrote, and what the daemon shows, side by side.

use crate::load::Told;
use crate::yard::Yard;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// A launch of a job.
pub type Launch = (u64, u64);

/// A line of the ledger.
struct Entry {
    launch: Launch,
    what: String,
    gpus: Vec<u64>,
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
    ends_as_promised(told, &rows, &mut findings);
    for job in rows.keys() {
        assert_eq!(events.ended.get(job), Some(&1), "job {job} ends exactly once");
    }
    let entries = ledger(yard);
    let ends = starts_once_and_shares_no_gpu(&entries, &events, &mut findings);
    exit_codes_are_found(yard, told, &rows, &ends);
    for launch in outlived {
        let alone = ends.contains(launch) || events.stopping.contains(launch);
        assert!(
            alone,
            "{launch:?} ran when the daemon was killed and neither ended nor was stopped"
        );
        findings.survivors += usize::from(ends.contains(launch));
    }
    findings
}

/// Every acknowledged job is there, nothing else is, and each ended as it had to.
fn ends_as_promised(told: &Told, rows: &BTreeMap<u64, Value>, findings: &mut Findings) {
    let promises = told.promises.lock().expect("no client panics");
    let (known, there): (BTreeSet<_>, BTreeSet<_>) =
        (promises.keys().collect(), rows.keys().collect());
    assert_eq!(known, there, "acknowledged jobs and those of the daemon");
    for (job, promise) in promises.iter() {
        let standing = rows[job]["standing"].as_str().unwrap_or_default();
        let by_itself = if promise.code == 0 { "finished" } else { "failed" };
        let right = match standing {
            "cancelled" => promise.may_be_cancelled,
            other => !promise.cancelled && other == by_itself,
        };
        assert!(right, "job {job} is {standing}: {promise:?} {}", rows[job]);
        findings.cancelled += usize::from(standing == "cancelled");
        findings.failed_as_told += usize::from(standing == "failed");
    }
}

/// No launch starts twice, and no two use a GPU at once. The launches that ended by themselves.
fn starts_once_and_shares_no_gpu(
    entries: &[Entry],
    events: &Events,
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
                    let other = users.insert(gpu, launch);
                    assert_eq!(other, None, "GPU {gpu} is used by another when {launch:?} starts");
                }
            }
            what => {
                users.retain(|_, user| *user != launch);
                if what == "end" {
                    assert!(ended.insert(launch), "{launch:?} ended twice");
                } else {
                    findings.stopped += 1;
                    assert!(events.stopping.contains(&launch), "nobody asked {launch:?} to stop");
                }
            }
        }
    }
    findings.attempts = started.len();
    // An attempt may reach its end while it is asked to stop; then another one follows. Else the end is the end.
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for &(job, attempt) in &ended {
        if let Some(before) = last.insert(job, attempt) {
            assert!(events.stopping.contains(&(job, before)), "job {job} ended twice");
        }
    }
    ended
}

/// A job that ended by itself shows the exit code it had, also when nobody looked at that moment.
fn exit_codes_are_found(
    yard: &Yard,
    told: &Told,
    rows: &BTreeMap<u64, Value>,
    ends: &BTreeSet<Launch>,
) {
    let promises = told.promises.lock().expect("no client panics");
    for (job, row) in rows {
        if !["finished", "failed"].contains(&row["standing"].as_str().unwrap_or_default()) {
            continue;
        }
        let detail = yard.get(&format!("/v1/jobs/{job}"));
        let last = detail["attempts"].as_array().and_then(|all| all.last());
        let last = last.unwrap_or_else(|| panic!("job {job} had an attempt"));
        assert_eq!(last["exit_code"].as_i64(), Some(promises[job].code), "job {job}: {last}");
        let launch = (*job, last["attempt"].as_u64().expect("a number"));
        assert!(ends.contains(&launch), "{launch:?} is over without having run to its end");
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
        }
    };
    whole.lines().map(entry).collect()
}
