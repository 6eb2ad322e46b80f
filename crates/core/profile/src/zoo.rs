//! The built-in models: our own measurements on an H200, and published figures for older GPUs.
//!
//! - `h200-*`: `data/h200`, measured by this project on one GPU, parsed at first use.
//! - `gavel-*`, `muri-*`, `elasticflow-*`, `pollux-*`: `data/published.toml`, facts from published tables.
//! - `generic`: one second of work each second, for traces that only tell durations.

use crate::features::{Feature, Features};
use crate::interference::measured_alone;
use crate::{Catalog, ModelProfile, ModelTraffic, Pair, Point, Sharing, SizeCost, profile_file};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use trainyard_types::Span;

/// The whole zoo.
pub fn catalog() -> &'static Catalog {
    static ZOO: OnceLock<Catalog> = OnceLock::new();
    ZOO.get_or_init(|| {
        let mut catalog = Catalog::default();
        for mut model in h200_models().into_iter().chain(published_models()) {
            // The times of a measured training hold the exchange of gradients already.
            if model.traffic.is_none() && model.training.is_none() {
                model.traffic = model.name.split('-').nth(1).and_then(ModelTraffic::of);
            }
            catalog.add(model);
        }
        catalog
    })
}

/// Start times of Muri's simulator by number of GPUs, for one of its eight models; 10 s for any other.
pub fn muri_start(model: &str) -> SizeCost {
    let short = model.trim_end_matches("_v2_x1_0");
    let known = catalog().iter().find(|(_, profile)| {
        profile.name.strip_prefix("muri-").and_then(|name| name.split('-').next()) == Some(short)
    });
    known.map_or(SizeCost::flat(Span::secs(10)), |(_, profile)| profile.start.clone())
}

/// The share of the largest tensor in all parameters, counted from the layers of the published architectures.
///
/// The first nine are the models of Tiresias' trace.
pub fn skew(architecture: &str) -> Option<f64> {
    let table = [
        ("vgg11", 0.773),
        ("vgg16", 0.743),
        ("vgg19", 0.715),
        ("alexnet", 0.618),
        ("resnet50", 0.092),
        ("resnet101", 0.053),
        ("resnet152", 0.039),
        ("inception3", 0.086),
        ("inception4", 0.036),
        ("resnet18", 0.202),
        ("mobilenet_v3_large", 0.234),
        ("vit_b_16", 0.027),
        ("bert_base", 0.214),
        ("gpt2_small", 0.310),
        ("llama_1b", 0.060),
        ("lstm_lm", 0.329),
    ];
    table.iter().find(|(name, _)| *name == architecture).map(|(_, skew)| *skew)
}

fn published_models() -> Vec<ModelProfile> {
    profile_file::read(include_str!("../data/published.toml"))
        .expect("the table of published speeds is checked by a test")
}

/// Configurations of the H200 measurements in the zoo: first those measured in pairs, then usual others.
const H200_ENTRIES: [(&str, &str, &str); 20] = [
    ("resnet18", "128", "tf32"),
    ("resnet50", "64", "bf16"),
    ("resnet50", "32", "tf32"),
    ("mobilenet_v3_large", "64", "tf32"),
    ("vgg16", "64", "bf16"),
    ("vit_b_16", "32", "bf16"),
    ("bert_base", "32", "bf16"),
    ("gpt2_small", "8", "bf16"),
    ("lstm_lm", "80", "tf32"),
    ("ncf", "32768", "tf32"),
    ("dcgan", "256", "tf32"),
    ("a3c_cpu", "32", "tf32"),
    ("resnet18", "1024", "bf16"),
    ("resnet50", "256", "bf16"),
    ("vgg16", "128", "bf16"),
    ("vit_b_16", "128", "bf16"),
    ("bert_base", "128", "bf16"),
    ("gpt2_small", "32", "bf16"),
    ("llama_1b", "4", "bf16"),
    ("llama_1b", "8", "bf16"),
];

/// A row of a shipped table, by column.
pub(crate) type Row = BTreeMap<String, String>;

