//! Dally: a job waits a while for GPUs near each other, as long as such waits usually take; those hurt most by links
//! come first.

pub mod timers;

use crate::prelude::*;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use timers::{Timers, Variant};
use trainyard_framework::Knowledge;
use trainyard_types::{Config, Rate, Tier};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "dally",
    about: "A job declines GPUs that are far apart until it has waited as long as nearer ones usually take; the jobs that links hurt most come first.",
    paper: "Sharma et al., GPU Cluster Scheduling for Network-Sensitive Deep Learning, arXiv 2401.16492",
    needs: Needs { rates: true, topology: true, ..Needs::NOTHING },
    class: Taxonomy::rigid(Objective::CompletionTime, Family::LeastServed)
        .preemptive()
        .by_setting("told sizes under `variant=expected`")
        .partial("constants, rounds and the order of jobs are readings of the abstract"),
    settings: &[
        (
            "variant",
            "`auto`: timers follow the waits seen; `manual`: as set; `no-wait`: none; `consolidated`: without end; `expected`: wait while that is shorter than what nearer GPUs save",
        ),
        ("node_wait", "how long a job waits for one node where too few waits were seen"),
        ("rack_wait", "how long it waits for one rack, counted from the same moment"),
        ("window", "how many waits for each size and tier are remembered"),
        ("round", "how often running jobs are compared with waiting ones and with better places"),
        ("margin", "by how much more a job must be hurt than one that is stopped for it"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Clone, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    variant: Variant,
    node_wait: Span,
    rack_wait: Span,
    window: u16,
    round: Span,
    #[serde(deserialize_with = "crate::place::part")]
    margin: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            variant: Variant::Auto,
            node_wait: Span::secs(600),
            rack_wait: Span::secs(1800),
            window: 16,
            round: Span::secs(300),
            margin: 0.2,
        }
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    if settings.round == Span::ZERO {
        return Err(ENTRY.bad_value("round", settings.round, "a length of time above 0"));
    }
    if settings.window == 0 {
        return Err(ENTRY.bad_value("window", settings.window, "at least 1"));
    }
    if settings.rack_wait < settings.node_wait {
        let expected = "at least `node_wait`, as both are counted from the same moment";
        return Err(ENTRY.bad_value("rack_wait", settings.rack_wait, expected));
    }
    let mut needs = ENTRY.needs;
    if settings.variant == Variant::Expected {
        needs.work_left = Knowledge::Estimate;
    }
    let waits = (settings.node_wait, settings.rack_wait);
    let timers = Timers::new(settings.variant, waits, usize::from(settings.window));
    let policy = Dally { settings, timers, next_round: None };
    Ok(Pipeline::new(policy, FewestNodes, needs))
}

/// A decision is linear in the jobs, and sorts those that wait and, once a round, those that run.
struct Dally {
    settings: Settings,
    timers: Timers,
    next_round: Option<Time>,
}

/// A job with how much links have hurt it.
#[derive(Copy, Clone)]
struct Hurt<'a> {
    job: JobRef<'a>,
    /// The time that its work would have taken in the nearest place over the time that it took; 1 where nothing is known.
    part: f64,
}

impl Policy for Dally {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let mut waiting: Vec<Hurt<'_>> = view.waiting().map(|job| hurt(job, view)).collect();
        waiting.sort_by(most_hurt_first);
        let is_round = self.next_round.is_none_or(|at| at <= view.now);
        let mut wake: Option<Time> = None;
        for one in &waiting {
            let next = self.offer_to(*one, view, offer, is_round);
            wake = [wake, next].into_iter().flatten().min();
        }
        if is_round {
            self.bring_nearer(view, offer);
            self.next_round = Some(view.now + self.settings.round);
        }
        if view.granted_len() + waiting.len() > 0 {
            wake = [wake, self.next_round].into_iter().flatten().min();
        }
        if let Some(at) = wake.filter(|at| *at > view.now) {
            offer.wake_at(at);
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.timers.forget();
        self.next_round = None;
    }
}

impl Dally {
    /// Offers a waiting job what it accepts by now. When it accepts more, if it got nothing.
    fn offer_to(
        &mut self,
        one: Hurt<'_>,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        is_round: bool,
    ) -> Option<Time> {
        let (job, gpus) = (one.job, one.job.spec.want.gpus);
        let nearest = nearest_tier(job, view);
        let waited = view.now.since(job.state.queued_at);
        let saved = |tier: Tier| saved_beyond(job, view, tier);
        let accepted = self.timers.accepts((gpus, nearest), waited, saved);
        let grant = wanted(job).within(accepted);
        let mut answer = offer.grant(&grant);
        if answer != GrantOutcome::Taken && is_round {
            // At a round the jobs that links hurt least give way, the least hurt first.
            let margin = self.settings.margin;
            let mut less: Vec<Hurt<'_>> = view
                .granted()
                .map(|other| hurt(other, view))
                .filter(|other| other.part > one.part + margin)
                .collect();
            less.sort_by(|a, b| most_hurt_first(b, a));
            if !less.is_empty() {
                answer = offer.instead(&grant, &mut less.into_iter().map(|other| other.job.id()));
            }
        }
        if answer == GrantOutcome::Taken {
            let place = offer.plan(job.id()).map(|plan| plan.placement.config(view.cluster()).tier);
            self.timers.took((gpus, place.unwrap_or(nearest)), waited);
            return None;
        }
        let until = self.timers.next((gpus, nearest), waited, saved)?;
        Some(job.state.queued_at + until)
    }

