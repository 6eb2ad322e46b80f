//! A first run for new jobs (Lucid, ASPLOS'23): short and failing ones end before the policy sees them.

use crate::prelude::*;
use trainyard_framework::{AdmissionControl, Control};
use trainyard_types::Phase;

/// The row in the registry.
pub const ENTRY: AdmissionEntry = Entry {
    name: "profiler",
    about: "New jobs run on a few GPUs for a while first; only those that are not over by then reach the policy.",
    paper: "Hu et al., Lucid, ASPLOS 2023",
    needs: Needs::NOTHING,
    class: Taxonomy::rigid(Objective::Load, Family::Admission),
    settings: &[
        ("gpus", "GPUs that first runs may have at a time"),
        ("time", "how long a first run is, on GPUs"),
        ("size_max", "the most GPUs of a job that has a first run; a larger one passes directly"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    gpus: u32,
    time: Span,
    size_max: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        // Lucid's limit of time for Venus; its share there is two nodes of eight GPUs for jobs of up to eight.
        Settings { gpus: 8, time: Span::secs(200), size_max: 8 }
    }
}

fn build(raw: &RawSettings) -> Result<Box<dyn AdmissionControl>, ConfigError> {
    let Settings { gpus, time, size_max } = raw.read(ENTRY.name)?;
    if gpus == 0 {
        return Err(ENTRY.bad_value("gpus", gpus, "a number above 0"));
    }
    if time == Span::ZERO {
        return Err(ENTRY.bad_value("time", time, "a time above 0"));
    }
    Ok(Box::new(Profiler { gpus, time, size_max: size_max.min(gpus), used: 0 }))
}

/// How often a job that is being stopped is looked at.
const STOPPING: Span = Span::secs(1);

/// It remembers nothing: how long a job ran, and before its present attempt, tells whether that attempt is a first run.
struct Profiler {
    gpus: u32,
    time: Span,
    size_max: u32,
    /// GPUs that jobs with a first run ask for.
    used: u32,
}

impl Profiler {
    /// Whether a job of this kind has a first run at all. It must be possible to stop it after that, and a policy must
    /// not miss what it answers for: deadlines it admits, and searches whose trials it compares from their beginning.
    fn is_for(&self, job: JobRef<'_>) -> bool {
        let spec = job.spec;
        let whole = spec.want.permille >= 1000 && (1..=self.size_max).contains(&spec.want.gpus);
        let stops = spec.preemptible && spec.min_run <= self.time;
        whole && stops && spec.value.is_empty() && spec.group.is_none()
    }

    /// How much of a first run is left; nothing when it is over.
    fn left(&self, job: JobRef<'_>, now: Time) -> Option<Span> {
        let left = self.time.minus(job.state.ran(now));
        (left > Span::ZERO).then_some(left)
    }
}

/// How long a job had run before its present attempt, or before it was told to stop or waited.
fn ran_before(job: JobRef<'_>, now: Time) -> Span {
    let state = job.state;
    let goes_on = matches!(state.phase, Phase::Starting | Phase::Running);
    match state.last_start.filter(|_| goes_on && state.planned.is_some()) {
        Some(start) => state.ran(now).minus(now.since(start)),
        // Up to the beginning of its phase: a job that stops is its next owner's from then on, which may have granted
        // it GPUs again, or stays the profiler's until it has stopped.
        None => state.ran,
    }
}

impl AdmissionControl for Profiler {
    fn begin(&mut self, view: &View<'_>) {
        let inside = view.granted().chain(view.waiting());
        let inside = inside.filter(|job| self.keeps(*job, view.now));
        self.used = inside.map(|job| job.spec.want.gpus).sum();
    }

    fn judge(&mut self, job: JobRef<'_>, view: &View<'_>) -> Control {
        if !self.keeps(job, view.now) {
            return Control::Pass;
        }
        if self.used + job.spec.want.gpus > self.gpus {
            return Control::Hold(Reason::FirstRuns { used: self.used, allowed: self.gpus });
        }
        Control::Keep
    }

    fn accepted(&mut self, job: JobRef<'_>) {
        // Only jobs that never ran, or not for long, are kept, and these are not placed: the moment does not matter.
        if self.keeps(job, job.state.since) {
            self.used += job.spec.want.gpus;
        }
    }

    fn has_kept_jobs(&self) -> bool {
        true
    }

    fn keeps(&self, job: JobRef<'_>, now: Time) -> bool {
        self.is_for(job) && ran_before(job, now) < self.time
    }

    fn allocate(&mut self, view: &View<'_>, offer: &mut Offer<'_>) {
        let now = view.now;
        let mut used = 0;
        for job in view.granted().filter(|job| self.keeps(*job, now)) {
            match self.left(job, now) {
                Some(left) => {
                    used += job.spec.want.gpus;
                    offer.wake_at(now + left);
                }
                None => {
                    // It stops, though its GPUs may stay idle, and is the policy's from then on.
                    offer.revoke(job.id());
                    offer.leave_idle();
                    offer.wake_at(Time(now.0 + 1));
                }
            }
        }
        for job in view.waiting().filter(|job| self.keeps(*job, now)) {
            if job.state.is_placed() {
                // Something else stopped it. There is no call when it has stopped, so that is looked for.
                offer.wake_at(now + STOPPING);
                continue;
            }
            let Some(left) = self.left(job, now) else { continue };
            if used + job.spec.want.gpus > self.gpus {
                offer.note(job.id(), Reason::FirstRuns { used, allowed: self.gpus });
                continue;
            }
            used += job.spec.want.gpus;
            if offer.grant(&wanted(job)) == GrantOutcome::Taken {
                offer.wake_at(now + left);
            }
        }
    }
}
