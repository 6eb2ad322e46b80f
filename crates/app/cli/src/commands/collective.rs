//! `trainyard collective`: how long an all-reduce takes, by which algorithm, and what binds it.

use crate::args::collective::CollectiveArgs;
use crate::failure::Failure;
use crate::output::Output;
use serde_json::{Value, json};
use std::str::FromStr;
use trainyard_experiment::files::read_text;
use trainyard_experiment::given::load_cluster;
use trainyard_network::planners::PLANNERS;
use trainyard_network::{
    Algorithm, Parts, Plan, Server, ServerCosts, Switch, Tree, gentree, simulate, tree_file,
};
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::table::listing;
use trainyard_types::{Cluster, LinkId};

/// GPUs that a plan is made for at most: it has as many transfers as pairs of them.
const GPUS_MAX: usize = 512;
/// Plans of more transfers are not run as events.
const SIMULATED_MAX: usize = 20_000;
/// Gbit/s as bytes per second.
const GBPS: f64 = 1.25e8;

/// Runs the command.
pub fn run(args: &CollectiveArgs, output: &Output) -> Result<(), Failure> {
    if args.planners {
        return list_planners(args, output);
    }
    let bytes = bytes(&args.bytes)?;
    let tree = tree(args)?;
    let rows = rows(&tree, bytes)?;
    if args.json {
        return output.print_json(&json!({
            "schema_version": SCHEMA_VERSION,
            "kind": "collective",
            "bytes": bytes,
            "gpus": tree.servers.len(),
            "plans": rows.iter().map(CollectiveRow::json).collect::<Vec<_>>(),
        }));
    }
    let texts: Vec<Vec<String>> = rows.iter().map(CollectiveRow::texts).collect();
    let heading = [
        "algorithm",
        "predicted",
        "simulated",
        "latency",
        "links",
        "additions",
        "memory",
        "incast",
        "busiest link",
    ];
    let best = &rows[0];
    let gpus = tree.servers.len();
    output.print(&format!("all-reduce of {} among {gpus} GPUs\n\n", args.bytes.trim()))?;
    output.print(&listing(&heading, &texts, output.ink, output.width))?;
    let parts = best.parts.named();
    let share =
        parts.iter().find(|(name, _)| *name == best.parts.binds()).map_or(0.0, |part| part.1);
    output.print(&format!(
        "\nfastest: {}, {}, bound by {} ({:.0} % of the time)\n",
        best.name,
        seconds(best.parts.seconds()),
        best.parts.binds(),
        100.0 * share / best.parts.seconds()
    ))?;
    for (switch, choice) in &best.choices {
        output.print(&format!("  at {}: {choice}\n", tree.switches[*switch].name))?;
    }
    Ok(())
}

fn list_planners(args: &CollectiveArgs, output: &Output) -> Result<(), Failure> {
    if args.json {
        let all: Vec<Value> = PLANNERS
            .iter()
            .map(|one| json!({ "name": one.name, "paper": one.paper, "about": one.about }))
            .collect();
        return output.print_json(
            &json!({ "schema_version": SCHEMA_VERSION, "kind": "planners", "entries": all }),
        );
    }
    let row = |one: &trainyard_network::planners::CommunicationPlanner| {
        [one.name, one.about, one.paper].map(str::to_owned).to_vec()
    };
    let rows: Vec<Vec<String>> = PLANNERS.iter().map(row).collect();
    output.print(&listing(&["name", "what it is", "paper"], &rows, output.ink, output.width))
}

/// A way to do it and what it costs.
struct CollectiveRow {
    name: String,
    parts: Parts,
    simulated: Option<f64>,
    busiest: String,
    choices: Vec<(usize, String)>,
}

impl CollectiveRow {
    fn new(name: String, tree: &Tree, plan: &Plan, choices: Vec<(usize, String)>) -> CollectiveRow {
        let count = plan.transfers().count();
        let simulated = (count <= SIMULATED_MAX).then(|| simulate(plan, tree).seconds);
        CollectiveRow {
            name,
            parts: tree.parts(plan),
            simulated,
            busiest: busiest(tree, plan),
            choices,
        }
    }

