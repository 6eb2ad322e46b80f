//! What the engine promises, whatever the policy.

use std::sync::Arc;
use trainyard_engine::{DecisionRequest, PolicyOutcome};
use trainyard_framework::{
    Cx, GrantOutcome, Needs, Offer, Pipeline, Policy, PolicyError, View, wanted,
};
use trainyard_policies::compose::Selection;
use trainyard_policies::place::FewestNodes;
use trainyard_testkit::host::Host;
use trainyard_types::{
    Action, Attempt, Cause, Cluster, End, Event, GpuAt, Grant, Job, JobId, NodeId, Phase,
    Placement, Reason, Shape, Share, Span, Tenant, TenantId, Tenants, Time, Why, Work,
};

fn host(policy: &str) -> Host {
    let pipeline = Selection::policy(policy).build().expect("defaults build");
    Host::new(Cluster::uniform(2, 4, "v100"), Tenants::default(), pipeline)
}

fn job(id: u32, gpus: u32) -> Job {
    Job::simple(JobId(id), Time::ZERO, gpus)
}

fn declared(id: u32, gpus: u32, seconds: f64) -> Job {
    Job { declared: Some(Work(seconds)), ..job(id, gpus) }
}

fn ends(actions: &[Action]) -> Vec<(u32, End)> {
    let ended = actions.iter().filter_map(|action| match action {
        Action::Ended { job, end, .. } => Some((job.0, *end)),
        _ => None,
    });
    ended.collect()
}

#[test]
fn a_gang_starts_whole_or_not_at_all() {
    let mut host = host("fifo");
    host.submit(0, job(0, 6));
    host.submit(1, job(1, 4));
    assert!(host.runs(0) && !host.runs(1));
    let reasons = host.engine.explain(JobId(1)).expect("known").reasons;
    assert_eq!(reasons, [Reason::NoRoom { need: 4, free: 2 }]);
    host.finish(2, 0);
    assert!(host.runs(1));
}

#[test]
fn a_late_message_of_an_old_attempt_changes_nothing() {
    let mut host = host("srtf");
    host.submit(0, declared(0, 8, 5000.0));
    host.submit(10, declared(1, 8, 10.0));
    assert!(host.runs(1) && !host.runs(0), "the shorter one takes over");
    host.finish(20, 1);
    assert_eq!(host.attempt(0), Attempt(2));
    host.at(21, Event::Finished { job: JobId(0), attempt: Attempt(1) });
    assert!(host.runs(0), "attempt 2 goes on");
    assert_eq!(host.engine.stats().stale_events, 1);
}

#[test]
fn a_lease_a_minimum_run_time_and_a_fixed_job_are_kept() {
    for guarded in [
        Job { preemptible: false, ..declared(0, 8, 5000.0) },
        Job { min_run: Span::secs(100), ..declared(0, 8, 5000.0) },
    ] {
        let mut host = host("srtf");
        host.submit(0, guarded);
        host.submit(10, declared(1, 8, 10.0));
        assert!(host.runs(0) && !host.runs(1));
        assert_eq!(host.engine.stats().preemptions, 0);
    }
}

#[test]
fn a_ceiling_holds_for_a_tenant_and_for_its_parent() {
    let tenants = Tenants::new(vec![
        Tenant { ceiling: Some(4), ..Tenant::named("lab") },
        Tenant { parent: Some(TenantId(0)), ceiling: Some(3), ..Tenant::named("ann") },
        Tenant { parent: Some(TenantId(0)), ..Tenant::named("bob") },
    ]);
    let pipeline = Selection::policy("fifo").build().expect("defaults build");
    let mut host = Host::new(Cluster::uniform(2, 4, "v100"), tenants, pipeline);
    let of = |id, gpus, tenant| Job { tenant: TenantId(tenant), ..job(id, gpus) };
    host.submit(0, of(0, 3, 1));
    host.submit(1, of(1, 2, 2));
    assert!(host.runs(0) && !host.runs(1), "lab may hold 4, not 5");
    let reasons = host.engine.explain(JobId(1)).expect("known").reasons;
    assert_eq!(reasons, [Reason::Quota { tenant: TenantId(0), ceiling: 4, used: 3 }]);
    host.finish(2, 0);
    assert!(host.runs(1));
    host.at(3, Event::QuotaChanged(TenantId(0), Some(8)));
    host.submit(4, of(2, 4, 1));
    assert!(!host.runs(2), "ann may hold 3");
}

