//! CASSINI on top of other policies: 24 servers of one GPU on links of 50 Gbit/s, as in section 5.1 of the paper.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trainyard_network::cassini::{
    Candidate, CircleSettings, Perimeter, Profile, SharedLink, judge,
};
use trainyard_policies::compose::{Choice, Selection};
use trainyard_profile::{Catalog, CostModel, ModelProfile, ModelTraffic, Point};
use trainyard_sim::{Observer, Options, Outcome, Quiet, simulate};
use trainyard_types::{
    Action, Cluster, Job, JobId, LinkId, Load, ModelId, NodeId, Pattern, Placement, Span, Tenants,
    Time, Topology, Traffic, Work,
};
use trainyard_workload::{TraceJob, Workload, cluster};

/// The thirteen models of the paper, with parameters in millions, the part of an iteration of 240 ms in which they
/// send when alone on eight servers of the cluster, and how they are parallel. The parts are ours; the paper's are in figures only.
const MODELS: [(&str, f64, f64, Pattern); 13] = [
    ("vgg11", 0.16, 0.50, Pattern::Ring),
    ("vgg16", 0.24, 0.50, Pattern::Ring),
    ("vgg19", 0.24, 0.45, Pattern::Ring),
    ("wide-resnet101", 0.32, 0.40, Pattern::Ring),
    ("resnet50", 0.16, 0.25, Pattern::Ring),
    ("bert", 0.24, 0.45, Pattern::Ring),
    ("roberta", 0.24, 0.50, Pattern::Ring),
    ("xlm", 0.32, 0.50, Pattern::Ring),
    ("camembert", 0.24, 0.45, Pattern::Ring),
    ("gpt-1", 0.16, 0.40, Pattern::Tree),
    ("gpt-2", 0.32, 0.50, Pattern::Tree),
    ("gpt-3", 0.48, 0.40, Pattern::Pipeline),
    ("dlrm", 0.16, 0.50, Pattern::AllToAll),
];

const MBPS: f64 = 50_000.0;

/// What is changed of the setting, to tell reasons apart.
#[derive(Copy, Clone, Default)]
struct Variation {
    /// All jobs of a model have one period, whatever their number of GPUs.
    one_period: bool,
    /// Half of what jobs send.
    light: bool,
    /// Racks and their oversubscription, instead of twelve at two to one.
    racks: Option<(u32, u32)>,
}

fn cluster(variation: Variation) -> Arc<Cluster> {
    let (racks, over) = variation.racks.unwrap_or((12, 2));
    let line = format!("24x1 a100 over leaf-spine {racks} racks 50g {over}:1");
    Arc::new(cluster::parse(&line).expect("a cluster").0)
}

fn topology(cluster: &Cluster) -> &Topology {
    cluster.topology.as_deref().expect("links")
}

/// The first so many servers, which fill racks.
fn packed(gpus: u32) -> Placement {
    Placement::from_masks((0..gpus).map(|node| (NodeId(node), 1)))
}

/// Megabits per second of a unit of a job that is alone on the cluster, on as few racks as can be. A server's link
/// carries several units where the pattern sends to several others.
fn alone_mbps(topology: &Topology, pattern: Pattern, gpus: u32) -> f64 {
    if gpus < 2 { MBPS } else { topology.load(&packed(gpus), pattern).alone_mbps(topology) }
}

/// A model on this cluster.
struct Trained {
    name: &'static str,
    pattern: Pattern,
    bytes: f64,
    seconds: f64,
    /// Seconds of an iteration in which it does not send, on eight servers.
    computes: f64,
    one_period: bool,
}

