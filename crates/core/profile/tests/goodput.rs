//! The throughput model held against measured trainings: how far a fit to a few sizes is off on twice as many GPUs.
//!
//! The authors' tables are not part of the program; without them the test says that it was skipped.

use trainyard_profile::ModelProfile;
use trainyard_profile::goodput::{IterationTime, Observation, Size, UNSEEN_DOUBT, fit};
use trainyard_profile::import::pollux::{self, Authors};
use trainyard_testkit::places::shared;
use trainyard_testkit::say;

fn trainings() -> Option<Vec<ModelProfile>> {
    let folder = shared("data/pollux/traces")?;
    let names = |path: &std::path::Path| {
        let entries = std::fs::read_dir(path).expect("a folder that exists");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        paths
    };
    let name =
        |path: &std::path::Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    let read = |folder: &std::path::PathBuf| {
        let text = |path: &std::path::PathBuf| std::fs::read_to_string(path).expect("a text");
        let tables: Vec<(String, String)> =
            names(folder).iter().map(|path| (name(path), text(path))).collect();
        let texts = tables.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        pollux::read(Authors::Pollux, &name(folder), texts, Vec::new()).expect("a training")
    };
    Some(names(&folder).iter().map(read).collect())
}

/// Nodes of four GPUs, as few as hold so many.
fn packed(gpus: u32) -> Vec<u16> {
    let mut shape = vec![4; gpus as usize / 4];
    shape.extend((!gpus.is_multiple_of(4)).then_some((gpus % 4) as u16));
    shape
}

#[test]
fn doubt_is_what_fits_are_off_by_on_twice_the_gpus() {
    let Some(models) = trainings() else { return };
    let mut seen_errors = Vec::new();
    let mut unseen_errors = Vec::new();
    for model in &models {
        let training = model.training.as_ref().expect("a training");
        let limits = training.limits[0];
        let locals: Vec<u32> =
            (0..3).map(|step| (limits.local_least << step).min(limits.local_most)).collect();
        let at = |gpus: u32, local: u32| {
            let shape = packed(gpus);
            let time = training.times.at(0, &shape, local).expect("a time");
            let size = Size { nodes: shape.len() as u32, gpus };
            let sync = if gpus > 1 { time.sync } else { 0.0 };
            Observation { size, local, step: time.step, sync }
        };
        for most in [1, 2, 4, 8, 16, 32] {
            let sizes = [1, 2, 4, 8, 16, 32].into_iter().filter(|gpus| *gpus <= most);
            let known: Vec<Observation> =
                sizes.flat_map(|gpus| locals.iter().map(move |local| at(gpus, *local))).collect();
            let fitted = fit(&known).expect("measured times can be fitted");
            let off =
                |one: &Observation| (fitted.seconds(one.size, one.local, 0) / one.step - 1.0).abs();
            seen_errors.extend(known.iter().map(off));
            unseen_errors.extend(locals.iter().map(|local| off(&at(2 * most, *local))));
        }
    }
    let median = |errors: &mut Vec<f64>| {
        errors.sort_by(f64::total_cmp);
        errors[errors.len() / 2]
    };
    let (seen, unseen) = (median(&mut seen_errors), median(&mut unseen_errors));
    let mean = unseen_errors.iter().sum::<f64>() / unseen_errors.len() as f64;
    say!("seen {seen:.4}, on twice the GPUs {unseen:.4} in the median and {mean:.4} in the mean");
    assert!(seen < 0.05, "{seen}");
    assert!((UNSEEN_DOUBT / 3.0..=UNSEEN_DOUBT * 3.0).contains(&mean), "{mean}");
}
