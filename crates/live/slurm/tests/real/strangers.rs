//! What others do: jobs that are not ours, and hands on those that are.

use crate::cluster::Cluster;
use crate::yard::{Yard, placed, waiting, within};
use trainyard_backend::{NodeSeen, Report};
use trainyard_testkit::orders::Orders;
use trainyard_types::JobId;

fn seen(yard: &Yard, node: &str, wanted: impl Fn(&NodeSeen) -> bool) -> NodeSeen {
    yard.until(&format!("news of {node}"), |report| match report {
        Report::Node { node: name, seen } if name == node && wanted(seen) => Some(seen.clone()),
        _ => None,
    })
}

#[test]
fn jobs_of_others_are_counted_and_never_touched() {
    let Some(cluster) = Cluster::up("jobs of others") else { return };
    let mut yard = Yard::new(&cluster);
    assert_eq!(seen(&yard, "n2", |_| true), NodeSeen { up: true, ..NodeSeen::default() });
    let other = [
        "--parsable",
        "-w",
        "n2",
        "--mem=10",
        "--gres=gpu:3",
        "-o",
        "/dev/null",
        "--wrap",
        "sleep 300",
    ];
    let id = cluster.slurm("sbatch", &other);
    let held = cluster
        .slurm("sbatch", &["--parsable", "-H", "--mem=10", "-o", "/dev/null", "--wrap", "true"]);
    assert_eq!(seen(&yard, "n2", |seen| seen.claimed > 0).claimed, 3);
    let order = placed(&waiting(&yard, 1, 1, "sleep 1"), 1, &[("n2", 1)]);
    yard.backend().launch(order);
    assert_eq!(yard.until_ended((1, 1)).code, Some(0));
    let queue = cluster.queue();
    assert!(queue.contains(&format!("{id} RUNNING None")), "{queue:?}");
    assert!(queue.contains(&format!("{held} PENDING JobHeldUser")), "{queue:?}");
    cluster.slurm("scancel", &[&id]);
    seen(&yard, "n2", |seen| seen.claimed == 0);
    // Nodes that come and go are told of, and our word about one reaches Slurm.
    cluster.slurm("scontrol", &["update", "NodeName=n4", "State=DRAIN", "Reason=new fan"]);
    assert_eq!(
        seen(&yard, "n4", |seen| seen.drained.is_some()).drained.as_deref(),
        Some("new fan")
    );
    cluster.slurm("scontrol", &["update", "NodeName=n4", "State=RESUME"]);
    seen(&yard, "n4", |seen| seen.drained.is_none());
    yard.backend().drain("n1", Some("a test"));
    assert_eq!(
        seen(&yard, "n1", |seen| seen.drained.is_some()).drained.as_deref(),
        Some("trainyard: a test")
    );
    yard.backend().drain("n1", None);
    seen(&yard, "n1", |seen| seen.drained.is_none());
}

#[test]
fn what_a_health_check_of_slurm_finds_takes_the_node_out_and_is_told() {
    let Some(cluster) = Cluster::up("a health check") else { return };
    let yard = Yard::new(&cluster);
    seen(&yard, "n4", |seen| seen.up);
    // As a HealthCheckProgram does it: NHC drains, site tools set FAIL.
    for state in ["DRAIN", "FAIL"] {
        let reason = format!("Reason=NHC: GPU 3 has Xid 79 ({state})");
        let wanted = reason.trim_start_matches("Reason=").to_owned();
        cluster.slurm("scontrol", &["update", "NodeName=n4", &format!("State={state}"), &reason]);
        let told = seen(&yard, "n4", |seen| seen.drained.is_some());
        assert_eq!(told.drained.as_deref(), Some(wanted.as_str()), "{state}");
        assert!(told.up, "what runs there goes on: {state}");
        cluster.slurm("scontrol", &["update", "NodeName=n4", "State=RESUME"]);
        seen(&yard, "n4", |seen| seen.drained.is_none());
    }
}

#[test]
fn a_job_cancelled_in_slurm_is_gone_whether_it_waits_or_runs() {
    let Some(cluster) = Cluster::up("jobs cancelled in Slurm") else { return };
    let mut yard = Yard::new(&cluster);
    let gone = |yard: &Yard, wanted: u32| {
        yard.until("that it is gone", |report| match report {
            Report::Gone { job, why } if job.0 == wanted => Some(why.clone()),
            _ => None,
        })
    };
    let order = waiting(&yard, 1, 1, "true");
    yard.backend().announce(order);
    within("it waits", || cluster.queue().len() == 1);
    cluster.slurm("scancel", &["1"]);
    assert_eq!(gone(&yard, 1), "cancelled in Slurm, where it was job 1");
    yard.backend().withdraw(JobId(1));
    let running =
        waiting(&yard, 2, 1, "trap 'exit 3' TERM; echo ready; while :; do sleep 0.1; done");
    yard.backend().launch(placed(&running, 1, &[("n1", 1)]));
    yard.until_log((2, 1), "ready");
    cluster.slurm("scancel", &["2"]);
    gone(&yard, 2);
    let exit = yard.until_ended((2, 1));
    assert!(exit.asked_to_stop, "{exit:?}");
    yard.backend().forget(JobId(2), trainyard_types::Attempt(1));
    yard.backend().withdraw(JobId(2));
    within("nothing is left", || cluster.queue().is_empty());
}

