//! AFS-L: GPUs one by one to whichever of two jobs makes both end sooner, with lengths as estimated.

use crate::afs::{Standing, divide, second_wins};
use crate::ladder::{
    Contest, Ladder, Player, change_seconds, everyone, largest_first, packed, sizes,
};
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
            rates(job, shape, there, view, |rate| rate)
        });
        let changes: Vec<Option<Change>> = contest
            .players
            .iter()
            .map(|player| self.change(player, left(player.job), view))
            .collect();
        for (player, change) in contest.players.iter_mut().zip(&changes) {
            if let Some(change) = change.filter(Change::outlasts_job) {
                change.pin(player);
            }
        }
        let lefts: Vec<f64> =
            contest.players.iter().map(|player| left(player.job).unwrap_or(longest)).collect();
        let stand = |player: &Player<'_>, at: usize, next| Standing::of(player, next, lefts[at]);
        // Who is served at all is the paper's to say: the cost of a change would make one step of all GPUs that a
        // job has, and nobody could come in between. It counts in how the rest is divided.
        divide(&mut contest, stand, second_wins);
        if changes.iter().any(Option::is_some) {
            contest.shrink_to_least();
            for (player, change) in contest.players.iter_mut().zip(&changes) {
                if let Some(change) = change {
                    change.charge(player);
                }
            }
            divide(&mut contest, stand, second_wins);
        }
        contest.settle(offer, largest_first);
        Ok(())
    }
}

impl AfsL {
    /// What another size would cost a job that has GPUs, if that counts.
    fn change(&self, player: &Player<'_>, left: Option<f64>, view: &View<'_>) -> Option<Change> {
        let (kind, gpus) = player.held.filter(|_| self.settings.resize_cost)?;
        let seconds = change_seconds(player.job, view);
        let rate = player.ladders.iter().find(|one| one.kind == kind)?.at(gpus);
        if !(seconds > 0.0 && rate > 0.0) {
            return None;
        }
        // Who ran for long may well run for as long again: it is never taken for one that is about to end.
        let again = player.job.state.ran(view.now).as_secs_f64().max(seconds / COST_MAX);
        Some(Change { held: (kind, gpus), rate, seconds, left: left.unwrap_or(rate * again) })
    }
}

/// Of a job whose length is not known, a change is taken to cost at most this part of what it does after it.
const COST_MAX: f64 = 0.1;

/// What another size than its own costs a job that has GPUs.
#[derive(Copy, Clone)]
struct Change {
    held: (GpuType, u32),
    /// Its speed where it is.
    rate: f64,
    seconds: f64,
    /// Work that is left, as told or as guessed.
    left: f64,
}

impl Change {
    /// Whether the job would be done before its change is.
    fn outlasts_job(&self) -> bool {
        self.left / self.rate <= self.seconds
    }

    /// The job has its own size or none.
    fn pin(&self, player: &mut Player<'_>) {
        let (kind, gpus) = self.held;
        player.ladders.clear();
        player.ladders.push(Ladder::only(kind, gpus, self.rate));
    }

    /// Each other size is worth what it comes to with the time that the change takes.
    fn charge(&self, player: &mut Player<'_>) {
        for ladder in &mut player.ladders {
            let kind = ladder.kind;
            let worth = |gpus: u32, rate: f64| match (kind, gpus) == self.held {
                true => rate,
                false => self.left / (self.left / rate + self.seconds),
            };
            if let Some(charged) = ladder.revalued(worth) {
                *ladder = charged;
            }
        }
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
