//! The cheapest way to a rate.
//!
//! A job that spends parts of its time in several ways, and the rest doing nothing, gets a convex mix of their points
//! (rate, cost) and the origin. The least cost of a rate is therefore the lower convex hull of these points, and at most
//! two ways are mixed.

use super::pool::Pool;

/// A pool in which every way is possible, every job has its ways in order of rate, and GPUs are counted in parts of
/// their type.
pub(super) struct Ready {
    pub kinds: usize,
    /// Where the ways of each job begin.
    starts: Vec<usize>,
    rates: Vec<f64>,
    uses: Vec<[(usize, f64); 2]>,
    /// The place of each way in the pool.
    origin: Vec<usize>,
    capacity: Vec<f64>,
}

/// Two ways and the part of time in each; the lower may be missing.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Mix {
    pub low: Option<(usize, f64)>,
    pub high: (usize, f64),
    pub cost: f64,
    /// What a little more rate would cost.
    pub slope: f64,
}

/// What all jobs together ask for.
pub(super) struct Demand {
    pub cost: f64,
    /// How the cost grows with the level.
    pub slope: f64,
    /// Parts of each type.
    pub usage: Vec<f64>,
}

impl Ready {
    pub fn new(pool: &Pool) -> Ready {
        let usable = |value: f64| value.is_finite() && value > 0.0;
        let capacity: Vec<f64> = (0..pool.kinds()).map(|kind| pool.capacity(kind)).collect();
        let mut ready = Ready {
            kinds: capacity.len(),
            starts: vec![0],
            rates: Vec::with_capacity(pool.ways.len()),
            uses: Vec::with_capacity(pool.ways.len()),
            origin: Vec::with_capacity(pool.ways.len()),
            capacity,
        };
        let mut order: Vec<usize> = Vec::new();
        for job in 0..pool.jobs() {
            order.clear();
            order.extend((pool.starts[job]..pool.starts[job + 1]).filter(|&way| {
                let way = &pool.ways[way];
                let [(first, gpus), (second, more)] = way.uses;
                let there = |kind: usize| ready.capacity.get(kind).is_some_and(|c| *c > 0.0);
                usable(way.rate)
                    && usable(gpus)
                    && there(first)
                    && (more == 0.0 || usable(more) && there(second))
            }));
            order.sort_by(|&a, &b| pool.ways[a].rate.total_cmp(&pool.ways[b].rate).then(a.cmp(&b)));
            for &way in &order {
                let part = |(kind, gpus): (usize, f64)| match gpus > 0.0 {
                    true => (kind, gpus / ready.capacity[kind]),
                    false => (0, 0.0),
                };
                let [first, second] = pool.ways[way].uses;
                ready.rates.push(pool.ways[way].rate);
                ready.uses.push([part(first), part(second)]);
                ready.origin.push(way);
            }
            ready.starts.push(ready.rates.len());
        }
        ready
    }

    pub fn jobs(&self) -> usize {
        self.starts.len() - 1
    }

    /// The rate a job has when it always runs in its fastest way; 0 where it has none.
    pub fn fastest(&self, job: usize) -> f64 {
        let (start, end) = (self.starts[job], self.starts[job + 1]);
        if start == end { 0.0 } else { self.rates[end - 1] }
    }

    /// The ways of a job, in order of rate.
    pub fn ways_of(&self, job: usize) -> std::ops::Range<usize> {
        self.starts[job]..self.starts[job + 1]
    }

    /// The place of a way in the pool, its rate, and the parts of types it takes.
    pub fn way(&self, way: usize) -> (usize, f64, &[(usize, f64); 2]) {
        (self.origin[way], self.rates[way], &self.uses[way])
    }

    /// The fastest rate of a job in ways that touch no type of a set.
    pub fn fastest_outside(&self, job: usize, kinds: &[bool]) -> f64 {
        let outside =
            |way: &usize| self.uses[*way].iter().all(|&(kind, part)| part == 0.0 || !kinds[kind]);
        let found = (self.starts[job]..self.starts[job + 1]).rev().find(outside);
        found.map_or(0.0, |way| self.rates[way])
    }

