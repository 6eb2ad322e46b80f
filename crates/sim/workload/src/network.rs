//! The network of a cluster in the words of its one line: `over leaf-spine 4 racks 100g 2:1`.

use trainyard_diagnostic::{InputError, nearest};
use trainyard_types::topology::presets::{self, LeafSpine};
use trainyard_types::{Cluster, Inside, Node, NodeId, Topology, TopologyFault, Wiring};

/// Names of presets.
pub(crate) const PRESETS: [&str; 3] = ["leaf-spine", "fat-tree", "bigraph"];
const FORM: &str =
    "`leaf-spine 4 racks 100g 2:1 2 spines`, `fat-tree 8 ports 100g` or `bigraph 4 switches 100g`";

/// A usual network with its numbers; what is not said is nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shape {
    pub(crate) preset: String,
    pub(crate) racks: Option<u64>,
    pub(crate) ports: Option<u64>,
    pub(crate) switches: Option<u64>,
    pub(crate) spines: Option<u64>,
    pub(crate) gbps: Option<f64>,
    pub(crate) oversubscription: Option<f64>,
}

impl Shape {
    /// Reads what follows `over` in a line.
    pub(crate) fn parse(text: &str) -> Result<Shape, InputError> {
        let wrong = |part: &str| InputError::wrong(0, "cluster", part, FORM);
        let mut words = text.split_whitespace();
        let preset = words.next().ok_or_else(|| wrong("over"))?;
        if !PRESETS.contains(&preset) {
            let nearest = nearest(preset, PRESETS).map(str::to_owned);
            return Err(InputError { nearest, ..wrong(preset) });
        }
        let mut shape = Shape { preset: preset.to_owned(), ..Shape::default() };
        while let Some(word) = words.next() {
            if let Some((down, up)) = word.split_once(':') {
                let parts: Option<(f64, f64)> = down.parse().ok().zip(up.parse().ok());
                let ratio = parts.map(|(down, up)| down / up);
                let usual = ratio.filter(|ratio| (1e-3..=1e6).contains(ratio));
                shape.oversubscription = Some(usual.ok_or_else(|| wrong(word))?);
            } else if let Some(digits) = word.strip_suffix(['g', 'G']) {
                let gbps = digits.parse().ok().filter(|gbps| (1e-3..=1e9).contains(gbps));
                shape.gbps = Some(gbps.ok_or_else(|| wrong(word))?);
            } else {
                let count = word.parse().ok().filter(|count| (1..=60_000).contains(count));
                let count = Some(count.ok_or_else(|| wrong(word))?);
                match words.next() {
                    Some("racks" | "rack") => shape.racks = count,
                    Some("spines" | "spine") => shape.spines = count,
                    Some("ports") => shape.ports = count,
                    Some("switches" | "switch") => shape.switches = count,
                    other => return Err(wrong(other.unwrap_or(word))),
                }
            }
        }
        Ok(shape)
    }

    /// The words that [`Shape::parse`] reads.
    pub(crate) fn text(&self) -> String {
        let mut text = self.preset.clone();
        let counts = [
            (self.racks, "racks"),
            (self.ports, "ports"),
            (self.switches, "switches"),
            (self.spines, "spines"),
        ];
        for (count, word) in counts {
            if let Some(count) = count {
                text.push_str(&format!(" {count} {word}"));
            }
        }
        if let Some(gbps) = self.gbps {
            text.push_str(&format!(" {gbps}g"));
        }
        if let Some(ratio) = self.oversubscription {
            text.push_str(&format!(" {ratio}:1"));
        }
        text
    }

    /// The wiring that it stands for; what was not said comes from the bandwidths of the cluster.
    pub(crate) fn wire(&self, cluster: &mut Cluster) -> Result<Wiring, InputError> {
        let usual = cluster.links.rack_mbps;
        let mbps = self.gbps.map_or(usual, |gbps| ((gbps * 1000.0) as u64).max(1));
        let text = self.text();
        let wrong = |value: &str, expected: &str| InputError::wrong(0, "network", value, expected);
        let unused = |what: Option<u64>, word: &str| match what {
            Some(count) => {
                let expected = format!("nothing about {word} in a `{}`", self.preset);
                Err(wrong(&format!("{count} {word}"), &expected))
            }
            None => Ok(()),
        };
        match self.preset.as_str() {
            "leaf-spine" => {
                unused(self.ports, "ports")?;
                unused(self.switches, "switches")?;
                let racks = self.racks.map(|racks| racks.min(60_000) as u16);
                if racks.is_some_and(|racks| usize::from(racks) > cluster.nodes.len()) {
                    let expected = format!("at most {} racks, one node each", cluster.nodes.len());
                    return Err(wrong(&text, &expected));
                }
                let core = cluster.links.core_mbps.max(1);
                let ratio = (usual as f64 / core as f64).max(1.0);
                let oversubscription = self.oversubscription.unwrap_or(ratio);
                let spines = self.spines.unwrap_or(1).min(1024) as u16;
                let shape = LeafSpine { racks, mbps, oversubscription, spines };
                Ok(presets::leaf_spine(cluster, shape, &text))
            }
            "fat-tree" => {
                unused(self.racks, "racks")?;
                unused(self.switches, "switches")?;
                unused(self.spines, "spines")?;
                let ports = self.ports.unwrap_or_else(|| smallest_tree(cluster.nodes.len()));
                let wired = presets::fat_tree(cluster, ports.min(128) as u16, mbps, &text);
                wired.ok_or_else(|| {
                    wrong(&text, "an even number of ports up to 128 whose cube over four is at least the number of nodes")
                })
            }
            _ => {
                unused(self.racks, "racks")?;
                unused(self.ports, "ports")?;
                unused(self.spines, "spines")?;
                let switches = self.switches.unwrap_or(2).min(1024) as u16;
                Ok(presets::bigraph(cluster, switches, mbps, &text))
            }
        }
    }
}

