//! Shortest job first: the smallest job by estimate starts first, and what runs is left alone.

use crate::prelude::*;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "sjf",
    about: "The smallest job starts first, by its estimated length, its GPU time or its GPUs; no job is stopped.",
    paper: "-",
    needs: Needs::ESTIMATE,
    class: Taxonomy::rigid(Objective::CompletionTime, Family::Shortest)
        .by_setting("`preempt=true` stops jobs"),
    settings: &[
        ("measure", "`time`: estimated length; `gpu-time`: length times GPUs; `gpus`: GPUs alone"),
        ("preempt", "whether a smaller job may stop a larger one"),
        ("fill", "`strict`: the head blocks the rest; `backfill`: any job that fits may pass it"),
        (
            "mode",
            "`changes`, or `refill` to fill an emptied cluster at each event as published simulators do",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    measure: Measure,
    preempt: bool,
    fill: Fill,
    mode: Mode,
}

/// What makes a job small.
#[derive(Copy, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Measure {
    #[default]
    Time,
    GpuTime,
    Gpus,
}

/// O(log n) for each job that changes. The whole length counts, not what is left of it, so a key never changes.
struct Sjf(Measure);

impl Rank for Sjf {
    fn rank(&mut self, job: JobRef<'_>, view: &View<'_>) -> Key {
        let gpus = u64::from(job.spec.want.gpus);
        match self.0 {
            Measure::Time => known_first(view.time_total(job), job),
            Measure::GpuTime => known_first(view.time_total(job).map(|span| span.times(gpus)), job),
            Measure::Gpus => Key::value(gpus as i64),
        }
    }

    fn is_steady(&self) -> bool {
        true
    }
}

/// By length, and jobs without an estimate last, in order of submission.
pub(crate) fn known_first(length: Option<Span>, job: JobRef<'_>) -> Key {
    match length {
        Some(span) => Key::span(span),
        None => Key::value(0).tier(1).tie(job.spec.submitted),
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { measure, preempt, fill, mode } = raw.read(ENTRY.name)?;
    let mut policy = Ranked::new(Sjf(measure)).fill(fill).mode(mode);
    if !preempt {
        policy = policy.no_preemption();
    }
    Ok(Pipeline::new(policy, FewestNodes, ENTRY.needs))
}
