//! Rungs of a search: at 1, eta, eta^2 and so on results, only the best 1/eta of those that came so far go on.

/// The results of one trial: the number of a result and its accuracy, in order.
pub type Results = Vec<(u32, f64)>;

/// The accuracy of a trial when it came to a rung; nothing if it has not.
fn at_rung(results: &Results, rung: u32) -> Option<f64> {
    results.iter().find(|(number, _)| *number >= rung).map(|(_, accuracy)| *accuracy)
}

/// The accuracy below which no trial goes on, of all that came to a rung: the (1 - 1/eta) percentile, by linear
/// interpolation.
pub fn cutoff(mut accuracies: Vec<f64>, eta: u32) -> Option<f64> {
    accuracies.retain(|accuracy| accuracy.is_finite());
    accuracies.sort_by(f64::total_cmp);
    let last = accuracies.len().checked_sub(1)?;
    let place = (1.0 - 1.0 / f64::from(eta)) * last as f64;
    let (low, part) = (place as usize, place - libm::floor(place));
    let high = accuracies[(low + 1).min(last)];
    Some(accuracies[low] + (high - accuracies[low]) * part)
}

/// Which trials go on: those that are not below the cutoff of the highest rung they came to. It is looked at again
/// each time, so that a trial that passed may be stopped when better ones have come.
pub fn go_on(trials: &[Results], eta: u32) -> Vec<bool> {
    let most = trials.iter().flatten().map(|(number, _)| *number).max().unwrap_or(0);
    let mut goes = vec![true; trials.len()];
    let mut judged = vec![false; trials.len()];
    let rungs = std::iter::successors(Some(1u32), |rung| rung.checked_mul(eta));
    let rungs: Vec<u32> = rungs.take_while(|rung| *rung <= most).collect();
    for rung in rungs.into_iter().rev() {
        let here: Vec<Option<f64>> = trials.iter().map(|one| at_rung(one, rung)).collect();
        let Some(cutoff) = cutoff(here.iter().flatten().copied().collect(), eta) else { continue };
        for (trial, accuracy) in here.iter().enumerate() {
            if let Some(accuracy) = accuracy.filter(|_| !judged[trial]) {
                judged[trial] = true;
                goes[trial] = accuracy >= cutoff;
            }
        }
    }
    goes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_those_that_came_to_a_rung_goes_on() {
        let trial = |accuracy: f64| vec![(1, accuracy)];
        let trials: Vec<Results> = (0..8).map(|n| trial(f64::from(n) / 10.0)).collect();
        let goes = go_on(&trials, 4);
        assert_eq!(goes, [false, false, false, false, false, false, true, true]);
    }

    #[test]
    fn a_trial_that_passed_is_stopped_when_better_ones_come() {
        let first = vec![(1, 0.3)];
        assert_eq!(go_on(std::slice::from_ref(&first), 4), [true]);
        let others = (0..4).map(|n| vec![(1, 0.5 + f64::from(n) / 10.0)]);
        let trials: Vec<Results> = std::iter::once(first).chain(others).collect();
        assert!(!go_on(&trials, 4)[0]);
    }

    #[test]
    fn the_highest_rung_judges_and_who_has_no_result_goes_on() {
        // The first was behind at the first rung and leads at the second.
        let trials = vec![vec![(1, 0.1), (4, 0.9)], vec![(1, 0.8), (4, 0.5)], vec![]];
        assert_eq!(go_on(&trials, 4), [true, false, true]);
    }

    #[test]
    fn a_cutoff_of_nothing_or_of_nonsense_is_none() {
        assert_eq!(cutoff(Vec::new(), 4), None);
        assert_eq!(cutoff(vec![f64::NAN], 4), None);
        assert_eq!(cutoff(vec![0.0, 1.0], 4), Some(0.75));
    }
}
