//! Strips against counts by hand, the program against all plans, and loads that are not Poisson.

use super::*;
use crate::draws::Draws;

const VGG_16: &str = "image=224x224x3 layers=conv64k3,conv64k3,pool2,conv128k3,conv128k3,pool2,conv256k3,conv256k3,\
conv256k3,pool2,conv512k3,conv512k3,conv512k3,pool2,conv512k3,conv512k3,conv512k3,pool2,fc4096,fc4096,fc1000";

fn devices(flops: &[f64]) -> Vec<EdgeDevice> {
    let device = |(at, flops): (usize, &f64)| EdgeDevice { name: format!("d{at}"), flops: *flops };
    flops.iter().enumerate().map(device).collect()
}

#[test]
fn a_strip_computes_its_halo_and_one_device_none() {
    let cnn = Cnn::parse("image=8x8x1 layers=conv1k3,conv1k3").unwrap();
    let two = devices(&[1.0, 1.0]);
    let edge = Edge::new(&cnn, &two, 1e12).unwrap();
    let row = 2.0 * 9.0 * 8.0;
    // Four rows of the second layer need five of the first; the edge of the image needs no more.
    assert!((edge.stage_seconds((0, 2), &[1.0, 1.0]) - (4.0 + 5.0) * row).abs() < 1e-6);
    assert!((edge.stage_seconds((0, 2), &[1.0]) - 16.0 * row).abs() < 1e-6);
}

/// All plans over layers and devices of each type, one by one.
fn brute(edge: &Edge<'_>, from: usize, left: &[usize], period: f64) -> f64 {
    let layers = edge.cnn.layers.len();
    if from == layers {
        return period;
    }
    let mut best = f64::INFINITY;
    for mask in 1..1usize << left.len() {
        let own: Vec<usize> =
            (0..left.len()).filter(|at| mask >> at & 1 == 1).map(|at| left[at]).collect();
        let rest: Vec<usize> = left.iter().copied().filter(|one| !own.contains(one)).collect();
        for to in from + 1..=layers {
            let seconds = edge.stage((from, to), own.clone()).seconds;
            best = best.min(brute(edge, to, &rest, period.max(seconds)));
        }
    }
    best
}

#[test]
fn the_program_by_type_is_the_best_of_all_plans_and_the_papers_is_no_better() {
    let cnn = Cnn::parse("image=32x32x3 layers=conv16k3,pool2,conv32k3,conv32k3,fc10").unwrap();
    let mut worse = 0;
    for seed in 0..20 {
        let mut draws = Draws::new(seed);
        let kinds = [1e8, 1e8 * (1.0 + 3.0 * draws.unit())];
        let flops: Vec<f64> = (0..4).map(|_| kinds[draws.below(2) as usize]).collect();
        let devices = devices(&flops);
        let edge = Edge::new(&cnn, &devices, 1e6 + 1e7 * draws.unit()).unwrap();
        let ours = exact_by_type(&edge, f64::INFINITY).unwrap();
        let best = brute(&edge, 0, &[0, 1, 2, 3], 0.0);
        assert!((ours.period() / best - 1.0).abs() < 1e-6, "seed {seed}: {} {best}", ours.period());
        let paper = paper_plan(&edge, f64::INFINITY).unwrap();
        assert!(paper.period() >= ours.period() * (1.0 - 1e-9));
        worse += u32::from(paper.period() > 1.01 * ours.period());
        let limited = exact_by_type(&edge, 0.9 * ours.latency());
        assert!(limited.is_none_or(|one| one.latency() <= 0.9 * ours.latency()));
    }
    assert!(worse >= 5, "{worse}");
}

/// The paper's directions for eight Raspberry Pis: throughput 1.8 to 6.2 times that of others, latency a 1.7th and less.
#[test]
fn eight_equal_devices_gain_what_the_paper_says() {
    let cnn = Cnn::parse(VGG_16).unwrap();
    let eight = devices(&[3e9; 8]);
    let edge = Edge::new(&cnn, &eight, 50e6 / 8.0).unwrap();
    let alone = one_device(&edge);
    let one_stage = whole_as_one(&edge);
    let plan = paper_plan(&edge, f64::INFINITY).unwrap();
    let (gain, fused) = (alone.period() / plan.period(), one_stage.period() / plan.period());
    println!(
        "alone {:.2} s, one stage {:.2} s, pipeline {:.2} s in {} stages: {gain:.2} and {fused:.2} times",
        alone.period(),
        one_stage.period(),
        plan.period(),
        plan.stages.len()
    );
    assert!((1.8..=6.5).contains(&gain), "{gain}");
    assert!(fused > 1.2, "{fused}");
}

/// Bursts: the mean rate is low, so the formula takes the scheme of short latency, which bursts pile up before.
#[test]
fn under_bursts_the_replay_chooses_better_than_the_formula() {
    let schemes = [Scheme { period: 1.0, latency: 1.0 }, Scheme { period: 0.4, latency: 1.6 }];
    let bursts = |draws: &mut Draws, size: u32| {
        let mut arrivals = Vec::new();
        for burst in 0..40 {
            let at = 20.0 * f64::from(burst) + draws.unit();
            (0..size).for_each(|one| arrivals.push(at + 0.01 * f64::from(one)));
        }
        Window { arrivals }
    };
    let mut draws = Draws::new(1);
    let (seen, next) = (bursts(&mut draws, 6), bursts(&mut draws, 6));
    let formula = choose_by_formula(&schemes, &seen).unwrap();
    let replay = choose_by_replay(&schemes, &seen).unwrap();
    assert_eq!((formula, replay), (0, 1));
    let (paper, ours) = (waits(schemes[formula], &next), waits(schemes[replay], &next));
    println!("mean seconds under bursts: formula {paper:.2}, replay {ours:.2}");
    assert!(ours < 0.8 * paper, "{ours} {paper}");
    // Arrivals that are far apart: both take the short latency.
    let calm = bursts(&mut draws, 1);
    assert_eq!(choose_by_formula(&schemes, &calm), Some(0));
    assert_eq!(choose_by_replay(&schemes, &calm), Some(0));
}

#[test]
fn a_device_without_speed_is_refused_by_name() {
    let cnn = Cnn::parse("image=8x8x1 layers=conv1k3").unwrap();
    let devices = devices(&[1.0, 0.0]);
    let error = Edge::new(&cnn, &devices, 1e6).unwrap_err().to_string();
    assert!(error.contains("operator `d1`: `flops`"), "{error}");
}
