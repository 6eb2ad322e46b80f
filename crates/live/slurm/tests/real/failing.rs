//! Nodes that are lost, and runs that outlive them.

use crate::cluster::Cluster;
use crate::yard::{Yard, checkpoints, placed, waiting, within};
use trainyard_backend::Report;
use trainyard_testkit::orders::Orders;
use trainyard_types::Attempt;

#[test]
fn a_run_that_outlives_its_node_cannot_overwrite_a_newer_checkpoint() {
    let Some(cluster) = Cluster::up("a run that outlives its node") else { return };
    let mut yard = Yard::new(&cluster);
    // Writes its attempt's number into its checkpoint, again and again, as a training loop does: a new file that takes
    // the place of the old. What it could not write it tells in a file of its own.
    let tells = cluster.dir.join("failed");
    let text = format!(
        "echo ready; while :; do sleep 0.05; if echo $TRAINYARD_ATTEMPT >$TRAINYARD_CHECKPOINT_DIR/new.$$ && \
         mv $TRAINYARD_CHECKPOINT_DIR/new.$$ $TRAINYARD_CHECKPOINT_DIR/state; then echo wrote; \
         else echo $TRAINYARD_ATTEMPT >>{}; fi; done 2>/dev/null",
        tells.display()
    );
    let mut job = waiting(&yard, 1, 1, &text);
    yard.backend().launch(placed(&job, 1, &[("n1", 1)]));
    yard.until_log((1, 1), "wrote");
    let root = checkpoints(&yard.run_dir, 1);
    assert_eq!(std::fs::read_to_string(root.join("at-1/state")).unwrap(), "1\n");
    // The node is dead to Slurm; what runs there does not know.
    cluster.script(&["kill-node", "n1"]);
    let exit = yard.until_ended((1, 1));
    assert!(exit.lost, "{exit:?}");
    let is_lost =
        |report: &Report| matches!(report, Report::Node { node, seen } if node == "n1" && !seen.up);
    if !yard.heard.borrow().iter().any(is_lost) {
        yard.until("that the node is lost", |report| is_lost(report).then_some(()));
    }
    let written = yard.log((1, 1), 0).lines().count();
    within("the old run lives", || yard.log((1, 1), 0).lines().count() > written);
    yard.backend().forget(job.job, Attempt(1));
    job.resumes_from = 1.0;
    yard.backend().launch(placed(&job, 2, &[("n2", 1)]));
    yard.until_log((1, 2), "wrote");
    // From now on the old run fails, and the new one's word stands.
    within("the old run is refused", || {
        std::fs::read_to_string(&tells)
            .unwrap_or_default()
            .lines()
            .filter(|one| *one == "1")
            .count()
            > 20
    });
    assert_eq!(std::fs::read_to_string(root.join("at-2/state")).unwrap(), "2\n");
    assert!(!root.join("at-1").exists());
    assert!(
        !std::fs::read_to_string(&tells).unwrap().contains('2'),
        "the new run always could write"
    );
    // When the node is back, Slurm ends what outlived it, and starts nothing by itself.
    cluster.script(&["start-node", "n1"]);
    yard.until("that the node is back", |report| match report {
        Report::Node { node, seen } if node == "n1" && seen.up && seen.drained.is_none() => {
            Some(())
        }
        _ => None,
    });
    let running: Vec<String> =
        cluster.queue().into_iter().filter(|line| line.contains("RUNNING")).collect();
    assert_eq!(running.len(), 1, "{running:?}");
    yard.stop(1, 2, 0.0);
    assert!(yard.until_ended((1, 2)).asked_to_stop);
}

#[test]
fn slurmctld_may_be_killed_at_any_moment_and_every_job_ends_once() {
    let Some(cluster) = Cluster::up("a slurmctld that is killed") else { return };
    let mut yard = Yard::new(&cluster);
    let counted = cluster.dir.join("count");
    let order = |yard: &Yard, job: u32, seconds: f64| {
        waiting(yard, job, 1, &format!("echo {job} >>{}; sleep {seconds}", counted.display()))
    };
    let nodes = ["n1", "n2", "n3", "n4"];
    for job in 1..=12 {
        let one = order(&yard, job, f64::from(job % 4));
        yard.backend().announce(one.clone());
        yard.backend().launch(placed(&one, 1, &[(nodes[job as usize % 4], 1)]));
        if job % 5 == 0 {
            cluster.script(&["restart-ctld"]);
        }
    }
    let mut ended = std::collections::BTreeMap::new();
    let mut restarts = 0;
    while ended.len() < 12 {
        let (job, exit) = yard.until("an end", |report| match report {
            Report::Ended { job, exit, .. } => Some((job.0, exit.clone())),
            _ => None,
        });
        assert_eq!(exit.code, Some(0), "job {job}: {exit:?}");
        *ended.entry(job).or_insert(0) += 1;
        if ended.len() % 4 == 0 && restarts < 3 {
            restarts += 1;
            cluster.script(&["restart-ctld"]);
        }
    }
    assert!(ended.values().all(|times| *times == 1), "{ended:?}");
    let mut ran: Vec<u32> = std::fs::read_to_string(&counted)
        .unwrap()
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    ran.sort_unstable();
    assert_eq!(ran, (1..=12).collect::<Vec<u32>>(), "each ran once");
}

#[test]
fn a_job_that_its_node_cannot_start_is_lost_and_not_cancelled() {
    let Some(cluster) = Cluster::up("a node that cannot start a job") else { return };
    let mut yard = Yard::new(&cluster);
    // slurmd cannot make the folder of a batch job and cancels it, as if a user had.
    let spool = cluster.dir.join("spool.n1");
    std::fs::rename(&spool, cluster.dir.join("away")).unwrap();
    std::fs::write(&spool, "no folder").unwrap();
    let job = waiting(&yard, 1, 1, "echo ran");
    yard.backend().launch(placed(&job, 1, &[("n1", 1)]));
    let exit = yard.until_ended((1, 1));
    assert!(exit.lost && exit.launch_error.is_none(), "{exit:?}");
    let gone = |report: &Report| matches!(report, Report::Gone { .. });
    assert!(!yard.heard.borrow().iter().any(gone), "{:?}", yard.heard.borrow());
    // Elsewhere it runs.
    yard.backend().forget(job.job, Attempt(1));
    yard.backend().launch(placed(&job, 2, &[("n2", 1)]));
    assert_eq!(yard.until_ended((1, 2)).code, Some(0));
    std::fs::remove_file(&spool).unwrap();
    std::fs::rename(cluster.dir.join("away"), &spool).unwrap();
}
