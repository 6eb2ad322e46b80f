//! Jobs that waited in Slurm before they were ours.

use crate::cluster::Cluster;
use crate::yard::{Yard, placed, waiting, within};
use trainyard_backend::{LaunchOrder, Report};
use trainyard_slurm::SlurmJob;
use trainyard_slurm::adopt::{Taking, hand_back, let_go, taken_over};
use trainyard_testkit::orders::Orders;
use trainyard_types::JobId;

/// A job that Trainyard did not submit and that waits behind one that takes all of n3.
fn stranger(cluster: &Cluster, script: &str) -> (String, u32) {
    let submit = |more: &[&str]| {
        let usual = ["--parsable", "--mem=10", "--gres=gpu:a100:8", "-o", "/dev/null", "-D", "/"];
        cluster.slurm("sbatch", &[&usual[..], more].concat())
    };
    let blocker = submit(&["--wrap", "sleep 600"]);
    within("n3 is taken", || cluster.queue().contains(&format!("{blocker} RUNNING None")));
    let id: u32 = submit(&["-t", "10", "--wrap", script]).parse().unwrap();
    within("it waits for its turn", || {
        cluster.queue().iter().any(|line| line.starts_with(&format!("{id} PENDING")))
    });
    (blocker, id)
}

/// The order that the daemon gives for a job that is taken over.
fn order(cluster: &Cluster, yard: &Yard, (job, slurm): (u32, u32)) -> LaunchOrder {
    let seen = cluster.look();
    let found = seen.jobs.iter().find(|one| one.id == slurm).unwrap();
    let spec = taken_over(found, &Taking::default()).unwrap();
    assert_eq!((spec.gpus, spec.expected_seconds), (8, Some(600.0)));
    let order = waiting(yard, job, spec.gpus, "");
    LaunchOrder { argv: Vec::new(), external: spec.external, name: spec.name, ..order }
}

fn job_of(cluster: &Cluster, id: u32) -> SlurmJob {
    cluster.look().jobs.into_iter().find(|one| one.id == id).unwrap()
}

fn is_held(cluster: &Cluster, id: u32) -> bool {
    cluster
        .look()
        .jobs
        .iter()
        .any(|job| job.id == id && job.state == "PENDING" && job.priority == 0)
}

fn gone(yard: &Yard, wanted: u32) -> String {
    yard.until("that it is gone", |report| match report {
        Report::Gone { job, why } if job.0 == wanted => Some(why.clone()),
        _ => None,
    })
}

#[test]
fn a_job_that_was_anothers_waits_for_our_word_and_runs_its_own_script() {
    let Some(cluster) = Cluster::up("a job that is taken over") else { return };
    let mut yard = Yard::new(&cluster);
    let mark = cluster.dir.join("ran");
    let (blocker, id) = stranger(&cluster, &format!("echo $SLURM_JOB_ID >>{}", mark.display()));
    let order = order(&cluster, &yard, (1, id));
    yard.backend().announce(order.clone());
    within("it is held", || is_held(&cluster, id));
    cluster.slurm("scancel", &[&blocker]);
    within("n3 is free", || cluster.queue().len() == 1);
    assert!(is_held(&cluster, id) && !mark.exists(), "no order said that it may run");
    yard.backend().launch(placed(&order, 1, &[("n3", 8)]));
    assert_eq!(yard.until_ended((1, 1)).code, Some(0));
    assert_eq!(std::fs::read_to_string(&mark).unwrap(), format!("{id}\n"));
}

#[test]
fn a_job_that_is_handed_back_is_slurms_again() {
    let Some(cluster) = Cluster::up("a job that is handed back") else { return };
    let mut yard = Yard::new(&cluster);
    let mark = cluster.dir.join("ran");
    let (blocker, id) = stranger(&cluster, &format!("echo ran >>{}", mark.display()));
    let order = order(&cluster, &yard, (1, id));
    yard.backend().announce(order);
    within("it is held", || is_held(&cluster, id));
    hand_back(&cluster.calls, &job_of(&cluster, id)).unwrap();
    assert_eq!(gone(&yard, 1), "it was handed back to Slurm");
    yard.backend().withdraw(JobId(1));
    cluster.slurm("scancel", &[&blocker]);
    within("Slurm runs it by itself", || mark.exists());
    assert!(
        cluster.slurm("squeue", &["-h", "-t", "all", "-j", &id.to_string(), "-o", "%T"])
            != "CANCELLED"
    );
}

#[test]
fn a_running_job_that_is_let_go_goes_on() {
    let Some(cluster) = Cluster::up("a running job that is let go") else { return };
    let mut yard = Yard::new(&cluster);
    let (blocker, id) = stranger(&cluster, "sleep 600");
    let order = order(&cluster, &yard, (1, id));
    yard.backend().announce(order.clone());
    within("it is held", || is_held(&cluster, id));
    cluster.slurm("scancel", &[&blocker]);
    yard.backend().launch(placed(&order, 1, &[("n3", 8)]));
    yard.until_started((1, 1));
    let_go(&cluster.calls, &job_of(&cluster, id)).unwrap();
    gone(&yard, 1);
    yard.backend().forget(JobId(1), trainyard_types::Attempt(1));
    yard.backend().withdraw(JobId(1));
    // Its GPUs are used by others from now on.
    yard.until("its GPUs as another's", |report| match report {
        Report::Node { node, seen } if node == "n3" && seen.claimed == 8 => Some(()),
        _ => None,
    });
    assert!(cluster.queue().contains(&format!("{id} RUNNING None")), "{:?}", cluster.queue());
}
