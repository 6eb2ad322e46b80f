//! The TOML form of a cluster.

use crate::cells_toml;
use crate::cluster::{GPUS_PER_NODE_MAX, NODES_MAX, add_kind, default_kind, kind_name, known_kind};
use crate::network_toml::{self, Named, TABLES};
use std::collections::{BTreeMap, BTreeSet};
use trainyard_diagnostic::InputError;
use trainyard_diagnostic::{Document, Section};
use trainyard_types::{
    Allowed, Cluster, GpuKind, Links, NodeId, PoolId, Span, Tenant, TenantId, Tenants, Time,
    Window, WindowId,
};

/// Reads a whole text.
pub(crate) fn parse(text: &str) -> Result<(Cluster, Tenants), InputError> {
    let document = Document::parse(text)?;
    let root = document.root();
    let own = ["kind", "nodes", "links", "placement", "tenant", "window", "cells"];
    root.allow(&[&own[..], &TABLES[..]].concat())?;
    let mut cluster = Cluster { pools: vec!["default".to_owned()], ..Cluster::default() };
    for section in root.sections("kind")? {
        read_kind(&section, &mut cluster)?;
    }
    let groups = root.sections("nodes")?;
    if groups.is_empty() {
        return Err(InputError::missing(1, "nodes", "at least one `[[nodes]]` table"));
    }
    let mut insides: Named = Vec::new();
    for section in groups {
        read_nodes(&section, &mut cluster)?;
        let inside = section.text("inside")?;
        let inside = inside.map(|name| (name.to_owned(), section.line_of("inside")));
        insides.resize(cluster.nodes.len(), inside);
    }
    if let Some(section) = root.section("links")? {
        cluster.links = read_links(&section)?;
    }
    network_toml::read(&root, &mut cluster, &insides)?;
    if let Some(section) = root.section("placement")? {
        section.allow(&["equal_per_node", "exclusive_nodes"])?;
        let rules = &mut cluster.rules;
        rules.equal_per_node = section.flag("equal_per_node")?.unwrap_or(false);
        rules.exclusive_nodes = section.flag("exclusive_nodes")?.unwrap_or(false);
    }
    let tenants = read_tenants(&root)?;
    cells_toml::read(&root, &mut cluster, &tenants)?;
    for section in root.sections("window")? {
        let window = read_window(&section, &cluster, &tenants)?;
        cluster.windows.push(window);
    }
    Ok((cluster, tenants))
}

/// Maintenance, or a reservation for tenants; times are counted from the start.
fn read_window(
    section: &Section<'_, '_>,
    cluster: &Cluster,
    tenants: &Tenants,
) -> Result<Window, InputError> {
    section.allow(&["nodes", "from", "for", "reason", "tenants"])?;
    section.text("reason")?;
    let node = |name: &str| {
        let known = cluster.nodes.iter().map(|node| node.name.as_str());
        let found = cluster.nodes.iter().find(|node| node.name == name);
        let line = section.line_of("nodes");
        found.map(|node| node.id).ok_or_else(|| InputError::unknown(line, "nodes", name, known))
    };
    let nodes: Vec<NodeId> = section
        .texts("nodes")?
        .unwrap_or_default()
        .into_iter()
        .map(node)
        .collect::<Result<_, _>>()?;
    if nodes.is_empty() {
        return Err(section.wrong("nodes", "a list with the name of at least one node"));
    }
    let from = section.span("from")?;
    let from = from.ok_or_else(|| section.wrong("from", "a moment such as 8h"))?;
    let length = section.span("for")?.filter(|length| *length > Span::ZERO);
    let length = length.ok_or_else(|| section.wrong("for", "a length of time such as 4h"))?;
    let tenant = |name: &str| {
        let known: Vec<&str> = tenants.iter().map(|(_, tenant)| tenant.name.as_str()).collect();
        let line = section.line_of("tenants");
        tenants.find(name).ok_or_else(|| InputError::unknown(line, "tenants", name, known))
    };
    let allowed: BTreeSet<TenantId> = section
        .texts("tenants")?
        .unwrap_or_default()
        .into_iter()
        .map(tenant)
        .collect::<Result<_, _>>()?;
    let reserved = Allowed { tenants: allowed, ..Allowed::default() };
    let from = Time::ZERO + from;
    Ok(Window {
        id: WindowId(cluster.windows.len() as u32),
        nodes,
        from,
        until: from + length,
        reserved: (!reserved.tenants.is_empty()).then_some(reserved),
    })
}

