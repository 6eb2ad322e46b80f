//! What Slurm really did, in the form of a run, so that it stands beside the simulated ones.

use super::rebuilt::Rebuilt;
use std::collections::BTreeMap;
use trainyard_report::timeline::{Interval, Timeline};
use trainyard_sim::{JobOutcome, Outcome, Point, Series};
use trainyard_slurm::{Fate, History, Inventory, Past};
use trainyard_types::{End, GpuType, JobId, NodeId, Span, Time};

/// The run that happened, over the jobs that are measured.
pub fn happened(
    history: &History,
    inventory: &Inventory,
    rebuilt: &Rebuilt,
) -> (Outcome, Timeline) {
    let clock = Clock { from: history.from, to: history.to };
    let gpus = inventory.cluster.gpus();
    let mut jobs = Vec::new();
    let mut by_kind = vec![0.0; inventory.cluster.kinds.len()];
    let mut seconds_held = 0.0;
    let mut changes = Changes::default();
    let mut runs = Vec::new();
    for (index, (number, measured)) in rebuilt.jobs.iter().enumerate() {
        let (id, past) = (JobId(index as u32), &history.jobs[number]);
        let held = clock.span(past.ran_between(history.from, history.to));
        let kind = kind_of(past, inventory);
        seconds_held += held.as_secs_f64() * f64::from(past.job.gpus);
        if let Some(kind) = kind {
            by_kind[usize::from(kind.0)] += held.as_secs_f64() * f64::from(past.job.gpus);
        }
        let submitted = rebuilt.given.workload.jobs[index].job.submitted;
        changes.job(past, (submitted, clock));
        runs.extend(clock.runs(past).map(|(begin, end)| (begin, end, id, past)));
        if *measured {
            jobs.push(outcome_of(id, past, (clock, kind, held)));
        }
    }
    let outcome = Outcome {
        jobs,
        unfinished: Vec::new(),
        beside: Vec::new(),
        measured: None,
        started: Time::ZERO,
        ended: clock.at(history.to),
        gpu_seconds_held: seconds_held,
        gpu_seconds_doubled: 0.0,
        tenants: Vec::new(),
        gpu_seconds_by_kind: by_kind,
        gpu_seconds_overhead: 0.0,
        gpu_seconds_restarting: 0.0,
        gpu_seconds_lost: 0.0,
        gpus,
        series: changes.series(gpus, clock.at(history.to)),
        stats: Default::default(),
        steps: u64::from(history.looks),
    };
    (outcome, timeline(runs, inventory))
}

/// Slurm's clock as ours: the first look is the beginning.
#[derive(Copy, Clone)]
struct Clock {
    from: i64,
    to: i64,
}

impl Clock {
    fn at(self, moment: i64) -> Time {
        Time::ZERO + self.span(moment - self.from)
    }

    fn span(self, seconds: i64) -> Span {
        Span::secs(seconds.max(0) as u64)
    }

    /// The runs of a job within the watch.
    fn runs(self, past: &Past) -> impl Iterator<Item = (Time, Time)> {
        let both = past.runs.iter().map(move |(begin, end)| {
            (self.at(*begin), self.at(end.unwrap_or(self.to).min(self.to)))
        });
        both.filter(|(begin, end)| begin < end)
    }
}

fn outcome_of(
    id: JobId,
    past: &Past,
    (clock, kind, ran): (Clock, Option<GpuType>, Span),
) -> JobOutcome {
    let ended = match past.fate {
        Fate::Ended(ended) => ended,
        Fate::Waits | Fate::Runs | Fate::NeverRan => clock.to,
    };
    let restarts = past.runs.len().saturating_sub(1) as u32;
    JobOutcome {
        job: id,
        first_start: past.runs.first().map(|(begin, _)| clock.at(*begin)),
        ended: clock.at(ended),
        // How it ended is its own affair: it was served.
        end: End::Finished,
        gpu_time: ran.times(u64::from(past.job.gpus)),
        ran,
        restarts,
        preemptions: restarts,
        kind,
    }
}

