//! Sia: every round, each job gets one configuration, so many GPUs of one type, by a program over all of them.
//!
//! - `configurations`: which numbers of GPUs of a type a job may have.
//! - `models`: how fast a job is where it has not run yet, from what was seen of it and from trials on one GPU.
//! - `row`: the goodput of each configuration, with the batch that gives it.
//! - `program`: values of configurations by fairness and restarts, and the choice among them.
//! - `placing`: which GPUs, with as few moves as possible.
//! - `scope`: what a round takes away first, and when no further round is needed.

mod configurations;
mod models;
mod placing;
mod program;
mod row;
mod scope;
#[cfg(test)]
mod tests;

use crate::prelude::*;
use configurations::{ClusterShape, ConfigurationKind};
use models::Models;
use placing::{FreeMap, Need};
use program::{Candidate, Weights};
use row::{Candidates, Eligibility, Source, Yield};
use rustc_hash::FxHashMap;
use scope::{Scope, is_special, stays_so};
use std::sync::Arc;
use trainyard_framework::Trials;
use trainyard_types::{Allocation, Grant, Knobs, Phase, Quality, Shape};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "sia",
    about: "Each round, a program gives every job one configuration, so many GPUs of one type, by goodput, fairness and the price of restarts.",
    paper: "Jayaram Subramanya et al., Sia, SOSP 2023",
    needs: Needs { rates: true, trials: Trials::OneGpu, ..Needs::NOTHING },
    class: Taxonomy {
        elastic: true,
        heterogeneous: true,
        ..Taxonomy::rigid(Objective::Throughput, Family::Goodput).preemptive()
    },
    settings: &[
        ("round", "the length of a round; jobs start and stop at its multiples"),
        (
            "p",
            "the fairness exponent, not 0: below 0 jobs that get little count more, above 0 less",
        ),
        (
            "idle_price",
            "what a job without GPUs costs (lambda_n); above 1, running always beats it",
        ),
        ("restart", "whether a restart makes every configuration but the present one worth less"),
        ("doubling", "whether a job gets at most twice the GPUs on which it was seen"),
        (
            "bootstrap",
            "what is known before a job runs: `none`, `bootstrap` (passes on one GPU of each type) or `oracle` (passes on any number)",
        ),
        ("rounding", "whether values are rounded to two decimals first, as by the authors"),
        ("configurations", "the most configurations of each type"),
        ("gap", "the part of the program's value that may be missing without a search for it"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    round: Span,
    p: f64,
    idle_price: f64,
    restart: bool,
    doubling: bool,
    bootstrap: Foreknown,
    rounding: bool,
    configurations: u32,
    gap: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            round: Span::secs(60),
            p: -0.5,
            idle_price: 1.1,
            restart: true,
            doubling: true,
            bootstrap: Foreknown::Bootstrap,
            rounding: false,
            configurations: 64,
            gap: 1e-4,
        }
    }
}

/// What is known of a job before it runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Foreknown {
    /// Nothing.
    None,
    /// The time of a pass on one GPU of each type, at ten batches.
    Bootstrap,
    /// The time of a pass anywhere.
    Oracle,
}

/// States that the search for a better choice may look at in one decision.
const WORK_MAX: u64 = 100_000;

/// O(j c b) for the goodputs of j jobs that changed, with c configurations and b batches each; the program is a search of
/// at most [`WORK_MAX`] states after O(j c) for each of a few dozen prices; placing is O(j n) for n nodes.
struct Sia {
    settings: Settings,
    /// What was worked out about each job: a cache, keyed by what was seen of it.
    known: FxHashMap<JobId, Known>,
    /// What there was of each type in the last round.
    ground: Option<Arc<ClusterShape>>,
    /// The round of the last decision.
    current: Option<u64>,
    /// Whether no round was asked for after it, because none would change anything.
    asleep: bool,
    /// Why jobs could not take part in it, to be told until the next one.
    verdicts: Vec<(JobId, Reason)>,
}

/// What was worked out about one job.
#[derive(Default)]
struct Known {
    models: Option<Models>,
    row: Option<Arc<Candidates>>,
}

/// A job that takes part in a round, with its row.
struct Contender<'a> {
    job: JobRef<'a>,
    row: Arc<Candidates>,
}

