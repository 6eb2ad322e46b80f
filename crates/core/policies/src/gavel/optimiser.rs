//! A goal as a front of the framework: facts are gathered, the goal is solved, and a failure is bridged.

use super::ahead::Ahead;
use super::engine::{Engine, Unsolved};
use super::paired;
use super::problem::Problem;
use crate::prelude::*;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use trainyard_framework::{Choice, KnownRates, Menu, Pairs, RateTable, Shares, TimeShare};
use trainyard_types::Quality;

/// What shares are chosen for.
pub trait Goal: Send {
    /// One share for each choice of the table.
    fn solve(&mut self, problem: &Problem<'_>, engine: &mut Engine) -> Result<Vec<f64>, Unsolved>;

    /// The rate that each party needs at the level 1, for a goal that raises the least level: large problems of that form
    /// make their pairs themselves.
    fn needs(&self, _problem: &Problem<'_>) -> Option<Vec<f64>> {
        None
    }

    /// Whether it is of that form.
    fn raises_the_least(&self) -> bool {
        false
    }

    /// Whether rates make a difference to it.
    fn looks_at_rates(&self) -> bool {
        true
    }

    /// Forgets everything.
    fn forget(&mut self) {}
}

/// Works out shares for a goal. When the solver fails, known choices keep the shares they had, new jobs get what they
/// would have in a cluster of their own, and the decision says that it is a fallback.
pub struct Optimiser<G> {
    /// What for.
    pub goal: G,
    /// By what.
    pub engine: Engine,
    /// Out of what.
    pub menu: Menu,
    /// What makes room for jobs that are expected, if that is wanted.
    pub ahead: Option<Ahead>,
    /// The choices of the last answer that have a share, with it.
    last: Vec<(Key, f64)>,
    /// Speeds that were asked for before.
    rates: KnownRates,
}

/// The most jobs for which every two have a choice of their own.
const PAIRED_MAX: usize = 32;

/// What makes two choices of different tables the same one.
type Key = (SmallVec<[JobId; 2]>, SmallVec<[(u16, u32); 1]>, u16);

fn key(choice: &Choice) -> Key {
    (SmallVec::from_slice(&choice.jobs), SmallVec::from_slice(&choice.uses), choice.nodes_max)
}

impl<G: Goal> Optimiser<G> {
    /// One that has solved nothing yet.
    pub fn new(goal: G, engine: Engine, menu: Menu) -> Optimiser<G> {
        Optimiser {
            goal,
            engine,
            menu,
            ahead: None,
            last: Vec::new(),
            rates: KnownRates::default(),
        }
    }

    /// Whether there are too many jobs for a choice for every two of them, and a solver that needs none.
    fn makes_pairs(&self, view: &View<'_>) -> bool {
        let plain = Menu { pairs: self.menu.pairs, group_max: 2, ..Menu::default() };
        let jobs = view.waiting_len() + view.granted_len();
        self.engine.structured()
            && self.menu.pairs == Pairs::Gaining
            && Menu { group_max: 2, ..self.menu } == plain
            && self.menu.group_max <= 2
            && self.ahead.is_none()
            && jobs > PAIRED_MAX
            && self.goal.raises_the_least()
    }

    /// Shares for a problem, and how good they are.
    pub fn answer(&mut self, problem: &Problem<'_>) -> (Vec<f64>, Quality) {
        let solved = match problem.is_empty() {
            true => Ok(vec![0.0; problem.table.choices.len()]),
            false => self.goal.solve(problem, &mut self.engine),
        };
        match solved {
            Ok(shares) if shares.iter().all(|share| share.is_finite()) => {
                let shares: Vec<f64> = shares.iter().map(|share| share.clamp(0.0, 1.0)).collect();
                let known = problem.table.choices.iter().zip(&shares);
                let known = known.filter(|(_, share)| **share > 0.0);
                self.last = known.map(|(choice, share)| (key(choice), *share)).collect();
                let quality = if problem.mended { Quality::Fallback } else { Quality::Proven };
                (shares, quality)
            }
            Ok(_) | Err(_) => (self.bridge(problem), Quality::Fallback),
        }
    }

    /// The shares of the last answer, and for jobs that were not in it their isolated ones.
    fn bridge(&self, problem: &Problem<'_>) -> Vec<f64> {
        let choices = &problem.table.choices;
        let last: BTreeMap<&Key, f64> =
            self.last.iter().map(|(key, share)| (key, *share)).collect();
        let mut shares: Vec<f64> =
            choices.iter().map(|choice| last.get(&key(choice)).copied().unwrap_or(0.0)).collect();
        for party in problem.all() {
            if problem.rate(party, &shares) <= 0.0 {
                for (choice, share) in problem.isolated(party) {
                    shares[choice] = share;
                }
            }
        }
        shrink(problem, &mut shares);
        shares
    }
}

/// Makes shares legal: no type has more than its GPUs.
pub fn shrink(problem: &Problem<'_>, shares: &mut [f64]) {
    let mut used = vec![0.0; problem.table.capacity.len()];
    for (choice, share) in problem.table.choices.iter().zip(shares.iter()) {
        for (kind, gpus) in &choice.uses {
            used[usize::from(*kind)] += share * f64::from(*gpus);
        }
    }
    let fits = |kind: usize| {
        let gpus = f64::from(problem.table.capacity[kind]);
        if used[kind] > gpus { gpus / used[kind] } else { 1.0 }
    };
    for (choice, share) in problem.table.choices.iter().zip(shares) {
        let part = choice.uses.iter().map(|(kind, _)| fits(usize::from(*kind)));
        *share *= part.fold(1.0, f64::min);
    }
}

impl<G: Goal> TimeShare for Optimiser<G> {
    fn table(&mut self, view: &View<'_>, offer: &Offer<'_>) -> RateTable {
        let pairs = if self.makes_pairs(view) { Pairs::None } else { self.menu.pairs };
        Menu { pairs, ..self.menu }.table_by(&mut self.rates, view, offer)
    }

    fn shares(
        &mut self,
        table: &RateTable,
        view: &View<'_>,
        cx: &mut Cx,
    ) -> Result<Shares, PolicyError> {
        let problem = Problem::seen(table, view);
        if self.makes_pairs(view)
            && let Some(needs) = self.goal.needs(&problem)
            && let Some(shares) = paired::max_min(&problem, &needs, view)
        {
            cx.quality = if problem.mended { Quality::Fallback } else { Quality::Proven };
            return Ok(shares);
        }
        let (mut shares, quality) = self.answer(&problem);
        if let Some(ahead) = &mut self.ahead {
            ahead.observe(table, view);
            shares = ahead.improved(&problem, view, shares, &mut self.engine);
        }
        cx.quality = quality;
        Ok(Shares::from(shares))
    }

    fn forget(&mut self) {
        self.goal.forget();
        self.engine.forget();
        self.ahead.iter_mut().for_each(Ahead::forget);
        self.last.clear();
        self.rates = KnownRates::default();
    }
}
