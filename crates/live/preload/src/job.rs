//! The job that this process belongs to: its connections and what it has.

use crate::driver::{NOT_PERMITTED, OUT_OF_MEMORY, Status};
use crate::ledger::Ledger;
use crate::link::{Link, unexpected};
use crate::system;
use crate::turns::Turns;
use std::io::{Error, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use trainyard_token::{FromProgram, NO_CAP, ToProgram};

/// What to do when the arbiter is gone.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum OnLost {
    /// Launches go on without turns; what this process may allocate stays as it was told.
    GoOn,
    /// Launches and allocations get `CUDA_ERROR_NOT_PERMITTED`.
    Stop,
}

/// One process of a job on a shared GPU.
pub struct Job {
    socket: PathBuf,
    on_lost: OnLost,
    start: Instant,
    memory: Mutex<Memory>,
    ledger: Mutex<Ledger>,
    was_told: AtomicBool,
    /// Its turns on the GPU.
    pub turns: Turns,
}

struct Memory {
    link: Option<Link>,
    is_lost: bool,
    cap: u64,
    reserved: u64,
}

/// Descriptors of the connections for memory and for turns, for a child that must close them.
static NOTES: [AtomicI32; 2] = [AtomicI32::new(-1), AtomicI32::new(-1)];
static JOB: AtomicPtr<Job> = AtomicPtr::new(std::ptr::null_mut());
static MAKING: AtomicBool = AtomicBool::new(false);
/// Whether the environment names a socket: 0 is not known yet, 1 no, 2 yes.
static WANTED: AtomicU8 = AtomicU8::new(0);

/// Whether this process is to be held to anything.
pub fn is_wanted() -> bool {
    match WANTED.load(Ordering::Relaxed) {
        0 => {
            let path = system::variable(c"TRAINYARD_SHARING_SOCKET");
            let is_wanted = path.is_some_and(|path| !path.is_empty());
            WANTED.store(if is_wanted { 2 } else { 1 }, Ordering::Relaxed);
            is_wanted
        }
        known => known == 2,
    }
}

/// The job of this process, if it is one on a shared GPU.
pub fn get() -> Option<&'static Job> {
    if !is_wanted() {
        return None;
    }
    let known = JOB.load(Ordering::Acquire);
    if known.is_null() { make() } else { shared(known) }
}

/// Made once for each process; others wait meanwhile.
fn make() -> Option<&'static Job> {
    while MAKING.swap(true, Ordering::Acquire) {
        std::thread::yield_now();
    }
    let mut known = JOB.load(Ordering::Acquire);
    if known.is_null() {
        let socket = system::variable(c"TRAINYARD_SHARING_SOCKET").unwrap_or_default();
        let stops = system::variable(c"TRAINYARD_SHARING_LOST").is_some_and(|word| word == "stop");
        let job = Job {
            socket: PathBuf::from(socket),
            on_lost: if stops { OnLost::Stop } else { OnLost::GoOn },
            start: Instant::now(),
            memory: Mutex::new(Memory { link: None, is_lost: false, cap: NO_CAP, reserved: 0 }),
            ledger: Mutex::default(),
            was_told: AtomicBool::new(false),
            turns: Turns::default(),
        };
        // Never freed: threads of the program may be in it at any moment, also while the process ends.
        known = Box::into_raw(Box::new(job));
        JOB.store(known, Ordering::Release);
        static REGISTERED: AtomicBool = AtomicBool::new(false);
        if !REGISTERED.swap(true, Ordering::Relaxed) {
            system::at_fork_in_child(forked);
            system::at_exit(exiting);
        }
    }
    MAKING.store(false, Ordering::Release);
    shared(known)
}

#[allow(unsafe_code)]
fn shared(job: *mut Job) -> Option<&'static Job> {
    // SAFETY: it is null or was made by `make` and is never freed; all of it is shared by reference only.
    unsafe { job.cast_const().as_ref() }
}

