//! What goes on after the first bottleneck.
//!
//! When a level is the highest there is, the types of GPU that have a price are full, and stay full. A job that can
//! gain no more without them keeps what it has; the others rise on, up to the fastest rate they have in ways that touch
//! only types without a price. Each such stage adds at least one type to those that are full, so there are at most as
//! many stages as types. Jobs that meet their fastest rate on the way stop there, inside a stage: the path of needs
//! knows.
//!
//! This gives the throughputs of Gavel's water filling (OSDI 2020, section 4.3), which solves one linear problem and
//! one with whole numbers for each job or group of jobs that stops.

use super::hull::Ready;
use super::market::{Market, Summit, finish, partakers};
use super::path::Path;
use super::pool::{Fractions, Inside, Pool, Tenant};
use crate::{Limit, Status};
use std::ops::Range;

/// A job of a tenant.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Member {
    /// The number of its tenant.
    pub tenant: usize,
    /// Its weight among the tenant's jobs.
    pub weight: f64,
    /// The rate that it gains when the level rises by 1 and it has a weight of 1.
    pub part: f64,
}

/// Jobs that keep what they have keep it up to this part, so that rounding does not read as a full cluster.
const KEPT: f64 = 1.0 - 1e-10;
/// A type whose price is below this part of all prices is taken for free until a later stage says otherwise.
const PRICE_MIN: f64 = 1e-7;
/// A job that has this part of a rate has it.
const REACHED: f64 = 1.0 - 1e-9;

impl Market {
    /// Max-min fairness, then the same for those that can still gain, and so on: rates in ratio to parts, sorted, are
    /// as large as they can be from the lowest up.
    ///
    /// The level is that of the first bottleneck, as [`Market::max_min`] gives it.
    pub fn max_min_filled(&mut self, pool: &Pool, parts: &[f64], limit: &Limit) -> Fractions {
        let tenants: Vec<Tenant> =
            parts.iter().map(|_| Tenant { weight: 1.0, inside: Inside::Fairness }).collect();
        let member = |(tenant, &part): (usize, &f64)| Member { tenant, weight: 1.0, part };
        let members: Vec<Member> = parts.iter().enumerate().map(member).collect();
        self.water_fill(pool, &members, &tenants, limit)
    }

    /// Raises tenants by their weights, and inside each tenant its jobs by fairness or in their order, until no job can
    /// gain.
    ///
    /// The level is that at which the first type of GPU is full, or every job has its fastest rate.
    pub fn water_fill(
        &mut self,
        pool: &Pool,
        members: &[Member],
        tenants: &[Tenant],
        limit: &Limit,
    ) -> Fractions {
        let ready = Ready::new(pool);
        let gains = |member: &Member| gain(member, tenants);
        let (parts, left_out) = partakers(&ready, &members.iter().map(gains).collect::<Vec<_>>());
        let mut fill = Fill::new(&ready, members, &parts);
        let mut level = None;
        let mut steps = 0;
        loop {
            let slopes = fill.slopes(&ready, tenants);
            let left = Limit { steps: limit.steps.saturating_sub(steps), wall: limit.wall };
            let summit = self.climb(&ready, &slopes, &left);
            steps += summit.steps;
            level.get_or_insert(summit.level);
            let done = fill.freeze(&ready, &slopes, &summit);
            if done || steps >= limit.steps {
                let summit = Summit { steps, ..summit };
                let mut found = finish(pool, &ready, &slopes, summit, left_out);
                found.level = level.unwrap_or(0.0);
                if !done {
                    found.status = Status::Feasible { gap: 1.0 };
                }
                return found;
            }
        }
    }
}

/// What a job gains per level while it alone has its tenant's weight; 0 if a weight makes no sense.
fn gain(member: &Member, tenants: &[Tenant]) -> f64 {
    let weight = tenants.get(member.tenant).map_or(0.0, |tenant| tenant.weight);
    let sound = |value: f64| value.is_finite() && value > 0.0;
    if sound(weight) && sound(member.weight) && sound(member.part) { member.part } else { 0.0 }
}

/// What each job has so far.
struct Fill<'a> {
    members: &'a [Member],
    parts: &'a [f64],
    rates: Vec<f64>,
    /// The fastest rate in ways that touch no full type.
    fastest: Vec<f64>,
    kept: Vec<bool>,
    full: Vec<bool>,
}

