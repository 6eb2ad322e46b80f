//! What tenants received while they wanted more, beside what they were entitled to.

use serde::Serialize;
use trainyard_framework::State;
use trainyard_types::{Tenants, Time};

/// GPU time of one tenant over the moments at which one of its jobs waited.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
pub struct Backlogged {
    /// GPU-seconds that its jobs held.
    pub received: f64,
    /// GPU-seconds that its weight entitled it to.
    pub entitled: f64,
}

/// Received and entitled GPU time by tenant.
///
/// While some job of a tenant waits, the tenant is entitled to its part by weight of the GPUs that are left when those
/// who wait for nothing have what they hold, up to their own part. Weights count among the tenants that have jobs.
/// The queue is looked at once for each bucket of the series, not at every event.
pub(crate) struct Entitlement {
    tenants: Vec<Backlogged>,
    /// The part of each tenant by its weight and those above it, among all tenants.
    weights: Vec<f64>,
    gpus: f64,
    at: Time,
    bucket: u64,
    now: Vec<Moment>,
}

/// What a tenant has at a moment.
#[derive(Copy, Clone, Default)]
struct Moment {
    held: f64,
    waits: bool,
    is_active: bool,
}

impl Entitlement {
    pub(crate) fn new(tenants: &Tenants, gpus: u32, start: Time) -> Entitlement {
        Entitlement {
            tenants: vec![Backlogged::default(); tenants.len()],
            weights: weights(tenants),
            gpus: f64::from(gpus),
            at: start,
            bucket: u64::MAX,
            now: vec![Moment::default(); tenants.len()],
        }
    }

    /// Whether there is something to compare: one tenant alone is always treated alike.
    pub(crate) fn counts(&self) -> bool {
        self.tenants.len() > 1
    }

    /// Looks at the queue, if the bucket is a new one.
    pub(crate) fn look(&mut self, at: Time, bucket: u64, state: &State) {
        if bucket == self.bucket {
            return;
        }
        self.pass(at);
        self.bucket = bucket;
        // Tenants may come while a run goes on.
        if state.tenants.len() > self.tenants.len() {
            self.tenants.resize(state.tenants.len(), Backlogged::default());
            self.weights = weights(&state.tenants);
        }
        self.now.clear();
        self.now.resize(self.tenants.len(), Moment::default());
        for live in state.waiting.iter().filter_map(|job| state.live(job)) {
            let moment = &mut self.now[live.spec.tenant.index()];
            (moment.waits, moment.is_active) = (true, true);
        }
        for live in state.granted.iter().filter_map(|job| state.live(job)) {
            let moment = &mut self.now[live.spec.tenant.index()];
            let held = live.state.held.as_ref().map_or(0, |held| held.placement.gpus());
            (moment.held, moment.is_active) = (moment.held + f64::from(held), true);
        }
    }

    /// What came of it.
    pub(crate) fn finish(mut self, at: Time) -> Vec<Backlogged> {
        self.pass(at);
        self.tenants
    }

    /// Counts the time since the queue was last looked at.
    fn pass(&mut self, at: Time) {
        let seconds = at.since(self.at).as_secs_f64();
        self.at = at;
        let all = || self.now.iter().zip(&self.weights);
        let active: f64 = all().filter(|(one, _)| one.is_active).map(|(_, weight)| weight).sum();
        let waiting: f64 = all().filter(|(one, _)| one.waits).map(|(_, weight)| weight).sum();
        if waiting <= 0.0 {
            return;
        }
        let content = all().filter(|(one, _)| one.is_active && !one.waits);
        let taken: f64 =
            content.map(|(one, weight)| one.held.min(self.gpus * weight / active)).sum();
        for (index, moment) in self.now.iter().enumerate().filter(|(_, one)| one.waits) {
            let part = self.weights[index] / waiting;
            self.tenants[index].received += moment.held * seconds;
            self.tenants[index].entitled += (self.gpus - taken) * part * seconds;
        }
    }
}

/// The part of each tenant, along the tree of those above it.
fn weights(tenants: &Tenants) -> Vec<f64> {
    let siblings = |parent| tenants.iter().filter(move |(_, one)| one.parent == parent);
    let mut weights: Vec<f64> = Vec::with_capacity(tenants.len());
    for (_, tenant) in tenants.iter() {
        let whole: f64 = siblings(tenant.parent).map(|(_, one)| one.weight).sum();
        let above = tenant.parent.map_or(1.0, |parent| weights[parent.index()]);
        weights.push(if whole > 0.0 { above * tenant.weight / whole } else { 0.0 });
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::{Span, Tenant};

    fn two() -> Entitlement {
        let tenants = Tenants::new(vec![Tenant::named("a"), Tenant::named("b")]);
        Entitlement::new(&tenants, 8, Time::ZERO)
    }

    #[test]
    fn who_waits_is_entitled_to_what_the_content_leave() {
        let mut both = two();
        both.now[0] = Moment { held: 2.0, waits: false, is_active: true };
        both.now[1] = Moment { held: 3.0, waits: true, is_active: true };
        let came = both.finish(Time::ZERO + Span::secs(10));
        assert_eq!(came[0], Backlogged::default(), "it waits for nothing");
        assert_eq!(came[1], Backlogged { received: 30.0, entitled: 60.0 });
    }

    #[test]
    fn two_that_wait_are_entitled_to_half_each() {
        let mut both = two();
        both.now[0] = Moment { held: 7.0, waits: true, is_active: true };
        both.now[1] = Moment { held: 1.0, waits: true, is_active: true };
        let came = both.finish(Time::ZERO + Span::secs(1));
        assert_eq!((came[0].entitled, came[1].entitled), (4.0, 4.0));
        assert_eq!((came[0].received, came[1].received), (7.0, 1.0));
    }

    #[test]
    fn a_tenant_below_another_has_a_part_of_that_ones_part() {
        let mut list = vec![Tenant::named("a"), Tenant::named("b")];
        list.push(Tenant { parent: Some(trainyard_types::TenantId(0)), ..Tenant::named("c") });
        list[0].weight = 3.0;
        assert_eq!(weights(&Tenants::new(list)), [0.75, 0.25, 0.75]);
    }
}