fn h200_models() -> Vec<ModelProfile> {
    let solo = h200_solo_rows();
    let sliced = h200_pair_rows(Sharing::TimeSliced);
    let mps = h200_pair_rows(Sharing::Mps);
    let moves = rows(include_str!("../data/h200/checkpoint.csv"));
    let mut models = Vec::new();
    for entry in H200_ENTRIES {
        let (architecture, batch, precision) = entry;
        let source = format!(
            "Trainyard's own measurement on one H200: {architecture}, batch {batch}, {precision}; \
             more than one GPU is assumed (GPUs to the power 0.95), not measured"
        );
        let mut model = ModelProfile::named(&h200_name(entry), &source);
        let (rate, memory_mib) = h200_alone(entry, &solo, &sliced);
        model.points.push(Point { kind: "h200".to_owned(), gpus: 1, nodes: 1, rate });
        model.memory_mib = memory_mib;
        model.scaling = 0.95;
        model.skew = skew(architecture);
        (model.save, model.start) = h200_moves(architecture, &moves, &solo);
        model.pairs = h200_pairs(entry, &sliced, &mps);
        let counted = solo.iter().find(|row| text(row, "model") == architecture);
        model.traffic = counted.map(|row| ModelTraffic::gradients(number(row, "params")));
        model.features = h200_features(entry, &solo, &sliced);
        models.push(model);
    }
    models
}

/// The measured pairs of one way of sharing, and the jobs of them alone.
pub(crate) fn h200_pair_rows(sharing: Sharing) -> Vec<Row> {
    rows(match sharing {
        Sharing::TimeSliced => include_str!("../data/h200/pairs_timesliced.csv"),
        Sharing::Mps => include_str!("../data/h200/pairs_mps.csv"),
    })
}

/// What was measured of models that had the GPU for themselves.
pub(crate) fn h200_solo_rows() -> Vec<Row> {
    rows(include_str!("../data/h200/solo.csv"))
}

/// Parameters of an architecture that was measured.
pub(crate) fn parameters(architecture: &str) -> Option<f64> {
    static COUNTS: OnceLock<BTreeMap<String, f64>> = OnceLock::new();
    let counts = COUNTS.get_or_init(|| {
        let rows = h200_solo_rows();
        rows.iter().map(|row| (text(row, "model").to_owned(), number(row, "params"))).collect()
    });
    counts.get(architecture).copied()
}

/// Which kind of operator an architecture is made of: 1 for the kind that most of its work is in by its published
/// description, 0 for the others; nothing for one that is not known.
pub(crate) fn operator_mix(architecture: &str) -> Vec<(Feature, f64)> {
    let most = match architecture {
        "resnet18" | "resnet50" | "mobilenet_v3_large" | "vgg16" | "dcgan" => Feature::Convolution,
        "vit_b_16" | "bert_base" | "gpt2_small" | "llama_1b" => Feature::Matrix,
        "lstm_lm" => Feature::Recurrent,
        "ncf" => Feature::Embedding,
        _ => return Vec::new(),
    };
    let kinds = [Feature::Convolution, Feature::Matrix, Feature::Recurrent, Feature::Embedding];
    kinds.into_iter().map(|kind| (kind, if kind == most { 1.0 } else { 0.0 })).collect()
}

/// What the measurements say of a model that had the GPU for itself: in the run of the pairs, else in the solo one.
fn h200_features(entry: (&str, &str, &str), solo: &[Row], sliced: &[Row]) -> Features {
    let in_pairs = |row: &&Row| text(row, "mode").ends_with("-solo") && side(row, 1) == entry;
    if let Some(row) = sliced.iter().find(in_pairs) {
        return measured_alone(entry, row, number(row, "mib1"));
    }
    let is_it =
        |row: &&Row| (text(row, "model"), text(row, "batch"), text(row, "precision")) == entry;
    solo.iter()
        .find(is_it)
        .map_or_else(Features::default, |row| measured_alone(entry, row, number(row, "peak_mib")))
}

fn h200_name((architecture, batch, precision): (&str, &str, &str)) -> String {
    format!("h200-{}-b{batch}-{precision}", architecture.replace('_', "-"))
}

