//! One event simulation through which every plan runs: tasks on lanes, transfers over links.
//!
//! A *lane* does one task at a time: the compute queue of a device, or one of its copy engines.
//! A transfer is a flow over links; flows that share a link get max-min fair rates, which change when a flow starts or
//! ends.
//! Time is in seconds as real numbers: operators take less than a microsecond, and no moment here meets the engine's.

use crate::PlanError;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// What a task is, for pictures and for accounts.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// A forward pass.
    Forward,
    /// A backward pass.
    Backward,
    /// Something handed from one device to another.
    Transfer,
    /// Gradients made equal on several devices.
    Synchronise,
    /// From the memory of the host.
    SwapIn,
    /// To the memory of the host.
    SwapOut,
    /// Parameters changed by their gradients.
    Update,
}

/// What a task does.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Keeps its lane for so many seconds.
    Seconds(f64),
    /// Moves bytes over links.
    Bytes {
        /// How many.
        bytes: f64,
        /// Over which links.
        route: Vec<u32>,
        /// At most so many a second.
        rate_max: f64,
        /// Seconds before the first.
        latency: f64,
    },
}

/// One task of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// What it is.
    pub purpose: Purpose,
    /// Which part of the model, and which micro-batch.
    pub of: (u32, u32),
    /// The lane it needs, if any.
    pub lane: Option<u32>,
    /// Lower comes first on a lane.
    pub rank: u64,
    /// What it does.
    pub work: Work,
    /// Tasks that must have ended.
    pub after: Vec<u32>,
    /// Bytes that it takes on devices when it starts; negative ones are given back.
    pub takes: Vec<(u32, f64)>,
    /// The same when it ends.
    pub leaves: Vec<(u32, f64)>,
}

/// How a lane chooses.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// Its tasks in order of rank, and none before its turn.
    Program,
    /// Of those that could start, the one of lowest rank.
    Ready,
}

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulation {
    /// All tasks; `after` names them by index.
    pub tasks: Vec<Task>,
    /// How each lane chooses.
    pub lanes: Vec<Discipline>,
    /// What each link carries in a second.
    pub links: Vec<f64>,
    /// Bytes that each device holds from the start.
    pub held_bytes: Vec<f64>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// When each task started.
    pub start: Vec<f64>,
    /// When each task ended.
    pub end: Vec<f64>,
    /// When the last one did.
    pub seconds: f64,
    /// Seconds for which each lane was busy.
    pub busy: Vec<f64>,
    /// The most that each device held.
    pub peak_bytes: Vec<f64>,
    /// Bytes that each link carried.
    pub carried: Vec<f64>,
}

impl Run {
    /// The part of the time in which lanes with any work stood idle.
    pub fn idle_share(&self) -> f64 {
        let used: Vec<f64> = self.busy.iter().copied().filter(|busy| *busy > 0.0).collect();
        match self.seconds > 0.0 && !used.is_empty() {
            true => 1.0 - used.iter().sum::<f64>() / (self.seconds * used.len() as f64),
            false => 0.0,
        }
    }
}

/// Simulates the tasks to their end.
///
/// O(n log n) for n tasks, and O(flows x links) more whenever a flow starts or ends.
pub fn simulate(what: &Simulation) -> Result<Run, PlanError> {
    let mut state = State::new(what);
    state.start_ready();
    while let Some(next) = state.next_moment() {
        state.advance(next);
        state.start_ready();
    }
    match state.ended == what.tasks.len() {
        true => Ok(state.run),
        false => {
            let stuck = (0..what.tasks.len()).find(|index| state.run.end[*index].is_nan());
            let task = &what.tasks[stuck.expect("a task did not end")];
            let (part, micro) = task.of;
            Err(PlanError::Stuck(format!("{:?} of part {part}, micro-batch {micro}", task.purpose)))
        }
    }
}

/// A real number that is ordered, with the task it belongs to.
#[derive(Copy, Clone, PartialEq)]
struct Moment(f64, u32);

