//! HyperSched: the trials of a search under one deadline, from many small ones to a few large ones.

pub mod rungs;
pub mod share;

use crate::prelude::*;
use crate::sizes::{Size, sizes};
use rand_chacha::rand_core::Rng;
use rungs::{Results, go_on};
use share::{Reallocate, Scaling, divide, pays, percentile};
use std::collections::BTreeMap;
use trainyard_types::{Config, Grant, GroupId};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "hypersched",
    about: "Trials of a search under a deadline: rungs pause those that lag, and what they leave makes the best ones larger.",
    paper: "Liaw et al., HyperSched, SoCC 2019",
    needs: Needs { rates: true, ..Needs::ESTIMATE },
    class: Taxonomy {
        elastic: true,
        heterogeneous: true,
        ..Taxonomy::rigid(Objective::Deadline, Family::Deadline).preemptive()
    },
    settings: &[
        (
            "reallocate",
            "how the rest is divided: `uniform`, `top-job`, `softmax`, `random`, or `none` for rungs alone",
        ),
        ("scaling", "how speed is taken to grow with GPUs: `measured`, `linear`, `sqrt` or `half`"),
        ("eta", "the factor between two rungs; one in so many goes on"),
        ("margin", "how much more must be done by the deadline for a change of size to pay"),
        ("results", "a size is changed only after more results than this since the last start"),
        ("temperature", "how accuracy counts in `softmax`"),
        ("every", "how often results are looked at"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Clone, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    reallocate: Reallocate,
    scaling: Scaling,
    eta: u32,
    margin: f64,
    results: u32,
    temperature: f64,
    every: Span,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            reallocate: Reallocate::Uniform,
            scaling: Scaling::Measured,
            eta: 4,
            margin: 1.1,
            results: 5,
            temperature: 0.1,
            every: Span::secs(60),
        }
    }
}

/// O(n log n) for n trials of a search and r results of each, at each look.
struct HyperSched {
    settings: Settings,
}

/// A trial that is not over.
struct Trial<'v> {
    job: JobRef<'v>,
    /// The types it can run on with its sizes there: the one it is on, then the others, fastest first.
    types: Vec<(GpuType, Vec<Size>)>,
    /// Which of them it is on or shall be on.
    at: usize,
    results: Results,
    goes: bool,
}

impl Trial<'_> {
    fn kind(&self) -> GpuType {
        self.types[self.at].0
    }

    fn sizes(&self) -> &[Size] {
        &self.types[self.at].1
    }

    fn least(&self) -> u32 {
        self.sizes()[0].gpus
    }

    fn now(&self) -> Option<u32> {
        self.job.state.planned.as_ref().map(|plan| plan.placement.gpus())
    }

    /// Its newest accuracy; one without results comes after all others.
    fn accuracy(&self) -> f64 {
        self.results.last().map_or(f64::NEG_INFINITY, |(_, accuracy)| *accuracy)
    }

    /// Its largest size of at most so many GPUs.
    fn fit(&self, most: u32) -> u32 {
        largest(self.sizes(), most).unwrap_or(self.least())
    }

    fn speed(&self, gpus: u32, scaling: Scaling) -> f64 {
        speed(self.sizes(), gpus, scaling)
    }
}

/// The largest of some sizes of at most so many GPUs.
fn largest(sizes: &[Size], most: u32) -> Option<u32> {
    sizes.iter().map(|size| size.gpus).filter(|gpus| *gpus <= most).max()
}

/// The speed on so many GPUs of a type: as measured, or on the least and then as it is taken to grow.
fn speed(sizes: &[Size], gpus: u32, scaling: Scaling) -> f64 {
    let least = sizes[0];
    match (scaling.factor(gpus), scaling.factor(least.gpus)) {
        (Some(factor), Some(first)) => least.rate * factor / first,
        _ => sizes.iter().find(|size| size.gpus == gpus).map_or(0.0, |size| size.rate),
    }
}

impl Policy for HyperSched {
    /// A trial whose deadline has passed is refused.
    fn admit(
        &mut self,
        queue: &mut trainyard_framework::Admission<'_>,
        view: &View<'_>,
        _cx: &mut Cx,
    ) {
        while let Some(id) = queue.next() {
            let job = view.job(id).map(|job| job.spec);
            let late = job.filter(|job| job.group.is_some()).and_then(|job| job.deadline());
            match late.filter(|deadline| *deadline <= view.now) {
                Some(deadline) => {
                    queue.reject(Reason::DeadlineLost { late: view.now.since(deadline) });
                }
                None => queue.accept(),
            }
        }
    }

    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let mut groups: BTreeMap<GroupId, Vec<JobRef<'_>>> = BTreeMap::new();
        let mut plain: Vec<JobRef<'_>> = Vec::new();
        for job in view.granted().chain(view.waiting()) {
            match job.spec.group {
                Some(group) => groups.entry(group).or_default().push(job),
                None => plain.push(job),
            }
        }
        let searches: Vec<Search<'_>> =
            groups.into_values().filter_map(|jobs| self.search(jobs, view, offer)).collect();
        beside(plain, &searches, offer);
        let mut rng = cx.rng();
        for search in searches {
            self.serve(search, view, (offer, &mut || rng.next_u64()));
        }
        Ok(())
    }
}

