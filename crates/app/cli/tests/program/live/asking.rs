//! Tokens and addresses.

use super::answers::{ok, status};
use super::fake::Fake;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_token_comes_from_a_file_or_the_environment() {
    let fake = Fake::start_tcp("token", |_, _| ok(status("fifo")));
    fake.place.write("t", "secret-1\n");
    let file = fake.place.root().join("t");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("a file");
    let run = fake.run(&["status", "--token-file", "t"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let mut command = fake.place.command(&["status", "--server", &fake.server]);
    assert!(command.env("TRAINYARD_TOKEN", "secret-2").output().expect("runs").status.success());
    let mut command = fake.place.command(&["status"]);
    command.env("TRAINYARD_TOKEN_FILE", "t").env("TRAINYARD_SERVER", &fake.server);
    assert!(command.output().expect("runs").status.success());
    let tokens: Vec<_> = fake.seen().into_iter().map(|request| request.token).collect();
    let [one, two] = [Some("secret-1".to_owned()), Some("secret-2".to_owned())];
    assert_eq!(tokens, [one.clone(), two, one]);
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("a file");
    let run = fake.run(&["status", "--token-file", "t"]);
    assert!(run.code == 0 && run.err.contains("chmod 600 t"), "{}", run.err);
    fake.place.write("t", "two words\n");
    let run = fake.run(&["status", "--token-file", "t"]);
    assert_eq!(run.code, 3);
    assert!(run.err.contains("one word") && !run.err.contains("two words"), "{}", run.err);
}

#[test]
fn tokens_are_made_listed_and_dropped() {
    let info =
        json!({ "name": "ci", "user": "ada", "role": "user", "created": 1.7e9, "expires": null });
    let fake = Fake::start("tokens", move |request, _| match request.line().as_str() {
        "POST /v1/tokens" => ok(json!({ "token": "ty-secret", "info": info })),
        "GET /v1/tokens" => ok(json!({ "schema_version": 1, "tokens": [info] })),
        _ => ok(json!({})),
    });
    let run = fake.run(&["token", "create", "ci", "--expires", "30d"]);
    assert_eq!((run.code, run.out.as_str()), (0, "ty-secret\n"), "{}", run.err);
    assert!(!run.err.contains("ty-secret"), "{}", run.err);
    let made = fake.seen()[0].json();
    let wanted =
        json!({ "name": "ci", "user": null, "role": "user", "expires_seconds": 2_592_000.0 });
    assert_eq!(made, wanted);
    let run = fake.run(&["token", "create", "ci", "--user", "bob", "-o", "ci.token"]);
    assert_eq!((run.code, run.out.as_str()), (0, "ci.token\n"), "{}", run.err);
    assert_eq!(fake.place.read("ci.token"), "ty-secret\n");
    let mode = std::fs::metadata(fake.place.root().join("ci.token")).expect("a file").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let count = fake.seen().len();
    assert_eq!(fake.run(&["token", "create", "ci", "-o", "ci.token"]).code, 1);
    assert_eq!(fake.seen().len(), count, "no token is made that could not be kept");
    assert_eq!(fake.run(&["token", "create", "ci", "--role", "root"]).code, 3);
    assert!(fake.run(&["token", "list"]).out.contains("never"));
    assert_eq!(fake.run(&["token", "drop", "a b"]).code, 0);
    assert_eq!(fake.lines().last().map(String::as_str), Some("DELETE /v1/tokens/a%20b"));
}
