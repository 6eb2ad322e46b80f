//! A backend without processes, by the rules in `trainyard_backend`: an attempt runs at most once, its end is kept
//! until it is forgotten, and what runs does not depend on the daemon.
//!
//! What jobs do is drawn by chance, unless an order carries a [`Conduct`]. The simulation of the daemon's core draws;
//! the conformance suite says what it wants and holds this machine to the same promises as those with processes.

use crate::conformance::Conduct;
use crate::dice::Dice;
use std::collections::{BTreeMap, BTreeSet};
use trainyard_api::wire::FromJob;
use trainyard_backend::attempt_dir::Told;
use trainyard_backend::{
    AsideOrder, AsideSeen, Exit, Found, LaunchOrder, Report, ResizeOrder, StopOrder, sample,
};
use trainyard_types::{Attempt, JobId};

const SECOND: u64 = 1_000_000;

/// How long each step of a job takes that does what it is told to.
const MOMENT: u64 = SECOND / 20;

/// The machine. Times are true ones, in microseconds.
#[derive(Debug)]
pub struct Machine {
    dice: Dice,
    /// Attempts that are not forgotten.
    pub runs: BTreeMap<(JobId, Attempt), Run>,
    /// All attempts that were ever taken on.
    pub ran: BTreeSet<(JobId, Attempt)>,
    /// How attempts ended, whether or not that was reported to a daemon.
    pub exits: BTreeMap<(JobId, Attempt), Exit>,
    /// Attempts that were ordered again after they were forgotten, which a daemon has no reason to do.
    pub asked_in_vain: BTreeSet<(JobId, Attempt)>,
    truths: BTreeMap<JobId, Truth>,
    /// Reports on their way.
    pub outbox: Vec<Report>,
    /// Reports that arrived; one of them may arrive again.
    pub arrived: Vec<Report>,
    /// Whether jobs do nothing unexpected any more.
    pub calm: bool,
}

/// What a job really is.
#[derive(Copy, Clone, Debug)]
pub struct Truth {
    /// Seconds of work; endless ones must be stopped.
    seconds: f64,
    /// Whether it never ends by itself.
    pub endless: bool,
    /// It fails this often.
    failures: u32,
}

/// An attempt.
#[derive(Debug)]
pub struct Run {
    /// What was ordered.
    pub order: LaunchOrder,
    conduct: Option<Conduct>,
    stage: Stage,
    starts_at: u64,
    /// Its end if it is not stopped.
    ends: Option<(u64, Exit)>,
    /// When it is next said how far it is.
    says_at: Option<u64>,
    /// What it says when its work is done, and when; it ends a moment later.
    last_words: Option<(u64, Vec<FromJob>)>,
    told: Told,
    /// When it goes over to other GPUs, and to which.
    goes_over: Option<(u64, Vec<String>)>,
    stop: Option<Stop>,
    aside: Aside,
}

/// Whether an attempt is in host memory, and what it was told about that.
#[derive(Debug, Default)]
struct Aside {
    order: AsideOrder,
    /// When the newest order is obeyed, or refused.
    then: Option<u64>,
    /// Since when it is there.
    since: Option<u64>,
    refused: Option<String>,
    /// A request to stop that waits until it is back.
    stop: Option<StopOrder>,
    /// Whether anything was told of it yet.
    told: bool,
}

#[derive(Debug)]
enum Stage {
    Waiting,
    Running,
    Over(Exit),
}

#[derive(Debug)]
struct Stop {
    asked_at: u64,
    kill_at: u64,
    /// When it exits by itself and how; never where it ignores the request.
    leaves: Option<(u64, Leave)>,
    /// It said after the request that it saved.
    acknowledged: bool,
}

/// How a job answers a request to stop.
#[derive(Copy, Clone, Debug)]
struct Leave {
    code: Option<i32>,
    signal: Option<i32>,
    /// What it says of a checkpoint before it exits.
    says: Saved,
}

/// What a job says of its checkpoint.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Saved {
    /// Nothing.
    Untold,
    /// That there is one.
    Somehow,
    /// That it holds all work done.
    All,
    /// That it holds so much.
    Work(f64),
}

impl Leave {
    fn with(code: i32) -> Leave {
        Leave { code: Some(code), signal: None, says: Saved::Untold }
    }

