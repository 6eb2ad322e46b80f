//! EFLOPS, Prophet, Prague, Denis and Ko: what the papers order, and a control that must fail for each.

use trainyard_network::bigraph::{BiGraph, BiGraphError, ServerPaths, bind_nics, send_rates};
use trainyard_network::memory_contention::{BusRun, MemoryBus};
use trainyard_network::prague::{Grouping, Workers, run};
use trainyard_network::prophet::{Layer, SendOrder, Uplink, bound, bursts, forward_end, send};
use trainyard_network::synchronisation::{Setting, Synchronisation, train};
use trainyard_network::{Algorithm, FiveTerm};

fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut state = seed;
    let mut order: Vec<usize> = (0..count).collect();
    for at in (1..count).rev() {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        order.swap(at, (state >> 33) as usize % (at + 1));
    }
    order
}

#[test]
fn mapped_ranks_share_no_link_in_any_step_of_halving_and_doubling() {
    for switches in [1, 2, 4, 8, 16] {
        for nics in [1, 2, 4, 8, 16, 32] {
            let graph = BiGraph::balanced(switches, nics).unwrap();
            let places = graph.mapped().unwrap();
            let mut seen = places.clone();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), graph.ranks(), "two ranks at one NIC");
            let most = graph.most_flows(&places, |_, _| panic!("a way within one side"));
            assert!(most.iter().all(|flows| *flows == 1), "{switches} {nics}: {most:?}");
        }
    }
}

/// The control: ranks in order or at random meet on links, random ones on all but the trivial networks.
#[test]
fn ranks_in_order_or_at_random_share_links() {
    for switches in [4, 8, 16] {
        let graph = BiGraph::balanced(switches, 16).unwrap();
        let places = graph.in_order();
        let over = |from: trainyard_network::bigraph::NicAt,
                    to: trainyard_network::bigraph::NicAt| {
            from.switch * 7 + to.switch * 13 + from.nic
        };
        assert!(graph.most_flows(&places, over).into_iter().max().unwrap() > 1);
        for seed in 1..20 {
            let mixed: Vec<_> =
                shuffled(places.len(), seed).into_iter().map(|at| places[at]).collect();
            let most = graph.most_flows(&mixed, over);
            assert!(most.iter().all(|flows| *flows >= 2), "{seed}: {most:?}");
        }
    }
    let error = BiGraph::balanced(3, 4).unwrap_err();
    assert_eq!(error, BiGraphError::NoPowerOfTwo { what: "switches of a side", count: 3 });
}

#[test]
fn a_nic_on_each_root_lets_every_gpu_send_at_full_speed_and_one_nic_does_not() {
    let gpus = [0, 0, 1, 1, 2, 2, 3, 3];
    let paths = ServerPaths { nic: 12.5e9, root: 16e9, across: 20e9 };
    let nics = [0, 1, 2, 3];
    let bound = bind_nics(&gpus, &nics);
    assert_eq!(bound, [0, 0, 1, 1, 2, 2, 3, 3]);
    assert!(send_rates(&gpus, &nics, &bound, &paths).iter().all(|rate| *rate == 6.25e9));
    // Bound to the wrong roots, GPUs share the way between roots.
    let crossed: Vec<usize> = bound.iter().map(|nic| (nic + 1) % 4).collect();
    assert!(send_rates(&gpus, &nics, &crossed, &paths).iter().all(|rate| *rate == 2.5e9));
    assert_eq!(bind_nics(&gpus, &[1, 1]), [0, 1, 0, 1, 0, 1, 0, 1]);
    assert_eq!(bind_nics(&gpus, &[]), [] as [usize; 0]);
}

/// VGG-19 at batch 32 as its shapes say: parameters of each layer in 4 bytes, time by multiplications.
fn vgg19(seconds: f64) -> Vec<Layer> {
    let convolutions: [(f64, f64, f64); 16] = [
        (3.0, 64.0, 224.0),
        (64.0, 64.0, 224.0),
        (64.0, 128.0, 112.0),
        (128.0, 128.0, 112.0),
        (128.0, 256.0, 56.0),
        (256.0, 256.0, 56.0),
        (256.0, 256.0, 56.0),
        (256.0, 256.0, 56.0),
        (256.0, 512.0, 28.0),
        (512.0, 512.0, 28.0),
        (512.0, 512.0, 28.0),
        (512.0, 512.0, 28.0),
        (512.0, 512.0, 14.0),
        (512.0, 512.0, 14.0),
        (512.0, 512.0, 14.0),
        (512.0, 512.0, 14.0),
    ];
    let mut layers: Vec<(f64, f64)> = convolutions
        .iter()
        .map(|(from, to, side)| (9.0 * from * to, 9.0 * from * to * side * side))
        .collect();
    layers.extend(
        [(25088.0, 4096.0), (4096.0, 4096.0), (4096.0, 1000.0)].map(|(a, b)| (a * b, a * b)),
    );
    timed(&layers, seconds, 4)
}