/// The fewest ports of a fat tree that holds so many nodes.
fn smallest_tree(nodes: usize) -> u64 {
    (1..).map(|half| half * 2).find(|ports| ports * ports * ports / 4 >= nodes as u64).unwrap_or(2)
}

/// The inside of a name with as many GPUs as a node has.
pub(crate) fn known_inside(
    (line, field): (u64, &str),
    name: &str,
    gpus: u8,
    declared: &[Inside],
) -> Result<Inside, InputError> {
    let own = declared.iter().find(|inside| inside.name == name && inside.gpus == gpus);
    if let Some(inside) = own.cloned().or_else(|| Inside::preset(name, gpus)) {
        return Ok(inside);
    }
    let presets = Inside::PRESETS.map(|(known, ..)| known);
    let known = presets.into_iter().chain(declared.iter().map(|inside| inside.name.as_str()));
    if known.clone().any(|known| known == name) {
        let expected = format!("the inside of a node with {gpus} GPUs");
        return Err(InputError::wrong(line, field, name, expected));
    }
    Err(InputError::unknown(line, field, name, known))
}

/// Gives a cluster its topology: a wiring, and the insides of nodes of which one is named.
pub(crate) fn attach(
    cluster: &mut Cluster,
    mut wiring: Wiring,
    insides: Vec<Option<Inside>>,
    line: u64,
) -> Result<(), InputError> {
    for (node, inside) in insides.into_iter().enumerate() {
        if let Some(inside) = inside {
            wiring.inside_of[node] = wiring.inside(inside);
        }
    }
    // What is used by no node any more would be read back as another wiring.
    let used: Vec<Inside> = std::mem::take(&mut wiring.insides);
    let places = std::mem::take(&mut wiring.inside_of);
    for place in places {
        let index = wiring.inside(used[usize::from(place)].clone());
        wiring.inside_of.push(index);
    }
    let topology = Topology::new(wiring).map_err(|fault| told(&fault, cluster, line))?;
    cluster.topology = Some(std::sync::Arc::new(topology));
    Ok(())
}

/// A fault of a wiring in the words of a cluster file.
fn told(fault: &TopologyFault, cluster: &Cluster, line: u64) -> InputError {
    let name = |node: NodeId| cluster.nodes[node.index()].name.as_str();
    match fault {
        TopologyFault::LinkTwice { name } => {
            InputError::wrong(line, "link", name, "a name that no other link has")
        }
        TopologyFault::NoCapacity { name } => {
            InputError::wrong(line, "link", name, "a capacity above 0")
        }
        TopologyFault::WrongEnds { name } => {
            InputError::wrong(line, "link", name, "two different ends that exist")
        }
        TopologyFault::Disconnected { nodes } => {
            let rack = cluster.nodes[nodes[0].index()].rack;
            let outside = |node: &Node| node.rack == rack && !nodes.contains(&node.id);
            let others = cluster.nodes.iter().any(|node| node.rack != rack);
            if others && !cluster.nodes.iter().any(outside) {
                let expected = format!(
                    "a link out of it: its {} nodes, {} first, do not reach the others",
                    nodes.len(),
                    name(nodes[0])
                );
                return InputError::wrong(line, "uplink of rack", &rack.to_string(), expected);
            }
            let expected =
                format!("links that join all nodes: {} of them reach no other", nodes.len());
            InputError::wrong(line, "network", name(nodes[0]), expected)
        }
        TopologyFault::TooManySwitches { count } => InputError::wrong(
            line,
            "network",
            &count.to_string(),
            format!("at most {} switches", trainyard_types::topology::SWITCHES_MAX),
        ),
        TopologyFault::NoInside { node } => {
            InputError::wrong(line, "inside", name(*node), "an inside that is declared")
        }
    }
}
