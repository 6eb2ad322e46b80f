//! How often a client may ask: a bucket of tokens for each user, token and address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Buckets beyond this many are given up when full again, or shared.
const BUCKETS_MAX: usize = 10_000;

/// Whose bucket it is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// A Unix user.
    Uid(u32),
    /// A token, by the first bytes of its digest.
    Token(u64),
    /// An address; of IPv6 the half that a provider hands out.
    Address(IpAddr),
    /// All that have no room for a bucket of their own.
    Rest,
}

impl Who {
    /// The bucket of a remote address.
    pub fn address(address: IpAddr) -> Who {
        match address.to_canonical() {
            IpAddr::V6(v6) => {
                let network = v6.to_bits() >> 64 << 64;
                Who::Address(IpAddr::V6(Ipv6Addr::from_bits(network)))
            }
            v4 => Who::Address(v4),
        }
    }

    /// The bucket of a token's digest.
    pub fn token(digest: &str) -> Who {
        let head = digest.get(..16).unwrap_or_default();
        Who::Token(u64::from_str_radix(head, 16).unwrap_or_default())
    }
}

/// Buckets that fill at one pace.
#[derive(Debug)]
pub struct Buckets {
    per_second: f64,
    burst: f64,
    levels: Mutex<HashMap<Who, (f64, Instant)>>,
}

impl Buckets {
    /// Buckets that are full at first.
    pub fn new(per_second: f64, burst: f64) -> Buckets {
        Buckets { per_second, burst: burst.max(1.0), levels: Mutex::default() }
    }

    /// Takes one, or says how long to wait for it.
    pub fn take(&self, who: Who, now: Instant) -> Result<(), Duration> {
        let mut levels = self.levels.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if levels.len() >= BUCKETS_MAX && !levels.contains_key(&who) {
            levels.retain(|_, (level, at)| self.filled(*level, *at, now) < self.burst);
        }
        let who = match levels.len() >= BUCKETS_MAX && !levels.contains_key(&who) {
            true => Who::Rest,
            false => who,
        };
        let (level, at) = levels.entry(who).or_insert((self.burst, now));
        let filled = self.filled(*level, *at, now);
        *at = now;
        *level = if filled >= 1.0 { filled - 1.0 } else { filled };
        match filled >= 1.0 {
            true => Ok(()),
            false => Err(Duration::from_secs_f64((1.0 - filled) / self.per_second.max(1e-6))),
        }
    }

    fn filled(&self, level: f64, at: Instant, now: Instant) -> f64 {
        let since = now.saturating_duration_since(at).as_secs_f64();
        (level + since * self.per_second).min(self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_empties_says_how_long_to_wait_and_fills_again() {
        let buckets = Buckets::new(2.0, 3.0);
        let start = Instant::now();
        let ann = Who::Uid(1);
        for _ in 0..3 {
            assert_eq!(buckets.take(ann, start), Ok(()));
        }
        assert_eq!(buckets.take(ann, start), Err(Duration::from_millis(500)));
        assert_eq!(buckets.take(Who::Uid(2), start), Ok(()), "another's bucket is another");
        assert_eq!(buckets.take(ann, start + Duration::from_millis(500)), Ok(()));
        assert!(buckets.take(ann, start + Duration::from_millis(500)).is_err());
    }

    #[test]
    fn many_addresses_do_not_grow_the_table_beyond_its_limit() {
        let buckets = Buckets::new(0.001, 5.0);
        let start = Instant::now();
        for address in 0..(2 * BUCKETS_MAX as u32) {
            let _ = buckets.take(Who::address(IpAddr::V4(address.into())), start);
        }
        assert!(buckets.levels.lock().unwrap().len() <= BUCKETS_MAX + 1);
        let (one, same) = ("2001:db8::1".parse().unwrap(), "2001:db8::ffff:1".parse().unwrap());
        assert_eq!(Who::address(one), Who::address(same));
    }
}
