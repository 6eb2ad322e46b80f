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
