//! The program against every choice.

use super::demand::{Cell, Demand};
use super::program::{Room, best};
use proptest::prelude::*;
use trainyard_types::HostShare;

fn host(cpus: u32, memory_mib: u64) -> HostShare {
    HostShare { cpus, memory_mib }
}

/// The greatest sum of speeds over all choices that fit, if any does.
fn by_trying(demands: &[&Demand], room: Room, so_far: (u64, u64, f64)) -> Option<f64> {
    let (cpus, memory_mib, value) = so_far;
    if room.cpus.is_some_and(|most| cpus > most)
        || room.memory_mib.is_some_and(|most| memory_mib > most)
    {
        return None;
    }
    let Some((first, rest)) = demands.split_first() else { return Some(value) };
    let gpus = u64::from(first.gpus);
    let tried = first.cells.iter().filter_map(|cell| {
        let cpus = cpus + u64::from(cell.host.cpus) * gpus;
        let memory_mib = memory_mib + cell.host.memory_mib * gpus;
        by_trying(rest, room, (cpus, memory_mib, value + cell.speed))
    });
    tried.max_by(f64::total_cmp)
}

prop_compose! {
    fn any_demand()(
        gpus in 1u32..4,
        cells in prop::collection::vec((1u32..9, 1u64..9, 100u32..400), 1..4),
    ) -> Demand {
        let cells = cells.into_iter().map(|(cpus, memory, speed)| Cell {
            host: host(cpus, memory * 1024),
            speed: f64::from(speed) / 100.0,
        });
        Demand { gpus, proportional: host(3, 4096), cells: cells.collect() }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_program_finds_what_trying_every_choice_finds(
        kinds in prop::collection::vec(any_demand(), 1..4),
        which in prop::collection::vec(0usize..4, 1..6),
        cpus in prop_oneof![4 => (1u64..60).prop_map(Some), 1 => Just(None)],
        memory in prop_oneof![4 => (1u64..60).prop_map(|gib| Some(gib * 1024)), 1 => Just(None)],
    ) {
        let demands: Vec<&Demand> = which.iter().map(|index| &kinds[index % kinds.len()]).collect();
        let room = Room { cpus, memory_mib: memory };
        let expected = by_trying(&demands, room, (0, 0, 0.0));
        let found = best(&demands, room, 100_000);
        prop_assert_eq!(found.is_some(), expected.is_some());
        if let (Some(found), Some(expected)) = (found, expected) {
            prop_assert!((found.value - expected).abs() < 1e-6, "{} {expected}", found.value);
            let chosen = demands.iter().zip(&found.cells).map(|(one, cell)| one.cells[*cell]);
            let value: f64 = chosen.clone().map(|cell| cell.speed).sum();
            prop_assert!((value - expected).abs() < 1e-6, "{value} {expected}");
            let gpus = demands.iter().map(|demand| u64::from(demand.gpus));
            let used: u64 = chosen.zip(gpus).map(|(cell, gpus)| u64::from(cell.host.cpus) * gpus).sum();
            prop_assert!(room.cpus.is_none_or(|most| used <= most), "{used} of {room:?}");
        }
    }
}

#[test]
fn the_best_case_is_the_cheapest_of_the_fastest_and_falls_back_to_the_proportional_share() {
    let cell = |cpus, memory_mib, speed| Cell { host: host(cpus, memory_mib), speed };
    let hungry = Demand {
        gpus: 1,
        proportional: host(3, 64_000),
        cells: vec![cell(3, 64_000, 1.0), cell(6, 64_000, 1.8), cell(12, 64_000, 1.8)],
    };
    assert_eq!((hungry.best(), hungry.least()), (host(6, 64_000), host(3, 64_000)));
    let modest = Demand { cells: vec![cell(1, 20_000, 1.0)], ..hungry };
    assert_eq!((modest.best(), modest.least()), (host(1, 20_000), host(1, 20_000)));
}
