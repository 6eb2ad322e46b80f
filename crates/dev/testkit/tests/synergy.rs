//! Synergy (OSDI 2022): what host CPUs and memory by sensitivity are worth, beside what was published.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use trainyard_engine::Engine;
use trainyard_framework::RawSettings;
use trainyard_policies::compose::Selection;
use trainyard_profile::import::synergy;
use trainyard_profile::{Catalog, CostModel, HostTable, ModelProfile};
use trainyard_sim::{FailureModel, Observer, Options, Outcome, Quiet, simulate};
use trainyard_testkit::forgetful::Forgetful;
use trainyard_testkit::{places, say};
use trainyard_types::{Cluster, HostShare, Job, JobId, ModelId, Span, Time, Work};
use trainyard_workload::{Arrival, Spec, TraceJob, Workload, cluster, generate};

/// Servers of 8 GPUs, 24 CPUs and 500 GB, as in the paper: 3 CPUs and 62.5 GB for each GPU.
fn servers(nodes: u32) -> Cluster {
    let mut cluster = Cluster::uniform(nodes, 8, "v100");
    for node in &mut cluster.nodes {
        (node.cpus, node.memory_mib) = (24, 512_000);
    }
    cluster
}

/// Looks after every moment whether a job runs slower than with its proportional share.
#[derive(Default)]
struct Watch {
    tables: BTreeMap<u32, Vec<HostTable>>,
    looked: u64,
    /// The sum of all speeds at the first moment, in parts of those with the proportional share.
    first: Option<f64>,
}

impl Watch {
    fn of(workload: &Workload) -> Watch {
        let models = workload.catalog.iter().map(|(id, model)| (id.0, model.host.clone()));
        Watch { tables: models.collect(), ..Watch::default() }
    }

    fn speed(&self, model: u32, gpus: u32, host: HostShare) -> f64 {
        let tables = &self.tables[&model];
        let table = tables.iter().rev().find(|table| table.gpus <= gpus).or(tables.first());
        table.map_or(1.0, |table| table.part(f64::from(host.cpus), host.memory_mib as f64))
    }
}

impl Observer for Watch {
    fn passed(&mut self, engine: &Engine) {
        let mut sum = 0.0;
        for job in engine.state().granted.iter() {
            let live = engine.state().live(job).expect("granted jobs are live");
            let Some(held) = &live.state.held else { continue };
            let gpus = held.placement.gpus();
            let speed = self.speed(live.spec.model.0, gpus, held.host_per_gpu);
            assert!(speed > 0.999, "{job} at {speed} with {:?}", held.host_per_gpu);
            sum += speed;
            self.looked += 1;
        }
        self.first.get_or_insert(sum);
    }
}

fn run(workload: &Workload, cluster: &Cluster, policy: &str, costs: CostModel) -> (Outcome, Watch) {
    let mut options = Options { costs, estimate_error: 0.0, ..Options::default() };
    options.setup.check_every = 64;
    let mut selection = Selection::policy("synergy");
    selection.policy.settings = RawSettings::parse(policy.split(' ')).expect("settings");
    let pipeline = selection.build().expect("settings that build");
    let mut watch = Watch::of(workload);
    let outcome = simulate(workload, &Arc::new(cluster.clone()), pipeline, &options, &mut watch);
    let stats = &outcome.stats;
    assert_eq!((stats.faults, stats.policy_errors, stats.policy_panics), (0, 0, 0), "{policy}");
    assert!(outcome.unfinished.is_empty(), "{policy}: {:?}", outcome.unfinished);
    (outcome, watch)
}

/// Mean completion time in hours of the jobs from one number to another, and the end of the last job.
fn hours(workload: &Workload, outcome: &Outcome, (from, to): (usize, usize)) -> (f64, f64) {
    let time = |job: &TraceJob| outcome.jobs[job.job.id.index()].ended.since(job.job.submitted);
    let times = workload.jobs[from..to].iter().map(|job| time(job).as_secs_f64());
    let mean = times.sum::<f64>() / (to - from) as f64 / 3600.0;
    let last = outcome.jobs.iter().map(|job| job.ended.as_secs_f64()).fold(0.0, f64::max);
    (mean, last / 3600.0)
}

