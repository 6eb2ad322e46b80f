//! MAPA (SC 2021): the table of effective bandwidths, and job times under its rules on a DGX-1V.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use trainyard_framework::RawSettings;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_policies::place::mapa::effective::published;
use trainyard_policies::place::mapa::matching::{Matches, Used};
use trainyard_profile::{Catalog, CostModel, ModelProfile, ModelTraffic, Point};
use trainyard_sim::{Observer, Options, Quiet, simulate};
use trainyard_testkit::places::shared;
use trainyard_testkit::say;
use trainyard_types::{
    Action, Cluster, Inside, Job, JobId, ModelId, Pattern, Placement, Tenants, Time, Work,
};
use trainyard_workload::{TraceJob, Workload, cluster};

#[test]
fn every_ring_of_the_table_has_its_wires_and_its_effective_bandwidth() {
    let Some(path) = shared("data/mapa/dgx_v_ring_effbw_golden.csv") else { return };
    let inside = Inside::preset("dgx-1v", 8).unwrap();
    let matches = Matches::new(&inside, Pattern::Ring);
    let mut found: Vec<(u32, Used)> = (1u64..256)
        .filter(|mask| mask.count_ones() > 1)
        .flat_map(|mask| matches.of(mask).into_iter().map(move |used| (mask.count_ones(), used)))
        .collect();
    found.sort_unstable();
    found.dedup();
    let mut rows = 0;
    let mut reader = csv::Reader::from_path(path).unwrap();
    for row in reader.records() {
        let row = row.unwrap();
        let count = |column: usize| row[column].parse::<u8>().unwrap();
        let used = Used { double: count(1), single: count(2), pcie: count(3) };
        assert!(found.contains(&(u32::from(count(0)), used)), "{row:?} is no ring");
        assert_eq!(format!("{}", matches.gbytes(used)), row[4], "{row:?}");
        let digits = row[5].split('.').nth(1).map_or(0, str::len);
        let text = format!("{:.*}", digits, published(used));
        assert_eq!(text.parse::<f64>().unwrap(), row[5].parse::<f64>().unwrap(), "{row:?}");
        rows += 1;
    }
    assert_eq!(rows, found.len(), "every ring is in the table once");
}

/// Networks of the paper: name, parameters in millions, seconds of computation for 64 samples on a V100, counted from
/// the operations of the published architectures at half of the peak of 15.7 TFLOP/s.
const NETWORKS: [(&str, f64, f64); 6] = [
    ("alexnet", 61.10, 0.035),
    ("caffenet", 60.97, 0.035),
    ("googlenet", 6.62, 0.073),
    ("inception3", 27.16, 0.279),
    ("resnet50", 25.56, 0.200),
    ("vgg16", 138.36, 0.757),
];

fn catalog(samples: u32) -> Catalog {
    let inside = Inside::preset("dgx-1v", 8).unwrap();
    let mut catalog = Catalog::default();
    for (name, millions, seconds) in NETWORKS {
        let seconds = seconds * f64::from(samples) / 64.0;
        let traffic = ModelTraffic::gradients(millions * 1e6);
        let point = |gpus: u32| {
            let exchange = traffic.seconds(gpus, inside.best_ring_mbps(gpus as u8) as f64);
            Point { kind: "v100".to_owned(), gpus, nodes: 1, rate: 1.0 / (seconds + exchange) }
        };
        let points = (1..=5).map(point).collect();
        let named = ModelProfile::named(name, "a test");
        catalog.add(ModelProfile { points, traffic: Some(traffic.clone()), ..named });
    }
    catalog
}

/// A hundred jobs at once: two to five GPUs, any network, five to 24 minutes where they are placed best.
fn trace(seed: u64, samples: u32) -> Workload {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut draw = |count: u32| rng.next_u32() % count;
    let catalog = catalog(samples);
    let jobs = (0..100).map(|id| {
        let (gpus, model) = (2 + draw(4), ModelId(1 + draw(6)));
        let minutes = 5 + draw(20);
        let rate = catalog.get(model).points[gpus as usize - 1].rate;
        let job = Job { model, ..Job::simple(JobId(id), Time::ZERO, gpus) };
        TraceJob::new(job, Work(rate * 60.0 * f64::from(minutes)))
    });
    let jobs = jobs.collect();
    Workload { jobs, tenants: Tenants::default(), catalog, ..Workload::empty("mapa") }
}

