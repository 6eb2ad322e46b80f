//! `profile import`, `check`, `list` and `show`.

use crate::place::{Place, words};
use serde_json::Value;

const GAVEL: &str = r#"{
 "v100": {
  "('Tiny (batch size 4)', 1)": {"null": 10.0, "('Other', 1)": [6.0, 2.0]},
  "('Tiny (batch size 4)', 4)": {"null": 32.0},
  "('Other', 1)": {"null": 3.0, "('Tiny (batch size 4)', 1)": [1.5, 5.0]}
 },
 "v100_unconsolidated": {"('Tiny (batch size 4)', 4)": {"null": 20.0}},
 "k80": {"('Tiny (batch size 4)', 1)": {"null": 0}}
}"#;

#[test]
fn an_imported_table_is_listed_shown_and_simulated() {
    let place = Place::new("profile-roundtrip");
    place.write("table.json", GAVEL);
    let run = place.run(&words("profile import table.json --format gavel --out own.toml"));
    assert_eq!((run.code, run.out.as_str()), (0, "own.toml: 2 models, 4 points, 2 pairs\n"));
    let plain = place.run(&words("profile import table.json --format gavel"));
    assert_eq!(plain.out, place.read("own.toml"));

    let list = place.run(&words("profile list --profiles own.toml"));
    let row = list.out.lines().find(|line| line.contains("gavel-tiny-b4")).expect("a row");
    assert!(
        row.contains("v100") && row.contains('?') && row.contains("Gavel (OSDI 2020)"),
        "{row}"
    );

    let show = place.run(&words("profile show gavel-tiny-b4 --profiles own.toml"));
    assert_eq!(show.code, 0, "{}", show.err);
    for part in ["speed on v100", "o", "x", "interpolated", "extrapolated", "60.0 %", "gavel-other"]
    {
        assert!(show.out.contains(part), "{part}\n{}", show.out);
    }
    let table: Vec<&str> = show
        .out
        .lines()
        .filter(|line| line.starts_with("v100") && line.ends_with("measured"))
        .collect();
    assert_eq!(table.len(), 3, "{}", show.out);
    assert!(table[2].contains("20.00"), "on two nodes: {}", table[2]);

    let line = "sim --policy fifo --profiles own.toml --cluster 2x4%v100 --json --generate jobs=5 models=gavel-tiny-b4";
    let sim = place.run(&words(line));
    assert_eq!(sim.code, 0, "{}", sim.err);
    assert_eq!(place.files(), ["own.toml", "table.json"]);
}

#[test]
fn a_profile_is_drawn_with_its_axes_and_costs() {
    let place = Place::new("profile-show");
    let run = place.run(&words("profile show muri-vgg16-b16"));
    assert_eq!(run.code, 0, "{}", run.err);
    for part in ["steps/s +---", "GPUs  1", "7s on 1, 7s on 2", "skew     74.", "pairs    none"] {
        assert!(run.out.contains(part), "{part}\n{}", run.out);
    }
    assert!(run.out.contains("9.346 |o..."), "{}", run.out);
    let json = place.run(&words("profile show muri-vgg16-b16 --json"));
    let value: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(
        (&value["schema_version"], &value["model"]["points"][0]["gpus"]),
        (&1.into(), &1.into())
    );
    let generic = place.run(&words("profile show generic"));
    assert!(generic.out.contains("speed on any"), "{}", generic.out);
}

const SYNERGY: &str = r#"{"cpu_rows": [1, 3, 9], "mem_cols_gb": [20.83, 62.5], "models": {
 "res18_1": {"iter_time": 0.5, "batch": 512, "tput": [[0.1, 0.25], [0.1, 1], [0.1, 2.4]]}}}"#;

