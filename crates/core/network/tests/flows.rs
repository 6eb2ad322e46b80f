//! Max-min rates beside a chain of linear programs, and by hand.

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, prop_assert};
use proptest::proptest;
use trainyard_network::{max_min, max_min_capped};
use trainyard_solver::{Interior, Limit, Model, Name, Sense, Solve, Status};
use trainyard_types::LinkId;

fn paths(lists: &[&[u32]]) -> Vec<Vec<LinkId>> {
    lists.iter().map(|links| links.iter().copied().map(LinkId).collect()).collect()
}

#[test]
fn one_link_is_shared_in_equal_parts() {
    assert_eq!(max_min(&[9.0], &paths(&[&[0], &[0], &[0]])), [3.0; 3]);
}

#[test]
fn what_a_flow_cannot_use_goes_to_the_others() {
    assert_eq!(max_min(&[10.0, 2.0], &paths(&[&[0, 1], &[0]])), [2.0, 8.0]);
    assert_eq!(max_min_capped(&[10.0], &paths(&[&[0], &[0], &[0]]), &[1.0]), [1.0, 4.5, 4.5]);
}

#[test]
fn a_link_named_twice_carries_the_flow_twice() {
    assert_eq!(max_min(&[9.0], &paths(&[&[0, 0], &[0]])), [3.0, 3.0]);
}

#[test]
fn a_link_without_capacity_stops_its_flows_and_no_others() {
    assert_eq!(max_min(&[0.0, 4.0], &paths(&[&[0, 1], &[1]])), [0.0, 4.0]);
    assert_eq!(max_min(&[-1.0, f64::NAN], &paths(&[&[0], &[1]])), [0.0, 0.0]);
}

#[test]
fn a_flow_without_links_is_bound_by_its_cap_alone() {
    assert_eq!(max_min(&[], &paths(&[&[]])), [f64::INFINITY]);
    assert_eq!(max_min_capped(&[f64::INFINITY], &paths(&[&[], &[0]]), &[7.0, 3.0]), [7.0, 3.0]);
    assert_eq!(max_min(&[], &[]), [] as [f64; 0]);
}

#[derive(Clone, Debug)]
struct Shared {
    capacities: Vec<f64>,
    flows: Vec<Vec<LinkId>>,
    caps: Vec<f64>,
}

impl Shared {
    /// The most that the weighted sum of rates can be when each lies within its bounds, or the highest level above
    /// which the flows of `together` all are.
    fn most(&self, weights: &[f64], bounds: &[(f64, f64)], together: &[usize]) -> f64 {
        let mut model = Model::new(Sense::Maximise);
        let links: Vec<_> = (self.capacities.iter().enumerate())
            .map(|(at, capacity)| model.row(Name("link", at), f64::NEG_INFINITY, *capacity))
            .collect();
        // Where rates rise together, each is at least the level.
        let above: Vec<_> = (bounds.iter().enumerate())
            .map(|(at, _)| model.row(Name("above", at), 0.0, f64::INFINITY))
            .collect();
        for (at, flow) in self.flows.iter().enumerate() {
            let mut entries: Vec<_> = flow.iter().map(|link| (links[link.index()], 1.0)).collect();
            entries.push((above[at], 1.0));
            model.column(weights[at], bounds[at].0, bounds[at].1, entries);
        }
        if !together.is_empty() {
            let entries: Vec<_> = together.iter().map(|at| (above[*at], -1.0)).collect();
            model.column(1.0, 0.0, f64::INFINITY, entries);
        }
        let solution = Interior::default().solve(&model, &Limit::steps(500)).unwrap();
        assert!(matches!(solution.status, Status::Proven), "{:?}", solution.status);
        solution.objective
    }

    /// Raises the least rate as far as it goes, fixes the flows that cannot have more, and begins again.
    fn by_programs(&self) -> Vec<f64> {
        let count = self.flows.len();
        let mut bounds: Vec<(f64, f64)> = self.caps.iter().map(|cap| (0.0, *cap)).collect();
        let mut fixed = vec![None; count];
        while fixed.iter().any(Option::is_none) {
            let rising: Vec<usize> = (0..count).filter(|at| fixed[*at].is_none()).collect();
            let level = self.most(&vec![0.0; count], &bounds, &rising);
            for at in &rising {
                bounds[*at].0 = (level - 1e-7).clamp(0.0, bounds[*at].1);
            }
            let mut stopped = rising;
            stopped.retain(|at| {
                let mut weights = vec![0.0; count];
                weights[*at] = 1.0;
                self.most(&weights, &bounds, &[]) < level + 1e-4
            });
            assert!(!stopped.is_empty(), "a level that nothing stops");
            for at in stopped {
                fixed[at] = Some(level);
                bounds[at] = ((level - 1e-6).max(0.0), level.min(self.caps[at]));
            }
        }
        fixed.into_iter().map(|rate| rate.expect("all are fixed")).collect()
    }
}

fn shared() -> impl Strategy<Value = Shared> {
    let capacities = vec(1u32..=20, 1..=5);
    capacities.prop_flat_map(|capacities| {
        let links = capacities.len() as u32;
        let flow = vec(0..links, 1..=3);
        (vec(flow, 1..=6), vec(1u32..=30, 6)).prop_map(move |(flows, caps)| Shared {
            capacities: capacities.iter().map(|one| f64::from(*one)).collect(),
            caps: caps[..flows.len()].iter().map(|cap| f64::from(*cap) / 2.0).collect(),
            flows: flows.into_iter().map(|links| links.into_iter().map(LinkId).collect()).collect(),
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rates_are_what_a_chain_of_linear_programs_gives(shared in shared()) {
        let rates = max_min_capped(&shared.capacities, &shared.flows, &shared.caps);
        let expected = shared.by_programs();
        for (rate, expected) in rates.iter().zip(&expected) {
            prop_assert!((rate - expected).abs() < 1e-3, "{rates:?} beside {expected:?}");
        }
    }

    #[test]
    fn each_flow_is_stopped_by_its_cap_or_by_a_full_link_on_which_it_is_among_the_greatest(
        shared in shared()
    ) {
        let rates = max_min_capped(&shared.capacities, &shared.flows, &shared.caps);
        let mut load = vec![0.0; shared.capacities.len()];
        for (links, rate) in shared.flows.iter().zip(&rates) {
            links.iter().for_each(|link| load[link.index()] += rate);
        }
        for (at, links) in shared.flows.iter().enumerate() {
            let greatest = |link: &LinkId| {
                let others = shared.flows.iter().zip(&rates).filter(|(flow, _)| flow.contains(link));
                others.map(|(_, rate)| *rate).fold(0.0, f64::max)
            };
            let full = |link: &LinkId| load[link.index()] > shared.capacities[link.index()] - 1e-9;
            let stopped = links.iter().any(|link| full(link) && rates[at] > greatest(link) - 1e-9);
            prop_assert!(rates[at] == shared.caps[at] || stopped, "flow {at} of {rates:?}");
        }
        for (load, capacity) in load.iter().zip(&shared.capacities) {
            prop_assert!(load <= &(capacity + 1e-9));
        }
    }
}
