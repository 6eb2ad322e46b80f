//! Prague: partial all-reduce among groups of workers (Luo and others, ASPLOS 2020).
//!
//! A worker that has done an iteration averages its model with a group and goes on. Who is in the group is the
//! question: random ones, a fixed rotation, whole nodes and one worker of each in turn; and whether workers that are far
//! behind are left out.

use crate::cost::FiveTerm;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::VecDeque;

/// How groups are made.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// All workers wait for all: the all-reduce to compare with.
    All,
    /// The worker that asks and others at random; groups that share a worker wait for each other.
    Random {
        /// Members of a group.
        size: usize,
    },
    /// When a worker without a group asks, all workers without one are divided into random groups.
    Divided {
        /// Members of a group.
        size: usize,
    },
    /// A rotation by the number of the iteration: no group shares a worker with another of that iteration.
    Static {
        /// Members of a group.
        size: usize,
    },
    /// All workers of a node, then one worker of each node, in turn.
    InterIntra,
}

/// Who takes part.
#[derive(Clone, Debug, PartialEq)]
pub struct Workers {
    /// Seconds of an iteration of each worker, without averaging.
    pub seconds: Vec<f64>,
    /// Workers of each node: worker w is on node w / per_node.
    pub per_node: usize,
    /// By how much iterations vary: each takes between 1 less this and 1 more this of its seconds.
    pub jitter: f64,
    /// Workers at least so many iterations behind the one that asks are left out; without one none is.
    pub filter: Option<u64>,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupRun {
    /// Iterations of all workers per second.
    pub iterations_per_second: f64,
    /// Iterations of each worker.
    pub progress: Vec<u64>,
    /// One less the second greatest eigenvalue of the mean of `W W'` over the averages taken: what of a difference
    /// between workers one average removes, at least.
    pub spectral_gap: f64,
    /// The same times averages per second.
    pub mixing_per_second: f64,
}

/// Lets workers iterate and average in groups for so many seconds, with ring averages of `bytes`.
pub fn run(
    grouping: Grouping,
    workers: &Workers,
    (bytes, costs): (f64, &FiveTerm),
    seconds: f64,
    seed: u64,
) -> GroupRun {
    let count = workers.seconds.len();
    let mut state = Run {
        grouping,
        workers,
        rng: ChaCha12Rng::seed_from_u64(seed),
        groups: vec![VecDeque::new(); count],
        members: Vec::new(),
        progress: vec![0; count],
        waits: vec![false; count],
        next: vec![0.0; count],
        round: 0,
    };
    for worker in 0..count {
        state.next[worker] = state.iteration(worker);
    }
    let mut mixed = Mixed::new(count);
    let mut averages = 0u64;
    loop {
        let busy = (0..count).filter(|worker| !state.waits[*worker]);
        let first = busy.min_by(|a, b| state.next[*a].total_cmp(&state.next[*b]).then(a.cmp(b)));
        let Some(worker) = first.filter(|worker| state.next[*worker] <= seconds) else { break };
        let now = state.next[worker];
        state.progress[worker] += 1;
        state.waits[worker] = true;
        if state.groups[worker].is_empty() {
            state.make_groups(worker);
        }
        let Some(group) = state.ready_group(worker) else { continue };
        let members = std::mem::take(&mut state.members[group]);
        let took = ring_seconds(members.len(), bytes, costs);
        mixed.add(&members);
        averages += 1;
        for member in members {
            state.groups[member].pop_front();
            state.waits[member] = false;
            state.next[member] = now + took + state.iteration(member);
        }
    }
    let spectral_gap = mixed.gap();
    GroupRun {
        iterations_per_second: state.progress.iter().sum::<u64>() as f64 / seconds,
        spectral_gap,
        mixing_per_second: spectral_gap * averages as f64 / seconds,
        progress: state.progress,
    }
}

fn ring_seconds(size: usize, bytes: f64, costs: &FiveTerm) -> f64 {
    if size < 2 {
        return 0.0;
    }
    let terms = crate::collective::Algorithm::Ring.terms(size, bytes);
    terms.expect("two workers and more can form a ring").seconds(costs)
}

struct Run<'a> {
    grouping: Grouping,
    workers: &'a Workers,
    rng: ChaCha12Rng,
    /// Groups that each worker is to average with, in order; by number.
    groups: Vec<VecDeque<usize>>,
    members: Vec<Vec<usize>>,
    progress: Vec<u64>,
    /// Which workers have done their iteration and wait for a group.
    waits: Vec<bool>,
    next: Vec<f64>,
    /// How often whole sets of groups were made.
    round: usize,
}