#[test]
fn a_table_of_hosts_is_imported_drawn_and_starves_a_job() {
    let place = Place::new("profile-synergy");
    place.write("synergy.json", SYNERGY);
    let run = place.run(&words("profile import synergy.json --format synergy --out own.toml"));
    assert_eq!((run.code, run.out.as_str()), (0, "own.toml: 1 models, 1 points, 0 pairs\n"));
    let show = place.run(&words("profile show synergy-resnet18-b512 --profiles own.toml"));
    for part in ["speed by host CPUs and memory", "20.8 GiB", "62.5 GiB", "2.40", "####"] {
        assert!(show.out.contains(part), "{part}\n{}", show.out);
    }
    let json = place.run(&words("profile show synergy-resnet18-b512 --profiles own.toml --json"));
    let value: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(value["model"]["host"][0]["parts"][0][1], 0.25);
    let mean_jct = |cpus: u32| {
        let heading = "id,submit_s,gpus,steps,model,cpus_per_gpu";
        place.write("jobs.csv", format!("{heading}\na,0,1,2000,synergy-resnet18-b512,{cpus}\n"));
        let line =
            "sim --policy fifo --trace jobs.csv --profiles own.toml --cluster 1x8%v100 --json";
        let sim = place.run(&words(line));
        assert_eq!(sim.code, 0, "{}", sim.err);
        let value: Value = serde_json::from_str(&sim.out).expect("JSON");
        value["runs"][0]["summary"]["jct_s"]["mean"].as_f64().expect("a mean")
    };
    // 2,000 steps at 2 a second and 25 s to start; a quarter of the speed with one CPU, as usual with none stated.
    assert_eq!([1, 3, 0].map(mean_jct), [4025.0, 1025.0, 1025.0]);
}

#[test]
fn stages_are_shown_with_their_resources() {
    let place = Place::new("profile-stages");
    let run = place.run(&words("profile show muri-vgg16-b16"));
    assert!(run.out.contains("time of one iteration on each resource"), "{}", run.out);
    let row = run.out.lines().find(|line| line.contains("83ms")).expect("sixteen GPUs");
    assert!(row.contains("68ms") && row.contains("110ms"), "{row}");
    let json = place.run(&words("profile show muri-vgg16-b16 --json"));
    let value: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(value["model"]["stages"][4]["network_s"], 0.11);
}

#[test]
fn tables_are_told_by_their_folder_or_by_flags() {
    let place = Place::new("profile-elasticflow");
    place.write("bert.csv", "global_batch_size,1,2\n64,3,5\n");
    let run = place.run(&words("profile import bert.csv --format elasticflow"));
    assert_eq!(run.code, 3);
    assert!(run.err.contains("--kind") && run.err.contains("a type of GPU"), "{}", run.err);
    let run = place.run(&words("profile import bert.csv --format elasticflow --kind a100"));
    assert!(run.out.contains("name = \"elasticflow-bert-b64\""), "{}{}", run.out, run.err);
    place.make_folder("throughputs_t4");
    place.write("throughputs_t4/ncf.csv", "global_batch_size,1,8\n64,3,5\n");
    let run =
        place.run(&words("profile import throughputs_t4/ncf.csv --format elasticflow --json"));
    let value: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(value["models"][0]["points"][1]["nodes"], 2, "nodes of four T4");
}

#[test]
fn faults_name_file_line_and_field() {
    let place = Place::new("profile-faults");
    place.write("t.json", GAVEL.replace("32.0", "-32"));
    place.write("m.csv", "model,num_gpu,batch_size,iteration_ms\nvgg16,1,16,fast\n");
    for (line, expected) in [
        (
            "profile import t.json --format gavel",
            "t.json: line 4: `v100.('Tiny (batch size 4)', 4).null`",
        ),
        ("profile import m.csv --format muri", "m.csv: line 2: `iteration_ms` cannot be `fast`"),
        ("profile import m.csv --format chronus", "m.csv: line 1: "),
        ("profile import m.csv --format muri --kind t4", "--kind: cannot be `t4`"),
        ("profile import none.csv --format muri", "none.csv: does not exist"),
        ("profile show gavel-resnet18-b12", "did you mean `gavel-resnet18-b128`?"),
    ] {
        let run = place.run(&words(line));
        assert_eq!(run.code, 3, "{line}: {}", run.err);
        assert!(run.err.contains(expected), "{line}: {}", run.err);
    }
}

const PLACEMENTS: &str =
    "placement,local_bsz,step_time,sync_time\n1,8,0.1,0.01\n1,16,0.2,0.01\n4,8,0.2,0.1\n";
const EPOCHS: &str =
    "progress,iteration,metric,grad_sqr,grad_var\n100,100,0.5,1,1\n200,200,0.6,1,2\n";

