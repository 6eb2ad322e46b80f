//! Random clusters, jobs and mishaps: whatever comes, the invariants hold and nothing is lost.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::BTreeMap;
use std::sync::Arc;
use trainyard_engine::Engine;
use trainyard_framework::RawSettings;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_policies::registry::{PLACERS, POLICIES};
use trainyard_profile::{Catalog, CostModel};
use trainyard_sim::{Observer, Options, Quiet, simulate};
use trainyard_testkit::hosts::{BothHosts, Trouble, troubled};
use trainyard_types::{
    Allowed, Cluster, Event, GpuAt, GpuType, Job, JobId, NodeId, Span, SuspendRule, Tenant,
    TenantId, Tenants, Time, Window, WindowId, Work,
};
use trainyard_workload::{TraceJob, Workload};

/// So many cases from a seed; `TRAINYARD_TEST_CASES=8` draws eight times as many, `TRAINYARD_TEST_SEED=1` others.
fn draws(seed: u64, cases: u32) -> ProptestConfig {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let cases = cases * number("TRAINYARD_TEST_CASES").unwrap_or(1);
    let rng_seed =
        RngSeed::Fixed(seed + 1000 * u64::from(number("TRAINYARD_TEST_SEED").unwrap_or(0)));
    ProptestConfig { cases, rng_seed, ..ProptestConfig::default() }
}

#[derive(Clone, Debug)]
struct Case {
    cluster: Cluster,
    workload: Workload,
    options: Options,
    selection: Selection,
}

fn any_cluster() -> impl Strategy<Value = Cluster> {
    let nodes = prop::collection::vec((prop::sample::select(vec!["v100", "a100"]), 1u8..=8), 1..6);
    nodes.prop_map(|nodes| {
        let mut cluster = Cluster { pools: vec!["default".to_owned()], ..Cluster::default() };
        for (kind, gpus) in nodes {
            let kind = cluster.add_kind(kind);
            cluster.add_node(kind, gpus);
        }
        cluster
    })
}

/// Numbers out of which a job is made, small enough to shrink well.
type Seeds = (u32, u64, u32, u32, u8, u8, u16, u64);

fn any_job() -> impl Strategy<Value = Seeds> {
    (1u32..=6, 0u64..600, 1u32..=300, 0u32..3, 0u8..12, 0u8..4, 0u16..3, 0u64..400)
}

fn make_job(id: u32, seeds: Seeds) -> TraceJob {
    let (gpus, at, work, tenant, odd, kind, priority, extra) = seeds;
    let mut job = Job::simple(JobId(id), Time(at * 1_000_000), gpus);
    job.tenant = TenantId(tenant);
    job.priority = i32::from(priority);
    match odd {
        0 => job.preemptible = false,
        1 => job.min_run = Span::secs(extra),
        2 => job.not_before = Some(Time((at + extra) * 1_000_000)),
        3 => job.run_max = Some(Span::secs(extra + 1)),
        4 if id > 0 => job.after = vec![JobId(id / 2)],
        5 => {
            (job.want.gpus, job.want.gpus_min, job.want.gpus_max, job.want.permille) =
                (1, 1, 1, 400)
        }
        6 => job.want.nodes_max = 1,
        7 => job.want.gpus_max = gpus + 2,
        _ => {}
    }
    if kind == 0 {
        job.want.kinds.push(GpuType(0));
    }
    let fails_at = (odd == 8).then_some(Work(f64::from(work) / 2.0));
    TraceJob { fails_at, ..TraceJob::new(job, Work(f64::from(work))) }
}

fn any_workload() -> impl Strategy<Value = Workload> {
    prop::collection::vec(any_job(), 1..40).prop_map(|mut seeds| {
        seeds.sort_by_key(|seeds| seeds.1);
        let mut workload = Workload::empty("random");
        workload.catalog = Catalog::default();
        workload.tenants = Tenants::new(vec![
            Tenant { ceiling: Some(12), ..Tenant::named("all") },
            Tenant { parent: Some(TenantId(0)), ceiling: Some(7), ..Tenant::named("ann") },
            Tenant { parent: Some(TenantId(0)), ..Tenant::named("bob") },
        ]);
        let jobs = seeds.into_iter().enumerate();
        workload.jobs = jobs.map(|(id, seeds)| make_job(id as u32, seeds)).collect();
        workload
    })
}

