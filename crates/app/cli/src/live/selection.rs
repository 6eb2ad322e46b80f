//! Which jobs are meant: ids and ranges of ids, or all that have not ended of a user or under a name.

use super::args::SomeJobs;
use crate::failure::Failure;
use std::collections::BTreeSet;
use std::str::FromStr;
use trainyard_api::answer::JobRow;
use trainyard_api::ask;
use trainyard_api::request::JobFilter;
use trainyard_client::Client;

/// Jobs that one range may name.
const RANGE_MAX: u32 = 100_000;

/// Rows that are asked for at once.
const PAGE: usize = 1000;

/// One job, or all from one to another.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct JobRange {
    first: u32,
    last: u32,
}

impl FromStr for JobRange {
    type Err = String;

    fn from_str(text: &str) -> Result<JobRange, String> {
        let expected = || "expected an id such as 12, or a range such as 3-7".to_owned();
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| expected());
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(text)?, number(text)?),
        };
        match last.checked_sub(first) {
            None => Err(format!("it ends before it begins: {}", expected())),
            Some(more) if more >= RANGE_MAX => Err(format!("at most {RANGE_MAX} jobs at once")),
            Some(_) => Ok(JobRange { first, last }),
        }
    }
}

/// The jobs that are meant.
pub struct Chosen {
    /// Their ids, each once: in the order given, or those that hold no GPUs first.
    pub jobs: Vec<u32>,
    /// How many of the ranges have ended or never were.
    pub passed_over: usize,
}

/// Finds out which jobs are meant.
///
/// A job that is named by itself is taken as it is, so that a wrong id is told; of a range, or of all jobs, only those
/// are taken that have not ended. With `ended`, a range takes those that have ended too.
pub fn chosen(args: &SomeJobs, ended: bool, client: &Client) -> Result<Chosen, Failure> {
    let by_rule = args.all || args.user.is_some() || args.name.is_some();
    let single = |range: &&JobRange| range.first == range.last;
    if !by_rule && args.jobs.iter().all(|range| single(&range)) {
        let jobs = args.jobs.iter().map(|range| range.first).collect();
        return Ok(Chosen { jobs: unique(jobs), passed_over: 0 });
    }
    if by_rule {
        let open = rows(client, Asked { user: owner(args, client)?, ..Asked::default() })?;
        let named = |row: &&JobRow| args.name.as_ref().is_none_or(|name| *name == row.name);
        let jobs = waiting_first(open.iter().filter(named));
        return Ok(Chosen { jobs, passed_over: 0 });
    }
    let (mut jobs, mut passed_over) = (Vec::new(), 0);
    for range in &args.jobs {
        if single(&range) {
            jobs.push(range.first);
            continue;
        }
        let found = rows(client, Asked { ended, within: Some(*range), ..Asked::default() })?;
        let within = |row: &&JobRow| (range.first..=range.last).contains(&row.id);
        let before = jobs.len();
        jobs.extend(waiting_first(found.iter().filter(within)));
        passed_over += (range.last - range.first) as usize + 1 - (jobs.len() - before);
    }
    Ok(Chosen { jobs: unique(jobs), passed_over })
}

/// Jobs without GPUs, then those with some, ascending: one that is let go must not make room for one that is about to be.
fn waiting_first<'a>(rows: impl Iterator<Item = &'a JobRow>) -> Vec<u32> {
    let keys: BTreeSet<(bool, u32)> = rows.map(|row| (!row.holds.is_empty(), row.id)).collect();
    keys.into_iter().map(|(_, id)| id).collect()
}

/// Whose jobs a rule means: those of one user, one's own unless said otherwise, or all users'.
fn owner(args: &SomeJobs, client: &Client) -> Result<Option<String>, Failure> {
    match args.user.as_deref() {
        Some("*") => Ok(None),
        Some(user) => Ok(Some(user.to_owned())),
        None => Ok(Some(client.send(&ask::status())?.user)),
    }
}

/// Which rows are asked for.
#[derive(Default)]
struct Asked {
    user: Option<String>,
    ended: bool,
    within: Option<JobRange>,
}

/// All rows that are asked for, page by page.
fn rows(client: &Client, asked: Asked) -> Result<Vec<JobRow>, Failure> {
    let mut rows: Vec<JobRow> = Vec::new();
    let mut before = asked.within.and_then(|range| range.last.checked_add(1));
    let first = asked.within.map_or(0, |range| range.first);
    loop {
        let filter = JobFilter {
            user: asked.user.clone(),
            all: asked.ended,
            limit: Some(PAGE),
            before,
            ..JobFilter::default()
        };
        let page = client.send(&ask::jobs(filter))?;
        let least = page.iter().map(|row| row.id).min();
        let is_last =
            page.len() < PAGE || least.is_none_or(|least| least <= first || Some(least) == before);
        before = least;
        rows.extend(page);
        if is_last {
            return Ok(rows);
        }
    }
}

fn unique(jobs: Vec<u32>) -> Vec<u32> {
    let mut seen = BTreeSet::new();
    jobs.into_iter().filter(|job| seen.insert(*job)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_and_one_that_runs_backwards_is_refused() {
        assert_eq!("12".parse(), Ok(JobRange { first: 12, last: 12 }));
        assert_eq!("3-7".parse(), Ok(JobRange { first: 3, last: 7 }));
        for wrong in ["7-3", "a", "3-", "-7", "0-100000", "3..7", ""] {
            assert!(wrong.parse::<JobRange>().is_err(), "{wrong}");
        }
    }
}
