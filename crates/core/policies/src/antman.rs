//! AntMan: guaranteed jobs have GPUs as if alone, opportunistic ones use what they leave, led by a loop on their speed.

mod coordinator;
mod memory;
mod seats;
mod spilling;

use crate::prelude::*;
use coordinator::{Limit, Loop};
use rustc_hash::FxHashMap;
use seats::{BUSY_UNKNOWN, Seats, Wish};
use std::collections::BTreeSet;
use trainyard_framework::{Terms, UsageSource};
use trainyard_types::{Class, Grant, Knobs, ModelId, Shape, Share};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "antman",
    about: "Opportunistic jobs run on GPUs of guaranteed ones, as fast as these do not notice; guaranteed jobs start in order of arrival.",
    paper: "Xiao et al., AntMan, OSDI 2020",
    needs: Needs { rates: true, usage: UsageSource::Profiled, ..Needs::NOTHING },
    class: Taxonomy::rigid(Objective::Throughput, Family::Sharing)
        .partial("how busy a GPU is comes from profiles, not from the last seconds"),
    settings: &[
        ("best_effort", "`guaranteed` or `opportunistic`: how jobs of that class are treated"),
        ("tolerance", "the part of its speed that a guaranteed job may lose"),
        ("step", "by how much the limit of an opportunistic job grows, as a part of a GPU"),
        (
            "floor",
            "the smallest limit, with which an opportunistic job begins beside a guaranteed one",
        ),
        ("tick", "how long one limit is looked at"),
        ("retry", "after how long a limit that was too much is tried again"),
        ("across_tenants", "whether jobs of different tenants may share a GPU"),
        ("guests_max", "the most opportunistic jobs on a GPU"),
        (
            "busy_max",
            "the part of the time that a guaranteed job may keep its GPU busy for another one to join it; the public code has 0.8",
        ),
        (
            "memory_floor",
            "the part of its memory that an opportunistic job has at least, such as 0.1; the rest may lie in the host's memory",
        ),
        (
            "fill",
            "`strict`: the first guaranteed job blocks the rest; `backfill`: any that fits may pass it; `hold`: any that leaves enough for it, while only opportunistic jobs use the GPUs that it gathers",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Clone, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    best_effort: Side,
    tolerance: f64,
    step: f64,
    floor: f64,
    tick: Span,
    retry: Span,
    across_tenants: bool,
    guests_max: u8,
    busy_max: f64,
    memory_floor: f64,
    fill: Passing,
}

/// Who may pass a guaranteed job that waits.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Passing {
    Strict,
    Backfill,
    Hold,
}

#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Side {
    Guaranteed,
    Opportunistic,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            best_effort: Side::Guaranteed,
            tolerance: 0.02,
            step: 0.05,
            floor: 0.05,
            tick: Span::secs(10),
            retry: Span::secs(600),
            across_tenants: false,
            guests_max: 1,
            // Training keeps a GPU busy for nearly all of the time by this figure, and still leaves much of it.
            busy_max: 1.0,
            // Until a machine moves memory to its host a lower cap ends a program that does not expect it.
            memory_floor: 1.0,
            fill: Passing::Backfill,
        }
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    for (key, value) in [("step", settings.step), ("floor", settings.floor)] {
        if !(0.001..=1.0).contains(&value) {
            return Err(ENTRY.bad_value(key, value, "a part of a GPU from 0.001 to 1"));
        }
    }
    if !(0.0..1.0).contains(&settings.tolerance) {
        return Err(ENTRY.bad_value("tolerance", settings.tolerance, "a part from 0 to below 1"));
    }
    if !(0.001..=1.0).contains(&settings.memory_floor) {
        let expected = "a part of the memory from 0.001 to 1";
        return Err(ENTRY.bad_value("memory_floor", settings.memory_floor, expected));
    }
    if !(0.0..=1.0).contains(&settings.busy_max) {
        return Err(ENTRY.bad_value(
            "busy_max",
            settings.busy_max,
            "a part of the time from 0 to 1",
        ));
    }
    if settings.guests_max == 0 {
        return Err(ENTRY.bad_value("guests_max", settings.guests_max, "at least 1"));
    }
    if settings.tick == Span::ZERO {
        return Err(ENTRY.bad_value("tick", settings.tick, "a time above 0"));
    }
    let permille = |part: f64| (part * 1000.0 + 0.5) as u16;
    let by = Loop {
        tolerance: settings.tolerance,
        step: permille(settings.step),
        floor: permille(settings.floor),
        tick: settings.tick,
        retry: settings.retry,
    };
    let policy = AntMan {
        settings,
        by,
        limits: FxHashMap::default(),
        harmful: BTreeSet::new(),
        valid_for: None,
    };
    Ok(Pipeline::new(policy, FewestNodes, ENTRY.needs))
}

