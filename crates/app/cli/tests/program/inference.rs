//! `serving`: disciplines of inference.

use super::place::Place;
use serde_json::Value;

#[test]
fn disciplines_are_compared_on_the_same_requests() {
    let place = Place::new("serving-sim");
    let words =
        ["serving", "sim", "--gpus", "2", "--generate", "requests=2000 rate=2000 slo=100ms"];
    let run = place.run(&words);
    assert_eq!(run.code, 0, "{}", run.err);
    for word in ["clockwork", "p99.9 ms", "in time", "note: alpaserve was told expected rates"] {
        assert!(run.out.contains(word), "{word}: {}", run.out);
    }
    assert_eq!(place.run(&words).out, run.out, "the same words, the same bytes");
    let json =
        place.run(&[&words[..], &["--json", "-d", "fifo", "-d", "triton:delay=2ms"]].concat());
    let value: Value = serde_json::from_str(&json.out).expect("JSON");
    for run in value["runs"].as_array().expect("runs") {
        let count = |key: &str| run[key].as_u64().expect("a count");
        let over = ["answered", "refused_full", "refused_late", "refused_impossible", "waiting"];
        assert_eq!(over.iter().map(|key| count(key)).sum::<u64>(), 2000, "{run}");
    }
    assert_eq!(value["runs"][1]["discipline"], "triton:delay=2ms");
}

#[test]
fn a_curve_is_a_picture_and_a_page() {
    let place = Place::new("serving-curve");
    for out in ["curve.svg", "curve.html"] {
        let words = ["serving", "curve", "--models", "llama-8b", "--gpus", "2", "--rates", "5,20"];
        let given = ["--generate", "requests=200", "-d", "paged", "-d", "chunked", "--out", out];
        let run = place.run(&[&words[..], &given].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        assert!(place.read(out).matches("<polyline").count() == 2, "{out}");
    }
}

#[test]
fn a_trace_of_azure_is_read_and_written_in_our_form() {
    let place = Place::new("serving-trace");
    place.write(
        "azure.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n",
    );
    let run = place.run(&["serving", "trace", "--trace", "azure.csv", "--out", "ours.csv"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(place.read("ours.csv").contains(",374,44,"), "{}", place.read("ours.csv"));
    let run = place.run(&[
        "serving",
        "sim",
        "--trace",
        "azure.csv",
        "--models",
        "llama-8b",
        "-d",
        "paged",
    ]);
    assert!(run.out.contains("2 requests over 4.3 s"), "{}{}", run.out, run.err);
}

#[test]
fn what_cannot_be_served_is_refused_by_name() {
    let place = Place::new("serving-bad");
    place.write("odd.csv", "a,b\n1,2\n");
    place.write("wrong.csv", "arrived_s,model\n1,resnet50\nsoon,resnet50\n");
    place.write("other.csv", "arrived_s,model\n1,resnet5\n");
    let cases: [(&[&str], &str); 11] = [
        (&["serving", "sim", "-d", "clockwrk"], "did you mean `clockwork`"),
        (&["serving", "sim", "-d", "triton:dealy=1ms"], "did you mean `delay`"),
        (&["serving", "sim", "-d", "paged"], "a discipline of whole inferences"),
        (&["serving", "sim", "--models", "llama-8b", "-d", "split"], "2 at least for `split`"),
        (&["serving", "sim", "--models", "resnet5"], "did you mean `resnet50`"),
        (&["serving", "sim", "--generate", "rat=5"], "did you mean `rate`"),
        (&["serving", "sim", "--gpus", "0"], "a whole number from 1"),
        (&["serving", "sim", "--trace", "odd.csv"], "the heading of a known form"),
        (&["serving", "sim", "--trace", "wrong.csv"], "line 3: `arrived_s` cannot be `soon`"),
        (&["serving", "sim", "--trace", "other.csv"], "did you mean `resnet50`"),
        (&["serving", "curve", "--rates", "5"], "2 to 64 rates"),
    ];
    for (words, expected) in cases {
        let run = place.run(words);
        assert!(run.code == 1 || run.code == 3, "{words:?}: {} {}", run.code, run.err);
        assert!(run.err.contains(expected), "{words:?}: {}", run.err);
    }
}

#[test]
fn disciplines_and_models_are_listed_and_explained() {
    let place = Place::new("serving-list");
    let list = place.run(&["serving", "list"]).out;
    assert!(
        ["olympian", "chunked", "language models"].iter().all(|word| list.contains(word)),
        "{list}"
    );
    assert!(place.run(&["serving", "list", "irina"]).out.contains("APNet 2020"));
    assert!(place.run(&["serving", "list", "irena"]).err.contains("did you mean `irina`"));
    assert!(place.run(&["serving", "models", "resnet50"]).out.contains("0.897"));
}
