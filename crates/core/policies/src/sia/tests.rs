//! Placing, configurations and values on small cases.

use super::configurations::{ClusterShape, OfKind};
use super::placing::{FreeMap, Need};
use super::program::kept;
use proptest::prelude::*;
use trainyard_types::{GpuType, NodeId, Placement, Want};

fn need(index: usize, gpus: u32, current: Option<Placement>) -> Need {
    Need { index, kind: GpuType(0), gpus, current }
}

fn on(node: u32, mask: u64) -> Option<Placement> {
    Some(Placement::on(NodeId(node), mask))
}

fn words(placed: &[Option<Placement>]) -> Vec<String> {
    let word = |placement: &Option<Placement>| {
        placement.as_ref().map_or("-".to_owned(), ToString::to_string)
    };
    placed.iter().map(word).collect()
}

#[test]
fn whoever_keeps_its_size_keeps_its_gpus() {
    let needs =
        [need(0, 2, on(1, 0b1100)), need(1, 4, None), need(2, 1, None), need(3, 1, on(1, 0b1))];
    let placed = FreeMap::of_sizes(&[4, 4]).place(&needs);
    // The single one goes to the fullest node that holds it.
    assert_eq!(words(&placed), ["n1[2-3]", "n0[0-3]", "n1[1]", "n1[0]"]);
}

#[test]
fn several_nodes_are_whole_and_from_the_last_one_down() {
    let needs = [need(0, 8, None), need(1, 2, None)];
    let placed = FreeMap::of_sizes(&[4, 4, 4]).place(&needs);
    assert_eq!(words(&placed), ["n1[0-3] n2[0-3]", "n0[0-1]"]);
}

#[test]
fn the_smallest_in_the_way_give_way() {
    // One GPU is in use on each node; four come, and the last of equals need not move.
    let needs = [need(0, 1, on(0, 0b1)), need(1, 2, on(1, 0b11)), need(2, 4, None)];
    let placed = FreeMap::of_sizes(&[4, 4]).place(&needs);
    assert_eq!(words(&placed), ["n1[2]", "n1[0-1]", "n0[0-3]"]);
}

#[test]
fn an_odd_size_takes_whole_nodes_and_a_rest() {
    let needs = [need(0, 6, None), need(1, 2, None)];
    let placed = FreeMap::of_sizes(&[4, 4]).place(&needs);
    assert_eq!(words(&placed), ["n0[0-1] n1[0-3]", "n0[2-3]"]);
}

#[test]
fn what_cannot_be_placed_is_left_and_the_rest_stays() {
    let needs = [need(0, 3, on(0, 0b111)), need(1, 3, on(1, 0b111)), need(2, 2, None)];
    let placed = FreeMap::of_sizes(&[4, 4]).place(&needs);
    assert_eq!(words(&placed), ["n0[0-2]", "n1[0-2]", "-"]);
}

fn sizes(want: &Want) -> Vec<u32> {
    let of = OfKind { kind: GpuType(0), per_node: 4, nodes: 3, gpus: 12 };
    ClusterShape { kinds: vec![of] }.sorts(want, 64).iter().map(|sort| sort.gpus).collect()
}

#[test]
fn configurations_are_powers_of_two_and_whole_nodes() {
    let elastic = |least, most| Want { gpus_min: least, gpus_max: most, ..Want::gpus(least) };
    assert_eq!(sizes(&elastic(1, 64)), [1, 2, 4, 8, 12]);
    assert_eq!(sizes(&elastic(1, 9)), [1, 2, 4, 8]);
    assert_eq!(sizes(&elastic(4, 64)), [4, 8, 12]);
    assert_eq!(sizes(&elastic(3, 64)), [3, 12]);
    assert_eq!(sizes(&Want::gpus(6)), [6]);
    assert_eq!(sizes(&Want::gpus(13)), [0; 0]);
    assert_eq!(sizes(&Want { nodes_max: 1, ..elastic(1, 64) }), [1, 2, 4]);
}

#[test]
fn a_restart_costs_less_the_longer_a_job_has_run_without_one() {
    assert_eq!(kept(20.0, 0, 30.0), 1.0);
    assert!((kept(300.0, 0, 30.0) - 300.0 / 330.0).abs() < 1e-12);
    assert!((kept(300.0, 5, 30.0) - 150.0 / 330.0).abs() < 1e-12);
    assert_eq!(kept(300.0, 20, 30.0), 0.0);
    assert_eq!(kept(300.0, 3, 0.0), 1.0);
}

proptest! {
    /// Sia's promise: powers of two within nodes of a power of two, and whole nodes, can always be placed.
    #[test]
    fn whatever_fits_by_number_is_placed(
        nodes in 1usize..6,
        drawn in prop::collection::vec((0u32..6, any::<prop::sample::Index>()), 1..12),
        kept in prop::collection::vec(any::<bool>(), 12),
    ) {
        let sizes = vec![8; nodes];
        let mut left = 8 * nodes as u32;
        let mut needs = Vec::new();
        for (power, _) in &drawn {
            let gpus = if *power < 4 { 1 << power } else { 8 * (power - 2) };
            if gpus <= left {
                left -= gpus;
                needs.push(need(needs.len(), gpus, None));
            }
        }
        let first = FreeMap::of_sizes(&sizes).place(&needs);
        prop_assert!(first.iter().all(Option::is_some), "{:?}", words(&first));
        // Some keep what they have, others come anew in another order of sizes.
        let mut again: Vec<Need> = needs.clone();
        again.rotate_left(drawn[0].1.index(needs.len().max(1)).min(needs.len()));
        for (at, one) in again.iter_mut().enumerate() {
            one.current = if kept[at] { first[one.index].clone() } else { None };
        }
        let second = FreeMap::of_sizes(&sizes).place(&again);
        prop_assert!(second.iter().all(Option::is_some), "{:?}", words(&second));
        for (at, placement) in second.iter().enumerate() {
            let placement = placement.as_ref().expect("placed");
            prop_assert_eq!(placement.gpus(), again[at].gpus);
            for other in second[..at].iter().flatten() {
                prop_assert!(!placement.overlaps(other));
            }
        }
    }
}
