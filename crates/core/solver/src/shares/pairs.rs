//! Jobs that share GPUs two by two.
//!
//! Which pairs share, on which type and for how long, has as many unknowns as there are pairs of jobs. Rates depend only
//! on the classes of the two jobs, so the jobs of a class begin as one [`Group`], which needs what they need together
//! and has the time they have together. Columns are pairs of groups, made when the prices of the moment say that they
//! gain ([`price`]). The time of a group is dealt out to its jobs ([`hand`]), to few partners each ([`deal`]). Where that
//! would give a job more time than there is, the group is split and the problem solved again: fewer groups only make it
//! easier, so the first answer that can be dealt out is optimal.

mod deal;
mod hand;
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

/// Jobs of one class.
pub(super) struct Group {
    class: usize,
    /// By part, the largest first.
    jobs: Vec<usize>,
    /// The part of each of them in the sum of their parts.
    shares: Vec<f64>,
    /// The sum of their parts.
    sum: f64,
}

/// A column that gains less than this, where all GPUs together are worth 1, is not taken in.
const GAIN_MIN: f64 = 1e-10;
/// More groups than this are not made: the simplex keeps a matrix of four times their square.
const GROUPS_MAX: usize = 400;
/// A gap up to this counts as none.
const GAP_PROVEN: f64 = 1e-6;
/// How far rows of rates are moved apart, so that they do not all bound the first steps at once.
const APART: f64 = 1e-10;

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
    let mut groups = groups;
    let mut steps = 0;
    let solved = loop {
        let left = Limit { steps: limit.steps.saturating_sub(steps), wall: limit.wall };
        let solved = solve(&menu, &groups, &left);
        steps += solved.steps;
        let finer = deal::split((&menu, &groups), &solved.amounts, (jobs, solved.level));
        let done = finer.len() == groups.len() || finer.len() > GROUPS_MAX;
        if done || solved.bound.is_infinite() {
            break solved;
        }
        groups = finer;
    };
    let mut found = deal::out((&menu, &groups), &solved.amounts, (jobs, solved.level));
    (found.steps, found.left_out) = (steps, left_out);
    // No job can have more than its fastest rate, whatever the search came to.
    let most = |job: &usize| menu.fastest(jobs[*job].class) / jobs[*job].part;
    let bound = groups.iter().flat_map(|group| &group.jobs).map(most).fold(solved.bound, f64::min);
    if bound.is_finite() && found.level < bound * (1.0 - GAP_PROVEN) {
        found.status = Status::Feasible { gap: 1.0 - found.level / bound };
    }
    found
}

/// Jobs by class, and those that take no part.
fn grouped(menu: &Menu, jobs: &[PairJob]) -> (Vec<Group>, Vec<usize>) {
    let takes_part = |job: &PairJob| {
        let ratio = menu.fastest(job.class) / job.part;
        job.part > 0.0 && ratio.is_finite() && ratio > 0.0
    };
    let (mut order, left_out): (Vec<usize>, Vec<usize>) =
        (0..jobs.len()).partition(|job| takes_part(&jobs[*job]));
    order.sort_by(|&a, &b| {
        let by_class = jobs[a].class.cmp(&jobs[b].class);
        by_class.then(jobs[b].part.total_cmp(&jobs[a].part)).then(a.cmp(&b))
    });
    let of_class = order.chunk_by(|a, b| jobs[*a].class == jobs[*b].class);
    (of_class.map(|members| Group::new(members, jobs)).collect(), left_out)
}

impl Group {
    fn new(members: &[usize], jobs: &[PairJob]) -> Group {
        let sum: f64 = members.iter().map(|job| jobs[*job].part).sum();
        Group {
            class: jobs[members[0]].class,
            jobs: members.to_vec(),
            shares: members.iter().map(|job| jobs[*job].part / sum).collect(),
            sum,
        }
    }
}

/// Rows, in this order: the rate of each group, its time, the GPUs of each type; all scaled to 1.
struct Rows<'a> {
    menu: &'a Menu,
    groups: &'a [Group],
}

/// A choice and how much time all jobs of its groups together spend in it.
pub(super) type Amount = (Choice, f64);

/// What a search came to.
struct Solved {
    amounts: Vec<Amount>,
    steps: u64,
    /// The level of these amounts.
    level: f64,
    /// No level is higher; infinite if the search was cut off.
    bound: f64,
}

/// The simplex.
fn solve(menu: &Menu, groups: &[Group], limit: &Limit) -> Solved {
    let rows = Rows { menu, groups };
    let level = rows.size();
    let mut choices: Vec<Choice> = Vec::new();
    let mut solved = Solved { amounts: Vec::new(), steps: 0, level: 0.0, bound: f64::INFINITY };
    if groups.is_empty() {
        return solved;
    }
    let Some(mut basis) = rows.first() else { return solved };
    let mut ended = false;
    while solved.steps < limit.steps {
        let prices = basis.prices();
        let Some(column) = rows.entering(&prices, &mut choices) else {
            ended = true;
            break;
        };
        solved.steps += 1;
        match basis.enter(column) {
            Entered::For(..) => {}
            Entered::Unbounded | Entered::Singular => break,
        }
    }
    basis.refresh();
    for (id, value) in basis.values().filter(|(id, value)| *id >= level && *value > 0.0) {
        match id == level {
            true => solved.level = value,
            false => solved.amounts.push((choices[id - level - 1], value)),
        }
    }
    if ended {
        solved.bound = solved.level;
    }
    solved.amounts.sort_by_key(|(choice, _)| *choice);
    solved
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
