//! `events`.

use super::args::EventsArgs;
use super::connect::connect;
use crate::failure::Failure;
use crate::output::Output;
use serde_json::json;
use trainyard_api::answer::EventRow;
use trainyard_api::ask;
use trainyard_api::request::EventsQuery;
use trainyard_client::Client;
use trainyard_client::show::{clock, versioned};

/// As many as one request asks for.
const PAGE: usize = 1000;

/// How long the daemon waits for the next one before it answers with none.
const WAIT_SECONDS: f64 = 25.0;

/// `events`.
pub fn events(args: &EventsArgs, output: &Output) -> Result<(), Failure> {
    let mut client = connect(&args.connection)?;
    let (mut after, mut all) = (args.since, Vec::new());
    loop {
        let page = page(&client, after, if args.follow { WAIT_SECONDS } else { 0.0 })?;
        let is_last = page.is_empty() && !args.follow;
        after = page.last().map_or(after, |event| event.seq.max(after));
        if args.connection.json && !args.follow {
            all.extend(page);
        } else {
            for event in &page {
                match args.connection.json {
                    true => output.print_json_line(&versioned(event))?,
                    false => output.print(&line(event))?,
                }
            }
            output.flush()?;
        }
        if is_last {
            break;
        }
        if args.follow {
            client = client.following();
        }
    }
    match args.connection.json && !args.follow {
        true => output.print_json(&versioned(json!({ "events": all }))),
        false => Ok(()),
    }
}

fn page(client: &Client, after: u64, wait: f64) -> Result<Vec<EventRow>, Failure> {
    let query = EventsQuery { after, max: Some(PAGE), wait };
    Ok(client.send(&ask::events(query))?)
}

fn line(event: &EventRow) -> String {
    let job = event.job.map(|job| format!(" job {job}")).unwrap_or_default();
    format!("{:>6}  {}  {:<13}{job}  {}\n", event.seq, clock(event.at), event.kind, event.text)
}
