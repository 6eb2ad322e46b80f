//! Static priority with linear ageing: waiting for one `ageing` is worth one point.

use crate::prelude::*;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "priority",
    about: "Guaranteed jobs first, then the highest priority; waiting raises it at a constant pace.",
    paper: "-",
    needs: Needs::NOTHING,
    class: Taxonomy::rigid(Objective::Fairness, Family::Share)
        .by_setting("`preempt=class` and `preempt=priority` stop jobs"),
    settings: &[
        ("ageing", "how long a job waits for one more point of priority; 0 is never"),
        (
            "preempt",
            "which jobs may stop others: `none`, `class` (guaranteed before best effort before opportunistic), `priority`",
        ),
        ("fill", "`strict`: the head blocks the rest; `backfill`: any job that fits may pass it"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    ageing: Span,
    preempt: Preempt,
    fill: Fill,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { ageing: Span::secs(3600), preempt: Preempt::None, fill: Fill::Backfill }
    }
}

/// Which jobs may stop others.
#[derive(Copy, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Preempt {
    #[default]
    None,
    Class,
    Priority,
}

/// O(log n) for each job that changes. All jobs age alike, so their order never changes while they wait.
struct Priority {
    ageing: Span,
    preempt: Preempt,
}

impl Rank for Priority {
    fn rank(&mut self, job: JobRef<'_>, _view: &View<'_>) -> Key {
        let submitted = job.spec.submitted.0.min(i64::MAX as u64) as i64;
        let points = i64::from(job.spec.priority);
        let ageing = self.ageing.0.min(i64::MAX as u64) as i64;
        // Points at `now` are priority + (now - submitted) / ageing; the common part of all jobs is left out.
        let (coarse, fine) = match ageing {
            0 => (-points, submitted),
            _ => (
                submitted / ageing - points,
                submitted.saturating_sub(points.saturating_mul(ageing)),
            ),
        };
        let key = match self.preempt {
            Preempt::None if ageing == 0 => Key { tier: 0, value: coarse, tie: fine },
            Preempt::None => Key::value(fine),
            Preempt::Class if ageing == 0 => {
                Key { tier: 0, value: 0, tie: by_points(points, submitted) }
            }
            Preempt::Class => Key { tier: 0, value: 0, tie: fine },
            // Whole points only: no job is stopped for a fraction of one.
            Preempt::Priority => Key { tier: 0, value: coarse, tie: fine },
        };
        key.tier(job.spec.class as i64)
    }
}

/// Both in one number, points first: 2^44 microseconds are half a year of one point.
fn by_points(points: i64, submitted: i64) -> i64 {
    submitted.saturating_sub(points.saturating_mul(1 << 44))
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { ageing, preempt, fill } = raw.read(ENTRY.name)?;
    let mut policy = Ranked::new(Priority { ageing, preempt }).fill(fill);
    if preempt == Preempt::None {
        policy = policy.no_preemption();
    }
    Ok(Pipeline::new(policy, FewestNodes, ENTRY.needs))
}
