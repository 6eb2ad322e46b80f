//! What Optimus makes of what jobs report: speeds by size, and how much is left.

use crate::prelude::*;
use std::collections::BTreeMap;
use trainyard_profile::optimus::{
    Convergence, Form, LossFit, LossModel, Observed, SpeedModel, Tasks,
};
use trainyard_types::StepSeen;

/// Speeds of jobs that do not time their iterations, as they were seen from outside. A cache: it fills again.
#[derive(Default)]
pub(super) struct Observations {
    seen: BTreeMap<JobId, BTreeMap<(GpuType, u32), f64>>,
}

/// The speed of one job on one type by number of GPUs.
pub(super) enum Speeds {
    /// By a fitted model.
    Fitted(SpeedModel, f64),
    /// Too little is known for one: the most GPUs that were seen, and the speed there.
    Few(Option<(u32, f64)>),
}

impl Speeds {
    /// The speed on so many GPUs. Without a model, jobs are taken to scale up to twice what was seen, so that they grow
    /// and more is seen; a job that was never seen is known at its least size alone.
    pub fn rate(&self, gpus: u32, least: u32) -> Option<f64> {
        match self {
            Speeds::Fitted(model, batch) => model.rate(Tasks::workers(gpus), *batch),
            Speeds::Few(None) => (gpus == least).then_some(1.0),
            Speeds::Few(Some((most, rate))) => {
                let part = f64::from(gpus) / f64::from(*most);
                (gpus <= most.saturating_mul(2)).then_some(rate * part)
            }
        }
    }
}

impl Observations {
    /// Takes note of the speeds at which jobs run.
    pub fn note(&mut self, view: &View<'_>) {
        for (job, _) in view.ended() {
            self.seen.remove(job);
        }
        for job in view.granted() {
            let rate = job.state.progress.rate.0;
            let Some(held) = job.state.held.as_ref().filter(|_| rate > 0.0) else { continue };
            let Some((node, _)) = held.placement.masks().first() else { continue };
            let place = (view.cluster().node(*node).kind, held.placement.gpus());
            self.seen.entry(job.id()).or_default().insert(place, rate);
        }
    }

    pub fn forget(&mut self) {
        self.seen.clear();
    }

    /// What is known of a job's speed on a type.
    pub fn speeds(&self, job: JobRef<'_>, kind: GpuType) -> Speeds {
        let observed = match &job.state.measured {
            Some(measured) if !measured.steps.is_empty() => {
                self.in_work(timed(job, kind, &measured.steps), job, kind)
            }
            _ => self.watched(job, kind),
        };
        let batch = observed.first().map_or(1.0, |one| one.batch);
        match SpeedModel::fit(Form::AllReduce, &observed) {
            Ok(model) => Speeds::Fitted(model, batch),
            // A model that explains nothing is worth as much as none.
            Err(_) => {
                let most = observed.iter().max_by_key(|one| one.tasks);
                Speeds::Few(most.map(|one| (one.tasks.workers, one.rate)))
            }
        }
    }

    /// The same speeds in work instead of iterations, by what an iteration was worth where both were seen.
    fn in_work(&self, mut timed: Vec<Observed>, job: JobRef<'_>, kind: GpuType) -> Vec<Observed> {
        let outside = self.seen.get(&job.id());
        let worth = timed.iter().find_map(|one| {
            let rate = outside?.get(&(kind, one.tasks.workers))?;
            Some(rate / one.rate).filter(|worth| *worth > 0.0 && worth.is_finite())
        });
        timed.iter_mut().for_each(|one| one.rate *= worth.unwrap_or(1.0));
        timed
    }

    fn watched(&self, job: JobRef<'_>, kind: GpuType) -> Vec<Observed> {
        let seen = self.seen.get(&job.id()).into_iter().flatten();
        seen.filter(|((on, _), _)| *on == kind)
            .map(|((_, gpus), rate)| Observed {
                tasks: Tasks::workers(*gpus),
                batch: 1.0,
                rate: *rate,
            })
            .collect()
    }

    /// Whether the end of a job follows from its losses.
    pub fn has_curve(&self, job: JobRef<'_>) -> bool {
        curve(job).is_some()
    }

    /// Work left of a job: by its curve of loss, else as much again as it has done, and at least a little.
    pub fn left(&self, job: JobRef<'_>, now: Time) -> f64 {
        let done = job.state.progress.done_at(now).0.max(0.0);
        let left = match curve(job) {
            Some((model, epoch)) if epoch > 0 => {
                let ahead = LossModel::epochs_left(Some(&model), epoch, Convergence::default());
                done / f64::from(epoch) * f64::from(ahead)
            }
            Some(_) | None => done,
        };
        left.max(1.0)
    }
}

/// The curve of a job, if its losses follow one closely enough.
fn curve(job: JobRef<'_>) -> Option<(LossModel, u32)> {
    let losses = &job.state.measured.as_ref()?.losses;
    let fit = LossFit::of(losses).ok().filter(LossFit::is_trusted)?;
    Some((fit.model, losses.last()?.0))
}

/// Speeds in whole iterations at the job's batch, from the passes that it timed; of one size the last one counts.
fn timed(job: JobRef<'_>, kind: GpuType, steps: &[StepSeen]) -> Vec<Observed> {
    let on_kind = || steps.iter().filter(|step| step.kind == kind);
    let own = job.spec.want.batch.or(job.state.batch);
    let largest = on_kind().map(|step| step.local.saturating_mul(step.gpus)).max().unwrap_or(1);
    let batch = own.unwrap_or(largest).max(1);
    let observed = on_kind().map(|step| {
        let passes = batch.div_ceil(step.gpus.saturating_mul(step.local).max(1)).max(1);
        let seconds = step.step + (step.step - step.sync) * f64::from(passes - 1);
        let tasks = Tasks::workers(step.gpus);
        Observed { tasks, batch: f64::from(batch), rate: 1.0 / seconds }
    });
    observed.collect()
}
