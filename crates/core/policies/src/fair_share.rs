//! Multifactor fair share: age, past use against the tenant's share, size and priority, weighted and summed.

use crate::alike::Classes;
use crate::prelude::*;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Bound;
use trainyard_types::TenantId;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "fair-share",
    about: "Tenants that used less than their share go first; age, size and priority count as well.",
    paper: "Jackson, Snell and Clement, JSSPP 2001; as in Slurm's multifactor plugin",
    needs: Needs::NOTHING,
    class: Taxonomy::rigid(Objective::Fairness, Family::Share)
        .by_setting("`preempt=true` stops jobs"),
    settings: &[
        ("half_life", "after how long a GPU-second of past use counts half"),
        ("age", "points for a job that has waited `max_age`; less for less"),
        ("max_age", "the age at which a job stops gaining points"),
        ("share", "points for a tenant that has used nothing; half of them at exactly its share"),
        ("dampening", "divides use over share before it is an exponent; above 1 forgives"),
        ("size", "points for a job as large as the cluster; below 0 favours small ones"),
        ("priority", "points for each unit of a job's priority"),
        ("preempt", "whether tenants below their share may stop jobs of tenants above theirs"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Copy, Clone, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    half_life: Span,
    age: f64,
    max_age: Span,
    share: f64,
    dampening: f64,
    size: f64,
    priority: f64,
    preempt: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            half_life: Span::secs(7 * 86_400),
            age: 1000.0,
            max_age: Span::secs(7 * 86_400),
            share: 10_000.0,
            dampening: 1.0,
            size: 0.0,
            priority: 1000.0,
            preempt: false,
        }
    }
}

/// How often tenants are compared anew while jobs wait, if they may stop each other.
const COMPARE_EVERY: Span = Span::secs(600);

/// Millionths of a point, so that keys are integers.
fn points(value: f64) -> i128 {
    (value * 1e6) as i128
}

/// O(tenants + classes) for each decision and O(log n) for each job that changes. Inside a tenant the order is
/// static: all jobs below `max_age` gain points alike, and those above gain none.
struct FairShare {
    settings: Settings,
    valid_for: Option<u64>,
    entries: FxHashMap<JobId, Seat>,
    classes: Classes,
    lanes: Vec<Lane>,
    /// When jobs reach `max_age`.
    ripens: BTreeSet<(Time, JobId)>,
}

/// Most points first, then by submission.
type Place = (Reverse<i128>, Time, JobId);

/// The waiting jobs of one tenant that fit or fail alike: those that still gain points, and those that do not.
#[derive(Default)]
struct Lane {
    growing: BTreeSet<Place>,
    grown: BTreeSet<Place>,
}

#[derive(Copy, Clone)]
struct Seat {
    lane: usize,
    grown: bool,
    place: Place,
    ripens: Time,
}

/// How a tenant stands at one moment.
#[derive(Copy, Clone)]
struct Factor {
    points: i128,
    over_share: bool,
}

impl FairShare {
    fn refresh(&mut self, view: &View<'_>) {
        if self.valid_for == Some(view.decision()) {
            for &job in view.changed() {
                self.update(view, job);
            }
        } else {
            self.reset();
            for job in view.waiting() {
                self.update(view, job.id());
            }
        }
        while let Some(&(time, job)) = self.ripens.first() {
            if time > view.now {
                break;
            }
            self.update(view, job);
        }
        self.valid_for = Some(view.decision() + 1);
    }

    fn reset(&mut self) {
        self.valid_for = None;
        self.entries.clear();
        self.classes = Classes::default();
        self.lanes.clear();
        self.ripens.clear();
    }

