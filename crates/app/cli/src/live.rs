//! The live side of the command line: job files, and everything that asks the daemon.
//!
//! - [`args`]: the commands and their flags.
//! - `connect`: a client of the daemon, by the flags of a command.
//! - `selection`: which jobs a command means.
//! - `job_files`: files as submissions.
//! - `submit`, `follow`: submissions, and what comes of them; `surroundings`, `snapshot`, `interactive`: what a job runs in,
//!   a copy of its code, and a terminal in it.
//! - `jobs`, `detail`, `nodes`, `windows`, `pools`, `shares`, `events`, `daemon`, `tokens`: one file for each thing that is asked about.
//! - `expect`: what is expected, and what other policies would make of it.
//! - `serve`: the daemon itself, on the GPUs that `machine` finds, with policies that `policy_factory` makes and forecasts by
//!   `forecast_service`.
//! - `replay`, `doctor`: decisions taken again, and an installation looked at. Their flags are in `host_args`.
//! - `upgrade_check`: a folder of another version looked at before an upgrade.
//! - `web`: the page, with a token that ends by itself.
//! - `top`: the cluster in a terminal, as it changes.

mod args;
mod connect;
mod daemon;
mod detail;
mod doctor;
mod events;
mod expect;
mod follow;
mod forecast_service;
mod host_args;
pub mod interactive;
mod job_files;
mod jobs;
mod machine;
mod nodes;
mod other_cluster;
mod places;
mod policy_factory;
mod pools;
mod replay;
mod selection;
mod serve;
mod shares;
mod slurm;
mod snapshot;
mod submit;
mod surroundings;
mod tokens;
mod top;
mod upgrade_check;
mod web;
mod windows;

pub use args::{ConnectionArgs, LiveCommand};
pub use connect::connect;

use crate::failure::Failure;
use crate::output::Output;
use trainyard_api::request::{Act, NodeAct};

/// Does what a command of the live side says.
pub fn run(command: LiveCommand, output: &Output) -> Result<(), Failure> {
    match command {
        LiveCommand::Submit(args) => submit::submit(&args, output),
        LiveCommand::Run(args) => submit::run(&args, output),
        LiveCommand::Plan(args) => submit::plan(&args, output),
        LiveCommand::Ps(args) => jobs::list(&args, output),
        LiveCommand::Describe(args) => detail::show(&args, output),
        LiveCommand::Why(args) => jobs::why(&args, output),
        LiveCommand::Eta(args) => expect::eta(&args, output),
        LiveCommand::Whatif(args) => expect::whatif(&args, output),
        LiveCommand::Logs(args) => follow::logs(&args, output),
        LiveCommand::Cancel(args) => {
            let act = Act::Cancel { reason: args.reason.clone() };
            jobs::act(&args.jobs, &act, "cancelled", output)
        }
        LiveCommand::Hold(args) => jobs::act(&args, &Act::Hold, "held", output),
        LiveCommand::Release(args) => jobs::act(&args, &Act::Release, "released", output),
        LiveCommand::Requeue(args) => jobs::act(&args, &Act::Requeue, "put back", output),
        LiveCommand::Nodes(args) => nodes::list(&args, output),
        LiveCommand::Drain(args) => {
            let act = NodeAct::Drain { reason: args.reason.clone() };
            nodes::act(&args.node, act, output)
        }
        LiveCommand::Resume(args) => nodes::act(&args, NodeAct::Resume, output),
        LiveCommand::Window(command) => windows::run(&command, output),
        LiveCommand::Pool(command) => pools::run(&command, output),
        LiveCommand::Fair(args) => shares::fair(&args, output),
        LiveCommand::Acct(args) => shares::acct(&args, output),
        LiveCommand::Events(args) => events::events(&args, output),
        LiveCommand::Policy(args) => daemon::policy(&args, output),
        LiveCommand::Status(args) => daemon::status(&args, output),
        LiveCommand::Top(args) => top::top(&args, output),
        LiveCommand::Capture(args) => daemon::capture(&args, output),
        LiveCommand::Token(command) => tokens::run(&command, output),
        LiveCommand::Web(args) => web::run(&args, output),
        LiveCommand::Job(command) => job_files::run(&command, output),
        LiveCommand::Serve(args) => serve::run(&args, output),
        LiveCommand::Replay(args) => replay::run(&args, output),
        LiveCommand::Doctor(args) => doctor::run(&args, output),
        LiveCommand::UpgradeCheck(args) => upgrade_check::run(&args, output),
    }
}
