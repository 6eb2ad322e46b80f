//! Runs the program in an empty directory: text in, text out.

mod bad_input;
#[cfg(feature = "live")]
mod choosing;
#[cfg(feature = "live")]
mod daemon;
#[cfg(feature = "live")]
mod described;
#[cfg(feature = "live")]
mod descriptors;
#[cfg(feature = "live")]
mod elastic;
#[cfg(feature = "live")]
mod escapes;
#[cfg(feature = "live")]
mod expecting;
#[cfg(feature = "live")]
#[path = "../../../../live/backend/tests/fixtures/fake_driver.rs"]
mod fake_driver;
#[cfg(feature = "live")]
#[path = "../../../../live/backend/tests/fixtures/fake_mps.rs"]
mod fake_mps;
#[cfg(feature = "live")]
#[path = "../../../../live/backend/tests/fixtures/fake_nvml.rs"]
mod fake_nvml;
#[cfg(feature = "live")]
mod health;
mod inference;
#[cfg(feature = "live")]
mod live;
#[cfg(feature = "live")]
mod live_and_simulated;
#[cfg(feature = "live")]
mod mps;
#[cfg(feature = "live")]
mod old_store;
#[cfg(feature = "live")]
mod other_cluster;
mod pictures;
mod place;
mod profiles;
#[cfg(feature = "live")]
mod python;
#[cfg(feature = "live")]
mod readme;
#[cfg(feature = "live")]
mod release;
#[cfg(feature = "live")]
mod serving;
#[cfg(feature = "live")]
mod slices;
mod slurm;
mod splits;
mod store;
#[cfg(feature = "live")]
mod surroundings;
#[cfg(feature = "live")]
mod suspending;
mod sweep;

mod traces;
#[cfg(feature = "live")]
mod training;
#[cfg(feature = "live")]
mod upgrade;
#[cfg(feature = "live")]
mod users;

use place::{Place, lines, words};
use serde_json::Value;

#[test]
fn without_arguments_it_compares_and_writes_a_report() {
    let place = Place::new("default");
    let run = place.run(&[]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.err.is_empty(), "progress is for terminals only: {}", run.err);
    assert!(run.out.contains("fifo") && run.out.contains("JCT mean"), "{}", run.out);
    assert!(run.out.contains("Report: trainyard-report.html"), "{}", run.out);
    let page = place.read("trainyard-report.html");
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(page.len() < 1_500_000, "{} bytes", page.len());
    let outside = ["http://", "https://", "src=", "@import", "url("];
    assert!(outside.iter().all(|mark| !page.contains(mark)), "the page needs nothing from outside");
    assert_eq!(place.files(), ["trainyard-report.html"]);
}

#[test]
fn json_is_valid_and_versioned() {
    let place = Place::new("json");
    for line in [
        "compare --json",
        "compare --json --policies fifo --generate jobs=20",
        "sim --policy srtf --json --generate jobs=20",
        "policies --json",
        "policies fifo --json",
        "cluster check 2x4%a100 --json",
        "profile list --json",
        "profile show generic --json",
        "trace generate --jobs 3 --out t.csv --json",
    ] {
        let run = place.run(&words(line));
        assert_eq!(run.code, 0, "{line}: {}", run.err);
        let value: Value = serde_json::from_str(&run.out).expect("JSON");
        assert_eq!(value["schema_version"], 1, "{line}");
    }
    assert_eq!(place.files(), ["t.csv"], "JSON is for programs: no report unless asked for");
}

#[test]
fn the_help_lists_commands_in_groups_and_knows_the_words_of_others() {
    let place = Place::new("help");
    let help = place.run(&words("--help"));
    assert_eq!(help.code, 0, "{}", help.err);
    for heading in ["Compare and simulate:", "Submit and follow jobs:", "Run a daemon:"] {
        assert!(help.out.contains(&format!("\n  {heading}\n    ")), "{}", help.out);
    }
    let version = place.run(&words("version"));
    assert_eq!((version.code, &version.out), (0, &place.run(&words("--version")).out));
    let form = place.run(&words("policies fifo -o json"));
    assert_eq!(form.out, place.run(&words("policies fifo --json")).out);
    assert_eq!(place.run(&words("policies fifo -o yaml")).code, 2);
    let refused = place.run(&words("policies fifoo -o json"));
    assert!(refused.err.starts_with('{'), "errors too: {}", refused.err);
}

