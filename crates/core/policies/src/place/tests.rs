//! A yard to place in, written as text, and what must hold for every placer on random ones.

use crate::compose::find;
use crate::registry::PLACERS;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use trainyard_framework::{
    Ask, Beliefs, ChangeCost, Free, Live, Needs, RawSettings, State, View, wanted,
};
use trainyard_types::{
    Allocation, Cluster, Config, GpuAt, GpuType, HostShare, Job, JobId, JobState, NodeId,
    Placement, PoolId, Rate, Share, Tenants, Time, Want, Work,
};

/// A wish for whole GPUs of any type.
pub(crate) fn wants(gpus: u32) -> Want {
    Want::gpus(gpus)
}

/// A wish for a share of one GPU.
pub(crate) fn wants_share(permille: u16) -> Want {
    Want { permille, ..Want::gpus(1) }
}

/// A cluster with some of it taken, and the jobs seen so far.
#[derive(Clone, Debug)]
pub(crate) struct Yard {
    cluster: Cluster,
    taken: Vec<Allocation>,
    down: Vec<Placement>,
    seen: Vec<Want>,
    skew: Option<f64>,
}

impl Yard {
    /// `3x8 v100, 2x4 t4`.
    pub(crate) fn new(text: &str) -> Yard {
        let mut cluster =
            Cluster { pools: vec!["a".to_owned(), "b".to_owned()], ..Cluster::default() };
        for part in text.split(", ") {
            let (shape, kind) = part.split_once(' ').unwrap();
            let (nodes, gpus) = shape.split_once('x').unwrap();
            let kind = cluster.add_kind(kind);
            for _ in 0..nodes.parse().unwrap() {
                cluster.add_node(kind, gpus.parse().unwrap());
            }
        }
        let (taken, down, seen) = (Vec::new(), Vec::new(), Vec::new());
        Yard { cluster, taken, down, seen, skew: None }
    }

    pub(crate) fn cluster(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// Takes whole GPUs: `n0[0-3] n2[5]`.
    pub(crate) fn taken(mut self, text: &str) -> Yard {
        self.taken.push(Allocation::whole(placement(text)));
        self
    }

    /// Takes a share of GPUs.
    pub(crate) fn shared(mut self, text: &str, permille: u16) -> Yard {
        let shares = smallvec![Share::Permille(permille)];
        self.taken.push(Allocation { shares, ..Allocation::whole(placement(text)) });
        self
    }

    /// Puts GPUs out of service.
    pub(crate) fn down(mut self, text: &str) -> Yard {
        self.down.push(placement(text));
        self
    }

    /// Gives the model of every job this skew.
    pub(crate) fn skewed(mut self, skew: f64) -> Yard {
        self.skew = Some(skew);
        self
    }

    /// Jobs that came before the one to be placed.
    pub(crate) fn seen(mut self, wants: impl IntoIterator<Item = Want>) -> Yard {
        self.seen.extend(wants);
        self
    }

    /// Where a placer puts a job, or `-`.
    pub(crate) fn place(&self, placer: &str, want: Want) -> String {
        self.placement(placer, want).map_or("-".to_owned(), |found| found.to_string())
    }

    fn placement(&self, placer: &str, want: Want) -> Option<Placement> {
        let mut words = placer.split(' ');
        let entry = find("placer", PLACERS, words.next().unwrap()).unwrap();
        let mut placer = (entry.build)(&RawSettings::parse(words).unwrap()).unwrap();
        self.ask(want, |ask, free, view| {
            let found = placer.try_place(ask, free, view);
            assert_eq!(placer.try_place(ask, free, view), found, "asked twice");
            found
        })
    }

    /// Asks for what a job wants.
    pub(crate) fn ask<R>(&self, want: Want, answer: impl FnOnce(&Ask, &Free, &View) -> R) -> R {
        let mut state = State::new(Arc::new(self.cluster.clone()), Tenants::default());
        let wants = self.seen.iter().cloned().chain([want]);
        let jobs = wants.zip(0..).map(|(want, id)| {
            let simple = Job::simple(JobId(id), Time::ZERO, want.gpus);
            let state = JobState::submitted(Time::ZERO);
            (JobId(id), Arc::new(Live { spec: Arc::new(Job { want, ..simple }), state }))
        });
        state.jobs = jobs.collect();
        let beliefs = Known { skew: self.skew };
        let view = View::new(Time::ZERO, &state, &beliefs, &Needs::NOTHING);
        let job = view.job(JobId(self.seen.len() as u32)).unwrap();
        let kinds = job.spec.want.kinds.clone();
        answer(&Ask::new(job, &wanted(job), job.spec.want.gpus, kinds), &self.free(), &view)
    }

    fn free(&self) -> Free {
        let mut free = Free::new(&self.cluster);
        for allocation in &self.taken {
            free.take(allocation);
        }
        for &(node, mask) in self.down.iter().flat_map(Placement::masks) {
            free.set_up(node, free.up(node) & !mask);
        }
        free
    }
}

fn placement(text: &str) -> Placement {
    let masks = text.split(' ').map(|part| {
        let (node, gpus) = part[1..part.len() - 1].split_once('[').unwrap();
        let (first, last) = gpus.split_once('-').unwrap_or((gpus, gpus));
        let (first, last): (u32, u32) = (first.parse().unwrap(), last.parse().unwrap());
        (NodeId(node.parse().unwrap()), (first..=last).fold(0, |mask, gpu| mask | 1u64 << gpu))
    });
    Placement::from_masks(masks)
}

struct Known {
    skew: Option<f64>,
}

impl Beliefs for Known {
    fn copied(&self) -> Arc<dyn Beliefs> {
        Arc::new(Known { skew: self.skew })
    }

