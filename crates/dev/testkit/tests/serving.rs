//! Nexus on the latency profiles of its authors.

use std::fs::read_to_string;
use trainyard_serving::disciplines::nexus::{Session, pack};
use trainyard_serving::latency::{Measured, Model, Slowdowns};
use trainyard_serving::load::Load;
use trainyard_serving::registry::choose;
use trainyard_serving::run::{Served, run};
use trainyard_serving::{Fleet, zoo};
use trainyard_testkit::places::shared;
use trainyard_types::Span;

/// A profile: the mean and the standard deviation of each batch from 1 on, in microseconds.
fn profile(text: &str) -> Vec<(f64, f64)> {
    let rows = text.lines().skip_while(|line| !line.starts_with("batch,")).skip(1);
    rows.map_while(|line| {
        let mut cells = line.split(',').skip(1).map(|cell| cell.parse::<f64>().ok());
        Some((cells.next()??, cells.next()??))
    })
    .collect()
}

/// Rates and targets for VGG-16, VGG-Face, VGG-S and YOLO9000, in the order of their files.
const LOADS: [[(f64, u64); 4]; 4] = [
    [(20.0, 200), (20.0, 200), (40.0, 200), (5.0, 400)],
    [(60.0, 150), (30.0, 300), (200.0, 100), (12.0, 400)],
    [(300.0, 200), (250.0, 200), (900.0, 100), (60.0, 300)],
    [(15.0, 100), (15.0, 100), (15.0, 100), (3.0, 200)],
];

#[test]
fn packing_of_the_four_profiles_stays_near_the_fractional_bound_and_keeps_its_targets() {
    let Some(folder) = shared("data/nexus_profiles") else { return };
    let names = ["caffe_vgg16", "caffe_vgg_face", "caffe_vgg_s", "darknet_yolo9000"];
    let profiles = names.map(|name| {
        let file = folder.join(format!("titanx_pascal_{name}_1.txt"));
        profile(&read_to_string(file).expect("a profile"))
    });
    assert!(profiles.iter().all(|one| one.len() >= 24), "{:?}", profiles.each_ref().map(Vec::len));
    for loads in LOADS {
        let sessions: Vec<Session> = (loads.iter().zip(&profiles))
            .map(|((rate, slo), latencies)| Session {
                rate: *rate,
                slo_us: *slo as f64 * 1e3,
                around_us: 0.0,
                latencies: latencies.clone(),
            })
            .collect();
        let plans = pack(&sessions);
        let share =
            |one: &Session| one.rate / one.throughput().expect("a target that one request meets");
        let bound: f64 = sessions.iter().map(share).sum();
        let apart: f64 = sessions.iter().map(|one| share(one).ceil()).sum();
        println!(
            "{loads:?}: {} GPUs, {apart} with a GPU for each, {bound:.2} if GPUs could be cut",
            plans.len()
        );
        assert!(plans.len() as f64 >= bound.ceil() - 1e-9 && plans.len() as f64 <= apart);
        assert!(plans.len() as f64 <= bound.ceil() + 1.0, "{plans:?}");
    }
}

#[test]
fn the_runtime_keeps_the_targets_of_its_packing() {
    let Some(folder) = shared("data/nexus_profiles") else { return };
    let names = ["caffe_vgg16", "caffe_vgg_face", "caffe_vgg_s", "darknet_yolo9000"];
    let models = names.map(|name| {
        let file = folder.join(format!("titanx_pascal_{name}_1.txt"));
        let points = profile(&read_to_string(file).expect("a profile"));
        let measured = points.iter().zip(1..).map(|((mean, deviation), batch)| Measured {
            batch,
            p50_us: *mean,
            p99_us: mean + 2.326 * deviation,
        });
        Model::new(name, measured.take(64).collect(), 1000, 10).expect("a model")
    });
    let fleet = Fleet::new(models.to_vec(), Slowdowns::all(2.0), 8);
    let load = "requests=60000 slo=400ms rate=500";
    let load =
        Load { models: names.map(str::to_owned).to_vec(), ..Load::parse(load).expect("a load") };
    let mut found = Vec::new();
    for rate in [600.0, 900.0, 1000.0] {
        let trace = Load { rate, ..load.clone() }.trace(&|_| Span::ZERO, false);
        let attained = |name: &str| {
            let choice = choose(name).expect("a discipline");
            let ran = run(&choice, &Served::Whole(fleet.clone()), &trace, &mut |_| {})
                .expect("an outcome");
            ran.tally().attainment()
        };
        let both = (attained("nexus"), attained("fifo:late=drop"));
        println!(
            "{rate} a second on 8 GPUs within 400 ms: nexus {:.4}, one by one {:.4}",
            both.0, both.1
        );
        found.push(both);
    }
    assert!(found[0].0 > 0.99, "{found:?}");
    assert!(found[2].0 > found[2].1 + 0.1, "{found:?}");
    assert!(zoo::models().len() > 8);
}
