//! Heet: bundles of GPUs have a price for each job, jobs are matched with bundles, and trade while one gains and none loses.
//!
//! - `speeds`: the paper's tensor of jobs, types and sizes, completed from few profiles.
//! - `market`: its matching and its opportunistic trading; the price is of our own form.
//!
//! Of the paper we know the steps and not the formulas, so that comments name no section of it.

pub mod market;
mod speeds;

use crate::prelude::*;
use crate::sizes::work_left;
use crate::turns::able;
use market::{Bidder, Bundle, Market, Size};
use speeds::{Column, Profiled, Speeds};
use trainyard_types::{Config, Grant, Quality};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "heet",
    about: "Sizes and types by the cheapest matching of jobs with bundles of GPUs, and by trades, at prices that weigh time and efficiency.",
    paper: "Mo et al., Heet, ASPLOS 2024",
    needs: Needs { rates: true, ..Needs::ESTIMATE },
    class: Taxonomy {
        elastic: true,
        heterogeneous: true,
        ..Taxonomy::rigid(Objective::CompletionTime, Family::Elastic).preemptive()
    },
    settings: &[
        ("kappa", "how much dearer a bundle is on which a job scales badly; 0 counts time alone"),
        (
            "profiled",
            "the part of the speeds by model, type and size that was profiled; the rest is completed",
        ),
        (
            "resize_cost",
            "the part of the believed cost of a restart that another bundle must earn; the paper has 0",
        ),
        (
            "jobs_max",
            "the most jobs that are matched and trade in one decision, those that have most to gain; all others keep the bundle that they were admitted with",
        ),
        ("trades_max", "the most trades of one decision"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Clone, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    kappa: f64,
    profiled: f64,
    resize_cost: f64,
    jobs_max: usize,
    trades_max: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { kappa: 1.0, profiled: 1.0, resize_cost: 1.0, jobs_max: 64, trades_max: 32 }
    }
}

/// O(n k s) prices for n jobs, k types and s sizes, O((n + g) log n) to admit them and enlarge their bundles over g
/// GPUs, a cubic matching of at most `jobs_max` jobs, and as many pairs of jobs for each trade.
struct Heet {
    settings: Settings,
}

/// Sizes of a job on one type beyond which only every other one is looked at.
const SIZES_MAX: u32 = 16;

impl Policy for Heet {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let movable = |job: &JobRef<'_>| job.state.planned.is_none() || view.may_stop(*job);
        let all: Vec<JobRef<'_>> = view.granted().chain(view.waiting()).filter(movable).collect();
        let (whole, shares): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|job| job.spec.want.permille >= 1000);
        for job in shares.into_iter().filter(|job| job.state.planned.is_none()) {
            offer.grant(&wanted(job));
        }
        let (jobs, bidders) = self.bidders(whole, view, offer);
        let mut market = Market::new(&bidders, open(&jobs, view, offer), self.settings.kappa);
        // Bundles for the matching are ours: the least that each job needs, enlarged while that pays.
        market.admit();
        market.enlarge();
        let contested = market.contested(self.settings.jobs_max);
        market.rematch(&contested);
        market.trade(&contested, self.settings.trades_max);
        cx.quality = Quality::Feasible;
        settle(&jobs, &market.given, view, offer);
        Ok(())
    }
}

impl Heet {
    /// Jobs that take part, and what each size is worth to them.
    fn bidders<'v>(
        &self,
        whole: Vec<JobRef<'v>>,
        view: &View<'v>,
        offer: &mut Offer<'_>,
    ) -> (Vec<JobRef<'v>>, Vec<Bidder>) {
        let speeds = Speeds::new(&whole, Profiled(self.settings.profiled), view);
        let lefts = work_left(&whole, view);
        let mut both: Vec<(JobRef<'v>, Bidder)> = Vec::new();
        for (job, left) in whole.into_iter().zip(lefts) {
            let bidder = self.bidder(job, left, &speeds, view, offer.free());
            match bidder.least(self.settings.kappa) {
                Some(_) => both.push((job, bidder)),
                None => {
                    let never = bidder.sizes.iter().all(Vec::is_empty);
                    let (need, free) = (job.spec.want.gpus_min, offer.free().total());
                    let fits =
                        view.cluster().nodes.iter().any(|node| offer.free().up(node.id) != 0);
                    let reason = match never && fits {
                        true => Reason::NoSpeed,
                        false => Reason::NoRoom { need, free },
                    };
                    offer.note(job.id(), reason);
                }
            }
        }
        both.sort_by_key(|(job, _)| job.id());
        both.into_iter().unzip()
    }

    fn bidder(
        &self,
        job: JobRef<'_>,
        left: f64,
        speeds: &Speeds,
        view: &View<'_>,
        free: &Free,
    ) -> Bidder {
        let shapes = &view.state().shapes;
        let sizes = shapes.iter().enumerate().map(|(index, &(kind, per_node))| {
            let column = Column { index, kind, per_node };
            let size = |gpus| Some(Size { gpus, rate: speeds.rate(job, column, gpus, view)? });
            counts(job, kind, view, free).into_iter().filter_map(size).collect()
        });
        let planned = job.state.planned.as_ref().map(|plan| plan.config(view.cluster()));
        let now = planned.as_ref().and_then(|config| {
            let kind = config.kind()?;
            let kind = shapes.iter().position(|(other, _)| *other == kind)?;
            Some(Bundle { kind, gpus: config.gpus })
        });
        let cost = match &planned {
            Some(config) => {
                let to = Config::packed(config.kind().unwrap_or(GpuType(0)), config.gpus, 8);
                let cost = view.change(job, Some(config), Some(&to));
                (cost.save + cost.start).as_secs_f64()
            }
            None => 0.0,
        };
        let restart = self.settings.resize_cost * cost;
        Bidder::new(left, sizes.collect(), now, restart)
    }
}

