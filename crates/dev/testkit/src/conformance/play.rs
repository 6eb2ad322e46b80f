//! The daemon's side of a promise: orders out, reports in, in whatever order and however often they come.

use super::arm::{Arm, PATIENCE};
use super::conduct::Conduct;
use crate::orders::Orders;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;
use trainyard_api::Processes;
use trainyard_backend::order::Limits;
use trainyard_backend::{Exit, Found, LaunchOrder, NodeShare, Report, StopOrder};
use trainyard_types::{Attempt, JobId};

/// An attempt by name.
pub type Id = (JobId, Attempt);

/// The daemon's side.
pub struct Play<'a> {
    pub arm: &'a mut dyn Arm,
    started: BTreeSet<Id>,
    ends: BTreeMap<Id, Exit>,
    /// Reports about each attempt, for callers that wait for one more.
    heard: BTreeMap<Id, usize>,
}

/// An order for a job that behaves so, on some GPUs of a node.
pub fn order(
    (job, attempt): Id,
    conduct: Conduct,
    (node, gpu_type): (&str, &str),
    gpus: &[u8],
    desk: &Path,
) -> LaunchOrder {
    let mut order = LaunchOrder {
        job,
        attempt,
        name: format!("promise{}", job.0),
        cwd: "/".to_owned(),
        nodes: vec![NodeShare { node: node.to_owned(), gpus: gpus.to_vec() }],
        gpu_type: gpu_type.to_owned(),
        gpus_wanted: gpus.len() as u32,
        gpus: gpus.to_vec(),
        devices: gpus.iter().map(u8::to_string).collect(),
        user: "ada".to_owned(),
        limits: Limits { log_bytes_max: 1 << 20, ..Limits::default() },
        ..LaunchOrder::default()
    };
    if let Conduct::OneRankSaves(_) = conduct {
        order.processes = Processes::PerGpu;
    }
    if let Conduct::OneRankFails(_) = conduct {
        order.processes = Processes::PerGpu;
        // The rest of the gang does not hear, and is not waited for long.
        order.checkpoint.grace_seconds = 0.2;
    }
    conduct.into_order(&mut order, desk);
    order
}

