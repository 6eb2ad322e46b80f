//! A job is like the job whose measured pairs are most alike, and goes beside others as that one does.
//!
//! Alike is a small angle between what both keep and what both leave to others, over the pairs that both were
//! measured in (Gavel, OSDI 2020, section 6, takes the cosine too).

use super::PairTable;

/// Every cell, row by row; nothing where no job that is at all alike was measured. O(n^3).
pub fn fit(table: &PairTable) -> Vec<Option<f64>> {
    let n = table.len();
    let alike: Vec<Vec<usize>> = (0..n).map(|place| neighbours(table, place)).collect();
    let mut cells = Vec::with_capacity(n * n);
    for row in 0..n {
        for column in 0..n {
            // The model of the row may be replaced by its likes, or that of the column by its own.
            let by_row = alike[row].iter().find_map(|like| table.get((*like, column)));
            let by_column = alike[column].iter().find_map(|like| table.get((row, *like)));
            cells.push(by_row.or(by_column));
        }
    }
    cells
}

/// Other models, the most alike first.
fn neighbours(table: &PairTable, place: usize) -> Vec<usize> {
    let others = (0..table.len()).filter(|other| *other != place);
    let mut found: Vec<(f64, usize)> =
        others.filter_map(|other| Some((distance(table, place, other)?, other))).collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    found.into_iter().map(|(_, other)| other).collect()
}

/// One minus the cosine of what two models keep and leave, over what is known of both.
fn distance(table: &PairTable, a: usize, b: usize) -> Option<f64> {
    let (mut dot, mut of_a, mut of_b, mut common) = (0.0, 0.0, 0.0, 0u32);
    for other in 0..table.len() {
        for (x, y) in [
            (table.get((a, other)), table.get((b, other))),
            (table.get((other, a)), table.get((other, b))),
        ] {
            if let (Some(x), Some(y)) = (x, y) {
                dot += x * y;
                of_a += x * x;
                of_b += y * y;
                common += 1;
            }
        }
    }
    // Any two numbers point the same way: one common pair says nothing about likeness.
    (common > 1).then(|| 1.0 - dot / libm::sqrt(of_a * of_b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_takes_the_place_of_the_one_most_alike() {
        let names = ["new", "like", "other", "x", "y", "z"].map(str::to_owned).to_vec();
        let mut table = PairTable::unknown(names);
        for (row, kept) in [(0, [0.9, 0.3]), (1, [0.8, 0.3]), (2, [0.3, 0.9])] {
            table.set((row, 3), Some(kept[0]));
            table.set((row, 4), Some(kept[1]));
        }
        table.set((1, 5), Some(0.77));
        table.set((2, 5), Some(0.11));
        assert_eq!(fit(&table)[5], Some(0.77));
    }
}
