//! What changed since a client last asked. One board serves all clients: it remembers for each row when it last
//! changed, so an answer costs what changed, however many clients ask.

use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use trainyard_api::SCHEMA_VERSION;
use trainyard_api::answer::{FairRow, JobRow, NodeRow};
use trainyard_api::board::{PartOfGpu, Rack};

/// Jobs that have ended and are still shown.
pub const ENDED_KEPT: usize = 500;
/// Open jobs that are shown at most.
pub const OPEN_MAX: usize = 20_000;
/// Forgotten jobs that are remembered as such; a client that asks about an earlier time gets everything.
const DROPPED_KEPT: usize = 4096;
/// Times that differ by less are the same: each look reads two clocks.
const SAME_SECONDS: f64 = 0.5;
/// Progress that differs by less is the same.
const SAME_PROGRESS: f64 = 0.005;
/// Use that differs by less is the same.
const SAME_USE: f64 = 0.001;

/// All that is shown, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// The moment, in seconds of Unix time.
    pub at: f64,
    /// The newest event.
    pub last_event: u64,
    /// All nodes.
    pub nodes: Vec<NodeRow>,
    /// Racks, where there are several.
    pub racks: Vec<Rack>,
    /// Open jobs.
    pub open: Vec<JobRow>,
    /// Open jobs that are not among them.
    pub left_out: u64,
    /// The next free id.
    pub next_job: u32,
    /// Jobs that are over: those that the board asked for, or the newest where it has none yet.
    pub ended: Vec<JobRow>,
    /// All tenants.
    pub tenants: Vec<FairRow>,
    /// Jobs with less than whole GPUs.
    pub shares: Vec<PartOfGpu>,
}

/// What is newer than some moment: a [`trainyard_api::board::BoardAnswer`] without the caller, its rows borrowed.
#[derive(Debug, Serialize)]
pub struct Part<'a> {
    schema_version: u32,
    cursor: u64,
    whole: bool,
    at: f64,
    last_event: u64,
    nodes: Vec<&'a NodeRow>,
    racks: &'a [Rack],
    jobs: Vec<&'a JobRow>,
    dropped: Vec<u32>,
    jobs_left_out: u64,
    tenants: &'a [FairRow],
    shares: Option<&'a [PartOfGpu]>,
}

impl Part<'_> {
    /// How many rows it has.
    pub fn rows(&self) -> usize {
        self.nodes.len() + self.jobs.len()
    }
}

/// A row and when it last changed.
#[derive(Clone, Debug)]
struct SavedState<T> {
    row: T,
    changed: u64,
}

/// What was shown last, and when each part of it changed.
#[derive(Clone, Debug)]
pub struct Board {
    /// The earliest version from which all that changed since is known.
    first: u64,
    version: u64,
    at: f64,
    last_event: u64,
    next_job: u32,
    nodes: Vec<SavedState<NodeRow>>,
    racks: SavedState<Vec<Rack>>,
    jobs: BTreeMap<u32, SavedState<JobRow>>,
    ended: VecDeque<u32>,
    dropped: VecDeque<(u64, u32)>,
    left_out: SavedState<u64>,
    tenants: SavedState<Vec<FairRow>>,
    shares: SavedState<Vec<PartOfGpu>>,
}

impl Board {
    /// Nothing yet. `first` is larger than every version of an earlier board, such as the time in microseconds.
    pub fn new(first: u64) -> Board {
        fn kept<T: Default>(first: u64) -> SavedState<T> {
            SavedState { row: T::default(), changed: first }
        }
        Board {
            first,
            version: first,
            at: 0.0,
            last_event: 0,
            next_job: 0,
            nodes: Vec::new(),
            racks: kept(first),
            jobs: BTreeMap::new(),
            ended: VecDeque::new(),
            dropped: VecDeque::new(),
            left_out: kept(first),
            tenants: kept(first),
            shares: kept(first),
        }
    }

    /// What to ask with the next time.
    pub fn cursor(&self) -> u64 {
        self.version
    }