/// A network of equal blocks with a small head, like ResNet-50: many small gradients in bursts.
fn residual(seconds: f64) -> Vec<Layer> {
    let mut layers = vec![(9_408.0, 118.0)];
    for (blocks, width) in [(9, 64.0), (12, 128.0), (18, 256.0), (9, 512.0)] {
        let weights = f64::from(width as u32) * f64::from(width as u32) * 5.6;
        layers.extend(vec![(weights, 70.0); blocks]);
    }
    layers.push((2_048_000.0, 2.0));
    timed(&layers, seconds, 4)
}

/// Two thirds of the time are the backward pass; gradients of `burst` neighbours are ready together.
fn timed(layers: &[(f64, f64)], seconds: f64, burst: usize) -> Vec<Layer> {
    let total: f64 = layers.iter().map(|(_, time)| time).sum();
    let mut at = 0.0;
    let mut all = vec![Layer { ready: 0.0, bytes: 0.0, forward: 0.0 }; layers.len()];
    for (number, (weights, time)) in layers.iter().enumerate().rev() {
        at += time / total * seconds * 2.0 / 3.0;
        let forward = time / total * seconds / 3.0;
        all[number] = Layer { ready: at, bytes: weights * 4.0, forward };
    }
    let count = all.len();
    for number in 0..count {
        // A burst is ready when the first layer of it, the last to be computed, is.
        all[number].ready = all[number - number % burst].ready;
    }
    all
}

#[test]
fn a_burst_ends_where_the_next_gradient_is_far() {
    let layers = residual(0.3);
    let bursts = bursts(&layers);
    assert!(bursts.len() > 5 && bursts.len() <= 13, "{}", bursts.len());
    assert!(bursts.windows(2).all(|pair| pair[0] < pair[1]));
}

fn ends(layers: &[Layer], uplink: &Uplink) -> [f64; 5] {
    let of = |order: SendOrder| forward_end(layers, &send(layers, uplink, &order));
    let measured = uplink.bytes_per_second;
    [
        bound(layers, uplink),
        of(SendOrder::Prophet { measured, credit: 8e6 }),
        of(SendOrder::ByteScheduler { slice: 4e6, credit: 8e6 }),
        of(SendOrder::P3 { slice: 2e5 }),
        of(SendOrder::Fifo),
    ]
}

#[test]
fn no_order_beats_the_bound_and_every_byte_arrives() {
    for gbps in [1.0, 2.0, 3.0, 5.0, 10.0, 25.0] {
        for layers in [vgg19(0.4), residual(0.25)] {
            let uplink = Uplink { bytes_per_second: gbps * 1.25e8, overhead: 1e-4 };
            let all = ends(&layers, &uplink);
            assert!(all[1..].iter().all(|end| *end >= all[0] - 1e-9), "{gbps}: {all:?}");
            let bytes: f64 = layers.iter().map(|layer| layer.bytes).sum();
            assert!(all.iter().all(|end| *end >= bytes / uplink.bytes_per_second));
        }
    }
}

/// The published order: blocks beat fixed slices with credit and slices one by one where the network is neither so slow
/// nor so fast that the order is all the same; the control is a network so fast that it is.
#[test]
fn prophet_is_ahead_of_the_other_orders_at_middling_bandwidth_and_level_at_high_bandwidth() {
    let layers = residual(0.25);
    let mut ahead = 0;
    for gbps in [2.0, 3.0, 4.0, 5.0, 6.0] {
        let uplink = Uplink { bytes_per_second: gbps * 1.25e8, overhead: 3e-4 };
        let [_, prophet, byte_scheduler, p3, fifo] = ends(&layers, &uplink);
        println!(
            "{gbps} Gbit/s: prophet {prophet:.4} bytescheduler {byte_scheduler:.4} p3 {p3:.4} fifo {fifo:.4}"
        );
        ahead += u32::from(prophet <= byte_scheduler && prophet < p3 && prophet < fifo);
    }
    assert!(ahead >= 3, "ahead at {ahead} of 5");
    let uplink = Uplink { bytes_per_second: 1e12, overhead: 0.0 };
    let [bound, prophet, byte_scheduler, ..] = ends(&layers, &uplink);
    assert!((prophet - byte_scheduler).abs() < 0.01 * bound, "{prophet} {byte_scheduler}");
}

