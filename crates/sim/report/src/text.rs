//! Stable text of a run, for golden tests and for reading along.
//!
//! Times are exact, in the form that `Span` reads back. The forms change only with a line in the change log.

use trainyard_sim::{Observer, Outcome};
use trainyard_types::{Action, Allocation, Share, Time, Why};
use trainyard_workload::Workload;

/// What came of each job: label, submission, first start, end, how it ended, restarts.
pub fn job_table(workload: &Workload, outcome: &Outcome) -> String {
    let mut rows =
        vec![["job", "submitted", "started", "ended", "how", "restarts"].map(str::to_owned)];
    let mut over = outcome.jobs.iter().peekable();
    for one in workload.jobs.iter().filter(|one| outcome.measures(one.job.id)) {
        let job = &one.job;
        let never = || "-".to_owned();
        rows.push(match over.next_if(|end| end.job == job.id) {
            Some(end) => [
                workload.label(job.id),
                job.submitted.to_string(),
                end.first_start.map_or_else(never, |time| time.to_string()),
                end.ended.to_string(),
                end.end.name().to_owned(),
                end.restarts.to_string(),
            ],
            None => [
                workload.label(job.id),
                job.submitted.to_string(),
                never(),
                never(),
                "unfinished".to_owned(),
                never(),
            ],
        });
    }
    aligned(&rows)
}

/// Takes down every action of a run.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    /// When and what.
    pub actions: Vec<(Time, Action)>,
}

impl Observer for Recorder {
    fn action(&mut self, at: Time, action: &Action) {
        self.actions.push((at, action.clone()));
    }
}

/// What was recorded, one action to a line: `5m launch a n0[0-3]`.
pub fn action_log(workload: &Workload, recorder: &Recorder) -> String {
    let rows: Vec<[String; 2]> = recorder
        .actions
        .iter()
        .map(|(at, action)| [at.to_string(), action_text(workload, action)])
        .collect();
    aligned(&rows)
}

/// An action in words.
pub fn action_text(workload: &Workload, action: &Action) -> String {
    match action {
        Action::Launch { job, allocation, .. } => {
            format!("launch {} {}", workload.label(*job), where_text(allocation))
        }
        Action::Adjust { job, allocation, .. } => {
            format!("adjust {} {}", workload.label(*job), where_text(allocation))
        }
        Action::Suspend { job, .. } => format!("suspend {}", workload.label(*job)),
        Action::Resume { job, allocation, .. } => {
            format!("resume {} {}", workload.label(*job), where_text(allocation))
        }
        Action::Stop { job, why, .. } => {
            format!("stop {} {}", workload.label(*job), why_word(*why))
        }
        Action::Ended { job, end, .. } => {
            format!("{} {}", workload.label(*job), end.name())
        }
    }
}

fn why_word(why: Why) -> &'static str {
    match why {
        Why::Preempted => "preempted",
        Why::Moved => "moved",
        Why::Asked => "asked",
        Why::TimeLimit => "time-limit",
        Why::Pruned => "pruned",
        Why::Machine => "machine",
        Why::Window => "window",
        Why::Dropped => "dropped",
    }
}

/// Which GPUs, the shares of those that are not whole, and what is stated of the host.
fn where_text(allocation: &Allocation) -> String {
    let mut text = allocation.placement.to_string();
    let mut shares: Vec<Share> = allocation.shares.to_vec();
    shares.dedup();
    if shares.iter().any(|share| *share != Share::Whole) {
        let words: Vec<String> = shares
            .iter()
            .map(|share| match share {
                Share::Whole => "whole".to_owned(),
                Share::Permille(part) => format!("{part}/1000"),
                Share::Leftover => "leftover".to_owned(),
            })
            .collect();
        text.push_str(&format!(" share {}", words.join(",")));
    }
    if let Some(limit) = allocation.knobs.compute_permille_max {
        text.push_str(&format!(" limit {limit}/1000"));
    }
    if let Some(memory) = allocation.knobs.memory_mib_max {
        text.push_str(&format!(" memory {memory} MiB"));
    }
    let host = allocation.host_per_gpu;
    let cpus = (host.cpus > 0).then(|| format!("{} CPUs", host.cpus));
    let memory = (host.memory_mib > 0).then(|| format!("{} MiB", host.memory_mib));
    let stated: Vec<String> = cpus.into_iter().chain(memory).collect();
    if !stated.is_empty() {
        text.push_str(&format!(" with {} each", stated.join(", ")));
    }
    text
}

/// Columns padded to the widest text, two spaces apart; no spaces at the ends of lines.
fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, text) in widths.iter_mut().zip(row) {
            *width = (*width).max(text.chars().count());
        }
    }
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (width, text) in widths.iter().zip(row) {
            line.push_str(text);
            line.push_str(&" ".repeat(width - text.chars().count() + 2));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::timeline::Timeline;
    use std::sync::Arc;
    use trainyard_policies::compose::Selection;
    use trainyard_sim::{Options, simulate};
    use trainyard_types::{Cluster, Job, JobId, Work};
    use trainyard_workload::TraceJob;

    /// Two gangs of the whole cluster, one after the other.
    fn two(observer: &mut dyn Observer) -> (Workload, Arc<Cluster>, Outcome) {
        let mut workload = Workload::empty("two");
        for (index, seconds) in [(0, 60.0), (1, 30.0)] {
            let job = Job::simple(JobId(index), Time::from_secs_f64(f64::from(index)), 4);
            let work = Work(seconds);
            workload.jobs.push(TraceJob::new(job, work));
        }
        workload.labels = vec!["a".to_owned(), "b".to_owned()];
        let cluster = Arc::new(Cluster::uniform(1, 4, "v100"));
        let pipeline = Selection::policy("fifo").build().expect("fifo exists");
        let options =
            Options { costs: "free".parse().expect("a cost model"), ..Options::default() };
        let outcome = simulate(&workload, &cluster, pipeline, &options, observer);
        (workload, cluster, outcome)
    }

    /// The same, with which jobs held which GPUs.
    pub(crate) fn two_jobs() -> (Workload, Arc<Cluster>, Outcome, Timeline) {
        let mut timeline = Timeline::new(100);
        let (workload, cluster, outcome) = two(&mut timeline);
        timeline.close(outcome.ended);
        (workload, cluster, outcome, timeline)
    }

    #[test]
    fn a_run_reads_as_text() {
        let mut recorder = Recorder::default();
        let (workload, _, outcome) = two(&mut recorder);
        assert_eq!(
            job_table(&workload, &outcome),
            "job  submitted  started  ended  how       restarts\n\
             a    0s         0s       1m     finished  0\n\
             b    1s         1m       1m30s  finished  0\n"
        );
        assert_eq!(
            action_log(&workload, &recorder),
            "0s     launch a n0[0-3]\n\
             1m     a finished\n\
             1m     launch b n0[0-3]\n\
             1m30s  b finished\n"
        );
    }
}
