//! What the largest product of all rates is without one of the jobs.
//!
//! The logarithm of the product is a sum with a part for each job, so that at a price for each type every job is on its
//! own again: it buys rate as long as the logarithm grows faster than the cost. What all jobs bought at some prices,
//! mixed with weights that sum to 1, is a feasible answer where it fits into the GPUs, and a lower bound; what they
//! gain at a price, and the worth of all GPUs, is an upper bound. The best mix is a small linear program whose duals
//! are the next prices to try.
//!
//! Jobs that are alike buy alike, so that work is counted in classes. What a class buys at a price does not depend on
//! who else is there: what was tried for one program without a job serves all the others.

use super::basis::{Basis, Column, Entered};

/// The program: jobs in classes of those alike, and the GPUs.
#[derive(Copy, Clone, Debug)]
pub struct Product<'a> {
    /// GPUs of each type.
    pub capacity: &'a [f64],
    /// How many jobs each class has.
    pub counts: &'a [f64],
    /// Where the ways of each class begin; one more than there are classes.
    pub starts: &'a [usize],
    /// The rate of each way, above 0.
    pub rates: &'a [f64],
    /// The GPUs that each way takes, type by type.
    pub uses: &'a [f64],
}

/// Both bounds on the logarithm of a product.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct LogProduct {
    /// That of rates which were found.
    pub found: f64,
    /// What no rates exceed.
    pub ceiling: f64,
}

/// Bounds closer than this are one number: the product is known to a millionth then.
const NEAR: f64 = 2e-6;
/// Of the prices that were tried for other programs, so many of the last ones are looked at again.
const RECENT_MAX: usize = 24;
/// Prices that are tried for one program at most.
const TRIES_MAX: usize = 200;
/// What gains less than this does not enter a mix.
const GAIN_MIN: f64 = 1e-10;
/// Pivots in a row that gain nothing.
const STUCK_MAX: usize = 20;

/// The logarithm of the largest product of rates without one job of each class, from the prices of the whole program.
///
/// `None` where the arithmetic fails.
pub fn without_each(product: &Product<'_>, prices: &[f64]) -> Option<Vec<LogProduct>> {
    let mut tried = Tried::new(product);
    let jobs: f64 = product.counts.iter().sum();
    // No buyer spends more than 1, so that at such prices all that is bought fits.
    let high = product.capacity.iter().map(|gpus| if *gpus > 0.0 { jobs / gpus } else { 0.0 });
    tried.offer(&high.collect::<Vec<f64>>());
    tried.offer(prices);
    let classes = 0..product.counts.len();
    classes.map(|class| tried.without(class)).collect()
}

/// What was bought at prices that were tried.
struct Tried<'a> {
    product: &'a Product<'a>,
    /// Prices, one after the other.
    prices: Vec<f64>,
    /// The logarithm of the rate of each class, by price.
    worths: Vec<f64>,
    /// What each class buys of each type, by price.
    buys: Vec<f64>,
    /// For all jobs: the sum of logarithms, and what they buy of each type.
    totals: Vec<f64>,
    costs: Vec<f64>,
}

