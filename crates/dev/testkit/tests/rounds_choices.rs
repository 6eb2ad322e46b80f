//! Choices of every sort become grants under both mechanisms, and bad input stops no other job.

use smallvec::smallvec;
use std::sync::Arc;
use trainyard_framework::{
    Choice, Cx, Needs, Offer, Pipeline, PolicyError, RateTable, RoundSettings, Rounds, Shares,
    TimeShare, View,
};
use trainyard_policies::place::FewestNodes;
use trainyard_profile::CostModel;
use trainyard_sim::{Observer, Options, Outcome, simulate};
use trainyard_types::{Action, Cluster, Job, JobId, Placement, Span, Time, Work};
use trainyard_workload::{TraceJob, Workload, cluster};

/// Changes the table, and says what to share.
struct Told<T, S> {
    table: T,
    shares: S,
}

impl<T, S> TimeShare for Told<T, S>
where
    T: FnMut(&mut RateTable) + Send,
    S: FnMut(&RateTable) -> Result<Shares, PolicyError> + Send,
{
    fn table(&mut self, view: &View<'_>, offer: &Offer<'_>) -> RateTable {
        let mut table = RateTable::singles(view, offer);
        (self.table)(&mut table);
        table
    }

    fn shares(
        &mut self,
        table: &RateTable,
        _view: &View<'_>,
        _cx: &mut Cx,
    ) -> Result<Shares, PolicyError> {
        (self.shares)(table)
    }
}

/// Where each job was first launched.
#[derive(Default)]
struct Launches(Vec<(Time, JobId, Placement)>);

impl Observer for Launches {
    fn action(&mut self, at: Time, action: &Action) {
        if let Action::Launch { job, allocation, .. } = action {
            self.0.push((at, *job, allocation.placement.clone()));
        }
    }
}

fn job(id: u32, gpus: u32) -> Job {
    Job::simple(JobId(id), Time::ZERO, gpus)
}

fn alone(job: u32, uses: &[(u16, u32)]) -> Choice {
    Choice {
        jobs: smallvec![JobId(job)],
        uses: uses.iter().copied().collect(),
        nodes_max: 0,
        rates: smallvec![1.0],
    }
}

/// Runs jobs of an hour under both mechanisms, one after the other.
fn both<T, S>(
    on: &str,
    jobs: &[Job],
    (table, shares): (T, S),
    mut check: impl FnMut(&Outcome, &Launches),
) where
    T: FnMut(&mut RateTable) + Send + Clone + 'static,
    S: FnMut(&RateTable) -> Result<Shares, PolicyError> + Send + Clone + 'static,
{
    for mut settings in [RoundSettings::default(), RoundSettings::gavel()] {
        settings.round = Span::secs(60);
        let told = Told { table: table.clone(), shares: shares.clone() };
        let pipeline = Pipeline::new(Rounds::new(told, settings), FewestNodes, Needs::NOTHING);
        let mut workload = Workload::empty("choices");
        workload.jobs = jobs.iter().cloned().map(|job| TraceJob::new(job, Work(3600.0))).collect();
        let (cluster, _): (Cluster, _) = cluster::parse(on).expect("a valid cluster");
        let mut options = Options { costs: CostModel::Free, ..Options::default() };
        options.setup.check_every = 1;
        let mut launches = Launches::default();
        let outcome = simulate(&workload, &Arc::new(cluster), pipeline, &options, &mut launches);
        assert_eq!(outcome.stats.policy_panics, 0);
        assert_eq!(outcome.stats.faults, 0, "{:?}", outcome.stats.fault_samples);
        check(&outcome, &launches);
    }
}

fn only(choice: Choice) -> impl FnMut(&mut RateTable) + Send + Clone {
    move |table| table.choices = vec![choice.clone()]
}

fn all(table: &RateTable) -> Result<Shares, PolicyError> {
    Ok(Shares::from(vec![1.0; table.choices.len()]))
}

#[test]
fn a_pair_shares_its_gpus_from_the_first_moment() {
    let pair = Choice {
        jobs: smallvec![JobId(0), JobId(1)],
        uses: smallvec![(0, 2)],
        nodes_max: 0,
        rates: smallvec![0.7, 0.7],
    };
    let add = move |table: &mut RateTable| {
        let known = table.jobs.len() == 2;
        table.choices.extend(known.then(|| pair.clone()));
    };
    // The pair is the last choice; alone no job has a share.
    let last = |table: &RateTable| {
        let mut shares = vec![0.0; table.choices.len()];
        *shares.last_mut().expect("a choice") = 1.0;
        Ok(Shares::from(shares))
    };
    for sizes in [[2, 2], [2, 1], [1, 2]] {
        let jobs = [job(0, sizes[0]), job(1, sizes[1])];
        both("1x2 v100", &jobs, (add.clone(), last), |outcome, launches| {
            assert_eq!(outcome.finished().count(), 2);
            let [(at, a, first), (also, b, second)] = &launches.0[..2] else { panic!() };
            assert_eq!((at, also), (&Time::ZERO, &Time::ZERO));
            assert!(a != b && first.overlaps(second), "{sizes:?}: {first} {second}");
        });
    }
}

