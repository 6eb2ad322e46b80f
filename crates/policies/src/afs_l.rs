//! AFS-L: GPUs one by one to whichever of two jobs makes both end sooner, with lengths as estimated.

use crate::afs::{Standing, divide, second_wins};
use crate::ladder::{Contest, Ladder, change_seconds, everyone, largest_first, packed, sizes};
use crate::prelude::*;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "afs-l",
    about: "GPUs go one by one to the job of each pair that makes both end sooner, by estimated lengths and speeds.",
    paper: "Hwang et al., Elastic Resource Sharing for Distributed Deep Learning, NSDI 2021",
    needs: Needs { rates: true, ..Needs::ESTIMATE },
    class: Taxonomy {
        elastic: true,
        ..Taxonomy::rigid(Objective::CompletionTime, Family::Elastic).preemptive()
    },
    settings: &[(
        "resize_cost",
        "whether the time that a change of size takes counts in the rule; the paper leaves it out",
    )],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    resize_cost: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { resize_cost: true }
    }
}

/// O(n s + m log n) for n jobs with up to s sizes and m GPUs, at each event.
struct AfsL {
    settings: Settings,
}

impl Policy for AfsL {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let left = |job: JobRef<'_>| {
            view.work_left(job).map(|work| work.0).filter(|work| *work > 0.0 && work.is_finite())
        };
        // Who cannot be told counts as the longest there is.
        let longest = everyone(view).into_iter().filter_map(left).fold(1.0, f64::max);
        let mut contest = Contest::new(view, offer, everyone(view), |job, shape, there| {
            let cost = if self.settings.resize_cost { change_seconds(job, view) } else { 0.0 };
            let rest = left(job).unwrap_or(longest);
            rates(job, shape, there, view, |rate| rest / (rest / rate + cost))
        });
        let lefts: Vec<f64> =
            contest.players.iter().map(|player| left(player.job).unwrap_or(longest)).collect();
        divide(&mut contest, |player, at, next| Standing::of(player, next, lefts[at]), second_wins);
        contest.settle(offer, largest_first);
        Ok(())
    }
}

/// The ladder of speeds of a job on a type. Where it is, it has its speed; anywhere else what `moved` makes of it.
pub(crate) fn rates(
    job: JobRef<'_>,
    shape: (GpuType, u32),
    there: u32,
    view: &View<'_>,
    moved: impl Fn(f64) -> f64,
) -> Option<Ladder> {
    let held = job.state.planned.as_ref().map_or(0, |planned| planned.placement.gpus());
    let sizes = sizes(&job.spec.want, there);
    let first = *sizes.start();
    let speed = |gpus: u32| {
        let rate = view.rate(job, &packed(job, shape, gpus))?.0;
        let usable = rate > 0.0 && rate.is_finite();
        usable.then(|| if gpus == held { rate } else { moved(rate) })
    };
    Ladder::new(shape.0, first, sizes.map(speed))
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    Ok(Pipeline::new(AfsL { settings }, FewestNodes, ENTRY.needs))
}