impl Eq for Moment {}
impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Moment) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Moment {
    fn cmp(&self, other: &Moment) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

struct Flow {
    task: u32,
    left: f64,
    rate: f64,
}

struct State<'a> {
    what: &'a Simulation,
    now: f64,
    missing: Vec<u32>,
    followers: Vec<Vec<u32>>,
    /// Tasks of each lane that could start, by rank.
    ready: Vec<BTreeSet<(u64, u32)>>,
    /// Tasks of each lane in order of rank, and how many of them have started.
    program: Vec<(Vec<u32>, usize)>,
    is_busy: Vec<bool>,
    /// Lanes to look at again, and tasks without a lane that can start.
    lanes_to_try: BTreeSet<u32>,
    free_tasks: Vec<u32>,
    /// Ends of tasks that take a given time, and ends of latencies.
    ends: BinaryHeap<Reverse<Moment>>,
    waiting_for_latency: BTreeSet<u32>,
    flows: Vec<Flow>,
    flows_changed: bool,
    held: Vec<f64>,
    ended: usize,
    run: Run,
}

impl<'a> State<'a> {
    fn new(what: &'a Simulation) -> State<'a> {
        let count = what.tasks.len();
        let mut followers = vec![Vec::new(); count];
        let mut program = vec![(Vec::new(), 0); what.lanes.len()];
        for (index, task) in what.tasks.iter().enumerate() {
            task.after.iter().for_each(|before| followers[*before as usize].push(index as u32));
            if let Some(lane) = task.lane {
                program[lane as usize].0.push(index as u32);
            }
        }
        let by_rank = |index: &u32| (what.tasks[*index as usize].rank, *index);
        program.iter_mut().for_each(|(tasks, _)| tasks.sort_unstable_by_key(by_rank));
        let mut state = State {
            what,
            now: 0.0,
            missing: what.tasks.iter().map(|task| task.after.len() as u32).collect(),
            followers,
            ready: vec![BTreeSet::new(); what.lanes.len()],
            program,
            is_busy: vec![false; what.lanes.len()],
            lanes_to_try: BTreeSet::new(),
            free_tasks: Vec::new(),
            ends: BinaryHeap::new(),
            waiting_for_latency: BTreeSet::new(),
            flows: Vec::new(),
            flows_changed: false,
            held: what.held_bytes.clone(),
            ended: 0,
            run: Run {
                start: vec![f64::NAN; count],
                end: vec![f64::NAN; count],
                seconds: 0.0,
                busy: vec![0.0; what.lanes.len()],
                peak_bytes: what.held_bytes.clone(),
                carried: vec![0.0; what.links.len()],
            },
        };
        let first = (0..count as u32).filter(|task| state.missing[*task as usize] == 0);
        let first: Vec<u32> = first.collect();
        first.into_iter().for_each(|task| state.becomes_ready(task));
        state
    }

    fn becomes_ready(&mut self, task: u32) {
        let what = &self.what.tasks[task as usize];
        match what.lane {
            Some(lane) => {
                self.ready[lane as usize].insert((what.rank, task));
                self.lanes_to_try.insert(lane);
            }
            None => self.free_tasks.push(task),
        }
    }

    fn start_ready(&mut self) {
        loop {
            let free = std::mem::take(&mut self.free_tasks);
            let lanes = std::mem::take(&mut self.lanes_to_try);
            if free.is_empty() && lanes.is_empty() {
                break;
            }
            free.into_iter().for_each(|task| self.begin(task));
            lanes.into_iter().for_each(|lane| self.try_lane(lane as usize));
        }
        if std::mem::take(&mut self.flows_changed) {
            self.share_links();
        }
    }

    fn try_lane(&mut self, lane: usize) {
        if self.is_busy[lane] {
            return;
        }
        let Some(first) = self.ready[lane].first().copied() else { return };
        let (program, started) = &mut self.program[lane];
        if self.what.lanes[lane] == Discipline::Program && program[*started] != first.1 {
            return;
        }
        *started += 1;
        self.ready[lane].remove(&first);
        self.is_busy[lane] = true;
        self.begin(first.1);
    }

    fn begin(&mut self, task: u32) {
        self.run.start[task as usize] = self.now;
        let what = &self.what.tasks[task as usize];
        self.hold(&what.takes);
        match &what.work {
            Work::Seconds(seconds) => self.ends.push(Reverse(Moment(self.now + seconds, task))),
            Work::Bytes { bytes, route, latency, .. } if route.is_empty() || *bytes <= 0.0 => {
                self.ends.push(Reverse(Moment(self.now + latency, task)));
            }
            Work::Bytes { latency, .. } if *latency > 0.0 => {
                self.waiting_for_latency.insert(task);
                self.ends.push(Reverse(Moment(self.now + latency, task)));
            }
            Work::Bytes { .. } => self.flow(task),
        }
    }

    fn flow(&mut self, task: u32) {
        if let Work::Bytes { bytes, .. } = &self.what.tasks[task as usize].work {
            self.flows.push(Flow { task, left: *bytes, rate: 0.0 });
            self.flows_changed = true;
        }
    }

    fn hold(&mut self, changes: &[(u32, f64)]) {
        for (device, bytes) in changes {
            let held = &mut self.held[*device as usize];
            *held += bytes;
            let peak = &mut self.run.peak_bytes[*device as usize];
            *peak = peak.max(*held);
        }
    }

    fn next_moment(&self) -> Option<f64> {
        let fixed = self.ends.peek().map(|Reverse(moment)| moment.0);
        let flows = self.flows.iter().map(|flow| self.now + flow.left / flow.rate);
        flows.chain(fixed).min_by(f64::total_cmp)
    }

    fn advance(&mut self, to: f64) {
        let passed = to - self.now;
        let mut over: Vec<u32> = Vec::new();
        for flow in &mut self.flows {
            // The flow that defines this moment ends in it, whatever rounding leaves of it.
            let ends = self.now + flow.left / flow.rate <= to;
            flow.left = if ends { 0.0 } else { flow.left - passed * flow.rate };
            if ends {
                over.push(flow.task);
            }
        }
        self.now = to;
        if !over.is_empty() {
            self.flows.retain(|flow| flow.left > 0.0);
            self.flows_changed = true;
        }
        while self.ends.peek().is_some_and(|Reverse(moment)| moment.0 <= to) {
            let Reverse(Moment(_, task)) = self.ends.pop().expect("it was looked at");
            match self.waiting_for_latency.remove(&task) {
                true => self.flow(task),
                false => over.push(task),
            }
        }
        over.sort_unstable();
        over.into_iter().for_each(|task| self.finish(task));
    }

    fn finish(&mut self, task: u32) {
        let index = task as usize;
        let what = &self.what.tasks[index];
        self.run.end[index] = self.now;
        self.run.seconds = self.now;
        self.ended += 1;
        self.hold(&what.leaves);
        if let Work::Bytes { bytes, route, .. } = &what.work {
            route.iter().for_each(|link| self.run.carried[*link as usize] += bytes);
        }
        if let Some(lane) = what.lane {
            self.run.busy[lane as usize] += self.now - self.run.start[index];
            self.is_busy[lane as usize] = false;
            self.lanes_to_try.insert(lane);
        }
        for follower in std::mem::take(&mut self.followers[index]) {
            self.missing[follower as usize] -= 1;
            if self.missing[follower as usize] == 0 {
                self.becomes_ready(follower);
            }
        }
    }

    /// Max-min fair rates: the link with the least for each of its flows settles them, then the next.
    fn share_links(&mut self) {
        let route = |task: u32| match &self.what.tasks[task as usize].work {
            Work::Bytes { route, rate_max, .. } => (route.as_slice(), *rate_max),
            Work::Seconds(_) => unreachable!("only transfers flow"),
        };
        let mut users: std::collections::BTreeMap<u32, (f64, u32)> = Default::default();
        for flow in &mut self.flows {
            flow.rate = 0.0;
            for link in route(flow.task).0 {
                let entry = users.entry(*link).or_insert((self.what.links[*link as usize], 0));
                entry.1 += 1;
            }
        }
        let mut open = self.flows.len();
        while open > 0 {
            let fair = |(left, count): &(f64, u32)| left.max(0.0) / f64::from(*count);
            let by_link = users.iter().filter(|(_, (_, count))| *count > 0);
            let least = by_link.map(|(link, one)| (fair(one), *link));
            let (least, link) = least
                .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
                .expect("an open flow passes a link");
            // A flow that may have less than this share is settled first, at its own limit.
            let limit = (self.flows.iter().filter(|flow| flow.rate == 0.0))
                .map(|flow| route(flow.task).1)
                .fold(f64::INFINITY, f64::min);
            let rate = least.min(limit).max(f64::MIN_POSITIVE);
            for flow in self.flows.iter_mut().filter(|flow| flow.rate == 0.0) {
                let (links, rate_max) = route(flow.task);
                if (limit <= least && rate_max <= limit) || (limit > least && links.contains(&link))
                {
                    flow.rate = rate;
                    open -= 1;
                    for link in links {
                        let entry = users.get_mut(link).expect("its links were counted");
                        *entry = (entry.0 - rate, entry.1 - 1);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compute(lane: u32, rank: u64, seconds: f64, after: &[u32]) -> Task {
        Task {
            purpose: Purpose::Forward,
            of: (lane, rank as u32),
            lane: Some(lane),
            rank,
            work: Work::Seconds(seconds),
            after: after.to_vec(),
            takes: vec![(0, 1.0)],
            leaves: vec![(0, -1.0)],
        }
    }

    fn transfer(bytes: f64, route: &[u32], rate_max: f64, after: &[u32]) -> Task {
        let work = Work::Bytes { bytes, route: route.to_vec(), rate_max, latency: 0.0 };
        Task { purpose: Purpose::Transfer, lane: None, work, ..compute(0, 0, 0.0, after) }
    }

    fn run(tasks: Vec<Task>, lanes: Vec<Discipline>, links: &[f64]) -> Result<Run, PlanError> {
        simulate(&Simulation { tasks, lanes, links: links.to_vec(), held_bytes: vec![0.0] })
    }

    #[test]
    fn two_flows_share_a_link_and_the_one_left_speeds_up() {
        let flows = vec![
            transfer(10.0, &[0], f64::INFINITY, &[]),
            transfer(30.0, &[0, 1], f64::INFINITY, &[]),
        ];
        let run = run(flows, vec![], &[10.0, 100.0]).unwrap();
        // Both at 5 until 2 s; then 20 bytes at 10.
        assert_eq!(run.end, [2.0, 4.0]);
        assert_eq!(run.carried, [40.0, 30.0]);
    }

    #[test]
    fn what_a_limited_flow_leaves_goes_to_the_other() {
        let flows = vec![transfer(2.0, &[0], 1.0, &[]), transfer(18.0, &[0], f64::INFINITY, &[])];
        assert_eq!(run(flows, vec![], &[10.0]).unwrap().end, [2.0, 2.0]);
    }

    #[test]
    fn a_lane_with_a_program_waits_and_one_without_takes_what_is_ready() {
        let tasks =
            vec![compute(0, 0, 5.0, &[]), compute(1, 0, 1.0, &[0]), compute(1, 1, 1.0, &[])];
        let strict = run(tasks.clone(), vec![Discipline::Program; 2], &[]).unwrap();
        assert_eq!(strict.end, [5.0, 6.0, 7.0]);
        let loose = run(tasks, vec![Discipline::Ready; 2], &[]).unwrap();
        assert_eq!(loose.end, [5.0, 6.0, 1.0]);
        assert_eq!(loose.peak_bytes, [2.0]);
    }

    #[test]
    fn a_program_that_waits_for_itself_is_refused() {
        let tasks = vec![compute(0, 0, 1.0, &[1]), compute(0, 1, 1.0, &[])];
        let error = run(tasks, vec![Discipline::Program], &[]).unwrap_err();
        assert!(matches!(error, PlanError::Stuck(_)));
    }
}
