//! `slurm shadow`: records, scripts in the place of Slurm, and a real Slurm where there is one.

use super::place::{Place, Ran};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const HEADER: &str = r#"{"kind":"trainyard-slurm-record","version":1}"#;

fn job(id: u32, state: &str, more: Value) -> Value {
    let mut job = json!({
        "id": id, "name": "train", "user": "ana", "account": "vision", "partition": "gpu",
        "state": state, "priority": 1, "gpus": 1, "nodes_min": 1, "submitted": 1000, "eligible": 1000,
    });
    let fields = more.as_object().expect("an object").clone();
    job.as_object_mut().expect("an object").extend(fields);
    job
}

fn ran(id: u32, (from, to): (i64, i64), limit: i64) -> Value {
    let run = json!({"nodes": ["n1"], "started": from, "ended": to, "time_limit": limit});
    job(id, "COMPLETED", run)
}

fn node() -> Value {
    json!({"name": "n1", "state": "UP", "gpus": [["v100", 1]], "cpus": 8, "partitions": ["gpu"]})
}

fn record(lines: &[Value]) -> String {
    let mut text = format!("{HEADER}\n");
    lines.iter().for_each(|line| text.push_str(&format!("{line}\n")));
    text
}

/// One GPU; a long job came first, twenty short ones wait behind it, and all end while watched.
fn long_before_short() -> Vec<Value> {
    let waiting = |id: u32, limit: i64| job(id, "PENDING", json!({"time_limit": limit}));
    let mut first = vec![waiting(1, 600)];
    first.extend((2..=21).map(|id| waiting(id, 60)));
    let mut last = vec![ran(1, (1001, 1101), 600)];
    last.extend(
        (0..20).map(|i| ran(2 + i, (1101 + 10 * i64::from(i), 1111 + 10 * i64::from(i)), 60)),
    );
    vec![json!({"at": 1000, "jobs": first, "nodes": [node()]}), json!({"at": 1400, "jobs": last})]
}

fn told(run: &Ran) -> Value {
    assert_eq!(run.code, 0, "{}", run.err);
    serde_json::from_str(&run.out).expect("JSON")
}

fn mean_jct(value: &Value, row: usize) -> f64 {
    value["runs"][row]["summary"]["jct_s"]["mean"].as_f64().expect("a number")
}

#[test]
fn what_a_policy_would_have_gained_is_what_one_counts_by_hand() {
    let place = Place::new("shadow-hand");
    place.write("watched.jsonl", record(&long_before_short()));
    let line = "slurm shadow --from watched.jsonl --policies fifo,srtf --costs free --json";
    let value = told(&place.run(&super::words(line)));
    assert_eq!(value["kind"], "shadow");
    assert_eq!(value["counts"]["measured"], 21);
    // As it happened: 101 s for the long one, 111 s to 301 s for the short ones.
    assert_eq!(mean_jct(&value, 0), (101.0 + 20.0 * 206.0) / 21.0);
    // In order of arrival a second is saved; by the limits of time the short ones come first.
    assert_eq!(mean_jct(&value, 1), (100.0 + 20.0 * 205.0) / 21.0);
    assert_eq!(mean_jct(&value, 2), (300.0 + 20.0 * 105.0) / 21.0);
    let verdict = &value["verdicts"][1];
    let gain = verdict["gain"].as_f64().expect("a gain");
    assert!((gain - 201.0 / (2400.0 / 21.0)).abs() < 1e-9, "{verdict}");
    assert_eq!(verdict["says"], "better");
    let used = value["during"][0]["utilisation"].as_f64().expect("a part");
    assert!((used - 300.0 / 400.0).abs() < 0.02, "{used}");
    assert_eq!(
        (&value["during"][0]["ended"], &value["during"][2]["ended"]),
        (&21.into(), &21.into())
    );
}

#[test]
fn a_table_and_a_report_come_out() {
    let place = Place::new("shadow-report");
    place.write("watched.jsonl", record(&long_before_short()));
    let run = place.run(&super::words("slurm shadow --from watched.jsonl --report shadow.html"));
    assert_eq!(run.code, 0, "{}", run.err);
    for word in ["Slurm, as it happened", "srtf", "gain", "To judge it:", "Report: shadow.html"] {
        assert!(run.out.contains(word), "`{word}` is not in\n{}", run.out);
    }
    assert!(place.read("shadow.html").contains("Slurm, as it happened"));
    let again = place.run(&super::words("slurm shadow --from watched.jsonl --report shadow.html"));
    assert_eq!(again.out, run.out, "the same record gives the same bytes");
}

