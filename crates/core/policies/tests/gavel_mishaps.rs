//! Numbers that make no sense, and solvers that fail: every job is still served, and it is counted.

#[path = "gavel/drawn.rs"]
mod drawn;

use drawn::Drawn;
use std::sync::Arc;
use trainyard_framework::{Menu, Needs, Pipeline, RoundSettings, Rounds};
use trainyard_policies::compose::Selection;
use trainyard_policies::gavel::engine::{Engine, Method};
use trainyard_policies::gavel::max_min::MaxMin;
use trainyard_policies::gavel::optimiser::Optimiser;
use trainyard_policies::gavel::problem::Problem;
use trainyard_policies::place::FewestNodes;
use trainyard_sim::{Options, Outcome, Quiet, simulate};
use trainyard_solver::{Limit, Model, Simplex, Solution, Solve, SolverError, Status};
use trainyard_types::{Cluster, Job, JobId, Quality, Span, Tenant, TenantId, Tenants, Time, Work};
use trainyard_workload::{TraceJob, Workload};

/// A solver that works so many times, and then ends as it is told.
struct Tired {
    works: u32,
    then: Option<Status>,
}

impl Solve for Tired {
    fn solve(&mut self, model: &Model, limit: &Limit) -> Result<Solution, SolverError> {
        if self.works > 0 {
            self.works -= 1;
            return Simplex::default().solve(model, &Limit { steps: 1_000_000, ..*limit });
        }
        match self.then {
            None => Err(SolverError::Numerical { engine: "a tired one", why: "tired".to_owned() }),
            Some(status) => Ok(Solution {
                status,
                values: Vec::new(),
                objective: f64::NAN,
                prices: Vec::new(),
                steps: 0,
            }),
        }
    }
}

fn tired(works: u32, then: Option<Status>) -> Optimiser<MaxMin> {
    let engine = Engine::with(Method::Simplex, Box::new(Tired { works, then }));
    Optimiser::new(MaxMin, engine, Menu::default())
}

fn usual() -> Optimiser<MaxMin> {
    let engine = Engine::new(Method::Structured).expect("always there");
    Optimiser::new(MaxMin, engine, Menu::default())
}

fn answer(optimiser: &mut Optimiser<MaxMin>, drawn: &Drawn) -> (Vec<f64>, Quality) {
    let table = drawn.table();
    optimiser.answer(&Problem::new(&table, drawn.facts()))
}

#[test]
fn a_job_that_runs_nowhere_takes_no_part() {
    let with = Drawn::of(&[2, 2], &[&[1.0, 2.0], &[0.0, 0.0], &[1.0, 3.0], &[1.0, 1.0]]);
    let without = Drawn::of(&[2, 2], &[&[1.0, 2.0], &[1.0, 3.0], &[1.0, 1.0]]);
    let (with, quality) = answer(&mut usual(), &with);
    let (without, _) = answer(&mut usual(), &without);
    assert_eq!(quality, Quality::Proven);
    assert_eq!(with[2..4], [0.0, 0.0]);
    assert_eq!([&with[..2], &with[4..]].concat(), without);
}

#[test]
fn nobody_at_all_is_no_problem() {
    let (shares, quality) = answer(&mut usual(), &Drawn::of(&[2], &[&[0.0], &[0.0]]));
    assert_eq!((shares, quality), (vec![0.0, 0.0], Quality::Proven));
}

#[test]
fn a_rate_that_is_no_number_counts_as_none_and_is_told() {
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        let (shares, quality) =
            answer(&mut usual(), &Drawn::of(&[1, 1], &[&[bad, 1.0], &[1.0, 1.0]]));
        assert_eq!(quality, Quality::Fallback, "{bad} is counted");
        assert_eq!(shares[0], 0.0, "nothing where the rate is {bad}");
        assert!(shares[1] > 0.4, "its share elsewhere is {}", shares[1]);
    }
}

