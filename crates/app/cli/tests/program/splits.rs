//! `split` and `planners`.

use super::place::Place;

const GRAPH: &str = r#"{ "name": "four", "measured_on": "v100", "batch": 2,
  "operators": [
    { "name": "a", "forward_seconds": 0.01, "backward_seconds": 0.02, "parameter_bytes": 4000000 },
    { "name": "b", "forward_seconds": 0.01, "backward_seconds": 0.02, "parameter_bytes": 4000000 },
    { "name": "c", "forward_seconds": 0.01, "backward_seconds": 0.02, "parameter_bytes": 4000000 },
    { "name": "d", "forward_seconds": 0.01, "backward_seconds": 0.02, "parameter_bytes": 4000000 }
  ],
  "edges": [ { "from": "a", "to": "b", "bytes": 1000 }, { "from": "b", "to": "c", "bytes": 1000 },
             { "from": "c", "to": "d", "bytes": 1000 } ] }"#;

#[test]
fn a_graph_is_divided_shown_and_drawn() {
    let place = Place::new("split");
    place.write("graph.json", GRAPH);
    let on = ["split", "graph.json", "--on", "2x2 v100", "--batch", "32", "--svg", "plan.svg"];
    let run = place.run(&on);
    assert_eq!(run.code, 0, "{}", run.err);
    for word in ["dapple (ours)", "what binds", "One more node", "note: ptd-p: planner `ptd-p`"] {
        assert!(run.out.contains(word), "{word}: {}", run.out);
    }
    assert!(place.read("plan.svg").contains("<svg"));
    let json = place.run(&["split", "graph.json", "--on", "2x2 v100", "--batch", "32", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&json.out).expect("JSON");
    assert!(value["plans"][0]["seconds"].as_f64().is_some_and(|seconds| seconds > 0.1), "{value}");
}

#[test]
fn what_cannot_be_divided_is_refused_by_name() {
    let place = Place::new("split-bad");
    let edge = r#"{ "from": "c", "to": "d", "bytes": 1000 }"#;
    let back = r#"{ "from": "c", "to": "b", "bytes": 1000 }"#;
    place.write("cycle.json", GRAPH.replace(edge, back));
    place.write("timeless.json", GRAPH.replacen("\"forward_seconds\": 0.01, ", "", 1));
    place.write(
        "large.json",
        GRAPH.replace("4000000 },\n    { \"name\": \"b\"", "4e12 },\n    { \"name\": \"b\""),
    );
    place.write("graph.json", GRAPH);
    let cases: [(&[&str], &str); 6] = [
        (&["split", "cycle.json", "--on", "1x2 v100"], "cycle: "),
        (&["split", "timeless.json", "--on", "1x2 v100"], "operator `a`"),
        (&["split", "large.json", "--on", "1x2 v100", "--batch", "2"], "operator `a` needs"),
        (&["split", "graph.json", "--on", "1x2 v100", "--batch", "3"], "(3) cannot be divided"),
        (&["split", "gpt-7.5", "--on", "1x2 v100"], "did you mean `gpt-7.5b`"),
        (&["split", "gpt-1t", "--on", "1x8 a100", "--batch", "8"], "are lacking"),
    ];
    for (words, expected) in cases {
        let run = place.run(words);
        assert!(run.code == 1 || run.code == 3, "{words:?}: {}", run.code);
        assert!(run.err.contains(expected), "{words:?}: {}", run.err);
    }
}

#[test]
fn planners_are_listed_and_explained() {
    let place = Place::new("planners");
    let list = place.run(&["planners"]).out;
    assert!(["ptd-p", "dapple"].iter().all(|name| list.contains(name)), "{list}");
    assert!(place.run(&["planners", "dapple"]).out.contains("PPoPP 2021"));
    assert!(place.run(&["planners", "dappel"]).err.contains("did you mean `dapple`"));
}
