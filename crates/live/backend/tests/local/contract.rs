//! The checkpoint contract: signal, grace, early acknowledgement, kill.

use crate::running::python_is_here;
use crate::yard::{WAIT, Yard, gang, lives, script, within};
use std::time::Instant;
use trainyard_api::wire::FromJob;
use trainyard_backend::order::Limits;
use trainyard_backend::{Backend, Order, Report, ResizeOrder};
use trainyard_testkit::orders::Orders;
use trainyard_types::{Attempt, JobId};

const LONG: f64 = 60.0;

#[test]
fn a_job_that_saves_and_exits_is_waited_for_and_its_save_is_timed() {
    let mut yard = Yard::new("saves");
    yard.launch(gang(
        1,
        "trap 'sleep 0.2; exit 85' TERM; echo ready; while :; do sleep 0.02; done",
    ));
    yard.until_started();
    yard.until_log(1, "ready");
    within(WAIT, "rank 1 is ready", || yard.log(1, 1).contains("ready"));
    yard.stop(1, LONG);
    let exit = yard.until_ended();
    assert_eq!((exit.code, exit.asked_to_stop, exit.killed), (Some(85), true, false), "{exit:?}");
    let save = exit.save_seconds.unwrap();
    assert!((0.2..LONG / 2.0).contains(&save), "{exit:?}");
    assert!(yard.log(1, 0).contains("asked to stop within 60.0 s: a test"));
}

#[test]
fn another_signal_can_be_chosen() {
    let mut yard = Yard::new("usr1");
    let mut order = script(
        1,
        "trap 'exit 9' USR1; trap 'exit 8' TERM; echo ready; while :; do sleep 0.02; done",
    );
    order.checkpoint.signal = "USR1".to_owned();
    yard.launch(order);
    yard.until_log(1, "ready");
    yard.stop(1, LONG);
    assert_eq!(yard.until_ended().code, Some(9));
}

#[test]
fn the_file_that_says_saved_ends_the_grace_early() {
    let mut yard = Yard::new("file");
    let text = "trap 'echo 250 > $TRAINYARD_ACK_FILE.x; mv $TRAINYARD_ACK_FILE.x $TRAINYARD_ACK_FILE' TERM; \
                echo ready; while :; do sleep 0.02; done";
    yard.launch(script(1, text));
    yard.until_log(1, "ready");
    let asked = Instant::now();
    yard.stop(1, LONG);
    let exit = yard.until_ended();
    assert!(asked.elapsed().as_secs_f64() < LONG / 2.0);
    assert_eq!((exit.signal, exit.killed, exit.saved), (Some(9), false, Some(250.0)), "{exit:?}");
}

#[test]
fn the_message_saved_ends_the_grace_early_and_the_request_comes_by_the_socket_too() {
    if !python_is_here() {
        return;
    }
    let mut yard = Yard::new("message");
    let text = r#"exec python3 -u - <<'END'
import os, socket, json, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["TRAINYARD_SOCKET"])
f = s.makefile("r")
print("ready")
for line in f:
    m = json.loads(line)
    print(m["type"], flush=True)
    if m["type"] == "stop":
        s.sendall(b'{"type":"saved","done":42}\n')
END"#;
    yard.launch(script(1, text));
    yard.until_log(1, "ready");
    yard.backend().set_batch(JobId(1), Attempt(1), 512);
    yard.until_log(1, "batch");
    yard.stop(1, LONG);
    let exit = yard.until_ended();
    assert_eq!((exit.signal, exit.killed, exit.saved), (Some(9), false, Some(42.0)), "{exit:?}");
    assert!(exit.save_seconds.unwrap() < LONG / 2.0);
}

#[test]
fn a_job_is_told_of_other_gpus_and_its_answer_is_told_again_to_who_asks_again() {
    if !python_is_here() {
        return;
    }
    let mut yard = Yard::new("resize");
    let text = r#"exec python3 -u - <<'END'
import os, socket, json
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["TRAINYARD_SOCKET"])
f = s.makefile("r")
print("ready")
for line in f:
    m = json.loads(line)
    if m["type"] == "resize":
        print("told of", ",".join(m["devices"]), flush=True)
        s.sendall(json.dumps({"type": "resized", "devices": m["devices"]}).encode() + b"\n")
END"#;
    yard.launch(script(1, text));
    yard.until_log(1, "ready");
    let devices = vec!["GPU-a".to_owned(), "GPU-b".to_owned()];
    let order = ResizeOrder { devices: devices.clone(), limits: Limits::default() };
    for _ in 0..2 {
        yard.backend().obey(Order::Resize(JobId(1), Attempt(1), order.clone()));
        let answer = loop {
            if let Report::Said { message: FromJob::Resized { devices }, .. } = yard.next() {
                break devices;
            }
        };
        assert_eq!(answer, devices);
    }
    assert_eq!(yard.log(1, 0).matches("told of GPU-a,GPU-b").count(), 1, "the job is asked once");
    yard.stop(1, 0.0);
    yard.until_ended();
}

