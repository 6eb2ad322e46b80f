//! Places for batches of gangs, and jobs that no policy likes.

use super::allocator::splits;
use super::search::{Batch, Room, Scattered, Seat, Way};
use crate::prelude::*;
use trainyard_framework::RawSettings;

/// A gang that keeps a part of its speed for each further node.
fn seat(gpus: u32, kept: f64) -> Seat {
    let worth = |nodes: usize| f64::from(gpus) * libm::pow(kept, nodes as f64 - 1.0);
    let way = |split: Vec<u32>| {
        let worth = worth(split.len());
        Way { kind: GpuType(0), split, worth }
    };
    let ways = splits(gpus).into_iter().map(way).collect();
    let scattered = Scattered { kind: GpuType(0), worth: (1..=gpus as usize).map(worth).collect() };
    Seat { gpus, ways, scattered: vec![scattered] }
}

fn batch(free: &[u32], gangs: &[(u32, f64)]) -> Batch {
    let node = |(index, free): (usize, &u32)| Room {
        node: NodeId(index as _),
        kind: GpuType(0),
        free: *free,
    };
    Batch {
        nodes: free.iter().enumerate().map(node).collect(),
        seats: gangs.iter().map(|&(gpus, kept)| seat(gpus, kept)).collect(),
    }
}

/// That no more is held than there is, and that each job holds as much as it asks for.
fn assert_fits(batch: &Batch) {
    let mut free: Vec<u32> = batch.nodes.iter().map(|node| node.free).collect();
    for (seat, parts) in batch.seats.iter().zip(batch.search(10_000)) {
        let Some(parts) = parts else { continue };
        assert_eq!(parts.iter().map(|part| part.1).sum::<u32>(), seat.gpus);
        for (node, gpus) in parts {
            free[node.index()] = free[node.index()].checked_sub(gpus).expect("it is free");
        }
    }
}

#[test]
fn local_search_betters_all_four_greedy_orders() {
    let batch = batch(&[4, 3, 3], &[(4, 0.95), (2, 0.5), (4, 0.5)]);
    let (greedy, search) = batch.worths();
    // The one that bears it is split, and both that do not are whole.
    assert!((search - (2.0 + 4.0 + 4.0 * 0.95)).abs() < 1e-9, "{search}");
    assert!((greedy - 8.8).abs() < 1e-9, "{greedy}");
    assert_fits(&batch);
}

#[test]
fn local_search_is_never_worse_than_greedy_and_never_over_full() {
    let mut x = 1u64;
    let mut below = |most: u64| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) % most
    };
    for _ in 0..500 {
        let free: Vec<u32> = (0..2 + below(3)).map(|_| 1 + below(8) as u32).collect();
        let gang = |draw: &mut dyn FnMut(u64) -> u64| {
            (2 + draw(7) as u32, [0.3, 0.6, 0.95][draw(3) as usize])
        };
        let gangs: Vec<(u32, f64)> = (0..1 + below(5)).map(|_| gang(&mut below)).collect();
        let batch = batch(&free, &gangs);
        let (greedy, search) = batch.worths();
        assert!(search >= greedy - 1e-9, "{free:?} {gangs:?}: {search} {greedy}");
        assert_fits(&batch);
    }
}

#[test]
fn every_split_has_all_gpus_of_its_gang() {
    for gpus in 2..=40 {
        for split in splits(gpus) {
            assert_eq!(split.iter().sum::<u32>(), gpus, "{split:?}");
            assert!(split.iter().all(|part| *part > 0), "{split:?}");
        }
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for text in [
        "lease=0s",
        "slot=30m",
        "margin=0.5",
        "margin=nan",
        "tolerance=0.9",
        "profile_nodes=0,profile=true",
        "objective=both",
    ] {
        let raw = RawSettings::parse(text.split(',')).expect("pairs");
        assert!((super::ENTRY.build)(&raw).is_err(), "{text}");
    }
    let defaults = RawSettings::parse([] as [&str; 0]).expect("pairs");
    assert!((super::ENTRY.build)(&defaults).is_ok());
}
