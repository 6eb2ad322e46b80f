//! What the server tells of a shared GPU, as it travels.

use crate::stats::{ClientStats, Stats};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trainyard_arbiter::ClientId;
use trainyard_token::NO_CAP;

/// A shared GPU at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// Its jobs, in the order in which they came.
    pub clients: Vec<ToldClient>,
    /// The socket of the job that has the turn.
    pub holder: Option<String>,
}

/// One job at one moment. Times are in microseconds, memory in bytes, shares in permille.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToldClient {
    /// Its socket, by which it is known.
    pub socket: String,
    /// What it gets whenever it wants to.
    pub request: u32,
    /// What it gets at most.
    pub limit: u32,
    /// What it used within the window.
    pub usage_us: u64,
    /// Turns that it got.
    pub turns: u64,
    /// How long it had them.
    pub held_us: u64,
    /// The part of it that went past quotas.
    pub overrun_us: u64,
    /// How long it waited.
    pub waited_us: u64,
    /// The part of it during which its own limit kept it.
    pub limited_us: u64,
    /// The part of it during which another had the turn, by the other's socket; `gone` is all that left.
    pub behind_us: BTreeMap<String, u64>,
    /// How long its programs said they waited for the GPU.
    pub drained_us: u64,
    /// Turns that were taken from it.
    pub revocations: u64,
    /// Bytes that its programs allocated.
    pub memory_used: u64,
    /// The most that they ever had.
    pub memory_peak: u64,
    /// Bytes that they may allocate; nothing is no cap.
    pub memory_cap: Option<u64>,
    /// Allocations that were refused.
    pub memory_refusals: u64,
    /// How often a program said hello.
    pub hellos: u64,
    /// Processes that are connected now and said hello.
    pub processes: Vec<i32>,
    /// Connections that were ended because of what came over them.
    pub faults: u64,
    /// Connections of other users.
    pub strangers: u64,
    /// Turns that were given back because the program had nothing to do.
    pub pauses: u64,
}

impl Told {
    /// Stats as they travel; `names` are the sockets of the clients.
    pub fn new(stats: &Stats, names: &BTreeMap<ClientId, String>) -> Told {
        let clients = stats.clients.iter().map(|client| told(client, names)).collect();
        let holder = stats.holder.and_then(|holder| names.get(&holder).cloned());
        Told { clients, holder }
    }
}

fn told(client: &ClientStats, names: &BTreeMap<ClientId, String>) -> ToldClient {
    let counters = &client.counters;
    let mut behind_us = BTreeMap::new();
    for (other, span) in &counters.throttled_by {
        let name = names.get(other).map_or("gone", String::as_str);
        *behind_us.entry(name.to_owned()).or_insert(0) += span.0;
    }
    ToldClient {
        socket: names.get(&client.client).cloned().unwrap_or_default(),
        request: client.share.request,
        limit: client.share.limit,
        usage_us: client.usage.0,
        turns: counters.grants,
        held_us: counters.held.0,
        overrun_us: counters.overrun.0,
        waited_us: counters.waited.0,
        limited_us: counters.throttled_by_limit().0,
        behind_us,
        drained_us: client.drained.0,
        revocations: counters.revocations,
        memory_used: client.memory_used,
        memory_peak: client.memory_peak,
        memory_cap: (client.memory_cap != NO_CAP).then_some(client.memory_cap),
        memory_refusals: client.memory_refusals,
        hellos: client.hellos,
        processes: client.processes.iter().copied().collect(),
        faults: client.faults,
        strangers: client.strangers,
        pauses: client.pauses,
    }
}