    /// By the signal that asked.
    fn by_signal() -> Leave {
        Leave { signal: Some(15), code: None, ..Leave::with(0) }
    }
}

impl Run {
    /// Whether it ended.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over(_))
    }

    /// Whether it is put aside, and uses no GPU.
    pub fn is_aside(&self) -> bool {
        self.aside.since.is_some()
    }

    fn aside_seen(&self) -> AsideSeen {
        AsideSeen {
            number: self.aside.order.number,
            aside: self.is_aside(),
            refused: self.aside.refused.clone(),
            seconds: 1.0,
            memory_mib: self.aside.order.memory_mib,
        }
    }

    /// It is back: all that was to come comes as much later.
    fn come_back(&mut self, now: u64) {
        let Some(since) = self.aside.since.take() else { return };
        let away = now - since;
        self.starts_at += away;
        let later = |at: &mut u64| *at = (*at).max(since) + away;
        self.ends.iter_mut().for_each(|(at, _)| later(at));
        self.says_at.iter_mut().for_each(later);
        self.last_words.iter_mut().for_each(|(at, _)| later(at));
        self.goes_over.iter_mut().for_each(|(at, _)| later(at));
    }

    fn done(&self, now: u64) -> f64 {
        self.order.resumes_from + now.saturating_sub(self.starts_at) as f64 / 1e6
    }

    fn next(&self) -> Option<u64> {
        let ends = self.ends.as_ref().map(|(at, _)| *at);
        let stop = self
            .stop
            .as_ref()
            .map(|stop| stop.leaves.map_or(stop.kill_at, |(at, _)| at.min(stop.kill_at)));
        match self.stage {
            Stage::Waiting => Some(self.starts_at),
            Stage::Running if self.is_aside() => {
                let killed = self.stop.as_ref().map(|stop| stop.kill_at);
                [self.aside.then, killed].into_iter().flatten().min()
            }
            Stage::Running => {
                let last = self.last_words.as_ref().map(|(at, _)| *at);
                let goes_over = self.goes_over.as_ref().map(|(at, _)| *at);
                let then = self.aside.then;
                [ends, stop, self.says_at, last, goes_over, then].into_iter().flatten().min()
            }
            Stage::Over(_) => None,
        }
    }
}

impl Machine {
    /// A machine on which nothing runs yet.
    pub fn new(seed: u64) -> Machine {
        Machine {
            dice: Dice::new(seed, 2),
            runs: BTreeMap::new(),
            ran: BTreeSet::new(),
            exits: BTreeMap::new(),
            asked_in_vain: BTreeSet::new(),
            truths: BTreeMap::new(),
            outbox: Vec::new(),
            arrived: Vec::new(),
            calm: false,
        }
    }

    /// Takes an attempt on, or says again what is known of it.
    pub fn launch(&mut self, now: u64, order: LaunchOrder) {
        let id = (order.job, order.attempt);
        if let Some(run) = self.runs.get(&id) {
            let (job, attempt) = id;
            self.outbox.extend(match &run.stage {
                Stage::Waiting => None,
                Stage::Running => Some(Report::Started { job, attempt }),
                Stage::Over(exit) => Some(Report::Ended { job, attempt, exit: exit.clone() }),
            });
            return;
        }
        if !self.ran.insert(id) {
            // The daemon may have forgotten that it knows; it must not run again all the same.
            self.asked_in_vain.insert(id);
            let exit = self.exits.get(&id).cloned();
            let exit = exit.unwrap_or(Exit { lost: true, ..Exit::default() });
            self.outbox.push(Report::Ended { job: id.0, attempt: id.1, exit });
            return;
        }
        let conduct = Conduct::of(&order);
        let run = match conduct {
            Some(conduct) => Run::conducted(now, order, conduct),
            None => self.begin(now, order),
        };
        self.runs.insert(id, run);
    }

    /// Lets the attempts of a job go on that wait for it.
    pub fn open_gate(&mut self, now: u64, job: JobId) {
        for (_, run) in self.runs.range_mut((job, Attempt(0))..=(job, Attempt(u32::MAX))) {
            if let (Some(Conduct::Waits(code)), false) = (run.conduct, run.is_over()) {
                let at = now.max(run.starts_at);
                run.ends = Some((at, Exit { code: Some(code), ..Exit::default() }));
            }
        }
    }

