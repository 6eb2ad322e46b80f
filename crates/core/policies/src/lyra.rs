//! Lyra: what a job needs comes first, what it can use beyond that lives on loan, and few stop when the loan ends.
//!
//! - `board`: where: bases on our own nodes, what is beyond them on lent ones.
//! - `leftover`: the second phase of the allocation, a multiple-choice knapsack.
//! - `reclaim`: which nodes go back, by the paper's preemption cost of a server or by search.
//!
//! There is no public code; what comments here call the paper's is named by its notion and not by a section.

mod board;
pub mod leftover;
pub mod reclaim;

use crate::prelude::*;
use crate::sizes::{Size, sizes, work_left};
use board::{Board, Has, Where, ask, base_part};
use leftover::{Division, Item, best};
use reclaim::{Choice, Guest, exact, greedy};
use std::collections::{BTreeMap, BTreeSet};
use trainyard_types::{Config, Grant, PoolId, Quality, Shape};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "lyra",
    about: "The least that each job needs, shortest first; what is left makes jobs larger, on nodes that another pool lends.",
    paper: "Li et al., Lyra, EuroSys 2023",
    needs: Needs { rates: true, ..Needs::ESTIMATE },
    class: Taxonomy {
        elastic: true,
        heterogeneous: true,
        partial: "the demand is forecast by its last period, not by a learnt model",
        ..Taxonomy::rigid(Objective::CompletionTime, Family::Elastic).preemptive()
    },
    settings: &[
        (
            "scaling",
            "what a larger job is taken to gain: `measured` speeds, or `linear` as in the paper",
        ),
        (
            "resize_cost",
            "the part of the believed cost of a restart that a change of size must earn; the paper has 0",
        ),
        ("reclaim", "which nodes go back: `exact` by search, or the paper's `greedy` rule"),
        ("steps_max", "the most steps of the search for nodes that go back"),
        (
            "cells_max",
            "the largest table over capacities and jobs; beyond it GPUs are counted in larger units",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Copy, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Scaling {
    Measured,
    Linear,
}

impl Scaling {
    /// The speed at a size of a job whose base runs as known.
    fn rate(self) -> fn(size: Size, base: Size) -> f64 {
        match self {
            Scaling::Measured => |size, _| size.rate,
            // The paper: twice the workers, twice the speed.
            Scaling::Linear => |size, base| base.rate * f64::from(size.gpus) / f64::from(base.gpus),
        }
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reclaim {
    Exact,
    Greedy,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    scaling: Scaling,
    resize_cost: f64,
    reclaim: Reclaim,
    steps_max: u64,
    cells_max: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            scaling: Scaling::Measured,
            resize_cost: 1.0,
            reclaim: Reclaim::Exact,
            steps_max: 20_000,
            cells_max: 4_000_000,
        }
    }
}

/// O(n log n + n N) for n jobs and N nodes to place what is needed, and O(capacity x sizes) to divide what is left.
struct Lyra {
    settings: Settings,
}

/// Which nodes are lent.
pub(crate) struct Pools {
    lent: BTreeSet<PoolId>,
    of: Vec<PoolId>,
}

impl Pools {
    fn new(view: &View<'_>, free: &Free) -> Pools {
        let lent = view.loans().iter().map(|loan| loan.pool).collect();
        Pools { lent, of: (0..free.nodes()).map(|node| free.pool(NodeId(node))).collect() }
    }

    fn is_lent(&self, node: NodeId) -> bool {
        self.lent.contains(&self.of[node.index()])
    }
}

/// The GPUs that a job needs.
struct Base {
    /// The type's place in the list of types.
    column: usize,
    placement: Placement,
}

/// A type of GPU as sizes are counted on it.
#[derive(Copy, Clone)]
struct Column {
    /// Its place in the list of types.
    index: usize,
    kind: GpuType,
    /// GPUs of its nodes.
    per_node: u32,
}

/// A job with whole GPUs, and what it is planned to have.
struct Runner<'v> {
    job: JobRef<'v>,
    /// Work left.
    left: f64,
    /// Sizes on each type, by the type's place in the list of types.
    sizes: Vec<Vec<Size>>,
    /// What it has and may keep of it.
    held: Option<Placement>,
    /// What it needs.
    base: Option<Base>,
    /// GPUs beyond that.
    more: Placement,
}

impl Runner<'_> {
    /// How long the rest takes at its least size, on the type where that is shortest.
    fn shortest(&self) -> f64 {
        let times = self.sizes.iter().filter_map(|sizes| sizes.first());
        times.map(|size| self.left / size.rate).fold(f64::INFINITY, f64::min)
    }

    fn planned(&self) -> Option<Placement> {
        let base = &self.base.as_ref()?.placement;
        let masks = base.masks().iter().chain(self.more.masks()).copied();
        Some(Placement::from_masks(masks))
    }
}

