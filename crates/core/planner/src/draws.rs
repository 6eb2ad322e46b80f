//! Chance from a seed.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A stream of draws.
pub struct Draws(ChaCha12Rng);

impl Draws {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Draws {
        Draws(ChaCha12Rng::seed_from_u64(seed))
    }

    /// A number from 0 to 1.
    pub fn unit(&mut self) -> f64 {
        f64::from(self.0.next_u32()) / (f64::from(u32::MAX) + 1.0)
    }

    /// A whole number below `count`.
    pub fn below(&mut self, count: u32) -> u32 {
        (self.unit() * f64::from(count)) as u32
    }
}
