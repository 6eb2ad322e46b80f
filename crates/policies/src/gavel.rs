//! Gavel (OSDI 2020): time on each type of GPU as the answer to an optimisation, one objective in each file.
//!
//! - [`problem`][]: what an objective is worked out from.
//! - [`frame`][], [`level`][]: the rows that all models share, and the models that several objectives share.
//! - [`engine`][], [`pooled`][], [`nash`][]: which solver works.
//! - [`optimiser`][]: an objective as a front of the framework, and what happens when the solver fails.
//! - the other modules: one objective each, with its entry.
//!
//! A [`Goal`] is lifted in three steps: an [`Optimiser`] gathers facts and bridges failures, `Blind` may hide that types
//! differ, `Rounds` realises the shares.

pub mod cost;
pub mod engine;
pub mod finish_time;
pub mod frame;
pub mod hierarchy;
pub mod isolated;
pub mod level;
pub mod makespan;
pub mod max_min;
pub mod nash;
pub mod optimiser;
pub mod pooled;
pub mod problem;
pub mod proof;
pub mod proportional;
pub mod shortest;
pub mod throughput;

use crate::prelude::*;
use engine::{Engine, Method};
use optimiser::{Goal, Optimiser};
use trainyard_framework::{
    AsIf, Blind, Level, Mechanism, Menu, Pairs, RoundSettings, Rounds, TimeShare,
};

/// What all objectives must know: how fast jobs are where, and how much is left.
pub(crate) const NEEDS: Needs = Needs { rates: true, ..Needs::ESTIMATE };

/// Where they stand among the others.
pub(crate) const fn class(objective: Objective) -> Taxonomy {
    Taxonomy {
        objective,
        elastic: false,
        heterogeneous: true,
        preemptive: true,
        level: Level::Instance,
        family: Family::Optimiser,
    }
}

/// Settings that every objective has.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Shared {
    /// How long a round is.
    pub round: Span,
    /// By which rules shares become rounds.
    pub rounds: Mechanism,
    /// Gavel's rules only: the least time between two computations of shares.
    pub reset: Span,
    /// Gavel's rules only: the seed by which types are shuffled for a policy that does not tell them apart.
    pub shuffle: u64,
    /// Which solver.
    pub solver: Method,
    /// Whether types are told apart.
    pub aware: bool,
    /// If not, the type whose speed stands for all.
    pub reference: String,
    /// Whether two jobs may share GPUs.
    pub pairs: bool,
    /// Whether near and far placements are told apart.
    pub placement: bool,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            round: Span::secs(360),
            rounds: Mechanism::Ours,
            reset: Span::secs(1920),
            shuffle: 0,
            solver: Method::Structured,
            aware: true,
            reference: String::new(),
            pairs: false,
            placement: false,
        }
    }
}

/// The settings of an objective that has none of its own.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Plain {
    #[serde(flatten)]
    pub shared: Shared,
}

/// The settings of an entry: its own, then those that every objective has.
macro_rules! entry_settings {
    ($($own:expr,)*) => {
        &[
            $($own,)*
            ("round", "how long a round is: at its start those furthest behind their share run"),
            ("rounds", "`ours`, or `gavel`: the rules of the authors' simulator"),
            ("reset", "Gavel's rules only: the least time between two computations of shares"),
            ("shuffle", "Gavel's rules only: the seed by which types are shuffled in each round if they are not told apart"),
            ("solver", "`structured`: one that knows the structure; `interior`: the authors' own model; `simplex`; `highs`, in builds that have it"),
            ("aware", "whether types of GPU are told apart"),
            ("reference", "where they are not: the type whose speed stands for all; empty means each job's fastest"),
            ("pairs", "whether two jobs may share GPUs"),
            ("placement", "whether a gang on the fewest nodes and a spread one are told apart"),
        ]
    };
}
pub(crate) use entry_settings;

/// A goal as a whole policy.
pub(crate) fn lift(
    entry: &PolicyEntry,
    shared: Shared,
    goal: impl Goal + 'static,
) -> Result<Pipeline, ConfigError> {
    // A goal that does not look at speeds treats all types alike by itself.
    let blind = !goal.looks_at_rates();
    if shared.round < Span::secs(1) {
        return Err(entry.bad_value("round", shared.round, "at least a second"));
    }
    let Some(engine) = Engine::new(shared.solver) else {
        return Err(entry.bad_value(
            "solver",
            "highs",
            "one that this build has: structured, interior or simplex",
        ));
    };
    let exact = engine.exact();
    let pairs = match (shared.pairs, exact) {
        (false, _) => Pairs::None,
        (true, true) => Pairs::All,
        (true, false) => Pairs::Gaining,
    };
    let menu = Menu { pairs, placement: shared.placement };
    let optimiser = Optimiser::new(goal, engine, menu);
    let share: Box<dyn TimeShare> = match shared.aware {
        true => Box::new(optimiser),
        false => Box::new(Blind { inner: optimiser, as_if: as_if(&shared), zeros: exact }),
    };
    let needs = Needs { shared_rates: shared.pairs, ..entry.needs };
    let rounds = RoundSettings {
        round: shared.round,
        mechanism: shared.rounds,
        reset_min: shared.reset,
        shuffle: (!shared.aware || blind).then_some(shared.shuffle),
        ..RoundSettings::default()
    };
    Ok(Pipeline::new(Rounds::new(share, rounds), FewestNodes, needs))
}

fn as_if(shared: &Shared) -> AsIf {
    match shared.reference.as_str() {
        "" => AsIf::Fastest,
        name => AsIf::Type(name.to_owned()),
    }
}
