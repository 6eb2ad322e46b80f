//! What the page's scripts read: jobs, and which of them held which GPUs when, as JSON of packed columns.
//!
//! Times are whole seconds since the first submission. Everything together stays below [`BYTES_MAX`]; what does not
//! fit is left out, and the page says so.

use super::pack::{column, differences};
use super::{Detail, RunDetail};
use crate::timeline::{Interval, Timeline};
use crate::units::span_text;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use trainyard_types::{End, Time, printable};

/// The most bytes of data in a page.
pub(super) const BYTES_MAX: usize = 13_500_000;
/// The most jobs in the table of a page.
const JOBS_MAX: usize = 200_000;
/// The most bytes of names of jobs.
const LABELS_MAX: usize = 4_000_000;
/// A name is cut after so many characters.
const LABEL_LENGTH_MAX: usize = 80;

/// The data of a page, and what had to be left out.
pub(super) struct Data {
    /// `script` elements, none of which runs.
    pub elements: String,
    /// Sentences about what is missing.
    pub missing: Vec<String>,
}

/// Packs what fits.
pub(super) fn pack(detail: &Detail<'_>, names: &[&str], bytes_max: usize) -> Data {
    let mut missing = Vec::new();
    let jobs = detail.workload.jobs.len().min(JOBS_MAX);
    if jobs < detail.workload.jobs.len() {
        let total = detail.workload.jobs.len();
        missing.push(format!("The table shows the first {jobs} of {total} jobs."));
    }
    let base = detail.runs.first().map_or(0, |run| seconds(run.outcome.started));
    let shared = element("data-jobs", &jobs_json(detail, (jobs, base), &mut missing));
    let mut elements = shared + &element("data-cluster", &cluster_json(detail));
    let mut left = bytes_max.saturating_sub(elements.len());
    let mut tables = Vec::new();
    for (index, run) in detail.runs.iter().enumerate() {
        let table = element(&format!("data-run-{index}"), &run_json(detail, run, jobs));
        let fits = table.len() <= left;
        if fits {
            left -= table.len();
            elements.push_str(&table);
        } else {
            missing.push(format!("The jobs of {} do not fit into this page.", names[index]));
        }
        tables.push(fits);
    }
    let mut cuts = Vec::new();
    let mut waiting = tables.iter().filter(|fits| **fits).count();
    for (index, run) in detail.runs.iter().enumerate().filter(|(index, _)| tables[*index]) {
        // What one run does not need is left to those after it.
        let share = left / waiting.max(1);
        waiting -= 1;
        let (value, until) = time_json(detail, run, (share, jobs, base));
        let text = element(&format!("data-time-{index}"), &value);
        left = left.saturating_sub(text.len());
        elements.push_str(&text);
        if let Some(until) = until {
            cuts.push(format!("{} of {}", span_text(until as f64), names[index]));
        }
    }
    if !cuts.is_empty() {
        missing
            .push(format!("Who held which GPU is shown only for the first {}.", cuts.join(", ")));
    }
    Data { elements, missing }
}

/// A `script` element with JSON: no text in it can end it.
fn element(id: &str, value: &Value) -> String {
    let text = value.to_string().replace('<', "\\u003c");
    format!("<script type=\"application/json\" id=\"{id}\">{text}</script>\n")
}

fn jobs_json(detail: &Detail<'_>, (count, base): (usize, u64), missing: &mut Vec<String>) -> Value {
    let workload = detail.workload;
    let jobs = &workload.jobs[..count];
    let mut models = BTreeMap::new();
    let mut model_names = Vec::new();
    let of_job: Vec<u64> = jobs
        .iter()
        .map(|one| {
            *models.entry(one.job.model).or_insert_with(|| {
                model_names.push(printable(&workload.catalog.get(one.job.model).name));
                model_names.len() as u64 - 1
            })
        })
        .collect();
    // Scripts of the page show these texts as they are, so they are made printable here.
    let cut = |label: &String| printable(label).chars().take(LABEL_LENGTH_MAX).collect::<String>();
    let mut labels: Vec<String> = workload.labels.iter().take(count).map(cut).collect();
    if labels.iter().map(|label| bytes_of_text(label)).sum::<usize>() > LABELS_MAX {
        labels.clear();
        missing.push("The names of the jobs do not fit; jobs are shown by number.".to_owned());
    }
    let tenants: Vec<_> =
        workload.tenants.iter().map(|(_, tenant)| printable(&tenant.name)).collect();
    let mut ends = vec!["unfinished"];
    ends.extend(End::ALL.map(End::name));
    json!({
        "count": count,
        "labels": labels,
        "tenants": tenants,
        "models": model_names,
        "ends": ends,
        "tenant": column(jobs.iter().map(|one| one.job.tenant.index() as u64)),
        "model": column(of_job),
        "gpus": column(jobs.iter().map(|one| u64::from(one.job.want.gpus))),
        "submitted": differences(jobs.iter().map(|one| seconds(one.job.submitted) - base)),
    })
}

fn cluster_json(detail: &Detail<'_>) -> Value {
    let nodes = &detail.cluster.nodes;
    let names: Vec<_> = nodes.iter().map(|node| printable(&node.name)).collect();
    let kinds: Vec<_> = detail.cluster.kinds.iter().map(|kind| printable(&kind.name)).collect();
    json!({
        "nodes": names,
        "kinds": kinds,
        "kind": column(nodes.iter().map(|node| node.kind.index() as u64)),
        "gpus": column(nodes.iter().map(|node| u64::from(node.gpus))),
    })
}