    /// Jobs that are open on the board and not in `shown`, and those that came and went in between, as far as they
    /// would still be kept: how they ended is to be looked up.
    pub fn missing(&self, shown: &Shown) -> Vec<u32> {
        let mut open: Vec<u32> = shown.open.iter().map(|row| row.id).collect();
        open.sort_unstable();
        let mine = self.jobs.values().filter(|kept| !kept.row.state.is_over());
        let newest = shown.next_job.saturating_sub(ENDED_KEPT as u32);
        let new = self.next_job.max(newest)..shown.next_job;
        let new = new.filter(|id| self.next_job > 0 && !self.jobs.contains_key(id));
        mine.map(|kept| kept.row.id)
            .chain(new)
            .filter(|id| open.binary_search(id).is_err())
            .collect()
    }

    /// Takes a later moment in.
    pub fn take(&mut self, shown: Shown) {
        let next = self.version + 1;
        self.at = shown.at;
        if self.last_event != shown.last_event {
            // A client that shows events asks for them when this number moves.
            self.last_event = shown.last_event;
            self.version = next;
        }
        let gone = self.missing(&shown);
        self.next_job = shown.next_job;
        let mut touched = self.take_nodes(shown.nodes, next);
        touched |= replace(&mut self.racks, shown.racks, next, |one, other| one == other);
        touched |= replace(&mut self.left_out, shown.left_out, next, |one, other| one == other);
        touched |=
            replace(&mut self.tenants, shown.tenants, next, |one, other| same_tenants(one, other));
        touched |= replace(&mut self.shares, shown.shares, next, |one, other| one == other);
        for row in shown.open {
            touched |= self.take_job(row, next);
        }
        for row in shown.ended {
            let id = row.id;
            if self.take_job(row, next) {
                touched = true;
                self.ended.retain(|other| *other != id);
                self.ended.push_back(id);
            }
        }
        for id in gone {
            // Neither open nor found among those that are over: it was left out, or is no more.
            if self.jobs.get(&id).is_some_and(|kept| !kept.row.state.is_over()) {
                touched = true;
                self.drop_job(id, next);
            }
        }
        while self.ended.len() > ENDED_KEPT {
            let Some(id) = self.ended.pop_front() else { break };
            // One that was put back into the queue is open again.
            if self.jobs.get(&id).is_some_and(|kept| kept.row.state.is_over()) {
                touched = true;
                self.drop_job(id, next);
            }
        }
        if touched {
            self.version = next;
        }
    }

    /// Whether all that changed since then is known.
    pub fn knows(&self, since: u64) -> bool {
        (self.first..=self.version).contains(&since)
    }

    /// Whether there is something newer than `since`.
    pub fn is_newer(&self, since: Option<u64>) -> bool {
        since != Some(self.version)
    }

    /// What is newer than `since`; everything where that is not known.
    pub fn part(&self, since: Option<u64>) -> Part<'_> {
        let known = since.filter(|since| self.knows(*since));
        let newer = |changed: u64| known.is_none_or(|since| changed > since);
        let nodes = self.nodes.iter().filter(|kept| newer(kept.changed));
        let jobs = self.jobs.values().filter(|kept| newer(kept.changed));
        let dropped = self.dropped.iter().filter(|(changed, _)| known.is_some() && newer(*changed));
        Part {
            schema_version: SCHEMA_VERSION,
            cursor: self.version,
            whole: known.is_none(),
            at: self.at,
            last_event: self.last_event,
            nodes: nodes.map(|kept| &kept.row).collect(),
            racks: if newer(self.racks.changed) { &self.racks.row } else { &[] },
            jobs: jobs.map(|kept| &kept.row).collect(),
            dropped: dropped.map(|(_, id)| *id).collect(),
            jobs_left_out: self.left_out.row,
            tenants: if newer(self.tenants.changed) { &self.tenants.row } else { &[] },
            shares: newer(self.shares.changed).then_some(self.shares.row.as_slice()),
        }
    }

    fn take_nodes(&mut self, rows: Vec<NodeRow>, next: u64) -> bool {
        let named = |kept: &SavedState<NodeRow>, row: &NodeRow| kept.row.name == row.name;
        let same = self.nodes.len() == rows.len()
            && self.nodes.iter().zip(&rows).all(|(kept, row)| named(kept, row));
        if !same {
            // Nodes came or went: every client gets all of them, in their new order.
            self.nodes = rows.into_iter().map(|row| SavedState { row, changed: next }).collect();
            self.first = next;
            return true;
        }
        let mut touched = false;
        for (kept, row) in self.nodes.iter_mut().zip(rows) {
            touched |= replace(kept, row, next, same_node);
        }
        touched
    }

    fn take_job(&mut self, row: JobRow, next: u64) -> bool {
        match self.jobs.get_mut(&row.id) {
            Some(kept) => {
                // A client that asks later must not start from an old figure.
                kept.row.ran_seconds = row.ran_seconds;
                replace(kept, row, next, same_job)
            }
            None => {
                self.jobs.insert(row.id, SavedState { row, changed: next });
                true
            }
        }
    }

    fn drop_job(&mut self, id: u32, next: u64) {
        self.jobs.remove(&id);
        self.dropped.push_back((next, id));
        if self.dropped.len() > DROPPED_KEPT
            && let Some((changed, _)) = self.dropped.pop_front()
        {
            self.first = self.first.max(changed);
        }
    }
}

