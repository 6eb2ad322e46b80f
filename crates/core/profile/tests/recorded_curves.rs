//! Optimus' curve of loss on trainings that were recorded on a GPU by `scripts/loss-curves.py`: one that is smooth, and
//! three that are not as the formula would have them.

use trainyard_profile::optimus::LossFit;

/// Epochs and losses of a recorded training; a loss that is no number is one here too.
fn recorded(name: &str) -> Vec<(u32, f64)> {
    let path = format!("{}/tests/curves/{name}.csv", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("a file of the repository");
    let row = |line: &str| {
        let (epoch, loss) = line.split_once(',').expect("two columns");
        (epoch.parse().expect("an epoch"), loss.parse().expect("a loss"))
    };
    text.lines().skip(1).map(row).collect()
}

/// What is said of the end of a training after a part of it: the trust, and by how much of all that the loss fell the
/// last loss was missed.
fn foretold(name: &str, part: f64) -> (bool, f64) {
    let losses = recorded(name);
    let fit = match LossFit::of(&losses[..(losses.len() as f64 * part) as usize]) {
        Ok(fit) => fit,
        Err(_) => return (false, f64::INFINITY),
    };
    let (first, last) = (losses[0].1, losses[losses.len() - 1]);
    let missed = (fit.model.loss(last.0) - last.1).abs() / (first - last.1).abs();
    println!("{name} after {part}: trust {:.3}, missed {missed:.3}", fit.trust);
    (fit.is_trusted(), missed)
}

#[test]
fn a_smooth_training_is_foretold_and_trusted() {
    for part in [0.5, 0.75] {
        let (trusted, missed) = foretold("smooth", part);
        assert!(trusted && missed < 0.05, "after {part}: {missed}");
    }
}

#[test]
fn what_is_trusted_of_a_noisy_training_is_near_the_truth() {
    // With batches of four the end is told within a third of the fall only, and not always trusted.
    for part in [0.25, 0.5, 0.75, 0.9] {
        let (trusted, missed) = foretold("noisy", part);
        assert!(!trusted || missed < 0.33, "after {part}: trusted, and off by {missed}");
    }
}

#[test]
fn a_training_that_diverged_is_not_trusted() {
    assert!(!foretold("divergent", 0.75).0);
    assert!(!foretold("divergent", 1.0).0);
}

#[test]
fn what_is_trusted_of_a_training_in_steps_is_near_the_truth() {
    for part in [0.3, 0.5, 0.75, 0.9] {
        let (trusted, missed) = foretold("stepped", part);
        assert!(!trusted || missed < 0.2, "after {part}: trusted, and off by {missed}");
    }
}