/// What came of each job under one policy; a wait or an end that never was is 0, others are one more.
fn run_json(detail: &Detail<'_>, run: &RunDetail<'_>, count: usize) -> Value {
    let mut rows = vec![[0u64; 6]; count];
    for one in run.outcome.jobs.iter().filter(|one| one.job.index() < count) {
        let job = &detail.workload.jobs[one.job.index()].job;
        let since = |time: Time| seconds(time) - seconds(job.submitted);
        let queued = one.ended.since(job.submitted).minus(one.ran).0;
        let end = End::ALL.iter().position(|end| *end == one.end).map_or(0, |at| at as u64 + 1);
        rows[one.job.index()] = [
            one.first_start.map_or(0, |time| since(time) + 1),
            since(one.ended) + 1,
            (queued + 500_000) / 1_000_000,
            u64::from(one.restarts),
            u64::from(one.preemptions),
            end,
        ];
    }
    let packed = |index: usize| column(rows.iter().map(|row| row[index]));
    json!({
        "started": packed(0),
        "jct": packed(1),
        "wait": packed(2),
        "restarts": packed(3),
        "preemptions": packed(4),
        "end": packed(5),
    })
}

/// Which jobs held which GPUs, as far as it fits, and up to when if that is not all.
fn time_json(
    detail: &Detail<'_>,
    run: &RunDetail<'_>,
    (bytes, jobs, base): (usize, usize, u64),
) -> (Value, Option<u64>) {
    let rows = Timeline::rows(detail.cluster);
    let all = &run.timeline.intervals;
    let (mut size, mut before) = (300, (base, 0));
    let fits = all.iter().take_while(|one| {
        size += bytes_of(one, before);
        before = (seconds(one.from), one.job.index() as u64);
        size <= bytes
    });
    let kept = fits.count();
    let cut = all.get(kept).map(|one| one.from).or(run.timeline.cut);
    let until = cut.map(|time| seconds(time).saturating_sub(base));
    let shown: Vec<&Interval> =
        all[..kept].iter().filter(|one| one.job.index() < jobs && length(one) > 0).collect();
    let value = json!({
        "count": shown.len(),
        "until": until,
        "end": seconds(run.outcome.ended).saturating_sub(base),
        "from": differences(shown.iter().map(|one| seconds(one.from) - base)),
        "length": column(shown.iter().map(|one| length(one))),
        "job": differences(shown.iter().map(|one| one.job.index() as u64)),
        "row": column(shown.iter().map(|one| u64::from(rows[one.node.index()]) + u64::from(one.first))),
        "gpus": column(shown.iter().map(|one| u64::from(one.count) * 2 + u64::from(one.is_shared))),
    });
    (value, until)
}

/// The most that a text takes as JSON in an element, with its quotes and a comma.
fn bytes_of_text(text: &str) -> usize {
    let is_escaped = |c: &char| matches!(c, '<' | '"' | '\\') || c.is_control();
    text.len() + 5 * text.chars().filter(is_escaped).count() + 3
}

fn length(interval: &Interval) -> u64 {
    seconds(interval.to) - seconds(interval.from)
}

/// The characters of an interval after one that began then and belonged to that job.
fn bytes_of(interval: &Interval, (from, job): (u64, u64)) -> usize {
    let digits = |value: u64| (64 - (value | 1).leading_zeros() as usize).div_ceil(5);
    digits(seconds(interval.from).abs_diff(from) * 2)
        + digits(length(interval))
        + digits((interval.job.index() as u64).abs_diff(job) * 2)
        + ROW_BYTES
        + digits(u64::from(interval.count) * 2 + 1)
}

/// What the number of a GPU takes in a cluster of up to a million.
const ROW_BYTES: usize = 4;

/// Whole seconds, rounded: what does not overlap does not overlap after it.
fn seconds(time: Time) -> u64 {
    (time.0 + 500_000) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tests::two_jobs;

    #[test]
    fn what_does_not_fit_is_left_out_and_said() {
        let (workload, cluster, outcome, timeline) = two_jobs();
        let run = || RunDetail { outcome: &outcome, timeline: &timeline };
        let detail = Detail { workload: &workload, cluster: &cluster, runs: vec![run(), run()] };
        let whole = pack(&detail, &["a", "b"], BYTES_MAX);
        assert!(whole.missing.is_empty(), "{:?}", whole.missing);
        assert_eq!(whole.elements.matches("<script").count(), 6);
        let none = pack(&detail, &["a", "b"], 1000);
        assert_eq!(none.missing.len(), 1, "{:?}", none.missing);
        let nothing = pack(&detail, &["a", "b"], 0);
        assert_eq!(nothing.elements.matches("<script").count(), 2);
    }

    #[test]
    fn what_a_name_takes_is_not_more_than_reckoned() {
        for text in ["a", "<<<", "\"\\", "\u{1}\n", "é–"] {
            let element = element("x", &json!([text, text]));
            let empty = super::element("x", &json!([]));
            assert!(element.len() - empty.len() < 2 * bytes_of_text(text), "{text:?}");
        }
    }

    #[test]
    fn no_name_can_end_its_element() {
        let (mut workload, cluster, outcome, timeline) = two_jobs();
        workload.labels[0] = "</script><script>alert(1)".to_owned();
        let runs = vec![RunDetail { outcome: &outcome, timeline: &timeline }];
        let detail = Detail { workload: &workload, cluster: &cluster, runs };
        let data = pack(&detail, &["a"], BYTES_MAX);
        assert!(!data.elements.contains("</script><script>"), "{}", data.elements);
    }
}