    fn rate(&self, _job: &Job, _on: &Config) -> Option<Rate> {
        None
    }

    fn change(&self, _job: &Job, _from: Option<&Config>, _to: Option<&Config>) -> ChangeCost {
        ChangeCost::default()
    }

    fn work(&self, _job: &Job) -> Option<Work> {
        None
    }

    fn skew(&self, _job: &Job) -> Option<f64> {
        self.skew
    }
}

/// Placers that find a placement whenever there is one.
const COMPLETE: [&str; 13] = [
    "fewest-nodes",
    "first-fit",
    "first-fit one_node_first=false",
    "best-fit",
    "spread",
    "spread per_node_max=1",
    "skew threshold=1.0",
    "fgd",
    "buddy",
    "even",
    "mapa",
    "mapa rule=greedy unknown_sensitive=false",
    "step-time",
];

/// Placers that may wait for a better one.
const CHOOSY: [&str; 3] = ["spread per_node_max=2 strict=true", "skew", "buddy strict=true"];

prop_compose! {
    fn any_cluster()(
        groups in prop::collection::vec((1u32..5, 1u8..9, 0u8..2, 0u16..2, 0u16..3, 0u32..3), 1..4),
        memories in (0u32..3, 0u32..3),
    ) -> Cluster {
        let mut cluster = Cluster { pools: vec!["a".to_owned(), "b".to_owned()], ..Cluster::default() };
        let kinds = [cluster.add_kind("v100"), cluster.add_kind("t4")];
        cluster.kinds[0].memory_mib = memories.0 * 16;
        cluster.kinds[1].memory_mib = memories.1 * 16;
        for (nodes, gpus, kind, pool, cpus, memory) in groups {
            for _ in 0..nodes {
                let id = cluster.add_node(kinds[usize::from(kind)], gpus);
                let node = &mut cluster.nodes[id.index()];
                (node.pool, node.cpus, node.memory_mib) = (PoolId(pool), cpus * 12, memory * 48);
            }
        }
        cluster
    }
}

prop_compose! {
    pub(crate) fn any_want()(
        gpus in prop_oneof![1u32..5, 1u32..24],
        permille in prop_oneof![3 => Just(1000u16), 1 => 1u16..1000],
        kinds in prop_oneof![Just(vec![]), Just(vec![0u8]), Just(vec![1]), Just(vec![0, 1])],
        (gpu_memory_mib, cpus_per_gpu, memory_mib_per_gpu) in (0u32..20, 0u16..4, 0u32..9),
        nodes_max in prop_oneof![Just(0u16), 0u16..4],
        pool in prop_oneof![3 => Just(None), 1 => (0u16..2).prop_map(|pool| Some(PoolId(pool)))],
        limited in prop::bool::weighted(0.4),
    ) -> Want {
        let kinds: SmallVec<[GpuType; 4]> = kinds.into_iter().map(GpuType).collect();
        let free = Want { permille, kinds, nodes_max, ..Want::gpus(gpus) };
        if limited {
            Want { gpu_memory_mib, cpus_per_gpu, memory_mib_per_gpu, pool, ..free }
        } else {
            free
        }
    }
}

prop_compose! {
    pub(crate) fn any_yard()(
        cluster in any_cluster(),
        takings in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0u16..5, 0u32..3), 0..24),
        downs in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 0..3),
        seen in prop::collection::vec(any_want(), 0..12),
        skew in prop::option::of(0.0..1.0f64),
    ) -> Yard {
        let mut free = Free::new(&cluster);
        let mut taken = Vec::new();
        for (node, mask, quarters, host) in takings {
            let node = node.get(&cluster.nodes);
            let mask = mask & node.mask();
            if mask == 0 {
                continue;
            }
            let share = if quarters == 0 { Share::Leftover } else { Share::Permille(quarters * 250) };
            let allocation = Allocation {
                shares: smallvec![share],
                host_per_gpu: HostShare { cpus: host, memory_mib: u64::from(host) },
                gpu_memory_mib: host * 4,
                ..Allocation::whole(Placement::on(node.id, mask))
            };
            if free.fits(&allocation).is_ok() {
                free.take(&allocation);
                taken.push(allocation);
            }
        }
        let down = downs.into_iter().map(|(node, gpu)| {
            let node = node.get(&cluster.nodes);
            Placement::on(node.id, 1 << (gpu % node.gpus))
        });
        Yard { down: down.collect(), cluster, taken, seen, skew }
    }
}

