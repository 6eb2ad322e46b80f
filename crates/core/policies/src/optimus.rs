//! Optimus: a GPU for every job, and each further one to the job whose end it brings closest.

mod observed;

use crate::ladder::{Contest, Ladder, Player, all_jobs, change_seconds, packed, sizes};
use crate::place::even::Even;
use crate::place::spread::Spread;
use crate::prelude::*;
use observed::Observations;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "optimus",
    about: "Every job gets the least it can run on, and each further GPU goes to the job whose end it brings closest.",
    paper: "Peng et al., Optimus, EuroSys 2018",
    needs: Needs { rates: true, ..Needs::ESTIMATE },
    class: Taxonomy {
        elastic: true,
        by_setting: "`knowledge=observed` must know nothing",
        partial: "jobs with parameter servers, whose assignment of parameters is there as a function",
        ..Taxonomy::rigid(Objective::CompletionTime, Family::Elastic).preemptive()
    },
    settings: &[
        (
            "knowledge",
            "`oracle` is told speeds and sizes as estimates; `observed` is told nothing and fits models to what jobs report",
        ),
        ("interval", "sizes change at multiples of this; 0s for at every event"),
        (
            "early",
            "factor of the gain of a job of which no curve of loss is known yet, if observed",
        ),
        (
            "resize_cost",
            "whether the time that a change of size takes counts in the gain; the paper leaves it out",
        ),
        ("rules", "`ours`, or `authors` for Optimus+Oracle as in the simulator of Pollux' authors"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    knowledge: Knowing,
    interval: Span,
    early: f64,
    resize_cost: bool,
    rules: Rules,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            knowledge: Knowing::Oracle,
            interval: Span::secs(600),
            early: 0.95,
            resize_cost: true,
            rules: Rules::Ours,
        }
    }
}

/// Where speeds and sizes come from.
#[derive(Copy, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Knowing {
    #[default]
    Oracle,
    Observed,
}

/// Whose rules.
#[derive(Copy, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Rules {
    /// The gain is the time by which a job ends sooner; a step may be several GPUs where one alone brings nothing.
    #[default]
    Ours,
    /// The gain is the time of an iteration saved, times the iterations after the present epoch; a step is one GPU.
    Authors,
}

/// O(n s + m log n) for n jobs with up to s sizes and m GPUs at each interval; between them O(1) for each waiting job.
struct Optimus {
    settings: Settings,
    /// The interval in which sizes were last chosen.
    current: Option<u64>,
    observations: Observations,
}

/// What a player's gains are multiplied by: its rest, or `early` where no curve of its loss is known.
type Factor = f64;

impl Policy for Optimus {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        self.observations.note(view);
        let interval = self.settings.interval.0;
        let number = view.now.0.checked_div(interval);
        // Between intervals no job is resized, and a job that comes begins on idle GPUs.
        let is_due = number.is_none() || self.current != number;
        self.current = number;
        let jobs = if is_due { all_jobs(view) } else { view.waiting().collect() };
        let mut contest = Contest::new(view, offer, jobs, |job, shape, there| {
            self.ladder(job, shape, there, view)
        });
        for at in 0..contest.players.len() {
            if contest.enter(at)
                && let Some(least) = contest.players[at].ladder().next(0, contest.room(at))
            {
                contest.raise(at, least);
            }
        }
        if is_due {
            let factors: Vec<Factor> =
                contest.players.iter().map(|player| self.factor(player, view)).collect();
            self.grow(&mut contest, &factors);
        }
        contest.settle(offer, |player| player.size);
        if let Some(number) = number.filter(|_| view.waiting_len() + view.granted_len() > 0) {
            offer.wake_at(Time((number + 1).saturating_mul(interval)));
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.current = None;
        self.observations.forget();
    }
}