/// How long each job of some traces ran, over how long it would have where it is placed best; in their order.
fn stretches(settings: &[&str], samples: u32, traces: u64) -> Vec<f64> {
    let cluster = Arc::new(cluster::parse("1x8 v100 inside dgx-1v").unwrap().0);
    let options = Options { costs: CostModel::Free, estimate_error: 0.0, ..Options::default() };
    let mut all = Vec::new();
    for seed in 0..traces {
        let settings = RawSettings::parse(settings.iter().copied()).unwrap();
        let mut selection = Selection::policy("fifo");
        selection.place = Some(Choice { name: "mapa".to_owned(), settings });
        let workload = trace(seed, samples);
        let pipeline = selection.build().unwrap();
        let outcome = simulate(&workload, &cluster, pipeline, &options, &mut Quiet);
        let ideal = workload.ideal(&cluster);
        all.extend(outcome.jobs.iter().map(|one| {
            let ran = one.ended.since(one.first_start.expect("every job runs")).as_secs_f64();
            ran / ideal[one.job.index()].as_secs_f64()
        }));
    }
    all
}

#[test]
fn preserving_bandwidth_shortens_the_upper_quartile_against_the_lowest_gpus() {
    let rules = [
        ("baseline", vec!["rule=baseline"]),
        ("topo-aware", vec!["rule=topo-aware"]),
        ("greedy", vec!["rule=greedy"]),
        ("preserve, published", vec!["rule=preserve"]),
        ("preserve, monotone", vec!["rule=preserve", "regression=monotone"]),
    ];
    let quartiles = |all: &[f64]| {
        let mut all = all.to_vec();
        all.sort_by(f64::total_cmp);
        [1, 2, 3, 4].map(|part| all[(all.len() * part / 4).min(all.len() - 1)])
    };
    for samples in [64, 16] {
        let mut found = Vec::new();
        let mut lowest: Option<Vec<f64>> = None;
        for (name, settings) in &rules {
            let all = stretches(settings, samples, 100);
            // How many times as fast each job is as with the lowest GPUs: another reading of the published quartile.
            let before = lowest.get_or_insert_with(|| all.clone());
            let faster: Vec<f64> = before.iter().zip(&all).map(|(old, new)| old / new).collect();
            let [_, median, third, most] = quartiles(&faster);
            say!(
                "{samples} samples, {name:19} as fast as the lowest: median {median:.3}, upper quartile {third:.3}, most {most:.3}"
            );
            let at = quartiles(&all);
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            let [first, half, upper, worst] = at;
            say!(
                "{samples} samples, {name:19} {first:.3} {half:.3} {upper:.3}, worst {worst:.3}, mean {mean:.4}"
            );
            found.push(at);
        }
        let [lowest, half, greedy, published, monotone] = found[..] else { unreachable!() };
        assert!(
            half[2] < lowest[2],
            "half of the node beats the lowest GPUs at the upper quartile"
        );
        for better in [greedy, published, monotone] {
            assert!(better[2] < lowest[2], "wires beat the lowest GPUs at the upper quartile");
            assert!(better[2] <= half[2], "and half of the node");
        }
    }
}

/// Jobs of one to eight GPUs, as their policy likes, that come one after another.
fn elastic_trace(seed: u64, samples: u32) -> Workload {
    let mut workload = trace(seed, samples);
    let mut rng = ChaCha12Rng::seed_from_u64(seed + 1000);
    let mut at = 0;
    for one in &mut workload.jobs {
        at += u64::from(rng.next_u32() % 240);
        let mut job = Job::clone(&one.job);
        job.submitted = Time(at * 1_000_000);
        (job.want.gpus_min, job.want.gpus_max) = (1, 8);
        // A step is so many samples on one GPU: more GPUs make more of them.
        one.work.0 *= f64::from(job.want.gpus);
        one.job = Arc::new(job);
    }
    let inside = Inside::preset("dgx-1v", 8).unwrap();
    let mut catalog = Catalog::default();
    for (id, (_, _, seconds)) in (1..).zip(NETWORKS) {
        let mut profile = workload.catalog.get(ModelId(id)).clone();
        let traffic = profile.traffic.clone().unwrap();
        let seconds = seconds * f64::from(samples) / 64.0;
        let point = |gpus: u32| {
            let exchange = traffic.seconds(gpus, inside.best_ring_mbps(gpus as u8) as f64);
            let rate = f64::from(gpus) / (seconds + exchange);
            Point { kind: "v100".to_owned(), gpus, nodes: 1, rate }
        };
        profile.points = (1..=8).map(point).collect();
        catalog.add(profile);
    }
    Workload { catalog, ..workload }
}

/// Adds up the GPU time that jobs lose because their GPUs are not the best ones for so many.
struct Loss<'a> {
    cluster: Arc<Cluster>,
    workload: &'a Workload,
    samples: u32,
    running: BTreeMap<JobId, Placement>,
    since: Time,
    held: f64,
    lost: f64,
    launches: u32,
}

