//! Maintenance and reservations by time: a job that is in the way leaves before a window begins.
//!
//! Until then a window is capacity that is not there for jobs that could not be gone in time, which is for
//! [`Free`](trainyard_framework::Free) to say. From its beginning on, nodes under maintenance are out of service, and
//! reserved ones are open to those they are reserved for. A window that comes or goes costs a look at all granted
//! jobs, as a drained node does; a plan costs the windows of its own nodes, and nothing while there is no window.

use crate::engine::{Engine, Timer};
use std::sync::Arc;
use trainyard_framework::{JobRef, Windows, leaves_at};
use trainyard_types::{Allocation, JobId, NodeId, Time, Window, WindowId};

impl Engine {
    /// All windows that are not over.
    pub fn windows(&self) -> &Windows {
        &self.state.windows
    }

    /// A window comes, in place of the one of its number.
    pub(crate) fn window_set(&mut self, at: Time, mut window: Window) {
        let nodes = self.state.cluster.nodes.len();
        window.nodes.retain(|node| node.index() < nodes);
        window.nodes.sort_unstable();
        window.nodes.dedup();
        self.window_removed(at, window.id);
        if window.until <= at || window.from >= window.until {
            return;
        }
        for moment in [window.from, window.until] {
            self.timers.insert((moment, Timer::Window(window.id)));
        }
        let id = window.id;
        self.change_windows(|windows| windows.set(window));
        self.window_turns(at, id);
        for job in self.state.granted.iter().collect::<Vec<JobId>>() {
            self.leave_or_watch(at, job);
        }
    }

    /// A window is over or taken back.
    pub(crate) fn window_removed(&mut self, at: Time, id: WindowId) {
        let Some(window) = self.state.windows.get(id).cloned() else { return };
        self.change_windows(|windows| {
            windows.remove(id);
        });
        for node in window.nodes {
            self.shut_node(at, node);
        }
    }

    /// A window may have begun or be over.
    pub(crate) fn window_turns(&mut self, at: Time, id: WindowId) {
        let Some(window) = self.state.windows.get(id) else { return };
        if window.until <= at {
            return self.window_removed(at, id);
        }
        for node in window.nodes.clone() {
            self.shut_node(at, node);
        }
    }

    /// Asks a job to leave if a window is about to begin where it is, or sets the moment for it.
    pub(crate) fn leave_or_watch(&mut self, at: Time, job: JobId) {
        let Some(live) = self.state.live(job) else { return };
        let Some(planned) = &live.state.planned else { return };
        let windows =
            planned.placement.masks().iter().flat_map(|(node, _)| self.windows().on(*node));
        let against = windows.filter(|window| !window.allows(&live.spec));
        let Some(leaves) = against.map(|window| leaves_at(&live.spec, window)).min() else {
            return;
        };
        if leaves > at {
            self.timers.insert((leaves, Timer::Leave(job)));
            return;
        }
        self.unplan(at, job);
        if self.state.live(job).is_some_and(|live| live.state.held.is_some()) {
            self.leaving.insert(job);
        }
        self.wants_decision = true;
    }

    /// The first node of an allocation from which a window keeps a job.
    pub(crate) fn shut_at(&self, job: JobId, allocation: &Allocation) -> Option<NodeId> {
        if self.state.windows.is_empty() {
            return None;
        }
        let live = self.state.live(job)?;
        let job = JobRef { spec: &live.spec, state: &live.state };
        let mut nodes = allocation.placement.masks().iter().map(|(node, _)| *node);
        nodes.find(|node| self.free.shut(*node, job).is_some())
    }

    /// No job is planned on a node that is in a window which does not allow it.
    ///
    /// # Panics
    /// When a job is.
    pub(crate) fn assert_out_of_windows(&self) {
        let now = self.state.now;
        if !self.state.windows.iter().any(|window| window.is_on(now)) {
            return;
        }
        for job in self.state.granted.iter() {
            let live = self.state.live(job).expect("granted jobs are live");
            let planned = live.state.planned.as_ref().expect("granted jobs have a plan");
            for (node, _) in planned.placement.masks() {
                let against = |window: &&Window| window.is_on(now) && !window.allows(&live.spec);
                let window = self.windows().on(*node).find(against);
                assert!(window.is_none(), "{job} runs on {node} within {window:?}");
            }
        }
    }

    /// Puts a node out of service while it is under maintenance, and back.
    fn shut_node(&mut self, at: Time, node: NodeId) {
        let maintained = |window: &Window| window.is_on(at) && window.reserved.is_none();
        let shut = self.windows().on(node).any(maintained);
        self.set_maintained(node, shut);
    }

    fn change_windows(&mut self, change: impl FnOnce(&mut Windows)) {
        change(Arc::make_mut(&mut self.state_mut().windows));
        self.free.set_windows(Arc::clone(&self.state.windows));
        self.wants_decision = true;
    }
}
