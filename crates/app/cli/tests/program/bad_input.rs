//! Bad input: exit code 3, one message with all its parts, nothing left behind.

use crate::place::{Place, lines, words};
use serde_json::Value;
use std::process::Stdio;

/// A command line, and what its message must name.
fn refused(place: &Place, line: &str, parts: &[&str]) {
    let before = place.files();
    let run = place.run(&words(line));
    assert_eq!(run.code, 3, "{line}\n{}\n{}", run.out, run.err);
    assert_eq!(lines(&run.err).len(), 1, "one message: {}", run.err);
    assert!(run.err.starts_with("error: "), "{}", run.err);
    for part in parts {
        assert!(run.err.contains(part), "{line}: `{part}` is not in: {}", run.err);
    }
    assert!(run.out.is_empty(), "no partial output: {}", run.out);
    assert_eq!(place.files(), before, "no file left behind");
    let json = place.run(&words(&format!("{line} --json")));
    let value: Value = serde_json::from_str(&json.err).expect("the error as JSON");
    assert_eq!((&value["schema_version"], &value["error"]["exit_code"]), (&1.into(), &3.into()));
    assert_eq!(format!("error: {}\n", value["error"]["message"].as_str().expect("text")), run.err);
}

#[test]
fn unknown_names_and_keys_are_refused_with_the_nearest() {
    let place = Place::new("names");
    for (line, parts) in [
        ("compare --policies fifo,strf", &["policy", "`strf`", "did you mean `srtf`?"][..]),
        ("sim --policy tiresais", &["`tiresais`", "did you mean `tiresias`?"]),
        ("sim --policy fifo --place best-fti", &["--place", "placer", "did you mean `best-fit`?"]),
        ("sim --policy fifo --admit laod=1.2", &["--admit", "admission control", "`load`"]),
        ("sim --policy fifo --tune nothing", &["--tune", "tuner", "`nothing`"]),
        ("sim --policy fifo --set fifo.fil=strict", &["`fifo`", "`fil`", "did you mean `fill`?"]),
        ("sim --policy fifo --set fifi.fill=strict", &["--set", "`fifi`", "did you mean `fifo`?"]),
        ("sim --policy fifo --set srtf.mode=changes", &["--set", "`srtf`", "takes part", "fifo"]),
        ("sim --policy fifo --set fill=strict", &["--set", "fill=strict", "OWNER.KEY=VALUE"]),
        (
            "sim --policy fifo --set fifo.fill=stritc",
            &["fifo.fill", "stritc", "did you mean `strict`?"],
        ),
        ("compare --generate duration=gavle", &["duration", "gavle", "did you mean `gavel`?"]),
        (
            "compare --generate duration=fixed:length=1m,lenth=2m",
            &["duration", "`lenth`", "`length`"],
        ),
        ("compare --policies fifo,fifo", &["--policies", "`fifo`", "once"]),
        ("policies fiffo", &["`fiffo`", "did you mean `fifo`?"]),
        ("compare --generate jbos=3", &["--generate", "`jbos`", "did you mean `jobs`?"]),
        ("compare --failures mtbv=3d", &["--failures", "`mtbv`", "did you mean `mtbf`?"]),
        ("compare --cluster 2x8%h10o", &["--cluster", "`h10o`", "did you mean `h100`?"]),
        (
            "compare --generate models=gavel-resnet8",
            &["--generate", "gavel-resnet8", "did you mean"],
        ),
    ] {
        refused(&place, line, parts);
    }
}