    fn begin(&mut self, now: u64, order: LaunchOrder) -> Run {
        let truth = self.truth(order.job);
        let starts_at = now + self.dice.between(0, 3 * SECOND);
        let left = (truth.seconds - order.resumes_from).max(0.0);
        let natural = starts_at + (left * 1e6) as u64;
        let fails = order.attempt.0 <= truth.failures && (!self.calm || self.dice.chance(300));
        let ends = if !self.calm && self.dice.chance(30) {
            let launch_error = Some("no such command".to_owned());
            Some((starts_at, Exit { launch_error, ..Exit::default() }))
        } else if fails {
            let at = starts_at + self.dice.below(natural - starts_at + 1);
            Some((at, Exit { code: Some(1), ..Exit::default() }))
        } else if !self.calm && self.dice.chance(60) {
            // It saves and asks to be started again, by itself.
            let at = starts_at + self.dice.below(natural - starts_at + 1);
            Some((at, Exit { code: Some(85), ..Exit::default() }))
        } else if truth.endless {
            None
        } else {
            return self.works_to_the_end(order, starts_at, natural, truth.seconds);
        };
        let says_at = self.dice.chance(600).then(|| starts_at + self.dice.below(5 * SECOND));
        Run { ends, says_at, ..Run::new(order, starts_at) }
    }

    /// A run that nothing happens to: some say at the end that it is one, and some fail while they clear up.
    fn works_to_the_end(
        &mut self,
        order: LaunchOrder,
        starts_at: u64,
        natural: u64,
        work: f64,
    ) -> Run {
        let dice = &mut self.dice;
        let mut last = Vec::new();
        if dice.chance(500) {
            last.push(progress(work, Some(work)));
        }
        let finished = dice.chance(500);
        if finished {
            last.push(FromJob::Finished);
        }
        let code = if finished && dice.chance(100) { 1 } else { 0 };
        let lingers = if last.is_empty() { 0 } else { dice.below(2 * SECOND) };
        let ends = Some((natural + lingers, Exit { code: Some(code), ..Exit::default() }));
        let says_at = dice.chance(600).then(|| starts_at + dice.below(5 * SECOND));
        let last_words = (!last.is_empty()).then_some((natural, last));
        Run { ends, says_at, last_words, ..Run::new(order, starts_at) }
    }

    /// What a job really is, drawn when it is first asked for.
    pub fn truth(&mut self, job: JobId) -> Truth {
        let dice = &mut self.dice;
        *self.truths.entry(job).or_insert_with(|| Truth {
            seconds: dice.between(1, 40) as f64,
            endless: dice.chance(150),
            failures: if dice.chance(250) { dice.between(1, 4) as u32 } else { 0 },
        })
    }

    /// Asks an attempt to save and exit.
    pub fn stop(&mut self, now: u64, id: (JobId, Attempt), order: &StopOrder) {
        let calm = self.calm;
        let Some(run) = self.runs.get_mut(&id) else { return };
        if run.is_over() {
            return;
        }
        if order.grace_seconds > 0.0 && run.is_aside() {
            // It cannot save where it is.
            run.aside.stop = Some(order.clone());
            run.aside.order.aside = false;
            run.aside.then = Some(now + self.dice.between(0, 3 * SECOND));
            return;
        }
        let kill_at = now + (order.grace_seconds * 1e6) as u64;
        let dice = &mut self.dice;
        let conduct = run.conduct;
        let stop = run.stop.get_or_insert_with(|| {
            let acknowledged = false;
            if let Some(conduct) = conduct {
                let leaves = leave_of(conduct).map(|leave| (now + MOMENT, leave));
                return Stop { asked_at: now, kill_at, leaves, acknowledged };
            }
            let ignores = !calm && dice.chance(200);
            let leave = drawn_leave(dice);
            let leaves = (!ignores).then_some((now + dice.between(0, 4 * SECOND), leave));
            Stop { asked_at: now, kill_at, leaves, acknowledged }
        });
        stop.kill_at = stop.kill_at.min(kill_at);
    }

