//! What a configuration is worth, and the choice among all of them (Sia, section 3.4).

use super::row::{Candidates, Yield, least_goodput};
use trainyard_framework::{JobRef, View};
use trainyard_solver::choice::{Aim, Choice, Choices, Chosen};
use trainyard_types::{GpuType, Want};

/// A goodput to a negative power is cut off here, as by the authors.
const COST_MAX: f64 = 3000.0;

/// How goodputs become values.
#[derive(Copy, Clone, Debug)]
pub struct Weights {
    pub p: f64,
    pub idle_price: f64,
    pub restart: bool,
    pub rounding: bool,
}

/// One job of the program.
pub struct Candidate<'a> {
    options: &'a [Yield],
    /// The worst goodput of its row, and the power of its unit over that.
    unit_power: (f64, f64),
    /// The least GPUs it can do with: the goodput of its worst configuration counts as many.
    unit: f64,
    weight: f64,
    /// Type and GPUs of what it has.
    present: Option<(GpuType, u32)>,
    /// What is left of a goodput that a restart comes before.
    kept: f64,
}

impl<'a> Candidate<'a> {
    pub fn new(job: JobRef<'_>, row: &'a Candidates, view: &View<'_>) -> Candidate<'a> {
        let held = job.state.planned.as_ref().or(job.state.held.as_ref());
        let config = held.map(|held| held.config(view.cluster()));
        let present = config.as_ref().and_then(|config| match config.kinds[..] {
            [one] => Some(one),
            _ => None,
        });
        let kept = match &config {
            Some(config) => {
                let cost = view.change(job, Some(config), Some(config));
                let restart = cost.save.as_secs_f64() + cost.start.as_secs_f64();
                let age = view.now.since(job.spec.submitted).as_secs_f64();
                kept(age, job.state.restarts, restart)
            }
            // A job that has nothing restarts in any case.
            None => 1.0,
        };
        let (options, unit_power) = (&row.options, row.unit_power);
        let unit = unit_of(&job.spec.want);
        Candidate { options, unit_power, unit, weight: job.spec.weight, present, kept }
    }
}

/// The least GPUs that a job can do with.
pub fn unit_of(want: &Want) -> f64 {
    f64::from(want.gpus_min.max(1))
}

/// What is left of a goodput after another restart, if jobs go on to restart as often as before: the part of its life
/// that a job has not spent on them (Sia, equation 3).
pub fn kept(age: f64, restarts: u32, restart: f64) -> f64 {
    if age < restart || restart <= 0.0 {
        return 1.0;
    }
    (age - f64::from(restarts) * restart).max(0.0) / (age + restart)
}

/// The best choice for all candidates.
pub fn solve(
    weights: &Weights,
    capacity: impl IntoIterator<Item = u32>,
    candidates: &[Candidate<'_>],
    aim: &Aim,
) -> Chosen {
    let mut choices = Choices::new(capacity);
    for candidate in candidates {
        choices.job(weights.row(candidate));
    }
    choices.best(aim)
}

impl Weights {
    /// The values of a job's configurations.
    pub fn row<'a>(&self, candidate: &'a Candidate<'_>) -> impl Iterator<Item = Choice> + 'a {
        let least = least_goodput(candidate.options);
        let stay = match candidate.unit_power {
            (known, power) if known == least => power,
            _ => libm::pow(candidate.unit / least, self.p),
        };
        let go = match self.restart && candidate.kept != 1.0 {
            true => libm::pow(candidate.unit / least * candidate.kept, self.p),
            false => stay,
        };
        let weights = *self;
        candidate.options.iter().map(move |option| {
            let stays = candidate.present == Some((option.sort.kind, option.sort.gpus));
            Choice {
                kind: option.sort.kind.index(),
                gpus: option.sort.gpus,
                value: candidate.weight
                    * weights.value(option.power * if stays { stay } else { go }),
            }
        })
    }

    /// What a goodput in units of a job's worst one is worth above having nothing, given its power.
    fn value(&self, power: f64) -> f64 {
        let mut power = power.min(COST_MAX);
        if self.rounding {
            power = libm::rint(power * 100.0) / 100.0;
        }
        if self.p < 0.0 { self.idle_price - power } else { self.idle_price + power }
    }
}
