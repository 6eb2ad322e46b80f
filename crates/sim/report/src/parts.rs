//! Parts of the jobs over one or several seeds: each part is a comparison of its own.

use crate::column::Column;
use crate::comparison::{About, Run};
use crate::groups::{By, Group, columns};
use crate::metrics::Summary;
use crate::replicas::{Repeated, Replicas};
use crate::table::{Ink, figures};
use serde_json::{Value, json};

/// The parts of the jobs, and how the policies treat each.
#[derive(Clone, Debug)]
pub struct Parts {
    /// What jobs are grouped by.
    pub by: By,
    /// Each part by its name, in its natural order, with the same seeds and policies in all.
    pub parts: Vec<(String, Replicas)>,
    seeds: Vec<u64>,
}

impl Parts {
    /// Without a seed yet.
    pub fn new(by: By) -> Parts {
        Parts { by, parts: Vec::new(), seeds: Vec::new() }
    }

    /// Adds what came of a seed: every policy, always in the same order, with its parts.
    ///
    /// A part without jobs at some seed has a summary without jobs there.
    pub fn add(&mut self, seed: u64, runs: &[(&Run, Vec<Group>)]) {
        for (_, groups) in runs {
            let mut at = 0;
            for group in groups {
                at = self.place(&group.name, at, runs) + 1;
            }
        }
        self.seeds.push(seed);
        for (name, part) in &mut self.parts {
            part.seeds.push(seed);
            for (policy, (_, groups)) in part.policies.iter_mut().zip(runs) {
                let group = groups.iter().find(|group| group.name == *name);
                policy.summaries.push(group.map(|one| one.summary.clone()).unwrap_or_default());
            }
        }
    }

    /// Where the part of that name stands; a new one comes after what precedes it in its own list.
    fn place(&mut self, name: &str, after: usize, runs: &[(&Run, Vec<Group>)]) -> usize {
        if let Some(found) = self.parts.iter().position(|(known, _)| known == name) {
            return found;
        }
        let repeated = |(run, _): &(&Run, Vec<Group>)| Repeated {
            policy: run.policy.clone(),
            information: run.information,
            summaries: vec![Summary::default(); self.seeds.len()],
        };
        let policies = runs.iter().map(repeated).collect();
        let part = Replicas { about: About::default(), seeds: self.seeds.clone(), policies };
        self.parts.insert(after, (name.to_owned(), part));
        after
    }

    /// The measures that say anything about any part.
    pub fn columns(&self) -> Vec<&'static Column> {
        let all = || self.parts.iter().flat_map(|(_, part)| &part.policies);
        let says = |column: &&Column| {
            column.says_anything(all().flat_map(|policy| policy.summaries.iter()))
        };
        columns().into_iter().filter(says).collect()
    }

    /// For a terminal: policies below each other within each part.
    pub fn terminal(&self, ink: Ink) -> String {
        let columns = self.columns();
        let mut heading = vec![self.by.name(), "policy"];
        heading.extend(columns.iter().map(|column| column.title));
        let mut rows = Vec::new();
        for (name, part) in &self.parts {
            for (index, policy) in part.policies.iter().enumerate() {
                let mut row = vec![name.clone(), policy.policy.clone()];
                row.extend(columns.iter().map(|column| part.cell(index, column)));
                rows.push(row);
            }
        }
        figures(&heading, 2, &rows, ink)
    }

    /// As JSON: each part with the intervals of its policies and of their differences.
    pub fn json(&self) -> Value {
        let keys: Vec<&str> = columns().iter().map(|column| column.key).collect();
        let kept = |mut value: Value| {
            if let Some(measures) = value["measures"].as_object_mut() {
                measures.retain(|key, _| keys.contains(&key.as_str()));
            }
            value
        };
        let part = |(name, part): &(String, Replicas)| {
            let policies = (0..part.policies.len()).map(|index| kept(part.policy_json(index)));
            let pairs = part.pairs().map(|pair| kept(part.pair_json(pair)));
            json!({
                "name": name,
                "policies": policies.collect::<Vec<Value>>(),
                "pairs": pairs.collect::<Vec<Value>>(),
            })
        };
        json!({ "by": self.by.name(), "parts": self.parts.iter().map(part).collect::<Vec<Value>>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::Information;
    use crate::curve::Curves;
    use crate::metrics::Spread;
    use trainyard_framework::Needs;

    fn run(policy: &str) -> Run {
        Run {
            policy: policy.to_owned(),
            about: String::new(),
            information: Information::new(&Needs::NOTHING, (0.0, 0.0)),
            settings: Vec::new(),
            summary: Summary::default(),
            curves: Curves::default(),
        }
    }

    fn group(name: &str, mean: f64) -> Group {
        let jct_s = Spread { mean, ..Spread::default() };
        Group {
            name: name.to_owned(),
            summary: Summary { jobs: 1, finished: 1, jct_s, ..Summary::default() },
        }
    }

    #[test]
    fn a_part_that_comes_late_stands_in_its_place_and_has_no_mean_before() {
        let (a, b) = (run("a"), run("b"));
        let mut parts = Parts::new(By::Size);
        let small = || vec![group("1", 10.0), group("5-8", 90.0)];
        parts.add(1, &[(&a, small()), (&b, small())]);
        let all = |mean| vec![group("1", mean), group("2-4", 40.0), group("5-8", 90.0)];
        parts.add(2, &[(&a, all(20.0)), (&b, all(70.0))]);
        let names: Vec<&str> = parts.parts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["1", "2-4", "5-8"]);
        let text = parts.terminal(Ink::Plain);
        assert!(text.contains("15s ±") && text.contains(" 40s"), "{text}");
        let json = parts.json();
        let values = &json["parts"][1]["policies"][0]["measures"]["jct_mean_s"]["values"];
        assert_eq!(values, &json!([null, 40.0]));
    }
}