#[test]
fn dependencies_start_times_and_holds_block_and_say_so() {
    let mut host = host("fifo");
    host.submit(0, job(0, 1));
    host.submit(0, Job { after: vec![JobId(0)], ..job(1, 1) });
    host.submit(0, Job { not_before: Some(Time(50_000_000)), ..job(2, 1) });
    host.submit(0, job(3, 1));
    host.at(1, Event::Hold(JobId(3)));
    assert!(!host.runs(1) && !host.runs(2) && !host.runs(3));
    let reason = |host: &Host, job| host.engine.explain(JobId(job)).expect("known").reasons;
    assert_eq!(reason(&host, 1), [Reason::After { job: JobId(0) }]);
    assert_eq!(reason(&host, 2), [Reason::NotBefore { time: Time(50_000_000) }]);
    assert_eq!(reason(&host, 3), [Reason::HeldByUser]);
    host.finish(10, 0);
    assert!(host.runs(1));
    host.until(60);
    assert!(host.runs(2));
    host.at(61, Event::Release(JobId(3)));
    assert!(host.runs(3));
}

#[test]
fn whoever_follows_a_job_that_fails_is_told_so() {
    let mut host = host("fifo");
    host.submit(0, Job { retries_max: 1, ..job(0, 1) });
    host.submit(0, Job { after: vec![JobId(0)], ..job(1, 1) });
    host.submit(0, Job { after: vec![JobId(1)], ..job(2, 1) });
    for second in [10, 200] {
        let attempt = host.attempt(0);
        host.at(
            second,
            Event::Failed { job: JobId(0), attempt, cause: Cause::Job, done: Work::ZERO },
        );
        host.until(second + 100);
    }
    assert_eq!(ends(&host.actions), [(0, End::Failed), (1, End::Orphaned), (2, End::Orphaned)]);
    let launches = host.actions.iter().filter(|action| matches!(action, Action::Launch { .. }));
    assert_eq!(launches.count(), 2, "once and one retry");
}

#[test]
fn a_time_limit_counts_all_attempts_together() {
    let mut host = host("srtf");
    host.submit(0, Job { run_max: Some(Span::secs(100)), ..declared(0, 8, 5000.0) });
    host.submit(60, declared(1, 8, 10.0));
    host.finish(70, 1);
    host.until(109);
    assert!(host.runs(0));
    host.until(110);
    assert_eq!(ends(&host.actions), [(1, End::Finished), (0, End::TimeLimit)]);
}

#[test]
fn time_without_gpus_does_not_count_towards_a_time_limit() {
    let mut host = host("srtf");
    host.submit(0, Job { run_max: Some(Span::secs(100)), ..declared(0, 8, 5000.0) });
    host.submit(60, declared(1, 8, 1000.0));
    host.until(1050);
    assert_eq!(ends(&host.actions), [], "it waits, and its limit is 40 s of running away");
    host.finish(1060, 1);
    host.until(1099);
    assert!(host.runs(0));
    host.until(1100);
    assert_eq!(ends(&host.actions), [(1, End::Finished), (0, End::TimeLimit)]);
}

#[test]
fn a_lost_node_takes_its_gangs_along_and_they_run_elsewhere() {
    let mut host = host("fifo");
    host.submit(0, job(0, 4));
    let actions = host.at(10, Event::NodeLost(NodeId(0)));
    let stop = Action::Stop { job: JobId(0), attempt: Attempt(1), why: Why::Machine };
    assert_eq!(actions[0], stop);
    assert!(host.runs(0), "it runs on the other node");
    host.at(20, Event::GpuLost(GpuAt { node: NodeId(1), gpu: 2 }));
    assert!(!host.runs(0), "three GPUs are not four");
    host.at(30, Event::NodeUp(NodeId(0)));
    assert!(host.runs(0));
}

