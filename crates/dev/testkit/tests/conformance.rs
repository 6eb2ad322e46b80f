//! What every policy, placer and admission control of the registry must keep, whatever it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use trainyard_engine::{Engine, Trigger};
use trainyard_framework::Pipeline;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_policies::registry::{ADMISSION_CONTROLS, PLACERS, POLICIES};
use trainyard_profile::{Catalog, CostModel};
use trainyard_sim::{FailureModel, Observer, Options, Outcome, Quiet, Semantics, simulate};
use trainyard_testkit::forgetful::Forgetful;
use trainyard_types::{Cluster, End, GpuAt, JobId, Span, SuspendRule, TenantId};
use trainyard_workload::{Arrival, Spec, Workload, cluster, generate};

/// Each policy as it comes, under each placer, and behind admission controls.
fn selections() -> Vec<(String, Selection)> {
    let mut all = Vec::new();
    for policy in POLICIES {
        all.push((policy.name.to_owned(), Selection::policy(policy.name)));
    }
    for place in PLACERS {
        for policy in ["fifo", "srtf"] {
            let choice = Some(Choice::named(place.name));
            let selection = Selection { place: choice, ..Selection::policy(policy) };
            all.push((format!("{policy} with {}", place.name), selection));
        }
    }
    // A control may turn jobs away: see the tests of admission.
    let admit = vec![Choice::named("load"), Choice::named("quota")];
    all.push(("las behind controls".to_owned(), Selection { admit, ..Selection::policy("las") }));
    all
}

fn mixed_workload(seed: u64) -> (Workload, Arc<Cluster>) {
    let (cluster, _) = cluster::parse("3x8 v100, 2x4 a100").expect("a valid cluster");
    let spec = Spec {
        jobs: 120,
        seed,
        arrival: Arrival::Load(1.4),
        models: vec!["gavel-*".to_owned()],
        tenants: 4,
        tenant_skew: 1.0,
        deadline_share: 0.3,
        priority_share: 0.3,
        ..Spec::default()
    };
    let workload = generate(&spec, &Catalog::builtin(), &cluster).expect("a valid spec");
    (workload, Arc::new(cluster))
}

fn strict_options() -> Options {
    let mut options = Options::default();
    options.setup.check_every = 1;
    options
}

fn run(selection: &Selection, options: &Options, seed: u64) -> Outcome {
    run_pipeline(selection.build().expect("defaults build"), options, seed)
}

fn run_pipeline(pipeline: Pipeline, options: &Options, seed: u64) -> Outcome {
    let (workload, cluster) = mixed_workload(seed);
    simulate(&workload, &cluster, pipeline, options, &mut Quiet)
}

fn assert_sound(name: &str, outcome: &Outcome) {
    let stats = &outcome.stats;
    assert_eq!(stats.faults, 0, "{name} made faulty grants: {:?}", stats.fault_samples);
    assert_eq!(stats.policy_errors, 0, "{name} failed to decide");
    assert_eq!(stats.policy_panics, 0, "{name} panicked");
}

#[test]
fn every_policy_is_deterministic_and_never_faults_and_serves_everyone() {
    for (name, selection) in selections() {
        let first = run(&selection, &strict_options(), 1);
        assert_sound(&name, &first);
        assert!(first.unfinished.is_empty(), "{name} left {:?}", first.unfinished);
        assert!(first.jobs.iter().all(|job| job.end == End::Finished), "{name} lost a job");
        let second = run(&selection, &strict_options(), 1);
        assert_eq!(first.jobs, second.jobs, "{name} does not repeat itself");
        assert_eq!(first.stats, second.stats, "{name} does not repeat itself");
    }
}

#[test]
fn every_policy_survives_the_loss_of_nodes_and_of_single_gpus() {
    let options = Options {
        failures: Some(FailureModel {
            between: Span::secs(40_000),
            repair: Span::secs(3_000),
            gpus: Some(Span::secs(80_000)),
        }),
        ..strict_options()
    };
    for (name, selection) in selections() {
        let outcome = run(&selection, &options, 2);
        assert_sound(&name, &outcome);
        assert!(outcome.unfinished.is_empty(), "{name} left {:?}", outcome.unfinished);
    }
}

#[test]
fn every_policy_serves_everyone_where_jobs_are_put_aside_and_nodes_fail() {
    let mut options = strict_options();
    options.costs = CostModel::Flat { save: Span::secs(60), start: Span::secs(120) };
    options.setup.suspend = Some(SuspendRule { memory_mib: 64 << 10, away_max: Span::secs(1200) });
    options.failures = Some(FailureModel {
        between: Span::secs(80_000),
        repair: Span::secs(3_000),
        gpus: Some(Span::secs(160_000)),
    });
    let (mut suspends, mut resumes, mut dropped) = (0, 0, 0);
    for (name, selection) in selections() {
        let outcome = run(&selection, &options, 5);
        assert_sound(&name, &outcome);
        assert!(outcome.unfinished.is_empty(), "{name} left {:?}", outcome.unfinished);
        let again = run(&selection, &options, 5);
        assert_eq!(outcome.jobs, again.jobs, "{name} does not repeat itself");
        let stats = &outcome.stats;
        assert!(stats.resumes <= stats.suspends, "{name}: {stats:?}");
        suspends += stats.suspends;
        resumes += stats.resumes;
        dropped += stats.dropped;
    }
    // Most leave for good here: their GPUs are in use for longer than the twenty minutes that they wait. Where they wait as
    // long as it takes all of them come back: see `suspending.rs`.
    assert!(suspends > 1000 && resumes > 250 && dropped > 0, "{suspends} {resumes} {dropped}");
}

