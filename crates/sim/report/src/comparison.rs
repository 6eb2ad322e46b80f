//! Runs side by side, and what is common to them.

use crate::curve::Curves;
use crate::metrics::Summary;
use serde::Serialize;
use serde_json::{Value, json};
use trainyard_framework::{Knowledge, Needs, PairSource, Trials, UsageSource};
use trainyard_sim::Outcome;
use trainyard_types::Cluster;
use trainyard_workload::Workload;

/// The version of every machine-readable form: JSON, CSV. It changes when a field changes its meaning or goes.
pub const SCHEMA_VERSION: u32 = 1;

/// Runs of several policies on one workload and cluster.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// What is common to all runs.
    pub about: About,
    /// One for each policy, in the order asked for.
    pub runs: Vec<Run>,
}

/// What is common to all runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct About {
    /// The version of the program, with its commit if known.
    pub version: String,
    /// The workload's name.
    pub workload: String,
    /// Its jobs.
    pub jobs: u64,
    /// The part of the cluster that the jobs need between the first submission and the last; `None` if all come
    /// at once.
    pub offered_load: Option<f64>,
    /// The cluster, in one line.
    pub cluster: String,
    /// Its GPUs.
    pub gpus: u32,
    /// The seed of all randomness.
    pub seed: u64,
    /// Every option of the runs, by name.
    pub options: Vec<(String, String)>,
}

/// One policy on one workload and cluster.
#[derive(Clone, Debug)]
pub struct Run {
    /// What the policy is called here.
    pub policy: String,
    /// What it is, in one sentence.
    pub about: String,
    /// What it was told.
    pub information: Information,
    /// Its settings, by owner and key, defaults included.
    pub settings: Vec<(String, String)>,
    /// The measures.
    pub summary: Summary,
    /// What is drawn.
    pub curves: Curves,
}

/// What a policy was told about jobs.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct Information {
    /// How well it knew the work left.
    pub work_left: Knowledge,
    /// The standard deviation of the logarithm of the error, where it knew an estimate.
    pub error: f64,
    /// Whether it knew speeds by type, count and spread.
    pub rates: bool,
    /// The standard deviation of the logarithm of the error of those speeds.
    #[serde(skip_serializing_if = "is_zero")]
    pub speed_error: f64,
    /// Whether it knew speeds beside other jobs.
    pub shared_rates: bool,
    /// Whether it knew racks and links.
    pub topology: bool,
    /// Where passes were timed before jobs ran.
    #[serde(skip_serializing_if = "is_nowhere")]
    pub trials: Trials,
    /// Whether what it knew of jobs beside each other was predicted, and from what.
    #[serde(skip_serializing_if = "is_measured")]
    pub pairs: PairSource,
    /// Whether it knew how busy jobs keep a GPU, and from what.
    #[serde(skip_serializing_if = "is_untold")]
    pub usage: UsageSource,
    /// Whether it knew what monitoring has shown of jobs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub monitoring: bool,
}

fn is_measured(source: &PairSource) -> bool {
    *source == PairSource::Measured
}

fn is_untold(source: &UsageSource) -> bool {
    *source == UsageSource::Nothing
}

fn is_nowhere(trials: &Trials) -> bool {
    *trials == Trials::Nowhere
}

fn is_zero(error: &f64) -> bool {
    *error == 0.0
}

impl Information {
    /// What a pipeline with these needs is told in a run whose estimates of sizes and of speeds have these errors.
    pub fn new(needs: &Needs, (estimate_error, speed_error): (f64, f64)) -> Information {
        let (work_left, error) = match needs.work_left {
            Knowledge::Estimate if estimate_error == 0.0 => (Knowledge::Exact, 0.0),
            Knowledge::Estimate => (Knowledge::Estimate, estimate_error),
            other => (other, 0.0),
        };
        Information {
            work_left,
            error,
            rates: needs.rates,
            speed_error: if needs.rates { speed_error } else { 0.0 },
            shared_rates: needs.shared_rates,
            topology: needs.topology,
            trials: needs.trials,
            pairs: needs.pairs,
            usage: needs.usage,
            monitoring: needs.monitoring,
        }
    }