impl Policy for Lyra {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let pools = Pools::new(view, offer.free());
        self.give_back(&pools, view, offer, cx);
        let mut runners = runners(view, offer);
        let mut board = Board::new(offer.free(), &pools);
        keep_bases(&mut runners, &mut board, &pools, view);
        admit_bases(&mut runners, &mut board, view, offer);
        self.grow(&mut runners, &mut board, view, cx);
        plan(&runners, offer);
        Ok(())
    }
}

impl Lyra {
    /// Chooses the nodes that owners need back.
    fn give_back(&self, pools: &Pools, view: &View<'_>, offer: &mut Offer<'_>, cx: &mut Cx) {
        for loan in view.loans().iter().filter(|loan| loan.owed > 0) {
            let stuck: BTreeSet<NodeId> = view
                .granted()
                .filter(|job| !view.may_stop(*job))
                .flat_map(|job| job.state.planned.iter().flat_map(|plan| plan.placement.masks()))
                .map(|(node, _)| *node)
                .collect();
            let nodes: Vec<NodeId> = (0..offer.free().nodes())
                .map(NodeId)
                .filter(|node| pools.of[node.index()] == loan.pool && !stuck.contains(node))
                .filter(|node| offer.free().up(*node) != 0)
                .collect();
            let guests = guests(&nodes, view);
            let count = loan.owed as usize;
            let gone = match self.settings.reclaim {
                Reclaim::Greedy => greedy(nodes.len(), &guests, count),
                Reclaim::Exact => {
                    let Choice { gone, proven } =
                        exact(nodes.len(), &guests, count, self.settings.steps_max);
                    if !proven {
                        cx.quality = Quality::Feasible;
                    }
                    gone
                }
            };
            for (node, _) in nodes.iter().zip(&gone).filter(|(_, gone)| **gone) {
                offer.give_back(*node);
            }
        }
    }

    /// The second phase of Lyra's allocation: divides what is left among the jobs that gain by it, type by type.
    fn grow(
        &self,
        runners: &mut [Runner<'_>],
        board: &mut Board<'_>,
        view: &View<'_>,
        cx: &mut Cx,
    ) {
        for (index, &(kind, per_node)) in view.state().shapes.iter().enumerate() {
            let column = Column { index, kind, per_node };
            let here =
                |one: &Runner<'_>| one.base.as_ref().is_some_and(|base| base.column == index);
            let able: Vec<usize> = (0..runners.len())
                .filter(|one| here(&runners[*one]) && may_change(&runners[*one], view))
                .collect();
            let items = |one: &usize| self.items(&runners[*one], column, view);
            let groups: Vec<Vec<Item>> = able.iter().map(items).collect();
            let Division { chosen, proven } =
                best(&groups, board.left(kind), self.settings.cells_max);
            if !proven {
                cx.quality = Quality::Feasible;
            }
            // A job that keeps what it has takes it first, so that no other job is put there.
            let extra = |one: usize| chosen[one].map_or(0, |item| groups[one][item].gpus);
            let mut order: Vec<usize> = (0..able.len()).filter(|one| extra(*one) > 0).collect();
            order.sort_by_key(|one| {
                let runner = &runners[able[*one]];
                let now = runner.held.as_ref().map_or(0, Placement::gpus);
                let base = runner.base.as_ref().map_or(0, |base| base.placement.gpus());
                (now != base + extra(*one), runner.held.is_none(), runner.job.id())
            });
            for one in order {
                let runner = &mut runners[able[one]];
                let Some(base) = &runner.base else { continue };
                let ask = ask(runner.job, extra(one));
                let has = Has { base: &base.placement, held: runner.held.as_ref() };
                let more = board.more(&ask, kind, has);
                board.take(runner.job.spec, &more);
                runner.more = more;
            }
        }
    }

    /// Ways in which a job may grow, and the time that each saves: T(base) - T(base + k) for k more GPUs.
    fn items(&self, one: &Runner<'_>, column: Column, view: &View<'_>) -> Vec<Item> {
        let Column { index, kind, per_node } = column;
        let Some(base) = &one.base else { return Vec::new() };
        let base = base.placement.gpus();
        let Some(first) = one.sizes[index].iter().find(|size| size.gpus == base) else {
            return Vec::new();
        };
        let rate = self.settings.scaling.rate();
        let before = one.left / first.rate;
        let now = one.held.as_ref().map(Placement::gpus);
        let larger = one.sizes[index].iter().filter(|size| size.gpus > base);
        let items = larger.map(|size| {
            let to = Config::packed(kind, size.gpus, per_node);
            let cost = now.map_or(0.0, |now| {
                let from = Config::packed(kind, now, per_node);
                let cost = view.change(one.job, Some(&from), Some(&to));
                let whole =
                    if cost.in_place { 0.0 } else { (cost.save + cost.start).as_secs_f64() };
                self.settings.resize_cost * whole
            });
            // Staying as it is spares the restart that any other size costs; at its base it would have to pay.
            let change = match now {
                Some(now) if now == size.gpus => cost,
                Some(now) if now == base => -cost,
                _ => 0.0,
            };
            Item { gpus: size.gpus - base, value: before - one.left / rate(*size, *first) + change }
        });
        items.collect()
    }
}

/// Jobs on nodes that may go back.
fn guests(nodes: &[NodeId], view: &View<'_>) -> Vec<Guest> {
    let place: BTreeMap<NodeId, usize> =
        nodes.iter().enumerate().map(|(index, node)| (*node, index)).collect();
    let guest = |job: JobRef<'_>| {
        let placement = &job.state.planned.as_ref()?.placement;
        let on: Vec<(usize, u32)> = (placement.masks().iter())
            .filter_map(|(node, mask)| Some((*place.get(node)?, mask.count_ones())))
            .collect();
        let here: u32 = on.iter().map(|(_, gpus)| gpus).sum();
        (here > 0).then(|| Guest {
            on,
            elsewhere: placement.gpus() - here,
            least: job.spec.want.gpus_min.max(1),
            nodes: placement.nodes(),
        })
    };
    view.granted().filter_map(guest).collect()
}