#[test]
fn json_has_the_measures_of_every_run() {
    let place = Place::new("measures");
    let run = place.run(&words("compare --json --policies fifo,srtf --generate jobs=50"));
    let value: Value = serde_json::from_str(&run.out).expect("JSON");
    let runs = value["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2);
    for one in runs {
        let summary = &one["summary"];
        assert_eq!(summary["finished"], 50);
        let (mean, max) = (summary["jct_s"]["mean"].as_f64(), summary["jct_s"]["max"].as_f64());
        assert!(mean > Some(0.0) && mean <= max, "{summary}");
        let used = summary["utilisation"].as_f64().expect("a number");
        assert!((0.0..=1.0).contains(&used), "{used}");
        assert!(summary["cost"].as_f64() > Some(0.0));
    }
    assert_eq!(runs[0]["information"]["work_left"], "nothing");
    assert_eq!(runs[1]["information"]["work_left"], "estimate");
}

#[test]
fn csv_has_one_row_for_each_policy() {
    let place = Place::new("csv");
    let run = place.run(&words("compare --csv --policies fifo,sjf --generate jobs=20"));
    let rows = lines(&run.out);
    assert_eq!(rows.len(), 3);
    assert!(rows[0].starts_with("schema_version,policy,information,"), "{}", rows[0]);
    assert!(rows[1].starts_with("1,fifo,nothing,"), "{}", rows[1]);
}

#[test]
fn the_number_of_threads_and_a_second_run_change_no_byte() {
    let place = Place::new("threads");
    let base = "compare --policies fifo,srtf,las --generate jobs=200 --failures mtbf=5d,repair=2h --seed 7";
    let mut seen: Vec<(String, String, String)> = Vec::new();
    for threads in ["1", "2", "2"] {
        let line = format!("{base} --threads {threads} --report r.html --jobs-out j.csv");
        let run = place.run(&words(&line));
        assert_eq!(run.code, 0, "{}", run.err);
        seen.push((run.out, place.read("r.html"), place.read("j.csv")));
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[1], seen[2]);
    let other = place.run(&words(&base.replace("--seed 7", "--seed 8")));
    assert_ne!(other.out, seen[0].0, "another seed gives other results");
}

#[test]
fn sim_writes_its_jobs_and_its_log() {
    let place = Place::new("sim");
    let run = place.run(&words("sim --policy las --generate jobs=10 --jobs-out j.csv --log l.txt"));
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("information: nothing"), "{}", run.out);
    assert_eq!(lines(&place.read("j.csv")).len(), 11);
    assert!(place.read("l.txt").contains("launch 0 n0["), "{}", place.read("l.txt"));
    assert_eq!(place.files(), ["j.csv", "l.txt"]);
}

#[test]
fn a_trace_written_is_read_back_packed_or_not() {
    let place = Place::new("roundtrip");
    let mut tables = Vec::new();
    for file in ["t.csv", "t.jsonl", "t.csv.gz"] {
        let line = format!(
            "trace generate --jobs 40 --seed 3 --tenants 2 --set deadline_share=0.5 --out {file}"
        );
        let run = place.run(&words(&line));
        assert_eq!(run.code, 0, "{}", run.err);
        let run = place.run(&words(&format!("compare --policies fifo,srtf --trace {file} --csv")));
        assert_eq!(run.code, 0, "{}", run.err);
        tables.push(run.out);
    }
    assert_eq!(tables[0], tables[1]);
    assert_eq!(tables[0], tables[2].replace("t.csv", "t"));
}

