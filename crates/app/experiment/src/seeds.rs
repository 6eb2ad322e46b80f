//! Several seeds from one text.

use crate::failure::Failure;
use crate::options::SEED_MAX;

/// The most seeds of one command.
const SEEDS_MAX: u64 = 10_000;

/// Reads `5` (five seeds from `first` on), `1..5` (both ends belong to it) or `1,4,9`.
pub fn read(text: &str, first: u64) -> Result<Vec<u64>, Failure> {
    let text = text.trim();
    let expected =
        format!("a count such as 5, a range such as 1..5 or a list, at most {SEEDS_MAX}");
    let refused = || Failure::flag("--seeds", text, expected.as_str());
    let number = |part: &str| {
        let number = part.trim().parse::<u64>().ok().filter(|number| *number <= SEED_MAX);
        number.ok_or_else(refused)
    };
    let seeds: Vec<u64> = if let Some((from, to)) = text.split_once("..") {
        let (from, to) = (number(from)?, number(to.trim_start_matches('='))?);
        if to < from || to - from >= SEEDS_MAX {
            return Err(refused());
        }
        (from..=to).collect()
    } else if text.contains(',') {
        text.split(',').map(number).collect::<Result<Vec<u64>, Failure>>()?
    } else {
        let count = number(text)?;
        if count == 0 || count > SEEDS_MAX || first > SEED_MAX - count {
            return Err(refused());
        }
        (first..first + count).collect()
    };
    let mut sorted = seeds.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() == seeds.len() { Ok(seeds) } else { Err(refused()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_ranges_and_lists_are_understood() {
        assert_eq!(read("3", 1).expect("a count"), [1, 2, 3]);
        assert_eq!(read("3", 7).expect("a count"), [7, 8, 9]);
        assert_eq!(read("2..4", 1).expect("a range"), [2, 3, 4]);
        assert_eq!(read("9, 1", 1).expect("a list"), [9, 1]);
        for bad in ["0", "4..2", "1,1", "x", "-1", "1..", "1..99999999"] {
            assert!(read(bad, 1).is_err(), "{bad}");
        }
    }
}
