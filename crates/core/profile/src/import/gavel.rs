//! Gavel's table of throughputs (OSDI 2020), as JSON.
//!
//! `{type: {job: {"null": steps/s alone, other job: [steps/s of it, steps/s of the other]}}}`, where a job is
//! `('ResNet-18 (batch size 16)', 2)` with its number of GPUs, or only the text for one GPU.
//!
//! - `null` under a type gives a point on one node.
//! - `null` under `TYPE_unconsolidated` gives a point on two nodes: the table does not say how many it were.
//! - Zero under `null` means that the job does not fit on so many GPUs of the type, and is kept as that.
//! - A pair on one GPU gives the part of the speed alone that is kept on that type, zero where the two do not fit
//!   together; Gavel measured pairs under MPS, and the same figure stands for time slicing.
//!   Pairs on several GPUs are zero in all published tables and are not looked at.

use super::json::{self, Node};
use super::{At, add_point, is_kind, plain_name, size, skew, speed, with_points};
use crate::{ANY_KIND, ModelProfile, Pair, Point};
use std::collections::BTreeMap;
use trainyard_diagnostic::InputError;

/// What is left of a name that has no letters.
const NAMELESS: &str = "gavel";
const UNCONSOLIDATED: &str = "_unconsolidated";

/// Reads the table into one profile for each kind of job, in order of name.
pub fn read(text: &str) -> Result<Vec<ModelProfile>, InputError> {
    let mut models: BTreeMap<String, Building> = BTreeMap::new();
    for (kind, jobs) in json::root(text)?.entries("an object of GPU types")? {
        let (kind, nodes) = match kind.strip_suffix(UNCONSOLIDATED) {
            Some(kind) => (kind.to_lowercase(), 2),
            None => (kind.to_lowercase(), 1),
        };
        if !is_kind(&kind) || kind == ANY_KIND {
            return Err(InputError::wrong(
                jobs.line(),
                "type",
                &kind,
                "a type of GPU, such as v100",
            ));
        }
        for (job, speeds) in jobs.entries("an object of jobs")? {
            let job = Job::parse(&job, &speeds)?;
            let model = models.entry(job.name()).or_insert_with(|| Building::new(&job));
            model.add(&kind, (job.gpus, nodes), &speeds)?;
        }
    }
    with_points(models.into_values().map(Building::finish))
}

/// A key of the table.
struct Job {
    text: String,
    gpus: u32,
}

impl Job {
    /// `('ResNet-18 (batch size 16)', 2)`, or only the text for one GPU.
    fn parse(key: &str, node: &Node<'_>) -> Result<Job, InputError> {
        let at = At { line: node.line(), field: "job" };
        let job = match key.strip_prefix("('").and_then(|rest| rest.strip_suffix(')')) {
            None => Job { text: key.to_owned(), gpus: 1 },
            Some(inner) => {
                let expected = "('NAME', GPUS), such as ('LM (batch size 20)', 2)";
                let wrong = || InputError::wrong(at.line, at.field, key, expected);
                let (text, gpus) = inner.rsplit_once("',").ok_or_else(wrong)?;
                Job { text: text.to_owned(), gpus: size(&at, gpus)? }
            }
        };
        match job.name().as_str() {
            NAMELESS => Err(InputError::wrong(at.line, at.field, key, "a name with letters")),
            _ => Ok(job),
        }
    }

    /// The name in the zoo: `gavel-resnet18-b16`.
    fn name(&self) -> String {
        let (model, batch) = match self.text.split_once(" (batch size ") {
            Some((model, rest)) => (model, rest.strip_suffix(')').unwrap_or(rest)),
            None => (self.text.as_str(), ""),
        };
        let batch = if batch.is_empty() { String::new() } else { format!("-b{batch}") };
        plain_name(&format!("gavel-{}{batch}", model.replace('-', "")))
    }
}

/// A profile that is being put together.
struct Building {
    model: ModelProfile,
    /// By partner and type: the part kept.
    pairs: BTreeMap<(String, String), f64>,
}

impl Building {
    fn new(job: &Job) -> Building {
        let source = format!(
            "Gavel (OSDI 2020), an imported table of throughputs: {}; unconsolidated rows count as two nodes",
            job.text
        );
        let mut model = ModelProfile::named(&job.name(), &source);
        model.skew = skew(job.text.split(" (").next().unwrap_or(""));
        // As for the entries of the zoo from the same table.
        model.spread = 0.95;
        Building { model, pairs: BTreeMap::new() }
    }

    fn add(
        &mut self,
        kind: &str,
        (gpus, nodes): (u32, u32),
        speeds: &Node<'_>,
    ) -> Result<(), InputError> {
        let entries = speeds.entries("an object with `null` for the speed alone")?;
        let mut alone = None;
        if let Some((_, node)) = entries.iter().find(|(key, _)| key == "null") {
            let at = At { line: node.line(), field: &node.path };
            alone = speed(&at, node.shown(), node.number("steps per second")?)?;
            if alone.is_none() && nodes == 1 {
                self.model.unfit.push((kind.to_owned(), gpus));
            }
            // One GPU cannot be on two nodes: that row repeats the consolidated one.
            if let (Some(rate), true) = (alone, nodes <= gpus) {
                let point = Point { kind: kind.to_owned(), gpus, nodes, rate };
                add_point(&mut self.model, point, &at)?;
            }
        }
        if nodes > 1 || gpus > 1 {
            return Ok(());
        }
        for (partner, node) in entries.iter().filter(|(key, _)| key != "null") {
            self.add_pair((kind, alone), partner, node)?;
        }
        Ok(())
    }

