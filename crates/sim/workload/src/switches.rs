//! The table of switches by which the Tiresias, Muri and ElasticFlow simulators describe a cluster.

use crate::ReadError;
use crate::cluster::{GPUS_PER_NODE_MAX, NODES_MAX, known_kind};
use std::io::Read;
use trainyard_diagnostic::InputError;
use trainyard_types::Cluster;

const COLUMNS: [&str; 5] =
    ["num_switch", "num_node_p_switch", "num_gpu_p_node", "num_cpu_p_node", "mem_p_node"];

/// Reads `num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node`; each switch becomes a rack.
///
/// The files do not name a type of GPU, so the caller does.
pub fn read(reader: impl Read, kind: &str) -> Result<Cluster, ReadError> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(reader);
    let header = reader.headers()?.clone();
    for name in &header {
        if !COLUMNS.contains(&name) {
            return Err(InputError::unknown(1, "column", name, COLUMNS).into());
        }
    }
    let mut cluster = Cluster { pools: vec!["default".to_owned()], ..Cluster::default() };
    let kind = known_kind(&mut cluster, 0, kind)?;
    let mut rack = 0u64;
    for record in reader.records() {
        let record = record?;
        let line = record.position().map_or(0, csv::Position::line);
        let field = |name: &str, range: std::ops::RangeInclusive<u64>| {
            let value =
                header.iter().position(|column| column == name).and_then(|at| record.get(at));
            let expected = format!("a whole number from {} to {}", range.start(), range.end());
            let Some(value) = value else {
                return if *range.start() == 0 {
                    Ok(0)
                } else {
                    Err(InputError::missing(line, name, expected))
                };
            };
            let number = value.parse().ok().filter(|number| range.contains(number));
            number.ok_or_else(|| InputError::wrong(line, name, value, expected))
        };
        let switches = field(COLUMNS[0], 1..=60_000)?;
        let nodes = field(COLUMNS[1], 1..=NODES_MAX)?;
        let gpus = field(COLUMNS[2], 1..=GPUS_PER_NODE_MAX)?;
        let cpus = field(COLUMNS[3], 0..=u64::from(u16::MAX))?;
        let memory_gib = field(COLUMNS[4], 0..=4_000_000)?;
        if cluster.nodes.len() as u64 + switches * nodes > NODES_MAX || rack + switches > 60_000 {
            let found = format!("{switches} x {nodes}");
            let expected = format!("at most {NODES_MAX} nodes in all");
            return Err(InputError::wrong(line, COLUMNS[1], &found, expected).into());
        }
        for index in 0..switches * nodes {
            let id = cluster.add_node(kind, gpus as u8);
            let node = &mut cluster.nodes[id.index()];
            node.rack = (rack + index / nodes) as u16;
            (node.cpus, node.memory_mib) = (cpus as u16, (memory_gib * 1024) as u32);
        }
        rack += switches;
    }
    if cluster.nodes.is_empty() {
        return Err(
            InputError::missing(2, "num_switch", "a line with the cluster's numbers").into()
        );
    }
    Ok(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_switch_becomes_a_rack() {
        let text =
            "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n2,3,4,128,254";
        let cluster = read(text.as_bytes(), "p100").unwrap();
        let racks: Vec<u16> = cluster.nodes.iter().map(|node| node.rack).collect();
        assert_eq!((cluster.gpus(), racks), (24, vec![0, 0, 0, 1, 1, 1]));
        assert_eq!((cluster.nodes[0].cpus, cluster.nodes[0].memory_mib), (128, 254 * 1024));
    }

    #[test]
    fn wrong_numbers_are_refused() {
        let head = "num_switch,num_node_p_switch,num_gpu_p_node\n";
        for (row, expected) in [
            ("1,2,0", "line 2: `num_gpu_p_node` cannot be `0`"),
            ("1,-2,1", "line 2: `num_node_p_switch` cannot be `-2`"),
            ("60000,1000000,1", "at most 1000000 nodes in all"),
            ("1,2", "line 2: `2 fields` is not valid: expected 3 fields"),
        ] {
            let found = read(format!("{head}{row}\n").as_bytes(), "v100").unwrap_err().to_string();
            assert!(found.contains(expected), "{found}");
        }
        assert!(read(head.as_bytes(), "v100").is_err());
        assert!(
            read("num_swich\n1\n".as_bytes(), "v100")
                .unwrap_err()
                .to_string()
                .contains("num_switch")
        );
    }
}
