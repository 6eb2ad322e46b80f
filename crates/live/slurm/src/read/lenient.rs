//! Fields that the versions of Slurm write in different shapes.

use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use std::fmt;

/// A whole number: plain, as text, as `null`, or as `{"set", "infinite", "number"}`.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(super) struct Number(pub Option<i64>);

impl Number {
    /// The value if it is above zero; Slurm writes 0 for a time that is not known.
    pub fn positive(self) -> Option<i64> {
        self.0.filter(|value| *value > 0)
    }

    /// The value as a count; what is not set is 0.
    pub fn count(self) -> u32 {
        self.0.map_or(0, |value| value.clamp(0, i64::from(u32::MAX)) as u32)
    }
}

/// A text: `null` is empty, a number is its digits, a list is joined by commas.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Text(pub String);

/// Words: a list of them, or one text with commas.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Words(pub Vec<String>);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Number, D::Error> {
        deserializer.deserialize_any(NumberVisitor)
    }
}

struct NumberVisitor;

impl<'de> Visitor<'de> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a number, null or {set, infinite, number}")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Number, E> {
        Ok(Number(None))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Number, E> {
        Ok(Number(Some(i64::from(value))))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Number, E> {
        Ok(Number(Some(value)))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Number, E> {
        Ok(Number(Some(i64::try_from(value).unwrap_or(i64::MAX))))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Number, E> {
        // A cast saturates, and what is no number becomes 0.
        Ok(Number(Some(value as i64)))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Number, E> {
        match value.trim() {
            "" | "N/A" | "UNLIMITED" | "INFINITE" => Ok(Number(None)),
            digits => digits
                .parse()
                .map(|value| Number(Some(value)))
                .map_err(|_| E::invalid_value(de::Unexpected::Str(value), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Number, A::Error> {
        let (mut is_set, mut is_infinite, mut number) = (true, false, Number(None));
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "set" => is_set = map.next_value()?,
                "infinite" => is_infinite = map.next_value()?,
                "number" => number = map.next_value()?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(if is_set && !is_infinite { number } else { Number(None) })
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        deserializer.deserialize_any(WordsVisitor).map(|words| Text(words.0.join(",")))
    }
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Words, D::Error> {
        let words = deserializer.deserialize_any(WordsVisitor)?;
        let words = words.0.iter().flat_map(|word| word.split(','));
        Ok(Words(words.map(str::trim).filter(|w| !w.is_empty()).map(str::to_owned).collect()))
    }
}

struct WordsVisitor;

impl<'de> Visitor<'de> for WordsVisitor {
    type Value = Words;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a text or a list of them")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Words, E> {
        Ok(Words(Vec::new()))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Words, E> {
        Ok(Words(vec![value.to_string()]))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Words, E> {
        Ok(Words(vec![value.to_string()]))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Words, E> {
        Ok(Words(vec![value.to_string()]))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Words, E> {
        Ok(Words(vec![value.to_string()]))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Words, E> {
        Ok(Words(vec![value.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Words, A::Error> {
        let mut words = Vec::new();
        while let Some(Text(word)) = seq.next_element()? {
            words.push(word);
        }
        Ok(Words(words))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Words, A::Error> {
        // A number in the newer shape where a text is expected, such as an index in an array.
        let mut words = Vec::new();
        let mut is_set = true;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "set" => is_set = map.next_value()?,
                "number" => words = map.next_value::<Words>()?.0,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Words(if is_set { words } else { Vec::new() }))
    }
}

#[cfg(test)]
mod tests {
    use super::{Number, Text, Words};

    #[test]
    fn a_number_has_many_shapes() {
        let number = |text: &str| serde_json::from_str::<Number>(text).map(|number| number.0);
        assert_eq!(number("7").unwrap(), Some(7));
        assert_eq!(number("\"7\"").unwrap(), Some(7));
        assert_eq!(number("null").unwrap(), None);
        let set = r#"{"set":true,"infinite":false,"number":7}"#;
        assert_eq!(number(set).unwrap(), Some(7));
        assert_eq!(number(r#"{"set":true,"infinite":true,"number":0}"#).unwrap(), None);
        assert_eq!(number(r#"{"set":false,"number":5}"#).unwrap(), None);
        assert_eq!(number("1e300").unwrap(), Some(i64::MAX));
        assert!(number("\"many\"").is_err() && number("[1]").is_err());
    }

    #[test]
    fn words_come_as_a_list_or_with_commas() {
        let words = |text: &str| serde_json::from_str::<Words>(text).unwrap().0;
        assert_eq!(words(r#"["IDLE","DRAIN"]"#), ["IDLE", "DRAIN"]);
        assert_eq!(words(r#""a100, nvlink""#), ["a100", "nvlink"]);
        assert!(words("null").is_empty() && words("[]").is_empty());
        assert_eq!(serde_json::from_str::<Text>("12").unwrap().0, "12");
    }
}
