//! Settings of a discipline: `NAME:key=value,key=value`, each key known and each value in its range.

use std::collections::BTreeMap;
use trainyard_diagnostic::InputError;
use trainyard_types::Span;

/// A setting, as a table of a registry describes it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub key: &'static str,
    /// What it is without being set.
    pub default: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// What was set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    values: BTreeMap<String, String>,
    known: &'static [Setting],
}

impl Settings {
    /// Reads `key=value,key=value`; a key that is not known is refused with the nearest one.
    pub fn parse(text: &str, known: &'static [Setting]) -> Result<Settings, InputError> {
        let mut values = BTreeMap::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let Some((key, value)) = part.split_once('=') else {
                return Err(InputError::wrong(0, "setting", part, "`key=value`"));
            };
            if known.iter().all(|one| one.key != key) {
                let keys = known.iter().map(|one| one.key);
                return Err(InputError::unknown(0, "setting", key, keys));
            }
            if values.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(InputError::wrong(0, key, value, "a setting that is given once"));
            }
        }
        Ok(Settings { values, known })
    }

    /// The text of a setting that the table has.
    pub fn text(&self, key: &str) -> &str {
        let default = || self.known.iter().find(|one| one.key == key).map(|one| one.default);
        self.values.get(key).map(String::as_str).or_else(default).unwrap_or("")
    }

    /// A number within a range.
    pub fn real(&self, key: &str, range: (f64, f64)) -> Result<f64, InputError> {
        let number = self.text(key).parse::<f64>().ok();
        let number = number.filter(|number| (range.0..=range.1).contains(number));
        number.ok_or_else(|| {
            let expected = format!("a number from {} to {}", range.0, range.1);
            InputError::wrong(0, key, self.text(key), expected)
        })
    }

    /// A whole number within a range.
    pub fn whole(&self, key: &str, range: (u64, u64)) -> Result<u64, InputError> {
        let number = self.text(key).parse::<u64>().ok();
        let number = number.filter(|number| (range.0..=range.1).contains(number));
        number.ok_or_else(|| {
            let expected = format!("a whole number from {} to {}", range.0, range.1);
            InputError::wrong(0, key, self.text(key), expected)
        })
    }

    /// A length of time.
    pub fn span(&self, key: &str) -> Result<Span, InputError> {
        let text = self.text(key);
        let wrong = |error| InputError::wrong(0, key, text, format!("a length of time ({error})"));
        text.parse().map_err(wrong)
    }

    /// One of some words, by its place among them.
    pub fn word(&self, key: &str, words: &[&str]) -> Result<usize, InputError> {
        let text = self.text(key);
        let found = words.iter().position(|word| *word == text);
        found.ok_or_else(|| InputError::unknown(0, key, text, words.iter().copied()))
    }

    /// Yes or no.
    pub fn flag(&self, key: &str) -> Result<bool, InputError> {
        Ok(self.word(key, &["false", "true"])? == 1)
    }

    /// Whole numbers from 1 to 4096 with `/` between them.
    pub fn list(&self, key: &str) -> Result<Vec<u32>, InputError> {
        let text = self.text(key);
        let numbers: Option<Vec<u32>> =
            text.split('/').filter(|one| !one.is_empty()).map(|one| one.parse().ok()).collect();
        let sound = numbers.filter(|all| all.iter().all(|one| (1..=4096).contains(one)));
        let expected = "whole numbers from 1 to 4096 with `/` between them";
        sound.ok_or_else(|| InputError::wrong(0, key, text, expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Setting] = &[
        Setting { key: "delay", default: "1ms", meaning: "" },
        Setting { key: "batch", default: "8", meaning: "" },
        Setting { key: "sizes", default: "", meaning: "" },
    ];

    #[test]
    fn settings_have_defaults_and_wrong_ones_are_refused_by_name() {
        let settings = Settings::parse("batch=4", KNOWN).unwrap();
        assert_eq!(settings.whole("batch", (1, 9)), Ok(4));
        assert_eq!(settings.span("delay"), Ok(Span(1000)));
        assert_eq!(settings.list("sizes"), Ok(Vec::new()));
        let refused = |text: &str| Settings::parse(text, KNOWN).unwrap_err().to_string();
        assert!(refused("dealy=3").contains("did you mean `delay`"));
        assert!(refused("delay").contains("key=value"));
        assert!(refused("batch=1,batch=2").contains("given once"));
        assert!(Settings::parse("batch=0", KNOWN).unwrap().whole("batch", (1, 9)).is_err());
    }
}
