//! Sizes by what one more GPU is worth: what AFS and Optimus stand on.
//!
//! A [`Ladder`] says what a job gets from each number of GPUs of a type, and which step up is the best. A
//! [`Contest`] holds all jobs whose size may be chosen and the GPUs that there are for them; it is asked for steps one
//! by one, and at last turned into grants.

use crate::prelude::*;
use crate::turns::could_hold;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::sync::Arc;
use trainyard_types::{Config, Grant, Shape, Want};

/// What a job gets from GPUs of one type, by their number. Never falls: a job that is slower on more GPUs leaves them
/// idle.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ladder {
    /// The type.
    pub kind: GpuType,
    least: u32,
    worth: Arc<[f64]>,
    /// From each size, how many GPUs more bring most for each.
    steps: Arc<[u32]>,
    /// The largest size that brings more than the one before.
    peak: u32,
    /// Whether each GPU brings at most what the one before does.
    is_concave: bool,
    /// What makes all sizes but one worth less.
    charge: Option<Charge>,
}

/// What a change of size costs a job: all sizes but the one that it has are worth what they come to with the time of it.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Charge {
    /// The size that it has on this type; 0 for none.
    pub held: u32,
    /// Work that is left.
    pub left: f64,
    /// The time of a change.
    pub seconds: f64,
}

impl Charge {
    /// What a size comes to whose speed is given.
    fn worth(&self, gpus: u32, rate: f64) -> f64 {
        if gpus == self.held { rate } else { self.left / (self.left / rate + self.seconds) }
    }
}

/// By how much a step may exceed the one before, of what it leads to, and still count as equal: what rounding makes of
/// points on a line.
const ROUNDING: f64 = 1e-12;

impl Ladder {
    /// From the worth of each size, that of `first` first. It begins at the first size with a worth; sizes without
    /// one are never stepped on. Nothing if there is none.
    pub fn new(
        kind: GpuType,
        first: u32,
        sizes: impl Iterator<Item = Option<f64>>,
    ) -> Option<Ladder> {
        let mut sizes = sizes.map(|worth| worth.filter(|worth| worth.is_finite()));
        let skipped = sizes.by_ref().enumerate().find_map(|(at, worth)| Some((at, worth?)));
        let (skipped, mut best) = skipped?;
        let mut worth = vec![best];
        worth.extend(sizes.map(|worth| {
            best = best.max(worth.unwrap_or(best));
            best
        }));
        Some(Ladder::of(kind, first + skipped as u32, worth))
    }

    fn of(kind: GpuType, least: u32, worth: Vec<f64>) -> Ladder {
        let steps = best_steps(&worth).into();
        let is_concave =
            worth.windows(3).all(|of| of[2] - of[1] <= of[1] - of[0] + ROUNDING * of[2].abs());
        let rises = worth.windows(2).rposition(|of| of[1] > of[0]).map_or(0, |at| at as u32 + 1);
        let peak = least + rises;
        Ladder { kind, least, worth: worth.into(), steps, peak, is_concave, charge: None }
    }

    /// The same sizes with the price of a change in the worth of each but the one that is held.
    ///
    /// Of a concave ladder it takes no time: a concave and rising function of what is concave is so too, and one point
    /// above it changes only the steps to it and from it ([`Ladder::next`]).
    pub fn charged(&self, charge: Charge) -> Ladder {
        match self.is_concave {
            true => Ladder { charge: Some(charge), ..self.clone() },
            false => {
                self.revalued(|gpus, rate| charge.worth(gpus, rate)).unwrap_or_else(|| self.clone())
            }
        }
    }

    /// The same sizes with another worth for each, from the worth so far. As always it never falls.
    pub fn revalued(&self, worth: impl Fn(u32, f64) -> f64) -> Option<Ladder> {
        let sizes = (self.least..).zip(&*self.worth).map(|(size, old)| Some(worth(size, *old)));
        Ladder::new(self.kind, self.least, sizes)
    }

