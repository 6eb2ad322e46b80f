//! The best use of a number of GPU-rounds when each item of a size has a gain: an exact knapsack over few sizes.
//!
//! Items of one size differ in their gains only, so the best so many of them are the steepest so many, and
//! the value of a size is concave in the number taken. Sizes are joined one by one: for each capacity, how much of it
//! goes to the new size. With a concave value that split moves one way as the capacity grows, so that it is found by
//! halving instead of by trying all. O(sizes x capacity x log capacity), whatever the number of items.
//!
//! Where every size divides the next, as powers of two do, no capacity needs to be tried: what is left beside whole
//! multiples of the next size can only go to the smaller one, and all else of it comes in bundles of the next size.
//! O(items), and as good.

/// Capacities times sizes beyond which the best is not looked for: some 30 MiB, on 65,000 GPUs of four sizes.
const CELLS_MAX: u64 = 1 << 23;

/// Gains of items of one size, steepest first, none below 0.
#[derive(Clone, Debug)]
pub struct Class {
    /// What one of them takes.
    pub size: u64,
    /// The gain of each.
    pub gains: Vec<f64>,
}

/// How many of the steepest items of each class to take.
pub fn fill(classes: &[Class], capacity: u64) -> Vec<usize> {
    let unit = classes.iter().fold(0, |unit, class| greatest_common_divisor(unit, class.size));
    if unit == 0 {
        return vec![0; classes.len()];
    }
    let demand: u64 = classes.iter().map(|class| class.size * class.gains.len() as u64).sum();
    if demand <= capacity {
        return classes.iter().map(|class| class.gains.len()).collect();
    }
    if let Some(counts) = by_bundles(classes, capacity) {
        return counts;
    }
    if capacity / unit * classes.len() as u64 > CELLS_MAX {
        return by_density(classes, capacity);
    }
    by_capacity(classes, unit, capacity)
}

/// One size with the bundles of smaller items that are as large.
struct Level {
    /// The class of this size.
    class: usize,
    /// Gains of its items and of the bundles, steepest first.
    gains: Vec<f64>,
    /// Whether each of them is a bundle.
    bundled: Vec<bool>,
    /// Of the steepest, how many go where nothing of the next size has room.
    beside: usize,
    /// How many of the others make one bundle of the next size.
    bundle: usize,
}

/// The best where every size divides the next; nothing if one does not.
fn by_bundles(classes: &[Class], capacity: u64) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..classes.len()).collect();
    order.sort_by_key(|class| classes[*class].size);
    let size = |at: usize| classes[order[at]].size;
    if (1..order.len()).any(|at| size(at) % size(at - 1) != 0) {
        return None;
    }
    let mut levels: Vec<Level> = Vec::with_capacity(order.len());
    for (at, class) in order.iter().enumerate() {
        let (gains, bundled) = match levels.last() {
            None => (classes[*class].gains.clone(), vec![false; classes[*class].gains.len()]),
            Some(below) => below.joined(&classes[*class].gains),
        };
        let room = capacity / size(at);
        // The largest size has nothing above: all of its room is beside.
        let (beside, bundle) = match order.get(at + 1) {
            Some(_) => (room % (size(at + 1) / size(at)), size(at + 1) / size(at)),
            None => (room, 1),
        };
        let beside = gains.len().min(usize::try_from(beside).unwrap_or(usize::MAX));
        let bundle = usize::try_from(bundle).unwrap_or(usize::MAX);
        levels.push(Level { class: *class, gains, bundled, beside, bundle });
    }
    let mut counts = vec![0; classes.len()];
    let mut bundles = 0;
    for level in levels.iter().rev() {
        let taken = level.gains.len().min(level.beside + bundles * level.bundle);
        bundles = level.bundled[..taken].iter().filter(|bundled| **bundled).count();
        counts[level.class] = taken - bundles;
    }
    Some(counts)
}

impl Level {
    /// The items of the next size and the bundles of this one, steepest first; of equals the single items.
    fn joined(&self, single: &[f64]) -> (Vec<f64>, Vec<bool>) {
        let mut bundles = self.gains[self.beside..].chunks(self.bundle).map(|of| of.iter().sum());
        let mut next: Option<f64> = bundles.next();
        let (mut gains, mut bundled) = (Vec::new(), Vec::new());
        for gain in single {
            while let Some(bundle) = next.filter(|bundle| bundle > gain) {
                gains.push(bundle);
                bundled.push(true);
                next = bundles.next();
            }
            gains.push(*gain);
            bundled.push(false);
        }
        gains.extend(next.into_iter().chain(bundles));
        bundled.resize(gains.len(), true);
        (gains, bundled)
    }
}

/// The best for each capacity, size by size.
fn by_capacity(classes: &[Class], unit: u64, capacity: u64) -> Vec<usize> {
    let capacity = (capacity / unit) as usize;
    let mut best = vec![0.0; capacity + 1];
    // For each class and capacity, how many of the class the best use has.
    let mut taken: Vec<Vec<u32>> = Vec::with_capacity(classes.len());
    for class in classes {
        let step = (class.size / unit) as usize;
        let mut joined = Joined {
            value: prefix_sums(&class.gains),
            step,
            best: &best,
            next: vec![0.0; capacity + 1],
            taken: vec![0; capacity + 1],
        };
        for rest in 0..step.min(capacity + 1) {
            let rows = (capacity - rest) / step;
            joined.halve(rest, (0, rows), (0, rows));
        }
        let Joined { next, taken: of_class, .. } = joined;
        best = next;
        taken.push(of_class);
    }
    let mut left = capacity;
    let mut counts = vec![0; classes.len()];
    for (index, class) in classes.iter().enumerate().rev() {
        counts[index] = (taken[index][left] as usize).min(class.gains.len());
        left -= taken[index][left] as usize * (class.size / unit) as usize;
    }
    counts
}

