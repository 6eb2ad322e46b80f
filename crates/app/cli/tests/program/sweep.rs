//! Sweeps, several seeds, breakdowns and published results, from the outside.

use crate::place::{Place, lines, words};
use serde_json::Value;
use std::path::PathBuf;

const SWEEP: &str = "sweep --policies fifo,las --generate jobs=40 --loads 0.5,1.1 --seeds 1..2 \
                     --over las.quantum=10m,1h --cluster 2x4%v100 --out runs";

fn rows(place: &Place) -> Vec<String> {
    let all = place.files_in("runs/rows");
    assert!(all.iter().all(|name| name.ends_with(".json")), "nothing half written: {all:?}");
    all
}

#[test]
fn a_sweep_is_the_cross_product_without_settings_of_others() {
    let place = Place::new("sweep-product");
    let plan = place.run(&words(&format!("{SWEEP} --dry-run")));
    assert_eq!(plan.code, 0, "{}", plan.err);
    // 2 loads x 2 seeds, fifo once and las with two quanta.
    assert!(plan.out.contains("12 runs, 0 of them done"), "{}", plan.out);
    assert!(place.files().is_empty(), "a plan writes nothing");
    let run = place.run(&words(SWEEP));
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("12 runs: 12 done now, 0 kept"), "{}", run.out);
    let heading = lines(&run.out)[0];
    for title in ["policy", "load", "seed", "las.quantum", "JCT mean"] {
        assert!(heading.contains(title), "{title}: {}", run.out);
    }
    let of_las =
        |line: &&&str| line.contains("las") && line.contains(" 10m ") && line.contains('%');
    assert_eq!(lines(&run.out).iter().filter(of_las).count(), 4, "{}", run.out);
    assert!(run.out.contains("The same command again runs only what is missing"), "{}", run.out);
    assert_eq!(rows(&place).len(), 12);
    let csv = place.read("runs/results.csv");
    assert_eq!(lines(&csv).len(), 13);
    let heading: Vec<&str> = lines(&csv)[0].split(',').take(6).collect();
    assert_eq!(heading, ["schema_version", "key", "load", "policy", "seed", "las.quantum"]);
    let json: Value = serde_json::from_str(&place.read("runs/results.json")).expect("JSON");
    assert_eq!((&json["schema_version"], &json["kind"]), (&1.into(), &"sweep".into()));
    assert_eq!(json["runs"].as_array().map(Vec::len), Some(12));
}

#[test]
fn a_sweep_is_written_as_parquet_where_the_build_can() {
    let place = Place::new("sweep-parquet");
    let line =
        "sweep --policies fifo,las --generate jobs=20 --cluster 2x4%v100 --out runs --parquet";
    let run = place.run(&words(line));
    if !cfg!(feature = "parquet") {
        assert_eq!(run.code, 2, "{}", run.out);
        assert!(run.err.contains("--features parquet"), "{}", run.err);
        assert!(place.files().is_empty(), "refused before anything ran");
        return;
    }
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("results.parquet"), "{}", run.out);
    let bytes = place.read_bytes("runs/results.parquet");
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    // The names of columns stand in the footer as they are.
    for name in ["jct_mean_s", "cluster_line", "policy"] {
        assert!(bytes.windows(name.len()).any(|part| part == name.as_bytes()), "{name}");
    }
}

#[test]
fn an_interrupted_sweep_redoes_only_what_is_missing() {
    let place = Place::new("sweep-resume");
    assert_eq!(place.run(&words(SWEEP)).code, 0);
    let (csv, json) = (place.read("runs/results.csv"), place.read("runs/results.json"));
    let all = rows(&place);
    place.remove(&format!("runs/rows/{}", all[3]));
    place.write(&format!("runs/rows/{}", all[7]), "{ half a row");
    let plan = place.run(&words(&format!("{SWEEP} --dry-run")));
    assert!(plan.out.contains("12 runs, 10 of them done"), "{}", plan.out);
    // What is kept is believed, so a mark in a kept row shows that it was not done again.
    let marked = place.read(&format!("runs/rows/{}", all[0]));
    place.write(&format!("runs/rows/{}", all[0]), format!("{marked}\n"));
    let run = place.run(&words(&format!("{SWEEP} --threads 1")));
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("12 runs: 2 done now, 10 kept"), "{}", run.out);
    assert_eq!(rows(&place), all, "the same names");
    assert_eq!(place.read(&format!("runs/rows/{}", all[0])), format!("{marked}\n"));
    assert_eq!(place.read("runs/results.csv"), csv, "not one byte differs");
    assert_eq!(place.read("runs/results.json"), json, "not one byte differs");
}

