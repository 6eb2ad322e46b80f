//! What became of each job, from looks one after the other.

use crate::seen::{SlurmJob, SlurmNode, SlurmSeen};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of one job over the time it was watched.
#[derive(Clone, Debug, PartialEq)]
pub struct Past {
    /// As it was seen last.
    pub job: SlurmJob,
    /// When it was first submitted; a requeue changes what Slurm says.
    pub submitted: i64,
    /// When it could first have started, as far as its user let it.
    pub eligible: Option<i64>,
    /// Its runs: when each began and ended; the last may go on.
    pub runs: Vec<(i64, Option<i64>)>,
    /// How it stands at the end of the watch.
    pub fate: Fate,
}

/// How a job stands at the end of the watch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It waits.
    Waits,
    /// It runs.
    Runs,
    /// It ran and ended at this time, well or not.
    Ended(i64),
    /// It went away without ever having run.
    NeverRan,
}

/// All that was watched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The first look.
    pub from: i64,
    /// The last look.
    pub to: i64,
    /// How many looks there were.
    pub looks: u32,
    /// How often Slurm did not answer.
    pub away: u32,
    /// The longest time between two looks.
    pub widest: i64,
    /// The jobs, by their number.
    pub jobs: BTreeMap<u32, Past>,
    /// The nodes, as seen last.
    pub nodes: BTreeMap<String, SlurmNode>,
    /// Nodes that were out of service at some look.
    pub out_at_times: BTreeSet<String>,
    /// Nodes that were in service at some look.
    pub in_at_times: BTreeSet<String>,
    /// Jobs that were gone before their end was seen; the look that missed them is taken for it.
    pub vanished: u32,
}

impl History {
    /// Takes note of a look that Slurm did not answer.
    pub fn add_away(&mut self) {
        self.away += 1;
    }

    /// Takes note of a look.
    pub fn add(&mut self, at: i64, seen: &SlurmSeen) {
        if self.looks == 0 {
            self.from = at;
        } else {
            self.widest = self.widest.max(at - self.to);
        }
        self.to = at;
        self.looks += 1;
        let present: BTreeSet<u32> = seen.jobs.iter().map(|job| job.id).collect();
        let gone: Vec<u32> = self.jobs.keys().filter(|id| !present.contains(id)).copied().collect();
        for id in gone {
            self.gone(at, id);
        }
        for job in &seen.jobs {
            match self.jobs.get_mut(&job.id) {
                Some(past) => past.update(at, job),
                None => drop(self.jobs.insert(job.id, Past::new(at, job))),
            }
        }
        for node in &seen.nodes {
            let set = match node.is_usable() {
                true => &mut self.in_at_times,
                false => &mut self.out_at_times,
            };
            set.insert(node.name.clone());
            self.nodes.insert(node.name.clone(), node.clone());
        }
    }

    /// A job that Slurm does not list any more is over.
    fn gone(&mut self, at: i64, id: u32) {
        let Some(past) = self.jobs.get_mut(&id) else { return };
        match past.fate {
            Fate::Runs => {
                past.close(at);
                past.fate = Fate::Ended(at);
                self.vanished += 1;
            }
            // A requeued job that was cancelled while it waited did run.
            Fate::Waits => {
                past.fate = match past.runs.last() {
                    Some((_, Some(end))) => Fate::Ended(*end),
                    _ => Fate::NeverRan,
                }
            }
            Fate::Ended(_) | Fate::NeverRan => {}
        }
    }
}

impl Past {
    fn new(at: i64, job: &SlurmJob) -> Past {
        let submitted = job.submitted.unwrap_or(at);
        let mut past = Past {
            job: job.clone(),
            submitted,
            eligible: job.eligible,
            runs: Vec::new(),
            fate: Fate::Waits,
        };
        past.update(at, job);
        past
    }

    fn update(&mut self, at: i64, job: &SlurmJob) {
        if self.runs.is_empty() {
            self.eligible = job.eligible;
        }
        // What a job holds is not told any more when it is over.
        let kept = |new: bool| if new { &self.job } else { job };
        let nodes = kept(job.nodes.is_empty()).nodes.clone();
        let held = kept(job.held.is_empty()).held.clone();
        match job.state.as_str() {
            "PENDING" => {
                if self.runs.last().is_some_and(|(_, end)| end.is_none()) {
                    self.close(job.submitted.unwrap_or(at));
                }
                self.fate = Fate::Waits;
            }
            "RUNNING" | "SUSPENDED" => {
                self.open(at, job.started.unwrap_or(at));
                self.fate = Fate::Runs;
            }
            _ => self.end(at, job),
        }
        self.job = SlurmJob { nodes, held, ..job.clone() };
    }

    /// A run that began at `started`: the one that goes on, or a new one.
    fn open(&mut self, at: i64, started: i64) {
        match self.runs.last() {
            Some((begin, None)) if *begin == started => {}
            Some((_, None)) => {
                self.close(started);
                self.runs.push((started, None));
            }
            _ => self.runs.push((started.min(at), None)),
        }
    }

