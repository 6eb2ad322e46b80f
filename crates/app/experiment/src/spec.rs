//! Laws of the generator from `key=value` texts.

use crate::failure::Failure;
use trainyard_framework::RawSettings;
use trainyard_workload::Spec;

/// The laws, as the help shows them.
pub const LAWS_HELP: &str = "\
Laws (--set KEY=VALUE here, or after --generate elsewhere):
  jobs, seed, tenants      numbers
  like                     laws | gavel-single | gavel-multiple | elasticflow: the generator of others, with per-hour or at-once
  load, per-hour           arrivals: a part of the cluster, or jobs an hour; arrival=at-once for all at time zero
  daily                    how strongly arrivals follow the time of day, 0 to 0.95
  duration                 gavel | elasticflow | philly | helios | log-normal:median=40m,sigma=1.5
                           | exponential:mean=1h | pareto:least=10m,shape=1.5 | uniform:least=1m,most=2h | fixed:length=10m
  duration_min, duration_max   bounds of it, such as 2m and 2d
  size                     one | gavel | elasticflow | weights such as 1:0.7,8:0.3
  models                   names, such as gavel-*,muri-*; without it a generic model
  tenant_skew, deadline_share, deadline_slack, soft_share, soft_tolerance, priority_share,
  elastic_share, failure_share, opportunistic_share, guaranteed_share
  fraction_share           jobs of a part of a GPU; fractions=[[0.25,1],[0.5,1]] says which parts, with weights

Examples:
  trainyard trace generate --jobs 1000 --load 0.85 --cluster '16x8 a100' --out jobs.csv
  trainyard trace generate --like gavel-single --per-hour 5.6 --jobs 10000 --seed 0 --out gavel.csv
  trainyard trace generate --jobs 100000 --duration philly --set daily=0.5 --set deadline_share=0.2 --out big.jsonl.gz";

/// A spec from pairs on top of another one. `flag` is where they were given.
pub fn read<'a>(
    flag: &str,
    seed: u64,
    pairs: impl IntoIterator<Item = &'a str>,
) -> Result<Spec, Failure> {
    let refused = |error| Failure::config(flag, error);
    let mut raw = RawSettings::default();
    raw.add(&format!("seed={seed}")).map_err(refused)?;
    for pair in pairs {
        raw.add(&spelled_out(pair)).map_err(refused)?;
    }
    raw.read::<Spec>("generate").map_err(refused)
}

/// A pair in the long form that the settings are written in.
fn spelled_out(pair: &str) -> String {
    let Some((key, value)) = pair.split_once('=') else { return pair.to_owned() };
    let (key, value) = (key.trim(), value.trim());
    match key.replace('-', "_").as_str() {
        "load" => format!("arrival={{load={value}}}"),
        "per_hour" => format!("arrival={{per-hour={value}}}"),
        "duration" => match value.split_once(':') {
            Some((law, settings)) => format!("duration={{{law}={{{}}}}}", quoted(settings)),
            None => pair.to_owned(),
        },
        "size" if value.contains(':') && !value.starts_with('{') => {
            let weights: Vec<String> =
                value.split(',').map(|part| format!("[{}]", part.replace(':', ","))).collect();
            format!("size={{weights=[{}]}}", weights.join(","))
        }
        "models" if !value.starts_with('[') => format!("models=[{value}]"),
        _ => pair.to_owned(),
    }
}

/// Settings of a law with quotes around what is no number.
fn quoted(settings: &str) -> String {
    let parts = settings.split(',').map(|part| match part.split_once('=') {
        Some((key, value)) if value.trim().parse::<f64>().is_err() => {
            format!("{}=\"{}\"", key.trim(), value.trim())
        }
        _ => part.to_owned(),
    });
    parts.collect::<Vec<String>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::Span;
    use trainyard_workload::{Arrival, DurationLaw, SizeLaw};

    #[test]
    fn short_forms_are_understood() {
        let pairs = [
            "jobs=7",
            "load=0.5",
            "duration=log-normal:median=40m,sigma=1.5",
            "size=1:0.7,8:0.3",
            "models=gavel-*,muri-*",
        ];
        let spec = read("--generate", 3, pairs).expect("a spec");
        assert_eq!((spec.jobs, spec.seed, spec.arrival), (7, 3, Arrival::Load(0.5)));
        assert_eq!(spec.duration, DurationLaw::LogNormal { median: Span::secs(2400), sigma: 1.5 });
        assert_eq!(spec.size, SizeLaw::Weights(vec![(1, 0.7), (8, 0.3)]));
        assert_eq!(spec.models, ["gavel-*", "muri-*"]);
        assert_eq!(read("", 1, ["arrival=at-once"]).expect("a spec").arrival, Arrival::AtOnce);
    }

    #[test]
    fn an_unknown_law_is_refused_with_the_nearest() {
        let message = read("--generate", 1, ["jbos=7"]).expect_err("a failure").message();
        assert!(message.contains("did you mean `jobs`?"), "{message}");
        let message = read("--generate", 1, ["duration=gavle"]).expect_err("a failure").message();
        assert!(message.contains("gavle") && message.contains("gavel"), "{message}");
        assert!(read("--generate", 1, ["jobs=-3"]).is_err());
        assert!(read("--generate", 1, ["jobs=99999999999"]).is_err());
    }
}
