//! Admission by deadline: a job whose deadline cannot be met even if it starts at once is turned away.

use crate::deadlines::{contradiction, lateness};
use crate::prelude::*;
use trainyard_framework::{AdmissionControl, Control};

/// The row in the registry.
pub const ENTRY: AdmissionEntry = Entry {
    name: "deadline",
    about: "A job that cannot meet its deadline even if it starts at once is rejected.",
    paper: "-",
    needs: Needs { rates: true, ..Needs::ESTIMATE },
    class: Taxonomy::rigid(Objective::Deadline, Family::Admission),
    settings: &[("slack", "how late a job may be expected to be and still be admitted")],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    slack: Span,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { slack: Span::ZERO }
    }
}

fn build(raw: &RawSettings) -> Result<Box<dyn AdmissionControl>, ConfigError> {
    let Settings { slack } = raw.read(ENTRY.name)?;
    Ok(Box::new(Deadline { slack }))
}

struct Deadline {
    slack: Span,
}

impl AdmissionControl for Deadline {
    fn judge(&mut self, job: JobRef<'_>, view: &View<'_>) -> Control {
        if job.spec.deadline().is_none() {
            return Control::Pass;
        }
        if let Some(reason) = contradiction(job, view) {
            return Control::Reject(reason);
        }
        match lateness(job, view).filter(|late| *late > self.slack) {
            Some(late) => Control::Reject(Reason::DeadlineLost { late }),
            None => Control::Pass,
        }
    }
}
