//! What came of a run: latencies, what was in time, what was refused, and what it cost.

use crate::discipline::Refusal;
use crate::request::{Request, Server};
use std::collections::BTreeMap;
use trainyard_types::{Span, Time};

/// Counts of one model.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelTally {
    /// Came.
    pub arrived: u64,
    /// Were answered.
    pub answered: u64,
    /// Were answered by their deadline.
    pub in_time: u64,
}

/// What a run counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    /// Requests that came.
    pub arrived: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Of these by their deadline.
    pub in_time: u64,
    /// Refused because as many waited as may.
    pub refused_full: u64,
    /// Given up because they could not be in time.
    pub refused_late: u64,
    /// Refused because they can never be served.
    pub refused_impossible: u64,
    /// Still waiting when nothing was left to happen.
    pub waiting: u64,
    /// The most that waited at once.
    pub waiting_peak: u64,
    /// Microseconds from arrival to answer, ascending once the run is over.
    pub latencies: Vec<u64>,
    /// By model.
    pub models: Vec<ModelTally>,
    /// The last answer to each client.
    pub client_last: BTreeMap<u32, Time>,
    /// Launches.
    pub launches: u64,
    /// Requests in launches of whole inferences, and how many of these launches there were.
    pub batched: (u64, u64),
    /// Launches that were broken off.
    pub stops: u64,
    /// Models that were brought onto GPUs.
    pub loads: u64,
    /// The last event.
    pub until: Time,
    /// Time in which something ran, by GPU.
    pub busy: Vec<Span>,
    busy_since: Vec<Time>,
}

impl Tally {
    /// Nothing yet.
    pub(crate) fn new(models: usize, servers: usize) -> Tally {
        Tally {
            arrived: 0,
            answered: 0,
            in_time: 0,
            refused_full: 0,
            refused_late: 0,
            refused_impossible: 0,
            waiting: 0,
            waiting_peak: 0,
            latencies: Vec::new(),
            models: vec![ModelTally::default(); models],
            client_last: BTreeMap::new(),
            launches: 0,
            batched: (0, 0),
            stops: 0,
            loads: 0,
            until: Time::ZERO,
            busy: vec![Span::ZERO; servers],
            busy_since: vec![Time::NEVER; servers],
        }
    }

    pub(crate) fn arrived(&mut self, request: &Request) {
        self.arrived += 1;
        self.models[request.model.index()].arrived += 1;
    }

    pub(crate) fn answered(&mut self, request: &Request, now: Time) {
        let model = &mut self.models[request.model.index()];
        self.answered += 1;
        model.answered += 1;
        if now <= request.deadline {
            self.in_time += 1;
            model.in_time += 1;
        }
        self.latencies.push(now.since(request.arrived).0);
        self.client_last.insert(request.client, now);
    }

    pub(crate) fn refused(&mut self, _request: &Request, why: Refusal) {
        match why {
            Refusal::Full => self.refused_full += 1,
            Refusal::Late => self.refused_late += 1,
            Refusal::Impossible => self.refused_impossible += 1,
        }
    }

    pub(crate) fn launched(&mut self, batch: u32, is_whole: bool) {
        self.launches += 1;
        if is_whole {
            self.batched = (self.batched.0 + u64::from(batch), self.batched.1 + 1);
        }
    }

    pub(crate) fn busy_from(&mut self, server: Server, now: Time) {
        self.busy_since[server.index()] = now;
    }

    pub(crate) fn busy_to(&mut self, server: Server, now: Time) {
        self.busy[server.index()] += now.since(self.busy_since[server.index()]);
        self.busy_since[server.index()] = Time::NEVER;
    }

    pub(crate) fn finish(&mut self, now: Time, waiting: u64) {
        self.until = now;
        self.waiting = waiting;
        self.latencies.sort_unstable();
    }

    /// Requests that were refused or given up.
    pub fn refused_all(&self) -> u64 {
        self.refused_full + self.refused_late + self.refused_impossible
    }

    /// Whether no request was lost and none answered twice.
    pub fn is_conserved(&self) -> bool {
        self.arrived == self.answered + self.refused_all() + self.waiting
            && self.answered == self.latencies.len() as u64
    }

    /// The latency that this part of the answers stays within: the least one that so many of them do not exceed.
    pub fn percentile(&self, part: f64) -> Span {
        percentile(&self.latencies, part)
    }

    /// The mean latency.
    pub fn mean(&self) -> Span {
        let sum: u128 = self.latencies.iter().map(|one| u128::from(*one)).sum();
        Span((sum / self.latencies.len().max(1) as u128) as u64)
    }

    /// The part of all requests that were answered in time.
    pub fn attainment(&self) -> f64 {
        self.in_time as f64 / self.arrived.max(1) as f64
    }

    /// Answers in time in a second.
    pub fn goodput(&self) -> f64 {
        self.in_time as f64 / self.until.as_secs_f64().max(1e-6)
    }

    /// The part of the time of all GPUs in which something ran.
    pub fn use_of_servers(&self) -> f64 {
        let busy: f64 = self.busy.iter().map(|one| one.as_secs_f64()).sum();
        busy / (self.busy.len() as f64 * self.until.as_secs_f64()).max(1e-9)
    }

    /// The part of the GPUs on which anything ever ran.
    pub fn servers_used(&self) -> usize {
        self.busy.iter().filter(|one| one.0 > 0).count()
    }

    /// Requests in a launch of whole inferences, on average.
    pub fn batch_mean(&self) -> f64 {
        self.batched.0 as f64 / self.batched.1.max(1) as f64
    }

    /// What the GPUs cost for the length of the run.
    pub fn cost(&self, price_per_hour: f64) -> f64 {
        self.busy.len() as f64 * self.until.as_secs_f64() / 3600.0 * price_per_hour
    }
}

/// A percentile of what is sorted ascending; zero for nothing.
pub(crate) fn percentile(sorted: &[u64], part: f64) -> Span {
    let rank = libm::ceil(part * sorted.len() as f64) as usize;
    Span(sorted.get(rank.max(1) - 1).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_least_latency_that_so_many_stay_within() {
        let sorted: Vec<u64> = (1..=1000).collect();
        assert_eq!(
            [0.5, 0.99, 0.999, 1.0].map(|part| percentile(&sorted, part).0),
            [500, 990, 999, 1000]
        );
        assert_eq!(percentile(&[], 0.99), Span::ZERO);
    }
}