#[test]
fn a_weight_that_makes_no_sense_counts_as_one_and_is_told() {
    for bad in [f64::NAN, 0.0, -2.0, f64::INFINITY] {
        let mut drawn = Drawn::of(&[1], &[&[1.0], &[1.0]]);
        drawn.jobs[0].1 = bad;
        let (shares, quality) = answer(&mut usual(), &drawn);
        assert_eq!(quality, Quality::Fallback, "{bad} is counted");
        assert!((shares[0] - 0.5).abs() < 1e-6, "a share of {}", shares[0]);
    }
}

#[test]
fn after_a_failure_everyone_keeps_its_share_and_newcomers_have_their_own_part() {
    let ends = [None, Some(Status::OutOfLimit), Some(Status::Infeasible), Some(Status::Unbounded)];
    for then in ends {
        let mut optimiser = tired(1, then);
        let two = Drawn::of(&[1, 1], &[&[1.0, 4.0], &[1.0, 1.0]]);
        let (before, quality) = answer(&mut optimiser, &two);
        assert_eq!(quality, Quality::Proven);
        let three = Drawn::of(&[1, 1], &[&[1.0, 4.0], &[1.0, 1.0], &[1.0, 1.0]]);
        let (after, quality) = answer(&mut optimiser, &three);
        assert_eq!(quality, Quality::Fallback, "{then:?} is counted");
        for kind in 0..2 {
            let used: f64 = (0..3).map(|job| after[job * 2 + kind]).sum();
            assert!(used <= 1.0 + 1e-9, "{used} of one GPU");
        }
        assert!(after[4] > 0.1 && after[5] > 0.1, "the newcomer has {:?}", &after[4..]);
        let part = |kind: usize| after[kind] / before[kind];
        assert!((0.5..=1.0).contains(&part(1)), "the first keeps {} of its share", part(1));
    }
}

#[test]
fn a_solver_that_never_works_leaves_everyone_its_own_part() {
    let (shares, quality) =
        answer(&mut tired(0, None), &Drawn::of(&[2], &[&[1.0], &[1.0], &[1.0], &[1.0]]));
    assert_eq!(quality, Quality::Fallback);
    assert!(shares.iter().all(|share| (share - 0.5).abs() < 1e-9), "{shares:?}");
}

fn workload(jobs: u32, tenants: Tenants) -> Workload {
    let mut workload = Workload::empty("mishaps");
    workload.tenants = tenants;
    for id in 0..jobs {
        let mut job = Job::simple(JobId(id), Time::from_secs_f64(f64::from(id) * 100.0), 1);
        job.tenant = TenantId(id % workload.tenants.len() as u32);
        workload.jobs.push(TraceJob::new(Arc::new(job), Work(1800.0)));
    }
    workload
}

fn run(pipeline: Pipeline, workload: &Workload) -> Outcome {
    let cluster = Arc::new(Cluster::uniform(1, 2, "v100"));
    let outcome = simulate(workload, &cluster, pipeline, &Options::default(), &mut Quiet);
    assert_eq!(outcome.stats.faults + outcome.stats.policy_panics, 0, "{:?}", outcome.stats);
    assert!(outcome.unfinished.is_empty(), "{:?} were left", outcome.unfinished);
    outcome
}

#[test]
fn a_whole_run_survives_a_solver_that_fails() {
    for works in [0, 3] {
        let rounds = Rounds::new(tired(works, None), RoundSettings::every(Span::secs(60)));
        let pipeline = Pipeline::new(rounds, FewestNodes, Needs { rates: true, ..Needs::ESTIMATE });
        let outcome = run(pipeline, &workload(8, Tenants::default()));
        assert!(outcome.stats.policy_errors > 0, "failures are counted");
    }
}

#[test]
fn a_tenant_without_weight_is_served_and_counted() {
    for weight in [0.0, f64::NAN, -1.0] {
        let tenants = Tenants::new(vec![
            Tenant { weight, ..Tenant::named("weightless") },
            Tenant::named("usual"),
        ]);
        let pipeline = Selection::policy("gavel-hierarchy").build().expect("a policy");
        let outcome = run(pipeline, &workload(6, tenants));
        assert!(outcome.stats.policy_errors > 0, "a weight of {weight} is counted");
    }
}
