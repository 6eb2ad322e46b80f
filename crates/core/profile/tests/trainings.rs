//! Measured trainings: tables in, profiles and paces out.

use proptest::prelude::*;
use std::path::Path;
use trainyard_diagnostic::InputError;
use trainyard_profile::import::pollux::{self, Authors, Role};
use trainyard_profile::training::{MeasuredAt, Site, StepTimes, TimePoint};
use trainyard_profile::{Catalog, ModelProfile, Speeds, Training, profile_file};
use trainyard_testkit::places::shared;
use trainyard_testkit::say;
use trainyard_types::{Cluster, Config, GpuType, Work};

const PLACEMENTS: &str = "placement,local_bsz,step_time,sync_time\n\
                          1,8,0.10,0.01\n1,32,0.40,0.01\n2,8,0.12,0.03\n2,32,0.42,0.03\n11,16,0.30,0.10\n";
const SCALABILITY: &str = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n4,8,8,0.5,0.4\n";
const SMALL: &str =
    "progress,iteration,metric,grad_sqr,grad_var\n100,100,0.5,1,1\n300,300,0.7,1,3\n";
const LARGE: &str =
    "progress,iteration,metric,grad_sqr,grad_var\n101,75,0.5,1,1\n303,205,0.7,1,3\n";
const QUERIES: &str =
    "app,placement,atomic_bsz,step_time,sync_time,source\ntiny,11,16,0.25,0.1,x\n";

fn tiny(recorded: bool) -> Result<ModelProfile, InputError> {
    let mut points = pollux::placements(PLACEMENTS, "t4")?;
    points.extend(pollux::scalability(SCALABILITY, "t4")?);
    if recorded {
        points.extend(pollux::queries(QUERIES)?.remove("tiny").unwrap_or_default());
    }
    let epochs = vec![(16, pollux::validation(SMALL)?), (32, pollux::validation(LARGE)?)];
    pollux::profile(Authors::Pollux, "tiny", points, epochs)
}

#[test]
fn a_training_reads_back_from_the_file_it_is_written_to() {
    for recorded in [false, true] {
        let model = tiny(recorded).unwrap();
        assert_eq!(model.name, "pollux-tiny");
        let text = profile_file::write([&model]);
        assert_eq!(profile_file::read(&text), Ok(vec![model]), "{text}");
    }
}

