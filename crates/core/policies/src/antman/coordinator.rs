//! The loop of AntMan's local coordinator: how much of a GPU an opportunistic job may use beside a guaranteed one.
//!
//! The signal is the mini-batch time of the guaranteed job. The limit of the opportunistic job falls at once when that
//! job is slower than alone, and grows step by step otherwise. A limit that failed is not tried again for a while, so
//! that the loop comes to rest.

use crate::prelude::*;

/// How a limit is led.
#[derive(Copy, Clone, Debug)]
pub(super) struct Loop {
    /// The part of its speed that a guaranteed job may lose.
    pub(super) tolerance: f64,
    /// By how much a limit grows, in thousandths.
    pub(super) step: u16,
    /// The smallest limit, with which every opportunistic job begins.
    pub(super) floor: u16,
    /// How long one limit is looked at.
    pub(super) tick: Span,
    /// After how long a limit that failed is tried again.
    pub(super) retry: Span,
}

/// The limit of one opportunistic job beside one set of guaranteed ones.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Limit {
    /// Thousandths of a GPU.
    pub(super) permille: u16,
    /// The lowest limit that failed, and when.
    failed: Option<(u16, Time)>,
    /// When it is looked at next; nothing once it is as large as can be.
    pub(super) next: Option<Time>,
}

impl Limit {
    /// The first limit of a job that has just come.
    pub(super) fn first(now: Time, by: &Loop) -> Limit {
        Limit { permille: by.floor, failed: None, next: Some(now + by.tick) }
    }

    /// Whether even the smallest limit slows the guaranteed job too much.
    pub(super) fn is_unbearable(&self, by: &Loop) -> bool {
        self.failed.is_some_and(|(failed, _)| failed <= by.floor)
    }

    /// Looks at the part of their speed that the guaranteed jobs keep; nothing if that is not known yet.
    pub(super) fn look(&mut self, kept: Option<f64>, now: Time, by: &Loop) {
        if self.next.is_none_or(|next| next > now) {
            return;
        }
        let Some(kept) = kept else {
            self.next = Some(now + by.tick);
            return;
        };
        if kept < 1.0 - by.tolerance {
            self.failed = Some((self.permille, now));
            self.permille = (self.permille / 2).max(by.floor);
            self.next = Some(now + by.tick);
            return;
        }
        let higher = (self.permille + by.step).min(1000);
        match self.failed {
            Some((failed, at)) if higher >= failed && now.since(at) < by.retry => {
                self.next = Some(at + by.retry);
            }
            _ if self.permille == 1000 => self.next = None,
            _ => {
                self.permille = higher;
                self.next = Some(now + by.tick);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOP: Loop =
        Loop { tolerance: 0.02, step: 50, floor: 50, tick: Span::secs(10), retry: Span::secs(600) };

    /// Leads a limit for some ticks beside a job that loses `loss` of its speed at a limit of 1000.
    fn led(loss: f64, ticks: u64) -> (Limit, Vec<u16>) {
        let mut limit = Limit::first(Time::ZERO, &LOOP);
        let mut seen = Vec::new();
        for tick in 1..=ticks {
            let kept = 1.0 - loss * f64::from(limit.permille) / 1000.0;
            limit.look(Some(kept), Time::ZERO + Span::secs(10).times(tick), &LOOP);
            seen.push(limit.permille);
        }
        (limit, seen)
    }

    #[test]
    fn a_neighbour_that_harms_no_one_gets_all_and_the_loop_ends() {
        let (limit, _) = led(0.0, 40);
        assert_eq!((limit.permille, limit.next), (1000, None));
    }

    #[test]
    fn the_limit_settles_below_what_the_guaranteed_job_bears() {
        // It bears a limit of 200: 2 % of 10 %.
        let (limit, seen) = led(0.1, 40);
        assert!(seen.contains(&250), "it was tried: {seen:?}");
        assert!((150..=200).contains(&limit.permille), "{limit:?}");
        assert!(limit.next.is_some_and(|next| next > Time::ZERO + Span::secs(400)), "{limit:?}");
    }

    #[test]
    fn a_surge_is_answered_at_once_and_remembered() {
        let (mut limit, _) = led(0.0, 40);
        limit.next = Some(Time::ZERO + Span::secs(500));
        limit.look(Some(0.5), Time::ZERO + Span::secs(500), &LOOP);
        assert_eq!(limit.permille, 500);
        assert!(!limit.is_unbearable(&LOOP));
        for tick in 51..60 {
            limit.look(Some(0.5), Time::ZERO + Span::secs(10).times(tick), &LOOP);
        }
        assert_eq!(limit.permille, LOOP.floor);
        assert!(limit.is_unbearable(&LOOP));
    }
}
