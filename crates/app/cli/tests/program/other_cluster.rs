//! `whatif --cluster`: the same jobs on another cluster, part by part.

use crate::place::Place;
use serde_json::Value;

/// Jobs of sixteen GPUs, and of twenty-four that no rack of two nodes holds.
fn jobs() -> String {
    let mut text = "id,submit_s,gpus,steps,model,kinds\n".to_owned();
    for job in 0..6 {
        let gpus = if job % 2 == 0 { 16 } else { 24 };
        text.push_str(&format!("j{job},{},{gpus},20000,gavel-resnet50-b64,v100\n", 60 * job));
    }
    text
}

const NOW: &str = "4x8 v100 over leaf-spine 2 racks 10g 4:1";

fn rows(answer: &Value) -> Vec<(String, f64, f64)> {
    let row = |row: &Value| {
        let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row}"));
        let change = row["change"].as_str().expect("text").to_owned();
        (change, number("completion_gain"), number("makespan_gain"))
    };
    answer["policies"][0]["rows"].as_array().expect("rows").iter().map(row).collect()
}

#[test]
fn the_gain_of_each_changed_part_is_told_and_that_of_all() {
    let place = Place::new("whatif-cluster");
    place.write("jobs.csv", jobs());
    let next = "6x8 v100 over leaf-spine 3 racks 40g 2:1";
    let line = ["whatif", "--policy", "fifo", "--trace", "jobs.csv", "--estimate-error", "0"];
    let with = |more: &[&str]| {
        let run = place.run(&[&line[..], more].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        run.out
    };
    let text = with(&["--present", NOW, "--cluster", next, "--json"]);
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    let found = rows(&answer);
    let names: Vec<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "the present cluster",
            "2 nodes with 16 GPUs added; 1 switch added, 1 link added",
            "links of nodes to level 1: 10 to 40 Gbit/s",
            "links of level 1 to level 2: 5 to 40 Gbit/s",
            "all of these"
        ]
    );
    let gains: Vec<f64> = found.iter().map(|(_, jobs, _)| *jobs).collect();
    assert_eq!(gains[0], 1.0);
    // Gangs across racks wait for uplinks; faster links of nodes alone are of use to the others only.
    assert!(gains[3] > gains[2] && gains[2] > 1.0, "{found:?}");
    assert!(gains[1] > 1.0 && gains[1..4].iter().all(|gain| *gain < gains[4]), "{found:?}");
    let table = with(&["--present", NOW, "--cluster", next]);
    assert!(table.contains("6 jobs (jobs), seed 1") && table.contains("all of these"), "{table}");
    assert_eq!(table, with(&["--present", NOW, "--cluster", next]), "the same bytes");
    // One part: no row for it alone.
    let text = with(&["--present", NOW, "--cluster", &NOW.replace("4:1", "1:1"), "--json"]);
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((rows(&answer).len(), answer["parts"].as_array().map(Vec::len)), (2, Some(1)));
}

#[test]
fn clusters_that_cannot_be_compared_are_refused() {
    let place = Place::new("whatif-refused");
    place.write("jobs.csv", jobs());
    let nodes = "[[nodes]]\ncount = 4\ngpus = 8\nkind = \"v100\"\n";
    let switch = |name: &str, nodes: &str| {
        format!("[[switch]]\nname = \"{name}\"\nnodes = [{nodes}]\nnic_gbps = 10\n")
    };
    let leaves =
        format!("{nodes}{}{}", switch("a", "\"n0\", \"n1\""), switch("b", "\"n2\", \"n3\""));
    let link = "[[link]]\nname = \"up\"\nbetween = [\"a\", \"b\"]\ngbps = 40\n";
    place.write("apart.toml", &leaves);
    place.write("twice.toml", format!("{leaves}{link}{link}"));
    place.write("nothing.toml", format!("{leaves}{}", link.replace("40", "0")));
    place.write("alone.toml", format!("{nodes}{}", switch("a", "\"n0\", \"n1\", \"n2\"")));
    let window = "[[window]]\nnodes = [\"n0\"]\nfrom = \"1h\"\nfor = \"1h\"\n";
    place.write("window.toml", format!("{nodes}{window}"));
    for (cluster, parts) in [
        (NOW, &["--cluster", "differs from --present"][..]),
        ("2x8 v100", &["2 nodes with 16 GPUs removed", "`gpus`", "`24`", "at most 16"]),
        ("apart.toml", &["apart.toml", "uplink of rack", "2 nodes"]),
        ("twice.toml", &["twice.toml", "line", "`up`", "no other link has"]),
        ("nothing.toml", &["nothing.toml", "gbps", "`0`"]),
        ("alone.toml", &["alone.toml", "`n3`", "join all nodes"]),
        ("window.toml", &["--cluster", "without cells and windows"]),
        ("leaf-spine", &["leaf-spine"]),
    ] {
        let line = ["whatif", "--policy", "fifo", "--trace", "jobs.csv", "--present", NOW];
        let run = place.run(&[&line[..], &["--cluster", cluster]].concat());
        assert_eq!(run.code, 3, "{cluster}: {}{}", run.out, run.err);
        for part in parts {
            assert!(run.err.contains(part), "{cluster}: `{part}` is not in: {}", run.err);
        }
    }
    // It is about jobs that are named, not about the daemon's.
    let run = place.run(&["whatif", "--policy", "fifo", "--cluster", NOW]);
    assert!(run.code != 0 && run.err.contains("--trace"), "{}", run.err);
    let run = place.run(&["whatif", "--policy", "fifo", "--phases"]);
    assert!(run.code != 0 && run.err.contains("--cluster"), "{}", run.err);
}