#[test]
fn an_ill_gpu_is_left_alone_until_it_is_returned_and_its_node_is_not() {
    let mut host = host("fifo");
    let ill = GpuAt { node: NodeId(0), gpu: 0 };
    host.submit(0, job(0, 4));
    host.submit(0, job(1, 4));
    let actions = host.at(10, Event::GpuQuarantined { gpu: ill, evict: true });
    let stop = Action::Stop { job: JobId(0), attempt: Attempt(1), why: Why::Machine };
    assert_eq!(actions[0], stop);
    let failures = |host: &Host| host.engine.state().live(JobId(0)).map(|live| live.state.failures);
    assert_eq!(failures(&host), Some(0), "the job is not to blame");
    assert!(!host.runs(0) && host.runs(1), "the other node is full");
    assert_eq!(host.engine.free().up(NodeId(0)), 0b1110, "the other GPUs of the node work");
    for round in 0..4 {
        host.at(30 + round, Event::GpuQuarantined { gpu: ill, evict: true });
    }
    assert_eq!(host.engine.quarantined_until(NodeId(0)), None, "the node is not to blame");
    host.at(50, Event::NodeLost(NodeId(0)));
    host.at(60, Event::NodeUp(NodeId(0)));
    assert!(!host.runs(0), "a node that comes back does not heal its GPU");
    assert_eq!(host.engine.quarantined_gpus(NodeId(0)), 1);
    host.at(70, Event::GpuReturned(ill));
    assert!(host.runs(0), "it is returned");
}

#[test]
fn a_gpu_that_retires_keeps_the_job_on_it_and_takes_no_other() {
    let mut host = host("fifo");
    let ill = GpuAt { node: NodeId(0), gpu: 0 };
    host.submit(0, job(0, 4));
    host.at(10, Event::GpuQuarantined { gpu: ill, evict: false });
    assert!(host.runs(0), "what runs there goes on");
    host.at(20, Event::Cancelled(JobId(0)));
    host.submit(30, job(1, 8));
    assert!(!host.runs(1), "seven GPUs are not eight");
    host.at(40, Event::GpuReturned(ill));
    assert!(host.runs(1));
}

#[test]
fn a_job_that_stops_by_itself_does_not_begin_again_where_nothing_new_may_begin() {
    let ill = GpuAt { node: NodeId(0), gpu: 0 };
    for event in [Event::GpuQuarantined { gpu: ill, evict: false }, Event::NodeDrained(NodeId(0))] {
        let mut host = host("fifo");
        host.submit(0, job(0, 4));
        host.submit(0, job(1, 4));
        let name = format!("{event:?}");
        host.at(10, event);
        let attempt = Attempt(1);
        host.at(20, Event::Stopped { job: JobId(0), attempt, done: Work(5.0) });
        assert!(!host.runs(0), "{name}");
        host.at(30, Event::Cancelled(JobId(1)));
        assert!(host.runs(0), "on the other node: {name}");
    }
}

#[test]
fn a_job_that_is_sent_back_stops_though_a_decision_gives_it_the_same_place_again() {
    let mut host = host("fifo");
    host.submit(0, job(0, 8));
    let actions = host.at(10, Event::Requeue(JobId(0)));
    let stop = Action::Stop { job: JobId(0), attempt: Attempt(1), why: Why::Asked };
    assert!(actions.contains(&stop), "{actions:?}");
    assert_eq!(host.engine.attempt(JobId(0)), Some(Attempt(2)), "and it is started again");
}

#[test]
fn a_node_that_fails_often_is_left_alone_for_a_while() {
    let mut host = host("fifo");
    for round in 0..3 {
        host.at(round * 100, Event::NodeLost(NodeId(0)));
        host.at(round * 100 + 50, Event::NodeUp(NodeId(0)));
    }
    assert!(host.engine.quarantined_until(NodeId(0)).is_some());
    host.submit(300, job(0, 8));
    assert!(!host.runs(0), "half of the cluster is in quarantine");
    host.until(300 + 6 * 3600);
    assert!(host.runs(0), "the quarantine is over");
}

