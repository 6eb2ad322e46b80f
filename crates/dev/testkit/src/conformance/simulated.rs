//! The simulated machine as a backend: in a time of its own, or beside a daemon in the time of the wall.

use super::arm::Arm;
use crate::machine::Machine;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trainyard_backend::{Backend, Found, Order, Report};
use trainyard_types::{Attempt, JobId};

/// How long a pause is, in microseconds.
const MOMENT: u64 = 20_000;

/// How its time passes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// From event to event, whenever a caller waits for one.
    Jumps,
    /// As on the wall.
    Flows(Instant),
}

/// The machine and its time, shared by all that look at it.
#[derive(Debug)]
struct Yard {
    machine: Machine,
    now: u64,
    pacing: Pacing,
    reports: Sender<Report>,
}

impl Yard {
    /// Lets happen what happens until now, or until the next thing does.
    fn pass(&mut self, jump: bool) {
        match self.pacing {
            Pacing::Jumps if jump => {
                self.now = self.machine.next().unwrap_or(self.now).max(self.now)
            }
            Pacing::Jumps => {}
            Pacing::Flows(begun) => self.now = begun.elapsed().as_micros() as u64,
        }
        self.machine.advance(self.now);
        for report in self.machine.outbox.drain(..) {
            // No receiver is there while the daemon is down.
            let _ = self.reports.send(report);
        }
    }
}

/// The simulated backend. Clones are handles on the same machine, as each start of a daemon gets one.
#[derive(Clone, Debug)]
struct Handle(Arc<Mutex<Yard>>);

impl Handle {
    fn yard(&self) -> MutexGuard<'_, Yard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for Handle {
    fn obey(&mut self, order: Order) {
        let mut yard = self.yard();
        match order {
            Order::Launch(order) => {
                yard.pass(false);
                let now = yard.now;
                yard.machine.launch(now, *order);
                yard.pass(false);
            }
            Order::Stop(job, attempt, order) => {
                yard.pass(false);
                let now = yard.now;
                yard.machine.stop(now, (job, attempt), &order);
            }
            Order::Aside(job, attempt, order) => {
                yard.pass(false);
                let now = yard.now;
                yard.machine.put_aside(now, (job, attempt), &order);
            }
            Order::Forget(job, attempt) => yard.machine.forget((job, attempt)),
            Order::SetBatch(..) | Order::Resize(..) | Order::Share(..) => {}
            Order::Announce(_) | Order::Withdraw(_) | Order::Drain(..) => {}
        }
    }

    fn list_attempts(&mut self) -> Vec<Found> {
        self.yard().machine.list_attempts()
    }

    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The arm of the simulated machine.
#[derive(Debug)]
pub struct Simulated {
    handle: Handle,
    reports: Receiver<Report>,
}

impl Simulated {
    /// A machine that draws from a seed what no conduct says.
    pub fn new(seed: u64, pacing: Pacing) -> Simulated {
        let (sender, reports) = channel();
        let yard = Yard { machine: Machine::new(seed), now: 0, pacing, reports: sender };
        Simulated { handle: Handle(Arc::new(Mutex::new(yard))), reports }
    }

    /// A backend for a daemon, whose reports go where it says, and whose time flows by itself.
    pub fn backend_for(seed: u64, reports: impl Fn(Report) + Send + 'static) -> Box<dyn Backend> {
        let arm = Simulated::new(seed, Pacing::Flows(Instant::now()));
        let backend = Box::new(arm.handle.clone());
        let yard = Arc::downgrade(&arm.handle.0);
        std::thread::spawn(move || {
            // It ends with the daemon that holds the other handle.
            while let Some(yard) = yard.upgrade() {
                yard.lock().unwrap_or_else(PoisonError::into_inner).pass(true);
                drop(yard);
                arm.reports.try_iter().for_each(&reports);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        drop(arm.handle);
        backend
    }
}

impl Arm for Simulated {
    fn node(&self) -> (String, String) {
        ("n0".to_owned(), "gpu".to_owned())
    }

    fn backend(&mut self) -> &mut dyn Backend {
        &mut self.handle
    }

    fn next(&mut self) -> Option<Report> {
        if let Ok(report) = self.reports.try_recv() {
            return Some(report);
        }
        self.handle.yard().pass(true);
        self.reports.try_recv().ok()
    }

    fn go_down(&mut self) {
        let (sender, reports) = channel();
        self.handle.yard().reports = sender;
        self.reports = reports;
    }

    fn come_up(&mut self) {
        // Reports of the meantime reach no daemon.
        while self.reports.try_recv().is_ok() {}
    }

    fn times_run(&self, id: (JobId, Attempt)) -> usize {
        let yard = self.handle.yard();
        let failed = yard.machine.exits.get(&id).is_some_and(|exit| exit.launch_error.is_some());
        usize::from(yard.machine.ran.contains(&id) && !failed)
    }

    fn is_ready(&self, (job, attempt): (JobId, Attempt)) -> bool {
        let mut yard = self.handle.yard();
        let found = yard.machine.list_attempts();
        found.contains(&Found::Running { job, attempt, started: true })
    }

    fn has_left(&self, id: (JobId, Attempt)) -> bool {
        self.handle.yard().machine.exits.contains_key(&id)
    }

    fn open_gate(&mut self, job: JobId) {
        let mut yard = self.handle.yard();
        let now = yard.now;
        yard.machine.open_gate(now, job);
    }

    fn evidence_folder(&self) -> Option<&std::path::Path> {
        None
    }

    fn leftovers(&mut self) -> Vec<String> {
        self.handle.yard().machine.runs.keys().map(|id| format!("{id:?}")).collect()
    }

    fn pause(&mut self) {
        let mut yard = self.handle.yard();
        yard.now += MOMENT;
        yard.pass(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::conformance::{Conduct, order};
    use trainyard_backend::LaunchOrder;

    #[test]
    fn a_conduct_travels_in_an_order() {
        let (node, desk) = (("n0", "gpu"), std::path::Path::new("/desk"));
        let id = (JobId(3), Attempt(2));
        let order = order(id, Conduct::Saves(85), node, &[1], desk);
        assert_eq!(Conduct::of(&order), Some(Conduct::Saves(85)));
        assert!(order.argv[2].contains("/desk/ran.3.2"), "{:?}", order.argv);
        assert_eq!(Conduct::of(&LaunchOrder::default()), None);
    }
}