fn homogeneous() -> Workers {
    Workers { seconds: vec![0.1; 16], per_node: 4, jitter: 0.2, filter: None }
}

const RING: FiveTerm = FiveTerm {
    alpha: 1e-4,
    beta: 1e-9,
    gamma: 0.0,
    delta: 0.0,
    epsilon: 0.0,
    fan_in_max: u32::MAX,
};

fn speed(grouping: Grouping, workers: &Workers) -> f64 {
    run(grouping, workers, (4e7, &RING), 60.0, 7).iterations_per_second
}

/// 16 workers of 4 nodes. Published: 1.2 times all-reduce where workers are alike, 4.4 times where one is slow.
#[test]
fn partial_averages_are_ahead_of_an_all_reduce_and_far_ahead_beside_a_slow_worker() {
    let alike = homogeneous();
    let all = speed(Grouping::All, &alike);
    let mut gains = Vec::new();
    for grouping in
        [Grouping::Divided { size: 4 }, Grouping::Static { size: 4 }, Grouping::InterIntra]
    {
        gains.push(speed(grouping, &alike) / all);
    }
    assert!(gains.iter().all(|gain| *gain > 1.0), "{gains:?}");
    let mut slow = Workers { filter: Some(4), ..homogeneous() };
    slow.seconds[5] = 0.6;
    let all = speed(Grouping::All, &slow);
    let filtered = speed(Grouping::Divided { size: 4 }, &slow) / all;
    // The control: without the filter the slow worker holds up the groups that it is in.
    let unfiltered = Workers { filter: None, ..slow.clone() };
    let without = speed(Grouping::Divided { size: 4 }, &unfiltered) / all;
    println!("alike {gains:?}, slow {filtered:.2}, without the filter {without:.2}");
    assert!(filtered > 2.0 && filtered > 1.1 * without, "{filtered} {without}");
}

#[test]
fn groups_that_conflict_wait_for_each_other() {
    let alike = homogeneous();
    let random = speed(Grouping::Random { size: 4 }, &alike);
    let divided = speed(Grouping::Divided { size: 4 }, &alike);
    assert!(divided > random, "{divided} {random}");
}

#[test]
fn the_spectral_gap_is_one_for_everybody_and_none_where_nodes_never_meet() {
    let alike = homogeneous();
    let gap =
        |grouping, workers: &Workers| run(grouping, workers, (4e7, &RING), 30.0, 3).spectral_gap;
    assert!((gap(Grouping::All, &alike) - 1.0).abs() < 1e-9);
    let some = gap(Grouping::Divided { size: 4 }, &alike);
    assert!(some > 0.1 && some < 0.9, "{some}");
    let alone = gap(Grouping::Divided { size: 1 }, &alike);
    assert!(alone.abs() < 1e-9, "{alone}");
    let larger = gap(Grouping::Divided { size: 8 }, &alike);
    assert!(larger > some, "{larger} {some}");
}

const BUS: MemoryBus =
    MemoryBus { memory: 80e9, nic: 12.5e9, least_share: 0.1, core: 12e9, core_flops: 40e9 };

#[test]
fn communication_loses_up_to_nine_tenths_beside_memory_bound_cores_and_nothing_beside_others() {
    let mut last = 1.0;
    for cores in 0..=20 {
        let kept = BUS.kept(cores, 0.1);
        assert!(kept <= last);
        last = kept;
    }
    assert!((last - 0.1).abs() < 1e-12, "{last}");
    // The control: computation that reuses what it has read leaves the bus alone.
    assert_eq!(BUS.kept(20, 100.0), 1.0);
    let by_intensity: Vec<f64> =
        [0.1, 5.0, 8.0, 12.0, 50.0].iter().map(|ai| BUS.kept(12, *ai)).collect();
    assert!(by_intensity.windows(2).all(|pair| pair[0] <= pair[1]), "{by_intensity:?}");
    for cores in 0..=20 {
        let shares = BUS.shares(cores, 0.1);
        assert!(shares.communication + shares.computation <= BUS.memory * (1.0 + 1e-12));
    }
}

