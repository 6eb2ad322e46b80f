//! Runs a scenario: text in, text out.

use anyhow::{Context, Result, bail};
use std::sync::Arc;
use trainyard_framework::RawSettings;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_report::text::{Recorder, action_log, job_table};
use trainyard_sim::{Options, Outcome, Semantics, simulate};
use trainyard_types::{Cluster, Event};
use trainyard_workload::scenario::{self, Broken, Expect, Failure, Scenario};

/// Runs a scenario under each of its policies and gives back what it expects to be shown.
pub fn run(text: &str) -> Result<String> {
    let scenario = scenario::parse(text)?;
    let mut shown = String::new();
    for policy in &scenario.policies {
        if scenario.policies.len() > 1 {
            shown.push_str(&format!("# {} {}\n", policy.name, policy.settings));
        }
        let (outcome, recorder) = run_one(&scenario, policy)?;
        shown.push_str(&match scenario.expect {
            Expect::Table => job_table(&scenario.workload, &outcome),
            Expect::Log => action_log(&scenario.workload, &recorder),
        });
        if outcome.stats.faults > 0 {
            bail!("faulty grants: {:?}", outcome.stats.fault_samples);
        }
        if outcome.stats.policy_errors + outcome.stats.policy_panics > 0 {
            bail!("the policy failed: {:?}", outcome.stats);
        }
    }
    Ok(shown)
}

fn run_one(scenario: &Scenario, policy: &scenario::Choice) -> Result<(Outcome, Recorder)> {
    let semantics = match &scenario.semantics {
        Some(name) => Semantics::find(name).with_context(|| format!("no semantics `{name}`"))?,
        None => Semantics::Native,
    };
    let mut selection = Selection {
        policy: choice(policy)?,
        place: scenario.place.as_ref().map(choice).transpose()?,
        admit: scenario.admit.iter().map(choice).collect::<Result<_, _>>()?,
        tune: scenario.tune.iter().map(choice).collect::<Result<_>>()?,
    };
    selection.wish(semantics.wishes().iter().copied());
    let mut options = options(scenario, semantics);
    options.setup.check_every = 1;
    let cluster: Arc<Cluster> = Arc::new(scenario.cluster.clone());
    let mut recorder = Recorder::default();
    let pipeline = selection.build()?;
    let outcome = simulate(&scenario.workload, &cluster, pipeline, &options, &mut recorder);
    Ok((outcome, recorder))
}

fn options(scenario: &Scenario, semantics: Semantics) -> Options {
    let mut options = semantics.options();
    if semantics == Semantics::Native {
        options.costs = scenario.costs;
        options.estimate_error = scenario.error;
    }
    options.colocation = scenario.colocation.unwrap_or(options.colocation);
    options.seed = scenario.seed;
    for Failure { at, length, what } in &scenario.failures {
        let (lost, back) = match what {
            Broken::Node(node) => (Event::NodeLost(*node), Event::NodeUp(*node)),
            Broken::Gpu(gpu) => (Event::GpuLost(*gpu), Event::GpuBack(*gpu)),
        };
        options.injected.push((*at, lost));
        options.injected.push((*at + *length, back));
    }
    for (at, job) in &scenario.cancels {
        options.injected.push((*at, Event::Cancelled(*job)));
    }
    for (at, pool, nodes) in &scenario.needs {
        options.injected.push((*at, Event::Needed(*pool, *nodes)));
    }
    options
}

/// `las thresholds=[1h] quantum=5m`, or `load=1.2` for a gate whose setting has its own name.
fn choice(choice: &scenario::Choice) -> Result<Choice> {
    let mut settings = RawSettings::default();
    for pair in split_settings(&choice.settings) {
        if pair.contains('=') {
            settings.add(&pair)?;
        } else {
            settings.add(&format!("{}={pair}", choice.name))?;
        }
    }
    Ok(Choice { name: choice.name.clone(), settings })
}

/// Splits at white space that is not inside brackets.
fn split_settings(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for c in text.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if c.is_whitespace() && depth == 0 {
            parts.push(String::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}
