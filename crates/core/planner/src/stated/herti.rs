//! Inference before a deadline on the unequal devices of one chip.

use super::{Answer, above_zero, distinct, read, seconds};
use crate::PlanError;
use crate::herti::{Chip, Learning, Mapping, Way, exact, greedy, learn};
use serde::Deserialize;
use serde_json::{Value, json};

/// An input.
pub const EXAMPLE: &str = r#"{
  "deadline_seconds": 0.06,
  "latency_seconds": 0.0005,
  "bytes_per_second": 2000000000,
  "joules_per_byte": 1e-9,
  "segments": [
    { "name": "stem", "out_bytes": 800000 },
    { "name": "body", "out_bytes": 400000 },
    { "name": "head", "out_bytes": 4000 }
  ],
  "ways": [
    { "name": "big@1800", "device": "big", "seconds": [0.02, 0.06, 0.01], "joules": [0.08, 0.24, 0.04] },
    { "name": "little@1200", "device": "little", "seconds": [0.05, 0.15, 0.02], "joules": [0.03, 0.09, 0.012] },
    { "name": "gpu@600", "device": "gpu", "seconds": [0.008, 0.02, 0.012], "joules": [0.06, 0.15, 0.08] }
  ]
}
"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stated {
    deadline_seconds: f64,
    #[serde(default)]
    latency_seconds: f64,
    bytes_per_second: f64,
    #[serde(default)]
    joules_per_byte: f64,
    segments: Vec<StatedSegment>,
    ways: Vec<StatedWay>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatedSegment {
    name: String,
    #[serde(default)]
    out_bytes: f64,
}

/// `null` stands for a segment that the device cannot run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatedWay {
    name: String,
    device: String,
    seconds: Vec<Option<f64>>,
    joules: Vec<f64>,
}

/// Parts into which a segment may be split over two devices.
const PARTS: u32 = 4;

/// Exact, learnt, the best single way for each segment, and segments shared by two devices.
pub fn solve(text: &str) -> Result<Answer, PlanError> {
    let stated: Stated = read(text)?;
    let deadline = above_zero("chip", "deadline_seconds", stated.deadline_seconds)?;
    distinct(stated.ways.iter().map(|way| way.name.as_str()))?;
    let mut devices: Vec<&str> = Vec::new();
    let mut ways = Vec::with_capacity(stated.ways.len());
    for way in &stated.ways {
        let known = devices.iter().position(|name| *name == way.device);
        let device = known.unwrap_or_else(|| {
            devices.push(&way.device);
            devices.len() - 1
        });
        let seconds = way.seconds.iter().map(|time| time.unwrap_or(f64::INFINITY)).collect();
        ways.push(Way { name: way.name.clone(), device, seconds, joules: way.joules.clone() });
    }
    let chip = Chip {
        segments: stated.segments.iter().map(|one| one.name.clone()).collect(),
        out_bytes: stated.segments.iter().map(|one| one.out_bytes).collect(),
        ways,
        latency: stated.latency_seconds,
        bytes_per_second: above_zero("chip", "bytes_per_second", stated.bytes_per_second)?,
        joules_per_byte: stated.joules_per_byte,
    };
    chip.check()?;
    let split = chip.with_splits(PARTS);
    let found: [(&str, &Chip, Option<Mapping>); 4] = [
        ("exact", &chip, exact(&chip, deadline)?),
        (
            "learnt",
            &chip,
            learn(&chip, deadline, &Learning::default())?.map(|(mapping, _)| mapping),
        ),
        ("one device and rate", &chip, greedy(&chip, deadline)),
        ("exact, segments shared", &split, exact(&split, deadline)?),
    ];
    let kept =
        found.iter().filter_map(|(name, chip, mapping)| Some((*name, *chip, mapping.as_ref()?)));
    let kept: Vec<(&str, &Chip, &Mapping)> = kept.collect();
    let names = |chip: &Chip, mapping: &Mapping| -> Vec<String> {
        mapping.ways.iter().map(|way| chip.ways[*way].name.clone()).collect()
    };
    let Some(best) = kept.iter().min_by(|a, b| a.2.joules.total_cmp(&b.2.joules)) else {
        let reason = format!("no mapping ends within {deadline} s");
        return Err(PlanError::NotFor { planner: "herti", reason });
    };
    Ok(Answer {
        summary: format!("{:.4} J within {} ({})", best.2.joules, seconds(deadline), best.0),
        heading: vec!["how", "joules", "seconds", "segments"],
        rows: (kept.iter())
            .map(|(name, chip, mapping)| {
                let (joules, time) = (format!("{:.4} J", mapping.joules), seconds(mapping.seconds));
                vec![(*name).to_owned(), joules, time, names(chip, mapping).join(" ")]
            })
            .collect(),
        data: json!({
            "mappings": kept.iter().map(|(name, chip, mapping)| json!({
                "how": name, "joules": mapping.joules, "seconds": mapping.seconds,
                "segments": names(chip, mapping),
            })).collect::<Vec<Value>>(),
        }),
    })
}