fn any_mishaps() -> impl Strategy<Value = Vec<(u64, u8, u32, u64)>> {
    prop::collection::vec((0u64..2_000, 0u8..8, 0u32..40, 1u64..300), 0..8)
}

fn mishap(cluster: &Cluster, (at, what, which, length): (u64, u8, u32, u64)) -> Vec<(Time, Event)> {
    let node = NodeId(which % cluster.nodes.len() as u32);
    let gpu = GpuAt { node, gpu: (which / 7) as u8 % cluster.node(node).gpus };
    let (at, later) = (Time(at * 1_000_000), Time((at + length) * 1_000_000));
    match what {
        0 => vec![(at, Event::NodeLost(node)), (later, Event::NodeUp(node))],
        1 => vec![(at, Event::GpuLost(gpu)), (later, Event::GpuBack(gpu))],
        2 => vec![(at, Event::NodeDrained(node)), (later, Event::NodeUp(node))],
        3 => vec![(at, Event::Hold(JobId(which))), (later, Event::Release(JobId(which)))],
        4 => vec![(at, Event::Cancelled(JobId(which)))],
        5 => vec![(at, Event::Claimed(node, which % 5)), (later, Event::Claimed(node, 0))],
        6 => {
            let evict = length.is_multiple_of(2);
            vec![(at, Event::GpuQuarantined { gpu, evict }), (later, Event::GpuReturned(gpu))]
        }
        _ => vec![(at, Event::QuotaChanged(TenantId(0), Some(which % 16)))]
            .into_iter()
            .chain([(later, Event::QuotaChanged(TenantId(0), Some(12)))])
            .collect(),
    }
}

fn any_windows() -> impl Strategy<Value = Vec<(u64, bool, u32, u64)>> {
    prop::collection::vec((0u64..2_000, any::<bool>(), 0u32..40, 1u64..600), 1..5)
}

/// Maintenance of a node or two, or a reservation for the first tenant, that is told up to five minutes before it.
fn window(
    cluster: &Cluster,
    (at, reserved, which, length): (u64, bool, u32, u64),
) -> (Time, Event) {
    let nodes = cluster.nodes.len() as u32;
    let at = Time(at * 1_000_000);
    let from = at + Span::secs(u64::from(which) * 8);
    let allowed = Allowed { tenants: [TenantId(0)].into(), ..Allowed::default() };
    let window = Window {
        id: WindowId(which),
        nodes: vec![NodeId(which % nodes), NodeId((which / 3) % nodes)],
        from,
        until: from + Span::secs(length),
        reserved: reserved.then_some(allowed),
    };
    (at, Event::WindowSet(window))
}

/// Policies with a setting that makes them quite another one.
const FORMS: [(&str, &[&str]); 6] = [
    ("gandiva", &["form=sets"]),
    ("themis", &["form=lp"]),
    ("elasticflow", &["leftover=artifact"]),
    ("edf", &["size=largest"]),
    ("chronus", &["rules=authors"]),
    ("pollux", &["types=alike", "generations=5", "population=10"]),
];

fn in_form((policy, settings): (&str, &[&str])) -> Selection {
    let mut selection = Selection::policy(policy);
    selection.policy.settings = RawSettings::parse(settings.iter().copied()).expect("settings");
    selection
}

fn any_case() -> impl Strategy<Value = Case> {
    let policy = (0..POLICIES.len()).prop_map(|index| Selection::policy(POLICIES[index].name));
    let names = (policy, prop::option::of(0..PLACERS.len()));
    case(names.prop_map(|(policy, place)| Selection {
        place: place.map(|place| Choice::named(PLACERS[place].name)),
        ..policy
    }))
}

fn case(selection: impl Strategy<Value = Selection>) -> impl Strategy<Value = Case> {
    let world = (any_cluster(), any_workload(), any_mishaps());
    (world, selection, 0u64..4, 0u8..3).prop_map(
        |((cluster, workload, mishaps), selection, seed, costs)| {
            let mut options = Options { seed, ..Options::default() };
            options.setup.check_every = 1;
            options.setup.quarantine.period = Span::secs(500);
            // A job that states no memory is taken to need all of it, so that one of a node is put aside at a time.
            options.setup.suspend = (seed % 2 == 1)
                .then_some(SuspendRule { memory_mib: 4000, away_max: Span::secs(200) });
            options.costs = match costs {
                0 => CostModel::Free,
                1 => CostModel::Flat { save: Span::secs(3), start: Span::secs(7) },
                _ => CostModel::Profile,
            };
            options.injected =
                mishaps.into_iter().flat_map(|seeds| mishap(&cluster, seeds)).collect();
            Case { cluster, workload, options, selection }
        },
    )
}