#[test]
fn bad_values_of_flags_are_refused() {
    let place = Place::new("values");
    for (line, parts) in [
        ("compare --round 0s", &["--round", "`0s`", "above 0"][..]),
        ("compare --round -5m", &["--round", "`-5m`", "above 0"]),
        ("compare --round 5x", &["--round", "`5x`", "5m"]),
        ("compare --seed 99999999999999999999", &["--seed", "9999999", "whole number"]),
        ("compare --seed -1", &["--seed", "`-1`", "whole number"]),
        ("compare --threads many", &["--threads", "`many`", "whole number"]),
        ("compare --threads 0", &["--threads", "`0`", "from 1 to 4096"]),
        ("compare --cluster 2x4%zz100", &["type of GPU", "`zz100`", "a100", "cluster file"]),
        ("compare --estimate-error -1", &["--estimate-error", "`-1`", "0 to 10"]),
        ("compare --costs dear", &["--costs", "`dear`", "profile"]),
        ("compare --failures mtbf=0s", &["--failures", "mtbf=0s", "above 0"]),
        ("compare --decision-cost fixed=soon", &["--decision-cost", "soon"]),
        ("compare --cluster 0x8%a100", &["--cluster", "0x8 a100", "1 to"]),
        ("compare --cluster 2x-8%a100", &["--cluster", "2x-8 a100", "1 to 64"]),
        ("compare --cluster 99999999999x8%a100", &["--cluster", "99999999999", "1 to"]),
        ("compare --generate jobs=-5", &["generate.jobs", "-5"]),
        ("compare --generate jobs=99999999999", &["generate.jobs", "99999999999"]),
        ("compare --generate jobs=0", &["--generate", "`jobs`", "`0`", "at least one"]),
        ("compare --generate load=0", &["--generate", "arrival", "`0`", "more than 0"]),
        ("sim --policy fifo --admit load=-1", &["load", "-1"]),
        ("trace generate --out trace.txt", &["--out", "trace.txt", ".csv"]),
        ("trace generate --jobs 0.5", &["jobs", "0.5"]),
    ] {
        refused(&place, line, parts);
    }
}

#[test]
fn faults_in_traces_name_file_line_field_and_value() {
    let place = Place::new("traces");
    let header = "id,submit_s,gpus,duration_s";
    for (name, content, parts) in [
        ("zero.csv", "a,0,0,60", &["line 3", "`gpus`", "`0`", "whole number"][..]),
        ("negative.csv", "a,0,-4,60", &["line 3", "`gpus`", "`-4`"]),
        ("time.csv", "a,-1,4,60", &["line 3", "`submit_s`", "`-1`"]),
        ("endless.csv", "a,0,4,1e300", &["line 3", "`1e300`", "to 10000000000"]),
        ("steps.csv", "a,0,4,0", &["line 3", "`duration_s`", "`0`", "more than 0"]),
        ("overflow.csv", "a,0,99999999999999999999,60", &["line 3", "`gpus`"]),
        ("fields.csv", "a,0,4", &["line 3", "3 fields", "4 fields"]),
        ("large.csv", "a,0,97,60", &["line 3", "job `a`", "`gpus`", "`97`", "at most 64"]),
        ("twice.csv", "ok,0,4,60", &["line 3", "`id`", "`ok`"]),
    ] {
        place.write(name, format!("{header}\nok,0,1,60\n{content}\n"));
        let line =
            format!("compare --policies fifo --trace {name} --report r.html --jobs-out j.csv");
        let mut all = vec![name];
        all.extend(parts);
        refused(&place, &line, &all);
    }
    place.write("column.csv", "id,submit_s,gpsu,duration_s\n");
    let parts = ["column.csv", "line 1", "`gpsu`", "did you mean `gpus`?"];
    refused(&place, "compare --trace column.csv", &parts);
    place.write("model.csv", "id,submit_s,gpus,duration_s,model\na,0,1,60,gavel-resnet8\n");
    let parts = ["model.csv", "line 2", "`model`", "`gavel-resnet8`", "did you mean"];
    refused(&place, "compare --trace model.csv", &parts);
    place.write("kind.csv", "id,submit_s,gpus,duration_s,kinds\na,0,1,60,v1000\n");
    refused(&place, "compare --trace kind.csv", &["kind.csv", "line 2", "v1000", "`v100`"]);
    place.write("empty.csv", "id,submit_s,gpus,duration_s\n");
    refused(&place, "compare --trace empty.csv", &["empty.csv", "at least one job"]);
    place.write(
        "large.jsonl",
        "{\"trainyard_trace\":1}\n{\"id\":\"b\",\"submit_s\":0,\"gpus\":500,\"steps\":1}\n",
    );
    refused(&place, "compare --trace large.jsonl", &["large.jsonl", "line 2", "`b`", "`500`"]);
    place.write("broken.csv.gz", [0x1f, 0x8b, 8, 0, 1, 2, 3]);
    refused(&place, "compare --trace broken.csv.gz", &["broken.csv.gz"]);
}

