//! An optimiser that is not told how fast jobs run where: what it would do if all types were alike.

use super::{RateTable, Shares, TimeShare};
use crate::{Cx, Offer, PolicyError, View};
use std::collections::BTreeMap;
use trainyard_types::{GpuType, JobId};

/// What a blind optimiser takes for the speed of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AsIf {
    /// One unit of work a second, of every job on every type.
    One,
    /// Its speed on the fastest type, on every type: for objectives in which work left counts.
    Fastest,
    /// Its speed on the type of this name; on the fastest where it cannot run there.
    Type(String),
}

/// Hides from an optimiser that types differ. Where a job cannot run stays hidden too if `zeros` says so, as in the
/// authors' own blind policies; otherwise such choices keep the rate 0.
pub struct Blind<S> {
    /// The optimiser from which speeds are hidden.
    pub inner: S,
    /// What it is told instead.
    pub as_if: AsIf,
    /// Whether it is told so even where a job cannot run.
    pub zeros: bool,
}

impl<S> Blind<S> {
    /// The table as it is told; `reference` is the type whose speed stands for all.
    pub fn hide(&self, table: &RateTable, reference: Option<GpuType>) -> RateTable {
        let reference = table.kinds.iter().position(|kind| Some(*kind) == reference);
        let mut alone: BTreeMap<(JobId, usize), f64> = BTreeMap::new();
        let mut fastest: BTreeMap<JobId, f64> = BTreeMap::new();
        for choice in table.choices.iter().filter(|choice| choice.jobs.len() == 1) {
            let rate = choice.rates[0];
            let known = alone.entry((choice.jobs[0], choice.kind())).or_insert(0.0);
            *known = known.max(rate);
            let best = fastest.entry(choice.jobs[0]).or_insert(0.0);
            *best = best.max(rate);
        }
        let mut hidden = table.clone();
        for choice in &mut hidden.choices {
            let (kind, shared) = (choice.kind(), choice.jobs.len() > 1);
            for (job, rate) in choice.jobs.iter().zip(&mut choice.rates) {
                let at_best = fastest.get(job).copied().unwrap_or(0.0);
                let there = reference.and_then(|kind| alone.get(&(*job, kind)).copied());
                let told = match self.as_if {
                    AsIf::One => 1.0,
                    AsIf::Fastest => at_best,
                    AsIf::Type(_) => there.filter(|rate| *rate > 0.0).unwrap_or(at_best),
                };
                // Beside others it keeps the part of its speed that it really keeps.
                let whole = alone.get(&(*job, kind)).copied().unwrap_or(0.0);
                let part = if shared && whole > 0.0 { *rate / whole } else { 1.0 };
                if *rate > 0.0 || (self.zeros && !shared) {
                    *rate = told * part;
                }
            }
        }
        hidden
    }
}

impl<S: TimeShare> TimeShare for Blind<S> {
    fn table(&mut self, view: &View<'_>, offer: &Offer<'_>) -> RateTable {
        self.inner.table(view, offer)
    }

    fn shares(
        &mut self,
        table: &RateTable,
        view: &View<'_>,
        cx: &mut Cx,
    ) -> Result<Shares, PolicyError> {
        let reference = match &self.as_if {
            AsIf::Type(name) => view.cluster().kind(name),
            AsIf::One | AsIf::Fastest => None,
        };
        let hidden = self.hide(table, reference);
        self.inner.shares(&hidden, view, cx)
    }

    fn forget(&mut self) {
        self.inner.forget();
    }
}

impl TimeShare for Box<dyn TimeShare> {
    fn table(&mut self, view: &View<'_>, offer: &Offer<'_>) -> RateTable {
        self.as_mut().table(view, offer)
    }

    fn shares(
        &mut self,
        table: &RateTable,
        view: &View<'_>,
        cx: &mut Cx,
    ) -> Result<Shares, PolicyError> {
        self.as_mut().shares(table, view, cx)
    }

    fn forget(&mut self) {
        self.as_mut().forget();
    }
}
