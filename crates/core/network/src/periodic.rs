//! Jobs that compute and send in turns, on links that they share.

use crate::flows::max_min_capped;
use trainyard_types::LinkId;

/// A job that does the same again and again: computes, then sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Periodic {
    /// Seconds before it sends in an iteration.
    pub computes: f64,
    /// Bytes that it then sends over each of its links.
    pub bytes: f64,
    /// Bytes per second that it sends at most.
    pub rate_max: f64,
    /// Its links.
    pub links: Vec<LinkId>,
    /// By how many seconds its first iteration is delayed.
    pub shift: f64,
}

/// When a job that is told of a time shift begins its iterations: at moments that lie a period apart.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Aligned {
    /// Seconds from 0 to one of these moments.
    pub shift: f64,
    /// Seconds between them.
    pub period: f64,
    /// The part of the period by which an iteration may begin beside its moment before the job waits for the next.
    pub tolerance: f64,
}

impl Aligned {
    /// When an iteration begins that could begin now: at once if that is near enough, else at the next moment. This is
    /// the drift of section 4.2 of CASSINI (NSDI 2024), which adjusts beyond 5 % of an iteration.
    pub fn begins(&self, now: f64) -> f64 {
        let turns = (now - self.shift) / self.period;
        let off = turns - libm::floor(turns);
        if off <= self.tolerance || off >= 1.0 - self.tolerance {
            return now;
        }
        now + (1.0 - off) * self.period
    }
}

/// A job among others on links, and where in an iteration it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// What it does again and again; its shift does not count here.
    pub job: Periodic,
    /// The part of an iteration on idle links that is behind it, below 1.
    pub into: f64,
    /// The moments it is told to keep to, counted from now.
    pub aligned: Option<Aligned>,
}

/// Mean seconds of an iteration of each job in the long run, waits for its moments included. The first quarter of what
/// is played counts as finding together.
///
/// Plays at most `events_max` beginnings and ends of sending, and ends when each job has done `count` iterations; a job
/// that did none counts as one that takes all the time. O(events × p log p) for p names of links.
pub fn settled(
    turns: &[Turn],
    capacities: &[f64],
    (count, events_max): (usize, usize),
) -> Vec<f64> {
    let mut runs: Vec<JobRun> = turns.iter().map(JobRun::at).collect();
    let mut now = 0.0;
    for _ in 0..events_max {
        if runs.iter().all(|run| run.took.len() >= count) {
            break;
        }
        let Some(next) = JobRun::step(&mut runs, turns, capacities, now) else { break };
        now = next;
    }
    let mean = |run: &JobRun| match run.took.len() {
        0 => now.max(f64::MIN_POSITIVE),
        all => {
            let counted = &run.took[all / 4..];
            counted.iter().sum::<f64>() / counted.len() as f64
        }
    };
    runs.iter().map(mean).collect()
}

/// Seconds of each of the first iterations of each job, when links are shared by max-min fairness.
pub fn iterations(jobs: &[Periodic], capacities: &[f64], count: usize) -> Vec<Vec<f64>> {
    let mut runs: Vec<JobRun> = (jobs.iter())
        .map(|job| JobRun {
            sends_at: job.shift + job.computes,
            left: 0.0,
            began: job.shift,
            took: Vec::with_capacity(count),
        })
        .collect();
    let mut now = 0.0;
    while runs.iter().any(|run| run.took.len() < count) {
        let sending: Vec<usize> = (0..jobs.len()).filter(|job| runs[*job].left > 0.0).collect();
        let flows: Vec<Vec<LinkId>> = sending.iter().map(|job| jobs[*job].links.clone()).collect();
        let caps: Vec<f64> = sending.iter().map(|job| jobs[*job].rate_max).collect();
        let rates = max_min_capped(capacities, &flows, &caps);
        let ends = sending.iter().zip(&rates).map(|(job, rate)| now + runs[*job].left / rate);
        let begins = runs.iter().filter(|run| run.left <= 0.0).map(|run| run.sends_at);
        let Some(next) = ends.chain(begins).min_by(f64::total_cmp) else { break };
        if !next.is_finite() {
            break;
        }
        for (job, rate) in sending.iter().zip(&rates) {
            let run = &mut runs[*job];
            if now + run.left / rate <= next {
                run.end(next, jobs[*job].computes);
            } else {
                run.left -= rate * (next - now);
            }
        }
        now = next;
        for (run, job) in runs.iter_mut().zip(jobs) {
            if run.left <= 0.0 && run.sends_at <= now {
                run.left = job.bytes;
                if job.bytes <= 0.0 {
                    run.end(now, job.computes.max(1e-9));
                }
            }
        }
    }
    runs.into_iter().map(|run| run.took.into_iter().take(count).collect()).collect()
}