impl Loss<'_> {
    fn pass(&mut self, at: Time) {
        let seconds = at.since(self.since).as_secs_f64();
        self.since = at;
        let topology = self.cluster.topology.as_deref().expect("wires");
        let inside = Inside::preset("dgx-1v", 8).unwrap();
        for (job, placement) in self.running.iter().filter(|_| seconds > 0.0) {
            let gpus = placement.gpus();
            self.held += seconds * f64::from(gpus);
            let model = self.workload.jobs[job.index()].job.model;
            let traffic = self.workload.catalog.get(model).traffic.clone().unwrap();
            let computes = NETWORKS[model.index() - 1].2 * f64::from(self.samples) / 64.0;
            let here = topology.load(placement, Pattern::Ring).alone_mbps(topology);
            let best = inside.best_ring_mbps(gpus.min(8) as u8) as f64;
            let takes = |mbps: f64| computes + traffic.seconds(gpus, mbps);
            self.lost += seconds * f64::from(gpus) * (1.0 - takes(best) / takes(here));
        }
    }
}

impl Observer for Loss<'_> {
    fn action(&mut self, at: Time, action: &Action) {
        if let Action::Launch { job, allocation, .. } | Action::Adjust { job, allocation, .. } =
            action
        {
            self.pass(at);
            self.launches += u32::from(matches!(action, Action::Launch { .. }));
            self.running.insert(*job, allocation.placement.clone());
        }
    }

    fn released(&mut self, at: Time, job: JobId) {
        self.pass(at);
        self.running.remove(&job);
    }
}

/// What came of some elastic traces.
#[derive(Default)]
struct Ran {
    completion: f64,
    lost: f64,
    held: f64,
    launches: f64,
}

/// The means over four traces of 100 jobs.
fn elastic(selection: &Selection, samples: u32, costs: &CostModel) -> Ran {
    let cluster = Arc::new(cluster::parse("4x8 v100 inside dgx-1v").unwrap().0);
    let (mut ran, seeds) = (Ran::default(), 4);
    for seed in 0..seeds {
        let workload = elastic_trace(seed, samples);
        let options = Options { estimate_error: 0.0, costs: *costs, ..Options::default() };
        let mut loss = Loss {
            cluster: Arc::clone(&cluster),
            workload: &workload,
            samples,
            running: BTreeMap::new(),
            since: Time::ZERO,
            held: 0.0,
            lost: 0.0,
            launches: 0,
        };
        let pipeline = selection.build().unwrap();
        let outcome = simulate(&workload, &cluster, pipeline, &options, &mut loss);
        assert!(outcome.unfinished.is_empty());
        assert_eq!(outcome.stats.faults, 0, "{:?}", outcome.stats.fault_samples);
        let of = |one: &trainyard_sim::JobOutcome| {
            one.ended.since(workload.jobs[one.job.index()].job.submitted).as_secs_f64()
        };
        let all = 100.0 * seeds as f64;
        ran.completion += outcome.finished().map(of).sum::<f64>() / all;
        ran.launches += f64::from(loss.launches) / all;
        (ran.held, ran.lost) = (ran.held + loss.held, ran.lost + loss.lost);
    }
    ran
}

/// Whether sizes are valued with the wires that they get is a setting of AFS; of other policies this tells what there
/// would be to gain.
#[test]
fn elastic_jobs_end_sooner_where_sizes_are_valued_with_the_wires_that_they_get() {
    let free = CostModel::Free;
    for (policy, samples) in
        ["afs-l", "afs-p", "sia", "pollux"].into_iter().flat_map(|name| [(name, 64), (name, 16)])
    {
        for costs in [&CostModel::default(), &free] {
            let mut found = Vec::new();
            for place in ["", "mapa", "bandwidth=true"] {
                let mut selection = Selection::policy(policy);
                match place {
                    "" => {}
                    "mapa" => selection.place = Some(Choice::named(place)),
                    _ if !policy.starts_with("afs") => continue,
                    _ => selection.policy.settings = RawSettings::parse([place]).unwrap(),
                }
                let ran = elastic(&selection, samples, costs);
                say!(
                    "{policy}, {samples} samples, `{place}`, costs {}: completion {:.0} s, {:.2} % of GPU time lost to wires, {:.1} launches a job",
                    if *costs == free { "free" } else { "profile" },
                    ran.completion,
                    100.0 * ran.lost / ran.held,
                    ran.launches
                );
                found.push(ran);
            }
            if let [_, placed, valued] = &found[..] {
                assert!(valued.lost / valued.held < placed.lost / placed.held);
                let gain = placed.completion / valued.completion;
                assert!(gain > if *costs == free { 0.98 } else { 1.3 }, "{policy}: {gain}");
            }
        }
    }
}