#[test]
fn a_changed_trace_is_run_again_and_loads_stretch_it() {
    let place = Place::new("sweep-traces");
    let trace = "id,submit_s,gpus,duration_s\na,0,4,600\nb,100,4,600\nc,500,2,900\n";
    place.write("a.csv", trace);
    place.write("b.csv", trace.replace("900", "1800"));
    let line =
        "sweep --policies srtf --traces a.csv,b.csv --loads 0.5,2 --cluster 1x4%v100 --out o";
    let run = place.run(&words(line));
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("4 runs: 4 done now"), "{}", run.out);
    let json: Value = serde_json::from_str(&place.read("o/results.json")).expect("JSON");
    for one in json["runs"].as_array().expect("runs") {
        let asked: f64 = one["settings"]["load"].as_str().expect("text").parse().expect("a number");
        let load = one["offered_load"].as_f64().expect("a number");
        assert!((load / asked - 1.0).abs() < 1e-3, "{asked} {load}");
    }
    place.write("b.csv", trace.replace("900", "1801"));
    let run = place.run(&words(line));
    assert!(run.out.contains("4 runs: 2 done now, 2 kept"), "{}", run.out);
}

#[test]
fn bad_axes_are_refused_before_anything_runs() {
    let place = Place::new("sweep-bad");
    for (line, part) in [
        ("sweep --policies fifo --over quantum=1 --out o", "--over"),
        ("sweep --policies fifo --over las.quantum=10m --out o", "takes part"),
        ("sweep --policies fifo --loads 0 --out o", "--loads"),
        ("sweep --policies fifo --seeds 3..1 --out o", "--seeds"),
        ("sweep --policies fifo --traces absent.csv --out o", "absent.csv"),
        ("sweep --policies fifo --over estimate-error=0,x --out o", "estimate-error"),
        ("sweep --policies fifo --clusters 0x8%a100 --out o", "--cluster"),
    ] {
        let run = place.run(&words(line));
        assert_eq!(run.code, 3, "{line}: {}", run.err);
        assert!(run.err.contains(part), "{line}: {}", run.err);
        assert!(place.files().is_empty(), "{line}: {:?}", place.files());
    }
}

#[test]
fn several_seeds_give_intervals_and_say_who_is_alike() {
    let place = Place::new("seeds");
    // Without estimates and failures the two are the same policy under two names.
    let line =
        "compare --policies fifo,fifo:fill=strict,srtf --generate jobs=60 load=1.2 --seeds 3";
    let run = place.run(&words(line));
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("seeds 1, 2, 3") && run.out.contains(" ±"), "{}", run.out);
    assert!(run.out.contains("fifo and fifo:fill=strict"), "{}", run.out);
    assert_eq!(place.files(), ["trainyard-report.html"], "a page, as of every comparison");
    let run = place.run(&words(&format!("{line} --json")));
    let value: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!((&value["schema_version"], &value["kind"]), (&1.into(), &"replicas".into()));
    let jct = &value["policies"][0]["measures"]["jct_mean_s"];
    assert_eq!(jct["values"].as_array().map(Vec::len), Some(3));
    assert!(jct["half_width_95"].as_f64() > Some(0.0), "drawn anew for every seed: {jct}");
    let pairs = value["pairs"].as_array().expect("pairs");
    assert_eq!(pairs.len(), 3);
    assert_eq!(pairs[0]["measures"]["jct_mean_s"]["told_apart"], false);
    let parts = place.run(&words(&format!("{line} --by size --json --report none")));
    assert_eq!(parts.code, 0, "{}", parts.err);
    let json: Value = serde_json::from_str(&parts.out).expect("JSON");
    assert_eq!(json["groups"]["by"], "size");
    let first = &json["groups"]["parts"][0]["policies"][0]["measures"]["jct_mean_s"];
    assert_eq!(first["values"].as_array().map(Vec::len), Some(3), "{first}");
    let range = place.run(&words(&format!("{} --json", line.replace("--seeds 3", "--seeds 1..3"))));
    assert_eq!(range.out, run.out, "a count is a range from the first seed");
    let csv = place.run(&words(&format!("{line} --csv")));
    assert_eq!(lines(&csv.out).len(), 10);
}