#[test]
fn jobs_that_had_not_ended_are_load_and_make_it_less_sure() {
    let place = Place::new("shadow-open");
    let mut lines = long_before_short();
    let open = lines[0]["jobs"].as_array_mut().expect("jobs");
    open.push(job(50, "PENDING", json!({"time_limit": 4000, "user": "bo"})));
    open.push(job(51, "PENDING", json!({"gpus": 0})));
    open.push(job(52, "PENDING", json!({"gpus": 9})));
    open.push(job(53, "PENDING", json!({"priority": 0, "eligible": null})));
    place.write("watched.jsonl", record(&lines));
    let line = "slurm shadow --from watched.jsonl --policies fifo,srtf --costs free --json";
    let value = told(&place.run(&super::words(line)));
    let counts = &value["counts"];
    assert_eq!((&counts["measured"], &counts["waiting"]), (&21.into(), &1.into()), "{counts}");
    for key in ["without_gpus", "too_large", "never_ran"] {
        assert_eq!(counts[key], 1, "{key}");
    }
    let notes = value["notes"].to_string();
    assert!(notes.contains("1 by time limit") && notes.contains("half or double"), "{notes}");
}

#[test]
fn what_is_no_record_is_refused_with_its_line() {
    let place = Place::new("shadow-bad");
    place.write("empty.jsonl", "");
    place.write("other.csv", "id,gpus\n1,2\n");
    place.write("broken.jsonl", format!("{HEADER}\n{{\"at\":5}}\nnonsense\n{{\"at\":6}}\n"));
    for (file, word) in [
        ("empty.jsonl", "empty"),
        ("other.csv", "line 1"),
        ("broken.jsonl", "line 3"),
        ("absent.jsonl", "absent.jsonl"),
    ] {
        let run = place.run(&["slurm", "shadow", "--from", file]);
        assert_eq!(run.code, 3, "{file}: {}", run.err);
        assert!(run.err.contains(word) && run.err.contains(file), "{file}: {}", run.err);
    }
    let run = place.run(&["slurm", "shadow", "--from", "broken.jsonl", "--policies", "nosuch"]);
    assert!(run.code == 3 && run.err.contains("nosuch"), "{}", run.err);
}

/// A program of Slurm's that does what a script says.
fn script(place: &Place, name: &str, text: &str) {
    place.write(&format!("{name}.new"), format!("#!/bin/sh\n{text}\n"));
    let fresh = place.path(&format!("{name}.new"));
    std::fs::set_permissions(&fresh, PermissionsExt::from_mode(0o755)).expect("rights");
    std::fs::rename(fresh, place.path(name)).expect("a new name");
}

fn seen(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../live/slurm/tests/seen").join(name);
    format!("cat '{}'", path.display())
}

#[test]
fn a_record_grows_look_by_look_and_a_torn_line_is_cut_off() {
    let place = Place::new("shadow-grows");
    script(&place, "squeue", &seen("squeue-22.05.json"));
    script(&place, "sinfo", &seen("sinfo-22.05.json"));
    let once = ["slurm", "shadow", "--once", "--slurm-bin", ".", "--record", "watched.jsonl"];
    let first = place.run(&once);
    assert_eq!(first.code, 0, "{}", first.err);
    // The fourth node is drained and takes no job, whichever scheduler decides.
    assert!(first.out.contains("3 nodes with 16 GPUs; 3 jobs run"), "{}", first.out);
    let torn = format!("{}{{\"at\":17", place.read("watched.jsonl"));
    place.write("watched.jsonl", torn);
    let second = place.run(&once);
    assert_eq!(second.code, 0, "{}", second.err);
    assert!(second.err.contains("line 3 is cut off"), "{}", second.err);
    let text = place.read("watched.jsonl");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (3, HEADER), "{text}");
    assert!(
        lines[2].starts_with("{\"at\":") && lines[2].len() < 30,
        "nothing changed: {}",
        lines[2]
    );
}

