//! Orders to a backend, each a method, for plays that give many.

use trainyard_backend::{Backend, LaunchOrder, Order, StopOrder};
use trainyard_types::{Attempt, JobId};

/// Gives orders to any backend.
pub trait Orders: Backend {
    /// Starts an attempt.
    fn launch(&mut self, order: LaunchOrder) {
        self.obey(Order::Launch(Box::new(order)));
    }

    /// Stops an attempt.
    fn stop(&mut self, job: JobId, attempt: Attempt, order: StopOrder) {
        self.obey(Order::Stop(job, attempt, order));
    }

    /// Changes the batch size of a running attempt.
    fn set_batch(&mut self, job: JobId, attempt: Attempt, size: u32) {
        self.obey(Order::SetBatch(job, attempt, size));
    }

    /// Drops what is kept about an attempt that ended.
    fn forget(&mut self, job: JobId, attempt: Attempt) {
        self.obey(Order::Forget(job, attempt));
    }

    /// A job waits.
    fn announce(&mut self, order: LaunchOrder) {
        self.obey(Order::Announce(Box::new(order)));
    }

    /// A job ended.
    fn withdraw(&mut self, job: JobId) {
        self.obey(Order::Withdraw(job));
    }

    /// A node takes no new work, or does again where no reason is given.
    fn drain(&mut self, node: &str, reason: Option<&str>) {
        self.obey(Order::Drain(node.to_owned(), reason.map(str::to_owned)));
    }
}

impl<B: Backend + ?Sized> Orders for B {}
