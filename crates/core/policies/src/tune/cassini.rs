//! CASSINI: of several plans that are alike to the policy, the one whose jobs can take turns on the links they share;
//! and a time shift for each of them.

use crate::prelude::*;
use std::collections::BTreeMap;
use trainyard_framework::{Tune, TuneEntry};
use trainyard_network::cassini::{
    Candidate, CircleSettings, Judged, Loops, Perimeter, Profile, SharedLink, choose, judge,
};
use trainyard_types::{Allocation, Change, Config, Knobs, LinkId, Load, Topology};

/// The row in the registry.
pub const ENTRY: TuneEntry = Entry {
    name: "cassini",
    about: "Chooses the plan whose jobs can take turns on shared links, and shifts their iterations in time.",
    paper: "Rajasekaran et al., CASSINI, NSDI 2024",
    needs: Needs { rates: true, topology: true, ..Needs::NOTHING },
    class: Taxonomy::rigid(Objective::Throughput, Family::Tuner),
    settings: &[
        ("candidates", "how many plans are compared, the policy's own among them"),
        (
            "loops",
            "plans in which jobs and links form a loop: `solve` all links together, or `discard` as published",
        ),
        ("least", "the least score of a link at which its jobs are given time shifts"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    candidates: u32,
    loops: LoopsSetting,
    least: f64,
}

/// What becomes of loops.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LoopsSetting {
    #[default]
    Solve,
    Discard,
}

impl Default for Settings {
    fn default() -> Settings {
        // Section 5.1 of the paper compares ten.
        Settings { candidates: 10, loops: LoopsSetting::Solve, least: 0.8 }
    }
}

fn build(raw: &RawSettings) -> Result<Box<dyn Tune>, ConfigError> {
    let Settings { candidates, loops, least } = raw.read(ENTRY.name)?;
    if !(1..=1000).contains(&candidates) {
        return Err(ENTRY.bad_value("candidates", candidates, "a whole number from 1 to 1000"));
    }
    if !(0.0..=1.0).contains(&least) {
        return Err(ENTRY.bad_value("least", least, "a score from 0 to 1"));
    }
    let loops = match loops {
        LoopsSetting::Solve => Loops::Solve,
        LoopsSetting::Discard => Loops::Discard,
    };
    Ok(Box::new(Cassini { candidates: candidates as usize, loops, least }))
}

/// Linear in jobs on several nodes and the links they share for each plan, beside the search of shifts
/// (`network/src/cassini`), whose steps are bounded.
struct Cassini {
    candidates: usize,
    loops: Loops,
    least: f64,
}

/// A job that sends over links.
struct Sender {
    job: JobId,
    profile: Profile,
    load: Load,
    knobs: Knobs,
}

/// The jobs of a plan that send, and where they meet.
struct Scene {
    senders: Vec<Sender>,
    candidate: Candidate,
}

impl Cassini {
    /// What every job that is to run sends under a plan. A link whose jobs could all send at once is no link to share.
    fn scene(view: &View<'_>, topology: &Topology, plan: &[Change]) -> Scene {
        let changed: BTreeMap<JobId, Option<&Allocation>> =
            plan.iter().map(|change| (change.job, change.to.as_ref())).collect();
        let stays = view.granted().filter(|job| !changed.contains_key(&job.id()));
        let stays = stays.filter_map(|job| Some((job.id(), job.state.planned.as_ref()?)));
        let moves = changed.iter().filter_map(|(job, to)| Some((*job, (*to)?)));
        let mut all: Vec<(JobId, &Allocation)> = stays.chain(moves).collect();
        all.sort_by_key(|(job, _)| *job);
        let senders: Vec<Sender> = all
            .into_iter()
            .filter_map(|(job, allocation)| sender(view, topology, job, allocation))
            .collect();
        let candidate = Candidate { links: shared(topology, &senders) };
        Scene { senders, candidate }
    }
}

/// What a job sends in an iteration, if it sends at all and its speed is known.
fn sender(
    view: &View<'_>,
    topology: &Topology,
    id: JobId,
    allocation: &Allocation,
) -> Option<Sender> {
    if allocation.placement.nodes() < 2 {
        return None;
    }
    let job = view.job(id)?;
    let traffic = view.traffic(job)?;
    let load = topology.load(&allocation.placement, traffic.pattern);
    let mbps = load.alone_mbps(topology);
    let config = Config { permille: 1000, ..allocation.config(view.cluster()) };
    let rate = view.rate_at_bandwidth(job, &config, mbps)?.0;
    if rate <= 0.0 || mbps <= 0.0 {
        return None;
    }
    let period = 1.0 / rate;
    let bytes_per_second = mbps * 1e6 / 8.0;
    let bytes = traffic.pattern.unit(traffic.bytes, allocation.placement.gpus());
    let on = (bytes / bytes_per_second).min(period);
    let (off, on) = (Span::from_secs_f64(period - on), Span::from_secs_f64(on));
    let profile = Profile::on_off(off, on, bytes_per_second);
    profile.check().ok()?;
    Some(Sender { job: id, profile, load, knobs: allocation.knobs.clone() })
}

/// Links on which jobs meet that cannot all send at once, each set of jobs with its tightest link. A job that crosses a
/// link several times in an iteration counts as the job that crosses it most often.
fn shared(topology: &Topology, senders: &[Sender]) -> Vec<SharedLink> {
    let mut on: BTreeMap<LinkId, Vec<(usize, usize)>> = BTreeMap::new();
    for (at, sender) in senders.iter().enumerate() {
        for same in sender.load.links.chunk_by(|a, b| a == b) {
            on.entry(same[0]).or_default().push((at, same.len()));
        }
    }
    let mut tightest: BTreeMap<Vec<usize>, SharedLink> = BTreeMap::new();
    for (link, jobs) in on.into_iter().filter(|(_, jobs)| jobs.len() > 1) {
        let crossings = jobs.iter().map(|(_, times)| *times).max().unwrap_or(1);
        let capacity = topology.mbps(link) as f64 * 1e6 / 8.0 / crossings as f64;
        let jobs: Vec<usize> = jobs.into_iter().map(|(at, _)| at).collect();
        let peak = |at: &usize| senders[*at].profile.phases.iter().map(|one| one.bytes_per_second);
        let all: f64 = jobs.iter().map(|at| peak(at).fold(0.0, f64::max)).sum();
        if all <= capacity * (1.0 + 1e-9) {
            continue;
        }
        let one = SharedLink { link, capacity, jobs: jobs.clone() };
        let known = tightest.entry(jobs).or_insert_with(|| one.clone());
        if capacity < known.capacity {
            *known = one;
        }
    }
    let mut links: Vec<SharedLink> = tightest.into_values().collect();
    links.sort_by_key(|link| link.link);
    links
}

impl Tune for Cassini {
    fn plans_max(&self) -> usize {
        self.candidates
    }

    /// The plan with the best mean score of its links; of equal ones the policy's, or the first.
    fn choose(&mut self, plans: &[Vec<Change>], view: &View<'_>, _cx: &mut Cx) -> usize {
        let Some(topology) = view.cluster().topology.as_deref() else { return 0 };
        let settings = CircleSettings::default();
        let mut best: Option<(f64, usize)> = None;
        for (at, plan) in plans.iter().enumerate() {
            let Scene { senders, candidate } = Cassini::scene(view, topology, plan);
            let profiles: Vec<Profile> = senders.into_iter().map(|one| one.profile).collect();
            let one = std::slice::from_ref(&candidate);
            let Some((_, judged)) = choose(&profiles, one, self.loops, &settings) else { continue };
            if best.is_none_or(|(score, _)| judged.score > score + 1e-9) {
                best = Some((judged.score, at));
            }
            if judged.score >= 1.0 - 1e-9 {
                break;
            }
        }
        best.map_or(0, |(_, at)| at)
    }

    fn tune(&mut self, changes: &[Change], view: &View<'_>, _cx: &mut Cx) -> Vec<(JobId, Knobs)> {
        let Some(topology) = view.cluster().topology.as_deref() else { return Vec::new() };
        // Jobs that stay fit each other still when another has left.
        if changes.iter().all(|change| change.to.is_none()) {
            return Vec::new();
        }
        let Scene { senders, candidate } = Cassini::scene(view, topology, changes);
        let told = self.shifts(&senders, &candidate);
        let knobs = senders.into_iter().zip(told).filter_map(|(sender, told)| {
            let (shift, pace) =
                told.map_or((Span::ZERO, None), |(shift, pace)| (shift, Some(pace)));
            let knobs = Knobs { shift, pace, ..sender.knobs.clone() };
            (knobs != sender.knobs).then_some((sender.job, knobs))
        });
        knobs.collect()
    }
}

impl Cassini {
    /// A shift and a pace for each job that meets others; none where their periods do not meet or a link is too full.
    fn shifts(&self, senders: &[Sender], candidate: &Candidate) -> Vec<Option<(Span, Span)>> {
        let mut told = vec![None; senders.len()];
        for group in groups(senders.len(), candidate) {
            if let Some(found) = self.shifts_of(senders, candidate, &group) {
                group.into_iter().zip(found).for_each(|(at, one)| told[at] = Some(one));
            }
        }
        told
    }

    /// The same for jobs that meet, over others too. All keep the pace of one circle, stretched until no job need be
    /// faster than it is, and by what does not fit on the fullest link, so that a job can make up for a delay.
    fn shifts_of(
        &self,
        senders: &[Sender],
        candidate: &Candidate,
        group: &[usize],
    ) -> Option<Vec<(Span, Span)>> {
        let settings = CircleSettings::default();
        let periods: Vec<Span> = group.iter().map(|at| senders[*at].profile.period()).collect();
        let circle = Perimeter::of(&periods, &settings).ok()?;
        let turns = periods.iter().zip(&circle.repeats);
        let stretch = turns
            .map(|(period, repeats)| period.as_secs_f64() * f64::from(*repeats) / circle.seconds);
        let stretch = stretch.fold(1.0, f64::max);
        let place = |at: &usize| group.binary_search(at).ok();
        let links =
            candidate.links.iter().filter(|link| link.jobs.iter().any(|at| place(at).is_some()));
        let links = links.map(|link| SharedLink {
            jobs: link.jobs.iter().filter_map(place).collect(),
            ..link.clone()
        });
        let own = Candidate { links: links.collect() };
        let paced = |slack: f64| -> Vec<Profile> {
            let of = group.iter().zip(&circle.repeats);
            of.map(|(at, repeats)| {
                let pace = circle.seconds * stretch * slack / f64::from(*repeats);
                slower(&senders[*at].profile, pace)
            })
            .collect()
        };
        let first = judge(&paced(1.0), &own, &settings).ok()?;
        let worst = |judged: &Judged| judged.links.iter().copied().fold(1.0, f64::min);
        if worst(&first) < self.least {
            return None;
        }
        let profiles = paced(2.0 - worst(&first));
        let judged = judge(&profiles, &own, &settings).ok()?;
        let told = profiles.iter().zip(&judged.shifts);
        Some(told.map(|(one, shift)| (Span::from_secs_f64(*shift), one.period())).collect())
    }
}

/// A job that waits after each iteration until so many seconds are over.
fn slower(profile: &Profile, seconds: f64) -> Profile {
    let mut slower = profile.clone();
    let wait = Span::from_secs_f64(seconds).minus(profile.period());
    if let Some(first) = slower.phases.first_mut() {
        first.span = Span(first.span.0 + wait.0);
    }
    slower
}

/// Jobs that meet on links, over others too, each group ascending; jobs that meet none are in no group.
fn groups(jobs: usize, candidate: &Candidate) -> Vec<Vec<usize>> {
    let mut links_of = vec![Vec::new(); jobs];
    for (number, link) in candidate.links.iter().enumerate() {
        link.jobs.iter().for_each(|job| links_of[*job].push(number));
    }
    let mut seen = vec![false; jobs];
    let mut groups = Vec::new();
    for first in 0..jobs {
        if seen[first] || links_of[first].is_empty() {
            continue;
        }
        seen[first] = true;
        let (mut group, mut next) = (vec![first], 0);
        while next < group.len() {
            for link in &links_of[group[next]] {
                for other in &candidate.links[*link].jobs {
                    if !std::mem::replace(&mut seen[*other], true) {
                        group.push(*other);
                    }
                }
            }
            next += 1;
        }
        group.sort_unstable();
        groups.push(group);
    }
    groups
}
