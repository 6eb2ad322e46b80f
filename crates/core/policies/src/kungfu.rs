//! KungFu: a job asks for GPUs as the noise of its gradients grows, and the cluster decides between such wishes.

mod resize;

use crate::prelude::*;
use crate::sizes::{Size, sizes};
use resize::resized;
use trainyard_profile::BatchLimits;
use trainyard_types::{Allocation, Config, Grant, Knobs, Shape};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "kungfu",
    about: "Jobs ask for GPUs as their gradient noise grows; wishes are met in order of arrival or by goodput.",
    paper: "Mai et al., KungFu, OSDI 2020",
    needs: Needs { rates: true, ..Needs::NOTHING },
    class: Taxonomy {
        elastic: true,
        heterogeneous: true,
        partial: "the choice of the all-reduce topology and of the kind of averaging",
        ..Taxonomy::rigid(Objective::Throughput, Family::Goodput).preemptive()
    },
    settings: &[
        (
            "arbitrate",
            "whose wish is met first: `goodput`, the largest relative gain for each GPU, or `arrival`",
        ),
        ("growth", "the largest factor by which a job may ask to grow at once"),
        ("every", "how often wishes are looked at, besides arrivals and ends"),
        (
            "resize_cost",
            "a change of size must be longer ago than so many times what a restart costs",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Copy, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Arbitrate {
    Goodput,
    Arrival,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    arbitrate: Arbitrate,
    growth: f64,
    every: Span,
    resize_cost: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            arbitrate: Arbitrate::Goodput,
            growth: 2.0,
            every: Span::secs(300),
            resize_cost: 10.0,
        }
    }
}

/// O(n s) for n jobs and s sizes to hear wishes, O(g log n) to hand out g GPUs.
struct KungFu {
    settings: Settings,
}

/// A job with whole GPUs and what it asks for.
struct Wish<'v> {
    job: JobRef<'v>,
    /// The types it can run on: the one it is on, then the others, fastest first.
    types: Vec<OnType>,
    /// Which of them it is on or shall be on.
    at: usize,
    /// What it has, and what it is to have.
    now: Option<u32>,
    then: u32,
    /// What it asks for.
    wants: u32,
    noise: Option<f64>,
    /// Whether it is left as it is.
    rests: bool,
    /// Whether it changes its size while it runs, so that a change of size costs nothing.
    live: bool,
}

/// A job on a type of GPU.
struct OnType {
    kind: GpuType,
    sizes: Vec<Size>,
    /// Samples on one GPU at the size it was asked for with.
    local: Option<f64>,
    /// Between which batches it may be led, if its user leaves that to others.
    limits: Option<BatchLimits>,
}

impl OnType {
    fn fastest(&self) -> f64 {
        self.sizes.iter().map(|size| size.rate).fold(0.0, f64::max)
    }

    /// The largest size within a number of GPUs; nothing if the least is above it.
    fn within(&self, gpus: u32) -> Option<u32> {
        self.sizes.iter().rev().map(|size| size.gpus).find(|size| *size <= gpus)
    }
}

impl Wish<'_> {
    fn on(&self) -> &OnType {
        &self.types[self.at]
    }

    /// Speed times the part of it that still teaches: a batch far above the noise teaches less for each sample.
    fn goodput_on(&self, on: &OnType, gpus: u32) -> f64 {
        let Some(size) = on.sizes.iter().find(|size| size.gpus == gpus) else { return 0.0 };
        let (Some(noise), Some(local)) = (self.noise, on.local) else { return size.rate };
        let first = local * f64::from(self.job.spec.want.gpus);
        size.rate * (noise + first) / (noise + (local * f64::from(gpus)).max(first))
    }

    fn goodput(&self, gpus: u32) -> f64 {
        self.goodput_on(self.on(), gpus)
    }

    fn next(&self) -> Option<u32> {
        let larger = self.on().sizes.iter().map(|size| size.gpus).find(|gpus| *gpus > self.then)?;
        (larger <= self.wants).then_some(larger)
    }

    /// The type it goes to: the one it is on as long as that has room for its least size, else the one on which it would
    /// do most with what is left there, as far as it asks for that.
    fn choose(&self, left: impl Fn(GpuType) -> u32) -> Option<usize> {
        let fits = |on: &OnType| on.within(left(on.kind)).is_some();
        if self.now.is_some() && fits(self.on()) {
            return Some(self.at);
        }
        let worth = |on: &OnType| {
            let most = on.within(left(on.kind).min(self.wants)).or(on.within(left(on.kind)))?;
            Some(self.goodput_on(on, most))
        };
        let known = self.types.iter().enumerate().filter_map(|(at, on)| Some((at, worth(on)?)));
        known.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0))).map(|(at, _)| at)
    }

    /// What one GPU more is worth, relative to what it has.
    fn gain(&self) -> Option<(f64, u32)> {
        let next = self.next()?;
        let (before, after) = (self.goodput(self.then), self.goodput(next));
        let gain = (after - before) / before / f64::from(next - self.then);
        (gain > 0.0 && gain.is_finite()).then_some((gain, next))
    }
}

