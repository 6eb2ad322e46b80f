//! What will happen, in order. At one moment ends come before starts, and lower ids before higher.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use trainyard_types::{Attempt, GpuAt, JobId, NodeId, Time};

/// Something that will happen. The order of variants is the order within a moment.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Future {
    /// The promised finish of a job; void if its promise was made anew since.
    Finish { job: JobId, promise: u32 },
    /// The promised failure of a job, likewise.
    Fail { job: JobId, promise: u32 },
    /// A job comes to where its rate may be another, the end of an epoch or another batch size; void likewise.
    Turn { job: JobId, promise: u32 },
    /// A stop is complete.
    Stopped { job: JobId, attempt: Attempt },
    /// A job is put aside in host memory.
    Suspended { job: JobId, attempt: Attempt },
    /// A start is complete.
    Started { job: JobId, attempt: Attempt },
    /// A node breaks.
    Break { node: NodeId },
    /// A node is repaired.
    Repair { node: NodeId },
    /// A GPU falls ill.
    Sicken { gpu: GpuAt },
    /// A GPU is returned.
    Return { gpu: GpuAt },
    /// The owner of a pool looks at what it needs.
    Lend,
    /// The n-th injected event.
    Injected { index: u32 },
    /// The slowest has done its part of a round; void if that was worked out anew since.
    Barrier { number: u32 },
    /// The policy has thought.
    Conclude,
}

/// A future and its moment; what comes first is the greatest, as a heap gives the greatest.
#[derive(Copy, Clone, PartialEq, Eq)]
struct Coming {
    at: Time,
    what: Future,
}

impl Ord for Coming {
    fn cmp(&self, other: &Coming) -> Ordering {
        other.at.cmp(&self.at).then_with(|| other.what.cmp(&self.what))
    }
}

impl PartialOrd for Coming {
    fn partial_cmp(&self, other: &Coming) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    /// What a heap asks at every level: moments nearly always differ, and then nothing else is looked at.
    #[inline]
    fn le(&self, other: &Coming) -> bool {
        if self.at == other.at { self.what >= other.what } else { self.at > other.at }
    }
}

/// A heap by time and kind.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Coming>,
}

impl Queue {
    pub(crate) fn push(&mut self, at: Time, future: Future) {
        if at < Time::NEVER {
            self.heap.push(Coming { at, what: future });
        }
    }

    pub(crate) fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(|first| first.at)
    }

    /// Drops what is void at the front, so that it does not count as a moment.
    pub(crate) fn drop_while(&mut self, is_void: impl Fn(&Future) -> bool) {
        while self.heap.peek().is_some_and(|first| is_void(&first.what)) {
            self.heap.pop();
        }
    }

    pub(crate) fn pop_at(&mut self, at: Time) -> Option<Future> {
        let due = self.heap.peek().is_some_and(|first| first.at <= at);
        due.then(|| self.heap.pop().map(|first| first.what)).flatten()
    }
}
