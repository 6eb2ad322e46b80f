//! The front that queue-order policies implement: a key for each job, smallest first.

use crate::{JobRef, View};
use trainyard_types::{Grant, JobId, Knobs, Shape, Share, Span, Time};

/// The place of a job in the order; smallest first. Compared field by field, at last by id.
///
/// Keys are integers, so that equal means equal. A job never displaces another of the same tier and value.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The coarse order: a queue, a priority.
    pub tier: i64,
    /// The order inside a tier; may fall at a constant pace while the job runs, see [`Rank::fall`].
    pub value: i64,
    /// Only decides which job waits in front of which, never which displaces which.
    pub tie: i64,
}

impl Key {
    /// By time: the earlier, the smaller.
    pub fn at(time: Time) -> Key {
        Key::value(time.0.min(i64::MAX as u64) as i64)
    }

    /// By length: the shorter, the smaller.
    pub fn span(span: Span) -> Key {
        Key::value(span.0.min(i64::MAX as u64) as i64)
    }

    /// By a number.
    pub fn value(value: i64) -> Key {
        Key { tier: 0, value, tie: 0 }
    }

    /// The same key in another tier.
    pub fn tier(mut self, tier: i64) -> Key {
        self.tier = tier;
        self
    }

    /// The same key with ties broken by time.
    pub fn tie(mut self, time: Time) -> Key {
        self.tie = time.0.min(i64::MAX as u64) as i64;
        self
    }

    /// Whether a job with this key may displace one with `other`.
    pub fn beats(&self, other: &Key) -> bool {
        (self.tier, self.value) < (other.tier, other.value)
    }
}

/// A policy that is an order. Lifted to a [`crate::Policy`] by [`crate::Ranked`].
pub trait Rank: Send {
    /// The key of a job at this moment. Memory kept between calls is a cache.
    fn rank(&mut self, job: JobRef<'_>, view: &View<'_>) -> Key;

    /// How fast the value falls while the job runs, in thousandths for each microsecond: 1000 for remaining time at
    /// full speed, 0 when it stands still. A key that grows is made of tiers and [`Rank::changes_at`].
    fn fall(&self, _job: JobRef<'_>, _view: &View<'_>) -> u32 {
        0
    }

    /// When the key changes though nothing happens to the job: the next threshold it crosses.
    fn changes_at(&mut self, _job: JobRef<'_>, _view: &View<'_>) -> Option<Time> {
        None
    }

    /// Whether the key of a job without GPUs stays until something happens to that job, and no key changes by itself at
    /// a moment of its own ([`Rank::changes_at`]). Then a refill looks at what changed and at what runs.
    fn is_steady(&self) -> bool {
        false
    }

    /// What the job is granted on its turn: the GPUs it asked for.
    fn grant(&self, job: JobRef<'_>, _view: &View<'_>) -> Grant {
        wanted(job)
    }

    /// Whether all keys have changed since the last decision, as when a table behind them was learnt anew.
    fn renewed(&mut self) -> bool {
        false
    }

    /// Forgets a job that ended; its last word is what earlier calls have seen of it.
    fn over(&mut self, _job: JobId, _view: &View<'_>) {}

    /// Forgets everything.
    fn forget(&mut self) {}
}

/// The grant of exactly what a job asked for.
pub fn wanted(job: JobRef<'_>) -> Grant {
    let want = &job.spec.want;
    let mut grant = Grant::gpus(job.id(), want.gpus);
    if want.permille < 1000 {
        grant = grant.share(Share::Permille(want.permille));
    }
    if want.limit() > want.permille {
        let knobs = Knobs { compute_permille_max: Some(want.limit()), ..Knobs::default() };
        grant.knobs = Some(Box::new(knobs));
    }
    grant.shape = Shape::Gpus { count: want.gpus, kind: None, nodes_max: want.nodes_max };
    grant.pool = want.pool;
    grant
}
