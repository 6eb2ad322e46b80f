//! `ps`, `why`, and what can be done to jobs.

use super::args::{OneJob, PsArgs, SomeJobs};
use super::connect::connect;
use super::selection::{Chosen, chosen};
use crate::failure::Failure;
use crate::output::{Output, note};
use serde_json::json;
use trainyard_api::answer::{JobRow, QueueState};
use trainyard_api::ask;
use trainyard_api::request::{Act, JobFilter};
use trainyard_client::show::{clock, holdings, ids, since, state, versioned};
use trainyard_diagnostic::InputError;
use trainyard_report::table::listing;

/// `ps`.
pub fn list(args: &PsArgs, output: &Output) -> Result<(), Failure> {
    let mut wanted = Vec::new();
    for text in &args.state {
        wanted.extend(named(text)?);
    }
    let client = connect(&args.connection)?;
    let several = wanted.len() > 1;
    if args.connection.json && !several {
        let request = ask::jobs(filter(args, wanted.first().copied()));
        return output.print_json(&versioned(client.value(&request)?));
    }
    let mut jobs = Vec::new();
    match wanted.as_slice() {
        [] => jobs = client.send(&ask::jobs(filter(args, None)))?,
        some => {
            for one in some {
                jobs.extend(client.send(&ask::jobs(filter(args, Some(*one))))?);
            }
        }
    }
    if several {
        // Each state was asked for by itself: the newest of all, as of one.
        jobs.sort_by_key(|job| std::cmp::Reverse(job.id));
        jobs.dedup_by_key(|job| job.id);
        jobs.truncate(args.limit as usize);
    }
    if args.connection.json {
        return output.print_json(&versioned(json!({ "jobs": jobs })));
    }
    if jobs.is_empty() {
        return output.print(&match client.stale() {
            None => "no jobs\n".to_owned(),
            // None that are on disk: what is running is another question.
            Some(stale) => format!("no jobs were known at {}\n", clock(stale.as_of)),
        });
    }
    let rows: Vec<Vec<String>> = jobs.iter().map(row).collect();
    let heading = ["id", "name", "user", "state", "for", "GPUs", "held", "where", "done", "why"];
    output.print(&listing(&heading, &rows, output.ink, output.width))?;
    if jobs.len() >= args.limit as usize {
        let last = jobs.iter().map(|job| job.id).min().unwrap_or(0);
        output.print(&format!(
            "\nthere may be more: --before {last} shows them, --limit more at once\n"
        ))?;
    }
    Ok(())
}

fn filter(args: &PsArgs, wanted: Option<QueueState>) -> JobFilter {
    JobFilter {
        user: args.user.clone(),
        tenant: args.tenant.clone(),
        state: wanted.map(state),
        // Asking for jobs that have ended asks for them too.
        all: args.all || wanted.is_some_and(QueueState::is_over),
        limit: Some(args.limit as usize),
        before: args.before,
    }
}

fn row(job: &JobRow) -> Vec<String> {
    let done = job.progress.map(|share| format!("{:.0} %", share * 100.0));
    let held: usize = job.holds.iter().map(|hold| hold.gpus.len()).sum();
    vec![
        job.id.to_string(),
        job.name.clone(),
        job.user.clone(),
        state(job.state),
        since(job.since),
        job.gpus.to_string(),
        if held > 0 { held.to_string() } else { String::new() },
        holdings(&job.holds),
        done.unwrap_or_default(),
        job.why.clone(),
    ]
}

/// States by our names, or by those of Slurm.
fn named(text: &str) -> Result<Vec<QueueState>, Failure> {
    use QueueState::{
        Blocked, Cancelled, Failed, Finished, Running, TimeLimit, Unadmitted, Waiting,
    };
    let text = text.trim().to_ascii_lowercase();
    if let Some(state) = QueueState::named(&text) {
        return Ok(vec![state]);
    }
    match text.as_str() {
        "pending" | "pd" | "queued" => Ok(vec![Blocked, Unadmitted, Waiting]),
        "held" | "hold" => Ok(vec![Blocked]),
        "r" => Ok(vec![Running]),
        "completed" | "cd" | "succeeded" => Ok(vec![Finished]),
        "f" => Ok(vec![Failed]),
        "ca" | "canceled" => Ok(vec![Cancelled]),
        "timeout" | "to" => Ok(vec![TimeLimit]),
        _ => {
            let names = QueueState::all().map(QueueState::name);
            let fault = InputError::unknown(0, "state", &text, names);
            Err(Failure::input("--state", fault))
        }
    }
}

/// `why`.
pub fn why(args: &OneJob, output: &Output) -> Result<(), Failure> {
    let client = connect(&args.connection)?;
    let answer = client.send(&ask::why(args.job))?;
    if args.connection.json {
        return output.print_json(&versioned(&answer));
    }
    let mut text =
        format!("job {} is {} for {}\n", answer.job, state(answer.state), since(answer.since));
    for reason in &answer.reasons {
        text.push_str(&format!("  {reason}\n"));
    }
    if !answer.blockers.is_empty() {
        text.push_str(&format!("held by jobs    {}\n", ids(&answer.blockers)));
    }
    if let Some(change) = &answer.nearest_change {
        text.push_str(&format!("nearest change  {change}\n"));
    }
    if let Some(moment) = answer.not_before {
        text.push_str(&format!("not before      {}\n", clock(moment)));
    }
    output.print(&text)
}

/// `cancel`, `hold`, `release` and `requeue`: each job on its own; the first that cannot be done is told at the end.
pub fn act(args: &SomeJobs, act: &Act, word: &str, output: &Output) -> Result<(), Failure> {
    let client = connect(&args.connection)?;
    let Chosen { jobs, passed_over } = chosen(args, matches!(act, Act::Requeue), &client)?;
    let (mut done, mut failed) = (Vec::new(), None);
    for job in &jobs {
        match client.send(&ask::act(*job, act.clone())).map_err(Failure::from) {
            Ok(row) if args.connection.json => done.push(json!(row)),
            Ok(row) => output.print(&format!("job {job} {word}: {}\n", state(row.state)))?,
            Err(failure) => {
                // The first is returned, and printed when the program ends.
                match &failed {
                    None => failed = Some(failure),
                    Some(_) => note(&format!("error: {}", failure.message())),
                }
            }
        }
    }
    if args.connection.json {
        output.print_json(&versioned(json!({ "jobs": done })))?;
    } else if passed_over > 0 {
        let what = if passed_over == 1 { "id of the range has" } else { "ids of the ranges have" };
        output.print(&format!("{passed_over} {what} no job that could be {word}\n"))?;
    } else if jobs.is_empty() {
        output.print("no such jobs\n")?;
    }
    failed.map_or(Ok(()), Err)
}
