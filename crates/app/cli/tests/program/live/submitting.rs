//! `submit`, `run`, `plan`, `job`.

use super::answers::{chunk, detail, ok};
use super::fake::{Fake, Reply, Request};
use crate::place::Place;
use serde_json::{Value, json};

const JOB: &str = "command = [\"python\", \"train.py\"]\ngpus = 2\n";

fn accepted(request: &Request, _: usize) -> Reply {
    let count = request.json()["jobs"].as_array().map_or(0, Vec::len) as u32;
    ok(json!({ "jobs": (7..7 + count).collect::<Vec<_>>(), "repeated": false }))
}

#[test]
fn a_submission_carries_a_key_and_the_directory() {
    let fake = Fake::start("submit", accepted);
    fake.place.write("a.toml", JOB);
    fake.place.write("b.yaml", "jobs:\n- command: [a]\n- command: [b]\n  cwd: sub\n");
    let run = fake.run(&["submit", "a.toml", "b.yaml", "--hold"]);
    assert_eq!((run.code, run.out.as_str()), (0, "jobs 7-9\n"), "{}", run.err);
    let seen = fake.seen();
    assert_eq!(seen[0].line(), "POST /v1/jobs");
    let body = seen[0].json();
    let here = fake.place.root().to_string_lossy().into_owned();
    assert_eq!(body["jobs"][0]["cwd"], here.as_str());
    assert_eq!(body["jobs"][2]["cwd"], format!("{here}/sub"));
    assert_eq!((&body["jobs"][0]["gpus"], &body["jobs"][1]["hold"]), (&json!(2), &json!(true)));
    assert!(body["key"].as_str().is_some_and(|key| key.len() > 20), "{body}");
    let again = fake.run(&["submit", "a.toml", "--json", "--key", "nightly"]);
    let value: Value = serde_json::from_str(&again.out).expect("JSON");
    assert_eq!(value, json!({ "schema_version": 1, "jobs": [7], "repeated": false }));
    let seen = fake.seen();
    assert_eq!(seen[1].json()["key"], "nightly");
    assert_ne!(seen[0].json()["key"], seen[1].json()["key"]);
}

#[test]
fn a_submission_whose_answer_is_lost_is_sent_again_with_the_same_key() {
    let fake = Fake::start("retry", |request, before| match before {
        0 => Reply::HangUp,
        1 => super::answers::problem(429, "too-many", "slow down"),
        _ => accepted(request, before),
    });
    fake.place.write("a.toml", JOB);
    let run = fake.run(&["submit", "a.toml"]);
    assert_eq!((run.code, run.out.as_str()), (0, "job 7\n"), "{}", run.err);
    let bodies: Vec<String> = fake.seen().into_iter().map(|request| request.body).collect();
    assert_eq!(bodies.len(), 3);
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
}