/// Whatever gains most for its size first, as long as it fits: good, not proven best.
fn by_density(classes: &[Class], capacity: u64) -> Vec<usize> {
    let mut counts = vec![0; classes.len()];
    let mut left = capacity;
    loop {
        let next = |index: &usize| {
            classes[*index].size <= left && counts[*index] < classes[*index].gains.len()
        };
        let density =
            |index: &usize| classes[*index].gains[counts[*index]] / classes[*index].size as f64;
        let open = (0..classes.len()).filter(next);
        let Some(index) = open.max_by(|a, b| density(a).total_cmp(&density(b)).then(b.cmp(a)))
        else {
            return counts;
        };
        left -= classes[index].size;
        counts[index] += 1;
    }
}

/// One class being joined to those before it.
struct Joined<'a> {
    /// The value of so many of the class.
    value: Vec<f64>,
    step: usize,
    best: &'a [f64],
    next: Vec<f64>,
    taken: Vec<u32>,
}

impl Joined<'_> {
    /// Works out the capacities `rest + step x row` for rows of a range, knowing in which range the rows lie that are
    /// left to the classes before.
    fn halve(&mut self, rest: usize, (from, to): (usize, usize), (low, high): (usize, usize)) {
        let middle = from + (to - from) / 2;
        let mut chosen = (f64::NEG_INFINITY, low);
        for left in low..=high.min(middle) {
            let count = (middle - left).min(self.value.len() - 1);
            let value = self.best[rest + self.step * left] + self.value[count];
            if value > chosen.0 {
                chosen = (value, left);
            }
        }
        let at = rest + self.step * middle;
        (self.next[at], self.taken[at]) = (chosen.0, (middle - chosen.1) as u32);
        if from < middle {
            self.halve(rest, (from, middle - 1), (low, chosen.1));
        }
        if middle < to {
            self.halve(rest, (middle + 1, to), (chosen.1, high));
        }
    }
}

fn prefix_sums(gains: &[f64]) -> Vec<f64> {
    let mut sums = Vec::with_capacity(gains.len() + 1);
    let mut sum = 0.0;
    sums.push(sum);
    for gain in gains {
        sum += gain;
        sums.push(sum);
    }
    sums
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn value(classes: &[Class], counts: &[usize]) -> f64 {
        let of = |(class, count): (&Class, &usize)| class.gains[..*count].iter().sum::<f64>();
        classes.iter().zip(counts).map(of).sum()
    }

    fn best_of_all(classes: &[Class], capacity: u64) -> f64 {
        let Some((class, others)) = classes.split_first() else { return 0.0 };
        let fits = |count: &usize| *count as u64 * class.size <= capacity;
        let with = |count: usize| {
            let left = capacity - count as u64 * class.size;
            class.gains[..count].iter().sum::<f64>() + best_of_all(others, left)
        };
        (0..=class.gains.len()).filter(fits).map(with).fold(0.0, f64::max)
    }

    fn classes() -> impl Strategy<Value = Vec<Class>> {
        let gains = prop::collection::vec(0.0..10.0f64, 0..6);
        let class = (1u64..9, gains).prop_map(|(size, mut gains)| {
            gains.sort_by(|a, b| b.total_cmp(a));
            Class { size, gains }
        });
        prop::collection::vec(class, 0..4)
    }

    proptest! {
        #[test]
        fn by_density_everything_fits_and_little_is_lost(classes in classes(), capacity in 0u64..60) {
            let counts = by_density(&classes, capacity);
            let used: u64 = classes.iter().zip(&counts).map(|(class, count)| class.size * *count as u64).sum();
            prop_assert!(used <= capacity);
            // At most the gain of one item is lost, but for what no longer fits: half of the best with the largest.
            let largest = classes.iter().filter(|class| class.size <= capacity);
            let largest = largest.filter_map(|class| class.gains.first()).fold(0.0, |a: f64, b| a.max(*b));
            let best = best_of_all(&classes, capacity);
            prop_assert!(value(&classes, &counts) + largest >= best / 2.0 - 1e-9);
        }

        #[test]
        fn by_bundles_is_as_good_as_by_capacity(
            powers in prop::collection::vec((0u32..5, prop::collection::vec(0.0..10.0f64, 0..30)), 0..5),
            capacity in 0u64..400,
        ) {
            let mut classes: BTreeMap<u32, Class> = BTreeMap::new();
            for (power, mut gains) in powers {
                gains.sort_by(|a, b| b.total_cmp(a));
                classes.insert(power, Class { size: 1 << power, gains });
            }
            let classes: Vec<Class> = classes.into_values().collect();
            let counts = by_bundles(&classes, capacity).expect("powers of two divide each other");
            let used: u64 = classes.iter().zip(&counts).map(|(class, count)| class.size * *count as u64).sum();
            prop_assert!(used <= capacity);
            let best = value(&classes, &by_capacity(&classes, 1, capacity));
            prop_assert!((value(&classes, &counts) - best).abs() < 1e-9);
        }

        #[test]
        fn nothing_is_better_and_everything_fits(classes in classes(), capacity in 0u64..60) {
            let counts = fill(&classes, capacity);
            let used: u64 = classes.iter().zip(&counts).map(|(class, count)| class.size * *count as u64).sum();
            prop_assert!(used <= capacity);
            prop_assert!((value(&classes, &counts) - best_of_all(&classes, capacity)).abs() < 1e-9);
        }
    }
}
