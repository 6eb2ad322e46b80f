//! What differs between two clusters, in parts, and the clusters that have only some of the changes.
//!
//! Nodes, switches and links are the same where their names are. A part is one kind of change: nodes, what is plugged
//! where, the capacity of the links of one tier, the wires inside nodes, the bandwidths of tiers where links are not
//! declared one by one.

use std::collections::BTreeSet;
use std::sync::Arc;
use trainyard_types::{Cluster, Inside, Link, LinkEnd, Node, NodeId, PoolId, Topology, Wiring};

/// The levels that a link joins, lower first; a node is at level 0.
type Levels = (u8, u8);

/// A kind of change that can be made without the others.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Atom {
    /// Nodes come, go, or have other GPUs, CPUs or memory.
    Nodes,
    /// Switches and links come or go, or nodes are plugged in elsewhere.
    Shape,
    /// Links of one tier carry more or less.
    Tier(Levels),
    /// GPUs inside nodes are joined by other wires.
    Insides,
    /// Tiers have other bandwidths, where no links are declared.
    Bandwidths,
}

/// One change, which makes sense without the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What changes, in words.
    pub text: String,
    atoms: Vec<Atom>,
}

/// Two clusters and what differs.
#[derive(Debug)]
pub struct ClusterChange {
    present: Cluster,
    changed: Cluster,
    parts: Vec<Part>,
}

impl ClusterChange {
    /// Compares two clusters. The error says what cannot be compared, in words that go on after "expected".
    pub fn new(present: Cluster, changed: Cluster) -> Result<ClusterChange, String> {
        let tied = |one: &Cluster| one.cells.is_some() || !one.windows.is_empty();
        if tied(&present) || tied(&changed) {
            return Err("clusters without cells and windows, which name single nodes".to_owned());
        }
        if present.rules != changed.rules {
            return Err("clusters with the same rules for placements".to_owned());
        }
        let changed = renumbered(changed, &present)?;
        let mut change = ClusterChange { present, changed, parts: Vec::new() };
        change.parts = change.separable()?;
        Ok(change)
    }

    /// What differs; nothing if the clusters are alike.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The cluster of now.
    pub fn present(&self) -> &Cluster {
        &self.present
    }

    /// The cluster with all changes, its types of GPU numbered as in the present one.
    pub fn changed(&self) -> &Cluster {
        &self.changed
    }

    /// The present cluster with one part changed.
    pub fn with(&self, part: &Part) -> Cluster {
        self.composed(&part.atoms).expect("a part was found to make sense alone")
    }

    /// All differences, those that make no sense alone joined.
    fn separable(&self) -> Result<Vec<Part>, String> {
        let mut atoms = Vec::new();
        let (nodes, shape) = (self.nodes_differ(), self.shapes_differ());
        // Nodes that come and push others to another switch are one change.
        let alone = |atom| self.composed(&[atom]).is_ok();
        let moved = shape && self.common().any(|pair| self.is_moved(pair));
        match (nodes, shape) {
            (true, true) if moved || !alone(Atom::Nodes) || !alone(Atom::Shape) => {
                atoms.push(vec![Atom::Nodes, Atom::Shape]);
            }
            (nodes, shape) => {
                atoms.extend(nodes.then(|| vec![Atom::Nodes]));
                atoms.extend(shape.then(|| vec![Atom::Shape]));
            }
        }
        atoms.extend(self.tiers().into_iter().map(|levels| vec![Atom::Tier(levels)]));
        atoms.extend(self.insides_differ().then(|| vec![Atom::Insides]));
        let links = self.present.links != self.changed.links;
        atoms.extend(links.then(|| vec![Atom::Bandwidths]));
        let mut parts = Vec::with_capacity(atoms.len());
        for atoms in atoms {
            if let Err(fault) = self.composed(&atoms) {
                return Err(format!(
                    "changes that the names of nodes, switches and links show: of these alone, {fault}"
                ));
            }
            let texts: Vec<String> = atoms.iter().map(|atom| self.text(*atom)).collect();
            parts.push(Part { text: texts.join("; "), atoms });
        }
        Ok(parts)
    }