/// A folder `traces/tiny` with the smallest training there can be.
fn trainings(name: &str) -> Place {
    let place = Place::new(name);
    place.make_folder("traces");
    place.make_folder("traces/tiny");
    place.write("traces/tiny/placements.csv", PLACEMENTS);
    place.write("traces/tiny/validation-16.csv", EPOCHS);
    place.write("traces/tiny/validation-32.csv", EPOCHS);
    place
}

#[test]
fn a_measured_training_is_imported_shown_checked_and_simulated() {
    let place = trainings("profile-training");
    let run = place.run(&words("profile import traces --format pollux --out own.toml"));
    let expected = "own.toml: 1 models, 2 points, 0 pairs, 3 times of iterations\n";
    assert_eq!((run.code, run.out.as_str()), (0, expected), "{}", run.err);
    let one = place.run(&words("profile import traces/tiny --format pollux"));
    assert_eq!(one.out, place.read("own.toml"), "one application or a folder of them");

    let show = place.run(&words("profile show pollux-tiny --profiles own.toml"));
    for part in ["speed on t4", "mean of training", "training 2 epochs", "efficiency, epoch 2"] {
        assert!(show.out.contains(part), "{part}\n{}{}", show.out, show.err);
    }
    let json = place.run(&words("profile show pollux-tiny --profiles own.toml --json"));
    let value: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(value["model"]["training"]["work"], 200.0);

    let heading = "app,placement,atomic_bsz,step_time,sync_time\n";
    place.write("queries.csv", format!("{heading}tiny,1,12,0.15,0.01\ntiny,4,8,0.25,0.1\n"));
    let line = "profile check queries.csv --profiles own.toml --json";
    let check = place.run(&words(line));
    let value: Value = serde_json::from_str(&check.out).expect("JSON");
    let all = &value["errors"][1];
    let close = |key: &str, part: f64| (all[key].as_f64().unwrap_or(9.0) - part).abs() < 1e-9;
    assert!(close("mean", 0.1) && close("p95", 0.2) && close("max", 0.2), "{}", check.out);
    // Recorded times in the profile answer the replay, and the check does without them.
    let line = "profile import traces --format pollux --queries queries.csv --out exact.toml";
    assert_eq!(place.run(&words(line)).code, 0);
    assert!(place.read("exact.toml").contains("recorded = "));
    let again = place.run(&words("profile check queries.csv --profiles exact.toml --json"));
    assert_eq!(again.out, check.out);

    place.write("jobs.csv", "id,submit_s,gpus,steps,model,batch\na,0,1,200,pollux-tiny,16\n");
    let line = "sim --policy fifo --profiles own.toml --trace jobs.csv --cluster 1x4%t4 --semantics pollux --json";
    let sim = place.run(&words(line));
    assert_eq!(sim.code, 0, "{}", sim.err);
    let value: Value = serde_json::from_str(&sim.out).expect("JSON");
    // Decided at 0 s, 30 s to start, 100 steps of 0.2 s in each of two epochs.
    assert_eq!(value["runs"][0]["summary"]["jct_s"]["mean"], 70.0, "{}", sim.out);
}

#[test]
fn faults_of_measured_trainings_name_the_file() {
    let place = trainings("profile-training-faults");
    let import = "profile import traces --format pollux";
    for (file, content, expected) in [
        ("traces/tiny/placements.csv", "placement,local_bsz,step_time\n", "`sync_time` is missing"),
        ("traces/tiny/placements.csv", "", "`heading` is missing"),
        ("traces/tiny/validation-16.csv", "progress\n1\n", "`iteration` is missing"),
    ] {
        let whole = place.read(file);
        place.write(file, content);
        let run = place.run(&words(import));
        assert_eq!(run.code, 3, "{}", run.out);
        assert!(run.err.contains(file) && run.err.contains(expected), "{}", run.err);
        place.write(file, whole);
    }
    let none = place.run(&words("profile import . --format pollux"));
    assert!(none.code == 3 && none.err.contains("no measured training"), "{}", none.err);
    let file = place.run(&words("profile import traces/tiny/placements.csv --format pollux"));
    assert!(file.code == 3 && file.err.contains("is a file"), "{}", file.err);
    let gone = place.run(&words("profile import trace --format pollux"));
    assert!(gone.code == 3 && gone.err.contains("did you mean `traces`?"), "{}", gone.err);
    place.write("q.csv", "app,placement,atomic_bsz,step_time,sync_time\nother,1,8,1,0\n");
    let check = place.run(&words("profile check q.csv"));
    assert!(check.code == 3 && check.err.contains("`pollux-other`"), "{}", check.err);
    let idle = place.run(&words("profile import x.json --format gavel --queries q.csv"));
    assert!(idle.code == 3 && idle.err.contains("--queries"), "{}", idle.err);
}

