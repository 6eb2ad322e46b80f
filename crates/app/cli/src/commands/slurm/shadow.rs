//! `trainyard slurm shadow`: what other policies would have made of the jobs that a live Slurm ran.

use super::verdict;
use super::watch::watch;
use crate::args::VERSION;
use crate::args::slurm::ShadowArgs;
use crate::commands::compare;
use crate::failure::Failure;
use crate::output::Output;
use crate::{figures, side_by_side};
use trainyard_experiment::given::Given;
use trainyard_experiment::shadow::{self, Rebuilt, Taken};
use trainyard_experiment::{choice, options};
use trainyard_policies::registry::Traits;
use trainyard_report::About;
use trainyard_report::html::More;
use trainyard_sim::Options;
use trainyard_slurm::History;
use trainyard_workload::cluster;

/// Runs the command.
pub fn run(args: &ShadowArgs, output: &Output) -> Result<(), Failure> {
    figures::refuse_early(&args.out)?;
    let options = read_options(args)?;
    let semantics = args.world.semantics;
    let entrants = choice::entrants(&args.policies, &args.stages, (semantics, Traits::default()))?;
    let history = watch(args)?;
    let taken = Taken { partitions: args.partition.clone(), keep_running: args.keep_running };
    let inventory = shadow::inventory(&history, &taken.partitions);
    if inventory.cluster.nodes.is_empty() {
        return Err(Failure::Operation(inventory.warnings.join("; ")));
    }
    let rebuilt = shadow::rebuilt((&history, &inventory), &taken, (&options, 1.0));
    if rebuilt.counts.measured == 0 {
        return output.print(&verdict::too_early(&history, &inventory, &rebuilt.counts));
    }
    let about = about(args, (&history, &rebuilt, &options));
    let run_all = |given: &Given| {
        let record = compare::recorded(&args.out);
        let results = side_by_side::run_all(given, &entrants, &options, (&args.out, record))?;
        let (runs, broken) = compare::sorted_out(&entrants, results);
        if broken.is_empty() { Ok(runs) } else { Err(Failure::Operation(broken.join("; "))) }
    };
    let (shown, done) =
        shadow::compared((&history, &inventory, rebuilt), (&options, &taken, about), run_all)?;
    verdict::print(&shown, &args.out, output)?;
    let (done, given) = done;
    let detail = compare::detail(&given.given, &done);
    let more = More { detail: Some(&detail), parts: None, replicas: None };
    if let Some(path) = compare::report_path(&args.out) {
        compare::write_report(&shown.comparison, &more, (&path, &args.out), output)?;
    }
    figures::write(&shown.comparison, &more, &args.out, output)?;
    match &args.out.jobs_out {
        Some(path) => compare::write_jobs(&given.given, &done, path, output),
        None => Ok(()),
    }
}

fn read_options(args: &ShadowArgs) -> Result<Options, Failure> {
    let seed = options::whole("--seed", &args.seed, options::SEED_MAX)?;
    let mut options = options::read(&args.world, seed)?;
    if args.world.measure.is_some() {
        return Err(Failure::flag(
            "--measure",
            "given",
            "nothing: the watch says what is measured",
        ));
    }
    if args.world.estimate_error.is_none() {
        // Policies are told what could have been known, which is wrong enough by itself.
        options.estimate_error = 0.0;
    }
    Ok(options)
}

fn about(args: &ShadowArgs, (history, rebuilt, options): (&History, &Rebuilt, &Options)) -> About {
    let given = &rebuilt.given;
    let load = given.workload.offered_load(&given.cluster);
    let mut listed = options::listed(&args.world, options);
    listed.push(("watched".to_owned(), format!("{} s", history.to - history.from)));
    listed.push(("looks".to_owned(), history.looks.to_string()));
    About {
        version: VERSION.to_owned(),
        workload: "watched in Slurm".to_owned(),
        jobs: u64::from(rebuilt.counts.measured),
        offered_load: load.is_finite().then_some(load),
        cluster: cluster::line_of(&given.cluster),
        gpus: given.cluster.gpus(),
        seed: options.seed,
        options: listed,
    }
}