/// O(granted + waiting) for each decision, and O(GPUs) for each opportunistic job that is placed.
struct AntMan {
    settings: Settings,
    by: Loop,
    /// Limits of opportunistic jobs, with the guaranteed jobs beside which they were found.
    limits: FxHashMap<JobId, (Vec<JobId>, Limit)>,
    /// Models of which the second harms the first even at the smallest limit.
    harmful: BTreeSet<(ModelId, ModelId)>,
    valid_for: Option<u64>,
}

impl Policy for AntMan {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        if self.valid_for != Some(view.decision()) {
            self.forget();
        }
        self.valid_for = Some(view.decision() + 1);
        let mut seats = self.seats(view);
        self.guaranteed(&mut seats, view, offer);
        self.lead(&mut seats, view, offer);
        self.opportunistic(&mut seats, view, offer);
        self.feed(view, offer);
        Ok(())
    }

    fn forget(&mut self) {
        self.limits.clear();
        self.harmful.clear();
        self.valid_for = None;
    }
}

impl AntMan {
    fn is_guest(&self, job: JobRef<'_>) -> bool {
        let by_class = match job.spec.class {
            Class::Guaranteed => false,
            Class::BestEffort => self.settings.best_effort == Side::Opportunistic,
            Class::Opportunistic => true,
        };
        // A part of a GPU is a quota of its own.
        by_class && job.spec.want.permille >= 1000
    }

    fn seats(&self, view: &View<'_>) -> Seats {
        let mut seats = Seats::default();
        for job in view.granted() {
            if let Some(planned) = &job.state.planned {
                let is_guest = planned.is_on_leftovers();
                if is_guest || planned.share(0).permille() == 1000 {
                    seats.sit(job.id(), &planned.placement, is_guest);
                }
            }
        }
        seats
    }

    /// Guaranteed jobs in order of arrival. An opportunistic job is in their way by its memory alone: it spills what it
    /// can, and gives way where that does not suffice.
    fn guaranteed(&self, seats: &mut Seats, view: &View<'_>, offer: &mut Offer<'_>) {
        let mut jobs: Vec<JobRef<'_>> = view.waiting().filter(|job| !self.is_guest(*job)).collect();
        jobs.sort_by_key(|job| (job.spec.submitted, job.id()));
        let mut gathering: Vec<JobRef<'_>> = Vec::new();
        for job in jobs {
            if self.settings.fill == Passing::Hold && !leaves_enough(job, &gathering, offer.free())
            {
                let (need, free) = (job.spec.want.gpus, offer.free().total());
                offer.note(
                    job.id(),
                    Reason::NoRoom { need, free: free.min(need.saturating_sub(1)) },
                );
                continue;
            }
            let grant = wanted(job);
            let mut answer = offer.grant(&grant);
            if answer != GrantOutcome::Taken && offer.free().total() >= grant.count() {
                let guests = view.granted().filter(|job| self.is_guest(*job));
                let mut guests: Vec<JobId> = guests.map(|job| job.id()).collect();
                guests.reverse();
                if self.squeeze(guests.iter().copied(), view, offer) {
                    answer = offer.grant(&grant);
                }
                if answer != GrantOutcome::Taken {
                    answer = offer.instead(&grant, &mut guests.into_iter());
                }
            }
            if answer == GrantOutcome::Taken {
                self.seat(job, seats, view, offer);
                continue;
            }
            match self.settings.fill {
                Passing::Strict => break,
                Passing::Backfill => {}
                Passing::Hold => gathering.push(job),
            }
        }
    }

