//! Gavel as Sia's authors ported it into their own simulator (SOSP 2023; `sia-simulator/gavel.py` of its artifact), so
//! that their tables can be met.
//!
//! What differs from Gavel's own rules:
//! - Shares are worked out in every round, so that a new job has one at once; nothing waits for a reset.
//! - Times are counted from a job's first round on and never reset; who runs is charged the whole round, at its start.
//! - There are no deficits.
//! - The choices of all types stand in one queue: the highest priority of all goes first, on whatever type it is.

use super::{Asked, Gavel, RateTable, RoundSettings, take};
use crate::{Offer, View};
use std::cmp::Ordering;
use trainyard_types::{IdSet, JobId};

impl Gavel {
    /// Begins a round.
    pub(super) fn decide_as_sia(
        &mut self,
        settings: &RoundSettings,
        table: &RateTable,
        ask: &mut Asked<'_, '_>,
        offer: &mut Offer<'_>,
    ) {
        let view = ask.view;
        self.tasks.clear();
        let known = self.accounts.len();
        self.update(settings, table);
        if self.accounts.len() != known || self.changed {
            self.count_newcomers(settings);
        }
        let shares = if table.jobs.is_empty() { None } else { ask.shares(table) };
        self.take_shares(settings, table, shares);
        let picked = self.pick_across(settings, table, (view, offer));
        self.place(view.now.as_secs_f64(), table, picked, (view, offer));
        self.charge_rounds(settings);
        self.wake(settings, view, offer);
    }

    /// The time of a type grows by the half round that each newcomer begins with.
    fn count_newcomers(&mut self, settings: &RoundSettings) {
        let half = settings.round.as_secs_f64() / 2.0;
        for account in self.accounts.iter_mut().filter(|account| !account.counted) {
            account.counted = true;
            account.time = half;
            self.kind_time[account.choice.kind()] += half;
        }
    }

    /// Every job that was placed is charged the whole round.
    fn charge_rounds(&mut self, settings: &RoundSettings) {
        let round = settings.round.as_secs_f64();
        for task in &self.tasks {
            if let Ok(index) = self.accounts.binary_search_by(|one| one.key.cmp(&task.key)) {
                self.accounts[index].time += round;
            }
            self.kind_time[task.kind] += round;
        }
    }

    /// Which jobs run on which type, the highest priority of all types first. Indices of accounts by type.
    fn pick_across(
        &mut self,
        settings: &RoundSettings,
        table: &RateTable,
        (view, offer): (&View<'_>, &Offer<'_>),
    ) -> Vec<(usize, Vec<usize>)> {
        let mut left: Vec<u32> = table.kinds.iter().map(|kind| offer.free().gpus(*kind)).collect();
        let mut taken: IdSet<JobId> =
            view.granted().map(|job| job.id()).filter(|job| offer.plan(*job).is_some()).collect();
        let mut queue: Vec<([f64; 3], usize)> =
            (0..self.accounts.len()).map(|index| (self.precedence(index), index)).collect();
        // Of equals the type that is declared first, then the job that came first.
        queue.sort_by_key(|(_, index)| self.accounts[*index].choice.kind());
        queue.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal));
        let mut picked: Vec<(usize, Vec<usize>)> =
            (0..table.kinds.len()).map(|kind| (kind, Vec::new())).collect();
        for ([priority, ..], index) in queue {
            let choice = &self.accounts[index].choice;
            let wanted = settings.fill || priority > 0.0;
            if wanted && take(choice, &mut left, &mut taken) {
                picked[choice.kind()].1.push(index);
            }
        }
        picked
    }
}
