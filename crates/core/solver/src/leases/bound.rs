//! No plan can be worth more than this.

use super::{Program, Step};

/// Prices for GPU time up to each lease, and what they say.
pub(super) struct Prices {
    /// No plan is worth more.
    pub(super) bound: f64,
    /// The step of each demand that is worth most at the best prices.
    pub(super) steps: Vec<Option<usize>>,
}

/// Rounds of the search for prices.
const ROUNDS: u32 = 120;

impl Prices {
    /// By a subgradient search on the rows of a relaxation.
    ///
    /// A demand of n leases before a deadline of d can hold at most d - t leases after lease t, so that at least
    /// n - (d - t) of them lie before; and the GPUs before t are limited. That gives a row for each t. Where each
    /// lease has as many GPUs and all demands are equally wide these rows are not only necessary but sufficient.
    pub(super) fn new(program: &Program, full: f64) -> Prices {
        let horizon = horizon(program);
        let room = room(program, horizon);
        let mut prices = vec![0.0; horizon + 1];
        let mut best = Prices { bound: full, steps: Vec::new() };
        let mut scale = 1.0;
        for round in 0..ROUNDS {
            let sums = Sums::new(&prices);
            let (steps, value) = choose(program, &sums);
            let paid: f64 = prices.iter().zip(&room).map(|(price, room)| price * room).sum();
            let bound = value + paid;
            if bound < best.bound || best.steps.is_empty() {
                best = Prices { bound: bound.min(best.bound), steps: steps.clone() };
            }
            let over = over(program, &steps, &room);
            let norm: f64 = over.iter().map(|over| over * over).sum();
            if norm == 0.0 {
                break;
            }
            if round % 12 == 11 {
                scale *= 0.6;
            }
            let length = scale * (bound * 0.05).max(1e-9) / norm;
            for (price, over) in prices.iter_mut().zip(&over) {
                *price = (*price + length * over).max(0.0);
            }
        }
        best
    }
}

fn horizon(program: &Program) -> usize {
    let steps = program.demands.iter().flat_map(|demand| &demand.steps);
    steps.map(|step| step.before as usize).max().unwrap_or(0)
}

/// GPU time before each lease, in GPUs times leases.
fn room(program: &Program, horizon: usize) -> Vec<f64> {
    let mut sum = 0.0;
    let mut room = vec![0.0; horizon + 1];
    for lease in 0..horizon {
        sum += f64::from(program.capacity_of(lease as u32));
        room[lease + 1] = sum;
    }
    room
}

/// Sums of prices and of prices times their lease, so that a step costs two look-ups.
struct Sums {
    plain: Vec<f64>,
    ramp: Vec<f64>,
}

impl Sums {
    fn new(prices: &[f64]) -> Sums {
        let mut sums = Sums { plain: vec![0.0], ramp: vec![0.0] };
        let (mut plain, mut ramp) = (0.0, 0.0);
        for (lease, price) in prices.iter().enumerate() {
            plain += price;
            ramp += price * lease as f64;
            sums.plain.push(plain);
            sums.ramp.push(ramp);
        }
        sums
    }

    /// What the leases that must lie before each t cost together.
    fn cost(&self, leases: u32, step: Step) -> f64 {
        let (leases, before) = (leases as usize, step.before as usize);
        let from = before - leases;
        let end = self.plain.len() - 1;
        let ramp = self.ramp[before] - self.ramp[from];
        let base = from as f64 * (self.plain[before] - self.plain[from]);
        ramp - base + leases as f64 * (self.plain[end] - self.plain[before])
    }
}

/// The step of each demand that is worth most at some prices.
fn choose(program: &Program, sums: &Sums) -> (Vec<Option<usize>>, f64) {
    let promise = program.promise();
    let mut total = 0.0;
    let mut chosen = Vec::with_capacity(program.demands.len());
    for demand in &program.demands {
        let mut best = (0.0, None);
        for (index, step) in demand.steps.iter().enumerate() {
            if step.before >= demand.leases {
                let cost = f64::from(demand.gpus) * sums.cost(demand.leases, *step);
                let worth = promise + step.value - cost;
                if worth > best.0 {
                    best = (worth, Some(index));
                }
            }
        }
        total += best.0;
        chosen.push(best.1);
    }
    (chosen, total)
}

/// By how much the GPU time before each lease is asked for too often; negative where there is room.
fn over(program: &Program, steps: &[Option<usize>], room: &[f64]) -> Vec<f64> {
    // The need of a demand before t rises by its GPUs in each lease from d - n to d: two changes of slope.
    let mut slope = vec![0.0; room.len() + 1];
    for (demand, step) in program.demands.iter().zip(steps) {
        let Some(step) = step.map(|step| demand.steps[step]) else { continue };
        let gpus = f64::from(demand.gpus);
        slope[(step.before - demand.leases) as usize] += gpus;
        slope[step.before as usize] -= gpus;
    }
    let (mut rise, mut need) = (0.0, 0.0);
    let mut over = Vec::with_capacity(room.len());
    for (lease, room) in room.iter().enumerate() {
        over.push(need - room);
        rise += slope[lease];
        need += rise;
    }
    over
}
