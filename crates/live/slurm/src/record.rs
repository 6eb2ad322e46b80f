//! A record of what was seen, one line of JSON for each look.
//!
//! A line holds what changed since the line before, so that a day of a quiet cluster is small; the first holds
//! everything.
//! A record can be taken up again: what is read back is the state that the next line is compared with.
//! What users wrote for themselves alone (comments, paths) is not kept.

use crate::seen::{SlurmJob, SlurmNode, SlurmSeen};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What the first line says.
const KIND: &str = "trainyard-slurm-record";
/// The version of the lines.
const VERSION: u32 = 1;

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct RecordError {
    /// The line, from 1.
    pub line: u64,
    /// What is wrong, and what was expected.
    pub problem: String,
}

#[derive(Serialize, Deserialize)]
struct Header {
    kind: String,
    version: u32,
}

/// One look: what changed since the one before.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Line {
    at: i64,
    away: Option<String>,
    jobs: Vec<SlurmJob>,
    gone: Vec<u32>,
    nodes: Vec<SlurmNode>,
    gone_nodes: Vec<String>,
}

impl Line {
    /// The line as text; what is empty is left out, because it is what is read back without it.
    fn text(&self) -> String {
        let mut value = serde_json::to_value(self).expect("a look is JSON");
        slim(&mut value);
        value.to_string()
    }
}

fn slim(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(slim);
            let empty = |value: &Value| match value {
                Value::Null => true,
                Value::String(text) => text.is_empty(),
                Value::Array(list) => list.is_empty(),
                Value::Number(number) => number.as_u64() == Some(0),
                Value::Bool(_) | Value::Object(_) => false,
            };
            fields.retain(|_, value| !empty(value));
        }
        Value::Array(list) => list.iter_mut().for_each(slim),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A look as it comes out of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Look {
    /// What was seen, with `at` set.
    Seen(SlurmSeen),
    /// Slurm did not answer at that moment.
    Away(i64),
}

/// The state of a record: what its lines add up to.
#[derive(Clone, Debug, Default)]
pub struct Record {
    at: i64,
    jobs: BTreeMap<u32, SlurmJob>,
    nodes: BTreeMap<String, SlurmNode>,
}

impl Record {
    /// The line that a record begins with.
    pub fn header() -> String {
        let header = Header { kind: KIND.to_owned(), version: VERSION };
        serde_json::to_string(&header).expect("a header is JSON")
    }

    /// The line for one more look; its clock never goes back.
    pub fn add(&mut self, at: i64, seen: &SlurmSeen) -> String {
        self.at = self.at.max(at);
        let jobs: BTreeMap<u32, SlurmJob> =
            seen.jobs.iter().map(|job| (job.id, essence(job))).collect();
        let nodes: BTreeMap<String, SlurmNode> =
            seen.nodes.iter().map(|node| (node.name.clone(), quiet(node))).collect();
        let line = Line {
            at: self.at,
            away: None,
            gone: self.jobs.keys().filter(|id| !jobs.contains_key(id)).copied().collect(),
            gone_nodes: self.nodes.keys().filter(|n| !nodes.contains_key(*n)).cloned().collect(),
            jobs: changed(&self.jobs, &jobs),
            nodes: changed(&self.nodes, &nodes),
        };
        (self.jobs, self.nodes) = (jobs, nodes);
        line.text()
    }

    /// The line for a moment at which Slurm did not answer.
    pub fn add_away(&mut self, at: i64, why: &str) -> String {
        self.at = self.at.max(at);
        let line = Line { at: self.at, away: Some(why.to_owned()), ..Line::default() };
        line.text()
    }

    /// Reads one line, the first of which has number 1; the header gives no look.
    pub fn read(&mut self, number: u64, text: &str) -> Result<Option<Look>, RecordError> {
        let wrong = |problem: String| RecordError { line: number, problem };
        if number == 1 {
            let expected = format!("expected `{}`", Record::header());
            let header: Header =
                serde_json::from_str(text).map_err(|_| wrong(format!("no record: {expected}")))?;
            return match (header.kind == KIND, header.version) {
                (true, VERSION) => Ok(None),
                (true, other) => Err(wrong(format!("version {other} is not known; {expected}"))),
                (false, _) => Err(wrong(format!("a record of something else; {expected}"))),
            };
        }
        let line: Line = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if line.at <= 0 {
            return Err(wrong("a look has no time `at`".to_owned()));
        }
        if line.at < self.at {
            return Err(wrong(format!("`at` goes back from {} to {}", self.at, line.at)));
        }
        self.at = line.at;
        if line.away.is_some() {
            return Ok(Some(Look::Away(line.at)));
        }
        line.gone.iter().for_each(|id| drop(self.jobs.remove(id)));
        line.gone_nodes.iter().for_each(|name| drop(self.nodes.remove(name)));
        self.jobs.extend(line.jobs.into_iter().map(|job| (job.id, job)));
        self.nodes.extend(line.nodes.into_iter().map(|node| (node.name.clone(), node)));
        Ok(Some(Look::Seen(SlurmSeen {
            at: Some(line.at),
            jobs: self.jobs.values().cloned().collect(),
            nodes: self.nodes.values().cloned().collect(),
            ..SlurmSeen::default()
        })))
    }
}

