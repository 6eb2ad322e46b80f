//! Shockwave (NSDI 2023): jobs of Gavel's form whose batch sizes grow while they train.
//!
//! A line states steps at the initial batch, a duration and a mode. Steps are the duration times one of the two
//! tables of speeds that its authors measured, on V100s (`data/shockwave_rates.csv`: `tacc` for the trace of 120 jobs,
//! `wisr` for the others); the table that agrees is found for each job. A job counts epochs of its data set, and its
//! mode fixes the batch of each epoch as in the authors' `get_accordion_bs_pattern` and `get_gns_bs_pattern`:
//!
//! - `static`: the initial batch.
//! - `accordion`: the largest batch outside of critical regimes, which depend on the model, and after the first 30 %.
//! - `gns`: twice the batch from certain epochs on, by model, initial batch and number of GPUs.
//!
//! One thing differs: where the authors' table of `gns` leaves the very last epoch at the initial batch, ours does not,
//! as their simulator does not either.

use super::Sink;
use std::collections::BTreeMap;
use trainyard_profile::{Batches, ModelProfile, Point};
use trainyard_types::{BatchMode, ModelId};

use crate::BatchPhase;

const RATES: &str = include_str!("../../data/shockwave_rates.csv");
const TABLES: [&str; 2] = ["tacc", "wisr"];
const SOURCE: &str = "Shockwave (NSDI 2023), throughputs of its repository, MIT";
/// A table that is further off than this from what a line says is not the one it was made with.
const OFF_MAX: f64 = 0.05;

/// What a line says about its work.
pub(super) struct Stated<'a> {
    pub job_type: &'a str,
    pub gpus: u32,
    pub steps: f64,
    pub duration: f64,
    pub mode: BatchMode,
}

/// A job type, such as `ResNet-18 (batch size 32)`, as model and batch.
fn parts(job_type: &str) -> Option<(&str, u32)> {
    let (model, batch) = job_type.split_once(" (batch size ")?;
    Some((model, batch.trim_end_matches(')').parse().ok()?))
}