    /// One size alone.
    pub fn only(kind: GpuType, size: u32, worth: f64) -> Ladder {
        Ladder::of(kind, size, vec![worth])
    }

    /// The least size.
    pub fn least(&self) -> u32 {
        self.least
    }

    /// What a size is worth; nothing is worth nothing.
    pub fn at(&self, gpus: u32) -> f64 {
        let plain = self.plain(gpus);
        let is_size = gpus >= self.least && plain.is_finite();
        let Some(charge) = self.charge.filter(|_| is_size) else { return plain };
        let worth = charge.worth(gpus, plain);
        // It never falls, though the size that is held stands out.
        let stands_out = (self.least..gpus).contains(&charge.held);
        if stands_out { worth.max(self.plain(charge.held)) } else { worth }
    }

    /// The same without the price of a change.
    fn plain(&self, gpus: u32) -> f64 {
        match gpus.checked_sub(self.least) {
            Some(step) => self.worth.get(step as usize).copied().unwrap_or(f64::NEG_INFINITY),
            None => 0.0,
        }
    }

    /// The best step of a charged ladder. Below the size that is held it is the next GPU or all up to that size; from
    /// there on steps bring more and more up to where the ladder is past its dent, and less and less after it.
    fn next_charged(&self, gpus: u32, room: u32, charge: Charge) -> Option<u32> {
        let last = self.least + (self.worth.len() as u32 - 1);
        let most = gpus.saturating_add(room).min(last);
        let here = self.at(gpus);
        let slope = |to: u32| (self.at(to) - here) / f64::from(to - gpus);
        let mut best: Option<(u32, f64)> = None;
        for to in gpus + 1..=most {
            // Between the next one and the one that is held none is the best.
            if gpus < charge.held && to != gpus + 1 && to != charge.held {
                continue;
            }
            let slope = slope(to);
            match best {
                Some((_, most)) if slope > most => best = Some((to, slope)),
                Some(_) if gpus >= charge.held => break,
                Some(_) => {}
                None if slope > 0.0 => best = Some((to, slope)),
                None => {}
            }
            if to == charge.held {
                break;
            }
        }
        best.map(|(size, _)| size)
    }

    /// From a size, the larger one that brings most for each GPU more, the smallest of equals, with at most `room`
    /// GPUs more. From nothing it is the least size. Where each GPU brings less than the one before, that is one more.
    pub fn next(&self, gpus: u32, room: u32) -> Option<u32> {
        if gpus < self.least {
            return (self.least <= room).then_some(self.least);
        }
        if let Some(charge) = self.charge {
            return self.next_charged(gpus, room, charge);
        }
        // The best of all steps is the best of those for which there is room, if there is room for it.
        let best = self.steps.get((gpus - self.least) as usize).copied().unwrap_or(0);
        if best <= room {
            return (best > 0).then_some(gpus + best);
        }
        let here = self.at(gpus);
        let mut best: Option<(u32, f64)> = None;
        let most = self.least as u64 + self.worth.len() as u64;
        for size in gpus + 1..=(u64::from(gpus) + u64::from(room)).min(most - 1) as u32 {
            let slope = (self.at(size) - here) / f64::from(size - gpus);
            if slope > 0.0 && best.is_none_or(|(_, other)| slope > other) {
                best = Some((size, slope));
            }
        }
        best.map(|(size, _)| size)
    }

    /// One more GPU, if it brings anything: a size that brings nothing is never passed.
    pub fn next_one(&self, gpus: u32, room: u32) -> Option<u32> {
        let next = (gpus + 1).max(self.least);
        (next - gpus <= room && self.at(next) > self.at(gpus)).then_some(next)
    }
}

