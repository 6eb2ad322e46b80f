//! `trainyard cluster check`: what was understood of a cluster.

use crate::failure::Failure;
use crate::output::Output;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use trainyard_diagnostic::InputError;
use trainyard_experiment::given::load_cluster;
use trainyard_report::table::listing;
use trainyard_report::{SCHEMA_VERSION, network};
use trainyard_types::{Cluster, GpuType, Links, Tenants};
use trainyard_workload::cluster::line_of;

/// Reads a cluster and prints what it is.
pub fn check(text: &str, as_json: bool, output: &Output) -> Result<(), Failure> {
    let (cluster, tenants) = load_cluster(Some(text))?;
    let kinds = kinds(&cluster);
    let remarks = remarks(&cluster, &kinds);
    if as_json {
        return output.print_json(&json(&cluster, &tenants, &kinds, &remarks));
    }
    output.print(&described(&cluster, &tenants))?;
    let rows: Vec<Vec<String>> = kinds.iter().map(Kind::row).collect();
    let heading = ["type", "nodes", "GPUs", "memory", "price/h", "power"];
    output.print(&format!("\n{}", listing(&heading, &rows, output.ink, output.width)))?;
    for remark in &remarks {
        output.print(&format!("note: {remark}\n"))?;
    }
    Ok(())
}

/// Prints the links of a cluster, and draws them.
pub fn show(text: &str, svg: Option<&Path>, output: &Output) -> Result<(), Failure> {
    let (cluster, _) = load_cluster(Some(text))?;
    let Some(topology) = cluster.topology.as_deref() else {
        let expected = "a cluster whose links are declared, such as `8x8 v100 over leaf-spine 2 racks 100g 4:1`";
        let fault = InputError::wrong(0, "cluster", &line_of(&cluster), expected);
        return Err(Failure::input("cluster show", fault));
    };
    output.print(&format!("{}\n\n", line_of(&cluster)))?;
    let heading = ["switch", "level", "nodes", "to nodes Gbit/s", "to switches Gbit/s"];
    let rows = network::switch_rows(topology);
    output.print(&listing(&heading, &rows, output.ink, output.width))?;
    output.print(&network::insides(topology))?;
    match svg {
        Some(path) => output
            .write_file(path, |file| file.write_all(network::svg(&cluster, topology).as_bytes())),
        None => Ok(()),
    }
}

/// One type of GPU and how much of it there is.
struct Kind {
    name: String,
    nodes: usize,
    gpus: u32,
    memory_mib: u32,
    price_per_hour: f64,
    watts: u32,
}

impl Kind {
    fn row(&self) -> Vec<String> {
        let known = |is_known: bool, text: String| if is_known { text } else { "?".to_owned() };
        vec![
            self.name.clone(),
            self.nodes.to_string(),
            self.gpus.to_string(),
            known(self.memory_mib > 0, format!("{} GiB", self.memory_mib / 1024)),
            known(self.price_per_hour > 0.0, format!("{:.2}", self.price_per_hour)),
            known(self.watts > 0, format!("{} W", self.watts)),
        ]
    }
}

fn kinds(cluster: &Cluster) -> Vec<Kind> {
    let count = |id| cluster.nodes.iter().filter(|node| node.kind == id).count();
    let all = cluster.kinds.iter().enumerate().map(|(index, kind)| {
        let id = GpuType(index as u8);
        Kind {
            name: kind.name.clone(),
            nodes: count(id),
            gpus: cluster.gpus_of(id),
            memory_mib: kind.memory_mib,
            price_per_hour: kind.price_per_hour,
            watts: kind.watts,
        }
    });
    all.collect()
}

