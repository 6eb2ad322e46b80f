//! Horus: a job goes to the GPUs that its utilisation, predicted from its model, overcommits least.

mod groups;

use crate::prelude::*;
use crate::tenancy::{Failed, Tenancy, may_meet, stand_alone};
use std::collections::VecDeque;
use trainyard_framework::UsageSource;
use trainyard_profile::Feature;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "horus",
    about: "Jobs in order of arrival, each on the GPUs that its predicted utilisation overcommits least; no job is stopped.",
    paper: "Yeung et al., Horus, TPDS 2021",
    needs: Needs { usage: UsageSource::Graph, ..Needs::NOTHING },
    class: Taxonomy::rigid(Objective::Throughput, Family::Sharing)
        .by_setting("`usage=profiled` asks for a profile of each job")
        .partial("its weights of the cost are not published in what is at hand: `overcommit_max` stands for them"),
    settings: &[
        ("usage", "`graph`: utilisation is predicted from the description of a model; `profiled`: it was measured alone"),
        ("queue", "`fifo`: one queue; `grouped`: a queue for each group of sizes (Horus+)"),
        ("groups", "how many groups, where the queue is grouped"),
        ("overcommit_max", "by how much the utilisations on a GPU may sum to more than 1"),
        ("unknown", "the utilisation of a job of which nothing is known"),
        ("jobs_max", "the most jobs on a GPU"),
        ("across_tenants", "whether jobs of different tenants may share a GPU"),
        ("fill", "`strict`: the head of a queue blocks it; `backfill`: any job that fits may pass"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Clone, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    usage: UsageSource,
    queue: Queue,
    groups: usize,
    overcommit_max: f64,
    unknown: f64,
    jobs_max: usize,
    across_tenants: bool,
    fill: Fill,
}

#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Queue {
    Fifo,
    Grouped,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            usage: UsageSource::Graph,
            queue: Queue::Fifo,
            groups: 3,
            overcommit_max: 0.2,
            unknown: 1.0,
            jobs_max: 2,
            across_tenants: false,
            fill: Fill::Strict,
        }
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    if !(0.0..=8.0).contains(&settings.overcommit_max) {
        return Err(ENTRY.bad_value(
            "overcommit_max",
            settings.overcommit_max,
            "a number from 0 to 8",
        ));
    }
    if !(0.0..=1.0).contains(&settings.unknown) {
        return Err(ENTRY.bad_value("unknown", settings.unknown, "a part from 0 to 1"));
    }
    if !(1..=16).contains(&settings.jobs_max) {
        return Err(ENTRY.bad_value("jobs_max", settings.jobs_max, "a number from 1 to 16"));
    }
    if !(1..=64).contains(&settings.groups) {
        return Err(ENTRY.bad_value("groups", settings.groups, "a number from 1 to 64"));
    }
    if settings.usage == UsageSource::Nothing {
        return Err(ENTRY.bad_value("usage", "nothing", "`graph` or `profiled`"));
    }
    let needs = Needs { usage: settings.usage, ..ENTRY.needs };
    Ok(Pipeline::new(Horus { settings }, FewestNodes, needs))
}

/// O(classes of waiting jobs * GPUs + granted) for each decision; with groups, O(waiting) more. It remembers nothing.
struct Horus {
    settings: Settings,
}

impl Policy for Horus {
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
        let mut queues = self.queues(view);
        // Of the heads of all queues the one that waits longest is tried; one that does not fit closes its queue.
        while let Some(queue) = (0..queues.len())
            .filter(|queue| !queues[*queue].is_empty())
            .min_by_key(|queue| queues[*queue].front().copied())
        {
            let (_, id) = queues[queue].pop_front().expect("it is not empty");
            let job = view.job(id).expect("just listed");
            let placed = match failed.class(job, view) {
                None => false,
                Some(class) => {
                    let placed = self.place(job, &mut tenancy, (view, offer));
                    if !placed {
                        failed.add(class);
                    }
                    placed
                }
            };
            if !placed && self.settings.fill == Fill::Strict {
                queues[queue].clear();
            }
        }
        Ok(())
    }
}

impl Horus {
    /// Waiting jobs by arrival, in one queue or in one for each group of sizes: GPUs times utilisation.
    fn queues(&self, view: &View<'_>) -> Vec<VecDeque<(Time, JobId)>> {
        let mut jobs: Vec<(Time, JobId, f64)> = view
            .waiting()
            .map(|job| {
                let size = f64::from(job.spec.want.gpus) * self.busy(job, view);
                (job.spec.submitted, job.id(), size)
            })
            .collect();
        jobs.sort_by_key(|job| (job.0, job.1));
        let groups = match self.settings.queue {
            Queue::Fifo => vec![0; jobs.len()],
            Queue::Grouped => {
                let sizes: Vec<f64> = jobs.iter().map(|job| job.2).collect();
                groups::by_size(&sizes, self.settings.groups)
            }
        };
        let count = groups.iter().max().map_or(0, |most| most + 1);
        let mut queues = vec![VecDeque::new(); count];
        for ((submitted, job, _), group) in jobs.into_iter().zip(groups) {
            queues[group].push_back((submitted, job));
        }
        queues
    }

    /// The part of the time in which a job keeps a GPU busy, as far as is known.
    fn busy(&self, job: JobRef<'_>, view: &View<'_>) -> f64 {
        view.utilisation(job).unwrap_or(self.settings.unknown)
    }

    /// Puts a job where it overcommits least; false where that is too much, or nothing is free.
    fn place(
        &self,
        job: JobRef<'_>,
        tenancy: &mut Tenancy,
        (view, offer): (&View<'_>, &mut Offer<'_>),
    ) -> bool {
        if job.spec.want.permille < 1000 {
            return offer.grant(&wanted(job)) == GrantOutcome::Taken;
        }
        let own = self.busy(job, view);
        let mut cost = |kind: GpuType, jobs: &[JobId]| {
            let mut sum = own;
            let mut memory = memory_mib(job, view);
            for other in jobs {
                let other = view.job(*other)?;
                if !may_meet(job, other, self.settings.across_tenants) {
                    return None;
                }
                sum += self.busy(other, view);
                memory += memory_mib(other, view);
            }
            // Memory that jobs did not ask for but are known to take must fit too.
            let room = f64::from(view.cluster().kinds[kind.index()].memory_mib);
            let fits = jobs.is_empty() || room == 0.0 || memory <= room;
            let over = (sum - 1.0).max(0.0);
            (fits && (jobs.is_empty() || over <= self.settings.overcommit_max + 1e-9))
                .then_some(if jobs.is_empty() { 0.0 } else { over })
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
}

/// Memory that a job takes on each GPU: what it asked for, or what its profile says, if that is more.
fn memory_mib(job: JobRef<'_>, view: &View<'_>) -> f64 {
    let known = view.features(job).and_then(|features| features.get(Feature::MemoryMib));
    known.unwrap_or(0.0).max(f64::from(job.spec.want.gpu_memory_mib))
}
