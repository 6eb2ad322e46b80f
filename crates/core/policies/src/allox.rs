//! AlloX: jobs are matched to types of machine and places in their queues, so that the mean completion time is least.
//!
//! - `matching`: the paper's bipartite graph of jobs and k-th places from the end, with the cost k p_ij + d_ij.
//! - `gavel`: AlloX as in Gavel's simulator, which is a variant of its own.
//!
//! Sections are of Le et al., EuroSys 2020: 3.1 is the matching for queued jobs, 3.2 arrivals, 3.3 fairness.

mod gavel;
pub mod matching;

use crate::prelude::*;
use crate::turns::could_hold;
use gavel::Rows;
use matching::{Group, Seat, best_seats};
use std::collections::BTreeSet;
use trainyard_framework::{Mechanism, RoundSettings, Rounds};
use trainyard_types::{Config, Shape, TenantId};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "allox",
    about: "A matching of jobs to types of machine and to places in their queues gives the least mean completion time.",
    paper: "Le et al., AlloX, EuroSys 2020",
    needs: Needs { rates: true, ..Needs::ESTIMATE },
    class: Taxonomy {
        heterogeneous: true,
        ..Taxonomy::rigid(Objective::CompletionTime, Family::Shortest)
    },
    settings: &[
        (
            "alpha",
            "the part of the tenants, those served least, whose jobs are looked at first; 1 is all of them",
        ),
        ("jobs_max", "the most jobs that one matching looks at, the shortest on each type in turn"),
        (
            "rounds",
            "`ours` starts jobs at once and lets them end; `gavel` is AlloX as in Gavel's simulator",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    alpha: f64,
    jobs_max: usize,
    rounds: Mechanism,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { alpha: 0.3, jobs_max: 200, rounds: Mechanism::Ours }
    }
}

/// O(n k) for n waiting jobs and k types, and a matching of at most `jobs_max` jobs, at each event with idle GPUs.
struct AlloX {
    alpha: f64,
    jobs_max: usize,
}

/// Machines as the matching sees them.
struct Machines {
    groups: Vec<Group>,
    /// The type of each group, by its place in the list of types.
    kind_of: Vec<usize>,
}

/// A job that waits, with the time the rest of it takes on each type; nothing where it cannot run.
struct Candidate<'v> {
    job: JobRef<'v>,
    lengths: Vec<Option<f64>>,
}

impl Candidate<'_> {
    fn gpus(&self) -> u32 {
        self.job.spec.want.gpus
    }
}

impl Policy for AlloX {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let kinds: Vec<(GpuType, u32)> = view.state().shapes.clone();
        let mut waiting = candidates(&kinds, view, offer);
        let tenants = least_served(&waiting, view);
        let mut part = self.alpha;
        while !waiting.is_empty() {
            // The fair form: only the alpha N tenants that were served least take part.
            let count = (part * tenants.len() as f64).ceil().max(1.0) as usize;
            let eligible: BTreeSet<TenantId> = tenants.iter().take(count).copied().collect();
            let started = self.start(&waiting, &eligible, &kinds, view, offer);
            waiting.retain(|one| offer.plan(one.job.id()).is_none());
            if started {
                continue;
            }
            if count >= tenants.len() {
                break;
            }
            // Nothing fits: more tenants take part, as the authors' code doubles alpha (section 3.3).
            part *= 2.0;
        }
        Ok(())
    }
}

