//! How shares of time are realised.

use super::Length;
use serde::{Deserialize, Serialize};
use trainyard_types::Span;

/// By which rules shares of time become rounds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// Credits in seconds: shares hold as soon as the jobs change, new jobs take what is idle at once, time spent on
    /// restarts is not received, and no job is replaced by one that is not further behind than the restart costs.
    #[default]
    Ours,
    /// The accounts of Gavel's own simulator, number by number.
    Gavel,
    /// Gavel as Sia's authors ported it: shares are worked out in every round, times are never reset, there are no
    /// deficits, and all types stand in one queue.
    Sia,
}

/// How shares of time are realised, round by round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundSettings {
    /// The length of a round.
    pub round: Span,
    /// Our rules only: the length is chosen anew whenever the jobs changed.
    pub auto: bool,
    /// The rules.
    pub mechanism: Mechanism,
    /// Gavel's rules only: the least time between two computations of shares.
    pub reset_min: Span,
    /// Gavel's rules only: the order of types is shuffled anew in each round, from this seed of a run. For policies
    /// that do not distinguish types.
    pub shuffle: Option<u64>,
    /// Whether choices without a share may fill what is idle.
    pub fill: bool,
    /// Gavel's rules only: types that choose first, in this order; then all others as the cluster declares them.
    pub kinds_first: Vec<String>,
}

impl Default for RoundSettings {
    /// Six minutes and 32 between resets, as in Gavel (OSDI 2020); its code puts V100 before P100 before K80.
    fn default() -> RoundSettings {
        RoundSettings {
            round: Span::secs(360),
            auto: false,
            mechanism: Mechanism::Ours,
            reset_min: Span::secs(1920),
            shuffle: None,
            fill: true,
            kinds_first: ["v100", "p100", "k80"].map(str::to_owned).to_vec(),
        }
    }
}

impl RoundSettings {
    /// Our rules with rounds of a length.
    pub fn every(round: Span) -> RoundSettings {
        RoundSettings { round, ..RoundSettings::default() }
    }

    /// The same with rounds of a given or a chosen length.
    pub fn of(self, length: Length) -> RoundSettings {
        match length {
            Length::Every(round) => RoundSettings { round, auto: false, ..self },
            Length::Auto => RoundSettings { auto: true, ..self },
        }
    }

    /// Gavel's rules.
    pub fn gavel() -> RoundSettings {
        RoundSettings { mechanism: Mechanism::Gavel, ..RoundSettings::default() }
    }
}