fn kind_of(past: &Past, inventory: &Inventory) -> Option<GpuType> {
    let node = past.job.nodes.first()?;
    let named = &past.job.gpu_types;
    let kinds = inventory.nodes_of(node).map(|id| inventory.cluster.node(id).kind);
    let is_named = |kind: &GpuType| {
        named.is_empty() || named.contains(&inventory.cluster.kinds[usize::from(kind.0)].name)
    };
    kinds.into_iter().find(is_named)
}

/// By how much the levels change at which moment.
#[derive(Default)]
struct Changes(BTreeMap<Time, [i64; 3]>);

impl Changes {
    fn job(&mut self, past: &Past, (submitted, clock): (Time, Clock)) {
        let end = clock.at(clock.to);
        let gpus = i64::from(past.job.gpus);
        let mut waits_since = submitted;
        for (begin, until) in clock.runs(past) {
            self.add(waits_since.min(begin), [0, 1, 0]);
            self.add(begin, [gpus, -1, 1]);
            self.add(until, [-gpus, 0, -1]);
            waits_since = until;
        }
        if past.fate == Fate::Waits && waits_since < end {
            self.add(waits_since, [0, 1, 0]);
        }
    }

    fn add(&mut self, at: Time, by: [i64; 3]) {
        let level = self.0.entry(at).or_default();
        level.iter_mut().zip(by).for_each(|(level, by)| *level += by);
    }

    fn series(self, gpus: u32, end: Time) -> Series {
        let mut series = Series::new(Time::ZERO);
        let mut level = [0_i64; 3];
        for (at, by) in self.0.into_iter().filter(|(at, _)| *at <= end) {
            level.iter_mut().zip(by).for_each(|(level, by)| *level += by);
            let [used, waiting, running] = level.map(|level| level.max(0) as f64);
            let used = used.min(f64::from(gpus));
            let idle = if waiting > 0.0 { f64::from(gpus) - used } else { 0.0 };
            series.record(at, Point { used, waiting, running, idle, stranded: 0.0 });
        }
        series.finish(end)
    }
}

/// Which job held how many GPUs where: which ones of a node is not told, so the lowest free ones are taken.
fn timeline(mut runs: Vec<(Time, Time, JobId, &Past)>, inventory: &Inventory) -> Timeline {
    let mut timeline = Timeline::new(0);
    let mut busy: Vec<Vec<(Time, u64)>> = vec![Vec::new(); inventory.cluster.nodes.len()];
    runs.sort_by_key(|(begin, end, id, _)| (*begin, *end, *id));
    for (from, to, job, past) in runs {
        for (node, count) in shares(past, inventory) {
            let busy = &mut busy[node.index()];
            busy.retain(|(until, _)| *until > from);
            let taken = busy.iter().fold(0, |all, (_, mask)| all | mask);
            let free = inventory.cluster.node(node).mask() & !taken;
            let gpus: Vec<u8> =
                (0..64).filter(|gpu| free >> gpu & 1 == 1).take(count as usize).collect();
            busy.push((to, gpus.iter().fold(0, |mask, gpu| mask | 1 << gpu)));
            for row in gpus.chunk_by(|a, b| a + 1 == *b) {
                let (first, count) = (row[0], row.len() as u8);
                let is_shared = false;
                timeline.intervals.push(Interval { job, node, first, count, is_shared, from, to });
            }
        }
    }
    timeline
}

/// The nodes of a job and how many GPUs it had on each; an even share where that was never seen.
fn shares(past: &Past, inventory: &Inventory) -> Vec<(NodeId, u32)> {
    let job = &past.job;
    let even: Vec<(String, u32)> = {
        let nodes = job.nodes.len().max(1) as u32;
        let extra = |index: usize| u32::from((index as u32) < job.gpus % nodes);
        let all = job.nodes.iter().enumerate();
        all.map(|(index, node)| (node.clone(), job.gpus / nodes + extra(index))).collect()
    };
    let held = if job.held.is_empty() { &even } else { &job.held };
    let place = |(name, count): &(String, u32)| Some((inventory.nodes_of(name).next()?, *count));
    held.iter().filter_map(place).collect()
}