#[test]
fn a_start_that_nobody_ordered_runs_nothing() {
    let Some(cluster) = Cluster::up("a start without an order") else { return };
    let mut yard = Yard::new(&cluster);
    let mark = cluster.dir.join("ran");
    let job = waiting(&yard, 1, 1, &format!("echo ran >>{}", mark.display()));
    yard.backend().announce(job.clone());
    within("it waits", || cluster.queue().len() == 1);
    let script = std::fs::read_dir(yard.run_dir.join("slurm")).unwrap();
    assert!(script.flatten().any(|file| file.file_name().to_string_lossy().ends_with(".sh")));
    // An operator releases it in Slurm, more than once, without telling the daemon.
    for _ in 0..3 {
        let _ = std::process::Command::new("scontrol")
            .args(["release", "1"])
            .env("SLURM_CONF", cluster.dir.join("slurm.conf"))
            .output();
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    within("there is a held place again", || {
        let queue = cluster.queue();
        queue.len() == 1 && queue[0].contains("eld")
    });
    assert!(!mark.exists(), "nothing authorised it");
    yard.backend().launch(placed(&job, 1, &[("n1", 1)]));
    assert_eq!(yard.until_ended((1, 1)).code, Some(0));
    assert_eq!(std::fs::read_to_string(&mark).unwrap(), "ran\n");
}

#[test]
fn a_submission_whose_answer_was_lost_is_found_and_not_made_again() {
    let Some(cluster) = Cluster::up("a submission whose answer was lost") else { return };
    let mut yard = Yard::new(&cluster);
    let job = waiting(&yard, 1, 1, "true");
    yard.backend().announce(job.clone());
    within("it waits", || cluster.queue().len() == 1);
    drop(yard.slurm.take());
    // As it is on disk when the daemon dies between the submission and its answer.
    let file = yard.run_dir.join("slurm/jobs/1/entry.json");
    let mut entry: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    entry["slurm"] = serde_json::Value::Null;
    entry["submitting"] = true.into();
    std::fs::write(&file, entry.to_string()).unwrap();
    let mut yard = Yard::new(&cluster);
    yard.backend().announce(job.clone());
    yard.backend().launch(placed(&job, 1, &[("n1", 1)]));
    assert_eq!(yard.until_ended((1, 1)).code, Some(0));
    let all = cluster.slurm("squeue", &["-h", "-t", "all", "-o", "%i %T"]);
    assert_eq!(all, "1 COMPLETED", "one Slurm job and no other");
}

#[test]
fn a_job_that_finds_no_room_where_it_was_sent_is_soon_planned_anew() {
    let Some(cluster) = Cluster::up("no room where it was sent") else { return };
    let mut yard =
        Yard::with(&cluster, |options| options.crowded = std::time::Duration::from_secs(3));
    let other = ["--parsable", "-w", "n2", "--mem=10", "--gres=gpu:4", "-o", "/dev/null"];
    let other: Vec<&str> = other.into_iter().chain(["--wrap", "sleep 300"]).collect();
    let id = cluster.slurm("sbatch", &other);
    seen(&yard, "n2", |seen| seen.claimed > 0);
    let job = waiting(&yard, 1, 1, "echo ran");
    let begun = std::time::Instant::now();
    yard.backend().launch(placed(&job, 1, &[("n2", 1)]));
    let exit = yard.until_ended((1, 1));
    assert!(exit.lost && exit.launch_error.is_none(), "{exit:?}");
    assert!(begun.elapsed().as_secs() < 20, "after {} s", begun.elapsed().as_secs());
    yard.backend().forget(job.job, trainyard_types::Attempt(1));
    yard.backend().launch(placed(&job, 2, &[("n1", 1)]));
    assert_eq!(yard.until_ended((1, 2)).code, Some(0));
    cluster.slurm("scancel", &[&id]);
}

#[test]
fn a_job_that_slurm_postpones_is_put_in_its_place_again() {
    let Some(cluster) = Cluster::up("a job that is postponed") else { return };
    let mut yard = Yard::new(&cluster);
    let other = ["--parsable", "-w", "n2", "--mem=10", "--gres=gpu:4", "-o", "/dev/null"];
    let other: Vec<&str> = other.into_iter().chain(["--wrap", "sleep 300"]).collect();
    let id = cluster.slurm("sbatch", &other);
    seen(&yard, "n2", |seen| seen.claimed > 0);
    let job = waiting(&yard, 1, 1, "echo ran");
    yard.backend().launch(placed(&job, 1, &[("n2", 1)]));
    let ours = |reason: &str| {
        let rows = cluster.queue();
        rows.iter().find(|row| row.ends_with(&format!("PENDING {reason}"))).cloned()
    };
    within("ours waits for resources", || ours("Resources").is_some());
    let number = ours("Resources").expect("it waits").split(' ').next().map(str::to_owned);
    let update = format!("JobId={}", number.expect("a number"));
    cluster.slurm("scontrol", &["update", &update, "StartTime=now+1hour"]);
    within("it is postponed", || ours("BeginTime").is_some());
    within("it is so no longer", || ours("BeginTime").is_none());
    cluster.slurm("scancel", &[&id]);
    assert_eq!(yard.until_ended((1, 1)).code, Some(0));
}
