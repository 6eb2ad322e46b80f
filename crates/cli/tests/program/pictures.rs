//! Files for eyes: the page with its jobs, figures as SVG, traces for Perfetto.

use crate::place::{Place, words};
use serde_json::Value;
use std::collections::BTreeMap;

/// The events of a trace by process and thread: beginning and end.
fn intervals(text: &str) -> BTreeMap<(u64, u64), Vec<(u64, u64)>> {
    let trace: Value = serde_json::from_str(text).expect("JSON");
    let mut found: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().expect("a list") {
        let number = |key: &str| event[key].as_u64().unwrap_or_else(|| panic!("{key} in {event}"));
        if event["ph"] == "X" && event["cat"] == "whole" {
            let (from, length) = (number("ts"), number("dur"));
            found.entry((number("pid"), number("tid"))).or_default().push((from, from + length));
        }
    }
    found
}

#[test]
fn no_two_jobs_hold_a_whole_gpu_at_once() {
    let place = Place::new("chrome-trace");
    let given = "--generate jobs=300 load=1.2 --failures mtbf=2d,repair=2h --seed 3";
    for policy in ["fifo", "srtf", "gandiva", "fair-share"] {
        let line = format!("sim --policy {policy} {given} --chrome-trace t.json");
        let run = place.run(&words(&line));
        assert_eq!(run.code, 0, "{}", run.err);
        let mut all = intervals(&place.read("t.json"));
        assert_eq!(all.len(), 96, "{policy} uses every GPU of an overloaded cluster");
        for (gpu, held) in &mut all {
            held.sort_unstable();
            for pair in held.windows(2) {
                assert!(pair[0].1 <= pair[1].0, "{policy} on {gpu:?}: {pair:?}");
            }
        }
    }
}

#[test]
fn what_is_held_in_the_trace_is_what_the_measures_count() {
    let place = Place::new("held");
    let line = "sim --policy tiresias --generate jobs=200 --chrome-trace t.json --json";
    let run = place.run(&words(line));
    let result: Value = serde_json::from_str(&run.out).expect("JSON");
    let hours = result["runs"][0]["summary"]["gpu_hours"].as_f64().expect("a number");
    let all = intervals(&place.read("t.json"));
    let held: u64 = all.values().flatten().map(|(from, to)| to - from).sum();
    let drawn = held as f64 / 3.6e9;
    assert!((drawn / hours - 1.0).abs() < 1e-6, "{drawn} of {hours} GPU-hours");
}

#[test]
fn every_figure_is_a_file_of_its_own() {
    let place = Place::new("svg");
    let line =
        "compare --policies fifo,srtf --generate jobs=60 tenants=3 --report none --svg figures";
    let run = place.run(&words(line));
    assert_eq!(run.code, 0, "{}", run.err);
    for name in ["jct", "wait", "used0", "waiting1", "tenants"] {
        let text = place.read(&format!("figures/{name}.svg"));
        assert!(text.starts_with("<svg xmlns=") && text.ends_with("</svg>\n"), "{name}: {text}");
        assert_eq!(text.matches("<svg").count(), 1, "{name}");
    }
}

#[test]
fn the_page_carries_jobs_and_intervals_of_every_run() {
    let place = Place::new("page-data");
    let line = "compare --policies fifo,srtf --generate jobs=60 tenants=3 --report r.html";
    let run = place.run(&words(line));
    assert_eq!(run.code, 0, "{}", run.err);
    let page = place.read("r.html");
    for id in
        ["data-jobs", "data-cluster", "data-run-0", "data-time-0", "data-run-1", "data-time-1"]
    {
        let start = format!("<script type=\"application/json\" id=\"{id}\">");
        let (_, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no {id}"));
        let text = rest.split("</script>").next().unwrap_or_default();
        let value: Value = serde_json::from_str(text).expect("JSON");
        assert!(value.is_object(), "{id}");
    }
    assert!(!page.contains("Left out:"), "60 jobs fit");
}
