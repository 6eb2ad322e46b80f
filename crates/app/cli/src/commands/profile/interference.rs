//! `trainyard profile interference`: what predicts how much two jobs slow each other on one GPU.

use crate::args::InterferenceArgs;
use crate::failure::Failure;
use crate::output::Output;
use serde_json::{Value, json};
use std::path::Path;
use trainyard_diagnostic::InputError;
use trainyard_experiment::files::read_text;
use trainyard_experiment::given::load_catalog;
use trainyard_profile::Sharing;
use trainyard_profile::interference::graph::{UtilisationErrors, utilisation_study};
use trainyard_profile::interference::lucid::{self, LucidError};
use trainyard_profile::interference::{
    Met, PairSource, PredictorErrors, Study, alone_rows, measured, of_models, study,
};
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::table::figures;

/// Compares all predictors on measured pairs.
pub fn interference(args: &InterferenceArgs, output: &Output) -> Result<(), Failure> {
    let sharing = if args.mps { Sharing::Mps } else { Sharing::TimeSliced };
    let (met, about) = pairs(args, sharing)?;
    let study = study(&met);
    // Utilisation from descriptions is measured where utilisation was: on the H200.
    let own = args.models.is_none() && args.lucid.is_none();
    let usage = own.then(|| utilisation_study(&alone_rows()));
    if args.json {
        return output.print_json(&as_json(&study, usage.as_ref(), (args.mps, &about)));
    }
    output.print(&format!(
        "{} speeds beside another job, {about}; each of {} architectures held out in turn\n\n",
        study.pairs, study.architectures
    ))?;
    let heading = ["predictor", "mean error", "relative (rMSRE)", "95 %", "within two spreads"];
    let rows = study.predictors.iter().map(row).collect::<Vec<Vec<String>>>();
    output.print(&figures(&heading, 1, &rows, output.ink))?;
    let oracle = study.oracle.map_or_else(|| "-".to_owned(), |error| format!("{error:.3}"));
    let best = study.best().map_or(0.0, |best| best.relative);
    output.print(&format!(
        "\nrelative error of the best (BoM-err) {best:.3}; of an oracle that knows what the same two measured (O-err) {oracle}\n"
    ))?;
    let Some(usage) = usage else { return Ok(()) };
    let name = PairSource::best(sharing).predictor().map_or("", |best| best.name());
    output.print(&format!("beliefs about pairs that were not measured go by: {name}\n"))?;
    let told = |(mean, log): (f64, f64)| format!("{mean:.3} (RMSLE {log:.3})");
    output.print(&format!(
        "utilisation from the description of a model, mean error over {} jobs: {} of a new network, {} of a known one, {} by the mean of the others\n",
        usage.jobs,
        told(usage.new_network),
        told(usage.known_network),
        told(usage.mean_of_others)
    ))
}

/// The pairs that were asked for, and what they are.
fn pairs(args: &InterferenceArgs, sharing: Sharing) -> Result<(Vec<Met>, String), Failure> {
    let way = if args.mps { "at once under MPS" } else { "by turns" };
    if let (Some(pairs), Some(alone)) = (&args.lucid, &args.lucid_alone) {
        let read = lucid::read(&read_text(alone)?, &read_text(pairs)?);
        let read = read.map_err(|error| lucid_failure(error, (pairs, alone)))?;
        let about = format!(
            "measured by Lucid on an RTX 3090 ({} rows of configurations without a profile left out)",
            read.unknown
        );
        return Ok((read.met, about));
    }
    let Some(prefix) = &args.models else {
        return Ok((measured(sharing), format!("on one H200, {way}")));
    };
    let catalog = load_catalog(&args.profiles)?;
    let models = catalog.iter().map(|(_, model)| model);
    let met = of_models(models.filter(|model| model.name.starts_with(prefix)), sharing);
    if met.is_empty() {
        let expected = format!("measured pairs of models whose names begin with `{prefix}`");
        return Err(Failure::input("", InputError::missing(0, "pair", expected)));
    }
    Ok((met, format!("of models `{prefix}*`, {way}")))
}

fn lucid_failure(error: LucidError, (pairs, alone): (&Path, &Path)) -> Failure {
    match error {
        LucidError::Alone(error) => Failure::input(alone.display().to_string(), error),
        LucidError::Pairs(error) => Failure::input(pairs.display().to_string(), error),
    }
}

fn row(errors: &PredictorErrors) -> Vec<String> {
    vec![
        errors.name.to_owned(),
        format!("{:.3}", errors.mean),
        format!("{:.3}", errors.relative),
        format!("{:.3}", errors.p95),
        format!("{:.0} %", errors.covered * 100.0),
    ]
}

fn as_json(study: &Study, usage: Option<&UtilisationErrors>, (mps, about): (bool, &str)) -> Value {
    let predictor = |errors: &PredictorErrors| {
        json!({
            "name": errors.name,
            "mean_error": errors.mean,
            "rmsre": errors.relative,
            "p95_error": errors.p95,
            "within_two_spreads": errors.covered,
        })
    };
    let usage = usage.map(|usage| {
        json!({
            "jobs": usage.jobs,
            "new_network": { "mean_error": usage.new_network.0, "rmsle": usage.new_network.1 },
            "known_network": { "mean_error": usage.known_network.0, "rmsle": usage.known_network.1 },
            "mean_of_others": { "mean_error": usage.mean_of_others.0, "rmsle": usage.mean_of_others.1 },
        })
    });
    json!({
        "schema_version": SCHEMA_VERSION,
        "kind": "profile-interference",
        "sharing": if mps { "mps" } else { "time-sliced" },
        "of": about,
        "pairs": study.pairs,
        "architectures": study.architectures,
        "predictors": study.predictors.iter().map(predictor).collect::<Vec<Value>>(),
        "best_rmsre": study.best().map(|best| best.relative),
        "oracle_rmsre": study.oracle,
        "utilisation_from_description": usage,
    })
}