impl Run<'_> {
    fn iteration(&mut self, worker: usize) -> f64 {
        let part = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        self.workers.seconds[worker] * (1.0 + self.workers.jitter * (2.0 * part - 1.0))
    }

    /// The oldest group of which this worker is the last to come, if all others wait for it.
    fn ready_group(&self, worker: usize) -> Option<usize> {
        let group = *self.groups[worker].front()?;
        let comes =
            |member: &usize| self.waits[*member] && self.groups[*member].front() == Some(&group);
        self.members[group].iter().all(comes).then_some(group)
    }

    fn add_group(&mut self, members: Vec<usize>) {
        let number = self.members.len();
        members.iter().for_each(|member| self.groups[*member].push_back(number));
        self.members.push(members);
    }

    /// Whether a worker is near enough to the one that asks.
    fn passes(&self, asking: usize, worker: usize) -> bool {
        let behind = self.progress[asking].saturating_sub(self.progress[worker]);
        self.workers.filter.is_none_or(|threshold| behind < threshold)
    }

    fn make_groups(&mut self, asking: usize) {
        let count = self.progress.len();
        let passing: Vec<usize> =
            (0..count).filter(|worker| self.passes(asking, *worker)).collect();
        let free = |worker: &usize| self.groups[*worker].is_empty();
        let pool: Vec<usize> = passing.iter().copied().filter(free).collect();
        self.round += 1;
        match self.grouping {
            Grouping::All => self.add_group((0..count).collect()),
            Grouping::Random { size } => {
                let mut others: Vec<usize> =
                    passing.into_iter().filter(|worker| *worker != asking).collect();
                self.shuffle(&mut others);
                others.truncate(size.saturating_sub(1));
                others.push(asking);
                others.sort_unstable();
                self.add_group(others);
            }
            Grouping::Divided { size } => {
                let mut pool = pool;
                self.shuffle(&mut pool);
                pool.chunks(size.max(1)).for_each(|group| self.add_group(group.to_vec()));
            }
            Grouping::Static { size } => {
                let groups = count.div_ceil(size.max(1));
                let own = |worker: &usize| match self.round % 2 {
                    1 => worker / size.max(1),
                    _ => worker % groups,
                };
                let sets: Vec<Vec<usize>> = (0..groups)
                    .map(|group| (0..count).filter(|worker| own(worker) == group).collect())
                    .collect();
                sets.into_iter().for_each(|group| self.add_group(group));
            }
            Grouping::InterIntra => self.make_node_groups(&pool),
        }
    }

    fn make_node_groups(&mut self, pool: &[usize]) {
        let per_node = self.workers.per_node.max(1);
        let sets: Vec<Vec<usize>> =
            pool.chunk_by(|a, b| a / per_node == b / per_node).map(<[usize]>::to_vec).collect();
        if self.round % 2 == 1 {
            return sets.into_iter().for_each(|set| self.add_group(set));
        }
        // Which worker stands for its node goes round; the others go on alone.
        let turn = self.round / 2;
        let heads: Vec<usize> = sets.iter().map(|set| set[turn % set.len()]).collect();
        let rest = pool.iter().copied().filter(|worker| !heads.contains(worker));
        let rest: Vec<usize> = rest.collect();
        self.add_group(heads);
        rest.into_iter().for_each(|worker| self.add_group(vec![worker]));
    }

    fn shuffle(&mut self, workers: &mut [usize]) {
        for at in (1..workers.len()).rev() {
            let other = (self.rng.next_u64() % (at as u64 + 1)) as usize;
            workers.swap(at, other);
        }
    }
}

/// The mean of the averaging matrices, weighted by how often each group met.
struct Mixed {
    count: usize,
    sum: Vec<f64>,
    taken: f64,
}

impl Mixed {
    fn new(count: usize) -> Mixed {
        Mixed { count, sum: vec![0.0; count * count], taken: 0.0 }
    }

    fn add(&mut self, group: &[usize]) {
        self.taken += 1.0;
        let inside = |worker: usize| group.contains(&worker);
        for row in 0..self.count {
            if !inside(row) {
                self.sum[row * self.count + row] += 1.0;
                continue;
            }
            group.iter().for_each(|column| {
                self.sum[row * self.count + column] += 1.0 / group.len() as f64;
            });
        }
    }

    /// An averaging matrix is a projection, so that the mean of `W W'` is the mean of `W`, which has no eigenvalue below
    /// 0; what is orthogonal to "all equal" shrinks by the second greatest at least.
    fn gap(&self) -> f64 {
        if self.taken == 0.0 {
            return 0.0;
        }
        let mut vector: Vec<f64> = (0..self.count).map(|at| libm::sin(1.0 + at as f64)).collect();
        let mut value = 0.0;
        for _ in 0..1_000 {
            let mean = vector.iter().sum::<f64>() / self.count as f64;
            vector.iter_mut().for_each(|one| *one -= mean);
            let length = libm::sqrt(vector.iter().map(|one| one * one).sum());
            if length < 1e-12 {
                return 1.0;
            }
            vector.iter_mut().for_each(|one| *one /= length);
            let row = |row: usize| {
                let row = &self.sum[row * self.count..(row + 1) * self.count];
                row.iter().zip(&vector).map(|(a, b)| a * b).sum::<f64>() / self.taken
            };
            let next: Vec<f64> = (0..self.count).map(row).collect();
            value = next.iter().zip(&vector).map(|(a, b)| a * b).sum();
            vector = next;
        }
        1.0 - value
    }
}
