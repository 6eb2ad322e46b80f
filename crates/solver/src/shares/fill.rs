//! What goes on after the first bottleneck.
//!
//! When a level is the highest there is, the types of GPU that have a price are full, and stay full. Whoever can gain no
//! more without them keeps what it has; the others rise on, up to the fastest rate they have in ways that touch only
//! types without a price. Each such stage adds at least one type to those that are full, so there are at most as many
//! stages as types. Jobs that meet their fastest rate on the way stop there, inside a stage: the path of needs knows.
//!
//! This gives the throughputs of Gavel's water filling (OSDI 2020, section 4.3), which solves one linear problem and
//! one with whole numbers for each job or group of jobs that stops.

use super::hull::Ready;
use super::market::{Market, Summit, finish, partakers};
use super::path::Path;
use super::pool::{Fractions, Inside, Pool, Tenant};
use crate::{Limit, Status};

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

/// Those who keep what they have keep it up to this part, so that rounding does not read as a full cluster.
const KEPT: f64 = 1.0 - 1e-10;
/// A type whose price is below this part of all prices is taken for free until a later stage says otherwise.
const PRICE_MIN: f64 = 1e-7;
/// A job that has this part of a rate has it.
const REACHED: f64 = 1.0 - 1e-9;

impl Market {
    /// Max-min fairness, then the same for those who can still gain, and so on: rates in ratio to parts, sorted, are as
    /// large as they can be from the lowest up.
    ///
    /// The level is that of the first bottleneck, as [`Market::max_min`] gives it.
    pub fn max_min_filled(&mut self, pool: &Pool, parts: &[f64], limit: &Limit) -> Fractions {
        let tenants: Vec<Tenant> =
            parts.iter().map(|_| Tenant { weight: 1.0, inside: Inside::Fairness }).collect();
        let member = |(tenant, &part): (usize, &f64)| Member { tenant, weight: 1.0, part };
        let members: Vec<Member> = parts.iter().enumerate().map(member).collect();
        self.water_fill(pool, &members, &tenants, limit)
    }

    /// Raises tenants by their weights, and inside each tenant its jobs by fairness or in their order, until nobody can
    /// gain.
    ///
    /// The level is that at which the first type of GPU is full, or everybody has its fastest rate.
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

/// Who has what so far.
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
        let mut risers: Vec<Vec<Riser>> = vec![Vec::new(); tenants.len()];
        for job in (0..ready.jobs()).filter(|job| !self.kept[*job]) {
            let member = &self.members[job];
            let tenant = &tenants[member.tenant];
            let weight = match tenant.inside {
                Inside::Fairness => member.weight,
                Inside::Fifo => 1.0,
            };
            let pace = self.parts[job] * weight;
            let rise = (self.fastest[job] - self.rates[job]).max(0.0) / pace;
            risers[member.tenant].push(Riser { job, pace, weight, rise });
        }
        let groups = risers.into_iter().zip(tenants).filter(|(risers, _)| !risers.is_empty());
        let keep = |(rate, kept): (&f64, &bool)| if *kept { rate * KEPT } else { *rate };
        Slopes {
            base: self.rates.iter().zip(&self.kept).map(keep).collect(),
            fastest: self.fastest.clone(),
            groups: groups.map(|(risers, tenant)| Group::new(risers, tenant)).collect(),
        }
    }

    /// Takes over the rates of a stage and decides who keeps them; says whether nobody rises any more.
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

/// The jobs of a tenant that rise together or one after the other.
struct Group {
    inside: Inside,
    risers: Vec<Riser>,
    /// The level at which each riser stops, ascending.
    stops: Vec<f64>,
    /// The tenant's weight over the weights of risers from this one on.
    speeds: Vec<f64>,
}

impl Group {
    fn new(mut risers: Vec<Riser>, tenant: &Tenant) -> Group {
        let inside = tenant.inside;
        if inside == Inside::Fairness {
            risers.sort_by(|a, b| a.rise.total_cmp(&b.rise).then(a.job.cmp(&b.job)));
        }
        let mut speeds = vec![tenant.weight; risers.len()];
        if inside == Inside::Fairness {
            let mut sum = 0.0;
            for (speed, riser) in speeds.iter_mut().zip(&risers).rev() {
                sum += riser.weight;
                *speed = tenant.weight / sum;
            }
        }
        let mut stops = Vec::with_capacity(risers.len());
        let (mut level, mut reached) = (0.0, 0.0);
        for (riser, speed) in risers.iter().zip(&speeds) {
            level += match inside {
                Inside::Fairness => (riser.rise - reached) / speed,
                Inside::Fifo => riser.rise / speed,
            };
            reached = riser.rise;
            stops.push(level);
        }
        Group { inside, risers, stops, speeds }
    }

    /// How far each riser has come at a level, and how fast it goes on.
    fn reached(&self, level: f64, mut tell: impl FnMut(&Riser, f64, f64)) {
        let at = self.stops.partition_point(|stop| *stop <= level);
        for riser in &self.risers[..at] {
            tell(riser, riser.rise, 0.0);
        }
        let Some(next) = self.risers.get(at) else { return };
        let started = if at == 0 { 0.0 } else { self.stops[at - 1] };
        let come = (level - started) * self.speeds[at];
        match self.inside {
            Inside::Fifo => tell(next, come, self.speeds[at]),
            Inside::Fairness => {
                let reached = if at == 0 { 0.0 } else { self.risers[at - 1].rise } + come;
                for riser in &self.risers[at..] {
                    tell(riser, reached.min(riser.rise), self.speeds[at]);
                }
            }
        }
    }
}

/// Needs that rise from a base, tenant by tenant.
struct Slopes {
    base: Vec<f64>,
    fastest: Vec<f64>,
    groups: Vec<Group>,
}

impl Path for Slopes {
    fn ceiling(&self) -> f64 {
        self.groups.iter().filter_map(|group| group.stops.last().copied()).fold(0.0, f64::max)
    }

    fn needs(&self, level: f64, need: &mut [f64], slope: &mut [f64]) {
        need.copy_from_slice(&self.base);
        slope.fill(0.0);
        for group in &self.groups {
            group.reached(level, |riser, reached, speed| {
                let rate = self.base[riser.job] + riser.pace * reached;
                need[riser.job] = rate.min(self.fastest[riser.job]);
                slope[riser.job] = riser.pace * speed;
            });
        }
    }
}