/// The jobs of one search that go on.
struct Search<'v> {
    trials: Vec<Trial<'v>>,
    deadline: Option<Time>,
    /// Seconds left, and what a start takes.
    times: (Option<f64>, f64),
}

/// Jobs that belong to no search. Those with a deadline come first, by deadline; the others are best effort: they begin
/// only on what trials that wait do not need at least, and stop for those, the newest first.
fn beside(mut jobs: Vec<JobRef<'_>>, searches: &[Search<'_>], offer: &mut Offer<'_>) {
    let waits = |trial: &&Trial<'_>| trial.now().is_none();
    let waiting = searches.iter().flat_map(|search| search.trials.iter().filter(waits));
    let mut need: u32 = waiting.map(Trial::least).sum();
    let due = |job: &JobRef<'_>| job.spec.deadline().unwrap_or(Time::NEVER);
    jobs.sort_by_key(|job| (due(job), job.spec.submitted, job.id()));
    let (running, waiting): (Vec<_>, Vec<_>) =
        jobs.into_iter().partition(|job| job.state.planned.is_some());
    let urgent = waiting.iter().filter(|job| job.spec.deadline().is_some());
    need += urgent.map(|job| job.spec.want.gpus).sum::<u32>();
    for job in running.iter().rev().filter(|job| job.spec.deadline().is_none()) {
        if offer.free().total() >= need {
            break;
        }
        offer.revoke(job.id());
    }
    for job in waiting {
        let gpus = job.spec.want.gpus;
        let urgent = job.spec.deadline().is_some();
        if urgent {
            need -= gpus;
        }
        if urgent || offer.free().total() >= need + gpus {
            offer.grant(&wanted(job));
        } else {
            offer.note(job.id(), Reason::NoRoom { need: gpus, free: offer.free().total() });
        }
    }
}