    fn update(&mut self, view: &View<'_>, id: JobId) {
        if let Some(seat) = self.entries.remove(&id) {
            self.set(&seat).remove(&seat.place);
            self.ripens.remove(&(seat.ripens, id));
        }
        if !view.state().waiting.contains(id) {
            return;
        }
        let Some(job) = view.job(id) else { return };
        let lane = self.classes.number(job, view, true);
        if lane == self.lanes.len() {
            self.lanes.push(Lane::default());
        }
        let submitted = job.spec.submitted;
        let ripens = submitted + self.settings.max_age;
        let grown = ripens <= view.now;
        let fixed = self.fixed(job, view);
        // A growing job is placed by its points at time zero, times `max_age` to stay a whole number.
        let value = match grown {
            true => fixed + points(self.settings.age),
            false => {
                let age = points(self.settings.age) * i128::from(submitted.0);
                fixed * i128::from(self.settings.max_age.0) - age
            }
        };
        let seat = Seat { lane, grown, place: (Reverse(value), submitted, id), ripens };
        self.set(&seat).insert(seat.place);
        if !grown {
            self.ripens.insert((ripens, id));
        }
        self.entries.insert(id, seat);
    }

    fn set(&mut self, seat: &Seat) -> &mut BTreeSet<Place> {
        let lane = &mut self.lanes[seat.lane];
        if seat.grown { &mut lane.grown } else { &mut lane.growing }
    }

    /// Points that do not depend on time or tenant.
    fn fixed(&self, job: JobRef<'_>, view: &View<'_>) -> i128 {
        let gpus = f64::from(job.spec.want.gpus) / f64::from(view.cluster().gpus().max(1));
        points(self.settings.size * gpus)
            + points(self.settings.priority * f64::from(job.spec.priority))
    }

    /// The points of a waiting job now, without its tenant's.
    fn own(&self, place: &Place, grown: bool, now: Time) -> i128 {
        let value = place.0.0;
        match grown {
            true => value,
            false => {
                let age = points(self.settings.age) * i128::from(now.0);
                (value + age) / i128::from(self.settings.max_age.0)
            }
        }
    }

    /// The next of a lane behind a place.
    fn next(&self, lane: usize, grown: bool, after: Option<Place>) -> Option<Place> {
        let lane = &self.lanes[lane];
        let set = if grown { &lane.grown } else { &lane.growing };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        set.range((from, Bound::Unbounded)).next().copied()
    }

    /// How all tenants stand: 2^-(use / share), use and share both measured along the tree.
    fn factors(&self, view: &View<'_>) -> Vec<Factor> {
        let tenants = view.tenants();
        let mut weights = vec![0.0; tenants.len() + 1];
        let slot = |parent: Option<TenantId>| parent.map_or(tenants.len(), TenantId::index);
        for (_, tenant) in tenants.iter() {
            weights[slot(tenant.parent)] += tenant.weight.max(0.0);
        }
        let tops = tenants.iter().filter(|(_, tenant)| tenant.parent.is_none());
        let total: f64 = tops.map(|(id, _)| view.usage(id)).sum();
        let mut shares: Vec<(f64, f64)> = Vec::with_capacity(tenants.len());
        let mut factors = Vec::with_capacity(tenants.len());
        for (id, tenant) in tenants.iter() {
            let of_siblings = match weights[slot(tenant.parent)] {
                sum if sum > 0.0 => tenant.weight.max(0.0) / sum,
                _ => 0.0,
            };
            let own = if total > 0.0 { view.usage(id) / total } else { 0.0 };
            // Slurm's effective use: a tenant answers for its siblings by its share among them.
            let (share, used) = match tenant.parent {
                None => (of_siblings, own),
                Some(parent) => {
                    let (share, used) = shares[parent.index()];
                    (share * of_siblings, own + (used - own) * of_siblings)
                }
            };
            shares.push((share, used));
            let ratio = if share > 0.0 { used / share } else { f64::INFINITY };
            let factor = libm::exp2(-ratio / self.settings.dampening);
            factors.push(Factor {
                points: points(self.settings.share * factor),
                over_share: ratio > 1.0,
            });
        }
        factors
    }

