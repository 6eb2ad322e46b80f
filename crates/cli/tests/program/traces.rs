//! `trace` on files of other systems.

use crate::place::{Place, words};
use serde_json::Value;

const PODS: &str = "\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p0,12000,16384,1,460,V100M16|A100,LS,Running,0,100,0
p1,6000,12288,0,0,,LS,Running,5,100,5
p2,6000,12288,8,1000,,BE,Running,10,210,10
p3,6000,12288,1,1000,,LS,Running,20,220,20
";

#[test]
fn what_is_imported_reads_back_as_our_own() {
    let place = Place::new("import");
    place.write("pods.csv", PODS);
    let run = place.run(&words("trace import pods.csv --out jobs.csv"));
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("4 read, 3 kept, 1 dropped"), "{}", run.out);
    assert!(run.out.contains("1 x it asks for no GPU, first in line 3"), "{}", run.out);
    let again = place.run(&words("trace stats jobs.csv --json"));
    assert_eq!(again.code, 0, "{}", again.err);
    let value: Value = serde_json::from_str(&again.out).expect("JSON");
    assert_eq!(value["report"]["kept"], 3);
    assert_eq!(value["report"]["format"], "csv");
    let run =
        place.run(&words("sim --policy fifo --trace pods.csv --cluster 1x8%a100 --report none"));
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.err.contains("1 of 4 rows give no job"), "{}", run.err);
}

#[test]
fn strict_makes_a_drop_an_error() {
    let place = Place::new("strict");
    place.write("pods.csv", PODS);
    let run = place.run(&words("trace import pods.csv --strict --out jobs.csv"));
    assert_eq!(run.code, 3);
    assert!(run.err.contains("pods.csv: line 3: the row would be dropped"), "{}", run.err);
    assert!(!place.files().contains(&"jobs.csv".to_owned()));
}

#[test]
fn a_job_that_can_never_run_fails_the_check() {
    let place = Place::new("check");
    place.write("pods.csv", PODS);
    let run = place.run(&words("trace check pods.csv --cluster 1x4%a100"));
    assert_eq!(run.code, 3, "{}", run.out);
    assert!(run.err.contains("`p2` needs at least 8 GPUs"), "{}", run.err);
    assert_eq!(place.run(&words("trace check pods.csv --cluster 1x8%a100")).code, 0);
}

#[test]
fn traces_are_sampled_sliced_scaled_and_made_anonymous() {
    let place = Place::new("reshape");
    place.write("pods.csv", PODS);
    for line in [
        "trace sample pods.csv --jobs 2 --out a.csv",
        "trace slice pods.csv --from 5s --to 15s --out b.jsonl",
        "trace scale-load pods.csv --factor 2 --out c.csv",
        "trace scale-load pods.csv --load 0.5 --cluster 1x8%a100 --out d.csv.gz",
        "trace anonymise pods.csv --key secret --out e.csv",
    ] {
        let run = place.run(&words(line));
        assert_eq!(run.code, 0, "{line}: {}", run.err);
    }
    assert_eq!(place.read("a.csv").lines().count(), 3);
    assert!(
        place.read("b.jsonl").contains("\"id\":\"p2\",") || place.read("b.jsonl").contains("p2")
    );
    assert!(place.read("c.csv").contains("p3,10,"), "{}", place.read("c.csv"));
    assert!(!place.read("e.csv").contains("p0"), "{}", place.read("e.csv"));
    let run = place.run(&words("trace stats d.csv.gz --cluster 1x8%a100 --json"));
    let value: Value = serde_json::from_str(&run.out).expect("JSON");
    let load = value["report"]["offered_load"].as_f64().expect("a load");
    assert!((load - 0.5).abs() < 1e-3, "{load}");
}

#[test]
fn bad_traces_are_answered_with_one_line() {
    let place = Place::new("bad-traces");
    place.write("empty.csv", "");
    place.write("odd.txt", "what is this\n");
    place.write("cut.json", "[{\"jobid\":\"a\"");
    for (line, expected) in [
        ("trace check empty.csv", "empty.csv: is empty: expected a trace"),
        ("trace check odd.txt", "odd.txt: line 1: `what is this` is not valid"),
        ("trace check cut.json", "is the file cut off?"),
        ("trace check .", "is a directory"),
        ("trace check none.csv", "does not exist"),
    ] {
        let run = place.run(&words(line));
        assert_eq!(run.code, 3, "{line}: {}", run.err);
        assert!(run.err.contains(expected), "{line}: {}", run.err);
        assert_eq!(run.err.lines().count(), 1, "{}", run.err);
    }
}

#[test]
fn jobs_like_gavels_are_drawn_read_back_and_measured_in_a_window() {
    let place = Place::new("like");
    let run = place.run(&words(
        "trace generate --like gavel-multiple --per-hour 2.6 --jobs 60 --seed 0 --out jobs.csv",
    ));
    assert_eq!(run.code, 0, "{}", run.err);
    let run = place.run(&words(
        "sim --policy fifo --trace jobs.csv --cluster 36x1%v100,36x1%p100,36x1%k80 --measure 10..30 --json",
    ));
    assert_eq!(run.code, 0, "{}", run.err);
    let value: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(value["runs"][0]["summary"]["jobs"], 20);
    let run = place.run(&words("trace generate --like gavel-single --jobs 60 --out few.csv"));
    assert_eq!(run.code, 3, "{}", run.err);
    assert!(run.err.contains("per-hour=5.6"), "{}", run.err);
    for bad in ["5", "9..9", "0..61", "a..b"] {
        let line = format!("sim --policy fifo --trace jobs.csv --measure {bad}");
        let run = place.run(&words(&line));
        assert_eq!(run.code, 3, "{bad}: {}", run.err);
        assert!(run.err.contains("--measure"), "{}", run.err);
    }
}
