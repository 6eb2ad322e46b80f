//! The shuffle of Python's `random` module, with which Gavel's simulator orders types for policies that are blind to
//! them: the Mersenne Twister, seeded by the limbs of a number, and Fisher and Yates from the end.

use rand_mt::Mt;

/// Gavel seeds the generator of this shuffle with the seed of the run and five more.
const SEED_OFFSET: u64 = 5;

/// A stream of shuffles.
pub struct Shuffler(Mt);

impl Shuffler {
    /// The stream of a run of Gavel's simulator with this seed.
    pub fn new(seed: u64) -> Shuffler {
        let seed = seed.wrapping_add(SEED_OFFSET);
        let (low, high) = (seed as u32, (seed >> 32) as u32);
        // As many limbs as the number has, one for zero.
        let limbs = if high == 0 { vec![low] } else { vec![low, high] };
        Shuffler(Mt::new_with_key(limbs))
    }

    /// Shuffles in place.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u32 + 1);
            items.swap(last, other as usize);
        }
    }

    /// A number below `bound`: as many bits as the bound has, drawn until they are below it.
    fn below(&mut self, bound: u32) -> u32 {
        let bits = 32 - bound.leading_zeros();
        loop {
            let drawn = self.0.next_u32() >> (32 - bits);
            if drawn < bound {
                return drawn;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_shuffles_are_those_of_the_simulator() {
        // The first rows of the order of types recorded with seed 0.
        let mut shuffler = Shuffler::new(0);
        let mut next = || {
            let mut kinds = ["v100", "p100", "k80"];
            shuffler.shuffle(&mut kinds);
            kinds.map(|kind| kind.chars().next().unwrap()).iter().collect::<String>()
        };
        let found: Vec<String> = (0..4).map(|_| next()).collect();
        assert_eq!(found, ["vpk", "vpk", "pvk", "kvp"]);
    }
}
