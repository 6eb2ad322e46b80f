//! `trainyard slurm adopt`: jobs that wait in Slurm become jobs of ours.

use super::{Done, calls, refused, show};
use crate::args::slurm::AdoptArgs;
use crate::failure::Failure;
use crate::live::connect;
use crate::output::Output;
use trainyard_api::JobSpec;
use trainyard_api::answer::SubmitRequest;
use trainyard_api::ask;
use trainyard_client::Client;
use trainyard_slurm::adopt::{Taking, taken_over};
use trainyard_slurm::{Lookout, SlurmJob};

/// Runs the command.
pub fn run(args: &AdoptArgs, output: &Output) -> Result<(), Failure> {
    let calls = calls(&args.client)?;
    let seen = Lookout::new(&calls).jobs().map_err(|error| refused(&error))?;
    let taking = Taking { tenant: args.tenant.clone(), preemptible: args.preemptible };
    let client = if args.dry_run { None } else { Some(connect(&args.connection)?) };
    let mut all = Vec::new();
    for id in &args.jobs {
        if !seen.rows.iter().any(|job| job.id == *id) {
            let what = "Slurm knows no such job".to_owned();
            all.push(Done { slurm: *id, name: String::new(), job: None, done: false, what });
        }
    }
    for job in seen.rows.iter().filter(|job| is_meant(job, args)) {
        all.push(match taken_over(job, &taking) {
            Err(refusal) => said(job, None, refusal.to_string()),
            Ok(spec) => match &client {
                Some(client) => submitted(client, job, spec),
                None => said(job, None, "would be taken over".to_owned()),
            },
        });
    }
    if all.is_empty() {
        return output.print("no job waits in Slurm that could be taken over\n");
    }
    show(&all, args.connection.json, output)?;
    let left = all.iter().filter(|one| !one.done).count();
    // A user who names a job wants that job; `--all-pending` asks only for those that can be taken over.
    match left > 0 && !args.all_pending && !args.dry_run {
        true => {
            Err(Failure::Operation(format!("{left} of {} jobs were not taken over", all.len())))
        }
        false => Ok(()),
    }
}

fn is_meant(job: &SlurmJob, args: &AdoptArgs) -> bool {
    if !args.all_pending {
        return args.jobs.contains(&job.id);
    }
    job.state == "PENDING"
        && args.user.as_ref().is_none_or(|user| job.user == *user)
        && args.partition.as_ref().is_none_or(|one| job.partition.split(',').any(|p| p == one))
}

/// Each job is a submission of its own, so that one that is refused keeps no other from its place.
fn submitted(client: &Client, job: &SlurmJob, spec: JobSpec) -> Done {
    // Numbers of Slurm come back after years; together with the time of submission they do not.
    let key = format!("slurm-{}-{}", job.id, job.submitted.unwrap_or_default());
    let request = SubmitRequest { jobs: vec![spec], key: Some(key) };
    match client.send(&ask::submit(request)) {
        Ok(answer) => match answer.jobs.first() {
            Some(id) => said(job, Some(*id), format!("is job {id} now")),
            None => said(job, None, "the daemon gave no id".to_owned()),
        },
        Err(error) => said(job, None, Failure::from(error).message()),
    }
}

fn said(job: &SlurmJob, id: Option<u32>, what: String) -> Done {
    Done { slurm: job.id, name: job.name.clone(), job: id, done: id.is_some(), what }
}
