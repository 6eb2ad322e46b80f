//! Which job goes with which, against trying everything.

use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq};
use proptest::test_runner::RngSeed;
use proptest::{collection::vec, option, prop_oneof, proptest};
use trainyard_solver::{bipartite, matching, matching_in_order, matching_of_most};

/// Costs that tie often, and costs that do not.
fn number() -> impl Strategy<Value = f64> + Clone {
    prop_oneof![3 => (-3_i32..6).prop_map(f64::from), 1 => -1e3..1e3_f64, 1 => Just(0.0)]
}

fn table() -> impl Strategy<Value = Vec<Vec<Option<f64>>>> {
    (0_usize..7, 0_usize..7)
        .prop_flat_map(|(rows, columns)| vec(vec(option::weighted(0.8, number()), columns), rows))
}

/// As many pairs as can be made from this row on, and their least cost.
fn cheapest(table: &[Vec<Option<f64>>], row: usize, taken: u32) -> (usize, f64) {
    if row == table.len() {
        return (0, 0.0);
    }
    let mut best = cheapest(table, row + 1, taken);
    for (column, cost) in table[row].iter().enumerate() {
        if let Some(cost) = cost.filter(|_| taken & 1 << column == 0) {
            let rest = cheapest(table, row + 1, taken | 1 << column);
            let found = (rest.0 + 1, rest.1 + cost);
            if found.0 > best.0 || found.0 == best.0 && found.1 < best.1 {
                best = found;
            }
        }
    }
    best
}

/// The best matching among the nodes that are not taken: pairs and weight; by weight alone, or by pairs first.
fn heaviest(nodes: usize, edges: &[(usize, usize, f64)], taken: u32, most: bool) -> (usize, f64) {
    let Some(node) = (0..nodes).find(|node| taken & 1 << node == 0) else { return (0, 0.0) };
    let taken = taken | 1 << node;
    let mut best = heaviest(nodes, edges, taken, most);
    for (one, other, weight) in edges {
        let mate = if *one == node { *other } else { *one };
        if (*one == node || *other == node) && taken & 1 << mate == 0 {
            let rest = heaviest(nodes, edges, taken | 1 << mate, most);
            let found = (rest.0 + 1, rest.1 + weight);
            let better =
                if most && found.0 != best.0 { found.0 > best.0 } else { found.1 > best.1 };
            if better {
                best = found;
            }
        }
    }
    best
}

fn weight(pairs: &[(usize, usize)], edges: &[(usize, usize, f64)]) -> f64 {
    let of = |pair: &(usize, usize)| {
        let edges =
            edges.iter().filter(|(one, other, _)| (*one.min(other), *one.max(other)) == *pair);
        edges.map(|(_, _, weight)| *weight).fold(f64::NEG_INFINITY, f64::max)
    };
    pairs.iter().map(of).sum()
}

