//! The `window` line of a scenario, which is also how a window is written on a command line.

use crate::scenario::Line;
use trainyard_diagnostic::InputError;
use trainyard_types::{Allowed, Cluster, NodeId, Span, TenantId, Tenants, Time, Window, WindowId};

const SHAPE: &str =
    "nodes and a time, such as `n0,n1 from 1h for 30m`, and `tenant NAME` to reserve them";

/// Reads `n0,n1 from 1h for 30m tenant team-a`; its number is the next of the cluster.
pub fn parse(text: &str, cluster: &Cluster, tenants: &Tenants) -> Result<Window, InputError> {
    read(&Line { number: 0, word: "window", rest: text.trim() }, cluster, tenants)
}

pub(crate) fn read(
    line: &Line<'_>,
    cluster: &Cluster,
    tenants: &Tenants,
) -> Result<Window, InputError> {
    let words: Vec<&str> = line.rest.split_whitespace().collect();
    let (names, from, length) = match words[..] {
        [names, "from", from, "for", length] => (names, from, length),
        [names, "from", from, "for", length, "tenant", _] => (names, from, length),
        _ => return Err(line.wrong(SHAPE)),
    };
    let node = |name: &str| {
        let found = cluster.nodes.iter().find(|node| node.name == name);
        let known = cluster.nodes.iter().map(|node| node.name.as_str());
        let unknown = || InputError::unknown(line.number, line.word, name, known);
        found.map(|node| node.id).ok_or_else(unknown)
    };
    let nodes: Vec<NodeId> = names.split(',').map(node).collect::<Result<_, _>>()?;
    let span = |text: &str| text.parse::<Span>().map_err(|error| line.wrong(error.to_string()));
    let (from, length) = (Time::ZERO + span(from)?, span(length)?);
    let tenant = |name: &str| -> Result<TenantId, InputError> {
        let known: Vec<&str> = tenants.iter().map(|(_, tenant)| tenant.name.as_str()).collect();
        let unknown = || InputError::unknown(line.number, "tenant", name, known);
        tenants.find(name).ok_or_else(unknown)
    };
    let tenant = match words.get(6) {
        Some(name) => Some(tenant(name)?),
        None => None,
    };
    let reserved = tenant.map(|id| Allowed { tenants: [id].into(), ..Allowed::default() });
    let id = WindowId(cluster.windows.len() as u32);
    Ok(Window { id, nodes, from, until: from + length, reserved })
}
