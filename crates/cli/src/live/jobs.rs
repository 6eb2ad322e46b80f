//! `ps`, `why`, and what can be done to jobs.

use super::args::{OneJob, PsArgs, SomeJobs};
use super::client::{Client, Repeat};
use super::show::{clock, holdings, ids, since, state, versioned};
use crate::failure::Failure;
use crate::output::{Output, note};
use serde::Deserialize;
use serde_json::{Value, json};
use trainyard_api::answer::{JobRow, QueueState, WhyAnswer};
use trainyard_daemon::service::Act;
use trainyard_profile::InputError;
use trainyard_report::table::listing;

#[derive(Deserialize)]
struct Jobs {
    jobs: Vec<JobRow>,
}

/// All states by name.
const STATES: [QueueState; 13] = [
    QueueState::Blocked,
    QueueState::Unadmitted,
    QueueState::Waiting,
    QueueState::Starting,
    QueueState::Running,
    QueueState::Saving,
    QueueState::Finished,
    QueueState::Cancelled,
    QueueState::Failed,
    QueueState::TimeLimit,
    QueueState::Orphaned,
    QueueState::Rejected,
    QueueState::Pruned,
];

/// `ps`.
pub fn list(args: &PsArgs, output: &Output) -> Result<(), Failure> {
    let wanted = args.state.as_deref().map(named).transpose()?;
    // Asking for jobs that are over asks for them too.
    let all = args.all || wanted.is_some_and(QueueState::is_over);
    let mut query = vec![("limit", args.limit.to_string())];
    query.extend(all.then(|| ("all", "true".to_owned())));
    query.extend(args.user.clone().map(|user| ("user", user)));
    query.extend(args.tenant.clone().map(|tenant| ("tenant", tenant)));
    query.extend(wanted.map(|wanted| ("state", state(wanted))));
    query.extend(args.before.map(|before| ("before", before.to_string())));
    let client = Client::open(&args.connection)?;
    if args.connection.json {
        return output.print_json(&versioned(client.get::<Value>("/jobs", &query)?));
    }
    let Jobs { jobs } = client.get("/jobs", &query)?;
    if jobs.is_empty() {
        return output.print(&match client.stale() {
            None => "no jobs\n".to_owned(),
            // None that are on disk: what is running is another question.
            Some((_, as_of)) => format!("no jobs were known at {}\n", clock(as_of)),
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

fn named(text: &str) -> Result<QueueState, Failure> {
    let found = STATES.into_iter().find(|one| state(*one) == text);
    found.ok_or_else(|| {
        let names: Vec<String> = STATES.into_iter().map(state).collect();
        let fault = InputError::unknown(0, "state", text, names.iter().map(String::as_str));
        Failure::input("--state", fault)
    })
}

/// `why`.
pub fn why(args: &OneJob, output: &Output) -> Result<(), Failure> {
    let client = Client::open(&args.connection)?;
    let answer: WhyAnswer = client.get(&format!("/jobs/{}/why", args.job), &[])?;
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
    let client = Client::open(&args.connection)?;
    let (mut done, mut failed) = (Vec::new(), None);
    for job in &args.jobs {
        match client.send::<JobRow>("POST", &format!("/jobs/{job}/act"), act, Repeat::Unsent) {
            Ok(row) if args.connection.json => done.push(json!(row)),
            Ok(row) => output.print(&format!("job {job} {word}: {}\n", state(row.state)))?,
            Err(failure) => {
                // The first is told by whoever ends the program.
                match &failed {
                    None => failed = Some(failure),
                    Some(_) => note(&format!("error: {}", failure.message())),
                }
            }
        }
    }
    if args.connection.json {
        output.print_json(&versioned(json!({ "jobs": done })))?;
    }
    failed.map_or(Ok(()), Err)
}