#[test]
fn a_job_that_ignores_every_signal_is_killed_after_its_grace_and_not_before() {
    let mut yard = Yard::new("ignoring");
    let text = "trap '' TERM INT USR1 USR2 HUP QUIT; echo ready; (trap '' TERM; echo $BASHPID; \
                while :; do sleep 0.1; done) & while :; do sleep 0.1; done";
    yard.launch(script(1, text));
    yard.until_log(1, "ready\n");
    within(WAIT, "the child's number", || yard.log(1, 0).lines().count() >= 2);
    let child: i32 = yard.log(1, 0).lines().nth(1).unwrap().parse().unwrap();
    yard.stop(1, 0.5);
    let exit = yard.until_ended();
    assert_eq!((exit.signal, exit.killed, exit.asked_to_stop), (Some(9), true, true), "{exit:?}");
    assert!(exit.save_seconds.unwrap() >= 0.5, "{exit:?}");
    assert!(!lives(child));
}

#[test]
fn a_second_request_shortens_the_grace_and_a_grace_of_nothing_kills_at_once() {
    let mut yard = Yard::new("shorter");
    yard.launch(script(1, "trap '' TERM; echo ready; while :; do sleep 0.05; done"));
    yard.until_log(1, "ready");
    yard.stop(1, LONG);
    yard.until_log(1, "asked to stop");
    yard.stop(1, 0.0);
    let exit = yard.until_ended();
    assert!(exit.killed && exit.save_seconds.unwrap() < LONG / 2.0, "{exit:?}");
}

#[test]
fn a_request_that_comes_before_the_start_is_not_lost() {
    let mut yard = Yard::new("early");
    yard.launch(script(1, "while :; do sleep 0.05; done"));
    yard.stop(1, 5.0);
    let exit = yard.until_ended();
    assert!(exit.asked_to_stop, "{exit:?}");
}

/// A job that speaks `words` at once and `answer` when it is asked to stop, and then exits with 0.
fn speaks(words: &str, answer: &str) -> String {
    let text = r#"exec python3 -u - <<'END'
import os, signal, socket, time
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["TRAINYARD_SOCKET"])
def say(line):
    if line: s.sendall(line.encode() + b"\n")
def stop(*_):
    say('ANSWER')
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
say('WORDS')
time.sleep(0.2)
print("ready")
while True: time.sleep(0.02)
END"#;
    text.replace("WORDS", words).replace("ANSWER", answer)
}

#[test]
fn a_save_told_before_the_request_acknowledges_nothing_and_one_after_it_does() {
    if !python_is_here() {
        return;
    }
    let mut yard = Yard::new("order");
    let (periodic, nothing) = (r#"{"type":"saved","done":5}"#, "");
    let zero = r#"{"type":"saved","done":0}"#;
    for (job, words, answer, acknowledged, saved) in [
        (1, periodic, nothing, false, Some(5.0)),
        (2, nothing, zero, true, Some(0.0)),
        (3, periodic, zero, true, Some(0.0)),
        (4, nothing, nothing, false, None),
    ] {
        yard.launch(script(job, &speaks(words, answer)));
        yard.until_log(job, "ready");
        yard.stop(job, LONG);
        let exit = yard.until_ended();
        assert_eq!((exit.code, exit.asked_to_stop), (Some(0), true), "{job}: {exit:?}");
        assert_eq!(exit.acknowledged, Some(acknowledged), "{job}: {exit:?}");
        assert_eq!((exit.saved, exit.checkpoint), (saved, saved.is_some()), "{job}: {exit:?}");
    }
}

#[test]
fn what_a_job_said_of_its_end_comes_with_it() {
    if !python_is_here() {
        return;
    }
    let mut yard = Yard::new("words");
    let all = r#"{"type":"progress","done":9,"total":9}"#;
    yard.launch(script(1, &speaks(all, r#"{"type":"finished"}"#)));
    yard.until_log(1, "ready");
    yard.stop(1, LONG);
    let exit = yard.until_ended();
    assert_eq!((exit.done, exit.total, exit.finished), (Some(9.0), Some(9.0), true), "{exit:?}");
}

#[test]
fn a_checkpoint_told_by_file_without_a_request_is_known_at_the_end() {
    let mut yard = Yard::new("unasked");
    let exit = yard.run(script(1, "echo 12 > $TRAINYARD_ACK_FILE; exit 1"));
    assert_eq!((exit.code, exit.saved, exit.checkpoint), (Some(1), Some(12.0), true), "{exit:?}");
    assert_eq!((exit.asked_to_stop, exit.acknowledged), (false, Some(false)), "{exit:?}");
}