fn changed<K: Ord, V: PartialEq + Clone>(old: &BTreeMap<K, V>, new: &BTreeMap<K, V>) -> Vec<V> {
    new.iter().filter(|(key, value)| old.get(key) != Some(value)).map(|(_, v)| v.clone()).collect()
}

/// What a record keeps of a job: without plans, which Slurm changes all the time, and without private words.
fn essence(job: &SlurmJob) -> SlurmJob {
    let mut kept = job.clone();
    kept.comment.clear();
    kept.stdout.clear();
    // A record tells users by name.
    kept.uid = None;
    kept.priority = u64::from(kept.priority > 0);
    if kept.state == "PENDING" {
        (kept.started, kept.ended) = (None, None);
        if ["Priority", "Resources", "None"].contains(&kept.reason.as_str()) {
            kept.reason.clear();
        }
    }
    kept
}

/// What a record keeps of a node: its use is told by the jobs.
fn quiet(node: &SlurmNode) -> SlurmNode {
    let mut kept = node.clone();
    kept.gpus_used.clear();
    kept.reason.clear();
    if ["IDLE", "MIXED", "ALLOCATED"].contains(&kept.state.as_str()) {
        kept.state = "UP".to_owned();
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::{Look, Record};
    use crate::seen::{SlurmJob, SlurmNode, SlurmSeen};

    fn seen(jobs: &[(u32, &str)]) -> SlurmSeen {
        let job = |(id, state): &(u32, &str)| SlurmJob {
            id: *id,
            state: (*state).to_owned(),
            comment: "private".to_owned(),
            started: Some(7),
            tasks: 1,
            ..SlurmJob::default()
        };
        let node = SlurmNode { name: "n1".into(), state: "IDLE".into(), ..SlurmNode::default() };
        SlurmSeen {
            jobs: jobs.iter().map(job).collect(),
            nodes: vec![node],
            ..SlurmSeen::default()
        }
    }

    fn states(look: Option<Look>) -> String {
        match look {
            Some(Look::Seen(seen)) => {
                let told = seen.jobs.iter().map(|job| format!("{}={}", job.id, job.state));
                told.collect::<Vec<_>>().join(" ")
            }
            Some(Look::Away(at)) => format!("away at {at}"),
            None => "header".to_owned(),
        }
    }

    #[test]
    fn a_record_holds_changes_and_reads_back_whole() {
        let mut record = Record::default();
        let lines = [
            Record::header(),
            record.add(10, &seen(&[(1, "RUNNING"), (2, "PENDING")])),
            record.add(20, &seen(&[(1, "RUNNING"), (2, "PENDING")])),
            record.add_away(25, "no answer"),
            record.add(30, &seen(&[(2, "RUNNING"), (3, "PENDING")])),
        ];
        assert_eq!(lines[2], r#"{"at":20}"#);
        assert!(lines.iter().all(|line| !line.contains("private")), "{lines:?}");
        let mut back = Record::default();
        let told: Vec<String> = lines
            .iter()
            .zip(1..)
            .map(|(line, number)| states(back.read(number, line).unwrap()))
            .collect();
        let both = "1=RUNNING 2=PENDING";
        assert_eq!(told, ["header", both, both, "away at 25", "2=RUNNING 3=PENDING"]);
        // Taken up again, it writes only what is new.
        let next = back.add(40, &seen(&[(2, "RUNNING"), (3, "PENDING")]));
        assert_eq!(next, r#"{"at":40}"#);
    }

    #[test]
    fn what_is_no_record_is_refused_by_its_line() {
        let refused = |lines: &[&str]| {
            let mut record = Record::default();
            let all = lines.iter().zip(1..).map(|(line, number)| record.read(number, line));
            all.filter_map(Result::err).next().expect("refused").to_string()
        };
        assert!(refused(&["{}"]).starts_with("line 1: no record: expected"));
        assert!(refused(&[r#"{"kind":"x","version":1}"#]).contains("something else"));
        let header = Record::header();
        assert!(refused(&[&header.replace(":1}", ":9}")]).contains("version 9"));
        assert!(refused(&[&header, "{\"at\":5", ""]).starts_with("line 2: "));
        assert!(refused(&[&header, "{\"at\":5}", "{\"at\":4}"]).contains("goes back from 5 to 4"));
    }
}
