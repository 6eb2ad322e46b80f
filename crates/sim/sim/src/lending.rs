//! A pool whose owner serves requests by day and lends by night.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::Serialize;
use trainyard_types::{Cluster, PoolId, Span, Time};

/// How much of its pool an owner needs over time: by a trace, or else a wave between a low at the start and a high half a
/// period later.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lending {
    /// The name of the pool.
    pub pool: String,
    /// The part of the pool that is needed at the lowest moment.
    pub low: f64,
    /// The part of the pool that is needed at the highest moment.
    pub high: f64,
    /// The length of one wave.
    pub period: Span,
    /// The part by which more is kept than is needed.
    pub headroom: f64,
    /// How often nodes are lent and taken back.
    pub every: Span,
    /// The standard deviation of the demand as a part of itself.
    pub noise: f64,
    /// Moments, ascending, and the part of the pool that is needed from then on; before the first none is. Empty for a
    /// wave.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<(Time, f64)>,
}

impl Default for Lending {
    /// Two percent of headroom and a look every five minutes, as in Lyra (EuroSys 2023); the wave is ours.
    fn default() -> Lending {
        Lending {
            pool: "inference".to_owned(),
            low: 0.4,
            high: 0.95,
            period: Span::secs(86_400),
            headroom: 0.02,
            every: Span::secs(300),
            noise: 0.0,
            trace: Vec::new(),
        }
    }
}

impl Lending {
    /// The pool in a cluster that has it.
    pub fn pool_in(&self, cluster: &Cluster) -> Option<PoolId> {
        let index = cluster.pools.iter().position(|name| *name == self.pool)?;
        Some(PoolId(index as u16))
    }

    /// The part of the pool that is needed at a moment, noise aside.
    pub fn demand(&self, at: Time) -> f64 {
        if !self.trace.is_empty() {
            let before = self.trace.partition_point(|(time, _)| *time <= at);
            return before.checked_sub(1).map_or(0.0, |last| self.trace[last].1);
        }
        let turn = at.as_secs_f64() / self.period.as_secs_f64().max(1e-6);
        let wave = (1.0 - libm::cos(2.0 * std::f64::consts::PI * turn)) / 2.0;
        self.low + (self.high - self.low) * wave
    }

    /// The part of the pool that the owner expects to need until a later moment, as it knows the demand up to now.
    ///
    /// A wave is known. Of a trace it knows the past: what is needed now, and what was needed one period before that later
    /// moment, times the ratio by which the demand is now above or below that of one period ago.
    pub fn expected(&self, at: Time, later: Time) -> f64 {
        let now = self.demand(at);
        if self.trace.is_empty() {
            return now.max(self.demand(later));
        }
        let ago = |time: Time| time.0.checked_sub(self.period.0).map(Time);
        let (Some(then), Some(next)) = (ago(at), ago(later)) else { return now };
        let before = self.demand(then);
        let ratio = if before > 0.0 { now / before } else { 1.0 };
        now.max(self.demand(next) * ratio)
    }
}

/// The owner of a pool.
pub(crate) struct Owner {
    law: Lending,
    pub(crate) pool: PoolId,
    nodes: u32,
    rng: ChaCha12Rng,
    said: Option<u32>,
}

impl Owner {
    /// Nothing if the cluster has no such pool.
    pub(crate) fn new(law: &Lending, cluster: &Cluster, seed: u64) -> Option<Owner> {
        let pool = law.pool_in(cluster)?;
        let nodes = cluster.nodes.iter().filter(|node| node.pool == pool).count() as u32;
        let rng = ChaCha12Rng::seed_from_u64(seed ^ 0x10a2_ed00);
        Some(Owner { law: law.clone(), pool, nodes, rng, said: None })
    }

    /// When to look again.
    pub(crate) fn next(&self, at: Time) -> Time {
        at + self.law.every.max(Span(1))
    }

    /// How many nodes are needed until the next look, if that is another number than before.
    pub(crate) fn needed(&mut self, at: Time) -> Option<u32> {
        let later = self.next(at);
        let factor = 1.0 + self.law.noise * self.normal();
        let demand = self.law.expected(at, later) * factor.max(0.0);
        let part = (demand * (1.0 + self.law.headroom)).clamp(0.0, 1.0);
        // A hair below a whole number is that number.
        let nodes = libm::ceil(part * f64::from(self.nodes) - 1e-9) as u32;
        (self.said.replace(nodes) != Some(nodes)).then_some(nodes)
    }

    /// A draw of the normal law, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let mut uniform = || ((self.rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let (length, angle) = (uniform(), uniform());
        libm::sqrt(-2.0 * libm::log(length)) * libm::cos(2.0 * std::f64::consts::PI * angle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Cluster {
        let mut cluster = Cluster::uniform(10, 8, "t4");
        cluster.pools.push("inference".to_owned());
        for node in &mut cluster.nodes {
            node.pool = PoolId(1);
        }
        cluster
    }

    #[test]
    fn an_owner_needs_least_at_the_start_and_most_half_a_period_later_with_headroom() {
        let law = Lending { low: 0.5, high: 0.9, ..Lending::default() };
        let mut owner = Owner::new(&law, &pool(), 1).expect("the pool is there");
        // 0.5 and a little more of 10 nodes with 2 percent on top are 6 nodes, 0.9 with 2 percent are 10.
        assert_eq!(owner.needed(Time::ZERO), Some(6));
        assert_eq!(owner.needed(Time::ZERO), None, "the same number is not said twice");
        assert_eq!(owner.needed(Time::ZERO + Span::secs(43_200)), Some(10));
        let bare = Lending { headroom: 0.0, ..law };
        let mut owner = Owner::new(&bare, &pool(), 1).expect("the pool is there");
        assert_eq!(owner.needed(Time::ZERO + Span::secs(43_200)), Some(9));
    }

    #[test]
    fn a_rise_of_a_trace_is_expected_once_it_came_at_that_hour_before() {
        let hour = |hour: u64| Time::ZERO + Span::secs(3600 * hour);
        let trace = vec![(hour(0), 0.2), (hour(9), 0.6), (hour(20), 0.2), (hour(33), 0.9)];
        let law = Lending { headroom: 0.0, trace, ..Lending::default() };
        let look = Span::secs(300);
        let before = |time: Time| Time(time.0 - look.0);
        let needed = |at: Time| Owner::new(&law, &pool(), 1).and_then(|mut owner| owner.needed(at));
        assert_eq!(needed(before(hour(9))), Some(2), "on the first day it comes as a surprise");
        assert_eq!(needed(hour(9)), Some(6));
        assert_eq!(needed(before(hour(33))), Some(6), "on the second it is foreseen as it was");
        assert_eq!(needed(hour(33)), Some(9), "and known when it is there");
        let early = Lending { trace: vec![(hour(1), 0.5)], ..law.clone() };
        assert_eq!((early.demand(Time::ZERO), early.demand(hour(2))), (0.0, 0.5));
    }

    #[test]
    fn a_cluster_without_the_pool_has_no_owner() {
        assert!(Owner::new(&Lending::default(), &Cluster::uniform(1, 1, "t4"), 1).is_none());
    }
}