    fn add_pair(
        &mut self,
        (kind, alone): (&str, Option<f64>),
        partner: &str,
        node: &Node<'_>,
    ) -> Result<(), InputError> {
        let at = At { line: node.line(), field: &node.path };
        let [own, other] = node.two_numbers("[steps per second of it, of the other]")?;
        let (own, other) = (speed(&at, node.shown(), own)?, speed(&at, node.shown(), other)?);
        let kept = match (alone, own, other) {
            (Some(alone), Some(own), Some(_)) => own / alone,
            _ => 0.0,
        };
        if kept > 2.0 {
            return Err(
                node.wrong(format!("at most twice the speed alone, {}", alone.unwrap_or(0.0)))
            );
        }
        self.pairs.insert((Job::parse(partner, node)?.name(), kind.to_owned()), kept);
        Ok(())
    }

    fn finish(self) -> ModelProfile {
        let mut model = self.model;
        for ((partner, kind), kept) in self.pairs {
            model.pairs.push(Pair { kind, ..Pair::measured(&partner, kept, kept) });
        }
        model
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{
 "v100": {
  "('ResNet-18 (batch size 16)', 1)": {"null": 10.0,
    "('LM (batch size 5)', 1)": [5.0, 2.0], "('A3C', 1)": [0.0, 0.0]},
  "('ResNet-18 (batch size 16)', 2)": {"null": 18.0, "('LM (batch size 5)', 2)": [0.0, 0.0]},
  "('LM (batch size 5)', 1)": {"null": 4.0}
 },
 "k80": {"('ResNet-18 (batch size 16)', 1)": {"null": 2.0, "('LM (batch size 5)', 1)": [1.8, 1.0]},
         "('LM (batch size 5)', 1)": {"null": 0.0}},
 "v100_unconsolidated": {
  "('ResNet-18 (batch size 16)', 1)": {"null": 10.0},
  "('ResNet-18 (batch size 16)', 2)": {"null": 12.0}}
}"#;

    #[test]
    fn points_pairs_and_spreading_are_read_and_zero_is_no_point() {
        let models = read(TEXT).unwrap();
        let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
        assert_eq!(names, ["gavel-lm-b5", "gavel-resnet18-b16"]);
        assert_eq!(models[0].points.len(), 1, "a zero on the K80 is no point");
        assert_eq!(models[0].unfit, [("k80".to_owned(), 1)]);
        let points: Vec<(&str, u32, u32, f64)> = models[1]
            .points
            .iter()
            .map(|point| (point.kind.as_str(), point.gpus, point.nodes, point.rate))
            .collect();
        let expected =
            [("k80", 1, 1, 2.0), ("v100", 1, 1, 10.0), ("v100", 2, 1, 18.0), ("v100", 2, 2, 12.0)];
        assert_eq!(points, expected);
        let pairs = &models[1].pairs;
        let pairs: Vec<(&str, &str, f64)> = pairs
            .iter()
            .map(|pair| (pair.partner.as_str(), pair.kind.as_str(), pair.mps))
            .collect();
        let expected =
            [("gavel-a3c", "v100", 0.0), ("gavel-lm-b5", "k80", 0.9), ("gavel-lm-b5", "v100", 0.5)];
        assert_eq!(pairs, expected);
    }

    #[test]
    fn a_table_without_sizes_is_of_one_gpu() {
        let models = read(r#"{"p100": {"A3C": {"null": 3.0, "A3C": [1.5, 1.5]}}}"#).unwrap();
        assert_eq!((models[0].name.as_str(), models[0].points[0].gpus), ("gavel-a3c", 1));
        assert_eq!(models[0].pairs[0].time_sliced, 0.5);
    }

    #[test]
    fn faults_name_line_path_and_value() {
        for (from, to, expected) in [
            ("18.0", "-1", "line 5: `v100.('ResNet-18 (batch size 16)', 2).null` cannot be `-1`"),
            ("[5.0, 2.0]", "[5.0]", "line 4: `v100.('ResNet-18 (batch size 16)', 1).('LM"),
            ("', 2)\": {\"null\": 18", "', 0)\": {\"null\": 18", "line 5: `job` cannot be `0`"),
            ("18.0,", "18.0 oops", "line 5: "),
            ("[5.0, 2.0]", "[50.0, 2.0]", "line 4: "),
        ] {
            assert!(TEXT.contains(from));
            let found = read(&TEXT.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(found.starts_with(expected), "{found}\n  does not start with\n{expected}");
        }
        assert!(read("{}").is_err() && read("[]").is_err() && read("").is_err());
    }
}