    /// The present cluster with some changes. O((nodes + links) x log), and the ways of the topology.
    fn composed(&self, on: &[Atom]) -> Result<Cluster, String> {
        let pick = |atom| if on.contains(&atom) { &self.changed } else { &self.present };
        let (nodes, wired) = (pick(Atom::Nodes), pick(Atom::Shape));
        let other = if on.contains(&Atom::Shape) { &self.present } else { &self.changed };
        let mut cluster = Cluster {
            links: pick(Atom::Bandwidths).links,
            nodes: Vec::with_capacity(nodes.nodes.len()),
            topology: None,
            ..nodes.clone()
        };
        for (id, node) in (0..).map(NodeId).zip(&nodes.nodes) {
            let placed = named(wired, &node.name).or_else(|| named(other, &node.name));
            let rack = placed.map_or(node.rack, |placed| placed.rack);
            cluster.nodes.push(Node { id, rack, ..node.clone() });
        }
        let Some(topology) = wired.topology.as_deref() else { return Ok(cluster) };
        let mut wiring = Wiring {
            switches: topology.wiring().switches.clone(),
            links: self.links(&cluster, (wired, other), on)?,
            ..Wiring::default()
        };
        for node in &cluster.nodes {
            let inside = self.inside(node, (pick(Atom::Insides), nodes))?;
            let index = wiring.inside(inside);
            wiring.inside_of.push(index);
        }
        let topology = Topology::new(wiring).map_err(|fault| fault.to_string())?;
        cluster.topology = Some(Arc::new(topology));
        Ok(cluster)
    }

    /// The links of a composed cluster: those of `wired` between what is there, and those that plug in the nodes that
    /// only `other` has.
    fn links(
        &self,
        cluster: &Cluster,
        (wired, other): (&Cluster, &Cluster),
        on: &[Atom],
    ) -> Result<Vec<Link>, String> {
        let mut links = Vec::new();
        for link in all_links(wired) {
            let ends = link.ends.map(|end| moved_end(end, wired, (cluster, wired)));
            if let [Some(a), Some(b)] = ends {
                links.push(Link { ends: [a, b], mbps: self.mbps(link, wired, on), ..link.clone() });
            }
        }
        let is_new = |end: &LinkEnd| match end {
            LinkEnd::Node(node) => {
                let name = &other.node(*node).name;
                named(wired, name).is_none() && named(cluster, name).is_some()
            }
            LinkEnd::Switch(_) => false,
        };
        for link in all_links(other).iter().filter(|link| link.ends.iter().any(is_new)) {
            let ends = link.ends.map(|end| moved_end(end, other, (cluster, wired)));
            let [Some(a), Some(b)] = ends else {
                return Err(format!("the link `{}` ends at nothing", link.name));
            };
            links.push(Link { ends: [a, b], mbps: self.mbps(link, other, on), ..link.clone() });
        }
        Ok(links)
    }

    /// What a link of `from` carries. One that is only there gets what its tier has elsewhere, if that is one figure, so
    /// that a new node does not bring a faster tier with it.
    fn mbps(&self, link: &Link, from: &Cluster, on: &[Atom]) -> u64 {
        let levels = levels(link, from);
        let decides = match on.contains(&Atom::Tier(levels)) {
            true => &self.changed,
            false if self.tiers().contains(&levels) => &self.present,
            false => return link.mbps,
        };
        let same = all_links(decides).iter().find(|one| label(one, decides) == label(link, from));
        let tier = all_links(decides).iter().filter(|one| self::levels(one, decides) == levels);
        let figures: BTreeSet<u64> = tier.map(|one| one.mbps).collect();
        let usual = figures.first().filter(|_| figures.len() == 1);
        same.map(|one| one.mbps).or(usual.copied()).unwrap_or(link.mbps)
    }

