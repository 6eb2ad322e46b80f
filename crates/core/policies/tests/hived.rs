//! HiveD: what virtual clusters are guaranteed, and the anomaly of quotas that count GPUs.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::sync::Arc;
use trainyard_policies::compose::Selection;
use trainyard_profile::CostModel;
use trainyard_sim::{Options, Quiet, simulate};
use trainyard_types::{Class, Cluster, Job, JobId, TenantId, Tenants, Time, Want, Work};
use trainyard_workload::{TraceJob, Workload, cluster};

/// Virtual clusters of the trace study's size (section 2 of the paper: 279 nodes of 8 GPUs, 11 of them), in nodes;
/// their sizes are ours.
const OWNED: [u32; 11] = [60, 45, 40, 30, 25, 20, 18, 14, 11, 9, 7];

/// Virtual clusters that own so many nodes, with a ceiling of as many GPUs for those that count GPUs alone.
fn machines(owned: &[u32], levels: &str) -> (Cluster, Tenants) {
    let nodes: u32 = owned.iter().sum();
    let mut text = format!(
        "[[nodes]]\ncount = {nodes}\ngpus = 8\nkind = \"v100\"\n[[cells]]\nkind = \"v100\"\nlevel = {levels}\n"
    );
    for (tenant, nodes) in owned.iter().enumerate() {
        let gpus = nodes * 8;
        text += &format!(
            "[[tenant]]\nname = \"vc{tenant}\"\nceiling = {gpus}\ncells = {{ node = {nodes} }}\n"
        );
    }
    cluster::parse(&text).expect("a cluster file")
}

const LEVELS: &str =
    r#"[{ name = "pair", gpus = 2 }, { name = "half", gpus = 4 }, { name = "node", gpus = 8 }]"#;

/// Jobs of each tenant that ask for about 0.9 of what it owns: odd tenants run gangs of whole nodes, even ones small
/// jobs, as in the study, where tenants differ most in that.
fn jobs(owned: &[u32], count: u32, seed: u64) -> Workload {
    let (cluster, tenants) = machines(owned, LEVELS);
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut below = |bound: u64| rng.next_u64() % bound;
    let mut jobs = Vec::new();
    for (tenant, nodes) in owned.iter().enumerate() {
        let large = tenant % 2 == 1;
        let mut at = 0;
        let mine = count * nodes / owned.iter().sum::<u32>() * if large { 1 } else { 4 };
        for _ in 0..mine.max(8) {
            let gpus = if large { 8 } else { [1, 1, 2, 4][below(4) as usize] };
            let minutes = 20 + below(100);
            at += minutes * 60_000 * u64::from(gpus) * 10 / 9 / u64::from(nodes * 8);
            let mut job = Job::simple(JobId(0), Time(at * 1_000), gpus);
            job.tenant = tenants.find(&format!("vc{tenant}")).expect("it owns nodes");
            job.class = Class::Guaranteed;
            job.want.nodes_max = 1;
            jobs.push((job, Work((minutes * 60) as f64)));
        }
    }
    jobs.sort_by_key(|(job, _)| job.submitted);
    let jobs = jobs.into_iter().zip(0..).map(|((job, work), id)| {
        let id = JobId(id);
        TraceJob::new(Job { id, ..job }, work)
    });
    assert!(cluster.cells.is_some());
    Workload { jobs: jobs.collect(), tenants, ..Workload::empty("virtual clusters") }
}

fn options() -> Options {
    Options { costs: CostModel::Free, estimate_error: 0.0, ..Options::default() }
}