/// Sizes that nodes of a type in service could hold.
fn counts(job: JobRef<'_>, kind: GpuType, view: &View<'_>, free: &Free) -> Vec<u32> {
    let want = &job.spec.want;
    let nodes = (0..free.nodes()).map(NodeId).filter(|node| free.kind(*node) == kind);
    let mut rooms: Vec<u32> = nodes.map(|node| able(want, node, view, free)).collect();
    rooms.sort_unstable_by(|a, b| b.cmp(a));
    let most = if want.nodes_max == 0 { rooms.len() } else { usize::from(want.nodes_max) };
    let most = rooms.iter().take(most).sum::<u32>().min(want.gpus_max);
    let least = want.gpus_min.max(1);
    if least > most {
        return Vec::new();
    }
    let mut counts: Vec<u32> = match most - least < SIZES_MAX {
        true => (least..=most).collect(),
        false => {
            let powers = (0..32).map(|power| 1 << power).filter(|n| (least..=most).contains(n));
            powers.chain([least, most, want.gpus.clamp(least, most)]).collect()
        }
    };
    let now = job.state.planned.as_ref().map(|plan| plan.placement.gpus());
    counts.extend(now.filter(|now| (least..=most).contains(now)));
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// GPUs of each type that are free or held by those that take part.
fn open(jobs: &[JobRef<'_>], view: &View<'_>, offer: &Offer<'_>) -> Vec<u32> {
    let shapes = &view.state().shapes;
    let mut open: Vec<u32> = shapes.iter().map(|(kind, _)| offer.free().gpus(*kind)).collect();
    for plan in jobs.iter().filter_map(|job| job.state.planned.as_ref()) {
        for (node, mask) in plan.placement.masks() {
            let up = offer.free().up(*node);
            let kind = view.cluster().node(*node).kind;
            if let Some(index) = shapes.iter().position(|(other, _)| *other == kind) {
                open[index] += (mask & up).count_ones();
            }
        }
    }
    open
}

/// Offers what the market came to: jobs that change let go first, large bundles are placed first.
fn settle(jobs: &[JobRef<'_>], given: &[Option<Bundle>], view: &View<'_>, offer: &mut Offer<'_>) {
    let shapes = &view.state().shapes;
    let mut changed: Vec<(JobRef<'_>, GpuType, u32)> = Vec::new();
    for (job, given) in jobs.iter().zip(given) {
        let now = job.state.planned.as_ref().map(|plan| plan.config(view.cluster()));
        let now = now.and_then(|config| Some((config.kind()?, config.gpus)));
        let then = given.map(|Bundle { kind, gpus }| (shapes[kind].0, gpus));
        if now == then && now.is_some() {
            continue;
        }
        offer.revoke(job.id());
        match then {
            Some((kind, gpus)) => changed.push((*job, kind, gpus)),
            None if job.state.planned.is_none() => {
                let (need, free) = (job.spec.want.gpus_min, offer.free().total());
                offer.note(job.id(), Reason::NoRoom { need, free });
            }
            None => {}
        }
    }
    changed.sort_by_key(|(job, _, gpus)| (std::cmp::Reverse(*gpus), job.id()));
    for (job, kind, gpus) in changed {
        let least = job.spec.want.gpus_min.max(1);
        let mut count = gpus;
        // What does not fit as it lies is tried at half the size.
        while offer.grant(&Grant::gpus(job.id(), count).of(kind)) != GrantOutcome::Taken
            && count > least
        {
            count = (count / 2).max(least);
        }
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    for (key, value) in [("kappa", settings.kappa), ("resize_cost", settings.resize_cost)] {
        if !(value >= 0.0 && value.is_finite()) {
            return Err(ENTRY.bad_value(key, value, "a number of 0 or more"));
        }
    }
    if !(settings.profiled > 0.0 && settings.profiled <= 1.0) {
        return Err(ENTRY.bad_value("profiled", settings.profiled, "a part above 0 and up to 1"));
    }
    if settings.jobs_max == 0 {
        return Err(ENTRY.bad_value("jobs_max", settings.jobs_max, "at least 1"));
    }
    Ok(Pipeline::new(Heet { settings }, FewestNodes, ENTRY.needs))
}
