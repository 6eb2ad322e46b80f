//! Networks as text: in the one line and in TOML, and what is refused.

use trainyard_types::{NodeId, Pattern, Placement, Topology};
use trainyard_workload::cluster::{line_of, parse};

fn topology(text: &str) -> Topology {
    let (cluster, _) = parse(text).unwrap();
    Topology::clone(cluster.topology.as_ref().expect("a network is declared"))
}

fn gbps(text: &str, nodes: &[u32]) -> f64 {
    let topology = topology(text);
    let placement = Placement::from_masks(nodes.iter().map(|node| (NodeId(*node), 0xff)));
    topology.load(&placement, Pattern::Ring).alone_mbps(&topology) / 1000.0
}

#[test]
fn a_line_declares_a_network_and_reads_back() {
    for line in [
        "8x8 v100 over leaf-spine 2 racks 100g 4:1",
        "8x8 v100 inside pcie over leaf-spine 4 racks 2 spines 100g",
        "16x8 h100 over fat-tree 4 ports 400g",
        "8x8 h100 in big over bigraph 4 switches 200g",
        "1x8 v100 inside dgx-1v",
    ] {
        let (cluster, _) = parse(line).unwrap();
        assert_eq!(line_of(&cluster), line);
        assert_eq!(parse(&line_of(&cluster)).unwrap().0, cluster);
    }
    let (plain, _) = parse("8x8 v100").unwrap();
    assert!(plain.topology.is_none(), "without a word about links nothing changes");
}

#[test]
fn racks_and_uplinks_follow_from_the_line() {
    let text = "8x8 v100 over leaf-spine 2 racks 100g 4:1";
    let (cluster, _) = parse(text).unwrap();
    let racks: Vec<u16> = cluster.nodes.iter().map(|node| node.rack).collect();
    assert_eq!(racks, [0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!((gbps(text, &[0, 1]), gbps(text, &[0, 4])), (100.0, 100.0));
    // Four nodes of 100 Gbit/s share an uplink of 100.
    let topology = topology(text);
    let uplink = topology.wiring().links.iter().find(|link| link.name == "rack0-spine0").unwrap();
    assert_eq!(uplink.mbps, 100_000);
}

const GRAPH: &str = r#"
[[nodes]]
count = 4
gpus = 4
kind = "a100"
inside = "ours"
[[inside]]
name = "ours"
gpus = 4
other_gbps = 100
pair = [{ gpus = [0, 1], gbps = 800, nvlinks = 4 }, { gpus = [2, 3], gbps = 800, nvlinks = 4 }]
[[switch]]
name = "left"
nodes = ["n0", "n1"]
nic_gbps = 200
[[switch]]
name = "right"
nodes = ["n2", "n3"]
nic_gbps = 200
[[link]]
between = ["left", "right"]
gbps = 50
"#;

#[test]
fn a_graph_is_read_link_by_link() {
    let (cluster, _) = parse(GRAPH).unwrap();
    let racks: Vec<u16> = cluster.nodes.iter().map(|node| node.rack).collect();
    assert_eq!(racks, [0, 0, 1, 1], "nodes on one switch are a rack");
    let topology = cluster.topology.as_deref().unwrap();
    let ring = |masks: &[(u32, u64)]| {
        let placement = Placement::from_masks(masks.iter().map(|(n, mask)| (NodeId(*n), *mask)));
        topology.load(&placement, Pattern::Ring).alone_mbps(topology) / 1000.0
    };
    assert_eq!([ring(&[(0, 0b11)]), ring(&[(0, 0b101)])], [800.0, 100.0]);
    assert_eq!([ring(&[(0, 1), (1, 1)]), ring(&[(0, 1), (2, 1)])], [200.0, 50.0]);
}

#[test]
fn what_is_wrong_with_a_network_is_said_with_its_line() {
    let cases = [
        (GRAPH.replace("gbps = 50", "gbps = 0"), "`gbps` cannot be `0`", 22),
        (GRAPH.replace("\"right\"]", "\"rigth\"]"), "did you mean `right`?", 21),
        (
            format!("{GRAPH}name = \"n1\"\n"),
            "`name` cannot be `n1`: expected a name that no other link has",
            23,
        ),
        (
            GRAPH.replace("[[link]]\nbetween = [\"left\", \"right\"]\ngbps = 50\n", ""),
            "`uplink of rack` cannot be `1`: expected a link out of it: its 2 nodes, n2 first",
            0,
        ),
        (
            GRAPH.replace(", \"n3\"]", "]"),
            "`network` cannot be `n3`: expected links that join all nodes",
            0,
        ),
        (
            GRAPH.replace("inside = \"ours\"", "inside = \"dgx-1v\""),
            "the inside of a node with 4 GPUs",
            6,
        ),
        (GRAPH.replace("inside = \"ours\"", "inside = \"our\""), "did you mean `ours`?", 6),
        (GRAPH.replace("[0, 1]", "[0, 7]"), "`gpus` cannot be", 11),
        (format!("{GRAPH}[network]\npreset = \"bigraph\"\n"), "either a preset or switches", 0),
    ];
    for (text, expected, at) in cases {
        let found = parse(&text).unwrap_err().to_string();
        assert!(found.contains(expected), "{found}\n  does not contain\n{expected}");
        let place = if at == 0 { "line ".to_owned() } else { format!("line {at}:") };
        assert!(found.starts_with(&place), "{found}\n  does not start with\n{place}");
    }
    for (text, expected) in [
        ("8x8 v100 over leafspine", "did you mean `leaf-spine`?"),
        ("8x8 v100 over leaf-spine 9 racks", "at most 8 racks"),
        ("8x8 v100 over leaf-spine 2 pods", "`leaf-spine 4 racks 100g 2:1"),
        ("8x8 v100 over leaf-spine 0g", "`leaf-spine 4 racks 100g 2:1"),
        ("8x8 v100 over leaf-spine 4 ports", "nothing about ports"),
        ("17x8 v100 over fat-tree 4 ports", "at least the number of nodes"),
        ("8x4 v100 inside dgx-1v", "the inside of a node with 4 GPUs"),
    ] {
        let found = parse(text).unwrap_err().to_string();
        assert!(found.contains(expected), "{text}: {found}");
    }
}
