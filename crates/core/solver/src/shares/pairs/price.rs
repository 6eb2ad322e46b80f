//! What can be chosen, and what gains most at prices.

use super::{Group, PairPool};
use std::cmp::Ordering;

/// Time of a group alone, or of two groups side by side, on a type. Ordered, so that results are.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Choice {
    /// The number of the dish in the menu.
    pub dish: usize,
    pub first: usize,
    /// The same as the first where two jobs of one group share.
    pub second: Option<usize>,
}

/// A class alone or two classes side by side on a type.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(in super::super) struct Dish {
    pub kind: usize,
    pub first: (usize, f64),
    pub second: Option<(usize, f64)>,
    /// Part of all GPUs of the type.
    part: f64,
}

/// Everything that is possible, by class.
pub(in super::super) struct Menu {
    kinds: usize,
    dishes: Vec<Dish>,
    fastest: Vec<f64>,
}

impl Menu {
    pub fn new(pool: &PairPool<'_>) -> Menu {
        let kinds = pool.capacity.len();
        let usable = |value: f64| value.is_finite() && value > 0.0;
        let rate = |value: f64| if usable(value) { value } else { 0.0 };
        let classes = pool.gpus.len();
        let mut menu = Menu { kinds, dishes: Vec::new(), fastest: vec![0.0; classes] };
        let runs =
            |class: usize, kind: usize| usable(pool.gpus[class]) && usable(pool.capacity[kind]);
        for class in 0..classes {
            for kind in (0..kinds).filter(|kind| runs(class, *kind)) {
                let alone = rate(pool.alone.get(class * kinds + kind).copied().unwrap_or(0.0));
                if alone > 0.0 {
                    let part = pool.gpus[class] / pool.capacity[kind];
                    menu.dishes.push(Dish { kind, first: (class, alone), second: None, part });
                    menu.fastest[class] = menu.fastest[class].max(alone);
                }
            }
        }
        for a in 0..classes {
            for b in a..classes {
                for kind in (0..kinds).filter(|kind| runs(a, *kind) && runs(b, *kind)) {
                    let (of_a, of_b) = (pool.pair)(a, b, kind);
                    let (mut of_a, mut of_b) = (rate(of_a), rate(of_b));
                    if a == b {
                        // Like jobs run alike.
                        of_a = 0.5 * (of_a + of_b);
                        of_b = of_a;
                    }
                    // Side by side but one of them stands still: the other has more alone.
                    if of_a > 0.0 && of_b > 0.0 {
                        let part = pool.gpus[a].max(pool.gpus[b]) / pool.capacity[kind];
                        let (first, second) = ((a, of_a), Some((b, of_b)));
                        menu.dishes.push(Dish { kind, first, second, part });
                        menu.fastest[a] = menu.fastest[a].max(of_a);
                        menu.fastest[b] = menu.fastest[b].max(of_b);
                    }
                }
            }
        }
        menu
    }

    pub fn kinds(&self) -> usize {
        self.kinds
    }

    pub fn dish(&self, choice: &Choice) -> &Dish {
        &self.dishes[choice.dish]
    }

    /// The fastest rate of a class; 0 for one that does not exist.
    pub fn fastest(&self, class: usize) -> f64 {
        self.fastest.get(class).copied().unwrap_or(0.0)
    }

    /// The entries of a choice in the rows of rates, time and GPUs.
    pub fn entries(&self, groups: &[Group], choice: &Choice) -> Vec<(usize, f64)> {
        let dish = self.dish(choice);
        let sides =
            [Some((choice.first, dish.first.1)), choice.second.zip(dish.second.map(|s| s.1))];
        let mut entries = vec![(2 * groups.len() + dish.kind, dish.part)];
        for (group, rate) in sides.into_iter().flatten() {
            let size = groups[group].jobs.len() as f64;
            entries.push((group, rate / groups[group].sum));
            entries.push((groups.len() + group, 1.0 / size));
        }
        entries
    }

    /// The choice that gains most at prices of the rows.
    pub fn best(&self, groups: &[Group], prices: &[f64]) -> Option<(f64, Choice)> {
        let sides = Sides::new(self, groups, prices);
        let mut best: Option<(f64, Choice)> = None;
        for (number, dish) in self.dishes.iter().enumerate() {
            let cost = prices[2 * groups.len() + dish.kind] * dish.part;
            let found = match dish.second {
                None => sides.best(dish.first, None).map(|(gain, first)| (gain, first, None)),
                Some(second) => sides.best_two(dish.first, second),
            };
            let Some((gain, first, second)) = found else { continue };
            if best.is_none_or(|(most, _)| gain - cost > most) {
                best = Some((gain - cost, Choice { dish: number, first, second }));
            }
        }
        best
    }
}

/// What rate and time are worth in each group, by class.
struct Sides<'a> {
    groups: &'a [Group],
    /// Where the groups of each class begin; groups are in order of class.
    starts: Vec<usize>,
    /// For each group the worth of rate and the cost of time.
    worth: Vec<(f64, f64)>,
}

impl Sides<'_> {
    fn new<'a>(menu: &Menu, groups: &'a [Group], prices: &[f64]) -> Sides<'a> {
        let worth = |(number, group): (usize, &Group)| {
            let size = group.jobs.len() as f64;
            (-prices[number] / group.sum, prices[groups.len() + number] / size)
        };
        let start = |class: usize| groups.partition_point(|group| group.class < class);
        Sides {
            groups,
            starts: (0..=menu.fastest.len()).map(start).collect(),
            worth: groups.iter().enumerate().map(worth).collect(),
        }
    }

    /// The group of a class that gains most at a rate, one left out.
    fn best(&self, (class, rate): (usize, f64), but: Option<usize>) -> Option<(f64, usize)> {
        let gain = |group: usize| {
            let (worth, time) = self.worth[group];
            (worth * rate - time, group)
        };
        let groups =
            (self.starts[class]..self.starts[class + 1]).filter(|group| but != Some(*group));
        groups.map(gain).max_by(by_gain)
    }

    /// The two that gain most side by side: a group with itself only if it has two jobs.
    fn best_two(
        &self,
        first: (usize, f64),
        second: (usize, f64),
    ) -> Option<(f64, usize, Option<usize>)> {
        let (gain, a) = self.best(first, None)?;
        let (more, b) = self.best(second, None)?;
        if a != b || self.groups[a].jobs.len() > 1 {
            return Some((gain + more, a, Some(b)));
        }
        let other_second = self.best(second, Some(a)).map(|(more, b)| (gain + more, a, Some(b)));
        let other_first = self.best(first, Some(b)).map(|(gain, a)| (gain + more, a, Some(b)));
        other_second.into_iter().chain(other_first).max_by(|x, y| x.0.total_cmp(&y.0))
    }
}

fn by_gain(a: &(f64, usize), b: &(f64, usize)) -> Ordering {
    a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))
}