    /// What a node is like inside: by the cluster that decides where that has it with as many GPUs, else by its own.
    fn inside(&self, node: &Node, (decides, own): (&Cluster, &Cluster)) -> Result<Inside, String> {
        let all = [decides, own, &self.present, &self.changed];
        let found = all.into_iter().find_map(|cluster| {
            let there = named(cluster, &node.name).filter(|there| there.gpus == node.gpus)?;
            Some(cluster.topology.as_ref()?.inside(there.id).clone())
        });
        found.ok_or_else(|| format!("the node `{}` has no declared inside", node.name))
    }

    /// Nodes of the same name in both.
    fn common(&self) -> impl Iterator<Item = (&Node, &Node)> {
        let all = self.present.nodes.iter();
        all.filter_map(|node| Some((node, named(&self.changed, &node.name)?)))
    }

    fn nodes_differ(&self) -> bool {
        self.present.nodes.len() != self.changed.nodes.len()
            || self.common().count() != self.present.nodes.len()
            || self.common().any(|(now, then)| !is_alike(now, then))
    }

    fn is_moved(&self, (now, then): (&Node, &Node)) -> bool {
        let both = self.present.topology.is_some() && self.changed.topology.is_some();
        now.rack != then.rack
            || both && plugs(&self.present, now.id) != plugs(&self.changed, then.id)
    }

    fn shapes_differ(&self) -> bool {
        self.common().any(|pair| self.is_moved(pair))
            || self.present.topology.is_some() != self.changed.topology.is_some()
            || switches(&self.present) != switches(&self.changed)
            || cables(&self.present) != cables(&self.changed)
    }

    /// Tiers in which a link that both have carries more or less.
    fn tiers(&self) -> BTreeSet<Levels> {
        let now: std::collections::BTreeMap<String, u64> = all_links(&self.present)
            .iter()
            .map(|one| (label(one, &self.present), one.mbps))
            .collect();
        let differs = |link: &&Link| {
            now.get(&label(link, &self.changed)).is_some_and(|mbps| *mbps != link.mbps)
        };
        let differing = all_links(&self.changed).iter().filter(differs);
        differing.map(|link| levels(link, &self.changed)).collect()
    }

    fn insides_differ(&self) -> bool {
        self.differing_insides().next().is_some()
    }

    fn differing_insides(&self) -> impl Iterator<Item = (&Inside, &Inside)> {
        let topologies = self.present.topology.as_deref().zip(self.changed.topology.as_deref());
        let alike = self.common().filter(|(now, then)| now.gpus == then.gpus);
        alike.filter_map(move |(now, then)| {
            let (old, new) = topologies?;
            let (old, new) = (old.inside(now.id), new.inside(then.id));
            (old != new).then_some((old, new))
        })
    }

    fn text(&self, atom: Atom) -> String {
        match atom {
            Atom::Nodes => self.nodes_text(),
            Atom::Shape => self.shape_text(),
            Atom::Tier(levels) => {
                let [now, then] = [&self.present, &self.changed].map(|one| tier_text(one, levels));
                format!("links {}: {now} to {then} Gbit/s", between(levels))
            }
            Atom::Insides => {
                let names: BTreeSet<String> = self
                    .differing_insides()
                    .map(|(old, new)| format!("{} to {}", old.name, new.name))
                    .collect();
                let names: Vec<String> = names.into_iter().collect();
                let count = self.differing_insides().count();
                format!("wires inside {count} nodes: {}", names.join(", "))
            }
            Atom::Bandwidths => {
                let (now, then) = (self.present.links, self.changed.links);
                format!(
                    "bandwidths: node {} to {}, rack {} to {}, core {} to {} Gbit/s",
                    gbps(now.node_mbps),
                    gbps(then.node_mbps),
                    gbps(now.rack_mbps),
                    gbps(then.rack_mbps),
                    gbps(now.core_mbps),
                    gbps(then.core_mbps)
                )
            }
        }
    }

