//! What is wrong with a request is said, with the field.

use crate::client::Running;

#[tokio::test]
async fn a_fault_in_a_body_names_its_field() {
    let rim = Running::plain().await;
    let mut client = rim.local().await;
    let faults = [
        ("{", "body", "EOF while parsing"),
        ("{}", "body", "missing field `jobs`"),
        ("[]", "body", "invalid length 0"),
        (r#"{"jobs":[]}"#, "jobs", "at least one job"),
        (r#"{"jobs":[{"gpus":1},{"gpus":"two"}]}"#, "jobs[1].gpus", "expected u32"),
        (r#"{"jobs":[{"gpu":1}]}"#, "jobs[0].gpu", "unknown field `gpu`"),
        (r#"{"jobs":[{"gpus":-1}]}"#, "jobs[0].gpus", "expected u32"),
        (r#"{"jobs":[{"env":{"A=B":"c"}}]}"#, "jobs[0].env", "cannot name a variable"),
        (r#"{"jobs":[{"argv":["a\u0000b"]}]}"#, "jobs[0].argv", "NUL"),
        (r#"{"jobs":[{}]} trailing"#, "body", "something follows"),
    ];
    for (body, field, says) in faults {
        let got = client.post("/v1/jobs", body).await;
        assert_eq!((got.status, got.json()["code"].as_str()), (422, Some("bad-input")), "{body}");
        assert_eq!(got.json()["field"], field, "{body}: {}", got.text);
        assert!(got.detail().contains(says), "{body}: {}", got.detail());
    }
    let deep = format!(r#"{{"jobs":{}"#, "[".repeat(100_000));
    assert_eq!(client.post("/v1/jobs", &deep).await.status, 422);
    assert!(rim.service.memory.lock().unwrap().jobs.is_empty(), "nothing was taken on");
}

#[tokio::test]
async fn a_fault_in_an_address_names_its_field() {
    let rim = Running::plain().await;
    let mut client = rim.local().await;
    let faults = [
        ("/v1/jobs?limit=many", "limit", "invalid digit"),
        ("/v1/jobs?all=maybe", "all", "`true` or `false`"),
        ("/v1/jobs?limit=0", "limit", "at least 1"),
        ("/v1/jobs?limit=99999", "limit", "10000 is allowed at most"),
        ("/v1/jobs?user=a&user=b", "user", "given twice"),
        ("/v1/jobs?usr=a", "usr", "expected one of all, before, limit, state, tenant, user"),
        ("/v1/nodes?x=1", "x", "this address takes none"),
        ("/v1/events?wait=1e9", "wait", "expected 0 to 60 seconds"),
        ("/v1/events?wait=NaN", "wait", "expected 0 to 60 seconds"),
        ("/v1/jobs/seven", "id", "`seven` is no job: expected a whole number"),
        ("/v1/jobs/4294967296/why", "id", "expected a whole number"),
        ("/v1/jobs/1/logs?max=999999999", "max", "1048576 is allowed at most"),
    ];
    for (path, field, says) in faults {
        let got = client.get(path).await;
        assert_eq!((got.status, got.json()["field"].as_str()), (422, Some(field)), "{}", got.text);
        assert!(got.detail().contains(says), "{path}: {}", got.detail());
    }
}

#[tokio::test]
async fn filters_come_to_the_desk_and_lists_are_wrapped() {
    let rim = Running::plain().await;
    rim.service.add_job("ann");
    let mut client = rim.local().await;
    let path = "/v1/jobs?user=a%20b&tenant=t&state=running&all=true&limit=7&before=9";
    let got = client.get(path).await;
    assert_eq!(got.json()["schema_version"], 1);
    assert_eq!(got.json()["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(got.header("trainyard-schema-version"), "1");
    assert_eq!(got.header("cache-control"), "no-store");
    let filter = rim.service.memory.lock().unwrap().filters[0].clone();
    assert_eq!(filter.user.as_deref(), Some("a b"));
    assert_eq!((filter.all, filter.limit, filter.before), (true, Some(7), Some(9)));
}

#[tokio::test]
async fn the_header_idempotency_key_is_the_field_key() {
    let rim = Running::plain().await;
    let mut client = rim.local().await;
    let (body, key) = (r#"{"jobs":[{"argv":["true"]}]}"#, [("idempotency-key", "k1")]);
    let first = client.ask("POST", "/v1/jobs", &key, body).await.json();
    let second = client.ask("POST", "/v1/jobs", &key, body).await.json();
    let keyed = r#"{"jobs":[{"argv":["true"]}],"key":"k1"}"#;
    let third = client.post("/v1/jobs", keyed).await.json();
    assert_eq!(
        (first["repeated"].as_bool(), second["repeated"].as_bool()),
        (Some(false), Some(true))
    );
    assert_eq!((&first["jobs"], &first["jobs"]), (&second["jobs"], &third["jobs"]));
    let got = client.ask("POST", "/v1/jobs", &[("idempotency-key", "k2")], keyed).await;
    assert_eq!((got.status, got.json()["field"].as_str()), (422, Some("key")));
    let long = "k".repeat(257);
    let got = client.ask("POST", "/v1/jobs", &[("idempotency-key", &long)], body).await;
    assert_eq!((got.status, got.json()["field"].as_str()), (422, Some("Idempotency-Key")));
}

#[tokio::test]
async fn lost_requests_get_a_problem_too() {
    let rim = Running::plain().await;
    let mut client = rim.local().await;
    let got = client.get("/v2/jobs").await;
    assert_eq!((got.status, got.json()["code"].as_str()), (404, Some("not-found")));
    let got = client.get("/v1/jobs/%FF").await;
    assert_eq!((got.status, got.json()["code"].as_str()), (404, Some("not-found")));
    let got = client.ask("DELETE", "/v1/jobs", &[], "").await;
    assert_eq!((got.status, got.header("allow")), (405, "POST, GET"));
    assert!(got.detail().contains("expected POST, GET"), "{}", got.text);
    let got = client.get("/v1/jobs/99").await;
    assert_eq!((got.status, got.detail().as_str()), (404, "there is no job 99"));
    let got = client.get("/v1/jobs/666/why").await;
    assert_eq!((got.status, got.json()["code"].as_str()), (500, Some("internal")));
    assert_eq!(client.get("/healthz").await.status, 200, "the connection goes on");
}

#[tokio::test]
async fn only_what_calls_itself_json_is_read_as_json() {
    let rim = Running::plain().await;
    let mut client = rim.local().await;
    let body = r#"{"jobs":[{"argv":["true"]}]}"#;
    for (kind, status) in [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("application/problem+json", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/jsonx", 415),
        ("", 415),
    ] {
        let got = client.ask("POST", "/v1/jobs", &[("content-type", kind)], body).await;
        assert_eq!(got.status, status, "{kind}: {}", got.text);
        if status == 415 {
            assert!(got.detail().contains("expected application/json"), "{}", got.text);
        }
    }
    let got = client.ask("POST", "/v1/jobs", &[], body).await;
    assert_eq!(got.status, 200, "one that says nothing is read: {}", got.text);
}
