//! Which jobs grow by how much: a knapsack with one choice for each job.

/// One way in which a job may grow.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Item {
    /// GPUs beyond its base.
    pub gpus: u32,
    /// What that saves, in seconds.
    pub value: f64,
}

/// Which job grows by which item.
#[derive(Clone, Debug, PartialEq)]
pub struct Division {
    /// The item of each group; nothing where none is taken.
    pub chosen: Vec<Option<usize>>,
    /// Whether nothing better is possible.
    pub proven: bool,
}

/// The second phase of Lyra's allocation, a multiple-choice knapsack by dynamic programming over capacities: at most one
/// item of each group, so that they take at most `capacity` GPUs and are worth most; of equals, those with fewer GPUs.
///
/// A table over groups and capacities, O(capacity x items). Where it would have more than `cells_max` cells, GPUs are
/// counted in larger units, rounded up for items and down for the whole: what comes out fits, and is not proven.
pub fn best(groups: &[Vec<Item>], capacity: u32, cells_max: u64) -> Division {
    let most: u64 = groups.iter().map(|items| widest(items)).sum();
    let capacity = u64::from(capacity).min(most);
    let unit = ((capacity + 1) * groups.len() as u64).div_ceil(cells_max.max(1)).max(1);
    let width = (capacity / unit) as usize;
    let mut worth = vec![0.0f64; width + 1];
    let mut chosen: Vec<Vec<u16>> = Vec::with_capacity(groups.len());
    for items in groups {
        let before = worth.clone();
        let mut taken = vec![0u16; width + 1];
        for (index, item) in items.iter().enumerate().take(usize::from(u16::MAX)) {
            let weight = u64::from(item.gpus).div_ceil(unit) as usize;
            if !item.value.is_finite() || item.value <= 0.0 {
                continue;
            }
            for room in weight..=width {
                let with = before[room - weight] + item.value;
                if with > worth[room] {
                    worth[room] = with;
                    taken[room] = index as u16 + 1;
                }
            }
        }
        chosen.push(taken);
    }
    // The least room that is worth as much as all of it.
    let mut room = (0..=width).find(|room| worth[*room] >= worth[width]).unwrap_or(width);
    let mut answer = vec![None; groups.len()];
    for (group, taken) in chosen.iter().enumerate().rev() {
        if let Some(index) = usize::from(taken[room]).checked_sub(1) {
            answer[group] = Some(index);
            room -= u64::from(groups[group][index].gpus).div_ceil(unit) as usize;
        }
    }
    Division { chosen: answer, proven: unit == 1 }
}

fn widest(items: &[Item]) -> u64 {
    items.iter().map(|item| u64::from(item.gpus)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha12Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    fn worth(groups: &[Vec<Item>], answer: &[Option<usize>]) -> (u32, f64) {
        let taken = groups.iter().zip(answer).filter_map(|(items, one)| one.map(|i| items[i]));
        taken.fold((0, 0.0), |(gpus, value), item| (gpus + item.gpus, value + item.value))
    }

    /// Every combination.
    fn brute(groups: &[Vec<Item>], capacity: u32) -> f64 {
        let Some((items, rest)) = groups.split_first() else { return 0.0 };
        let fits = items.iter().filter(|item| item.gpus <= capacity);
        let with = fits.map(|item| item.value + brute(rest, capacity - item.gpus));
        with.fold(brute(rest, capacity), f64::max)
    }

    fn drawn(rng: &mut ChaCha12Rng) -> (Vec<Vec<Item>>, u32) {
        let mut below = |n: u64| rng.next_u64() % n;
        let groups = 1 + below(5);
        let item = |below: &mut dyn FnMut(u64) -> u64| Item {
            gpus: 1 + below(6) as u32,
            value: below(200) as f64 - 40.0,
        };
        let groups =
            (0..groups).map(|_| (0..below(5)).map(|_| item(&mut below)).collect()).collect();
        (groups, below(14) as u32)
    }

    #[test]
    fn the_table_is_worth_as_much_as_the_best_of_all_combinations() {
        let mut rng = ChaCha12Rng::seed_from_u64(7);
        for case in 0..500 {
            let (groups, capacity) = drawn(&mut rng);
            let Division { chosen, proven } = best(&groups, capacity, 1 << 20);
            let (gpus, value) = worth(&groups, &chosen);
            assert!(proven && gpus <= capacity, "case {case}");
            assert_eq!(value, brute(&groups, capacity), "case {case}: {groups:?} in {capacity}");
        }
    }

    #[test]
    fn a_coarse_table_fits_and_says_that_it_is_not_proven() {
        let mut rng = ChaCha12Rng::seed_from_u64(8);
        let mut coarse = 0;
        for case in 0..200 {
            let (groups, capacity) = drawn(&mut rng);
            let Division { chosen, proven } = best(&groups, capacity, 8);
            coarse += u32::from(!proven);
            assert!(worth(&groups, &chosen).0 <= capacity, "case {case}");
        }
        assert!(coarse > 50, "only {coarse} cases were coarse");
    }

    #[test]
    fn equal_worth_takes_fewer_gpus() {
        let groups = vec![vec![Item { gpus: 2, value: 5.0 }, Item { gpus: 1, value: 5.0 }]];
        assert_eq!(best(&groups, 4, 1000), Division { chosen: vec![Some(1)], proven: true });
    }
}
