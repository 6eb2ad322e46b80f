//! The run: queues, placements, and the moments at which monotasks end.

use super::{Binding, DagJob, JobOrder, Outcome, Settings, Worker, check};
use crate::PlanError;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

struct Task {
    job: usize,
    stage: usize,
    at: usize,
    /// The monotask that is next or runs.
    step: usize,
    worker: usize,
}

struct JobState {
    /// Tasks of each stage that have not ended.
    left: Vec<usize>,
    /// Whether the tasks of each stage were made ready.
    is_open: Vec<bool>,
    /// Work left of each kind.
    work: Vec<f64>,
    /// Stages from each to the end of the job.
    depth: Vec<usize>,
}

struct Run<'a> {
    workers: &'a [Worker],
    jobs: &'a [DagJob],
    settings: &'a Settings,
    now: f64,
    states: Vec<JobState>,
    tasks: Vec<Task>,
    /// Tasks that are ready and on no worker, in the order in which they became so.
    unplaced: Vec<usize>,
    /// By worker and kind: tasks that wait, slots that are free, and work that is waiting or runs.
    queues: Vec<Vec<Vec<usize>>>,
    free: Vec<Vec<u32>>,
    queued: Vec<Vec<f64>>,
    /// Slots of executors that are free, by worker.
    executors: Vec<u32>,
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    busy: Vec<f64>,
    ended: Vec<f64>,
    memory_free: f64,
    /// Slots times rates of each kind over all workers.
    capacity: Vec<f64>,
}

/// Runs jobs on workers to their end.
///
/// O(tasks x workers) for each placement, and the length of a queue for each monotask.
pub fn run(workers: &[Worker], jobs: &[DagJob], settings: &Settings) -> Result<Outcome, PlanError> {
    check(workers, jobs)?;
    let mut run = Run::new(workers, jobs, settings);
    let mut arrivals: Vec<usize> = (0..jobs.len()).collect();
    arrivals.sort_by(|a, b| jobs[*a].arrival.total_cmp(&jobs[*b].arrival).then(a.cmp(b)));
    let mut arrivals = arrivals.into_iter().peekable();
    let mut waiting: Vec<usize> = Vec::new();
    loop {
        while let Some(job) = arrivals.next_if(|job| jobs[*job].arrival <= run.now) {
            waiting.push(job);
        }
        run.admit(&mut waiting);
        run.place();
        run.start_all();
        let arrival = arrivals.peek().map(|job| jobs[*job].arrival);
        let end = run.ends.peek().map(|Reverse((bits, _))| f64::from_bits(*bits));
        // The next interval, while something waits for a worker and no executor has to be free for it.
        let is_timed = settings.binding == Binding::Monotasks && !run.unplaced.is_empty();
        let tick = is_timed.then(|| {
            let count = libm::floor(run.now / settings.interval + 1e-9) + 1.0;
            count * settings.interval
        });
        let next = [arrival, end, tick].into_iter().flatten().min_by(f64::total_cmp);
        let Some(next) = next else { break };
        run.advance(next.max(run.now));
    }
    Ok(run.outcome())
}