#[test]
fn a_cancelled_job_gives_its_gpus_back_and_never_runs_again() {
    let mut host = host("fifo");
    host.submit(0, job(0, 8));
    host.submit(1, job(1, 8));
    host.at(2, Event::Cancelled(JobId(0)));
    host.at(3, Event::Cancelled(JobId(0)));
    assert!(host.runs(1));
    assert_eq!(ends(&host.actions), [(0, End::Cancelled)]);
    host.submit(4, job(0, 8));
    assert_eq!(host.engine.end(JobId(0)), Some(End::Cancelled), "an id is used once");
}

#[test]
fn a_job_that_can_never_fit_is_refused_at_once() {
    let mut host = host("fifo");
    host.submit(0, job(0, 9));
    host.submit(0, job(1, 0));
    assert_eq!(ends(&host.actions), [(0, End::Rejected), (1, End::Rejected)]);
}

#[test]
fn a_launch_waits_until_the_gpus_are_really_free() {
    let mut host = host("srtf");
    host.submit(0, declared(0, 8, 5000.0));
    host.obeys = false;
    let actions = host.submit(10, declared(1, 8, 10.0));
    assert!(matches!(actions[..], [Action::Stop { .. }]), "{actions:?}");
    let explanation = host.engine.explain(JobId(1)).expect("known");
    assert_eq!(explanation.reasons, [Reason::Freeing { by: JobId(0) }]);
    host.obeys = true;
    let done = Work(9.0);
    host.at(15, Event::Stopped { job: JobId(0), attempt: Attempt(1), done });
    assert!(host.runs(1));
    assert_eq!(host.engine.state().live(JobId(0)).expect("live").state.phase, Phase::Waiting);
}

#[test]
fn shares_of_one_gpu_add_up_to_at_most_the_whole() {
    let pipeline = Selection::policy("fifo").build().expect("defaults build");
    let mut host = Host::new(Cluster::uniform(1, 1, "v100"), Tenants::default(), pipeline);
    let part = |id, permille| {
        let mut part = job(id, 1);
        part.want.permille = permille;
        part
    };
    host.submit(0, part(0, 600));
    host.submit(0, part(1, 300));
    host.submit(0, part(2, 200));
    assert_eq!([host.runs(0), host.runs(1), host.runs(2)], [true, true, false]);
    host.finish(1, 1);
    assert!(host.runs(2));
}

/// Grants whatever a test tells it to.
struct Nonsense(fn(&View<'_>, &mut Offer<'_>) -> Result<(), PolicyError>);

impl Policy for Nonsense {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        (self.0)(view, offer)
    }
}

fn nonsense(grants: fn(&View<'_>, &mut Offer<'_>) -> Result<(), PolicyError>) -> Host {
    let pipeline = Pipeline::new(Nonsense(grants), FewestNodes, Needs::NOTHING);
    Host::new(Cluster::uniform(2, 4, "v100"), Tenants::default(), pipeline)
}

#[test]
fn nonsense_is_dropped_and_counted_and_sense_is_kept() {
    let mut host = nonsense(|view, offer| {
        offer.grant(&Grant::gpus(JobId(77), 1));
        offer.wake_at(Time::ZERO);
        for job in view.waiting() {
            offer.grant(&Grant::gpus(job.id(), job.spec.want.gpus + 1));
            let beyond = Placement::on(NodeId(0), 1 << 40);
            offer.grant(&Grant { shape: Shape::Exact(beyond), ..Grant::gpus(job.id(), 1) });
            offer.grant(&wanted(job));
            offer.grant(&wanted(job));
        }
        Ok(())
    });
    host.submit(0, job(0, 1));
    assert!(host.runs(0));
    assert!(host.engine.stats().faults >= 4, "{:?}", host.engine.stats());
}

#[test]
fn the_same_gpu_is_never_granted_twice() {
    let mut host = nonsense(|view, offer| {
        for job in view.waiting() {
            let same = Placement::on(NodeId(0), 0b1);
            offer.grant(&Grant { shape: Shape::Exact(same), ..Grant::gpus(job.id(), 1) });
        }
        Ok(())
    });
    host.submit(0, job(0, 1));
    host.submit(0, job(1, 1));
    assert!(host.runs(0) && !host.runs(1));
}

