//! Clusters as text: one line such as `16x8 a100, 4x4 t4 in inference`, or a TOML text.
//!
//! ```toml
//! [[kind]]                  # only for types that are not known, or to override what is assumed
//! name = "a100"
//! memory_gib = 80
//! price_per_hour = 2.5      # the default is a usual public on-demand price in dollars
//! watts = 400
//!
//! [[nodes]]
//! count = 16
//! gpus = 8
//! kind = "a100"
//! cpus = 96
//! memory_gib = 1024
//! racks = 4                 # spread over so many new racks; or `rack = 0` for a given one
//! pool = "training"
//! name = "gpu"              # gpu0, gpu1, ...
//!
//! [links]
//! node_gbps = 2400
//! rack_gbps = 100
//! core_gbps = 50
//!
//! [network]                 # links one by one, see `network_toml`; without it they slow no job down by what it meets
//! preset = "leaf-spine"
//! oversubscription = 2.0
//!
//! [[tenant]]                # a parent comes before its children
//! name = "research"
//! weight = 2.0
//! ceiling = 64
//! [[tenant]]
//! name = "vision"
//! parent = "research"
//! ```

use crate::cluster_toml;
use crate::network::{Shape, attach, known_inside};
use std::collections::BTreeMap;
use trainyard_diagnostic::{InputError, nearest};
use trainyard_profile::{ANY_KIND, kinds};
use trainyard_types::{Cluster, GpuKind, GpuType, Inside, Node, PoolId, Tenants, Wiring};

/// More nodes than this are taken for a slip of the pen.
pub const NODES_MAX: u64 = 1_000_000;
/// The pool of nodes of which nothing is said.
pub const DEFAULT_POOL: &str = "default";
/// More GPUs in one node than this cannot be expressed.
pub const GPUS_PER_NODE_MAX: u64 = 64;

/// Reads either form: a text with a `=` or a `[` is TOML, anything else is the one line.
pub fn parse(text: &str) -> Result<(Cluster, Tenants), InputError> {
    if text.contains(['=', '[']) {
        parse_toml(text)
    } else {
        Ok((parse_line(text)?, Tenants::default()))
    }
}

/// Reads a TOML text.
pub fn parse_toml(text: &str) -> Result<(Cluster, Tenants), InputError> {
    cluster_toml::parse(text)
}

/// Reads tenants alone, as `[[tenant]]` tables.
pub fn parse_tenants(text: &str) -> Result<Tenants, InputError> {
    cluster_toml::parse_tenants(text)
}

/// Reads which users and groups belong to which tenant: the lists `members` of the same tables.
pub fn parse_members(text: &str) -> Result<BTreeMap<String, Vec<String>>, InputError> {
    cluster_toml::parse_members(text)
}

/// Reads `16x8 a100, 4x4 t4 in inference`: nodes, GPUs in each, their type, and their pool if it is not the first. All
/// nodes stand in one rack. `8x8 v100 inside dgx-1v over leaf-spine 2 racks 100g 2:1` declares what nodes look like inside
/// and the network between them.
pub fn parse_line(text: &str) -> Result<Cluster, InputError> {
    let (text, network) = match text.split_once(" over ") {
        Some((text, network)) => (text, Some(Shape::parse(network)?)),
        None => (text, None),
    };
    let mut insides = Vec::new();
    let mut cluster = parse_groups(text, &mut insides)?;
    let wiring = match network {
        Some(shape) => shape.wire(&mut cluster)?,
        None if insides.iter().any(Option::is_some) => {
            let shape = Shape { preset: "leaf-spine".to_owned(), ..Shape::default() };
            Wiring { preset: String::new(), ..shape.wire(&mut cluster)? }
        }
        None => return Ok(cluster),
    };
    attach(&mut cluster, wiring, insides, 0)?;
    Ok(cluster)
}