#[test]
fn three_kinds_of_runs_give_the_bus_back() {
    let mut runs = vec![BusRun { cores: 0, communication: Some(12.5e9), computation: None }];
    for cores in [1, 4, 8, 16] {
        let computation = Some((f64::from(cores) * 12e9).min(80e9));
        runs.push(BusRun { cores, communication: None, computation });
        let both = BUS.shares(cores, 0.1);
        let (communication, computation) = (Some(both.communication), Some(both.computation));
        runs.push(BusRun { cores, communication, computation });
    }
    let fit = MemoryBus::fit(&runs, 40e9).unwrap();
    assert!((fit.memory - 80e9).abs() < 1.0 && (fit.core - 12e9).abs() < 1.0);
    assert!((fit.nic - 12.5e9).abs() < 1.0 && (fit.least_share - 0.1).abs() < 1e-9);
    assert_eq!(MemoryBus::fit(&runs[1..2], 40e9), None);
}

fn setting(workers: usize, message: f64) -> Setting {
    Setting {
        seconds: vec![0.1; workers],
        jitter: 0.3,
        message,
        dimension: 10,
        step: 0.05,
        noise: 1.0,
        spread: 1.0,
        steps: 800 * workers as u64,
    }
}

fn trained(way: Synchronisation, setting: &Setting) -> (f64, f64, f64) {
    let runs: Vec<_> = (1..=4).map(|seed| train(way, setting, seed)).collect();
    let mean = |of: &dyn Fn(&trainyard_network::synchronisation::SyncRun) -> f64| {
        runs.iter().map(of).sum::<f64>() / runs.len() as f64
    };
    (mean(&|run| run.iterations_per_second), mean(&|run| run.loss), mean(&|run| run.staleness))
}

/// Ko's findings: synchronous ways end best, asynchronous ones iterate faster where the server's link is free, the server
/// is what stops them where it is not, and ways that exchange now and then lose as workers grow in number.
#[test]
fn synchronous_ways_end_best_and_asynchronous_ones_iterate_faster_until_the_server_is_full() {
    let easy = setting(8, 1e-3);
    let all: Vec<_> =
        Synchronisation::ALL.iter().map(|(name, way)| (*name, trained(*way, &easy))).collect();
    for (name, (speed, loss, stale)) in &all {
        println!("{name}: {speed:.1} iterations/s, loss {loss:.4}, staleness {stale:.2}");
    }
    let of = |name: &str| all.iter().find(|(known, _)| *known == name).unwrap().1;
    for slower in ["asp", "ssp", "easgd", "gosgd", "ad-psgd"] {
        assert!(of("bsp").1 < of(slower).1 && of("ar-sgd").1 < of(slower).1, "{slower}");
    }
    assert!(of("asp").0 > 1.1 * of("bsp").0);
    assert!(of("asp").2 > of("ssp").2 * 0.9 && of("bsp").2 == 0.0);
    // The control: on a slow link the server binds and an all-reduce is faster than ASP.
    let tight = setting(16, 2e-2);
    let (asp, reduce) =
        (trained(Synchronisation::Asp, &tight).0, trained(Synchronisation::AllReduce, &tight).0);
    assert!(reduce > 1.5 * asp, "{reduce} {asp}");
    assert!(train(Synchronisation::Asp, &tight, 1).busiest_link > 0.95);
}

#[test]
fn exchanging_now_and_then_costs_more_the_more_workers_there_are() {
    for way in
        [Synchronisation::Easgd { every: 8, pull: 0.1 }, Synchronisation::Gossip { permille: 100 }]
    {
        let few =
            trained(way, &setting(4, 1e-3)).1 / trained(Synchronisation::Bsp, &setting(4, 1e-3)).1;
        let many = trained(way, &setting(32, 1e-3)).1
            / trained(Synchronisation::Bsp, &setting(32, 1e-3)).1;
        assert!(many > few, "{way:?}: {few} then {many}");
    }
}

#[test]
fn a_parameter_server_is_slower_than_a_ring_once_its_link_is_full() {
    let seconds = |one: Algorithm| one.terms(16, 4e7).unwrap().seconds(&RING);
    let server = seconds(Algorithm::ParameterServer { servers: 1 });
    assert!(server > 5.0 * seconds(Algorithm::Ring));
    let many = seconds(Algorithm::ParameterServer { servers: 16 });
    assert!(many < 1.2 * seconds(Algorithm::Ring));
}