/// How many GPUs a job asks for that was given `wanted` at first and has `now`: as many as carry a batch of the size of
/// its noise with `local` samples on each.
///
/// The job's own word counts before that. Below what it was asked for with, noise is no reason to shrink.
pub fn wish(
    (wanted, now): (u32, u32),
    (noise, local): (Option<f64>, Option<f64>),
    said: Option<u32>,
    growth: f64,
) -> u32 {
    let by_noise = match (noise, local) {
        (Some(noise), Some(local)) if noise > local * f64::from(now) => {
            (noise / local).min(f64::from(u32::MAX)) as u32
        }
        _ => now.max(wanted),
    };
    let most = (f64::from(now.max(1)) * growth).min(f64::from(u32::MAX)) as u32;
    said.unwrap_or(by_noise).min(most.max(wanted))
}

impl Policy for KungFu {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let mut wishes = self.wishes(view, offer);
        let shapes = &view.state().shapes;
        let mut left: Vec<u32> = shapes.iter().map(|(kind, _)| offer.free().gpus(*kind)).collect();
        let index =
            |kind: GpuType| shapes.iter().position(|(other, _)| *other == kind).unwrap_or(0);
        for wish in wishes.iter().filter(|wish| !wish.rests) {
            left[index(wish.on().kind)] += wish.now.unwrap_or(0);
        }
        self.least(&mut wishes, &mut left, index);
        self.more(&mut wishes, &mut left, index);
        settle(&wishes, view, offer);
        // A job that waits for ever is no reason to look again.
        if wishes.iter().any(|wish| wish.then > 0) {
            offer.wake_at(view.now + self.settings.every);
        }
        Ok(())
    }
}

impl KungFu {
    /// What every job asks for, in order of arrival.
    fn wishes<'v>(&self, view: &View<'v>, offer: &mut Offer<'_>) -> Vec<Wish<'v>> {
        let mut jobs: Vec<JobRef<'v>> = view.granted().chain(view.waiting()).collect();
        jobs.sort_by_key(|job| (job.spec.submitted, job.id()));
        let mut wishes = Vec::new();
        for job in jobs {
            if job.spec.want.permille < 1000 {
                if job.state.planned.is_none() {
                    offer.grant(&wanted(job));
                }
                continue;
            }
            match self.wish(job, view, offer.free()) {
                Some(wish) => wishes.push(wish),
                None if job.state.planned.is_some() => {}
                None => offer.note(job.id(), Reason::NoSpeed),
            }
        }
        wishes
    }

    fn wish<'v>(&self, job: JobRef<'v>, view: &View<'v>, free: &Free) -> Option<Wish<'v>> {
        let config = job.state.planned.as_ref().map(|plan| plan.config(view.cluster()));
        let now = config.as_ref().map(|config| config.gpus);
        let here = config.as_ref().and_then(|config| config.kind());
        let mut types: Vec<OnType> = (view.state().shapes.iter())
            .map(|shape| on_type(job, *shape, (view, free)))
            .filter(|on| !on.sizes.is_empty())
            .collect();
        types.sort_by(|a, b| {
            let moves = (here != Some(a.kind)).cmp(&(here != Some(b.kind)));
            moves.then(b.fastest().total_cmp(&a.fastest())).then(a.kind.cmp(&b.kind))
        });
        let first = types.first().filter(|on| here.is_none_or(|here| here == on.kind))?;
        let measured = job.state.measured.as_deref();
        let noise = measured.and_then(|measured| measured.noise).filter(|noise| *noise > 0.0);
        let held = now.unwrap_or(job.spec.want.gpus);
        let said = measured.and_then(|measured| measured.wants_gpus);
        let growth = self.settings.growth;
        let wants = wish((job.spec.want.gpus, held), (noise, first.local), said, growth);
        let live = config.as_ref().is_some_and(|config| resizes_live(job, config, view));
        let fresh = !live && self.is_fresh(job, view);
        let rests = now.is_some() && (!view.may_stop(job) || fresh);
        let then = now.unwrap_or(0);
        Some(Wish { job, types, at: 0, now, then, wants, noise, rests, live })
    }