/// Reads what stands before the network, and the inside of each node where one is named.
fn parse_groups(text: &str, insides: &mut Vec<Option<Inside>>) -> Result<Cluster, InputError> {
    let mut cluster = Cluster { pools: vec!["default".to_owned()], ..Cluster::default() };
    if text.trim().is_empty() {
        return Err(InputError::missing(0, "cluster", "nodes such as `16x8 a100, 4x4 t4`"));
    }
    for part in text.trim().trim_end_matches(',').split(',') {
        let part = part.trim();
        let shape = "nodes x GPUs and a type, such as `16x8 a100`";
        let (size, kind) = part
            .split_once(char::is_whitespace)
            .ok_or_else(|| InputError::wrong(0, "cluster", part, shape))?;
        let (nodes, gpus) = size
            .split_once(['x', 'X'])
            .ok_or_else(|| InputError::wrong(0, "cluster", part, shape))?;
        let nodes = whole(part, nodes, ("nodes", NODES_MAX - cluster.nodes.len() as u64))?;
        let gpus = whole(part, gpus, ("GPUs in a node", GPUS_PER_NODE_MAX))?;
        let (kind, pool) = kind.split_once(" in ").unwrap_or((kind, DEFAULT_POOL));
        let (kind, inside) = match kind.split_once(" inside ") {
            Some((kind, name)) => {
                let at = (0, "inside");
                (kind, Some(known_inside(at, name.trim(), gpus as u8, &[])?))
            }
            None => (kind, None),
        };
        let kind = known_kind(&mut cluster, 0, kind)?;
        let pool = pool_named(&mut cluster, part, pool.trim())?;
        for _ in 0..nodes {
            let id = cluster.add_node(kind, gpus as u8);
            cluster.nodes[id.index()].pool = pool;
            insides.push(inside.clone());
        }
    }
    Ok(cluster)
}

/// What nodes of one line have in common: GPUs, type, pool, and how GPUs are joined inside.
type Alike<'a> = (u8, GpuType, PoolId, Option<&'a str>);

/// The cluster as the line that [`parse_line`] reads; what the line cannot say is left out.
pub fn line_of(cluster: &Cluster) -> String {
    let topology = cluster.topology.as_deref();
    let preset = topology.map_or("", |topology| topology.wiring().preset.as_str());
    let inside = |node: &Node| {
        let inside = topology?.inside(node.id);
        // By a preset nodes have their usual insides; without one an inside is what makes a topology.
        let usual = Inside::usual(&cluster.kinds[node.kind.index()].name, node.gpus);
        let known = Inside::preset(&inside.name, node.gpus).is_some();
        (known && (preset.is_empty() || *inside != usual)).then_some(inside.name.as_str())
    };
    let mut groups: Vec<(u32, Alike<'_>)> = Vec::new();
    for node in &cluster.nodes {
        let what = (node.gpus, node.kind, node.pool, inside(node));
        match groups.last_mut() {
            Some((count, same)) if *same == what => *count += 1,
            _ => groups.push((1, what)),
        }
    }
    let shown =
        |(count, (gpus, kind, pool, inside)): &(u32, (u8, GpuType, PoolId, Option<&str>))| {
            let mut text = format!("{count}x{gpus} {}", cluster.kinds[kind.index()].name);
            if let Some(inside) = inside {
                text.push_str(&format!(" inside {inside}"));
            }
            match cluster.pools.get(pool.index()) {
                Some(pool) if pool != DEFAULT_POOL => format!("{text} in {pool}"),
                _ => text,
            }
        };
    let line = groups.iter().map(shown).collect::<Vec<String>>().join(", ");
    if preset.is_empty() { line } else { format!("{line} over {preset}") }
}

/// The pool of that name, added if it is new.
fn pool_named(cluster: &mut Cluster, part: &str, name: &str) -> Result<PoolId, InputError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(plain) {
        let expected = "the name of a pool after `in`: letters, digits, `-`, `_`, `.`";
        return Err(InputError::wrong(0, "cluster", part, expected));
    }
    let found = cluster_toml::pool_of(cluster, name);
    found.ok_or_else(|| InputError::wrong(0, "cluster", part, "at most 65535 pools"))
}

/// A type with what is generally known about it, or `None` if nothing is.
pub fn default_kind(name: &str) -> Option<GpuKind> {
    let name = name.to_lowercase();
    let facts = kinds::facts(&name)?;
    Some(GpuKind {
        memory_mib: stated_gib(&name).unwrap_or(facts.memory_gib) * 1024,
        price_per_hour: facts.price_per_hour,
        watts: facts.watts,
        name,
    })
}

/// The type of that name in the cluster, added with its defaults if it is known.
pub(crate) fn known_kind(
    cluster: &mut Cluster,
    line: u64,
    name: &str,
) -> Result<GpuType, InputError> {
    let name = kind_name(line, "kind", name)?;
    if let Some(kind) = cluster.kind(&name) {
        return Ok(kind);
    }
    let Some(kind) = default_kind(&name) else {
        let names: Vec<&str> = kinds::KINDS.iter().map(|kind| kind.name).collect();
        let expected = format!(
            "a type of GPU that is known ({}), or that a `[[kind]]` table of a cluster file declares",
            names.join(", ")
        );
        return Err(InputError {
            nearest: likely(&name, &names),
            ..InputError::wrong(line, "type of GPU", &name, expected)
        });
    };
    add_kind(cluster, line, kind)
}