/// How many GPUs of a node a job may use.
fn usable(want: &Want, free: &Free, node: NodeId) -> u32 {
    if !want.accepts(free.kind(node)) || want.pool.is_some_and(|pool| free.pool(node) != pool) {
        return 0;
    }
    let fits = |gpus: &u32| {
        let gpus = *gpus;
        free.cpus_left(node).is_none_or(|left| left >= gpus * u32::from(want.cpus_per_gpu))
            && free
                .host_memory_left(node)
                .is_none_or(|left| left >= u64::from(gpus) * u64::from(want.memory_mib_per_gpu))
    };
    let up = trainyard_types::placement::bits(free.up(node)).map(|gpu| GpuAt { node, gpu });
    let gpus = up.filter(|at| {
        free.left(*at) >= want.permille && free.memory_left(*at) >= want.gpu_memory_mib
    });
    let gpus = gpus.count() as u32;
    (0..=gpus).rev().find(fits).unwrap_or(0)
}

/// Whether any placement exists: the roomiest nodes of some type suffice.
fn possible(want: &Want, free: &Free) -> bool {
    let nodes_max = if want.nodes_max == 0 { usize::MAX } else { usize::from(want.nodes_max) };
    free.kinds().into_iter().any(|kind| {
        let nodes = (0..free.nodes()).map(NodeId).filter(|node| free.kind(*node) == kind);
        let mut room: Vec<u32> = nodes.map(|node| usable(want, free, node)).collect();
        room.sort_unstable_by(|a, b| b.cmp(a));
        room.into_iter().take(nodes_max).sum::<u32>() >= want.gpus
    })
}

