//! The links of a cluster, as text and as a drawing.

use std::collections::BTreeMap;
use std::fmt::Write;
use trainyard_types::{Cluster, Inside, LinkEnd, NodeId, Topology, WireKind};

/// More switches than this are counted instead of listed.
const LISTED_MAX: usize = 40;
/// More nodes than this under one switch are drawn as one box.
const DRAWN_MAX: usize = 16;

/// What a switch carries.
struct Carried {
    nodes: Vec<NodeId>,
    down_mbps: u64,
    other_mbps: u64,
}

fn carried(topology: &Topology) -> Vec<Carried> {
    let wiring = topology.wiring();
    let none = || Carried { nodes: Vec::new(), down_mbps: 0, other_mbps: 0 };
    let mut all: Vec<Carried> = wiring.switches.iter().map(|_| none()).collect();
    for link in &wiring.links {
        match link.ends {
            [LinkEnd::Node(node), LinkEnd::Switch(at)]
            | [LinkEnd::Switch(at), LinkEnd::Node(node)] => {
                let switch = &mut all[at as usize];
                switch.nodes.push(node);
                switch.down_mbps += link.mbps;
            }
            [LinkEnd::Switch(a), LinkEnd::Switch(b)] => {
                all[a as usize].other_mbps += link.mbps;
                all[b as usize].other_mbps += link.mbps;
            }
            [LinkEnd::Node(_), LinkEnd::Node(_)] => {}
        }
    }
    all
}

fn gbps(mbps: u64) -> f64 {
    mbps as f64 / 1000.0
}

/// Rows of a table of switches: name, level, nodes, capacity to nodes and to other switches in Gbit/s.
pub fn switch_rows(topology: &Topology) -> Vec<Vec<String>> {
    let switches = &topology.wiring().switches;
    let rows = switches.iter().zip(carried(topology)).map(|(switch, carried)| {
        vec![
            switch.name.clone(),
            switch.level.to_string(),
            carried.nodes.len().to_string(),
            gbps(carried.down_mbps).to_string(),
            gbps(carried.other_mbps).to_string(),
        ]
    });
    let mut rows: Vec<Vec<String>> = rows.collect();
    if rows.len() > LISTED_MAX {
        let more = rows.len() - LISTED_MAX;
        rows.truncate(LISTED_MAX);
        rows.push(vec![format!("and {more} more")]);
    }
    rows
}

/// What nodes look like inside: a matrix of the wires between GPUs, for each kind of node.
pub fn insides(topology: &Topology) -> String {
    let wiring = topology.wiring();
    let mut text = String::new();
    for (index, inside) in wiring.insides.iter().enumerate() {
        let count = wiring.inside_of.iter().filter(|of| usize::from(**of) == index).count();
        let (name, gpus) = (&inside.name, inside.gpus);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{count} nodes with {gpus} GPUs inside as {name}");
        if gpus > 1 && inside.is_uniform() {
            let wire = inside.wire(0, 1);
            let kind = kind_text(wire.kind);
            let _ = writeln!(text, "  each pair {kind}, {} Gbit/s", gbps(wire.mbps));
        } else if gpus > 1 {
            let _ = write!(text, "{}", matrix(inside));
        }
    }
    text
}

fn kind_text(kind: WireKind) -> String {
    match kind {
        WireKind::Pcie => "PCIe".to_owned(),
        WireKind::NvLink(links) => format!("NV{links}"),
        WireKind::NvSwitch => "NVSwitch".to_owned(),
    }
}

fn matrix(inside: &Inside) -> String {
    let mut text = String::from("      ");
    for gpu in 0..inside.gpus {
        let _ = write!(text, "{gpu:>6}");
    }
    text.push('\n');
    for a in 0..inside.gpus {
        let _ = write!(text, "{a:>6}");
        for b in 0..inside.gpus {
            let cell = if a == b { "-".to_owned() } else { kind_text(inside.wire(a, b).kind) };
            let _ = write!(text, "{cell:>6}");
        }
        text.push('\n');
    }
    text
}

/// A place of the drawing.
#[derive(Copy, Clone)]
struct Spot {
    x: f64,
    y: f64,
}

