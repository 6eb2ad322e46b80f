//! The nodes: `scontrol show nodes --json`, or `sinfo --json`.
//!
//! `sinfo --json` of 22.05 lists nodes.
//! That of 23.02 and later lists groups of nodes that are alike, once for each partition; they are put together again
//! here, and GPUs in use are only known where a group is a single node.

use super::answer::SlurmAnswer;
use super::lenient::{Number, Text, Words};
use super::{ReadError, Rows, gres};
use crate::nodelist;
use crate::seen::SlurmNode;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Reads the nodes out of an answer, in either form.
pub fn nodes(bytes: &[u8]) -> Result<Rows<SlurmNode>, ReadError> {
    let answer = SlurmAnswer::of(bytes)?;
    if let Some(raw) = answer.nodes {
        return answer.rows(raw, "nodes", node);
    }
    let raw = answer.sinfo.ok_or(ReadError::NoList("nodes"))?;
    let Rows { rows, skipped, at, release } = answer.rows(raw, "sinfo", group)?;
    Ok(Rows { rows: together(rows), skipped, at, release })
}

/// Whether an answer lists groups, so that `scontrol show nodes --json` tells more.
pub fn is_grouped(bytes: &[u8]) -> bool {
    SlurmAnswer::of(bytes).is_ok_and(|answer| answer.nodes.is_none() && answer.sinfo.is_some())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Row {
    name: Text,
    state: Words,
    state_flags: Words,
    gres: Text,
    gres_used: Text,
    cpus: Number,
    real_memory: Number,
    features: Words,
    active_features: Words,
    partitions: Words,
    reason: Text,
}

fn node(row: Row) -> Result<SlurmNode, String> {
    if row.name.0.is_empty() {
        return Err("it has no name".to_owned());
    }
    let mut words = row.state.0;
    words.extend(row.state_flags.0);
    let (state, flags) = state(&words);
    Ok(SlurmNode {
        name: row.name.0,
        state,
        flags,
        gpus: gres::gpus(&row.gres.0),
        gpus_used: in_use(&row.gres_used.0),
        cpus: row.cpus.count(),
        memory_mib: row.real_memory.0.map_or(0, |mib| mib.max(0) as u64),
        features: if row.features.0.is_empty() { row.active_features.0 } else { row.features.0 },
        partitions: row.partitions.0,
        reason: row.reason.0,
    })
}

/// The base state and the flags beside it, in capitals.
fn state(words: &[String]) -> (String, Vec<String>) {
    const BASES: [&str; 8] =
        ["IDLE", "MIXED", "ALLOCATED", "DOWN", "ERROR", "FUTURE", "UNKNOWN", "INVAL"];
    let upper: Vec<String> = words.iter().map(|word| word.to_uppercase()).collect();
    let base = upper.iter().find(|word| BASES.contains(&word.as_str()));
    let base = base.or(upper.first()).cloned().unwrap_or_else(|| "UNKNOWN".to_owned());
    let flags = upper.into_iter().filter(|word| *word != base).collect();
    (base, flags)
}

fn in_use(list: &str) -> Vec<(String, u32)> {
    gres::gpus(list).into_iter().filter(|(_, count)| *count > 0).collect()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Group {
    node: GroupNode,
    nodes: GroupNodes,
    partition: GroupPartition,
    cpus: Range,
    memory: Range,
    features: Totals,
    gres: Totals,
    reason: Reason,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GroupNode {
    state: Words,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GroupNodes {
    nodes: Words,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GroupPartition {
    name: Text,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Range {
    minimum: Number,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Totals {
    total: Text,
    used: Text,
}

#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Reason {
    Parts {
        #[serde(default)]
        description: Text,
    },
    Plain(Text),
    #[default]
    Nothing,
}

/// The nodes of one group.
fn group(row: Group) -> Result<Vec<SlurmNode>, String> {
    let mut names = Vec::new();
    for list in &row.nodes.nodes.0 {
        names.extend(nodelist::expand(list).map_err(|error| error.to_string())?);
    }
    let (state, flags) = state(&row.node.state.0);
    let alone = names.len() == 1;
    let reason = match row.reason {
        Reason::Parts { description } => description.0,
        Reason::Plain(text) => text.0,
        Reason::Nothing => String::new(),
    };
    let features: Vec<String> =
        row.features.total.0.split(',').filter(|f| !f.is_empty()).map(str::to_owned).collect();
    Ok(names
        .into_iter()
        .map(|name| SlurmNode {
            name,
            state: state.clone(),
            flags: flags.clone(),
            gpus: gres::gpus(&row.gres.total.0),
            gpus_used: if alone { in_use(&row.gres.used.0) } else { Vec::new() },
            cpus: row.cpus.minimum.count(),
            memory_mib: row.memory.minimum.0.map_or(0, |mib| mib.max(0) as u64),
            features: features.clone(),
            partitions: Some(row.partition.name.0.clone())
                .filter(|p| !p.is_empty())
                .into_iter()
                .collect(),
            reason: reason.clone(),
        })
        .collect())
}

/// Each node once, in the order of names, with all of its partitions.
fn together(groups: Vec<Vec<SlurmNode>>) -> Vec<SlurmNode> {
    let mut all: BTreeMap<String, SlurmNode> = BTreeMap::new();
    for node in groups.into_iter().flatten() {
        match all.get_mut(&node.name) {
            Some(known) => {
                let new = node.partitions.into_iter().filter(|p| !known.partitions.contains(p));
                let new: Vec<String> = new.collect();
                known.partitions.extend(new);
            }
            None => drop(all.insert(node.name.clone(), node)),
        }
    }
    all.into_values().collect()
}
