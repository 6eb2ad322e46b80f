//! The line of a scenario that makes a training: `training NAME key=value ...`.

use crate::scenario::Line;
use trainyard_diagnostic::InputError;
use trainyard_profile::ModelProfile;
use trainyard_profile::goodput::Throughput;
use trainyard_profile::training::Made;
use trainyard_types::{BatchLimits, Cluster};

const KEYS: [&str; 8] = ["batch", "local", "pass", "node", "network", "overlap", "noise", "epoch"];

/// Reads one line; whatever is not stated has a usual value.
pub(crate) fn read(line: &Line<'_>, cluster: &Cluster) -> Result<ModelProfile, InputError> {
    let mut words = line.rest.split_whitespace();
    let name = words.next().ok_or_else(|| {
        InputError::wrong(line.number, "training", line.rest, "a name and `key=value` pairs")
    })?;
    let mut made = Made {
        name: name.to_owned(),
        throughput: Throughput {
            alpha_c: 0.05,
            beta_c: 0.001,
            alpha_n: 0.3,
            beta_n: 0.005,
            alpha_r: 0.05,
            beta_r: 0.002,
            gamma: 1.5,
        },
        limits: BatchLimits { first: 128, most: 4096, local_least: 16, local_most: 256 },
        noise: vec![1000.0],
        epoch: 1000.0,
    };
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        set(&mut made, line.number, key, value)?;
    }
    let kinds: Vec<String> = cluster.kinds.iter().map(|kind| kind.name.clone()).collect();
    made.model(&kinds).map_err(|fault| InputError { line: line.number, ..fault })
}

fn set(made: &mut Made, line: u64, key: &str, value: &str) -> Result<(), InputError> {
    let wrong = |expected: &str| InputError::wrong(line, key, value, expected);
    let positive = |text: &str| text.parse().ok().filter(|x: &f64| *x > 0.0 && *x < 1e9);
    let whole = |text: &str| text.parse().ok().filter(|x: &u32| (1..=1_000_000_000).contains(x));
    let range = || {
        let ends = value.split_once("..").and_then(|(a, b)| Some((whole(a)?, whole(b)?)));
        ends.ok_or_else(|| wrong("two whole numbers, such as `128..4096`"))
    };
    let seconds = || {
        let parts = value.split_once('+').and_then(|(a, b)| Some((positive(a)?, positive(b)?)));
        parts.ok_or_else(|| wrong("seconds, and seconds for each more, such as `0.05+0.001`"))
    };
    match key {
        "batch" => (made.limits.first, made.limits.most) = range()?,
        "local" => (made.limits.local_least, made.limits.local_most) = range()?,
        "pass" => (made.throughput.alpha_c, made.throughput.beta_c) = seconds()?,
        "node" => (made.throughput.alpha_r, made.throughput.beta_r) = seconds()?,
        "network" => (made.throughput.alpha_n, made.throughput.beta_n) = seconds()?,
        "overlap" => {
            let gamma = positive(value).filter(|gamma| (1.0..=10.0).contains(gamma));
            made.throughput.gamma = gamma.ok_or_else(|| wrong("a number from 1 to 10"))?;
        }
        "noise" => {
            let scales: Option<Vec<f64>> = value.split(',').map(positive).collect();
            made.noise =
                scales.ok_or_else(|| wrong("noise scales by epoch, such as `500,2000`"))?;
        }
        "epoch" => {
            made.epoch = positive(value).ok_or_else(|| wrong("iterations at the first batch"))?;
        }
        _ => return Err(InputError::unknown(line, "training", key, KEYS)),
    }
    Ok(())
}
