//! Maintenance and reservations by time: which nodes are not there for which job.
//!
//! A job may start on a node if it can be gone before every window there that does not allow it: by its time limit, or
//! by saving, if it may be stopped. What is looked up is what one node has, which is nothing on most of them: a
//! question costs the windows of that node, and nothing at all while there is no window.

use crate::JobRef;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use trainyard_types::{Job, NodeId, Span, Time, Window, WindowId};

/// How much sooner than its grace a job is stopped: what an order takes to arrive.
const MARGIN: Span = Span::secs(10);

/// How long before a window a job there is asked to stop.
pub fn lead(job: &Job) -> Span {
    job.grace + MARGIN
}

/// When a job has to be asked to stop, so that it is gone when a window begins.
pub fn leaves_at(job: &Job, window: &Window) -> Time {
    Time(window.from.0.saturating_sub(lead(job).0))
}

/// All windows that are not over, and where they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Windows {
    all: BTreeMap<WindowId, Window>,
    by_node: Vec<SmallVec<[WindowId; 1]>>,
    version: u64,
}

impl Windows {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A number that changes with every change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Window> {
        self.all.values()
    }

    /// The window of a number.
    pub fn get(&self, id: WindowId) -> Option<&Window> {
        self.all.get(&id)
    }

    /// The windows of a node.
    pub fn on(&self, node: NodeId) -> impl Iterator<Item = &Window> {
        let ids = self.by_node.get(node.index()).into_iter().flatten();
        ids.filter_map(|id| self.all.get(id))
    }

    /// Adds a window, or replaces the one of its number.
    pub fn set(&mut self, window: Window) {
        self.remove(window.id);
        for node in &window.nodes {
            if node.index() >= self.by_node.len() {
                self.by_node.resize(node.index() + 1, SmallVec::new());
            }
            self.by_node[node.index()].push(window.id);
        }
        self.all.insert(window.id, window);
    }

    /// Takes a window away.
    pub fn remove(&mut self, id: WindowId) -> Option<Window> {
        self.version += 1;
        let window = self.all.remove(&id)?;
        for node in &window.nodes {
            self.by_node[node.index()].retain(|other| *other != id);
        }
        Some(window)
    }

    /// The first window that keeps a job from starting on a node now.
    pub fn shut(&self, node: NodeId, job: JobRef<'_>, now: Time) -> Option<&Window> {
        if self.all.is_empty() {
            return None;
        }
        let against =
            |window: &&Window| !window.allows(job.spec) && !is_gone_before(job, window, now);
        self.on(node).filter(against).min_by_key(|window| (window.from, window.id))
    }

    /// Windows that allow a job by its own number, for callers that put alike jobs together.
    pub fn that_name(&self, job: &Job) -> SmallVec<[WindowId; 1]> {
        let names = |window: &&Window| {
            window.reserved.as_ref().is_some_and(|allowed| allowed.jobs.contains(&job.id))
        };
        self.iter().filter(names).map(|window| window.id).collect()
    }
}

/// Whether a job that starts now can be gone when a window begins.
fn is_gone_before(job: JobRef<'_>, window: &Window, now: Time) -> bool {
    if window.until <= now {
        return true;
    }
    let leaves = leaves_at(job.spec, window);
    let ends = job.spec.run_max.map(|limit| now + limit.minus(job.state.ran(now)));
    // A job that is stopped again at once has gained nothing: it runs for as long as it takes to stop it, at least.
    let saves = now + job.spec.min_run.max(lead(job.spec));
    ends.is_some_and(|end| end <= leaves) || (job.spec.preemptible && saves <= leaves)
}
