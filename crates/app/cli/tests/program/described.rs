//! Jobs whose model is described, under a daemon and in a simulation; problems of other planners; what was measured.

use super::daemon::Daemon;
use super::place::Place;
use std::fs;

#[test]
fn a_job_of_a_described_model_is_told_its_division_and_one_that_fits_nowhere_is_refused() {
    let mut daemon = Daemon::start_with("described", &["--gpus", "8xa100"]);
    let job = |model: &str, gpus: u32| {
        format!(
            "name = \"large\"\nmodel = \"{model}\"\ngpus = {gpus}\nretries = 0\n\
             command = [\"sh\", \"-c\", \"echo division $TRAINYARD_DIVISION; exec sleep 600\"]\n"
        )
    };
    let write = |daemon: &Daemon, name: &str, text: String| {
        fs::write(daemon.folder.join(name), text).expect("a file");
    };
    write(&daemon, "large.toml", job("gpt-7.5b  batch=512", 8));
    write(&daemon, "small.toml", job("gpt-7.5b batch=512", 1));
    write(&daemon, "wrong.toml", job("gpt-75b batch=512", 8));
    let refused = daemon.ask(&["submit", "small.toml"]);
    assert!(refused.code != 0 && refused.err.contains("are lacking"), "{}", refused.err);
    let wrong = daemon.ask(&["submit", "wrong.toml"]);
    assert!(wrong.code != 0 && wrong.err.contains("did you mean `gpt-7.5b`"), "{}", wrong.err);
    let submitted = daemon.json(&["submit", "large.toml", "--json"]);
    let id = submitted["jobs"][0].to_string();
    daemon.wait_until(&id, "running");
    daemon.wait_to_hear(&["logs", &id], "division tensor");
    daemon.wait_to_hear(&["why", &id], "its model is divided over its GPUs: tensor");
    // The description is known again after a restart.
    daemon.kill();
    daemon.start_again();
    daemon.wait_to_hear(&["why", &id], "its model is divided over its GPUs: tensor");
    daemon.said(&["cancel", &id]);
    daemon.wait_until(&id, "cancelled");
    assert!(daemon.said(&["plan", "large.toml"]).contains("divided: tensor"));
}

#[test]
fn a_trace_names_descriptions_and_one_that_fits_nowhere_is_refused_by_line() {
    let place = Place::new("described-trace");
    let trace = "id,submit_s,gpus,gpus_max,duration_s,model\n\
                 a,0,8,16,3600,gpt-7.5b batch=512\nb,60,1,1,600,gavel-resnet18-b128\n";
    place.write("trace.csv", trace);
    place.write("small.csv", trace.replace("a,0,8,16", "a,0,1,1"));
    place.write("wrong.csv", trace.replace("gpt-7.5b batch=512", "gpt-7.5b batch=many"));
    let on = ["--cluster", "2x8 a100, 2x8 v100"];
    let run = |words: &[&str]| place.run(&[words, &on].concat());
    for more in [
        &["sim", "--trace", "trace.csv", "--policy", "gavel"][..],
        &["sim", "--trace", "trace.csv", "--policy", "sia", "--without-plans"],
    ] {
        let ran = run(more);
        assert_eq!(ran.code, 0, "{more:?}: {}", ran.err);
    }
    let refused = run(&["sim", "--trace", "small.csv", "--policy", "fifo"]);
    assert!(refused.code != 0 && refused.err.contains("are lacking"), "{}", refused.err);
    let wrong = run(&["sim", "--trace", "wrong.csv", "--policy", "fifo"]);
    assert!(wrong.code != 0 && wrong.err.contains("a whole number from 1"), "{}", wrong.err);
}

#[test]
fn problems_of_other_planners_are_shown_and_solved() {
    let place = Place::new("stated");
    for name in ["duan-wu", "yang", "herti", "cc-os", "perotin", "ursa", "harmony"] {
        let example = place.run(&["planners", name, "--example"]);
        assert_eq!(example.code, 0, "{name}: {}", example.err);
        place.write("problem.json", &example.out);
        let solved = place.run(&["planners", name, "--run", "problem.json"]);
        assert_eq!(solved.code, 0, "{name}: {}", solved.err);
        let json = place.run(&["planners", name, "--run", "problem.json", "--json"]);
        let value: serde_json::Value = serde_json::from_str(&json.out).expect("JSON");
        assert_eq!(value["planner"], name);
        assert!(value["answer"].is_object(), "{value}");
    }
    place.write("bad.json", "{ \"cores\": 4, \"operators\": [{ \"name\": \"a\", \"parallel_seconds\": 1, \"after\": [\"b\"] }] }");
    let bad = place.run(&["planners", "cc-os", "--run", "bad.json"]);
    assert!(bad.code != 0 && bad.err.contains("`after` cannot be `b`"), "{}", bad.err);
    let none = place.run(&["planners", "dapple", "--example"]);
    assert!(none.code != 0 && none.err.contains("trainyard split"), "{}", none.err);
}

#[test]
fn what_was_measured_is_compared_with_what_is_predicted() {
    let place = Place::new("measured");
    let operators = |factor: f64| {
        format!(
            r#"[{{"name":"layer_0","forward_seconds":{},"backward_seconds":{},"update_seconds":0.0,"is_layer":true}}]"#,
            0.1 * factor,
            0.2 * factor
        )
    };
    let evidence = format!(
        r#"{{"gpu":"h200","model":"transformer layers=1 hidden=64 heads=4","profiles":[{{"batch":1,"operators":{}}},{{"batch":4,"operators":{}}}],
        "cases":[{{"micro_batch":2,"micro_batches":2,"recompute":"all","seconds":1.5}}]}}"#,
        operators(1.0),
        operators(4.0)
    );
    // Two micro-batches of two samples: 2 (0.2 + 0.4 + 0.2) = 1.6 s, 6.7 % above what was measured.
    place.write("evidence.json", &evidence);
    let near = place.run(&["split", "--measured", "evidence.json"]);
    assert_eq!(near.code, 0, "{}", near.err);
    assert!(near.out.contains("+6.7 %"), "{}", near.out);
    let far = place.run(&["split", "--measured", "evidence.json", "--within", "0.05"]);
    assert!(far.code != 0 && far.err.contains("6.7 % off"), "{}", far.err);
}
