//! Co-scheML: a job goes to the GPUs where the predicted interference between it and those there is least.

use crate::prelude::*;
use crate::tenancy::{Failed, Tenancy, config_on, kept_beside, may_meet, stand_alone};
use trainyard_framework::PairSource;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "co-scheml",
    about: "Jobs in order of arrival, each on the GPUs where predicted interference with the jobs there is least; no job is stopped.",
    paper: "Kim and Kim, Co-scheML, CLUSTER 2020",
    needs: Needs {
        rates: true,
        shared_rates: true,
        pairs: PairSource::Forest,
        ..Needs::NOTHING
    },
    class: Taxonomy::rigid(Objective::Throughput, Family::Sharing)
        .by_setting("`pairs=machines` predicts across types of GPU (Mendoza et al., EuroMLSys 2021)")
        .partial("its metrics of DRAM traffic and PCIe are not in the profiles; utilisation, memory and power stand for them"),
    settings: &[
        ("pairs", "what interference is predicted from: `forest`, `machines`, `nearest`, `utilisation`, `graph`, or `measured` pairs"),
        ("interference_max", "the largest sum of what all jobs on a GPU are predicted to lose of their speed by one more; below 1 they do more together than before"),
        ("jobs_max", "the most jobs on a GPU"),
        ("across_tenants", "whether jobs of different tenants may share a GPU"),
        ("fill", "`strict`: the first job that must wait blocks the rest; `backfill`: any job that fits may pass it"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Clone, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    pairs: PairSource,
    interference_max: f64,
    jobs_max: usize,
    across_tenants: bool,
    fill: Fill,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            pairs: PairSource::Forest,
            interference_max: 1.0,
            jobs_max: 2,
            across_tenants: false,
            fill: Fill::Backfill,
        }
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    if !(0.0..=16.0).contains(&settings.interference_max) {
        let given = settings.interference_max;
        return Err(ENTRY.bad_value("interference_max", given, "a number from 0 to 16"));
    }
    if !(1..=16).contains(&settings.jobs_max) {
        return Err(ENTRY.bad_value("jobs_max", settings.jobs_max, "a number from 1 to 16"));
    }
    let needs = Needs { pairs: settings.pairs, ..ENTRY.needs };
    Ok(Pipeline::new(CoScheMl { settings }, FewestNodes, needs))
}

/// O(classes of waiting jobs * (GPUs + groups of jobs on one GPU) + granted) for each decision. It remembers nothing.
struct CoScheMl {
    settings: Settings,
}

impl Policy for CoScheMl {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        stand_alone(view, offer);
        if view.waiting_len() == 0 {
            return Ok(());
        }
        let mut tenancy = Tenancy::of(view);
        let mut failed = Failed::default();
        let mut jobs: Vec<JobRef<'_>> = view.waiting().collect();
        jobs.sort_by_key(|job| (job.spec.submitted, job.id()));
        for job in jobs {
            let Some(class) = failed.class(job, view) else {
                if self.settings.fill == Fill::Strict {
                    break;
                }
                continue;
            };
            if !self.place(job, &mut tenancy, (view, offer)) {
                failed.add(class);
                if self.settings.fill == Fill::Strict {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl CoScheMl {
    /// Puts a job where least is lost; false where that is too much, or nothing is free.
    fn place(
        &self,
        job: JobRef<'_>,
        tenancy: &mut Tenancy,
        (view, offer): (&View<'_>, &mut Offer<'_>),
    ) -> bool {
        if job.spec.want.permille < 1000 {
            return offer.grant(&wanted(job)) == GrantOutcome::Taken;
        }
        let mut cost = |kind: GpuType, jobs: &[JobId]| {
            let lost = self.interference(job, kind, jobs, view)?;
            (lost <= self.settings.interference_max).then_some(lost)
        };
        let (asked, most) = ((job, job.spec.want.gpus), self.settings.jobs_max);
        let found = tenancy.cheapest(asked, (view, offer.free()), most, &mut cost);
        match found {
            Some(found) => tenancy.seat(job, found.place, offer) == GrantOutcome::Taken,
            None => {
                let (need, free) = (job.spec.want.gpus, offer.free().total());
                let free = free.min(need.saturating_sub(1));
                offer.note(job.id(), Reason::NoRoom { need, free });
                false
            }
        }
    }

    /// What a job and those on a GPU would lose of their speeds by it, summed; nothing if it may not be there.
    fn interference(
        &self,
        job: JobRef<'_>,
        kind: GpuType,
        jobs: &[JobId],
        view: &View<'_>,
    ) -> Option<f64> {
        if jobs.is_empty() {
            return Some(0.0);
        }
        let own = kept_beside(job, &config_on(job, kind, view), jobs.iter().copied(), view)?;
        let mut lost = 1.0 - own;
        let mut halted = own <= 0.0;
        for resident in jobs {
            let there = view.job(*resident)?;
            if !may_meet(job, there, self.settings.across_tenants) {
                return None;
            }
            let on = config_on(there, kind, view);
            let others = || jobs.iter().copied().filter(|other| other != resident);
            let before = kept_beside(there, &on, others(), view)?;
            let after = kept_beside(there, &on, others().chain([job.id()]), view)?;
            halted |= after <= 0.0;
            lost += (before - after).max(0.0);
        }
        // Jobs that bring each other to a halt do not fit on a GPU together.
        (!halted).then_some(lost)
    }
}
