//! Timing one case.

use crate::cases::Case;
use anyhow::{Result, ensure};
use cpu_time::ProcessTime;
use std::sync::Arc;
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
    let mut least = f64::INFINITY;
    let mut reference = f64::INFINITY;
    let mut steps = 0;
    for _ in 0..runs.max(1) {
        let start = ProcessTime::now();
        reference_loop();
        reference = reference.min(start.elapsed().as_secs_f64());
        let mut selection = Selection::policy(case.policy);
        selection.wish(case.semantics.wishes().iter().copied());
        let pipeline = selection.build()?;
        let start = ProcessTime::now();
        let outcome = simulate(&workload, &cluster, pipeline, &options, &mut Quiet);
        least = least.min(start.elapsed().as_secs_f64());
        ensure!(outcome.unfinished.is_empty(), "{} jobs never finished", outcome.unfinished.len());
        ensure!(outcome.stats.faults == 0, "faults: {:?}", outcome.stats.fault_samples);
        steps = outcome.steps;
    }
    let memory = peak_memory_mib();
    let over = least > case.cpu_seconds_max || memory > case.memory_mib_max;
    Ok(format!(
        "{:<28} {:>7} {:>9} {:>7.3} {:>8.2} {:>12.3} {:>6.1} {:>9.0}{}",
        case.name,
        workload.jobs.len(),
        steps,
        least,
        case.cpu_seconds_max,
        reference,
        least / reference,
        memory,
        if over { "  MISSED" } else { "" },
    ))
}

/// A fixed piece of work, dependent loads and integer arithmetic, to tell a slow machine from slow code.
fn reference_loop() {
    let mut table: Vec<u32> = (0..1 << 16).collect();
    let mut x = 1u32;
    for i in 0..20_000_000u32 {
        let slot = (x as usize) & 0xffff;
        x = table[slot].wrapping_mul(1_664_525).wrapping_add(x ^ i);
        table[slot] = x;
    }
    assert_ne!(std::hint::black_box(x), 0);
}

/// The most memory this process ever held; 0 where the system does not say.
fn peak_memory_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}