    /// Tells an attempt of other GPUs. Some never go over to them.
    pub fn resize(&mut self, now: u64, id: (JobId, Attempt), order: &ResizeOrder) {
        let Some(run) = self.runs.get_mut(&id).filter(|run| !run.is_over()) else { return };
        let hears = self.dice.chance(700);
        let at = now.max(run.starts_at) + self.dice.between(0, 5 * SECOND);
        run.goes_over = hears.then(|| (at, order.devices.clone()));
        // It begins on those that it gets before it leaves those that it has.
        let more = order.devices.iter().map(|device| index_of(device));
        let new: Vec<u8> = more.filter(|gpu| !run.order.gpus.contains(gpu)).collect();
        run.order.gpus.extend(new);
    }

    /// Puts an attempt aside or brings it back; some cannot be put aside.
    pub fn put_aside(&mut self, now: u64, id: (JobId, Attempt), order: &AsideOrder) {
        let Some(run) = self.runs.get_mut(&id).filter(|run| !run.is_over()) else { return };
        let own = &run.aside.order;
        if (own.number, !own.aside) >= (order.number, !order.aside) || run.stop.is_some() {
            return;
        }
        run.aside.order = order.clone();
        run.aside.refused = None;
        run.aside.then = Some(now.max(run.starts_at) + self.dice.between(0, 4 * SECOND));
    }

    /// What was ordered last is done, or is not to be.
    fn obey_aside(&mut self, now: u64, (job, attempt): (JobId, Attempt)) {
        let (calm, dice) = (self.calm, &mut self.dice);
        let run = self.runs.get_mut(&(job, attempt)).expect("known");
        run.aside.then = None;
        match (run.aside.order.aside, run.is_aside()) {
            (true, false) if dice.chance(if calm { 50 } else { 200 }) => {
                run.aside.refused = Some("no process of it uses the GPU yet".to_owned());
            }
            (true, false) => run.aside.since = Some(now),
            (false, true) => run.come_back(now),
            (true, true) | (false, false) => {}
        }
        run.aside.told = true;
        let seen = run.aside_seen();
        let stop = run.aside.stop.take();
        self.outbox.push(Report::Aside { job, attempt, seen });
        if let Some(stop) = stop {
            self.stop(now, (job, attempt), &stop);
        }
    }

    /// Drops what is kept about an attempt that ended.
    pub fn forget(&mut self, id: (JobId, Attempt)) {
        if self.runs.get(&id).is_some_and(Run::is_over) {
            self.runs.remove(&id);
        }
    }

    /// Everything it knows.
    pub fn list_attempts(&mut self) -> Vec<Found> {
        for ((job, attempt), run) in &self.runs {
            if run.aside.told && !run.is_over() {
                let (job, attempt, seen) = (*job, *attempt, run.aside_seen());
                self.outbox.push(Report::Aside { job, attempt, seen });
            }
        }
        let found = |(id, run): (&(JobId, Attempt), &Run)| {
            let (job, attempt) = *id;
            match &run.stage {
                Stage::Waiting => Found::Running { job, attempt, started: false },
                Stage::Running => Found::Running { job, attempt, started: true },
                Stage::Over(exit) => Found::Ended { job, attempt, exit: exit.clone() },
            }
        };
        let mut all: Vec<Found> = self.runs.iter().map(found).collect();
        for index in (1..all.len()).rev() {
            all.swap(index, self.dice.below(index as u64 + 1) as usize);
        }
        all
    }

    /// The machine starts anew: no process is left. Of some attempts it is still known that they ran.
    pub fn reboot(&mut self) {
        let (dice, exits) = (&mut self.dice, &mut self.exits);
        self.runs.retain(|id, run| {
            if run.is_over() {
                return true;
            }
            let exit = Exit { lost: true, ..run.told.exit() };
            run.stage = Stage::Over(exit.clone());
            let known = dice.chance(500);
            if known {
                exits.insert(*id, exit);
            }
            known
        });
    }

    /// The next moment at which something happens by itself.
    pub fn next(&self) -> Option<u64> {
        self.runs.values().filter_map(Run::next).min()
    }

    /// Lets everything happen that happens until `now`.
    pub fn advance(&mut self, now: u64) {
        let ids: Vec<(JobId, Attempt)> = self.runs.keys().copied().collect();
        for id in ids {
            while self.runs[&id].next().is_some_and(|at| at <= now) {
                self.happen(id);
            }
        }
    }