/// Looks at what jobs hold, and takes note of the first that could not have been launched.
#[derive(Default)]
struct Launched(Option<String>);

impl Observer for Launched {
    fn passed(&mut self, engine: &Engine) {
        let (state, mut users) = (engine.state(), BTreeMap::<NodeId, JobId>::new());
        for (_, live) in state.jobs.iter() {
            let Some(held) = &live.state.held else { continue };
            let (job, placement) = (live.spec.id, &held.placement);
            let mut alone = true;
            for (node, _) in placement.masks() {
                alone &= users.insert(*node, job).is_none();
            }
            let rules = state.cluster.rules;
            let types = placement.config(&state.cluster).kinds.len();
            let mixed = rules.equal_per_node && types > 1;
            if mixed || !rules.keeps_parts(placement) || (rules.exclusive_nodes && !alone) {
                self.0.get_or_insert(format!("job {} has {placement}", job.0));
            }
        }
    }
}

fn holds(case: Case) -> Result<(), TestCaseError> {
    let cluster = Arc::new(case.cluster);
    let run = || {
        let pipeline = case.selection.build().expect("settings build");
        let mut launched = Launched::default();
        let outcome = simulate(&case.workload, &cluster, pipeline, &case.options, &mut launched);
        (outcome, launched.0)
    };
    let (first, bad) = run();
    prop_assert_eq!(bad, None);
    prop_assert_eq!(first.stats.faults, 0, "{:?}", first.stats.fault_samples);
    prop_assert_eq!(first.stats.policy_errors + first.stats.policy_panics, 0);
    prop_assert_eq!(first.jobs.len() + first.unfinished.len(), case.workload.jobs.len());
    prop_assert!(first.unfinished.is_empty(), "unfinished: {:?}", first.unfinished);
    for one in &first.jobs {
        let submitted = case.workload.jobs[one.job.index()].job.submitted;
        prop_assert!(one.ended >= submitted);
        prop_assert!(one.first_start.is_none_or(|start| start >= submitted));
    }
    let (second, _) = run();
    prop_assert_eq!(&first.jobs, &second.jobs);
    Ok(())
}

proptest! {
    #![proptest_config(draws(20, 375))]

    #[test]
    fn invariants_hold_and_nothing_is_lost_whatever_comes(case in any_case()) {
        holds(case)?;
    }
}

proptest! {
    #![proptest_config(draws(21, 375))]

    #[test]
    fn they_hold_in_other_forms_of_policies_too(case in case((0..FORMS.len()).prop_map(|form| in_form(FORMS[form])))) {
        holds(case)?;
    }
}

proptest! {
    #![proptest_config(draws(22, 150))]

    #[test]
    fn what_cannot_be_launched_is_never_granted_and_nobody_waits_for_ever(case in any_case(), rules in 1u8..4) {
        let mut case = case;
        case.cluster.rules.equal_per_node = rules & 1 != 0;
        case.cluster.rules.exclusive_nodes = rules & 2 != 0;
        holds(case)?;
    }
}

proptest! {
    #![proptest_config(draws(23, 175))]

    #[test]
    fn nobody_is_in_a_window_and_everyone_is_served_who_is_without_windows(
        (mut case, windows) in (any_case(), any_windows())
    ) {
        let pipeline = case.selection.build().expect("settings build");
        let cluster = Arc::new(case.cluster.clone());
        let without = simulate(&case.workload, &cluster, pipeline, &case.options, &mut Quiet);
        prop_assume!(without.unfinished.is_empty());
        case.options.injected.extend(windows.into_iter().map(|seeds| window(&cluster, seeds)));
        holds(case)?;
    }
}

proptest! {
    #![proptest_config(draws(24, 75))]

    #[test]
    fn a_host_that_waits_and_one_that_goes_on_decide_alike(
        (case, trouble) in (any_case(), prop::sample::select(Trouble::ALL.to_vec()))
    ) {
        let build = || troubled(case.selection.build().expect("settings build"), trouble, 3);
        let cluster = Arc::new(case.cluster.clone());
        let pipeline = case.selection.build().expect("settings build");
        let mut hosts = BothHosts::new(&build, 7);
        simulate(&case.workload, &cluster, pipeline, &case.options, &mut hosts);
    }
}
