//! The network of a cluster in its TOML form.
//!
//! ```toml
//! [network]                 # a preset ...
//! preset = "leaf-spine"     # or "fat-tree" with `ports`, or "bigraph" with `switches`
//! nic_gbps = 100
//! oversubscription = 2.0
//! spines = 2
//!
//! [[switch]]                # ... or switches and links one by one
//! name = "leaf0"
//! nodes = ["gpu0", "gpu1"]  # plugged in with a link of `nic_gbps` each, named after the node
//! nic_gbps = 100
//! level = 1                 # how far it is from nodes
//! [[link]]
//! name = "up0"              # the default is the names of both ends
//! between = ["leaf0", "spine"]
//! gbps = 200
//!
//! [[inside]]                # for `inside = "ours"` in `[[nodes]]`; presets need no such table
//! name = "ours"
//! gpus = 4
//! other_gbps = 80           # pairs of which nothing is said: PCIe
//! pair = [{ gpus = [0, 1], gbps = 400, nvlinks = 2 }]
//! ```

use crate::network::{PRESETS, Shape, attach, known_inside};
use trainyard_diagnostic::{InputError, Section};
use trainyard_types::topology::presets;
use trainyard_types::{Cluster, Inside, Link, LinkEnd, Switch, Wire, WireKind, Wiring};

/// The tables of which a network is made.
pub(crate) const TABLES: [&str; 4] = ["network", "switch", "link", "inside"];

/// The name of the inside of each node, with its line, where one was given.
pub(crate) type Named = Vec<Option<(String, u64)>>;

/// Reads the network, if anything about it is declared.
pub(crate) fn read(
    root: &Section<'_, '_>,
    cluster: &mut Cluster,
    named: &Named,
) -> Result<(), InputError> {
    let mut declared = Vec::new();
    for section in root.sections("inside")? {
        declared.push(read_inside(&section, &declared)?);
    }
    let mut insides = Vec::with_capacity(named.len());
    for (node, name) in cluster.nodes.iter().zip(named) {
        insides.push(match name {
            Some((name, line)) => {
                Some(known_inside((*line, "inside"), name, node.gpus, &declared)?)
            }
            None => None,
        });
    }
    let network = root.section("network")?;
    let switches = root.sections("switch")?;
    let links = root.sections("link")?;
    let (wiring, line) = match (network, switches.first().or(links.first())) {
        (Some(network), None) => (read_preset(&network, cluster)?, network.line()),
        (Some(_), Some(other)) => {
            let expected = "either a preset or switches and links one by one, not both";
            return Err(InputError::wrong(other.line(), "network", "preset", expected));
        }
        (None, Some(first)) => (read_graph(&switches, &links, cluster)?, first.line()),
        (None, None) if insides.iter().any(Option::is_some) => {
            let shape = Shape { preset: "leaf-spine".to_owned(), ..Shape::default() };
            (Wiring { preset: String::new(), ..shape.wire(cluster)? }, 1)
        }
        (None, None) => return Ok(()),
    };
    attach(cluster, wiring, insides, line)
}

fn read_preset(section: &Section<'_, '_>, cluster: &mut Cluster) -> Result<Wiring, InputError> {
    let keys = ["preset", "racks", "ports", "switches", "spines", "nic_gbps", "oversubscription"];
    section.allow(&keys)?;
    let preset = section.text("preset")?.unwrap_or("leaf-spine");
    if !PRESETS.contains(&preset) {
        return Err(section.unknown("preset", PRESETS));
    }
    let shape = Shape {
        preset: preset.to_owned(),
        racks: section.whole("racks", 1..=60_000)?,
        ports: section.whole("ports", 2..=128)?,
        switches: section.whole("switches", 1..=1024)?,
        spines: section.whole("spines", 1..=1024)?,
        gbps: section.real("nic_gbps", 0.001..=1e9)?,
        oversubscription: section.real("oversubscription", 0.001..=1e6)?,
    };
    shape.wire(cluster).map_err(|fault| InputError { line: section.line(), ..fault })
}