#[test]
fn a_job_owns_one_gpu_and_shares_another_and_no_other_number_of_shares_is_taken() {
    let mut host = nonsense(|view, offer| {
        for job in view.waiting() {
            let gpus = job.spec.want.gpus;
            let place = Placement::on(NodeId(0), (1 << gpus) - 1);
            let mut grant = Grant { shape: Shape::Exact(place), ..Grant::gpus(job.id(), gpus) };
            grant.shares = [Share::Whole].into_iter().collect();
            if gpus > 1 {
                assert_eq!(offer.grant(&grant), GrantOutcome::Refused, "one share for two GPUs");
                grant.shares = [Share::Leftover, Share::Whole].into_iter().collect();
            }
            offer.grant(&grant);
        }
        Ok(())
    });
    host.submit(0, job(0, 1));
    host.submit(0, job(1, 2));
    assert!(host.runs(0) && host.runs(1), "the second lives on what the first leaves of its GPU");
    let held = host.engine.state().live(JobId(1)).expect("live").state.held.clone();
    let held = held.expect("it runs");
    assert_eq!((held.share(0), held.share(1)), (Share::Leftover, Share::Whole));
    assert_eq!(held.config(&host.engine.state().cluster).permille, 0);
    host.submit(0, job(2, 2));
    assert!(!host.runs(2), "the GPU that it owns has no second owner");
}

#[test]
fn nobody_is_preempted_for_nothing() {
    let mut host = nonsense(|view, offer| {
        offer.everything();
        for job in view.waiting() {
            offer.grant(&wanted(job));
        }
        Ok(())
    });
    host.submit(0, job(0, 2));
    host.submit(1, job(1, 2));
    assert!(host.runs(0), "the policy dropped it, but no other job needed its GPUs");
    host.submit(2, job(2, 8));
    assert!(host.runs(2) && !host.runs(0) && !host.runs(1));
}

#[test]
fn a_policy_that_fails_is_replaced_by_a_plain_order() {
    for broken in [
        (|_: &View<'_>, _: &mut Offer<'_>| Err(PolicyError::Infeasible))
            as fn(&View<'_>, &mut Offer<'_>) -> Result<(), PolicyError>,
        |view, offer| {
            if let Some(job) = view.waiting().next() {
                offer.grant(&wanted(job));
            }
            panic!("a policy with a bug");
        },
    ] {
        let mut host = nonsense(broken);
        host.submit(0, job(0, 4));
        host.until(100);
        assert!(host.runs(0), "the fallback order serves it");
        assert!(host.engine.stats().fallbacks > 0);
        host.submit(200, job(1, 4));
        host.until(300);
        assert!(host.runs(1));
    }
}

#[test]
fn several_members_of_one_grant_share_its_gpus() {
    let mut host = nonsense(|view, offer| {
        let mut jobs = view.waiting();
        if let (Some(a), Some(b)) = (jobs.next(), jobs.next()) {
            let mut grant = Grant::gpus(a.id(), 1).share(Share::Permille(500));
            grant
                .members
                .push(trainyard_types::Member { job: b.id(), share: Share::Permille(500) });
            offer.grant(&grant);
        }
        Ok(())
    });
    host.submit(0, job(0, 1));
    host.submit(0, job(1, 1));
    let placement = |host: &Host, job| {
        let held = &host.engine.state().live(JobId(job)).expect("live").state.held;
        held.as_ref().expect("held").placement.clone()
    };
    assert_eq!(placement(&host, 0), placement(&host, 1));
}

/// A request to a policy that thinks elsewhere, at this moment.
fn ask_again(host: &mut Host) -> DecisionRequest {
    host.engine.reset_failures();
    let now = host.engine.state().now;
    host.engine.request(now, Span::secs(86_400)).expect("it was said that it must be asked")
}

