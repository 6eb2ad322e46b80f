//! Jobs and the links they share: one shift for each job, and the choice among candidate placements.

use super::circle::{CircleSettings, Incommensurate, Profile};
use super::link::{LinkFit, Unified, fit_link};
use std::collections::VecDeque;
use trainyard_types::LinkId;

/// A link on which several jobs meet.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedLink {
    /// Which.
    pub link: LinkId,
    /// Bytes per second.
    pub capacity: f64,
    /// Numbers of jobs, ascending.
    pub jobs: Vec<usize>,
}

/// A placement of all jobs, as the links on which they meet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidate {
    /// Links with two jobs or more.
    pub links: Vec<SharedLink>,
}

/// What becomes of a candidate in which jobs and links form a loop.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Loops {
    /// It is left out, as published.
    Discard,
    /// All links are looked at together.
    #[default]
    Solve,
}

/// What a candidate is worth, and when its jobs begin.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// Mean of the scores of its links with these shifts; 1 without shared links.
    pub score: f64,
    /// The score of each link.
    pub links: Vec<f64>,
    /// By how many seconds each job must be delayed.
    pub shifts: Vec<f64>,
    /// Whether some link could not have the shifts that are best for it alone.
    pub looped: bool,
}

/// Judges a candidate: each link on its own, then one shift for each job.
///
/// The graph of jobs and shared links is walked breadth first: `t_k = (t_j - t_j^l + t_k^l) mod T_k`. Without a loop
/// every link gets the shifts that are best for it. With one, walks disagree: the shifts of all jobs are then improved
/// together, from what the walk gives and from no shifts at all.
pub fn judge(
    profiles: &[Profile],
    candidate: &Candidate,
    settings: &CircleSettings,
) -> Result<Judged, Incommensurate> {
    let judged = judge_above(profiles, candidate, settings, f64::NEG_INFINITY)?;
    Ok(judged.expect("every score is above the least number"))
}

/// The same, or none as soon as the score cannot be above `floor`: together, links score no better than each alone.
fn judge_above(
    profiles: &[Profile],
    candidate: &Candidate,
    settings: &CircleSettings,
    floor: f64,
) -> Result<Option<Judged>, Incommensurate> {
    let members = |link: &SharedLink| link.jobs.iter().map(|job| &profiles[*job]).collect();
    let mut fits = Vec::with_capacity(candidate.links.len());
    for link in &candidate.links {
        let members: Vec<&Profile> = members(link);
        fits.push(fit_link(link.capacity, &members, settings)?);
    }
    let links: Vec<f64> = fits.iter().map(|fit| fit.score).collect();
    let score = mean(&links);
    if score <= floor {
        return Ok(None);
    }
    let (shifts, looped) = walk(profiles, candidate, &fits);
    if !looped {
        return Ok(Some(Judged { score, links, shifts, looped }));
    }
    let mut circles = Vec::with_capacity(candidate.links.len());
    for link in &candidate.links {
        let members: Vec<&Profile> = members(link);
        circles.push(Unified::new(link.capacity, &members, settings)?);
    }
    let joint = Joint { profiles, candidate, circles, settings };
    let walked = joint.improve(shifts);
    let together = joint.improve(vec![0.0; profiles.len()]);
    let (links, shifts) = if mean(&together.0) > mean(&walked.0) { together } else { walked };
    Ok(Some(Judged { score: mean(&links), links, shifts, looped }))
}

/// The candidate with the best score, of equal ones the first, and what it is worth.
///
/// A candidate with periods that do not meet is left out.
pub fn choose(
    profiles: &[Profile],
    candidates: &[Candidate],
    loops: Loops,
    settings: &CircleSettings,
) -> Option<(usize, Judged)> {
    let mut best: Option<(usize, Judged)> = None;
    for (at, candidate) in candidates.iter().enumerate() {
        if loops == Loops::Discard && has_loop(profiles.len(), candidate) {
            continue;
        }
        let floor = best.as_ref().map_or(f64::NEG_INFINITY, |(_, known)| known.score);
        let judged = judge_above(profiles, candidate, settings, floor);
        if let Ok(Some(judged)) = judged
            && judged.score > floor
        {
            best = Some((at, judged));
        }
    }
    best
}

/// Whether some job can be come to in two ways.
pub fn has_loop(jobs: usize, candidate: &Candidate) -> bool {
    // Sets of jobs that are joined so far, each known by its least.
    let mut root: Vec<usize> = (0..jobs).collect();
    fn find(root: &mut [usize], job: usize) -> usize {
        let mut at = job;
        while root[at] != at {
            root[at] = root[root[at]];
            at = root[at];
        }
        at
    }
    for link in &candidate.links {
        for pair in link.jobs.windows(2) {
            let (a, b) = (find(&mut root, link.jobs[0]), find(&mut root, pair[1]));
            if a == b {
                return true;
            }
            root[a.max(b)] = a.min(b);
        }
    }
    false
}

