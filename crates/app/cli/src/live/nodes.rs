//! `nodes`, `drain` and `resume`.

use super::args::{ConnectionArgs, OneNode};
use super::connect::connect;
use crate::failure::Failure;
use crate::output::Output;
use trainyard_api::answer::NodeRow;
use trainyard_api::ask;
use trainyard_api::request::NodeAct;
use trainyard_client::show::{clock, versioned};
use trainyard_report::table::listing;

/// `nodes`.
pub fn list(connection: &ConnectionArgs, output: &Output) -> Result<(), Failure> {
    let client = connect(connection)?;
    if connection.json {
        return output.print_json(&versioned(client.value(&ask::nodes())?));
    }
    let nodes = client.send(&ask::nodes())?;
    let rows: Vec<Vec<String>> = nodes.iter().map(row).collect();
    let heading = ["node", "state", "type", "free", "CPUs", "memory", "jobs on each GPU", "reason"];
    output.print(&listing(&heading, &rows, output.ink, output.width))
}

fn row(node: &NodeRow) -> Vec<String> {
    let each = node.gpus.iter().zip(0u8..).map(|(jobs, gpu)| {
        let ill = node.ill.iter().any(|ill| ill.gpu == gpu);
        match jobs.as_slice() {
            [] if ill => "ill".to_owned(),
            [] => "-".to_owned(),
            jobs => jobs.iter().map(u32::to_string).collect::<Vec<_>>().join("+"),
        }
    });
    vec![
        node.name.clone(),
        node.state.clone(),
        node.gpu_type.clone(),
        format!("{} of {}", node.free, node.gpus.len()),
        node.cpus.to_string(),
        format!("{} GiB", node.memory_mib / 1024),
        each.collect::<Vec<_>>().join(" "),
        reason(node),
    ]
}

/// Why a node or some of its GPUs are out of service.
fn reason(node: &NodeRow) -> String {
    let ill = node.ill.iter().map(|ill| {
        let state = if ill.evicted { "in quarantine" } else { "takes no new work" };
        format!("GPU {} {state} since {}: {}", ill.gpu, clock(ill.since), ill.reason)
    });
    node.reason.clone().into_iter().chain(ill).collect::<Vec<String>>().join("; ")
}

/// `drain` and `resume`. Twice is as good as once.
pub fn act(args: &OneNode, act: NodeAct, output: &Output) -> Result<(), Failure> {
    let client = connect(&args.connection)?;
    let row = client.send(&ask::node(args.node.clone(), act))?;
    if args.connection.json {
        return output.print_json(&versioned(&row));
    }
    let reason = Some(reason(&row)).filter(|reason| !reason.is_empty());
    let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    output.print(&format!("node {} is {}{reason}\n", row.name, row.state))
}
