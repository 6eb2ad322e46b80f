//! Values that come in any order and are given on by number.

use std::collections::VecDeque;

/// Takes values by their numbers, and gives each on when all before it were given on. Keeps those that wait for one
/// before them.
#[derive(Clone, Debug)]
pub struct InOrder<T> {
    first: usize,
    waiting: VecDeque<Option<T>>,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        InOrder { first: 0, waiting: VecDeque::new() }
    }
}

impl<T> InOrder<T> {
    /// Takes the value of a number that has none yet, and gives on what need not wait any more.
    pub fn put(&mut self, number: usize, value: T, mut give: impl FnMut(T)) {
        let at = number.checked_sub(self.first).expect("a number comes once");
        if at >= self.waiting.len() {
            self.waiting.resize_with(at + 1, || None);
        }
        self.waiting[at] = Some(value);
        while let Some(value) = self.waiting.front_mut().and_then(Option::take) {
            self.waiting.pop_front();
            self.first += 1;
            give(value);
        }
    }

    /// No more will come: gives on the rest.
    pub fn finish(self, give: impl FnMut(T)) {
        self.waiting.into_iter().flatten().for_each(give);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_early_waits_and_a_gap_is_passed_only_at_the_end() {
        let (mut order, mut given) = (InOrder::default(), Vec::new());
        for number in [2, 0, 1, 5, 4] {
            order.put(number, number, |value| given.push(value));
        }
        assert_eq!(given, [0, 1, 2]);
        order.finish(|value| given.push(value));
        assert_eq!(given, [0, 1, 2, 4, 5]);
    }
}
