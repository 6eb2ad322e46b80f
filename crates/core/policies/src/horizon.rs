//! How many GPUs of one type are free from now on, as steps in time: what planners promise ahead is taken from it.

use crate::prelude::*;

/// Free GPUs as a function of time, which changes at steps; the last step holds for ever.
///
/// With s steps a look at one moment costs O(log s); taking, giving and a walk over a range cost O(s). Neighbours with
/// the same number are one step, so s is at most one more than twice the number of ranges taken.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Horizon {
    steps: Vec<(Time, u32)>,
}

/// A stretch of time in which the same number of GPUs is free.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) from: Time,
    /// Not included.
    pub(crate) to: Time,
    pub(crate) free: u32,
}

impl Horizon {
    /// So many are free from a moment on.
    pub(crate) fn new(now: Time, free: u32) -> Horizon {
        Horizon { steps: vec![(now, free)] }
    }

    /// How many are free at a moment; before the first step as many as at it.
    pub(crate) fn free_at(&self, at: Time) -> u32 {
        self.steps[self.index_at(at)].1
    }

    /// The first moment after `at` at which the number changes.
    pub(crate) fn next_change(&self, at: Time) -> Option<Time> {
        self.steps.get(self.steps.partition_point(|step| step.0 <= at)).map(|step| step.0)
    }

    /// The stretches between two moments, clipped to them; earliest first.
    pub(crate) fn between(
        &self,
        from: Time,
        to: Time,
    ) -> impl DoubleEndedIterator<Item = Stretch> + '_ {
        let first = self.index_at(from);
        let last = self.steps.partition_point(|step| step.0 < to).max(first);
        let last = if from < to { last } else { first };
        (first..last).map(move |index| {
            let (at, free) = self.steps[index];
            let next = self.steps.get(index + 1).map_or(Time::NEVER, |step| step.0);
            Stretch { from: at.max(from), to: next.min(to), free }
        })
    }

    /// Takes GPUs away in a stretch of time.
    ///
    /// # Panics
    /// When fewer are free anywhere in it: the caller checks that first.
    pub(crate) fn take(&mut self, from: Time, to: Time, gpus: u32) {
        self.change(from, to, |free| {
            free.checked_sub(gpus).expect("plans take what they have found free")
        });
    }

    /// Gives GPUs back in a stretch of time.
    pub(crate) fn give(&mut self, from: Time, to: Time, gpus: u32) {
        self.change(from, to, |free| free + gpus);
    }

    /// As many as there are of those asked for, in a stretch of time.
    pub(crate) fn take_up_to(&mut self, from: Time, to: Time, gpus: u32) {
        self.change(from, to, |free| free.saturating_sub(gpus));
    }

    fn change(&mut self, from: Time, to: Time, to_free: impl Fn(u32) -> u32) {
        if from >= to {
            return;
        }
        let first = self.cut(from);
        let last = if to == Time::NEVER { self.steps.len() } else { self.cut(to) };
        for step in &mut self.steps[first..last] {
            step.1 = to_free(step.1);
        }
        // Only the two ends of the range can have become like their neighbours.
        for edge in [last, first] {
            if edge > 0 && edge < self.steps.len() && self.steps[edge].1 == self.steps[edge - 1].1 {
                self.steps.remove(edge);
            }
        }
    }

    /// The index of the step that begins at `at`, made if there is none.
    fn cut(&mut self, at: Time) -> usize {
        let index = self.steps.partition_point(|step| step.0 < at);
        if self.steps.get(index).is_none_or(|step| step.0 != at) {
            let free = self.steps[index.max(1) - 1].1;
            self.steps.insert(index, (at, free));
        }
        index
    }

    fn index_at(&self, at: Time) -> usize {
        self.steps.partition_point(|step| step.0 <= at).max(1) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha12Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    const CELLS: u64 = 24;

    /// The same as an array of single moments.
    struct Cells(Vec<u32>);

    impl Cells {
        fn change(&mut self, from: u64, to: u64, change: impl Fn(u32) -> u32) {
            for cell in &mut self.0[from as usize..to as usize] {
                *cell = change(*cell);
            }
        }
    }

    fn cells_of(line: &Horizon) -> Vec<u32> {
        (0..CELLS).map(|at| line.free_at(Time(at))).collect()
    }

    #[test]
    fn a_horizon_is_what_an_array_of_moments_is() {
        for seed in 0..200 {
            let mut random = ChaCha12Rng::seed_from_u64(seed);
            let mut below = |most: u64| u64::from(random.next_u32()) % most;
            let (mut line, mut cells) = (Horizon::new(Time(0), 9), Cells(vec![9; CELLS as usize]));
            let mut taken: Vec<(u64, u64, u32)> = Vec::new();
            for _ in 0..40 {
                let (a, b) = (below(CELLS + 1), below(CELLS + 1));
                let (from, to, gpus) = (a.min(b), a.max(b), below(5) as u32);
                let (start, end) = (Time(from), Time(to));
                let least = cells.0[from as usize..to as usize].iter().min().copied();
                match below(3) {
                    0 if least.is_none_or(|least| least >= gpus) => {
                        line.take(start, end, gpus);
                        cells.change(from, to, |free| free - gpus);
                        taken.push((from, to, gpus));
                    }
                    1 => {
                        line.take_up_to(start, end, gpus);
                        cells.change(from, to, |free| free.saturating_sub(gpus));
                    }
                    _ => {
                        let Some((from, to, gpus)) = taken.pop() else { continue };
                        line.give(Time(from), Time(to), gpus);
                        cells.change(from, to, |free| free + gpus);
                    }
                }
                assert_eq!(cells_of(&line), cells.0, "seed {seed}");
                assert!(line.steps.windows(2).all(|two| two[0].0 < two[1].0), "seed {seed}");
                let (from, to) = (below(CELLS), below(CELLS + 1));
                let walked: Vec<u32> = (line.between(Time(from), Time(to)))
                    .flat_map(|one| vec![one.free; one.to.since(one.from).0 as usize])
                    .collect();
                let range = from as usize..(to as usize).max(from as usize);
                assert_eq!(walked, cells.0[range], "seed {seed} from {from} to {to}");
            }
        }
    }

    #[test]
    fn a_range_that_is_given_back_leaves_one_step() {
        let mut line = Horizon::new(Time(0), 4);
        line.take(Time(5), Time(9), 3);
        assert_eq!(line.next_change(Time(0)), Some(Time(5)));
        line.give(Time(5), Time(9), 3);
        assert_eq!(line, Horizon::new(Time(0), 4));
        assert_eq!(line.next_change(Time(0)), None);
        line.take(Time(7), Time::NEVER, 4);
        let stretches: Vec<Stretch> = line.between(Time(1), Time::NEVER).collect();
        let stretch = |from, to, free| Stretch { from: Time(from), to, free };
        assert_eq!(stretches, [stretch(1, Time(7), 4), stretch(7, Time::NEVER, 0)]);
    }
}
