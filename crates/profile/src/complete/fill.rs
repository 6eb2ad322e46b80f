//! The pairs of a catalog that were not measured, estimated and marked as such.

use super::{Errors, PairTable, Way, estimate};
use crate::{Catalog, ModelProfile, Pair, Sharing};

/// What was filled in for one group of models that measured pairs join.
#[derive(Clone, Debug, PartialEq)]
pub struct Filled {
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
/// Models that no measured pair joins stay as they are: nothing is known about them together.
pub fn fill(catalog: &mut Catalog) -> Vec<Filled> {
    let models: Vec<ModelProfile> = catalog.iter().map(|(_, model)| model.clone()).collect();
    let [sliced, mps] =
        [Sharing::TimeSliced, Sharing::Mps].map(|sharing| PairTable::of(models.iter(), sharing));
    let mut report = Vec::new();
    for places in sliced.groups() {
        let (known, under_mps) = (sliced.only(&places), mps.only(&places));
        let (times, at_once) = (estimate(&known), estimate(&under_mps));
        let (n, mut measured, mut estimated) = (places.len(), 0, 0);
        for (row, place) in places.iter().enumerate() {
            let mut model = models[*place].clone();
            model.pairs.retain(|pair| !pair.estimated);
            for (column, partner) in places.iter().enumerate() {
                if known.get((row, column)).is_some() {
                    measured += 1;
                    continue;
                }
                let partner = models[*partner].name.clone();
                if model.pairs.iter().any(|pair| pair.partner == partner) {
                    continue;
                }
                estimated += 1;
                model.pairs.push(Pair {
                    partner,
                    time_sliced: times.cells[row * n + column],
                    mps: at_once.cells[row * n + column],
                    estimated: true,
                });
            }
            catalog.add(model);
        }
        let error = times.tried.iter().find(|tried| tried.0 == times.way).map(|tried| tried.1);
        let names = known.names().to_vec();
        let way = (times.way, error.unwrap_or_default());
        report.push(Filled { names, measured, estimated, way });
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
        // Filling once more changes nothing: estimates are not learnt from.
        let mut again = catalog.clone();
        fill(&mut again);
        assert_eq!(again, catalog);
    }
}
