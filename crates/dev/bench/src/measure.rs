//! Timing one case.

use crate::cases::Case;
use anyhow::{Result, ensure};
use std::sync::Arc;
use trainyard_bench::{least, mark};
use trainyard_policies::compose::Selection;
use trainyard_sim::{Options, Quiet, simulate};

/// The head of the table.
pub const HEADER: &str =
    "case                          jobs     steps   cpu s  bound s  reference s  x ref  peak MiB";

/// Runs a case and says in one line what it took.
pub fn run(case: &Case, runs: u32) -> Result<String> {
    let (workload, cluster) = (case.input)()?;
    let cluster = Arc::new(cluster);
    let options = Options { estimate_error: case.error, ..case.semantics.options() };
    let took = least(runs, || {
        let mut selection = Selection::policy(case.policy);
        selection.wish(case.semantics.wishes().iter().copied());
        let outcome = simulate(&workload, &cluster, selection.build()?, &options, &mut Quiet);
        ensure!(outcome.unfinished.is_empty(), "{} jobs never finished", outcome.unfinished.len());
        ensure!(outcome.stats.faults == 0, "faults: {:?}", outcome.stats.fault_samples);
        Ok(outcome.steps)
    })?;
    let memory = peak_memory_mib();
    let over = took.seconds > case.cpu_seconds_max || memory > case.memory_mib_max;
    Ok(format!(
        "{:<28} {:>7} {:>9} {:>7.3} {:>8.2} {:>12.3} {:>6.1} {:>9.0}{}",
        case.name,
        workload.jobs.len(),
        took.found,
        took.seconds,
        case.cpu_seconds_max,
        took.reference,
        took.times_reference(),
        memory,
        mark(over),
    ))
}

/// The most memory this process ever held; 0 where the system does not say.
fn peak_memory_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}