    fn texts(&self) -> Vec<String> {
        let mut texts = vec![
            self.name.clone(),
            seconds(self.parts.seconds()),
            self.simulated.map_or("-".to_owned(), seconds),
        ];
        texts.extend(self.parts.named().map(|(_, part)| seconds(part)));
        texts.push(self.busiest.clone());
        texts
    }

    fn json(&self) -> Value {
        let choices: Vec<&String> = self.choices.iter().map(|(_, choice)| choice).collect();
        json!({
            "algorithm": self.name,
            "predicted_s": self.parts.seconds(),
            "simulated_s": self.simulated,
            "parts_s": self.parts.named().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
            "binds": self.parts.binds(),
            "busiest_link": self.busiest,
            "choices": choices,
        })
    }
}

/// All ways, the fastest first; of equal ones the one with the shorter list of choices.
fn rows(tree: &Tree, bytes: u64) -> Result<Vec<CollectiveRow>, Failure> {
    let fault = |error: &dyn std::fmt::Display| Failure::Operation(error.to_string());
    let count = tree.servers.len();
    let mut rows = Vec::new();
    for one in Algorithm::all(count) {
        // A parameter server on a machine of its own is not part of these GPUs.
        let needs_more = matches!(one, Algorithm::ParameterServer { .. });
        let layers = matches!(&one, Algorithm::Hierarchical(factors) if factors.len() > 2);
        if needs_more || layers {
            continue;
        }
        let plan = one.plan(count, bytes).map_err(|error| fault(&error))?;
        rows.push(CollectiveRow::new(one.name(), tree, &plan, Vec::new()));
    }
    let found = gentree(tree, bytes).map_err(|error| fault(&error))?;
    rows.push(CollectiveRow::new("gentree".to_owned(), tree, &found.plan, found.choices));
    rows.sort_by(|a, b| a.parts.seconds().total_cmp(&b.parts.seconds()));
    Ok(rows)
}

/// The link that takes longest for all that passes it.
fn busiest(tree: &Tree, plan: &Plan) -> String {
    let capacities = tree.capacities();
    let mut load = vec![0.0; capacities.len()];
    for (_, one) in plan.transfers() {
        tree.route(one.from, one.to)
            .0
            .iter()
            .for_each(|link| load[link.index()] += one.bytes as f64);
    }
    let mut best = (0, 0.0);
    for (link, (load, capacity)) in load.iter().zip(&capacities).enumerate() {
        best = if load / capacity > best.1 * (1.0 + 1e-9) { (link, load / capacity) } else { best };
    }
    tree.link_name(LinkId(best.0 as u32))
}

fn tree(args: &CollectiveArgs) -> Result<Tree, Failure> {
    let wanted = match &args.gpus {
        Some(text) => {
            Some(number::<usize>("--gpus", text, |gpus| (2..=GPUS_MAX).contains(gpus), &whole(2))?)
        }
        None => None,
    };
    let latency = match &args.latency_us {
        Some(text) => real("--latency-us", text, 0.0)? * 1e-6,
        None => 5e-6,
    };
    let mut tree = if let Some(path) = &args.tree {
        let text = read_text(path)?;
        tree_file::read(&text).map_err(|fault| Failure::input(path.display(), fault))?
    } else if let Some(text) = &args.cluster {
        of_cluster(&load_cluster(Some(text))?.0, latency)
    } else {
        of_flags(args, wanted.unwrap_or(8), latency)?
    };
    if let Some(wanted) = wanted {
        if wanted > tree.servers.len() {
            let expected = format!("at most the {} GPUs that there are", tree.servers.len());
            return Err(Failure::flag("--gpus", &wanted.to_string(), expected));
        }
        tree.servers.truncate(wanted);
    }
    if tree.servers.len() > GPUS_MAX {
        let expected = format!("--gpus with at most {GPUS_MAX} of the {} GPUs", tree.servers.len());
        return Err(Failure::flag("--gpus", "all", expected));
    }
    tree.check().map_err(|fault| Failure::Operation(fault.to_string()))?;
    Ok(tree)
}