#[test]
fn a_decision_taken_on_a_snapshot_is_checked_against_what_happened_since() {
    let mut host = host("fifo");
    host.obeys = true;
    host.submit(0, job(0, 8));
    host.submit(1, job(1, 4));
    host.submit(1, job(2, 4));
    // Both jobs wait; a slow policy thinks on a snapshot in which the first job is about to go.
    let mut request = ask_again(&mut host);
    let planned = &request.snapshot.state.live(JobId(0)).expect("live").state.planned;
    let planned = planned.clone().expect("planned");
    request.snapshot.free.give(&planned);
    let outcome = request.think(&mut Selection::policy("fifo").build().expect("defaults build"));
    let PolicyOutcome::Decided(decision) = &outcome else { panic!("fifo decides") };
    assert_eq!(decision.changes.len(), 2);
    // Meanwhile job 1 was cancelled, and job 0 did not go: neither change is possible any more.
    host.obeys = false;
    host.at(2, Event::Cancelled(JobId(1)));
    let now = host.engine.state().now;
    host.engine.conclude(now, &request, outcome);
    host.engine.assert_invariants();
    assert_eq!((host.engine.stats().overtaken, host.engine.stats().faults), (2, 0));
    assert!(host.runs(0) && !host.runs(2));
}

#[test]
fn a_job_released_while_it_still_stops_takes_part_again() {
    let mut host = host("fifo");
    host.submit(0, job(0, 4));
    host.obeys = false;
    host.at(10, Event::Hold(JobId(0)));
    host.at(11, Event::Release(JobId(0)));
    host.obeys = true;
    host.at(12, Event::Stopped { job: JobId(0), attempt: Attempt(1), done: Work::ZERO });
    assert!(host.runs(0));
}

#[test]
fn a_fixed_job_that_is_held_and_released_in_one_breath_stops_and_starts_again() {
    let mut host = host("fifo");
    host.submit(0, Job { preemptible: false, ..job(0, 4) });
    let now = host.engine.state().now;
    host.engine.apply(now, Event::Hold(JobId(0)));
    host.at(10, Event::Release(JobId(0)));
    assert!(host.runs(0));
    assert_eq!(host.attempt(0), Attempt(2));
}

#[test]
fn an_elastic_job_that_asks_for_too_much_gets_the_most_there_is() {
    let mut host = host("fifo");
    let mut elastic = job(0, 12);
    elastic.want.gpus_min = 2;
    elastic.want.gpus_max = 16;
    host.submit(0, elastic);
    assert!(host.runs(0));
    assert_eq!(host.engine.state().live(JobId(0)).expect("live").state.gpus(), 8);
}

#[test]
fn a_decision_that_takes_for_nobody_is_not_followed() {
    let mut host = host("fifo");
    host.submit(0, job(0, 4));
    let take = trainyard_types::Change { job: JobId(0), to: None };
    let mut decision = trainyard_types::Decision { changes: vec![take], ..Default::default() };
    let request = ask_again(&mut host);
    host.engine.conclude(Time::ZERO, &request, PolicyOutcome::Decided(decision.clone()));
    host.until(1);
    assert!(host.runs(0), "no other job got its GPUs");
    decision.idle = true;
    let request = ask_again(&mut host);
    host.engine.conclude(Time::ZERO, &request, PolicyOutcome::Decided(decision));
    host.obeys = false;
    assert!(matches!(host.until(2)[..], [Action::Stop { why: Why::Preempted, .. }]));
}

#[test]
fn sizes_that_can_be_launched_are_the_same_after_a_restart() {
    let host = || {
        let mut cluster = Cluster::uniform(2, 3, "v100");
        cluster.rules.equal_per_node = true;
        let pipeline = Selection::policy("fifo").build().expect("defaults build");
        Host::new(cluster, Tenants::default(), pipeline)
    };
    let mut waits = job(1, 5);
    waits.want.gpus_max = 7;
    let mut before = host();
    before.submit(0, job(0, 6));
    before.submit(0, waits.clone());
    let kept = before.engine.kept(JobId(1)).expect("it waits");
    let mut after = host();
    after.engine.restore(Time::ZERO, vec![(Arc::new(waits), kept)], &[], &[]);
    for host in [before, after] {
        let want = &host.engine.state().live(JobId(1)).expect("it waits").spec.want;
        // Two nodes of three hold six in equal parts, and neither five nor seven.
        assert_eq!((want.gpus_min, want.gpus), (6, 6));
    }
}
