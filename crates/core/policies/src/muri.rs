//! Muri: jobs of one size take turns on storage and CPU, GPU and network, in groups that keep most of them busy.
//!
//! What Muri-S and Muri-L share; they differ in the order of jobs alone.

mod grouping;
mod room;

use crate::alike::Classes;
use crate::prelude::*;
use grouping::{Bucket, Efficiency, Group, join};
use room::Room;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};
use trainyard_profile::StageTimes;
use trainyard_types::{Config, Shape, Share};

/// Settings of Muri-S and Muri-L.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    ("group", "the most jobs that share their GPUs, from 1 to 4"),
    (
        "dissolve",
        "whether the jobs of a group that takes longer for one iteration of each than they would one after another go \
         their own ways",
    ),
    (
        "mode",
        "`changes`: GPUs that no group needs go to the next jobs in order; `refill`: they stay idle, as in the authors' \
         simulator",
    ),
    (
        "fresh",
        "what the time left of a job that never ran is divided by, and rounded up to seconds unless it is 1; 1.015 in the \
         authors' code, which goes by the lengths in its traces until a job has run",
    ),
];

#[derive(Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Settings {
    group: usize,
    dissolve: bool,
    mode: Mode,
    fresh: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { group: 4, dissolve: true, mode: Mode::Changes, fresh: 1.0 }
    }
}

impl Settings {
    /// The length of a job that never ran as a trace states it: in whole seconds, without the slowdown.
    fn stated(&self, left: Span) -> Span {
        if self.fresh == 1.0 {
            return left;
        }
        // The clock's microseconds may lie beside a whole second.
        Span::secs(libm::ceil(left.as_secs_f64() / self.fresh - 1e-5).max(0.0) as u64)
    }
}

/// By what jobs are ordered.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// The least GPU time left first: Muri-S.
    Left,
    /// The least GPU time attained first: Muri-L.
    Attained,
}

/// O(n log n) for n jobs, and O(g^3) for the at most 4 g jobs of one size that the g GPUs of the cluster bring in.
pub(crate) struct Muri {
    order: Order,
    settings: Settings,
    /// All jobs as they were ordered last: ties are decided by history.
    list: Vec<JobId>,
    known: KnownGroups,
}

/// A job that may be given GPUs.
struct Candidate {
    job: JobId,
    class: u32,
    /// Its place in the order: ascending with what the order looks at.
    key: u64,
}

impl Muri {
    pub(crate) fn new(
        order: Order,
        raw: &RawSettings,
        entry: &PolicyEntry,
    ) -> Result<Muri, ConfigError> {
        let settings: Settings = raw.read(entry.name)?;
        if !(1..=4).contains(&settings.group) {
            return Err(entry.bad_value("group", settings.group, "a whole number from 1 to 4"));
        }
        if !(0.01..=100.0).contains(&settings.fresh) {
            return Err(entry.bad_value("fresh", settings.fresh, "a number from 0.01 to 100"));
        }
        Ok(Muri { order, settings, list: Vec::new(), known: KnownGroups::default() })
    }

    /// What the order looks at, in GPU-microseconds.
    fn key(&self, job: JobRef<'_>, view: &View<'_>) -> u64 {
        let gpus = u64::from(job.spec.want.gpus);
        match self.order {
            Order::Attained => job.state.ran(view.now).times(gpus).0,
            Order::Left => {
                let Some(left) = view.time_left(job) else { return u64::MAX };
                let ran = job.state.ran(view.now) > Span::ZERO;
                let left = if ran { left } else { self.settings.stated(left) };
                left.times(gpus).0
            }
        }
    }

