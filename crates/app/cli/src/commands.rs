//! One file for each command.

mod bound;
mod cluster;
mod collective;
pub mod compare;
mod completions;
mod man;
mod planners;
mod policies;
mod profile;
mod repeat;
pub mod reproduce;
mod serving;
mod sim;
pub mod slurm;
mod split;
mod store;
mod sweep;
mod trace;

use crate::args::{ClusterCommand, Command, ProfileCommand};
use crate::failure::Failure;
use crate::output::Output;

/// Does what the command line says.
pub fn run(command: Command, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Compare(args) => compare::run(&args, output),
        Command::Sim(args) => sim::run(&args, output),
        Command::Sweep(args) => sweep::run(&args, output),
        Command::Reproduce(args) => reproduce::run(&args, output),
        Command::Policies(args) => policies::run(&args, output),
        Command::Split(args) => split::run(&args, output),
        Command::Planners(args) => planners::run(&args, output),
        Command::Serving(command) => serving::run(&command, output),
        Command::Cluster(ClusterCommand::Check { cluster, json }) => {
            cluster::check(&cluster, json, output)
        }
        Command::Cluster(ClusterCommand::Show { cluster, svg }) => {
            cluster::show(&cluster, svg.as_deref(), output)
        }
        Command::Collective(args) => collective::run(&args, output),
        Command::Trace(command) => trace::run(&command, output),
        Command::Profile(ProfileCommand::Import(args)) => profile::import(&args, output),
        Command::Profile(ProfileCommand::Check(args)) => profile::check(&args, output),
        Command::Profile(ProfileCommand::Complete(args)) => profile::complete(&args, output),
        Command::Profile(ProfileCommand::Interference(args)) => {
            profile::interference(&args, output)
        }
        Command::Profile(ProfileCommand::List(args)) => profile::list(&args, output),
        Command::Profile(ProfileCommand::Show(args)) => profile::show(&args, output),
        Command::Store(command) => store::run(&command, output),
        Command::Slurm(command) => slurm::run(&command, output),
        #[cfg(feature = "live")]
        Command::Live(command) => crate::live::run(command, output),
        Command::Version => output.print(&format!("trainyard {}\n", crate::args::VERSION)),
        Command::Completions { shell } => completions::run(shell, output),
        Command::Man { folder } => man::run(&folder, output),
    }
}
