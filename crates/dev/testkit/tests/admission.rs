//! Admission controls in front of every policy, and every policy through both hosts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use trainyard_framework::{Admission, Cx, Offer, Policy, PolicyError, View};
use trainyard_policies::compose::{Choice, Selection};
use trainyard_policies::registry::{ADMISSION_CONTROLS, POLICIES};
use trainyard_profile::Catalog;
use trainyard_sim::{Options, Outcome, Quiet, simulate};
use trainyard_testkit::hosts::{BothHosts, Trouble, troubled};
use trainyard_types::{Cluster, End, JobId, Span, Work};
use trainyard_workload::{Arrival, Spec, Workload, cluster, generate};

/// Jobs of four tenants, half of them with deadlines, some of which cannot be met.
fn workload(jobs: u32) -> (Workload, Arc<Cluster>) {
    let (cluster, _) = cluster::parse("2x8 v100, 2x4 a100").expect("a valid cluster");
    let spec = Spec {
        jobs,
        seed: 3,
        arrival: Arrival::Load(1.6),
        models: vec!["gavel-*".to_owned()],
        tenants: 4,
        tenant_skew: 1.0,
        deadline_share: 0.5,
        // A third of the deadlines are before the job could end on the fastest GPUs.
        deadline_slack: vec![0.2, 1.2, 10.0],
        ..Spec::default()
    };
    let workload = generate(&spec, &Catalog::builtin(), &cluster).expect("a valid spec");
    (workload, Arc::new(cluster))
}

/// Every policy as it comes, and those that turn jobs away in the form in which they do.
fn policies() -> Vec<Selection> {
    let mut all: Vec<Selection> =
        POLICIES.iter().map(|entry| Selection::policy(entry.name)).collect();
    for (name, key, value) in
        [("elasticflow", "admission", "reject"), ("genie", "hopeless", "drop")]
    {
        let mut strict = Selection::policy(name);
        strict.policy.settings.0.insert(key.to_owned(), value.into());
        all.push(strict);
    }
    all
}

fn run(selection: &Selection) -> Outcome {
    let (workload, cluster) = workload(60);
    let pipeline = selection.build().expect("settings build");
    simulate(&workload, &cluster, pipeline, &Options::default(), &mut Quiet)
}

fn behind(selection: &Selection, control: &str, setting: Option<(&str, f64)>) -> Selection {
    let mut choice = Choice::named(control);
    if let Some((key, value)) = setting {
        choice.settings.0.insert(key.to_owned(), value.into());
    }
    Selection { admit: vec![choice], ..selection.clone() }
}

#[test]
fn a_control_that_passes_every_job_changes_nothing_for_any_policy() {
    for selection in policies() {
        let name = &selection.policy.name;
        let (alone, controlled) =
            (run(&selection), run(&behind(&selection, "load", Some(("load", 1e6)))));
        assert_eq!(alone.jobs, controlled.jobs, "{name}");
        assert_eq!(alone.stats, controlled.stats, "{name}");
    }
}

#[test]
fn every_policy_serves_or_rejects_every_job_behind_every_control() {
    for control in ADMISSION_CONTROLS {
        for selection in policies() {
            let outcome = run(&behind(&selection, control.name, None));
            let name = format!("{} behind {}", selection.policy.name, control.name);
            assert!(outcome.unfinished.is_empty(), "{name} left {:?}", outcome.unfinished);
            let of_no_kind =
                |end: &End| !matches!(end, End::Finished | End::Rejected | End::Pruned);
            let other = outcome.jobs.iter().map(|job| job.end).find(of_no_kind);
            assert_eq!(other, None, "{name}");
            assert_eq!(outcome.stats.policy_panics + outcome.stats.policy_errors, 0, "{name}");
        }
    }
}

#[test]
fn a_policy_that_rejects_a_job_is_asked_behind_a_control_too() {
    let mut strict = Selection::policy("elasticflow");
    strict.policy.settings.0.insert("admission".to_owned(), "reject".into());
    let rejected =
        |outcome: &Outcome| outcome.jobs.iter().filter(|job| job.end == End::Rejected).count();
    let alone = rejected(&run(&strict));
    assert!(alone > 0, "some deadlines cannot be met");
    let behind = rejected(&run(&behind(&strict, "load", Some(("load", 4.0)))));
    assert!(behind > 0, "{alone} of them alone");
}

#[test]
fn both_hosts_decide_alike_with_every_policy_whatever_goes_wrong() {
    let (workload, cluster) = workload(30);
    for (index, selection) in policies().into_iter().enumerate() {
        // Each policy is sound and in one trouble; the random runs join any policy with any.
        let in_trouble = Trouble::ALL[1 + index % (Trouble::ALL.len() - 1)];
        for trouble in [Trouble::None, in_trouble] {
            let build = || troubled(selection.build().expect("settings build"), trouble, 2);
            let mut hosts = BothHosts::new(&build, 40);
            let pipeline = selection.build().expect("settings build");
            simulate(&workload, &cluster, pipeline, &Options::default(), &mut hosts);
            assert!(hosts.compared > 0, "{}: {trouble:?}", selection.policy.name);
        }
    }
}

