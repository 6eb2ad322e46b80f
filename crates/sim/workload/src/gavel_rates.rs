//! The speeds that Gavel (OSDI 2020) measured: steps per second of 26 models on 1, 2, 4 and 8 K80s, P100s and V100s.
//!
//! `data/gavel_rates.csv` holds them with five digits; zero stands for a model that does not fit into the memory.

use std::sync::OnceLock;
use trainyard_profile::{Catalog, ModelProfile, Point};

const RATES: &str = include_str!("../data/gavel_rates.csv");
const KINDS: [&str; 3] = ["k80", "p100", "v100"];
const SOURCE: &str = "Gavel (OSDI 2020), simulation_throughputs.json of its repository, MIT";

/// A model of the table.
pub(crate) struct Rated {
    /// As Gavel writes it: `ResNet-50 (batch size 64)`.
    pub job_type: String,
    /// Its points, gangs packed on one node, and where it does not fit.
    pub profile: ModelProfile,
}

impl Rated {
    /// Steps per second on so many V100s.
    pub fn on_v100(&self, gpus: u32) -> Option<f64> {
        let points = self.profile.points.iter().filter(|point| point.kind == "v100");
        points.filter(|point| point.gpus <= gpus).max_by_key(|point| point.gpus).map(|p| p.rate)
    }
}

/// All models of the table, in its order.
pub(crate) fn all() -> &'static [Rated] {
    static ALL: OnceLock<Vec<Rated>> = OnceLock::new();
    ALL.get_or_init(read)
}

/// The model that Gavel writes so.
pub(crate) fn of_job_type(job_type: &str) -> Option<&'static Rated> {
    all().iter().find(|rated| rated.job_type == job_type)
}

/// Adds what a catalog does not hold; models of that name that it holds stay as they are.
pub(crate) fn complete(catalog: &mut Catalog) {
    for rated in all() {
        if catalog.find(&rated.profile.name).is_none() {
            catalog.add(rated.profile.clone());
        }
    }
}

fn read() -> Vec<Rated> {
    let mut all: Vec<Rated> = Vec::new();
    for row in RATES.lines().skip(1) {
        let mut fields = row.split(',');
        let job_type = fields.next().unwrap_or_default();
        let gpus = fields.next().and_then(|text| text.parse().ok()).expect("a constant table");
        if all.last().is_none_or(|last| last.job_type != job_type) {
            let profile =
                ModelProfile::named(&model_name(job_type), &format!("{SOURCE}: {job_type}"));
            all.push(Rated { job_type: job_type.to_owned(), profile });
        }
        let rated = all.last_mut().expect("just pushed");
        for (kind, rate) in KINDS.into_iter().zip(fields) {
            let rate: f64 = rate.parse().expect("a constant table");
            if rate > 0.0 {
                let point = Point { kind: kind.to_owned(), gpus, nodes: 1, rate };
                rated.profile.points.push(point);
            } else {
                rated.profile.unfit.push((kind.to_owned(), gpus));
            }
        }
    }
    all
}

/// `ResNet-50 (batch size 64)` becomes `gavel-resnet50-b64`, as in the catalog.
fn model_name(job_type: &str) -> String {
    let (model, batch) = match job_type.split_once(" (batch size ") {
        Some((model, batch)) => (model, format!("-b{}", batch.trim_end_matches(')'))),
        None => (job_type, String::new()),
    };
    format!("gavel-{}{batch}", model.to_lowercase().replace(['-', ' '], ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_26_models_and_says_where_they_do_not_fit() {
        assert_eq!(all().len(), 26);
        let rated = of_job_type("ResNet-50 (batch size 128)").unwrap();
        assert_eq!(rated.profile.name, "gavel-resnet50-b128");
        assert_eq!(rated.profile.unfit, [2, 4, 8].map(|gpus| ("k80".to_owned(), gpus)));
        assert!(rated.on_v100(8) > rated.on_v100(1));
    }
}
