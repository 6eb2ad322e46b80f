//! Slurm accounting as `sacct -a -P` prints it: fields separated by `|`, with a header or in the documented order.
//!
//! Without a header (`-n`) the order is `JobIDRaw,User,Account,Partition,QOS,State,Submit,Eligible,Start,End,
//! ElapsedRaw,TimelimitRaw,ReqTRES,AllocTRES,NNodes,NodeList,Restarts,ExitCode`.
//! GPUs are `gres/gpu=` of what was allocated, or else of what was asked for; a type such as `gres/gpu:a100=8` is a
//! type the job insists on. A job's length is `ElapsedRaw`, or else end less start. The time limit is in minutes.
//! Steps (`123.batch`) belong to their job and are not counted. Jobs that never started, still run or have no GPUs
//! are dropped; failed, cancelled and timed-out ones are kept with the time they ran.
//! The tenant is the account, or else the user. Times are local to the cluster and are taken as UTC.
//! No real file is at hand: tests use rows made by this schema.

use super::moment::{self, MOMENT};
use super::sink::{Draft, NO_GPU, Sink};
use super::table::{Column, GPUS_MAX, Header, SECONDS_MAX, Table, TableRow, needed, optional};
use super::{Skip, Sniff};
use crate::ReadError;
use std::io::BufRead;
use trainyard_types::Span;

const COLUMNS: &[Column] = &[
    needed(&["JobIDRaw", "JobID"]),
    optional(&["User"]),
    optional(&["Account"]),
    optional(&["Partition"]),
    optional(&["QOS"]),
    needed(&["State"]),
    needed(&["Submit"]),
    optional(&["Eligible"]),
    optional(&["Start"]),
    optional(&["End"]),
    optional(&["ElapsedRaw"]),
    optional(&["TimelimitRaw"]),
    optional(&["ReqTRES"]),
    optional(&["AllocTRES"]),
    optional(&["NNodes"]),
];

const ID: usize = 0;
const USER: usize = 1;
const ACCOUNT: usize = 2;
const STATE: usize = 5;
const SUBMIT: usize = 6;
const START: usize = 8;
const END: usize = 9;
const ELAPSED: usize = 10;
const LIMIT: usize = 11;
const ASKED: usize = 12;
const ALLOCATED: usize = 13;

/// A header with a job id, or the documented eighteen fields.
pub(crate) fn detect(sniff: &Sniff<'_>) -> bool {
    has_header(sniff.first_line())
        || (sniff.first_row('|').count() == 18
            && sniff.first_row('|').nth(6).is_some_and(|text| moment::parse(text).is_some()))
}

fn has_header(first: &str) -> bool {
    let mut names = first.split('|').map(str::trim);
    names.clone().count() > 1 && names.any(|name| name == "JobID" || name == "JobIDRaw")
}

pub(crate) fn read(mut reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    sink.is_calendar = true;
    sink.report.time_zone =
        "UTC is assumed, for sacct prints local times without a zone".to_owned();
    let begin = reader.fill_buf()?;
    let begin = String::from_utf8_lossy(&begin[..begin.len().min(4096)]).into_owned();
    let header = match has_header(begin.lines().next().unwrap_or("")) {
        true => Header::Named,
        false => Header::None,
    };
    let mut steps = 0u64;
    let mut table = Table::new(&mut reader, COLUMNS, (b'|', header))?;
    while let Some(row) = table.next()? {
        if row.text(ID).is_some_and(|id| id.contains('.')) {
            steps += 1;
            continue;
        }
        let draft = draft(&row, sink);
        sink.take(row.line, draft)?;
    }
    if steps > 0 {
        sink.report.notes.push(format!("{steps} steps of jobs are not counted"));
    }
    Ok(())
}

