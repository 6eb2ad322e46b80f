//! How long past jobs took, for those of which nothing was said, and how far what was said was off.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use trainyard_types::{End, Job, JobId, JobState, ModelId, Span, Time};

/// Past jobs that are remembered.
const LENGTHS_MAX: usize = 4096;
/// Sizes that were told and turned out, likewise.
const TOLD_MAX: usize = 1024;
/// Fewer than so many say nothing about others.
const FEWEST: usize = 8;

/// A job that ended, as far as forecasts learn from it.
#[derive(Clone, Debug, PartialEq)]
pub struct PastJob {
    /// The job.
    pub job: JobId,
    /// What it trained.
    pub model: ModelId,
    /// GPUs it asked for.
    pub gpus: u32,
    /// When it first had GPUs.
    pub first_start: Option<Time>,
    /// When it was over.
    pub ended: Time,
    /// How it ended.
    pub end: End,
    /// How long it held GPUs.
    pub ran: Span,
    /// The work it turned out to be over the work that was told, where it was told and done.
    pub over_told: Option<f64>,
}

impl PastJob {
    /// A job as it was at its end. `told` is the work that was believed, in the unit of its progress.
    pub fn new(
        job: &Job,
        state: &JobState,
        (ended, end): (Time, End),
        told: Option<f64>,
    ) -> PastJob {
        let done = state.progress.done.0;
        let over_told = told.filter(|told| *told > 0.0 && done > 0.0 && end == End::Finished);
        PastJob {
            job: job.id,
            model: job.model,
            gpus: job.want.gpus,
            first_start: state.first_start,
            ended,
            end,
            ran: state.ran,
            over_told: over_told.map(|told| done / told),
        }
    }
}

/// Lengths of past jobs, the newest ones, and how far sizes that were told were off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lengths {
    /// Model, GPUs, seconds on GPUs.
    lengths: VecDeque<(u32, u32, f32)>,
    /// Work as it was over work as it was told, and what it weighs: GPU-seconds.
    told: VecDeque<(f32, f32)>,
}

impl Lengths {
    /// Learns from a job that ended. One that never ran says nothing.
    pub fn learn(&mut self, past: &PastJob) {
        let natural = match past.end {
            End::Finished | End::Failed | End::TimeLimit | End::Cancelled => true,
            End::Orphaned | End::Rejected | End::Pruned => false,
        };
        if !natural || past.ran == Span::ZERO {
            return;
        }
        let seconds = past.ran.as_secs_f64() as f32;
        self.lengths.push_back((past.model.0, past.gpus, seconds));
        let weight = seconds * past.gpus.max(1) as f32;
        self.told.extend(past.over_told.map(|ratio| (ratio as f32, weight)));
        while self.lengths.len() > LENGTHS_MAX {
            self.lengths.pop_front();
        }
        while self.told.len() > TOLD_MAX {
            self.told.pop_front();
        }
    }

    /// How many past jobs are remembered.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// The same, sorted to be asked often.
    pub fn sorted(&self) -> Sorted {
        let mut groups: BTreeMap<Group, Vec<f32>> = BTreeMap::new();
        for (model, gpus, seconds) in &self.lengths {
            for group in [Group::Alike(*model, *gpus), Group::Large(*gpus), Group::All] {
                groups.entry(group).or_default().push(*seconds);
            }
        }
        for values in groups.values_mut() {
            values.sort_unstable_by(f32::total_cmp);
        }
        let mut told: Vec<(f32, f32)> = self.told.iter().copied().collect();
        told.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        Sorted { groups, told }
    }
}

/// Which past jobs a job is like, the closest first.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// The same model on as many GPUs.
    Alike(u32, u32),
    /// As many GPUs.
    Large(u32),
    /// All jobs.
    All,
}

/// Lengths of past jobs, sorted to be asked often.
#[derive(Clone, Debug, Default)]
pub struct Sorted {
    groups: BTreeMap<Group, Vec<f32>>,
    told: Vec<(f32, f32)>,
}