    /// All jobs that may be given GPUs, in order.
    fn ordered(&mut self, view: &View<'_>) -> Vec<(u64, JobId)> {
        let state = view.state();
        let active = |job: &JobId| state.waiting.contains(*job) || state.granted.contains(*job);
        self.list.retain(active);
        let listed: FxHashSet<JobId> = self.list.iter().copied().collect();
        let all = state.waiting.iter().chain(state.granted.iter());
        let mut new: Vec<JobId> = all.filter(|job| !listed.contains(job)).collect();
        new.sort_unstable();
        self.list.append(&mut new);
        let movable = |job: &JobRef<'_>| job.state.planned.is_none() || view.may_stop(*job);
        let jobs = self.list.iter().filter_map(|id| view.job(*id)).filter(movable);
        let mut jobs: Vec<(u64, JobId)> = jobs.map(|job| (self.key(job, view), job.id())).collect();
        jobs.sort_by_key(|(key, _)| *key);
        jobs
    }

    /// Jobs that may be grouped: each that fits brings in the next ones of its kind, as many as may share.
    fn candidates(
        &mut self,
        jobs: &[(u64, JobId)],
        view: &View<'_>,
        mut room: Room,
    ) -> (Vec<Candidate>, Vec<Bucket>) {
        let mut kinds = Kinds::default();
        for (key, id) in jobs {
            let Some(job) = view.job(*id) else { continue };
            if job.spec.want.permille == 1000 {
                let class = self.known.class(job, view);
                kinds.add(job, Candidate { job: *id, class, key: *key }, self.known.shares(class));
            }
        }
        for &(kind, place) in &kinds.order {
            let kind = &mut kinds.list[kind];
            if place >= kind.chosen && room.take(&kind.want) {
                let more = if kind.shares { self.settings.group } else { 1 };
                kind.chosen = (kind.chosen + more).min(kind.jobs.len());
            }
        }
        let mut candidates = Vec::new();
        let mut buckets = Vec::new();
        for kind in kinds.list {
            let first = candidates.len();
            candidates.extend(kind.jobs.into_iter().take(kind.chosen));
            let groups = (first..candidates.len()).map(|place| smallvec![place]).collect();
            buckets.push(Bucket { gpus: kind.want.gpus, shares: kind.shares, groups });
        }
        (candidates, buckets)
    }

    /// Groups that are worth it, and those of them that fit in order of their first jobs.
    fn dissolved(
        &mut self,
        buckets: &mut [Bucket],
        candidates: &[Candidate],
        (view, mut room): (&View<'_>, Room),
    ) {
        let mut all: Vec<(u64, usize, Group)> = Vec::new();
        for (number, bucket) in buckets.iter_mut().enumerate() {
            for group in std::mem::take(&mut bucket.groups) {
                let classes = classes(&group, candidates);
                let slow = group.len() > 1
                    && self.known.get(&classes).is_none_or(|pace| pace.period > pace.alone);
                let parts: Vec<Group> = match slow {
                    true => group.into_iter().map(|job| smallvec![job]).collect(),
                    false => vec![group],
                };
                for part in parts {
                    let key = part.iter().map(|place| candidates[*place].key).min();
                    all.push((key.unwrap_or(u64::MAX), number, part));
                }
            }
        }
        all.sort_by_key(|(key, _, _)| *key);
        for (_, number, group) in all {
            let first = view.job(candidates[group[0]].job);
            if first.is_some_and(|job| room.take(&job.spec.want)) {
                buckets[number].groups.push(group);
            }
        }
    }

    /// Gives groups their GPUs, the largest first and else in order, and remembers that order.
    fn settle(
        &mut self,
        jobs: &[(u64, JobId)],
        groups: FxHashMap<JobId, Vec<JobId>>,
        (view, offer): (&View<'_>, &mut Offer<'_>),
    ) {
        let size = |id: &JobId| view.job(*id).map_or(0, |job| job.spec.want.gpus);
        let mut order: Vec<JobId> = jobs.iter().map(|(_, id)| *id).collect();
        order.sort_by_key(|id| std::cmp::Reverse(size(id)));
        for id in &order {
            if let Some(group) = groups.get(id) {
                offer_group(group, view, offer);
            }
        }
        if self.settings.mode != Mode::Changes {
            offer.leave_idle();
        }
        for job in jobs.iter().filter_map(|(_, id)| view.job(*id)) {
            let (need, free) = (job.spec.want.gpus, offer.free().total());
            let fills = self.settings.mode == Mode::Changes && need <= free;
            if offer.plan(job.id()).is_some() {
                continue;
            }
            if fills || job.spec.want.permille < 1000 {
                offer.grant(&wanted(job));
            } else {
                offer.note(job.id(), Reason::NoRoom { need, free });
            }
        }
        let listed: FxHashSet<JobId> = order.iter().copied().collect();
        let kept = self.list.iter().copied().filter(|id| !listed.contains(id));
        self.list = order.iter().copied().chain(kept).collect();
    }
}

impl Policy for Muri {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        self.known.refresh(view);
        let jobs = self.ordered(view);
        offer.everything();
        let room = Room::of(offer.free());
        let (candidates, mut buckets) = self.candidates(&jobs, view, room.clone());
        let mut worth = Worth { known: &mut self.known, candidates: &candidates, view };
        join(&mut buckets, room.total(), self.settings.group, &mut worth);
        if self.settings.dissolve {
            self.dissolved(&mut buckets, &candidates, (view, room));
        }
        let mut groups: FxHashMap<JobId, Vec<JobId>> = FxHashMap::default();
        for group in buckets.iter().flat_map(|bucket| &bucket.groups) {
            let mut members: Vec<(u64, usize)> =
                group.iter().map(|place| (candidates[*place].key, *place)).collect();
            members.sort_unstable();
            let members: Vec<JobId> =
                members.into_iter().map(|(_, place)| candidates[place].job).collect();
            groups.insert(members[0], members);
        }
        self.settle(&jobs, groups, (view, offer));
        Ok(())
    }

