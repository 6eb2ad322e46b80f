//! What a configuration is worth, and the choice among all of them (Sia, section 3.4).

use super::row::Yield;
use trainyard_framework::{JobRef, View};
use trainyard_solver::choice::{Aim, Choice, Choices, Chosen};
use trainyard_types::GpuType;

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
    /// The least GPUs it can do with: the goodput of its worst configuration counts as many.
    unit: f64,
    weight: f64,
    /// Type and GPUs of what it has.
    present: Option<(GpuType, u32)>,
    /// What is left of a goodput that a restart comes before.
    kept: f64,
}

impl<'a> Candidate<'a> {
    pub fn new(job: JobRef<'_>, options: &'a [Yield], view: &View<'_>) -> Candidate<'a> {
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
            // Whoever has nothing restarts in any case.
            None => 1.0,
        };
        let unit = f64::from(job.spec.want.gpus_min.max(1));
        Candidate { options, unit, weight: job.spec.weight, present, kept }
    }
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
    pub fn row(&self, candidate: &Candidate<'_>) -> Vec<Choice> {
        let goodputs = candidate.options.iter().map(|option| option.goodput);
        let least = goodputs.fold(f64::INFINITY, f64::min);
        let value = |option: &Yield| {
            let mut goodput = candidate.unit * option.goodput / least;
            let stays = candidate.present == Some((option.sort.kind, option.sort.gpus));
            if self.restart && !stays {
                goodput *= candidate.kept;
            }
            Choice {
                kind: option.sort.kind.index(),
                gpus: option.sort.gpus,
                value: candidate.weight * self.value(goodput),
            }
        };
        candidate.options.iter().map(value).collect()
    }

    /// What a goodput in units of a job's worst one is worth above having nothing.
    fn value(&self, goodput: f64) -> f64 {
        let mut power = libm::pow(goodput, self.p).min(COST_MAX);
        if self.rounding {
            power = libm::rint(power * 100.0) / 100.0;
        }
        if self.p < 0.0 { self.idle_price - power } else { self.idle_price + power }
    }
}