impl<'a> Fill<'a> {
    fn new(ready: &Ready, members: &'a [Member], parts: &'a [f64]) -> Fill<'a> {
        Fill {
            members,
            parts,
            rates: vec![0.0; ready.jobs()],
            fastest: (0..ready.jobs()).map(|job| ready.fastest(job)).collect(),
            kept: parts.iter().map(|part| *part == 0.0).collect(),
            full: vec![false; ready.kinds],
        }
    }

    /// How the jobs rise from here.
    fn slopes(&self, ready: &Ready, tenants: &[Tenant]) -> Slopes {
        let mut rising: Vec<usize> = (0..ready.jobs()).filter(|job| !self.kept[*job]).collect();
        // Stable: the jobs of a tenant stay in their order.
        rising.sort_by_key(|job| self.members[*job].tenant);
        let riser = |job: usize| {
            let member = &self.members[job];
            let weight = match tenants[member.tenant].inside {
                Inside::Fairness => member.weight,
                Inside::Fifo => 1.0,
            };
            let pace = self.parts[job] * weight;
            let rise = (self.fastest[job] - self.rates[job]).max(0.0) / pace;
            Riser { job, pace, weight, rise }
        };
        let keep = |(rate, kept): (&f64, &bool)| if *kept { rate * KEPT } else { *rate };
        let mut slopes = Slopes {
            base: self.rates.iter().zip(&self.kept).map(keep).collect(),
            fastest: self.fastest.clone(),
            risers: rising.into_iter().map(riser).collect(),
            stops: Vec::with_capacity(ready.jobs()),
            speeds: Vec::with_capacity(ready.jobs()),
            groups: Vec::new(),
        };
        let mut from = 0;
        while from < slopes.risers.len() {
            let tenant = self.members[slopes.risers[from].job].tenant;
            let of_tenant = |riser: &Riser| self.members[riser.job].tenant == tenant;
            let to =
                from + slopes.risers[from..].iter().take_while(|riser| of_tenant(riser)).count();
            slopes.group(from..to, &tenants[tenant]);
            from = to;
        }
        slopes
    }

    /// Takes over the rates of a stage and decides which jobs keep them; says whether no job rises any more.
    fn freeze(&mut self, ready: &Ready, slopes: &Slopes, summit: &Summit) -> bool {
        let mut need = vec![0.0; ready.jobs()];
        let mut slope = need.clone();
        slopes.needs(summit.level, &mut need, &mut slope);
        for job in (0..need.len()).filter(|job| !self.kept[*job]) {
            self.rates[job] = need[job];
        }
        let at_ceiling = summit.level >= slopes.ceiling() * REACHED;
        self.fill_up(&summit.prices);
        for job in 0..need.len() {
            self.fastest[job] = ready.fastest_outside(job, &self.full);
            self.kept[job] |= at_ceiling || self.rates[job] >= self.fastest[job] * REACHED;
        }
        self.kept.iter().all(|kept| *kept)
    }

    /// Marks types with a price as full.
    fn fill_up(&mut self, prices: &[f64]) {
        let before = self.full.clone();
        for (full, price) in self.full.iter_mut().zip(prices) {
            *full |= *price > PRICE_MIN;
        }
        if before == self.full {
            // Rounding hid what is full: the dearest of the rest must be it.
            let rest = (0..self.full.len()).filter(|kind| !self.full[*kind]);
            let dearest = rest.max_by(|&a, &b| prices[a].total_cmp(&prices[b]).then(b.cmp(&a)));
            dearest.into_iter().for_each(|kind| self.full[kind] = true);
        }
    }
}

/// A job that rises with its tenant.
#[derive(Copy, Clone)]
struct Riser {
    job: usize,
    /// Rate gained for each unit of its tenant's own measure.
    pace: f64,
    weight: f64,
    /// The measure at which it has its fastest rate.
    rise: f64,
}

/// Needs that rise from a base, tenant by tenant.
struct Slopes {
    base: Vec<f64>,
    fastest: Vec<f64>,
    /// All jobs that rise, tenant by tenant.
    risers: Vec<Riser>,
    /// The level at which each riser stops, ascending in each group.
    stops: Vec<f64>,
    /// The tenant's weight over the weights of the risers of its group from this one on.
    speeds: Vec<f64>,
    groups: Vec<Group>,
}

/// The jobs of a tenant that rise together or one after the other: a range of all risers.
struct Group {
    inside: Inside,
    range: Range<usize>,
}

impl Slopes {
    /// Adds the next group, whose risers are there already.
    fn group(&mut self, range: Range<usize>, tenant: &Tenant) {
        let inside = tenant.inside;
        let risers = &mut self.risers[range.clone()];
        if inside == Inside::Fairness {
            risers.sort_by(|a, b| a.rise.total_cmp(&b.rise).then(a.job.cmp(&b.job)));
        }
        self.speeds.resize(range.end, tenant.weight);
        let speeds = &mut self.speeds[range.clone()];
        if inside == Inside::Fairness {
            let mut sum = 0.0;
            for (speed, riser) in speeds.iter_mut().zip(&*risers).rev() {
                sum += riser.weight;
                *speed = tenant.weight / sum;
            }
        }
        let (mut level, mut reached) = (0.0, 0.0);
        for (riser, speed) in risers.iter().zip(&*speeds) {
            level += match inside {
                Inside::Fairness => (riser.rise - reached) / speed,
                Inside::Fifo => riser.rise / speed,
            };
            reached = riser.rise;
            self.stops.push(level);
        }
        self.groups.push(Group { inside, range });
    }

    /// How far each riser of a group has come at a level, and how fast it goes on.
    fn reached(&self, group: &Group, level: f64, mut tell: impl FnMut(&Riser, f64, f64)) {
        let (risers, stops) = (&self.risers[group.range.clone()], &self.stops[group.range.clone()]);
        let speeds = &self.speeds[group.range.clone()];
        let at = stops.partition_point(|stop| *stop <= level);
        for riser in &risers[..at] {
            tell(riser, riser.rise, 0.0);
        }
        let Some(next) = risers.get(at) else { return };
        let started = if at == 0 { 0.0 } else { stops[at - 1] };
        let come = (level - started) * speeds[at];
        match group.inside {
            Inside::Fifo => tell(next, come, speeds[at]),
            Inside::Fairness => {
                let reached = if at == 0 { 0.0 } else { risers[at - 1].rise } + come;
                for riser in &risers[at..] {
                    tell(riser, reached.min(riser.rise), speeds[at]);
                }
            }
        }
    }
}

impl Path for Slopes {
    fn ceiling(&self) -> f64 {
        self.groups.iter().map(|group| self.stops[group.range.end - 1]).fold(0.0, f64::max)
    }

    fn needs(&self, level: f64, need: &mut [f64], slope: &mut [f64]) {
        need.copy_from_slice(&self.base);
        slope.fill(0.0);
        for group in &self.groups {
            self.reached(group, level, |riser, reached, speed| {
                let rate = self.base[riser.job] + riser.pace * reached;
                need[riser.job] = rate.min(self.fastest[riser.job]);
                slope[riser.job] = riser.pace * speed;
            });
        }
    }
}
