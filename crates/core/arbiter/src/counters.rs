//! Who waited for whom.

use crate::arbiter::ClientId;
use std::collections::BTreeMap;
use trainyard_types::Span;

/// What happened to one client since it joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Turns that it got.
    pub grants: u64,
    /// The time that it held the token.
    pub held: Span,
    /// The part of it that went past the quota.
    pub overrun: Span,
    /// Turns that were taken from it.
    pub revocations: u64,
    /// The time that it waited, ended turns only.
    pub waited: Span,
    /// The part of it during which another held the token.
    pub throttled_by: BTreeMap<ClientId, Span>,
}

impl Counters {
    /// The time that it waited though the token was free: its own limit kept it.
    pub fn throttled_by_limit(&self) -> Span {
        let others = self.throttled_by.values().fold(Span::ZERO, |sum, span| sum + *span);
        self.waited.minus(others)
    }
}
