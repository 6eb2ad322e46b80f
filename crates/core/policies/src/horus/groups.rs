//! Jobs of like size in queues of their own (Horus+), so that a large one does not keep small ones waiting.

/// Rounds after which the centres stand, or nearly so.
const ROUNDS: usize = 20;

/// The group of each size, by k-means on their logarithms: groups ascend with size. At most as many groups as asked for.
pub(super) fn by_size(sizes: &[f64], groups: usize) -> Vec<usize> {
    let logs: Vec<f64> = sizes.iter().map(|size| libm::log2(size.max(1e-6))).collect();
    let mut distinct = logs.clone();
    distinct.sort_by(f64::total_cmp);
    distinct.dedup();
    let groups = groups.clamp(1, distinct.len().max(1));
    // From the middle of each part of the sizes that there are, so that no draw is needed.
    let middle = |group: usize| distinct[(2 * group + 1) * distinct.len() / (2 * groups)];
    let mut centres: Vec<f64> = match distinct.is_empty() {
        true => return Vec::new(),
        false => (0..groups).map(middle).collect(),
    };
    let mut of: Vec<usize> = vec![0; logs.len()];
    for _ in 0..ROUNDS {
        for (group, log) in of.iter_mut().zip(&logs) {
            *group = nearest(&centres, *log);
        }
        let mut moved = false;
        for (number, centre) in centres.iter_mut().enumerate() {
            let own = || logs.iter().zip(&of).filter(|(_, group)| **group == number);
            let count = own().count();
            if count > 0 {
                let mean = own().map(|(log, _)| log).sum::<f64>() / count as f64;
                moved |= mean != *centre;
                *centre = mean;
            }
        }
        if !moved {
            break;
        }
    }
    of
}

fn nearest(centres: &[f64], log: f64) -> usize {
    let by_distance = |a: &usize, b: &usize| {
        (centres[*a] - log).abs().total_cmp(&(centres[*b] - log).abs()).then(a.cmp(b))
    };
    (0..centres.len()).min_by(by_distance).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_jobs_are_apart() {
        let sizes = [0.5, 8.0, 0.6, 7.0, 64.0, 0.4, 60.0];
        assert_eq!(by_size(&sizes, 3), [0, 1, 0, 1, 2, 0, 2]);
        assert_eq!(by_size(&sizes, 1), [0; 7]);
        assert_eq!(by_size(&[2.0, 2.0], 3), [0, 0]);
        assert!(by_size(&[], 3).is_empty());
    }
}