fn mean(scores: &[f64]) -> f64 {
    if scores.is_empty() { 1.0 } else { scores.iter().sum::<f64>() / scores.len() as f64 }
}

/// Shifts by a walk from the least job of each component, and whether there is a loop.
fn walk(profiles: &[Profile], candidate: &Candidate, fits: &[LinkFit]) -> (Vec<f64>, bool) {
    let mut links_of = vec![Vec::new(); profiles.len()];
    for (number, link) in candidate.links.iter().enumerate() {
        link.jobs.iter().enumerate().for_each(|(at, job)| links_of[*job].push((number, at)));
    }
    let mut shifts: Vec<Option<f64>> = vec![None; profiles.len()];
    let mut seen = vec![false; candidate.links.len()];
    for root in 0..profiles.len() {
        if shifts[root].is_some() {
            continue;
        }
        shifts[root] = Some(0.0);
        let mut queue = VecDeque::from([root]);
        while let Some(job) = queue.pop_front() {
            for (number, at) in &links_of[job] {
                if std::mem::replace(&mut seen[*number], true) {
                    continue;
                }
                let own = shifts[job].expect("a job in the queue has a shift")
                    - fits[*number].shifts[*at];
                for (other, shift) in
                    candidate.links[*number].jobs.iter().zip(&fits[*number].shifts)
                {
                    if shifts[*other].is_none() {
                        shifts[*other] =
                            Some(within(own + shift, profiles[*other].period().as_secs_f64()));
                        queue.push_back(*other);
                    }
                }
            }
        }
    }
    let shifts = shifts.into_iter().map(|shift| shift.expect("every job is a root or below one"));
    (shifts.collect(), has_loop(profiles.len(), candidate))
}

fn within(seconds: f64, period: f64) -> f64 {
    let rest = seconds - libm::floor(seconds / period) * period;
    if rest >= period { 0.0 } else { rest }
}

/// All links of a candidate together.
struct Joint<'a> {
    profiles: &'a [Profile],
    candidate: &'a Candidate,
    circles: Vec<Unified>,
    settings: &'a CircleSettings,
}

impl Joint<'_> {
    /// Scores of the links with these shifts.
    fn scores(&self, shifts: &[f64]) -> Vec<f64> {
        let links = self.candidate.links.iter().zip(&self.circles);
        let scores = links.map(|(link, circle)| {
            let slots: Vec<usize> = (link.jobs.iter().enumerate())
                .map(|(at, job)| circle.slot_of(at, shifts[*job]))
                .collect();
            circle.score(circle.excess_with(&circle.sum(&slots, 0), 0, slots[0]))
        });
        scores.collect()
    }

    /// Moves one job at a time to where the links that it meets others on have the greatest sum of scores, until no job
    /// that meets one that moved has a better place.
    fn improve(&self, mut shifts: Vec<f64>) -> (Vec<f64>, Vec<f64>) {
        let mut stale = vec![true; shifts.len()];
        for _ in 0..self.settings.sweeps_max {
            for job in 0..shifts.len() {
                if std::mem::take(&mut stale[job]) && self.move_job(job, &mut shifts) {
                    let met = self.candidate.links.iter();
                    let met = met.filter(|link| link.jobs.binary_search(&job).is_ok());
                    for other in met.flat_map(|link| &link.jobs).filter(|other| **other != job) {
                        stale[*other] = true;
                    }
                }
            }
            if !stale.contains(&true) {
                break;
            }
        }
        (self.scores(&shifts), shifts)
    }

    /// Whether it moved.
    fn move_job(&self, job: usize, shifts: &mut [f64]) -> bool {
        let mut met = Vec::new();
        for (link, circle) in self.candidate.links.iter().zip(&self.circles) {
            let Ok(own) = link.jobs.binary_search(&job) else { continue };
            let slots: Vec<usize> = (link.jobs.iter().enumerate())
                .map(|(at, job)| circle.slot_of(at, shifts[*job]))
                .collect();
            met.push((circle, own, circle.sum(&slots, own)));
        }
        let value = |seconds: f64| -> f64 {
            let scores = met.iter().map(|(circle, own, others)| {
                circle.score(circle.excess_with(others, *own, circle.slot_of(*own, seconds)))
            });
            scores.sum()
        };
        let period = self.profiles[job].period().as_secs_f64();
        let mut best = (value(shifts[job]), shifts[job]);
        for angle in 0..self.settings.angles {
            let seconds = period * angle as f64 / self.settings.angles as f64;
            let value = value(seconds);
            if value > best.0 + 1e-9 {
                best = (value, seconds);
            }
        }
        let moved = best.1 != shifts[job];
        shifts[job] = best.1;
        moved
    }
}
