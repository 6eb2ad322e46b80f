//! Tables of speeds that others published, read into profiles.
//!
//! - [`gavel`]: steps per second by type, number of GPUs and partner, as JSON.
//! - [`elasticflow`]: steps per second by batch and number of GPUs, as CSV.
//! - [`muri`]: times of an iteration and of its stages by model and number of GPUs, as CSV.
//! - [`chronus`]: relative speeds by number of GPUs and nodes, as JSON.
//! - [`pollux`]: measured trainings of Pollux and Sia, as folders of CSV.
//! - [`synergy`]: relative speeds by host CPUs and memory, as JSON.
//!
//! A speed of zero means that the job does not fit, and gives no point.
//! What a reader gives can be written by [`crate::profile_file`] and read back.

pub mod chronus;
pub mod elasticflow;
pub mod gavel;
mod json;
pub mod muri;
pub mod pollux;
pub mod synergy;
pub(crate) mod table;

use crate::{ModelProfile, Point, zoo};
use trainyard_diagnostic::InputError;

/// The most GPUs of one point, as in a profile file.
const GPUS_MAX: u32 = 65_536;
/// The most steps per second.
const RATE_MAX: f64 = 1e12;

/// Whether a name of a type of GPU can stand in a profile.
pub fn is_kind(kind: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !kind.is_empty() && kind.chars().all(plain)
}

/// Where a value stands in a text.
struct At<'a> {
    line: u64,
    field: &'a str,
}

/// Steps per second; `None` for zero, which means that it does not fit.
fn speed(at: &At<'_>, shown: &str, value: f64) -> Result<Option<f64>, InputError> {
    if value == 0.0 {
        return Ok(None);
    }
    if (f64::MIN_POSITIVE..=RATE_MAX).contains(&value) {
        return Ok(Some(value));
    }
    let expected = "steps per second from 0 to 1e12, where 0 means that it does not fit";
    Err(InputError::wrong(at.line, at.field, shown, expected))
}

/// A number of GPUs.
fn size(at: &At<'_>, text: &str) -> Result<u32, InputError> {
    let text = text.trim();
    let size = text.parse().ok().filter(|size| (1..=GPUS_MAX).contains(size));
    let expected = || format!("a number of GPUs from 1 to {GPUS_MAX}");
    size.ok_or_else(|| InputError::wrong(at.line, at.field, text, expected()))
}

/// Adds a point; a second one at the same place with another speed is refused.
fn add_point(model: &mut ModelProfile, point: Point, at: &At<'_>) -> Result<(), InputError> {
    let place = |point: &Point| (point.gpus, point.nodes);
    let same = |other: &&Point| other.kind == point.kind && place(other) == place(&point);
    match model.points.iter().find(same) {
        None => model.points.push(point),
        Some(other) if other.rate == point.rate => {}
        Some(other) => {
            let expected = format!(
                "one speed of `{}` on {} GPUs, and {} stands there already",
                model.name, point.gpus, other.rate
            );
            let value = point.rate.to_string();
            return Err(InputError::wrong(at.line, at.field, &value, expected));
        }
    }
    Ok(())
}

/// All models that have a point, in order of name; none at all is a fault.
fn with_points(
    models: impl IntoIterator<Item = ModelProfile>,
) -> Result<Vec<ModelProfile>, InputError> {
    let mut kept: Vec<ModelProfile> =
        models.into_iter().filter(|model| !model.points.is_empty()).collect();
    for model in &mut kept {
        model.points.sort_by(|a, b| (&a.kind, a.gpus, a.nodes).cmp(&(&b.kind, b.gpus, b.nodes)));
    }
    match kept.is_empty() {
        true => Err(InputError::missing(1, "speed", "at least one measured speed above 0")),
        false => Ok(kept),
    }
}

/// A name in the manner of the zoo: small letters, digits, and `-` for the rest.
fn plain_name(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            name.push(c.to_ascii_lowercase());
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
    }
    name.trim_end_matches('-').to_owned()
}

/// The share of the largest tensor, by the short names that published tables use.
fn skew(model: &str) -> Option<f64> {
    match model.to_lowercase().replace('-', "").as_str() {
        "bert" => zoo::skew("bert_base"),
        "gpt2" => zoo::skew("gpt2_small"),
        other => zoo::skew(other),
    }
}
