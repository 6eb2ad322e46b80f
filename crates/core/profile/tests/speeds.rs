//! Speeds and costs through the public interface.

use trainyard_profile::{
    Batches, Catalog, ColocationModel, CostModel, HostTable, ModelProfile, Point, Speeds,
};
use trainyard_types::{Cluster, Config, GpuType, HostShare, ModelId, Rate, Span, Tier};

fn cluster() -> Cluster {
    let mut cluster = Cluster::uniform(4, 8, "v100");
    let h200 = cluster.add_kind("h200");
    cluster.add_node(h200, 8);
    cluster
}

fn model(catalog: &Catalog, name: &str) -> ModelId {
    catalog.find(name).unwrap_or_else(|| panic!("no model {name}"))
}

const V100: GpuType = GpuType(0);
const H200: GpuType = GpuType(1);

#[test]
fn generic_does_one_second_each_second_whatever_the_size() {
    let speeds = Speeds::new(&Catalog::builtin(), &cluster());
    for gpus in [1, 3, 8, 40, 700] {
        for kind in [V100, H200] {
            let config = Config::packed(kind, gpus, 8);
            assert_eq!(speeds.rate(ModelId(0), &config), Some(Rate(1.0)));
        }
    }
    assert_eq!(speeds.rate(ModelId(0), &Config::default()), None);
    assert_eq!(speeds.rate(ModelId(9999), &Config::packed(V100, 1, 8)), None);
}

#[test]
fn every_zoo_model_has_a_source_and_runs_everywhere() {
    let catalog = Catalog::builtin();
    let speeds = Speeds::new(&catalog, &cluster());
    assert!(catalog.len() > 35, "{} models", catalog.len());
    for (id, profile) in catalog.iter() {
        assert!(profile.source.len() > 20, "{}", profile.name);
        for gpus in [1, 2, 5, 16, 600] {
            let Rate(rate) = speeds.rate(id, &Config::packed(H200, gpus, 8)).unwrap();
            assert!(rate.is_finite() && rate > 0.0, "{} on {gpus}: {rate}", profile.name);
        }
    }
}

#[test]
fn measured_figures_come_back_unchanged() {
    let catalog = Catalog::builtin();
    let speeds = Speeds::new(&catalog, &cluster());
    let one = |name: &str, config: &Config| speeds.rate(model(&catalog, name), config).unwrap().0;
    assert_eq!(one("h200-resnet50-b64-bf16", &Config::packed(H200, 1, 8)), 29.305);
    assert_eq!(one("gavel-resnet50-b64", &Config::packed(V100, 4, 8)), 9.4519);
    let mut spread = Config::packed(V100, 4, 8);
    (spread.nodes, spread.tier) = (2, Tier::Rack);
    assert_eq!(one("gavel-resnet50-b64", &spread), 11.136);
    assert_eq!(one("muri-vgg16-b16", &Config::packed(V100, 16, 8)), 3.012);
}

#[test]
fn nodes_racks_and_mixed_types_slow_a_job_down() {
    let mut catalog = Catalog::default();
    let point = |kind: &str, gpus, rate| Point { kind: kind.to_owned(), gpus, nodes: 1, rate };
    let points = vec![point("v100", 1, 1.0), point("v100", 8, 8.0), point("h200", 1, 5.0)];
    let id = catalog.add(ModelProfile { points, spread: 0.8, ..ModelProfile::named("m", "test") });
    let speeds = Speeds::new(&catalog, &cluster());
    let rate = |config: &Config| speeds.rate(id, config).unwrap().0;
    let mut config = Config::packed(V100, 8, 8);
    assert_eq!(rate(&config), 8.0);
    (config.nodes, config.tier) = (4, Tier::Rack);
    assert!((rate(&config) - 8.0 * 0.64).abs() < 1e-12);
    // The core has half the bandwidth of a rack by default: one more loss.
    (config.racks, config.tier) = (2, Tier::Core);
    assert!((rate(&config) - 8.0 * 0.512).abs() < 1e-12);
    let mut mixed = Config::packed(V100, 2, 8);
    mixed.kinds.push((H200, 1));
    mixed.gpus = 2;
    assert_eq!(rate(&mixed), rate(&Config::packed(V100, 2, 8)));
    // One GPU of each: with a batch cut by speed both end a step at once.
    let mut pair = Config::packed(V100, 2, 8);
    pair.kinds = smallvec::smallvec![(V100, 1), (H200, 1)];
    let alone = |kind| speeds.rate(id, &Config::packed(kind, 2, 8)).unwrap().0;
    let by_speed = speeds.clone().splitting_by_speed().rate(id, &pair).unwrap().0;
    let mean = (alone(V100) + alone(H200)) / 2.0;
    assert!((by_speed / mean - 1.0).abs() < 1e-12, "{by_speed} and {mean}");
    assert_eq!(speeds.rate(id, &pair).unwrap().0, alone(V100));
    let one_type = Config::packed(H200, 2, 8);
    let speeds = speeds.clone().splitting_by_speed();
    assert_eq!(speeds.rate(id, &one_type).unwrap().0, alone(H200), "nothing changes on one type");
}

