//! A row in the table of policies, placers, admission controls and tuners.

use crate::{AdmissionControl, ConfigError, Needs, Pipeline, Placer, RawSettings, Tune};
use serde::Serialize;

/// A row. Everything that lists, documents or tests policies walks over such rows; nothing else knows their names.
pub struct Entry<B: 'static> {
    /// Its name on the command line and in files.
    pub name: &'static str,
    /// What it is, in one sentence.
    pub about: &'static str,
    /// Authors, venue and year; `-` for common knowledge.
    pub paper: &'static str,
    /// What it must know.
    pub needs: Needs,
    /// Where it stands among the others.
    pub class: Taxonomy,
    /// Its settings: name and meaning.
    pub settings: &'static [(&'static str, &'static str)],
    /// Their default values.
    pub defaults: fn() -> toml::Table,
    /// Makes one.
    pub build: B,
}

impl<B> Entry<B> {
    /// The error for a value that has the right type and makes no sense.
    pub fn bad_value(&self, key: &str, value: impl ToString, expected: &str) -> ConfigError {
        let default = (self.defaults)().get(key).map(ToString::to_string);
        ConfigError::BadValue {
            owner: self.name.to_owned(),
            key: key.to_owned(),
            value: value.to_string(),
            problem: format!("expected {expected}"),
            default: default.unwrap_or_default(),
        }
    }
}

/// A policy with its usual placer and tuners.
pub type PolicyEntry = Entry<fn(&RawSettings) -> Result<Pipeline, ConfigError>>;
/// A placer.
pub type PlaceEntry = Entry<fn(&RawSettings) -> Result<Box<dyn Placer>, ConfigError>>;
/// An admission control.
pub type AdmissionEntry = Entry<fn(&RawSettings) -> Result<Box<dyn AdmissionControl>, ConfigError>>;
/// A tuner.
pub type TuneEntry = Entry<fn(&RawSettings) -> Result<Box<dyn Tune>, ConfigError>>;

/// Where a policy stands, after the survey of Gao et al. (arXiv 2205.11913).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Taxonomy {
    /// What it optimises.
    pub objective: Objective,
    /// Whether it changes the number of GPUs of a job.
    pub elastic: bool,
    /// Whether it distinguishes types of GPU.
    pub heterogeneous: bool,
    /// Whether it stops jobs for others.
    pub preemptive: bool,
    /// The family it belongs to: `compare` shows the best of each.
    pub family: Family,
    /// What is otherwise under a setting, or only then; empty where no setting changes its class.
    pub by_setting: &'static str,
    /// What of its paper is not here; empty where all of it is. Its page says why.
    pub partial: &'static str,
}

impl Taxonomy {
    /// Whole jobs on as many GPUs as they ask for, all types alike, no job stopped.
    pub const fn rigid(objective: Objective, family: Family) -> Taxonomy {
        Taxonomy {
            objective,
            elastic: false,
            heterogeneous: false,
            preemptive: false,
            family,
            by_setting: "",
            partial: "",
        }
    }

    /// The same, stopping jobs for others.
    pub const fn preemptive(mut self) -> Taxonomy {
        self.preemptive = true;
        self
    }

    /// The same, with a word on what of its paper is not here.
    pub const fn partial(mut self, what: &'static str) -> Taxonomy {
        self.partial = what;
        self
    }

    /// The same, with a word on what a setting changes about it.
    pub const fn by_setting(mut self, what: &'static str) -> Taxonomy {
        self.by_setting = what;
        self
    }
}

/// What a policy optimises.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Order of arrival.
    Arrival,
    /// Mean completion time.
    CompletionTime,
    /// Equal treatment.
    Fairness,
    /// Deadlines.
    Deadline,
    /// Throughput, makespan or goodput.
    Throughput,
    /// Money.
    Cost,
    /// Little fragmentation, good locality.
    Locality,
    /// Little overload.
    Load,
}

/// Families of policies.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// In order of arrival, with or without passing.
    Arrival,
    /// In order of arrival, with reservations that others may only pass without delaying them.
    Backfill,
    /// Shortest first, by estimates.
    Shortest,
    /// Least served first, without estimates.
    LeastServed,
    /// By priority or share of a tenant.
    Share,
    /// Turns on the same GPUs.
    TimeSlicing,
    /// Several jobs on the same GPUs at once.
    Sharing,
    /// Fractions of time as the answer to an optimisation.
    Optimiser,
    /// Sizes of jobs that follow what one more GPU is worth.
    Elastic,
    /// Sizes and batches that follow goodput: throughput times statistical efficiency.
    Goodput,
    /// In time for deadlines.
    Deadline,
    /// What cluster managers ship: queues, quotas and priorities.
    ClusterManager,
    /// Placers.
    Placer,
    /// Admission controls.
    Admission,
    /// Stages that choose among plans and turn knobs.
    Tuner,
}
