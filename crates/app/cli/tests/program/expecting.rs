//! `eta` and `whatif` of the real daemon, with real jobs on declared slots.

use super::daemon::Daemon;
use serde_json::Value;
use std::fs;

/// A job on both slots that its user expects to take so many seconds, held or not; its id.
fn expected(daemon: &Daemon, name: &str, seconds: u32) -> String {
    let text = format!(
        "name = \"{name}\"\ncommand = [\"sleep\", \"600\"]\ngpus = 2\nexpected = \"{seconds}s\"\nretries = 0\n"
    );
    fs::write(daemon.folder.join("job.toml"), text).expect("a file");
    let submitted = daemon.json(&["submit", "job.toml", "--json"]);
    submitted["jobs"][0].as_u64().expect("an id").to_string()
}

fn likely(eta: &Value, what: &str) -> f64 {
    eta[what]["likely"].as_f64().unwrap_or_else(|| panic!("no `{what}`: {eta}"))
}

#[test]
fn a_queue_is_foreseen_and_policies_are_compared_on_it() {
    let daemon = Daemon::start_with("eta", &["--gpus", "2", "--policy", "fifo"]);
    let first = expected(&daemon, "first", 1000);
    daemon.wait_until(&first, "running");
    let long = expected(&daemon, "long", 5000);
    let short = expected(&daemon, "short", 100);
    let [first_eta, long_eta, short_eta] =
        [&first, &long, &short].map(|job| daemon.json(&["eta", job, "--json"]));
    assert_eq!(first_eta["state"], "running");
    assert_eq!(first_eta["starts"]["low"], first_eta["starts"]["high"], "it has started");
    // Each begins when the one before it ends; forecasts were made at different moments.
    let near = |one: f64, other: f64, what: &str| assert!((one - other).abs() < 60.0, "{what}");
    near(likely(&long_eta, "starts"), likely(&first_eta, "ends"), "the second follows the first");
    near(likely(&short_eta, "starts"), likely(&long_eta, "ends"), "the third follows the second");
    let (low, high) = (&short_eta["ends"]["low"], &short_eta["ends"]["high"]);
    assert!(low.as_f64() < high.as_f64(), "{short_eta}");
    assert!(short_eta["basis"].as_str().is_some_and(|text| text.contains("`fifo`")), "{short_eta}");

    let compared = daemon.json(&["whatif", "--policy", "srtf,las:quantum=10m", "--json"]);
    let rows = compared["rows"].as_array().expect("rows");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["policy"].as_str()).collect();
    assert_eq!(names, ["fifo", "srtf", "las:quantum=10m"]);
    assert_eq!(rows[0]["runs_now"], true, "{compared}");
    let mean = |row: &Value| row["mean_completion_seconds"].as_f64().expect("a number");
    assert!(mean(&rows[1]) < mean(&rows[0]), "the short one first: {compared}");
    let table = daemon.said(&["whatif", "--policy", "srtf"]);
    assert!(table.contains("mean JCT") && table.contains('*'), "{table}");
    assert!(daemon.said(&["eta", "--all"]).lines().count() >= 5, "a heading and three jobs");
}

#[test]
fn a_dry_run_knows_what_a_forecast_knows() {
    let daemon = Daemon::start_with("plan-eta", &["--gpus", "2", "--policy", "fifo"]);
    let first = expected(&daemon, "first", 1000);
    daemon.wait_until(&first, "running");
    expected(&daemon, "second", 500);
    let plan = daemon.json(&["plan", "job.toml", "--json"]);
    let starts = plan["jobs"][0]["starts_in_seconds"].as_f64().expect("a length of time");
    assert!((1400.0..1550.0).contains(&starts), "behind both: {plan}");
}

#[test]
fn an_eta_names_the_node_whose_return_it_waits_for() {
    let daemon = Daemon::start_with("eta-drained", &["--gpus", "2", "--policy", "fifo"]);
    let nodes = daemon.json(&["nodes", "--json"]);
    let node = nodes["nodes"][0]["name"].as_str().expect("a name").to_owned();
    daemon.said(&["drain", &node, "--reason", "new driver"]);
    let job = expected(&daemon, "waits", 10);
    let drained = format!("node {node} is drained: new driver");
    daemon.wait_to_hear(&["eta", &job], &drained);
    daemon.wait_to_hear(&["why", &job], &drained);
    fs::write(daemon.folder.join("next.toml"), "command = [\"true\"]\n").expect("a file");
    daemon.wait_to_hear(&["plan", "next.toml"], &drained);
}

#[test]
fn an_eta_of_a_job_that_ran_before_names_the_node_that_it_waits_for_now() {
    let daemon = Daemon::start_with("eta-again", &["--gpus", "2", "--policy", "fifo"]);
    let nodes = daemon.json(&["nodes", "--json"]);
    let node = nodes["nodes"][0]["name"].as_str().expect("a name").to_owned();
    let job = expected(&daemon, "again", 60);
    daemon.wait_until(&job, "running");
    daemon.said(&["drain", &node, "--reason", "new driver"]);
    daemon.said(&["requeue", &job]);
    daemon.wait_until(&job, "waiting");
    daemon.wait_to_hear(&["eta", &job], &format!("node {node} is drained: new driver"));
}

#[test]
fn what_cannot_be_told_is_said_so() {
    let daemon = Daemon::start_with("eta-not", &["--gpus", "2", "--policy", "fifo"]);
    let endless = daemon.submit("endless", "exec sleep 600", 2);
    daemon.wait_until(&endless, "running");
    let behind = expected(&daemon, "behind", 10);
    let eta = daemon.json(&["eta", &endless, "--json"]);
    assert!(
        eta["ends"].is_null() && eta["basis"].as_str().is_some_and(|text| text.contains("length"))
    );
    assert!(daemon.json(&["eta", &behind, "--json"])["ends"].is_null());
    daemon.said(&["hold", &behind]);
    // A forecast is shown for a while, whatever happens meanwhile.
    daemon.wait_to_hear(&["eta", &behind], "holds it");
    daemon.said(&["cancel", &endless]);
    daemon.wait_until(&endless, "cancelled");
    assert_eq!(daemon.ask(&["eta", &endless]).code, 7, "it has ended already");
    assert_eq!(daemon.ask(&["eta", "999"]).code, 6, "there is no such job");
    assert_eq!(daemon.ask(&["eta", &behind, "--confidence", "2"]).code, 3);
    let refused = daemon.ask(&["whatif", "--policy", "srft"]);
    assert_eq!(refused.code, 3, "{}", refused.err);
    assert!(refused.err.contains("srft"), "{}", refused.err);
}