#[test]
fn both_hosts_decide_alike_behind_every_control() {
    let (workload, cluster) = workload(30);
    for (index, selection) in policies().into_iter().enumerate() {
        // Policies that turn jobs away themselves stand behind each control, all others behind one.
        let rejects = !selection.policy.settings.0.is_empty();
        for (number, control) in ADMISSION_CONTROLS.iter().enumerate() {
            if !rejects && number != index % ADMISSION_CONTROLS.len() {
                continue;
            }
            let selection = behind(&selection, control.name, None);
            let build = || selection.build().expect("settings build");
            let mut hosts = BothHosts::new(&build, 40);
            simulate(&workload, &cluster, build(), &Options::default(), &mut hosts);
            assert!(hosts.compared > 0, "{} behind {}", selection.policy.name, control.name);
        }
    }
}

/// Takes note of every job that a policy is asked about or shown.
struct Watched {
    inner: Box<dyn Policy>,
    seen: Arc<Mutex<BTreeSet<JobId>>>,
}

impl Policy for Watched {
    fn admit(&mut self, queue: &mut Admission<'_>, view: &View<'_>, cx: &mut Cx) {
        self.inner.admit(queue, view, cx);
    }

    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let changed = view.changed().iter().filter_map(|id| view.job(*id));
        let all = view.waiting().chain(view.granted()).chain(changed).map(|job| job.id());
        self.seen.lock().expect("no thread panicked").extend(all);
        self.inner.allocate(view, offer, cx)
    }

    fn forget(&mut self) {
        self.inner.forget();
    }
}

const FIRST_RUN: Span = Span::secs(600);

/// Behind first runs of ten minutes on eight GPUs, for jobs of up to four.
fn behind_first_runs(selection: &Selection) -> Selection {
    let mut choice = Choice::named("profiler");
    choice.settings.0.insert("time".to_owned(), "10m".into());
    choice.settings.0.insert("size_max".to_owned(), 4.into());
    Selection { admit: vec![choice], ..selection.clone() }
}

/// Jobs without deadlines, half of them shorter than a first run.
fn mixed() -> (Workload, Arc<Cluster>) {
    let (mut workload, cluster) = workload(40);
    for (index, job) in workload.jobs.iter_mut().enumerate() {
        Arc::make_mut(&mut job.job).value.clear();
        if index % 2 == 0 {
            job.work = Work(job.work.0 * 1e-3);
        }
    }
    (workload, cluster)
}

#[test]
fn a_job_that_ends_in_its_first_run_is_never_shown_to_any_policy_and_all_others_are() {
    let (workload, cluster) = mixed();
    let large: BTreeSet<JobId> =
        (workload.jobs.iter()).filter(|job| job.job.want.gpus > 4).map(|job| job.job.id).collect();
    for selection in POLICIES.iter().map(|entry| Selection::policy(entry.name)) {
        let name = &selection.policy.name;
        let mut pipeline = behind_first_runs(&selection).build().expect("settings build");
        let seen: Arc<Mutex<BTreeSet<JobId>>> = Arc::default();
        let inner = pipeline.policy;
        pipeline.policy = Box::new(Watched { inner, seen: Arc::clone(&seen) });
        let outcome = simulate(&workload, &cluster, pipeline, &Options::default(), &mut Quiet);
        assert!(outcome.unfinished.is_empty(), "{name} left {:?}", outcome.unfinished);
        assert_eq!(outcome.stats.faults, 0, "{name}: {:?}", outcome.stats.fault_samples);
        let seen = seen.lock().expect("no thread panicked");
        let mut short = 0;
        for job in &outcome.jobs {
            let is_short = job.ran < FIRST_RUN && !large.contains(&job.job);
            short += u32::from(is_short);
            // A job that ends in the very moment in which it would have been stopped is neither.
            if is_short || job.ran > FIRST_RUN + Span::secs(1) {
                assert_eq!(seen.contains(&job.job), !is_short, "{name}: {job:?}");
            }
        }
        assert!(
            short > 5 && (short as usize) < outcome.jobs.len() - 5,
            "{name}: {short} are short"
        );
    }
}

#[test]
fn both_hosts_decide_alike_about_first_runs_in_front_of_every_policy() {
    let (workload, cluster) = mixed();
    for entry in POLICIES {
        let selection = behind_first_runs(&Selection::policy(entry.name));
        let build = || troubled(selection.build().expect("settings build"), Trouble::None, 2);
        let mut hosts = BothHosts::new(&build, 40);
        let pipeline = selection.build().expect("settings build");
        simulate(&workload, &cluster, pipeline, &Options::default(), &mut hosts);
        assert!(hosts.compared > 0, "{}", entry.name);
    }
}
