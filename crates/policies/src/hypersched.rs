//! HyperSched: the trials of a search under one deadline, from many small ones to a few large ones.

pub mod rungs;
pub mod share;

use crate::prelude::*;
use crate::sizes::{Size, sizes};
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
        ..Taxonomy::rigid(Objective::Deadline, Family::Deadline).preemptive()
    },
    settings: &[
        (
            "reallocate",
            "who gets what is left: `uniform`, `top-job`, `softmax`, or `none` for rungs alone",
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
    kind: GpuType,
    sizes: Vec<Size>,
    results: Results,
    goes: bool,
}

impl Trial<'_> {
    fn least(&self) -> u32 {
        self.sizes[0].gpus
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
        let fits = self.sizes.iter().map(|size| size.gpus).filter(|gpus| *gpus <= most);
        fits.max().unwrap_or(self.least())
    }

    fn speed(&self, gpus: u32, scaling: Scaling) -> f64 {
        scaling.factor(gpus).unwrap_or_else(|| {
            let size = self.sizes.iter().find(|size| size.gpus == gpus);
            size.map_or(0.0, |size| size.rate)
        })
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
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let mut searches: BTreeMap<GroupId, Vec<JobRef<'_>>> = BTreeMap::new();
        let mut plain: Vec<JobRef<'_>> = Vec::new();
        for job in view.granted().chain(view.waiting()) {
            match job.spec.group {
                Some(group) => searches.entry(group).or_default().push(job),
                None if job.state.planned.is_none() => plain.push(job),
                None => {}
            }
        }
        plain.sort_by_key(|job| (job.spec.submitted, job.id()));
        for job in plain {
            offer.grant(&wanted(job));
        }
        for jobs in searches.into_values() {
            self.search(jobs, view, offer);
        }
        Ok(())
    }
}

impl HyperSched {
    fn search(&self, jobs: Vec<JobRef<'_>>, view: &View<'_>, offer: &mut Offer<'_>) {
        let deadline = jobs.iter().filter_map(|job| job.spec.deadline()).max();
        if deadline.is_some_and(|deadline| deadline <= view.now) {
            for job in jobs {
                offer.end(job.id());
            }
            return;
        }
        let mut trials = self.trials(jobs, view, offer);
        let time_left = deadline.map(|deadline| deadline.since(view.now).as_secs_f64());
        let startup = startup(&trials, view);
        let exploring =
            time_left.is_none_or(|left| left >= fair(&trials, startup, (self.settings.eta, view)));
        trials.retain(|trial| {
            let stays = trial.goes && (exploring || trial.now().is_some());
            // Who lags is paused while others may still turn out worse, and ends with the exploration.
            if !stays && !exploring {
                offer.end(trial.job.id());
            } else if !stays {
                offer.revoke(trial.job.id());
            }
            stays
        });
        let ids: Vec<JobId> = trials.iter().map(|trial| trial.job.id()).collect();
        self.share(trials, (time_left, startup), view, offer);
        // Who waits for ever is no reason to look again, but a deadline comes.
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
            let shapes =
                view.state().shapes.iter().filter(|(kind, _)| on.is_none_or(|on| on == *kind));
            let found = shapes
                .map(|shape| (shape.0, sizes(job, *shape, offer.free().in_service(shape.0), view)))
                .filter(|(_, sizes)| !sizes.is_empty());
            let best = found.max_by(|a, b| a.1[0].rate.total_cmp(&b.1[0].rate).then(b.0.cmp(&a.0)));
            let Some((kind, sizes)) = best else {
                offer.note(job.id(), Reason::NoSpeed);
                continue;
            };
            let losses = job.state.measured.as_deref().map_or(&[][..], |measured| &measured.losses);
            let results = losses.iter().map(|(number, loss)| (*number, 1.0 - loss)).collect();
            trials.push(Trial { job, kind, sizes, results, goes: true });
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

    /// Everyone its least, best first; what is left as the setting says, where it pays.
    fn share(
        &self,
        trials: Vec<Trial<'_>>,
        (time_left, startup): (Option<f64>, f64),
        view: &View<'_>,
        offer: &mut Offer<'_>,
    ) {
        // Who runs keeps its least before anyone new is let in.
        let (mut live, waiting): (Vec<_>, Vec<_>) =
            trials.into_iter().partition(|trial| trial.now().is_some());
        let held: u32 = live.iter().filter_map(Trial::now).sum();
        let mut left = offer.free().total() + held;
        left = left.saturating_sub(live.iter().map(Trial::least).sum());
        for trial in waiting {
            if trial.least() <= left {
                left -= trial.least();
                live.push(trial);
            } else {
                let (need, free) = (trial.least(), offer.free().total());
                offer.note(trial.job.id(), Reason::NoRoom { need, free });
            }
        }
        let wishes: Vec<(f64, u32, u32)> = (live.iter())
            .map(|trial| {
                let most = trial.sizes.last().map_or(0, |size| size.gpus);
                (trial.accuracy().max(-1e3), trial.least(), most)
            })
            .collect();
        let given = divide(self.settings.reallocate, &wishes, left, self.settings.temperature);
        let mut grants: Vec<(&Trial<'_>, u32)> = Vec::new();
        for (trial, given) in live.iter().zip(given) {
            let given = trial.fit(given);
            match trial.now() {
                Some(now) if now == given => {}
                // Who shrinks makes room for others; who grows must gain by it.
                Some(now)
                    if given > now && !self.grows(trial, given, (time_left, startup), view) => {}
                Some(_) if !view.may_stop(trial.job) => {}
                Some(_) | None => grants.push((trial, given)),
            }
        }
        for (trial, _) in &grants {
            offer.revoke(trial.job.id());
        }
        for (trial, given) in grants {
            let smaller =
                trial.sizes.iter().rev().map(|size| size.gpus).filter(|gpus| *gpus <= given);
            for gpus in smaller {
                let grant = Grant::gpus(trial.job.id(), gpus).of(trial.kind);
                if offer.grant(&grant) == Answer::Taken {
                    break;
                }
            }
        }
    }

    /// Whether a larger share pays by the deadline, and enough results came since the last start.
    fn grows(
        &self,
        trial: &Trial<'_>,
        given: u32,
        (time_left, startup): (Option<f64>, f64),
        view: &View<'_>,
    ) -> bool {
        let scaling = self.settings.scaling;
        let speeds = (trial.speed(trial.now().unwrap_or(0), scaling), trial.speed(given, scaling));
        let pays = match time_left {
            Some(left) => pays(speeds, left, startup, self.settings.margin),
            None => speeds.1 > self.settings.margin * speeds.0,
        };
        pays && since_start(trial, view) > f64::from(self.settings.results)
    }
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
        let config = Config::packed(trial.kind, trial.least(), trial.least());
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
        Some(total / trial.sizes[0].rate)
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