#[test]
fn a_fault_inside_a_table_of_a_file_has_the_line_of_the_file() {
    let text = profile_file::write([&tiny(true).unwrap()]);
    for (from, to, expected) in [
        ("t4,2,8,", "t4,2,x,", "`local_batch` cannot be `x`"),
        ("t4,1+1,16,0.3,", "t4,1+0,16,0.3,", "`placement` cannot be `1+0`"),
        ("t4,8/4,8,0.5,", "t4,8/4,8,-0.5,", "`step_s` cannot be `-0.5`"),
        ("16,300.0,", "16,nan,", "`progress` cannot be `nan`"),
    ] {
        let line = 1 + text[..text.find(from).unwrap()].matches('\n').count();
        let found = profile_file::read(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(found.starts_with(&format!("line {line}: {expected}")), "line {line}: {found}");
    }
    let found = profile_file::read(&text.replace("kind = \"t4\", least", "kind = \"t5\", least"));
    assert!(found.unwrap_err().to_string().contains("`kind` cannot be `t5`"));
    let more = "[[model.point]]\nkind = \"v100\"\ngpus = 1\nrate = 1.0\n[model.training]";
    let found = profile_file::read(&text.replace("[model.training]", more));
    assert!(found.unwrap_err().to_string().contains("and on no other"));
}

#[test]
fn faults_of_tables_name_line_column_and_value() {
    let fault = |result: Result<(), InputError>| result.unwrap_err().to_string();
    let heading = "placement,local_bsz,step_time,sync_time\n";
    for (row, expected) in [
        ("40,8,1,0\n", "line 2: `placement` cannot be `40`"),
        ("4a,8,1,0\n", "line 2: `placement` cannot be `4a`"),
        ("4,0,1,0\n", "line 2: `local_bsz` cannot be `0`"),
        ("4,8,0,0\n", "line 2: `step_time` cannot be `0`"),
        ("4,8,1,-1\n", "line 2: `sync_time` cannot be `-1`"),
        ("4,8,inf,0\n", "line 2: `step_time` cannot be `inf`"),
        ("4,8,1\n", "line 2: `row` cannot be `3 columns`"),
    ] {
        let found = fault(pollux::placements(&format!("{heading}{row}"), "t4").map(|_| ()));
        assert!(found.starts_with(expected), "{found}\n  does not start with\n{expected}");
    }
    let found =
        fault(pollux::placements("placment,local_bsz,step_time,sync_time\n", "t4").map(|_| ()));
    assert!(found.contains("did you mean `placment`?"), "{found}");
    let rows = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n5,4,8,1,0\n";
    let found = fault(pollux::scalability(rows, "t4").map(|_| ()));
    assert!(found.starts_with("line 2: `num_nodes` cannot be `5`"), "{found}");
    let points = pollux::placements(PLACEMENTS, "t4").unwrap();
    let found = fault(pollux::profile(Authors::Pollux, "a", points.clone(), vec![]).map(|_| ()));
    assert!(found.contains("`validation` is missing"), "{found}");
    let still =
        pollux::validation("progress,iteration,metric,grad_sqr,grad_var\n1,1,1,1,1\n1,2,1,1,1\n");
    let still = vec![(16, still.unwrap())];
    let found = fault(pollux::profile(Authors::Pollux, "a", points, still).map(|_| ()));
    assert!(found.contains("progress that grows"), "{found}");
}

#[test]
fn the_name_of_a_file_tells_what_it_holds() {
    let role = |authors, name| Role::of(authors, name);
    let t4 = || "t4".to_owned();
    assert_eq!(role(Authors::Pollux, "placements.csv"), Some(Role::Placements(t4())));
    assert_eq!(role(Authors::Pollux, "placements-aws.csv"), None);
    assert_eq!(role(Authors::Sia, "scalability-aws.csv"), Some(Role::Scalability(t4())));
    let a100 = Role::Placements("a100".to_owned());
    assert_eq!(role(Authors::Sia, "placements-dgx-ext.csv"), Some(a100));
    // A part of the tables above, and a copy of the T4's.
    assert_eq!(role(Authors::Sia, "placements-dgx.csv"), None);
    assert_eq!(role(Authors::Sia, "placements.csv"), None);
    assert_eq!(role(Authors::Sia, "validation-64.csv"), Some(Role::Validation(64)));
    assert_eq!(role(Authors::Pollux, "validation-x.csv"), None);
    let found = pollux::read(Authors::Pollux, "a", [("placements.csv", "x\n")], vec![]);
    assert_eq!(found.unwrap_err().file, "placements.csv");
}

#[test]
fn a_pace_follows_batch_epoch_and_placement() {
    let mut catalog = Catalog::default();
    let id = catalog.add(tiny(false).unwrap());
    let speeds = Speeds::new(&catalog, &Cluster::uniform(2, 4, "t4"));
    let mut config = Config::packed(GpuType(0), 2, 4);
    config.batch = Some(16);
    let pace = |config: &Config, done: f64| speeds.pace(id, config, Work(done)).unwrap();
    let (first, second) = (pace(&config, 0.0), pace(&config, 100.0));
    assert_eq!((first.rate.0, first.until), (1.0 / 0.12, Some(Work(100.0))));
    assert_eq!((second.rate.0, second.until), (1.0 / 0.12, None), "the first batch gains nothing");
    // 32 on two GPUs are 16 on each; the gain is 2/1.5 in the first epoch and 4/2.5 in the second.
    config.batch = Some(32);
    assert!((pace(&config, 0.0).rate.0 - (2.0 / 1.5) / 0.22).abs() < 1e-12);
    assert!((pace(&config, 150.0).rate.0 - (4.0 / 2.5) / 0.22).abs() < 1e-12);
    let whole = 300.0 / (100.0 / ((2.0 / 1.5) / 0.22) + 200.0 / ((4.0 / 2.5) / 0.22));
    assert!((speeds.rate(id, &config).unwrap().0 - whole).abs() < 1e-9, "the mean over all epochs");
    let apart = Config { shape: [1u16, 1].as_slice().into(), nodes: 2, ..config.clone() };
    assert!((pace(&apart, 0.0).rate.0 - (2.0 / 1.5) / 0.30).abs() < 1e-12);
    assert_eq!(speeds.pace(id, &Config::default(), Work(0.0)), None);
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a readable file")
}

fn name(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

fn application(authors: Authors, folder: &Path) -> ModelProfile {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let tables: Vec<(String, String)> = paths.map(|path| (name(&path), text(&path))).collect();
    let texts = tables.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    pollux::read(authors, &name(folder), texts, Vec::new()).expect("a training")
}

/// Errors of the time of an iteration, as parts of the recorded one, ascending.
fn errors(training: &Training, recorded: &[TimePoint]) -> Vec<f64> {
    let each = recorded.iter().map(|point| {
        let MeasuredAt::Ring(shape) = &point.place else { panic!("a query has a placement") };
        let found = training.times.at(0, shape, point.local).expect("a time");
        (found.step / point.time.step - 1.0).abs()
    });
    each.collect()
}

#[test]
fn the_interpolation_is_near_to_what_the_authors_simulator_used() {
    let Some(queries) = shared("golden/pollux/throughput_queries.csv") else { return };
    let tables = shared("data/pollux/traces").expect("the tables beside the goldens");
    let mut all = Vec::new();
    for (app, recorded) in pollux::queries(&text(&queries)).expect("queries") {
        let model = application(Authors::Pollux, &tables.join(&app));
        all.extend(errors(model.training.as_ref().expect("a training"), &recorded));
    }
    all.sort_by(f64::total_cmp);
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let p95 = all[(all.len() * 95).div_ceil(100) - 1];
    let max = all[all.len() - 1];
    say!("{} times: mean {mean:.5}, p95 {p95:.5}, max {max:.5}", all.len());
    assert_eq!(all.len(), 922);
    assert!(mean < 0.005 && p95 < 0.02 && max < 0.04, "{mean} {p95} {max}");
}

#[test]
fn every_application_of_sia_is_read_on_every_type_it_was_measured_on() {
    let Some(tables) = shared("data/sia/traces") else { return };
    for app in ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"] {
        let model = application(Authors::Sia, &tables.join(app));
        let training = model.training.expect("a training");
        assert_eq!(training.times.kinds(), ["a100", "rtx2080ti", "rtx6000", "t4", "v100"], "{app}");
        for kind in 0..5 {
            let site = Site { kind, factor: 1.0, shape: &[4] };
            let (batch, rate) = training.best_batch(site).expect("a rate");
            assert!(rate.0 > 0.0 && training.epochs.batches().contains(&batch), "{app}");
        }
    }
    assert!(pollux::left_out(Authors::Sia, "gpt_pmp").is_some());
}

fn place() -> impl Strategy<Value = MeasuredAt> {
    let ring = prop::collection::vec(1u16..5, 1..5).prop_map(MeasuredAt::Ring);
    let size = (1u16..17, 1u16..5)
        .prop_map(|(nodes, each)| MeasuredAt::Size { nodes, gpus: nodes * each });
    prop_oneof![ring, size]
}

proptest! {
    #[test]
    fn any_table_answers_any_placement_with_a_time(
        points in prop::collection::vec((place(), 1u32..100, 1e-3..10.0f64, 0.0..1.0f64), 1..20),
        shape in prop::collection::vec(1u16..9, 1..20),
        local in 1u32..1000,
    ) {
        let point = |(place, local, step, part): (MeasuredAt, u32, f64, f64)| TimePoint {
            kind: "t4".to_owned(),
            place,
            local,
            time: trainyard_profile::training::StepTime { step, sync: step * part },
            recorded: false,
        };
        let times = StepTimes::new(points.into_iter().map(point).collect());
        let time = times.at(0, &shape, local).unwrap();
        prop_assert!(time.step.is_finite() && time.step > 0.0, "{time:?}");
        prop_assert!((0.0..=time.step).contains(&time.sync), "{time:?}");
        let mut turned = shape.clone();
        turned.reverse();
        prop_assert_eq!(times.at(0, &turned, local), Some(time), "the order of nodes does not matter");
    }

    #[test]
    fn damaged_tables_are_refused_or_read(
        at in 0..200usize,
        put in "[-0-9a-z.,\n]{0,3}",
        cut in 0..4usize,
    ) {
        for table in [PLACEMENTS, SCALABILITY, SMALL, QUERIES] {
            let at = at.min(table.len());
            let end = (at + cut).min(table.len());
            let text = format!("{}{put}{}", &table[..at], &table[end..]);
            let epochs = pollux::validation(&text);
            let points = pollux::placements(&text, "t4").or_else(|_| pollux::scalability(&text, "t4"));
            let epochs = epochs.unwrap_or_else(|_| pollux::validation(SMALL).unwrap());
            let points = points.unwrap_or_else(|_| pollux::placements(PLACEMENTS, "t4").unwrap());
            let _ = pollux::queries(&text);
            if let Ok(model) = pollux::profile(Authors::Pollux, "a", points, vec![(16, epochs)]) {
                prop_assert_eq!(profile_file::read(&profile_file::write([&model])), Ok(vec![model]));
            }
        }
    }
}
