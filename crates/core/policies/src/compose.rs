//! A policy, a placer, admission controls and tuners put together by name.

use crate::registry::{ADMISSION_CONTROLS, PLACERS, POLICIES, TUNERS};
use trainyard_diagnostic::nearest;
use trainyard_framework::{ConfigError, Entry, Pipeline, RawSettings};

/// A name with its settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// The name of an entry.
    pub name: String,
    /// Settings given for it.
    pub settings: RawSettings,
}

impl Choice {
    /// A name with default settings.
    pub fn named(name: &str) -> Choice {
        Choice { name: name.to_owned(), settings: RawSettings::default() }
    }
}

/// A key, its value, and another key that must be there too.
pub type Wish = (&'static str, &'static str, Option<&'static str>);

/// What a user chose. Only the policy is required: it brings its usual placer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// The policy.
    pub policy: Choice,
    /// Another placer than the policy's own.
    pub place: Option<Choice>,
    /// Admission controls, all of which a job must pass.
    pub admit: Vec<Choice>,
    /// Tuners, in order, after the policy's own.
    pub tune: Vec<Choice>,
}

impl Selection {
    /// A policy as it comes.
    pub fn policy(name: &str) -> Selection {
        Selection { policy: Choice::named(name), ..Selection::default() }
    }

    /// Gives the policy settings it has keys for, as (key, value, only beside this other key), unless the user said
    /// otherwise; later ones win. Presets speak to all policies this way without knowing any.
    pub fn wish(&mut self, wishes: impl IntoIterator<Item = Wish>) {
        let Ok(entry) = find("policy", POLICIES, &self.policy.name) else { return };
        let known = (entry.defaults)();
        let said = self.policy.settings.0.clone();
        for (key, value, beside) in wishes {
            let fits = known.contains_key(key) && beside.is_none_or(|key| known.contains_key(key));
            if fits && !said.contains_key(key) {
                // Read as a user's own would be, so that a number is one; presets are constants that can be read.
                let _ = self.policy.settings.add(&format!("{key}={value}"));
            }
        }
    }

    /// Builds the pipeline.
    pub fn build(&self) -> Result<Pipeline, ConfigError> {
        let mut pipeline =
            (find("policy", POLICIES, &self.policy.name)?.build)(&self.policy.settings)?;
        if let Some(choice) = &self.place {
            let entry = find("placer", PLACERS, &choice.name)?;
            pipeline.place = (entry.build)(&choice.settings)?;
            pipeline.needs.topology |= entry.needs.topology;
            pipeline.needs.rates |= entry.needs.rates;
        }
        for choice in &self.admit {
            let entry = find("admission control", ADMISSION_CONTROLS, &choice.name)?;
            pipeline.admit.push((entry.build)(&choice.settings)?);
            pipeline.needs = pipeline.needs.and(entry.needs);
        }
        for choice in &self.tune {
            let entry = find("tuner", TUNERS, &choice.name)?;
            pipeline.tune.push((entry.build)(&choice.settings)?);
        }
        Ok(pipeline)
    }
}

/// The entry of that name in a table, or an error that names the nearest one.
pub fn find<B>(
    kind: &'static str,
    table: &'static [&'static Entry<B>],
    name: &str,
) -> Result<&'static Entry<B>, ConfigError> {
    table.iter().copied().find(|entry| entry.name == name).ok_or_else(|| ConfigError::UnknownName {
        kind,
        name: name.to_owned(),
        nearest: nearest(name, table.iter().map(|entry| entry.name)).map(str::to_owned),
    })
}