/// Whether something else stands there now.
fn replace<T>(kept: &mut SavedState<T>, row: T, next: u64, same: impl Fn(&T, &T) -> bool) -> bool {
    let changed = !same(&kept.row, &row);
    if changed {
        *kept = SavedState { row, changed: next };
    }
    changed
}

fn near(one: Option<f64>, other: Option<f64>, by: f64) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => (one - other).abs() < by,
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// The same, but for times that go on by themselves and clocks that are read twice.
fn same_job(one: &JobRow, other: &JobRow) -> bool {
    let times = |row: &JobRow| [Some(row.since), Some(row.submitted), row.started, row.ended];
    let timeless = |row: &JobRow| {
        (row.id, row.state, row.gpus, row.attempt, row.restarts, row.preemptions, row.priority)
    };
    timeless(one) == timeless(other)
        && one.holds == other.holds
        && (&one.name, &one.user, &one.tenant) == (&other.name, &other.user, &other.tenant)
        && wordless(&one.why) == wordless(&other.why)
        && near(one.progress, other.progress, SAME_PROGRESS)
        && times(one)
            .into_iter()
            .zip(times(other))
            .all(|(one, other)| near(one, other, SAME_SECONDS))
}

/// A sentence without the time that it counts down.
fn wordless(why: &str) -> &str {
    if why.starts_with("hangs: ") {
        return "hangs";
    }
    why.rsplit_once(" in ")
        .filter(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()))
        .map_or(why, |(head, _)| head)
}

fn same_node(one: &NodeRow, other: &NodeRow) -> bool {
    let told = |row: &NodeRow| row.reason.as_deref().map(|reason| wordless(reason).to_owned());
    let bare = |row: &NodeRow| NodeRow { reason: told(row), ..row.clone() };
    bare(one) == bare(other)
}

