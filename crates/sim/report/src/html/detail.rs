//! The parts of the page that look into single jobs: the Gantt chart and the table of jobs.

use crate::chart::escape;
use crate::comparison::Comparison;
use std::fmt::Write;
use trainyard_sim::Outcome;
use trainyard_types::Cluster;
use trainyard_workload::Workload;

use crate::timeline::Timeline;

/// What a page needs to show single jobs.
pub struct Detail<'a> {
    /// The jobs.
    pub workload: &'a Workload,
    /// The GPUs.
    pub cluster: &'a Cluster,
    /// One for each run of the comparison, in its order.
    pub runs: Vec<RunDetail<'a>>,
}

/// One run, job by job.
pub struct RunDetail<'a> {
    /// What came of every job.
    pub outcome: &'a Outcome,
    /// Which jobs held which GPUs when.
    pub timeline: &'a Timeline,
}

/// The two sections, empty until the page's script fills them.
pub(super) fn sections(comparison: &Comparison, missing: &[String]) -> String {
    let mut options = String::new();
    for (index, run) in comparison.runs.iter().enumerate() {
        let _ = write!(options, "<option value=\"{index}\">{}</option>", escape(&run.policy));
    }
    let mut notes = String::new();
    if !missing.is_empty() {
        let text: Vec<String> = missing.iter().map(|sentence| escape(sentence)).collect();
        notes = format!("<p class=\"note missing\"><b>Left out:</b> {}</p>\n", text.join(" "));
    }
    TEMPLATE.replace("{options}", &options).replace("{missing}", &notes)
}

const TEMPLATE: &str = include_str!("../../assets/detail.html");