#[test]
fn pairs_are_estimated_measured_against_the_known_and_written_with_a_mark() {
    let place = Place::new("profile-complete");
    // The zoo's own pairs, one of which is forgotten.
    let zoo = place.run(&words("profile complete --json"));
    assert_eq!(zoo.code, 0, "{}", zoo.err);
    let value: Value = serde_json::from_str(&zoo.out).expect("JSON");
    let trials = value["groups"][0]["trials"].as_array().expect("trials");
    assert_eq!(trials.len(), 10);
    let error = |trial: &Value, way: &str| trial[way]["mean"].as_f64().expect("an error");
    assert!(trials.iter().all(|trial| error(trial, "chosen") < error(trial, "mean")), "{trials:?}");

    place.write("table.json", GAVEL);
    let import = "profile import table.json --format gavel --out own.toml";
    assert_eq!(place.run(&words(import)).code, 0);
    let line = "profile complete --profiles own.toml --out filled.toml";
    let run = place.run(&words(line));
    assert_eq!(run.code, 0, "{}", run.err);
    let last = run.out.lines().last().unwrap_or("");
    assert!(
        last.starts_with("filled.toml: ") && last.ends_with("2 estimated and marked"),
        "{last}"
    );
    let filled = place.read("filled.toml");
    assert_eq!(filled.matches("estimated = true").count(), 2, "both beside themselves");
    let show = place.run(&words("profile show gavel-tiny-b4 --profiles filled.toml"));
    assert!(show.out.contains("gavel-tiny-b4 (estimated)"), "{}", show.out);
}

#[test]
fn predictors_of_interference_are_compared_on_three_sorts_of_tables() {
    let place = Place::new("profile-interference");
    let own = place.run(&words("profile interference --json"));
    let value: Value = serde_json::from_str(&own.out).expect("JSON");
    let predictors = value["predictors"].as_array().expect("predictors");
    assert!(predictors.len() > 12, "{}", own.out);
    let error = |value: &Value| value["rmsre"].as_f64().expect("an error");
    assert_eq!(value["best_rmsre"].as_f64(), Some(error(&predictors[0])));
    assert!(value["oracle_rmsre"].as_f64().is_some_and(|oracle| oracle < error(&predictors[0])));

    place.write("table.json", GAVEL);
    place.run(&words("profile import table.json --format gavel --out own.toml"));
    let line = "profile interference --models gavel- --profiles own.toml";
    let run = place.run(&words(line));
    assert!(run.code == 0 && run.out.contains("of models `gavel-*`"), "{} {}", run.out, run.err);
    let none = place.run(&words("profile interference --models nothing-"));
    assert!(none.code == 3 && none.err.contains("`nothing-`"), "{}", none.err);

    place.write(
        "alone.csv",
        "model,dataset,batchsize,amp,gpu_util,gmem_util,gmem\nA,x,32,0,40,20,2000\nB,y,64,1,90,60,4000\n",
    );
    let heading = "model1,dataset1,batchsize1,amp1,speed1,model2,dataset2,batchsize2,amp2,speed2";
    place.write("pairs.csv", format!("{heading}\nA,x,32,0,0.9,B,y,64,1,0.6\n"));
    let line = "profile interference --lucid pairs.csv --lucid-alone alone.csv";
    let run = place.run(&words(line));
    assert!(run.code == 0 && run.out.contains("by Lucid"), "{} {}", run.out, run.err);
    place.write("pairs.csv", format!("{heading}\nA,x,32,0,fast,B,y,64,1,0.6\n"));
    let run = place.run(&words(line));
    assert!(run.code == 3 && run.err.contains("pairs.csv"), "{}", run.err);
    assert!(run.err.contains("speed1") && run.err.contains("fast"), "{}", run.err);
}
