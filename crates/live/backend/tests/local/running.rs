//! Ranks, their environment, their ends and their output.

use crate::yard::{WAIT, Yard, gang, lives, script, within};
use trainyard_api::wire::FromJob;
use trainyard_backend::Report;
use trainyard_testkit::orders::Orders;
use trainyard_types::{Attempt, JobId};

#[test]
fn every_rank_of_a_gang_finds_its_seat_and_the_same_port() {
    let mut yard = Yard::new("gang");
    let exit = yard.run(gang(
        1,
        "echo $RANK/$WORLD_SIZE $LOCAL_RANK $MASTER_ADDR:$MASTER_PORT $CUDA_VISIBLE_DEVICES",
    ));
    assert_eq!((exit.code, exit.signal), (Some(0), None), "{exit:?}");
    assert!(!exit.asked_to_stop && exit.launch_error.is_none());
    let (first, second) = (yard.log(1, 0), yard.log(1, 1));
    assert!(first.starts_with("0/2 0 127.0.0.1:"), "{first}");
    assert_eq!(second, first.replacen("0/2 0 ", "1/2 1 ", 1));
    assert!(first.ends_with(" 0,1\n"), "{first}");
}

#[test]
fn the_daemons_environment_does_not_reach_a_job_and_the_users_does() {
    let mut yard = Yard::new("environment");
    let mut order = script(1, "env");
    order.env.insert("LEARNING_RATE".to_owned(), "0.1".to_owned());
    yard.run(order);
    let log = yard.log(1, 0);
    assert!(log.contains("LEARNING_RATE=0.1"), "{log}");
    assert!(!log.contains("CARGO"), "{log}");
}

#[test]
fn a_script_is_run_as_it_was_submitted_with_its_arguments() {
    let mut yard = Yard::new("script");
    let mut order = script(1, "");
    order.argv = ["train.sh", "a b", "c"].map(str::to_owned).to_vec();
    order.script = Some("#!/bin/bash\necho $# \"$1\"\n".to_owned());
    let exit = yard.run(order);
    assert_eq!((exit.code, exit.signal), (Some(0), None), "{exit:?}");
    assert_eq!(yard.log(1, 0), "2 a b\n");
}

#[test]
fn exit_codes_and_signals_are_told_apart() {
    let mut yard = Yard::new("codes");
    let exit = yard.run(script(1, "exit 7"));
    assert_eq!((exit.code, exit.signal), (Some(7), None));
    let exit = yard.run(script(2, "kill -SEGV $$"));
    assert_eq!((exit.code, exit.signal), (None, Some(11)));
    let exit = yard.run(script(3, "exit 85"));
    assert_eq!((exit.code, exit.asked_to_stop), (Some(85), false));
}

#[test]
fn one_rank_that_fails_takes_the_gang_along() {
    let mut yard = Yard::new("failing");
    let mut order =
        gang(1, "if [ $RANK = 1 ]; then exit 3; fi; trap '' TERM; while :; do sleep 0.05; done");
    order.checkpoint.grace_seconds = 0.2;
    let exit = yard.run(order);
    assert_eq!((exit.code, exit.asked_to_stop, exit.killed), (Some(3), false, false), "{exit:?}");
    assert!(yard.log(1, 0).contains("rank 1 ended with exit code 3"));
}

#[test]
fn what_cannot_be_started_is_explained_and_counts_as_never_run() {
    let mut yard = Yard::new("refused");
    let mut order = script(1, "");
    order.argv = vec!["no-such-program".to_owned()];
    let why = yard.run(order).launch_error.unwrap();
    assert!(why.starts_with("command \"no-such-program\" does not exist in PATH=/"), "{why}");

    let mut order = script(2, "");
    order.cwd = "/no/such/folder".to_owned();
    let why = yard.run(order).launch_error.unwrap();
    assert_eq!(
        why,
        "working directory \"/no/such/folder\" cannot be entered: No such file or directory"
    );

    let mut order = script(3, "");
    let file = yard.run_dir.join("plain.txt").display().to_string();
    std::fs::write(&file, "no program").unwrap();
    order.argv = vec![file.clone()];
    let why = yard.run(order).launch_error.unwrap();
    assert_eq!(why, format!("command {file:?} may not be executed: Permission denied"));

    let mut order = script(4, "");
    order.argv.clear();
    let why = yard.run(order).launch_error.unwrap();
    assert!(why.contains("command is empty"), "{why}");

    let mut order = script(5, "");
    order.checkpoint_dir = format!("{file}/below");
    order.checkpoint.dir = Some(order.checkpoint_dir.clone());
    let why = yard.run(order).launch_error.unwrap();
    assert!(why.starts_with("checkpoint directory") && why.contains("cannot be made"), "{why}");
}