fn draft<'a>(row: &TableRow<'a>, sink: &mut Sink) -> Result<Draft<'a>, Skip> {
    let id = row.need(ID)?;
    let tres = match row.text(ALLOCATED) {
        Some(text) => Tres::parse(text).filter(|tres| tres.gpus > 0.0),
        None => None,
    };
    let tres = tres.or_else(|| row.text(ASKED).and_then(Tres::parse));
    let tres = tres.filter(|tres| tres.gpus > 0.0).ok_or(Skip::because(NO_GPU))?;
    if tres.gpus > GPUS_MAX || tres.gpus.fract() != 0.0 {
        return Err(row.wrong(ALLOCATED, "a whole number of GPUs, at most a million").into());
    }
    let submitted = time(row, SUBMIT)?.ok_or_else(|| Skip::missing("Submit"))?;
    let state = row.text(STATE).unwrap_or("not stated").split(' ').next().unwrap_or("");
    if matches!(state, "RUNNING" | "PENDING" | "SUSPENDED" | "REQUEUED") {
        return Err(Skip::because("it is not over yet"));
    }
    let length = length(row)?;
    let mut draft = Draft::new(id, submitted, (tres.gpus as u32, length))?;
    let want = &mut draft.job.want;
    want.kinds = sink.kinds((row.line, "AllocTRES"), tres.kind.into_iter())?;
    want.cpus_per_gpu = (tres.cpus / tres.gpus).min(65_535.0) as u16;
    if let Some(minutes) = row.number(LIMIT, 0.0..=1e8).ok().flatten() {
        draft.job.run_max = Some(Span::from_secs_f64((minutes * 60.0).max(length)));
    }
    match row.text(ACCOUNT).or(row.text(USER)) {
        Some(name) => draft.job.tenant = sink.tenant(name),
        None => sink.note_missing(row.line, "Account"),
    }
    sink.note_end(row.line, state);
    Ok(draft)
}

fn length(row: &TableRow<'_>) -> Result<f64, Skip> {
    if time(row, START)?.is_none() && row.number(ELAPSED, 0.0..=SECONDS_MAX)?.unwrap_or(0.0) == 0.0
    {
        return Err(Skip::because("it never started"));
    }
    if let Some(seconds) = row.number(ELAPSED, 0.0..=SECONDS_MAX)? {
        return Ok(seconds);
    }
    match (time(row, START)?, time(row, END)?) {
        (Some(start), Some(end)) => Ok(end - start),
        _ => Err(Skip::because("it has no end")),
    }
}

fn time(row: &TableRow<'_>, column: usize) -> Result<Option<f64>, Skip> {
    let Some(text) = row.text(column) else { return Ok(None) };
    let moment = moment::parse(text).ok_or_else(|| row.wrong(column, MOMENT))?;
    Ok(Some(moment.seconds))
}

/// What a list of trackable resources says about GPUs and CPUs.
pub(crate) struct Tres<'a> {
    pub gpus: f64,
    pub kind: Option<&'a str>,
    pub cpus: f64,
}

impl<'a> Tres<'a> {
    /// Reads `cpu=8,gres/gpu:a100=8,gres/gpu=8,node=1`; `None` when it is not such a list.
    pub fn parse(text: &'a str) -> Option<Tres<'a>> {
        let (mut all, mut typed, mut kind, mut cpus) = (0.0, 0.0, None, 0.0);
        for item in text.split(',').filter(|item| !item.trim().is_empty()) {
            let (name, value) = item.trim().split_once('=')?;
            let number = || value.parse::<f64>().ok().filter(|number| (0.0..=1e9).contains(number));
            if name == "gres/gpu" {
                all = number()?;
            } else if let Some(of) = name.strip_prefix("gres/gpu:") {
                typed += number()?;
                kind = Some(of);
            } else if name == "cpu" {
                cpus = number()?;
            }
        }
        Some(Tres { gpus: if all > 0.0 { all } else { typed }, kind, cpus })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_not_counted_twice() {
        let tres = Tres::parse("billing=64,cpu=64,gres/gpu:a100=8,gres/gpu=8,mem=1000G,node=1");
        let tres = tres.expect("a list");
        assert_eq!((tres.gpus, tres.kind, tres.cpus), (8.0, Some("a100"), 64.0));
        assert_eq!(Tres::parse("gres/gpu:v100=2").map(|tres| tres.gpus), Some(2.0));
        assert!(Tres::parse("gibberish").is_none());
    }
}