impl HyperSched {
    /// What is left of a search; nothing if its deadline has come.
    fn search<'v>(
        &self,
        jobs: Vec<JobRef<'v>>,
        view: &View<'v>,
        offer: &mut Offer<'_>,
    ) -> Option<Search<'v>> {
        let deadline = jobs.iter().filter_map(|job| job.spec.deadline()).max();
        if deadline.is_some_and(|deadline| deadline <= view.now) {
            for job in jobs {
                offer.end(job.id());
            }
            return None;
        }
        let mut trials = self.trials(jobs, view, offer);
        let time_left = deadline.map(|deadline| deadline.since(view.now).as_secs_f64());
        let startup = startup(&trials, view);
        let exploring =
            time_left.is_none_or(|left| left >= fair(&trials, startup, (self.settings.eta, view)));
        trials.retain(|trial| {
            let stays = trial.goes && (exploring || trial.now().is_some());
            // A trial that lags is paused while others may still turn out worse, and ends with the exploration.
            if !stays && !exploring {
                offer.end(trial.job.id());
            } else if !stays {
                offer.revoke(trial.job.id());
            }
            stays
        });
        Some(Search { trials, deadline, times: (time_left, startup) })
    }

    /// Gives the trials of a search their GPUs, and says when to look again.
    fn serve(
        &self,
        search: Search<'_>,
        view: &View<'_>,
        (offer, draw): (&mut Offer<'_>, &mut dyn FnMut() -> u64),
    ) {
        let Search { trials, deadline, times } = search;
        let ids: Vec<JobId> = trials.iter().map(|trial| trial.job.id()).collect();
        self.share(trials, times, view, (offer, draw));
        // A trial that waits for ever is no reason to look again, but a deadline comes.
        let runs = ids.iter().any(|job| offer.plan(*job).is_some());
        let look = runs.then(|| view.now + self.settings.every);
        if let Some(time) = look.into_iter().chain(deadline).min() {
            offer.wake_at(time);
        }
    }

    /// Trials with what they have shown so far. One that runs nowhere is told so.
    fn trials<'v>(
        &self,
        jobs: Vec<JobRef<'v>>,
        view: &View<'v>,
        offer: &mut Offer<'_>,
    ) -> Vec<Trial<'v>> {
        let mut trials = Vec::new();
        for job in jobs {
            let on = job.state.planned.as_ref().and_then(|plan| plan.config(view.cluster()).kind());
            let mut types: Vec<(GpuType, Vec<Size>)> = (view.state().shapes.iter())
                .map(|shape| (shape.0, sizes(job, *shape, offer.free().in_service(shape.0), view)))
                .filter(|(_, sizes)| !sizes.is_empty())
                .collect();
            types.sort_by(|a, b| {
                let moves = (on != Some(a.0)).cmp(&(on != Some(b.0)));
                moves.then(b.1[0].rate.total_cmp(&a.1[0].rate)).then(a.0.cmp(&b.0))
            });
            if types.is_empty() {
                offer.note(job.id(), Reason::NoSpeed);
                continue;
            }
            let losses = job.state.measured.as_deref().map_or(&[][..], |measured| &measured.losses);
            let results = losses.iter().map(|(number, loss)| (*number, 1.0 - loss)).collect();
            trials.push(Trial { job, types, at: 0, results, goes: true });
        }
        let results: Vec<Results> = trials.iter().map(|trial| trial.results.clone()).collect();
        for (trial, goes) in trials.iter_mut().zip(go_on(&results, self.settings.eta)) {
            trial.goes = goes;
        }
        trials.sort_by(|a, b| {
            b.accuracy().total_cmp(&a.accuracy()).then(a.job.id().cmp(&b.job.id()))
        });
        trials
    }

    /// Gives each trial its least, best first; what is left as the setting says, where it pays.
    fn share(
        &self,
        trials: Vec<Trial<'_>>,
        times: (Option<f64>, f64),
        view: &View<'_>,
        (offer, draw): (&mut Offer<'_>, &mut dyn FnMut() -> u64),
    ) {
        let mut left: BTreeMap<GpuType, u32> = BTreeMap::new();
        for (kind, _) in &view.state().shapes {
            left.insert(*kind, offer.free().gpus(*kind));
        }
        let mut live = enter(trials, &mut left, offer);
        self.change_types(&mut live, &mut left, times, view);
        let mut given: Vec<u32> = vec![0; live.len()];
        for (kind, left) in &left {
            let here: Vec<usize> = (0..live.len()).filter(|at| live[*at].kind() == *kind).collect();
            let wishes: Vec<(f64, u32, u32)> = (here.iter().map(|at| &live[*at]))
                .map(|trial| {
                    let most = trial.sizes().last().map_or(0, |size| size.gpus);
                    (trial.accuracy().max(-1e3), trial.least(), most)
                })
                .collect();
            let mut one = || draw();
            let how = (self.settings.temperature, &mut one as &mut dyn FnMut() -> u64);
            let parts = divide(self.settings.reallocate, &wishes, *left, how);
            here.iter().zip(parts).for_each(|(at, part)| given[*at] = part);
        }
        let mut grants: Vec<(&Trial<'_>, u32)> = Vec::new();
        for (trial, given) in live.iter().zip(given) {
            let given = trial.fit(given);
            match trial.now() {
                Some(_) if !view.may_stop(trial.job) => {}
                Some(_) if trial.at != 0 => grants.push((trial, given)),
                Some(now) if now == given => {}
                // A trial that shrinks makes room for others; one that grows must gain by it.
                Some(now) if given > now && !self.grows(trial, given, times, view) => {}
                Some(_) | None => grants.push((trial, given)),
            }
        }
        for (trial, _) in &grants {
            offer.revoke(trial.job.id());
        }
        for (trial, given) in grants {
            let smaller =
                trial.sizes().iter().rev().map(|size| size.gpus).filter(|gpus| *gpus <= given);
            for gpus in smaller {
                let grant = Grant::gpus(trial.job.id(), gpus).of(trial.kind());
                if offer.grant(&grant) == GrantOutcome::Taken {
                    break;
                }
            }
        }
    }

    /// Lets trials that run go to another type of GPU, best first, where all that is left there would bring more by the
    /// deadline than all that is left where they are.
    fn change_types(
        &self,
        live: &mut [Trial<'_>],
        left: &mut BTreeMap<GpuType, u32>,
        times: (Option<f64>, f64),
        view: &View<'_>,
    ) {
        if self.settings.reallocate == Reallocate::None {
            return;
        }
        for trial in live.iter_mut().filter(|trial| trial.now().is_some()) {
            let room = |kind: &GpuType| left.get(kind).copied().unwrap_or(0);
            let stays =
                trial.speed(trial.fit(trial.least() + room(&trial.kind())), self.settings.scaling);
            let others = (1..trial.types.len()).filter_map(|at| {
                let (kind, sizes) = &trial.types[at];
                Some((at, speed(sizes, largest(sizes, room(kind))?, self.settings.scaling)))
            });
            let Some((at, goes)) = others.max_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
            // A trial on a slow type may never show enough results to grow, so one suffices.
            let shown = since_start(trial, view) >= 1.0;
            if view.may_stop(trial.job) && shown && self.pays((stays, goes), times) {
                *left.entry(trial.kind()).or_default() += trial.least();
                trial.at = at;
                *left.entry(trial.kind()).or_default() -= trial.least();
            }
        }
    }

    /// Whether a larger share pays by the deadline, and enough results came since the last start.
    fn grows(
        &self,
        trial: &Trial<'_>,
        given: u32,
        times: (Option<f64>, f64),
        view: &View<'_>,
    ) -> bool {
        let scaling = self.settings.scaling;
        let speeds = (trial.speed(trial.now().unwrap_or(0), scaling), trial.speed(given, scaling));
        let shown = since_start(trial, view) > f64::from(self.settings.results);
        shown && self.pays(speeds, times)
    }

    /// Whether a change from one speed to another pays by the deadline.
    fn pays(&self, speeds: (f64, f64), (time_left, startup): (Option<f64>, f64)) -> bool {
        match time_left {
            Some(left) => pays(speeds, left, startup, self.settings.margin),
            None => speeds.1 > self.settings.margin * speeds.0,
        }
    }
}

/// The trials that run keep their least, and others begin where they are fastest of what has room; what is left of each
/// type is what remains then.
fn enter<'v>(
    trials: Vec<Trial<'v>>,
    left: &mut BTreeMap<GpuType, u32>,
    offer: &mut Offer<'_>,
) -> Vec<Trial<'v>> {
    // A trial that runs keeps its least before a new one is admitted.
    let (mut live, waiting): (Vec<_>, Vec<_>) =
        trials.into_iter().partition(|trial| trial.now().is_some());
    for trial in &live {
        let here = left.entry(trial.kind()).or_default();
        *here = (*here + trial.now().unwrap_or(0)).saturating_sub(trial.least());
    }
    for mut trial in waiting {
        let room = |(kind, sizes): &(GpuType, Vec<Size>)| left.get(kind) >= Some(&sizes[0].gpus);
        match trial.types.iter().position(room) {
            Some(at) => {
                trial.at = at;
                *left.entry(trial.kind()).or_default() -= trial.least();
                live.push(trial);
            }
            None => {
                let (need, free) = (trial.least(), offer.free().total());
                offer.note(trial.job.id(), Reason::NoRoom { need, free });
            }
        }
    }
    live
}

