//! How long a job will be, as far as could be known at the time.

use std::collections::BTreeMap;
use trainyard_slurm::{Fate, History, Past};

/// Lengths of jobs that ended, with when they did, by user and name.
#[derive(Debug, Default)]
pub struct Lengths {
    named: BTreeMap<(String, String), Vec<(i64, i64)>>,
    users: BTreeMap<String, Vec<(i64, i64)>>,
    all: Vec<(i64, i64)>,
}

/// Where an expected length comes from.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// The median of the user's own jobs of that name, or else of all their jobs.
    OwnPast,
    /// The time limit.
    Limit,
    /// The median of all users' jobs.
    AllPast,
    /// As long again as it has run: nothing else is known.
    Again,
}

/// As many of a user's own jobs tell what the next is like.
const OWN_MIN: usize = 3;

impl Lengths {
    /// Those of a history.
    pub fn of(history: &History) -> Lengths {
        let mut lengths = Lengths::default();
        for past in history.jobs.values() {
            let Fate::Ended(ended) = past.fate else { continue };
            let one = (ended, past.ran_between(i64::MIN / 2, ended).max(1));
            let job = &past.job;
            let key = (job.user.clone(), job.name.clone());
            lengths.named.entry(key).or_default().push(one);
            lengths.users.entry(job.user.clone()).or_default().push(one);
            lengths.all.push(one);
        }
        lengths
    }

    /// The expected length of a job that has run for `elapsed` seconds, from what had ended by `known_at`.
    pub fn expected(&self, past: &Past, elapsed: i64, known_at: i64) -> (f64, Basis) {
        let job = &past.job;
        let median = |list: Option<&Vec<(i64, i64)>>, least: usize| {
            let known = list.into_iter().flatten();
            let known = known.filter(|(ended, length)| *ended <= known_at && *length > elapsed);
            let mut known: Vec<i64> = known.map(|(_, length)| *length).collect();
            known.sort_unstable();
            (known.len() >= least).then(|| known[known.len() / 2] as f64)
        };
        let key = (job.user.clone(), job.name.clone());
        let own = median(self.named.get(&key), OWN_MIN);
        let own = own.or_else(|| median(self.users.get(&job.user), OWN_MIN));
        let limit = job.time_limit.filter(|limit| *limit > elapsed).map(|limit| limit as f64);
        match (own, limit, median(Some(&self.all), 1)) {
            // No job runs longer than the limit.
            (Some(own), limit, _) => (own.min(limit.unwrap_or(f64::MAX)), Basis::OwnPast),
            (None, Some(limit), _) => (limit, Basis::Limit),
            (None, None, Some(all)) => (all, Basis::AllPast),
            (None, None, None) => ((2 * elapsed).max(600) as f64, Basis::Again),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Basis, Lengths};
    use trainyard_slurm::{History, SlurmJob, SlurmSeen};

    fn job(id: u32, (user, limit): (&str, Option<i64>), run: Option<(i64, i64)>) -> SlurmJob {
        SlurmJob {
            id,
            name: "train".to_owned(),
            user: user.to_owned(),
            state: if run.is_some() { "COMPLETED" } else { "PENDING" }.to_owned(),
            nodes: if run.is_some() { vec!["n1".to_owned()] } else { Vec::new() },
            submitted: Some(0),
            started: run.map(|run| run.0),
            ended: run.map(|run| run.1),
            time_limit: limit,
            ..SlurmJob::default()
        }
    }

    #[test]
    fn ones_own_past_tells_more_than_the_limit_and_the_limit_more_than_others() {
        let ended = |id, length| job(id, ("ana", None), Some((0, length)));
        let mut jobs = vec![ended(1, 100), ended(2, 200), ended(3, 300)];
        jobs.push(job(4, ("ana", Some(9000)), None));
        jobs.push(job(5, ("bo", Some(9000)), None));
        jobs.push(job(6, ("bo", None), None));
        let mut history = History::default();
        history.add(1000, &SlurmSeen { jobs, ..SlurmSeen::default() });
        let lengths = Lengths::of(&history);
        let expected = |id, elapsed, at| lengths.expected(&history.jobs[&id], elapsed, at);
        assert_eq!(expected(4, 0, 1000), (200.0, Basis::OwnPast));
        // Of three only two had ended by then; of those longer than it has run only one is left.
        assert_eq!(expected(4, 0, 250), (9000.0, Basis::Limit));
        assert_eq!(expected(5, 0, 1000), (9000.0, Basis::Limit));
        assert_eq!(expected(6, 0, 1000), (200.0, Basis::AllPast));
        assert_eq!(expected(6, 2000, 1000), (4000.0, Basis::Again));
    }
}