impl<'a> Tried<'a> {
    fn new(product: &'a Product<'a>) -> Tried<'a> {
        let none = Vec::new;
        Tried {
            product,
            prices: none(),
            worths: none(),
            buys: none(),
            totals: none(),
            costs: none(),
        }
    }

    fn kinds(&self) -> usize {
        self.product.capacity.len()
    }

    fn len(&self) -> usize {
        self.totals.len() / (self.kinds() + 1)
    }

    /// Prices that may serve another program: the first two and the last ones.
    fn recent(&self) -> impl Iterator<Item = usize> + use<> {
        let len = self.len();
        (0..len.min(2)).chain(len.saturating_sub(RECENT_MAX).max(2)..len)
    }

    /// Lets all classes buy at some prices.
    fn offer(&mut self, prices: &[f64]) {
        let Product { counts, starts, uses, .. } = *self.product;
        let kinds = self.kinds();
        let cost = |uses: &[f64]| uses.iter().zip(prices).map(|(gpus, price)| gpus * price).sum();
        self.costs.clear();
        self.costs.extend(uses.chunks_exact(kinds).map(|uses| -> f64 { cost(uses) }));
        let total = self.totals.len();
        self.totals.resize(total + kinds + 1, 0.0);
        for (class, count) in counts.iter().enumerate() {
            let ways = starts[class]..starts[class + 1];
            let bought = buy(&self.product.rates[ways.clone()], &self.costs[ways.clone()]);
            let worth = libm::log(bought.rate);
            let at = self.buys.len();
            self.worths.push(worth);
            self.buys.resize(at + kinds, 0.0);
            for (way, part) in bought.parts.into_iter().filter(|(_, part)| *part > 0.0) {
                let uses = &uses[(ways.start + way) * kinds..][..kinds];
                let buys = self.buys[at..].iter_mut().zip(uses);
                buys.for_each(|(sum, gpus)| *sum += part * gpus);
            }
            self.totals[total] += count * worth;
            for kind in 0..kinds {
                self.totals[total + 1 + kind] += count * self.buys[at + kind];
            }
        }
        self.prices.extend_from_slice(prices);
    }

    /// All but one job of a class at a price that was tried: what they gain, then what they buy of each type.
    fn others(&self, class: usize, at: usize) -> impl Iterator<Item = f64> + '_ {
        let kinds = self.kinds();
        let row = at * self.product.counts.len() + class;
        let buys = self.buys[row * kinds..][..kinds].iter().copied();
        let one = std::iter::once(self.worths[row]).chain(buys);
        self.totals[at * (kinds + 1)..][..kinds + 1].iter().zip(one).map(|(all, one)| all - one)
    }

    /// The upper bound by a price that was tried.
    fn ceiling(&self, class: usize, at: usize) -> f64 {
        let mut others = self.others(class, at);
        let worth = others.next().unwrap_or(0.0);
        let prices = &self.prices[at * self.kinds()..][..self.kinds()];
        let left = others.zip(self.product.capacity).zip(prices);
        worth + left.map(|((bought, gpus), price)| (gpus - bought) * price).sum::<f64>()
    }

    fn without(&mut self, class: usize) -> Option<LogProduct> {
        if self.product.counts.iter().sum::<f64>() <= 1.0 {
            return Some(LogProduct { found: 0.0, ceiling: 0.0 });
        }
        let ceilings = self.recent().map(|at| self.ceiling(class, at));
        let mut ceiling = ceilings.fold(f64::INFINITY, f64::min);
        let mut mix = Mix::new(self, class)?;
        let mut found = mix.best(self)?;
        for _ in 0..TRIES_MAX {
            if ceiling - found <= NEAR {
                break;
            }
            let prices: Vec<f64> = mix.prices(self.kinds());
            self.offer(&prices);
            ceiling = ceiling.min(self.ceiling(class, self.len() - 1));
            mix.add(self);
            found = mix.best(self)?;
        }
        Some(LogProduct { found, ceiling: ceiling.max(found) })
    }
}

/// The best mix of what all but one job of a class bought.
struct Mix {
    class: usize,
    basis: Basis,
    /// Worth and entries of what was tried: a row for each.
    rows: Vec<f64>,
}

impl Mix {
    /// From the first that was tried, which fits.
    fn new(tried: &Tried<'_>, class: usize) -> Option<Mix> {
        let kinds = tried.kinds();
        let mut rows = Vec::with_capacity((RECENT_MAX + TRIES_MAX / 8) * (kinds + 1));
        tried.recent().for_each(|at| rows.extend(tried.others(class, at)));
        let mut members = vec![column(&rows, kinds, kinds)];
        members.extend((0..kinds).map(room));
        let bounds = tried.product.capacity.iter().copied().chain([1.0]).collect();
        Some(Mix { class, basis: Basis::new(members, bounds)?, rows })
    }