/// What is allowed and probably not meant.
fn remarks(cluster: &Cluster, kinds: &[Kind]) -> Vec<String> {
    let mut remarks = Vec::new();
    for kind in kinds {
        if kind.nodes == 0 {
            remarks.push(format!("no node has a `{}`", kind.name));
        } else if kind.memory_mib == 0 {
            remarks.push(format!("the memory of `{}` is not known, so every job fits", kind.name));
        }
        if kind.price_per_hour == 0.0 {
            remarks.push(format!("the price of `{}` is not known and counts as 0", kind.name));
        }
    }
    let links = cluster.links;
    if links.rack_mbps > links.node_mbps || links.core_mbps > links.rack_mbps {
        remarks.push("links between nodes or racks are faster than those inside".to_owned());
    }
    remarks.extend(without_effect(cluster).map(str::to_owned));
    remarks
}

/// What is declared and changes nothing, or less than its reader would think.
fn without_effect(cluster: &Cluster) -> impl Iterator<Item = &'static str> {
    let (links, usual) = (cluster.links, Links::default());
    let declared = cluster.topology.is_some();
    let node = links.node_mbps != usual.node_mbps;
    let apart = (links.rack_mbps, links.core_mbps) != (usual.rack_mbps, usual.core_mbps);
    let all = [
        (
            node && !declared,
            "`node_gbps` has no effect: inside a node, speeds are those that were measured",
        ),
        (
            apart && !declared,
            "`rack_gbps` and `core_gbps` count by their ratio alone: by so much a gang across racks is slower",
        ),
    ];
    all.into_iter().filter(|(holds, _)| *holds).map(|(_, sentence)| sentence)
}

fn racks(cluster: &Cluster) -> usize {
    cluster.nodes.iter().map(|node| node.rack).collect::<BTreeSet<u16>>().len()
}

fn described(cluster: &Cluster, tenants: &Tenants) -> String {
    let links = cluster.links;
    let gbps = |mbps: u64| mbps as f64 / 1000.0;
    let mut text = format!(
        "{}\nnodes    {}\nGPUs     {}\nracks    {}\npools    {}\nlinks    {} Gbit/s in a node, {} in a rack, {} between racks\n",
        line_of(cluster),
        cluster.nodes.len(),
        cluster.gpus(),
        racks(cluster),
        cluster.pools.join(", "),
        gbps(links.node_mbps),
        gbps(links.rack_mbps),
        gbps(links.core_mbps),
    );
    if let Some(topology) = &cluster.topology {
        let wiring = topology.wiring();
        let (switches, joined) = (wiring.switches.len(), wiring.links.len());
        text.push_str(&format!(
            "network  {switches} switches, {joined} links; `cluster show` draws them\n"
        ));
    }
    for (_, tenant) in tenants.iter().filter(|_| *tenants != Tenants::default()) {
        let parent = tenant.parent.map(|id| format!(" of {}", tenants.get(id).name));
        let ceiling = tenant.ceiling.map(|gpus| format!(", at most {gpus} GPUs"));
        text.push_str(&format!(
            "tenant   {}{}: weight {}{}\n",
            tenant.name,
            parent.unwrap_or_default(),
            tenant.weight,
            ceiling.unwrap_or_default()
        ));
    }
    text
}

fn json(cluster: &Cluster, tenants: &Tenants, kinds: &[Kind], remarks: &[String]) -> Value {
    let kinds: Vec<Value> = kinds
        .iter()
        .map(|kind| {
            json!({
                "name": kind.name,
                "nodes": kind.nodes,
                "gpus": kind.gpus,
                "memory_mib": kind.memory_mib,
                "price_per_hour": kind.price_per_hour,
                "watts": kind.watts,
            })
        })
        .collect();
    json!({
        "schema_version": SCHEMA_VERSION,
        "kind": "cluster",
        "line": line_of(cluster),
        "nodes": cluster.nodes.len(),
        "gpus": cluster.gpus(),
        "racks": racks(cluster),
        "pools": cluster.pools,
        "links": cluster.links,
        "kinds": kinds,
        "tenants": tenants,
        "notes": remarks,
    })
}