#[test]
fn a_gang_runs_whole_or_not_at_all() {
    let mut yard = Yard::new("whole");
    let ran = yard.run_dir.join("ran");
    let mut order = gang(1, &format!("echo $RANK >> {}; sleep 60", ran.display()));
    order.checkpoint_dir = "/dev/null/below".to_owned();
    order.checkpoint.dir = Some(order.checkpoint_dir.clone());
    let exit = yard.run(order);
    assert!(exit.launch_error.is_some() && exit.code.is_none(), "{exit:?}");
    assert!(!ran.exists());
}

#[test]
fn what_a_job_leaves_behind_is_gone_when_its_end_is_told() {
    leaves_nothing(Yard::new("orphans"));
    leaves_nothing(Yard::without_cgroups("orphans-plain"));
}

fn leaves_nothing(mut yard: Yard) {
    // One stays in the group, one leaves its session and its group, and neither hears signals.
    let exit = yard.run(script(
        1,
        "trap '' TERM HUP; (sleep 300 & echo $!); setsid bash -c 'trap \"\" TERM; echo $$; exec -c sleep 300' & sleep 0.3; exit 0",
    ));
    assert_eq!(exit.code, Some(0), "{exit:?}");
    let log = yard.log(1, 0);
    let pids: Vec<i32> = log.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(pids.len(), 2, "{log}");
    for pid in pids {
        assert!(!lives(pid), "{pid} lives");
    }
}

#[test]
fn output_is_rotated_within_its_limit_while_the_job_runs() {
    let mut yard = Yard::new("rotation");
    let mut order = script(1, "for i in $(seq 1 20000); do echo line $i; done");
    order.limits.log_bytes_max = 32 << 10;
    assert_eq!(yard.run(order).code, Some(0));
    let key = (JobId(1), Attempt(1));
    let part = trainyard_backend::read_log(&yard.run_dir, key, 0, 0, u64::MAX).unwrap();
    assert!(part.bytes.len() <= 32 << 10 && part.from > 0, "{} bytes", part.bytes.len());
    assert!(String::from_utf8(part.bytes).unwrap().ends_with("line 20000\n"));
    // What was kept can be read after the attempt is forgotten, and the offsets mean the same.
    yard.backend().forget(JobId(1), Attempt(1));
    within(WAIT, "the attempt is put away", || !yard.dir(1).exists());
    let tail = trainyard_backend::read_log(&yard.run_dir, key, 0, part.end - 11, 100).unwrap();
    assert_eq!(tail.bytes, b"line 20000\n");
    let kept = yard.run_dir.join("logs/1.1");
    assert!(!kept.join("orders").exists(), "the environment of a user is not kept");
}

#[test]
fn what_a_job_says_arrives_as_samples_and_in_its_end() {
    let mut yard = Yard::new("saying");
    if !python_is_here() {
        return;
    }
    let text = r#"python3 - <<'END'
import os, socket, json
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["TRAINYARD_SOCKET"])
def say(**m): s.sendall((json.dumps(m) + "\n").encode())
say(type="restored", done=100, seconds=0.5)
say(type="progress", done=120, rate=8.0, step_seconds=0.125, noise_scale=900.0, loss=0.25)
s.sendall(b"nonsense\n")
say(type="saved", done=120, seconds=0.1)
say(type="finished")
END"#;
    yard.launch(script(1, text));
    let (mut sample, mut messages) = (None, Vec::new());
    let exit = loop {
        match yard.next() {
            Report::Said { sample: told, message, .. } => {
                if matches!(message, FromJob::Progress { .. }) {
                    sample = Some(told);
                }
                messages.push(message);
            }
            Report::Ended { exit, .. } => break exit,
            _ => {}
        }
    };
    let sample = sample.expect("progress is passed on");
    assert_eq!(sample.done.map(|work| work.0), Some(120.0));
    assert_eq!(sample.rate.map(|rate| rate.0), Some(8.0));
    assert_eq!(sample.step.map(|step| step.0), Some(125_000));
    assert_eq!((sample.noise, sample.loss), (Some(900.0), Some(0.25)));
    assert_eq!(messages.len(), 4, "{messages:?}");
    assert!(exit.finished && exit.saved == Some(120.0) && exit.done == Some(120.0), "{exit:?}");
    assert!(exit.restore_seconds == Some(0.5) && exit.start_seconds.is_some(), "{exit:?}");
}

pub fn python_is_here() -> bool {
    let here = std::process::Command::new("python3").arg("-c").arg("").status();
    let here = here.is_ok_and(|status| status.success());
    if !here {
        trainyard_testkit::skip!("python", "python3 is not here");
    }
    here
}