impl Trained {
    fn all(topology: &Topology, variation: Variation) -> Vec<Trained> {
        let of = |(name, seconds, part, pattern): (&'static str, f64, f64, Pattern)| {
            let part = if variation.light { part / 2.0 } else { part };
            let mbps = alone_mbps(topology, pattern, 8);
            let bytes = seconds * part * mbps * 1e6 / 8.0 / pattern.unit(1.0, 8);
            let (computes, one_period) = (seconds * (1.0 - part), variation.one_period);
            Trained { name, pattern, bytes, seconds, computes, one_period }
        };
        MODELS.into_iter().map(of).collect()
    }

    /// Seconds in which it sends at so many megabits per second.
    fn sends(&self, gpus: u32, mbps: f64) -> f64 {
        if gpus < 2 { 0.0 } else { self.pattern.unit(self.bytes, gpus) * 8.0 / (mbps * 1e6) }
    }

    /// An iteration of a job that is alone on the cluster.
    fn alone(&self, topology: &Topology, gpus: u32) -> f64 {
        match self.one_period {
            true => self.seconds,
            false => self.computes + self.sends(gpus, alone_mbps(topology, self.pattern, gpus)),
        }
    }

    fn profile(&self, topology: &Topology) -> ModelProfile {
        let point = |gpus: u32| {
            // Speeds are told over links of 50 Gbit/s that carry one unit.
            let here = alone_mbps(topology, self.pattern, gpus);
            let longer = self.sends(gpus, here) - self.sends(gpus, MBPS);
            let rate = 1.0 / (self.alone(topology, gpus) - longer);
            Point { kind: "a100".to_owned(), gpus, nodes: gpus, rate }
        };
        let moves = Traffic { bytes: self.bytes, pattern: self.pattern, overlap: 0.0 };
        ModelProfile {
            points: (1..=8).map(point).collect(),
            traffic: Some(ModelTraffic { moves, inside_mbps: None, across_mbps: MBPS as u64 }),
            ..ModelProfile::named(self.name, "a test")
        }
    }
}

/// Jobs of two to eight GPUs that come so often that the servers are nearly all busy.
fn workload(seed: u64, count: u32, models: &[Trained], topology: &Topology) -> Workload {
    let mut catalog = Catalog::default();
    models.iter().for_each(|model| {
        catalog.add(model.profile(topology));
    });
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut below = |bound: u64| rng.next_u64() % bound;
    let mut at = 0;
    let jobs = (0..count).map(|id| {
        let model = below(MODELS.len() as u64) as usize;
        let gpus = 2 + below(7) as u32;
        let iterations = 1_000 + below(3_000);
        at += below(2 * 30_000);
        let mut job = Job::simple(JobId(id), Time(at * 1_000), gpus);
        job.model = ModelId(model as u32 + 1);
        TraceJob::new(job, Work(iterations as f64))
    });
    let jobs = jobs.collect();
    Workload { jobs, tenants: Tenants::default(), catalog, ..Workload::empty("cassini") }
}

fn run(
    workload: &Workload,
    (policy, tuned): (&str, bool),
    cluster: &Arc<Cluster>,
    observer: &mut impl Observer,
) -> Outcome {
    let mut selection = Selection::policy(policy);
    if tuned {
        selection.tune.push(Choice::named("cassini"));
    }
    let options = Options {
        costs: CostModel::Free,
        estimate_error: 0.0,
        in_phases: true,
        ..Options::default()
    };
    let pipeline = selection.build().expect("they exist");
    let outcome = simulate(workload, cluster, pipeline, &options, observer);
    assert!(outcome.unfinished.is_empty(), "every job is served");
    assert_eq!(outcome.stats.faults, 0, "{:?}", outcome.stats.fault_samples);
    outcome
}

/// How many times as long an iteration takes as alone on the cluster, for each job: mean, and the 99th of a hundred.
fn stretch(
    workload: &Workload,
    (models, cluster): (&[Trained], &Cluster),
    outcome: &Outcome,
) -> (f64, f64) {
    let mut all: Vec<f64> = outcome
        .finished()
        .map(|one| {
            let job = &workload.jobs[one.job.index()];
            let model = &models[job.job.model.index() - 1];
            let alone = model.alone(topology(cluster), job.job.want.gpus);
            one.ran.as_secs_f64() / job.work.0 / alone
        })
        .collect();
    all.sort_by(f64::total_cmp);
    (all.iter().sum::<f64>() / all.len() as f64, all[all.len() * 99 / 100])
}