/// Reads a text that declares tenants and nothing else.
pub(crate) fn parse_tenants(text: &str) -> Result<Tenants, InputError> {
    let document = Document::parse(text)?;
    let root = document.root();
    root.allow(&["tenant"])?;
    for section in root.sections("tenant")? {
        if section.section("cells")?.is_some() {
            let expected =
                "cells in the file of the cluster only, which says what levels are there";
            return Err(section.wrong("cells", expected));
        }
    }
    read_tenants(&root)
}

/// Reads which users and groups belong to which tenant, from the same text.
pub(crate) fn parse_members(text: &str) -> Result<BTreeMap<String, Vec<String>>, InputError> {
    let document = Document::parse(text)?;
    let mut members = BTreeMap::new();
    for section in document.root().sections("tenant")? {
        if let Some(names) = section.texts("members")? {
            let names = names.into_iter().map(str::to_owned).collect();
            members.insert(section.needed_text("name")?.to_owned(), names);
        }
    }
    Ok(members)
}

fn read_tenants(root: &Section<'_, '_>) -> Result<Tenants, InputError> {
    let mut tenants: Vec<Tenant> = Vec::new();
    for section in root.sections("tenant")? {
        tenants.push(read_tenant(&section, &tenants)?);
    }
    Ok(if tenants.is_empty() { Tenants::default() } else { Tenants::new(tenants) })
}

fn read_kind(section: &Section<'_, '_>, cluster: &mut Cluster) -> Result<(), InputError> {
    section.allow(&["name", "memory_gib", "price_per_hour", "watts"])?;
    let name = kind_name(section.line_of("name"), "name", section.needed_text("name")?)?;
    if cluster.kind(&name).is_some() {
        return Err(section.wrong("name", "a type that no earlier `[[kind]]` declares"));
    }
    let mut kind = default_kind(&name).unwrap_or(GpuKind {
        name,
        memory_mib: 0,
        price_per_hour: 0.0,
        watts: 0,
    });
    if let Some(gib) = section.real("memory_gib", 0.0..=1e5)? {
        kind.memory_mib = (gib * 1024.0) as u32;
    }
    if let Some(price) = section.real("price_per_hour", 0.0..=1e6)? {
        kind.price_per_hour = price;
    }
    if let Some(watts) = section.whole("watts", 0..=100_000)? {
        kind.watts = watts as u32;
    }
    add_kind(cluster, section.line(), kind).map(|_| ())
}

const NODES_KEYS: [&str; 10] =
    ["count", "gpus", "kind", "cpus", "memory_gib", "rack", "racks", "pool", "name", "inside"];

fn read_nodes(section: &Section<'_, '_>, cluster: &mut Cluster) -> Result<(), InputError> {
    section.allow(&NODES_KEYS)?;
    let room = NODES_MAX - cluster.nodes.len() as u64;
    let count = section.whole("count", 1..=room)?.unwrap_or(1);
    let gpus = section.needed_whole("gpus", 1..=GPUS_PER_NODE_MAX)? as u8;
    let kind = section.needed_text("kind")?;
    let kind = known_kind(cluster, section.line_of("kind"), kind)
        .map_err(|fault| InputError { field: "kind".to_owned(), ..fault })?;
    let cpus = section.whole("cpus", 0..=u64::from(u16::MAX))?.unwrap_or(0) as u16;
    let memory_gib = section.real("memory_gib", 0.0..=4e6)?.unwrap_or(0.0);
    let pool = match section.text("pool")? {
        Some(name) => {
            pool_of(cluster, name).ok_or_else(|| section.wrong("pool", "at most 65535 pools"))?
        }
        None => PoolId(0),
    };
    let (rack, racks) = read_racks(section, cluster, count)?;
    let name = section.text("name")?;
    for index in 0..count {
        let id = cluster.add_node(kind, gpus);
        let node = &mut cluster.nodes[id.index()];
        (node.cpus, node.memory_mib, node.pool) = (cpus, (memory_gib * 1024.0) as u32, pool);
        // Neighbours in the list stand in one rack.
        node.rack = rack + (index * racks / count) as u16;
        if let Some(name) = name {
            node.name = if count == 1 { name.to_owned() } else { format!("{name}{index}") };
        }
    }
    Ok(())
}