    fn nodes_text(&self) -> String {
        let only = |one: &Cluster, other: &Cluster| {
            let only: Vec<u32> = one
                .nodes
                .iter()
                .filter(|node| named(other, &node.name).is_none())
                .map(|node| u32::from(node.gpus))
                .collect();
            (only.len(), only.iter().sum::<u32>())
        };
        let other = self.common().filter(|(now, then)| !is_alike(now, then)).count();
        let (added, more) = only(&self.changed, &self.present);
        let (removed, fewer) = only(&self.present, &self.changed);
        let all = [
            (added, format!("{added} nodes with {more} GPUs added")),
            (removed, format!("{removed} nodes with {fewer} GPUs removed")),
            (other, format!("{other} nodes with other GPUs or hosts")),
        ];
        let texts: Vec<String> =
            all.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
        texts.join(", ")
    }

    fn shape_text(&self) -> String {
        match (self.present.topology.is_some(), self.changed.topology.is_some()) {
            (false, true) => return "links declared one by one".to_owned(),
            (true, false) => return "no links declared any more".to_owned(),
            _ => {}
        }
        let moved = self.common().filter(|pair| self.is_moved(*pair)).count();
        let (old, new) = (switches(&self.present), switches(&self.changed));
        let (gone, come) = (cables(&self.present), cables(&self.changed));
        let all = [
            (new.difference(&old).count(), ("switch added", "switches added")),
            (old.difference(&new).count(), ("switch removed", "switches removed")),
            (come.difference(&gone).count(), ("link added", "links added")),
            (gone.difference(&come).count(), ("link removed", "links removed")),
            (moved, ("node plugged in elsewhere", "nodes plugged in elsewhere")),
        ];
        let texts: Vec<String> = all
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, (one, many))| format!("{count} {}", if count == 1 { one } else { many }))
            .collect();
        texts.join(", ")
    }
}

/// The same cluster with types of GPU and pools numbered as in another one, those that it adds behind them.
fn renumbered(mut cluster: Cluster, as_in: &Cluster) -> Result<Cluster, String> {
    let own = std::mem::replace(&mut cluster.kinds, as_in.kinds.clone());
    let mut types = Vec::with_capacity(own.len());
    for kind in &own {
        let index = cluster.add_kind(&kind.name);
        match as_in.kinds.get(index.index()) {
            Some(known) if known != kind => {
                return Err(format!(
                    "the GPU type `{}` with the same memory, price and power",
                    kind.name
                ));
            }
            Some(_) => {}
            None => cluster.kinds[index.index()] = kind.clone(),
        }
        types.push(index);
    }
    let pools = std::mem::replace(&mut cluster.pools, as_in.pools.clone());
    for node in &mut cluster.nodes {
        node.kind = types[node.kind.index()];
        let name = &pools[node.pool.index()];
        let at = cluster.pools.iter().position(|pool| pool == name);
        let at = at.unwrap_or_else(|| {
            cluster.pools.push(name.clone());
            cluster.pools.len() - 1
        });
        node.pool = PoolId(at as _);
    }
    Ok(cluster)
}

fn is_alike(now: &Node, then: &Node) -> bool {
    let what = |node: &Node| (node.kind, node.gpus, node.cpus, node.memory_mib, node.pool);
    what(now) == what(then)
}

fn named<'a>(cluster: &'a Cluster, name: &str) -> Option<&'a Node> {
    cluster.nodes.iter().find(|node| node.name == name)
}

fn all_links(cluster: &Cluster) -> &[Link] {
    cluster.topology.as_ref().map_or(&[], |topology| &topology.wiring().links)
}

fn switches(cluster: &Cluster) -> BTreeSet<(&str, u8)> {
    let topology = cluster.topology.as_ref();
    let all = topology.map_or(&[][..], |topology| &topology.wiring().switches);
    all.iter().map(|switch| (switch.name.as_str(), switch.level)).collect()
}