/// Why the time shifts of CASSINI help jobs or not.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// It meets nobody on a link that cannot carry all at once.
    Alone,
    /// A link of its group carries more than it can, in whatever order.
    Full,
    /// The periods of its group do not close on one circle.
    Periods,
    /// They do, and a link scores less than 0.8 with the best shifts found.
    Poor,
    /// It can be told a shift.
    Told,
}

/// Adds up, while jobs run without shifts, how long jobs stand how, and the least that an iteration could take on the
/// links that they are on if all jobs of a link that is too full are slowed alike.
struct Crowd<'a> {
    cluster: Arc<Cluster>,
    workload: &'a Workload,
    models: &'a [Trained],
    running: BTreeMap<JobId, Placement>,
    since: Time,
    seconds: BTreeMap<Standing, f64>,
    /// Of each job, seconds, and seconds times the least stretch.
    least: BTreeMap<JobId, (f64, f64)>,
}

/// A job that sends.
struct Sends {
    job: JobId,
    load: Load,
    bytes: f64,
    period: f64,
    profile: Profile,
}

impl Crowd<'_> {
    fn senders(&self) -> Vec<Sends> {
        let topology = topology(&self.cluster);
        let of = |(job, placement): (&JobId, &Placement)| {
            let model = &self.models[self.workload.jobs[job.index()].job.model.index() - 1];
            let (gpus, load) = (placement.gpus(), topology.load(placement, model.pattern));
            let mbps = load.alone_mbps(topology);
            let best = alone_mbps(topology, model.pattern, gpus);
            let on = model.sends(gpus, mbps);
            let period = model.alone(topology, gpus) + on - model.sends(gpus, best);
            let span = Span::from_secs_f64;
            let profile = Profile::on_off(span(period - on), span(on), mbps * 1e6 / 8.0);
            let bytes = model.pattern.unit(model.bytes, gpus);
            Sends { job: *job, load, bytes, period, profile }
        };
        self.running.iter().map(of).collect()
    }

    /// Links on which jobs meet that cannot all send at once, and how full each is in the mean.
    fn shared(&self, senders: &[Sends]) -> Vec<(SharedLink, f64)> {
        let mut on: BTreeMap<LinkId, Vec<(usize, usize)>> = BTreeMap::new();
        for (at, sender) in senders.iter().enumerate() {
            for same in sender.load.links.chunk_by(|a, b| a == b) {
                on.entry(same[0]).or_default().push((at, same.len()));
            }
        }
        let mut links = Vec::new();
        for (link, jobs) in on.into_iter().filter(|(_, jobs)| jobs.len() > 1) {
            let whole = topology(&self.cluster).mbps(link) as f64 * 1e6 / 8.0;
            let most = jobs.iter().map(|(_, times)| *times).max().unwrap_or(1);
            let peak =
                |at: usize| senders[at].profile.phases.iter().map(|one| one.bytes_per_second);
            let peaks: f64 = jobs.iter().map(|(at, _)| peak(*at).fold(0.0, f64::max)).sum();
            let capacity = whole / most as f64;
            if peaks > capacity * (1.0 + 1e-9) {
                let each = |(at, times): &(usize, usize)| {
                    senders[*at].bytes * *times as f64 / senders[*at].period
                };
                let full = jobs.iter().map(each).sum::<f64>() / whole;
                let jobs = jobs.into_iter().map(|(at, _)| at).collect();
                links.push((SharedLink { link, capacity, jobs }, full));
            }
        }
        links
    }

    /// Takes note of the time up to a moment.
    fn pass(&mut self, at: Time) {
        let seconds = at.since(self.since).as_secs_f64();
        self.since = at;
        if seconds <= 0.0 || self.running.is_empty() {
            return;
        }
        let senders = self.senders();
        let links = self.shared(&senders);
        for (at, sender) in senders.iter().enumerate() {
            let own = links.iter().filter(|(link, _)| link.jobs.contains(&at));
            let fullest = own.map(|(_, full)| *full).fold(1.0, f64::max);
            let gpus = self.running[&sender.job].gpus();
            let model = &self.models[self.workload.jobs[sender.job.index()].job.model.index() - 1];
            let placed = sender.period / model.alone(topology(&self.cluster), gpus);
            let sum = self.least.entry(sender.job).or_default();
            *sum = (sum.0 + seconds, sum.1 + seconds * placed * fullest);
        }
        let mut left: BTreeSet<usize> = (0..senders.len()).collect();
        while let Some(first) = left.pop_first() {
            let group = group_of(first, &links);
            let standing = standing(&senders, &links, &group);
            group.iter().for_each(|at| {
                left.remove(at);
            });
            *self.seconds.entry(standing).or_default() += seconds * group.len() as f64;
        }
    }

    fn least_mean(&self) -> f64 {
        let all = self.least.values().map(|(seconds, sum)| sum / seconds);
        all.sum::<f64>() / self.least.len() as f64
    }
}

