//! Estimates of pairs on tables that are known whole.

use std::path::Path;
use trainyard_profile::complete::{Hidden, PairTable, Trial, trial};
use trainyard_profile::import::gavel;
use trainyard_profile::{ANY_KIND, Catalog, ModelProfile, Sharing};

fn largest<'a>(models: impl IntoIterator<Item = &'a ModelProfile>, kind: &str) -> PairTable {
    let table = PairTable::of(models, kind, Sharing::TimeSliced);
    let groups = table.groups();
    table.only(groups.iter().max_by_key(|places| places.len()).expect("a group"))
}

fn published(path: &str, kind: &str) -> Option<PairTable> {
    let full = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data").join(path);
    let Ok(text) = std::fs::read_to_string(&full) else {
        trainyard_testkit::skip!("data", "the published table {path} is not beside the repository");
        return None;
    };
    Some(largest(&gavel::read(&text).expect("a table of Gavel"), kind))
}

/// The choice is made without the truth; it must be close to the better of both ways.
fn near_the_better(trial: &Trial) -> bool {
    trial.chosen.mean <= 1.1 * trial.nearest.mean.min(trial.low_rank.mean)
}

#[test]
fn a_third_of_the_pairs_measured_on_an_h200_tells_the_rest_twice_as_well_as_their_mean() {
    let catalog = Catalog::builtin();
    let table = largest(catalog.iter().map(|(_, model)| model), ANY_KIND);
    for hidden in [Hidden::Anywhere, Hidden::NewModel] {
        let trial = trial(&table, hidden, 0.3, 2);
        assert!(trial.chosen.mean < 0.5 * trial.mean.mean, "{trial:?}");
        assert!(near_the_better(&trial), "{trial:?}");
    }
}

#[test]
fn the_error_on_gavels_measured_pairs_falls_with_what_is_shown() {
    let Some(table) = published("gavel_oracle_pairs/oracle_throughputs_motivation.json", "p100")
    else {
        return;
    };
    let trials = [0.1, 0.3, 0.8].map(|shown| trial(&table, Hidden::Anywhere, shown, 2));
    for (trial, most) in trials.iter().zip([0.18, 0.10, 0.07]) {
        assert!(trial.chosen.mean < most, "{trial:?}");
        assert!(near_the_better(trial), "{trial:?}");
    }
}

#[test]
fn a_new_job_with_a_tenth_of_its_pairs_is_placed_among_the_known_ones() {
    for (path, most) in [
        ("gavel_oracle_pairs/oracle_throughputs_motivation.json", 0.09),
        ("gavel/simulation_throughputs.json", 0.12),
    ] {
        let Some(table) = published(path, "p100") else { return };
        let trial = trial(&table, Hidden::NewModel, 0.1, 1);
        assert!(trial.chosen.mean < most && near_the_better(&trial), "{path}: {trial:?}");
    }
}
