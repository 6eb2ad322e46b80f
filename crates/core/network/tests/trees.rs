//! GenTree on random trees, and what is refused of trees.

use proptest::prelude::{ProptestConfig, Strategy, prop_assert, prop_assert_eq};
use proptest::{collection::vec, proptest};
use trainyard_network::gentree::baselines;
use trainyard_network::{Server, ServerCosts, Switch, Tree, TreeError, gentree, simulate};

const COSTS: ServerCosts =
    ServerCosts { gamma: 2e-11, delta: 1e-10, epsilon: 5e-11, fan_in_max: 5 };

fn random_tree() -> impl Strategy<Value = Tree> {
    let switch = (0usize..4, 1u32..=40);
    let server = (0usize..6, 1u32..=10);
    (vec(switch, 1..=5), vec(server, 2..=14)).prop_map(|(switches, servers)| {
        let mut tree = Tree::star(0, 1e9, 30e-6, COSTS);
        for (at, (up, gbps)) in switches.iter().enumerate() {
            let up_bytes_per_second = f64::from(*gbps) * 1.25e8;
            let up = Some(up % (at + 1));
            tree.switches.push(Switch {
                name: format!("s{at}"),
                up,
                up_bytes_per_second,
                alpha: 5e-6,
            });
        }
        tree.servers = servers
            .iter()
            .map(|(switch, gbps)| Server {
                switch: switch % tree.switches.len(),
                bytes_per_second: f64::from(*gbps) * 1.25e8,
            })
            .collect();
        tree
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn gentree_reduces_everything_and_is_never_worse_than_the_best_baseline(tree in random_tree()) {
        let bytes = 6_000_000;
        let found = gentree(&tree, bytes).unwrap();
        prop_assert_eq!(found.plan.check(), Ok(()));
        for (name, plan) in baselines(&tree, bytes).unwrap() {
            let other = tree.parts(&plan).seconds();
            prop_assert!(found.parts.seconds() <= other, "{name}");
        }
    }

    /// Max-min shares let no transfer end before its busiest link allows, and ranks wait for no one but their partners.
    #[test]
    fn the_simulation_of_a_plan_is_no_faster_than_its_busiest_link(tree in random_tree()) {
        for (name, plan) in baselines(&tree, 6_000_000).unwrap() {
            let simulated = simulate(&plan, &tree);
            let capacities = tree.capacities();
            for (load, capacity) in simulated.loads.iter().zip(&capacities) {
                prop_assert!(simulated.seconds * capacity >= load * (1.0 - 1e-9), "{name}");
            }
        }
    }
}

/// Two racks of 4 whose uplinks carry a quarter of what one server does.
fn two_racks() -> Tree {
    let mut tree = Tree::star(0, 1.25e9, 30e-6, COSTS);
    tree.add_rack("left", 0.3125e9, 5e-6, (4, 1.25e9));
    tree.add_rack("right", 0.3125e9, 5e-6, (4, 1.25e9));
    tree
}

#[test]
fn across_slow_uplinks_gentree_reduces_within_racks_first() {
    let tree = two_racks();
    let found = gentree(&tree, 100_000_000).unwrap();
    assert_eq!(found.plan.check(), Ok(()));
    assert_eq!(found.choices.len(), 3, "{:?}", found.choices);
    let across: u64 = (found.plan.transfers())
        .filter(|(_, one)| tree.servers[one.from].switch != tree.servers[one.to].switch)
        .map(|(_, one)| one.bytes)
        .sum();
    // Each rack sends half of the data to the other and gets the sum of the other half, and back.
    assert_eq!(across, 200_000_000);
    let others = baselines(&tree, 100_000_000).unwrap();
    let ring = &others.iter().find(|(name, _)| name == "ring").unwrap().1;
    let best = others.iter().map(|(_, plan)| tree.parts(plan).seconds()).fold(f64::MAX, f64::min);
    assert!(found.parts.seconds() < best, "{} of {best}", found.parts.seconds());
    assert!(simulate(&found.plan, &tree).seconds < simulate(ring, &tree).seconds);
}

/// Where an uplink carries as much as a server, a ring in the order of the racks is the best there is.
#[test]
fn over_wide_uplinks_a_ring_in_order_of_racks_is_kept_and_a_ring_out_of_order_is_not() {
    let mut tree = two_racks();
    (1..=2).for_each(|rack| tree.switches[rack].up_bytes_per_second = 1.25e9);
    let in_order = gentree(&tree, 100_000_000).unwrap();
    assert_eq!(in_order.choices, [(0, "ring, flat".to_owned())]);
    (0..8).for_each(|server| tree.servers[server].switch = 1 + server % 2);
    let others = baselines(&tree, 100_000_000).unwrap();
    let ring = &others.iter().find(|(name, _)| name == "ring").unwrap().1;
    let found = gentree(&tree, 100_000_000).unwrap();
    assert!((found.parts.seconds() - in_order.parts.seconds()).abs() < 1e-12);
    assert!(tree.parts(ring).seconds() > 3.0 * found.parts.seconds());
}

/// The control: on one switch there is nothing to gain from a tree.
#[test]
fn on_one_switch_gentree_is_the_best_flat_plan() {
    let tree = Tree::star(8, 1.25e9, 30e-6, COSTS);
    let found = gentree(&tree, 1_000_000).unwrap();
    let layered = trainyard_network::Algorithm::all(8).into_iter().skip(1);
    let best = layered
        .map(|one| tree.parts(&one.plan(8, 1_000_000).unwrap()).seconds())
        .fold(f64::MAX, f64::min);
    assert!((found.parts.seconds() - best).abs() < 1e-12);
}

#[test]
fn trees_that_are_none_are_refused() {
    let good = two_racks();
    assert_eq!(good.check(), Ok(()));
    let changed = |change: &dyn Fn(&mut Tree)| {
        let mut tree = good.clone();
        change(&mut tree);
        tree.check().unwrap_err().to_string()
    };
    let error = changed(&|tree| tree.switches[1].up_bytes_per_second = 0.0);
    assert_eq!(
        error,
        "the uplink of switch `left` has 0 bytes per second: expected a number above 0"
    );
    let error = changed(&|tree| tree.switches[2].up = None);
    assert_eq!(error, "switch `right` has no switch above it: only the first may be the root");
    assert_eq!(
        changed(&|tree| tree.switches[2].name = "left".into()),
        "two switches are called `left`"
    );
    assert!(changed(&|tree| tree.switches[1].up = Some(2)).contains("after the switch above"));
    assert!(changed(&|tree| tree.servers[3].switch = 9).contains("server 3"));
    assert!(changed(&|tree| tree.servers[3].bytes_per_second = f64::NAN).contains("server 3"));
    assert!(changed(&|tree| tree.costs.delta = -1.0).contains("delta"));
    assert_eq!(Tree::star(1, 1.0, 0.0, COSTS).check(), Err(TreeError::TooFew(1)));
}

/// How often and by how much the tree helps, over trees as in the property.
#[test]
fn on_most_random_trees_gentree_is_better_than_every_baseline() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut better, mut gains) = (0, Vec::new());
    for _ in 0..50 {
        let tree = random_tree().new_tree(&mut runner).unwrap().current();
        let found = gentree(&tree, 6_000_000).unwrap().parts.seconds();
        let best = baselines(&tree, 6_000_000).unwrap();
        let best = best.iter().map(|(_, plan)| tree.parts(plan).seconds()).fold(f64::MAX, f64::min);
        better += u32::from(found < 0.999 * best);
        gains.push(best / found);
    }
    gains.sort_by(f64::total_cmp);
    println!("better on {better} of 50, median gain {:.2}, greatest {:.2}", gains[25], gains[49]);
    assert!(better >= 25, "better on {better} of 50, {gains:?}");
}