/// Looks at every moment whether GPUs are shared by jobs of tenants that are kept apart.
#[derive(Default)]
struct Apart {
    /// Pairs of jobs of one tenant that shared a GPU, and of two tenants that both allow it.
    own: u64,
    allowed: u64,
}

impl Observer for Apart {
    fn passed(&mut self, engine: &Engine) {
        let state = engine.state();
        let mut there: BTreeMap<GpuAt, Vec<(JobId, TenantId)>> = BTreeMap::new();
        for job in state.granted.iter() {
            let live = state.live(job).expect("granted jobs are live");
            let plan = live.state.planned.as_ref().expect("granted jobs have a plan");
            for gpu in plan.placement.each_gpu() {
                there.entry(gpu).or_default().push((job, live.spec.tenant));
            }
        }
        for jobs in there.values() {
            for (index, (one, tenant)) in jobs.iter().enumerate() {
                for (other, stranger) in &jobs[..index] {
                    let may = state.tenants.may_share(*tenant, *stranger);
                    assert!(may, "{one} of {tenant} shares a GPU with {other} of {stranger}");
                    let count = if tenant == stranger { &mut self.own } else { &mut self.allowed };
                    *count += 1;
                }
            }
        }
    }
}

#[test]
fn no_policy_puts_jobs_of_two_tenants_on_a_gpu_unless_both_allow_it() {
    let mut options = strict_options();
    options.setup.isolates_tenants = true;
    let (mut own, mut allowed) = (0, 0);
    for (name, selection) in selections() {
        let (mut workload, cluster) = mixed_workload(6);
        // Two of the tenants allow it, and a third of the jobs ask for parts of GPUs.
        let tenants: Vec<TenantId> = workload.tenants.iter().map(|(id, _)| id).collect();
        for tenant in tenants.iter().rev().take(2) {
            workload.tenants.set_shares_gpus(*tenant, true);
        }
        for (index, one) in workload.jobs.iter_mut().enumerate().filter(|(index, _)| index % 3 == 0)
        {
            let want = &mut Arc::make_mut(&mut one.job).want;
            (want.gpus, want.gpus_min, want.gpus_max) = (1, 1, 1);
            want.permille = [300, 500, 700][index % 9 / 3];
        }
        let mut seen = Apart::default();
        let pipeline = selection.build().expect("defaults build");
        let outcome = simulate(&workload, &cluster, pipeline, &options, &mut seen);
        assert_sound(&name, &outcome);
        assert!(outcome.unfinished.is_empty(), "{name} left {:?}", outcome.unfinished);
        own += seen.own;
        allowed += seen.allowed;
    }
    assert!(own > 1000 && allowed > 1000, "{own} of one tenant, {allowed} of two that allow it");
}

#[test]
fn every_policy_forgets_safely() {
    for (name, selection) in selections() {
        let mut pipeline = selection.build().expect("defaults build");
        pipeline.policy = Box::new(Forgetful { inner: pipeline.policy, every: 7 });
        let outcome = run_pipeline(pipeline, &strict_options(), 3);
        assert_sound(&name, &outcome);
        assert!(outcome.unfinished.is_empty(), "{name} left {:?}", outcome.unfinished);
    }
}

#[test]
fn every_policy_bears_wrong_estimates_and_slow_decisions() {
    let mut options = strict_options();
    options.estimate_error = 1.5;
    options.decision_cost.fixed = Span::secs(2);
    options.decision_cost.per_job = Span(10_000);
    for (name, selection) in selections() {
        let outcome = run(&selection, &options, 4);
        assert_sound(&name, &outcome);
        assert!(outcome.unfinished.is_empty(), "{name} left {:?}", outcome.unfinished);
    }
}

#[test]
fn every_policy_with_modes_bears_being_counted_anew() {
    let mut met = 0;
    for (name, mut selection) in selections() {
        selection.wish(Semantics::Pollux.wishes().iter().copied());
        if !selection.policy.settings.0.contains_key("mode") {
            continue;
        }
        met += 1;
        for trigger in [Trigger::Events, Trigger::Clock(Span::secs(60))] {
            let options = Options { trigger, ..strict_options() };
            let outcome = run(&selection, &options, 5);
            assert_sound(&name, &outcome);
            assert!(outcome.unfinished.is_empty(), "{name} left {:?}", outcome.unfinished);
        }
    }
    assert!(met >= 5, "only {met} policies have modes");
}

#[test]
fn every_entry_documents_exactly_the_settings_it_has() {
    fn check(name: &str, documented: &[(&str, &str)], defaults: &toml::Table) {
        let documented: Vec<&str> = documented.iter().map(|(key, _)| *key).collect();
        let mut listed = documented.clone();
        listed.sort_unstable();
        let mut real: Vec<&str> = defaults.keys().map(String::as_str).collect();
        real.sort_unstable();
        assert_eq!(listed, real, "{name} documents other settings than it has");
    }
    for entry in POLICIES {
        check(entry.name, entry.settings, &(entry.defaults)());
    }
    for entry in PLACERS {
        check(entry.name, entry.settings, &(entry.defaults)());
    }
    for entry in ADMISSION_CONTROLS {
        check(entry.name, entry.settings, &(entry.defaults)());
    }
}
