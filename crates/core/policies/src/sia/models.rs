//! How fast a job is where it has not run yet (Sia, section 3.2).
//!
//! Each type has a model of its own, fitted to passes on that type: trials on one GPU, and what was seen since. Before a
//! job has run on several GPUs anywhere it is taken to scale perfectly; once it has on one type, the others are taken to
//! scale as that one does, each from its own speed on one GPU, until they have been seen themselves.

use super::configurations::ClusterShape;
use trainyard_framework::{JobRef, View};
use trainyard_profile::goodput::{
    Borrowed, Fitted, IterationTime, Observation, Size, fit, single_throughput,
};
use trainyard_types::{Config, GpuType};

/// Batches tried on one GPU of each type.
const TRIALS: u32 = 10;

/// The models of one job.
#[derive(Clone, Debug)]
pub struct Models {
    /// Places that had been seen when they were fitted.
    pub places: u32,
    of: Vec<(GpuType, Model)>,
}

/// How fast a job is on one type.
#[derive(Copy, Clone, Debug)]
pub enum Model {
    /// Fitted to passes on this type.
    Own(Fitted),
    /// As on another type, but for the speed of one GPU.
    Like(Borrowed<Fitted>),
}

impl IterationTime for Model {
    fn seconds(&self, size: Size, local: u32, accumulated: u32) -> f64 {
        match self {
            Model::Own(own) => own.seconds(size, local, accumulated),
            Model::Like(other) => other.seconds(size, local, accumulated),
        }
    }
}

impl Models {
    /// Fitted to all that is known of a job.
    pub fn new(job: JobRef<'_>, view: &View<'_>, ground: &ClusterShape) -> Models {
        let measured = job.state.measured.as_deref();
        let seen: Vec<(GpuType, Vec<Observation>)> = ground
            .kinds
            .iter()
            .filter(|of| job.spec.want.accepts(of.kind))
            .map(|of| {
                let mut all = trials(job, view, of.kind);
                let steps = measured.iter().flat_map(|measured| &measured.steps);
                all.extend(steps.filter(|step| step.kind == of.kind).map(|step| Observation {
                    size: Size { nodes: step.nodes, gpus: step.gpus },
                    local: step.local,
                    step: step.step,
                    sync: step.sync,
                }));
                (of.kind, all)
            })
            .collect();
        // The first type on which it was seen on several GPUs lends its scaling to those on which it was not.
        let scales = |all: &[Observation]| all.iter().any(|seen| seen.size.gpus > 1);
        let lender = seen.iter().find_map(|(_, all)| {
            let fitted = if scales(all) { fit(all).ok()? } else { return None };
            Some((fitted, single_throughput(all)?))
        });
        let of = seen.iter().filter_map(|(kind, all)| {
            let borrowed = (lender.filter(|_| !scales(all)))
                .and_then(|(other, single)| Borrowed::new(single_throughput(all)?, single, other));
            let model = match borrowed {
                Some(borrowed) => Model::Like(borrowed),
                None => Model::Own(fit(all).ok()?),
            };
            Some((*kind, model))
        });
        Models { places: measured.map_or(0, |measured| measured.places), of: of.collect() }
    }

    /// The model of a type, if anything is known of it.
    pub fn on(&self, kind: GpuType) -> Option<&Model> {
        self.of.iter().find(|(of, _)| *of == kind).map(|(_, model)| model)
    }

    /// Whether nothing is known of any type.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}

/// Passes on one GPU of a type, from the smallest batch to the largest that it holds, by equal factors.
fn trials(job: JobRef<'_>, view: &View<'_>, kind: GpuType) -> Vec<Observation> {
    let Some(limits) = view.batch_limits(job, kind) else { return Vec::new() };
    let alone = Config::packed(kind, 1, 1);
    let (least, most) = (f64::from(limits.local_least.max(1)), f64::from(limits.local_most.max(1)));
    let mut locals: Vec<u32> = (0..TRIALS)
        .map(|number| {
            let part = f64::from(number) / f64::from(TRIALS - 1);
            (least * libm::pow((most / least).max(1.0), part)).round() as u32
        })
        .collect();
    locals.dedup();
    let timed = locals.into_iter().filter_map(|local| {
        let time = view.trial(job, &alone, local)?;
        let size = Size::on_one_node(1);
        Some(Observation { size, local, step: time.step, sync: time.sync })
    });
    timed.collect()
}
