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
    for name in [
        "jct",
        "wait",
        "by-slowdown_fairness",
        "by-preemptions",
        "all-used",
        "all-waiting",
        "used0",
        "waiting1",
        "tenants",
        "gantt0",
        "gantt1",
    ] {
        let text = place.read(&format!("figures/{name}.svg"));
        assert!(text.starts_with("<svg xmlns=") && text.ends_with("</svg>\n"), "{name}: {text}");
        assert_eq!(text.matches("<svg").count(), 1, "{name}");
    }
    // A reader of a single file must know which curve is which policy's.
    let text = place.read("figures/jct.svg");
    assert!(text.contains(">fifo</text>") && text.contains(">srtf</text>"), "{text}");
}

#[test]
fn figures_are_png_files_where_the_build_can() {
    let place = Place::new("png");
    let line = "sim --policy fifo --generate jobs=40 --png figures";
    let run = place.run(&words(line));
    if !cfg!(feature = "png") {
        assert_eq!(run.code, 2, "{}", run.out);
        assert!(run.err.contains("--features png") && place.files().is_empty(), "{}", run.err);
        return;
    }
    assert_eq!(run.code, 0, "{}", run.err);
    for (name, width) in [("jct", 960u32), ("gantt0", 1920), ("used0", 680)] {
        let bytes = place.read_bytes(&format!("figures/{name}.png"));
        assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"), "{name}");
        assert_eq!(bytes[16..20], width.to_be_bytes(), "{name}");
    }
}

#[test]
fn the_page_shows_seeds_and_parts_together() {
    let place = Place::new("page-seeds");
    let given = "--policies fifo,srtf --generate jobs=60 load=1.2 tenants=3 --seeds 3 --by tenant";
    let run = place.run(&words(&format!("compare {given} --report r.html --svg figures")));
    assert_eq!(run.code, 0, "{}", run.err);
    let page = place.read("r.html");
    for part in
        ["id=\"h-seeds\">Over 3 seeds", "id=\"alike\"", "id=\"h-by\">By tenant", "Seeds 1, 2, 3."]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.contains("±") && !page.contains("id=\"h-tenants\""), "tenants are shown once");
    assert!(place.read("figures/seeds.svg").contains("whisker"));
    assert!(place.read("figures/by.svg").contains("class=\"dot"));
}

/// What the documented Trace Event Format asks of an event of each phase that is written.
fn check_event(event: &Value, processes: &BTreeMap<u64, String>) {
    let phase = event["ph"].as_str().expect("a phase");
    let whole = |key: &str| event[key].as_u64().unwrap_or_else(|| panic!("{key} in {event}"));
    assert!(event["name"].as_str().is_some_and(|name| !name.is_empty()), "{event}");
    let (process, _) = (whole("pid"), whole("tid"));
    let allowed: &[&str] = match phase {
        "M" => {
            let what = event["name"].as_str().unwrap_or_default();
            assert!(["process_name", "thread_name"].contains(&what), "{event}");
            assert!(event["args"]["name"].is_string(), "{event}");
            &["ph", "name", "pid", "tid", "args"]
        }
        "X" => {
            assert!(processes.contains_key(&process), "a process without a name: {event}");
            assert!(whole("dur") > 0 && event["cat"].is_string(), "{event}");
            // Viewers read times as doubles, which are exact up to here.
            assert!(whole("ts") + whole("dur") < 1 << 53, "{event}");
            &["ph", "name", "cat", "pid", "tid", "ts", "dur", "args"]
        }
        other => panic!("phase {other}"),
    };
    let keys = event.as_object().expect("an object").keys();
    assert!(keys.into_iter().all(|key| allowed.contains(&key.as_str())), "{event}");
}

#[test]
fn a_trace_keeps_to_the_documented_format() {
    let place = Place::new("trace-format");
    let line = "sim --policy gandiva --generate jobs=200 load=1.2 --chrome-trace t.json";
    assert_eq!(place.run(&words(line)).code, 0);
    let trace: Value = serde_json::from_str(&place.read("t.json")).expect("JSON");
    let keys: Vec<&String> = trace.as_object().expect("the object form").keys().collect();
    assert_eq!(keys, ["displayTimeUnit", "otherData", "traceEvents"]);
    assert!(["ms", "ns"].contains(&trace["displayTimeUnit"].as_str().unwrap_or_default()));
    let events = trace["traceEvents"].as_array().expect("a list");
    let named = |event: &&Value| event["name"] == "process_name";
    let name = |event: &Value| Some((event["pid"].as_u64()?, event["args"]["name"].to_string()));
    let processes: BTreeMap<u64, String> = events.iter().filter(named).filter_map(name).collect();
    assert_eq!(processes.len(), 12, "every node is a process");
    for event in events {
        check_event(event, &processes);
    }
    assert!(events.len() >= 12 + 96 + 200, "names of nodes and GPUs, and every job at least once");
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
