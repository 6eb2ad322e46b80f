//! `trainyard profile interference`: what predicts how much two jobs slow each other on one GPU.

use crate::args::InterferenceArgs;
use crate::failure::Failure;
use crate::output::Output;
use serde_json::{Value, json};
use trainyard_profile::Sharing;
use trainyard_profile::interference::{PredictorErrors, Study, measured, study};
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::table::figures;

/// Compares all predictors on the measured pairs.
pub fn interference(args: &InterferenceArgs, output: &Output) -> Result<(), Failure> {
    let sharing = if args.mps { Sharing::Mps } else { Sharing::TimeSliced };
    let study = study(&measured(sharing));
    if args.json {
        return output.print_json(&as_json(&study, args.mps));
    }
    let way = if args.mps { "at once under MPS" } else { "by turns" };
    output.print(&format!(
        "{} speeds beside another job on one H200, {way}; each of {} architectures held out in turn\n\n",
        study.pairs, study.architectures
    ))?;
    let heading = ["predictor", "mean error", "relative (rMSRE)", "95 %", "within two spreads"];
    let rows = study.predictors.iter().map(row).collect::<Vec<Vec<String>>>();
    output.print(&figures(&heading, 1, &rows, output.ink))?;
    let oracle = study.oracle.map_or_else(|| "-".to_owned(), |error| format!("{error:.3}"));
    let best = study.best().map_or(0.0, |best| best.relative);
    output.print(&format!(
        "\nrelative error of the best (BoM-err) {best:.3}; of an oracle that knows what the same two measured (O-err) {oracle}\n"
    ))
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

fn as_json(study: &Study, mps: bool) -> Value {
    let predictor = |errors: &PredictorErrors| {
        json!({
            "name": errors.name,
            "mean_error": errors.mean,
            "rmsre": errors.relative,
            "p95_error": errors.p95,
            "within_two_spreads": errors.covered,
        })
    };
    json!({
        "schema_version": SCHEMA_VERSION,
        "kind": "profile-interference",
        "sharing": if mps { "mps" } else { "time-sliced" },
        "pairs": study.pairs,
        "architectures": study.architectures,
        "predictors": study.predictors.iter().map(predictor).collect::<Vec<Value>>(),
        "best_rmsre": study.best().map(|best| best.relative),
        "oracle_rmsre": study.oracle,
    })
}