/// From each place of a rising list the step, in places, that brings most for each, the shortest of equals; 0 where none
/// brings anything. From the right, what a step may lead to is the upper hull of what comes after, so that all steps
/// together are linear.
fn best_steps(worth: &[f64]) -> Vec<u32> {
    let mut steps = vec![0; worth.len()];
    let mut hull: Vec<usize> = Vec::new();
    for from in (0..worth.len()).rev() {
        let slope = |to: usize| (worth[to] - worth[from]) / (to - from) as f64;
        while let [.., further, nearer] = hull[..]
            && slope(further) > slope(nearer)
        {
            hull.pop();
        }
        if let Some(to) = hull.last().filter(|to| slope(**to) > 0.0) {
            steps[from] = (to - from) as u32;
        }
        hull.push(from);
    }
    steps
}

/// A job whose size is being chosen.
pub(crate) struct Player<'v> {
    /// The job.
    pub job: JobRef<'v>,
    /// Its types, best first.
    pub ladders: SmallVec<[Ladder; 1]>,
    /// The type and the number of GPUs that it has by the present plan.
    pub held: Option<(GpuType, u32)>,
    /// The type it is chosen for: an index into its ladders.
    pub on: usize,
    /// Its size so far; 0 is none.
    pub size: u32,
}

impl Player<'_> {
    /// The ladder of the type it is chosen for.
    pub fn ladder(&self) -> &Ladder {
        &self.ladders[self.on]
    }

    /// What its size is worth.
    pub fn worth(&self) -> f64 {
        self.ladder().at(self.size)
    }

    fn is_kept(&self) -> bool {
        self.held == Some((self.ladder().kind, self.size))
    }
}

/// All jobs whose size may be chosen, by id, and the GPUs for them.
pub(crate) struct Contest<'v> {
    /// The jobs.
    pub players: Vec<Player<'v>>,
    room: Vec<u32>,
    parts: Vec<JobRef<'v>>,
}

/// All jobs that wait or hold a grant.
pub(crate) fn all_jobs<'v>(view: &View<'v>) -> Vec<JobRef<'v>> {
    view.waiting().chain(view.granted()).collect()
}

/// The sizes a job may have on a type with so many GPUs; none if it cannot be there.
pub(crate) fn sizes(want: &Want, most: u32) -> std::ops::RangeInclusive<u32> {
    want.gpus_min.max(1)..=want.gpus_max.min(most)
}

/// A job on some GPUs of a type, as close together as can be.
pub(crate) fn packed(job: JobRef<'_>, (kind, per_node): (GpuType, u32), gpus: u32) -> Config {
    let mut config = Config::packed(kind, gpus, per_node);
    config.permille = job.spec.want.permille;
    config
}

impl<'v> Contest<'v> {
    /// Those of the jobs that may be resized, with the ladders that `ladder` finds on each type that could hold them.
    ///
    /// A job that has no ladder anywhere is told so and left out. A job that may not be stopped keeps what it has.
    /// A job that runs stays on its type; others begin where they are worth most at their least size.
    pub fn new(
        view: &View<'v>,
        offer: &mut Offer<'_>,
        mut jobs: Vec<JobRef<'v>>,
        mut ladder: impl FnMut(JobRef<'v>, (GpuType, u32), u32) -> Option<Ladder>,
    ) -> Contest<'v> {
        let shapes = &view.state().shapes;
        let kinds = shapes.iter().map(|(kind, _)| kind.index() + 1).max().unwrap_or(0);
        let mut room = vec![0; kinds];
        shapes.iter().for_each(|(kind, _)| room[kind.index()] = offer.free().gpus(*kind));
        let (mut players, mut parts) = (Vec::new(), Vec::new());
        jobs.sort_unstable_by_key(JobRef::id);
        for job in jobs {
            let held = job.state.planned.as_ref().and_then(|planned| {
                let (node, _) = planned.placement.masks().first()?;
                Some((view.cluster().node(*node).kind, planned.placement.gpus()))
            });
            if job.spec.want.permille < 1000 {
                parts.push(job);
                continue;
            }
            if held.is_some() && !view.may_stop(job) {
                continue;
            }
            if let Some((kind, gpus)) = held {
                room[kind.index()] += gpus;
            }
            let mut ladders: SmallVec<[Ladder; 1]> = SmallVec::new();
            let want = &job.spec.want;
            let least = match want.gpus == want.gpus_min {
                true => want,
                false => &Want { gpus: want.gpus_min, ..want.clone() },
            };
            for &shape in shapes {
                let there = offer.free().in_service(shape.0);
                let holds = could_hold(least, shape.0, view, offer.free());
                if holds && let Some(found) = ladder(job, shape, there) {
                    ladders.push(found);
                }
            }
            if ladders.is_empty() {
                offer.note(job.id(), why_nowhere(job, view, offer.free()));
                continue;
            }
            let stays = |one: &Ladder| held.is_some_and(|(kind, _)| kind == one.kind);
            ladders.sort_by(|a, b| {
                let best = b.at(b.least()).total_cmp(&a.at(a.least()));
                stays(b).cmp(&stays(a)).then(best).then(a.kind.cmp(&b.kind))
            });
            players.push(Player { job, ladders, held, on: 0, size: 0 });
        }
        Contest { players, room, parts }
    }