#[test]
fn a_batch_script_is_sent_whole_and_its_unknown_lines_are_named() {
    let fake = Fake::start("batch", accepted);
    let script = "#!/bin/bash\n#SBATCH --gpus=2 -o out.txt\n#SBATCH --gpsu=3\nsrun python a.py\n";
    fake.place.write("train.sh", script);
    let run = fake.run(&["submit", "train.sh"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.err.contains("note: train.sh: line 2: -o has no effect"), "{}", run.err);
    assert!(run.err.contains("line 3: --gpsu is not known here"), "{}", run.err);
    assert!(run.err.contains("did you mean `--gpus`?"), "{}", run.err);
    let job = &fake.seen()[0].json()["jobs"][0];
    assert_eq!((&job["script"], &job["argv"]), (&json!(script), &json!(["train.sh"])));
    let run = fake.run(&["submit", "train.sh", "--strict"]);
    assert_eq!(run.code, 3);
    assert!(run.err.starts_with("error: train.sh: line 3: --gpsu"), "{}", run.err);
    assert_eq!(fake.seen().len(), 1, "nothing is sent of a file that is refused");
}

#[test]
fn run_takes_any_key_of_a_job_file_and_refuses_what_is_none() {
    let fake = Fake::start("with", accepted);
    let mut arguments = vec!["run", "--detach", "--time", "1:00:00", "--gpus", "1"];
    for pair in ["share=0.3", "gpu_memory=20GiB", "class=opportunistic", "checkpoint.signal=USR1"] {
        arguments.extend(["--with", pair]);
    }
    arguments.extend(["--with", "env.A=x y", "--env", "B=2", "--", "python", "train.py"]);
    let run = fake.run(&arguments);
    assert_eq!((run.code, run.out.as_str()), (0, "job 7\n"), "{}", run.err);
    let job = &fake.seen()[0].json()["jobs"][0];
    assert_eq!((&job["gpu_permille"], &job["gpu_memory_mib"]), (&json!(300), &json!(20480)));
    assert_eq!(
        (&job["class"], &job["time_limit_seconds"]),
        (&json!("opportunistic"), &json!(3600.0))
    );
    assert_eq!(job["argv"], json!(["python", "train.py"]));
    assert_eq!(job["env"], json!({ "A": "x y", "B": "2" }));
    for (pair, part) in [
        ("shara=0.3", "did you mean `share`?"),
        ("share=much", "--with share=much"),
        ("share", "KEY=VALUE"),
        ("gpus=2", "--gpus"),
        ("array=0-9", "`submit` with a job file"),
    ] {
        let run = fake.run(&["run", "--detach", "--with", pair, "--", "true"]);
        assert!(run.code != 0 && run.err.contains(part), "`{part}` is not in {}", run.err);
    }
    assert_eq!(fake.seen().len(), 1, "nothing is sent of what is refused");
}

#[test]
fn bad_job_files_are_refused_before_anything_is_sent() {
    let fake = Fake::start("bad", accepted);
    fake.place.write("a.toml", "command = \"python a.py\"\n");
    fake.place.write("b.yaml", "command: [a]\ngpu: 2\n");
    for (file, parts) in [
        ("a.toml", &["a.toml: line 1: `command`", "[\"python\",\"a.py\"]"][..]),
        ("b.yaml", &["b.yaml: line 2", "did you mean `gpus`?"]),
        ("missing.toml", &["missing.toml: does not exist"]),
    ] {
        let run = fake.run(&["submit", file]);
        assert_eq!(run.code, 3, "{}", run.err);
        for part in parts {
            assert!(run.err.contains(part), "`{part}` is not in {}", run.err);
        }
    }
    assert!(fake.seen().is_empty());
}

#[test]
fn waiting_ends_with_the_code_of_the_first_job_that_failed() {
    let fake = Fake::start("wait", |request, before| match request.path.as_str() {
        "/v1/jobs" => ok(json!({ "jobs": [1, 2, 3], "repeated": false })),
        // A daemon that starts again is waited for.
        "/v1/jobs/1" if before == 1 => Reply::HangUp,
        "/v1/jobs/1" if before < 4 => ok(detail(1, "running", 1, &json!({}))),
        "/v1/jobs/1" => ok(detail(1, "finished", 1, &json!({ "exit_code": 0 }))),
        "/v1/jobs/2" => {
            ok(detail(2, "failed", 1, &json!({ "signal": 9, "outcome": "out of memory" })))
        }
        _ => ok(detail(3, "failed", 1, &json!({ "exit_code": 4 }))),
    });
    fake.place.write("a.toml", "[[job]]\ncommand = [\"a\"]\n[[job]]\ncommand = [\"b\"]\n");
    let run = fake.run(&["submit", "--wait", "a.toml"]);
    assert_eq!(run.code, 128 + 9, "{}", run.err);
    assert!(run.err.contains("job 2 failed: out of memory"), "{}", run.err);
    assert!(run.err.contains("job 3 failed"), "{}", run.err);
}

#[test]
fn run_follows_the_log_over_attempts_and_ends_as_the_job_ends() {
    let fake = Fake::start("run", |request, before| {
        let path = request.path.as_str();
        match path.split('?').next().unwrap_or_default() {
            "/v1/jobs" => ok(json!({ "jobs": [5], "repeated": false })),
            "/v1/jobs/5/logs" if path.contains("attempt=1") => match path.contains("from=0&") {
                true => chunk("one\n", 4, 1, false),
                false => chunk("", 4, 1, true),
            },
            "/v1/jobs/5/logs" => match path.contains("from=0&") {
                true => chunk("two\n", 4, 2, false),
                false => chunk("", 4, 2, true),
            },
            _ if before < 3 => ok(detail(5, "waiting", 0, &json!({}))),
            _ if before < 8 => ok(detail(5, "running", 2, &json!({}))),
            _ => ok(detail(5, "failed", 2, &json!({ "exit_code": 7 }))),
        }
    });
    let line = ["run", "--gpus", "2", "--type", "h100", "--env", "A=1", "--time-limit", "2h"];
    let run = fake.run(&[&line[..], &["--", "/bin/sh", "-c", "exit 7", "--json"]].concat());
    assert_eq!(run.code, 7, "{}", run.err);
    assert_eq!(run.out, "one\ntwo\n");
    assert!(
        run.err.contains("trainyard cancel 5") && run.err.contains("job 5 failed"),
        "{}",
        run.err
    );
    let job = &fake.seen()[0].json()["jobs"][0];
    assert_eq!(job["argv"], json!(["/bin/sh", "-c", "exit 7", "--json"]));
    assert_eq!((&job["name"], &job["gpus"]), (&json!("sh"), &json!(2)));
    assert_eq!((&job["gpu_types"], &job["env"]["A"]), (&json!(["h100"]), &json!("1")));
    assert_eq!(job["time_limit_seconds"], 7200.0);
    let run = fake.run(&["run", "--detach", "--", "true"]);
    assert_eq!((run.code, run.out.as_str()), (0, "job 5\n"), "{}", run.err);
    for bad in [["--gpus", "0"], ["--env", "A"], ["--time-limit", "soon"]] {
        assert_eq!(fake.run(&[&["run"], &bad[..], &["--", "true"]].concat()).code, 3, "{bad:?}");
    }
}

#[test]
fn a_plan_says_where_when_and_who_is_moved() {
    let fake = Fake::start("plan", |_, _| {
        let row = json!({
            "name": "a", "starts_now": false, "holds": [{ "node": "n1", "gpus": [0, 1] }], "moved": [3, 4],
            "starts_in_seconds": 90.0, "why": "no room",
        });
        ok(json!({ "jobs": [row], "basis": "what runs now ends when it says" }))
    });
    fake.place.write("a.toml", JOB);
    let run = fake.run(&["plan", "a.toml"]);
    assert_eq!(run.code, 0, "{}", run.err);
    for part in ["in 1m30s", "n1[0-1]", "3-4", "no room", "what runs now"] {
        assert!(run.out.contains(part), "`{part}` is not in {}", run.out);
    }
    assert_eq!(fake.lines(), ["POST /v1/plan"]);
}

#[test]
fn job_files_are_checked_without_a_daemon() {
    let place = Place::new("job-validate");
    place.write("a.toml", JOB);
    place.write("b.sh", "#!/bin/bash\n#SBATCH --gres=gpu:a100:2 -t 90\necho\n");
    let run = place.run(&["job", "validate", "a.toml", "b.sh"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("python train.py") && run.out.contains("limit 1h30m"), "{}", run.out);
    let run = place.run(&["job", "validate", "a.toml", "--json"]);
    let value: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!((&value["schema_version"], &value["jobs"][0]["gpus"]), (&json!(1), &json!(2)));
    let schema = place.run(&["job", "schema"]);
    let value: Value = serde_json::from_str(&schema.out).expect("JSON");
    assert!(value["$defs"]["job"]["properties"]["time_limit"].is_object(), "{}", schema.out);
}
