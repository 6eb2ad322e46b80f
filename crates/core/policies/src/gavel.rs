//! Gavel (OSDI 2020): time on each type of GPU as the answer to an optimisation, one objective in each file.
//!
//! - [`problem`][]: what an objective is worked out from.
//! - [`frame`][], [`level`][]: the rows that all models share, and the models that several objectives share.
//! - [`engine`][], [`pooled`][], [`paired`][], [`nash`][]: which solver works.
//! - [`optimiser`][]: an objective as a front of the framework, and what happens when the solver fails.
//! - [`beyond`][], [`ahead`][]: what the paper's objectives do not have.
//! - the other modules: one objective each, with its entry.
//!
//! A [`Goal`] is lifted in three steps: an [`optimiser::Optimiser`] gathers facts and bridges failures, `Blind` may hide that types
//! differ, `Rounds` realises the shares.

pub mod ahead;
pub mod beyond;
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
pub mod paired;
pub mod pooled;
pub mod problem;
pub mod proof;
pub mod proportional;
pub mod random_pairs;
pub mod shortest;
pub mod throughput;

use crate::prelude::*;
use beyond::Beyond;
use engine::Method;
use optimiser::Goal;
use trainyard_framework::{
    AsIf, Blind, Length, Mechanism, Menu, Pairs, RoundSettings, Rounds, TimeShare,
};

/// What all objectives must know: how fast jobs are where, and how much is left.
pub(crate) const NEEDS: Needs = Needs { rates: true, ..Needs::ESTIMATE };

/// Where they stand among the others.
pub(crate) const fn class(objective: Objective) -> Taxonomy {
    Taxonomy {
        heterogeneous: true,
        by_setting: "`aware=false` treats types of GPU alike; `sizes=true` changes the number of GPUs; `pairs=true` must know pairs",
        ..Taxonomy::rigid(objective, Family::Optimiser).preemptive()
    }
}

/// Settings that every objective has.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Shared {
    /// How long a round is.
    pub round: Length,
    /// By which rules shares become rounds.
    pub rounds: Mechanism,
    /// Gavel's rules only: the least time between two computations of shares.
    pub reset: Span,
    /// Gavel's rules only: the seed by which types are shuffled for a policy that does not distinguish them.
    pub shuffle: u64,
    /// Which solver.
    pub solver: Method,
    /// Whether types are distinguished.
    pub aware: bool,
    /// If not, the type whose speed stands for all.
    pub reference: String,
    /// Whether two jobs may share GPUs.
    pub pairs: bool,
    /// Whether near and far placements are distinguished.
    pub placement: bool,
    /// What the paper's objectives do not have.
    #[serde(flatten)]
    pub beyond: Beyond,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            round: Length::Auto,
            rounds: Mechanism::Ours,
            reset: Span::secs(1920),
            shuffle: 0,
            solver: Method::Structured,
            aware: true,
            reference: String::new(),
            pairs: false,
            placement: false,
            beyond: Beyond::default(),
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
            ("round", "how long a round is: at its start those furthest behind their share run; `auto` weighs restarts against late turns, and is six minutes by the authors' rules"),
            ("rounds", "`ours`; `gavel`: the rules of the authors' simulator; `sia`: those of its port by Sia's authors"),
            ("reset", "Gavel's rules only: the least time between two computations of shares"),
            ("shuffle", "Gavel's rules only: the seed by which types are shuffled in each round if they are not distinguished"),
            ("solver", "`structured`: one that knows the structure; `interior`: the authors' own model; `simplex`; `highs`, in builds that have it"),
            ("aware", "whether types of GPU are distinguished"),
            ("reference", "where they are not: the type whose speed stands for all; empty means each job's fastest"),
            ("pairs", "whether two jobs may share GPUs"),
            ("placement", "whether a gang on the fewest nodes and a spread one are distinguished"),
            ("parts", "into how many parts the problem is cut, each solved alone (POP)"),
            ("split", "a job that asks for more than this many slices of the GPUs is dealt to several parts; `inf` splits none"),
            ("seed", "the seed by which jobs are dealt to parts"),
            ("group_max", "the most jobs on the same GPUs, 2 to 4, where pairs may share"),
            ("sizes", "whether the number of GPUs of an elastic job is chosen too"),
            ("mixed", "whether a gang may be across two types"),
            ("holds", "whether a type that can never hold a gang is no choice for it"),
            ("types", "the types that take part, of GPU, CPU or anything else; empty means all"),
            ("ahead", "the part of its rate that a job may lose so that jobs expected from past arrivals find room; 0 looks at present ones alone"),
        ]
    };
}
pub(crate) use entry_settings;

/// A goal as a whole policy.
pub(crate) fn lift(
    entry: &PolicyEntry,
    mut shared: Shared,
    goal: impl Goal + Clone + 'static,
) -> Result<Pipeline, ConfigError> {
    // A goal that does not look at speeds treats all types alike by itself.
    let blind = !goal.looks_at_rates();
    match shared.round {
        Length::Every(round) if round < Span::secs(1) => {
            return Err(entry.bad_value("round", round, "at least a second, or `auto`"));
        }
        // The authors' rounds have one length; what restarts cost is no part of their rules.
        Length::Auto if shared.rounds != Mechanism::Ours => {
            shared.round = Length::Every(RoundSettings::default().round);
        }
        Length::Every(_) | Length::Auto => {}
    }
    shared.beyond.check(entry, shared.pairs)?;
    let exact = shared.solver.exact();
    let pairs = match (shared.pairs, exact) {
        (false, _) => Pairs::None,
        (true, true) => Pairs::All,
        (true, false) => Pairs::Gaining,
    };
    let menu = Menu { pairs, placement: shared.placement, ..Menu::default() };
    let menu = shared.beyond.menu(menu);
    let Some(optimiser) = shared.beyond.optimiser(goal, shared.solver, menu) else {
        return Err(entry.bad_value(
            "solver",
            "highs",
            "one that this build has: structured, interior or simplex",
        ));
    };
    let share: Box<dyn TimeShare> = match shared.aware {
        true => optimiser,
        false => Box::new(Blind { inner: optimiser, as_if: as_if(&shared), zeros: exact }),
    };
    let needs = Needs { shared_rates: shared.pairs, ..entry.needs };
    let rounds = RoundSettings {
        mechanism: shared.rounds,
        reset_min: shared.reset,
        shuffle: (!shared.aware || blind).then_some(shared.shuffle),
        ..RoundSettings::default()
    }
    .of(shared.round);
    Ok(Pipeline::new(Rounds::new(share, rounds), FewestNodes, needs))
}

fn as_if(shared: &Shared) -> AsIf {
    match shared.reference.as_str() {
        "" => AsIf::Fastest,
        name => AsIf::Type(name.to_owned()),
    }
}
