//! Times, lengths and lists for people.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use trainyard_api::answer::{Holding, JobDetail, Measured, QueueState};
use trainyard_api::{JobSpec, SCHEMA_VERSION};

/// Now, in seconds of Unix time.
pub fn now() -> f64 {
    Timestamp::now().as_microsecond() as f64 / 1e6
}

/// A moment in the reader's zone.
pub fn clock(seconds: f64) -> String {
    // Far from any real moment the conversion fails, and the number says it.
    match Timestamp::from_second(seconds as i64) {
        Ok(moment) => moment.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => format!("{seconds} s"),
    }
}

/// A length of time in its two largest units: `3d4h`, `2m5s`.
pub fn length(seconds: f64) -> String {
    let whole = seconds.clamp(0.0, 1e12) as u64;
    let units = [
        (whole / 86_400, "d"),
        (whole / 3600 % 24, "h"),
        (whole / 60 % 60, "m"),
        (whole % 60, "s"),
    ];
    let first = units.iter().position(|(count, _)| *count > 0).unwrap_or(3);
    let shown = units[first..].iter().take(2).filter(|(count, _)| *count > 0 || first == 3);
    shown.map(|(count, unit)| format!("{count}{unit}")).collect()
}

/// How long ago a moment was.
pub fn since(seconds: f64) -> String {
    length(now() - seconds)
}

/// A state by its name: `time-limit`.
pub fn state(state: QueueState) -> String {
    state.name().to_owned()
}

/// What a job holds: `n0[0-3] n1[0,2]`.
pub fn holdings(holds: &[Holding]) -> String {
    let parts: Vec<String> =
        holds.iter().map(|hold| format!("{}[{}]", hold.node, ranges(&hold.gpus))).collect();
    parts.join(" ")
}

fn ranges(gpus: &[u8]) -> String {
    let mut parts: Vec<(u8, u8)> = Vec::new();
    for gpu in gpus.iter().copied() {
        match parts.last_mut() {
            Some((_, last)) if u16::from(*last) + 1 == u16::from(gpu) => *last = gpu,
            _ => parts.push((gpu, gpu)),
        }
    }
    let text = |(first, last): &(u8, u8)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(text).collect::<Vec<_>>().join(",")
}

/// What a submission asks for beside GPUs, in one line.
pub fn asked(job: &JobSpec) -> String {
    let gib = |mebibytes: u32| f64::from(mebibytes) / 1024.0;
    let wishes = [
        (!job.gpu_types.is_empty()).then(|| job.gpu_types.join("|")),
        job.gpu_permille.map(|permille| format!("{} of a GPU", f64::from(permille) / 1000.0)),
        (job.cpus_per_gpu > 0).then(|| format!("{} CPUs/GPU", job.cpus_per_gpu)),
        (job.memory_mib_per_gpu > 0).then(|| format!("{:.1} GiB/GPU", gib(job.memory_mib_per_gpu))),
        (job.nodes_max > 0).then(|| format!("at most {} nodes", job.nodes_max)),
        job.time_limit_seconds.map(|seconds| format!("limit {}", length(seconds))),
        job.deadline_seconds.map(|seconds| format!("deadline in {}", length(seconds))),
        job.tolerance_seconds.map(|seconds| format!("{} later accepted", length(seconds))),
        job.begin.map(|seconds| format!("from {}", clock(seconds))),
        (!job.after.is_empty()).then(|| format!("after {}", ids(&job.after))),
        job.array.as_ref().map(|array| format!("array {array}")),
        job.hold.then(|| "held".to_owned()),
    ];
    wishes.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Ids with runs drawn together: `12-21, 30`.
pub fn ids(ids: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for id in ids.iter().copied() {
        match parts.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(id) => *last = id,
            _ => parts.push((id, id)),
        }
    }
    let text = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// What there is to say about a job, each under its name.
pub fn facts(detail: &JobDetail) -> Vec<(&'static str, String)> {
    let (row, spec) = (&detail.row, &detail.spec);
    let done = row.progress.map(|share| format!(", {:.0} % done", share * 100.0));
    let wishes = asked(spec);
    let lines = [
        ("job", format!("{} ({})", row.id, row.name)),
        ("of", format!("{}, tenant {}", row.user, row.tenant)),
        ("state", state(row.state) + &done.unwrap_or_default()),
        ("why", row.why.clone()),
        ("command", spec.argv.join(" ")),
        ("in", spec.cwd.clone().unwrap_or_default()),
        ("GPUs", row.gpus.to_string()),
        ("asks for", wishes),
        ("holds", holdings(&row.holds)),
        ("submitted", clock(row.submitted)),
        ("ended", row.ended.map(clock).unwrap_or_default()),
        ("ran", length(row.ran_seconds)),
        ("preempted", row.preemptions.to_string()),
        ("measured", measured(&detail.measured)),
        ("says", detail.report.as_ref().map(said).unwrap_or_default()),
    ];
    lines.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// What it last said: the fields of its message, without the kind.
fn said(report: &serde_json::Value) -> String {
    let fields = report.as_object().into_iter().flatten();
    let fields = fields.filter(|(name, value)| *name != "type" && !value.is_null());
    fields.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

fn measured(of: &Measured) -> String {
    let seconds =
        |name: &str, value: Option<f64>| value.map(|value| format!("{name} {value:.3} s"));
    let parts = [
        seconds("start", of.start),
        seconds("save", of.save),
        seconds("restore", of.restore),
        of.rate.map(|rate| format!("{rate:.3} steps/s")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// An answer for programs: an object with the version.
pub fn versioned(answer: impl serde::Serialize) -> Value {
    let mut value = json!(answer);
    if let Some(object) = value.as_object_mut() {
        object.entry("schema_version").or_insert(SCHEMA_VERSION.into());
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_lists_are_short() {
        assert_eq!(length(0.4), "0s");
        assert_eq!(length(125.0), "2m5s");
        assert_eq!(length(3600.0), "1h");
        assert_eq!(length(273_600.0), "3d4h");
        assert_eq!(length(-5.0), "0s");
        assert_eq!(ids(&[1, 2, 3, 7, 9, 10]), "1-3, 7, 9-10");
        let holds = [Holding { node: "n0".into(), gpus: vec![0, 1, 2, 5] }];
        assert_eq!(holdings(&holds), "n0[0-2,5]");
    }
}