    fn add(&mut self, tried: &Tried<'_>) {
        self.rows.extend(tried.others(self.class, tried.len() - 1));
    }

    /// Mixes anew; the logarithm of the product.
    fn best(&mut self, tried: &Tried<'_>) -> Option<f64> {
        let kinds = tried.kinds();
        let mut stuck = 0;
        while stuck < STUCK_MAX {
            let Some(column) = self.entering(kinds) else { break };
            match self.basis.enter(column) {
                Entered::For(_, gain) => stuck = if gain > GAIN_MIN * 1e-3 { 0 } else { stuck + 1 },
                Entered::Unbounded | Entered::Singular => return None,
            }
        }
        let worth = |(id, weight): (usize, f64)| match id.checked_sub(kinds) {
            Some(at) => weight * self.rows[at * (kinds + 1)],
            None => 0.0,
        };
        let found: f64 = self.basis.values().map(worth).sum();
        found.is_finite().then_some(found)
    }

    /// The column that gains most: room of a type, or what was bought at a price.
    fn entering(&self, kinds: usize) -> Option<Column> {
        let prices = self.basis.prices();
        let of_room = (0..kinds).map(|kind| (kind, -prices[kind]));
        let of_bought = self.rows.chunks_exact(kinds + 1).enumerate().map(|(at, row)| {
            let cost = row[1..].iter().zip(&prices).map(|(gpus, price)| gpus * price);
            (kinds + at, row[0] - cost.sum::<f64>() - prices[kinds])
        });
        let gains = of_room.chain(of_bought).filter(|(_, gain)| *gain > GAIN_MIN);
        let (id, _) = gains.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))?;
        Some(if id < kinds { room(id) } else { column(&self.rows, kinds, id) })
    }

    /// What a GPU of each type is worth to the mix.
    fn prices(&self, kinds: usize) -> Vec<f64> {
        self.basis.prices()[..kinds].iter().map(|price| price.max(0.0)).collect()
    }
}

fn room(kind: usize) -> Column {
    Column { id: kind, worth: 0.0, entries: vec![(kind, 1.0)] }
}

fn column(rows: &[f64], kinds: usize, id: usize) -> Column {
    let row = &rows[(id - kinds) * (kinds + 1)..][..kinds + 1];
    let bought = row[1..].iter().copied().enumerate();
    Column { id, worth: row[0], entries: bought.chain([(kinds, 1.0)]).collect() }
}

/// What one job buys: the parts of its time in at most two of its ways, and the rate they give.
struct Bought {
    parts: [(usize, f64); 2],
    rate: f64,
}

/// Buys rate along the cheapest mixes of ways as long as its logarithm grows faster than its cost.
fn buy(rates: &[f64], costs: &[f64]) -> Bought {
    let mut bought = Bought { parts: [(0, 0.0); 2], rate: 0.0 };
    let mut cost = 0.0;
    for _ in 0..rates.len() {
        let faster = (0..rates.len()).filter(|way| rates[*way] > bought.rate);
        let slope = |way: usize| (costs[way] - cost) / (rates[way] - bought.rate);
        let next = faster.map(|way| (slope(way), way)).min_by(|a, b| {
            a.0.total_cmp(&b.0).then(rates[b.1].total_cmp(&rates[a.1])).then(a.1.cmp(&b.1))
        });
        let Some((slope, way)) = next else { break };
        let wish = if slope > 0.0 { 1.0 / slope } else { f64::INFINITY };
        if wish <= bought.rate {
            break;
        }
        if wish < rates[way] {
            let part = (wish - bought.rate) / (rates[way] - bought.rate);
            let low = bought.parts[0];
            return Bought { parts: [(low.0, low.1 * (1.0 - part)), (way, part)], rate: wish };
        }
        bought = Bought { parts: [(way, 1.0), (0, 0.0)], rate: rates[way] };
        cost = costs[way];
    }
    bought
}
