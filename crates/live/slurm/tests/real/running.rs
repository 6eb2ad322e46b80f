//! Jobs that run and end.

use crate::cluster::Cluster;
use crate::yard::{Yard, placed, waiting, within};
use trainyard_api::Processes;
use trainyard_api::wire::FromJob;
use trainyard_backend::{Backend, Found, Report};
use trainyard_testkit::orders::Orders;
use trainyard_types::JobId;

#[test]
fn a_job_waits_held_runs_where_it_is_put_and_leaves_nothing_behind() {
    let Some(cluster) = Cluster::up("a job from announcement to end") else { return };
    let mut yard = Yard::new(&cluster);
    let text = "echo on $SLURMD_NODENAME with $CUDA_VISIBLE_DEVICES rank $RANK of $WORLD_SIZE in $PWD $A $SLURM_CPUS_ON_NODE; \
                echo '{\"type\":\"progress\",\"done\":5,\"total\":10}' >>$TRAINYARD_REPORT_FILE; \
                echo '{\"type\":\"saved\",\"done\":5}' >>$TRAINYARD_REPORT_FILE; sleep 1; exit 7";
    let mut job = waiting(&yard, 1, 2, text);
    // It asks for nothing of its host, and gets the share that goes with its GPUs.
    job.limits = trainyard_backend::order::Limits::default();
    job.env.insert("A".to_owned(), "it's $(a)".to_owned());
    yard.backend().announce(job.clone());
    within("a held job", || cluster.queue() == ["1 PENDING JobHeldUser"]);
    let seen = cluster.look();
    assert!(seen.jobs[0].comment.starts_with("trainyard:"), "{:?}", seen.jobs[0]);
    yard.backend().launch(placed(&job, 1, &[("n3", 2)]));
    yard.until_started((1, 1));
    let said = yard.until("what it said", |report| match report {
        Report::Said { message: FromJob::Progress { done, .. }, .. } => *done,
        _ => None,
    });
    assert_eq!(said, 5.0);
    let exit = yard.until_ended((1, 1));
    assert_eq!((exit.code, exit.saved, exit.done), (Some(7), Some(5.0), Some(5.0)), "{exit:?}");
    assert!(exit.ran_seconds >= 1.0 && !exit.asked_to_stop && !exit.lost, "{exit:?}");
    assert_eq!(yard.log((1, 1), 0), "on n3 with 0,1 rank 0 of 1 in / it's $(a) 8\n");
    yard.backend().forget(job.job, trainyard_types::Attempt(1));
    yard.backend().withdraw(JobId(1));
    within("nothing is left", || cluster.queue().is_empty());
    within("nothing is remembered", || !yard.run_dir.join("slurm/jobs/1").exists());
    assert_eq!(yard.log((1, 1), 0).lines().count(), 1, "the output stays");
}

#[test]
fn a_gang_over_two_nodes_has_a_rank_for_each_gpu() {
    let Some(cluster) = Cluster::up("a gang over two nodes") else { return };
    let mut yard = Yard::new(&cluster);
    let text = "echo $RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE node $NODE_RANK $SLURMD_NODENAME \
                $MASTER_ADDR $MASTER_PORT";
    let job = trainyard_backend::LaunchOrder {
        processes: Processes::PerGpu,
        ..waiting(&yard, 2, 4, text)
    };
    yard.backend().launch(placed(&job, 1, &[("n1", 2), ("n2", 2)]));
    let exit = yard.until_ended((2, 1));
    assert_eq!(exit.code, Some(0), "{exit:?}");
    let logs: Vec<String> = (0..4).map(|rank| yard.log((2, 1), rank)).collect();
    let port = logs[0].trim().rsplit(' ').next().unwrap().to_owned();
    for (rank, log) in logs.iter().enumerate() {
        let (local, node) = (rank % 2, rank / 2);
        let name = ["n1", "n2"][node];
        assert_eq!(
            log.trim(),
            format!("{rank}/4 local {local}/2 node {node} {name} 127.0.0.1 {port}")
        );
    }
    // One that Slurm cannot place is told in words.
    let order = placed(&waiting(&yard, 3, 3, "true"), 1, &[("n1", 2), ("n2", 1)]);
    yard.backend().launch(order);
    let error = yard.until_ended((3, 1)).launch_error.unwrap();
    assert!(error.contains("2 on n1 and 1 on n2"), "{error}");
}