/// Speed and memory alone: the mean over repetitions, or the solo run of the pair measurements.
fn h200_alone(entry: (&str, &str, &str), solo: &[Row], sliced: &[Row]) -> (f64, u32) {
    let alone: Vec<&Row> = solo
        .iter()
        .filter(|row| (text(row, "model"), text(row, "batch"), text(row, "precision")) == entry)
        .collect();
    if let Some(first) = alone.first() {
        let sum: f64 = alone.iter().map(|row| number(row, "steps_s")).sum();
        return (sum / alone.len() as f64, number(first, "peak_mib") as u32);
    }
    let row = sliced
        .iter()
        .find(|row| text(row, "mode").ends_with("-solo") && side(row, 1) == entry)
        .expect("every entry was measured alone");
    (number(row, "solo1"), number(row, "mib1") as u32)
}

/// Times to save and to start, from the checkpoint measurements.
///
/// Models without one take them from the size of their state (12 bytes for each parameter): 600 MiB/s to save,
/// 1,300 MiB/s to load, 14 s to start and 1.2 ms more for each MiB: what the measured six have on the average.
/// Each doubling of GPUs adds a second, as between the sizes that Muri measured.
fn h200_moves(architecture: &str, moves: &[Row], solo: &[Row]) -> (SizeCost, SizeCost) {
    let (save, start) = match moves.iter().find(|row| text(row, "model") == architecture) {
        Some(row) => {
            let start = number(row, "cold_start_s")
                + number(row, "load_disk_s")
                + number(row, "first_step_after_load_s");
            (number(row, "save_disk_s"), start)
        }
        None => {
            let row = solo.iter().find(|row| text(row, "model") == architecture);
            let state_mib = row.map_or(0.0, |row| number(row, "params")) * 12.0 / 1_048_576.0;
            (state_mib / 600.0, 14.0 + state_mib * (0.0012 + 1.0 / 1300.0))
        }
    };
    let start = SizeCost {
        base: Span::from_secs_f64(start),
        per_doubling: Span::secs(1),
        ..SizeCost::default()
    };
    (SizeCost::flat(Span::from_secs_f64(save)), start)
}

/// Speeds beside every other entry; of a pair with itself both sides are averaged.
fn h200_pairs(entry: (&str, &str, &str), sliced: &[Row], mps: &[Row]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for partner in H200_ENTRIES {
        if let (Some(time_sliced), Some(mps)) =
            (h200_beside(entry, partner, sliced), h200_beside(entry, partner, mps))
        {
            pairs.push(Pair::measured(&h200_name(partner), time_sliced, mps));
        }
    }
    pairs
}

fn h200_beside(
    entry: (&str, &str, &str),
    partner: (&str, &str, &str),
    rows: &[Row],
) -> Option<f64> {
    let mut seen = Vec::new();
    for row in rows.iter().filter(|row| !text(row, "mode").ends_with("-solo")) {
        if side(row, 1) == entry && side(row, 2) == partner {
            seen.push(number(row, "norm1"));
        }
        if side(row, 2) == entry && side(row, 1) == partner {
            seen.push(number(row, "norm2"));
        }
    }
    (!seen.is_empty()).then(|| seen.iter().sum::<f64>() / seen.len() as f64)
}

pub(crate) fn side(row: &Row, which: u8) -> (&str, &str, &str) {
    let columns = match which {
        1 => ["model1", "batch1", "prec1"],
        _ => ["model2", "batch2", "prec2"],
    };
    (text(row, columns[0]), text(row, columns[1]), text(row, columns[2]))
}

fn rows(table: &str) -> Vec<Row> {
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    reader.deserialize().map(|row| row.expect("the shipped tables are checked by a test")).collect()
}

pub(crate) fn text<'a>(row: &'a Row, column: &str) -> &'a str {
    row.get(column).map_or("", String::as_str)
}

pub(crate) fn number(row: &Row, column: &str) -> f64 {
    text(row, column).parse().expect("the shipped tables are checked by a test")
}