    /// GPUs that are left for a player on the type it is chosen for.
    pub fn room(&self, player: usize) -> u32 {
        self.room[self.players[player].ladder().kind.index()]
    }

    /// Chooses the first of its types with room for its least size, if it has no GPU yet. False if there is none.
    pub fn enter(&mut self, player: usize) -> bool {
        let one = &mut self.players[player];
        if one.size > 0 {
            return true;
        }
        let room = &self.room;
        let fits = |ladder: &Ladder| ladder.next(0, room[ladder.kind.index()]).is_some();
        match one.ladders.iter().position(fits) {
            Some(on) => one.on = on,
            None => return false,
        }
        true
    }

    /// Raises a player to a size.
    pub fn raise(&mut self, player: usize, size: u32) {
        let one = &mut self.players[player];
        self.room[one.ladders[one.on].kind.index()] -= size - one.size;
        one.size = size;
    }

    /// Gives every player its least size on the best of its types where it is known that AFS serves all of them. False,
    /// and nothing is given, where that is not known.
    pub fn serve_all(&mut self) -> bool {
        if !self.can_have_peaks() && !self.newcomers_win() {
            return false;
        }
        for at in 0..self.players.len() {
            self.players[at].on = 0;
            self.raise(at, self.players[at].ladder().least());
        }
        true
    }

    /// Whether there are as many GPUs of each type as all players together could make use of: then no rule leaves one
    /// without.
    fn can_have_peaks(&self) -> bool {
        self.has_room(|ladder| ladder.peak)
    }

    /// Whether every player without a GPU wins against any that has some, and there is one for each. So it is where all
    /// begin with one and none is twice as fast on two: what the first GPU brings is then more than what any other does,
    /// and of two sides of a match between players the one with such a player in it has one for its winner.
    fn newcomers_win(&self) -> bool {
        let is_below_double = |ladder: &Ladder| {
            let (one, two) = (ladder.at(1), ladder.at(2));
            ladder.least == 1 && ladder.is_concave && two <= one * (2.0 - 1e-9)
        };
        let alike = |player: &Player<'_>| match &player.ladders[..] {
            [ladder] => is_below_double(ladder),
            _ => false,
        };
        self.players.iter().all(alike) && self.has_room(|_| 1)
    }

    /// Whether so many GPUs for each ladder of each player are there.
    fn has_room(&self, gpus: impl Fn(&Ladder) -> u32) -> bool {
        let mut room = self.room.clone();
        self.players.iter().flat_map(|player| &player.ladders).all(|ladder| {
            let there = &mut room[ladder.kind.index()];
            let left = there.checked_sub(gpus(ladder));
            left.map(|left| *there = left).is_some()
        })
    }

    /// Leaves every job that was given GPUs with its least size, so that the rest can be given out once more.
    pub fn shrink_to_least(&mut self) {
        for one in self.players.iter_mut().filter(|one| one.size > 0) {
            let ladder = &one.ladders[one.on];
            self.room[ladder.kind.index()] += one.size - ladder.least();
            one.size = ladder.least();
        }
    }

    /// Turns sizes into grants. A job that keeps type and size stays where it is, the others are placed anew in the
    /// order of `first`, and what is then left goes to jobs that have nothing, at their least size.
    pub fn settle<K: Ord>(
        mut self,
        offer: &mut Offer<'_>,
        first: impl Fn(&Player<'_>) -> K,
    ) -> GrantOutcome {
        self.players.retain(|player| !player.is_kept());
        for player in self.players.iter().filter(|player| player.held.is_some()) {
            offer.revoke(player.job.id());
        }
        for job in &self.parts {
            if offer.plan(job.id()).is_none() {
                offer.grant(&wanted(*job));
            }
        }
        self.players.sort_by_key(|player| (first(player), player.job.id()));
        let (chosen, rest): (Vec<_>, Vec<_>) =
            self.players.into_iter().partition(|player| player.size > 0);
        let mut without = Vec::new();
        for player in chosen {
            if !grant_up_to(offer, &player) {
                without.push(player);
            }
        }
        let mut answer = GrantOutcome::Taken;
        for player in without.iter().chain(&rest) {
            answer = grant_least(offer, player);
        }
        answer
    }
}

