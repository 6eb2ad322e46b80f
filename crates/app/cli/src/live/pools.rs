//! `pool list` and `pool need`; which nodes form a pool is a flag of `serve`.

use super::args::ConnectionArgs;
use super::connect::connect;
use crate::failure::Failure;
use crate::output::Output;
use clap::Subcommand;
use trainyard_api::ask;
use trainyard_api::pool::{PoolRequest, PoolRow};
use trainyard_client::show::versioned;
use trainyard_report::table::listing;
use trainyard_types::{Cluster, PoolId};

/// `pool ...`.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// List pools: what their owners need, have and are owed.
    #[command(after_help = "Example:\n  trainyard pool list")]
    List(ConnectionArgs),
    /// Say how many nodes of a pool its owner needs; jobs leave those, and the others are lent.
    #[command(
        after_help = "Examples:\n  trainyard pool need inference 3\n  trainyard pool need inference 0     lend all"
    )]
    Need {
        /// The pool, as `serve --pool` names it.
        pool: String,
        /// How many nodes.
        nodes: u32,
        #[command(flatten)]
        connection: ConnectionArgs,
    },
}

/// `pool ...`.
pub fn run(command: &PoolCommand, output: &Output) -> Result<(), Failure> {
    match command {
        PoolCommand::List(connection) => list(connection, output),
        PoolCommand::Need { pool, nodes, connection } => {
            let client = connect(connection)?;
            let request = PoolRequest { needed: *nodes };
            let row = client.send(&ask::need_nodes(pool.clone(), request))?;
            match connection.json {
                true => output.print_json(&versioned(&row)),
                false => output.print(&told(&row)),
            }
        }
    }
}

fn list(connection: &ConnectionArgs, output: &Output) -> Result<(), Failure> {
    let client = connect(connection)?;
    if connection.json {
        return output.print_json(&versioned(client.value(&ask::pools())?));
    }
    let rows: Vec<Vec<String>> = client.send(&ask::pools())?.iter().map(row).collect();
    let heading = ["pool", "nodes", "needed", "reclaimed", "owed"];
    output.print(&listing(&heading, &rows, output.ink, output.width))
}

fn row(pool: &PoolRow) -> Vec<String> {
    vec![
        pool.name.clone(),
        pool.nodes.len().to_string(),
        pool.needed.to_string(),
        pool.reclaimed.join(" "),
        pool.owed.to_string(),
    ]
}

fn told(pool: &PoolRow) -> String {
    let PoolRow { name, nodes, needed, reclaimed, owed } = pool;
    let owed = match owed {
        0 => String::new(),
        owed => format!("; {owed} more as soon as jobs have left them"),
    };
    let has = if reclaimed.is_empty() { "none".to_owned() } else { reclaimed.join(", ") };
    format!("pool {name} needs {needed} of {} nodes and has {has}{owed}\n", nodes.len())
}

/// Makes the pools that `serve --pool NAME=NODES` declares.
pub fn declare(cluster: &mut Cluster, declared: &[String]) -> Result<(), Failure> {
    for text in declared {
        let expected = "NAME=NODE,NODE,... with nodes as `trainyard nodes` names them";
        let wrong = || Failure::flag("--pool", text, expected);
        let (name, nodes) = text.split_once('=').ok_or_else(wrong)?;
        if name.is_empty() || nodes.is_empty() || cluster.pools.iter().any(|pool| pool == name) {
            return Err(wrong());
        }
        let id = u16::try_from(cluster.pools.len()).map_err(|_| wrong())?;
        for node in nodes.split(',') {
            let Some(own) = cluster.nodes.iter_mut().find(|own| own.name == node) else {
                let names: Vec<&str> = cluster.nodes.iter().map(|own| own.name.as_str()).collect();
                let expected = format!("nodes among {}", names.join(", "));
                return Err(Failure::flag("--pool", text, &expected));
            };
            if own.pool != PoolId(0) {
                return Err(Failure::flag("--pool", text, "each node in one pool at most"));
            }
            own.pool = PoolId(id);
        }
        cluster.pools.push(name.to_owned());
    }
    Ok(())
}
