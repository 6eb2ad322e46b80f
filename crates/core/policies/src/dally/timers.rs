//! How long jobs wait for near GPUs: set, or learnt from the waits that were seen.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use trainyard_types::{Span, Tier};

/// What sets the timers.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// The waits of jobs of that size for that tier: their mean and twice their deviation.
    #[default]
    Auto,
    /// The settings.
    Manual,
    /// Nothing: any GPUs are accepted at once.
    NoWait,
    /// Nothing ends a wait: only the nearest place is accepted.
    Consolidated,
    /// The mean of the waits, while it is shorter than what the nearer place saves.
    Expected,
}

/// How many GPUs, in the class of their power of two, and how near.
type Class = (u32, Tier);

/// The timers, and the waits that they follow.
#[derive(Clone, Debug)]
pub struct Timers {
    variant: Variant,
    node_wait: Span,
    rack_wait: Span,
    window: usize,
    waits: BTreeMap<Class, VecDeque<f64>>,
}

impl Timers {
    /// Timers with what they are where nothing was seen, and how many waits are remembered.
    pub fn new(variant: Variant, (node_wait, rack_wait): (Span, Span), window: usize) -> Timers {
        Timers { variant, node_wait, rack_wait, window, waits: BTreeMap::new() }
    }

    /// A job took GPUs of a tier after a wait.
    pub fn took(&mut self, (gpus, tier): (u32, Tier), waited: Span) {
        let window = self.waits.entry((gpus.next_power_of_two(), tier)).or_default();
        window.push_back(waited.as_secs_f64());
        if window.len() > self.window {
            window.pop_front();
        }
    }

    /// All waits are forgotten.
    pub fn forget(&mut self) {
        self.waits.clear();
    }

    /// The farthest tier that a job accepts after a wait. `saved` is the time that a tier saves against the next.
    pub fn accepts(
        &self,
        (gpus, nearest): (u32, Tier),
        waited: Span,
        saved: impl Fn(Tier) -> Option<Span>,
    ) -> Tier {
        let mut tier = nearest;
        while tier < Tier::Core {
            match self.wait_for((gpus, tier), &saved) {
                Some(wait) if waited >= wait => tier = beyond(tier),
                _ => break,
            }
        }
        tier
    }

    /// The length of the wait after which it accepts more; nothing if it never does.
    pub fn next(
        &self,
        (gpus, nearest): (u32, Tier),
        waited: Span,
        saved: impl Fn(Tier) -> Option<Span>,
    ) -> Option<Span> {
        let tier = self.accepts((gpus, nearest), waited, &saved);
        if tier == Tier::Core { None } else { self.wait_for((gpus, tier), saved) }
    }

    /// How long a job waits before it accepts what lies beyond a tier; nothing if for ever.
    fn wait_for(&self, class: Class, saved: impl Fn(Tier) -> Option<Span>) -> Option<Span> {
        let set = if class.1 <= Tier::Node { self.node_wait } else { self.rack_wait };
        let seen = self.waits.get(&(class.0.next_power_of_two(), class.1));
        let spread = seen.filter(|window| window.len() > 1).map(mean_and_deviation);
        match self.variant {
            Variant::NoWait => Some(Span::ZERO),
            Variant::Consolidated => None,
            Variant::Manual => Some(set),
            Variant::Auto => Some(
                spread.map_or(set, |(mean, deviation)| Span::from_secs_f64(mean + 2.0 * deviation)),
            ),
            Variant::Expected => {
                let expected = spread.map_or(set, |(mean, _)| Span::from_secs_f64(mean));
                match saved(class.1) {
                    // What is saved is less than the wait: it is not begun.
                    Some(saved) if saved <= expected => Some(Span::ZERO),
                    // A wait that outlasts what it saves is given up.
                    Some(saved) => Some(saved),
                    None => Some(expected),
                }
            }
        }
    }
}

/// The next tier: from one GPU on, a node is as near as it gets.
fn beyond(tier: Tier) -> Tier {
    match tier {
        Tier::Gpu | Tier::Node => Tier::Rack,
        Tier::Rack | Tier::Core => Tier::Core,
    }
}

fn mean_and_deviation(window: &VecDeque<f64>) -> (f64, f64) {
    let count = window.len() as f64;
    let mean = window.iter().sum::<f64>() / count;
    let variance = window.iter().map(|wait| (wait - mean) * (wait - mean)).sum::<f64>() / count;
    (mean, libm::sqrt(variance))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timers(variant: Variant) -> Timers {
        Timers::new(variant, (Span::secs(60), Span::secs(100)), 3)
    }

    fn unknown(_: Tier) -> Option<Span> {
        None
    }

    #[test]
    fn a_job_accepts_more_the_longer_it_waits() {
        let timers = timers(Variant::Manual);
        let at = |seconds| timers.accepts((4, Tier::Node), Span::secs(seconds), unknown);
        assert_eq!([at(0), at(59), at(60), at(99), at(100)], {
            use Tier::{Core, Node, Rack};
            [Node, Node, Rack, Rack, Core]
        });
        let next = |seconds| timers.next((4, Tier::Node), Span::secs(seconds), unknown);
        assert_eq!(next(0), Some(Span::secs(60)));
        assert_eq!(next(70), Some(Span::secs(100)));
        assert_eq!(next(200), None);
    }

    #[test]
    fn timers_follow_the_last_waits_of_their_class() {
        let mut timers = timers(Variant::Auto);
        for seconds in [1000, 10, 20, 30] {
            timers.took((3, Tier::Node), Span::secs(seconds));
        }
        // The first is forgotten: a mean of 20 and a deviation of 8.165.
        let next = timers.next((4, Tier::Node), Span::ZERO, unknown).unwrap().as_secs_f64();
        assert!((next - 36.33).abs() < 0.01, "{next}");
        assert_eq!(timers.next((8, Tier::Node), Span::ZERO, unknown), Some(Span::secs(60)));
        timers.forget();
        assert_eq!(timers.next((4, Tier::Node), Span::ZERO, unknown), Some(Span::secs(60)));
    }

    #[test]
    fn no_wait_takes_anything_and_consolidated_waits_for_ever() {
        let none = timers(Variant::NoWait);
        assert_eq!(none.accepts((4, Tier::Node), Span::ZERO, unknown), Tier::Core);
        let all = timers(Variant::Consolidated);
        assert_eq!(all.accepts((4, Tier::Node), Span::secs(1_000_000), unknown), Tier::Node);
        assert_eq!(all.next((4, Tier::Node), Span::ZERO, unknown), None);
    }

    #[test]
    fn an_expected_wait_is_begun_only_where_it_saves_more() {
        let mut timers = timers(Variant::Expected);
        timers.took((4, Tier::Node), Span::secs(40));
        timers.took((4, Tier::Node), Span::secs(60));
        let saves = |seconds| move |_: Tier| Some(Span::secs(seconds));
        assert_eq!(timers.accepts((4, Tier::Node), Span::ZERO, saves(49)), Tier::Core);
        assert_eq!(timers.accepts((4, Tier::Node), Span::ZERO, saves(500)), Tier::Node);
        assert_eq!(timers.next((4, Tier::Node), Span::ZERO, saves(500)), Some(Span::secs(500)));
    }
}
