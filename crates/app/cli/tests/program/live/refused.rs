//! What goes wrong, and its exit code.

use super::answers::{ok, problem, row};
use super::fake::{Fake, Reply};
use crate::place::Place;
use serde_json::{Value, json};

#[test]
fn every_problem_ends_with_its_exit_code() {
    for (number, status, code, exit) in [
        (0, 422, "bad-input", 3),
        (1, 422, "infeasible", 4),
        (2, 401, "unauthenticated", 5),
        (3, 403, "denied", 5),
        (4, 404, "not-found", 6),
        (5, 409, "conflict", 7),
        (6, 413, "too-large", 3),
        (7, 429, "too-many", 8),
        (8, 507, "store-failed", 1),
        (9, 500, "internal", 1),
    ] {
        let fake = Fake::start(&format!("code-{number}"), move |_, _| {
            let body = json!({ "code": code, "detail": "said so", "field": "gpus" });
            Reply::Json(status, body)
        });
        let run = fake.run(&["why", "3"]);
        assert_eq!((run.code, run.err.as_str()), (exit, "error: `gpus`: said so\n"), "{code}");
        let json = fake.run(&["why", "3", "--json"]);
        let value: Value = serde_json::from_str(&json.err).expect("JSON");
        assert_eq!(value["error"]["kind"], code);
        assert_eq!(
            (&value["error"]["exit_code"], &value["error"]["field"]),
            (&json!(exit), &json!("gpus"))
        );
    }
}

#[test]
fn an_order_whose_answer_is_lost_is_not_given_twice() {
    let fake = Fake::start("lost", |_, _| Reply::HangUp);
    let run = fake.run(&["cancel", "3", "--reason", "x"]);
    assert_eq!(run.code, 8, "{}", run.err);
    assert!(run.err.contains("look before you repeat"), "{}", run.err);
    assert_eq!(fake.lines(), ["POST /v1/jobs/3/act"]);
    assert_eq!(fake.seen()[0].json(), json!({ "action": "cancel", "reason": "x" }));
}

#[test]
fn one_job_that_cannot_be_cancelled_does_not_save_the_others() {
    let fake = Fake::start("cancel", |request, _| match request.path.as_str() {
        "/v1/jobs/2/act" => problem(409, "conflict", "job 2 has ended already"),
        _ => ok(row(1, "cancelled", 1)),
    });
    let run = fake.run(&["cancel", "1", "2", "3"]);
    assert_eq!((run.code, run.err.as_str()), (7, "error: job 2 has ended already\n"));
    assert_eq!(run.out, "job 1 cancelled: cancelled\njob 3 cancelled: cancelled\n");
    for (verb, action) in [("hold", "hold"), ("release", "release"), ("requeue", "requeue")] {
        assert_eq!(fake.run(&[verb, "1"]).code, 0);
        let seen = fake.seen();
        assert_eq!(seen[seen.len() - 1].json(), json!({ "action": action }));
    }
}

#[test]
fn where_no_daemon_is_the_message_says_how_to_start_one() {
    let place = Place::new("no-daemon");
    let runtime = place.root().join("nothing");
    let mut command = place.command(&["ps"]);
    let output =
        command.env("XDG_RUNTIME_DIR", &runtime).env("HOME", &runtime).output().expect("runs");
    let message = String::from_utf8_lossy(&output.stderr);
    // A daemon of the system may run where the tests do.
    if output.status.code() != Some(0) {
        assert_eq!(output.status.code(), Some(8), "{message}");
        assert!(message.contains("trainyard serve"), "{message}");
        assert!(message.contains("nothing/trainyard/api.sock"), "{message}");
    }
    let run = place.run(&["ps", "--server", "unix:gone.sock"]);
    assert_eq!(run.code, 8);
    assert!(
        run.err.contains("unix:gone.sock") && run.err.contains("trainyard serve"),
        "{}",
        run.err
    );
}

#[test]
fn an_address_in_the_open_or_of_no_form_is_refused() {
    let place = Place::new("address");
    for address in ["http://example.org", "ftp://a", "nonsense"] {
        let run = place.run(&["ps", "--server", address]);
        assert_eq!(run.code, 3, "{}", run.err);
        assert!(
            run.err.contains("--server") && run.err.contains("https://host:port"),
            "{}",
            run.err
        );
    }
}

#[test]
fn an_answer_of_something_else_is_no_success() {
    let fake = Fake::start("odd", |_, _| Reply::Bytes(b"<html>"));
    let run = fake.run(&["status"]);
    assert_eq!(run.code, 1);
    assert!(run.err.contains("not understood"), "{}", run.err);
    let fake = Fake::start("gateway", |_, _| Reply::Json(502, json!("bad gateway")));
    let run = fake.run(&["status"]);
    assert_eq!(run.code, 1);
    assert!(run.err.contains("502"), "{}", run.err);
}