    /// Whether the last start is so short ago that another change does not pay yet.
    fn is_fresh(&self, job: JobRef<'_>, view: &View<'_>) -> bool {
        let Some(config) = job.state.planned.as_ref().map(|plan| plan.config(view.cluster()))
        else {
            return false;
        };
        let cost = view.change(job, Some(&config), None).save
            + view.change(job, None, Some(&config)).start;
        let rest = cost.scaled(self.settings.resize_cost);
        job.state.last_start.is_some_and(|start| start + rest > view.now)
    }

    /// Gives every job its least size, in order of arrival.
    fn least(&self, wishes: &mut [Wish<'_>], left: &mut [u32], index: impl Fn(GpuType) -> usize) {
        for wish in wishes.iter_mut().filter(|wish| !wish.rests) {
            let Some(at) = wish.choose(|kind| left[index(kind)]) else {
                wish.then = 0;
                continue;
            };
            wish.at = at;
            wish.then = wish.on().sizes[0].gpus;
            left[index(wish.on().kind)] -= wish.then;
        }
    }

    /// Hands out what is left: to the job that came first up to its wish, or where it is worth most.
    fn more(&self, wishes: &mut [Wish<'_>], left: &mut [u32], index: impl Fn(GpuType) -> usize) {
        loop {
            let open = wishes.iter().enumerate().filter(|(_, wish)| !wish.rests && wish.then > 0);
            let fits = open.filter_map(|(place, wish)| {
                let (gain, next) = wish.gain()?;
                let room = next - wish.then <= left[index(wish.on().kind)];
                room.then_some((place, gain, next))
            });
            let chosen = match self.settings.arbitrate {
                Arbitrate::Arrival => fits.min_by_key(|(place, _, _)| *place),
                Arbitrate::Goodput => fits.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0))),
            };
            let Some((place, _, next)) = chosen else { return };
            let wish = &mut wishes[place];
            left[index(wish.on().kind)] -= next - wish.then;
            wish.then = next;
        }
    }
}

/// What a job is on a type of GPU.
fn on_type(job: JobRef<'_>, shape: (GpuType, u32), (view, free): (&View<'_>, &Free)) -> OnType {
    let kind = shape.0;
    let planned = job.state.planned.as_ref();
    let held = planned.map(|plan| plan.placement.gpus());
    let sizes = sizes(job, shape, free.in_service(kind).max(held.unwrap_or(0)), view);
    let limits = view.batch_limits(job, kind);
    let asked = job.spec.want.gpus;
    // A batch that was chosen is spread over what it has, the user's over what the user asked for.
    let tuned = planned.and_then(|plan| plan.knobs.batch).zip(held);
    let first = job.spec.want.batch.or(limits.map(|limits| limits.first)).or(job.state.batch);
    let own = first.map(|batch| (batch, asked));
    let spread = |(batch, gpus): (u32, u32)| f64::from(batch) / f64::from(gpus.max(1));
    let local = tuned.or(own).map(spread).filter(|local| *local > 0.0);
    OnType { kind, sizes, local, limits }
}

/// Whether a job changes its GPUs while it runs.
fn resizes_live(job: JobRef<'_>, config: &Config, view: &View<'_>) -> bool {
    view.change(job, Some(config), Some(config)).in_place
}

