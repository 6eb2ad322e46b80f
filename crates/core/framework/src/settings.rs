//! Typed settings out of `key=value` text, with unknown keys refused and the nearest valid one named.

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};
use trainyard_diagnostic::nearest;

/// Settings as they were written, not yet checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawSettings(pub Table);

/// What is wrong with a setting or a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The key does not exist.
    #[error("`{owner}` has no setting `{key}`{}; it has: {known}", nearest_hint(.nearest))]
    UnknownKey {
        /// Whose settings.
        owner: String,
        /// The key given.
        key: String,
        /// The nearest valid key.
        nearest: Option<String>,
        /// All valid keys.
        known: String,
    },
    /// The value does not fit the key.
    #[error("`{owner}.{key} = {value}`: {problem}; the default is `{default}`")]
    BadValue {
        /// Whose settings.
        owner: String,
        /// The key.
        key: String,
        /// The value given.
        value: String,
        /// What was expected.
        problem: String,
        /// The default value, as an example of a valid one.
        default: String,
    },
    /// The text is not `key=value`.
    #[error(
        "cannot read the setting `{text}`: {problem}; write key=value, such as quantum=10m or thresholds=[1h,10h]"
    )]
    Syntax {
        /// The text.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// No such policy, placer, gate or tuner.
    #[error("there is no {kind} named `{name}`{}; `trainyard policies` lists all", nearest_hint(.nearest))]
    UnknownName {
        /// What was looked for.
        kind: &'static str,
        /// The name given.
        name: String,
        /// The nearest valid name.
        nearest: Option<String>,
    },
}

fn nearest_hint(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!(", did you mean `{name}`?")).unwrap_or_default()
}

impl RawSettings {
    /// Reads `key=value` pairs. A value is TOML, or a bare word, or a list of bare words: `[1h,10h]`.
    pub fn parse<'a>(pairs: impl IntoIterator<Item = &'a str>) -> Result<RawSettings, ConfigError> {
        let mut raw = RawSettings::default();
        for pair in pairs {
            raw.add(pair)?;
        }
        Ok(raw)
    }

    /// Adds one `key=value` pair; a later one replaces an earlier one.
    pub fn add(&mut self, pair: &str) -> Result<(), ConfigError> {
        let syntax = |problem: &str| ConfigError::Syntax {
            text: pair.to_owned(),
            problem: problem.to_owned(),
        };
        let (key, value) = pair.split_once('=').ok_or_else(|| syntax("there is no `=`"))?;
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || value.is_empty() {
            return Err(syntax("the key or the value is empty"));
        }
        self.0.insert(key.replace('-', "_"), read_value(value));
        Ok(())
    }

    /// The typed settings of `owner`, with defaults for what is not given.
    pub fn read<S: Default + Serialize + DeserializeOwned>(
        &self,
        owner: &str,
    ) -> Result<S, ConfigError> {
        let mut table = defaults::<S>();
        for (key, value) in &self.0 {
            let Some(default) = table.get(key).cloned() else {
                return Err(ConfigError::UnknownKey {
                    owner: owner.to_owned(),
                    key: key.clone(),
                    nearest: nearest(key, table.keys().map(String::as_str)).map(str::to_owned),
                    known: match table.is_empty() {
                        true => "none".to_owned(),
                        false => table.keys().cloned().collect::<Vec<_>>().join(", "),
                    },
                });
            };
            table.insert(key.clone(), value.clone());
            // Read after each key, so that the message names the one that is wrong.
            if let Err(error) = table.clone().try_into::<S>() {
                return Err(ConfigError::BadValue {
                    owner: owner.to_owned(),
                    key: key.clone(),
                    value: value.to_string(),
                    problem: error.message().trim().replace('\n', " "),
                    default: default.to_string(),
                });
            }
        }
        table.try_into::<S>().map_err(|error| ConfigError::Syntax {
            text: owner.to_owned(),
            problem: error.message().to_owned(),
        })
    }
}

/// The default settings as a table; what the listing and the pages show.
pub fn defaults<S: Default + Serialize>() -> Table {
    match Value::try_from(S::default()) {
        Ok(Value::Table(table)) => table,
        _ => Table::new(),
    }
}

fn read_value(text: &str) -> Value {
    let as_toml = |text: &str| {
        toml::from_str::<Table>(&format!("v = {text}")).ok().and_then(|mut t| t.remove("v"))
    };
    if let Some(value) = as_toml(text) {
        return value;
    }
    match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => Value::Array(
            inner
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .map(read_value)
                .collect(),
        ),
        None => Value::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use trainyard_types::Span;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    struct Sample {
        quantum: Span,
        thresholds: Vec<Span>,
        strict: bool,
    }

    impl Default for Sample {
        fn default() -> Sample {
            Sample { quantum: Span::secs(60), thresholds: vec![Span::secs(3600)], strict: false }
        }
    }

    #[test]
    fn settings_read_durations_lists_and_flags() {
        let raw = RawSettings::parse(["quantum=5m", "thresholds=[1h,10h]", "strict=true"]).unwrap();
        let sample: Sample = raw.read("sample").unwrap();
        assert_eq!(sample.thresholds, [Span::secs(3600), Span::secs(36_000)]);
        assert_eq!((sample.quantum, sample.strict), (Span::secs(300), true));
    }

    #[test]
    fn settings_refuse_an_unknown_key_and_name_the_nearest() {
        let error = RawSettings::parse(["tresholds=[1h]"]).unwrap().read::<Sample>("sample");
        let message = error.unwrap_err().to_string();
        assert!(message.contains("did you mean `thresholds`"), "{message}");
    }

    #[test]
    fn settings_name_the_key_whose_value_is_wrong() {
        let error = RawSettings::parse(["quantum=soon"]).unwrap().read::<Sample>("sample");
        let message = error.unwrap_err().to_string();
        assert!(message.contains("sample.quantum") && message.contains("1m"), "{message}");
        assert!(RawSettings::parse(["quantum"]).is_err());
    }
}