/// The switches in rows, most distant from nodes on top, and the nodes below; links are lines, wider for more capacity.
pub fn svg(cluster: &Cluster, topology: &Topology) -> String {
    let wiring = topology.wiring();
    let carried = carried(topology);
    let mut levels: BTreeMap<u8, Vec<usize>> = BTreeMap::new();
    for (index, switch) in wiring.switches.iter().enumerate() {
        levels.entry(switch.level).or_default().push(index);
    }
    let boxes = node_boxes(cluster, topology, &carried);
    let widest = levels.values().map(Vec::len).max().unwrap_or(1).max(boxes.len());
    let width = (widest as f64 * 90.0 + 40.0).max(300.0);
    let height = 120.0 * (levels.len() as f64 + 1.0);
    let spread = |index: usize, count: usize| (index as f64 + 0.5) * width / count as f64;
    let mut spots = vec![Spot { x: 0.0, y: 0.0 }; wiring.switches.len()];
    for (row, switches) in levels.values().rev().enumerate() {
        for (index, switch) in switches.iter().enumerate() {
            let y = 60.0 + 120.0 * row as f64;
            spots[*switch] = Spot { x: spread(index, switches.len()), y };
        }
    }
    let mut node_spots: BTreeMap<NodeId, Spot> = BTreeMap::new();
    for (index, (_, nodes)) in boxes.iter().enumerate() {
        let spot = Spot { x: spread(index, boxes.len()), y: height - 50.0 };
        node_spots.extend(nodes.iter().map(|node| (*node, spot)));
    }
    let at = |end: LinkEnd| match end {
        LinkEnd::Node(node) => node_spots.get(&node).copied(),
        LinkEnd::Switch(switch) => spots.get(switch as usize).copied(),
    };
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"white\"/>\n"
    );
    // Nodes in one box have one line: the sum of theirs.
    let mut lines: BTreeMap<[i64; 4], (u64, u32)> = BTreeMap::new();
    for link in &wiring.links {
        if let [Some(a), Some(b)] = link.ends.map(at) {
            let line =
                lines.entry([a.x, a.y, b.x, b.y].map(|part| (part * 10.0) as i64)).or_default();
            *line = (line.0 + link.mbps, line.1 + 1);
        }
    }
    for (ends, (mbps, count)) in &lines {
        let [a, b, c, d] = ends.map(|part| part as f64 / 10.0);
        let wide = (1.0 + libm::log10(gbps(*mbps).max(1.0))).clamp(1.0, 6.0);
        let _ = writeln!(
            text,
            "<line x1=\"{a:.1}\" y1=\"{b:.1}\" x2=\"{c:.1}\" y2=\"{d:.1}\" stroke=\"#5b7fa6\" stroke-width=\"{wide:.1}\"><title>{count} x, {} Gbit/s</title></line>",
            gbps(*mbps)
        );
    }
    for (switch, spot) in wiring.switches.iter().zip(&spots) {
        draw_box(&mut text, *spot, &switch.name, "#dce7f3");
    }
    for (name, nodes) in &boxes {
        if let Some(spot) = nodes.first().and_then(|node| node_spots.get(node)) {
            draw_box(&mut text, *spot, name, "#e6f0dc");
        }
    }
    text.push_str("</svg>\n");
    text
}

/// Nodes in the order of the switches they are plugged into first, each a box, or many under one switch as one.
fn node_boxes(
    cluster: &Cluster,
    topology: &Topology,
    carried: &[Carried],
) -> Vec<(String, Vec<NodeId>)> {
    let mut by_port: BTreeMap<u32, Vec<NodeId>> = BTreeMap::new();
    for node in &cluster.nodes {
        by_port.entry(topology.port(node.id)).or_default().push(node.id);
    }
    let many = by_port.values().any(|nodes| nodes.len() > DRAWN_MAX) || carried.len() > DRAWN_MAX;
    let mut boxes = Vec::new();
    for nodes in by_port.into_values() {
        if many && nodes.len() > 1 {
            boxes.push((format!("{} nodes", nodes.len()), nodes));
        } else {
            let one = |node: NodeId| (cluster.node(node).name.clone(), vec![node]);
            boxes.extend(nodes.into_iter().map(one));
        }
    }
    boxes
}

fn draw_box(text: &mut String, spot: Spot, name: &str, fill: &str) {
    let name = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        text,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"80\" height=\"28\" rx=\"4\" fill=\"{fill}\" stroke=\"#444\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
        spot.x - 40.0,
        spot.y - 14.0,
        spot.x,
        spot.y + 4.0
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::topology::presets::{LeafSpine, leaf_spine};

    fn drawn(nodes: u32) -> (Cluster, Topology) {
        let mut cluster = Cluster::uniform(nodes, 8, "v100");
        let shape = LeafSpine { racks: Some(2), mbps: 100_000, oversubscription: 2.0, spines: 1 };
        let topology = Topology::new(leaf_spine(&mut cluster, shape, "")).unwrap();
        (cluster, topology)
    }

    #[test]
    fn switches_are_listed_with_what_they_carry() {
        let (_, topology) = drawn(8);
        let rows: Vec<String> = switch_rows(&topology).iter().map(|row| row.join(" ")).collect();
        assert_eq!(rows, ["rack0 1 4 400 200", "rack1 1 4 400 200", "spine0 2 0 0 400"]);
        let text = insides(&topology);
        assert!(text.contains("8 nodes with 8 GPUs inside as dgx-1v"), "{text}");
        assert!(text.contains("     0     -   NV1   NV1   NV2   NV2  PCIe  PCIe  PCIe"), "{text}");
    }

    #[test]
    fn a_drawing_has_a_box_for_each_switch_and_node_and_few_for_many() {
        let (cluster, topology) = drawn(8);
        let svg = svg(&cluster, &topology);
        assert_eq!(svg.matches("<rect").count(), 1 + 3 + 8);
        assert_eq!(svg.matches("<line").count(), 8 + 2);
        let (cluster, topology) = drawn(64);
        assert_eq!(super::svg(&cluster, &topology).matches("<rect").count(), 1 + 3 + 2);
    }
}