impl JobRun {
    /// A job in the middle of an iteration.
    fn at(turn: &Turn) -> JobRun {
        let Periodic { computes, bytes, rate_max, .. } = turn.job;
        let alone = computes + bytes / rate_max;
        let past = turn.into * alone;
        let mut run =
            JobRun { sends_at: computes - past, left: 0.0, began: -past, took: Vec::new() };
        if let Some(aligned) = turn.aligned {
            // It waits for its first moment, as it does after any change.
            run.began = aligned.begins(0.0);
            run.sends_at = run.began + computes;
        } else if past >= computes {
            run.left = (bytes - (past - computes) * rate_max).max(1.0);
        }
        run
    }

    /// Plays up to the next moment at which a job begins or ends to send, and returns it.
    fn step(runs: &mut [JobRun], turns: &[Turn], capacities: &[f64], now: f64) -> Option<f64> {
        let sending: Vec<usize> = (0..runs.len()).filter(|job| runs[*job].left > 0.0).collect();
        let flows: Vec<Vec<LinkId>> =
            sending.iter().map(|job| turns[*job].job.links.clone()).collect();
        let caps: Vec<f64> = sending.iter().map(|job| turns[*job].job.rate_max).collect();
        let rates = max_min_capped(capacities, &flows, &caps);
        let ends = sending.iter().zip(&rates).map(|(job, rate)| now + runs[*job].left / rate);
        let begins = runs.iter().filter(|run| run.left <= 0.0).map(|run| run.sends_at);
        let next = ends.chain(begins).min_by(f64::total_cmp).filter(|next| next.is_finite())?;
        for (job, rate) in sending.iter().zip(&rates) {
            let (run, turn) = (&mut runs[*job], &turns[*job]);
            if now + run.left / rate > next {
                run.left -= rate * (next - now);
                continue;
            }
            let begins = turn.aligned.map_or(next, |aligned| aligned.begins(next));
            run.end(begins, turn.job.computes);
        }
        for (run, turn) in runs.iter_mut().zip(turns) {
            if run.left <= 0.0 && run.sends_at <= next {
                run.left = turn.job.bytes.max(1.0);
            }
        }
        Some(next)
    }
}

struct JobRun {
    sends_at: f64,
    left: f64,
    began: f64,
    took: Vec<f64>,
}

impl JobRun {
    fn end(&mut self, now: f64, computes: f64) {
        self.took.push(now - self.began);
        self.left = 0.0;
        self.began = now;
        self.sends_at = now + computes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(into: f64, aligned: Option<Aligned>) -> Turn {
        let job = Periodic {
            computes: 0.5,
            bytes: 50.0,
            rate_max: 100.0,
            links: vec![LinkId(0)],
            shift: 0.0,
        };
        Turn { job, into, aligned }
    }

    #[test]
    fn jobs_that_send_in_turns_are_not_slowed_and_jobs_that_meet_are() {
        let told = |shift: f64| Some(Aligned { shift, period: 1.0, tolerance: 0.05 });
        let mean = |turns: [Turn; 2]| settled(&turns, &[100.0], (16, 400));
        assert_eq!(mean([turn(0.0, None), turn(0.0, None)]), [1.5, 1.5]);
        let apart = mean([turn(0.0, None), turn(0.5, None)]);
        assert!(apart.iter().all(|mean| (mean - 1.0).abs() < 1e-9), "{apart:?}");
        let told = mean([turn(0.0, told(1.0)), turn(0.0, told(0.5))]);
        assert!(told.iter().all(|mean| (mean - 1.0).abs() < 1e-9), "{told:?}");
    }

    #[test]
    fn a_job_that_drifts_waits_for_its_next_moment() {
        let aligned = Aligned { shift: 0.25, period: 1.0, tolerance: 0.05 };
        assert_eq!(aligned.begins(3.27), 3.27);
        assert_eq!(aligned.begins(3.23), 3.23);
        assert!((aligned.begins(3.35) - 4.25).abs() < 1e-12);
        // The faster of two jobs would run into the other without its moments.
        let quick = |aligned: Option<Aligned>| {
            let mut one = turn(0.0, aligned);
            one.job.bytes = 44.0;
            settled(
                &[one, turn(0.5, aligned.map(|told| Aligned { shift: 0.5, ..told }))],
                &[100.0],
                (40, 1000),
            )
        };
        let told = quick(Some(Aligned { shift: 1.0, period: 1.0, tolerance: 0.05 }));
        assert!(told[1] < 1.01, "the slower one is left alone: {told:?}");
        assert!(quick(None)[1] > 1.05, "a control: without moments they meet");
    }
}