    /// A guaranteed job has its GPUs: opportunistic ones that may not be beside it leave them.
    fn seat(&self, job: JobRef<'_>, seats: &mut Seats, view: &View<'_>, offer: &mut Offer<'_>) {
        let Some(place) = offer.plan(job.id()).map(|plan| plan.placement.clone()) else { return };
        for guest in seats.guests(&place) {
            let Some(guest) = view.job(guest) else { continue };
            let gone = offer.plan(guest.id()).is_none();
            if !gone && !self.may_join(guest, job) {
                offer.revoke(guest.id());
            }
            if (gone || offer.plan(guest.id()).is_none())
                && let Some(planned) = &guest.state.planned
            {
                seats.leave(guest.id(), &planned.placement);
            }
        }
        seats.sit(job.id(), &place, false);
    }

    fn may_join(&self, guest: JobRef<'_>, host: JobRef<'_>) -> bool {
        let tenants = self.settings.across_tenants || guest.spec.tenant == host.spec.tenant;
        tenants && !self.harmful.contains(&(host.spec.model, guest.spec.model))
    }

    /// Leads the limits of the opportunistic jobs that are beside guaranteed ones.
    fn lead(&mut self, seats: &mut Seats, view: &View<'_>, offer: &mut Offer<'_>) {
        let guests: Vec<JobRef<'_>> = view
            .granted()
            .filter(|job| job.state.planned.as_ref().is_some_and(|plan| plan.is_on_leftovers()))
            .collect();
        self.limits.retain(|job, _| view.state().granted.contains(*job));
        for guest in guests {
            let Some(plan) = offer.plan(guest.id()).cloned() else { continue };
            let hosts = seats.hosts(&plan.placement);
            let limit = self.limit(guest, &hosts, view);
            if let Some(limit) = &limit
                && limit.is_unbearable(&self.by)
            {
                self.part(guest, &hosts, view);
                offer.revoke(guest.id());
                offer.leave_idle();
                seats.leave(guest.id(), &plan.placement);
                continue;
            }
            if let Some(next) = limit.as_ref().and_then(|limit| limit.next) {
                offer.wake_at(next.max(Time(view.now.0 + 1)));
            }
            let most = limit.map(|limit| limit.permille).filter(|most| *most < 1000);
            if plan.knobs.compute_permille_max != most {
                let knobs = Knobs { compute_permille_max: most, ..plan.knobs };
                let gpu_memory_mib = plan.gpu_memory_mib;
                offer
                    .set_terms(guest.id(), Terms { share: Share::Leftover, knobs, gpu_memory_mib });
            }
        }
    }

    /// The limit of an opportunistic job beside some hosts; nothing if it is alone.
    fn limit(&mut self, guest: JobRef<'_>, hosts: &[JobId], view: &View<'_>) -> Option<Limit> {
        if hosts.is_empty() {
            self.limits.remove(&guest.id());
            return None;
        }
        let kept =
            hosts.iter().map(|host| kept(view.job(*host)?, view)).collect::<Option<Vec<_>>>();
        let kept = kept.and_then(|kept| kept.into_iter().min_by(f64::total_cmp));
        let known = self.limits.remove(&guest.id()).filter(|(beside, _)| beside == hosts);
        let mut limit = known.map_or_else(|| Limit::first(view.now, &self.by), |known| known.1);
        limit.look(kept, view.now, &self.by);
        self.limits.insert(guest.id(), (hosts.to_vec(), limit.clone()));
        Some(limit)
    }

    /// A job that harms its hosts even at the smallest limit is put elsewhere, and its model not beside theirs again.
    fn part(&mut self, guest: JobRef<'_>, hosts: &[JobId], view: &View<'_>) {
        let hosts = hosts.iter().filter_map(|host| view.job(*host));
        self.harmful.extend(hosts.map(|host| (host.spec.model, guest.spec.model)));
        self.limits.remove(&guest.id());
    }

