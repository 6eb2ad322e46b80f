//! Policies from the text that names them, as the daemon and its flight record have it.

use crate::failure::Failure;
use std::sync::Arc;
use trainyard_api::endpoint::types::PolicyRow;
use trainyard_daemon::policy_worker::PolicyFactory;
use trainyard_experiment::args::StageArgs;
use trainyard_experiment::choice;
use trainyard_framework::{Pipeline, PolicyEntry};
use trainyard_policies::registry::POLICIES;
use trainyard_sim::Semantics;

/// The policy of a daemon that was never told another.
pub const FIRST: &str = "priority";

/// Makes policies for a daemon.
pub fn policy_factory() -> PolicyFactory {
    Arc::new(|label: &str| build(label).map_err(|failure| failure.message()))
}

/// Builds `POLICY`, `POLICY place=PLACER`, `POLICY place=PLACER admit=CONTROL admit=CONTROL`.
pub fn build(label: &str) -> Result<Pipeline, Failure> {
    let mut controls = label.split(" admit=");
    let rest = controls.next().unwrap_or_default();
    let admit = controls.map(str::to_owned).collect();
    let (policy, place) = split(rest, " place=");
    let stages = StageArgs { place, admit, tune: Vec::new(), sets: Vec::new() };
    let entrant = choice::entrant_alone(policy, &stages, Semantics::Native)?;
    entrant.selection.build().map_err(|error| Failure::config("--policy", error))
}

/// The policies that a daemon can be told, as its page lists them.
pub fn rows() -> Vec<PolicyRow> {
    let row = |entry: &&PolicyEntry| PolicyRow {
        name: entry.name.to_owned(),
        about: entry.about.to_owned(),
        objective: serde_json::json!(entry.class.objective).as_str().unwrap_or("other").to_owned(),
        settings: entry.settings.iter().map(|(key, _)| (*key).to_owned()).collect(),
    };
    POLICIES.iter().map(row).collect()
}

fn split<'a>(text: &'a str, mark: &str) -> (&'a str, Option<String>) {
    match text.split_once(mark) {
        Some((before, after)) => (before, Some(after.to_owned())),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_of_the_list_can_be_built_by_its_name() {
        let rows = rows();
        assert!(rows.len() > 20 && rows.iter().any(|row| row.name == FIRST));
        for row in rows {
            assert!(build(&row.name).is_ok(), "{}", row.name);
            assert!(!row.about.is_empty() && row.objective != "other", "{row:?}");
        }
    }

    #[test]
    fn a_label_names_a_policy_with_its_placer_and_controls() {
        assert!(build(FIRST).is_ok());
        assert!(build("las:quantum=10m place=best-fit admit=load=1.2").is_ok());
        assert!(build("las admit=load=1.2 admit=quota").is_ok());
        let refused = build("las place=bestfit").err().map(|failure| failure.message());
        assert!(refused.is_some_and(|text| text.contains("best-fit")));
    }
}
