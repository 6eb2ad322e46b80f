//! Host CPUs and memory that a policy gives: counted by the plan and in reality, changed without a restart, and never
//! less than the job wishes for.

use trainyard_framework::{
    Cx, GrantOutcome, Needs, Offer, Pipeline, Policy, PolicyError, View, wanted,
};
use trainyard_policies::place::FewestNodes;
use trainyard_testkit::host::Host;
use trainyard_types::{Action, Cluster, HostShare, Job, JobId, NodeId, Tenants, Time};

struct Giving(fn(&View<'_>, &mut Offer<'_>));

impl Policy for Giving {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        (self.0)(view, offer);
        Ok(())
    }
}

fn host_of(nodes: u32, give: fn(&View<'_>, &mut Offer<'_>)) -> Host {
    let mut cluster = Cluster::uniform(nodes, 4, "v100");
    for node in &mut cluster.nodes {
        (node.cpus, node.memory_mib) = (12, 4000);
    }
    Host::new(cluster, Tenants::default(), Pipeline::new(Giving(give), FewestNodes, Needs::NOTHING))
}

fn job(id: u32, gpus: u32) -> Job {
    Job::simple(JobId(id), Time::ZERO, gpus)
}

fn share(cpus: u32, memory_mib: u64) -> HostShare {
    HostShare { cpus, memory_mib }
}

/// What a job holds of the host of its nodes, for each GPU.
fn held(host: &Host, job: u32) -> Option<HostShare> {
    let live = host.engine.state().live(JobId(job))?;
    live.state.held.as_ref().map(|held| held.host_per_gpu)
}

/// What a policy asserts is a panic that the engine survives.
fn assert_sound(host: &Host) {
    let stats = host.engine.stats();
    assert_eq!((stats.faults, stats.policy_panics, stats.policy_errors), (0, 0, 0), "{stats:?}");
}

#[test]
fn a_share_that_is_granted_is_counted_by_the_plan_and_the_placer_goes_where_there_is_one() {
    let mut host = host_of(2, |view, offer| {
        for job in view.waiting() {
            offer.grant(&wanted(job).host(share(8, 1000)));
        }
    });
    (0..3).for_each(|id| drop(host.submit(0, job(id, 1))));
    // Twelve CPUs hold one share of eight on each node; the third job waits though six GPUs are free.
    assert_eq!((host.runs(0), host.runs(1), host.runs(2)), (true, true, false));
    let left = |node| host.engine.free().cpus_left(NodeId(node));
    assert_eq!((left(0), left(1)), (Some(4), Some(4)));
    assert_eq!(held(&host, 0), Some(share(8, 1000)));
}

#[test]
fn a_share_changes_without_a_restart_even_within_a_lease_and_only_as_far_as_there_is_room() {
    let mut host = host_of(1, |view, offer| {
        for job in view.waiting().filter(|job| job.id() < JobId(2)) {
            let mut grant = wanted(job).host(share(2, 500));
            grant.lease_until = Some(Time(1_000_000_000));
            offer.grant(&grant);
        }
        for job in view.granted() {
            let (many, few) = (share(10, 500), share(1, 500));
            // The first gives back and the second grows in one decision; none can have what no job gives back.
            assert!(!offer.set_host(job.id(), share(13, 500)));
            assert!(offer.set_host(job.id(), if job.id() == JobId(0) { few } else { many }));
        }
        assert!(!offer.set_host(JobId(99), share(1, 1)));
    });
    host.submit(0, job(0, 1));
    host.submit(1, job(1, 1));
    let actions = host.submit(2, job(2, 1));
    assert_eq!((held(&host, 0), held(&host, 1)), (Some(share(1, 500)), Some(share(10, 500))));
    let is_stop = |action: &Action| matches!(action, Action::Stop { .. });
    assert!(actions.iter().any(|action| matches!(action, Action::Adjust { .. })), "{actions:?}");
    assert!(!host.actions.iter().any(is_stop), "{:?}", host.actions);
    assert!(!host.runs(2));
    assert_sound(&host);
}

#[test]
fn a_grant_that_finds_no_room_leaves_a_job_what_it_has_by_then() {
    let mut host = host_of(1, |view, offer| {
        for job in view.waiting() {
            if job.id() == JobId(0) {
                offer.grant(&wanted(job).host(share(10, 1)));
                continue;
            }
            assert!(offer.set_host(JobId(0), share(1, 1)));
            assert_eq!(offer.grant(&wanted(job).host(share(9, 1))), GrantOutcome::Taken);
            let first = view.job(JobId(0)).expect("it is not over");
            assert_eq!(offer.grant(&wanted(first).host(share(12, 1))), GrantOutcome::NoRoom);
        }
    });
    host.submit(0, job(0, 1));
    host.submit(1, job(1, 1));
    assert_eq!((held(&host, 0), held(&host, 1)), (Some(share(1, 1)), Some(share(9, 1))));
    assert_sound(&host);
}

#[test]
fn nobody_gets_less_than_he_wishes_for() {
    let mut host = host_of(1, |view, offer| {
        for job in view.waiting() {
            assert_eq!(offer.grant(&wanted(job).host(share(1, 900))), GrantOutcome::Taken);
            assert!(offer.set_host(job.id(), share(2, 800)));
        }
    });
    let mut one = job(0, 2);
    (one.want.cpus_per_gpu, one.want.memory_mib_per_gpu) = (3, 700);
    host.submit(0, one);
    assert_eq!(held(&host, 0), Some(share(3, 800)));
    assert_eq!(host.engine.free().cpus_left(NodeId(0)), Some(6));
    assert_sound(&host);
}

#[test]
fn a_job_that_may_not_be_stopped_does_not_go_elsewhere_for_a_larger_share() {
    let mut host = host_of(2, |view, offer| {
        for job in view.granted().filter(|_| view.job(JobId(4)).is_some()) {
            assert_eq!(offer.grant(&wanted(job).host(share(11, 1))), GrantOutcome::NoRoom);
        }
        for job in view.waiting() {
            offer.grant(&wanted(job).host(share(2, 1)));
        }
    });
    // All four GPUs of the first node are taken, so that eleven CPUs are to be had on the second only.
    for id in 0..4 {
        host.submit(0, Job { preemptible: false, ..job(id, 1) });
    }
    host.submit(1, job(4, 1));
    assert!(host.runs(3));
    assert_sound(&host);
}

#[test]
fn a_launch_waits_for_the_host_of_a_job_that_still_saves() {
    let mut host = host_of(1, |view, offer| {
        if view.job(JobId(1)).is_some() {
            offer.leave_idle();
            offer.revoke(JobId(0));
        }
        for job in view.waiting() {
            let old = job.id() == JobId(0) && view.job(JobId(1)).is_some();
            if !old {
                offer.grant(&wanted(job).host(share(8, 1)));
            }
        }
    });
    host.submit(0, job(0, 1));
    host.obeys = false;
    let actions = host.submit(1, job(1, 1));
    let is_launch = |action: &Action| matches!(action, Action::Launch { .. });
    assert!(actions.iter().any(|action| matches!(action, Action::Stop { .. })), "{actions:?}");
    // Three other GPUs are free, eight of twelve CPUs are not.
    assert!(!actions.iter().any(is_launch), "{actions:?}");
}