impl Sorted {
    /// How long a job that has run for so long goes on: the mean of what was left to past jobs that got so far, of
    /// those most like it that are enough. One that outlived them all is taken to be half way.
    ///
    /// The mean, because a queue takes as long as all that is before it together; that a single job mostly takes less
    /// is found out by how far estimates are off.
    pub fn left(&self, job: &Job, ran: Span) -> Option<Span> {
        let ran = ran.as_secs_f64() as f32;
        let groups =
            [Group::Alike(job.model.0, job.want.gpus), Group::Large(job.want.gpus), Group::All];
        for group in groups {
            let Some(seconds) = self.groups.get(&group) else { continue };
            let longer = &seconds[seconds.partition_point(|one| *one <= ran)..];
            if longer.len() >= FEWEST {
                return Some(Span::from_secs_f64(mean(longer) - f64::from(ran)));
            }
        }
        let all = self.groups.get(&Group::All)?;
        (all.len() >= FEWEST).then(|| Span::from_secs_f64(f64::from(ran)))
    }

    /// By what a told size is to be multiplied for a job of which a part of it is done: what jobs took in all over
    /// what was told in all, of those that turned out larger than that part.
    ///
    /// All together, because a job whose told size errs upwards is told to be long: the mean of single ratios would be
    /// too large.
    pub fn over_told(&self, part: f64) -> f64 {
        let larger = &self.told[self.told.partition_point(|one| f64::from(one.0) <= part)..];
        match larger.len() {
            // Too few jobs were that far off: a tenth of what was told is left.
            ..FEWEST if part >= 1.0 => part + 0.1,
            ..FEWEST => 1.0,
            _ => {
                let real: f64 = larger.iter().map(|one| f64::from(one.1)).sum();
                let told: f64 = larger.iter().map(|one| f64::from(one.1 / one.0)).sum();
                // Never less than what is done already.
                (real / told).max(part)
            }
        }
    }
}

fn mean(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value)).sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(id: u32, seconds: u64, over_told: Option<f64>) -> PastJob {
        PastJob {
            job: JobId(id),
            model: ModelId(0),
            gpus: 1,
            first_start: Some(Time::ZERO),
            ended: Time(seconds * 1_000_000),
            end: End::Finished,
            ran: Span::secs(seconds),
            over_told,
        }
    }

    #[test]
    fn what_is_left_depends_on_how_long_a_job_has_run() {
        let mut lengths = Lengths::default();
        // Ten short ones and ten long ones.
        for id in 0..20 {
            lengths.learn(&past(id, if id < 10 { 100 } else { 10_000 }, None));
        }
        let (job, sorted) = (Job::simple(JobId(99), Time::ZERO, 1), lengths.sorted());
        assert_eq!(sorted.left(&job, Span::ZERO), Some(Span::secs(5_050)));
        assert_eq!(sorted.left(&job, Span::secs(200)), Some(Span::secs(9_800)));
        assert_eq!(sorted.left(&job, Span::secs(20_000)), Some(Span::secs(20_000)), "half way");
        assert_eq!(Lengths::default().sorted().left(&job, Span::ZERO), None);
    }

    #[test]
    fn a_told_size_is_corrected_by_what_told_sizes_turned_out_to_be() {
        let mut lengths = Lengths::default();
        assert_eq!(lengths.sorted().over_told(0.3), 1.0, "nothing known: as told");
        assert!(lengths.sorted().over_told(1.5) > 1.5, "overrun: something is left");
        for id in 0..20 {
            lengths.learn(&past(id, 100, Some(if id < 10 { 0.5 } else { 2.0 })));
        }
        assert_eq!(lengths.sorted().over_told(0.6), 2.0);
        assert_eq!(lengths.sorted().over_told(0.0), 0.8, "2000 s in all, 2500 s told in all");
    }
}
