//! Earliest deadline first, preemptive.

use crate::deadlines::{Hopeless, Judged, is_lost, latest_start, lost_at};
use crate::levels::Curve;
use crate::prelude::*;
use crate::regrant::regrant;
use trainyard_framework::Knowledge;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "edf",
    about: "The job with the earliest deadline runs; it stops others to do so.",
    paper: "Liu and Layland, Journal of the ACM 1973",
    needs: Needs { work_left: Knowledge::Estimate, rates: true, ..Needs::NOTHING },
    class: Taxonomy::rigid(Objective::Deadline, Family::Deadline)
        .preemptive()
        .by_setting("`size=largest` changes the number of GPUs"),
    settings: &[
        (
            "hopeless",
            "jobs that miss their deadline even if they run at once: `last`, or `in-order` as any other",
        ),
        (
            "size",
            "`wanted`, or `largest`: as many GPUs as a job can have, and less where less is free, as in ElasticFlow's baseline",
        ),
        ("fill", "`strict`: the head blocks the rest; `backfill`: any job that fits may pass it"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    hopeless: Hopeless,
    size: Size,
    fill: Fill,
}

/// How many GPUs a job gets on its turn.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Size {
    #[default]
    Wanted,
    Largest,
}

/// O(log n) for each job that changes or loses its deadline.
struct Edf {
    hopeless: Hopeless,
}

impl Rank for Edf {
    fn rank(&mut self, job: JobRef<'_>, view: &View<'_>) -> Key {
        let Some(deadline) = job.spec.deadline() else {
            return Key::at(job.spec.submitted).tier(1);
        };
        let lost = latest_start(job, view).is_some_and(|latest| is_lost(latest, view.now));
        let tier = if lost && self.hopeless == Hopeless::Last { 2 } else { 0 };
        Key::at(deadline).tier(tier).tie(job.spec.submitted)
    }

    /// The moment a waiting job loses its deadline.
    fn changes_at(&mut self, job: JobRef<'_>, view: &View<'_>) -> Option<Time> {
        if self.hopeless == Hopeless::InOrder || job.state.is_placed() {
            return None;
        }
        lost_at(job, view)
    }
}

/// In order of deadlines, each as large as it can be on what is left. O(n log n) for n jobs.
struct Largest(Edf);

impl Policy for Largest {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let kinds = offer.free().kinds();
        let mut left: Vec<(GpuType, u32)> =
            kinds.iter().map(|kind| (*kind, offer.free().in_service(*kind))).collect();
        let mut jobs: Vec<(Key, JobRef<'_>)> = Vec::new();
        for job in view.granted().chain(view.waiting()) {
            if job.state.planned.is_some() && !view.may_stop(job) {
                take_held(job, view, &mut left);
            } else {
                jobs.push((self.0.rank(job, view), job));
            }
        }
        jobs.sort_unstable_by_key(|(key, job)| (*key, job.id()));
        let mut wishes = Vec::new();
        for (_, job) in jobs {
            let found = left.iter_mut().find_map(|(kind, left)| {
                let curve = Curve::of(job, *kind, *left, view);
                let level = curve.within(*left)?;
                *left -= level.gpus;
                Some(curve.wish(job.id(), level.gpus))
            });
            wishes.extend(found);
        }
        regrant(view, offer, &wishes);
        Ok(())
    }
}

/// What a job that may not be stopped holds is not left for others.
fn take_held(job: JobRef<'_>, view: &View<'_>, left: &mut [(GpuType, u32)]) {
    let masks = job.state.planned.iter().flat_map(|planned| planned.placement.masks());
    for (node, mask) in masks {
        let kind = view.cluster().node(*node).kind;
        if let Some((_, left)) = left.iter_mut().find(|(other, _)| *other == kind) {
            *left = left.saturating_sub(mask.count_ones());
        }
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { hopeless, size, fill } = raw.read(ENTRY.name)?;
    let rank = Edf { hopeless };
    Ok(match size {
        Size::Wanted => {
            Pipeline::new(Judged(Ranked::new(rank).fill(fill)), FewestNodes, ENTRY.needs)
        }
        Size::Largest => Pipeline::new(Judged(Largest(rank)), FewestNodes, ENTRY.needs),
    })
}