/// Jobs that hold or want whole GPUs, by id; jobs that want a share of one get it at once.
fn runners<'v>(view: &View<'v>, offer: &mut Offer<'_>) -> Vec<Runner<'v>> {
    let all: Vec<JobRef<'v>> = view.granted().chain(view.waiting()).collect();
    let (whole, shares): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|job| job.spec.want.permille >= 1000);
    for job in shares.into_iter().filter(|job| job.state.planned.is_none()) {
        offer.grant(&wanted(job));
    }
    let lefts = work_left(&whole, view);
    let mut runners = Vec::with_capacity(whole.len());
    for (job, left) in whole.into_iter().zip(lefts) {
        let sizes: Vec<Vec<Size>> = view
            .state()
            .shapes
            .iter()
            .map(|shape| sizes(job, *shape, offer.free().in_service(shape.0), view))
            .collect();
        let held = keeps(job, offer);
        if held.is_none() && sizes.iter().all(Vec::is_empty) {
            let never =
                view.state().shapes.iter().all(|s| self::sizes(job, *s, u32::MAX, view).is_empty());
            let free = offer.free().total();
            let need = job.spec.want.gpus_min;
            offer.note(
                job.id(),
                if never { Reason::NoSpeed } else { Reason::NoRoom { need, free } },
            );
            continue;
        }
        runners.push(Runner { job, left, sizes, held, base: None, more: Placement::default() });
    }
    runners.sort_by_key(|one| one.job.id());
    runners
}

/// What a job has and may keep: all of it, or what stays of it when nodes go back, if that is enough.
fn keeps(job: JobRef<'_>, offer: &Offer<'_>) -> Option<Placement> {
    let placement = &job.state.planned.as_ref()?.placement;
    if offer.plan(job.id()).is_some() {
        return Some(placement.clone());
    }
    let free = offer.free();
    let stays = placement.masks().iter().map(|&(node, mask)| (node, mask & free.mask(node)));
    let rest = Placement::from_masks(stays.collect::<Vec<_>>());
    (rest.gpus() >= job.spec.want.gpus_min.max(1)).then_some(rest)
}

fn may_change(one: &Runner<'_>, view: &View<'_>) -> bool {
    one.job.state.planned.is_none() || view.may_stop(one.job)
}