impl<'a> Play<'a> {
    pub fn on(arm: &'a mut dyn Arm) -> Play<'a> {
        Play { arm, started: BTreeSet::new(), ends: BTreeMap::new(), heard: BTreeMap::new() }
    }

    /// Takes a job on and launches an attempt of it.
    pub fn launch(&mut self, id: Id, conduct: Conduct, gpus: &[u8]) -> LaunchOrder {
        self.launch_with(id, conduct, gpus, |_| {})
    }

    /// The same with an order that is special in something.
    pub fn launch_with(
        &mut self,
        id: Id,
        conduct: Conduct,
        gpus: &[u8],
        change: impl FnOnce(&mut LaunchOrder),
    ) -> LaunchOrder {
        let (node, gpu_type) = self.arm.node();
        let nowhere = Path::new("/nonexistent");
        let desk = self.arm.evidence_folder().unwrap_or(nowhere).to_path_buf();
        let mut order = order(id, conduct, (&node, &gpu_type), gpus, &desk);
        change(&mut order);
        if self.arm.backend().wants_announcements() {
            let waiting = LaunchOrder { nodes: Vec::new(), gpus: Vec::new(), ..order.clone() };
            self.arm.backend().announce(waiting);
        }
        self.arm.backend().launch(order.clone());
        order
    }

    /// The same order once more.
    pub fn repeat(&mut self, order: &LaunchOrder) {
        self.arm.backend().launch(order.clone());
    }

    pub fn stop(&mut self, (job, attempt): Id, grace_seconds: f64) {
        let order = StopOrder { grace_seconds, why: "a promise".to_owned() };
        self.arm.backend().stop(job, attempt, order);
    }

    pub fn forget(&mut self, (job, attempt): Id) {
        self.arm.backend().forget(job, attempt);
    }

    /// What the backend says it knows, by attempt.
    pub fn stock(&mut self) -> BTreeMap<Id, Found> {
        let found = self.arm.backend().list_attempts();
        let by_id = |found: Found| match found {
            Found::Running { job, attempt, .. } | Found::Ended { job, attempt, .. } => {
                ((job, attempt), found)
            }
        };
        let count = found.len();
        let all: BTreeMap<Id, Found> = found.into_iter().map(by_id).collect();
        assert_eq!(all.len(), count, "an attempt is found twice");
        all
    }

    /// The daemon is killed and starts again; it remembers nothing of what it heard.
    pub fn restart(&mut self) -> BTreeMap<Id, Found> {
        self.arm.go_down();
        self.come_up()
    }

    pub fn come_up(&mut self) -> BTreeMap<Id, Found> {
        self.arm.come_up();
        (self.started, self.ends, self.heard) = Default::default();
        let stock = self.stock();
        for (id, found) in &stock {
            match found {
                Found::Running { started: true, .. } => drop(self.started.insert(*id)),
                Found::Running { .. } => {}
                Found::Ended { exit, .. } => drop(self.ends.insert(*id, exit.clone())),
            }
        }
        stock
    }

    pub fn until_started(&mut self, id: Id) {
        self.hear_until(&format!("{id:?} starts"), |play| play.started.contains(&id));
    }

    /// Waits until a request to stop meets a job as its conduct says.
    pub fn until_ready(&mut self, id: Id) {
        self.until_started(id);
        self.pause_until(&format!("{id:?} is ready"), |arm| arm.is_ready(id));
    }

    /// Waits until an attempt, or its rank that fails, has left, and hears nothing meanwhile.
    pub fn until_left(&mut self, id: Id) {
        self.pause_until(&format!("{id:?} leaves"), |arm| arm.has_left(id));
        // From the last command of a script to the end of its process.
        (0..10).for_each(|_| self.arm.pause());
    }

    pub fn until_ended(&mut self, id: Id) -> Exit {
        self.hear_until(&format!("{id:?} ends"), |play| play.ends.contains_key(&id));
        self.ends[&id].clone()
    }

    /// Waits for one more report about an attempt than there were.
    pub fn until_answered(&mut self, id: Id, before: usize) {
        self.hear_until(&format!("{id:?} is answered for"), |play| play.heard(id) > before);
    }

    pub fn heard(&self, id: Id) -> usize {
        self.heard.get(&id).copied().unwrap_or(0)
    }

    fn hear_until(&mut self, what: &str, is_so: impl Fn(&Play<'_>) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
            if let Some(report) = self.arm.next() {
                self.hear(report);
            }
        }
    }

    /// Waits for something that is seen from outside.
    pub fn pause_until(&mut self, what: &str, is_so: impl Fn(&dyn Arm) -> bool) {
        let begun = Instant::now();
        while !is_so(self.arm) {
            assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
            self.arm.pause();
        }
    }

    fn hear(&mut self, report: Report) {
        let id = match report {
            Report::Started { job, attempt } => {
                self.started.insert((job, attempt));
                (job, attempt)
            }
            Report::Ended { job, attempt, exit } => {
                let id = (job, attempt);
                if let Some(before) = self.ends.insert(id, exit.clone()) {
                    assert_eq!(before, exit, "{id:?} ends in two ways");
                }
                id
            }
            Report::Said { job, attempt, .. } => (job, attempt),
            Report::Gone { job, why } => panic!("job {} is gone: {why}", job.0),
            // Nodes and troubles of the backend are no part of these promises.
            Report::Node { .. }
            | Report::Gpu(_)
            | Report::Trouble(_)
            | Report::Sharing { .. }
            | Report::Aside { .. }
            | Report::Notice { .. } => {
                return;
            }
        };
        *self.heard.entry(id).or_default() += 1;
    }

    /// Forgets and withdraws all jobs, and sees to it that nothing is left of them.
    pub fn clear(&mut self) {
        let ids: Vec<Id> = self.stock().into_keys().collect();
        for id in ids {
            self.until_ended(id);
            self.forget(id);
            self.arm.backend().withdraw(id.0);
        }
        self.leave_nothing();
    }

    /// Waits until nothing is left of jobs that were forgotten and withdrawn.
    pub fn leave_nothing(&mut self) {
        let begun = Instant::now();
        loop {
            let left = self.arm.leftovers();
            if left.is_empty() {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "left behind: {left:?}");
            self.arm.pause();
        }
    }
}