    fn happen(&mut self, (job, attempt): (JobId, Attempt)) {
        let dice = &mut self.dice;
        let run = self.runs.get_mut(&(job, attempt)).expect("known");
        let now = run.next().expect("something happens");
        if matches!(run.stage, Stage::Waiting) {
            run.stage = Stage::Running;
            let failed = run.ends.as_ref().is_some_and(|(_, exit)| exit.launch_error.is_some());
            if !failed {
                self.outbox.push(Report::Started { job, attempt });
            }
            return;
        }
        if run.aside.then.is_some_and(|at| at <= now) {
            return self.obey_aside(now, (job, attempt));
        }
        let killed = run.stop.as_ref().filter(|stop| stop.kill_at <= now);
        if let (true, Some(_)) = (run.is_aside(), killed) {
            // Nothing else of it happens any more.
            (run.ends, run.last_words) = (None, None);
            if let Some(stop) = &mut run.stop {
                stop.leaves = None;
            }
        }
        let killed = run.stop.as_ref().filter(|stop| stop.kill_at <= now);
        let left = run.stop.as_ref().and_then(|stop| stop.leaves).filter(|(at, _)| *at <= now);
        let by_itself =
            run.ends.as_ref().filter(|(at, _)| *at <= now).map(|(_, exit)| exit.clone());
        let exit = match (by_itself, left, killed) {
            (Some(exit), _, _) => {
                if exit.code == Some(run.order.checkpoint.exit_code) {
                    run.told.note_saved(None);
                }
                exit
            }
            (_, Some((_, leave)), _) => run.leave(now, leave),
            (_, _, Some(stop)) => {
                Exit { signal: Some(9), killed: !stop.acknowledged, ..Exit::default() }
            }
            (None, None, None) => {
                let said = run.go_over(now).unwrap_or_else(|| run.speak(now, dice));
                self.outbox.extend(said.into_iter().map(|message| {
                    let sample = sample(&message);
                    Report::Said { job, attempt, sample, message }
                }));
                return;
            }
        };
        let stopped = run.stop.as_ref().map(|stop| (now - stop.asked_at) as f64 / 1e6);
        let exit = Exit {
            asked_to_stop: stopped.is_some(),
            acknowledged: Some(run.stop.as_ref().is_some_and(|stop| stop.acknowledged)),
            code: exit.code,
            signal: exit.signal,
            killed: exit.killed,
            launch_error: exit.launch_error,
            save_seconds: stopped,
            start_seconds: run.told.done.map(|_| 0.5),
            ran_seconds: now.saturating_sub(run.starts_at) as f64 / 1e6,
            ..run.told.exit()
        };
        run.stage = Stage::Over(exit.clone());
        self.exits.insert((job, attempt), exit.clone());
        self.outbox.push(Report::Ended { job, attempt, exit });
    }
}

/// How a job leaves that was not told how to behave.
fn drawn_leave(dice: &mut Dice) -> Leave {
    let leave = match dice.below(10) {
        0..4 => Leave::with(85),
        4..7 => Leave::with(0),
        7 => Leave::with(1),
        _ => Leave::by_signal(),
    };
    let says = *dice.pick(&[Saved::Untold, Saved::Untold, Saved::Somehow, Saved::All, Saved::All]);
    Leave { says, ..leave }
}

/// How a job leaves that does what it is told to.
fn leave_of(conduct: Conduct) -> Option<Leave> {
    match conduct {
        Conduct::Saves(code) | Conduct::SavedBefore(code) => Some(Leave::with(code)),
        Conduct::AcknowledgesAndExits(code) => {
            Some(Leave { says: Saved::Somehow, ..Leave::with(code) })
        }
        // It says what it saved and is ended, early.
        Conduct::Acknowledges(work) => {
            let says = Saved::Work(f64::from(work));
            Some(Leave { signal: Some(9), says, ..Leave::by_signal() })
        }
        // The rank that does not save ends by the signal, and first.
        Conduct::OneRankSaves(_) => Some(Leave { says: Saved::Somehow, ..Leave::by_signal() }),
        Conduct::Ignores => None,
        Conduct::Exits(_)
        | Conduct::Dies(_)
        | Conduct::Waits(_)
        | Conduct::Restores
        | Conduct::CannotStart
        | Conduct::OneRankFails(_) => Some(Leave::by_signal()),
    }
}