/// The type that was meant, where one letter is wrong: names of types are so short and so alike that two make another.
fn likely(name: &str, names: &[&str]) -> Option<String> {
    let found = nearest(name, names.iter().copied())?;
    let (given, valid) = (name.as_bytes(), found.as_bytes());
    let same = |(a, b): &(&u8, &u8)| a == b;
    let front = given.iter().zip(valid).take_while(same).count();
    let back = given.iter().rev().zip(valid.iter().rev()).take_while(same).count();
    (front + back + 1 >= given.len().max(valid.len())).then(|| found.to_owned())
}

/// Adds a type that is new to the cluster.
pub(crate) fn add_kind(
    cluster: &mut Cluster,
    line: u64,
    kind: GpuKind,
) -> Result<GpuType, InputError> {
    if cluster.kinds.len() >= 255 {
        return Err(InputError::wrong(line, "kind", &kind.name, "at most 255 types of GPU"));
    }
    cluster.kinds.push(kind);
    Ok(GpuType(cluster.kinds.len() as u8 - 1))
}

/// A type's name in lower case, if it is made of letters, digits and `-`, `_`, `.`.
pub(crate) fn kind_name(line: u64, field: &str, name: &str) -> Result<String, InputError> {
    let name = name.trim().to_lowercase();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(plain) || name == ANY_KIND {
        let expected = "the name of a type of GPU: letters, digits, `-`, `_`, `.`";
        return Err(InputError::wrong(line, field, &name, expected));
    }
    Ok(name)
}

/// The memory that a name such as `a100-80gb` states.
fn stated_gib(name: &str) -> Option<u32> {
    let mut parts = name.split(['-', '_']).skip(1);
    parts.find_map(|part| {
        let digits =
            part.strip_suffix("gib").or(part.strip_suffix("gb")).or(part.strip_suffix('g'))?;
        digits.parse().ok().filter(|gib| (1..=4096).contains(gib))
    })
}

fn whole(part: &str, digits: &str, (what, most): (&str, u64)) -> Result<u64, InputError> {
    let number: Option<u64> = digits.trim().parse().ok();
    number.filter(|number| (1..=most).contains(number)).ok_or_else(|| {
        let expected = format!("1 to {most} {what}, not `{}`", digits.trim());
        InputError::wrong(0, "cluster", part, expected)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_line_gives_nodes_with_known_memory_and_price() {
        let cluster = parse_line(" 2x8 A100, 1x4 t4 ,1x4 a100-80gb").unwrap();
        assert_eq!((cluster.nodes.len(), cluster.gpus()), (4, 24));
        let memory: Vec<u32> = cluster.kinds.iter().map(|kind| kind.memory_mib / 1024).collect();
        assert_eq!(memory, [40, 16, 80]);
        assert!(cluster.kinds.iter().all(|kind| kind.price_per_hour > 0.0));
        assert_eq!(line_of(&cluster), "2x8 a100, 1x4 t4, 1x4 a100-80gb");
    }

    #[test]
    fn a_line_names_pools_and_reads_them_back() {
        let text = "2x8 a100, 1x4 t4 in inference, 1x4 t4";
        let cluster = parse_line(text).unwrap();
        assert_eq!(cluster.pools, ["default", "inference"]);
        let pools: Vec<u16> = cluster.nodes.iter().map(|node| node.pool.0).collect();
        assert_eq!(pools, [0, 0, 1, 0]);
        assert_eq!(line_of(&cluster), text);
    }

    #[test]
    fn a_wrong_line_is_refused_with_a_reason() {
        for (text, expected) in [
            ("", "`cluster` is missing"),
            ("16 a100", "nodes x GPUs and a type"),
            ("16x8", "nodes x GPUs and a type"),
            ("0x8 a100", "1 to 1000000 nodes, not `0`"),
            ("-3x8 a100", "1 to 1000000 nodes, not `-3`"),
            ("2x65 a100", "1 to 64 GPUs in a node, not `65`"),
            ("99999999999999999999x8 a100", "1 to 1000000 nodes"),
            ("1000000x8 a100, 1x1 t4", "1 to 0 nodes"),
            ("2x8 a1000", "did you mean `a100`?"),
            ("2x8 a 100", "letters, digits"),
            ("2x8 any", "letters, digits"),
            ("2x8 a100 in ", "letters, digits"),
            ("2x8 a100 in a pool", "the name of a pool"),
            ("2x8 a100,,1x1 t4", "nodes x GPUs"),
        ] {
            let found = fault(text);
            assert!(found.contains(expected), "{text}: {found}");
        }
    }
}
