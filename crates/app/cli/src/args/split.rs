//! `split` and `planners`.

use clap::Args;
use std::path::PathBuf;

/// Examples of `split`.
pub const HELP: &str = "\
Examples:
  trainyard split gpt-7.5b --on '16x8 a100' --batch 512
  trainyard split 'transformer layers=24 hidden=2048 heads=16' --on '4x8 v100' --batch 128
  trainyard split bert-48-pbs-2.txt --on '2x8 v100' --batch 64 --planners dapple --svg plan.svg
  trainyard split graph.json --on cluster.toml --json
  trainyard split --measured evidence.json

A model is a name (see `trainyard split --list`), a description that begins with `transformer`
or `cnn`, a graph as JSON, or a layer profile in the text form of PipeDream.";

/// `split`.
#[derive(Debug, Args)]
pub struct SplitArgs {
    /// A named model, `transformer ...`, `cnn ...`, or a file with a graph or a layer profile.
    #[arg(value_name = "MODEL", required_unless_present_any = ["list", "measured"])]
    pub model: Option<String>,
    /// The cluster: one line such as '4x8 a100', or a TOML file with its links [default: the embedded one].
    #[arg(long, value_name = "LINE|FILE")]
    pub on: Option<String>,
    /// Samples of one iteration [default: 32 for each GPU].
    #[arg(long, value_name = "SAMPLES")]
    pub batch: Option<String>,
    /// Planners by name, separated by commas [default: all that can plan this model].
    #[arg(long, value_name = "NAMES")]
    pub planners: Option<String>,
    /// The samples that a layer profile was measured with [default: the number after `-pbs-` in its name].
    #[arg(long, value_name = "SAMPLES")]
    pub measured_with: Option<String>,
    /// Compare what `scripts/planner-evidence` measured on a GPU with what is predicted.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "on", "batch", "planners", "list", "svg"])]
    pub measured: Option<PathBuf>,
    /// With --measured: by how much a prediction from layers may be off, as a part of what was measured [default: 0.15].
    #[arg(long, value_name = "PART", requires = "measured")]
    pub within: Option<String>,
    /// List the models that have a name.
    #[arg(long)]
    pub list: bool,
    /// Print JSON; errors too.
    #[arg(long)]
    pub json: bool,
    /// Write the timeline of the best plan to an SVG file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// `planners`.
#[derive(Debug, Args)]
pub struct PlannersArgs {
    /// A planner to explain.
    pub name: Option<String>,
    /// Let it solve a problem that is stated as JSON.
    #[arg(long, value_name = "FILE", requires = "name", conflicts_with = "example")]
    pub run: Option<PathBuf>,
    /// Print an input for --run.
    #[arg(long, requires = "name")]
    pub example: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
