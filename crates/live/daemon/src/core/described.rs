//! Jobs whose model is described instead of named: `model = "gpt-7.5b batch=512"`.
//!
//! Such a model becomes one of the catalog when the first job names it, and what is believed is bound to the catalog
//! anew. What was learnt stays.

use super::{Core, open};
use std::sync::Arc;
use trainyard_api::{Code, JobSpec, Problem};
use trainyard_profile::{Catalog, Described};
use trainyard_types::{Allocation, Config, GpuType, Job, JobId, ModelId, Time, Want};

/// Described models that a daemon knows at most: each is bound to every type of GPU.
const DESCRIBED_MAX: usize = 256;

/// Adds the models that jobs describe; those that are no descriptions are left to those who look names up.
pub(super) fn resolve_all<'a>(
    catalog: &mut Arc<Catalog>,
    models: impl Iterator<Item = &'a str>,
) -> bool {
    let mut is_changed = false;
    for text in models {
        if Described::is_one(text) && catalog.find(text).is_none() {
            let added = Arc::make_mut(catalog).resolve(0, "model", text);
            is_changed |= added.is_ok_and(|(_, is_new)| is_new);
        }
    }
    is_changed
}

impl Core {
    /// Makes models of the descriptions of a submission.
    pub(super) fn describe(&mut self, specs: &[JobSpec]) -> Result<(), Problem> {
        let models = || specs.iter().filter_map(|spec| spec.model.as_deref());
        let unknown =
            |text: &&str| Described::is_one(text) && self.options.catalog.find(text).is_none();
        let new = models().filter(unknown).count();
        if new == 0 {
            return Ok(());
        }
        let is_described = |model: &Arc<trainyard_profile::ModelProfile>| model.described.is_some();
        let known =
            self.options.catalog.shared().iter().filter(|model| is_described(model)).count();
        if known + new > DESCRIBED_MAX {
            let detail = format!(
                "{DESCRIBED_MAX} models are described at most: use one that is known, or profiles (`serve --profiles`)"
            );
            return Err(Problem::field(Code::TooMany, "model", detail));
        }
        if resolve_all(&mut self.options.catalog, models()) {
            self.believe_anew();
        }
        Ok(())
    }

    /// Binds what is believed to a catalog that has grown.
    pub(super) fn believe_anew(&mut self) {
        let learnt = self.engine.beliefs().kept();
        let (catalog, cluster) = (&self.options.catalog, &self.options.cluster);
        self.engine.believe(open::beliefs(catalog, cluster, learnt.as_deref()));
    }

    /// Why a described model fits on none of the types that a job accepts, as it was asked for.
    pub(super) fn fits_nowhere(&self, model: ModelId, want: &Want) -> Option<String> {
        let cluster = &self.options.cluster;
        let job = Job { model, want: want.clone(), ..Job::simple(JobId(0), Time::ZERO, want.gpus) };
        let mut first = None;
        for index in 0..cluster.kinds.len() {
            let kind = GpuType(index as u8);
            let own = cluster.nodes.iter().filter(|node| node.kind == kind);
            let Some(most) = own.map(|node| u32::from(node.gpus)).max() else { continue };
            if !want.accepts(kind) {
                continue;
            }
            match self.engine.beliefs().division(&job, &Config::packed(kind, want.gpus, most))? {
                Ok(_) => return None,
                Err(reason) => {
                    first.get_or_insert(reason);
                }
            }
        }
        first
    }

    /// How a job is to be divided over what it gets; empty for a model that was not described.
    pub(super) fn division(&self, job: &Job, allocation: &Allocation) -> String {
        let config = allocation.config(&self.options.cluster);
        self.engine.beliefs().division(job, &config).and_then(Result::ok).unwrap_or_default()
    }
}