/// Speeds by job type and number of GPUs, and models made from them when they are first met.
pub(super) struct Rates {
    rates: BTreeMap<(&'static str, u32), [f64; 2]>,
    families: BTreeMap<(usize, &'static str), BTreeMap<u32, ModelId>>,
}

impl Rates {
    pub fn new() -> Rates {
        let row = |row: &'static str| {
            let mut fields = row.split(',');
            let (job_type, gpus) = (fields.next()?, fields.next()?.parse().ok()?);
            let mut rate = || fields.next()?.parse().ok();
            Some(((job_type, gpus), [rate()?, rate()?]))
        };
        let rates = RATES.lines().skip(1).filter_map(row).collect();
        Rates { rates, families: BTreeMap::new() }
    }

    /// The model of a line and its batches on the way; `None` if neither table agrees with what it says.
    pub fn bind(
        &mut self,
        stated: &Stated<'_>,
        sink: &mut Sink,
    ) -> Option<(ModelId, Box<[BatchPhase]>)> {
        let (model, batch) = parts(stated.job_type)?;
        let ((job_type, _), rates) = self
            .rates
            .iter()
            .find(|((job_type, gpus), _)| *job_type == stated.job_type && *gpus == stated.gpus)?;
        let off = |table: &usize| match rates[*table] > 0.0 {
            true => libm::fabs(stated.steps / rates[*table] / stated.duration - 1.0),
            false => f64::INFINITY,
        };
        let table = (0..TABLES.len()).min_by(|a, b| off(a).total_cmp(&off(b)))?;
        if off(&table) > OFF_MAX {
            return None;
        }
        let family = parts(job_type)?.0;
        if !self.families.contains_key(&(table, family)) {
            let made = self.family(table, family, sink);
            self.families.insert((table, family), made);
        }
        let id = *self.families[&(table, family)].get(&batch)?;
        Some((id, phases(model, batch, stated)))
    }

    /// One model for each batch that was measured, each of which knows the others.
    fn family(&self, table: usize, family: &str, sink: &mut Sink) -> BTreeMap<u32, ModelId> {
        let mut points: BTreeMap<u32, Vec<Point>> = BTreeMap::new();
        for ((job_type, gpus), rates) in &self.rates {
            let (rate, kind) = (rates[table], "v100".to_owned());
            if let Some((model, batch)) = parts(job_type)
                && model == family
                && rate > 0.0
            {
                let point = Point { kind, gpus: *gpus, nodes: 1, rate };
                points.entry(batch).or_default().push(point);
            }
        }
        let short = family.to_lowercase().replace('-', "");
        let name = |batch: u32| format!("shockwave-{}-{short}-b{batch}", TABLES[table]);
        let sizes: Vec<u32> = points.keys().copied().collect();
        let made = points.into_iter().map(|(own, points)| {
            let others = sizes.iter().filter(|batch| **batch != own);
            let batches = Batches {
                own,
                epoch_samples: epoch_samples(family),
                others: others.map(|batch| (*batch, name(*batch))).collect(),
            };
            let source = format!("{SOURCE}: {family}, batch {own}, {} table", TABLES[table]);
            let profile = ModelProfile {
                points,
                batches: Some(batches),
                ..ModelProfile::named(&name(own), &source)
            };
            (own, sink.add_model(profile))
        });
        made.collect()
    }
}

/// Samples of an epoch in the authors' simulator: CIFAR-10, a part of ImageNet, Multi30k, Wikitext-2, ML-20M.
fn epoch_samples(model: &str) -> u64 {
    match model {
        "ResNet-18" => 50_000,
        "ResNet-50" => 100_000,
        "Transformer" => 10_000,
        "LM" => 59_675,
        "Recommendation" => 117_907,
        _ => 0,
    }
}

/// The largest batch of a model that changes its batch.
fn batch_max(model: &str) -> Option<u32> {
    match model {
        "ResNet-18" => Some(256),
        "ResNet-50" => Some(128),
        "LM" => Some(80),
        "Recommendation" => Some(8192),
        _ => None,
    }
}

/// Whether the modes change the batch of a job type at all.
pub(super) fn adapts(job_type: &str) -> bool {
    parts(job_type).is_some_and(|(model, _)| batch_max(model).is_some())
}

/// The batches of a job over its life; none if it keeps its own.
fn phases(model: &str, batch: u32, stated: &Stated<'_>) -> Box<[BatchPhase]> {
    let Some(most) = batch_max(model) else { return Box::default() };
    let steps = epoch_samples(model).div_ceil(u64::from(batch.max(1))) as f64;
    // Steps are bounded by the reader; this bounds the walk over epochs too.
    let epochs = libm::ceil(stated.steps / steps).min(1e6) as u64;
    let at = |epoch: u64| match stated.mode {
        BatchMode::Static => batch,
        BatchMode::Accordion => {
            match is_critical(model, batch, epoch) || epoch as f64 <= 0.3 * epochs as f64 {
                true => batch,
                false => most,
            }
        }
        BatchMode::Gns => {
            let doublings = doublings(model, batch, stated.gpus);
            let passed = doublings.iter().filter(|from| **from <= epoch).count();
            (batch << passed).min(most)
        }
    };
    let mut phases: Vec<BatchPhase> = Vec::new();
    let mut last = batch;
    for epoch in 0..epochs {
        if at(epoch) != last {
            last = at(epoch);
            let from = epoch as f64 * steps / stated.steps;
            if from < 1.0 {
                phases.push(BatchPhase { from, batch: last });
            }
        }
    }
    phases.into()
}

/// Whether Accordion keeps the small batch in an epoch.
fn is_critical(model: &str, batch: u32, epoch: u64) -> bool {
    match (model, batch) {
        ("ResNet-18", _) => {
            epoch < if batch == 256 { 20 } else { 10 }
                || (150..160).contains(&epoch)
                || (250..260).contains(&epoch)
        }
        ("ResNet-50", _) => epoch < 600 && epoch % 30 < 10,
        ("LM", _) => epoch < 10,
        ("Recommendation", _) => {
            let head = match batch {
                512 | 1024 => 30,
                2048 => 40,
                _ => 10,
            };
            epoch < head || (60..70).contains(&epoch) || (80..90).contains(&epoch)
        }
        _ => true,
    }
}

/// The epochs from which on the batch is twice as large, by model, initial batch and number of GPUs.
fn doublings(model: &str, batch: u32, gpus: u32) -> &'static [u64] {
    match (model, batch, gpus) {
        ("ResNet-18", 16, 1) => &[31, 41, 51, 71],
        ("ResNet-18", 32, 1) => &[21, 31, 51],
        ("ResNet-18", 64, 1) => &[11, 31],
        ("ResNet-18", 128, 1) => &[11],
        ("ResNet-18", 16, 2) => &[21, 31, 91, 111],
        ("ResNet-18", 32, 2) => &[11, 21, 41],
        ("ResNet-18", 64, 2) => &[21, 41],
        ("ResNet-18", 128, 2) => &[41],
        ("ResNet-18", 16, 4) => &[11, 21, 81, 91],
        ("ResNet-18", 32, 4) => &[21, 31, 61],
        ("ResNet-18", 64, 4) => &[11, 61],
        ("ResNet-18", 128, 4) => &[11],
        ("ResNet-50", 64, 1) => &[101],
        ("ResNet-50", 32, 2) => &[101, 111],
        ("ResNet-50", 64, 2) => &[81],
        ("ResNet-50", 32, 4) => &[131, 221],
        ("ResNet-50", 64, 4) => &[191],
        ("LM", 5, 1) => &[31, 41, 61, 71],
        ("LM", 10, 1) => &[11, 21, 41],
        ("LM", 20, 1) => &[11, 41],
        ("LM", 40, 1) => &[11],
        ("LM", 5, 2) => &[31, 51, 61, 71],
        ("LM", 10, 2) => &[11, 31, 41],
        ("LM", 20, 2) => &[31, 41],
        ("LM", 40, 2) => &[11],
        ("LM", 5, 4) => &[11, 31, 71, 91],
        ("LM", 10, 4) => &[11, 31, 61],
        ("LM", 20, 4) => &[11, 61],
        ("LM", 40, 4) => &[61],
        ("Recommendation", 512, 1) => &[21, 41, 71, 91],
        ("Recommendation", 1024, 1) => &[21, 51, 91],
        ("Recommendation", 2048, 1) => &[21, 41],
        ("Recommendation", 4096, 1) => &[41],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(job_type: &str, gpus: u32, epochs: u64, mode: BatchMode) -> String {
        let (model, batch) = parts(job_type).unwrap();
        let steps = epoch_samples(model).div_ceil(u64::from(batch)) * epochs;
        let stated = Stated { job_type, gpus, steps: steps as f64, duration: 1.0, mode };
        let phases = phases(model, batch, &stated);
        let shown = phases
            .iter()
            .map(|phase| format!("{}:{}", (phase.from * epochs as f64).round(), phase.batch));
        shown.collect::<Vec<String>>().join(" ")
    }

    #[test]
    fn modes_fix_the_batch_of_each_epoch() {
        use BatchMode::{Accordion, Gns, Static};
        for (job_type, gpus, epochs, mode, expected) in [
            ("LM (batch size 10)", 1, 100, Static, ""),
            ("LM (batch size 10)", 1, 100, Gns, "11:20 21:40 41:80"),
            ("LM (batch size 10)", 1, 11, Gns, ""),
            ("LM (batch size 40)", 4, 100, Gns, "61:80"),
            ("LM (batch size 80)", 1, 100, Gns, ""),
            ("LM (batch size 10)", 1, 100, Accordion, "31:80"),
            ("LM (batch size 10)", 1, 20, Accordion, "10:80"),
            ("ResNet-18 (batch size 16)", 2, 200, Gns, "21:32 31:64 91:128 111:256"),
            (
                "ResNet-18 (batch size 32)",
                1,
                300,
                Accordion,
                "91:256 150:32 160:256 250:32 260:256",
            ),
            ("ResNet-50 (batch size 64)", 1, 60, Accordion, "19:128 30:64 40:128"),
            (
                "Recommendation (batch size 2048)",
                1,
                100,
                Accordion,
                "40:8192 60:2048 70:8192 80:2048 90:8192",
            ),
            ("Transformer (batch size 16)", 1, 100, Accordion, ""),
            ("Transformer (batch size 16)", 1, 100, Gns, ""),
        ] {
            assert_eq!(text(job_type, gpus, epochs, mode), expected, "{job_type} {mode:?}");
        }
    }
}