fn of_flags(args: &CollectiveArgs, gpus: usize, latency: f64) -> Result<Tree, Failure> {
    let gbps = args.gbps.as_deref().map_or(Ok(100.0), |text| real("--gbps", text, 1e-6))?;
    let Some(racks) = &args.racks else {
        return Ok(Tree::star(gpus, gbps * GBPS, latency, ServerCosts::default()));
    };
    let divides = |racks: &usize| *racks > 0 && gpus.is_multiple_of(*racks);
    let expected = format!("a number that divides the {gpus} GPUs");
    let racks = number::<usize>("--racks", racks, divides, &expected)?;
    let uplink =
        args.uplink_gbps.as_deref().map_or(Ok(gbps), |text| real("--uplink-gbps", text, 1e-6))?;
    let mut tree = Tree::star(0, gbps * GBPS, latency, ServerCosts::default());
    for rack in 0..racks {
        tree.add_rack(&format!("rack {rack}"), uplink * GBPS, latency, (gpus / racks, gbps * GBPS));
    }
    Ok(tree)
}

/// GPUs below nodes below racks, with the links that the cluster declares.
fn of_cluster(cluster: &Cluster, latency: f64) -> Tree {
    let mbps = |mbps: u64| mbps as f64 * 1.25e5;
    let mut tree = Tree::star(0, 1.0, latency, ServerCosts::default());
    let mut racks: Vec<(u16, usize)> = Vec::new();
    for node in &cluster.nodes {
        let known = racks.iter().find(|(rack, _)| *rack == node.rack).map(|(_, switch)| *switch);
        let rack = known.unwrap_or_else(|| {
            racks.push((node.rack, tree.switches.len()));
            tree.switches.push(Switch {
                name: format!("rack {}", node.rack),
                up: Some(0),
                up_bytes_per_second: mbps(cluster.links.core_mbps),
                alpha: latency,
            });
            tree.switches.len() - 1
        });
        let switch = tree.switches.len();
        tree.switches.push(Switch {
            name: format!("node {}", node.name),
            up: Some(rack),
            up_bytes_per_second: mbps(cluster.links.rack_mbps),
            alpha: latency,
        });
        let server = Server { switch, bytes_per_second: mbps(cluster.links.node_mbps) };
        tree.servers.extend(vec![server; usize::from(node.gpus)]);
    }
    tree
}

fn whole(least: usize) -> String {
    format!("a whole number from {least} to {GPUS_MAX}")
}

fn number<T: FromStr>(
    flag: &str,
    text: &str,
    holds: impl Fn(&T) -> bool,
    expected: &str,
) -> Result<T, Failure> {
    text.parse().ok().filter(holds).ok_or_else(|| Failure::flag(flag, text, expected))
}

fn real(flag: &str, text: &str, least: f64) -> Result<f64, Failure> {
    let holds = |value: &f64| value.is_finite() && *value >= least && *value <= 1e9;
    number(flag, text, holds, &format!("a number of at least {least}"))
}

fn bytes(text: &str) -> Result<u64, Failure> {
    const UNITS: [(&str, f64); 7] = [
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("B", 1.0),
    ];
    let plain = text.trim();
    let unit = UNITS.iter().find(|(unit, _)| plain.ends_with(unit));
    let (digits, scale) =
        unit.map_or((plain, 1.0), |(unit, scale)| (&plain[..plain.len() - unit.len()], *scale));
    let bytes = digits.trim().parse::<f64>().ok().map(|number| number * scale);
    let bytes = bytes.filter(|bytes| bytes.is_finite() && (1.0..=1e15).contains(bytes));
    let expected = "a size from 1 B to 1 PB, such as 100MB or 1GiB";
    bytes.map(|bytes| bytes as u64).ok_or_else(|| Failure::flag("--bytes", text, expected))
}

fn seconds(seconds: f64) -> String {
    match seconds {
        0.0 => "0".to_owned(),
        small if small < 1e-3 => format!("{:.1} us", small * 1e6),
        middle if middle < 1.0 => format!("{:.2} ms", middle * 1e3),
        long => format!("{long:.3} s"),
    }
}
