//! Which replica a request goes to, where each has a queue of its own.

use crate::draws::Draws;
use crate::request::Server;
use crate::settings::{Setting, Settings};
use trainyard_diagnostic::InputError;

/// How a replica is chosen.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// One after the other.
    RoundRobin,
    /// The one with the least before it.
    LeastLoaded,
    /// The less loaded of two that are drawn (Mitzenmacher 2001).
    TwoChoices,
    /// The one that knows most of the request already, unless the loads are too unequal.
    CacheAware,
}

/// The names of the routes, in the order of [`Route`].
pub const ROUTES: [&str; 4] = ["round-robin", "least-loaded", "two-choices", "cache-aware"];

/// The setting that names a route.
pub const ROUTE: Setting = Setting {
    key: "route",
    default: "least-loaded",
    meaning: "the replica for a request: round-robin, least-loaded, two-choices or cache-aware",
};

/// Above this difference and this ratio of loads, a cache-aware router balances instead, as SGLang's does; the
/// figures are ours.
const UNEQUAL_BY: u64 = 32;
const UNEQUAL_TIMES: u64 = 2;

/// Chooses replicas.
#[derive(Clone, Debug)]
pub struct Router {
    route: Route,
    next: usize,
    draws: Draws,
}

impl Router {
    /// A router; the seed counts for two choices alone.
    pub fn new(route: Route, seed: u64) -> Router {
        Router { route, next: 0, draws: Draws::new(seed, 11) }
    }

    /// The router that settings name.
    pub fn of(settings: &Settings, seed: u64) -> Result<Router, InputError> {
        let routes = [Route::RoundRobin, Route::LeastLoaded, Route::TwoChoices, Route::CacheAware];
        Ok(Router::new(routes[settings.word(ROUTE.key, &ROUTES)?], seed))
    }

    /// One of `count` replicas by what waits before each and what each knows; ties go to the lower number.
    ///
    /// Linear in the replicas, constant for round robin and two choices.
    pub fn pick(
        &mut self,
        count: usize,
        load: impl Fn(usize) -> u64,
        known: impl Fn(usize) -> u64,
    ) -> Server {
        let least = || (0..count).min_by_key(|at| load(*at)).unwrap_or(0);
        let at = match self.route {
            Route::RoundRobin => {
                self.next += 1;
                (self.next - 1) % count.max(1)
            }
            Route::LeastLoaded => least(),
            Route::TwoChoices => {
                let (a, b) = (self.draws.below(count), self.draws.below(count));
                let (a, b) = (a.min(b), a.max(b));
                if load(b) < load(a) { b } else { a }
            }
            Route::CacheAware => {
                let warmest =
                    (0..count).max_by_key(|at| (known(*at), std::cmp::Reverse(load(*at))));
                let (warmest, least) = (warmest.unwrap_or(0), least());
                let (high, low) = (load(warmest), load(least));
                let is_unequal = high > low + UNEQUAL_BY && high > UNEQUAL_TIMES * low;
                if known(warmest) == 0 || is_unequal { least } else { warmest }
            }
        };
        Server(at as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_chooses_as_it_says() {
        let loads = [3u64, 1, 2, 1];
        let load = |at: usize| loads[at];
        let mut turns = Router::new(Route::RoundRobin, 1);
        let taken: Vec<u32> = (0..5).map(|_| turns.pick(4, load, |_| 0).0).collect();
        assert_eq!(taken, [0, 1, 2, 3, 0]);
        assert_eq!(Router::new(Route::LeastLoaded, 1).pick(4, load, |_| 0), Server(1));
        let mut cache = Router::new(Route::CacheAware, 1);
        assert_eq!(cache.pick(4, load, |at| u64::from(at == 0)), Server(0));
        assert_eq!(
            cache.pick(4, |at| if at == 0 { 99 } else { 1 }, |at| u64::from(at == 0)),
            Server(1)
        );
        assert_eq!(cache.pick(4, load, |_| 0), Server(1));
    }

    #[test]
    fn two_choices_keep_the_longest_queue_far_below_one_random_choice() {
        let longest = |two: bool| {
            let (mut router, mut draws) = (Router::new(Route::TwoChoices, 3), Draws::new(3, 1));
            let mut loads = vec![0u64; 1000];
            for _ in 0..1000 {
                let at = if two {
                    router.pick(1000, |at| loads[at], |_| 0).index()
                } else {
                    draws.below(1000)
                };
                loads[at] += 1;
            }
            loads.into_iter().max().unwrap()
        };
        assert!(longest(true) <= 4 && longest(false) >= 5, "{} {}", longest(true), longest(false));
    }
}