/// Results since the last start, by the time that its results take.
fn since_start(trial: &Trial<'_>, view: &View<'_>) -> f64 {
    let number = trial.results.last().map_or(0, |(number, _)| *number);
    let done = trial.job.state.progress.done_at(view.now).0;
    let each = done / f64::from(number.max(1));
    let start = trial.job.state.last_start.unwrap_or(view.now);
    let rate = trial.job.state.progress.rate.0;
    if each > 0.0 { view.now.since(start).as_secs_f64() * rate / each } else { 0.0 }
}

/// The 90th percentile of what it takes to start a trial.
fn startup(trials: &[Trial<'_>], view: &View<'_>) -> f64 {
    let one = |trial: &Trial<'_>| {
        let config = Config::packed(trial.kind(), trial.least(), trial.least());
        view.change(trial.job, None, Some(&config)).start.as_secs_f64()
    };
    percentile(trials.iter().map(one).collect(), 0.9).unwrap_or(0.0)
}

/// With less time than this no trial is begun or resumed: what the longest one had, times eta, or a whole trial on its
/// least size if that is shorter.
fn fair(trials: &[Trial<'_>], startup: f64, (eta, view): (u32, &View<'_>)) -> f64 {
    let ran = trials.iter().map(|trial| trial.job.state.ran(view.now).as_secs_f64());
    let longest = (ran.fold(0.0, f64::max) - startup).max(0.0) * f64::from(eta);
    let whole = trials.iter().filter_map(|trial| {
        let total = view.work_left(trial.job)?.0 + trial.job.state.progress.done_at(view.now).0;
        Some(total / trial.sizes()[0].rate)
    });
    let whole = percentile(whole.collect(), 0.5).unwrap_or(f64::INFINITY);
    longest.min(whole)
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    if settings.eta < 2 {
        return Err(ENTRY.bad_value("eta", settings.eta, "at least 2"));
    }
    for (key, value) in [("margin", settings.margin), ("temperature", settings.temperature)] {
        if !(value > 0.0 && value.is_finite()) {
            return Err(ENTRY.bad_value(key, value, "a number above 0"));
        }
    }
    if settings.every == Span::ZERO {
        return Err(ENTRY.bad_value("every", settings.every, "a length of time above 0"));
    }
    Ok(Pipeline::new(HyperSched { settings }, FewestNodes, ENTRY.needs))
}
