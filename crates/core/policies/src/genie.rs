//! GENIE: shortest waiting allowance first, on the fewest GPUs that still meet the deadline.

use crate::deadlines::{contradiction, note_lost};
use crate::levels::{Curve, Level};
use crate::prelude::*;
use std::cmp::Reverse;
use trainyard_framework::{Admission, Knowledge};
use trainyard_types::{Config, Grant, Shape, Tier};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "genie",
    about: "The job that can wait the shortest starts first, on the fewest GPUs that still meet its deadline; only jobs without a deadline are stopped.",
    paper: "Chen et al., GENIE, DATE 2019",
    needs: Needs { work_left: Knowledge::Estimate, rates: true, ..Needs::NOTHING },
    class: Taxonomy {
        elastic: true,
        by_setting: "`best_effort=keep` stops no job",
        partial: "the regression that predicts speeds; inference requests",
        ..Taxonomy::rigid(Objective::Deadline, Family::Deadline).preemptive()
    },
    settings: &[
        (
            "allowance",
            "what a job could do without waiting, taken off its deadline: `best`, its fastest size, or `wanted`",
        ),
        ("hopeless", "jobs whose deadline is lost: `last`, or `drop` to send new ones away"),
        (
            "best_effort",
            "running jobs without a deadline: `stop` for one that would miss its own, or `keep`",
        ),
        ("fill", "`strict`: the head blocks the rest; `backfill`: any job that fits may pass it"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Copy, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    allowance: Allowance,
    hopeless: Lost,
    best_effort: BestEffort,
    fill: Fill,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum BestEffort {
    #[default]
    Stop,
    Keep,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Allowance {
    #[default]
    Best,
    Wanted,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Lost {
    #[default]
    Last,
    Drop,
}

/// A job with its sizes.
struct Candidate<'a> {
    job: JobRef<'a>,
    curves: Vec<Curve>,
    work: Option<f64>,
}

/// O(n l k + n log n) for n waiting jobs with l sizes on k types, and one question to the placer for each size tried.
struct Genie {
    settings: Settings,
}

impl Genie {
    fn candidate<'a>(&self, job: JobRef<'a>, view: &View<'a>) -> Candidate<'a> {
        let most = |kind: GpuType| {
            let nodes = view.cluster().nodes.iter().filter(|node| node.kind == kind);
            nodes.map(|node| u32::from(node.gpus)).sum()
        };
        let shapes = view.state().shapes.iter();
        let curves = shapes.map(|&(kind, _)| Curve::of(job, kind, most(kind), view).up_to_peak());
        let curves = curves.filter(|curve| !curve.levels().is_empty()).collect();
        Candidate { job, curves, work: view.work_left(job).map(|work| work.0) }
    }

    /// How much longer a job may wait; negative if its deadline is lost. Nothing without a deadline.
    fn allowance(&self, one: &Candidate<'_>, view: &View<'_>) -> Option<i128> {
        let deadline = one.job.spec.deadline()?;
        let alone = match self.settings.allowance {
            Allowance::Wanted => view.time_left(one.job)?,
            Allowance::Best => {
                let rates = one.curves.iter().filter_map(Curve::fastest).map(|level| level.rate);
                let fastest = rates.fold(0.0, f64::max);
                if fastest <= 0.0 {
                    return None;
                }
                Span::from_secs_f64(one.work? / fastest)
            }
        };
        Some(i128::from(deadline.0) - i128::from(view.now.0) - i128::from(alone.0))
    }

    /// Offers sizes until one is taken, the fewest GPUs first.
    fn start(
        &self,
        one: &Candidate<'_>,
        allowance: i128,
        view: &View<'_>,
        offer: &mut Offer<'_>,
    ) -> bool {
        let mut sizes: Vec<(GpuType, Level)> = (one.curves.iter())
            .flat_map(|curve| curve.levels().iter().map(|level| (curve.kind, *level)))
            .collect();
        let meets = |level: &Level| match (one.job.spec.deadline(), one.work) {
            (Some(deadline), Some(work)) => {
                view.now + Span::from_secs_f64(work / level.rate) <= deadline
            }
            _ => false,
        };
        let in_time: Vec<(GpuType, Level)> =
            sizes.iter().copied().filter(|(_, level)| meets(level)).collect();
        let is_urgent = !in_time.is_empty() && self.settings.best_effort == BestEffort::Stop;
        if in_time.is_empty() {
            // Without a deadline, or with one that is lost: what was asked for, or as near to it as there is room.
            let want = one.job.spec.want.gpus;
            sizes.sort_by_key(|(kind, level)| (level.gpus > want, Reverse(level.gpus), *kind));
        } else {
            sizes = in_time;
            // Of equally many, the faster type.
            sizes.sort_by(|(a, first), (b, second)| {
                let by_speed = second.rate.total_cmp(&first.rate);
                first.gpus.cmp(&second.gpus).then(by_speed).then(a.cmp(b))
            });
        }
        let grant = |(kind, level): (GpuType, Level)| {
            let nodes_max = self.nodes_max(one, (kind, level), view);
            let shape = Shape::Gpus { count: level.gpus, kind: Some(kind), nodes_max };
            let pool = one.job.spec.want.pool;
            let grant = Grant { shape, pool, ..Grant::gpus(one.job.id(), level.gpus) };
            share(grant, one.job)
        };
        let free = sizes.iter().any(|size| offer.grant(&grant(*size)) == GrantOutcome::Taken);
        if free || !is_urgent || can_wait(one, allowance, view, offer) {
            return free;
        }
        sizes.iter().any(|size| self.displace(&grant(*size), view, offer))
    }

    /// Grants at the expense of jobs without a deadline, the newest first.
    fn displace(&self, grant: &Grant, view: &View<'_>, offer: &mut Offer<'_>) -> bool {
        let mut victims: Vec<JobRef<'_>> =
            view.granted().filter(|job| job.spec.deadline().is_none()).collect();
        victims.sort_by_key(|job| Reverse((job.spec.submitted, job.id())));
        let mut victims = victims.into_iter().map(|job| job.id());
        offer.instead(grant, &mut victims) == GrantOutcome::Taken
    }

    /// The most nodes over which a size may be spread so that the deadline is still met; 0 if any number may be.
    fn nodes_max(
        &self,
        one: &Candidate<'_>,
        (kind, level): (GpuType, Level),
        view: &View<'_>,
    ) -> u16 {
        let (Some(deadline), Some(work)) = (one.job.spec.deadline(), one.work) else {
            return one.job.spec.want.nodes_max;
        };
        let per_node = view.state().shapes.iter().find(|(other, _)| *other == kind);
        let fewest = level.gpus.div_ceil(per_node.map_or(1, |(_, gpus)| *gpus).max(1));
        let in_time = |nodes: u32| {
            let config = spread(kind, level.gpus, nodes);
            let rate = view.rate(one.job, &config).map_or(0.0, |rate| rate.0);
            rate > 0.0 && view.now + Span::from_secs_f64(work / rate) <= deadline
        };
        if in_time(level.gpus) {
            return one.job.spec.want.nodes_max;
        }
        let most = (fewest..level.gpus).take_while(|nodes| in_time(*nodes)).last();
        most.unwrap_or(fewest).min(u32::from(u16::MAX)) as u16
    }
}

/// Whether enough GPUs for the least size of a job are expected to come free within its allowance: by the ends of jobs
/// that run, as they are estimated. Then no job is stopped for it yet, and it is looked at again when the time is up.
fn can_wait(one: &Candidate<'_>, allowance: i128, view: &View<'_>, offer: &mut Offer<'_>) -> bool {
    let allowance = Span(allowance.clamp(0, i128::from(u64::MAX / 4)) as u64);
    let ends = view.granted().filter(|job| {
        let soon = view.time_to_end(*job).is_some_and(|left| left < allowance);
        soon && offer.plan(job.id()).is_some()
    });
    let freed: u32 = ends.map(|job| job.state.gpus()).sum();
    let waits =
        allowance > Span::ZERO && one.job.spec.want.gpus_min <= freed + offer.free().total();
    if waits {
        offer.wake_at(view.now + allowance);
    }
    waits
}

/// So many GPUs, as evenly as may be, on so many nodes of one rack.
fn spread(kind: GpuType, gpus: u32, nodes: u32) -> Config {
    let mut config = Config::packed(kind, gpus, gpus.div_ceil(nodes.max(1)));
    config.nodes = nodes;
    if nodes > 1 {
        config.tier = Tier::Rack;
    }
    config
}

fn share(grant: Grant, job: JobRef<'_>) -> Grant {
    match job.spec.want.permille {
        1000 => grant,
        part => grant.share(trainyard_types::Share::Permille(part)),
    }
}

impl Policy for Genie {
    fn admit(&mut self, queue: &mut Admission<'_>, view: &View<'_>, _cx: &mut Cx) {
        while let Some(id) = queue.next() {
            let Some(job) = view.job(id) else { continue };
            let lost = self.allowance(&self.candidate(job, view), view).filter(|left| *left < 0);
            match (contradiction(job, view), lost, self.settings.hopeless) {
                (Some(reason), _, _) => queue.reject(reason),
                (None, Some(left), Lost::Drop) => {
                    let late = Span(left.unsigned_abs().min(u128::from(u64::MAX)) as u64);
                    queue.reject(Reason::DeadlineLost { late });
                }
                _ => queue.accept(),
            }
        }
    }

    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let may_displace = self.settings.best_effort == BestEffort::Stop
            && view.granted().any(|job| job.spec.deadline().is_none());
        if offer.free().total() == 0 && !may_displace {
            note_lost(view, offer);
            return Ok(());
        }
        let mut order: Vec<((u8, i128, Time, JobId), Candidate<'_>)> = Vec::new();
        for job in view.waiting() {
            let one = self.candidate(job, view);
            let (tier, left) = match self.allowance(&one, view) {
                Some(left) if left >= 0 => (0, left),
                None => (1, 0),
                Some(left) => (2, left),
            };
            order.push(((tier, left, job.spec.submitted, job.id()), one));
        }
        order.sort_unstable_by_key(|(key, _)| *key);
        for ((_, allowance, _, _), one) in &order {
            if one.curves.is_empty() {
                offer.note(one.job.id(), Reason::NoSpeed);
                continue;
            }
            let started = self.start(one, *allowance, view, offer);
            if !started && self.settings.fill == Fill::Strict {
                break;
            }
        }
        note_lost(view, offer);
        Ok(())
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings = raw.read(ENTRY.name)?;
    Ok(Pipeline::new(Genie { settings }, FewestNodes, ENTRY.needs))
}