#[test]
fn a_plain_script_on_two_nodes_runs_once_and_can_start_the_rest() {
    let Some(cluster) = Cluster::up("a plain script on two nodes") else { return };
    let mut yard = Yard::new(&cluster);
    let text = "echo run on $SLURMD_NODENAME rank ${RANK-none} of ${WORLD_SIZE-none} with $CUDA_VISIBLE_DEVICES; \
                srun --ntasks-per-node=1 --mem=0 --overlap sh -c 'echo step on $SLURMD_NODENAME with $CUDA_VISIBLE_DEVICES' | sort";
    let job = trainyard_backend::LaunchOrder {
        processes: Processes::PerJob,
        ..waiting(&yard, 2, 4, text)
    };
    yard.backend().launch(placed(&job, 1, &[("n1", 2), ("n2", 2)]));
    let exit = yard.until_ended((2, 1));
    assert_eq!(exit.code, Some(0), "{exit:?} {}", yard.log((2, 1), 0));
    assert_eq!(
        yard.log((2, 1), 0),
        "run on n1 rank none of none with 0,1\nstep on n1 with 0,1\nstep on n2 with 0,1\n"
    );
    assert!(yard.log((2, 1), 1).is_empty());
}

#[test]
fn when_a_rank_fails_the_others_are_stopped_and_its_code_counts() {
    let Some(cluster) = Cluster::up("a rank that fails") else { return };
    let mut yard = Yard::new(&cluster);
    let text = "if [ $RANK = 3 ]; then sleep 1; exit 5; fi; sleep 300";
    let job = trainyard_backend::LaunchOrder {
        processes: Processes::PerGpu,
        ..waiting(&yard, 2, 4, text)
    };
    yard.backend().launch(placed(&job, 1, &[("n1", 2), ("n2", 2)]));
    let exit = yard.until_ended((2, 1));
    assert_eq!((exit.code, exit.asked_to_stop), (Some(5), false), "{exit:?}");
    assert!(exit.ran_seconds < 60.0, "{exit:?}");
}

#[test]
fn what_cannot_begin_says_why() {
    let Some(cluster) = Cluster::up("jobs that cannot begin") else { return };
    let mut yard = Yard::new(&cluster);
    let mut wrong = waiting(&yard, 1, 1, "true");
    wrong.argv = vec!["no-such-program".to_owned()];
    yard.backend().launch(placed(&wrong, 1, &[("n4", 1)]));
    let error = yard.until_ended((1, 1)).launch_error.unwrap();
    assert!(error.contains("command no-such-program does not exist on n4"), "{error}");
    let mut wrong = waiting(&yard, 2, 1, "true");
    wrong.cwd = "/no/such/place".to_owned();
    yard.backend().launch(placed(&wrong, 1, &[("n4", 1)]));
    let error = yard.until_ended((2, 1)).launch_error.unwrap();
    assert!(error.contains("/no/such/place cannot be entered on n4"), "{error}");
    // A script of the user's own is run as it was submitted.
    let mut script = waiting(&yard, 3, 1, "true");
    script.argv = ["mine", "a b"].map(str::to_owned).to_vec();
    script.script = Some("#!/bin/sh\necho \"script got $1\"\n".to_owned());
    yard.backend().launch(placed(&script, 1, &[("n4", 1)]));
    assert_eq!(yard.until_ended((3, 1)).code, Some(0));
    assert_eq!(yard.log((3, 1), 0), "script got a b\n");
}

#[test]
fn a_daemon_that_was_away_finds_everything_again_even_without_slurmctld() {
    let Some(cluster) = Cluster::up("a daemon that was away") else { return };
    let mut yard = Yard::new(&cluster);
    let counted = cluster.dir.join("count");
    let gate = cluster.dir.join("gate");
    let text = format!(
        "echo ran >>{}; until [ -e {} ]; do sleep 0.1; done; exit 4",
        counted.display(),
        gate.display()
    );
    let job = waiting(&yard, 1, 1, &text);
    let order = placed(&job, 1, &[("n1", 1)]);
    yard.backend().launch(order.clone());
    let other = waiting(&yard, 2, 1, "true");
    yard.backend().announce(other);
    yard.until_started((1, 1));
    within("both are in Slurm", || cluster.queue().len() == 2);
    drop(yard.slurm.take());
    cluster.script(&["kill-ctld"]);
    std::fs::write(&gate, "").unwrap();
    // It does not need Slurm to say what it knows.
    let options =
        trainyard_slurm::SlurmOptions::new(&yard.run_dir, trainyard_slurm::Inventory::default());
    let mut yard = Yard::on(&cluster, options);
    let found = yard.backend().list_attempts();
    assert!(matches!(found[..], [Found::Running { started: true, .. }]), "{found:?}");
    yard.until("trouble", |report| match report {
        Report::Trouble(Some(what)) => what.contains("since").then_some(()),
        _ => None,
    });
    assert_eq!(yard.until_ended((1, 1)).code, Some(4), "its script said so");
    cluster.script(&["start-ctld"]);
    yard.until("the end of trouble", |report| {
        matches!(report, Report::Trouble(None)).then_some(())
    });
    // However often it is ordered, it runs once.
    for _ in 0..3 {
        yard.backend().launch(order.clone());
        assert_eq!(yard.until_ended((1, 1)).code, Some(4));
    }
    assert_eq!(std::fs::read_to_string(&counted).unwrap(), "ran\n");
}
