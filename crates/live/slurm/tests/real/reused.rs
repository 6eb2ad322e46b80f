//! Numbers that Slurm hands out again: a slurmctld that forgets its last seconds gives the number of a job of ours to a
//! job of another user, which Trainyard may not touch.

use crate::cluster::Cluster;
use crate::yard::{Yard, placed, waiting, within};
use trainyard_backend::Report;
use trainyard_testkit::orders::Orders;
use trainyard_types::{Attempt, JobId};

/// A user who has nothing to do with us, and not the one whose processes other tests count.
const OTHER: (u32, u32) = (5, 60);

/// A job of another user: its number, state, priority and how often it was started again.
fn other(cluster: &Cluster, id: u32) -> (u32, String, bool, u32) {
    let seen = cluster.look();
    let job = seen.jobs.iter().find(|job| job.id == id).expect("Slurm knows it");
    (job.id, job.state.clone(), job.priority == 0, job.restarts)
}

fn submit_other(cluster: &Cluster, more: &[&str]) -> u32 {
    let user = [format!("--uid={}", OTHER.0), format!("--gid={}", OTHER.1)];
    let usual =
        ["--parsable", &user[0], &user[1], "--mem=10", "-D", "/", "-o", "/dev/null", "-w", "n4"];
    let usual = [&usual[..], more, &["--wrap", "sleep 600"]].concat();
    cluster.slurm("sbatch", &usual).parse().unwrap()
}

/// What slurmctld knows now, in a copy that it can be put back to.
fn save(cluster: &Cluster) {
    cluster.script(&["save-ctld", "before"]);
}

fn forget(cluster: &Cluster) {
    cluster.script(&["forget-ctld", "before"]);
}

#[test]
fn a_number_that_slurm_gave_to_another_user_is_left_alone() {
    let Some(cluster) = Cluster::up("numbers that are handed out again") else { return };
    // So seldom that the backend does not look between the loss and the new jobs.
    let mut yard =
        Yard::with(&cluster, |options| options.poll = std::time::Duration::from_secs(20));
    save(&cluster);
    // One job of ours that waits, one that will be withdrawn.
    let job = waiting(&yard, 1, 1, "echo ran");
    yard.backend().announce(job.clone());
    let gone = waiting(&yard, 2, 1, "true");
    yard.backend().announce(gone);
    within("both wait", || cluster.queue().len() == 2);
    forget(&cluster);
    // One of another user runs, one waits, under the same numbers.
    let first = submit_other(&cluster, &[]);
    let second = submit_other(&cluster, &["--gres=gpu:4", "--begin=now+1hour"]);
    assert_eq!((first, second), (1, 2), "the numbers are handed out again");
    within("the first runs", || other(&cluster, 1).1 == "RUNNING");
    yard.backend().withdraw(JobId(2));
    yard.backend().launch(placed(&job, 1, &[("n1", 1)]));
    let exit = yard.until_ended((1, 1));
    assert_eq!(exit.code, Some(0), "{exit:?}");
    assert_eq!(yard.log((1, 1), 0), "ran\n");
    within("nothing is remembered", || !yard.run_dir.join("slurm/jobs/2").exists());
    assert_eq!(other(&cluster, 1), (1, "RUNNING".to_owned(), false, 0));
    assert_eq!(other(&cluster, 2), (2, "PENDING".to_owned(), false, 0));
    let told = yard.heard.borrow().iter().any(
        |report| matches!(report, Report::Notice { what, .. } if what.contains("is not ours")),
    );
    assert!(told, "{:?}", yard.heard.borrow());
}

#[test]
fn an_attempt_whose_number_was_given_away_is_lost_and_its_stop_reaches_nobody_else() {
    let Some(cluster) = Cluster::up("an attempt whose number was given away") else { return };
    let mut yard = Yard::new(&cluster);
    save(&cluster);
    let job = waiting(&yard, 1, 1, "echo ready; while :; do sleep 0.1; done");
    yard.backend().launch(placed(&job, 1, &[("n1", 1)]));
    yard.until_log((1, 1), "ready");
    // The power fails in a rack: what ran there ends without a word, and Slurm does not remember it.
    cluster.script(&["crash-node", "n1"]);
    forget(&cluster);
    assert_eq!(submit_other(&cluster, &[]), 1);
    within("the other job runs", || other(&cluster, 1).1 == "RUNNING");
    yard.stop(1, 1, 1.0);
    let exit = yard.until_ended((1, 1));
    assert!(exit.code != Some(0), "{exit:?}");
    yard.backend().forget(JobId(1), Attempt(1));
    yard.backend().withdraw(JobId(1));
    within("nothing is remembered", || !yard.run_dir.join("slurm/jobs/1").exists());
    assert_eq!(other(&cluster, 1), (1, "RUNNING".to_owned(), false, 0));
    cluster.script(&["start-node", "n1"]);
}
