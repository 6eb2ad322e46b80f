//! Groups of three and four on one GPU, as measured on an H200 under time slicing (`scripts/groups_evidence.py`), beside
//! what is said of them from the pairs measured in the same run.

use std::collections::BTreeMap;
use trainyard_profile::colocation::kept_in_group;

const MEASURED: &str = include_str!("../data/h200/groups_timesliced.csv");

/// What each job keeps, by the jobs of its group.
fn measured() -> BTreeMap<Vec<&'static str>, BTreeMap<&'static str, f64>> {
    let mut groups: BTreeMap<Vec<&str>, BTreeMap<&str, f64>> = BTreeMap::new();
    for line in MEASURED.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let group = cells[0].split('+').collect();
        groups.entry(group).or_default().insert(cells[1], cells[4].parse().unwrap());
    }
    groups
}

/// The relative error (rMSRE) of a rule for groups of a size, and the mean of what it says less what was measured.
fn error(size: usize, rule: &dyn Fn(&mut dyn Iterator<Item = f64>) -> f64) -> (f64, f64) {
    let groups = measured();
    let pair = |own: &str, other: &str| {
        let found = groups
            .iter()
            .find(|(group, _)| group.len() == 2 && group.contains(&own) && group.contains(&other));
        found.expect("all pairs were measured").1[own]
    };
    let (mut square, mut bias, mut count) = (0.0, 0.0, 0.0);
    for (group, kept) in groups.iter().filter(|(group, _)| group.len() == size) {
        for own in group {
            let mut others = group.iter().filter(|other| *other != own).map(|it| pair(own, it));
            let said = rule(&mut others);
            square += ((said - kept[own]) / kept[own]) * ((said - kept[own]) / kept[own]);
            bias += said - kept[own];
            count += 1.0;
        }
    }
    (f64::sqrt(square / count), bias / count)
}

#[test]
fn delays_that_add_up_tell_more_of_groups_than_the_product_of_pairs() {
    for (size, most) in [(3, 0.12), (4, 0.18)] {
        let (ours, bias) = error(size, &|parts| kept_in_group(parts));
        let (product, low) = error(size, &|parts| parts.product());
        let (least, high) = error(size, &|parts| parts.fold(1.0, f64::min));
        println!(
            "{size}: delays {ours:.3} ({bias:+.3}), product {product:.3} ({low:+.3}), least pair {least:.3} ({high:+.3})"
        );
        assert!(ours < most && bias.abs() < 0.03, "{size}: {ours} {bias}");
        assert!(ours < 0.7 * product && product < least, "{size}: {ours} {product} {least}");
    }
}

#[test]
fn a_group_of_two_is_its_pair_and_one_that_does_not_fit_stops_the_job() {
    assert_eq!(kept_in_group([0.6]), 0.6);
    assert_eq!(kept_in_group([]), 1.0);
    assert_eq!(kept_in_group([0.5, 0.5]), 1.0 / 3.0);
    assert_eq!(kept_in_group([0.5, 0.0]), 0.0);
    assert!(kept_in_group([1.2, 1.2, 1.2]) <= 2.0);
}
