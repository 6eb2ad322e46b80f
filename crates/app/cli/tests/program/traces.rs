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

const MURI: &str = "\
job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,\
resource_time_0,resource_time_1,resource_time_2,priority
a,1,0,50,vgg16,16,5000,0,107,117,68,0,0
b,2,9000,77,vgg16,16,5000,0,191,114,72,40,0
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
fn jobs_that_never_fit_are_left_out_or_made_smaller_on_request() {
    let place = Place::new("unfit");
    place.write("pods.csv", PODS);
    let line = "trace import pods.csv --cluster 1x4%a100 --out small.csv";
    let run = place.run(&words(&format!("{line} --drop-unfit")));
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("1 jobs that never fit on the cluster are left out"), "{}", run.out);
    let stats = |place: &Place| -> Value {
        let run = place.run(&words("trace stats small.csv --cluster 1x4%a100 --json"));
        serde_json::from_str(&run.out).expect("JSON")
    };
    let left = stats(&place);
    assert_eq!((&left["report"]["kept"], &left["report"]["never_fit"]), (&2.into(), &0.into()));
    let run = place.run(&words(&format!("{line} --cap-unfit")));
    assert_eq!(run.code, 0, "{}", run.err);
    let capped = stats(&place);
    assert_eq!((&capped["report"]["kept"], &capped["report"]["never_fit"]), (&3.into(), &0.into()));
    let whole = place.run(&words("trace stats pods.csv --json"));
    let whole: Value = serde_json::from_str(&whole.out).expect("JSON");
    let hours = |report: &Value| report["report"]["gpu_hours"].as_f64().expect("a number");
    assert!((hours(&capped) - hours(&whole)).abs() < 1e-3, "the same GPU-hours: {capped}");
    assert_eq!(place.run(&words("trace import pods.csv --drop-unfit")).code, 2, "of what cluster?");
}

#[test]
fn json_lines_need_no_first_line() {
    let place = Place::new("plain-lines");
    place.write("jobs.jsonl", "{\"id\":\"a\",\"submit_s\":0,\"gpus\":1,\"duration_s\":60}\n{\"id\":\"b\",\"submit_s\":1,\"gpus\":2,\"duration_s\":60}\n");
    let run = place.run(&words("trace stats jobs.jsonl --json"));
    assert_eq!(run.code, 0, "{}", run.err);
    let value: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(
        (&value["report"]["format"], &value["report"]["kept"]),
        (&"jsonl".into(), &2.into())
    );
}

#[test]
fn an_import_keeps_models_or_says_which_command_does() {
    let place = Place::new("models");
    place
        .write("gavel.trace", "LM (batch size 10)\tcmd\tdir\t--steps\t1\t81652\t1\t2.0\t1.5\t30\n");
    let run = place.run(&words("trace import gavel.trace --cluster 2x4%v100 --out jobs.csv"));
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(place.read("jobs.csv").contains("gavel-lm"), "{}", place.read("jobs.csv"));
    assert!(!run.out.contains("generic"), "{}", run.out);
    let again = "sim --policy fifo --trace jobs.csv --cluster 2x4%v100 --report none";
    assert_eq!(place.run(&words(again)).code, 0, "it reads back");
    place.write("muri.csv", MURI);
    let run = place.run(&words("trace import muri.csv --out jobs.csv"));
    assert_eq!(run.code, 0, "{}", run.err);
    let told = "compare --trace muri.csv --format muri` keeps their models";
    assert!(run.out.contains(told), "{}", run.out);
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
fn the_check_of_a_cluster_says_which_fields_have_no_effect() {
    let place = Place::new("cluster-check");
    let nodes = "[[nodes]]\ncount = 4\ngpus = 8\nkind = \"a100\"\n";
    place.write("plain.toml", nodes);
    place.write(
        "links.toml",
        format!("{nodes}racks = 2\n[links]\nnode_gbps = 900\nrack_gbps = 200\n"),
    );
    let plain = place.run(&words("cluster check plain.toml"));
    assert!(plain.code == 0 && !plain.out.contains("no effect"), "{}{}", plain.out, plain.err);
    let links = place.run(&words("cluster check links.toml"));
    for part in ["`node_gbps` has no effect", "by their ratio alone"] {
        assert!(links.out.contains(part), "`{part}` is not in {}{}", links.out, links.err);
    }
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

#[test]
fn what_sim_prints_does_not_depend_on_whether_jobs_are_listed() {
    let place = Place::new("listed");
    let cluster = "2x8%v100,1x8%a100";
    let run = place.run(&words(&format!(
        "trace generate --jobs 300 --load 1.1 --tenants 3 --set deadline_share=0.3 --cluster {cluster} --out t.csv"
    )));
    assert_eq!(run.code, 0, "{}", run.err);
    let text = place.read("t.csv");
    let (header, rows) = text.split_once('\n').expect("a header");
    let backwards: Vec<&str> = rows.lines().rev().collect();
    place.write("backwards.csv", format!("{header}\n{}\n", backwards.join("\n")));
    for (trace, policy) in [("t.csv", "fifo"), ("t.csv", "srtf"), ("backwards.csv", "las")] {
        for form in ["--json", "--csv", "--report none"] {
            let line = format!("sim --policy {policy} --trace {trace} --cluster {cluster} {form}");
            let streamed = place.run(&words(&line));
            let listed = place.run(&words(&format!("{line} --jobs-out jobs.csv")));
            assert_eq!((streamed.code, &streamed.err), (0, &String::new()));
            assert_eq!(streamed.out, listed.out, "{line}");
        }
    }
    assert_eq!(place.read("jobs.csv").lines().count(), 301);
}