fn uniform(rng: &mut ChaCha12Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Jobs of one GPU in the proportions (image, language, speech) of the authors' default, so many an hour, of lengths as
/// in their generator: eight of ten from 32 minutes to 17 hours, the others from 17 hours to a week, evenly in the
/// logarithm.
fn derived(catalog: Catalog, models: [&[&str]; 3], jobs: usize, per_hour: f64) -> Workload {
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    let mut workload = Workload { catalog, ..Workload::empty("derived") };
    let mut at = 0.0;
    for id in 0..jobs {
        at -= libm::log(1.0 - uniform(&mut rng)) / per_hour * 3600.0;
        let class = match uniform(&mut rng) {
            part if part < 0.2 => models[0],
            part if part < 0.9 => models[1],
            _ => models[2],
        };
        let name = class[(uniform(&mut rng) * class.len() as f64) as usize];
        let model = workload.catalog.find(name).unwrap_or_else(|| panic!("no model {name}"));
        let power = match uniform(&mut rng) < 0.8 {
            true => 1.5 + 1.5 * uniform(&mut rng),
            false => 3.0 + uniform(&mut rng),
        };
        let rate = workload.catalog.get(model).points[0].rate;
        let steps = 60.0 * libm::pow(10.0, power) * rate;
        let job = Job { model, ..Job::simple(JobId(id as u32), Time((at * 1e6) as u64), 1) };
        workload.jobs.push(TraceJob::new(job, Work(steps)));
    }
    workload
}

/// Models with the best cases that Synergy's authors measured (V100, 3 CPUs and 62.5 GB for each GPU are usual): CPUs, MiB
/// and speed. Between the usual share and the best case speed is taken to grow evenly with CPUs.
fn from_best_cases() -> Catalog {
    let mut catalog = Catalog::default();
    for (name, cpus, memory_mib, speed) in [
        ("alexnet", 12.0, 128_000, 2.94),
        ("shufflenet", 12.0, 128_000, 2.89),
        ("resnet18", 9.0, 64_000, 2.4),
        ("mobilenet", 6.0, 64_000, 1.55),
        ("resnet50", 4.0, 64_000, 1.15),
        ("m5", 6.0, 192_000, 2.5),
    ] {
        let mut table = HostTable {
            gpus: 1,
            cpus: vec![1.0, 3.0, cpus],
            memory_mib: vec![64_000],
            parts: vec![vec![0.34], vec![1.0], vec![speed]],
            usual: (3.0, 64_000),
        };
        if memory_mib > 64_000 {
            // Without the memory for its data it does not gain from CPUs beyond two thirds of the best.
            table.memory_mib.push(memory_mib);
            table.parts = vec![vec![0.34; 2], vec![1.0; 2], vec![speed * 0.68, speed]];
        }
        let profile = ModelProfile::steady(name, "Synergy's best cases (OSDI 2022)", 1.0);
        catalog.add(ModelProfile { host: vec![table], ..profile });
    }
    for name in ["gnmt", "lstm", "transformer"] {
        let table = HostTable {
            gpus: 1,
            cpus: vec![1.0],
            memory_mib: vec![21_330],
            parts: vec![vec![1.0]],
            usual: (3.0, 64_000),
        };
        let profile = ModelProfile::steady(name, "Synergy's best cases (OSDI 2022)", 1.0);
        catalog.add(ModelProfile { host: vec![table], ..profile });
    }
    catalog
}

const MODELS: [&[&str]; 3] = [
    &["alexnet", "resnet18", "resnet50", "mobilenet", "shufflenet"],
    &["gnmt", "transformer", "lstm"],
    &["m5"],
];

#[test]
fn best_cases_shorten_jobs_and_the_heuristic_is_close_to_the_program() {
    let (jobs, measured) = (400, (200, 400));
    let workload = derived(from_best_cases(), MODELS, jobs, 2.25);
    let cluster = servers(4);
    for order in ["fifo", "srtf", "las"] {
        let mean = |form: &str| {
            let policy = format!("form={form} order={order}");
            let (outcome, watch) = run(&workload, &cluster, &policy, CostModel::Free);
            assert!(watch.looked > 1000, "{}", watch.looked);
            hours(&workload, &outcome, measured).0
        };
        let [even, tune, opt] = ["proportional", "tune", "opt"].map(mean);
        say!(
            "{order}: proportional {even:.2} h, tune {tune:.2} h ({:.2}x), opt {opt:.2} h",
            even / tune
        );
        assert!(tune < 0.9 * even, "{order}: {tune} {even}");
        assert!((tune / opt - 1.0).abs() < 0.15, "{order}: {tune} {opt}");
    }
}

/// The greatest sum of speeds if all nodes were one and memory did not count: no form can do better.
fn bound(workload: &Workload, cpus: usize) -> f64 {
    let mut best = vec![0.0; cpus + 1];
    for job in &workload.jobs {
        let table = &workload.catalog.get(job.job.model).host[0];
        let memory = f64::from(*table.memory_mib.last().expect("a column"));
        let mut next = vec![f64::NEG_INFINITY; cpus + 1];
        for used in table.cpus.iter().copied().chain([3.0]) {
            let speed = table.part(used, memory);
            for more in used as usize..=cpus {
                next[more] = f64::max(next[more], best[more - used as usize] + speed);
            }
        }
        best = next;
    }
    best[cpus]
}

#[test]
fn at_one_moment_no_form_is_below_equal_parts_or_above_what_one_large_node_could_do() {
    let mut gains = [0.0; 2];
    for seed in 0..6 {
        let mut workload = derived(from_best_cases(), MODELS, 16, 1.0);
        let models = workload.catalog.iter().filter(|(_, model)| !model.host.is_empty());
        let models: Vec<ModelId> = models.map(|(id, _)| id).collect();
        for (index, job) in workload.jobs.iter_mut().enumerate() {
            let spec = Arc::make_mut(&mut job.job);
            spec.submitted = Time::ZERO;
            // Other models for each seed, two of three of them thirsty.
            spec.model = models[(index * 5 + seed * 3) % models.len()];
        }
        let now = |form: &str| {
            let policy = format!("form={form} order=fifo");
            run(&workload, &servers(2), &policy, CostModel::Free).1.first.expect("a moment")
        };
        let [even, tune, opt] = ["proportional", "tune", "opt"].map(now);
        let most = bound(&workload, 48);
        assert!((even - 16.0).abs() < 1e-9, "{even}");
        for (gain, found) in gains.iter_mut().zip([tune, opt]) {
            assert!(found > even - 1e-9 && found < most + 1e-9, "{seed}: {tune} {opt} {most}");
            *gain += found - even;
        }
        say!("{seed}: {even} {tune:.2} {opt:.2} {most:.2}");
    }
    assert!(gains.iter().all(|gain| *gain > 3.0), "{gains:?}");
}

/// Gangs of several sizes on two types, some of them with wishes for the host and some on parts of GPUs.
fn mixed(seed: u64) -> (Workload, Cluster) {
    let (mut cluster, _) = cluster::parse("3x8 v100, 2x4 a100").expect("a valid cluster");
    for node in &mut cluster.nodes {
        (node.cpus, node.memory_mib) = match node.gpus {
            8 => (24, 512_000),
            _ => (16, 300_000),
        };
    }
    let spec = Spec { jobs: 120, seed, arrival: Arrival::Load(1.4), tenants: 3, ..Spec::default() };
    let catalog = Catalog::builtin();
    let mut workload = generate(&spec, &catalog, &cluster).expect("a valid spec");
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let made: Vec<ModelProfile> = from_best_cases().iter().map(|(_, one)| one.clone()).collect();
    let made: Vec<ModelId> = made.into_iter().map(|one| workload.catalog.add(one)).collect();
    for job in &mut workload.jobs {
        job.work = Work(job.work.0.min(1e5));
        let spec = Arc::make_mut(&mut job.job);
        spec.model = made[(uniform(&mut rng) * made.len() as f64) as usize];
        if uniform(&mut rng) < 0.2 {
            (spec.want.cpus_per_gpu, spec.want.memory_mib_per_gpu) = (2, 70_000);
        } else if uniform(&mut rng) < 0.1 && spec.want.gpus == 1 {
            spec.want.permille = 500;
        }
        spec.preemptible = uniform(&mut rng) < 0.9;
    }
    (workload, cluster)
}

#[test]
fn every_form_under_every_order_is_sound_while_nodes_break_and_memory_is_lost() {
    let gpus = Some(Span::secs(80_000));
    let failures = FailureModel { between: Span::secs(40_000), repair: Span::secs(3_000), gpus };
    let mut slow = Options { estimate_error: 1.5, ..Options::default() };
    slow.decision_cost.fixed = Span::secs(2);
    let broken = Options { failures: Some(failures), ..Options::default() };
    for (seed, mut options) in [(1, Options::default()), (2, broken), (3, slow)] {
        options.setup.check_every = 1;
        let (workload, cluster) = mixed(seed);
        let cluster = Arc::new(cluster);
        for form in ["tune", "opt", "proportional", "greedy"] {
            for (order, more) in
                [("srtf", "moves=true"), ("las", "spare=true"), ("fifo", "fill=strict")]
            {
                let text = [format!("form={form}"), format!("order={order}"), more.to_owned()];
                let mut selection = Selection::policy("synergy");
                let settings = RawSettings::parse(text.iter().map(String::as_str));
                selection.policy.settings = settings.expect("settings");
                let once = |every| {
                    let mut pipeline = selection.build().expect("settings that build");
                    pipeline.policy = Box::new(Forgetful { inner: pipeline.policy, every });
                    let outcome = simulate(&workload, &cluster, pipeline, &options, &mut Quiet);
                    let stats = &outcome.stats;
                    assert_eq!(stats.faults, 0, "{text:?} {:?}", stats.fault_samples);
                    assert_eq!((stats.policy_errors, stats.policy_panics), (0, 0), "{text:?}");
                    assert!(outcome.unfinished.is_empty(), "{text:?} {:?}", outcome.unfinished);
                    outcome
                };
                // What it remembers is a cache: without it the answers are the same.
                assert_eq!(once(7).jobs, once(1_000_000).jobs, "{text:?}");
            }
        }
    }
}

/// The published tables, if they are here.
fn published() -> Option<Catalog> {
    let path = places::shared("data/synergy/model_sensitivity_profiles.json.gz")?;
    let mut catalog = Catalog::default();
    for model in synergy::read(&unpacked(&path)).expect("the published tables") {
        catalog.add(model);
    }
    Some(catalog)
}

fn unpacked(path: &std::path::Path) -> String {
    let file = std::fs::File::open(path).expect("a file");
    std::io::read_to_string(flate2::read::GzDecoder::new(file)).expect("text")
}

fn full_name(catalog: &Catalog, short: &str) -> String {
    let long = match short {
        "res18" => "resnet18",
        "res50" => "resnet50",
        other => other,
    };
    let prefix = format!("synergy-{long}-");
    let found = catalog.names().find(|name| name.starts_with(&prefix));
    found.unwrap_or_else(|| panic!("no model {short}")).to_owned()
}

/// A trace of the authors: number, model, seconds of arrival, iterations, GPUs.
fn trace(catalog: &Catalog, file: &str) -> Option<Workload> {
    let text = unpacked(&places::shared(file)?);
    let mut workload = Workload { catalog: catalog.clone(), ..Workload::empty("synergy") };
    for (id, line) in text.lines().enumerate() {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |index: usize| fields[index].parse::<f64>().expect("a number");
        let model = catalog.find(&full_name(catalog, fields[1])).expect("a model of the tables");
        let at = Time((number(2) * 1e6) as u64);
        let job = Job { model, ..Job::simple(JobId(id as u32), at, number(4) as u32) };
        workload.jobs.push(TraceJob::new(job, Work(number(3))));
    }
    Some(workload)
}

#[test]
fn on_the_authors_traces_best_cases_beat_equal_parts() {
    let Some(catalog) = published() else { return };
    for (file, order, by_end) in [
        ("data/synergy/static_100job_6_3_1100.csv.gz", "fifo", true),
        ("data/synergy/dynamic_srtf.log.csv.gz", "srtf", false),
    ] {
        let Some(workload) = trace(&catalog, file) else { return };
        let cluster = servers(4);
        let result = |settings: &str| {
            let policy = format!("{settings} order={order}");
            let (outcome, _) = run(&workload, &cluster, &policy, CostModel::Profile);
            let (mean, last) = hours(&workload, &outcome, (0, workload.jobs.len()));
            say!("{file} {policy}: mean {mean:.2} h, last end {last:.2} h");
            if by_end { last } else { mean }
        };
        let forms = ["form=proportional", "form=tune", "form=opt"];
        let [even, tune, opt] = forms.map(result);
        for other in ["form=greedy", "form=tune moves=true", "form=tune spare=true"] {
            result(other);
        }
        assert!(tune < 0.85 * even, "{file}: {tune} {even}");
        assert!(tune < 1.05 * opt, "{file}: {tune} {opt}");
    }
}

/// Mean completion times with proportional parts, by the heuristic and by the program, so many jobs of one GPU an hour
/// on the authors' cluster, of the last jobs.
fn compared(catalog: &Catalog, order: &str, per_hour: f64, (from, to): (usize, usize)) -> [f64; 3] {
    let named = |short: &str| full_name(catalog, short);
    let names = [
        ["alexnet", "res18", "res50", "mobilenet", "shufflenet"].map(named).to_vec(),
        ["gnmt", "transformer", "lstm"].map(named).to_vec(),
        ["m5", "deepspeech"].map(named).to_vec(),
    ];
    let names: Vec<Vec<&str>> =
        names.iter().map(|class| class.iter().map(String::as_str).collect()).collect();
    let models = [&names[0][..], &names[1], &names[2]];
    let workload = derived(catalog.clone(), models, to, per_hour);
    let found = ["proportional", "tune", "opt"].map(|form| {
        let policy = format!("form={form} order={order}");
        let (outcome, _) = run(&workload, &servers(16), &policy, CostModel::Free);
        hours(&workload, &outcome, (from, to)).0
    });
    let [even, tune, opt] = found;
    let gain = even / tune;
    say!("{order}, {per_hour} an hour: {even:.2} h, tune {tune:.2} h ({gain:.2}x), opt {opt:.2} h");
    assert!(tune < 1.1 * opt, "{order} {per_hour}: {tune} {opt}");
    found
}

#[test]
fn on_the_published_tables_the_gain_grows_with_the_load() {
    let Some(catalog) = published() else { return };
    let [low, high] = [6.0, 9.0].map(|per_hour| {
        let [even, tune, _] = compared(&catalog, "fifo", per_hour, (1500, 2000));
        even / tune
    });
    assert!(low > 1.0 && high > 1.5 * low, "{low} {high}");
}

#[test]
#[ignore = "20 s in a debug build; the table on the page of synergy: cargo test -p trainyard-testkit --test synergy -- --ignored --nocapture"]
fn on_the_published_tables_the_published_mean_is_met_though_the_draws_are_others() {
    let Some(catalog) = published() else { return };
    let measured = (4000, 5000);
    compared(&catalog, "fifo", 6.0, measured);
    let [_, tune, _] = compared(&catalog, "fifo", 9.0, measured);
    assert!((tune / 21.8766 - 1.0).abs() < 0.1, "{tune}");
    for order in ["srtf", "las"] {
        let [even, tune, _] = compared(&catalog, order, 9.0, measured);
        assert!(tune < 0.9 * even, "{order}: {tune} {even}");
    }
}
