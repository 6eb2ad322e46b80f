//! Chance, from a seed.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A stream of draws for one purpose.
#[derive(Debug)]
pub struct Dice(ChaCha12Rng);

impl Dice {
    /// The stream of a purpose under a seed.
    pub fn new(seed: u64, purpose: u64) -> Dice {
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        random.set_stream(purpose);
        Dice(random)
    }

    /// A number below `bound`. That it is a hair from uniform does no harm here.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound.max(1)
    }

    /// A number from `low` to `high`, both possible.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True so many times out of a thousand.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}