#[test]
fn a_pair_that_the_optimiser_made_itself_runs_too() {
    let shares = |table: &RateTable| {
        let pair = Choice {
            jobs: smallvec![JobId(0), JobId(1)],
            uses: smallvec![(0, 1)],
            nodes_max: 0,
            rates: smallvec![0.7, 0.7],
        };
        let more = if table.jobs.len() == 2 { vec![(pair, 1.0)] } else { Vec::new() };
        let alone = if more.is_empty() { 1.0 } else { 0.0 };
        Ok(Shares { of: vec![alone; table.choices.len()], more })
    };
    both("1x1 v100", &[job(0, 1), job(1, 1)], (|_: &mut RateTable| {}, shares), |_, launches| {
        let at_once = launches.0.iter().filter(|(at, _, _)| *at == Time::ZERO).count();
        assert_eq!(at_once, 2);
    });
}

#[test]
fn a_job_may_span_two_types() {
    let across = alone(0, &[(0, 1), (1, 1)]);
    both("1x2 v100, 1x2 p100", &[job(0, 2)], (only(across), all), |outcome, launches| {
        assert_eq!(outcome.finished().count(), 1);
        assert_eq!(launches.0[0].2.to_string(), "n0[0] n1[0]");
    });
}

#[test]
fn another_size_is_a_choice_like_any_other() {
    let mut elastic = job(0, 4);
    (elastic.want.gpus_min, elastic.want.gpus_max) = (1, 4);
    both("1x4 v100", &[elastic], (only(alone(0, &[(0, 2)])), all), |_, launches| {
        assert_eq!(launches.0[0].2.gpus(), 2);
    });
}

#[test]
fn a_near_placement_is_near() {
    let mut near = alone(2, &[(0, 2)]);
    near.nodes_max = 1;
    let jobs = [job(0, 1), job(1, 1), job(2, 2)];
    let table = move |table: &mut RateTable| {
        for choice in &mut table.choices {
            if choice.jobs[0] == JobId(2) {
                *choice = near.clone();
            }
        }
    };
    both("2x2 v100", &jobs, (table, all), |outcome, launches| {
        assert_eq!(outcome.finished().count(), 3);
        let near = launches.0.iter().find(|(_, job, _)| *job == JobId(2)).expect("it ran");
        assert_eq!(near.2.nodes(), 1);
    });
}

#[test]
fn a_job_without_a_usable_speed_stops_nobody_else() {
    for bad in [f64::NAN, -1.0, f64::INFINITY, 0.0] {
        let table = move |table: &mut RateTable| {
            for choice in &mut table.choices {
                if choice.jobs[0] == JobId(1) {
                    choice.rates[0] = bad;
                }
            }
        };
        let shares = |table: &RateTable| {
            assert!(table.choices.iter().all(|choice| choice.rates.iter().all(|rate| *rate > 0.0)));
            all(table)
        };
        both("1x1 v100", &[job(0, 1), job(1, 1), job(2, 1)], (table, shares), |outcome, _| {
            assert_eq!(outcome.unfinished, [JobId(1)]);
            assert_eq!(outcome.stats.policy_errors, 0);
        });
    }
}

#[test]
fn an_optimiser_that_fails_keeps_its_last_shares_and_is_counted() {
    let mut late = job(2, 1);
    late.submitted = Time::ZERO + Span::secs(100);
    let jobs = [job(0, 1), job(1, 1), late];
    let shares = |table: &RateTable| match table.jobs.len() {
        2 => Ok(Shares::from(vec![1.0; table.choices.len()])),
        // A list of another length is an error as well.
        3 => Ok(Shares::from(vec![1.0])),
        _ => Err(PolicyError::Infeasible),
    };
    both("1x3 v100", &jobs, (|_: &mut RateTable| {}, shares), |outcome, launches| {
        assert_eq!(outcome.finished().count(), 3, "{:?}", outcome.stats);
        assert!(outcome.stats.policy_errors > 0);
        assert_eq!(outcome.stats.preemptions, 0, "a job that has a share keeps it");
        assert_eq!(launches.0.len(), 3);
    });
}

#[test]
fn an_optimiser_that_always_fails_serves_everyone_in_order() {
    let shares = |_: &RateTable| Err(PolicyError::Infeasible);
    let jobs = [job(0, 1), job(1, 1), job(2, 1)];
    both("1x1 v100", &jobs, (|_: &mut RateTable| {}, shares), |outcome, _| {
        assert_eq!(outcome.finished().count(), 3, "{:?}", outcome.stats);
        assert!(outcome.stats.policy_errors > 0);
    });
}
