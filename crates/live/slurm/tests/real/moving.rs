//! Jobs that are stopped, moved and resized.

use crate::cluster::Cluster;
use crate::yard::{Yard, placed, waiting, within};
use trainyard_testkit::orders::Orders;
use trainyard_types::Attempt;

/// Counts steps in its checkpoint and saves when it is asked to.
const COUNTING: &str = "\
    n=$(cat $TRAINYARD_CHECKPOINT_DIR/n 2>/dev/null || echo 0); echo from $n on $SLURMD_NODENAME $SLURM_GPUS_ON_NODE; \
    save() { echo $n >$TRAINYARD_CHECKPOINT_DIR/n; echo $n >$TRAINYARD_ACK_FILE; exit 85; }; trap save TERM; \
    echo ready; while :; do n=$((n + 1)); sleep 0.05; done";

#[test]
fn a_job_that_is_stopped_saves_and_goes_on_elsewhere_with_another_size() {
    let Some(cluster) = Cluster::up("a job that moves") else { return };
    let mut yard = Yard::new(&cluster);
    let mut job = waiting(&yard, 1, 2, COUNTING);
    yard.backend().announce(job.clone());
    let mut from = 0.0;
    for (attempt, node, gpus) in [(1, "n1", 2), (2, "n3", 8), (3, "n4", 1)] {
        job.resumes_from = from;
        yard.backend().launch(placed(&job, attempt, &[(node, gpus)]));
        yard.until_started((1, attempt));
        yard.until_log((1, attempt), "ready");
        let log = yard.log((1, attempt), 0);
        assert!(log.starts_with(&format!("from {from} on {node} {gpus}\n")), "{log}");
        yard.stop(1, attempt, 30.0);
        let exit = yard.until_ended((1, attempt));
        assert_eq!(
            (exit.code, exit.asked_to_stop, exit.killed),
            (Some(85), true, false),
            "{exit:?}"
        );
        assert!(exit.save_seconds.is_some_and(|seconds| seconds < 20.0), "{exit:?}");
        assert!(exit.saved.unwrap() > from, "{exit:?}");
        from = exit.saved.unwrap();
        yard.backend().forget(job.job, Attempt(attempt));
        within("it waits, held", || {
            let queue = cluster.queue();
            queue.len() == 1 && queue[0].contains("PENDING") && queue[0].contains("eld")
        });
    }
    assert_eq!(cluster.queue().len(), 1);
    assert!(
        cluster.queue()[0].starts_with("1 "),
        "the same Slurm job each time: {:?}",
        cluster.queue()
    );
}

#[test]
fn one_that_does_not_save_is_killed_after_its_grace_and_one_that_never_ran_is_let_go() {
    let Some(cluster) = Cluster::up("a job that does not save") else { return };
    let mut yard = Yard::new(&cluster);
    let deaf = waiting(&yard, 1, 8, "trap '' TERM; echo ready; while :; do sleep 0.1; done");
    yard.backend().launch(placed(&deaf, 1, &[("n3", 8)]));
    yard.until_log((1, 1), "ready");
    // Its place is taken, so that Slurm does not start it.
    let order = placed(&waiting(&yard, 2, 8, "echo ran"), 1, &[("n3", 8)]);
    yard.backend().launch(order);
    within("the other waits in Slurm", || {
        cluster.queue().iter().any(|line| line.starts_with("2 PENDING") && !line.contains("eld"))
    });
    yard.stop(2, 1, 30.0);
    let exit = yard.until_ended((2, 1));
    assert!(exit.asked_to_stop && exit.code.is_none() && exit.ran_seconds == 0.0, "{exit:?}");
    assert_eq!(yard.log((2, 1), 0), "");
    yard.stop(1, 1, 1.0);
    let exit = yard.until_ended((1, 1));
    assert_eq!((exit.signal, exit.asked_to_stop, exit.killed), (Some(9), true, true), "{exit:?}");
}

#[test]
fn a_save_told_before_the_request_acknowledges_nothing_and_one_after_it_does() {
    let Some(cluster) = Cluster::up("saves before and after a request") else { return };
    let mut yard = Yard::new(&cluster);
    let say = |done: u32| {
        format!("echo '{{\"type\":\"saved\",\"done\":{done}}}' >>$TRAINYARD_REPORT_FILE")
    };
    let nothing = "true".to_owned();
    for (job, before, after, acknowledged, saved) in [
        (1, say(5), nothing.clone(), false, Some(5.0)),
        (2, nothing.clone(), say(0), true, Some(0.0)),
        (3, say(5), say(7), true, Some(7.0)),
    ] {
        let text = format!(
            "{before}; stop() {{ {after}; exit 0; }}; trap stop TERM; echo ready; while :; do sleep 0.05; done"
        );
        let order = placed(&waiting(&yard, job, 1, &text), 1, &[("n4", 1)]);
        yard.backend().launch(order);
        yard.until_log((job, 1), "ready");
        yard.stop(job, 1, 30.0);
        let exit = yard.until_ended((job, 1));
        assert_eq!((exit.code, exit.asked_to_stop), (Some(0), true), "{job}: {exit:?}");
        assert_eq!(exit.acknowledged, Some(acknowledged), "{job}: {exit:?}");
        assert_eq!((exit.saved, exit.checkpoint), (saved, true), "{job}: {exit:?}");
    }
}
