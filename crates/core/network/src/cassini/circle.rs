//! Demand over one iteration, and the circle that several jobs share.

use trainyard_types::Span;

/// A stretch of an iteration with one demand.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Phase {
    /// How long.
    pub span: Span,
    /// Bytes per second that it would send.
    pub bytes_per_second: f64,
}

/// What a job sends in one iteration when it is alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Stretches, one after the other.
    pub phases: Vec<Phase>,
}

/// Why a profile is none.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProfileFault {
    /// An iteration takes time.
    #[error("an iteration takes no time: expected phases of more than 0 in all")]
    NoTime,
    /// A demand is a number of at least 0.
    #[error(
        "phase {phase} sends {bytes_per_second} bytes per second: expected a number of at least 0"
    )]
    Demand {
        /// The phase.
        phase: usize,
        /// What was given.
        bytes_per_second: f64,
    },
}

impl Profile {
    /// Computes, then sends.
    pub fn on_off(off: Span, on: Span, bytes_per_second: f64) -> Profile {
        let off = Phase { span: off, bytes_per_second: 0.0 };
        Profile { phases: vec![off, Phase { span: on, bytes_per_second }] }
    }

    /// How long an iteration takes.
    pub fn period(&self) -> Span {
        Span(self.phases.iter().map(|phase| phase.span.0).sum())
    }

    /// Says what is wrong with it.
    pub fn check(&self) -> Result<(), ProfileFault> {
        for (phase, one) in self.phases.iter().enumerate() {
            let bytes_per_second = one.bytes_per_second;
            if !(bytes_per_second.is_finite() && bytes_per_second >= 0.0) {
                return Err(ProfileFault::Demand { phase, bytes_per_second });
            }
        }
        if self.period() == Span::ZERO { Err(ProfileFault::NoTime) } else { Ok(()) }
    }

    /// Bytes sent from the beginning of an iteration to a part of it.
    fn sent_until(&self, part: f64) -> f64 {
        let mut left = part * self.period().as_secs_f64();
        let mut sent = 0.0;
        for phase in &self.phases {
            let span = phase.span.as_secs_f64().min(left);
            sent += span * phase.bytes_per_second;
            left -= span;
        }
        sent
    }

    /// Mean demand in each of `slots` slots of a circle around which `repeats` iterations go.
    pub(crate) fn around(&self, slots: usize, repeats: u32) -> Vec<f64> {
        let whole = self.sent_until(1.0);
        let turns = |slot: usize| (slot * repeats as usize) as f64 / slots as f64;
        let sent = |turns: f64| {
            let full = libm::floor(turns);
            full * whole + self.sent_until(turns - full)
        };
        let seconds = self.period().as_secs_f64() * f64::from(repeats) / slots as f64;
        (0..slots).map(|slot| (sent(turns(slot + 1)) - sent(turns(slot))) / seconds).collect()
    }
}

/// How finely circles are looked at.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct CircleSettings {
    /// Slots of a circle with one iteration; 72 are 5 degrees each, as published.
    pub angles: usize,
    /// Slots of a circle at most, however many iterations go round it.
    pub angles_max: usize,
    /// Iterations of one job round a circle at most.
    pub repeats_max: u32,
    /// By what part a period may be off for the circle to close.
    pub tolerance: f64,
    /// Combinations of shifts that are all tried; above, shifts are improved one at a time.
    pub tried_max: usize,
    /// Rounds of improvement at most.
    pub sweeps_max: u32,
}

impl Default for CircleSettings {
    fn default() -> CircleSettings {
        CircleSettings {
            angles: 72,
            angles_max: 144,
            repeats_max: 20,
            tolerance: 0.01,
            tried_max: 6_000,
            sweeps_max: 12,
        }
    }
}

/// Periods of which no few multiples meet.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "periods {periods:?} s do not meet: at best one is off by {best:.3} of itself, expected at most \
     {tolerance} with at most {repeats_max} iterations round the circle"
)]
pub struct Incommensurate {
    /// The periods in seconds.
    pub periods: Vec<f64>,
    /// By what part of itself the worst period is off on the best circle.
    pub best: f64,
    /// What is allowed.
    pub tolerance: f64,
    /// How many iterations of one job were tried.
    pub repeats_max: u32,
}

/// A circle that all jobs of a link go round a whole number of times.
#[derive(Clone, Debug, PartialEq)]
pub struct Perimeter {
    /// Seconds round it.
    pub seconds: f64,
    /// Iterations of each job round it.
    pub repeats: Vec<u32>,
    /// By what part of itself the worst period is off.
    pub error: f64,
}

impl Perimeter {
    /// The shortest circle that closes within the tolerance: the least common multiple where there is one.
    pub fn of(periods: &[Span], settings: &CircleSettings) -> Result<Perimeter, Incommensurate> {
        let longest = periods.iter().max().copied().unwrap_or(Span(1)).as_secs_f64();
        let mut best = f64::INFINITY;
        for turns in 1..=settings.repeats_max {
            let seconds = longest * f64::from(turns);
            let repeats: Vec<u32> = (periods.iter())
                .map(|period| libm::round(seconds / period.as_secs_f64()).max(1.0) as u32)
                .collect();
            if repeats.iter().any(|repeats| *repeats > settings.repeats_max) {
                break;
            }
            let off = periods.iter().zip(&repeats).map(|(period, repeats)| {
                (seconds / f64::from(*repeats) / period.as_secs_f64() - 1.0).abs()
            });
            let error = off.fold(0.0, f64::max);
            if error <= settings.tolerance {
                return Ok(Perimeter { seconds, repeats, error });
            }
            best = best.min(error);
        }
        Err(Incommensurate {
            periods: periods.iter().map(|period| period.as_secs_f64()).collect(),
            best,
            tolerance: settings.tolerance,
            repeats_max: settings.repeats_max,
        })
    }
}
