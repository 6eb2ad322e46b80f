//! Shares that no job can improve by lying about its speeds: the largest product of all rates, and each job pays for
//! what its presence costs the others by giving up a part of its time.

use super::engine::{Engine, Unsolved};
use super::frame::Frame;
use super::nash::Nash;
use super::optimiser::Goal;
use super::problem::Problem;
use super::{NEEDS, Shared, entry_settings, lift};
use crate::prelude::*;
use trainyard_solver::{Affine, Cone, Sense};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "gavel-proof",
    about: "Time on each type of GPU such that no job gains by misreporting its speeds.",
    paper: "Cole, Gkatzelis and Goel, EC 2013; in the code of Narayanan et al., Gavel, OSDI 2020",
    needs: NEEDS,
    class: super::class(Objective::Fairness),
    settings: entry_settings!((
        "discount",
        "whether each job gives up the part that keeps it honest; without, it is the largest product of rates alone"
    ),),
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    discount: bool,
    #[serde(flatten)]
    shared: Shared,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { discount: true, shared: Shared::default() }
    }
}

/// The partial allocation mechanism: each party's shares in the largest product of rates, times the product of all others'
/// rates with it over that without it. With the structured solver O(c k^3) for a step and O(c^2 k) for what each gives up,
/// for c classes of parties that are alike; else n + 1 programs with a cone for each party.
#[derive(Clone)]
pub struct Proof {
    /// Whether shares are discounted.
    pub discount: bool,
}

/// The largest product of the rates of all parties but one, in general: the shares.
fn general(
    problem: &Problem<'_>,
    without: Option<usize>,
    engine: &mut Engine,
) -> Result<Vec<f64>, Unsolved> {
    let mut frame = Frame::new(Sense::Maximise, problem);
    let columns = frame.fill(problem, false, |_| 0.0, &[]);
    for party in problem.all().filter(|party| Some(*party) != without) {
        let log = frame.model.column(1.0, f64::NEG_INFINITY, f64::INFINITY, []);
        let rate = columns.terms(problem, party, 1.0 / problem.fastest(party));
        // exp(log) <= rate
        frame.model.cone(
            Cone::Exponential,
            vec![
                Affine { terms: vec![(log, 1.0)], constant: 0.0 },
                Affine { terms: Vec::new(), constant: 1.0 },
                Affine { terms: rate, constant: 0.0 },
            ],
        );
    }
    Ok(columns.of(&engine.conic(&frame.model)?.values))
}

impl Proof {
    fn structured(&self, problem: &Problem<'_>) -> Option<Vec<f64>> {
        let nash = Nash::of(problem)?;
        let point = nash.solve();
        let kept = match self.discount {
            true => nash.costs_to_others(&point)?.into_iter().map(part).collect(),
            false => vec![1.0; nash.classes()],
        };
        Some(nash.shares(&point, &kept, problem.table.choices.len()))
    }
}

/// The part of its time that a job keeps.
fn part(kept: f64) -> f64 {
    if kept.is_finite() { kept.clamp(0.0, 1.0) } else { 0.0 }
}

fn discount(problem: &Problem<'_>, party: usize, kept: f64, shares: &mut [f64]) {
    let kept = part(kept);
    for (choice, _) in problem.ways(party) {
        shares[*choice] *= kept;
    }
}

impl Goal for Proof {
    fn solve(&mut self, problem: &Problem<'_>, engine: &mut Engine) -> Result<Vec<f64>, Unsolved> {
        if engine.structured()
            && let Some(shares) = self.structured(problem)
        {
            return Ok(shares);
        }
        let whole = general(problem, None, engine)?;
        let mut shares = whole.clone();
        if self.discount && problem.len() > 1 {
            for party in problem.all() {
                let less = general(problem, Some(party), engine)?;
                let others = problem.all().filter(|other| *other != party);
                let ratio = |other: usize| problem.rate(other, &whole) / problem.rate(other, &less);
                discount(problem, party, others.map(ratio).product(), &mut shares);
            }
        }
        Ok(shares)
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { discount, shared } = raw.read(ENTRY.name)?;
    lift(&ENTRY, shared, Proof { discount })
}