/// Links between switches; those of nodes are compared node by node.
fn cables(of: &Cluster) -> BTreeSet<String> {
    let is_switch = |end: &LinkEnd| matches!(end, LinkEnd::Switch(_));
    let cables = all_links(of).iter().filter(|link| link.ends.iter().all(is_switch));
    cables.map(|link| label(link, of)).collect()
}

/// The name of an end and its level.
fn end_of(end: LinkEnd, cluster: &Cluster) -> (&str, u8) {
    match (end, cluster.topology.as_deref()) {
        (LinkEnd::Node(node), _) => (&cluster.node(node).name, 0),
        (LinkEnd::Switch(switch), Some(topology)) => {
            let switch = &topology.wiring().switches[switch as usize];
            (&switch.name, switch.level)
        }
        (LinkEnd::Switch(_), None) => ("", 0),
    }
}

/// What says that two links are the same one: its name and what it joins.
fn label(link: &Link, cluster: &Cluster) -> String {
    let mut ends = link.ends.map(|end| end_of(end, cluster).0);
    ends.sort_unstable();
    format!("{} {} {}", link.name, ends[0], ends[1])
}

fn levels(link: &Link, cluster: &Cluster) -> Levels {
    let [a, b] = link.ends.map(|end| end_of(end, cluster).1);
    (a.min(b), a.max(b))
}

/// The links of a node.
fn plugs(cluster: &Cluster, node: NodeId) -> BTreeSet<String> {
    let own = all_links(cluster).iter().filter(|link| link.ends.contains(&LinkEnd::Node(node)));
    own.map(|link| label(link, cluster)).collect()
}

/// An end of `from` in a composed cluster whose switches are those of `wired`; nothing if it is not there.
fn moved_end(
    end: LinkEnd,
    from: &Cluster,
    (cluster, wired): (&Cluster, &Cluster),
) -> Option<LinkEnd> {
    let (name, _) = end_of(end, from);
    match end {
        LinkEnd::Node(_) => named(cluster, name).map(|node| LinkEnd::Node(node.id)),
        LinkEnd::Switch(_) => {
            let switches = &wired.topology.as_ref()?.wiring().switches;
            let at = switches.iter().position(|switch| switch.name == name)?;
            Some(LinkEnd::Switch(at as u32))
        }
    }
}

fn between((low, high): Levels) -> String {
    match low {
        0 if high == 0 => "between nodes".to_owned(),
        0 => format!("of nodes to level {high}"),
        _ => format!("of level {low} to level {high}"),
    }
}

fn tier_text(cluster: &Cluster, of: Levels) -> String {
    let tier = all_links(cluster).iter().filter(|link| levels(link, cluster) == of);
    let figures: BTreeSet<u64> = tier.map(|link| link.mbps).collect();
    match (figures.first(), figures.last()) {
        (Some(least), Some(most)) if least != most => format!("{}-{}", gbps(*least), gbps(*most)),
        (Some(one), _) => gbps(*one).to_string(),
        _ => "none".to_owned(),
    }
}