/// Why a job has no ladder.
fn why_nowhere(job: JobRef<'_>, view: &View<'_>, free: &Free) -> Reason {
    let want = &job.spec.want;
    let acceptable = view.state().shapes.iter().filter(|(kind, _)| want.accepts(*kind));
    let most = acceptable.map(|(kind, _)| free.in_service(*kind)).max().unwrap_or(0);
    let most = most.min(want.gpus_max);
    if most < want.gpus_min {
        return Reason::NeverFits { need: want.gpus_min, most };
    }
    Reason::NoSpeed
}

/// The size that was chosen, or the largest of its halves that there is room for.
fn grant_up_to(offer: &mut Offer<'_>, player: &Player<'_>) -> bool {
    let mut size = player.size;
    loop {
        if offer.grant(&sized(player, size)) == GrantOutcome::Taken {
            return true;
        }
        if size == player.ladder().least() {
            return false;
        }
        size = (size / 2).max(player.ladder().least());
    }
}

/// The least size on whichever type has room for it.
fn grant_least(offer: &mut Offer<'_>, player: &Player<'_>) -> GrantOutcome {
    let mut answer = GrantOutcome::NoRoom;
    for ladder in &player.ladders {
        if offer.free().gpus(ladder.kind) < ladder.least() && answer != GrantOutcome::Taken {
            continue;
        }
        let mut grant = sized(player, ladder.least());
        if let Shape::Gpus { kind, .. } = &mut grant.shape {
            *kind = Some(ladder.kind);
        }
        answer = offer.grant(&grant);
        if answer == GrantOutcome::Taken {
            return answer;
        }
    }
    let need = player.ladder().least();
    offer.note(player.job.id(), Reason::NoRoom { need, free: offer.free().total() });
    answer
}

fn sized(player: &Player<'_>, gpus: u32) -> Grant {
    let mut grant = wanted(player.job);
    if let Shape::Gpus { count, kind, .. } = &mut grant.shape {
        (*count, *kind) = (gpus, Some(player.ladder().kind));
    }
    grant
}

/// Large gangs first, which are the hardest to place.
pub(crate) fn largest_first(player: &Player<'_>) -> Reverse<u32> {
    Reverse(player.size)
}

/// Seconds that a job loses when it is given other GPUs than those it has; 0 for one that can change in place.
pub(crate) fn change_seconds(job: JobRef<'_>, view: &View<'_>) -> f64 {
    let Some(planned) = &job.state.planned else { return 0.0 };
    let config = planned.config(view.cluster());
    let cost = view.change(job, Some(&config), Some(&config));
    if cost.in_place { 0.0 } else { (cost.save + cost.start).as_secs_f64() }
}
