//! The front that optimisers implement, fractions of time, and the adaptor that realises them round by round.

mod blind;
mod menu;
mod table;

pub use blind::{AsIf, Blind};
pub use menu::{Menu, Pairs};
pub use table::{Choice, RateTable, Shares};

use crate::{Answer, Cx, JobRef, Offer, Policy, PolicyError, View, wanted};
use std::cmp::Reverse;
use trainyard_types::{GpuType, Shape, Span, Time};

/// Fractions of time for each choice of a table. Lifted to a [`Policy`] by [`Rounds`].
pub trait TimeShare: Send {
    /// The ways to run that it chooses among.
    fn table(&mut self, view: &View<'_>, offer: &Offer<'_>) -> RateTable {
        Menu::default().table(view, offer)
    }

    /// The fraction of time that each choice should be taken, out of the rates and the GPUs there are.
    fn shares(
        &mut self,
        table: &RateTable,
        view: &View<'_>,
        cx: &mut Cx,
    ) -> Result<Shares, PolicyError>;

    /// Forgets everything.
    fn forget(&mut self) {}
}

/// Realises time shares: at the start of each round those furthest behind their share run, type by type; whoever
/// comes within a round takes what is free. Shares are worked out anew when the set of jobs changed.
///
/// What a job received is read from its state, so that no memory can be lost. O(n k log n) for each round.
pub struct Rounds<S> {
    share: S,
    round: Span,
    /// The round of the last decision.
    current: Option<u64>,
    solved: Option<(RateTable, Shares)>,
}

impl<S: TimeShare> Rounds<S> {
    /// Rounds of a length.
    pub fn new(share: S, round: Span) -> Rounds<S> {
        assert!(round > Span::ZERO, "a round takes time");
        Rounds { share, round, current: None, solved: None }
    }

    fn solve(&mut self, table: RateTable, view: &View<'_>, cx: &mut Cx) -> Result<(), PolicyError> {
        if self.solved.as_ref().is_none_or(|(known, _)| *known != table) {
            let shares = self.share.shares(&table, view, cx)?;
            assert_eq!(shares.of.len(), table.choices.len(), "one share for each choice");
            self.solved = Some((table, shares));
        }
        Ok(())
    }

    /// All choices that can run, furthest behind first; those without a share come last, to fill what is idle.
    fn order(&self, view: &View<'_>) -> Vec<usize> {
        let Some((table, shares)) = &self.solved else { return Vec::new() };
        let mut all = Vec::new();
        for (index, choice) in table.choices.iter().enumerate() {
            let Some(job) = view.job(choice.jobs[0]) else { continue };
            if choice.rates.iter().any(|rate| *rate <= 0.0) {
                continue;
            }
            let share = shares.of[index];
            let received = received(job, table.kinds[choice.kind()], view, self.round);
            all.push((share / received, share, Reverse(job.id()), index));
        }
        all.sort_by(|a, b| {
            let by_need = b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1));
            by_need.then(b.2.cmp(&a.2)).then(a.3.cmp(&b.3))
        });
        all.into_iter().map(|(_, _, _, index)| index).collect()
    }
}

impl<S: TimeShare> Policy for Rounds<S> {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let table = self.share.table(view, offer);
        if table.jobs.is_empty() {
            return Ok(());
        }
        self.solve(table, view, cx)?;
        let round = view.now.0 / self.round.0;
        if self.current.replace(round) != Some(round) {
            offer.everything();
        }
        for index in self.order(view) {
            let Some((table, _)) = &self.solved else { continue };
            let choice = &table.choices[index];
            let id = choice.jobs[0];
            let Some(job) = view.job(id).filter(|_| offer.plan(id).is_none()) else { continue };
            let mut grant = wanted(job);
            if let Shape::Gpus { kind: of, .. } = &mut grant.shape {
                *of = Some(table.kinds[choice.kind()]);
            }
            if offer.grant(&grant) == Answer::Full {
                break;
            }
        }
        if view.waiting_len() > 0 {
            offer.wake_at(Time((round + 1).saturating_mul(self.round.0)));
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.share.forget();
        self.current = None;
        self.solved = None;
    }
}

/// The fraction of its time that a job spent on a type, as if it had begun with half a round.
fn received(job: JobRef<'_>, kind: GpuType, view: &View<'_>, round: Span) -> f64 {
    let on = job.state.time_on.iter().find(|(other, _)| *other == kind);
    let mut on = on.map_or(Span::ZERO, |(_, span)| *span);
    let held = job.state.held.as_ref().and_then(|held| held.placement.masks().first());
    if held.is_some_and(|(node, _)| view.cluster().node(*node).kind == kind) {
        on += view.now.since(job.state.since);
    }
    let half = round.as_secs_f64() / 2.0;
    let lived = view.now.since(job.spec.submitted).as_secs_f64();
    (on.as_secs_f64() + half) / (lived + round.as_secs_f64())
}