    fn forget(&mut self) {
        self.list = Vec::new();
        self.known = KnownGroups::default();
    }
}

/// Jobs by what they ask for.
#[derive(Default)]
struct Kinds {
    list: Vec<Kind>,
    /// The kind of each job and its place there, in order.
    order: Vec<(usize, usize)>,
}

/// Jobs that ask for the same.
struct Kind {
    want: trainyard_types::Want,
    /// Whether they may share GPUs.
    shares: bool,
    jobs: Vec<Candidate>,
    /// So many of them are brought in.
    chosen: usize,
}

impl Kinds {
    fn add(&mut self, job: JobRef<'_>, candidate: Candidate, shares: bool) {
        let want = &job.spec.want;
        let is_it = |kind: &Kind| kind.shares == shares && kind.want == *want;
        let kind = self.list.iter().position(is_it).unwrap_or_else(|| {
            let (want, jobs) = (want.clone(), Vec::new());
            self.list.push(Kind { want, shares, jobs, chosen: 0 });
            self.list.len() - 1
        });
        self.order.push((kind, self.list[kind].jobs.len()));
        self.list[kind].jobs.push(candidate);
    }
}

fn classes(group: &[usize], candidates: &[Candidate]) -> SmallVec<[u32; 4]> {
    let mut classes: SmallVec<[u32; 4]> =
        group.iter().map(|place| candidates[*place].class).collect();
    classes.sort_unstable();
    classes
}

/// What is believed about groups of jobs, by their classes, as long as beliefs about speeds stay as they are.
#[derive(Default)]
struct KnownGroups {
    beliefs: Option<u64>,
    classes: Classes,
    /// By class: seconds of all stages of one iteration, if they are known.
    stages: Vec<Option<f64>>,
    groups: FxHashMap<SmallVec<[u32; 4]>, Option<Pace>>,
}

/// How a group goes on.
#[derive(Copy, Clone)]
struct Pace {
    /// Seconds in which each of its jobs does an iteration.
    period: f64,
    /// Seconds of an iteration of each alone, one after another.
    alone: f64,
}

impl KnownGroups {
    fn refresh(&mut self, view: &View<'_>) {
        let beliefs = view.beliefs_version();
        if beliefs.is_none() || beliefs != self.beliefs {
            *self = KnownGroups { beliefs, ..KnownGroups::default() };
        }
    }