/// The first rack of a group of nodes, and how many racks it takes.
fn read_racks(
    section: &Section<'_, '_>,
    cluster: &Cluster,
    count: u64,
) -> Result<(u16, u64), InputError> {
    let rack = section.whole("rack", 0..=60_000)?;
    let racks = section.whole("racks", 1..=count.min(60_000))?;
    match (rack, racks) {
        (Some(_), Some(_)) => Err(section.wrong("racks", "either `rack` or `racks`, not both")),
        (Some(rack), None) => Ok((rack as u16, 1)),
        (None, None) => Ok((0, 1)),
        (None, Some(racks)) => {
            let next = cluster.nodes.iter().map(|node| u64::from(node.rack) + 1).max().unwrap_or(0);
            if next + racks > u64::from(u16::MAX) {
                return Err(section.wrong("racks", "at most 65535 racks in all"));
            }
            Ok((next as u16, racks))
        }
    }
}

pub(crate) fn pool_of(cluster: &mut Cluster, name: &str) -> Option<PoolId> {
    if let Some(index) = cluster.pools.iter().position(|pool| pool == name) {
        return Some(PoolId(index as u16));
    }
    cluster.pools.push(name.to_owned());
    u16::try_from(cluster.pools.len() - 1).ok().map(PoolId)
}

fn read_links(section: &Section<'_, '_>) -> Result<Links, InputError> {
    section.allow(&["node_gbps", "rack_gbps", "core_gbps"])?;
    let mut links = Links::default();
    for (key, mbps) in [
        ("node_gbps", &mut links.node_mbps),
        ("rack_gbps", &mut links.rack_mbps),
        ("core_gbps", &mut links.core_mbps),
    ] {
        if let Some(gbps) = section.real(key, 0.001..=1e9)? {
            *mbps = (gbps * 1000.0) as u64;
        }
    }
    Ok(links)
}