#[test]
fn slurm_that_is_away_absent_or_talking_nonsense_is_told_at_once() {
    let place = Place::new("shadow-away");
    let once = ["slurm", "shadow", "--once", "--slurm-bin", "."];
    let run = place.run(&once);
    assert!(run.code == 1 && run.err.contains("`sinfo` was not found"), "{}", run.err);
    script(&place, "sinfo", &seen("sinfo-22.05.json"));
    for (text, word) in [
        (seen("squeue-22.05-down.json"), "does not answer"),
        ("echo hello".to_owned(), "begins with `hello"),
        (
            "echo 'squeue: error: Access/permission denied' >&2; exit 1".to_owned(),
            "may not do this",
        ),
    ] {
        script(&place, "squeue", &text);
        let run = place.run(&once);
        assert!(run.code == 1 && run.err.contains(word), "{word}: {}", run.err);
    }
}

#[test]
fn a_watch_goes_on_while_slurm_is_away_for_a_moment() {
    let place = Place::new("shadow-goes-on");
    script(&place, "sinfo", &seen("sinfo-22.05.json"));
    // Every second answer is that of a controller that restarts.
    let text = format!(
        "if [ -e away ]; then rm away; {}; else touch away; {}; fi",
        seen("squeue-22.05-down.json"),
        seen("squeue-22.05.json")
    );
    script(&place, "squeue", &text);
    let line = "slurm shadow --for 1s --every 100ms --slurm-bin . --record watched.jsonl";
    let run = place.run(&super::words(line));
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.err.contains("the watch goes on"), "{}", run.err);
    assert!(place.read("watched.jsonl").contains("\"away\":"), "the gap is kept");
}

/// Slurm of four jobs, of which one can be taken over, one was, one runs and was, and one is Trainyard's own.
fn with_marks(place: &Place) {
    let row = |id: u32, state: &str, comment: &str| {
        json!({"job_id": id, "name": format!("job{id}"), "user_name": "ana", "job_state": state,
            "comment": comment, "priority": 5, "tres_per_node": "gres:gpu:1", "node_count": 1,
            "nodes": if state == "RUNNING" { "n1" } else { "" }})
    };
    let rows = [
        row(1, "PENDING", ""),
        row(2, "PENDING", "trainyard:ab:7:0"),
        row(3, "RUNNING", "trainyard:ab:8:0"),
        row(4, "PENDING", "trainyard:ab:9:1"),
        row(5, "RUNNING", ""),
    ];
    place.write("jobs.json", json!({"jobs": rows, "errors": []}).to_string());
    script(place, "squeue", "cat jobs.json");
    script(
        place,
        "scontrol",
        "echo \"$@\" >>calls; case \"$*\" in *=3*) echo 'Invalid user id' >&2; exit 1;; esac",
    );
}

#[test]
fn jobs_that_were_taken_over_are_handed_back_and_no_others() {
    let place = Place::new("hand-back");
    with_marks(&place);
    let run = place.run(&super::words("slurm hand-back --dry-run --slurm-bin ."));
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(!place.path("calls").exists(), "a dry run calls nothing that changes");
    let run = place.run(&super::words("slurm hand-back --slurm-bin . --json"));
    assert_eq!(run.code, 0, "{}", run.err);
    let value: Value = serde_json::from_str(&run.out).expect("JSON");
    let done = |id: u32| {
        let jobs = value["jobs"].as_array().expect("jobs");
        let one = jobs.iter().find(|one| one["slurm"] == id)?;
        Some((one["done"] == true, one["what"].as_str().unwrap_or_default().to_owned()))
    };
    assert_eq!(done(2), Some((true, "is released to Slurm".to_owned())));
    let (is_done, why) = done(3).expect("the running one");
    assert!(!is_done && why.contains("may not do this"), "{why}");
    assert!(done(4).expect("our own").1.contains("stays held"));
    assert_eq!((done(1), done(5)), (None, None), "jobs of others are not touched");
    let calls = place.read("calls");
    let lines: Vec<&str> = calls.lines().collect();
    assert_eq!(
        lines,
        [
            "update JobId=2 Comment= ReqNodeList= StartTime=now",
            "release 2",
            "update JobId=3 Comment=",
        ]
    );
    let run = place.run(&super::words("slurm hand-back 5 77 --slurm-bin ."));
    assert!(run.code == 1 && run.out.contains("is not under Trainyard"), "{}", run.out);
    assert!(run.out.contains("Slurm knows no such job"), "{}", run.out);
}

