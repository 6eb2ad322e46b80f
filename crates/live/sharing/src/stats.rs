//! Who throttles whom, who used what, who never said hello.

use std::collections::BTreeSet;
use trainyard_arbiter::{ClientId, Counters, Share};
use trainyard_types::Span;

/// A shared GPU at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Its clients, by id.
    pub clients: Vec<ClientStats>,
    /// Who has the token.
    pub holder: Option<ClientId>,
}

/// One client at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientStats {
    /// Which one.
    pub client: ClientId,
    /// What it was promised.
    pub share: Share,
    /// What it used within the window.
    pub usage: Span,
    /// Turns, waiting, and for whom.
    pub counters: Counters,
    /// Time its programs said they waited for the GPU to be done, at most what they held the token for.
    pub drained: Span,
    /// Bytes that its programs allocated.
    pub memory_used: u64,
    /// The most that they ever had.
    pub memory_peak: u64,
    /// Bytes that they may allocate.
    pub memory_cap: u64,
    /// Allocations that were refused.
    pub memory_refusals: u64,
    /// How often a program said hello.
    pub hellos: u64,
    /// Processes that are connected now and said hello.
    pub processes: BTreeSet<i32>,
    /// Connections that were ended because of what came over them, or because they were one too many.
    pub faults: u64,
    /// Connections of other users.
    pub strangers: u64,
    /// Turns that were given back because the program had nothing to do.
    pub pauses: u64,
}

impl ClientStats {
    /// None of its programs is hooked: they link the driver statically, dropped the library, or use no GPU.
    pub fn never_said_hello(&self) -> bool {
        self.hellos == 0
    }

    /// Those of `processes` (as the driver lists them for this GPU) whose calls are not hooked.
    pub fn unhooked<'a>(&'a self, processes: &'a [i32]) -> impl Iterator<Item = i32> + 'a {
        processes.iter().copied().filter(|process| !self.processes.contains(process))
    }
}
