//! KubeShare: parts of GPUs with a request and a limit, put where labels allow it by best fit, or by the scores of cells.

mod cells;
mod devices;

use crate::prelude::*;
use devices::Devices;
use trainyard_types::{Class, GpuAt, Shape};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "kubeshare",
    about: "Jobs ask for parts of a GPU with a request and a limit, and say by labels with which others they may share it.",
    paper: "Yeh et al., KubeShare, HPDC 2020",
    needs: Needs::NOTHING,
    class: Taxonomy::rigid(Objective::Throughput, Family::Sharing)
        .partial("types of GPUs have no priorities of their own; who uses how much of a GPU is the co-location model's part: `token`"),
    settings: &[
        (
            "placement",
            "`best-fit`: filters, then the GPU left with the least (version 1.0); `cells`: the scores of version 2.0",
        ),
        (
            "best_effort",
            "with `cells`, `guaranteed` or `opportunistic`: how jobs of that class are treated",
        ),
        ("across_tenants", "whether jobs of different tenants may share a GPU"),
        (
            "fill",
            "`strict`: the first job that does not fit blocks the rest; `backfill`: any that fits may pass it",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Clone, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    placement: Placing,
    best_effort: Side,
    across_tenants: bool,
    fill: Fill,
}

#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Placing {
    BestFit,
    Cells,
}

#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Side {
    Guaranteed,
    Opportunistic,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            placement: Placing::BestFit,
            best_effort: Side::Opportunistic,
            across_tenants: false,
            fill: Fill::Backfill,
        }
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    Ok(Pipeline::new(KubeShare { settings }, FewestNodes, ENTRY.needs))
}

/// O(granted + waiting x GPUs) for each decision; O(granted) more for each job of a group with `cells`. It remembers
/// nothing.
struct KubeShare {
    settings: Settings,
}

impl Policy for KubeShare {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        if view.waiting_len() == 0 {
            return Ok(());
        }
        let mut devices = Devices::of(view);
        for id in self.in_order(view) {
            let Some(job) = view.job(id) else { continue };
            let is_in = match job.spec.want.gpus {
                1 => self.share(job, &mut devices, (view, offer)),
                // Several GPUs are whole ones.
                _ => offer.grant(&wanted(job)) == GrantOutcome::Taken,
            };
            if !is_in && self.settings.fill == Fill::Strict {
                break;
            }
        }
        Ok(())
    }
}

impl KubeShare {
    fn is_guaranteed(&self, job: JobRef<'_>) -> bool {
        match job.spec.class {
            Class::Guaranteed => true,
            Class::BestEffort => self.settings.best_effort == Side::Guaranteed,
            Class::Opportunistic => false,
        }
    }

    /// By arrival; where there are two sorts of jobs, the guaranteed ones first.
    fn in_order(&self, view: &View<'_>) -> Vec<JobId> {
        let sorts = self.settings.placement == Placing::Cells;
        let key =
            |job: JobRef<'_>| (sorts && !self.is_guaranteed(job), job.spec.submitted, job.id());
        let mut jobs: Vec<(bool, Time, JobId)> = view.waiting().map(key).collect();
        jobs.sort_unstable();
        jobs.into_iter().map(|(_, _, job)| job).collect()
    }

    /// Puts a job on a GPU, with its part of it.
    fn share(
        &self,
        job: JobRef<'_>,
        devices: &mut Devices,
        (view, offer): (&View<'_>, &mut Offer<'_>),
    ) -> bool {
        let across = self.settings.across_tenants;
        let open = |gpu: GpuAt| devices.allows(job, gpu, across);
        let found = match (self.settings.placement, self.is_guaranteed(job)) {
            (Placing::BestFit, _) => devices::best_fit(job, &open, (view, offer.free())),
            (Placing::Cells, true) => {
                let near = devices.near(job, view);
                cells::spread(job, &open, &near, (view, offer.free()))
            }
            (Placing::Cells, false) => cells::pack(job, &open, (view, offer.free())),
        };
        let Some(gpu) = found else {
            offer.note(job.id(), Reason::NoRoom { need: 1, free: 0 });
            return false;
        };
        let mut grant = wanted(job);
        grant.shape = Shape::Exact(Placement::on(gpu.node, 1 << gpu.gpu));
        let is_in = offer.grant(&grant) == GrantOutcome::Taken;
        if is_in {
            devices.add(job, gpu);
        }
        is_in
    }
}