impl<'a> Run<'a> {
    fn new(workers: &'a [Worker], jobs: &'a [DagJob], settings: &'a Settings) -> Run<'a> {
        let kinds = workers[0].slots.len();
        let capacity = (0..kinds).map(|kind| {
            workers.iter().map(|one| f64::from(one.slots[kind]) * one.rates[kind]).sum()
        });
        let slots = |one: &Worker| match settings.binding {
            Binding::Monotasks => 0,
            Binding::Executors { kind } => one.slots[kind],
        };
        Run {
            workers,
            jobs,
            settings,
            now: 0.0,
            states: jobs.iter().map(|job| JobState::new(job, kinds)).collect(),
            tasks: Vec::new(),
            unplaced: Vec::new(),
            queues: vec![vec![Vec::new(); kinds]; workers.len()],
            free: workers.iter().map(|one| one.slots.clone()).collect(),
            queued: vec![vec![0.0; kinds]; workers.len()],
            executors: workers.iter().map(slots).collect(),
            ends: BinaryHeap::new(),
            busy: vec![0.0; kinds],
            ended: vec![f64::NAN; jobs.len()],
            memory_free: workers.iter().map(|one| one.memory_bytes).sum(),
            capacity: capacity.collect(),
        }
    }

    /// Lower comes first; ties by index.
    fn priority(&self, job: usize) -> (f64, usize) {
        let key = match self.settings.order {
            JobOrder::Earliest => self.jobs[job].arrival,
            JobOrder::ShortestLeft => {
                let left = self.states[job].work.iter().zip(&self.capacity);
                left.map(|(work, capacity)| work / capacity).sum()
            }
        };
        (key, job)
    }

    /// Jobs in their order, as long as there is memory for the first.
    fn admit(&mut self, waiting: &mut Vec<usize>) {
        waiting.sort_by(|a, b| {
            let (a, b) = (self.priority(*a), self.priority(*b));
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
        });
        while let Some(job) = waiting.first().copied() {
            if self.jobs[job].memory_bytes > self.memory_free {
                break;
            }
            waiting.remove(0);
            self.memory_free -= self.jobs[job].memory_bytes;
            self.open_stages(job);
        }
    }

    /// Makes tasks of stages that wait for nothing; a stage without tasks is over at once.
    fn open_stages(&mut self, job: usize) {
        loop {
            let state = &self.states[job];
            let is_over = |stage: &usize| state.is_open[*stage] && state.left[*stage] == 0;
            let stages = &self.jobs[job].stages;
            let next = (0..stages.len())
                .find(|at| !state.is_open[*at] && stages[*at].after.iter().all(is_over));
            let Some(stage) = next else { break };
            self.states[job].is_open[stage] = true;
            for at in 0..stages[stage].tasks.len() {
                if stages[stage].tasks[at].is_empty() {
                    self.states[job].left[stage] -= 1;
                    continue;
                }
                self.unplaced.push(self.tasks.len());
                self.tasks.push(Task { job, stage, at, step: 0, worker: usize::MAX });
            }
        }
        if self.ended[job].is_nan() && self.states[job].left.iter().all(|left| *left == 0) {
            self.ended[job] = self.now;
            self.memory_free += self.jobs[job].memory_bytes;
        }
    }

    fn place(&mut self) {
        let mut open = std::mem::take(&mut self.unplaced);
        let key = |run: &Run<'_>, task: usize| {
            let one = &run.tasks[task];
            let depth = run.states[one.job].depth[one.stage];
            (run.priority(one.job), Reverse(depth), task)
        };
        let mut keyed: Vec<_> = open.drain(..).map(|task| key(self, task)).collect();
        keyed.sort_by(|a, b| {
            a.0.0.total_cmp(&b.0.0).then(a.0.1.cmp(&b.0.1)).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2))
        });
        for (.., task) in keyed {
            match self.worker_for(task) {
                Some(worker) => self.bind(task, worker),
                None => self.unplaced.push(task),
            }
        }
    }

    fn worker_for(&self, task: usize) -> Option<usize> {
        match self.settings.binding {
            Binding::Executors { .. } => {
                let free = (0..self.workers.len()).filter(|worker| self.executors[*worker] > 0);
                free.max_by(|a, b| self.executors[*a].cmp(&self.executors[*b]).then(b.cmp(a)))
            }
            Binding::Monotasks => {
                let one = &self.tasks[task];
                let chain = &self.jobs[one.job].stages[one.stage].tasks[one.at];
                if chain.iter().all(|mono| mono.amount == 0.0) {
                    // It adds nothing anywhere, so no score would ever place it.
                    return Some(0);
                }
                let scored =
                    (0..self.workers.len()).map(|worker| (self.score(task, worker), worker));
                let best = scored.filter(|(score, _)| *score > 0.0);
                best.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))
                    .map(|(_, worker)| worker)
            }
        }
    }

    /// `F(t, w)`: for each kind what is lacking until the horizon, times what the task adds.
    fn score(&self, task: usize, worker: usize) -> f64 {
        let one = &self.tasks[task];
        let horizon = self.settings.interval * self.settings.horizon;
        let mut added = vec![0.0; self.capacity.len()];
        for mono in &self.jobs[one.job].stages[one.stage].tasks[one.at] {
            added[mono.kind] += mono.amount;
        }
        let rate = |kind: usize| {
            f64::from(self.workers[worker].slots[kind]) * self.workers[worker].rates[kind]
        };
        let by_kind = added.iter().enumerate().map(|(kind, amount)| {
            let lacks = (horizon - self.queued[worker][kind] / rate(kind)) / horizon;
            lacks.max(0.0) * (amount / rate(kind)) / horizon
        });
        by_kind.sum()
    }

    fn bind(&mut self, task: usize, worker: usize) {
        if let Binding::Executors { .. } = self.settings.binding {
            self.executors[worker] -= 1;
        }
        self.tasks[task].worker = worker;
        let one = &self.tasks[task];
        let chain = &self.jobs[one.job].stages[one.stage].tasks[one.at];
        chain.iter().for_each(|mono| self.queued[worker][mono.kind] += mono.amount);
        let kind = chain[0].kind;
        self.queues[worker][kind].push(task);
    }

    fn start_all(&mut self) {
        for worker in 0..self.workers.len() {
            for kind in 0..self.capacity.len() {
                while self.free[worker][kind] > 0 && !self.queues[worker][kind].is_empty() {
                    self.start_first(worker, kind);
                }
            }
        }
    }

    fn start_first(&mut self, worker: usize, kind: usize) {
        let key = |task: usize| {
            let one = &self.tasks[task];
            (self.priority(one.job), Reverse(self.states[one.job].depth[one.stage]), task)
        };
        let queue = &self.queues[worker][kind];
        let first = queue.iter().enumerate().map(|(at, task)| (key(*task), at)).min_by(|a, b| {
            let (a, b) = (&a.0, &b.0);
            a.0.0.total_cmp(&b.0.0).then(a.0.1.cmp(&b.0.1)).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2))
        });
        let ((.., task), at) = first.expect("the queue is not empty");
        self.queues[worker][kind].swap_remove(at);
        self.free[worker][kind] -= 1;
        let one = &self.tasks[task];
        let mono = self.jobs[one.job].stages[one.stage].tasks[one.at][one.step];
        let seconds = mono.amount / self.workers[worker].rates[kind];
        self.busy[kind] += seconds;
        self.ends.push(Reverse(((self.now + seconds).to_bits(), task)));
    }

    fn advance(&mut self, to: f64) {
        self.now = to;
        while let Some(Reverse((bits, task))) = self.ends.peek().copied() {
            if f64::from_bits(bits) > to {
                break;
            }
            self.ends.pop();
            self.finish(task);
        }
    }

    fn finish(&mut self, task: usize) {
        let one = &mut self.tasks[task];
        let (job, stage, worker) = (one.job, one.stage, one.worker);
        let chain = &self.jobs[job].stages[stage].tasks[one.at];
        let mono = chain[one.step];
        one.step += 1;
        self.free[worker][mono.kind] += 1;
        self.queued[worker][mono.kind] = (self.queued[worker][mono.kind] - mono.amount).max(0.0);
        self.states[job].work[mono.kind] -= mono.amount;
        if let Some(next) = chain.get(one.step) {
            self.queues[worker][next.kind].push(task);
            return;
        }
        if let Binding::Executors { .. } = self.settings.binding {
            self.executors[worker] += 1;
        }
        self.states[job].left[stage] -= 1;
        if self.states[job].left[stage] == 0 {
            self.open_stages(job);
        }
    }

    fn outcome(self) -> Outcome {
        assert!(self.ended.iter().all(|end| !end.is_nan()), "every job that fits ends");
        let makespan = self.ended.iter().copied().fold(0.0, f64::max);
        let spent = self.ended.iter().zip(self.jobs).map(|(end, job)| end - job.arrival);
        let mean_seconds = spent.sum::<f64>() / self.jobs.len().max(1) as f64;
        let slots =
            |kind: usize| self.workers.iter().map(|one| f64::from(one.slots[kind])).sum::<f64>();
        let all = |kind: usize| (slots(kind) * makespan).max(f64::MIN_POSITIVE);
        let busy = self.busy.iter().enumerate().map(|(kind, busy)| busy / all(kind)).collect();
        Outcome { ended: self.ended, makespan, mean_seconds, busy }
    }
}

impl JobState {
    fn new(job: &DagJob, kinds: usize) -> JobState {
        let mut work = vec![0.0; kinds];
        for mono in job.stages.iter().flat_map(|stage| stage.tasks.iter().flatten()) {
            work[mono.kind] += mono.amount;
        }
        let mut depth = vec![1; job.stages.len()];
        for (at, stage) in job.stages.iter().enumerate().rev() {
            stage
                .after
                .iter()
                .for_each(|before| depth[*before] = depth[*before].max(depth[at] + 1));
        }
        JobState {
            left: job.stages.iter().map(|stage| stage.tasks.len()).collect(),
            is_open: vec![false; job.stages.len()],
            work,
            depth,
        }
    }
}