    fn tenant(&self, lane: usize) -> TenantId {
        self.classes.get(lane).tenant.expect("lanes are by tenant")
    }

    /// Running jobs of tenants above their share, those of the lowest factor and the latest start first.
    fn victims(&self, view: &View<'_>, factors: &[Factor]) -> Vec<JobId> {
        let mut victims: Vec<_> = view
            .granted()
            .map(|job| (factors[job.spec.tenant.index()], job))
            .filter(|(factor, _)| factor.over_share)
            .map(|(factor, job)| (factor.points, Reverse(job.state.last_start), job.id()))
            .collect();
        victims.sort_unstable();
        victims.into_iter().map(|(_, _, job)| job).collect()
    }
}

impl Policy for FairShare {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        self.refresh(view);
        let preempt = self.settings.preempt;
        if self.entries.is_empty()
            || (offer.free().total() == 0 && !preempt && !self.has_fractions())
        {
            return Ok(());
        }
        let factors = self.factors(view);
        let victims = if preempt { self.victims(view, &factors) } else { Vec::new() };
        let rank = |lane: usize, grown: bool, place: Place| {
            let points =
                factors[self.tenant(lane).index()].points + self.own(&place, grown, view.now);
            (points, Reverse(place.1), Reverse(place.2), lane, grown, place)
        };
        let all = (0..self.lanes.len()).flat_map(|lane| [(lane, false), (lane, true)]);
        let mut heads: BinaryHeap<_> = all
            .filter_map(|(lane, grown)| Some(rank(lane, grown, self.next(lane, grown, None)?)))
            .collect();
        let mut closed = vec![false; self.lanes.len()];
        while let Some((_, _, _, lane, grown, place)) = heads.pop() {
            let Some(job) = view.job(place.2).filter(|_| !closed[lane]) else { continue };
            let grant = wanted(job);
            let answer = if preempt && !factors[job.spec.tenant.index()].over_share {
                offer.instead(&grant, &mut victims.iter().copied())
            } else {
                offer.grant(&grant)
            };
            match answer {
                GrantOutcome::Taken | GrantOutcome::Refused => {
                    if let Some(next) = self.next(lane, grown, Some(place)) {
                        heads.push(rank(lane, grown, next));
                    }
                }
                GrantOutcome::Full if !preempt && !self.has_fractions() => break,
                // None of its class fits either.
                GrantOutcome::NoRoom | GrantOutcome::Full => closed[lane] = true,
            }
        }
        if preempt {
            offer.wake_at(view.now + COMPARE_EVERY);
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.reset();
    }
}

impl FairShare {
    fn has_fractions(&self) -> bool {
        let mut lanes = self.lanes.iter().enumerate();
        lanes.any(|(number, lane)| {
            let waits = !(lane.growing.is_empty() && lane.grown.is_empty());
            waits && self.classes.get(number).want.permille < 1000
        })
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    if settings.max_age == Span::ZERO {
        return Err(ENTRY.bad_value("max_age", settings.max_age, "a length of time above 0"));
    }
    if !(settings.dampening > 0.0 && settings.dampening.is_finite()) {
        return Err(ENTRY.bad_value("dampening", settings.dampening, "a number above 0"));
    }
    let weights = [
        ("age", settings.age),
        ("share", settings.share),
        ("size", settings.size),
        ("priority", settings.priority),
    ];
    for (key, weight) in weights {
        if !(-1e9..=1e9).contains(&weight) {
            return Err(ENTRY.bad_value(key, weight, "a number of points, at most 1e9"));
        }
    }
    let policy = FairShare {
        settings,
        valid_for: None,
        entries: FxHashMap::default(),
        classes: Classes::default(),
        lanes: Vec::new(),
        ripens: BTreeSet::new(),
    };
    let mut pipeline = Pipeline::new(policy, FewestNodes, ENTRY.needs);
    pipeline.usage_half_life = settings.half_life;
    Ok(pipeline)
}
