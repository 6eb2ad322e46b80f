//! How long a lease is, and how long best effort keeps what it was given, where both are chosen (`lease=auto`).
//!
//! Both lengths are those of [`Length::of`], each for its own jobs on the GPUs that these share: restarts against late
//! turns. A lease cuts every deadline down to a multiple of itself, so that it is also no longer than a quarter of what
//! the tighter deadlines leave to spare. It becomes longer only where all that is promised can still be kept.

use super::book::{Facts, PromiseState};
use super::{Chronus, Moment};
use crate::prelude::*;
use trainyard_framework::Length;
use trainyard_solver::leases::{Piece, pack};

/// The shortest lease that is chosen; the others are its doublings.
const SHORTEST: Span = Span::secs(60);

impl Chronus {
    /// Whether lengths are chosen.
    pub(super) fn chooses(&self) -> bool {
        self.settings.lease == Length::Auto
    }

    /// Whether a moment is in another turn of best effort than the one before it was.
    pub(super) fn enters_turn(&mut self, now: Time) -> bool {
        let turn = now.0 / self.turn_length.0;
        self.turn.replace(turn) != Some(turn)
    }

    /// Chooses the length of the lease that begins now.
    pub(super) fn choose_lease(&mut self, moment: &Moment<'_, '_>) {
        let now = moment.view.now;
        let promised = |one: &&Facts<'_>| match self.book.get(one.id()) {
            Some(record) => record.standing == PromiseState::Promised,
            None => !one.job.spec.value.is_empty(),
        };
        let jobs: Vec<&Facts<'_>> = moment.facts.iter().filter(promised).collect();
        if !self.chooses() || jobs.is_empty() {
            return;
        }
        let gpus = f64::from(moment.capacity);
        let length = Length::of(jobs.iter().map(|one| one.job), gpus, moment.view);
        let length = length.min(doubling_below(Span(spare(&jobs, now).0 / 4)));
        let grows = length > self.settings.present;
        // In the middle of a longer lease there is no whole one to begin.
        if grows && (!now.0.is_multiple_of(length.0) || !self.keeps_promises(length, moment)) {
            return;
        }
        self.settings.present = length;
        self.lease = Some(now.0 / length.0);
    }

    /// Chooses how long best effort keeps what it is given now, on what no lease needs.
    pub(super) fn choose_turn(&mut self, moment: &Moment<'_, '_>) {
        let is_held = |one: &&Facts<'_>| self.book.get(one.id()).is_some_and(|it| it.holds);
        let held: u32 = moment.facts.iter().filter(is_held).map(|one| one.gpus).sum();
        let without = |one: &&Facts<'_>| {
            let record = self.book.get(one.id());
            record.is_some_and(|record| record.standing != PromiseState::Promised)
        };
        let mut jobs = moment.facts.iter().filter(without).map(|one| one.job).peekable();
        if !self.chooses() || jobs.peek().is_none() {
            return;
        }
        let gpus = f64::from(moment.capacity.saturating_sub(held));
        self.turn_length = Length::of(jobs, gpus, moment.view);
        self.turn = Some(moment.view.now.0 / self.turn_length.0);
    }

    /// Whether all that is promised can be packed into leases of a length.
    fn keeps_promises(&self, length: Span, moment: &Moment<'_, '_>) -> bool {
        let current = moment.view.now.0 / length.0;
        let piece = |one: &Facts<'_>| {
            let record = self.book.get(one.id())?;
            let planned = record.standing == PromiseState::Promised && record.is_planned;
            let before = (record.steps[record.step].0.0 / length.0).saturating_sub(current);
            let leases = one.rest.0.div_ceil(length.0).max(1);
            let [leases, before] = [leases, before].map(|all| all.min(u64::from(u32::MAX)) as u32);
            planned.then_some(Piece { gpus: one.gpus, leases, before })
        };
        moment.kinds.iter().all(|&(kind, gpus)| {
            let own = moment.facts.iter().filter(|one| one.kind == Some(kind));
            let pieces: Vec<Option<Piece>> = own.filter_map(piece).map(Some).collect();
            let can_wait = pieces.iter().flatten().all(|piece| piece.leases <= piece.before);
            can_wait && pack(&pieces, &[gpus]).is_ok()
        })
    }
}

/// What three of four deadlines leave to spare at least.
fn spare(jobs: &[&Facts<'_>], now: Time) -> Span {
    let spare = |one: &&Facts<'_>| {
        let last = one.job.spec.value.last().map_or(Time::NEVER, |step| step.0);
        last.since(now + one.rest)
    };
    let mut all: Vec<Span> = jobs.iter().map(spare).collect();
    all.sort_unstable();
    all[all.len() / 4]
}

/// The longest doubling of the shortest lease that is not above a length, or the shortest lease.
fn doubling_below(length: Span) -> Span {
    let times = (length.0 / SHORTEST.0).max(1);
    SHORTEST.times(1 << times.ilog2())
}
