//! A policy on trial: for a stated span, or until a measure worsens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a trial is watched by; larger is worse for each.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Mean seconds that jobs waited before each launch.
    Wait,
    /// Mean seconds from submission to the end of jobs that finished.
    Jct,
    /// Stops for other jobs or to move, per hour.
    Restarts,
}

impl Measure {
    /// All, by name.
    pub const ALL: [(&'static str, Measure); 3] =
        [("wait", Measure::Wait), ("jct", Measure::Jct), ("restarts", Measure::Restarts)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Measure::ALL.iter().find(|(_, one)| *one == self).expect("every measure has a name").0
    }

    /// The measure of that name.
    pub fn named(name: &str) -> Option<Measure> {
        Measure::ALL.iter().find(|(other, _)| *other == name).map(|(_, one)| *one)
    }
}

/// A policy to be tried. The one before comes back by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialRequest {
    /// `name` or `name:key=value,key=value`, as in `compare --policies`.
    pub policy: String,
    /// Another placer than the policy's own.
    #[serde(default)]
    pub place: Option<String>,
    /// Admission controls in front of it.
    #[serde(default)]
    pub admit: Vec<String>,
    /// For how long.
    pub seconds: f64,
    /// What ends it sooner.
    #[serde(default)]
    pub guard: Option<GuardRequest>,
}

/// A measure that must not worsen.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuardRequest {
    /// Which.
    pub measure: Measure,
    /// By how much it may worsen at most: 0.2 for 20 %.
    pub worse_by: f64,
}

/// The end of a trial before its time.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialEnd {
    /// Whether the policy on trial stays; otherwise the one before comes back.
    pub keep: bool,
}

/// A trial that is on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialRow {
    /// The policy on trial.
    pub policy: String,
    /// The one that comes back.
    pub back_to: String,
    /// Who began it.
    pub by: String,
    /// When it began, in seconds of Unix time.
    pub begun: f64,
    /// When the other one comes back, in seconds of Unix time.
    pub until: f64,
    /// What ends it sooner.
    pub guard: Option<GuardRequest>,
    /// The measure before the trial.
    pub before: Option<f64>,
    /// The measure since it began, if there is one yet.
    pub now: Option<f64>,
}