fn same_tenants(one: &[FairRow], other: &[FairRow]) -> bool {
    let same = |(one, other): (&FairRow, &FairRow)| {
        (one.used - other.used).abs() < SAME_USE
            && FairRow { used: 0.0, ..one.clone() } == FairRow { used: 0.0, ..other.clone() }
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_api::answer::{Holding, QueueState};

    fn job(id: u32, state: QueueState) -> JobRow {
        JobRow {
            id,
            name: format!("job-{id}"),
            user: "ann".to_owned(),
            tenant: "lab".to_owned(),
            state,
            since: 5.0,
            gpus: 1,
            holds: Vec::new(),
            attempt: 0,
            submitted: 1.0,
            started: None,
            ended: None,
            ran_seconds: 0.0,
            progress: None,
            restarts: 0,
            preemptions: 0,
            priority: 0,
            why: "may not start before its begin time, in 50 s".to_owned(),
            hung: None,
        }
    }

    fn shown(open: Vec<JobRow>) -> Shown {
        let next_job = open.iter().map(|row| row.id + 1).max().unwrap_or(1);
        Shown { open, next_job, ..Shown::default() }
    }

    fn ids(board: &Board, since: u64) -> Vec<u32> {
        let answer = board.part(Some(since));
        assert!(!answer.whole);
        answer.jobs.iter().map(|row| row.id).collect()
    }

    #[test]
    fn only_what_changed_is_told_and_times_that_go_on_are_no_change() {
        let mut board = Board::new(100);
        board.take(shown(vec![job(1, QueueState::Waiting), job(2, QueueState::Waiting)]));
        assert!(board.is_newer(None) && board.part(None).whole);
        let first = board.cursor();
        let mut later = job(1, QueueState::Waiting);
        (later.since, later.ran_seconds) = (5.3, 9.0);
        later.why = "may not start before its begin time, in 48 s".to_owned();
        board.take(shown(vec![later, job(2, QueueState::Waiting)]));
        assert!(!board.is_newer(Some(first)));
        assert_eq!(board.part(None).jobs[0].ran_seconds, 9.0, "newcomers start from now");
        let mut runs = job(2, QueueState::Running);
        runs.holds = vec![Holding { node: "n1".to_owned(), gpus: vec![0] }];
        board.take(shown(vec![job(1, QueueState::Waiting), runs.clone()]));
        assert_eq!(ids(&board, first), [2]);
        let second = board.cursor();
        runs.progress = Some(0.2);
        board.take(shown(vec![job(1, QueueState::Waiting), runs]));
        assert_eq!(ids(&board, second), [2]);
    }

    #[test]
    fn a_job_that_ends_stays_for_a_while_and_one_that_is_nowhere_is_dropped() {
        let mut board = Board::new(100);
        board.take(shown(vec![job(1, QueueState::Running), job(2, QueueState::Waiting)]));
        let before = board.cursor();
        let mut next = shown(Vec::new());
        next.next_job = 5;
        assert_eq!(board.missing(&next), [1, 2, 3, 4], "two came and went in between");
        next.ended = vec![job(1, QueueState::Finished), job(4, QueueState::Failed)];
        board.take(next);
        let answer = board.part(Some(before));
        let told: Vec<(u32, QueueState)> =
            answer.jobs.iter().map(|row| (row.id, row.state)).collect();
        assert_eq!(told, [(1, QueueState::Finished), (4, QueueState::Failed)]);
        assert_eq!(answer.dropped, [2]);
        let ended = |id| job(id, QueueState::Finished);
        let many =
            Shown { ended: (10..10 + ENDED_KEPT as u32).map(ended).collect(), ..Shown::default() };
        board.take(many);
        let all = board.part(None);
        assert_eq!(all.jobs.len(), ENDED_KEPT);
        assert!(all.jobs.iter().all(|row| row.id >= 10), "the earliest are forgotten");
    }

    #[test]
    fn who_asks_about_an_unknown_time_gets_everything() {
        let mut board = Board::new(100);
        board.take(shown(vec![job(1, QueueState::Waiting)]));
        for since in [0, 99, board.cursor() + 1] {
            assert!(board.part(Some(since)).whole, "{since}");
        }
        let node = |name: &str| NodeRow {
            name: name.to_owned(),
            gpu_type: "v100".to_owned(),
            gpus: vec![Vec::new()],
            state: "up".to_owned(),
            free: 1,
            claimed: Vec::new(),
            cpus: 1,
            memory_mib: 1,
            reason: None,
            ill: Vec::new(),
        };
        let with =
            |nodes: Vec<NodeRow>| Shown { nodes, ..shown(vec![job(1, QueueState::Waiting)]) };
        board.take(with(vec![node("a"), node("b")]));
        let two = board.cursor();
        let mut lost = node("b");
        lost.state = "lost".to_owned();
        board.take(with(vec![node("a"), lost]));
        let answer = board.part(Some(two));
        assert_eq!((answer.whole, answer.nodes.len(), answer.jobs.len()), (false, 1, 0));
        board.take(with(vec![node("a")]));
        assert!(board.part(Some(two)).whole, "nodes came or went");
    }
}
