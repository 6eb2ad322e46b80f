//! Jobs that compute and send in turns: those that share links slow each other only while they send at the same time.

use crate::truth::Truth;
use crate::world::World;
use rustc_hash::FxHashMap;
use trainyard_network::periodic::{Aligned, Periodic, Turn, settled};
use trainyard_types::{JobId, LinkId, Time};

/// Iterations of each job that are played to find out how jobs settle, and beginnings and ends of sending at most.
const PLAYED: (usize, usize) = (16, 4_000);

/// By what part of its iteration a job that keeps to a time shift may drift (CASSINI, NSDI 2024, section 4.2).
const DRIFT: f64 = 0.05;

impl World<'_> {
    /// Plays how some jobs, and all that meet them over others too, settle beside each other. The jobs whose speed that
    /// changes, ascending.
    ///
    /// O(e × p log p) for e events played and p links of the jobs reached; e is bounded.
    pub(crate) fn settle(&mut self, at: Time, from: &[JobId]) -> Vec<JobId> {
        let Some(links) = &self.on_links else { return Vec::new() };
        let jobs = links.reach(from);
        let mut places: FxHashMap<LinkId, LinkId> = FxHashMap::default();
        let mut capacities: Vec<f64> = Vec::new();
        let mut turns = Vec::with_capacity(jobs.len());
        for job in &jobs {
            let mut turn = self.turn_of(at, *job);
            for link in &mut turn.job.links {
                *link = *places.entry(*link).or_insert_with(|| {
                    capacities.push(links.topology().mbps(*link) as f64 * 1e6 / 8.0);
                    LinkId(capacities.len() as u32 - 1)
                });
            }
            turns.push(turn);
        }
        let means = settled(&turns, &capacities, PLAYED);
        let links = self.on_links.as_mut().expect("just seen");
        let mut changed = Vec::new();
        for ((job, turn), mean) in jobs.into_iter().zip(&turns).zip(means) {
            let alone = turn.job.computes + turn.job.bytes / turn.job.rate_max;
            // Less than a millionth is the sum of roundings.
            let kept = if mean <= alone * (1.0 + 1e-6) { 1.0 } else { alone / mean };
            if links.set_kept(job, kept) {
                changed.push(job);
            }
        }
        changed
    }

    /// What a job does again and again, and where it is in it.
    fn turn_of(&self, at: Time, job: JobId) -> Turn {
        let links = self.on_links.as_ref().expect("asked about jobs on links");
        let (load, since) = links.load_of(job);
        let (truth, placed) = (self.truth.job(job), &self.placed[job]);
        let alone_mbps = load.alone_mbps(links.topology());
        let pace = self.truth.pace(truth, &placed.config, placed.done);
        let pace = pace.map_or(1e-3, |pace| pace.rate.0).max(1e-9);
        let measured = trainyard_types::Rate(pace);
        let rate = pace * self.truth.kept_on_links(truth, &placed.config, measured, alone_mbps);
        let period = 1.0 / rate.max(1e-9);
        let bytes = self
            .truth
            .traffic(truth)
            .map_or(0.0, |traffic| traffic.pattern.unit(traffic.bytes, placed.config.gpus));
        let rate_max = alone_mbps.max(1e-6) * 1e6 / 8.0;
        // What is hidden behind computation makes a job send all the time rather than longer than that.
        let sends = (bytes / rate_max).min(period);
        let computes = period - sends;
        let knobs = &placed.allocation.knobs;
        let aligned = knobs.pace.map(|pace| Aligned {
            shift: knobs.shift.as_secs_f64() - at.as_secs_f64(),
            period: pace.as_secs_f64().max(1e-6),
            tolerance: DRIFT,
        });
        let ran = at.since(since).as_secs_f64() / period;
        let into = ran - libm::floor(ran);
        let links = load.links.clone();
        let job = Periodic { computes, bytes: sends * rate_max, rate_max, links, shift: 0.0 };
        Turn { job, into, aligned }
    }
}
