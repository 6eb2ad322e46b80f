//! The queues as the authors' simulators have them, to meet their runs: `dlas-gpu` of SymbioticLab/Tiresias, and the
//! copy of it in Rivendile/Muri.
//!
//! Both look at a running job when an event comes, let it sink by one queue at most, and count in whole seconds by the
//! GPUs that it asked for.

use super::Service;
use super::queues::{Queues, Seat, Sinking};
use crate::prelude::*;

/// A simulator, by when it looks at a job again: from the limit of its queue, how long it ran, and its GPUs.
pub(super) struct Code {
    looks_in: fn(limit: Span, executed: Span, gpus: u64) -> Span,
}

/// (limit - executed) / GPUs: the limit is in GPU-seconds and the time is not, so that it looks too late at several GPUs.
pub(super) static TIRESIAS: Code = Code {
    looks_in: |limit, executed, gpus| Span::secs(limit.minus(executed).0 / 1_000_000 / gpus),
};

/// limit / GPUs - executed, rounded up.
pub(super) static MURI: Code = Code {
    looks_in: |limit, executed, gpus| {
        Span::secs(limit.0.div_ceil(gpus).div_ceil(1_000_000)).minus(executed)
    },
};

impl Sinking for Code {
    fn served(&self, job: JobRef<'_>, seat: &Seat, service: Service, now: Time) -> Span {
        match service {
            Service::Time => seat.ran(job, now),
            Service::GpuTime => seat.ran(job, now).times(u64::from(job.spec.want.gpus)),
        }
    }

    fn sink(&self, job: JobRef<'_>, seat: &mut Seat, queues: &Queues, now: Time) {
        let is_over = |limit: &Span| self.served(job, seat, queues.service, now) >= *limit;
        if job.state.planned.is_some()
            && seat.moved_at != Some(now)
            && queues.thresholds.get(seat.queue).is_some_and(is_over)
        {
            seat.queue += 1;
            seat.moved_at = Some(now);
        }
    }

    fn time_to(
        &self,
        limit: Span,
        job: JobRef<'_>,
        seat: &Seat,
        service: Service,
        now: Time,
    ) -> Option<Span> {
        let gpus = match service {
            Service::GpuTime => u64::from(job.spec.want.gpus).max(1),
            Service::Time => 1,
        };
        Some((self.looks_in)(limit, seat.ran(job, now), gpus))
    }

    /// In whole seconds.
    fn wait_needed(&self, ran: Span, promote_knob: f64) -> Span {
        Span::secs((ran.as_secs_f64() * promote_knob) as u64)
    }

    fn has_memory(&self) -> bool {
        true
    }
}

/// Where the cluster is emptied and filled again, the position in a list decides, and not the key.
pub(super) fn place_in_queue(queue: usize) -> Key {
    Key::value(0).tier(queue as i64)
}