#[test]
fn a_second_table_splits_jobs_by_tenant_type_and_size() {
    let place = Place::new("by");
    for (by, name) in [("tenant", "tenant"), ("type", "v100"), ("size", "2-4")] {
        let line = format!("compare --policies fifo,srtf --by {by} --report none");
        let run = place.run(&words(&line));
        assert_eq!(run.code, 0, "{}", run.err);
        assert!(run.out.contains(name) && run.out.contains("rho worst"), "{by}: {}", run.out);
        let run = place.run(&words(&format!("{line} --json")));
        let value: Value = serde_json::from_str(&run.out).expect("JSON");
        let rows = value["groups"]["rows"].as_array().expect("rows");
        let finished = |row: &&Value| row["policy"] == "fifo";
        let sum: f64 = rows
            .iter()
            .filter(finished)
            .filter_map(|row| row["measures"]["finished"].as_f64())
            .sum();
        assert_eq!(sum, 2000.0, "{by}: every job is in one part");
    }
}

#[test]
fn published_results_are_listed_and_met() {
    let place = Place::new("reproduce");
    let list = place.run(&["reproduce"]);
    assert_eq!(list.code, 0, "{}", list.err);
    assert!(list.out.contains("muri-fig9") && list.out.contains("0.1 %"), "{}", list.out);
    let wrong = place.run(&words("reproduce muri-fig8 --data ."));
    assert_eq!(wrong.code, 3);
    assert!(wrong.err.contains("did you mean `muri-fig9`?"), "{}", wrong.err);
    assert_eq!(place.run(&words("reproduce muri-fig9")).code, 3, "it needs the data");
    let shared = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../../shared");
    if !shared.join("golden").exists() {
        trainyard_testkit::skip!("data", "{} is absent", shared.display());
        return;
    }
    let data = shared.display().to_string();
    let pollux = ["pollux-tiresias", "pollux-tiresias-interpolated"];
    let exact = ["tiresias-60", "tiresias-contended", "tiresias-muri-trace1"];
    // The longer traces of Gavel, and its figures, are for release builds.
    for name in exact.into_iter().chain(pollux).chain(["gavel-20"]) {
        let run = place.run(&["reproduce", name, "--data", &data]);
        assert_eq!(run.code, 0, "{name}: {}\n{}", run.err, run.out);
        assert!(run.out.contains("ours, native") && !run.out.contains("OUTSIDE"), "{}", run.out);
    }
    let run = place.run(&["reproduce", "muri-fig9", "--data", &data, "--json"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let value: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(value["tables"][0]["values"].as_array().map(Vec::len), Some(24));
    assert_eq!(value["tables"][0]["compared"], 24, "what the list counts is what is compared");
}

#[test]
fn a_value_outside_the_tolerance_is_a_failure() {
    let shared =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/golden/tiresias");
    let input = shared.join("inputs/60_job.csv.gz");
    let (Ok(input), Ok(golden)) =
        (std::fs::read(&input), std::fs::read_to_string(shared.join("summary_60job.csv")))
    else {
        trainyard_testkit::skip!("data", "{} is absent", input.display());
        return;
    };
    let samples = shared.join("../../data/tiresias/yarn-gput1000.csv.gz");
    let place = Place::new("outside");
    for folder in ["golden", "golden/tiresias", "golden/tiresias/inputs", "data", "data/tiresias"] {
        place.make_folder(folder);
    }
    place.write("golden/tiresias/inputs/60_job.csv.gz", input);
    place.write("data/tiresias/yarn-gput1000.csv.gz", std::fs::read(samples).expect("samples"));
    // The first row, fifo, by a second.
    place.write("golden/tiresias/summary_60job.csv", golden.replacen("200.817", "201.817", 1));
    let run = place.run(&words("reproduce tiresias-60 --data ."));
    assert_eq!(run.code, 1, "{}", run.out);
    assert!(run.err.contains("1 of 16 values") && run.out.contains("OUTSIDE"), "{}", run.err);
}
