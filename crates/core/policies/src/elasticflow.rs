//! ElasticFlow: deadlines are kept by the least share that meets them, and what is left over makes jobs faster.
//!
//! - `plan`: the minimum satisfactory share of one job, by progressive filling.
//! - `guarantee`: which jobs can be promised a deadline, in order of deadlines, and what each needs for it.
//! - `leftover`: which jobs grow on what is free now.

mod guarantee;
mod leftover;
mod plan;
#[cfg(test)]
mod tests;

use crate::deadlines::contradiction;
use crate::levels::Curve;
use crate::place::buddy::Buddy;
use crate::prelude::*;
use crate::regrant::{Wish, regrant};
use guarantee::Guarantees;
use leftover::Leftover;
use plan::Filling;
use smallvec::SmallVec;
use trainyard_framework::{Admission, Knowledge};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "elasticflow",
    about: "Each job with a deadline is promised the least share that meets it; what is left over makes jobs faster, the cheapest growth first.",
    paper: "Gu et al., ElasticFlow, ASPLOS 2023",
    needs: Needs { work_left: Knowledge::Estimate, rates: true, ..Needs::NOTHING },
    class: Taxonomy {
        elastic: true,
        heterogeneous: true,
        by_setting: "`kinds=false` keeps each job on the first type of GPU that it accepts",
        ..Taxonomy::rigid(Objective::Deadline, Family::Deadline).preemptive()
    },
    settings: &[
        ("slot", "plans change sizes and end at multiples of this span after a decision"),
        (
            "admission",
            "what becomes of a job whose deadline cannot be promised: `best-effort` or `reject`",
        ),
        (
            "leftover",
            "which job grows first: `paper`, where a GPU adds least GPU time, or `artifact`, where it adds most",
        ),
        (
            "filling",
            "where a plan may change its size: `slots`, or `events` as the authors' code does",
        ),
        ("envelope", "whether sizes below the upper concave envelope of the speeds are left out"),
        (
            "resize_cost",
            "whether the time that a change of size costs is weighed against what it gains",
        ),
        ("kinds", "whether a job may go to any type of GPU it accepts; else it stays on the first"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Copy, Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    slot: Span,
    admission: Declined,
    leftover: Leftover,
    filling: Filling,
    envelope: bool,
    resize_cost: bool,
    kinds: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            slot: Span::secs(240),
            admission: Declined::BestEffort,
            leftover: Leftover::Paper,
            filling: Filling::Slots,
            envelope: true,
            resize_cost: false,
            kinds: true,
        }
    }
}

/// What becomes of a job whose deadline cannot be promised.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Declined {
    /// It lives on what is left over, and is promised its deadline if that becomes possible.
    #[default]
    BestEffort,
    /// It is sent away.
    Reject,
}

/// A job as a decision sees it.
struct Active<'a> {
    job: JobRef<'a>,
    /// Its sizes on the types it may run on; none if it cannot run at all.
    curves: SmallVec<[Curve; 2]>,
    /// Work left, at least a little.
    work: f64,
    deadline: Option<Time>,
    /// The type and number of GPUs it is planned on.
    current: Option<(GpuType, u32)>,
    /// What a change of its size costs; nothing if that is not weighed.
    change: Span,
}

/// O(n l s) for n jobs with l sizes and s ends of plans, and as much for each job that is declined or grows.
/// No memory is kept: what each job is promised follows from the jobs there are.
struct ElasticFlow {
    settings: Settings,
}

impl ElasticFlow {
    /// All jobs that may be planned, by id.
    fn active<'a>(&self, view: &View<'a>, kinds: &[(GpuType, u32)]) -> Vec<Active<'a>> {
        let mut jobs: Vec<JobRef<'a>> = view.granted().chain(view.waiting()).collect();
        jobs.sort_unstable_by_key(JobRef::id);
        jobs.retain(|job| job.state.planned.is_none() || view.may_stop(*job));
        jobs.into_iter().map(|job| self.seen(job, view, kinds)).collect()
    }

    fn seen<'a>(&self, job: JobRef<'a>, view: &View<'a>, kinds: &[(GpuType, u32)]) -> Active<'a> {
        let curves = kinds.iter().map(|&(kind, most)| {
            let curve = Curve::of(job, kind, most, view).up_to_peak();
            if self.settings.envelope { curve.concave() } else { curve }
        });
        let known = curves.filter(|curve| !curve.levels().is_empty());
        let curves = if self.settings.kinds { known.collect() } else { known.take(1).collect() };
        let planned = job.state.planned.as_ref();
        let current = planned.and_then(|planned| {
            let (node, _) = planned.placement.masks().first()?;
            Some((view.cluster().node(*node).kind, planned.placement.gpus()))
        });
        let work = view.work_left(job).map(|work| work.0.max(1e-6));
        // A job of unknown length can be promised nothing.
        let deadline = job.spec.deadline().filter(|_| work.is_some());
        let change = if self.settings.resize_cost { change_cost(job, view) } else { Span::ZERO };
        Active { job, curves, work: work.unwrap_or(1.0), deadline, current, change }
    }
}

/// What it costs to stop a job and start it at another size, about.
fn change_cost(job: JobRef<'_>, view: &View<'_>) -> Span {
    let cluster = view.cluster();
    let from = job.state.planned.as_ref().map(|planned| planned.config(cluster));
    let wanted = view.state().shapes.iter().find(|(kind, _)| job.spec.want.accepts(*kind));
    let to = wanted.map(|&(kind, per_node)| {
        trainyard_types::Config::packed(kind, job.spec.want.gpus, per_node)
    });
    let save = from.as_ref().map_or(Span::ZERO, |from| view.change(job, Some(from), None).save);
    save + view.change(job, None, to.as_ref()).start
}

