//! What a profile says of its model alone: `[model.features]` and `[[model.phase]]`, in and out.

use crate::features::{Feature, Features};
use crate::phases::Phase;
use std::fmt::Write;
use trainyard_diagnostic::{InputError, Section};
use trainyard_types::Span;

/// The most of what is no part of a whole.
const SIZE_MAX: f64 = 1e24;

pub(super) fn read_features(section: &Section<'_, '_>) -> Result<Features, InputError> {
    section.allow(&Feature::ALL.map(Feature::name))?;
    let mut features = Features::default();
    for feature in Feature::ALL {
        let range = if feature.is_part() { 0.0..=1.0 } else { 0.0..=SIZE_MAX };
        if let Some(value) = section.real(feature.name(), range)? {
            features.set(feature, value);
        }
    }
    Ok(features)
}

pub(super) fn write_features(text: &mut String, features: &Features) -> std::fmt::Result {
    if features.is_empty() {
        return Ok(());
    }
    writeln!(text, "[model.features]")?;
    for (feature, value) in features.iter() {
        writeln!(text, "{} = {value:?}", feature.name())?;
    }
    Ok(())
}

pub(super) fn read_phase(section: &Section<'_, '_>) -> Result<Phase, InputError> {
    section.allow(&["length", "utilisation", "memory"])?;
    let length = section.span("length")?.filter(|length| *length > Span::ZERO);
    let length = length.ok_or_else(|| section.wrong("length", "a length of time above 0"))?;
    let part = |key: &str| {
        let value = section.real(key, 0.0..=1.0)?;
        value.ok_or_else(|| section.wrong(key, "a part from 0 to 1"))
    };
    Ok(Phase { length, utilisation: part("utilisation")?, memory: part("memory")? })
}

pub(super) fn write_phase(text: &mut String, phase: &Phase) -> std::fmt::Result {
    let Phase { length, utilisation, memory } = phase;
    writeln!(text, "[[model.phase]]\nlength = \"{length}\"")?;
    writeln!(text, "utilisation = {utilisation:?}\nmemory = {memory:?}")
}
