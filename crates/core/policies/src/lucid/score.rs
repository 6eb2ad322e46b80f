//! How well a job shares a GPU: Lucid's sharing score, 0 for tiny, 1 for medium and 2 for jumbo jobs.

use crate::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use trainyard_types::{Config, ModelId};

/// Jobs whose mean speed beside others is at least this are tiny.
const TINY: f64 = 0.95;
/// And at least this, medium.
const MEDIUM: f64 = 0.85;
/// The score of a job that shares badly, or of which nothing is known.
pub(super) const JUMBO: u8 = 2;

/// Where scores come from. Lucid binds labels to jobs by a decision tree over what its profiler saw of them; any other
/// source does as well.
pub(super) trait ScoreSource: Send {
    /// Takes note of the jobs that there are.
    fn look(&mut self, view: &View<'_>);
    /// The score of a job.
    fn score(&mut self, job: JobRef<'_>, view: &View<'_>) -> u8;
    /// Forgets all memory.
    fn forget(&mut self);
}

/// By the mean speed beside every model that was seen so far, as far as is believed: the measure by which Lucid's
/// labels were given. O(models) for a model that was not asked for before, after each new model.
#[derive(Default)]
pub(super) struct MeanSpeed {
    models: BTreeSet<ModelId>,
    known: BTreeMap<(ModelId, u32), u8>,
    beliefs: Option<u64>,
}

impl ScoreSource for MeanSpeed {
    fn look(&mut self, view: &View<'_>) {
        let before = self.models.len();
        match before {
            0 => self.models.extend(view.granted().chain(view.waiting()).map(|job| job.spec.model)),
            _ => {
                let changed = view.changed().iter().filter_map(|job| view.job(*job));
                self.models.extend(changed.map(|job| job.spec.model));
            }
        }
        let beliefs = view.beliefs_version();
        if self.models.len() != before || beliefs.is_none() || beliefs != self.beliefs {
            self.known.clear();
        }
        self.beliefs = beliefs;
    }

    fn score(&mut self, job: JobRef<'_>, view: &View<'_>) -> u8 {
        let key = (job.spec.model, job.spec.want.gpus);
        if let Some(score) = self.known.get(&key) {
            return *score;
        }
        let parts: Option<Vec<f64>> =
            self.models.iter().map(|other| kept(job, *other, view)).collect();
        let mean = parts.filter(|parts| !parts.is_empty()).map(|parts| {
            let count = parts.len() as f64;
            parts.into_iter().sum::<f64>() / count
        });
        let score = match mean {
            Some(TINY..) => 0,
            Some(MEDIUM..) => 1,
            _ => JUMBO,
        };
        self.known.insert(key, score);
        score
    }

    fn forget(&mut self) {
        *self = MeanSpeed::default();
    }
}

/// The part of its speed that a job is believed to keep beside a model, on the first type that it accepts.
pub(super) fn kept(job: JobRef<'_>, beside: ModelId, view: &View<'_>) -> Option<f64> {
    let want = &job.spec.want;
    let shapes = &view.state().shapes;
    let &(kind, per_node) = shapes.iter().find(|(kind, _)| want.accepts(*kind))?;
    let config = Config::packed(kind, want.gpus, per_node);
    let alone = view.rate(job, &config)?.0;
    let together = view.rate(job, &config.with_partners([beside]))?.0;
    (alone > 0.0).then(|| together / alone)
}