fn gbps(mbps: u64) -> f64 {
    mbps as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_workload::cluster::{parse, parse_line};

    fn change(present: &str, changed: &str) -> ClusterChange {
        let read = |line: &str| parse_line(line).expect("a cluster");
        ClusterChange::new(read(present), read(changed)).expect("clusters that compare")
    }

    fn texts(change: &ClusterChange) -> Vec<&str> {
        change.parts().iter().map(|part| part.text.as_str()).collect()
    }

    fn speeds(cluster: &Cluster) -> Vec<String> {
        let text = |link: &Link| format!("{} {}", label(link, cluster), link.mbps);
        all_links(cluster).iter().map(text).collect()
    }

    #[test]
    fn each_kind_of_change_is_a_part_and_all_of_them_make_the_changed_cluster() {
        let change = change(
            "8x8 v100 over leaf-spine 2 racks 100g 4:1",
            "8x8 v100 over leaf-spine 2 racks 200g 4:1 2 spines",
        );
        let expected =
            ["1 switch added, 2 links added", "links of nodes to level 1: 100 to 200 Gbit/s"];
        // The uplinks carry 100 Gbit/s in both: twice as much below, over two spines.
        assert_eq!(texts(&change), expected);
        let atoms: Vec<Atom> = change.parts().iter().flat_map(|part| part.atoms.clone()).collect();
        let all = change.composed(&atoms).expect("a cluster");
        assert_eq!(speeds(&all), speeds(change.changed()));
        assert_eq!(speeds(&change.composed(&[]).expect("a cluster")), speeds(change.present()));
        let faster = change.with(&change.parts()[1]);
        assert_eq!(speeds(&faster)[0], "n0 n0 rack0 200000");
        assert_eq!(faster.topology.expect("links").wiring().switches.len(), 3, "one spine still");
    }

    #[test]
    fn a_new_node_brings_no_faster_tier_with_it() {
        let switch = |nodes: &str, nic: u32| {
            format!("[[switch]]\nname = \"leaf\"\nnodes = [{nodes}]\nnic_gbps = {nic}\n")
        };
        let read = |count: u32, nic: u32| {
            let names: Vec<String> = (0..count).map(|node| format!("\"n{node}\"")).collect();
            let text = format!(
                "[[nodes]]\ncount = {count}\ngpus = 8\nkind = \"v100\"\n{}",
                switch(&names.join(", "), nic)
            );
            parse(&text).expect("a cluster").0
        };
        let change = ClusterChange::new(read(2, 100), read(4, 200)).expect("clusters that compare");
        let expected =
            ["2 nodes with 16 GPUs added", "links of nodes to level 1: 100 to 200 Gbit/s"];
        assert_eq!(texts(&change), expected);
        let more = change.with(&change.parts()[0]);
        assert_eq!(speeds(&more), ["n0", "n1", "n2", "n3"].map(|n| format!("{n} leaf {n} 100000")));
        assert_eq!(more.gpus(), 32);
    }

    #[test]
    fn nodes_that_push_others_to_another_switch_are_one_part_with_that() {
        let change = change(
            "4x8 v100 over leaf-spine 2 racks 100g",
            "8x8 v100 over leaf-spine 2 racks 100g",
        );
        let expected = [
            "4 nodes with 32 GPUs added; 2 nodes plugged in elsewhere",
            "links of level 1 to level 2: 100 to 200 Gbit/s",
        ];
        assert_eq!(texts(&change), expected);
        assert_eq!(change.with(&change.parts()[0]).nodes[3].rack, 0);
    }

    #[test]
    fn wires_inside_types_and_bandwidths_are_parts() {
        let read = |text: &str| parse(text).expect("a cluster").0;
        let inside = |name: &str| {
            let nodes = "[[nodes]]\ncount = 2\ngpus = 8\nkind = \"v100\"\n";
            read(&format!("{nodes}inside = \"{name}\"\n"))
        };
        let wires = ClusterChange::new(inside("pcie"), inside("dgx-1v")).expect("they compare");
        assert_eq!(texts(&wires), ["wires inside 2 nodes: pcie to dgx-1v"]);
        // Without links, a new type is numbered behind those that are known.
        let types = change("2x8 v100, 2x8 a100", "2x8 a100, 2x8 v100, 1x8 h100");
        let names = |cluster: &Cluster| -> Vec<String> {
            cluster.kinds.iter().map(|kind| kind.name.clone()).collect()
        };
        assert_eq!(names(types.present())[..], names(types.changed())[..2]);
        assert_eq!(names(types.changed())[2], "h100");
        assert!(texts(&change("2x8 v100", "2x8 v100")).is_empty());
    }
}
