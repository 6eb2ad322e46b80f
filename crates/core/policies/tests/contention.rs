//! Jobs that share links: how long they take, and what a policy is told of it.

use std::sync::{Arc, Mutex};
use trainyard_framework::{Cx, Needs, Offer, Pipeline, Policy, PolicyError, View, wanted};
use trainyard_policies::compose::Selection;
use trainyard_policies::place::FewestNodes;
use trainyard_profile::{Catalog, CostModel, ModelProfile, ModelTraffic, Point};
use trainyard_sim::{Options, Outcome, Quiet, simulate};
use trainyard_types::{Cluster, Job, JobId, ModelId, NodeId, Placement, Rate, Tenants, Time, Work};
use trainyard_workload::{TraceJob, Workload, cluster};

/// Two steps a second on twelve GPUs of two nodes, half of each step spent on 100 Gbit/s.
fn half_network() -> Catalog {
    let points = [(8, 1), (12, 2), (16, 2)];
    let point = |(gpus, nodes)| Point { kind: "h100".to_owned(), gpus, nodes, rate: 2.0 };
    let bytes = 0.25 * 100e9 / 8.0 / (2.0 * 11.0 / 12.0);
    let mut catalog = Catalog::default();
    catalog.add(ModelProfile {
        points: points.into_iter().map(point).collect(),
        traffic: Some(ModelTraffic::gradients(bytes / 4.0)),
        ..ModelProfile::named("half", "a test")
    });
    catalog
}

/// Jobs by number of GPUs, arrival and steps.
fn workload(jobs: &[(u32, u64, f64)]) -> Workload {
    let jobs = jobs.iter().zip(0..).map(|((gpus, at, steps), id)| {
        let job = Job::simple(JobId(id), Time(at * 1_000_000), *gpus);
        TraceJob::new(Job { model: ModelId(1), ..job }, Work(*steps))
    });
    Workload {
        jobs: jobs.collect(),
        tenants: Tenants::default(),
        catalog: half_network(),
        ..Workload::empty("links")
    }
}

fn options() -> Options {
    Options { costs: CostModel::Free, estimate_error: 0.0, ..Options::default() }
}

fn ends(text: &str, jobs: &[(u32, u64, f64)]) -> Vec<f64> {
    let cluster = Arc::new(cluster::parse(text).unwrap().0);
    let pipeline = Selection::policy("fifo").build().unwrap();
    let outcome: Outcome = simulate(&workload(jobs), &cluster, pipeline, &options(), &mut Quiet);
    outcome.jobs.iter().map(|one| one.ended.as_secs_f64()).collect()
}

fn near(found: &[f64], expected: &[f64]) {
    let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-3;
    assert!(found.iter().zip(expected).all(close), "{found:?} instead of {expected:?}");
}

const ONE_RACK: &str = "3x8 h100 over leaf-spine 1 rack 100g";

#[test]
fn two_jobs_that_meet_on_a_nic_slow_each_other_while_both_run() {
    // The first has 40 of 100 steps done when the second comes. Both then take 0.75 s for a step, until the second is
    // over after 40 steps; the first does its last 20 alone.
    near(&ends(ONE_RACK, &[(12, 0, 100.0), (12, 20, 40.0)]), &[60.0, 50.0]);
    // The control: without links nothing of the sort happens.
    near(&ends("3x8 h100", &[(12, 0, 100.0), (12, 20, 40.0)]), &[50.0, 40.0]);
}

#[test]
fn jobs_on_links_of_their_own_do_not_meet() {
    near(
        &ends("4x8 h100 over leaf-spine 1 rack 100g", &[(16, 0, 100.0), (16, 20, 40.0)]),
        &[50.0, 40.0],
    );
}

#[test]
fn links_of_half_the_bandwidth_cost_what_communication_takes_longer() {
    // A step of 0.5 s, 0.25 of it on the network, becomes 0.75 s.
    near(&ends("3x8 h100 over leaf-spine 1 rack 50g", &[(12, 0, 100.0)]), &[75.0]);
    near(&ends("3x8 h100 over leaf-spine 1 rack 200g", &[(12, 0, 100.0)]), &[37.5]);
    // In one node the network does not matter.
    near(&ends("3x8 h100 over leaf-spine 1 rack 1g", &[(8, 0, 100.0)]), &[50.0]);
}

#[test]
fn a_gang_stays_in_a_rack_that_has_room() {
    // Each rack has two nodes; a job on one node of each leaves room for sixteen GPUs in the third rack alone.
    let text = "6x8 h100 over leaf-spine 3 racks 100g 4:1";
    let cluster = Arc::new(cluster::parse(text).unwrap().0);
    for place in ["fewest-nodes", "first-fit", "best-fit", "spread", "skew", "fgd", "buddy", "even"]
    {
        let mut selection = Selection::policy("fifo");
        selection.place = Some(trainyard_policies::compose::Choice::named(place));
        let seen: Seen = Arc::default();
        let jobs = [(8, 0, 1000.0), (8, 0, 1000.0), (8, 0, 1000.0), (16, 1, 100.0)];
        let mut watch = Watch { seen: Arc::clone(&seen) };
        simulate(&workload(&jobs), &cluster, selection.build().unwrap(), &options(), &mut watch);
        let places = seen.lock().unwrap();
        let gang: &Placement = &places[3];
        let racks: Vec<u16> = gang.masks().iter().map(|(n, _)| cluster.node(*n).rack).collect();
        assert!(racks.iter().all(|rack| *rack == racks[0]), "{place}: {gang}");
    }
}

type Seen = Arc<Mutex<Vec<Placement>>>;

/// Takes down where jobs are launched.
struct Watch {
    seen: Seen,
}

impl trainyard_sim::Observer for Watch {
    fn action(&mut self, _at: Time, action: &trainyard_types::Action) {
        if let trainyard_types::Action::Launch { allocation, .. } = action {
            self.seen.lock().unwrap().push(allocation.placement.clone());
        }
    }
}

/// First come, first served; asks how fast each job would run on nodes 1 and 2.
struct Prober {
    told: Arc<Mutex<Vec<(u32, f64)>>>,
}

impl Policy for Prober {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        for job in view.waiting() {
            let place = Placement::from_masks([(NodeId(1), 0xf0), (NodeId(2), 0xff)]);
            let Rate(rate) = view.rate_at(job, &place).expect("a known model");
            self.told.lock().unwrap().push((job.id().0, rate));
            offer.grant(&wanted(job));
        }
        Ok(())
    }
}

#[test]
fn a_policy_is_told_the_speed_beside_the_traffic_of_others() {
    let cluster: Arc<Cluster> = Arc::new(cluster::parse(ONE_RACK).unwrap().0);
    let told = Arc::default();
    let needs = Needs { rates: true, ..Needs::NOTHING };
    let pipeline = Pipeline::new(Prober { told: Arc::clone(&told) }, FewestNodes, needs);
    let jobs = workload(&[(12, 0, 100.0), (12, 20, 40.0)]);
    simulate(&jobs, &cluster, pipeline, &options(), &mut Quiet);
    let told: Vec<(u32, f64)> = told.lock().unwrap().clone();
    // The first is alone, the second meets it on node 1.
    assert_eq!(told.len(), 2);
    assert!((told[0].1 - 2.0).abs() < 1e-9, "{told:?}");
    assert!((told[1].1 - 1.0 / 0.75).abs() < 1e-9, "{told:?}");
}
