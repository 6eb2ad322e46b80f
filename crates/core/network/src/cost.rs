//! What a collective costs: GenModel's five terms, and what it needs of each.

use crate::plan::{Plan, folds};

/// The parameters of GenModel (arXiv 2409.04202): `A alpha + B beta + C gamma + D delta + max(w - w_t, 0) B epsilon`.
///
/// With `delta` and `epsilon` at 0 it is the alpha-beta-gamma model, with `gamma` at 0 too the alpha-beta model.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct FiveTerm {
    /// Seconds for each round.
    pub alpha: f64,
    /// Seconds for each byte on a link.
    pub beta: f64,
    /// Seconds for each byte added to another.
    pub gamma: f64,
    /// Seconds for each byte read or written.
    pub delta: f64,
    /// Seconds for each byte and each sender above the threshold.
    pub epsilon: f64,
    /// The greatest fan-in without incast, `w_t`; the receiver itself counts.
    pub fan_in_max: u32,
}

impl FiveTerm {
    /// Latency and bandwidth alone.
    pub fn alpha_beta(alpha: f64, beta: f64) -> FiveTerm {
        FiveTerm::alpha_beta_gamma(alpha, beta, 0.0)
    }

    /// Latency, bandwidth and additions.
    pub fn alpha_beta_gamma(alpha: f64, beta: f64, gamma: f64) -> FiveTerm {
        FiveTerm { alpha, beta, gamma, delta: 0.0, epsilon: 0.0, fan_in_max: u32::MAX }
    }

    /// Constants that an early code of a co-author used for hosts at 10 Gbit/s, in seconds for 10^6 floats: alpha
    /// 0.004, 2 beta + gamma 0.0068, delta 0.0004, epsilon 0.0002, threshold 9. Beta is what 10 Gbit/s give, gamma the
    /// rest.
    pub fn hosts_at_10_gbps() -> FiveTerm {
        let bytes = 4e6;
        let beta = 1.0 / 1.25e9;
        FiveTerm {
            alpha: 0.004,
            beta,
            gamma: 0.0068 / bytes - 2.0 * beta,
            delta: 0.0004 / bytes,
            epsilon: 0.0002 / bytes,
            fan_in_max: 9,
        }
    }
}

/// How much of each term a collective needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    /// Rounds, A.
    pub rounds: f64,
    /// Bytes through the busiest link, B.
    pub bytes: f64,
    /// Bytes added, C.
    pub reduced: f64,
    /// Bytes read and written, D.
    pub accessed: f64,
    /// Fan-in, the receiver counted, and bytes through the busiest link of the rounds with that fan-in.
    pub gathered: Vec<(u32, f64)>,
}

/// Seconds by cause.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Parts {
    /// Latency of rounds.
    pub latency: f64,
    /// Bytes on links.
    pub links: f64,
    /// Additions.
    pub additions: f64,
    /// Reads and writes of memory.
    pub memory: f64,
    /// Many senders to one receiver.
    pub incast: f64,
}

impl Parts {
    /// The sum.
    pub fn seconds(&self) -> f64 {
        self.latency + self.links + self.additions + self.memory + self.incast
    }

    /// Names and seconds.
    pub fn named(&self) -> [(&'static str, f64); 5] {
        [
            ("latency", self.latency),
            ("links", self.links),
            ("additions", self.additions),
            ("memory", self.memory),
            ("incast", self.incast),
        ]
    }

    /// The greatest part; of equal ones the first.
    pub fn binds(&self) -> &'static str {
        let mut greatest = self.named()[0];
        for part in self.named() {
            greatest = if part.1 > greatest.1 { part } else { greatest };
        }
        greatest.0
    }
}

impl Terms {
    /// What they come to.
    pub fn parts(&self, costs: &FiveTerm) -> Parts {
        let excess = |fan_in: u32| f64::from(fan_in.saturating_sub(costs.fan_in_max));
        let gathered = self.gathered.iter().map(|(fan_in, bytes)| excess(*fan_in) * bytes);
        Parts {
            latency: self.rounds * costs.alpha,
            links: self.bytes * costs.beta,
            additions: self.reduced * costs.gamma,
            memory: self.accessed * costs.delta,
            incast: gathered.sum::<f64>() * costs.epsilon,
        }
    }

    /// The same in one number.
    pub fn seconds(&self, costs: &FiveTerm) -> f64 {
        self.parts(costs).seconds()
    }

    /// Counts what a plan needs where every rank has one link of the same speed to one switch.
    pub fn of(plan: &Plan) -> Terms {
        let mut terms = Terms::default();
        let mut holds: Vec<bool> = (0..plan.ranks).map(|rank| rank < plan.workers).collect();
        for step in &plan.steps {
            let mut sent = vec![0u64; plan.ranks];
            let mut received = vec![0u64; plan.ranks];
            let mut senders = vec![Vec::new(); plan.ranks];
            for one in step {
                sent[one.from] += one.bytes;
                received[one.to] += one.bytes;
                senders[one.to].push(one.from);
            }
            let busiest = sent.iter().chain(&received).max().copied().unwrap_or(0) as f64;
            let folds = folds(step, plan.ranks, &holds);
            let fan_in = senders.iter_mut().map(|from| {
                from.sort_unstable();
                from.dedup();
                from.len() as u32 + 1
            });
            terms.rounds += 1.0;
            terms.bytes += busiest;
            terms.reduced += folds.iter().map(|fold| fold.reduced).fold(0.0, f64::max);
            terms.accessed += folds.iter().map(|fold| fold.accessed).fold(0.0, f64::max);
            terms.gather(fan_in.max().unwrap_or(0), busiest);
            step.iter().for_each(|one| holds[one.to] = true);
        }
        terms
    }

    /// Adds bytes of a round with a fan-in.
    pub fn gather(&mut self, fan_in: u32, bytes: f64) {
        match self.gathered.binary_search_by_key(&fan_in, |(known, _)| *known) {
            Ok(at) => self.gathered[at].1 += bytes,
            Err(at) => self.gathered.insert(at, (fan_in, bytes)),
        }
    }
}