/// All jobs that one meets, over others too.
fn group_of(first: usize, links: &[(SharedLink, f64)]) -> BTreeSet<usize> {
    let mut group = BTreeSet::from([first]);
    loop {
        let known = group.len();
        for (link, _) in links {
            if link.jobs.iter().any(|at| group.contains(at)) {
                group.extend(&link.jobs);
            }
        }
        if group.len() == known {
            return group;
        }
    }
}

fn standing(senders: &[Sends], links: &[(SharedLink, f64)], group: &BTreeSet<usize>) -> Standing {
    let own: Vec<_> = links.iter().filter(|(link, _)| group.contains(&link.jobs[0])).collect();
    if own.is_empty() {
        return Standing::Alone;
    }
    if own.iter().any(|(_, full)| *full > 1.0) {
        return Standing::Full;
    }
    let settings = CircleSettings::default();
    let order: Vec<usize> = group.iter().copied().collect();
    let profiles: Vec<Profile> = order.iter().map(|at| senders[*at].profile.clone()).collect();
    let periods: Vec<Span> = profiles.iter().map(Profile::period).collect();
    if Perimeter::of(&periods, &settings).is_err() {
        return Standing::Periods;
    }
    let place = |at: &usize| order.binary_search(at).expect("of the group");
    let links = own.iter().map(|(link, _)| SharedLink {
        jobs: link.jobs.iter().map(place).collect(),
        ..link.clone()
    });
    let judged = judge(&profiles, &Candidate { links: links.collect() }, &settings);
    let worst = judged.map_or(0.0, |judged| judged.links.into_iter().fold(1.0, f64::min));
    if worst < 0.8 { Standing::Poor } else { Standing::Told }
}

impl Observer for Crowd<'_> {
    fn action(&mut self, at: Time, action: &Action) {
        if let Action::Launch { job, allocation, .. } | Action::Adjust { job, allocation, .. } =
            action
        {
            self.pass(at);
            self.running.insert(*job, allocation.placement.clone());
        }
    }

    fn released(&mut self, at: Time, job: JobId) {
        self.pass(at);
        self.running.remove(&job);
    }
}

/// What came of one policy in a setting, over several draws.
#[derive(Default)]
struct Found {
    plain: (f64, f64),
    tuned: (f64, f64),
    /// The least mean stretch with the placements of the runs without shifts.
    least: f64,
    seconds: BTreeMap<Standing, f64>,
}

