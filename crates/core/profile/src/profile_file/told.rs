//! What a profile says of its model alone: `[model.features]`, `[[model.phase]]` and `[[model.spill]]`, in and out.

use crate::features::{Feature, Features};
use crate::phases::Phase;
use crate::spill::MemoryPoint;
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

pub(super) fn read_spill(
    section: &Section<'_, '_>,
    last: Option<&MemoryPoint>,
) -> Result<MemoryPoint, InputError> {
    section.allow(&["memory", "kept"])?;
    let part = |key: &str| {
        let value = section.real(key, 0.001..=1.0)?;
        value.ok_or_else(|| section.wrong(key, "a part from 0.001 to 1"))
    };
    let (memory, kept) = (part("memory")?, part("kept")?);
    if last.is_some_and(|last| last.0 >= memory || last.1 > kept) {
        let expected = "more than in the entry before, with no less of the speed";
        return Err(section.wrong("memory", expected));
    }
    Ok((memory, kept))
}

pub(super) fn write_spill(text: &mut String, (memory, kept): MemoryPoint) -> std::fmt::Result {
    writeln!(text, "[[model.spill]]\nmemory = {memory:?}\nkept = {kept:?}")
}

#[cfg(test)]
mod tests {
    use crate::Feature;
    use crate::profile_file::{read, write};

    const OWN: &str =
        "[[model]]\nname = \"own\"\n[[model.point]]\nkind = \"a100\"\ngpus = 1\nrate = 2.0\n";

    #[test]
    fn what_is_told_of_a_model_alone_reads_back_as_it_was_written() {
        let told = "[model.features]\nutilisation = 0.7\nbatch = 64\nflops = 1.5e12\n\
            [[model.phase]]\nlength = \"8m\"\nutilisation = 0.85\nmemory = 1.0\n\
            [[model.phase]]\nlength = \"2m\"\nutilisation = 0.1\nmemory = 0.5\n\
            [[model.spill]]\nmemory = 0.1\nkept = 0.75\n[[model.spill]]\nmemory = 0.5\nkept = 0.9\n";
        let models = read(&format!("{OWN}{told}")).expect("it is well formed");
        assert_eq!(models[0].features.get(Feature::Flops), Some(1.5e12));
        assert_eq!(models[0].phases.len(), 2);
        assert_eq!(models[0].spill, [(0.1, 0.75), (0.5, 0.9)]);
        assert_eq!(read(&write(&models)), Ok(models));
    }

    #[test]
    fn a_fault_names_its_line_and_the_nearest_key() {
        let fault = |told: &str| read(&format!("{OWN}{told}")).unwrap_err();
        let unknown = fault("[model.features]\nutilization = 0.7\n");
        assert_eq!((unknown.line, unknown.nearest.as_deref()), (8, Some("utilisation")));
        let above = fault("[model.features]\npower = 1.7\n");
        assert!(above.line == 8 && above.to_string().contains("1.7"), "{above}");
        let falls = "[[model.spill]]\nmemory = 0.5\nkept = 0.9\n[[model.spill]]\nmemory = 0.6\nkept = 0.8\n";
        assert_eq!(fault(falls).line, 11, "{}", fault(falls));
        let never = fault("[[model.phase]]\nlength = \"0s\"\nutilisation = 0.1\nmemory = 0.5\n");
        assert_eq!(never.line, 8);
        assert!(
            fault("[[model.phase]]\nlength = \"1m\"\nmemory = 0.5\n")
                .to_string()
                .contains("utilisation")
        );
    }
}