    /// In a few words: `nothing`, `job sizes, error 0.3`, `job sizes, exact, speeds, error 0.1`.
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        match self.work_left {
            Knowledge::Nothing => {}
            Knowledge::Estimate => parts.push(format!("job sizes, error {}", self.error)),
            Knowledge::Exact => parts.push("job sizes, exact".to_owned()),
        }
        if self.rates {
            parts.push(match self.speed_error {
                0.0 => "speeds, exact".to_owned(),
                error => format!("speeds, error {error}"),
            });
        }
        let facts = [(self.shared_rates, "pairs"), (self.topology, "racks")];
        parts.extend(facts.iter().filter(|fact| fact.0).map(|fact| fact.1.to_owned()));
        match self.trials {
            Trials::Nowhere => {}
            Trials::OneGpu => parts.push("trials on one GPU".to_owned()),
            Trials::Everywhere => parts.push("trials everywhere".to_owned()),
        }
        if !is_measured(&self.pairs) {
            parts.push("pairs predicted".to_owned());
        }
        match self.usage {
            UsageSource::Nothing => {}
            UsageSource::Profiled => parts.push("GPU utilisation".to_owned()),
            UsageSource::Graph => parts.push("GPU utilisation, predicted".to_owned()),
        }
        if self.monitoring {
            parts.push("monitoring".to_owned());
        }
        if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
    }
}

impl Run {
    /// Measures an outcome. The caller fills in what the policy is.
    pub fn new(policy: &str, workload: &Workload, cluster: &Cluster, outcome: &Outcome) -> Run {
        Run::of(policy, Summary::with_curves(workload, cluster, outcome))
    }

    /// A run of which the measures are known. The caller fills in what the policy is.
    pub fn of(policy: &str, (summary, curves): (Summary, Curves)) -> Run {
        Run {
            policy: policy.to_owned(),
            about: String::new(),
            information: Information::new(&Needs::NOTHING, (0.0, 0.0)),
            settings: Vec::new(),
            summary,
            curves,
        }
    }

    /// The run as JSON, without curves.
    pub fn json(&self) -> Value {
        let settings: serde_json::Map<String, Value> =
            self.settings.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
        json!({
            "policy": self.policy,
            "about": self.about,
            "information": self.information,
            "settings": settings,
            "summary": self.summary,
        })
    }
}

impl Comparison {
    /// The measures of all runs.
    pub fn summaries(&self) -> impl Iterator<Item = &Summary> + Clone {
        self.runs.iter().map(|run| &run.summary)
    }

    /// The comparison as JSON, without curves.
    pub fn json(&self) -> Value {
        let options: serde_json::Map<String, Value> = self
            .about
            .options
            .iter()
            .map(|(key, value)| (key.clone(), value.as_str().into()))
            .collect();
        let runs: Vec<Value> = self.runs.iter().map(Run::json).collect();
        json!({
            "schema_version": SCHEMA_VERSION,
            "kind": "comparison",
            "version": self.about.version,
            "workload": {
                "name": self.about.workload,
                "jobs": self.about.jobs,
                "offered_load": self.about.offered_load,
            },
            "cluster": { "line": self.about.cluster, "gpus": self.about.gpus },
            "seed": self.about.seed,
            "options": options,
            "runs": runs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_without_error_is_exact() {
        assert_eq!(Information::new(&Needs::ESTIMATE, (0.3, 0.0)).text(), "job sizes, error 0.3");
        assert_eq!(Information::new(&Needs::ESTIMATE, (0.0, 0.0)).text(), "job sizes, exact");
        assert_eq!(Information::new(&Needs::NOTHING, (0.3, 0.0)).text(), "nothing");
        let needs = Needs { rates: true, topology: true, ..Needs::NOTHING };
        assert_eq!(Information::new(&needs, (0.3, 0.0)).text(), "speeds, exact, racks");
        assert_eq!(Information::new(&needs, (0.3, 0.1)).text(), "speeds, error 0.1, racks");
    }
}