/// Types with GPUs, and how many of them are in service.
fn capacities(free: &Free) -> Vec<(GpuType, u32)> {
    let kinds = free.kinds();
    let known = kinds.iter().map(|kind| (*kind, free.in_service(*kind)));
    known.filter(|(_, gpus)| *gpus > 0).collect()
}

/// The same as the cluster was declared, for admission: a node that is away for a while is no reason to send jobs away.
fn declared(view: &View<'_>) -> Vec<(GpuType, u32)> {
    let shapes = view.state().shapes.iter();
    let gpus = |kind: GpuType| {
        let nodes = view.cluster().nodes.iter().filter(|node| node.kind == kind);
        nodes.map(|node| u32::from(node.gpus)).sum()
    };
    shapes.map(|&(kind, _)| (kind, gpus(kind))).collect()
}

impl Active<'_> {
    /// Why it cannot run on what is in service.
    fn unrunnable(&self, kinds: &[(GpuType, u32)]) -> Option<Reason> {
        if !self.curves.is_empty() {
            return None;
        }
        let want = &self.job.spec.want;
        let accepted = kinds.iter().filter(|(kind, _)| want.accepts(*kind));
        let most = accepted.map(|(_, gpus)| *gpus).max().unwrap_or(0);
        match want.gpus_min > most {
            true => Some(Reason::NoRoom { need: want.gpus_min, free: most }),
            false => Some(Reason::NoSpeed),
        }
    }

    /// By how much it would miss its deadline at its fastest, alone on the cluster.
    fn lateness(&self, now: Time) -> Span {
        let fastest = self.curves.iter().filter_map(Curve::fastest);
        let fastest = fastest.map(|level| level.rate).fold(0.0, f64::max);
        let end = now + Span::from_secs_f64(self.work / fastest.max(1e-12));
        end.since(self.deadline.unwrap_or(Time::NEVER))
    }

    /// The last moment at which it must be over by a plan.
    fn due(&self) -> Option<Time> {
        self.deadline.map(|deadline| Time(deadline.0.saturating_sub(self.change.0)))
    }
}

impl Policy for ElasticFlow {
    fn admit(&mut self, queue: &mut Admission<'_>, view: &View<'_>, _cx: &mut Cx) {
        let kinds = declared(view);
        let mut active: Option<Vec<Active<'_>>> = None;
        while let Some(id) = queue.next() {
            let Some(job) = view.job(id) else { continue };
            // Speeds may become known later, but a wish that contradicts itself is met by nothing.
            if let Some(reason) = contradiction(job, view) {
                queue.reject(reason);
                continue;
            }
            let one = self.seen(job, view, &kinds);
            if self.settings.admission == Declined::BestEffort || one.deadline.is_none() {
                queue.accept();
                continue;
            }
            let active = active.get_or_insert_with(|| self.active(view, &kinds));
            active.push(one);
            let guarantees = Guarantees::new(view, &kinds, self.settings);
            let own = active.len() - 1;
            // It is the newest, so that it is the first whose deadline is given up for another's.
            if guarantees.promised(active).plans[own].is_some() {
                queue.accept();
            } else {
                queue.reject(Reason::DeadlineLost { late: active[own].lateness(view.now) });
                active.pop();
            }
        }
    }

    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let kinds = capacities(offer.free());
        let active = self.active(view, &kinds);
        let guarantees = Guarantees::new(view, &kinds, self.settings).promised(&active);
        let sizes = leftover::spread(&active, guarantees, view.now, self.settings);
        for (one, size) in active.iter().zip(&sizes.sizes) {
            if size.is_none()
                && let Some(reason) = one.unrunnable(&kinds)
            {
                offer.note(one.job.id(), reason);
            }
        }
        let wishes: Vec<Wish> = (active.iter().zip(&sizes.sizes))
            .filter_map(|(one, size)| size.map(|(kind, gpus)| wish(one, kind, gpus)))
            .collect();
        regrant(view, offer, &wishes);
        for (one, size) in active.iter().zip(&sizes.sizes) {
            let late = one.lateness(view.now);
            if offer.plan(one.job.id()).is_none() && one.deadline.is_some() && late > Span::ZERO {
                offer.note(one.job.id(), Reason::DeadlineLost { late });
            } else if size.is_none() && !one.curves.is_empty() {
                let need = one.curves[0].levels()[0].gpus;
                offer.note(one.job.id(), Reason::NoRoom { need, free: offer.free().total() });
            }
        }
        if let Some(time) = sizes.next_change.filter(|time| *time > view.now) {
            offer.wake_at(time);
        }
        Ok(())
    }
}

fn wish(one: &Active<'_>, kind: GpuType, gpus: u32) -> Wish {
    match one.curves.iter().find(|curve| curve.kind == kind) {
        Some(curve) => curve.wish(one.job.id(), gpus),
        None => Wish { job: one.job.id(), kind, gpus, less: Default::default() },
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    if settings.slot < Span::secs(1) {
        return Err(ENTRY.bad_value("slot", settings.slot, "at least a second"));
    }
    Ok(Pipeline::new(ElasticFlow { settings }, Buddy::lenient(), ENTRY.needs))
}
