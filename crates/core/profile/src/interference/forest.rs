//! A random forest for regression: trees on samples drawn with replacement, each split on the best of some features.
//!
//! Draws come from a fixed sequence, so that the same rows give the same forest.

/// How many trees, how deep, and how few rows a leaf has at least.
const TREES: usize = 40;
const DEPTH_MAX: usize = 8;
const LEAF_MIN: usize = 2;

/// Trees whose mean is the prediction.
#[derive(Clone, Debug, Default)]
pub(super) struct Forest {
    trees: Vec<Vec<Cell>>,
    /// The root of the mean square of its errors on rows by the trees that did not draw them.
    pub(super) spread: f64,
}

/// A place in a tree: a leaf's mean, or where to go on.
#[derive(Copy, Clone, Debug)]
enum Cell {
    Leaf(f64),
    Split { feature: usize, at: f64, below: usize, above: usize },
}

/// A fixed sequence of numbers without visible order (SplitMix64).
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        // The high half times the limit, which is small: the bias is below 2^-32.
        ((bits >> 32).wrapping_mul(limit as u64) >> 32) as usize
    }
}

impl Forest {
    /// Grows trees on rows of equal length with their values. O(trees * depth * rows * features * log rows).
    pub(super) fn grow(rows: &[Vec<f64>], values: &[f64]) -> Forest {
        if rows.is_empty() {
            return Forest::default();
        }
        let mut sequence = Sequence(7);
        let mut unseen: Vec<(f64, f64)> = vec![(0.0, 0.0); rows.len()];
        let mut trees = Vec::with_capacity(TREES);
        for _ in 0..TREES {
            let drawn: Vec<usize> = (0..rows.len()).map(|_| sequence.below(rows.len())).collect();
            let mut was_drawn = vec![false; rows.len()];
            drawn.iter().for_each(|row| was_drawn[*row] = true);
            let mut tree = Growing { rows, values, cells: Vec::new(), sequence: &mut sequence };
            tree.grow(drawn, 0);
            let cells = tree.cells;
            for row in (0..rows.len()).filter(|row| !was_drawn[*row]) {
                unseen[row].0 += of_tree(&cells, &rows[row]);
                unseen[row].1 += 1.0;
            }
            trees.push(cells);
        }
        let asked = || unseen.iter().zip(values).filter(|(sum, _)| sum.1 > 0.0);
        let square = |(sum, value): (&(f64, f64), &f64)| {
            let error = sum.0 / sum.1 - value;
            error * error
        };
        let spread = libm::sqrt(asked().map(square).sum::<f64>() / asked().count().max(1) as f64);
        Forest { trees, spread }
    }

    /// The mean over the trees; 0 of none.
    pub(super) fn value(&self, row: &[f64]) -> f64 {
        let sum: f64 = self.trees.iter().map(|tree| of_tree(tree, row)).sum();
        sum / self.trees.len().max(1) as f64
    }
}

fn of_tree(tree: &[Cell], row: &[f64]) -> f64 {
    let mut at = 0;
    loop {
        match tree[at] {
            Cell::Leaf(value) => return value,
            Cell::Split { feature, at: edge, below, above } => {
                at = if row[feature] <= edge { below } else { above };
            }
        }
    }
}

struct Growing<'a> {
    rows: &'a [Vec<f64>],
    values: &'a [f64],
    cells: Vec<Cell>,
    sequence: &'a mut Sequence,
}

impl Growing<'_> {
    /// Adds the tree of some rows, and says where it begins.
    fn grow(&mut self, drawn: Vec<usize>, depth: usize) -> usize {
        let place = self.cells.len();
        let mean = drawn.iter().map(|row| self.values[*row]).sum::<f64>() / drawn.len() as f64;
        self.cells.push(Cell::Leaf(mean));
        if depth == DEPTH_MAX || drawn.len() < 2 * LEAF_MIN {
            return place;
        }
        let Some((feature, at)) = self.best_split(&drawn) else { return place };
        let is_below = |row: &usize| self.rows[*row][feature] <= at;
        let (low, high): (Vec<usize>, Vec<usize>) = drawn.iter().partition(|row| is_below(row));
        let below = self.grow(low, depth + 1);
        let above = self.grow(high, depth + 1);
        self.cells[place] = Cell::Split { feature, at, below, above };
        place
    }

    /// The split after which the squares of the errors sum to least, on a third of the features, or on more where none
    /// of these can be split.
    fn best_split(&mut self, drawn: &[usize]) -> Option<(usize, f64)> {
        let mut features: Vec<usize> = (0..self.rows[0].len()).collect();
        let tried = features.len().div_ceil(3);
        let mut best: Option<(f64, usize, f64)> = None;
        for place in 0..features.len() {
            if place >= tried && best.is_some() {
                break;
            }
            let other = place + self.sequence.below(features.len() - place);
            features.swap(place, other);
            let found = self.split_on(features[place], drawn);
            if let Some((gain, at)) = found
                && best.is_none_or(|best| gain > best.0)
            {
                best = Some((gain, features[place], at));
            }
        }
        best.map(|(_, feature, at)| (feature, at))
    }

    /// The best split on one feature, and how good it is.
    fn split_on(&self, feature: usize, drawn: &[usize]) -> Option<(f64, f64)> {
        let mut sorted: Vec<(f64, f64)> =
            drawn.iter().map(|row| (self.rows[*row][feature], self.values[*row])).collect();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let total: f64 = sorted.iter().map(|pair| pair.1).sum();
        let (mut low, mut best) = (0.0, None::<(f64, f64)>);
        for count in 1..sorted.len() {
            low += sorted[count - 1].1;
            let (left, right) = (sorted[count - 1].0, sorted[count].0);
            if left == right || count < LEAF_MIN || sorted.len() - count < LEAF_MIN {
                continue;
            }
            // The squares of the means, weighted, are largest where those of the errors are least.
            let high = total - low;
            let gain = low * low / count as f64 + high * high / (sorted.len() - count) as f64;
            if best.is_none_or(|best| gain > best.0) {
                best = Some((gain, 0.5 * (left + right)));
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_in_two_features_is_found() {
        let mut rows = Vec::new();
        let mut values = Vec::new();
        for i in 0..20 {
            for j in 0..20 {
                let (x, y) = (f64::from(i) / 20.0, f64::from(j) / 20.0);
                rows.push(vec![x, y, 0.5]);
                values.push(if x > 0.5 && y > 0.3 { 0.4 } else { 0.9 });
            }
        }
        let forest = Forest::grow(&rows, &values);
        assert!((forest.value(&[0.9, 0.8, 0.5]) - 0.4).abs() < 0.05);
        assert!((forest.value(&[0.1, 0.8, 0.5]) - 0.9).abs() < 0.05);
        assert_eq!(
            forest.value(&[0.2, 0.2, 0.5]),
            Forest::grow(&rows, &values).value(&[0.2, 0.2, 0.5])
        );
        assert_eq!(Forest::grow(&[], &[]).value(&[1.0]), 0.0);
    }
}
