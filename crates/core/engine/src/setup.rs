//! How an engine is set up.

use serde::{Deserialize, Serialize};
use trainyard_types::{Span, SuspendRule};

/// When the policy is asked.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// Whenever something changed, and when the policy asked to be woken.
    #[default]
    Events,
    /// Only at multiples of a span.
    Clock(Span),
    /// When the host says that a round is over, and when something changed while nothing runs. A round is meant to
    /// take this long; it is over when the slowest has done its part.
    Barrier(Span),
    /// Whenever something changed, but not within a span after the decision before: what comes sooner waits for its end.
    Slots(Span),
}

/// A node that fails often is left alone for a while.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// So many failures ...
    pub failures: u32,
    /// ... within this time ...
    pub within: Span,
    /// ... take the node out of service for this long.
    pub period: Span,
}

/// The settings of an engine.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// When the policy is asked.
    pub trigger: Trigger,
    /// When a node is left alone.
    pub quarantine: Quarantine,
    /// How long a failed job waits before its first retry; each further wait is twice as long.
    pub retry_after: Span,
    /// After so many failures of the policy in a row a fallback order takes over until it recovers.
    pub policy_failures_max: u32,
    /// How long a failing policy is left alone before it is asked again; doubles up to 256 times, an hour at most.
    pub policy_retry_after: Span,
    /// Units of work that a policy may spend on one decision.
    pub work_max: u64,
    /// The seed of all randomness of policies.
    pub seed: u64,
    /// How long a job that was told of other GPUs has to say that it has gone over to them, before it is stopped and
    /// started; nothing where the host makes it so at once.
    #[serde(default)]
    pub resize_wait: Option<Span>,
    /// How the host puts jobs aside in host memory; nothing where it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<SuspendRule>,
    /// Whether jobs of different tenants share a GPU only where both tenants allow it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub isolates_tenants: bool,
    /// After how many decisions everything is checked; 1 checks always. What changed is checked every time.
    pub check_every: u64,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            trigger: Trigger::Events,
            quarantine: Quarantine {
                failures: 3,
                within: Span::secs(24 * 3600),
                period: Span::secs(6 * 3600),
            },
            retry_after: Span::secs(30),
            policy_failures_max: 3,
            policy_retry_after: Span::secs(10),
            work_max: 50_000_000,
            seed: 1,
            resize_wait: None,
            suspend: None,
            isolates_tenants: false,
            check_every: 16_384,
        }
    }
}
