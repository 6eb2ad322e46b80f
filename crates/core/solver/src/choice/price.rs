//! Prices at which what the jobs buy bounds the value best.
//!
//! At prices of the types, jobs are on their own: each buys what leaves it most, and what all have left together with
//! what all GPUs cost is at least the value of any choices that fit. The least such bound is found as a mix of answers
//! to past prices (Dantzig and Wolfe, 1960), as for time shares; whatever the arithmetic does, the bound holds, because
//! it is counted anew at the prices that are returned.

use super::ready::Ready;
use crate::shares::basis::{Basis, Column, Entered};

/// Prices tried at most.
const STEPS_MAX: usize = 400;
/// Prices tried at most without a better bound.
const STALLED_MAX: usize = 60;
/// Part of the bound below which nothing more is gained.
const GAIN_MIN: f64 = 1e-11;

/// Prices, and the bound that they give.
pub(super) struct Priced {
    /// Of one GPU of each type.
    pub prices: Vec<f64>,
    pub bound: f64,
}

/// What all jobs together answer to prices.
struct Answer {
    worth: f64,
    /// In parts of each type.
    usage: Vec<f64>,
}

/// The prices of the least bound.
pub(super) fn least(ready: &Ready) -> Priced {
    let free = vec![0.0; ready.kinds()];
    let (mut best, first) = ask(ready, &free);
    let fits = first.usage.iter().all(|part| *part <= 1.0);
    let scale = best.bound;
    if fits || scale <= 0.0 {
        return best;
    }
    let mut answers = vec![Answer { worth: 0.0, usage: vec![0.0; ready.kinds()] }];
    let kinds = ready.kinds();
    let rest = (0..kinds).map(|kind| Column { id: kind, worth: 0.0, entries: vec![(kind, 1.0)] });
    let members = rest.chain([column(kinds, &answers[0], scale)]).collect();
    let Some(mut basis) = Basis::new(members, vec![1.0; kinds + 1]) else { return best };
    answers.push(first);
    let mut moved = 0;
    for step in 0..STEPS_MAX {
        if step > moved + STALLED_MAX || !settle(&mut basis, &answers, scale) {
            break;
        }
        let prices = basis.prices();
        let of_a_gpu = |kind: usize| {
            let gpus = f64::from(ready.capacity[kind].max(1));
            prices[kind].max(0.0) * scale / gpus
        };
        let (priced, answer) = ask(ready, &(0..kinds).map(of_a_gpu).collect::<Vec<_>>());
        if priced.bound < best.bound {
            best = priced;
            moved = step;
        }
        let mixed = prices.iter().sum::<f64>() * scale;
        if best.bound - mixed <= GAIN_MIN * best.bound {
            break;
        }
        answers.push(answer);
    }
    best
}

/// The bound at prices of one GPU, and what is bought.
fn ask(ready: &Ready, prices: &[f64]) -> (Priced, Answer) {
    let mut answer = Answer { worth: 0.0, usage: vec![0.0; ready.kinds()] };
    let whole = prices.iter().zip(&ready.capacity).map(|(price, gpus)| price * f64::from(*gpus));
    let mut bound: f64 = whole.sum();
    for job in 0..ready.jobs() {
        let (item, net) = ready.buys(job, prices);
        bound += net;
        if let Some(item) = item.map(|item| ready.item(item)) {
            let kind = item.kind as usize;
            answer.worth += item.value;
            answer.usage[kind] += f64::from(item.gpus) / f64::from(ready.capacity[kind].max(1));
        }
    }
    (Priced { prices: prices.to_vec(), bound }, answer)
}

/// The best mix of the answers so far; says whether the basis is still one.
fn settle(basis: &mut Basis, answers: &[Answer], scale: f64) -> bool {
    let kinds = answers[0].usage.len();
    for _ in 0..100 {
        let prices = basis.prices();
        let room = (0..kinds).map(|kind| (-prices[kind], kind));
        let old = answers.iter().enumerate().map(|(number, answer)| {
            let paid = answer.usage.iter().zip(&prices).map(|(used, price)| used * price);
            (answer.worth / scale - paid.sum::<f64>() - prices[kinds], kinds + number)
        });
        let gains = room.chain(old).filter(|(gain, _)| *gain > GAIN_MIN);
        let best = gains.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        let Some((_, id)) = best else { return true };
        let entering = match id < kinds {
            true => Column { id, worth: 0.0, entries: vec![(id, 1.0)] },
            false => column(id, &answers[id - kinds], scale),
        };
        match basis.enter(entering) {
            Entered::For(..) => {}
            Entered::Unbounded | Entered::Singular => return false,
        }
    }
    true
}

fn column(id: usize, answer: &Answer, scale: f64) -> Column {
    let usage = answer.usage.iter().copied().enumerate();
    let entries = usage.chain([(answer.usage.len(), 1.0)]).collect();
    Column { id, worth: answer.worth / scale, entries }
}
