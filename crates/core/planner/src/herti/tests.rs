//! The exact mapping against all mappings, and the learner and the split segments against it.

use super::*;
use crate::draws::Draws;

/// Four devices at two or three clock rates: energy rises with the square of the rate.
fn chip(draws: &mut Draws, segments: usize) -> Chip {
    let work: Vec<f64> = (0..segments).map(|_| 0.2 + draws.unit()).collect();
    let kinds: [(&str, f64, f64, &[f64]); 4] = [
        ("little", 1.0, 0.6, &[0.5, 1.0]),
        ("big", 3.0, 3.0, &[0.5, 0.75, 1.0]),
        ("gpu", 6.0, 5.0, &[0.6, 1.0]),
        ("dla", 5.0, 1.5, &[1.0]),
    ];
    let mut ways = Vec::new();
    for (device, (name, speed, watts, rates)) in kinds.into_iter().enumerate() {
        // A device is better at some segments than at others, and the accelerator cannot run all.
        let suits: Vec<f64> = (0..segments).map(|_| 0.5 + draws.unit()).collect();
        let cannot: Vec<bool> = (0..segments).map(|_| device == 3 && draws.unit() < 0.3).collect();
        for rate in rates {
            let seconds = |at: usize| match cannot[at] {
                true => f64::INFINITY,
                false => 0.01 * work[at] * suits[at] / (speed * rate),
            };
            let energy = |at: usize| match cannot[at] {
                true => 0.0,
                false => 0.01 * work[at] * suits[at] / speed * watts * rate * rate,
            };
            ways.push(Way {
                name: format!("{name}@{rate}"),
                device,
                seconds: (0..segments).map(seconds).collect(),
                joules: (0..segments).map(energy).collect(),
            });
        }
    }
    Chip {
        segments: (0..segments).map(|at| format!("s{at}")).collect(),
        out_bytes: (0..segments).map(|_| 2e6 * draws.unit()).collect(),
        ways,
        latency: 1e-4,
        bytes_per_second: 5e9,
        joules_per_byte: 1e-10,
    }
}

fn fastest(chip: &Chip) -> f64 {
    (0..chip.segments.len())
        .map(|at| chip.ways.iter().map(|way| way.seconds[at]).fold(f64::INFINITY, f64::min))
        .sum()
}

#[test]
fn the_program_is_the_best_of_all_mappings() {
    for seed in 0..30 {
        let chip = chip(&mut Draws::new(seed), 5);
        let deadline = 1.6 * fastest(&chip);
        let mut best: Option<f64> = None;
        for number in 0..8usize.pow(5) {
            let ways = (0..5u32).map(|at| number / 8usize.pow(at) % 8).collect();
            let mapping = chip.cost(ways);
            if mapping.seconds <= deadline && best.is_none_or(|least| mapping.joules < least) {
                best = Some(mapping.joules);
            }
        }
        let found = exact(&chip, deadline).unwrap();
        match (found, best) {
            (Some(found), Some(best)) => {
                assert!((found.joules / best - 1.0).abs() < 1e-9, "{seed}")
            }
            (found, best) => assert!(found.is_none() && best.is_none(), "{seed}"),
        }
    }
}

#[test]
fn the_learner_comes_near_the_exact_mapping_and_beats_one_device() {
    let (mut sum, mut one_device, mut cases, mut missed) = (0.0, 0.0, 0.0, 0);
    for seed in 0..20 {
        let chip = chip(&mut Draws::new(100 + seed), 12);
        let deadline = 2.0 * fastest(&chip);
        let Some(best) = exact(&chip, deadline).unwrap() else { continue };
        let Some((learnt, _)) = learn(&chip, deadline, &Learning::default()).unwrap() else {
            missed += 1;
            continue;
        };
        assert!(learnt.seconds <= deadline && learnt.joules >= best.joules * (1.0 - 1e-9));
        sum += learnt.joules / best.joules - 1.0;
        one_device += greedy(&chip, deadline).map_or(1.0, |one| one.joules / best.joules - 1.0);
        cases += 1.0;
    }
    println!(
        "learnt {:.1} % above exact, one device {:.1} %",
        100.0 * sum / cases,
        100.0 * one_device / cases
    );
    assert!(cases >= 15.0 && missed <= 2, "{cases} {missed}");
    assert!(sum < one_device && sum / cases < 0.25, "{sum} {one_device} {cases}");
}

/// Below layers: two devices that share a segment keep deadlines that no whole segment keeps, or at less energy.
#[test]
fn split_segments_keep_shorter_deadlines() {
    let (mut kept, mut saved) = (0, 0);
    for seed in 0..20 {
        let whole = chip(&mut Draws::new(200 + seed), 6);
        let split = whole.with_splits(4);
        let deadline = 0.85 * fastest(&whole);
        assert_eq!(exact(&whole, deadline).unwrap(), None, "no whole mapping is that fast");
        kept += u32::from(exact(&split, deadline).unwrap().is_some());
        let deadline = 1.1 * fastest(&whole);
        let found = exact(&split, deadline).unwrap();
        if let (Some(a), Some(b)) = (found, exact(&whole, deadline).unwrap()) {
            assert!(a.joules <= b.joules * (1.0 + 1e-12));
            saved += u32::from(a.joules < 0.99 * b.joules);
        }
    }
    println!("shorter deadlines kept {kept} of 20, less energy {saved}");
    assert!(kept >= 10, "{kept} {saved}");
}

#[test]
fn the_estimator_tells_what_was_not_timed() {
    let mut draws = Draws::new(7);
    let mut timing = |noise: f64| {
        let (flops, bytes) = (1e9 * draws.unit(), 1e7 * draws.unit());
        let seconds = 2e-4 + flops / 4e11 + bytes / 2e10;
        Timing { flops, bytes, seconds: seconds * (1.0 + noise * (draws.unit() - 0.5)) }
    };
    let seen: Vec<Timing> = (0..40).map(|_| timing(0.1)).collect();
    let estimator = Estimator::fit(&seen).unwrap();
    let off = (0..100).map(|_| {
        let one = timing(0.0);
        (estimator.seconds(one.flops, one.bytes) / one.seconds - 1.0).abs()
    });
    let worst = off.fold(0.0, f64::max);
    assert!(worst < 0.08, "{worst}");
    assert_eq!(Estimator::fit(&seen[..2]), None);
}

#[test]
fn a_segment_that_runs_nowhere_is_refused_by_name() {
    let mut one = chip(&mut Draws::new(1), 3);
    one.ways.iter_mut().for_each(|way| way.seconds[1] = f64::INFINITY);
    let error = exact(&one, 1.0).unwrap_err().to_string();
    assert!(error.contains("segment `s1` runs on no device"), "{error}");
    let mut one = chip(&mut Draws::new(1), 3);
    one.ways[0].joules[2] = f64::NAN;
    let error = learn(&one, 1.0, &Learning::default()).unwrap_err().to_string();
    assert!(error.contains("operator `s2`: `joules`"), "{error}");
}
