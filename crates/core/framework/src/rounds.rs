//! The front that optimisers implement, fractions of time, and the adaptor that realises them round by round.
//!
//! - `menu`: which ways to run are on offer; `blind`: how types are made to look alike.
//! - `table`: the ways to run and the answer, one fraction for each.
//! - `settings`: by which rules fractions become rounds.
//! - `ours`: our rules, credits in seconds.
//! - `gavel`, `shuffle`: the rules of Gavel's own simulator, and of its port in Sia's.
//! - `group`: from a choice to grants.
//! - `known`: the table of the last decision.
//! - `length`: how long a round is.
//! - `pop`: a large problem in parts; `only`: some types and no others.

mod blind;
mod gavel;
mod group;
mod known;
mod length;
mod menu;
mod only;
mod ours;
mod pop;
mod settings;
mod shuffle;
mod table;

pub use blind::{AsIf, Blind};
pub use length::Length;
pub use menu::{KnownRates, Menu, Pairs};
pub use only::Only;
pub use pop::Pop;
pub use settings::{Mechanism, RoundSettings};
pub use shuffle::Shuffler;
pub use table::{Choice, Cleaned, RateTable, Shares};

use crate::{Cx, Offer, Policy, PolicyError, View};
use gavel::Gavel;
use known::Known;
use ours::Ours;
use trainyard_types::{JobId, Quality, Reason, Span};

/// Fractions of time for each choice of a table. Lifted to a [`Policy`] by [`Rounds`].
pub trait TimeShare: Send {
    /// The ways to run among which it divides time. By default each job alone, at the size it asks for, on each type.
    fn table(&mut self, view: &View<'_>, offer: &Offer<'_>) -> RateTable {
        Menu::default().table(view, offer)
    }

    /// The fraction of time that each choice should be taken, out of the rates and the GPUs there are.
    ///
    /// The table is clean: rates are finite and not negative, and every job in it can run somehow. An error keeps
    /// the last shares: jobs that have none fill what is idle, in order of arrival, and the error is counted.
    fn shares(
        &mut self,
        table: &RateTable,
        view: &View<'_>,
        cx: &mut Cx,
    ) -> Result<Shares, PolicyError>;

    /// Whether its table is the same for the same jobs, GPUs and beliefs, so that it need not be made for each round.
    fn is_steady(&self) -> bool {
        true
    }

    /// Forgets everything.
    fn forget(&mut self) {}
}

/// Realises time shares round by round, by our rules or by Gavel's ([`RoundSettings`]).
///
/// O(c log c) for each round of c choices, without what the shares cost.
pub struct Rounds<S> {
    share: S,
    settings: RoundSettings,
    rules: Rules,
    known: Option<Known>,
    /// The jobs for which the length of a round was chosen.
    chosen_for: Vec<JobId>,
}

enum Rules {
    Ours(Ours),
    Gavel(Box<Gavel>),
}

impl Rules {
    fn new(settings: &RoundSettings) -> Rules {
        match settings.mechanism {
            Mechanism::Ours => Rules::Ours(Ours::default()),
            Mechanism::Gavel | Mechanism::Sia => Rules::Gavel(Box::new(Gavel::new(settings))),
        }
    }
}

impl<S: TimeShare> Rounds<S> {
    /// Rounds by settings.
    pub fn new(share: S, settings: RoundSettings) -> Rounds<S> {
        assert!(settings.round > Span::ZERO, "a round takes time");
        Rounds {
            share,
            rules: Rules::new(&settings),
            settings,
            known: None,
            chosen_for: Vec::new(),
        }
    }
}

impl<S: TimeShare> Policy for Rounds<S> {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let fresh = Known::update(&mut self.known, &mut self.share, (view, offer));
        let Some(Known { table, cleaned, .. }) = &self.known else { return Ok(()) };
        for job in cleaned.without.iter().chain(&cleaned.bad_rates) {
            offer.note(*job, Reason::NoSpeed);
        }
        if self.settings.auto && self.chosen_for != table.jobs {
            self.settings.round = length::best(table, view);
            self.chosen_for.clone_from(&table.jobs);
        }
        let mut ask = Asked { share: &mut self.share, view, cx };
        match &mut self.rules {
            Rules::Ours(rules) => rules.decide(&self.settings, (table, fresh), &mut ask, offer),
            Rules::Gavel(rules) => rules.decide(&self.settings, (table, fresh), &mut ask, offer),
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.share.forget();
        self.known = None;
        self.chosen_for.clear();
        self.rules = Rules::new(&self.settings);
    }
}

/// The optimiser to ask for shares, and at which moment.
struct Asked<'a, 'v> {
    share: &'a mut dyn TimeShare,
    view: &'a View<'v>,
    cx: &'a mut Cx,
}

impl Asked<'_, '_> {
    /// The shares for a table, each made a number from 0 to 1; nothing after an error, which is counted.
    fn shares(&mut self, table: &RateTable) -> Option<Shares> {
        let answer = self.share.shares(table, self.view, self.cx).and_then(|shares| {
            let (expected, found) = (table.choices.len(), shares.of.len());
            if expected == found {
                Ok(shares)
            } else {
                Err(PolicyError::WrongShares { expected, found })
            }
        });
        let Ok(mut shares) = answer else {
            self.cx.quality = Quality::Fallback;
            return None;
        };
        let fraction = |share: f64| if share > 0.0 { share.min(1.0) } else { 0.0 };
        for share in &mut shares.of {
            *share = fraction(*share);
        }
        let known = |choice: &Choice| {
            let kinds = choice.uses.iter().all(|(kind, _)| usize::from(*kind) < table.kinds.len());
            let jobs = choice.jobs.iter().all(|job| table.position(*job).is_some());
            let whole = !choice.jobs.is_empty() && choice.jobs.len() == choice.rates.len();
            kinds && jobs && whole && !choice.uses.is_empty() && choice.runs()
        };
        shares.more.retain(|(choice, _)| known(choice));
        for (_, share) in &mut shares.more {
            *share = fraction(*share);
        }
        Some(shares)
    }
}