/// A child has nothing of its parent's turns and memory. It makes connections of its own when it needs them. What the
/// parent had is left as it is, for another thread may have been at it.
extern "C" fn forked() {
    JOB.store(std::ptr::null_mut(), Ordering::Release);
    MAKING.store(false, Ordering::Release);
    for note in &NOTES {
        // The arbiter would not hear of the parent's end while a copy is open.
        let descriptor = note.swap(-1, Ordering::AcqRel);
        if descriptor >= 0 {
            system::close(descriptor);
        }
    }
}

/// The driver is about to go.
extern "C" fn exiting() {
    if let Some(job) = shared(JOB.load(Ordering::Acquire)) {
        job.turns.end();
    }
}

/// A lock that no panic of ours can have broken.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Job {
    /// Microseconds since this was made, and a little more, so that none is zero.
    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// The connection for turns.
    pub fn connect_turns(&self) -> Result<Link, Error> {
        Link::open(&self.socket, &NOTES[1])?.patient()
    }

    /// What is allocated.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// May `bytes` more be allocated?
    pub fn reserve(&self, bytes: u64) -> Result<(), Status> {
        let mut memory = lock(&self.memory);
        let asked = self.ask(&mut memory, FromProgram::Reserve { bytes });
        match asked {
            Ok(ToProgram::Reserved { .. }) => {}
            Ok(_) => return Err(OUT_OF_MEMORY),
            Err(()) => {
                if self.on_lost == OnLost::Stop {
                    return Err(NOT_PERMITTED);
                }
                let sum = memory.reserved.checked_add(bytes);
                if sum.is_none_or(|sum| sum > memory.cap) {
                    return Err(OUT_OF_MEMORY);
                }
            }
        }
        memory.reserved += bytes;
        Ok(())
    }

    /// `bytes` were freed.
    pub fn release(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut memory = lock(&self.memory);
        memory.reserved = memory.reserved.saturating_sub(bytes);
        let said = memory.link.as_ref().map(|link| link.say(FromProgram::Release { bytes }));
        if let Some(Err(error)) = said {
            self.lose_memory(&mut memory, &error);
        }
    }

    /// The cap and what is used of it; nothing where there is no cap.
    pub fn cap_and_used(&self) -> Option<(u64, u64)> {
        let mut memory = lock(&self.memory);
        let used = match self.ask(&mut memory, FromProgram::Usage) {
            Ok(ToProgram::Used { used }) => used,
            Ok(_) | Err(()) => memory.reserved,
        };
        (memory.cap != NO_CAP).then_some((memory.cap, used))
    }

    /// Says on the standard error stream, once, that the arbiter is gone, and what follows.
    pub fn lost(&self, error: &Error) -> OnLost {
        if !self.was_told.swap(true, Ordering::Relaxed) {
            let then = match self.on_lost {
                OnLost::GoOn => "going on without turns",
                OnLost::Stop => "refusing further work, as TRAINYARD_SHARING_LOST=stop wants",
            };
            let socket = self.socket.display();
            // A program may have closed the stream.
            let _ = writeln!(
                std::io::stderr(),
                "trainyard: no arbiter of this GPU at {socket} ({error}): {then}"
            );
        }
        self.on_lost
    }

    /// One answer about memory, or nothing where the arbiter is gone.
    fn ask(&self, memory: &mut Memory, message: FromProgram) -> Result<ToProgram, ()> {
        if memory.is_lost {
            return Err(());
        }
        if memory.link.is_none() {
            match Link::open(&self.socket, &NOTES[0]) {
                Ok(link) => {
                    memory.cap = link.memory_cap;
                    memory.link = Some(link);
                }
                Err(error) => {
                    self.lose_memory(memory, &error);
                    return Err(());
                }
            }
        }
        let Some(link) = &mut memory.link else { return Err(()) };
        let answer = link.say(message).and_then(|()| link.hear());
        let answer = answer.and_then(|answer| match answer {
            ToProgram::Welcome { .. } | ToProgram::Granted { .. } => Err(unexpected()),
            fitting => Ok(fitting),
        });
        answer.map_err(|error| self.lose_memory(memory, &error))
    }

    fn lose_memory(&self, memory: &mut Memory, error: &Error) {
        memory.is_lost = true;
        memory.link = None;
        self.lost(error);
    }
}
