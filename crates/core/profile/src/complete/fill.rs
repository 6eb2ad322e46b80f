//! The pairs of a catalog that were not measured, estimated and marked as such.

use super::choose::mixed;
use super::{Errors, PairTable, Way, estimate};
use crate::{Catalog, ModelProfile, Pair, Sharing};

/// What was filled in on one type, for one group of models that measured pairs join.
#[derive(Clone, Debug, PartialEq)]
pub struct Filled {
    /// The type.
    pub kind: String,
    /// The models.
    pub names: Vec<String>,
    /// Speeds that were measured.
    pub measured: usize,
    /// Speeds that were estimated.
    pub estimated: usize,
    /// How, under time slicing, and how far that was off on hidden pairs.
    pub way: (Way, Errors),
}

/// Adds a pair for each two models of a group whose speed beside each other was not measured.
///
/// Models that no measured pair joins stay as they are: nothing is known about them together. So do pairs that are
/// known not to fit.
pub fn fill(catalog: &mut Catalog) -> Vec<Filled> {
    let mut models: Vec<ModelProfile> = catalog.iter().map(|(_, model)| model.clone()).collect();
    models.iter_mut().for_each(|model| model.pairs.retain(|pair| !pair.estimated));
    let kinds: Vec<String> = PairTable::kinds(&models).into_iter().map(str::to_owned).collect();
    let mut report = Vec::new();
    for kind in &kinds {
        report.extend(fill_kind(&mut models, kind));
    }
    for model in models {
        catalog.add(model);
    }
    report
}

/// The catalog of a user who measured only a part of the pairs and estimates the rest.
///
/// Which pairs that are depends on the seed; both speeds of a pair are measured together. That two jobs do not fit on a
/// GPU is known without a measurement.
pub fn told(catalog: &Catalog, part: f64, seed: u64) -> Catalog {
    let mut told = catalog.clone();
    for (id, model) in catalog.iter() {
        let mut model = model.clone();
        model.pairs.retain(|pair| {
            let other = catalog.find(&pair.partner).unwrap_or(id);
            let (low, high) = (id.min(other).0 as usize, id.max(other).0 as usize);
            let draw = mixed(&(low ^ (seed as usize).rotate_left(40), high));
            let fits = pair.time_sliced > 0.0 || pair.mps > 0.0;
            !fits || (draw >> 11) as f64 / (1u64 << 53) as f64 <= part
        });
        told.add(model);
    }
    fill(&mut told);
    told
}

fn fill_kind(models: &mut [ModelProfile], kind: &str) -> Vec<Filled> {
    let [sliced, mps] = [Sharing::TimeSliced, Sharing::Mps]
        .map(|sharing| PairTable::of(models.iter(), kind, sharing));
    let mut report = Vec::new();
    for places in sliced.groups() {
        let (known, under_mps) = (sliced.only(&places), mps.only(&places));
        let (times, at_once) = (estimate(&known), estimate(&under_mps));
        let (n, mut measured, mut estimated) = (places.len(), 0, 0);
        for (row, place) in places.iter().enumerate() {
            for column in 0..n {
                if known.get((row, column)).is_some() {
                    measured += 1;
                    continue;
                }
                let partner = &known.names()[column];
                let pairs = &mut models[*place].pairs;
                if pairs.iter().any(|pair| pair.partner == *partner && pair.kind == kind) {
                    continue;
                }
                estimated += 1;
                pairs.push(Pair {
                    partner: partner.clone(),
                    kind: kind.to_owned(),
                    time_sliced: times.cells[row * n + column],
                    mps: at_once.cells[row * n + column],
                    estimated: true,
                });
            }
        }
        let error = times.tried.iter().find(|tried| tried.0 == times.way).map(|tried| tried.1);
        report.push(Filled {
            kind: kind.to_owned(),
            names: known.names().to_vec(),
            measured,
            estimated,
            way: (times.way, error.unwrap_or_default()),
        });
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, partners: &[(&str, f64)]) -> ModelProfile {
        let mut model = ModelProfile::steady(name, "test", 1.0);
        model.pairs =
            partners.iter().map(|(partner, kept)| Pair::measured(partner, *kept, *kept)).collect();
        model
    }

    #[test]
    fn holes_are_filled_and_marked_and_what_was_measured_stays() {
        let mut catalog = Catalog::default();
        catalog.add(model("a", &[("a", 0.5), ("b", 0.6)]));
        catalog.add(model("b", &[("a", 0.7), ("b", 0.5)]));
        catalog.add(model("c", &[("a", 0.8)]));
        catalog.add(model("alone", &[]));
        let filled = fill(&mut catalog);
        assert_eq!((filled.len(), filled[0].measured, filled[0].estimated), (1, 5, 4));
        let find = |name: &str| catalog.get(catalog.find(name).unwrap());
        let pairs = &find("a").pairs;
        assert_eq!(pairs[0], Pair::measured("a", 0.5, 0.5));
        let marked: Vec<&str> =
            pairs.iter().filter(|pair| pair.estimated).map(|pair| pair.partner.as_str()).collect();
        assert_eq!(marked, ["c"]);
        assert!(find("alone").pairs.is_empty() && find("generic").pairs.is_empty());
        let none = Pair { kind: "k80".to_owned(), ..Pair::measured("b", 0.0, 0.0) };
        assert!(!pairs.iter().any(|pair| pair.kind == none.kind), "nothing was measured on it");
        // Without measurements there are no estimates, and with all of them the catalog is the truth.
        let pairs = |catalog: &Catalog| -> usize {
            catalog
                .iter()
                .map(|(_, model)| model.pairs.iter().filter(|it| !it.estimated).count())
                .sum()
        };
        assert_eq!((pairs(&told(&catalog, 0.0, 1)), pairs(&told(&catalog, 1.0, 1))), (0, 5));
        // Filling once more changes nothing: estimates are not learnt from.
        let mut again = catalog.clone();
        fill(&mut again);
        assert_eq!(again, catalog);
    }
}
