//! `collective`.

use clap::Args;
use std::path::PathBuf;

/// Examples of the command.
pub const HELP: &str = "\
Examples:
  trainyard collective --bytes 100MB --gpus 16 --gbps 100
  trainyard collective --bytes 1GB --gpus 32 --gbps 100 --racks 4 --uplink-gbps 200
  trainyard collective --bytes 350MB --tree tree.toml --json
  trainyard collective --bytes 350MB --cluster '4x8 h100' --gpus 16
  trainyard collective --planners                what is published about communication";

/// How long an all-reduce takes.
#[derive(Debug, Args)]
pub struct CollectiveArgs {
    /// Bytes that each GPU has: a number with B, KB, MB, GB, KiB, MiB or GiB.
    #[arg(long, value_name = "SIZE", default_value = "100MB")]
    pub bytes: String,
    /// GPUs that take part [default: all of the tree or cluster, or 8].
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pub gpus: Option<String>,
    /// Gbit/s between a GPU and its switch.
    #[arg(long, value_name = "GBPS", allow_hyphen_values = true, conflicts_with_all = ["tree", "cluster"])]
    pub gbps: Option<String>,
    /// Racks over which the GPUs are spread evenly.
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true, conflicts_with_all = ["tree", "cluster"])]
    pub racks: Option<String>,
    /// Gbit/s between the switch of a rack and the one above.
    #[arg(long, value_name = "GBPS", allow_hyphen_values = true, requires = "racks")]
    pub uplink_gbps: Option<String>,
    /// Microseconds of latency of each round.
    #[arg(long, value_name = "MICROSECONDS", allow_hyphen_values = true, conflicts_with = "tree")]
    pub latency_us: Option<String>,
    /// Switches and servers from a TOML file (docs/guide/network.md).
    #[arg(long, value_name = "FILE", conflicts_with = "cluster")]
    pub tree: Option<PathBuf>,
    /// The first GPUs of a cluster, as a line or a file; its links are those between nodes and racks.
    #[arg(long, value_name = "LINE|FILE")]
    pub cluster: Option<String>,
    /// List the planners and models of communication instead.
    #[arg(long)]
    pub planners: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
