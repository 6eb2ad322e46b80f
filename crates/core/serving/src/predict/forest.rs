//! Regression trees over samples drawn with replacement, averaged.

use crate::draws::Draws;
use crate::predict::Fitted;

const TREES: usize = 60;
const DEPTH_MAX: u32 = 7;
const LEAF_MIN: usize = 3;

pub(crate) struct Forest(Vec<Node>);

enum Node {
    Leaf(f64),
    Split { at: usize, below: f64, low: Box<Node>, high: Box<Node> },
}

impl Forest {
    /// O(trees * depth * samples * columns * log samples).
    pub fn grow(x: &[Vec<f64>], y: &[f64], seed: u64) -> Forest {
        let mut draws = Draws::new(seed, 41);
        let tree = |_| {
            let taken: Vec<usize> = (0..y.len()).map(|_| draws.below(y.len())).collect();
            grown(x, y, taken, DEPTH_MAX, &mut draws)
        };
        Forest((0..TREES).map(tree).collect())
    }
}

impl Fitted for Forest {
    fn log(&self, known: &[f64]) -> f64 {
        let each = self.0.iter().map(|tree| {
            let mut node = tree;
            // As deep as the tree.
            loop {
                match node {
                    Node::Leaf(value) => return *value,
                    Node::Split { at, below, low, high } => {
                        node = if known[*at] < *below { low } else { high };
                    }
                }
            }
        });
        each.sum::<f64>() / self.0.len() as f64
    }
}

fn mean(y: &[f64], taken: &[usize]) -> f64 {
    taken.iter().map(|at| y[*at]).sum::<f64>() / taken.len().max(1) as f64
}

/// The split that leaves the least squared error, among half of the columns.
fn grown(x: &[Vec<f64>], y: &[f64], taken: Vec<usize>, depth: u32, draws: &mut Draws) -> Node {
    let width = x.first().map_or(0, Vec::len);
    if depth == 0 || taken.len() < 2 * LEAF_MIN {
        return Node::Leaf(mean(y, &taken));
    }
    let some: Vec<usize> = (0..width).filter(|_| draws.unit() < 0.5).collect();
    let of_some = some.iter().filter_map(|column| best_of(x, y, &taken, *column));
    // Where none of these says anything, all are asked.
    let best = of_some.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))).or_else(|| {
        let of_all = (0..width).filter_map(|column| best_of(x, y, &taken, column));
        of_all.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))
    });
    let Some((_, at, below)) = best else { return Node::Leaf(mean(y, &taken)) };
    let (low, high): (Vec<usize>, Vec<usize>) =
        taken.into_iter().partition(|one| x[*one][at] < below);
    let low = Box::new(grown(x, y, low, depth - 1, draws));
    let high = Box::new(grown(x, y, high, depth - 1, draws));
    Node::Split { at, below, low, high }
}

/// The best place to split by one column: how good it is, the column, and the value between both sides.
fn best_of(x: &[Vec<f64>], y: &[f64], taken: &[usize], column: usize) -> Option<(f64, usize, f64)> {
    let mut sorted = taken.to_vec();
    sorted.sort_by(|a, b| x[*a][column].total_cmp(&x[*b][column]).then(a.cmp(b)));
    let all: f64 = sorted.iter().map(|at| y[*at]).sum();
    let (mut low, mut best) = (0.0, None);
    for (count, pair) in (1..).zip(sorted.windows(2)) {
        low += y[pair[0]];
        let (a, b) = (x[pair[0]][column], x[pair[1]][column]);
        if a == b || count < LEAF_MIN || sorted.len() - count < LEAF_MIN {
            continue;
        }
        // Less squared error is more of this sum.
        let (n, m) = (count as f64, (sorted.len() - count) as f64);
        let gain = low * low / n + (all - low) * (all - low) / m;
        if best.is_none_or(|(most, _, _)| gain > most) {
            best = Some((gain, column, (a + b) / 2.0));
        }
    }
    best
}