impl AlloX {
    /// Matches the jobs of some tenants and starts those that come first on idle GPUs: online, only the first job of each
    /// idle machine of the offline schedule starts (section 3.2). True if any was started.
    fn start(
        &self,
        waiting: &[Candidate<'_>],
        eligible: &BTreeSet<TenantId>,
        kinds: &[(GpuType, u32)],
        view: &View<'_>,
        offer: &mut Offer<'_>,
    ) -> bool {
        let of_tenants = waiting.iter().filter(|one| eligible.contains(&one.job.spec.tenant));
        let chosen = shortest_in_turn(of_tenants.collect(), kinds.len(), self.jobs_max);
        let Machines { groups, kind_of } = machines(kinds, view, offer.free());
        // A gang of g GPUs takes the place of g jobs of its length, so that it counts as one of g times the length.
        let length = |job: usize, group: usize| {
            let one: &Candidate<'_> = chosen[job];
            one.lengths[kind_of[group]].map(|length| length * f64::from(one.gpus()))
        };
        let seats = best_seats(chosen.len(), &groups, length);
        let mut any = false;
        for (kind, &(of, _)) in kinds.iter().enumerate() {
            for job in first_on_idle(kind, &seats, &groups, length) {
                let mut grant = wanted(chosen[job].job);
                if let Shape::Gpus { kind, .. } = &mut grant.shape {
                    *kind = Some(of);
                }
                match offer.grant(&grant) {
                    GrantOutcome::Taken => any = true,
                    // A gang that is first keeps the idle GPUs of its type from those behind it, until it fits.
                    GrantOutcome::NoRoom | GrantOutcome::Full
                        if is_short(chosen[job], of, offer.free()) =>
                    {
                        break;
                    }
                    GrantOutcome::NoRoom | GrantOutcome::Full | GrantOutcome::Refused => {}
                }
            }
        }
        any
    }
}

/// Whether a job waits for GPUs to be free, and not for its tenant or its host.
fn is_short(one: &Candidate<'_>, kind: GpuType, free: &Free) -> bool {
    one.gpus() > 1 && free.gpus(kind) > 0 && free.gpus(kind) < one.gpus()
}

/// Waiting jobs with the time they take on each type. A job of unknown size counts as the longest there is.
fn candidates<'v>(
    kinds: &[(GpuType, u32)],
    view: &View<'v>,
    offer: &mut Offer<'_>,
) -> Vec<Candidate<'v>> {
    let free = offer.free();
    let rate = |job: JobRef<'_>, (kind, per_node): (GpuType, u32)| {
        let want = &job.spec.want;
        let mut config = Config::packed(kind, want.gpus, per_node);
        config.permille = want.permille;
        let holds = could_hold(want, kind, view, free);
        let rate = view.rate(job, &config).map_or(1.0, |rate| rate.0);
        (holds && rate > 0.0 && rate.is_finite()).then_some(rate)
    };
    let left = |job| view.work_left(job).map(|work| work.0).filter(|work| work.is_finite());
    let longest = view.waiting().filter_map(left).fold(1.0, f64::max);
    let waiting = view.waiting().map(|job| {
        let left = left(job).unwrap_or(longest);
        let lengths = kinds.iter().map(|kind| rate(job, *kind).map(|rate| left / rate)).collect();
        Candidate { job, lengths }
    });
    let can_run = |one: &Candidate<'_>| one.lengths.iter().any(Option::is_some);
    let (able, unable): (Vec<_>, Vec<_>) = waiting.partition(can_run);
    for one in unable {
        offer.note(one.job.id(), Reason::NoSpeed);
    }
    able
}

