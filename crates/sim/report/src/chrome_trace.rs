//! Which jobs held which GPUs when, in the trace event form that Chrome and Perfetto open.
//!
//! A node is a process, a GPU a thread, an interval a complete event (`"ph":"X"`); times are microseconds since the
//! beginning of the run's clock.

use crate::timeline::{Interval, Timeline};
use serde_json::{Value, json};
use std::io::{self, Write};
use trainyard_types::Cluster;
use trainyard_workload::Workload;

/// The most intervals of a run that is exported.
pub const INTERVALS_MAX: usize = 5_000_000;

/// Writes a run.
pub fn write(
    out: &mut dyn Write,
    (workload, cluster): (&Workload, &Cluster),
    timeline: &Timeline,
) -> io::Result<()> {
    let is_cut = timeline.cut.is_some();
    write!(
        out,
        "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"cut\":{is_cut}}},\"traceEvents\":["
    )?;
    let mut gap = "\n";
    let mut put = |out: &mut dyn Write, value: &Value| {
        write!(out, "{gap}{value}")?;
        gap = ",\n";
        io::Result::Ok(())
    };
    for node in &cluster.nodes {
        let kind = &cluster.kinds[node.kind.index()].name;
        let name = format!("{} ({kind})", node.name);
        put(out, &named("process_name", (node.id.0, 0), &name))?;
        for gpu in 0..node.gpus {
            let name = format!("GPU {gpu}");
            put(out, &named("thread_name", (node.id.0, u32::from(gpu) + 1), &name))?;
        }
    }
    for interval in &timeline.intervals {
        let value = event(workload, interval);
        for gpu in interval.first..interval.first + interval.count {
            let mut value = value.clone();
            value["tid"] = (u32::from(gpu) + 1).into();
            put(out, &value)?;
        }
    }
    writeln!(out, "\n]}}")
}

fn named(what: &str, (process, thread): (u32, u32), name: &str) -> Value {
    json!({ "ph": "M", "name": what, "pid": process + 1, "tid": thread, "args": { "name": name } })
}

fn event(workload: &Workload, interval: &Interval) -> Value {
    let job = &workload.jobs[interval.job.index()].job;
    json!({
        "ph": "X",
        "name": workload.label(interval.job),
        "cat": if interval.is_shared { "shared" } else { "whole" },
        "pid": interval.node.0 + 1,
        "tid": 0,
        "ts": interval.from.0,
        "dur": interval.to.0 - interval.from.0,
        "args": {
            "tenant": workload.tenants.get(job.tenant).name,
            "model": workload.catalog.get(job.model).name,
            "gpus": job.want.gpus,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tests::two_jobs;

    #[test]
    fn a_run_is_valid_json_with_one_event_for_each_gpu_and_interval() {
        let (workload, cluster, _, timeline) = two_jobs();
        let mut out = Vec::new();
        write(&mut out, (&workload, &cluster), &timeline).expect("a vector takes everything");
        let value: Value = serde_json::from_slice(&out).expect("JSON");
        let events = value["traceEvents"].as_array().expect("a list");
        let of = |kind: &str| events.iter().filter(|event| event["ph"] == kind).count();
        assert_eq!((of("M"), of("X")), (5, 8));
        assert_eq!(events[5]["name"], "a");
        assert_eq!((&events[5]["ts"], &events[5]["dur"]), (&json!(0), &json!(60_000_000)));
    }
}
