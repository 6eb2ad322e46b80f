//! Names of metrics: those promised are there, and those that the dashboard and the docs use exist.

use crate::client::Running;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use trainyard_daemon::access::Role;
use trainyard_daemon::metrics::{Eviction, GpuUse, Levels, Metrics, QUEUES_MAX};

const PROMISED: &[&str] = &[
    "trainyard_pending_jobs",
    "trainyard_admitted_jobs_total",
    "trainyard_admission_wait_time_seconds_bucket",
    "trainyard_unadmitted_jobs",
    "trainyard_evicted_jobs_total",
    "trainyard_preempted_jobs_total",
    "trainyard_scheduling_cycle_duration_seconds_bucket",
    "trainyard_placements_total",
    "trainyard_gpus",
    "trainyard_gpu_quarantined",
    "trainyard_gpu_quarantines_total",
    "trainyard_hung_jobs",
    "trainyard_job_hangs_total",
    "trainyard_fragmentation_ratio",
    "trainyard_fair_share_ratio",
    "trainyard_estimated_wait_seconds",
    "trainyard_journal_fsync_seconds_bucket",
    "trainyard_build_info",
    "trainyard_policy_failures_total",
    "trainyard_policy_fallbacks_total",
    "trainyard_http_requests_total",
    "trainyard_http_request_duration_seconds_bucket",
    "trainyard_http_connections_refused_total",
];

fn filled() -> Metrics {
    let metrics = Metrics::new();
    metrics.admitted();
    metrics.waited(3.0);
    metrics.evicted(Eviction::Preempted);
    metrics.decided(0.001, 2);
    metrics.committed(0.002);
    metrics.http("GET", "/v1/jobs", 200, 0.001);
    metrics.set_levels(&Levels {
        pending: BTreeMap::from([(("ann".to_owned(), "waiting".to_owned()), 3)]),
        unadmitted: BTreeMap::from([("ceiling".to_owned(), 1)]),
        gpus: BTreeMap::from([((GpuUse::Used, "v100".to_owned()), 2.0)]),
        ill_gpus: vec![("n0".to_owned(), 3, "xid-79".to_owned())],
        hung: 1,
        fragmentation: 0.25,
        fair_share: BTreeMap::from([("ann".to_owned(), 1.5)]),
        estimated_wait_seconds: BTreeMap::from([("ann".to_owned(), 60.0)]),
    });
    metrics
}

/// Names of samples in a text of metrics.
fn sampled(text: &str) -> BTreeSet<&str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(['{', ' ']).next().unwrap()).collect()
}

/// Words that are names of metrics.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("trainyard_")).map(str::to_owned).collect()
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[tokio::test]
async fn metrics_are_openmetrics_for_clients_that_ask_for_it_and_plain_for_all_others() {
    let rim = Running::plain().await;
    let token = rim.service.token("ann", Role::Viewer, 60.0);
    let mut client = rim.remote(Some(&token)).await;
    let plain = client.get("/metrics").await.text;
    assert!(!plain.contains("# EOF"), "{plain}");
    assert!(plain.contains("# TYPE trainyard_admitted_jobs_total counter"), "{plain}");
    let accept = [("accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")];
    let open = client.ask("GET", "/metrics", &accept, "").await.text;
    assert!(open.ends_with("# EOF\n"), "{open}");
    assert!(open.contains("# TYPE trainyard_admitted_jobs counter"), "{open}");
}

#[test]
fn all_promised_metrics_are_there() {
    let text = filled().encode();
    let found = sampled(&text);
    for name in PROMISED {
        assert!(found.contains(name), "{name} is missing from\n{text}");
    }
    for line in [
        r#"trainyard_pending_jobs{queue="ann",status="waiting"} 3.0"#,
        r#"trainyard_gpus{state="used",gpu_type="v100"} 2.0"#,
        r#"trainyard_evicted_jobs_total{reason="preempted"} 1"#,
        r#"trainyard_evicted_jobs_total{reason="node-lost"} 0"#,
        r#"trainyard_http_requests_total{method="GET",route="/v1/jobs",status="200"} 1"#,
        "trainyard_placements_total 2",
    ] {
        assert!(text.contains(line), "{line} is missing from\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn levels_that_are_not_told_again_are_gone_and_queues_are_limited() {
    let metrics = filled();
    let queue = |i: usize| ((format!("q{i:05}"), "waiting".to_owned()), 1);
    let pending = (0..QUEUES_MAX + 10).map(queue).collect();
    metrics.set_levels(&Levels { pending, ..Levels::default() });
    let text = metrics.encode();
    assert!(!text.contains("queue=\"ann\""), "{text}");
    let rows = text.lines().filter(|line| line.starts_with("trainyard_pending_jobs{")).count();
    assert_eq!(rows, QUEUES_MAX + 1);
    assert!(text.contains(r#"trainyard_pending_jobs{queue="(other)",status="waiting"} 10.0"#));
}

#[test]
fn the_dashboard_and_the_docs_name_metrics_that_exist() {
    let text = filled().encode();
    let found = sampled(&text);
    let board: serde_json::Value =
        serde_json::from_str(&read("deploy/grafana/trainyard.json")).unwrap();
    let mut expressions = Vec::new();
    for panel in board["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            expressions.push(target["expr"].as_str().unwrap().to_owned());
        }
    }
    assert!(expressions.len() >= 15, "{} expressions", expressions.len());
    let used = named(&expressions.join(" "));
    for name in &used {
        assert!(found.contains(name.as_str()), "the dashboard uses {name}, which does not exist");
    }
    for name in PROMISED {
        assert!(used.contains(*name), "the dashboard does not show {name}");
    }
    let bases: BTreeSet<&str> = found.iter().map(|name| name.trim_end_matches("_bucket")).collect();
    for name in named(&read("docs/guide/observing.md")) {
        assert!(bases.contains(name.as_str()), "the docs name {name}, which does not exist");
    }
}