#[test]
fn archives_that_are_cut_or_damaged_are_named_as_such() {
    let place = Place::new("archives");
    let rows: String = (0..20_000).map(|id| format!("{id},{id},1,60\n")).collect();
    let text = format!("id,submit_s,gpus,duration_s\n{rows}");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut packed, text.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let mut damaged = packed.clone();
    let last = damaged.len() - 6;
    damaged[last] ^= 0xff;
    place.write("cut.csv.gz", &packed[..packed.len() / 2]);
    place.write("checksum.csv.gz", &damaged);
    place.write("cut.csv.xz", [0xfd, b'7', b'z', b'X', b'Z', 0, 0, 4]);
    place.write("cut.csv.zst", [0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x29]);
    for command in ["trace stats", "trace check", "compare --policies fifo --trace"] {
        for (file, what) in [
            ("cut.csv.gz", "a gzip archive that is cut off"),
            ("checksum.csv.gz", "a damaged gzip archive"),
            ("cut.csv.xz", "xz archive"),
            ("cut.csv.zst", "zstd archive"),
        ] {
            refused(&place, &format!("{command} {file}"), &[file, what, "fetch it again"]);
        }
    }
    refused(&place, "profile import cut.csv.gz --format muri", &["cut.csv.gz", "is cut off"]);
}

#[test]
fn an_empty_file_and_a_directory_are_refused_in_every_format() {
    let place = Place::new("formats");
    place.write("nothing", "");
    place.make_folder("folder");
    for format in trainyard_workload::import::FORMATS.iter().map(|format| format.name) {
        let line = format!("trace stats nothing --format {format}");
        refused(&place, &line, &["nothing", "is empty", "expected a trace"]);
        let line = format!("trace stats folder --format {format}");
        refused(&place, &line, &["folder", "a directory", "expected a file"]);
    }
    for format in ["gavel", "elasticflow --kind a100", "muri", "chronus", "synergy"] {
        let line = format!("profile import nothing --format {format}");
        refused(&place, &line, &["nothing", "line 1"]);
        let line = format!("profile import folder --format {format}");
        refused(&place, &line, &["folder", "a directory", "expected a file"]);
    }
}

#[test]
fn files_that_are_not_there_or_no_files_are_refused() {
    let place = Place::new("files");
    place.write("jobs.csv", "id,submit_s,gpus,duration_s\n");
    place.make_folder("folder");
    let parts = ["job.csv", "does not exist", "did you mean `jobs.csv`?"];
    refused(&place, "compare --trace job.csv", &parts);
    refused(&place, "compare --trace folder", &["folder", "a directory", "a file"]);
    refused(&place, "compare --cluster none.toml", &["none.toml", "does not exist"]);
    refused(&place, "compare --profiles none.toml", &["none.toml", "does not exist"]);
}

#[test]
fn faults_in_cluster_files_name_file_line_and_field() {
    let place = Place::new("clusters");
    for (name, content, parts) in [
        (
            "key.toml",
            "[[nodes]]\ncuont = 4\ngpus = 8\nkind = \"a100\"\n",
            &["line 2", "`cuont`", "`count`"][..],
        ),
        ("kind.toml", "[[nodes]]\ngpus = 8\nkind = \"h10o\"\n", &["line 3", "`h10o`", "`h100`"]),
        ("zero.toml", "[[nodes]]\ngpus = 0\nkind = \"a100\"\n", &["line 2", "`gpus`", "`0`"]),
        ("syntax.toml", "[[nodes]\ngpus = 0\n", &["line 1"]),
        ("none.toml", "[links]\nrack_gbps = 10\n", &["`nodes`"]),
    ] {
        place.write(name, content);
        let mut all = vec![name];
        all.extend(parts);
        refused(&place, &format!("cluster check {name}"), &all);
        refused(&place, &format!("compare --cluster {name} --report r.html"), &all);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::new("pipe");
    let mut child = place
        .command(&words("trace generate --jobs 20000"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