fn read_graph(
    switches: &[Section<'_, '_>],
    links: &[Section<'_, '_>],
    cluster: &mut Cluster,
) -> Result<Wiring, InputError> {
    let mut wiring = presets::bare(cluster, "");
    let has_racks = cluster.nodes.iter().any(|node| node.rack != cluster.nodes[0].rack);
    let mut racks = 0;
    for section in switches {
        section.allow(&["name", "level", "nodes", "nic_gbps"])?;
        let name = section.needed_text("name")?;
        let taken = |other: &Switch| other.name == name;
        if wiring.switches.iter().any(taken) || cluster.nodes.iter().any(|node| node.name == name) {
            return Err(section.wrong("name", "a name that no other switch and no node has"));
        }
        let plugged = section.texts("nodes")?.unwrap_or_default();
        let level = section.whole("level", 1..=16)?;
        let level = level.unwrap_or(if plugged.is_empty() { 2 } else { 1 }) as u8;
        let index = wiring.switches.len() as u32;
        wiring.switches.push(Switch { name: name.to_owned(), level });
        let usual = cluster.links.rack_mbps as f64 / 1000.0;
        let mbps = mbps(section.real("nic_gbps", 0.001..=1e9)?.unwrap_or(usual));
        for node in &plugged {
            let known = cluster.nodes.iter().map(|node| node.name.as_str());
            let found = cluster.nodes.iter().position(|other| other.name == *node);
            let line = section.line_of("nodes");
            let found = found.ok_or_else(|| InputError::unknown(line, "nodes", node, known))?;
            let id = cluster.nodes[found].id;
            let ends = [LinkEnd::Node(id), LinkEnd::Switch(index)];
            let link = Link { name: (*node).to_owned(), ends, mbps };
            add(&mut wiring, link).map_err(|expected| section.wrong("nodes", expected))?;
            if !has_racks {
                cluster.nodes[found].rack = racks;
            }
        }
        racks += u16::from(!plugged.is_empty());
    }
    for section in links {
        section.allow(&["name", "between", "gbps"])?;
        let between = section.texts("between")?.unwrap_or_default();
        let &[from, to] = &between[..] else {
            return Err(section.wrong("between", "the names of two switches or nodes"));
        };
        let ends = [end(section, from, cluster, &wiring)?, end(section, to, cluster, &wiring)?];
        if ends[0] == ends[1] {
            return Err(section.wrong("between", "two different ends"));
        }
        let gbps = section.real("gbps", 0.001..=1e9)?;
        let gbps = gbps.ok_or_else(|| section.wrong("gbps", "its capacity in each direction"))?;
        let name = match section.text("name")? {
            Some(name) => name.to_owned(),
            None => format!("{from}-{to}"),
        };
        add(&mut wiring, Link { name, ends, mbps: mbps(gbps) })
            .map_err(|expected| section.wrong("name", expected))?;
    }
    Ok(wiring)
}

fn mbps(gbps: f64) -> u64 {
    ((gbps * 1000.0) as u64).max(1)
}

/// Adds a link whose name is new.
fn add(wiring: &mut Wiring, link: Link) -> Result<(), String> {
    if wiring.links.iter().any(|other| other.name == link.name) {
        return Err(format!("a name that no other link has, and `{}` is one", link.name));
    }
    wiring.links.push(link);
    Ok(())
}

fn end(
    section: &Section<'_, '_>,
    name: &str,
    cluster: &Cluster,
    wiring: &Wiring,
) -> Result<LinkEnd, InputError> {
    if let Some(node) = cluster.nodes.iter().find(|node| node.name == name) {
        return Ok(LinkEnd::Node(node.id));
    }
    let found = wiring.switches.iter().position(|switch| switch.name == name);
    let switches = wiring.switches.iter().map(|switch| switch.name.as_str());
    let known = switches.chain(cluster.nodes.iter().map(|node| node.name.as_str()));
    let line = section.line_of("between");
    let unknown = || InputError::unknown(line, "between", name, known);
    found.map(|index| LinkEnd::Switch(index as u32)).ok_or_else(unknown)
}

fn read_inside(section: &Section<'_, '_>, others: &[Inside]) -> Result<Inside, InputError> {
    section.allow(&["name", "gpus", "other_gbps", "pair"])?;
    let name = section.needed_text("name")?;
    let taken = others.iter().any(|other| other.name == name)
        || Inside::PRESETS.iter().any(|(known, ..)| *known == name);
    if taken {
        return Err(section.wrong("name", "a name that no preset and no other `[[inside]]` has"));
    }
    let gpus = section.needed_whole("gpus", 1..=64)? as u8;
    let other = section.real("other_gbps", 0.001..=1e9)?.unwrap_or(80.0);
    let mut inside = Inside::uniform(name, gpus, Wire { kind: WireKind::Pcie, mbps: mbps(other) });
    for pair in section.sections("pair")? {
        pair.allow(&["gpus", "gbps", "nvlinks", "nvswitch"])?;
        let ends = pair.reals("gpus", 0.0..=f64::from(gpus - 1))?;
        let &[a, b] = &ends[..] else {
            return Err(pair.wrong("gpus", "two GPUs, counted from 0"));
        };
        if a == b || a.fract() != 0.0 || b.fract() != 0.0 {
            return Err(pair.wrong("gpus", "two different GPUs, counted from 0"));
        }
        let gbps = pair.real("gbps", 0.001..=1e9)?;
        let gbps = gbps.ok_or_else(|| pair.wrong("gbps", "its bandwidth in each direction"))?;
        let kind = match (pair.flag("nvswitch")?, pair.whole("nvlinks", 0..=36)?.unwrap_or(0)) {
            (Some(true), _) => WireKind::NvSwitch,
            (_, 0) => WireKind::Pcie,
            (_, links) => WireKind::NvLink(links as u8),
        };
        inside.join((a as u8, b as u8), Wire { kind, mbps: mbps(gbps) });
    }
    Ok(inside)
}
