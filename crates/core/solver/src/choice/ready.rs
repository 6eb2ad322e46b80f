//! The problem in the form in which it is searched.

use super::Choices;

/// A choice that may be made.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Item {
    pub value: f64,
    pub gpus: u32,
    pub kind: u32,
    /// Its number among the choices of its job.
    pub origin: usize,
}

impl Item {
    /// What is left of its value after payment.
    pub fn net(&self, prices: &[f64]) -> f64 {
        self.value - prices[self.kind as usize] * f64::from(self.gpus)
    }
}

/// Choices by job, then type, then GPUs; of each type, more GPUs are worth more.
pub(super) struct Ready {
    pub capacity: Vec<u32>,
    starts: Vec<usize>,
    items: Vec<Item>,
    /// The items that are best at some price of their type, by job.
    hull_starts: Vec<usize>,
    hull: Vec<u32>,
}

impl Ready {
    pub fn new(choices: &Choices) -> Ready {
        let mut ready = Ready {
            capacity: choices.capacity.clone(),
            starts: vec![0],
            items: Vec::with_capacity(choices.choices.len()),
            hull_starts: vec![0],
            hull: Vec::with_capacity(choices.choices.len()),
        };
        let mut sorted: Vec<Item> = Vec::new();
        for job in 0..choices.jobs() {
            sorted.clear();
            sorted.extend(choices.of(job).iter().enumerate().filter_map(|(origin, choice)| {
                let room = ready.capacity.get(choice.kind).copied().unwrap_or(0);
                let usable = choice.value.is_finite() && choice.value > 0.0;
                (usable && (1..=room).contains(&choice.gpus)).then_some(Item {
                    value: choice.value,
                    gpus: choice.gpus,
                    kind: choice.kind as u32,
                    origin,
                })
            }));
            // Of as many GPUs the most valuable, of equals the first given.
            sorted.sort_by(|a, b| {
                let places = (a.kind, a.gpus).cmp(&(b.kind, b.gpus));
                places.then(b.value.total_cmp(&a.value)).then(a.origin.cmp(&b.origin))
            });
            ready.take_in(&sorted);
        }
        ready
    }

    /// Keeps what nothing of the same type dominates, and marks the hull.
    fn take_in(&mut self, sorted: &[Item]) {
        let (first, first_on_hull) = (self.items.len(), self.hull.len());
        let mut of_kind = first_on_hull;
        for item in sorted {
            let last = self.items[first..].last().filter(|last| last.kind == item.kind);
            if last.is_some_and(|last| last.value >= item.value) {
                continue;
            }
            if last.is_none() {
                of_kind = self.hull.len();
            }
            self.items.push(*item);
            while self.hull.len() > of_kind && self.is_above(of_kind, item) {
                self.hull.pop();
            }
            self.hull.push(self.items.len() as u32 - 1);
        }
        self.starts.push(self.items.len());
        self.hull_starts.push(self.hull.len());
    }

    /// Whether the line from the hull's last but one to an item passes above its last.
    fn is_above(&self, of_kind: usize, item: &Item) -> bool {
        let at = |place: usize| &self.items[self.hull[place] as usize];
        let last = at(self.hull.len() - 1);
        let (value, gpus) = match self.hull.len() - 1 > of_kind {
            true => (at(self.hull.len() - 2).value, at(self.hull.len() - 2).gpus),
            false => (0.0, 0),
        };
        let rise = (last.value - value) * f64::from(item.gpus - gpus);
        rise <= (item.value - value) * f64::from(last.gpus - gpus)
    }

    pub fn jobs(&self) -> usize {
        self.starts.len() - 1
    }

    pub fn kinds(&self) -> usize {
        self.capacity.len()
    }

    pub fn item(&self, item: u32) -> &Item {
        &self.items[item as usize]
    }

    /// The items of a job.
    pub fn items_of(&self, job: usize) -> std::ops::Range<u32> {
        self.starts[job] as u32..self.starts[job + 1] as u32
    }

    /// What a job would buy at prices, the cheapest of equals, and what is left of its value after payment.
    pub fn buys(&self, job: usize, prices: &[f64]) -> (Option<u32>, f64) {
        let mut best = (None, 0.0);
        for &item in &self.hull[self.hull_starts[job]..self.hull_starts[job + 1]] {
            let net = self.item(item).net(prices);
            if net > best.1 {
                best = (Some(item), net);
            }
        }
        best
    }
}
