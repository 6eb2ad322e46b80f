//! Looking at jobs, nodes, tenants, events and the daemon.

use super::answers::{chunk, ok, row, status};
use super::fake::{Fake, Reply, Request};
use crate::place::lines;
use serde_json::{Value, json};

fn daemon(request: &Request, _: usize) -> Reply {
    match request.path.split('?').next().unwrap_or_default() {
        "/v1/jobs" => {
            let mut waiting = row(13, "waiting", 0);
            waiting["holds"] = json!([]);
            waiting["why"] = json!("4 GPUs of h100 are wanted, 2 are free");
            ok(json!({ "schema_version": 1, "jobs": [row(12, "running", 1), waiting] }))
        }
        "/v1/jobs/13/why" => ok(json!({
            "job": 13, "state": "waiting", "since": 1.7e9, "reasons": ["no room"], "data": [],
            "blockers": [3, 4, 5], "nearest_change": "2 GPUs less", "not_before": 1.9e9,
        })),
        "/v1/nodes" => ok(json!({ "schema_version": 1, "nodes": [node("up")] })),
        "/v1/nodes/n%2F0/act" => ok(node("drained")),
        "/v1/fair" => ok(json!({ "schema_version": 1, "tenants": [{
            "tenant": "vision", "parent": null, "weight": 2.0, "entitled": 0.5, "used": 0.25, "gpus": 4.0,
            "ceiling": 8, "waiting": 1, "running": 2,
        }] })),
        "/v1/acct" => ok(json!({ "schema_version": 1, "usage": [{
            "user": "ada", "tenant": "vision", "jobs": 3, "gpu_hours": 12.5, "cost": 31.25, "launches": 4,
        }] })),
        "/v1/events" => {
            let from = if request.path.contains("after=0&") { 0 } else { 2 };
            let event = |seq: u64| json!({ "seq": seq, "at": 1.7e9, "kind": "started", "job": 12, "text": "on n0" });
            let events: Vec<Value> = (from + 1..=2).map(event).collect();
            ok(json!({ "schema_version": 1, "events": events }))
        }
        "/v1/status" => ok(status("fifo")),
        "/v1/policy" => ok(status("las:quantum=10m")),
        "/v1/capture" => Reply::Bytes(b"{\"a\":1}\n{\"b\":2}\n"),
        _ => super::answers::problem(404, "not-found", "no such thing"),
    }
}

fn node(state: &str) -> Value {
    json!({
        "name": "n/0", "gpu_type": "h100", "gpus": [[12], [12, 14], []], "state": state, "free": 1, "cpus": 64,
        "memory_mib": 524288, "reason": "new driver",
    })
}