    /// Prices of whole types, scaled to a sum of 1, from prices of a GPU; an even spread where these are no use.
    pub fn whole_prices(&self, of_a_gpu: &[f64]) -> Vec<f64> {
        let priced = |(kind, &gpus): (usize, &f64)| {
            let price = of_a_gpu.get(kind).copied().unwrap_or(0.0) * gpus;
            if price.is_finite() && price > 0.0 { price } else { 0.0 }
        };
        let mut prices: Vec<f64> = self.capacity.iter().enumerate().map(priced).collect();
        let mut sum: f64 = prices.iter().sum();
        if !(sum.is_finite() && sum > 0.0) {
            prices = self.capacity.iter().map(|gpus| f64::from(u8::from(*gpus > 0.0))).collect();
            sum = prices.iter().sum::<f64>().max(1.0);
        }
        prices.iter().map(|price| price / sum).collect()
    }

    /// Prices of a GPU from prices of whole types.
    pub fn gpu_prices(&self, of_types: &[f64]) -> Vec<f64> {
        let priced = |(price, gpus): (&f64, &f64)| if *gpus > 0.0 { price / gpus } else { 0.0 };
        of_types.iter().zip(&self.capacity).map(priced).collect()
    }

    /// What each way costs at prices of whole types.
    pub fn costs(&self, prices: &[f64], costs: &mut Vec<f64>) {
        costs.clear();
        costs.extend(
            self.uses
                .iter()
                .map(|[first, second]| first.1 * prices[first.0] + second.1 * prices[second.0]),
        );
    }

    /// The cheapest mix that gives a job a rate, `None` if it needs nothing or has no way; a rate beyond its fastest
    /// counts as its fastest.
    pub fn cheapest(&self, job: usize, costs: &[f64], rate: f64) -> Option<Mix> {
        let (start, end) = (self.starts[job], self.starts[job + 1]);
        if start == end || rate <= 0.0 || rate.is_nan() {
            return None;
        }
        let rates = &self.rates[start..end];
        let costs = &costs[start..end];
        let rate = rate.min(rates[rates.len() - 1]);
        let split = rates.iter().position(|r| *r >= rate).unwrap_or(rates.len() - 1);
        let mut best = (f64::INFINITY, usize::MAX, 0, 0.0);
        for high in split..rates.len() {
            let slope = costs[high] / rates[high];
            if slope * rate < best.0 {
                best = (slope * rate, usize::MAX, high, slope);
            }
            for low in 0..split {
                let slope = (costs[high] - costs[low]) / (rates[high] - rates[low]);
                let cost = costs[low] + slope * (rate - rates[low]);
                if cost < best.0 {
                    best = (cost, low, high, slope);
                }
            }
        }
        let (cost, low, high, slope) = best;
        let (low, high) = match low {
            usize::MAX => (None, (start + high, rate / rates[high])),
            low => {
                let part = (rate - rates[low]) / (rates[high] - rates[low]);
                (Some((start + low, 1.0 - part)), (start + high, part))
            }
        };
        Some(Mix { low, high, cost, slope })
    }

    /// What all jobs ask for when each buys its need at least cost.
    pub fn demand(&self, costs: &[f64], needs: &[f64], slopes: &[f64]) -> Demand {
        let mut demand = Demand { cost: 0.0, slope: 0.0, usage: vec![0.0; self.kinds] };
        for job in 0..self.jobs() {
            let Some(mix) = self.cheapest(job, costs, needs[job]) else { continue };
            demand.cost += mix.cost;
            demand.slope += mix.slope.max(0.0) * slopes[job];
            for (way, part) in mix.low.into_iter().chain([mix.high]) {
                for (kind, gpus) in self.uses[way] {
                    demand.usage[kind] += part * gpus;
                }
            }
        }
        demand
    }

    /// Adds a multiple of what [`Ready::demand`] counts for some needs, scaled down to others, to fractions in the order
    /// of the pool.
    pub fn spread(
        &self,
        costs: &[f64],
        (asked, needs): (&[f64], &[f64]),
        weight: f64,
        fractions: &mut [f64],
    ) {
        for (job, (&asked, &need)) in asked.iter().zip(needs).enumerate() {
            let Some(mix) = self.cheapest(job, costs, asked) else { continue };
            let scale = weight * (need / asked).min(1.0);
            for (way, part) in mix.low.into_iter().chain([mix.high]) {
                fractions[self.origin[way]] += scale * part;
            }
        }
    }
}