    /// Jobs of one class ask for the same and run alike.
    fn class(&mut self, job: JobRef<'_>, view: &View<'_>) -> u32 {
        let class = self.classes.number(job, view, false);
        if class == self.stages.len() {
            let stages = view.stages(job, job.spec.want.gpus);
            let busy = |stages: StageTimes| {
                let load = stages.storage + stages.cpu;
                load.as_secs_f64() + stages.gpu.as_secs_f64() + stages.network.as_secs_f64()
            };
            self.stages.push(stages.map(busy));
        }
        class as u32
    }

    /// Whether jobs of a class may share GPUs: their stages are known.
    fn shares(&self, class: u32) -> bool {
        self.stages[class as usize].is_some()
    }

    fn get(&self, classes: &[u32]) -> Option<Pace> {
        self.groups.get(classes).copied().flatten()
    }
}

/// The efficiency of groups of candidates (Muri, section 4.2).
struct Worth<'a, 'v> {
    known: &'a mut KnownGroups,
    candidates: &'a [Candidate],
    view: &'a View<'v>,
}

impl Worth<'_, '_> {
    /// How a group would go on: as slow as the slowest of its jobs believes to be beside the others.
    fn pace(&self, classes: &[u32]) -> Option<Pace> {
        let view = self.view;
        let of_class = |class: &u32| {
            let candidate = self.candidates.iter().find(|one| one.class == *class)?;
            view.job(candidate.job)
        };
        let jobs: Vec<JobRef<'_>> = classes.iter().map(of_class).collect::<Option<_>>()?;
        let want = &jobs.first()?.spec.want;
        let mut shapes = view.state().shapes.iter();
        let &(kind, per_node) = shapes.find(|(kind, _)| want.accepts(*kind))?;
        let alone = Config::packed(kind, want.gpus, per_node);
        let mut pace = Pace { period: 0.0, alone: 0.0 };
        for job in &jobs {
            pace.alone += 1.0 / view.rate(*job, &alone)?.0;
        }
        if let Some(period) = view.period(&jobs, &alone) {
            return Some(Pace { period, ..pace });
        }
        for (place, job) in jobs.iter().enumerate() {
            let others = jobs.iter().enumerate().filter(|(other, _)| *other != place);
            let beside = alone.clone().with_partners(others.map(|(_, other)| other.spec.model));
            pace.period = pace.period.max(1.0 / view.rate(*job, &beside)?.0);
        }
        (pace.period > 0.0 && pace.period.is_finite()).then_some(pace)
    }
}

impl Efficiency for Worth<'_, '_> {
    fn class(&self, job: usize) -> u32 {
        self.candidates[job].class
    }

    fn busy(&self, job: usize) -> f64 {
        self.known.stages[self.candidates[job].class as usize].unwrap_or(0.0)
    }

    fn period(&mut self, classes: &[u32]) -> Option<f64> {
        let pace = match self.known.groups.get(classes) {
            Some(known) => *known,
            None => {
                let pace = self.pace(classes);
                self.known.groups.insert(classes.into(), pace);
                pace
            }
        };
        pace.map(|pace| pace.period)
    }
}

/// Offers GPUs to the first of a group, or to one that has its GPUs whole already, and the same GPUs to the others.
fn offer_group(group: &[JobId], view: &View<'_>, offer: &mut Offer<'_>) {
    let jobs: Vec<JobRef<'_>> = group.iter().filter_map(|id| view.job(*id)).collect();
    let has_whole = |job: &&JobRef<'_>| {
        let planned = job.state.planned.as_ref();
        planned.is_some_and(|planned| !planned.is_on_leftovers())
    };
    let Some(leader) = jobs.iter().find(has_whole).or(jobs.first()) else { return };
    if offer.grant(&wanted(*leader)) != GrantOutcome::Taken {
        return;
    }
    let Some(place) = offer.plan(leader.id()).map(|plan| plan.placement.clone()) else { return };
    for job in jobs.iter().filter(|job| job.id() != leader.id()) {
        let mut grant = wanted(*job).share(Share::Leftover);
        grant.shape = Shape::Exact(place.clone());
        offer.grant(&grant);
    }
}