fn assert_legal(placer: &str, want: &Want, free: &Free, placement: &Placement) {
    let text = format!("{placer}: {placement} for {want:?}");
    assert_eq!(placement.gpus(), want.gpus, "{text}");
    let nodes = || placement.masks().iter().map(|(node, _)| *node);
    let kind = free.kind(nodes().next().unwrap());
    assert!(want.accepts(kind) && nodes().all(|node| free.kind(node) == kind), "{text}");
    assert!(want.nodes_max == 0 || placement.nodes() <= u32::from(want.nodes_max), "{text}");
    assert!(want.pool.is_none_or(|pool| nodes().all(|node| free.pool(node) == pool)), "{text}");
    let allocation = Allocation {
        shares: smallvec![Share::Permille(want.permille)],
        host_per_gpu: want.host_per_gpu(),
        gpu_memory_mib: want.gpu_memory_mib,
        ..Allocation::whole(placement.clone())
    };
    assert_eq!(free.fits(&allocation), Ok(()), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000, rng_seed: RngSeed::Fixed(2), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn every_placement_is_legal_and_is_found_where_one_exists(yard in any_yard(), want in any_want()) {
        let free = yard.free();
        let possible = possible(&want, &free);
        for placer in COMPLETE.into_iter().chain(CHOOSY) {
            let found = yard.placement(placer, want.clone());
            if let Some(placement) = &found {
                assert_legal(placer, &want, &free, placement);
            }
            if COMPLETE.contains(&placer) {
                prop_assert_eq!(found.is_some(), possible, "{}", placer);
            }
        }
    }

    #[test]
    fn no_placer_takes_fewer_nodes_than_fewest_nodes(yard in any_yard(), want in any_want()) {
        let want = Want { permille: 1000, kinds: smallvec![GpuType(0)], ..want };
        let fewest = yard.placement("fewest-nodes", want.clone()).map(|found| found.nodes());
        for placer in COMPLETE {
            let nodes = yard.placement(placer, want.clone()).map(|found| found.nodes());
            prop_assert!(nodes >= fewest, "{} takes {:?} nodes, not {:?}", placer, nodes, fewest);
        }
    }

    #[test]
    fn a_skewed_gang_gets_the_nodes_of_an_idle_cluster_or_waits(yard in any_yard(), want in any_want()) {
        let want = Want { permille: 1000, kinds: smallvec![GpuType(0)], ..want };
        let yard = yard.skewed(0.9);
        let idle = Yard { taken: Vec::new(), ..yard.clone() };
        let fewest = idle.placement("fewest-nodes", want.clone()).map(|found| found.nodes());
        let alone = idle.placement("skew", want.clone()).map(|found| found.nodes());
        prop_assert_eq!(alone, fewest, "on an idle cluster");
        let found = yard.placement("skew", want).map(|found| found.nodes());
        prop_assert!(found.is_none() || found == fewest, "{:?} nodes, not {:?}", found, fewest);
    }
}

#[test]
fn every_placer_is_listed_here_and_refuses_unknown_settings() {
    for entry in PLACERS {
        let listed = COMPLETE.iter().any(|name| name.split(' ').next() == Some(entry.name));
        assert!(listed, "{} is in no list", entry.name);
        assert_eq!(entry.settings.len(), (entry.defaults)().len(), "{}", entry.name);
        assert!((entry.build)(&RawSettings::parse(["no_such_key=1"]).unwrap()).is_err());
    }
}

#[test]
fn a_setting_out_of_range_is_refused() {
    let cases = [
        ("best-fit", "scan_max=0"),
        ("spread", "per_node_max=-1"),
        ("skew", "threshold=1.5"),
        ("fgd", "popularity=-0.1"),
        ("fgd", "window=-1"),
    ];
    for (name, setting) in cases {
        let entry = find("placer", PLACERS, name).unwrap();
        let message =
            (entry.build)(&RawSettings::parse([setting]).unwrap()).err().unwrap().to_string();
        let key = setting.split('=').next().unwrap();
        assert!(message.contains(&format!("{name}.{key}")), "{message}");
    }
}

#[test]
fn a_gpu_with_too_little_memory_is_never_used() {
    let mut yard = Yard::new("1x4 t4, 1x4 v100");
    yard.cluster().kinds[0].memory_mib = 16_000;
    yard.cluster().kinds[1].memory_mib = 32_000;
    let want = Want { gpu_memory_mib: 20_000, ..wants(2) };
    for placer in COMPLETE.into_iter().chain(CHOOSY) {
        let place = yard.place(placer, want.clone());
        assert!(place.starts_with("n1[0"), "{placer}: {place}");
        assert_eq!(yard.place(placer, Want { gpu_memory_mib: 40_000, ..wants(2) }), "-");
    }
}
