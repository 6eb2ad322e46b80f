//! The generator: the same spec, the same bytes.

use trainyard_profile::Catalog;
use trainyard_types::Span;
use trainyard_workload::trace::write_csv;
use trainyard_workload::{Arrival, DurationLaw, SizeLaw, Spec, cluster, generate};

fn text(spec: &Spec) -> String {
    let cluster = cluster::parse_line("4x8 v100, 2x8 a100").unwrap();
    let workload = generate(spec, &Catalog::builtin(), &cluster).unwrap();
    let mut text = Vec::new();
    write_csv(&workload, &cluster, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn the_same_spec_gives_the_same_bytes_and_another_seed_others() {
    let spec = Spec {
        jobs: 300,
        duration: DurationLaw::Philly,
        size: SizeLaw::Elasticflow,
        models: vec!["gavel-*".to_owned()],
        daily: 0.4,
        deadline_share: 0.5,
        failure_share: 0.2,
        tenants: 5,
        ..Spec::default()
    };
    assert_eq!(text(&spec), text(&spec));
    assert_ne!(text(&spec), text(&Spec { seed: 1, ..spec }));
}

/// These bytes are a promise: a seed in a paper or a report must mean the same jobs in every release.
#[test]
fn the_first_jobs_of_a_seed_never_change() {
    let spec =
        Spec { jobs: 4, seed: 42, arrival: Arrival::PerHour(10.0), tenants: 2, ..Spec::default() };
    let expected = "id,submit_s,gpus,steps,tenant\n\
                    0,0,2,4048.9581895562224,team-2\n\
                    1,120.698921,1,199034.53463027315,team-1\n\
                    2,346.00292,1,6248.426294429269,team-1\n\
                    3,352.299136,1,3827.562789076821,team-1\n";
    assert_eq!(text(&spec), expected);
}

#[test]
fn a_spec_is_read_from_text_and_unknown_keys_are_refused() {
    let text = "jobs = 5\narrival = { per-hour = 3.0 }\nduration = { pareto = { least = \"1m\", shape = 1.5 } }\n\
                size = { weights = [[1, 0.5], [8, 0.5]] }\nduration_max = \"2d\"\n";
    let spec: Spec = toml::from_str(text).unwrap();
    assert_eq!(spec.arrival, Arrival::PerHour(3.0));
    assert_eq!(spec.duration, DurationLaw::Pareto { least: Span::secs(60), shape: 1.5 });
    assert_eq!(spec.size, SizeLaw::Weights(vec![(1, 0.5), (8, 0.5)]));
    assert!(toml::from_str::<Spec>("jbos = 5\n").is_err());
    let written = toml::to_string(&spec).unwrap();
    assert_eq!(toml::from_str::<Spec>(&written).unwrap(), spec);
    assert_eq!(toml::from_str::<Spec>("arrival = \"at-once\"").unwrap().arrival, Arrival::AtOnce);
}