    /// Running jobs that links hurt move nearer together where there is room, the most hurt first.
    fn bring_nearer(&mut self, view: &View<'_>, offer: &mut Offer<'_>) {
        let mut running: Vec<Hurt<'_>> = view
            .granted()
            .filter(|job| view.may_stop(*job) && job.state.held.is_some())
            .map(|job| hurt(job, view))
            .filter(|one| one.part < 1.0 - self.settings.margin)
            .collect();
        running.sort_by(most_hurt_first);
        for one in running {
            let nearest = nearest_tier(one.job, view);
            let Some(plan) = offer.plan(one.job.id()) else { continue };
            let here = Config { permille: 1000, ..plan.placement.config(view.cluster()) };
            if here.tier > nearest && self.is_worth_a_move(one.job, view, (&here, nearest)) {
                offer.grant(&wanted(one.job).within(nearest));
            }
        }
    }

    /// Whether within a round a job does more in the nearest place than here, its move included.
    fn is_worth_a_move(
        &self,
        job: JobRef<'_>,
        view: &View<'_>,
        (here, nearest): (&Config, Tier),
    ) -> bool {
        let there = at_tier(here, nearest);
        let (Some(Rate(now)), Some(Rate(then))) = (view.rate(job, here), view.rate(job, &there))
        else {
            return false;
        };
        let cost =
            view.change(job, Some(here), None).save + view.change(job, None, Some(&there)).start;
        let round = self.settings.round.as_secs_f64();
        then * (round - cost.as_secs_f64()) > now * round
    }
}

fn most_hurt_first(a: &Hurt<'_>, b: &Hurt<'_>) -> Ordering {
    a.part
        .total_cmp(&b.part)
        .then(a.job.spec.submitted.cmp(&b.job.spec.submitted))
        .then(a.job.id().cmp(&b.job.id()))
}

/// The network sensitivity of section 4: the time that the work would have taken without loss over the time it took.
fn hurt<'a>(job: JobRef<'a>, view: &View<'_>) -> Hurt<'a> {
    let ran = match job.state.held {
        Some(_) => job.state.ran + view.now.since(job.state.since),
        None => job.state.ran,
    };
    let done = job.state.progress.done_at(view.now);
    let part = match view.reference_rate(job) {
        Some(Rate(rate)) if rate > 0.0 && ran > Span::ZERO => {
            (done.0 / rate / ran.as_secs_f64()).min(1.0)
        }
        _ => 1.0,
    };
    Hurt { job, part }
}

/// The nearest that the GPUs of a job can ever be: in one node, in one rack, or anywhere.
fn nearest_tier(job: JobRef<'_>, view: &View<'_>) -> Tier {
    let want = &job.spec.want;
    let nodes = view.cluster().nodes.iter().filter(|node| want.accepts(node.kind));
    let mut racks: BTreeMap<(GpuType, u16), u32> = BTreeMap::new();
    let mut largest = 0;
    for node in nodes {
        largest = largest.max(u32::from(node.gpus));
        *racks.entry((node.kind, node.rack)).or_default() += u32::from(node.gpus);
    }
    match want.gpus {
        1 => Tier::Gpu,
        gpus if gpus <= largest => Tier::Node,
        gpus if racks.values().any(|there| *there >= gpus) => Tier::Rack,
        _ => Tier::Core,
    }
}

/// A configuration as it would be in another tier.
fn at_tier(config: &Config, tier: Tier) -> Config {
    let mut other = config.clone();
    other.tier = tier;
    if tier <= Tier::Node {
        other.nodes = 1;
        other.shape = smallvec::smallvec![config.gpus as u16];
    }
    other.racks = if tier == Tier::Core { config.racks.max(2) } else { 1 };
    other
}

/// The time that a job saves in a tier against the next one beyond it, if its size is told.
fn saved_beyond(job: JobRef<'_>, view: &View<'_>, tier: Tier) -> Option<Span> {
    let left = view.work_left(job)?;
    let kind = view.state().shapes.iter().find(|(kind, _)| job.spec.want.accepts(*kind))?;
    let packed = Config::packed(kind.0, job.spec.want.gpus, kind.1);
    let beyond = if tier <= Tier::Node { Tier::Rack } else { Tier::Core };
    let mut far = at_tier(&packed, beyond);
    if tier <= Tier::Node {
        (far.nodes, far.shape) =
            (2, smallvec::smallvec![packed.gpus.div_ceil(2) as u16, (packed.gpus / 2) as u16]);
    }
    let near = view.rate(job, &at_tier(&packed, tier))?.time_for(left);
    let far = view.rate(job, &far)?.time_for(left);
    Some(far.minus(near))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_can_be_thought_of_in_another_tier() {
        let far = Config { racks: 2, tier: Tier::Core, ..Config::packed(GpuType(0), 16, 8) };
        let near = at_tier(&far, Tier::Rack);
        assert_eq!((near.racks, near.nodes, near.tier), (1, 2, Tier::Rack));
        let node = at_tier(&Config::packed(GpuType(0), 8, 4), Tier::Node);
        assert_eq!((node.nodes, node.shape.len()), (1, 1));
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        for (text, expected) in [
            ("round=0s", "above 0"),
            ("window=0", "at least 1"),
            ("rack_wait=1s", "at least `node_wait`"),
        ] {
            let raw = RawSettings::parse([text]).unwrap();
            let error = build(&raw).err().expect("refused").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