fn measured(policy: &str, variation: Variation, seeds: u64) -> Found {
    let cluster = cluster(variation);
    let topology = topology(&cluster);
    let models = Trained::all(topology, variation);
    let mut found = Found::default();
    for seed in 0..seeds {
        let workload = workload(seed, 60, &models, topology);
        let add = |sum: &mut (f64, f64), (mean, tail): (f64, f64)| {
            *sum = (sum.0 + mean / seeds as f64, sum.1 + tail / seeds as f64);
        };
        let mut crowd = Crowd {
            cluster: Arc::clone(&cluster),
            workload: &workload,
            models: &models,
            running: BTreeMap::new(),
            since: Time::ZERO,
            seconds: BTreeMap::new(),
            least: BTreeMap::new(),
        };
        let plain = run(&workload, (policy, false), &cluster, &mut crowd);
        let tuned = run(&workload, (policy, true), &cluster, &mut Quiet);
        add(&mut found.plain, stretch(&workload, (&models, &cluster), &plain));
        add(&mut found.tuned, stretch(&workload, (&models, &cluster), &tuned));
        found.least += crowd.least_mean() / seeds as f64;
        for (standing, seconds) in crowd.seconds {
            *found.seconds.entry(standing).or_default() += seconds;
        }
    }
    found
}

/// Prints what was found; the mean with and without.
fn told(name: &str, found: &Found) {
    let Found { plain, tuned, least, seconds } = found;
    trainyard_testkit::say!(
        "{name}: mean {:.3} -> {:.3}, {:.2} times, at most {:.2}; 99th {:.3} -> {:.3}, {:.2} times",
        plain.0,
        tuned.0,
        plain.0 / tuned.0,
        plain.0 / least,
        plain.1,
        tuned.1,
        plain.1 / tuned.1
    );
    let all: f64 = seconds.values().sum();
    let parts: Vec<String> = seconds
        .iter()
        .map(|(standing, seconds)| format!("{standing:?} {:.1} %", 100.0 * seconds / all))
        .collect();
    trainyard_testkit::say!("  of the time of jobs: {}", parts.join(", "));
}

#[test]
fn jobs_iterate_faster_under_themis_and_pollux_when_they_take_turns() {
    for policy in ["themis", "pollux"] {
        let found = measured(policy, Variation::default(), 4);
        told(policy, &found);
        assert!(found.tuned.0 < found.plain.0, "{policy}: {:?}, {:?}", found.tuned, found.plain);
    }
}

/// One cause at a time: what is left of the gain, and how much there is to gain at most.
#[test]
#[ignore = "minutes in a debug build; the reasons on the page of cassini: cargo test -p trainyard-policies --test cassini -- --ignored --nocapture"]
fn what_stands_in_the_way_of_taking_turns() {
    let usual = Variation::default();
    for (name, variation) in [
        ("as it is", usual),
        ("one period for each model", Variation { one_period: true, ..usual }),
        ("half as much sent", Variation { light: true, ..usual }),
        ("both", Variation { light: true, one_period: true, ..usual }),
        ("6 racks 2:1", Variation { racks: Some((6, 2)), ..usual }),
        ("6 racks 4:1", Variation { racks: Some((6, 4)), ..usual }),
        ("4 racks 4:1", Variation { racks: Some((4, 4)), ..usual }),
        ("3 racks 4:1", Variation { racks: Some((3, 4)), ..usual }),
        ("3 racks 8:1", Variation { racks: Some((3, 8)), ..usual }),
        ("3 racks 8:1, one period", Variation { racks: Some((3, 8)), one_period: true, ..usual }),
        ("6 racks 4:1, one period", Variation { racks: Some((6, 4)), one_period: true, ..usual }),
        ("6 racks 4:1, both", Variation { racks: Some((6, 4)), one_period: true, light: true }),
    ] {
        told(&format!("themis, {name}"), &measured("themis", variation, 4));
    }
}