impl Sia {
    /// The goodputs of a job, worked out anew where something was learnt.
    fn row(
        &mut self,
        job: JobRef<'_>,
        view: &View<'_>,
        ground: &Arc<ClusterShape>,
    ) -> Arc<Candidates> {
        let known = self.known.entry(job.id()).or_default();
        let source = Source { job, view, ground, most: self.settings.configurations };
        let seen = source.seen();
        if let Some(row) = known.row.as_ref().filter(|row| row.seen.is_some() && row.seen == seen) {
            return Arc::clone(row);
        }
        let mut row = match (source.adapts(), self.settings.bootstrap) {
            (false, _) => source.by_rates(),
            (true, Foreknown::Oracle) => source.by_trials(),
            (true, Foreknown::None | Foreknown::Bootstrap) => {
                let places = job.state.measured.as_ref().map_or(0, |measured| measured.places);
                let models = known.models.take().filter(|models| models.places == places);
                let models = models.unwrap_or_else(|| Models::new(job, view, ground));
                source.by_models(known.models.insert(models))
            }
        };
        row.raise(self.settings.p, program::unit_of(&job.spec.want));
        Arc::clone(known.row.insert(Arc::new(row)))
    }

    /// What there is of each type; the same object as long as nothing changes, so that rows are known to hold at once.
    fn ground(&mut self, view: &View<'_>, free: &Free) -> Arc<ClusterShape> {
        let now = ClusterShape::new(view, free);
        match &self.ground {
            Some(before) if **before == now => Arc::clone(before),
            _ => Arc::clone(self.ground.insert(Arc::new(now))),
        }
    }

