//! Policies from the text that names them, as the daemon and its flight record have it.

use crate::args::StageArgs;
use crate::choice;
use crate::failure::Failure;
use std::sync::Arc;
use trainyard_daemon::policy_worker::PolicyFactory;
use trainyard_framework::Pipeline;
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
    fn a_label_names_a_policy_with_its_placer_and_controls() {
        assert!(build(FIRST).is_ok());
        assert!(build("las:quantum=10m place=best-fit admit=load=1.2").is_ok());
        assert!(build("las admit=load=1.2 admit=quota").is_ok());
        let refused = build("las place=bestfit").err().map(|failure| failure.message());
        assert!(refused.is_some_and(|text| text.contains("best-fit")));
    }
}
