//! Jobs that share GPUs two by two.
//!
//! Which pairs share, on which type and for how long, has as many unknowns as there are pairs of jobs. Rates depend only
//! on the classes of the two jobs, so jobs of one class with the same part are one [`Group`], treated alike: an optimal
//! answer stays one when its like jobs are averaged. Columns are pairs of groups, made when the prices of the moment
//! say that they gain ([`price`]), and dealt out to single jobs in the end, to few partners each ([`deal`]).

mod deal;
mod price;

use super::basis::{Basis, Column, Entered};
use crate::{Limit, Status};
use price::{Choice, Menu};

/// Classes of jobs, the GPUs, and how fast a class runs alone and beside another.
pub struct PairPool<'a> {
    /// GPUs of each type.
    pub capacity: &'a [f64],
    /// GPUs that a job of each class takes at once.
    pub gpus: &'a [f64],
    /// The rate alone: a row of types for each class.
    pub alone: &'a [f64],
    /// The rates of a job of each of two classes that share GPUs of a type; (0, 0) where they cannot. A pair takes the
    /// GPUs of the larger of the two.
    pub pair: &'a dyn Fn(usize, usize, usize) -> (f64, f64),
}

/// A job of a class.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct PairJob {
    /// The number of its class.
    pub class: usize,
    /// Its part: rates are compared in ratio to it.
    pub part: f64,
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct PairFractions {
    /// How good it is.
    pub status: Status,
    /// The lowest ratio of rate and part.
    pub level: f64,
    /// Job, type and fraction of time alone on it, in this order.
    pub alone: Vec<(usize, usize, f64)>,
    /// Two jobs, the lower first, type and fraction of time together on it, in this order.
    pub together: Vec<((usize, usize), usize, f64)>,
    /// The rate of each job.
    pub rates: Vec<f64>,
    /// Jobs that took no part, ascending.
    pub left_out: Vec<usize>,
    /// Pivots of the simplex.
    pub steps: u64,
}

/// Jobs of one class with the same part.
pub(super) struct Group {
    class: usize,
    part: f64,
    jobs: Vec<usize>,
}

/// A column that gains less than this, where all GPUs together are worth 1, is not taken in.
const GAIN_MIN: f64 = 1e-10;
/// How far rows of rates are moved apart, so that they do not all bound the first steps at once.
const APART: f64 = 1e-9;

/// Makes the lowest ratio of rate and part as large as it can be when jobs may share GPUs two by two.
///
/// ```
/// use trainyard_solver::{Limit, shares::{PairJob, PairPool, max_min_pairs}};
///
/// // Two jobs and one GPU: side by side each keeps 0.7 of its speed instead of half.
/// let pool = PairPool { capacity: &[1.0], gpus: &[1.0], alone: &[1.0], pair: &|_, _, _| (0.7, 0.7) };
/// let job = PairJob { class: 0, part: 1.0 };
/// let found = max_min_pairs(&pool, &[job, job], &Limit::steps(1000));
/// assert_eq!(found.together.len(), 1);
/// assert!((found.level - 0.7).abs() < 1e-6);
/// ```
pub fn max_min_pairs(pool: &PairPool<'_>, jobs: &[PairJob], limit: &Limit) -> PairFractions {
    let menu = Menu::new(pool);
    let (groups, left_out) = grouped(&menu, jobs);
    let (amounts, steps, ended) = match groups.is_empty() {
        true => (Vec::new(), 0, true),
        false => solve(&menu, &groups, limit),
    };
    let mut found = deal::out(&menu, &groups, &amounts, jobs);
    found.steps = steps;
    found.left_out = left_out;
    if !ended {
        let best = groups.iter().map(|group| menu.fastest(group.class) / group.part);
        let best = best.fold(f64::INFINITY, f64::min);
        let gap = if best > 0.0 { (1.0 - found.level / best).clamp(0.0, 1.0) } else { 0.0 };
        found.status = Status::Feasible { gap };
    }
    found
}