impl Optimus {
    /// Steps by gain, the largest first, of equals that of the lower id.
    fn grow(&self, contest: &mut Contest<'_>, factors: &[Factor]) {
        let mut steps: BinaryHeap<(Gain, Reverse<usize>, u32)> = BinaryHeap::new();
        let next = |contest: &Contest<'_>, at: usize| {
            let player = &contest.players[at];
            let (ladder, room) = (player.ladder(), contest.room(at));
            let size = match self.settings.rules {
                Rules::Ours => ladder.next(player.size, room),
                Rules::Authors => ladder.next_one(player.size, room),
            }?;
            let more = f64::from(size - player.size);
            let gain = (ladder.at(size) - player.worth()) * factors[at] / more;
            (gain > 0.0).then_some((Gain(gain), Reverse(at), size))
        };
        let entered = (0..contest.players.len()).filter(|at| contest.players[*at].size > 0);
        steps.extend(entered.filter_map(|at| next(contest, at)));
        while let Some((_, Reverse(at), size)) = steps.pop() {
            // A step for which there is no more room becomes a smaller one, which has its own gain.
            if size - contest.players[at].size <= contest.room(at) {
                contest.raise(at, size);
            }
            steps.extend(next(contest, at));
        }
    }

    /// Sizes by how soon the job would end there: seconds, negative, so that more is better.
    fn ladder(
        &self,
        job: JobRef<'_>,
        shape: (GpuType, u32),
        there: u32,
        view: &View<'_>,
    ) -> Option<Ladder> {
        let sizes = sizes(&job.spec.want, there);
        let first = *sizes.start();
        if self.settings.rules == Rules::Authors
            && let Some(ladder) = iterations(job, shape, sizes.clone(), view)
        {
            return Some(ladder);
        }
        let cost = if self.settings.resize_cost { change_seconds(job, view) } else { 0.0 };
        let held = job.state.planned.as_ref().map_or(0, |planned| planned.placement.gpus());
        let left = self.left(job, view);
        let speeds = self.observations.speeds(job, shape.0);
        let ends_in = |gpus: u32| {
            let rate = match self.settings.knowledge {
                Knowing::Oracle => view.rate(job, &packed(job, shape, gpus))?.0,
                Knowing::Observed => speeds.rate(gpus, first)?,
            };
            let usable = rate > 0.0 && rate.is_finite();
            usable.then(|| -(left / rate) - if gpus == held { 0.0 } else { cost })
        };
        Ladder::new(shape.0, first, sizes.map(ends_in))
    }

    /// Work that is left, as it is told or as it may be guessed.
    fn left(&self, job: JobRef<'_>, view: &View<'_>) -> f64 {
        let told = match self.settings.knowledge {
            Knowing::Oracle => view.work_left(job).map(|work| work.0),
            Knowing::Observed => None,
        };
        let told = told.filter(|left| *left > 0.0 && left.is_finite());
        told.unwrap_or_else(|| self.observations.left(job, view.now))
    }

    fn factor(&self, player: &Player<'_>, view: &View<'_>) -> Factor {
        if self.settings.rules == Rules::Authors {
            return view.iterations_ahead(player.job).unwrap_or(1.0);
        }
        let guessed = self.settings.knowledge == Knowing::Observed
            && !self.observations.has_curve(player.job);
        if guessed { self.settings.early } else { 1.0 }
    }
}

/// Sizes by the seconds of an iteration, negative. On one GPU at least one pass is accumulated there, whatever the batch.
fn iterations(
    job: JobRef<'_>,
    shape: (GpuType, u32),
    sizes: std::ops::RangeInclusive<u32>,
    view: &View<'_>,
) -> Option<Ladder> {
    let first = *sizes.start();
    let seconds = |gpus: u32| {
        let on = packed(job, shape, gpus);
        view.iteration_seconds(job, &on, u32::from(gpus == 1)).map(|seconds| -seconds)
    };
    Ladder::new(shape.0, first, sizes.map(seconds))
}

/// A gain that is a number.
#[derive(Copy, Clone, Debug, PartialEq)]
struct Gain(f64);

impl Eq for Gain {}

impl Ord for Gain {
    fn cmp(&self, other: &Gain) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Gain {
    fn partial_cmp(&self, other: &Gain) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let mut settings: Settings = raw.read(ENTRY.name)?;
    if !(settings.early > 0.0 && settings.early <= 1.0) {
        return Err(ENTRY.bad_value("early", settings.early, "a number above 0, at most 1"));
    }
    if settings.interval > Span::ZERO && settings.interval < Span::secs(1) {
        return Err(ENTRY.bad_value("interval", settings.interval, "0s or at least a second"));
    }
    let needs = match settings.knowledge {
        Knowing::Oracle => ENTRY.needs,
        Knowing::Observed => Needs::NOTHING,
    };
    let authors = settings.rules == Rules::Authors;
    if authors {
        settings.interval = Span::ZERO;
    }
    let policy = Optimus { settings, current: None, observations: Observations::default() };
    match authors {
        true => Ok(Pipeline::new(policy, Spread::default(), needs)),
        false => Ok(Pipeline::new(policy, Even, needs)),
    }
}