fn read_tenant(section: &Section<'_, '_>, others: &[Tenant]) -> Result<Tenant, InputError> {
    section.allow(&["name", "parent", "weight", "ceiling", "members", "cells", "shares_gpus"])?;
    section.texts("members")?;
    let mut tenant = Tenant::named(section.needed_text("name")?);
    if others.iter().any(|other| other.name == tenant.name) {
        return Err(section.wrong("name", "a tenant that no earlier `[[tenant]]` declares"));
    }
    if let Some(parent) = section.text("parent")? {
        let index = others.iter().position(|other| other.name == parent);
        let known = others.iter().map(|other| other.name.as_str());
        let index = index.ok_or_else(|| section.unknown("parent", known))?;
        tenant.parent = Some(TenantId(index as u32));
    }
    if let Some(weight) = section.real("weight", 1e-9..=1e9)? {
        tenant.weight = weight;
    }
    tenant.shares_gpus = section.flag("shares_gpus")?.unwrap_or(false);
    tenant.ceiling = section.whole("ceiling", 0..=u64::from(u32::MAX))?.map(|gpus| gpus as u32);
    Ok(tenant)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
[[kind]]
name = "Magic"
memory_gib = 99.5
price_per_hour = 0.25

[[nodes]]
count = 4
gpus = 8
kind = "a100"
cpus = 96
memory_gib = 1024
racks = 2
name = "gpu"

[[nodes]]
gpus = 2
kind = "magic"
pool = "spare"
rack = 7

[links]
core_gbps = 12.5

[[tenant]]
name = "research"
weight = 2
ceiling = 20
[[tenant]]
name = "vision"
parent = "research"
"#;

    #[test]
    fn a_whole_text_is_read() {
        let (cluster, tenants) = parse(TEXT).unwrap();
        assert_eq!((cluster.nodes.len(), cluster.gpus()), (5, 34));
        let racks: Vec<u16> = cluster.nodes.iter().map(|node| node.rack).collect();
        assert_eq!(racks, [0, 0, 1, 1, 7]);
        assert_eq!(
            (cluster.nodes[3].name.as_str(), cluster.nodes[4].name.as_str()),
            ("gpu3", "n4")
        );
        assert_eq!(
            (cluster.kinds[0].name.as_str(), cluster.kinds[0].memory_mib),
            ("magic", 101_888)
        );
        assert_eq!((cluster.pools[1].as_str(), cluster.nodes[4].pool), ("spare", PoolId(1)));
        assert_eq!((cluster.links.rack_mbps, cluster.links.core_mbps), (100_000, 12_500));
        let vision = tenants.find("vision").unwrap();
        assert_eq!(tenants.get(vision).parent, tenants.find("research"));
        assert_eq!(tenants.get(TenantId(0)).ceiling, Some(20));
    }

    #[test]
    fn members_are_told_by_tenant() {
        let text =
            "[[tenant]]\nname = \"a\"\nmembers = [\"ann\", \"@labs\"]\n[[tenant]]\nname = \"b\"\n";
        let members = parse_members(text).unwrap();
        assert_eq!(members.len(), 1, "b has none of its own");
        assert_eq!(members["a"], ["ann", "@labs"]);
        assert_eq!(parse_tenants(text).unwrap().len(), 2);
    }

    const CELLS: &str = "[[cells]]\nkind = \"a100\"\nlevel = [{ name = \"pair\", gpus = 2 }, { name = \"node\", gpus = 8 }]\n";

    #[test]
    fn cells_and_virtual_clusters_are_read() {
        let nodes = "[[nodes]]\ngpus = 8\ncount = 2\nkind = \"a100\"\n";
        let tenant = "[[tenant]]\nname = \"a\"\ncells = { node = 1, pair = 2 }\n";
        let (cluster, _) = parse(&format!("{nodes}{CELLS}{tenant}")).unwrap();
        let cells = cluster.cells.as_ref().expect("they were declared");
        assert_eq!(cells.gpus(0, cluster.kind("a100").unwrap()), 12);
        assert!(parse_tenants(tenant).unwrap_err().to_string().contains("file of the cluster"));
    }

    #[test]
    fn every_fault_names_its_line() {
        let nodes = "[[nodes]]\ngpus = 8\nkind = \"a100\"\n";
        for (text, expected) in [
            ("x = 1\n".to_owned(), "line 1: `key` cannot be `x`"),
            ("[links]\n".to_owned(), "line 1: `nodes` is missing"),
            (format!("{nodes}cuont = 3\n"), "line 4: `nodes` cannot be `cuont`"),
            (format!("{nodes}count = 0\n"), "line 4: `count` cannot be `0`"),
            (format!("{nodes}count = -2\n"), "line 4: `count` cannot be `-2`"),
            (
                nodes.replace('8', "65"),
                "line 2: `gpus` cannot be `65`: expected a whole number from 1 to 64",
            ),
            (nodes.replace("a100", "a10o"), "line 3: `kind` cannot be `a10o`"),
            (format!("{nodes}rack = 1\nracks = 1\n"), "line 5: `racks`"),
            (
                format!("{nodes}[[tenant]]\nname = \"a\"\nparent = \"b\"\n"),
                "line 6: `parent` cannot be `b`",
            ),
            (format!("{nodes}[[tenant]]\nname = \"a\"\nweight = -1\n"), "line 6: `weight`"),
            (format!("{nodes}[links]\nrack_gbps = 0\n"), "line 5: `rack_gbps`"),
            (
                format!("{nodes}[[tenant]]\nname = \"a\"\ncells = {{ node = 1 }}\n"),
                "line 6: `cells` is missing",
            ),
            (
                format!(
                    "{nodes}[[cells]]\nkind = \"a100\"\nlevel = [{{ name = \"trio\", gpus = 3 }}]\n"
                ),
                "line 6: `gpus` cannot be `3`: expected a number that divides the 8 GPUs",
            ),
            (
                format!("{nodes}{CELLS}[[tenant]]\nname = \"a\"\ncells = {{ nodes = 1 }}\n"),
                "line 9: `cells` cannot be `nodes`: expected one of",
            ),
            (
                format!("{nodes}{CELLS}[[tenant]]\nname = \"a\"\ncells = {{ node = 2 }}\n"),
                "line 9: `cells` cannot be `2`: expected at most 1 cells `node`",
            ),
            (
                format!("{nodes}[[tenant]]\nname = \"a\"\nmembers = [7]\n"),
                "line 6: `members` cannot be `[7]`: expected a list of texts",
            ),
        ] {
            let found = parse(&text).unwrap_err().to_string();
            assert!(found.starts_with(expected), "{found}\n  does not start with\n{expected}");
        }
    }
}
