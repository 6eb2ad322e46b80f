//! The random numbers of CPython's `random.Random`, so that a seed of a published experiment gives its own jobs.
//!
//! The generator is MT19937, seeded by the words of the number (`init_by_array`); what is drawn from it is stated in
//! CPython's `random` module and does not change between its versions 3.2 and 3.14.

use rand_mt::Mt;

/// A stream of random numbers as `random.Random(seed)` gives it.
pub struct PythonRandom(Mt);

impl PythonRandom {
    /// The stream of a seed.
    pub fn new(seed: u64) -> PythonRandom {
        let (low, high) = (seed as u32, (seed >> 32) as u32);
        // The seed without its leading zero words, but at least one word.
        let words = if high == 0 { vec![low] } else { vec![low, high] };
        PythonRandom(Mt::new_with_key(words))
    }

    /// `random()`: uniform in [0, 1), with 53 bits.
    pub fn uniform(&mut self) -> f64 {
        let (high, low) = (self.0.next_u32() >> 5, self.0.next_u32() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }

    /// `uniform(low, high)`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// The index that `choice` takes among `count` things.
    pub fn index(&mut self, count: u32) -> u32 {
        assert!(count > 0, "a choice among nothing");
        let bits = u32::BITS - count.leading_zeros();
        loop {
            // What is too large is drawn again; fewer than half of all draws are.
            let drawn = self.0.next_u32() >> (u32::BITS - bits);
            if drawn < count {
                return drawn;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values are what CPython 3.11 prints.
    #[test]
    fn draws_are_those_of_cpython() {
        let mut random = PythonRandom::new(2);
        assert_eq!(random.uniform(), 0.9560342718892494);
        assert_eq!(random.between(3.0, 4.0), 3.9478274870593495);
        let indices: Vec<u32> = (0..8).map(|_| random.index(26)).collect();
        assert_eq!(indices, [1, 2, 2, 11, 5, 23, 25, 21]);
        assert_eq!(PythonRandom::new(0).uniform(), 0.8444218515250481);
        assert_eq!(PythonRandom::new((1 << 40) + 5).uniform(), 0.5043802970418443);
    }
}
