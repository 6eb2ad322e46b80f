//! Answers as a daemon gives them.

use super::fake::Reply;
use serde_json::{Value, json};

pub fn ok(value: Value) -> Reply {
    Reply::Json(200, value)
}

/// A job in a list.
pub fn row(id: u32, state: &str, attempt: u32) -> Value {
    json!({
        "id": id, "name": "train", "user": "ada", "tenant": "vision", "state": state, "since": 1.7e9,
        "gpus": 4, "holds": [{ "node": "n0", "gpus": [0, 1, 2, 3] }], "attempt": attempt, "submitted": 1.7e9,
        "started": null, "ended": null, "ran_seconds": 12.0, "progress": 0.25, "restarts": 0, "preemptions": 0,
        "priority": 0, "why": "",
    })
}

/// All about a job whose last launch ended so.
pub fn detail(id: u32, state: &str, attempt: u32, ended: &Value) -> Value {
    let mut value = row(id, state, attempt);
    let mut launch = json!({
        "attempt": attempt, "holds": [], "launched": 1.7e9, "started": null, "ended": null,
        "exit_code": null, "signal": null, "outcome": "it ended",
    });
    for (key, part) in ended.as_object().expect("an object") {
        launch[key] = part.clone();
    }
    value["spec"] = json!({ "argv": ["python"] });
    value["attempts"] = json!([launch]);
    value["report"] = Value::Null;
    value["measured"] = json!({});
    value
}

pub fn chunk(text: &str, next: i64, attempt: u32, over: bool) -> Reply {
    ok(json!({ "text": text, "next": next, "attempt": attempt, "over": over }))
}

pub fn status(policy: &str) -> Value {
    json!({
        "version": "0.1.0", "schema_version": 1, "policy": policy, "policy_trouble": "it was slow",
        "jobs": { "running": 2 }, "gpus": 8, "gpus_used": 4, "gpus_lost": 1, "epoch": 3, "since": 1.7e9,
        "role": "admin", "user": "ada", "runs_as_users": false, "warnings": ["no cgroup"], "stats": {},
    })
}

pub fn problem(status: u16, code: &str, detail: &str) -> Reply {
    Reply::Json(status, json!({ "code": code, "detail": detail }))
}
