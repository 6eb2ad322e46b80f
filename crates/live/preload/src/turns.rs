//! Turns on the GPU: asking, watching, draining, giving back.

use crate::driver::{self, NOT_PERMITTED, Status};
use crate::gate::{Gate, Passage};
use crate::job::{self, Job, OnLost, lock};
use crate::link::{Link, unexpected};
use crate::pauses::Pauses;
use crate::system;
use std::cell::Cell;
use std::ffi::c_void;
use std::io::Error;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;
use trainyard_token::{FOREVER, FromProgram, ToProgram};

/// A program that gives the GPU nothing for so long is looked at: when its work is done and nothing follows soon, its
/// turn goes back (Gemini merges bursts that are closer).
const IDLE_US: u64 = 2_000;
/// The time between two looks at whether the program goes on.
const LOOK_US: u64 = 200;
/// Tries to pass before a launch goes through anyway: turns shorter than a launch must not hang a program.
const TRIES: u32 = 64;
/// The longest wait for those inside the gate; a launch can wait for a full queue of long kernels.
const SHUT_WAITS: u32 = 600_000;

thread_local! {
    /// Whether this thread is inside the gate: calls that the driver makes to itself pass.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The turns of one process.
#[derive(Default)]
pub struct Turns {
    gate: Gate,
    state: Mutex<State>,
    /// A turn has begun, or the process ends.
    began: Condvar,
    /// The context that last asked for a turn: what is to be drained.
    context: AtomicPtr<c_void>,
    /// Streams whose work is recorded and not done; waiting for the GPU would spoil the record.
    captures: AtomicU32,
    /// Threads that are about to launch and wait for the GPU or for a turn.
    asking: AtomicU32,
    pauses: Pauses,
    /// When the GPU was last waited for.
    pace: Mutex<u64>,
    is_ending: AtomicBool,
    /// Whether the watcher is about to call the driver or is in it.
    is_draining: AtomicBool,
}

#[derive(Default)]
struct State {
    link: Option<Link>,
    hold: Option<Hold>,
    is_lost: bool,
    has_watcher: bool,
}

#[derive(Copy, Clone, Debug)]
struct Hold {
    token: u64,
    quota: u64,
    until: u64,
}

/// Does a call of the driver that gives the GPU work, within a turn.
pub fn pass(call: impl FnOnce() -> Status) -> Status {
    let Some(job) = job::get() else { return call() };
    if INSIDE.get() || job.turns.captures.load(Ordering::Acquire) > 0 {
        return call();
    }
    match job.turns.enter(job) {
        Err(status) => status,
        Ok(is_counted) => {
            INSIDE.set(true);
            let status = call();
            INSIDE.set(false);
            if is_counted {
                job.turns.gate.leave();
            }
            status
        }
    }
}

/// Begins to record a stream: the turn is given back before, for the GPU cannot be waited for meanwhile.
pub fn begin_capture(call: impl FnOnce() -> Status) -> Status {
    let Some(job) = job::get() else { return call() };
    let turns = &job.turns;
    if turns.captures.fetch_add(1, Ordering::SeqCst) == 0 {
        let mut state = lock(&turns.state);
        if let Some((hold, drain)) = turns.finish(job, &mut state, driver::context()) {
            turns.give_back(&mut state, hold, drain);
        }
    }
    turns.wait_for_watcher();
    let status = call();
    if status != driver::SUCCESS {
        turns.captures.fetch_sub(1, Ordering::AcqRel);
    }
    status
}

/// Ends the record of a stream, however it ended.
pub fn end_capture(call: impl FnOnce() -> Status) -> Status {
    let status = call();
    if let Some(job) = job::get() {
        let less = |count: u32| count.checked_sub(1);
        let _ = job.turns.captures.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }
    status
}

impl Turns {
    /// Waits for a turn. True where one is inside the gate now, false where one passes beside it.
    fn enter(&self, job: &'static Job) -> Result<bool, Status> {
        for _ in 0..TRIES {
            match self.gate.enter(job.now()) {
                Passage::Inside => return Ok(true),
                Passage::Ahead => self.asked(|| self.keep_pace(job))?,
                Passage::Shut => self.asked(|| self.ask(job))?,
            }
        }
        Ok(false)
    }

    fn asked(&self, wait: impl FnOnce() -> Result<(), Status>) -> Result<(), Status> {
        self.asking.fetch_add(1, Ordering::SeqCst);
        let result = wait();
        self.asking.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Asks for a turn and waits for it; other threads that need one wait for this.
    fn ask(&self, job: &'static Job) -> Result<(), Status> {
        let mut state = lock(&self.state);
        if self.captures.load(Ordering::Acquire) > 0 {
            return Ok(());
        }
        // Another thread may have been first; what is left of its turn must be worth it.
        if self.gate.is_open(job.now()) {
            return Ok(());
        }
        if state.is_lost {
            return self.without(job, &unexpected());
        }
        self.pauses.asked(job.now());
        let over = self.finish(job, &mut state, driver::context());
        match self.turn(job, &mut state, over) {
            Ok(hold) if hold.quota == FOREVER => {
                self.gate.open_forever();
                Ok(())
            }
            Ok(hold) => {
                self.context.store(driver::context(), Ordering::Release);
                *lock(&self.pace) = job.now();
                self.gate.open(job.now(), hold.quota);
                state.hold = Some(hold);
                self.began.notify_one();
                self.watch(job, &mut state);
                Ok(())
            }
            Err(error) => {
                state.is_lost = true;
                state.link = None;
                self.without(job, &error)
            }
        }
    }

    /// The next turn, after that which is `over` and how long it drained.
    fn turn(&self, job: &Job, state: &mut State, over: Option<(Hold, u64)>) -> Result<Hold, Error> {
        if state.link.is_none() {
            state.link = Some(job.connect_turns()?);
        }
        let link = state.link.as_mut().ok_or_else(unexpected)?;
        link.say(match over {
            None => FromProgram::Want,
            Some((hold, drain_us)) => FromProgram::Renew { token: hold.token, drain_us },
        })?;
        match link.hear()? {
            ToProgram::Granted { token, quota_us } => {
                Ok(Hold { token, quota: quota_us, until: job.now().saturating_add(quota_us) })
            }
            _ => Err(unexpected()),
        }
    }

    /// There is no arbiter.
    fn without(&self, job: &Job, error: &Error) -> Result<(), Status> {
        match job.lost(error) {
            OnLost::GoOn => {
                self.gate.open_forever();
                Ok(())
            }
            OnLost::Stop => Err(NOT_PERMITTED),
        }
    }

    /// Waits for the GPU, so that a turn can end soon after its quota. The gate stays open.
    fn keep_pace(&self, job: &Job) -> Result<(), Status> {
        let mut before = lock(&self.pace);
        if !self.gate.is_ahead() {
            return Ok(());
        }
        let launches = self.gate.ahead();
        driver::synchronize();
        let now = job.now();
        let quota = self.gate.open_until().saturating_sub(now);
        self.gate.paced(now.saturating_sub(*before), launches, quota.max(1_000));
        *before = now;
        Ok(())
    }

    /// Ends the turn, if there is one: shuts the gate and drains the GPU. Says which it was and how long that took.
    fn finish(&self, job: &Job, state: &mut State, context: driver::Opaque) -> Option<(Hold, u64)> {
        let hold = state.hold.take()?;
        self.gate.shut();
        let mut waits = 0;
        while !self.gate.is_empty() && waits < SHUT_WAITS {
            waits += 1;
            std::thread::sleep(Duration::from_micros(100));
        }
        let before = job.now();
        // The watcher has no context of its own; a thread of the program may have another one, or none.
        let drained = self.context.load(Ordering::Acquire);
        if context != drained {
            driver::set_context(drained);
        }
        driver::synchronize();
        if context != drained && !context.is_null() {
            driver::set_context(context);
        }
        Some((hold, job.now().saturating_sub(before)))
    }

    fn give_back(&self, state: &mut State, hold: Hold, drain_us: u64) {
        let message = FromProgram::Return { token: hold.token, drain_us };
        // An arbiter that is gone is found by the next question.
        let _ = state.link.as_ref().map(|link| link.say(message));
    }

    /// Starts the thread that ends turns which their program does not use or does not end.
    fn watch(&self, job: &'static Job, state: &mut State) {
        if state.has_watcher {
            return;
        }
        let work = || job.turns.watcher(job);
        let builder = std::thread::Builder::new().name("gpu-turns".to_owned());
        state.has_watcher =
            system::without_signals(|| builder.stack_size(256 << 10).spawn(work)).is_ok();
    }

    fn watcher(&self, job: &Job) {
        while !self.is_ending.load(Ordering::SeqCst) {
            let mut state = lock(&self.state);
            while state.hold.is_none() && !self.is_ending.load(Ordering::SeqCst) {
                state = self.began.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let Some(hold) = state.hold else { return };
            drop(state);
            self.look_after(job, hold);
        }
    }

    /// Waits until the turn is over by its quota or unused, and ends it; or until its program has ended it.
    fn look_after(&self, job: &Job, hold: Hold) {
        let now = job.now();
        // Also past the quota: a program that launches on asks for its next turn when it gives this one back.
        let wait = self.gate.last().saturating_add(IDLE_US).saturating_sub(now);
        let wait = if self.asking.load(Ordering::SeqCst) > 0 { IDLE_US } else { wait };
        if wait > 0 {
            std::thread::sleep(Duration::from_micros(wait));
            return;
        }
        self.is_draining.store(true, Ordering::SeqCst);
        let is_recording = self.captures.load(Ordering::SeqCst) > 0;
        if !self.is_ending.load(Ordering::SeqCst) && !is_recording {
            self.end_unused(job, hold);
        }
        self.is_draining.store(false, Ordering::SeqCst);
    }

    /// Waits for the GPU with the gate as it is, and then for the program; gives back if nothing was launched meanwhile.
    fn end_unused(&self, job: &Job, hold: Hold) {
        let passed = self.gate.passed();
        driver::set_context(self.context.load(Ordering::Acquire));
        let before = job.now();
        driver::synchronize();
        let idle_since = job.now();
        if self.goes_on(job, (passed, idle_since)) {
            return;
        }
        let mut state = lock(&self.state);
        if state.hold.is_none_or(|present| present.token != hold.token) {
            return;
        }
        self.gate.shut();
        if self.gate.is_empty() && self.gate.passed() == passed {
            state.hold = None;
            self.pauses.gave_back(idle_since);
            self.give_back(&mut state, hold, idle_since.saturating_sub(before));
        } else {
            self.gate.reopen(hold.until);
        }
    }

    /// Whether the program launches again so soon that its turn goes on, or that it asks for the next one itself: also
    /// past the quota, for giving back and asking are one message.
    fn goes_on(&self, job: &Job, (passed, idle_since): (u64, u64)) -> bool {
        let until = idle_since.saturating_add(self.pauses.patience());
        loop {
            if self.gate.passed() != passed {
                self.pauses.ended(self.gate.last().saturating_sub(idle_since));
                return true;
            }
            if self.asking.load(Ordering::SeqCst) > 0 {
                return true;
            }
            let is_over = job.now() >= until || self.captures.load(Ordering::SeqCst) > 0;
            if is_over || self.is_ending.load(Ordering::SeqCst) {
                return false;
            }
            std::thread::sleep(Duration::from_micros(LOOK_US));
        }
    }

    /// The process exits: the watcher is kept from the driver, which goes now.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        self.wait_for_watcher();
    }

    /// Waits until the watcher is out of the driver, for two seconds at most.
    fn wait_for_watcher(&self) {
        for _ in 0..20_000 {
            if !self.is_draining.load(Ordering::SeqCst) {
                return;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}