#[test]
fn partners_and_shares_slow_a_job_down() {
    let catalog = Catalog::builtin();
    let speeds = Speeds::new(&catalog, &cluster());
    let (a, b) =
        (model(&catalog, "h200-resnet18-b128-tf32"), model(&catalog, "h200-vgg16-b64-bf16"));
    let alone = Config::packed(H200, 1, 8);
    let beside = alone.clone().with_partners([b]);
    let part = |speeds: &Speeds, config: &Config| {
        speeds.rate(a, config).unwrap().0 / speeds.rate(a, &alone).unwrap().0
    };
    let mps = speeds.clone().with_colocation(ColocationModel::Mps.bind(&catalog, &cluster()));
    assert!((part(&mps, &beside) - 0.513).abs() < 1e-9);
    assert!(part(&speeds, &beside) < 1.0 && (part(&speeds, &beside) - 0.513).abs() > 1e-3);
    let beside = alone.clone().with_partners([b, ModelId(0)]);
    let delays = (1.0 / 0.513 - 1.0) + (1.0 / 0.8 - 1.0);
    let expected = 1.0 / (1.0 + delays);
    assert!((part(&mps, &beside) - expected).abs() < 1e-9, "not measured: the default, added");
    let mut share = alone.clone();
    share.permille = 250;
    assert!((part(&speeds, &share) - 0.25).abs() < 1e-12);
}

#[test]
fn a_change_costs_what_the_run_says() {
    let catalog = Catalog::builtin();
    let speeds = Speeds::new(&catalog, &cluster());
    let id = model(&catalog, "h200-llama-1b-b4-bf16");
    let (one, eight) = (Config::packed(H200, 1, 8), Config::packed(H200, 8, 8));
    let cost = speeds.change(id, Some(&one), Some(&eight));
    assert_eq!(cost.save, Span::from_secs_f64(22.2192));
    assert_eq!(cost.start, Span::from_secs_f64(29.39 + 10.1323 + 0.1673) + Span::secs(3));
    assert_eq!(speeds.change(id, None, Some(&one)).save, Span::ZERO);
    assert_eq!(speeds.change(id, Some(&one), None).start, Span::ZERO);
    let twice = speeds.clone().with_costs(CostModel::Scaled(2.0)).change(id, Some(&one), None);
    assert_eq!(twice.save, Span::from_secs_f64(44.4384));
    let free = speeds.clone().with_costs(CostModel::Free).change(id, Some(&one), Some(&eight));
    assert_eq!((free.save, free.start), (Span::ZERO, Span::ZERO));
    let flat = CostModel::Flat { save: Span::secs(1), start: Span::secs(2) };
    let flat = speeds.with_costs(flat).change(id, None, Some(&one));
    assert_eq!((flat.save, flat.start), (Span::ZERO, Span::secs(2)));
}

#[test]
fn muri_start_times_are_those_of_its_simulator() {
    let start = trainyard_profile::zoo::muri_start("shufflenet_v2_x1_0");
    assert_eq!((start.on(1), start.on(32)), (Span::secs(4), Span::secs(8)));
    assert_eq!(trainyard_profile::zoo::muri_start("else").on(4), Span::secs(10));
}

#[test]
fn host_cpus_and_memory_change_a_rate_where_the_profile_says_so() {
    let table = HostTable {
        gpus: 1,
        cpus: vec![1.0, 3.0],
        memory_mib: vec![64_000],
        parts: vec![vec![0.3], vec![1.0]],
        usual: (3.0, 64_000),
    };
    let mut catalog = Catalog::default();
    let fed = ModelProfile { host: vec![table], ..ModelProfile::steady("fed", "test", 10.0) };
    let (fed, deaf) = (catalog.add(fed), catalog.add(ModelProfile::steady("deaf", "test", 10.0)));
    let speeds = Speeds::new(&catalog, &Cluster::uniform(1, 8, "v100"));
    let rate = |model, cpus| {
        let mut config = Config::packed(GpuType(0), 4, 8);
        config.host = HostShare { cpus, memory_mib: 0 };
        speeds.rate(model, &config).unwrap().0
    };
    // Four GPUs: 4 CPUs are one for each, 0 stands for no statement.
    for (cpus, expected) in [(4, 3.0), (8, 6.5), (12, 10.0), (40, 10.0), (0, 10.0)] {
        assert!((rate(fed, cpus) - expected).abs() < 1e-9, "{cpus}: {}", rate(fed, cpus));
    }
    assert_eq!(rate(deaf, 4), 10.0);
}

#[test]
fn another_batch_goes_by_the_model_that_was_measured_with_it() {
    let mut catalog = Catalog::default();
    let batches = Batches { own: 32, epoch_samples: 100, others: vec![(64, "large".to_owned())] };
    let small =
        ModelProfile { batches: Some(batches), ..ModelProfile::steady("small", "test", 8.0) };
    let small = catalog.add(small);
    catalog.add(ModelProfile::steady("large", "test", 6.0));
    let speeds = Speeds::new(&catalog, &Cluster::uniform(1, 8, "v100"));
    let rate = |batch| {
        let config = Config { batch, ..Config::packed(GpuType(0), 1, 8) };
        speeds.rate(small, &config).unwrap().0
    };
    // An epoch is 4 steps of 32 and 2 of 64, so a step of 64 does the work of two.
    assert_eq!([None, Some(32), Some(64), Some(999)].map(rate), [8.0, 8.0, 12.0, 12.0]);
    assert!(rate(Some(48)) > 8.0 && rate(Some(48)) < 12.0);
}
