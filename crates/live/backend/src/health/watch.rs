//! The thread that reads.
//!
//! It has nothing to do with the thread that runs jobs but two channels: a call into a driver whose GPU is dying may
//! take for ever.

use super::judge::Judge;
use super::nvml::{self, Heard, Reader};
use super::{GpuSeen, HealthOptions, Reading};
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

/// How long one wait for error numbers is: what is asked for meanwhile waits that long.
const TICK: Duration = Duration::from_millis(100);

/// What the thread found, and up to which question.
#[derive(Debug)]
pub(crate) struct Look {
    /// What is new about GPUs.
    pub(crate) gpus: Vec<GpuSeen>,
    /// Every question up to this one is answered.
    pub(crate) answers: u64,
    /// What an operator should know of the thread itself.
    pub(crate) notice: Option<String>,
}

/// Starts the thread. It ends when no sender can ask any more, or the receiver cannot be told.
pub(crate) fn start(
    options: HealthOptions,
    asks: Receiver<u64>,
    tell: impl Fn(Look) -> bool + Send + 'static,
) -> std::io::Result<()> {
    let work = move || {
        let tell = |look: Look| tell(look).then_some(());
        let _ = watch(&options, &asks, &tell);
    };
    thread::Builder::new().name("gpu-health".to_owned()).spawn(work).map(drop)
}

/// Watches until it is over. Asks count up.
fn watch(
    options: &HealthOptions,
    asks: &Receiver<u64>,
    tell: &impl Fn(Look) -> Option<()>,
) -> Option<()> {
    let nvml = nvml::load(options.library.as_deref()).ok()?;
    let reader = Reader::new(&nvml);
    if reader.gpus() == 0 {
        return None;
    }
    let set = match reader.hear() {
        Ok(set) => Some(set),
        Err(error) => {
            let notice = format!("Xid errors of GPUs cannot be heard: {error}; counters are read");
            let look = Look { gpus: Vec::new(), answers: 0, notice: Some(notice) };
            tell(look)?;
            None
        }
    };
    let began = Instant::now();
    let mut rounds = Rounds { judge: Judge::new(options.rules.clone()), last: Vec::new() };
    let (mut read_at, mut answered): (Option<Instant>, u64) = (None, 0);
    loop {
        let heard = match &set {
            Some(set) => reader.xids(set, TICK.as_millis() as u32),
            None => Heard { ended_early: true, ..Heard::default() },
        };
        if heard.ended_early {
            thread::sleep(TICK);
        }
        let mut asked = answered;
        loop {
            match asks.try_recv() {
                Ok(number) => asked = number,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Some(()),
            }
        }
        let due = read_at.is_none_or(|at| at.elapsed() >= options.every);
        if !due && asked == answered && heard.xids.is_empty() {
            continue;
        }
        let readings = reader.read();
        let gpus = rounds.look(began.elapsed(), &readings, &heard.xids);
        *options.readings.lock().unwrap_or_else(PoisonError::into_inner) = readings;
        read_at = Some(Instant::now());
        if !gpus.is_empty() || asked != answered {
            answered = asked;
            tell(Look { gpus, answers: answered, notice: None })?;
        }
    }
}

struct Rounds {
    judge: Judge,
    /// As it was told.
    last: Vec<GpuSeen>,
}

impl Rounds {
    /// Judges all, and says what is new.
    fn look(&mut self, at: Duration, readings: &[Reading], xids: &[(String, u64)]) -> Vec<GpuSeen> {
        let mut now = Vec::new();
        for reading in readings {
            let own = xids.iter().filter(|(uuid, _)| *uuid == reading.uuid);
            let own: Vec<u64> = own.map(|(_, number)| *number).collect();
            now.push(self.judge.look(at, reading, &own));
        }
        let is_new = |seen: &&GpuSeen| {
            let before = self.last.iter().find(|other| other.uuid == seen.uuid);
            // All are told of at first, so that what stood before this start and is over is known to be.
            !seen.happened.is_empty() || before.is_none_or(|before| !same(before, seen))
        };
        let news = now.iter().filter(is_new).cloned().collect();
        self.last = now;
        news
    }
}

/// Whether the same findings stand, whatever the numbers in them.
fn same(before: &GpuSeen, seen: &GpuSeen) -> bool {
    let codes = |seen: &GpuSeen| -> Vec<String> {
        seen.stands.iter().map(|finding| finding.code.clone()).collect()
    };
    codes(before) == codes(seen)
}
