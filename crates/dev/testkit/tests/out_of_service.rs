//! Why jobs wait where nodes are out of service: under every policy it is a matter of room, never of the job.

use trainyard_policies::compose::Selection;
use trainyard_policies::registry::POLICIES;
use trainyard_testkit::host::Host;
use trainyard_types::{Cluster, Event, Job, JobId, NodeId, Reason, Tenants, Time};

/// Two nodes of four GPUs under a policy, of which so many are drained before jobs of so many GPUs come.
fn reasons(policy: &str, drained: u32, gpus: u32) -> Vec<Vec<Reason>> {
    let pipeline = Selection::policy(policy).build().expect("defaults build");
    let mut host = Host::new(Cluster::uniform(2, 4, "v100"), Tenants::default(), pipeline);
    for node in 0..drained {
        host.at(0, Event::NodeDrained(NodeId(node)));
    }
    for id in 0..3 {
        host.submit(1, Job::simple(JobId(id), Time::ZERO, gpus));
    }
    host.until(1900);
    let waits = (0..3).filter(|id| !host.runs(*id));
    waits.map(|id| host.engine.explain(JobId(id)).expect("it is not over").reasons).collect()
}

/// Whether a reason sends a user to the job, though the job would run if its node were back.
fn blames_the_job(reason: &Reason) -> bool {
    matches!(reason, Reason::NeverFits { .. } | Reason::NoSpeed | Reason::Undecided)
}

#[test]
fn no_policy_blames_a_job_for_nodes_that_are_drained() {
    let mut wrong = Vec::new();
    for entry in POLICIES {
        // All of the cluster, and half of it for jobs of more than the other half.
        for (drained, gpus) in [(2, 1), (2, 4), (1, 6)] {
            for reasons in reasons(entry.name, drained, gpus) {
                if reasons.is_empty() || reasons.iter().any(blames_the_job) {
                    wrong.push(format!(
                        "{}: {drained} drained, {gpus} GPUs: {reasons:?}",
                        entry.name
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_job_that_is_larger_than_the_whole_cluster_is_still_called_that() {
    let pipeline = Selection::policy("gavel").build().expect("defaults build");
    let mut host = Host::new(Cluster::uniform(2, 4, "v100"), Tenants::default(), pipeline);
    host.at(0, Event::NodeDrained(NodeId(0)));
    host.submit(1, Job::simple(JobId(0), Time::ZERO, 9));
    host.until(10);
    let why = host.engine.explain(JobId(0)).map(|why| why.reasons);
    let never = |why: &Vec<Reason>| matches!(why[..], [Reason::NeverFits { .. }]);
    assert!(why.as_ref().is_none_or(never), "{why:?}");
}
