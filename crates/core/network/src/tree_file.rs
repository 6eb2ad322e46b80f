//! A tree as TOML.

use crate::tree::{Server, ServerCosts, Switch, Tree};
use trainyard_diagnostic::{Document, InputError, Section};

/// Servers that a file may declare.
const SERVERS_MAX: u64 = 4096;
/// Gbit/s as bytes per second.
const GBPS: f64 = 1.25e8;

/// Reads a tree: tables `[[switch]]`, the root first, and a table `[costs]` where reducing costs anything.
///
/// ```
/// let tree = trainyard_network::tree_file::read(
///     "[[switch]]\nname = 'spine'\nlatency_us = 5\n\
///      [[switch]]\nname = 'leaf'\nup = 'spine'\nuplink_gbps = 100\nservers = 4\nserver_gbps = 50\n",
/// );
/// assert_eq!(tree.unwrap().servers.len(), 4);
/// ```
pub fn read(text: &str) -> Result<Tree, InputError> {
    let document = Document::parse(text)?;
    let root = document.root();
    root.allow(&["switch", "costs"])?;
    let costs = match root.section("costs")? {
        Some(section) => costs(&section)?,
        None => ServerCosts::default(),
    };
    let mut tree = Tree { switches: Vec::new(), servers: Vec::new(), costs };
    let sections = root.sections("switch")?;
    if sections.is_empty() {
        return Err(InputError::missing(root.line(), "switch", "tables headed `[[switch]]`"));
    }
    for section in &sections {
        add_switch(&mut tree, section)?;
    }
    tree.check()
        .map_err(|fault| InputError::wrong(root.line(), "switch", &fault.to_string(), "a tree"))?;
    Ok(tree)
}

fn add_switch(tree: &mut Tree, section: &Section<'_, '_>) -> Result<(), InputError> {
    section.allow(&["name", "up", "uplink_gbps", "latency_us", "servers", "server_gbps"])?;
    let name = section.needed_text("name")?;
    if tree.switches.iter().any(|other| other.name == name) {
        return Err(section.wrong("name", "a name that no other switch has"));
    }
    let known = || tree.switches.iter().map(|switch| switch.name.as_str());
    let up = match section.text("up")? {
        None if tree.switches.is_empty() => None,
        None => return Err(section.wrong("up", "the name of a switch listed before")),
        Some(_) if tree.switches.is_empty() => {
            return Err(section.wrong("up", "nothing: the first switch is the root"));
        }
        Some(name) => match known().position(|other| other == name) {
            Some(at) => Some(at),
            None => return Err(section.unknown("up", known())),
        },
    };
    let positive = 1e-6..=1e9;
    let uplink = section.real("uplink_gbps", positive.clone())?;
    let up_bytes_per_second = match (up, uplink) {
        (None, None) => f64::INFINITY,
        (None, Some(_)) => {
            return Err(section.wrong("uplink_gbps", "nothing: the root has no uplink"));
        }
        (Some(_), Some(gbps)) => gbps * GBPS,
        (Some(_), None) => return Err(section.wrong("uplink_gbps", "a number of Gbit/s above 0")),
    };
    let alpha = section.real("latency_us", 0.0..=1e9)?.unwrap_or(0.0) * 1e-6;
    let servers = section.whole("servers", 0..=SERVERS_MAX)?.unwrap_or(0);
    let switch = tree.switches.len();
    if servers > 0 {
        let gbps = section.real("server_gbps", positive)?;
        let gbps =
            gbps.ok_or_else(|| section.wrong("server_gbps", "a number of Gbit/s above 0"))?;
        let server = Server { switch, bytes_per_second: gbps * GBPS };
        tree.servers.extend(vec![server; servers as usize]);
        if tree.servers.len() as u64 > SERVERS_MAX {
            return Err(section.wrong("servers", format!("at most {SERVERS_MAX} servers in all")));
        }
    }
    tree.switches.push(Switch { name: name.to_owned(), up, up_bytes_per_second, alpha });
    Ok(())
}

fn costs(section: &Section<'_, '_>) -> Result<ServerCosts, InputError> {
    section.allow(&[
        "add_gbytes_per_second",
        "memory_gbytes_per_second",
        "incast",
        "fan_in_max",
    ])?;
    let per_byte = |key: &str| -> Result<f64, InputError> {
        let speed = section.real(key, 1e-6..=1e9)?;
        Ok(speed.map_or(0.0, |gbytes| 1.0 / (gbytes * 1e9)))
    };
    let fan_in_max = section.whole("fan_in_max", 1..=u64::from(u32::MAX))?;
    Ok(ServerCosts {
        gamma: per_byte("add_gbytes_per_second")?,
        delta: per_byte("memory_gbytes_per_second")?,
        epsilon: section.real("incast", 0.0..=1.0)?.unwrap_or(0.0) * 1e-9,
        fan_in_max: fan_in_max.map_or(u32::MAX, |most| most as u32),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[[switch]]\nname = 'spine'\n[[switch]]\nname = 'leaf'\nup = 'spine'\n\
                        uplink_gbps = 100\nservers = 4\nserver_gbps = 50\n";

    #[test]
    fn a_fault_names_its_line_and_what_was_expected() {
        let fault = |from: &str, to: &str| read(&GOOD.replace(from, to)).unwrap_err().to_string();
        assert!(fault("uplink_gbps = 100", "uplink_gbps = 0").starts_with("line 6: `uplink_gbps`"));
        assert!(fault("uplink_gbps = 100\n", "").contains("`uplink_gbps` is missing"));
        assert!(fault("up = 'spine'", "up = 'spin'").contains("did you mean `spine`?"));
        assert!(fault("'leaf'", "'spine'").contains("no other switch"));
        assert!(fault("servers = 4", "servers = 1").contains("at least 2 servers"));
        assert!(fault("up = 'spine'\n", "").contains("`up` is missing"));
        assert!(fault("servers", "sevrers").contains("did you mean `servers`?"));
        assert!(read("").unwrap_err().to_string().contains("`switch` is missing"));
        assert!(read("[[switch]\n").is_err());
    }

    #[test]
    fn costs_are_read_as_speeds() {
        let tree = read(&format!("{GOOD}[costs]\nmemory_gbytes_per_second = 10\nfan_in_max = 9\n"))
            .unwrap();
        assert!((tree.costs.delta - 1e-10).abs() < 1e-20 && tree.costs.fan_in_max == 9);
        assert_eq!(tree.costs.gamma, 0.0);
    }
}