/// The GPU that a process is told of by this name.
fn index_of(device: &str) -> u8 {
    device.strip_prefix("GPU-").and_then(|index| index.parse().ok()).expect("GPUs have indices")
}

fn progress(of_all: f64, of: Option<f64>) -> FromJob {
    let mut message = FromJob::no_progress();
    if let FromJob::Progress { done, rate, total, .. } = &mut message {
        (*done, *rate, *total) = (Some(of_all), Some(1.0), of);
    }
    message
}

impl Run {
    fn new(order: LaunchOrder, starts_at: u64) -> Run {
        Run {
            order,
            conduct: None,
            stage: Stage::Waiting,
            starts_at,
            ends: None,
            says_at: None,
            last_words: None,
            told: Told::default(),
            goes_over: None,
            stop: None,
            aside: Aside::default(),
        }
    }

    /// An attempt that does what it is told to.
    fn conducted(now: u64, order: LaunchOrder, conduct: Conduct) -> Run {
        let starts_at = now + MOMENT;
        let after = |exit: Exit| Some((starts_at + MOMENT, exit));
        let exits = |code: i32| after(Exit { code: Some(code), ..Exit::default() });
        let ends = match conduct {
            Conduct::Exits(code) | Conduct::OneRankFails(code) => exits(code),
            Conduct::Restores => exits(if order.restores() { 0 } else { 3 }),
            Conduct::Dies(signal) => after(Exit { signal: Some(signal), ..Exit::default() }),
            Conduct::CannotStart => {
                let launch_error = Some("no such command".to_owned());
                Some((starts_at, Exit { launch_error, ..Exit::default() }))
            }
            Conduct::Waits(_)
            | Conduct::Saves(_)
            | Conduct::SavedBefore(_)
            | Conduct::Acknowledges(_)
            | Conduct::AcknowledgesAndExits(_)
            | Conduct::OneRankSaves(_)
            | Conduct::Ignores => None,
        };
        let mut run = Run { conduct: Some(conduct), ends, ..Run::new(order, starts_at) };
        if let Conduct::SavedBefore(_) = conduct {
            run.told.note_saved(None);
        }
        run
    }

    /// It answers a request to stop.
    fn leave(&mut self, now: u64, leave: Leave) -> Exit {
        let saves = leave.code == Some(self.order.checkpoint.exit_code);
        let work = match leave.says {
            Saved::Untold | Saved::Somehow => None,
            Saved::All => Some(self.done(now)),
            Saved::Work(work) => Some(work),
        };
        if saves || leave.says != Saved::Untold {
            self.told.note_saved(work);
            self.acknowledge(now);
        }
        Exit { code: leave.code, signal: leave.signal, ..Exit::default() }
    }

    /// It says that it saved: if it was asked to, what is left of it is ended soon.
    fn acknowledge(&mut self, now: u64) {
        if let Some(stop) = &mut self.stop {
            stop.acknowledged = true;
            stop.kill_at = stop.kill_at.min(now + SECOND);
        }
    }

    /// It uses other GPUs from now on, and says so.
    fn go_over(&mut self, now: u64) -> Option<Vec<FromJob>> {
        let (_, devices) = self.goes_over.take_if(|(at, _)| *at <= now)?;
        self.order.gpus = devices.iter().map(|device| index_of(device)).collect();
        Some(vec![FromJob::Resized { devices }])
    }

    /// What it says now.
    fn speak(&mut self, now: u64, dice: &mut Dice) -> Vec<FromJob> {
        let last = self.last_words.take_if(|(at, _)| *at <= now);
        let said = last.map_or_else(|| vec![self.say(now, dice)], |(_, words)| words);
        for message in &said {
            self.told.note(message);
            if let FromJob::Saved { .. } = message {
                self.acknowledge(now);
            }
        }
        said
    }

    fn say(&mut self, now: u64, dice: &mut Dice) -> FromJob {
        let done = self.done(now);
        self.says_at = Some(now + dice.between(2 * SECOND, 9 * SECOND));
        if self.ends.is_none() && dice.chance(300) {
            // An endless job that went on talking would keep the case busy.
            self.says_at = None;
        }
        if dice.chance(300) {
            FromJob::Saved { done, seconds: Some(0.1) }
        } else {
            progress(done, None)
        }
    }
}
