//! In what range the speeds that Chronus' allocator extrapolates hold: beside speeds that were measured on one, two and
//! more nodes.
//!
//! The figures stand on the policy's page. The tables lie beside the repository; where they are absent the tests that
//! need them say so and pass.

use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use trainyard_policies::chronus::speeds::extrapolated;
use trainyard_profile::ModelProfile;
use trainyard_profile::import::{chronus, pollux};
use trainyard_profile::zoo;
use trainyard_testkit::places::{root, shared};
use trainyard_testkit::{say, skip};

/// Speeds of one training on one number of GPUs, by nodes.
type ByNodes = BTreeMap<u32, f64>;

/// A speed on more than two nodes beside the one that is extrapolated.
#[derive(Copy, Clone, Debug)]
struct Case {
    nodes: u32,
    /// By which part the second node makes an iteration longer.
    second: f64,
    /// By which part the extrapolated time of an iteration is too long; below 0 it is too short.
    error: f64,
}

fn cases(all: impl IntoIterator<Item = ByNodes>) -> Vec<Case> {
    let mut cases = Vec::new();
    for rates in all {
        let (Some(one), Some(two)) = (rates.get(&1), rates.get(&2)) else { continue };
        for (nodes, rate) in rates.range(3..) {
            let error = rate / extrapolated(*one, *two, *nodes as usize) - 1.0;
            cases.push(Case { nodes: *nodes, second: one / two - 1.0, error });
        }
    }
    cases
}

/// The speeds of a profile, by type and GPUs.
fn by_nodes(model: &ModelProfile) -> Vec<ByNodes> {
    let mut found: BTreeMap<(&str, u32), ByNodes> = BTreeMap::new();
    for point in &model.points {
        let rates = found.entry((&point.kind, point.gpus)).or_default();
        rates.insert(point.nodes, point.rate);
    }
    found.into_values().collect()
}

/// The authors' own table: relative speeds of five models on 4 and 8 GPUs of 1, 2 and 4 nodes.
fn authors() -> Option<Vec<Case>> {
    let file = File::open(shared("data/chronus/model_info.json.gz")?).expect("it opens");
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).expect("text");
    let models = chronus::read(&text).expect("Chronus' table");
    Some(cases(models.iter().flat_map(by_nodes)))
}

/// The trainings that were published with Pollux: 3 and 4 T4s of 1 to 4 nodes, by samples on each GPU.
fn t4() -> Option<Vec<Case>> {
    let mut all = Vec::new();
    for training in ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"] {
        let path = shared(&format!("data/pollux/traces/{training}/placements.csv"))?;
        let text = std::fs::read_to_string(path).expect("it reads");
        let mut times: BTreeMap<(u32, u32), BTreeMap<u32, Vec<f64>>> = BTreeMap::new();
        for point in pollux::placements(&text, "t4").expect("Pollux' table") {
            let (nodes, gpus) = point.place.size();
            let of_size = times.entry((gpus, point.local)).or_default();
            of_size.entry(nodes).or_default().push(point.time.step);
        }
        // Splits over as many nodes count as one, by their mean time.
        let rate = |times: &Vec<f64>| times.len() as f64 / times.iter().sum::<f64>();
        let rates =
            times.values().map(|by| by.iter().map(|(nodes, t)| (*nodes, rate(t))).collect());
        all.extend(cases(rates));
    }
    Some(all)
}

/// Parts by which the second node makes an iteration longer.
struct Range {
    name: &'static str,
    above: f64,
    most: f64,
}

const RANGES: [Range; 3] = [
    Range { name: "up to 10 %", above: f64::MIN, most: 0.1 },
    Range { name: "10 to 50 %", above: 0.1, most: 0.5 },
    Range { name: "above 50 %", above: 0.5, most: f64::MAX },
];

/// Errors by nodes and by what the second of them costs, as rows of the page's table.
fn rows(name: &str, cases: &[Case]) -> String {
    let mut text = String::new();
    for nodes in [3, 4] {
        for range in RANGES {
            let is_of = |case: &&Case| {
                case.nodes == nodes && case.second > range.above && case.second <= range.most
            };
            let of = cases.iter().filter(is_of);
            let mut errors: Vec<f64> = of.map(|case| case.error.abs() * 100.0).collect();
            errors.sort_by(f64::total_cmp);
            let Some(largest) = errors.last() else { continue };
            let (range, count, median) = (range.name, errors.len(), errors[errors.len() / 2]);
            writeln!(
                text,
                "| {name} | {nodes} | {range} | {count} | {median:.0} % | {largest:.0} % |"
            )
            .expect("a string takes all");
        }
    }
    text
}

#[test]
fn the_page_states_how_far_extrapolated_speeds_are_off() {
    let (Some(authors), Some(t4)) = (authors(), t4()) else {
        return skip!("data", "tables of Chronus and Pollux are not beside the repository");
    };
    let table = rows("Chronus' own", &authors) + &rows("Pollux' T4s", &t4);
    say!("{table}");
    let page = std::fs::read_to_string(root().join("docs/policies/chronus.md")).expect("its page");
    assert!(page.contains(&table), "the page does not have these rows:\n{table}");
}

#[test]
fn extrapolated_speeds_are_within_a_quarter_where_the_second_node_costs_up_to_a_tenth() {
    let (Some(authors), Some(t4)) = (authors(), t4()) else {
        return skip!("data", "tables of Chronus and Pollux are not beside the repository");
    };
    let cheap: Vec<Case> = authors.into_iter().chain(t4).filter(|one| one.second <= 0.1).collect();
    assert!(cheap.len() > 30, "only {} cases", cheap.len());
    for case in cheap {
        assert!(case.error.abs() < 0.25, "{case:?}");
    }
}

#[test]
fn no_built_in_profile_has_one_size_on_one_two_and_more_nodes() {
    let built_in = zoo::catalog().iter().flat_map(|(_, model)| by_nodes(model));
    assert_eq!(cases(built_in).len(), 0, "the page says that none can be measured");
}