#[test]
fn ps_lists_jobs_and_passes_its_filters_on() {
    let fake = Fake::start("ps", daemon);
    let run = fake.run(&["ps"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let rows = lines(&run.out);
    assert!(rows.iter().any(|row| row.contains("n0[0-3]") && row.contains("25 %")), "{}", run.out);
    assert!(run.out.contains("4 GPUs of h100 are wanted, 2 are free"), "{}", run.out);
    let json = fake.run(&["ps", "--json", "-a", "--user", "a&b", "--state", "time-limit"]);
    let value: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!((&value["schema_version"], &value["jobs"][1]["id"]), (&json!(1), &json!(13)));
    let lines = fake.lines();
    assert_eq!(lines[0], "GET /v1/jobs?all=false&limit=200");
    assert_eq!(lines[1], "GET /v1/jobs?user=a%26b&state=time-limit&all=true&limit=200");
    let wrong = fake.run(&["ps", "--state", "runing"]);
    assert_eq!(wrong.code, 3);
    assert!(wrong.err.contains("did you mean `running`?"), "{}", wrong.err);
}

#[test]
fn why_names_reasons_blockers_and_the_nearest_change() {
    let fake = Fake::start("why", daemon);
    let run = fake.run(&["why", "13"]);
    assert_eq!(run.code, 0, "{}", run.err);
    for part in ["job 13 is waiting", "no room", "3-5", "2 GPUs less", "not before"] {
        assert!(run.out.contains(part), "`{part}` is not in {}", run.out);
    }
}

#[test]
fn nodes_shares_use_and_the_daemon_are_shown() {
    let fake = Fake::start("shown", daemon);
    for (line, parts) in [
        (&["nodes"][..], &["n/0", "1 of 3", "12 12+14 -", "512 GiB"][..]),
        (&["drain", "n/0", "--reason", "x"], &["node n/0 is drained (new driver)"]),
        (&["resume", "n/0"], &["node n/0"]),
        (&["fair"], &["vision", "50.0 %", "25.0 %"]),
        (&["acct", "--since", "7d"], &["ada", "12.50", "31.25"]),
        (&["status"], &["fifo", "4 of 8 in use", "no cgroup", "it was slow", "2 running"]),
        (&["policy"], &["fifo"]),
        (&["policy", "las:quantum=10m", "--place", "best-fit"], &["las:quantum=10m"]),
    ] {
        let run = fake.run(line);
        assert_eq!(run.code, 0, "{line:?} {}", run.err);
        for part in parts {
            assert!(run.out.contains(part), "`{part}` is not in {}", run.out);
        }
        let json = fake.run(&[line, &["--json"]].concat());
        let value: Value = serde_json::from_str(&json.out).expect("JSON");
        assert_eq!(value["schema_version"], 1, "{line:?}");
    }
    let seen = fake.seen();
    let drain = seen.iter().find(|request| request.path.contains("/act")).expect("a drain");
    assert_eq!(drain.json(), json!({ "action": "drain", "reason": "x" }));
    let policy = seen.iter().find(|request| request.method == "PUT").expect("a change");
    assert_eq!(policy.json()["place"], "best-fit");
    assert_eq!(fake.run(&["acct", "--since", "once"]).code, 3);
}

#[test]
fn events_are_paged_to_the_end() {
    let fake = Fake::start("events", daemon);
    let run = fake.run(&["events"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert_eq!(lines(&run.out).len(), 2);
    assert!(run.out.contains("started") && run.out.contains("job 12  on n0"), "{}", run.out);
    let json = fake.run(&["events", "--json"]);
    let value: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(value["events"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_record_is_written_as_it_came() {
    let fake = Fake::start("capture", daemon);
    let run = fake.run(&["capture", "-o", "record.jsonl"]);
    assert_eq!((run.code, run.out.as_str()), (0, "record.jsonl: 2 lines\n"), "{}", run.err);
    assert_eq!(fake.place.read("record.jsonl"), "{\"a\":1}\n{\"b\":2}\n");
    assert_eq!(fake.run(&["capture", "-o", "-"]).out, "{\"a\":1}\n{\"b\":2}\n");
}

#[test]
fn logs_are_read_in_parts_and_from_the_end() {
    let text = "one\ntwo\nthree\n";
    let fake = Fake::start("logs", move |request, _| {
        let path = &request.path;
        match path.contains("from=-") {
            true => chunk(text, text.len() as i64, 1, true),
            false if path.contains("from=0&") => chunk(&text[..8], 8, 1, false),
            false if path.contains("from=8&") => chunk(&text[8..], 14, 1, true),
            false => chunk("", 14, 1, true),
        }
    });
    assert_eq!(fake.run(&["logs", "3"]).out, text);
    assert_eq!(fake.run(&["logs", "3", "--tail", "2", "--rank", "5"]).out, "two\nthree\n");
    assert_eq!(fake.run(&["logs", "3", "--tail", "9"]).out, text);
    assert_eq!(fake.run(&["logs", "-f", "3", "--attempt", "1"]).out, text);
    assert_eq!(fake.run(&["logs", "-f", "3", "--json"]).code, 2);
    let json = fake.run(&["logs", "3", "--json"]);
    let value: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!((&value["text"], &value["attempt"]), (&json!(text), &json!(1)));
    assert!(fake.lines().iter().any(|line| line.contains("rank=5&from=-")), "{:?}", fake.lines());
}

#[test]
fn top_prints_one_frame_where_there_is_no_terminal() {
    let fake = Fake::start("top", daemon);
    let run = fake.run(&["top"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let frame = lines(&run.out);
    assert_eq!(frame.len(), 24, "{}", run.out);
    for part in ["fifo", "4/8 GPUs", "it was slow", "n/0 m2·", "12 ada train", "4 GPUs of h100"] {
        assert!(run.out.contains(part), "`{part}` is not in\n{}", run.out);
    }
    assert!(!run.out.contains('\u{1b}'), "plain text");
    let jobs = fake.run(&[
        "top",
        "--once",
        "--view",
        "jobs",
        "--filter",
        "is:waiting",
        "--size",
        "120x30",
    ]);
    assert_eq!(lines(&jobs.out).len(), 30, "{}", jobs.err);
    assert!(jobs.out.contains("13 train") && !jobs.out.contains("12 train"), "{}", jobs.out);
    let eta = fake.lines().iter().filter(|line| line.contains("/eta")).count();
    assert_eq!(eta, 2, "asked for once in each run, and missing without a word");
    let json = fake.run(&["top", "--json"]);
    let value: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!((&value["schema_version"], &value["jobs"][0]["id"]), (&json!(1), &json!(13)));
    assert_eq!(value["events"].as_array().map(Vec::len), Some(2));
    for (flag, text) in
        [("--every", "0s"), ("--every", "soon"), ("--size", "10x2"), ("--size", "wide")]
    {
        let wrong = fake.run(&["top", "--once", flag, text]);
        assert!(wrong.code == 3 && wrong.err.contains(flag), "{}", wrong.err);
    }
}