#[cfg(feature = "live")]
#[test]
fn what_can_be_taken_over_is_told_without_a_daemon() {
    let place = Place::new("adopt-dry");
    with_marks(&place);
    let run = place.run(&super::words("slurm adopt --all-pending --dry-run --slurm-bin . --json"));
    assert_eq!(run.code, 0, "{}", run.err);
    let value: Value = serde_json::from_str(&run.out).expect("JSON");
    let told: Vec<(u64, &str)> = value["jobs"]
        .as_array()
        .expect("jobs")
        .iter()
        .map(|one| (one["slurm"].as_u64().unwrap_or(0), one["what"].as_str().unwrap_or("")))
        .collect();
    let ours = "it is under Trainyard already";
    assert_eq!(told, [(1, "would be taken over"), (2, ours), (4, ours)]);
    let run = place.run(&super::words("slurm adopt 5 77 --dry-run --slurm-bin ."));
    assert!(run.out.contains("stays as it is") && run.out.contains("no such job"), "{}", run.out);
    assert!(!place.path("calls").exists(), "nothing is changed in Slurm");
}

/// A Slurm of one's own, gone with the test; nothing where there cannot be one.
struct RealSlurm(std::path::PathBuf);

impl RealSlurm {
    fn up(name: &str) -> Option<RealSlurm> {
        let programs = ["slurmctld", "slurmd", "munged"];
        let found = |name: &&str| Path::new("/usr/sbin").join(name).exists();
        let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| {
            use std::os::unix::fs::MetadataExt;
            own.uid() == 0
        });
        if !is_root || !programs.iter().all(found) {
            trainyard_testkit::skip!(
                "slurm",
                "{name} needs a real Slurm; to enable it, run the tests as root with Slurm installed (Debian: \
                 apt-get install slurm-wlm munge)"
            );
            return None;
        }
        // Sockets have short names, so not under the target directory.
        let dir = std::env::temp_dir().join(format!("ty-{name}-{}", std::process::id()));
        let slurm = RealSlurm(dir);
        slurm.script("up");
        Some(slurm)
    }

    fn script(&self, what: &str) {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/slurm-cluster.sh");
        let output = std::process::Command::new("bash").arg(script).arg(what).arg(&self.0).output();
        let output = output.expect("bash");
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn conf(&self) -> String {
        self.0.join("slurm.conf").display().to_string()
    }

    fn call(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = std::process::Command::new(program);
        let output = command.args(arguments).env("SLURM_CONF", self.conf()).output();
        let output = output.expect("a program of Slurm's");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for RealSlurm {
    fn drop(&mut self) {
        self.script("down");
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_real_slurm_is_watched_and_not_touched() {
    let Some(slurm) = RealSlurm::up("shadow") else { return };
    let place = Place::new("shadow-real");
    let conf = slurm.conf();
    let once = |more: &[&str]| {
        let usual = ["slurm", "shadow", "--once", "--record", "r.jsonl", "--slurm-conf", &conf];
        let run = place.run(&[&usual[..], more].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        run.out
    };
    assert!(once(&[]).contains("4 nodes with 20 GPUs; 0 jobs run and 0 wait"));
    for seconds in ["2", "1", "1", "1"] {
        let script = format!("sleep {seconds}");
        let usual = ["--mem=10", "--gres=gpu:a100:8", "-o", "/dev/null", "-D", "/", "-t", "1"];
        slurm.call("sbatch", &[&usual[..], &["--wrap", &script]].concat());
    }
    let begin = std::time::Instant::now();
    while !slurm.call("squeue", &["-h"]).is_empty() {
        assert!(begin.elapsed().as_secs() < 120, "{}", slurm.call("squeue", &[]));
        once(&["--report", "none"]);
    }
    let out = once(&["--json", "--policies", "fifo,srtf", "--costs", "free"]);
    let value: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(value["counts"]["measured"], 4, "{}", value["counts"]);
    // They ran one after the other on the only node that has eight GPUs of that type.
    let jct = |row: usize| mean_jct(&value, row);
    assert!(jct(0) >= jct(1), "in order of arrival, and without a moment lost between: {value}");
    assert_eq!(value["verdicts"][0]["says"], "too-few");
    let states = slurm.call("squeue", &["-h", "-t", "all", "-o", "%T"]);
    assert!(states.lines().all(|state| state == "COMPLETED"), "{states}");
}
