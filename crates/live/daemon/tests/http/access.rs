//! Every route without a token and for each role.

use crate::client::Running;
use trainyard_api::endpoint::ENDPOINTS;
use trainyard_daemon::access::Role;

const JOB: &str = r#"{"jobs":[{"argv":["true"]}]}"#;
const TOKEN: &str = r#"{"name":"ci","user":"ann","role":"viewer"}"#;

/// Method, path, body, and the status without a token and for viewer, user, operator and admin. Job 1 belongs to
/// another user, job 2 to the caller.
const EXPECTED: &[(&str, &str, &str, [u16; 5])] = &[
    ("POST", "/v1/jobs", JOB, [401, 403, 200, 200, 200]),
    ("GET", "/v1/jobs", "", [401, 200, 200, 200, 200]),
    ("GET", "/v1/jobs/1", "", [401, 200, 200, 200, 200]),
    ("GET", "/v1/jobs/1/why", "", [401, 200, 200, 200, 200]),
    ("GET", "/v1/jobs/1/logs", "", [401, 403, 403, 200, 200]),
    ("GET", "/v1/jobs/2/logs", "", [401, 403, 200, 200, 200]),
    ("POST", "/v1/jobs/1/act", r#"{"action":"cancel"}"#, [401, 403, 403, 200, 200]),
    ("POST", "/v1/jobs/2/act", r#"{"action":"hold"}"#, [401, 403, 200, 200, 200]),
    ("GET", "/v1/jobs/2/eta", "", [401, 200, 200, 200, 200]),
    ("GET", "/v1/eta", "", [401, 200, 200, 200, 200]),
    ("POST", "/v1/whatif", r#"{"policies":["fifo"]}"#, [401, 200, 200, 200, 200]),
    ("POST", "/v1/plan", JOB, [401, 403, 200, 200, 200]),
    ("GET", "/v1/nodes", "", [401, 200, 200, 200, 200]),
    ("GET", "/v1/gpus", "", [401, 200, 200, 200, 200]),
    ("GET", "/v1/policies", "", [401, 200, 200, 200, 200]),
    ("POST", "/v1/nodes/n1/act", r#"{"action":"drain"}"#, [401, 403, 403, 200, 200]),
    ("GET", "/v1/windows", "", [401, 200, 200, 200, 200]),
    ("POST", "/v1/windows", r#"{"nodes":["n1"],"from":1,"until":2}"#, [401, 403, 403, 200, 200]),
    ("DELETE", "/v1/windows/1", "", [401, 403, 403, 204, 204]),
    ("GET", "/v1/pools", "", [401, 200, 200, 200, 200]),
    ("PUT", "/v1/pools/inference", r#"{"needed":1}"#, [401, 403, 403, 200, 200]),
    ("GET", "/v1/fair", "", [401, 200, 200, 200, 200]),
    ("GET", "/v1/acct", "", [401, 200, 200, 200, 200]),
    ("GET", "/v1/events", "", [401, 200, 200, 200, 200]),
    ("GET", "/v1/board", "", [401, 200, 200, 200, 200]),
    ("GET", "/v1/timeline", "", [401, 200, 200, 200, 200]),
    ("GET", "/v1/page", "", [401, 200, 200, 200, 200]),
    ("GET", "/v1/status", "", [401, 200, 200, 200, 200]),
    ("PUT", "/v1/policy", r#"{"policy":"x"}"#, [401, 403, 403, 403, 200]),
    ("POST", "/v1/policy/try", r#"{"policy":"x","seconds":1}"#, [401, 403, 403, 403, 200]),
    ("POST", "/v1/policy/end", r#"{"keep":true}"#, [401, 403, 403, 403, 200]),
    ("GET", "/v1/capture", "", [401, 403, 403, 403, 200]),
    ("GET", "/v1/tokens", "", [401, 403, 403, 403, 200]),
    ("POST", "/v1/tokens", TOKEN, [401, 403, 403, 403, 200]),
    ("DELETE", "/v1/tokens/ci", "", [401, 403, 403, 403, 204]),
    ("GET", "/metrics", "", [401, 200, 200, 200, 200]),
    ("GET", "/openapi.json", "", [200, 200, 200, 200, 200]),
    ("GET", "/healthz", "", [200, 200, 200, 200, 200]),
];

#[tokio::test]
async fn every_route_lets_in_whom_it_should_and_nobody_else() {
    let rim = Running::start(|options, _| options.limits.refusals_per_second = 1e6).await;
    rim.service.add_job("bob");
    rim.service.add_job("ann");
    for (column, role) in
        [None, Some(Role::Viewer), Some(Role::User), Some(Role::Operator), Some(Role::Admin)]
            .into_iter()
            .enumerate()
    {
        let token = role.map(|role| rim.service.token("ann", role, 60.0));
        let mut client = rim.remote(token.as_deref()).await;
        for (method, path, body, statuses) in EXPECTED {
            let got = client.ask(method, path, &[], body).await;
            assert_eq!(got.status, statuses[column], "{method} {path} as {role:?}: {}", got.text);
            if got.status >= 400 {
                got.detail();
            }
        }
    }
}

#[test]
fn the_table_above_has_every_route_and_agrees_with_its_least_role() {
    for route in ENDPOINTS {
        let at = |path: &str| {
            let (ours, theirs) = (path.split('/'), route.path.split('/'));
            ours.clone().count() == theirs.clone().count()
                && ours.zip(theirs).all(|(one, other)| other.starts_with('{') || one == other)
        };
        let rows = EXPECTED.iter().filter(|row| row.0 == route.verb.name() && at(row.1));
        let best = rows.map(|row| row.3.iter().filter(|status| **status < 300).count()).max();
        let least = route.least.map_or(5, |role| 4 - role as usize);
        assert_eq!(best, Some(least), "{} {}", route.verb.name(), route.path);
    }
}