/// Offers what was decided: jobs that stop or start anew let go first, then those that resize live do so around the GPUs
/// they keep, those that shrink before those that grow; the others are placed, large ones first.
fn settle(wishes: &[Wish<'_>], view: &View<'_>, offer: &mut Offer<'_>) {
    let changes = |wish: &&Wish<'_>| !wish.rests && (wish.now != Some(wish.then) || wish.at != 0);
    let stays = |wish: &&Wish<'_>| wish.live && wish.at == 0 && wish.then > 0;
    let (mut live, mut others): (Vec<&Wish<'_>>, Vec<&Wish<'_>>) =
        wishes.iter().filter(changes).partition(stays);
    for wish in &others {
        offer.revoke(wish.job.id());
    }
    live.sort_by_key(|wish| (Some(wish.then) > wish.now, wish.job.id()));
    for wish in live {
        resize_live(wish, view, offer);
    }
    others.sort_by_key(|wish| (std::cmp::Reverse(wish.then), wish.job.id()));
    for wish in others {
        if wish.then == 0 {
            let (need, free) = (wish.job.spec.want.gpus_min, offer.free().total());
            offer.note(wish.job.id(), Reason::NoRoom { need, free });
            continue;
        }
        let mut sizes = wish.on().sizes.iter().rev().map(|size| size.gpus);
        let mut next = sizes.by_ref().find(|gpus| *gpus <= wish.then);
        while let Some(gpus) = next {
            if offer.grant(&grant(wish, gpus)) == GrantOutcome::Taken {
                break;
            }
            next = sizes.next();
        }
    }
}

/// Grants the size nearest to the one decided on that keeps GPUs of the job and, where it grows, makes it faster: GPUs on
/// one node more may not. It stays as it is where there is none.
fn resize_live(wish: &Wish<'_>, view: &View<'_>, offer: &mut Offer<'_>) {
    let (Some(held), Some(now)) = (&wish.job.state.planned, wish.now) else { return };
    let rate = |config: &Config| view.rate(wish.job, config).map_or(0.0, |rate| rate.0);
    let before = rate(&held.config(view.cluster()));
    let between = |gpus: &u32| (now.min(wish.then)..=now.max(wish.then)).contains(gpus);
    let sizes = wish.on().sizes.iter().rev().map(|size| size.gpus);
    for gpus in sizes.filter(between).filter(|gpus| *gpus != now) {
        if wish.then < now && gpus != wish.then {
            continue;
        }
        let want = &wish.job.spec.want;
        let Some(placement) = resized(&held.placement, gpus, want, offer.free()) else { continue };
        // A placement alone says nothing of shares, and what is believed of a job's speed depends on them.
        let whole = Allocation::whole(placement.clone());
        let faster = gpus < now || rate(&whole.config(view.cluster())) > before;
        let grant = Grant { shape: Shape::Exact(placement), ..grant(wish, gpus) };
        if faster && offer.grant(&grant) == GrantOutcome::Taken {
            return;
        }
    }
}

/// So many GPUs, with a batch that grows with them where the job leaves its batch to others.
fn grant(wish: &Wish<'_>, gpus: u32) -> Grant {
    let on = wish.on();
    let batch = on.limits.filter(|limits| limits.first <= limits.most).map(|limits| {
        let local = on.local.unwrap_or(f64::from(limits.first) / f64::from(gpus));
        (local * f64::from(gpus)).clamp(f64::from(limits.first), f64::from(limits.most)) as u32
    });
    let knobs = batch.map(|batch| Box::new(Knobs { batch: Some(batch), ..Knobs::default() }));
    Grant { knobs, ..Grant::gpus(wish.job.id(), gpus).of(on.kind) }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    if !(settings.growth > 1.0 && settings.growth.is_finite()) {
        return Err(ENTRY.bad_value("growth", settings.growth, "a factor above 1"));
    }
    if settings.every == Span::ZERO {
        return Err(ENTRY.bad_value("every", settings.every, "a length of time above 0"));
    }
    if !(settings.resize_cost >= 0.0 && settings.resize_cost.is_finite()) {
        return Err(ENTRY.bad_value("resize_cost", settings.resize_cost, "a number of 0 or more"));
    }
    Ok(Pipeline::new(KungFu { settings }, FewestNodes, ENTRY.needs))
}

#[cfg(test)]
mod tests {
    use super::wish;

    #[test]
    fn a_job_asks_for_more_only_when_its_noise_exceeds_its_batch() {
        // 32 samples on each of 4 GPUs: a batch of 128.
        let ask = |noise: f64| wish((4, 4), (Some(noise), Some(32.0)), None, 4.0);
        assert_eq!((ask(100.0), ask(128.0)), (4, 4));
        assert_eq!((ask(320.0), ask(1e9)), (10, 16));
    }

    #[test]
    fn nothing_known_keeps_the_size_and_the_word_of_the_job_counts_first() {
        assert_eq!(wish((4, 4), (None, None), None, 2.0), 4);
        assert_eq!(wish((4, 8), (Some(900.0), None), None, 2.0), 8);
        assert_eq!(wish((4, 4), (Some(1e6), Some(32.0)), Some(5), 2.0), 5);
        assert_eq!(wish((4, 1), (None, None), Some(64), 2.0), 4, "no faster than growth allows");
    }
}
