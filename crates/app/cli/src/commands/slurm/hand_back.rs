//! `trainyard slurm hand-back`: jobs that were taken over go back to Slurm's own scheduler.

use super::{Done, calls, refused, show};
use crate::args::slurm::HandBackArgs;
use crate::failure::Failure;
use crate::output::Output;
use trainyard_slurm::adopt::{hand_back, is_own, is_taken_over, let_go};
use trainyard_slurm::{Calls, Lookout, SlurmJob};

/// Runs the command.
pub fn run(args: &HandBackArgs, output: &Output) -> Result<(), Failure> {
    let calls = calls(&args.client)?;
    let seen = Lookout::new(&calls).jobs().map_err(|error| refused(&error))?;
    let mut all = Vec::new();
    for id in &args.jobs {
        if !seen.rows.iter().any(|job| job.id == *id) {
            let what = "Slurm knows no such job".to_owned();
            all.push(Done { slurm: *id, name: String::new(), job: None, done: false, what });
        }
    }
    let is_open =
        |job: &SlurmJob| ["PENDING", "RUNNING", "SUSPENDED"].contains(&job.state.as_str());
    for job in seen.rows.iter().filter(|job| is_open(job)) {
        let is_named = args.jobs.contains(&job.id);
        if is_named || args.jobs.is_empty() && (is_taken_over(job) || is_own(job)) {
            all.push(handed(&calls, job, args.dry_run));
        }
    }
    if all.is_empty() {
        return output.print("no job in Slurm is under Trainyard\n");
    }
    show(&all, args.json, output)?;
    let is_left = |one: &&Done| !one.done;
    match all.iter().filter(is_left).count() {
        0 => Ok(()),
        left if args.dry_run || args.jobs.is_empty() && left < all.len() => Ok(()),
        left => {
            Err(Failure::Operation(format!("{left} of {} jobs were not handed back", all.len())))
        }
    }
}

fn handed(calls: &Calls, job: &SlurmJob, dry_run: bool) -> Done {
    let waits = job.state == "PENDING";
    let (result, what) = match (is_taken_over(job), is_own(job)) {
        (false, true) if waits => {
            (None, "was submitted to Trainyard, which alone can run it: stays held")
        }
        (false, true) => (None, "was submitted to Trainyard and runs: goes on to its end"),
        (false, false) => (None, "is not under Trainyard"),
        (true, _) if dry_run => (
            None,
            if waits { "would be released to Slurm" } else { "runs: would go on as Slurm's own" },
        ),
        (true, _) if waits => (Some(hand_back(calls, job)), "is released to Slurm"),
        (true, _) => (Some(let_go(calls, job)), "runs: goes on as Slurm's own"),
    };
    let (done, what) = match result {
        Some(Ok(())) => (true, what.to_owned()),
        Some(Err(error)) => (false, error.to_string()),
        None => (false, what.to_owned()),
    };
    Done { slurm: job.id, name: job.name.clone(), job: None, done, what }
}