/// Tenants with waiting jobs, by how much they have used for each unit of weight, least first (section 3.3).
fn least_served(waiting: &[Candidate<'_>], view: &View<'_>) -> Vec<TenantId> {
    let tenants: BTreeSet<TenantId> = waiting.iter().map(|one| one.job.spec.tenant).collect();
    let mut tenants: Vec<(f64, TenantId)> = tenants
        .into_iter()
        .map(|tenant| {
            let weight = view.tenants().get(tenant).weight;
            let used = view.usage(tenant);
            (if weight > 0.0 { used / weight } else { f64::INFINITY }, tenant)
        })
        .collect();
    tenants.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    tenants.into_iter().map(|(_, tenant)| tenant).collect()
}

/// At most so many jobs: the shortest on the first type, on the second and so on, and again (the authors' choice for
/// scale, which alternates between GPU and CPU).
fn shortest_in_turn<'c, 'v>(
    all: Vec<&'c Candidate<'v>>,
    kinds: usize,
    most: usize,
) -> Vec<&'c Candidate<'v>> {
    if all.len() <= most {
        return all;
    }
    let mut orders: Vec<std::vec::IntoIter<usize>> = Vec::with_capacity(kinds);
    for kind in 0..kinds {
        let mut order: Vec<usize> =
            (0..all.len()).filter(|job| all[*job].lengths[kind].is_some()).collect();
        let length = |job: &usize| all[*job].lengths[kind].unwrap_or(f64::INFINITY);
        order.sort_by(|a, b| length(a).total_cmp(&length(b)).then(a.cmp(b)));
        orders.push(order.into_iter());
    }
    let mut taken: BTreeSet<usize> = BTreeSet::new();
    while taken.len() < most {
        let before = taken.len();
        for order in &mut orders {
            let next = order.by_ref().find(|job| !taken.contains(job));
            taken.extend(next.filter(|_| taken.len() < most));
        }
        if taken.len() == before {
            break;
        }
    }
    taken.into_iter().map(|job| all[job]).collect()
}

/// Machines by type and by when they are free: idle ones first, then those that run, each with the time it still takes.
///
/// The time until a machine is free is a part of d_ij in the paper's cost k p_ij + d_ij; the rest of it, how long a job
/// has waited, is the same on all machines and decides nothing.
fn machines(kinds: &[(GpuType, u32)], view: &View<'_>, free: &Free) -> Machines {
    let mut groups = Vec::new();
    let mut kind_of = Vec::new();
    for (index, (kind, _)) in kinds.iter().enumerate() {
        groups.push(Group { machines: free.gpus(*kind), free_in: 0.0 });
        kind_of.push(index);
    }
    for job in view.granted() {
        let Some(planned) = &job.state.planned else { continue };
        let Some((node, _)) = planned.placement.masks().first() else { continue };
        let kind = view.cluster().node(*node).kind;
        let Some(index) = kinds.iter().position(|(other, _)| *other == kind) else { continue };
        let left = view.time_to_end(job).map_or(0.0, |left| left.as_secs_f64());
        groups.push(Group { machines: planned.placement.gpus(), free_in: left });
        kind_of.push(index);
    }
    Machines { groups, kind_of }
}

/// Jobs that begin on the idle machines of a type: of those that were given to them, the shortest. That is the order of
/// their positions too, but for ties, which go to the job that came first.
fn first_on_idle(
    kind: usize,
    seats: &[Option<Seat>],
    groups: &[Group],
    length: impl Fn(usize, usize) -> Option<f64>,
) -> Vec<usize> {
    // The idle machines of each type are the first groups, in order of types.
    let seated = |job: &usize| seats[*job].is_some_and(|seat| seat.group == kind);
    let mut here: Vec<usize> = (0..seats.len()).filter(seated).collect();
    let length = |job: usize| length(job, kind).unwrap_or(f64::INFINITY);
    here.sort_by(|a, b| length(*a).total_cmp(&length(*b)).then(a.cmp(b)));
    here.truncate(groups[kind].machines as usize);
    here
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { alpha, jobs_max, rounds } = raw.read(ENTRY.name)?;
    if !(alpha > 0.0 && alpha <= 1.0) {
        return Err(ENTRY.bad_value("alpha", alpha, "a part above 0 and up to 1"));
    }
    if jobs_max == 0 {
        return Err(ENTRY.bad_value("jobs_max", jobs_max, "at least 1"));
    }
    Ok(match rounds {
        Mechanism::Ours => Pipeline::new(AlloX { alpha, jobs_max }, FewestNodes, ENTRY.needs),
        Mechanism::Gavel | Mechanism::Sia => {
            let policy = Rounds::new(Rows::default(), RoundSettings::gavel());
            Pipeline::new(policy, FewestNodes, ENTRY.needs)
        }
    })
}