#[test]
fn stages_and_settings_are_composed_by_name() {
    let place = Place::new("compose");
    let run = place.run(&[
        "sim",
        "--policy",
        "tiresias",
        "--place",
        "best-fit",
        "--admit",
        "load=1.5",
        "--set",
        "tiresias.thresholds=[1h,10h]",
        "--generate",
        "jobs=30",
        "--json",
    ]);
    assert_eq!(run.code, 0, "{}", run.err);
    let value: Value = serde_json::from_str(&run.out).expect("JSON");
    let settings = &value["runs"][0]["settings"];
    assert_eq!(settings["tiresias.thresholds"], "[1h,10h]");
    assert_eq!(
        (&settings["placer"], &settings["admission control"]),
        (&"best-fit".into(), &"load".into())
    );
    assert_eq!(settings["load.load"], "1.5");
}

#[test]
fn semantics_change_settings_that_the_user_did_not_give() {
    let place = Place::new("semantics");
    let setting = |extra: &str| {
        let line =
            format!("sim --policy srtf --semantics tiresias --generate jobs=20 --json {extra}");
        let run = place.run(&words(line.trim()));
        let value: Value = serde_json::from_str(&run.out).expect("JSON");
        assert_eq!(value["runs"][0]["information"]["work_left"], "exact");
        value["runs"][0]["settings"]["srtf.mode"].clone()
    };
    assert_eq!(setting(""), "refill");
    assert_eq!(setting("--set srtf.mode=changes"), "changes");
}

#[test]
fn completions_and_help_teach() {
    let place = Place::new("help");
    for shell in ["bash", "zsh", "fish"] {
        let run = place.run(&["completions", shell]);
        assert!(run.code == 0 && run.out.contains("trainyard"), "{shell}: {}", run.err);
    }
    let help = place.run(&["--help"]);
    assert!(help.out.contains("Exit codes:") && help.out.contains("Examples:"), "{}", help.out);
    let version = place.run(&["--version"]);
    assert!(version.out.starts_with("trainyard 0."), "{}", version.out);
    let listed = place.run(&["policies"]);
    assert!(listed.out.contains("fewest-nodes") && listed.out.contains("srtf"), "{}", listed.out);
    let page = place.run(&["policies", "tiresias"]);
    assert!(page.out.contains("thresholds") && page.out.contains("docs/policies/tiresias.md"));
}

#[test]
fn a_malformed_command_line_is_a_usage_error() {
    let place = Place::new("usage");
    for line in ["--nonsense", "sim", "completions tcl", "compare --json --csv"] {
        assert_eq!(place.run(&words(line)).code, 2, "{line}");
    }
    assert!(place.files().is_empty());
}

#[test]
fn unfinished_jobs_are_a_loud_failure() {
    let place = Place::new("unfinished");
    let tenants = "[[tenant]]\nname = \"team-1\"\nceiling = 0\n[[tenant]]\nname = \"team-2\"\n";
    place.write("c.toml", format!("[[nodes]]\ngpus = 8\nkind = \"a100\"\n{tenants}"));
    let line =
        "compare --policies srtf --cluster c.toml --generate jobs=20 tenants=2 --report r.html";
    let run = place.run(&words(line));
    assert_eq!(run.code, 1, "{}", run.err);
    assert!(run.err.contains("srtf left") && run.err.contains("UNFINISHED"), "{}", run.err);
    assert!(run.out.contains("UNFINISHED"), "{}", run.out);
    assert!(place.read("r.html").contains("unfinished"));
}

#[test]
fn a_report_that_cannot_be_written_is_a_failure_of_the_operation() {
    let place = Place::new("unwritable");
    let run = place.run(&words("--policies fifo --generate jobs=5 --report missing/r.html"));
    assert_eq!(run.code, 1);
    assert!(run.err.contains("missing/r.html: cannot be written"), "{}", run.err);
    assert!(place.files().is_empty());
}
