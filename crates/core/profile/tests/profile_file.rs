//! Users' profiles: text in, text out.

use proptest::prelude::*;
use trainyard_profile::profile_file::{read, write};
use trainyard_profile::{
    Batches, Catalog, HostTable, ModelProfile, Pair, Point, SizeCost, StageTimes,
};
use trainyard_types::Span;

const HOST: &str = "[[model.host]]\ngpus = 1\ncpus_per_gpu = [1.0, 3.0]\nmemory_mib_per_gpu = [64000]\n\
    parts = [[0.3], [1.0]]\nusual = { cpus = 3.0, memory_mib = 64000 }\n";

fn fault(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

#[test]
fn the_zoo_reads_back_what_it_writes() {
    let zoo: Vec<ModelProfile> =
        Catalog::builtin().iter().map(|(_, model)| model.clone()).collect();
    assert_eq!(read(&write(&zoo)).unwrap(), zoo);
}

#[test]
fn every_fault_names_its_line_and_key() {
    let point = "[[model.point]]\nkind = \"v100\"\ngpus = 1\nrate = 2.0\n";
    for (text, expected) in [
        (
            "[[model]]\nname = \"a\"\nmemroy_mib = 3\n".to_owned(),
            "line 3: `model` cannot be `memroy_mib`",
        ),
        (format!("[[model]]\n{point}"), "line 1: `name` is missing"),
        ("[[model]]\nname = \"a\"\n".to_owned(), "line 1: `point` is missing"),
        (format!("[[model]]\nname = \"a\"\nspread = 3\n{point}"), "line 3: `spread` cannot be `3`"),
        (
            format!("[[model]]\nname = \"a\"\nsave = {{ base = \"5 parsecs\" }}\n{point}"),
            "line 3: `base`",
        ),
        (
            format!("[[model]]\nname = \"a\"\n{}", point.replace("2.0", "-1.0")),
            "line 6: `rate` cannot be `-1.0`: expected steps per second, more than 0",
        ),
        (
            format!("[[model]]\nname = \"a\"\n{}", point.replace("= 1", "= 0")),
            "line 5: `gpus` cannot be `0`: expected a whole number from 1 to 65536",
        ),
        (format!("[[model]]\nname = \"a\"\n{point}{point}"), "line 9: `gpus` cannot be `1`"),
        (
            format!("[[model]]\nname = \"a\"\n{point}{}", HOST.replace("1.0]]", "1.5]]")),
            "line 11: `parts` cannot be `[[0.3], [1.5]]`: expected a part of 1 at the usual",
        ),
        (
            format!("[[model]]\nname = \"a\"\n{point}{}", HOST.replace("[1.0, 3.0]", "[3.0, nan]")),
            "line 9: `cpus_per_gpu` cannot be `[3.0, nan]`: expected a list",
        ),
        (
            format!("[[model]]\nname = \"a\"\n{point}[[model.stage]]\ngpus = 2\ncpu = \"-1s\"\n"),
            "line 9: `cpu` cannot be `-1s`",
        ),
        (
            format!("[[model]]\nname = \"a\"\nbatches = {{ own = 0 }}\n{point}"),
            "line 3: `own` cannot be `0`",
        ),
        (
            format!("[[model]]\nname = \"a\"\n{point}[[model]]\nname = \"a\"\n{point}"),
            "line 8: `name` cannot be `a`",
        ),
    ] {
        let found = fault(&text);
        assert!(found.starts_with(expected), "{found}\n  does not start with\n{expected}");
    }
    assert!(
        fault("[[model]]\nname = \"a\"\nmemroy_mib = 3\n").ends_with("did you mean `memory_mib`?")
    );
}

prop_compose! {
    fn any_model()(
        name in "[a-z\"\\\\ é\n]{1,12}[a-z]",
        points in prop::collection::btree_map((0..3u8, 1..99u32, 1..4u32), 1e-6..1e6f64, 1..6),
        (scaling, spread, skew) in (0.0..1.0f64, 0.1..1.0f64, prop::option::of(0.0..1.0f64)),
        (base, doubling, at) in (0..1u64 << 50, 0..1_000_000u64, prop::bool::ANY),
        pair in prop::option::of((0.0..1.0f64, 0.0..1.0f64)),
        (host, stage) in (prop::option::of((0.01..9.0f64, 1..60_000u32)), prop::option::of(0..1u64 << 40)),
        batches in prop::option::of((1..99u32, 0..1u64 << 40)),
    ) -> ModelProfile {
        let points = points.into_iter().map(|((kind, gpus, nodes), rate)| Point {
            kind: format!("k{kind}"), gpus, nodes: nodes.min(gpus), rate,
        });
        let mut points: Vec<Point> = points.collect();
        points.dedup_by_key(|point| (point.kind.clone(), point.gpus, point.nodes));
        let cost = SizeCost {
            base: Span(base),
            per_doubling: Span(doubling),
            at: if at { vec![(1, Span(base)), (7, Span(doubling))] } else { Vec::new() },
            ..SizeCost::default()
        };
        ModelProfile {
            points, scaling, spread, skew, save: cost,
            pairs: pair.map(|(time_sliced, mps)| Pair {
                kind: if time_sliced < 1.0 { "any" } else { "k1" }.to_owned(), estimated: mps > 1.0,
                ..Pair::measured("x", time_sliced, mps)
            })
                .into_iter().collect(),
            unfit: if at { vec![("k7".to_owned(), 3)] } else { Vec::new() },
            host: host.map(|(part, memory)| HostTable {
                gpus: 2,
                cpus: vec![0.5, 3.0],
                memory_mib: vec![memory, 64_000],
                parts: vec![vec![part, 0.7], vec![part, 1.0]],
                usual: (3.0, 64_000),
            }).into_iter().collect(),
            stages: stage.map(|time| StageTimes { gpus: 4, cpu: Span(time), gpu: Span(7), ..StageTimes::default() })
                .into_iter().collect(),
            batches: batches.map(|(own, epoch_samples)| Batches {
                own, epoch_samples, others: vec![(100, "x\"y".to_owned()), (200, "z".to_owned())],
            }),
            ..ModelProfile::named(&name, "proptest")
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        rng_seed: proptest::test_runner::RngSeed::Fixed(7),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_profile_reads_back_what_it_writes(model in any_model()) {
        prop_assert_eq!(read(&write([&model])), Ok(vec![model]));
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC*", keys in "(\\[\\[model\\]\\]\n|name = \"a\"\n|[a-z]{1,5} = [0-9.-]{1,4}\n){0,8}") {
        let _ = read(&text);
        let _ = read(&keys);
    }
}
