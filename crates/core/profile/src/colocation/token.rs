//! Co-location by a token: jobs take turns of some hundred milliseconds, each with its request and its limit.
//!
//! The rules are those of the arbiter that gives the token on real GPUs; this is what they come to in the long run where
//! every job always has work for its GPU. A job that pauses between iterations leaves others more than is told here.

use super::{Colocation, SharedGpu};
use trainyard_arbiter::{Share, long_run};
use trainyard_types::Occupant;

/// Jobs that take turns by the rules of [`trainyard_arbiter`].
#[derive(Copy, Clone, Debug, Default)]
pub struct TokenShares;

impl Colocation for TokenShares {
    fn kept(&self, own: Occupant, _on: SharedGpu, others: &[Occupant]) -> f64 {
        let share = |one: &Occupant| {
            let limit = u32::from(one.limit.clamp(1, 1000));
            Share { request: u32::from(one.request).min(limit), limit }
        };
        let shares: Vec<Share> = std::iter::once(&own).chain(others).map(share).collect();
        long_run(&shares)[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::ModelId;

    fn job(request: u16, limit: u16) -> Occupant {
        Occupant { request, limit, ..Occupant::unlimited(ModelId(0)) }
    }

    #[test]
    fn a_request_is_kept_and_what_is_left_is_shared_up_to_the_limits() {
        let kept = |own, others: &[Occupant]| {
            TokenShares.kept(own, SharedGpu { kind: None, gpus: 1 }, others)
        };
        assert_eq!(kept(job(300, 1000), &[job(300, 1000)]), 0.5);
        assert_eq!(kept(job(300, 400), &[job(300, 1000)]), 0.4);
        assert_eq!(kept(job(300, 1000), &[job(300, 400)]), 0.6);
        assert_eq!(kept(job(0, 1000), &[job(1000, 1000)]), 0.0);
        assert_eq!(kept(job(200, 1000), &[job(0, 1000), job(0, 100)]), 0.45);
    }
}