/// Jobs by class and part, and those who take no part.
fn grouped(menu: &Menu, jobs: &[PairJob]) -> (Vec<Group>, Vec<usize>) {
    let takes_part = |job: &PairJob| {
        let ratio = menu.fastest(job.class) / job.part;
        job.part > 0.0 && ratio.is_finite() && ratio > 0.0
    };
    let (mut order, left_out): (Vec<usize>, Vec<usize>) =
        (0..jobs.len()).partition(|job| takes_part(&jobs[*job]));
    let key = |job: usize| (jobs[job].class, jobs[job].part.to_bits());
    order.sort_by_key(|&job| (key(job), job));
    let mut groups: Vec<Group> = Vec::new();
    for job in order {
        match groups.last_mut() {
            Some(group) if key(group.jobs[0]) == key(job) => group.jobs.push(job),
            _ => {
                let PairJob { class, part } = jobs[job];
                groups.push(Group { class, part, jobs: vec![job] });
            }
        }
    }
    (groups, left_out)
}

/// Rows, in this order: the rate of each group, its time, the GPUs of each type; all scaled to 1.
struct Rows<'a> {
    menu: &'a Menu,
    groups: &'a [Group],
}

/// A choice and how much time all jobs of its groups together spend in it.
pub(super) type Amount = (Choice, f64);

/// The simplex, and whether it came to its end.
fn solve(menu: &Menu, groups: &[Group], limit: &Limit) -> (Vec<Amount>, u64, bool) {
    let rows = Rows { menu, groups };
    let level = rows.size();
    let mut choices: Vec<Choice> = Vec::new();
    let mut steps = 0;
    let mut ended = false;
    let Some(mut basis) = rows.first() else { return (Vec::new(), 0, false) };
    while steps < limit.steps {
        let prices = basis.prices();
        let Some(column) = rows.entering(&prices, &mut choices) else {
            ended = true;
            break;
        };
        steps += 1;
        match basis.enter(column) {
            Entered::For(..) => {}
            Entered::Unbounded | Entered::Singular => break,
        }
    }
    basis.refresh();
    let amounts = basis.values().filter(|(id, value)| *id > level && *value > 0.0);
    let mut amounts: Vec<Amount> =
        amounts.map(|(id, value)| (choices[id - level - 1], value)).collect();
    amounts.sort_by_key(|(choice, _)| *choice);
    (amounts, steps, ended)
}

impl Rows<'_> {
    fn size(&self) -> usize {
        2 * self.groups.len() + self.menu.kinds()
    }

    /// Nothing runs: every row is held by what is left of it.
    fn first(&self) -> Option<Basis> {
        let count = self.groups.len();
        let bound = |row: usize| match row < count {
            // A fixed sequence without pattern: the golden ratio's multiples.
            true => -APART * (1.0 + (row as f64 * 0.618_033_988_749_895).fract()),
            false => 1.0,
        };
        let members = (0..self.size()).map(|row| self.rest(row)).collect();
        Basis::new(members, (0..self.size()).map(bound).collect())
    }

    /// What is left of a row: rate beyond the level, time not used, GPUs not used.
    fn rest(&self, row: usize) -> Column {
        let sign = if row < self.groups.len() { -1.0 } else { 1.0 };
        Column { id: row, worth: 0.0, entries: vec![(row, sign)] }
    }

    /// The column that gains most at prices.
    fn entering(&self, prices: &[f64], choices: &mut Vec<Choice>) -> Option<Column> {
        let count = self.groups.len();
        let level = self.size();
        let gain_of_level = 1.0 + prices[..count].iter().sum::<f64>();
        let mut best = (GAIN_MIN, None);
        if gain_of_level > best.0 {
            let entries = (0..count).map(|row| (row, -1.0)).collect();
            best = (gain_of_level, Some(Column { id: level, worth: 1.0, entries }));
        }
        for (row, price) in prices.iter().enumerate() {
            let gain = if row < count { *price } else { -price };
            if gain > best.0 {
                best = (gain, Some(self.rest(row)));
            }
        }
        if let Some((gain, choice)) = self.menu.best(self.groups, prices)
            && gain > best.0
        {
            choices.push(choice);
            let entries = self.menu.entries(self.groups, &choice);
            best.1 = Some(Column { id: level + choices.len(), worth: 0.0, entries });
        }
        best.1
    }
}