    fn end(&mut self, at: i64, job: &SlurmJob) {
        if matches!(self.fate, Fate::Ended(_) | Fate::NeverRan) {
            return;
        }
        let ended = job.ended.unwrap_or(at).min(at);
        let ran = !job.nodes.is_empty() || self.runs.last().is_some_and(|(_, end)| end.is_none());
        if ran {
            self.open(at, job.started.unwrap_or(at));
            self.close(ended);
            self.fate = Fate::Ended(ended);
        } else {
            self.fate = match self.runs.last() {
                Some((_, Some(end))) => Fate::Ended(*end),
                _ => Fate::NeverRan,
            };
        }
    }

    fn close(&mut self, at: i64) {
        if let Some((begin, end @ None)) = self.runs.last_mut() {
            *end = Some(at.max(*begin));
        }
    }

    /// Seconds that it held its GPUs between two moments; a run that goes on counts to the second one.
    pub fn ran_between(&self, from: i64, to: i64) -> i64 {
        let part = |(begin, end): &(i64, Option<i64>)| {
            (end.unwrap_or(to).min(to) - (*begin).max(from)).max(0)
        };
        self.runs.iter().map(part).sum()
    }

    /// When it could first have started: its user submitted it, and nothing of its own held it back.
    pub fn ready(&self) -> i64 {
        self.eligible.map_or(self.submitted, |eligible| eligible.max(self.submitted))
    }
}

#[cfg(test)]
mod tests {
    use super::{Fate, History};
    use crate::seen::{SlurmJob, SlurmSeen};

    struct At(&'static str, i64, Option<i64>, Option<i64>);

    fn job(At(state, submitted, started, ended): &At) -> SlurmJob {
        let nodes = match started {
            Some(_) if *state != "PENDING" => vec!["n1".to_owned()],
            _ => Vec::new(),
        };
        SlurmJob {
            id: 1,
            state: (*state).to_owned(),
            submitted: Some(*submitted),
            eligible: Some(*submitted),
            started: *started,
            ended: *ended,
            nodes,
            ..SlurmJob::default()
        }
    }

    fn watched(looks: &[(i64, Option<At>)]) -> History {
        let mut history = History::default();
        for (at, look) in looks {
            let jobs = look.iter().map(job).collect();
            history.add(*at, &SlurmSeen { jobs, ..SlurmSeen::default() });
        }
        history
    }

    #[test]
    fn a_job_that_waits_runs_and_ends_is_followed() {
        let history = watched(&[
            (100, Some(At("PENDING", 90, Some(500), None))),
            (110, Some(At("RUNNING", 90, Some(105), Some(400)))),
            (120, Some(At("COMPLETED", 90, Some(105), Some(117)))),
            (130, None),
        ]);
        let past = &history.jobs[&1];
        assert_eq!((past.runs.as_slice(), past.fate), (&[(105, Some(117))][..], Fate::Ended(117)));
        assert_eq!((past.submitted, past.ran_between(110, 200)), (90, 7));
        assert_eq!((history.from, history.to, history.widest), (100, 130, 10));
    }

    #[test]
    fn a_requeued_job_keeps_its_first_submission_and_both_runs() {
        let history = watched(&[
            (100, Some(At("RUNNING", 80, Some(90), None))),
            (110, Some(At("PENDING", 104, None, None))),
            (120, Some(At("RUNNING", 104, Some(115), None))),
        ]);
        let past = &history.jobs[&1];
        assert_eq!(past.runs, [(90, Some(104)), (115, None)]);
        assert_eq!((past.submitted, past.fate, past.ready()), (80, Fate::Runs, 80));
        assert_eq!(past.ran_between(100, 120), 4 + 5);
    }

    #[test]
    fn a_requeue_between_two_looks_is_two_runs() {
        let history = watched(&[
            (100, Some(At("RUNNING", 80, Some(90), None))),
            (130, Some(At("RUNNING", 104, Some(115), None))),
        ]);
        assert_eq!(history.jobs[&1].runs, [(90, Some(115)), (115, None)]);
    }

    #[test]
    fn a_job_that_is_gone_while_it_ran_ended_by_then() {
        let history = watched(&[(100, Some(At("RUNNING", 80, Some(90), None))), (110, None)]);
        assert_eq!(history.jobs[&1].fate, Fate::Ended(110));
        assert_eq!(history.vanished, 1);
    }

    #[test]
    fn a_job_cancelled_while_it_waits_never_ran() {
        let history = watched(&[
            (100, Some(At("PENDING", 80, None, None))),
            (110, Some(At("CANCELLED", 80, None, Some(105)))),
        ]);
        assert_eq!(history.jobs[&1].fate, Fate::NeverRan);
        let history = watched(&[(100, Some(At("PENDING", 80, None, None))), (110, None)]);
        assert_eq!(history.jobs[&1].fate, Fate::NeverRan);
    }
}