/// Hours that the jobs of each tenant waited for their first start, together.
fn waited(workload: &Workload, cluster: &Arc<Cluster>, policy: &str, place: &str) -> Vec<f64> {
    let mut selection = Selection::policy(policy);
    if policy == "fifo" {
        selection.policy.settings.add("fill=backfill").expect("a setting of fifo");
    } else {
        selection.policy.settings.add(r#"settings=["fill=backfill"]"#).expect("its setting");
    }
    selection.place = Some(trainyard_policies::compose::Choice::named(place));
    let pipeline = selection.build().expect("they exist");
    let mut workload = workload.clone();
    if cluster.cells.is_some() {
        // Cells alone are what a tenant has there; a ceiling would bind its opportunistic jobs too.
        for tenant in 0..workload.tenants.len() {
            workload.tenants.set_ceiling(TenantId(tenant as u32), None);
        }
    }
    let workload = &workload;
    let outcome = simulate(workload, cluster, pipeline, &options(), &mut Quiet);
    let left: Vec<_> = outcome.unfinished.iter().map(|id| &workload.jobs[id.index()].job).collect();
    assert!(left.is_empty(), "{policy}: every job is served: {left:?}");
    assert_eq!(outcome.stats.faults, 0, "{:?}", outcome.stats.fault_samples);
    let mut hours = vec![0.0; workload.tenants.len()];
    for one in outcome.finished() {
        let job = &workload.jobs[one.job.index()].job;
        if job.class != Class::Opportunistic {
            let started = one.first_start.expect("a finished job has started");
            hours[job.tenant.index()] += started.since(job.submitted).as_secs_f64() / 3600.0;
        }
    }
    hours
}

/// A tenant's jobs alone on machines of its own.
fn alone(workload: &Workload, owned: &[u32], tenant: usize) -> f64 {
    let own: Vec<u32> = vec![owned[tenant]];
    let (cluster, _) = machines(&own, LEVELS);
    let cluster = Arc::new(Cluster { cells: None, ..cluster });
    let mine = workload.jobs.iter().filter(|one| one.job.tenant.index() == tenant);
    let jobs = mine
        .zip(0..)
        .map(|(one, id)| TraceJob::new(Job { id: JobId(id), ..Job::clone(&one.job) }, one.work));
    let tenants = workload.tenants.clone();
    let workload = Workload { jobs: jobs.collect(), tenants, ..Workload::empty("alone") };
    waited(&workload, &cluster, "fifo", "spread")[tenant]
}

/// Where GPUs are spread over nodes, as Kubernetes does by default, small jobs leave few nodes whole. A tenant of gangs
/// of whole nodes then waits, though it uses less than its quota: the sharing anomaly (section 2.2 of the paper). Tenants
/// of small jobs wait a little more or less than alone, by which of two nodes that look alike a job takes.
#[test]
fn quotas_make_tenants_wait_longer_than_on_machines_of_their_own_and_cells_none() {
    let workload = jobs(&OWNED, 2_400, 1);
    let (cluster, _) = machines(&OWNED, LEVELS);
    assert_eq!(cluster.gpus(), 2_232);
    let quotas = Arc::new(Cluster { cells: None, ..cluster.clone() });
    let cells = Arc::new(cluster);
    let packed = waited(&workload, &quotas, "fifo", "fewest-nodes");
    let spread = waited(&workload, &quotas, "fifo", "spread");
    let by_cells = waited(&workload, &cells, "hived", "spread");
    let mut anomalies = 0;
    for tenant in 0..OWNED.len() {
        let own = alone(&workload, &OWNED, tenant);
        let (packed, spread, cells) = (packed[tenant], spread[tenant], by_cells[tenant]);
        trainyard_testkit::say!(
            "vc{tenant}: {own:.2} h alone, by quotas {packed:.2} h packed and {spread:.2} h spread, {cells:.2} h in cells"
        );
        if tenant % 2 == 1 {
            assert!(cells <= own + 1e-6, "vc{tenant}: {cells} h in cells, {own} h alone");
            anomalies += u32::from(spread > own * 1.05 + 0.1);
        }
    }
    assert!(anomalies >= 2, "the control: quotas show the anomaly, {anomalies} tenants");
}

/// The safety of sharing: opportunistic jobs of all tenants change nothing for the gangs of whole nodes, which start when
/// they would on machines of their own.
#[test]
fn guaranteed_gangs_start_as_if_no_one_else_were_there() {
    let owned = [3, 2, 2, 3];
    for seed in 0..20 {
        let mut workload = jobs(&owned, 60, seed);
        for one in workload.jobs.iter_mut() {
            // Two of five are opportunistic and of any size.
            if (u64::from(one.job.id.0) * 7 + seed) % 5 < 2 {
                let job = Arc::make_mut(&mut one.job);
                job.class = Class::Opportunistic;
                job.want = Want::gpus(1 + job.id.0 % 20);
            }
        }
        let (cluster, _) = machines(&owned, LEVELS);
        let together = waited(&workload, &Arc::new(cluster), "hived", "buddy");
        let mut guaranteed = workload.clone();
        guaranteed.jobs.retain(|one| one.job.class != Class::Opportunistic);
        for (one, id) in guaranteed.jobs.iter_mut().zip(0..) {
            Arc::make_mut(&mut one.job).id = JobId(id);
        }
        assert!(workload.jobs.len() > guaranteed.jobs.len(), "some are opportunistic");
        for tenant in [1, 3] {
            let own = alone(&guaranteed, &owned, tenant);
            let found = together[tenant];
            assert!(
                (found - own).abs() < 1e-6,
                "seed {seed}, vc{tenant}: {found} h, {own} h alone"
            );
        }
    }
}

#[test]
fn any_policy_can_be_inside_and_bindings_are_found_again() {
    let owned = [2, 1, 1];
    let workload = jobs(&owned, 40, 5);
    let (cluster, _) = machines(&owned, LEVELS);
    let cluster = Arc::new(cluster);
    for inside in ["srtf", "las", "tiresias", "gavel", "pollux", "afs-l", "gandiva"] {
        let mut selection = Selection::policy("hived");
        selection.policy.settings.add(&format!("inside={inside}")).expect("a setting");
        let pipeline = selection.build().expect("it exists");
        let outcome = simulate(&workload, &cluster, pipeline, &options(), &mut Quiet);
        assert!(outcome.unfinished.is_empty(), "{inside}: {:?}", outcome.unfinished);
        assert_eq!(outcome.stats.faults, 0, "{inside}: {:?}", outcome.stats.fault_samples);
    }
    let mut wrong = Selection::policy("hived");
    wrong.policy.settings.add("inside=srtff").expect("a setting");
    let message = wrong.build().err().expect("no such policy").to_string();
    assert!(message.contains("did you mean `srtf`"), "{message}");
}