    /// Grants to the jobs that may not be moved now, and the others with their rows.
    fn players<'a>(
        &mut self,
        view: &View<'a>,
        offer: &mut Offer<'_>,
        (ground, scope): (&Arc<ClusterShape>, Scope),
    ) -> Vec<Contender<'a>> {
        let mut active: Vec<JobRef<'a>> = view.waiting().chain(view.granted()).collect();
        active.sort_unstable_by_key(JobRef::id);
        if self.known.len() > 2 * active.len() + 64 {
            self.known.retain(|id, _| active.binary_search_by_key(id, JobRef::id).is_ok());
        }
        let mut players = Vec::with_capacity(active.len());
        for job in active {
            if job.state.planned.is_some() && !view.may_stop(job) {
                continue;
            }
            let changing = matches!(job.state.phase, Phase::Starting | Phase::Saving);
            if changing
                && let Some(planned) = &job.state.planned
                && (scope == Scope::Changes
                    || offer.grant(&again(job.id(), planned)) == GrantOutcome::Taken)
            {
                continue;
            }
            let mut row = self.row(job, view, ground);
            let most = if self.settings.doubling { row.double(job) } else { u32::MAX };
            let per_gpu = if job.spec.want.permille < 1000 { job.spec.want.permille } else { 1000 };
            let allowed = |option: &Yield| {
                let used = u64::from(option.sort.gpus) * u64::from(per_gpu);
                option.sort.gpus <= most && offer.ceiling_passed(job, used).is_none()
            };
            // Most rows are allowed as a whole, and are not copied then.
            if !row.options.iter().all(allowed) {
                Arc::make_mut(&mut row).options.retain(allowed);
            }
            match &row.verdict {
                Eligibility::Sound => players.push(Contender { job, row }),
                Eligibility::Nowhere(reason) => self.verdicts.push((job.id(), reason.clone())),
            }
        }
        players
    }

    /// Says why jobs could not take part in the round.
    fn tell(&self, offer: &mut Offer<'_>) {
        for (job, reason) in &self.verdicts {
            offer.note(*job, reason.clone());
        }
    }

    /// The choice of a configuration for each player, by its number in the row.
    fn choose(
        &self,
        players: &[Contender<'_>],
        view: &View<'_>,
        (free, scope): (&Free, Scope),
        cx: &mut Cx,
    ) -> Vec<Option<usize>> {
        let kinds = view.cluster().kinds.len();
        let capacity = (0..kinds).map(|kind| scope.capacity(GpuType(kind as u8), players, free));
        let weights = Weights {
            p: self.settings.p,
            idle_price: self.settings.idle_price,
            restart: self.settings.restart,
            rounding: self.settings.rounding,
        };
        let candidates: Vec<Candidate<'_>> =
            players.iter().map(|player| Candidate::new(player.job, &player.row, view)).collect();
        let aim = trainyard_solver::choice::Aim {
            gap_max: self.settings.gap,
            work_max: cx.work_max.min(WORK_MAX),
            grain: if self.settings.rounding { 0.01 } else { 0.0 },
        };
        let found = program::solve(&weights, capacity, &candidates, &aim);
        cx.quality = Quality::Within((found.gap() * 1e6).ceil().clamp(0.0, 1e6) as u32);
        found.of
    }

    /// Grants what was chosen, each on the GPUs that need the fewest moves.
    fn grant(
        &self,
        players: &[Contender<'_>],
        chosen: &[Option<usize>],
        view: &View<'_>,
        (offer, scope): (&mut Offer<'_>, Scope),
    ) {
        let mut needs: Vec<Need> = Vec::new();
        let mut loose: Vec<(usize, usize)> = Vec::new();
        for (index, (player, chosen)) in players.iter().zip(chosen).enumerate() {
            let Some(chosen) = *chosen else { continue };
            let sort = player.row.options[chosen].sort;
            if is_special(&player.job.spec.want) {
                loose.push((index, chosen));
                continue;
            }
            let held = player.job.state.planned.as_ref().or(player.job.state.held.as_ref());
            let current = held.map(|held| held.placement.clone());
            needs.push(Need { index, kind: sort.kind, gpus: sort.gpus, current });
        }
        let mut map = FreeMap::new(view.cluster(), offer.free());
        if scope == Scope::Changes {
            let planned = players.iter().filter_map(|player| player.job.state.planned.as_ref());
            planned.for_each(|planned| map.give(&planned.placement, offer.free()));
        }
        let placed = map.place(&needs);
        let mut placed: Vec<(Need, Option<Placement>)> = needs.into_iter().zip(placed).collect();
        if scope == Scope::Changes {
            revoke_others(players, chosen, &mut placed, offer);
        }
        let mut left: Vec<usize> = Vec::new();
        for (need, placement) in placed {
            let player = &players[need.index];
            let chosen = chosen[need.index].expect("a need is a choice");
            let taken = placement.is_some_and(|placement| {
                let grant = player.grant(chosen, Shape::Exact(placement));
                offer.grant(&grant) == GrantOutcome::Taken
            });
            if !taken {
                loose.push((need.index, chosen));
            }
        }
        for (index, chosen) in loose {
            let ConfigurationKind { kind, gpus, .. } = players[index].row.options[chosen].sort;
            let nodes_max = players[index].job.spec.want.nodes_max;
            let shape = Shape::Gpus { count: gpus, kind: Some(kind), nodes_max };
            if offer.grant(&players[index].grant(chosen, shape)) != GrantOutcome::Taken {
                left.push(index);
            }
        }
        let unchosen = chosen.iter().enumerate().filter(|(_, chosen)| chosen.is_none());
        left.extend(unchosen.map(|(index, _)| index));
        left.sort_unstable();
        fill(players, &left, offer);
        for player in left.iter().map(|index| &players[*index]) {
            let needs = player.row.options.iter().map(|option| option.sort.gpus);
            if let Some(need) = needs.min().filter(|_| offer.plan(player.job.id()).is_none()) {
                offer.note(player.job.id(), Reason::NoRoom { need, free: offer.free().total() });
            }
        }
    }
}

/// Takes away the grants of all but the jobs that stay as they are, and leaves those among the ones that are placed.
fn revoke_others(
    players: &[Contender<'_>],
    chosen: &[Option<usize>],
    placed: &mut Vec<(Need, Option<Placement>)>,
    offer: &mut Offer<'_>,
) {
    let mut stays = vec![false; players.len()];
    for (need, placement) in &*placed {
        let chosen = chosen[need.index].expect("a need is a choice");
        stays[need.index] = players[need.index].stays(chosen, placement.as_ref());
    }
    for (player, stays) in players.iter().zip(&stays) {
        if !stays && player.job.state.planned.is_some() {
            offer.revoke(player.job.id());
        }
    }
    placed.retain(|(need, _)| !stays[need.index]);
}

/// Gives what is idle to the jobs that are left, in order of arrival and as little as each can do with: where ceilings,
/// host resources or odd nodes stood in the way of the choice.
fn fill(players: &[Contender<'_>], left: &[usize], offer: &mut Offer<'_>) {
    for &index in left {
        let player = &players[index];
        let least = player.row.options.iter().map(|option| option.sort.gpus).min();
        let options = player.row.options.iter().enumerate();
        for (number, option) in options.filter(|(_, option)| Some(option.sort.gpus) == least) {
            let ConfigurationKind { kind, gpus, .. } = option.sort;
            if offer.free().gpus(kind) < gpus && !is_special(&player.job.spec.want) {
                continue;
            }
            let nodes_max = player.job.spec.want.nodes_max;
            let shape = Shape::Gpus { count: gpus, kind: Some(kind), nodes_max };
            if offer.grant(&player.grant(number, shape)) == GrantOutcome::Taken {
                break;
            }
        }
    }
}

impl Contender<'_> {
    /// Whether a choice that is placed somewhere leaves everything as it is.
    fn stays(&self, option: usize, placement: Option<&Placement>) -> bool {
        let Some(planned) = &self.job.state.planned else { return false };
        let batch = self.row.options[option].batch;
        let knobs = batch.map(|batch| Knobs { batch: Some(batch), ..Knobs::default() });
        placement == Some(&planned.placement) && knobs.is_none_or(|knobs| knobs == planned.knobs)
    }

    fn grant(&self, option: usize, shape: Shape) -> Grant {
        let batch = self.row.options[option].batch;
        let knobs = batch.map(|batch| Box::new(Knobs { batch: Some(batch), ..Knobs::default() }));
        Grant { shape, knobs, ..wanted(self.job) }
    }
}

/// What a job has, once more.
fn again(job: JobId, planned: &Allocation) -> Grant {
    let mut grant = Grant::gpus(job, planned.placement.gpus()).share(planned.share(0));
    grant.shape = Shape::Exact(planned.placement.clone());
    grant.knobs = Some(Box::new(planned.knobs.clone()));
    grant
}

impl Policy for Sia {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        if view.waiting_len() + view.granted_len() == 0 {
            self.known.clear();
            self.asleep = false;
            return Ok(());
        }
        let length = self.settings.round.0;
        let round = view.now.0 / length;
        if std::mem::take(&mut self.asleep) && !view.now.0.is_multiple_of(length) {
            // The round has begun, and nothing changed.
            self.current = Some(round);
        }
        let next = Time((round + 1).saturating_mul(length));
        if self.current.replace(round) == Some(round) {
            offer.wake_at(next);
            self.tell(offer);
            return Ok(());
        }
        self.verdicts.clear();
        let ground = self.ground(view, offer.free());
        let scope = Scope::of(view, offer.free());
        if scope == Scope::Everything {
            offer.everything();
        }
        let players = self.players(view, offer, (&ground, scope));
        let chosen = self.choose(&players, view, (offer.free(), scope), cx);
        self.grant(&players, &chosen, view, (offer, scope));
        self.asleep = scope == Scope::Changes && stays_so(&players, view, offer);
        if !self.asleep {
            offer.wake_at(next);
        }
        self.tell(offer);
        Ok(())
    }

    fn forget(&mut self) {
        self.known.clear();
        self.verdicts.clear();
        self.current = None;
        self.asleep = false;
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    if settings.round < Span::secs(1) {
        return Err(ENTRY.bad_value("round", settings.round, "at least a second"));
    }
    if !(settings.p.is_finite() && settings.p != 0.0 && settings.p.abs() <= 8.0) {
        return Err(ENTRY.bad_value("p", settings.p, "a number from -8 to 8 that is not 0"));
    }
    if !(settings.idle_price.is_finite() && settings.idle_price > 0.0) {
        return Err(ENTRY.bad_value("idle_price", settings.idle_price, "a number above 0"));
    }
    if !(1..=4096).contains(&settings.configurations) {
        return Err(ENTRY.bad_value("configurations", settings.configurations, "from 1 to 4096"));
    }
    if !(0.0..=1.0).contains(&settings.gap) {
        return Err(ENTRY.bad_value("gap", settings.gap, "a part from 0 to 1"));
    }
    let trials = match settings.bootstrap {
        Foreknown::None => Trials::Nowhere,
        Foreknown::Bootstrap => Trials::OneGpu,
        Foreknown::Oracle => Trials::Everywhere,
    };
    let policy = Sia {
        settings,
        known: FxHashMap::default(),
        ground: None,
        current: None,
        asleep: false,
        verdicts: Vec::new(),
    };
    Ok(Pipeline::new(policy, FewestNodes, Needs { trials, ..ENTRY.needs }))
}
