//! What each job held, when and where.

use trainyard_sim::Observer;
use trainyard_types::{Action, Allocation, Cluster, JobId, NodeId, Time};

/// The most intervals that a run of a comparison keeps; about 20 MB.
pub const INTERVALS_MAX: usize = 500_000;

/// Some GPUs of one node, held by one job without a break.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The job.
    pub job: JobId,
    /// The node.
    pub node: NodeId,
    /// The first GPU, counted within the node.
    pub first: u8,
    /// How many GPUs in a row.
    pub count: u8,
    /// Whether others may hold the same GPUs at the same time.
    pub is_shared: bool,
    /// Since when.
    pub from: Time,
    /// Until when.
    pub to: Time,
}

/// Takes down which jobs hold which GPUs, up to a number of intervals.
///
/// When the limit is reached nothing new is taken down, so that what is there is complete up to [`Timeline::cut`].
#[derive(Clone, Debug)]
pub struct Timeline {
    /// In the order they began.
    pub intervals: Vec<Interval>,
    /// The moment from which on intervals are missing.
    pub cut: Option<Time>,
    limit: usize,
    /// For each job that holds GPUs, the range of its intervals.
    open: std::collections::BTreeMap<JobId, (usize, usize)>,
}

impl Timeline {
    /// An empty one.
    pub fn new(limit: usize) -> Timeline {
        Timeline { intervals: Vec::new(), cut: None, limit, open: Default::default() }
    }

    /// Ends what was never given back: jobs that run when the simulation ends.
    pub fn close(&mut self, at: Time) {
        let open: Vec<JobId> = self.open.keys().copied().collect();
        for job in open {
            self.end(at, job);
        }
        // What was changed at the moment it began was never held.
        self.intervals.retain(|interval| interval.from < interval.to);
    }

    /// The number of each node's first GPU when all GPUs of a cluster are counted through; at the end, their sum.
    pub fn rows(cluster: &Cluster) -> Vec<u32> {
        let mut rows = vec![0];
        for node in &cluster.nodes {
            rows.push(rows[rows.len() - 1] + u32::from(node.gpus));
        }
        rows
    }

    fn begin(&mut self, at: Time, job: JobId, allocation: &Allocation) {
        if self.cut.is_some() {
            return;
        }
        let start = self.intervals.len();
        let mut index = 0;
        for &(node, mask) in allocation.placement.masks() {
            let gpus = (0..64u8).filter(|gpu| mask >> gpu & 1 == 1);
            for gpu in gpus {
                let is_shared = allocation.share(index).permille() < 1000;
                index += 1;
                let joins = |last: &&mut Interval| {
                    last.node == node
                        && last.first + last.count == gpu
                        && last.is_shared == is_shared
                };
                match self.intervals[start..].last_mut().filter(joins) {
                    Some(last) => last.count += 1,
                    None => self.intervals.push(Interval {
                        job,
                        node,
                        first: gpu,
                        count: 1,
                        is_shared,
                        from: at,
                        to: at,
                    }),
                }
            }
        }
        if self.intervals.len() > self.limit {
            self.intervals.truncate(start);
            self.cut = Some(at);
            return;
        }
        self.open.insert(job, (start, self.intervals.len()));
    }

    /// What a job holds may have changed; if it did not, its intervals go on.
    fn change(&mut self, at: Time, (job, old): (JobId, (usize, usize)), allocation: &Allocation) {
        self.end(at, job);
        self.begin(at, job, allocation);
        let Some(&(start, end)) = self.open.get(&job) else { return };
        let place = |one: &Interval| (one.node, one.first, one.count, one.is_shared);
        let (before, after) = (&self.intervals[old.0..old.1], &self.intervals[start..end]);
        if before.iter().map(place).eq(after.iter().map(place)) {
            self.intervals.truncate(start);
            self.open.insert(job, old);
        }
    }

    fn end(&mut self, at: Time, job: JobId) {
        if let Some((start, end)) = self.open.remove(&job) {
            for interval in &mut self.intervals[start..end] {
                interval.to = at;
            }
        }
    }
}

impl Observer for Timeline {
    fn action(&mut self, at: Time, action: &Action) {
        match action {
            Action::Launch { job, allocation, .. } | Action::Resume { job, allocation, .. } => {
                self.begin(at, *job, allocation);
            }
            Action::Adjust { job, allocation, .. } => {
                if let Some(before) = self.open.get(job).copied() {
                    self.change(at, (*job, before), allocation);
                }
            }
            // A job that is stopped or put aside holds its GPUs until it has saved.
            Action::Stop { .. } | Action::Suspend { .. } | Action::Ended { .. } => {}
        }
    }

    fn released(&mut self, at: Time, job: JobId) {
        self.end(at, job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::{Attempt, Placement};

    fn launch(job: u32, masks: &[(u32, u64)]) -> Action {
        let masks = masks.iter().map(|(node, mask)| (NodeId(*node), *mask));
        let allocation = Allocation::whole(Placement::from_masks(masks));
        Action::Launch { job: JobId(job), attempt: Attempt(1), allocation }
    }

    fn at(seconds: u32) -> Time {
        Time::from_secs_f64(f64::from(seconds))
    }

    #[test]
    fn a_placement_becomes_one_interval_for_each_row_of_gpus() {
        let mut timeline = Timeline::new(10);
        timeline.action(at(1), &launch(7, &[(0, 0b1011), (2, 0b1)]));
        timeline.released(at(5), JobId(7));
        let seen: Vec<_> = timeline
            .intervals
            .iter()
            .map(|one| (one.node.0, one.first, one.count, one.from, one.to))
            .collect();
        let (from, to) = (at(1), at(5));
        assert_eq!(seen, [(0, 0, 2, from, to), (0, 3, 1, from, to), (2, 0, 1, from, to)]);
    }

    #[test]
    fn beyond_the_limit_nothing_is_taken_down_and_the_moment_is_kept() {
        let mut timeline = Timeline::new(2);
        timeline.action(at(0), &launch(0, &[(0, 1)]));
        timeline.action(at(1), &launch(1, &[(0, 0b1010)]));
        timeline.action(at(2), &launch(2, &[(0, 1)]));
        timeline.close(at(9));
        assert_eq!((timeline.intervals.len(), timeline.cut), (1, Some(at(1))));
        assert_eq!(timeline.intervals[0].to, at(9));
    }
}