    /// Opportunistic jobs in order of arrival, on idle GPUs first.
    fn opportunistic(&mut self, seats: &mut Seats, view: &View<'_>, offer: &mut Offer<'_>) {
        let mut jobs: Vec<JobRef<'_>> = view.waiting().filter(|job| self.is_guest(*job)).collect();
        jobs.sort_by_key(|job| (job.spec.submitted, job.id()));
        for job in jobs {
            let welcome = |host: JobId| {
                view.job(host)
                    .is_some_and(|host| self.may_join(job, host) && host.state.is_placed())
            };
            let wish = Wish {
                guests_max: usize::from(self.settings.guests_max),
                least_mib: self.least_memory(job),
                welcome: &welcome,
                yields: &|guest| self.yields(guest, view, offer),
                busy: &|host| self.busy(host, view),
            };
            let found = seats.find(job, (view, offer.free()), &wish);
            let Some(place) = found else {
                let (need, free) = (job.spec.want.gpus, offer.free().total());
                offer.note(
                    job.id(),
                    Reason::NoRoom { need, free: free.min(need.saturating_sub(1)) },
                );
                continue;
            };
            self.visit(job, place, seats, (view, offer));
        }
    }

    /// How busy a guaranteed job keeps its GPUs; nothing if it does so for too much of the time. The public code's
    /// candidates are GPUs that were used less than 80 % of late, the least used first.
    fn busy(&self, host: JobId, view: &View<'_>) -> Option<u16> {
        let known = view.job(host).and_then(|host| view.utilisation(host));
        match known {
            Some(part) if part > self.settings.busy_max => None,
            Some(part) => Some((part * 1000.0) as u16),
            None => Some(BUSY_UNKNOWN),
        }
    }

    /// An opportunistic job takes its GPUs, with the memory that it needs or else the least; others there spill for it.
    fn visit(
        &mut self,
        job: JobRef<'_>,
        place: Placement,
        seats: &mut Seats,
        (view, offer): (&View<'_>, &mut Offer<'_>),
    ) {
        let (need, least) = (job.spec.want.gpu_memory_mib, self.least_memory(job));
        let left = |offer: &Offer<'_>| {
            place.each_gpu().map(|gpu| offer.free().memory_left(gpu)).min().unwrap_or(0)
        };
        if left(offer) < least {
            self.squeeze(seats.guests(&place), view, offer);
        }
        let hosts = seats.hosts(&place);
        let memory = if left(offer) < need { least } else { need };
        let knobs = Knobs {
            compute_permille_max: (!hosts.is_empty()).then_some(self.by.floor),
            memory_mib_max: (memory < need).then_some(memory),
            ..Knobs::default()
        };
        let mut grant = Grant::gpus(job.id(), place.gpus()).share(Share::Leftover);
        grant.gpu_memory_mib = Some(memory);
        grant.knobs = Some(Box::new(knobs));
        grant.shape = Shape::Exact(place.clone());
        if offer.grant(&grant) != GrantOutcome::Taken {
            return;
        }
        seats.sit(job.id(), &place, true);
        if !hosts.is_empty() {
            let limit = Limit::first(view.now, &self.by);
            offer.wake_at(view.now + self.by.tick);
            self.limits.insert(job.id(), (hosts, limit));
        }
    }
}

/// Whether so many GPUs are free that a job leaves enough for those that gather theirs on the same types.
/// O(jobs that gather), of which there are no more than GPUs before nothing is left.
fn leaves_enough(job: JobRef<'_>, gathering: &[JobRef<'_>], free: &Free) -> bool {
    if gathering.is_empty() {
        return true;
    }
    let kinds = free.kinds();
    let of = |kind: &&GpuType| job.spec.want.accepts(**kind);
    let open: u32 = kinds.iter().filter(of).map(|kind| free.gpus(*kind)).sum();
    let meets =
        |other: &&JobRef<'_>| kinds.iter().filter(of).any(|kind| other.spec.want.accepts(*kind));
    let held: u32 = gathering.iter().filter(meets).map(|other| other.spec.want.gpus).sum();
    open >= held.saturating_add(job.spec.want.gpus)
}

/// The part of its speed alone that a guaranteed job keeps, by what it reports; nothing while it does not run.
fn kept(job: JobRef<'_>, view: &View<'_>) -> Option<f64> {
    let held = job.state.held.as_ref()?;
    let alone = view.rate(job, &held.config(view.cluster()))?.0;
    let rate = job.state.progress.rate.0;
    (rate > 0.0 && alone > 0.0).then(|| rate / alone)
}