fn near(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() <= 1e-8 * wanted.abs().max(1e3)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, rng_seed: RngSeed::Fixed(6), ..ProptestConfig::default() })]

    #[test]
    fn two_sides_pair_as_trying_everything_says(table in table()) {
        let columns = table.first().map_or(3, Vec::len);
        let found = bipartite(table.len(), columns, |row, column| table[row][column]).unwrap();
        prop_assert_eq!(found.len(), table.len());
        let mut taken = vec![false; columns];
        let (mut pairs, mut cost) = (0, 0.0);
        for (row, column) in found.iter().enumerate() {
            if let Some(column) = column {
                prop_assert!(!std::mem::replace(&mut taken[*column], true));
                pairs += 1;
                cost += table[row][*column].expect("a pair that can be made");
            }
        }
        let best = cheapest(&table, 0, 0);
        prop_assert_eq!(pairs, best.0);
        prop_assert!(near(cost, best.1), "{} instead of {}", cost, best.1);
    }

    #[test]
    fn one_kind_pairs_as_trying_everything_says(
        nodes in 2_usize..9, seeds in vec((any::<u16>(), any::<u16>(), number()), 0..20)
    ) {
        let edges: Vec<(usize, usize, f64)> = seeds
            .iter()
            .map(|(one, other, weight)| {
                let one = usize::from(*one) % nodes;
                (one, (one + 1 + usize::from(*other) % (nodes - 1)) % nodes, *weight)
            })
            .collect();
        for most in [false, true] {
            let solve = if most { matching_of_most } else { matching };
            let pairs = solve(nodes, &edges).unwrap();
            let mut taken = vec![false; nodes];
            for (one, other) in &pairs {
                prop_assert!(one < other);
                prop_assert!(!std::mem::replace(&mut taken[*one], true));
                prop_assert!(!std::mem::replace(&mut taken[*other], true));
            }
            prop_assert!(pairs.is_sorted());
            let best = heaviest(nodes, &edges, 0, most);
            prop_assert!(near(weight(&pairs, &edges), best.1), "{:?} instead of {:?}", pairs, best);
            if most {
                prop_assert_eq!(pairs.len(), best.0);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(7), ..ProptestConfig::with_cases(600) })]

    #[test]
    fn pairs_in_order_weigh_as_much_as_trying_everything_says(
        nodes in 2_usize..10, weights in vec(0_u8..7, 100)
    ) {
        let of = |one: usize, other: usize| f64::from(weights[one.min(other) * 10 + one.max(other)]);
        let mut edges = Vec::new();
        for one in 0..nodes {
            edges.extend((one + 1..nodes).map(|other| (one, other, of(one, other))));
        }
        let edges: Vec<(usize, usize, f64)> = edges.into_iter().filter(|edge| edge.2 > 0.0).collect();
        let partners = matching_in_order(nodes, of);
        let mut pairs = Vec::new();
        for (one, partner) in partners.iter().enumerate() {
            if let Some(other) = partner {
                prop_assert_eq!(partners[*other], Some(one), "pairs are mutual");
                if one < *other {
                    pairs.push((one, *other));
                }
            }
        }
        prop_assert!(pairs.iter().all(|pair| of(pair.0, pair.1) > 0.0));
        let best = heaviest(nodes, &edges, 0, false);
        prop_assert!(near(weight(&pairs, &edges), best.1), "{:?} instead of {:?}", pairs, best);
    }
}

#[test]
fn many_equal_rings_in_order_leave_one_node() {
    let partners =
        matching_in_order(61, |one, other| if one % 5 == other % 5 { 1.0 } else { 0.25 });
    assert_eq!(partners.iter().filter(|partner| partner.is_none()).count(), 1);
    assert_eq!(matching_in_order(0, |_, _| 1.0), []);
    assert_eq!(matching_in_order(3, |_, _| f64::NAN), [None; 3]);
}

#[test]
fn ties_are_broken_the_same_way_each_time() {
    // Many odd rings of equal weight.
    let mut edges = Vec::new();
    for one in 0..61_usize {
        edges.extend(
            [2, 5, 11, 16].map(|step| (one, (one + step) % 61, (1 + one * step % 2) as f64)),
        );
    }
    let first = matching(61, &edges).unwrap();
    assert!(first.len() > 25, "{first:?}");
    for _ in 0..20 {
        assert_eq!(matching(61, &edges).unwrap(), first);
        edges.reverse();
    }
}

#[test]
fn what_is_not_a_number_or_a_node_is_refused() {
    let refused = |edge| matching(3, &[edge]).unwrap_err().to_string();
    assert_eq!(
        refused((0, 1, f64::NAN)),
        "edge[0] has the value NaN, which is not a number that a model can hold"
    );
    assert_eq!(refused((0, 3, 1.0)), "edge[0] does not join two of the nodes");
    assert_eq!(refused((1, 1, 1.0)), "edge[0] does not join two of the nodes");
    let infinite = bipartite(2, 2, |row, _| Some(if row == 1 { f64::INFINITY } else { 0.0 }));
    assert!(infinite.unwrap_err().to_string().starts_with("cost of row[1] has the value inf"));
}

#[test]
fn costs_at_the_ends_of_what_a_number_can_hold_do_no_harm() {
    let costs = [[f64::MAX, 1.0], [-f64::MAX, 5.0]];
    assert_eq!(bipartite(2, 2, |row, column| Some(costs[row][column])), Ok(vec![Some(1), Some(0)]));
    assert_eq!(matching(2, &[(0, 1, f64::MAX)]), Ok(vec![(0, 1)]));
}