/// A job that runs keeps what it needs; what it has beyond that is open to all.
fn keep_bases(runners: &mut [Runner<'_>], board: &mut Board<'_>, pools: &Pools, view: &View<'_>) {
    for one in runners.iter_mut() {
        let Some(held) = one.held.clone() else { continue };
        let kind = held.masks().first().map(|(node, _)| view.cluster().node(*node).kind);
        let index = view.state().shapes.iter().position(|(other, _)| Some(*other) == kind);
        let index = index.expect("a node's type is one of the cluster's");
        let least = one.sizes[index].iter().find(|size| size.gpus <= held.gpus());
        let base = match least {
            Some(least) if may_change(one, view) => base_part(&held, least.gpus, pools),
            _ => held.clone(),
        };
        // What stays of a job whose nodes go back is free by now and must be taken again.
        let planned = one.job.state.planned.as_ref().map(|plan| &plan.placement);
        if planned == Some(&held) {
            board.give_up(one.job.spec, &held, &base);
        } else {
            board.take(one.job.spec, &base);
        }
        one.base = Some(Base { column: index, placement: base });
    }
}

/// The first phase of Lyra's allocation: gives what they need to the jobs that wait, shortest first, on our own nodes
/// if possible, else on lent ones.
fn admit_bases(
    runners: &mut [Runner<'_>],
    board: &mut Board<'_>,
    view: &View<'_>,
    offer: &mut Offer<'_>,
) {
    let mut order: Vec<usize> =
        (0..runners.len()).filter(|one| runners[*one].base.is_none()).collect();
    order.sort_by(|a, b| {
        let (a, b) = (&runners[*a], &runners[*b]);
        a.shortest().total_cmp(&b.shortest()).then(a.job.id().cmp(&b.job.id()))
    });
    for one in order {
        let runner = &runners[one];
        let mut kinds: Vec<(usize, Size)> = (runner.sizes.iter().enumerate())
            .filter_map(|(index, sizes)| Some((index, *sizes.first()?)))
            .collect();
        kinds.sort_by(|a, b| b.1.rate.total_cmp(&a.1.rate).then(a.0.cmp(&b.0)));
        let sides = [Where::Own, Where::Lent, Where::Any];
        let tries = sides.iter().flat_map(|side| kinds.iter().map(move |kind| (*side, *kind)));
        let found = tries.into_iter().find_map(|(side, (index, size))| {
            let kind = view.state().shapes[index].0;
            let placement = board.base(&ask(runner.job, size.gpus), kind, side)?;
            Some(Base { column: index, placement })
        });
        match found {
            Some(base) => {
                board.take(runner.job.spec, &base.placement);
                runners[one].base = Some(base);
            }
            None => {
                let (need, free) = (runner.job.spec.want.gpus_min, offer.free().total());
                let reason = match free >= need {
                    true => Reason::Fragmented { need, free },
                    false => Reason::NoRoom { need, free },
                };
                offer.note(runner.job.id(), reason);
            }
        }
    }
}

/// Offers what was planned: jobs that change let go first, so that the order does not matter.
fn plan(runners: &[Runner<'_>], offer: &mut Offer<'_>) {
    let mut changed: Vec<(&Runner<'_>, Placement)> = Vec::new();
    for one in runners {
        let Some(planned) = one.planned() else { continue };
        let same = offer.plan(one.job.id()).is_some_and(|plan| plan.placement == planned);
        if !same {
            changed.push((one, planned));
        }
    }
    for (one, _) in &changed {
        offer.revoke(one.job.id());
    }
    // A job that ran before comes before one that is new, if a tenant's ceiling should not suffice for all.
    changed.sort_by_key(|(one, _)| (one.job.state.planned.is_none(), one.job.id()));
    for (one, placement) in changed {
        let mut grant = Grant::gpus(one.job.id(), placement.gpus());
        grant.shape = Shape::Exact(placement);
        if offer.grant(&grant) == GrantOutcome::Taken {
            continue;
        }
        if let Some(base) = one.base.as_ref().filter(|_| !one.more.is_empty()) {
            grant.shape = Shape::Exact(base.placement.clone());
            offer.grant(&grant);
        }
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    if !(settings.resize_cost >= 0.0 && settings.resize_cost.is_finite()) {
        return Err(ENTRY.bad_value("resize_cost", settings.resize_cost, "a part of 0 or more"));
    }
    for (key, value) in [("steps_max", settings.steps_max), ("cells_max", settings.cells_max)] {
        if value == 0 {
            return Err(ENTRY.bad_value(key, value, "at least 1"));
        }
    }
    Ok(Pipeline::new(Lyra { settings }, FewestNodes, ENTRY.needs))
}
